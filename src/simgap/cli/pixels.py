"""``simgap pixels``: the smallest frame size at which the target can be placed and told apart."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simgap.cli._arguments import EnvName
from simgap.cli._options import amount, count, preset_of
from simgap.cli._output import emit, progress, say, show_lines
from simgap.wording import number_of

if TYPE_CHECKING:
    from rich.console import Console

    from simgap.pixelfloor.floor import FloorReport
    from simgap.pixelfloor.probe import ProbeSpec

HELP = (
    "Find the smallest frame size at which the target can be placed within the task's tolerance and told from"
    " what it could be mistaken for. The probe, a small network, decides; the ruler, pixels across the"
    " target, explains. Exit code 1 when a size asked for is marginal or fails."
)
USUAL_SIZES = (6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
"""Tried from the smallest until one passes, unless sizes are given."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    parser.add_argument(
        "what",
        type=EnvName,
        metavar="ENV|DATASET",
        help="env, or dataset folder (of an env, or real with --labels)",
    )
    parser.add_argument(
        "--size",
        metavar="PX,PX",
        help=f"frame sizes to measure (default: up from {USUAL_SIZES[0]} px until one passes)",
    )
    parser.add_argument(
        "--factors",
        metavar="PRESET",
        help="preset the scenes are drawn from (default nominal, or the dataset's own ranges)",
    )
    parser.add_argument(
        "--cameras",
        nargs="+",
        metavar="NAME",
        help="cameras the policy will see (default: all of the env, or of the dataset)",
    )
    parser.add_argument("--scenes", type=count, metavar="N", help="scenes of each phase (default 2000)")
    parser.add_argument("--steps", type=count, metavar="N", help="training steps of the probe (default 1000)")
    parser.add_argument(
        "--labels",
        type=Path,
        metavar="CSV",
        help="real data: episode,frame,x_m,y_m of the target in at least 10 frames of 5 episodes",
    )
    parser.add_argument(
        "--tolerance-mm",
        type=amount,
        metavar="MM",
        help="real data: error of the target's position that the task forgives",
    )


def run(args: argparse.Namespace) -> int:
    """Measure and report; ``--out`` is a PNG of errors and frames."""
    from simgap.errors import UsageError

    if args.out is not None and args.out.suffix.lower() != ".png":
        raise UsageError(
            f"--out {args.out} is not a .png file; give one for the plot, and --json for the numbers"
        )
    sizes = _sizes(args.size)
    report = _labelled(args, sizes) if args.labels else _simulated(args, sizes)
    if args.out is not None:
        from simgap.report.pixel_plot import plot_floor

        plot_floor(report, args.out)
    document = report.to_json() | ({"plot": args.out} if args.out else {})
    emit(args, document, lambda console: _print(console, report, args.out))
    asked = report.sizes if sizes else report.sizes[-1:]
    return 1 if any(s.verdict.is_below for s in asked) else 0


def _sizes(text: str | None) -> tuple[int, ...] | None:
    from simgap.errors import UsageError
    from simgap.pixelfloor.floor import require_sizes

    if text is None:
        return None
    try:
        return require_sizes([int(part) for part in text.split(",")])
    except ValueError as error:
        raise UsageError(f"--size {text[:80]!r}: give whole numbers such as 24,48,96") from error


def _spec(args: argparse.Namespace) -> ProbeSpec:
    from simgap.compute.machine import usable_cores
    from simgap.pixelfloor.probe import ProbeSpec

    given = {name: getattr(args, name) for name in ("scenes", "steps") if getattr(args, name) is not None}
    return ProbeSpec(seed=args.seed, threads=min(usable_cores(), 4), **given)


def _simulated(args: argparse.Namespace, sizes: tuple[int, ...] | None) -> FloorReport:
    from simgap.compute.machine import require_offscreen
    from simgap.envs import make_env
    from simgap.errors import UsageError, did_you_mean
    from simgap.pixelfloor.floor import search_floor

    name, ranges, cameras = args.what, None, args.cameras
    if Path(args.what).is_dir():
        from simgap.envs.factors import FactorRanges
        from simgap.episodes.reader import open_dataset

        dataset = open_dataset(Path(args.what))
        fields = dataset.spec.stamp.fields
        if "generate" not in fields:
            raise UsageError(
                f"{args.what} was not made in one of our envs; label a handful of frames and give them with"
                " --labels and --tolerance-mm"
            )
        name, ranges = str(fields["env"]), FactorRanges.from_json(dict(fields["generate"])["ranges"])
        absent = [c for c in cameras or () if c not in dataset.camera_keys]
        if absent:
            raise UsageError(
                f"{args.what} has no camera {absent[0]!r}; {did_you_mean(absent[0], dataset.camera_keys)}"
            )
        cameras = cameras or sorted(dataset.camera_keys)
    env = make_env(name, image_size=96, by=Path(args.what))
    chosen = preset_of(env, args.factors) if args.factors else ranges or env.presets["nominal"]
    unknown = sorted(set(cameras or ()) - set(env.cameras))
    if unknown:
        raise UsageError(f"env {name} has no cameras {unknown}; it has {', '.join(env.cameras)}")
    require_offscreen()
    spec = _spec(args)
    say(
        args,
        f"{name}, {chosen.name}: {number_of(spec.scenes, 'scene')} of each phase; a probe of"
        f" {number_of(spec.steps, 'step')} at each"
        " size",
    )
    with progress(None, "scenes and steps", args.quiet) as advance:
        try:
            return search_floor(
                env,
                chosen,
                sizes or USUAL_SIZES,
                until_pass=sizes is None,
                cameras=cameras,
                spec=spec,
                progress=lambda what, n: advance(n, what),
            )
        finally:
            env.close()


def _labelled(args: argparse.Namespace, sizes: tuple[int, ...] | None) -> FloorReport:
    import numpy as np

    from simgap.episodes.frames import load_frames
    from simgap.errors import DataError, UsageError
    from simgap.pixelfloor.labels import labelled_floor, read_labels

    if args.tolerance_mm is None:
        raise UsageError(
            "--labels needs --tolerance-mm: how far off may the gripper be and the task still succeed?"
        )
    labels = read_labels(args.labels)
    table = load_frames(Path(args.what), cameras=args.cameras, said=lambda text: say(args, f"note: {text}"))
    lengths = np.diff(table.episode_start)
    for label in labels:
        if not 0 <= label.episode < len(lengths) or not 0 <= label.frame < lengths[label.episode]:
            raise DataError(
                f"{args.labels} labels frame {label.frame} of episode {label.episode}, which {args.what} does"
                " not have"
            )
    rows = np.array([table.episode_start[label.episode] + label.frame for label in labels])
    images = {camera: np.asarray(frames[rows]) for camera, frames in table.images.items()}
    largest = min(min(v.shape[1:3]) for v in images.values())
    wanted = sizes or tuple(s for s in USUAL_SIZES if s <= largest)
    return labelled_floor(
        images,
        table.state[rows],
        labels,
        wanted,
        tolerance_m=args.tolerance_mm / 1000,
        name=args.what,
        spec=_spec(args),
    )


def _print(console: Console, report: FloorReport, plot: Path | None) -> None:
    from rich.table import Table

    show_lines(
        console,
        f"{report.env}, {report.factors}, cameras {', '.join(report.cameras)}; the task forgives"
        f" {report.tolerance_mm:g} mm",
        "",
    )
    table = Table(
        "frame",
        "verdict",
        "phase",
        "error (median, interval)",
        "90th perc.",
        "blind",
        "within tolerance",
        "told apart",
        box=None,
    )
    for size in report.sizes:
        for k, e in enumerate(size.errors):
            lead = (f"{size.size_px} px", str(size.verdict)) if k == 0 else ("", "")
            known = e.median_interval_mm
            interval = (
                f"no interval of {number_of(e.n, 'scene')}"
                if known is None
                else f"{known[0]:.1f}-{known[1]:.1f}"
            )
            table.add_row(
                *lead,
                e.phase,
                f"{e.median_mm:.1f} mm ({interval})",
                f"{e.p90_mm:.1f} mm",
                f"{e.blind_median_mm:.1f} mm",
                f"{e.placed.successes}/{e.placed.n}",
                f"{e.told_apart.successes}/{e.told_apart.n}",
            )
    console.print(table, "")
    if any(size.rulers for size in report.sizes):
        console.print(_ruler_table(report), "")
    show_lines(console, *(f"{size.size_px} px: {size.verdict}: {size.reason}" for size in report.sizes), "")
    smallest = report.smallest_px
    show_lines(
        console,
        "no size measured here passes" if smallest is None else f"smallest frame that passes: {smallest} px",
    )
    show_lines(
        console,
        "a probe says what can be seen, not that a policy will use it; and it shares its renderer with the"
        " data",
    )
    if plot:
        show_lines(console, f"wrote {plot}")


def _ruler_table(report: FloorReport) -> Any:
    from rich.table import Table

    table = Table(
        "frame",
        "camera",
        "phase",
        "px across",
        "5th perc.",
        "formula off by",
        "mm/px",
        "contrast",
        "cells",
        "covered",
        box=None,
        title="ruler",
    )
    for size in report.sizes:
        for r in size.rulers:
            table.add_row(
                f"{r.size_px} px",
                r.camera,
                r.phase,
                f"{r.across_px_median:.1f}",
                f"{r.across_px_p5:.1f}",
                f"{r.disagreement_px_max:.2f} px" + ("" if r.agrees else " (!)"),
                f"{r.mm_per_px_median:.1f}",
                "-" if r.contrast_median is None else f"{r.contrast_median:.0f}",
                f"{r.cells_across_median:.1f}",
                f"{r.covered}/{r.n}",
            )
    return table
