"""``simgap ledger``: verify, show and export the ledger of a run or of a set of trials."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simgap.cli._output import emit, foreign, json_text, say
from simgap.wording import number_of

if TYPE_CHECKING:
    from rich.console import Console

    from simgap.ledger import Claim, Ledger, Row

HELP = (
    "Verify, show and export a ledger of evidence. A ledger is a chain of rows, each with the hash of the row"
    " before: an edit inside it breaks the chain. A cut end, a chain written again as a whole or the ledger"
    " of another run fit their own chain; they show against a head (number and hash of the newest row) kept"
    " outside: in run.json, report.html or trials.json, and in what the verbs print. Whoever can edit ledger"
    " and these files alike is found out only by a head that lies out of their reach: give it with --head."
)
COLUMNS = ("id", "time", "kind", "key", "evidence", "payload", "previous", "hash")
_PLACE = "folder of a run or of trials, or a ledger file"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions of the verb and their options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    verify = actions.add_parser(
        "verify",
        help=(
            "hold the whole file against schema, chain, rules and kept heads; exit 1 when something was"
            " changed"
        ),
        description=(
            f"{HELP} Exit code 0: whole; 1: changed, with all that was found; 3: missing, or no ledger."
        ),
    )
    verify.add_argument("place", type=Path, metavar="PATH_OR_RUN", help=_PLACE)
    verify.add_argument(
        "--head",
        metavar="HEAD",
        help="NUMBER:HASH, or 12 digits of the hash or more, as a verb printed it: the ledger must end there",
    )
    verify.add_argument(
        "--grown",
        action="store_true",
        help="rows may stand after --head: you know that some were added since",
    )
    show = actions.add_parser(
        "show",
        help="list the rows and the claims with their grades",
        description="List the rows and the claims with their grades.",
    )
    show.add_argument("place", type=Path, metavar="PATH_OR_RUN", help=_PLACE)
    export = actions.add_parser(
        "export",
        help="write all rows as JSON lines or CSV, to --out or standard output",
        description=(
            "Write all rows, whole, as JSON lines or CSV. A row's hash is the SHA-256 of the JSON list [id,"
            " time, kind, key, payload as text, evidence, previous] without spaces, keys sorted: anybody can"
            " compute it again."
        ),
    )
    export.add_argument("place", type=Path, metavar="PATH_OR_RUN", help=_PLACE)
    export.add_argument(
        "--format", choices=("jsonl", "csv"), default="jsonl", help="JSON lines (default) or CSV"
    )


def run(args: argparse.Namespace) -> int:
    """Do what the action says."""
    if args.action == "verify":
        return _verify(args)
    from simgap.ledger import Ledger
    from simgap.ledger.heads import LEDGER_FILE

    path = _file(args.place)
    with Ledger(path, create=False) as ledger:
        if path.name == LEDGER_FILE:
            ledger.require_kept(path.parent)
        return _show(args, ledger) if args.action == "show" else _export(args, ledger)


def _file(place: Path) -> Path:
    from simgap.errors import DataError
    from simgap.ledger.heads import LEDGER_FILE, RUN_FILE, TRIALS_FILE

    if not place.is_dir():
        return place
    path = place / LEDGER_FILE
    if not path.exists() and not any((place / name).exists() for name in (RUN_FILE, TRIALS_FILE)):
        inner = sorted(place.glob(f"*/{LEDGER_FILE}"))
        raise DataError(
            f"{place} holds no ledger ({LEDGER_FILE})"
            + (
                f"; there is one in {inner[0].parent}: give that folder"
                if inner
                else "; `simgap trial` and `simgap demo` write one into the folder of --out"
            )
        )
    return path


def _verify(args: argparse.Namespace) -> int:
    from simgap.errors import UsageError
    from simgap.ledger import Ledger, RowKind
    from simgap.ledger.heads import LEDGER_FILE, kept_heads, parse_head
    from simgap.ledger.real import why_unproved

    if args.grown and args.head is None:
        raise UsageError("--grown is about the rows after --head, which was not given; give both or none")
    given = None if args.head is None else parse_head(args.head)
    path = _file(args.place)
    with Ledger(path, create=False) as ledger:
        kept = kept_heads(path.parent) if path.name == LEDGER_FILE else {}
        found = ledger.examine(kept)
        if given is not None:
            found.check_head(given, "--head", may_have_grown=args.grown)
    rows = found.past.rows.values()
    unproved = {
        row.id: why
        for row in rows
        if row.kind is RowKind.EVIDENCE
        and row.evidence == "real"
        and (why := why_unproved(row.payload, path.parent))
    }
    faults = found.faults + [
        f"row {number} does not count as real evidence: {why}" for number, why in unproved.items()
    ]
    document = {
        "ledger": path,
        "is_whole": not faults,
        "rows": len(found.hashes),
        "head": f"{len(found.hashes)}:{found.hashes[-1]}" if found.hashes else None,
        "faults": faults,
        "heads": (
            {name: str(head) for name, head in kept.items()}
            | ({} if given is None else {"--head": str(given)})
        ),
    }
    emit(args, document, lambda console: _print_verified(console, document))
    return 1 if faults else 0


def _print_verified(console: Console, document: dict[str, Any]) -> None:
    name = foreign(str(document["ledger"]))
    faults, heads = document["faults"], document["heads"]
    for fault in faults:
        console.print(f"  {foreign(fault)}", soft_wrap=True)
    if faults:
        console.print(
            f"{name} was changed: {len(faults)} fault{'s' * (len(faults) > 1)}; restore it from a copy, or"
            " begin a new folder",
            soft_wrap=True,
        )
    else:
        console.print(
            f"{name} is whole: {number_of(document['rows'], 'row')}, each on the one before", soft_wrap=True
        )
    checked = (
        f"ends at the head kept in {', '.join(heads)}"
        if heads
        else "no head is kept beside it: a cut end, or a chain written again, cannot be seen"
    )
    if heads and not faults:
        console.print(f"it {checked}", soft_wrap=True)
    elif not heads:
        console.print(f"{checked}; give one with --head", soft_wrap=True)
    if document["head"]:
        console.print(f"head {document['head']}", soft_wrap=True)


def _show(args: argparse.Namespace, ledger: Ledger) -> int:
    rows, claims, head = ledger.rows(), ledger.claims(), ledger.head_text
    document = {
        "ledger": ledger.path,
        "head": head,
        "rows": [_short(row) for row in rows],
        "claims": [_claim(claim) for claim in claims],
    }
    emit(args, document, lambda console: _print_rows(console, document))
    return 0


def _short(row: Row) -> dict[str, Any]:
    from simgap.ledger.summary import summary_of_row

    return {
        "id": row.id,
        "time": row.time,
        "kind": str(row.kind),
        "evidence": None if row.evidence is None else str(row.evidence),
        "key": row.key,
        "summary": summary_of_row(row),
        "hash": row.hash,
    }


def _claim(claim: Claim) -> dict[str, Any]:
    return {
        "text": claim.text,
        "grade": str(claim.grade),
        "at_least": claim.at_least,
        "supporting": [number for number, _ in claim.supporting],
        "against": [number for number, _ in claim.against],
        "undecided": [number for number, _ in claim.undecided],
        "uncounted": [{"row": number, "why": why} for number, why in claim.uncounted],
    }


def _print_rows(console: Console, document: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("row", "time", "kind", "evidence", "what", "hash"):
        table.add_column(heading, overflow="fold")
    for row in document["rows"]:
        words = (
            str(row["id"]),
            row["time"][:19],
            row["kind"],
            row["evidence"] or "",
            row["summary"],
            row["hash"][:12],
        )
        table.add_row(*map(foreign, words))
    console.print(table)
    for claim in document["claims"]:
        console.print(f"\nclaim  {foreign(claim['text'])}", soft_wrap=True)
        console.print(
            f"       {claim['grade']} (claimed: at least {claim['at_least']:.4g} of trials; {_rests(claim)})",
            soft_wrap=True,
        )
        for row in claim["uncounted"]:
            console.print(f"       row {row['row']} does not count: {foreign(row['why'])}", soft_wrap=True)
    console.print(f"\nhead   {document['head']}", soft_wrap=True)


def _rests(claim: dict[str, Any]) -> str:
    sides = (("for it", "supporting"), ("against it", "against"), ("neither", "undecided"))
    said = [f"{words}: {', '.join(f'row {n}' for n in claim[side])}" for words, side in sides if claim[side]]
    return "; ".join(said) or "no row counts"


def _export(args: argparse.Namespace, ledger: Ledger) -> int:
    from simgap.provenance import write_atomic

    rows, head = ledger.rows(), ledger.head_text
    if args.out is not None:
        write_atomic(args.out, _text(rows, args.format))
        document = {
            "ledger": ledger.path,
            "export": args.out,
            "format": args.format,
            "rows": len(rows),
            "head": head,
        }
        emit(
            args,
            document,
            lambda console: console.print(
                f"wrote {foreign(str(args.out))}: {number_of(len(rows), 'row')}, head {head}", soft_wrap=True
            ),
        )
    elif args.json:
        emit(
            args,
            {"ledger": ledger.path, "head": head, "rows": [row.to_json() for row in rows]},
            lambda console: None,
        )
    else:
        sys.stdout.write(_text(rows, args.format))
        say(args, f"{number_of(len(rows), 'row')}, head {head}")
    return 0


def _text(rows: tuple[Row, ...], form: str) -> str:
    """Return the rows as JSON lines, or as CSV with the payload as its JSON text."""
    import csv
    import io

    from simgap.provenance import canonical_json

    if form == "jsonl":
        return "".join(json_text(row.to_json()) + "\n" for row in rows)
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        values = row.to_json() | {"payload": canonical_json(row.payload)}
        writer.writerow(values[name] for name in COLUMNS)
    return sink.getvalue()
