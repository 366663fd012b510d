"""``simgap envs conformance``: the same numbers on two physics engines, and from theory, before any policy runs on the second."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from simgap.cli._output import emit, progress
from simgap.wording import number_of

if TYPE_CHECKING:
    from rich.console import Console

    from simgap.envs.engines.conformance import Conformance

HELP = "the same numbers on two physics engines and from theory"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the action's own options."""
    parser.add_argument("--engine", default="drake", metavar="NAME", help="engine under test (default drake)")
    parser.add_argument(
        "--blind", action="store_true", help="leave the cameras out: no offscreen driver is needed"
    )


def run(args: argparse.Namespace) -> int:
    """Measure, print the table, and return 1 on an undeclared difference."""
    from dataclasses import asdict

    from simgap.compute.machine import require_offscreen
    from simgap.envs.engines.conformance import conformance

    if not args.blind:
        require_offscreen()
    with progress(None, "measures", args.quiet) as advance:
        result = conformance(
            args.env, args.engine, render=not args.blind, on_row=lambda row: advance(note=row.name)
        )
    document = {
        "env": result.env,
        "engine": result.engine,
        "reference": result.reference,
        "rows": [row.to_json() for row in result.rows],
        "declared_differences": [asdict(d) for d in result.differences],
        "is_clean": not result.findings,
    }
    emit(args, document, lambda console: _print(console, result))
    return 1 if result.findings else 0


def _print(console: Console, result: Conformance) -> None:
    from rich.table import Table

    from simgap.cli._output import show_lines

    table = Table("measure", "unit", "reference", "under test", "theory", "tolerance", "verdict", box=None)
    for row in result.rows:
        numbers = (_number(row.reference), _number(row.value), _number(row.theory), f"{row.tolerance:g}")
        table.add_row(
            row.name, row.unit, *numbers, f"{row.verdict}: {row.note}" if row.note else str(row.verdict)
        )
    show_lines(console, f"{result.env}: {result.engine} against {result.reference}")
    console.print(table)
    show_lines(console, "", "declared differences")
    for difference in result.differences:
        show_lines(
            console,
            f"  {difference.name}: MuJoCo {difference.mujoco}; Drake {difference.drake}",
            f"    matters to {difference.matters}",
        )
    for row in result.findings:
        show_lines(console, f"finding: {row.name} ({row.what}) {row.verdict}")
    agreed = sum(row.verdict == "agrees" for row in result.rows)
    show_lines(
        console,
        f"{agreed} of {len(result.rows)} agree, {len(result.rows) - agreed - len(result.findings)} declared,"
        f" {number_of(len(result.findings), 'finding')}",
    )


def _number(value: Any) -> str:
    return "" if value is None else f"{value:.4g}"
