"""``simgap envs sweep``: one factor alone, over its range: what cameras see, and how often teacher or policy succeeds."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simgap.cli._output import emit, progress

if TYPE_CHECKING:
    from simgap.envs.base import TaskEnv
    from simgap.envs.factors import FactorRanges
    from simgap.statistics import Estimate

HELP = (
    "one factor moved alone over its range, the others as in a preset: success of the teacher, or of a"
    " policy, and what the cameras see"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the action's own options."""
    from simgap.cli._options import add_engine, add_workers, count

    parser.add_argument("factor", metavar="FACTOR", help="what to move (see `simgap envs show ENV`)")
    parser.add_argument(
        "--low", type=float, metavar="X", help="first value (default: the factor's hard lower bound)"
    )
    parser.add_argument("--high", type=float, metavar="X", help="last value (default: the hard upper bound)")
    parser.add_argument(
        "--points", type=count, default=9, metavar="N", help="values, evenly spaced (default 9)"
    )
    parser.add_argument(
        "-n",
        type=count,
        default=20,
        metavar="N",
        help="rollouts a value, the same seeds at each (default 20)",
    )
    parser.add_argument(
        "--factors",
        default="nominal",
        metavar="PRESET",
        help="preset the other factors are drawn from (default nominal)",
    )
    parser.add_argument(
        "--checkpoint", type=Path, metavar="CHECKPOINT", help="sweep this policy instead of the teacher"
    )
    parser.add_argument("--executor", metavar="TEXT", help="executor of the policy (default: its card's)")
    add_engine(parser)
    add_workers(parser)


def run(args: argparse.Namespace) -> int:
    """Sweep, print and plot."""
    from simgap.cli._options import preset_of
    from simgap.cli._output import show_lines
    from simgap.compute.machine import require_offscreen
    from simgap.envs import make_env
    from simgap.errors import UsageError, did_you_mean
    from simgap.report.factor_plots import plot_sweep

    out = args.out or Path("runs") / f"{args.env}-{args.factor}.png"
    if out.suffix.lower() != ".png":
        raise UsageError(f"--out {out} is not a .png file; give one")
    env = make_env(args.env, render=False)
    if args.factor not in env.factor_space.factors:
        raise UsageError(
            f"{env.name} has no factor {args.factor!r}; {did_you_mean(args.factor, env.factor_space.factors)}"
        )
    factor, base = env.factor_space.factors[args.factor], preset_of(env, args.factors)
    values = _values(args, factor)
    require_offscreen()
    with progress(len(values) * args.n, "rollouts", args.quiet) as advance:
        rates = [
            _rate(args, base.override({args.factor: (v, v)}, f"{base.name}, {args.factor}={v:g}"), advance)
            for v in values
        ]
    title = (
        f"{args.env}: {'teacher' if args.checkpoint is None else args.checkpoint.name}, others as {base.name}"
    )
    plot_sweep(
        args.factor,
        factor.unit,
        values,
        rates,
        _strips(args, values),
        out,
        title=title,
        inside=base.ranges.get(args.factor),
    )
    document = {
        "env": args.env,
        "factor": args.factor,
        "unit": factor.unit,
        "nominal": factor.nominal,
        "others": base.to_json(),
        "tested": "teacher" if args.checkpoint is None else args.checkpoint,
        "points": [
            {"value": v, "successes": r.successes, "n": r.n, "low": r.low, "high": r.high, "method": r.method}
            for v, r in zip(values, rates, strict=True)
        ],
        "plot": out,
    }
    lines = [f"{title}; {args.factor} in {factor.unit}, nominal {factor.nominal:g}"]
    lines += [f"  {v:10.4g}  {r}" for v, r in zip(values, rates, strict=True)]
    emit(args, document, lambda console: show_lines(console, *lines, f"wrote {out}"))
    return 0


def _values(args: argparse.Namespace, factor: Any) -> list[float]:
    import numpy as np

    from simgap.errors import UsageError

    low, high = (
        (factor.low if args.low is None else args.low),
        (factor.high if args.high is None else args.high),
    )
    if not factor.low - 1e-9 <= low <= high <= factor.high + 1e-9:
        raise UsageError(
            f"{low:g}..{high:g} must lie within {factor.low:g}..{factor.high:g} {factor.unit} of"
            f" {args.factor}, low end first"
        )
    values = np.linspace(low, high, args.points)
    return sorted({float(round(v)) for v in values}) if factor.integer else [float(v) for v in values]


def _rate(args: argparse.Namespace, ranges: FactorRanges, advance: Callable[..., None]) -> Estimate:
    from simgap.cli._options import workers_of
    from simgap.cli._output import following
    from simgap.statistics import tally, wilson

    if args.checkpoint is not None:
        from simgap.cli._policies import card_of, executors_of
        from simgap.rollouts.engine import RolloutSpec, run_rollouts

        executor = str(executors_of(card_of(args.checkpoint), [args.executor] if args.executor else None)[0])
        spec = RolloutSpec(
            env=args.env,
            checkpoint=args.checkpoint,
            executor=executor,
            ranges=ranges,
            episodes=args.n,
            seed=args.seed,
            engine=args.engine,
        )
        counts = tally(
            r.outcome for r in run_rollouts(spec, workers=workers_of(args), progress=following(advance))
        )
        return wilson(counts.successes, counts.n)
    from simgap.compute.workers import run_tasks
    from simgap.seeds import Purpose, seed_of

    solved: list[bool] = []

    def landed(result: bool) -> None:
        solved.append(result)
        advance()

    seeds = [seed_of(Purpose.TRAIN, args.seed, k) for k in range(args.n)]
    run_tasks(
        _teacher,
        (args.env, args.engine, ranges),
        seeds,
        workers=workers_of(args) if args.n > 50 else 0,
        on_result=landed,
    )
    return wilson(sum(solved), len(solved))


def _teacher(name: str, engine: str, ranges: FactorRanges) -> Callable[[int], bool]:
    from simgap.envs import make_env
    from simgap.provenance import child_rng
    from simgap.teachers import make_teacher
    from simgap.teachers.verify import roll_out

    env = make_env(name, image_size=16, render=False, engine=engine)
    teacher = make_teacher(env)

    def play(seed: int) -> bool:
        env.reset(seed=seed, options={"factors": env.factor_space.sample(ranges, child_rng(seed, "factors"))})
        return roll_out(env, teacher).is_success

    return play


def _strips(args: argparse.Namespace, values: Sequence[float]) -> dict[str, list[Any]]:
    """Return a still of every camera at every value; all else as in one draw."""
    from simgap.cli._options import preset_of
    from simgap.envs import make_env
    from simgap.provenance import child_rng

    env: TaskEnv = make_env(args.env, image_size=96)
    drawn = env.factor_space.sample(preset_of(env, args.factors), child_rng(args.seed, "sweep"))
    stills = [env.render_still({**drawn, args.factor: value}) for value in values]
    env.close()
    return {camera: [s[camera] for s in stills] for camera in env.cameras}
