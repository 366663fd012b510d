"""``simgap demo``: turns of the loop on a sealed surrogate arm, with a report."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simgap.cli._options import add_workers, count, workers_of
from simgap.cli._output import emit

if TYPE_CHECKING:
    from rich.console import Console

    from simgap.loop import TurnResult
    from simgap.loop.results import Turn

HELP = (
    "run turns of the loop on an embedded arm and write report.html; exit 1 when the diagnosis missed the"
    " seal or the newest turn was not shown to be better than the first"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    parser.add_argument(
        "--quick", action="store_true", help="three minutes instead of twelve; the intervals are wide"
    )
    parser.add_argument(
        "--gap",
        default="random",
        metavar="KIND",
        help="what the surrogate hides: random (default), none, or a kind such as camera_shift",
    )
    parser.add_argument(
        "--turns",
        type=count,
        default=2,
        metavar="N",
        help="turns to run, from 1 (default 2); fewer where nothing is left to change",
    )
    add_workers(parser)
    parser.add_argument(
        "--cache",
        type=Path,
        metavar="PATH",
        help="where datasets, policies and screens are shared between runs (default runs/cache)",
    )


def run(args: argparse.Namespace) -> int:
    """Run the demo."""
    from simgap.cli._reporter import ConsoleReporter
    from simgap.compute.machine import require_offscreen
    from simgap.loop import TurnSpec, run_turns
    from simgap.loop.reporting import report_model
    from simgap.loop.turn import exit_code
    from simgap.mutants.gaps import parse_gap
    from simgap.report import write_report

    parse_gap(args.gap)
    require_offscreen()
    spec = (
        TurnSpec.quick(seed=args.seed, gap=args.gap, turns=args.turns)
        if args.quick
        else TurnSpec(seed=args.seed, gap=args.gap, turns=args.turns)
    )
    size = "quick" if args.quick else "full"
    turns = "" if args.turns == 2 else f"-{args.turns}-turns"
    out = args.out or Path("runs") / f"demo-{size}-s{args.seed}-{args.gap}{turns}"
    cache = args.cache or Path("runs") / "cache"
    workers = workers_of(args)
    result = run_turns(spec, out, cache, ConsoleReporter(args.quiet), workers=workers)
    path = write_report(report_model(result, _command(args)), out / "report.html")
    emit(args, _document(result, path), lambda console: _show(console, result, path))
    return exit_code(result)


def _command(args: argparse.Namespace) -> str:
    parts = ["simgap demo", f"--seed {args.seed}", f"--gap {args.gap}"] + (["--quick"] if args.quick else [])
    parts += [f"--turns {args.turns}"] if args.turns != 2 else []
    return " ".join(parts)


def _document(result: TurnResult, report: Path) -> dict[str, Any]:
    from simgap.loop.words import next_command, verdict_sentence
    from simgap.statistics import tally

    def turn(which: Turn) -> dict[str, Any]:
        counts = tally(r.outcome for r in which.results)
        return {
            "number": which.number,
            "checkpoint": str(which.checkpoint),
            "executor": which.executor,
            "screens": [
                {"conditions": c, **{k: v for k, v in s.to_json().items() if k != "stamp"}}
                for c, s in which.screens
            ],
            "surrogate_in_use": (
                None
                if which.in_use is None
                else {
                    "successes": counts.successes,
                    "n": counts.n,
                    "failures": counts.failures,
                    "voids": counts.voids,
                }
            ),
            "diagnosis": (
                None
                if which.diagnosis is None
                else which.diagnosis.to_json()
                | {"next_command": next_command(result, which.diagnosis, which.number)}
            ),
            "plan": None if which.plan is None else which.plan.to_json(),
        }

    paired = result.paired
    return {
        "evidence": "surrogate",
        "verdict": verdict_sentence(result),
        "seed": result.spec.seed,
        "turns": [turn(which) for which in result.turns],
        "paired_difference": (
            None
            if paired is None
            else {
                "point": paired.difference.point,
                "low": paired.difference.low,
                "high": paired.difference.high,
                "p_value": paired.p_value,
            }
        ),
        "is_better": result.is_better,
        "seal": {"commitment": result.seal, "gap": None if result.gap is None else result.gap.to_json()},
        "diagnosis_agrees": result.diagnosis_agrees,
        "ledger_head": result.ledger_head,
        "report": str(report),
        "duration_s": round(result.duration_s, 1),
    }


def _show(console: Console, result: TurnResult, report: Path) -> None:
    from simgap.loop.words import verdict_sentence

    console.print(verdict_sentence(result))
    if result.diagnosis is not None and result.gap is not None:
        console.print(f"diagnosed  {result.diagnosis.cause}: {result.diagnosis.sentence}")
        for turn in result.turns[1:]:
            if turn.diagnosis is not None:
                console.print(f"turn {turn.number}     {turn.diagnosis.cause}: {turn.diagnosis.sentence}")
        console.print(f"sealed     {result.gap.kind}: {result.gap.sentence()}")
        console.print(
            "           sealed: the gap of this run's surrogate (a simulated robot that stands in for a real"
            " one) was drawn and its hash kept before the first trial"
        )
        console.print(
            "           the diagnosis was in the ledger before the seal was opened; "
            + ("they agree" if result.diagnosis_agrees else "they do NOT agree")
        )
    console.print("evidence   simulated and surrogate only: it says nothing about a real robot")
    console.print(
        f"ledger     head {result.ledger_head}; kept in run.json and the report: `simgap ledger verify"
        f" {result.folder}`",
        soft_wrap=True,
    )
    console.print(f"report     {report}")
