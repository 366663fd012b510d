"""``simgap checks``: list and show the checks of a diagnosis, and hold a check of one's own against the contract."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simgap.cli._output import emit

if TYPE_CHECKING:
    from rich.console import Console

    from simgap.checks.base import Check
    from simgap.checks.conformance import Kept

HELP = "list and show what a diagnosis asks; hold a check of your own against the contract"
NAMED = (
    "a check of your own, MODULE:CLASS, in a Python file of this folder or an installed package; it is run, so"
    " name only what you trust; may be given several times"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions of the verb and their options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    what = "list every check in the order of diagnosis, with its question and the causes it can name"
    listed = actions.add_parser("list", help=what, description=what)
    listed.add_argument("--markdown", action="store_true", help="as the table of docs/checks.md")
    what = "show one check: question, needs, causes and their remedies"
    shown = actions.add_parser("show", help=what, description=what)
    shown.add_argument("id", metavar="ID", help="as `simgap checks list` prints it")
    what = "hold a check of your own against the contract; exit 1 where it breaks it"
    held = actions.add_parser("check", help=what, description=what)
    held.add_argument("named", metavar="MODULE:CLASS", help=NAMED.split(";")[0])
    held.add_argument(
        "--run", dest="run_folder", type=Path, metavar="RUN", help="a run of `simgap demo` for it to read"
    )
    for action in (listed, shown):
        add_named(action)


def add_named(parser: argparse.ArgumentParser) -> None:
    """Add ``--check``, which other verbs take too."""
    parser.add_argument(
        "--check", dest="checks", action="append", default=[], metavar="MODULE:CLASS", help=NAMED
    )


def run(args: argparse.Namespace) -> int:
    """Do what the action says."""
    from simgap.checks.registry import all_checks, find_check

    if args.action == "check":
        return _hold(args)
    checks = all_checks(args.checks)
    if args.action == "show":
        check = find_check(args.id, checks)
        emit(args, _described(check), lambda console: _show(console, check))
        return 0
    if args.markdown and not args.json:
        print(markdown(checks))
        return 0
    document = {"checks": [_described(check) for check in checks]}
    emit(args, document, lambda console: _list(console, checks))
    return 0


def markdown(checks: Sequence[Check]) -> str:
    """Return the table of the documentation."""
    rows = [
        "| family | check | question | can name | needs |",
        "|---|---|---|---|---|",
        *(
            f"| {c.family} | `{c.id}` | {c.question} | {', '.join(f'`{x}`' for x in c.can_name)} |"
            f" {', '.join(sorted(map(str, c.needs)))} |"
            for c in checks
        ),
    ]
    return "\n".join(rows)


def _hold(args: argparse.Namespace) -> int:
    from simgap.checks.conformance import conformance
    from simgap.checks.registry import all_checks, named_check

    check = named_check(args.named)
    known = [other for other in all_checks() if other != check]
    evidence = None
    if args.run_folder is not None:
        from simgap.loop.store import evidence_of, load_run

        evidence = evidence_of(load_run(args.run_folder))
    kept = conformance(check, known, evidence)
    is_kept = not any(k.breach for k in kept)
    document = {"check": _described(check), "is_kept": is_kept, "clauses": [k.to_json() for k in kept]}
    emit(args, document, lambda console: _show_kept(console, check, kept))
    return 0 if is_kept else 1


def _described(check: Check) -> dict[str, Any]:
    return {
        "id": check.id,
        "family": str(check.family),
        "question": check.question,
        "needs": sorted(map(str, check.needs)),
        "can_name": [
            {"id": c.id, "words": c.words, "remedy": c.remedy, "repair": type(c.repair).__name__}
            for c in check.can_name
        ],
    }


def _list(console: Console, checks: Sequence[Check]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("family", "check", "question", "can name"):
        table.add_column(heading, overflow="fold")
    for check in checks:
        table.add_row(str(check.family), check.id, check.question, ", ".join(map(str, check.can_name)))
    console.print(table)
    console.print("\nnext       simgap checks show ID")


def _show(console: Console, check: Check) -> None:
    console.print(f"{check.id} ({check.family}): {check.question}")
    console.print(f"needs      {', '.join(sorted(map(str, check.needs)))}")
    for cause in check.can_name:
        console.print(f"can name   {cause.id}: {cause.words}. {cause.remedy}")


def _show_kept(console: Console, check: Check, kept: Sequence[Kept]) -> None:
    for clause in kept:
        console.print(f"{'breaks' if clause.breach else 'keeps '}  {clause.clause}")
        if clause.breach:
            console.print(f"        {clause.breach}")
    broken = sum(bool(k.breach) for k in kept)
    console.print(f"{check.id} keeps {len(kept) - broken} of {len(kept)} clauses of the contract")
