"""``simgap generate``: the teacher records verified episodes into a dataset folder."""

from __future__ import annotations

import argparse
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simgap.cli._amounts import few_episodes
from simgap.cli._arguments import EnvName
from simgap.cli._options import Names, add_engine, add_workers, amount, count, names, preset_of, workers_of
from simgap.cli._output import duration, emit, following, progress, say, show_lines
from simgap.cli._runner import add_ray, runner_of
from simgap.wording import number_of

if TYPE_CHECKING:
    from rich.console import Console

    from simgap.teachers.generation import GenerateReport, GenerateSpec

HELP = (
    "Let the teacher of an env record episodes in sim. Only episodes in which it succeeded are kept. Killed"
    " at any moment, the same command makes what is missing; with a larger -n it adds to the folder of --out."
)
OFTEN_REJECTED = 0.05
"""Above this share of rejected attempts the data lean towards easy conditions, and the user should know."""

KEEP = 6
"""Checkpoints along the way that the next step keeps, for `simgap select` to race."""
SIZE_PX, NOISE_DEG, CODEC, ENGINE = 96, 1.5, "h264", "mujoco"
"""Defaults; the folder of a dataset is named by what differs from them."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    parser.add_argument("env", type=EnvName, metavar="ENV", help="env, as `simgap envs` lists it")
    parser.add_argument("-n", type=count, required=True, metavar="N", help="episodes to have in the end")
    parser.add_argument(
        "--factors",
        default="nominal",
        metavar="PRESET",
        help="preset the conditions are drawn from (default nominal)",
    )
    parser.add_argument(
        "--size", type=count, default=SIZE_PX, metavar="PX", help=f"side of a frame (default {SIZE_PX})"
    )
    parser.add_argument(
        "--noise-deg",
        type=amount,
        default=NOISE_DEG,
        metavar="X",
        help=f"noise on what is executed, the label stays clean (default {NOISE_DEG})",
    )
    parser.add_argument(
        "--cameras",
        type=names,
        nargs="+",
        default=(),
        action=Names,
        metavar="NAME",
        help="cameras to record, apart or with commas between them (default: all of the env)",
    )
    parser.add_argument(
        "--codec",
        choices=("h264", "av1", "png"),
        default=CODEC,
        help="h264: small, lossy, fast; av1: ten times slower; png: exact (default h264)",
    )
    add_engine(parser)
    add_ray(parser)
    add_workers(parser)


def default_name(args: argparse.Namespace) -> str:
    """Return the folder name of what is asked: two requests that make different episodes do not share one."""
    parts = [args.env, args.factors.replace(":", "-"), str(args.n), f"s{args.seed}"]
    parts += [f"{args.size}px"] if args.size != SIZE_PX else []
    parts += ["+".join(args.cameras)] if args.cameras else []
    parts += [f"noise{args.noise_deg:g}"] if args.noise_deg != NOISE_DEG else []
    parts += [word for word, usual in ((args.codec, CODEC), (args.engine, ENGINE)) if word != usual]
    return "-".join(parts)


def run(args: argparse.Namespace) -> int:
    """Generate, or make what is missing of an interrupted run."""
    from simgap.compute.locks import alone_in
    from simgap.compute.machine import require_offscreen
    from simgap.envs import make_env
    from simgap.episodes.write.store import EpisodeWriter, release_claim
    from simgap.teachers import make_teacher
    from simgap.teachers.generation import GenerateSpec, dataset_spec, recorded_env

    spec = GenerateSpec(
        env=args.env,
        episodes=args.n,
        ranges=preset_of(
            make_env(args.env, image_size=args.size, render=False, engine=args.engine), args.factors
        ),
        image_size=args.size,
        seed=args.seed,
        noise_deg=args.noise_deg,
        codec=args.codec,
        engine=args.engine,
        cameras=args.cameras,
    )
    env = recorded_env(spec, render=False)
    require_offscreen()
    out = args.out or Path("runs/data") / default_name(args)
    with alone_in(out):
        release_claim(out)
        there = len(EpisodeWriter(out, dataset_spec(spec, env, make_teacher(env))).done())
    if there:
        rest = args.n - there
        say(
            args,
            f"{there} of {number_of(args.n, 'episode is', 'episodes are')} in {out} already;"
            f" {f'making the other {rest}' if rest > 0 else 'none is missing'}",
        )
    began = time.monotonic()
    report = _generate(args, spec, out, there)
    document = _document(report, env.cameras, there, time.monotonic() - began)
    emit(args, document, lambda console: _print(console, document))
    return 0


def _generate(args: argparse.Namespace, spec: GenerateSpec, out: Path, there: int) -> GenerateReport:
    from simgap.teachers.generation import generate

    missing = max(spec.episodes - there, 0)
    with progress(missing, "episodes", args.quiet or missing == 0) as advance:
        return generate(
            spec, out, workers=workers_of(args), progress=following(advance, there), runner=runner_of(args)
        )


def _document(report: GenerateReport, cameras: tuple[str, ...], there: int, seconds: float) -> dict[str, Any]:
    return {
        "path": report.root,
        "episodes": report.episodes,
        "frames": report.frames,
        "cameras": list(cameras),
        "fingerprint": report.fingerprint,
        "episodes_already_there": there,
        "attempts": report.attempts,
        "rejected": dict(report.rejected),
        "seconds": seconds,
        "frames_per_s": report.frames_made / seconds if report.frames_made else None,
        "note": few_episodes(report.episodes),
        "next": shlex.join(["simgap", "train", str(report.root), "--keep", str(KEEP)]),
    }


def _print(console: Console, document: dict[str, Any]) -> None:
    rejected, attempts = document["rejected"], document["attempts"]
    lost = sum(rejected.values())
    resumed = (
        f", {document['episodes_already_there']} of them from before"
        if document["episodes_already_there"]
        else ""
    )
    show_lines(
        console,
        f"wrote {document['path']}: {number_of(document['episodes'], 'episode')}{resumed},"
        f" {number_of(document['frames'], 'frame')} of"
        f" {number_of(len(document['cameras']), 'camera')}",
    )
    if attempts:
        reasons = (
            ": "
            + ", ".join(f"{n} {reason}" for reason, n in sorted(rejected.items(), key=lambda item: -item[1]))
            if lost
            else ""
        )
        show_lines(console, f"{number_of(attempts, 'attempt')}, {lost} rejected{reasons}")
    if document["frames_per_s"] is not None:
        show_lines(console, f"{document['frames_per_s']:.0f} frames/s, {duration(document['seconds'])}")
    if lost > OFTEN_REJECTED * max(attempts, 1):
        show_lines(
            console,
            "note: the conditions of rejected attempts are missing from the data; it leans towards what the"
            " teacher finds easy",
        )
    if document["note"]:
        show_lines(console, f"note: {document['note']}")
    show_lines(console, f"fingerprint {document['fingerprint']}", f"next: {document['next']}")
