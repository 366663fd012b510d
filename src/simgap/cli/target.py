"""``simgap target``: plan the next batch from a run's diagnosis, and make it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simgap.cli._options import add_workers, count, workers_of
from simgap.cli._output import emit

if TYPE_CHECKING:
    from rich.console import Console

HELP = "plan the next data from the failures"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    parser.add_argument(
        "run_folder", type=Path, metavar="RUN", help="folder of a diagnosed run that `simgap demo` wrote"
    )
    parser.add_argument(
        "--turn", type=count, metavar="K", help="of which turn (default: the newest that was diagnosed)"
    )
    parser.add_argument(
        "-n", "--episodes", type=count, default=240, metavar="N", help="episodes to plan (default 240)"
    )
    parser.add_argument("--generate", action="store_true", help="make the episodes now, into --out")
    add_workers(parser)


def run(args: argparse.Namespace) -> int:
    """Plan, and with ``--generate`` make, the data that a diagnosis asks for."""
    from simgap.envs import make_env
    from simgap.errors import DataError
    from simgap.loop.results import asked_of
    from simgap.loop.store import load_run
    from simgap.policies.execution import parse_executor
    from simgap.targeting import plan_data

    result = load_run(args.run_folder)
    turn = result.turn(args.turn)
    if turn.diagnosis is None:
        why = (
            "its policy did not pass the screen; train longer and run again"
            if turn.in_use is None
            else f"it was tried in use only; run with `--turns {turn.number + 1}` into a new folder"
        )
        raise DataError(f"turn {turn.number} of {args.run_folder} has no diagnosis: {why}")
    ranges = asked_of(result.ranges, result.turns[: turn.number - 1]).ranges
    space = make_env(result.spec.env, render=False, by=args.run_folder).factor_space
    plan = plan_data(turn.diagnosis, ranges, space, parse_executor(turn.executor), episodes=args.episodes)
    document: dict[str, Any] = {
        "cause": str(turn.diagnosis.cause),
        "plan": plan.to_json(),
        "asked_to_generate": args.generate,
        "dataset": None,
    }
    if args.generate and plan.ranges is not None:
        document["dataset"] = str(
            _generate(args, result.spec.env, result.spec.image_size, plan.ranges, plan.noise_deg)
        )
    emit(args, document, lambda console: _show(console, document))
    return 0 if plan.kind == "nothing" else 1


def _generate(args: argparse.Namespace, env: str, image_size: int, ranges: Any, noise_deg: float) -> Path:
    from simgap.cli._reporter import ConsoleReporter
    from simgap.compute.machine import require_offscreen
    from simgap.seeds import Purpose
    from simgap.teachers.generation import GenerateSpec, generate

    require_offscreen()
    out: Path = args.out or Path(args.run_folder) / "targeted"
    spec = GenerateSpec(
        env=env,
        episodes=args.episodes,
        ranges=ranges,
        image_size=image_size,
        seed=args.seed,
        purpose=Purpose.TARGET,
        noise_deg=noise_deg,
    )
    with ConsoleReporter(args.quiet).stage("teach where it failed", "episodes") as progress:
        generate(spec, out, workers=workers_of(args), progress=lambda done, total: progress(done, total, ""))
    return out


def _show(console: Console, document: dict[str, Any]) -> None:
    plan = document["plan"]
    console.print(f"cause   {document['cause']}")
    console.print(f"plan    {plan['sentence']}")
    for name, (low, high) in plan["changes"].items():
        console.print(f"        {name}: {low:.4g} to {high:.4g}")
    if document["dataset"]:
        console.print(f"wrote   {document['dataset']}")
    elif document["asked_to_generate"]:
        console.print("wrote   nothing: this plan needs no episodes")
