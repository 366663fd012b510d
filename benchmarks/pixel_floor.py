"""Does the pixel probe foretell what policies do? Probe, ruler and the closed-loop success of a policy trained at each size, in one table.

    python benchmarks/pixel_floor.py --cameras front --sizes 4,8,12,24,48 --factors clean,cluttered,looks
    --out runs/pixels

A killed run goes on where it stopped. Seeds: data from *train*, rollouts from *report*, the probe's scenes
from its own stream.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from pathlib import Path
from typing import Any

from simgap.compute.machine import apply_environment, usable_cores, worker_environment

apply_environment(worker_environment(threads=1))  # before numpy, torch or a GL driver is loaded

from simgap.envs import make_env  # noqa: E402
from simgap.episodes.frames import load_frames  # noqa: E402
from simgap.pixelfloor.floor import search_floor  # noqa: E402
from simgap.pixelfloor.probe import ProbeSpec  # noqa: E402
from simgap.provenance import write_atomic  # noqa: E402
from simgap.rollouts.engine import RolloutSpec, run_rollouts  # noqa: E402
from simgap.seeds import Purpose  # noqa: E402
from simgap.statistics import tally, wilson  # noqa: E402
from simgap.teachers.generation import GenerateSpec, generate  # noqa: E402
from simgap.training import TrainSpec, train  # noqa: E402

MOSTLY, HARDLY = 0.8, 0.2
"""What a policy should reach where the probe passes, and not exceed where it fails."""


def main() -> None:
    """Print the table; write it as JSON and Markdown."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--env", default="arm-pick")
    parser.add_argument("--sizes", default="4,8,12,24,48")
    parser.add_argument("--factors", default="clean,cluttered,looks")
    parser.add_argument("--cameras", default="", help="comma-separated; all by default")
    parser.add_argument("--episodes", type=int, default=400)
    parser.add_argument("--steps", type=int, default=2500)
    parser.add_argument("--rollouts", type=int, default=100)
    parser.add_argument(
        "--page", type=Path, help="a page whose table is replaced, such as docs/studies/pixel-floor.md"
    )
    parser.add_argument("--out", type=Path, default=Path("runs/pixels"))
    options = parser.parse_args()
    sizes = [int(s) for s in options.sizes.split(",")]
    options.cameras = tuple(c for c in options.cameras.split(",") if c)
    rows: list[str] = []
    for factors in options.factors.split(","):
        for size in sizes:
            cameras = "+".join(options.cameras) or "all"
            floor = _kept(
                options.out / f"floor-{factors}-{cameras}-{size}.json",
                lambda f=factors, s=size: _floor(options, f, s),
            )
            report = floor["sizes"][0]
            name = f"policy-{factors}-{cameras}-{size}-{options.episodes}-{options.steps}-{options.rollouts}.json"
            policy = _kept(options.out / name, lambda f=factors, s=size: _policy(options, f, s))
            rows.append(_row(factors, report, policy))
            print(rows[-1], end="", flush=True)
    write_atomic(options.out / "table.md", (HEAD + "".join(rows)).encode())
    if options.page:
        _put(options.page, rows)


def _floor(options: argparse.Namespace, factors: str, size: int) -> dict[str, Any]:
    env = make_env(options.env, image_size=96)
    began = time.monotonic()
    report = search_floor(
        env,
        env.presets[factors],
        (size,),
        cameras=options.cameras or None,
        spec=ProbeSpec(threads=usable_cores()),
    )
    env.close()
    return report.to_json() | {"wall_s": time.monotonic() - began}


def _policy(options: argparse.Namespace, factors: str, size: int) -> dict[str, Any]:
    began = time.monotonic()
    ranges = make_env(options.env, render=False).presets[factors]
    work = options.out / f"work-{factors}-{size}"
    spec = GenerateSpec(
        env=options.env,
        episodes=options.episodes,
        ranges=ranges,
        image_size=size,
        codec="png" if size < 48 else "h264",
        cameras=options.cameras,
    )
    report = generate(spec, work / "data", workers=usable_cores())
    table = load_frames(report.root)
    checkpoint = train(
        [table],
        None,
        TrainSpec(steps=options.steps, shift_px=min(3, size // 16), threads=usable_cores()),
        work / "policy",
    )
    rollouts = RolloutSpec(
        env=options.env,
        checkpoint=checkpoint,
        executor="receding(5)",
        ranges=ranges,
        episodes=options.rollouts,
        purpose=Purpose.REPORT,
    )
    counts = tally(r.outcome for r in run_rollouts(rollouts, workers=usable_cores()))
    del table
    shutil.rmtree(work)
    rate = wilson(counts.successes, counts.n)
    failures = {str(k): int(v) for k, v in counts.failures.items()}
    return {
        "successes": counts.successes,
        "n": counts.n,
        "low": rate.low,
        "high": rate.high,
        "failures": failures,
        "wall_s": time.monotonic() - began,
    }


def _kept(path: Path, make: Any) -> Any:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, json.dumps(make(), indent=1).encode())
    return json.loads(path.read_text())


HEAD = (
    "| scene | frame | px across, start / near (formula off by) | probe's error, median (95 %) and 90th"
    " percentile, near | placed in tolerance, near | told apart, start | verdict | policy (Wilson 95 %) |"
    " |\n|---|---|---|---|---|---|---|---|---|\n"
)


def _row(factors: str, report: dict[str, Any], policy: dict[str, Any]) -> str:
    start, near = ({e["phase"]: e for e in report["probe"]}[phase] for phase in ("start", "near"))
    first = report["ruler"][0]["camera"]
    across = {r["phase"]: r["across_px_median"] for r in report["ruler"] if r["camera"] == first}
    off = max(r["disagreement_px_max"] for r in report["ruler"])
    placed, told, made = near["placed"], start["told_apart"], policy["successes"] / policy["n"]
    verdict, share = report["verdict"], placed["successes"] / placed["n"]
    is_foretold = made >= MOSTLY if verdict == "pass" else made <= HARDLY
    says = (
        ("as foretold" if is_foretold else "NOT as foretold")
        if verdict in ("pass", "fail")
        else f"probe {share:.0%}, policy {made:.0%}"
    )
    cells = (
        factors,
        f"{report['size_px']} px",
        f"{across['start']:.1f} / {across['near']:.1f} ({off:.2f})",
        (
            f"{near['median_mm']:.1f} mm ({near['median_interval_mm'][0]:.1f} to"
            f" {near['median_interval_mm'][1]:.1f}), {near['p90_mm']:.1f} mm"
        ),
        f"{placed['successes']}/{placed['n']}",
        f"{told['successes']}/{told['n']}",
        verdict,
        f"{policy['successes']}/{policy['n']} ({100 * policy['low']:.0f} to {100 * policy['high']:.0f} %)",
        says,
    )
    return "| " + " | ".join(cells) + " |\n"


def _put(page: Path, rows: list[str]) -> None:
    """Replace the table of a page, which begins with its first line of cells and ends before the next empty one."""
    before, bar, rest = page.read_text().partition("| scene |")
    if not bar:
        raise SystemExit(
            f"{page} has no table that begins with '| scene |'; put one line of it where the table shall be"
        )
    write_atomic(page, (before + HEAD + "".join(rows) + "\n" + rest.partition("\n\n")[2]).encode())


if __name__ == "__main__":
    main()
