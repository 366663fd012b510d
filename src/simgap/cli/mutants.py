"""``simgap mutants``: list and show the known-bads that checks are held against."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from simgap.cli._output import emit

if TYPE_CHECKING:
    from rich.console import Console

    from simgap.mutants.base import Mutant

HELP = "list and show the planted faults that checks have to see"
NAMED = (
    "a mutant of your own, MODULE:CLASS, in a Python file of this folder or an installed package; it is run,"
    " so name only what you trust; may be given several times"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions of the verb and their options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    what = "list every mutant by the seam it acts on, with the cause and the check that have to name it"
    listed = actions.add_parser("list", help=what, description=what)
    listed.add_argument("--markdown", action="store_true", help="as the table of docs/mutants.md")
    what = "show one mutant: what it plants, how it is graded, what it breaks"
    shown = actions.add_parser("show", help=what, description=what)
    shown.add_argument("id", metavar="ID", help="as `simgap mutants list` prints it")
    for action in (listed, shown):
        action.add_argument(
            "--mutant", dest="mutants", action="append", default=[], metavar="MODULE:CLASS", help=NAMED
        )


def run(args: argparse.Namespace) -> int:
    """Do what the action says."""
    from simgap.mutants.registry import all_mutants, find_mutant

    mutants = all_mutants(args.mutants)
    if args.action == "show":
        mutant = find_mutant(args.id, mutants)
        emit(args, _described(mutant), lambda console: _show(console, mutant))
    elif args.markdown and not args.json:
        print(markdown(mutants))
    else:
        document = {"mutants": [_described(mutant) for mutant in mutants]}
        emit(args, document, lambda console: _list(console, mutants))
    return 0


def markdown(mutants: Sequence[Mutant]) -> str:
    """Return the table of the documentation."""
    rows = [
        "| seam | mutant | what is planted | at full strength | has to be named | by |",
        "|---|---|---|---|---|---|",
        *(
            f"| {m.seam} | `{m.id}` | {m.what} | {_full(m)} | `{m.expected}` | `{m.found_by}` |"
            for m in mutants
        ),
    ]
    return "\n".join(rows)


def _full(mutant: Mutant) -> str:
    return f"{mutant.strength.full:g} {mutant.strength.unit}".strip()


def _described(mutant: Mutant) -> dict[str, Any]:
    return {
        "id": mutant.id,
        "what": mutant.what,
        "family": str(mutant.family),
        "seam": str(mutant.seam),
        "full": mutant.strength.full,
        "unit": mutant.strength.unit,
        "breaks": mutant.breaks,
        "expected": str(mutant.expected),
        "found_by": mutant.found_by,
    }


def _list(console: Console, mutants: Sequence[Mutant]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("seam", "mutant", "what is planted", "has to be named"):
        table.add_column(heading, overflow="fold")
    for mutant in mutants:
        table.add_row(str(mutant.seam), mutant.id, mutant.what, str(mutant.expected))
    console.print(table)
    console.print("\nnext       simgap mutants show ID")


def _show(console: Console, mutant: Mutant) -> None:
    console.print(f"{mutant.id} ({mutant.seam}): {mutant.what}")
    console.print(f"strength   0 to 1; 1 is {_full(mutant)}")
    console.print(f"breaks     {mutant.breaks}")
    console.print(f"expected   {mutant.expected}: {mutant.expected.words}; by check {mutant.found_by}")
