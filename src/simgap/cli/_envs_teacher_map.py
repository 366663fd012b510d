"""``simgap envs teacher-map``: where a teacher solves its task, where it fails and where it abstains, over two factors."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simgap.cli._output import emit, progress
from simgap.wording import number_of

if TYPE_CHECKING:
    from rich.console import Console

    from simgap.teachers.map import TeacherMap

HELP = "success, failures and abstentions of the teacher over a grid of two factors, counted and plotted"
USUAL_AXES = {
    "arm-pick": ("target_x_m", "target_y_m"),
    "arm-place": ("target_x_m", "target_y_m"),
    "arm-pass": ("pad_offset_deg", "pad_distance_m"),
    "car-goal": ("target_x_m", "target_y_m"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the action's own options."""
    from simgap.cli._options import add_engine, add_workers, count

    parser.add_argument("--x", metavar="FACTOR", help="factor along x (default: the target's place)")
    parser.add_argument("--y", metavar="FACTOR", help="factor along y")
    parser.add_argument(
        "--factors",
        default="nominal",
        metavar="PRESET",
        help="preset the other factors are drawn from (default nominal)",
    )
    parser.add_argument(
        "--cells", type=count, default=12, metavar="N", help="cells along each axis (default 12)"
    )
    parser.add_argument("-n", type=count, default=5, metavar="N", help="rollouts a cell (default 5)")
    add_engine(parser)
    add_workers(parser)


def run(args: argparse.Namespace) -> int:
    """Count, print and plot."""
    from simgap.cli._options import preset_of, workers_of
    from simgap.cli._output import following
    from simgap.envs import make_env
    from simgap.errors import UsageError
    from simgap.report.factor_plots import plot_teacher_map
    from simgap.teachers.map import teacher_map

    out = args.out or Path("runs") / f"{args.env}-teacher-map.png"
    if out.suffix.lower() != ".png":
        raise UsageError(f"--out {out} is not a .png file; give one")
    env = make_env(args.env, render=False)
    x, y = (
        given or usual
        for given, usual in zip(
            (args.x, args.y), _axes(args.env, list(env.factor_space.factors)), strict=True
        )
    )
    with progress(args.cells**2, "cells", args.quiet) as advance:
        found = teacher_map(
            args.env,
            preset_of(env, args.factors),
            x,
            y,
            cells=args.cells,
            per_cell=args.n,
            seed=args.seed,
            engine=args.engine,
            workers=workers_of(args),
            progress=following(advance),
        )
    plot_teacher_map(found, out)
    document = found.to_json() | {"plot": out}
    emit(args, document, lambda console: _print(console, found, out))
    return 0


def _axes(name: str, factors: list[str]) -> tuple[str, str]:
    usual = USUAL_AXES.get(name, ("", ""))
    return usual if set(usual) <= set(factors) else (factors[0], factors[min(1, len(factors) - 1)])


def _print(console: Console, found: TeacherMap, out: Path) -> None:
    from simgap.cli._output import show_lines
    from simgap.statistics import clopper_pearson
    from simgap.teachers.map import ABSTAINED, SUCCESS

    show_lines(
        console,
        f"{found.teacher} on {found.env}: {found.x.factor} x {found.y.factor},"
        f" {number_of(found.rollouts, 'rollout')} over"
        " hard bounds",
    )
    rates: dict[str, Any] = {
        region: clopper_pearson(found.total(region), found.rollouts) for region in found.counts
    }
    for region in (SUCCESS, ABSTAINED, *found.counts):
        if region in rates:
            show_lines(console, f"  {region}: {rates.pop(region)}")
    for reason, times in list(found.reasons.items())[:8]:
        show_lines(console, f"  abstained {times} times: {reason}")
    inside = _inside(found)
    if inside is not None:
        show_lines(console, f"inside {found.ranges.name}: {inside}")
    show_lines(console, f"wrote {out}")


def _inside(found: TeacherMap) -> Any:
    """Return success over the cells that lie wholly within the preset's ranges of both factors; None where it fixes one."""
    from simgap.statistics import clopper_pearson
    from simgap.teachers.map import SUCCESS

    kept = []
    for axis in (found.x, found.y):
        if axis.factor not in found.ranges.ranges:
            return None
        low, high = found.ranges.ranges[axis.factor]
        kept.append(
            [k for k in range(axis.cells) if low - 1e-9 <= axis.edges[k] and axis.edges[k + 1] <= high + 1e-9]
        )
    grid = found.counts.get(SUCCESS)
    total = len(kept[0]) * len(kept[1]) * found.per_cell
    if not total:
        return None
    return clopper_pearson(0 if grid is None else sum(grid[j][i] for j in kept[1] for i in kept[0]), total)
