"""Holds a whole ledger file against what simgap writes, and names all that differs."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from simgap.errors import SimgapError
from simgap.ledger.heads import Head, head_fault
from simgap.ledger.rows import COLUMNS, GENESIS, Row, as_row, chain_fault, content_fault
from simgap.ledger.rules import Past, require_lawful
from simgap.ledger.schema import expected_entries, schema_faults, size_faults

_MOST = 50
"""Faults named; a file with more is broken all the same."""


@dataclass(slots=True)
class Examination:
    """What was found in a ledger."""

    faults: list[str] = field(default_factory=list)
    """One sentence each, the first row's first; empty for a whole ledger."""
    past: Past = field(default_factory=Past)
    """The rows that could be read."""
    hashes: list[str] = field(default_factory=list)
    """Stored hash of every row, in order."""
    kinds: dict[int, str] = field(default_factory=dict)

    def check_head(self, kept: Head, where: str = "", *, may_have_grown: bool) -> None:
        """Add a fault when the ledger does not end at a head that was kept elsewhere."""
        fault = head_fault(kept, self.hashes, self.kinds, may_have_grown=may_have_grown)
        if fault:
            self.faults.append(f"{where}: {fault}" if where else fault)


def examine(db: sqlite3.Connection, path: Path, heads: Mapping[str, Head] | None = None) -> Examination:
    """Read a whole ledger and return what is wrong with it: file, schema, chain, rows and heads.

    Args:
        db: a connection inside a transaction, so that nobody writes meanwhile.
        path: its file.
        heads: heads kept elsewhere, by the name of the place: the ledger must end there.
    """
    found = Examination()
    try:
        if _table(db) in expected_entries():
            found.faults += _rows(db, found)
        found.faults += schema_faults(db)
        found.faults += size_faults(db, path)
        if not found.faults:
            said = [str(row[0]) for row in db.execute("PRAGMA integrity_check(5)")]
            found.faults += [] if said == ["ok"] else [f"SQLite finds it damaged: {'; '.join(said)[:300]}"]
    except (sqlite3.Error, UnicodeDecodeError) as error:
        found.faults.append(f"SQLite cannot read it to its end: {error}")
    for where, kept in (heads or {}).items():
        found.check_head(kept, where, may_have_grown=False)
    return found


def _table(db: sqlite3.Connection) -> object:
    return db.execute(
        "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE name = 'rows' AND type = 'table'"
    ).fetchone()


def _rows(db: sqlite3.Connection, found: Examination) -> Iterator[str]:
    previous, position, named = GENESIS, 0, 0
    for fields in db.execute(f"SELECT {', '.join(COLUMNS)} FROM rows ORDER BY id"):
        position += 1
        fault = chain_fault(fields, position, previous)
        where = (
            f"the chain breaks at row {fields[0]} ({fields[2]!s:.20})"
            if fault
            else f"row {fields[0]} ({fields[2]!s:.20})"
        )
        fault = fault or content_fault(fields) or _unlawful(as_row(fields), found)
        if fault:
            named += 1
            yield f"{where}: {fault}"
            if named >= _MOST:
                yield f"more faults follow; the first {_MOST} are named"
                return
        position, previous = int(fields[0]), str(fields[7])
        found.hashes.append(previous)
        found.kinds[len(found.hashes)] = f"{fields[2]!s:.20}"


def _unlawful(row: Row, found: Examination) -> str:
    """Return which rule a row breaks; a row that breaks none is one that later rows may name."""
    try:
        require_lawful(row.kind, row.payload, row.evidence, found.past)
    except SimgapError as error:
        return str(error)
    found.past.add(row)
    return ""
