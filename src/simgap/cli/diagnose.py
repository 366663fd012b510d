"""``simgap diagnose``: say which thing is broken, from the trials of a run."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from simgap.cli._options import count
from simgap.cli._output import emit
from simgap.cli.checks import add_named

if TYPE_CHECKING:
    from rich.console import Console

    from simgap.diagnosis import Diagnosis

HELP = "say which thing is broken, or which trials would tell"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    parser.add_argument(
        "run_folder",
        type=Path,
        metavar="RUN",
        help="folder of a run that `simgap demo` wrote, with its trials and replays",
    )
    parser.add_argument(
        "--turn", type=count, metavar="K", help="of which turn (default: the newest that was diagnosed)"
    )
    add_named(parser)


def run(args: argparse.Namespace) -> int:
    """Run every check again on a run's logs and print what they say."""
    from dataclasses import replace

    from simgap import causes
    from simgap.checks.registry import all_checks
    from simgap.cli._reporter import ConsoleReporter
    from simgap.compute.machine import require_offscreen
    from simgap.diagnosis import diagnose
    from simgap.loop.crank import set_aside
    from simgap.loop.naming import corrections
    from simgap.loop.store import evidence_of, load_run
    from simgap.loop.words import next_command
    from simgap.provenance import canonical_json, write_atomic

    result = load_run(args.run_folder)
    evidence = evidence_of(result, args.turn)
    require_offscreen()
    reporter = ConsoleReporter(args.quiet)
    found = diagnose(evidence, all_checks(args.checks), lambda family: reporter.say(f"checking {family}"))
    found = set_aside(found, result.turns[: result.turn(args.turn).number - 1])
    found = replace(found, next_command=next_command(result, found, args.turn))
    if args.out is not None:
        write_atomic(args.out, canonical_json(found.to_json()))
    repairs = [
        f"send {now} as {what.removeprefix('what is sent to ')}" for what, _, now in corrections(found)
    ]
    emit(args, found.to_json() | {"corrections": repairs}, lambda console: _show(console, found, repairs))
    return 0 if found.cause is causes.NONE else 1


def _show(console: Console, found: Diagnosis, repairs: Sequence[str]) -> None:
    from rich.table import Table

    from simgap.findings import Verdict
    from simgap.loop.reporting import among_others

    table = Table(box=None, pad_edge=False)
    for heading in ("family", "verdict", "what was found"):
        table.add_column(heading, overflow="fold")
    broken = [check for check in found.checks if check.verdict is Verdict.BROKEN]
    for check in found.checks:
        note = among_others(check, broken, found)
        table.add_row(str(check.family), str(check.verdict), f"{check.sentence} {note}".rstrip())
    console.print(table)
    console.print(f"\ndiagnosis  {found.cause}: {found.sentence}")
    console.print(f"remedy     {found.remedy}")
    for repair in repairs:
        console.print(f"correct    {repair}")
    if found.next_command:
        console.print(f"next       {found.next_command}")
