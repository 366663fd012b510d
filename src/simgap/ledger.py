"""The append-only, hash-chained ledger of evidence, and the grades of claims that follow from it.

One SQLite file. Rows are added and never changed: triggers refuse UPDATE, DELETE and rows out of order, and every row
carries the hash of the one before, so an edit made behind SQLite's back shows in :meth:`Ledger.verify`. A mistake is
corrected by a new row. What a chain cannot show is that its newest rows are missing: keep :attr:`Ledger.head` elsewhere
(the report prints it) and hand it to ``verify``.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from simgap.claims import Claim, Grade, grade, why_not_real
from simgap.errors import DataError, SealError, UsageError, did_you_mean
from simgap.provenance import canonical_json, content_hash
from simgap.types import EvidenceKind, Json

__all__ = ["GENESIS", "Claim", "Grade", "Ledger", "Row", "RowKind", "grade"]

_E = TypeVar("_E", bound=StrEnum)

GENESIS = "0" * 64
"""Previous hash of the first row."""
_SCHEMA_VERSION = 1
_APPLICATION_ID = 0x53474150
_LAST = "SELECT hash FROM rows ORDER BY id DESC LIMIT 1"
_SCHEMA = f"""
CREATE TABLE rows (
  id INTEGER PRIMARY KEY, time TEXT NOT NULL, kind TEXT NOT NULL, key TEXT UNIQUE, payload TEXT NOT NULL, evidence TEXT,
  previous TEXT NOT NULL UNIQUE, hash TEXT NOT NULL UNIQUE
);
CREATE TRIGGER no_update BEFORE UPDATE ON rows BEGIN SELECT RAISE(ABORT, 'the ledger is append-only: add a correcting row'); END;
CREATE TRIGGER no_delete BEFORE DELETE ON rows BEGIN SELECT RAISE(ABORT, 'the ledger is append-only: add a correcting row'); END;
CREATE TRIGGER in_order BEFORE INSERT ON rows
  WHEN NEW.id IS NOT (SELECT COALESCE(MAX(id), 0) + 1 FROM rows)
    OR NEW.previous IS NOT COALESCE(({_LAST}), '{GENESIS}')
    OR (NEW.key IS NOT NULL AND EXISTS (SELECT 1 FROM rows WHERE key = NEW.key))
    OR EXISTS (SELECT 1 FROM rows WHERE hash = NEW.hash)
  BEGIN SELECT RAISE(ABORT, 'the ledger is append-only: rows are added at the end, each with the hash of the one before'); END;
PRAGMA application_id = {_APPLICATION_ID};
PRAGMA user_version = {_SCHEMA_VERSION};
"""


class RowKind(StrEnum):
    """What a row records."""

    EVIDENCE = "evidence"
    FINDING = "finding"
    COMMITMENT = "commitment"
    SEAL_OPENED = "seal_opened"
    CLAIM = "claim"
    NOTE = "note"


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One row of the ledger."""

    id: int
    time: str
    """UTC, ISO 8601."""
    kind: RowKind
    payload: Json
    evidence: EvidenceKind | None
    key: str | None
    previous: str
    hash: str


class Ledger:
    """Append-only rows in one SQLite file, shared by several processes and safe under a kill at any moment.

    Every append is one transaction on a rollback journal with ``synchronous=EXTRA``: once :meth:`append` has returned, the
    row survives a kill and a power cut, and the file can be copied on its own.

    Args:
        path: the file; made when missing.
        clock: the current UTC time.
        timeout_s: how long to wait for another process.

    Raises:
        DataError: the file is not a ledger, or of another schema version.
    """

    def __init__(self, path: Path, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC), timeout_s: float = 30.0) -> None:
        self.path = path
        self._clock = clock
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._readable():
            self._db = sqlite3.connect(path, timeout=timeout_s, isolation_level=None)
        try:
            with self._readable():
                self._db.execute("PRAGMA synchronous = EXTRA")
                self._prepare()
        except BaseException:
            self._db.close()
            raise

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """Turn what SQLite says (no database, locked, disk full) into an error that names the file."""
        try:
            yield
        except sqlite3.Error as error:
            raise DataError(
                f"{self.path} cannot be used as a ledger ({error}); give another path, free some space, or wait for the process that holds it"
            ) from error

    def _prepare(self) -> None:
        if self._pragma("application_id") == 0 and self._pragma("user_version") == 0:
            with self._transaction():
                tables = self._db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]
                if tables == 0:
                    for statement in _statements(_SCHEMA):
                        self._db.execute(statement)
        if self._pragma("application_id") != _APPLICATION_ID:
            raise DataError(f"{self.path} is an SQLite file but not a ledger; give another path")
        if self._pragma("user_version") != _SCHEMA_VERSION:
            raise DataError(f"{self.path} has ledger schema {self._pragma('user_version')}, this version reads {_SCHEMA_VERSION}")

    def _pragma(self, name: str) -> int:
        return int(self._db.execute(f"PRAGMA {name}").fetchone()[0])

    def _select(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        with self._readable():
            return self._db.execute(query, values).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._readable():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                if self._db.in_transaction:  # SQLite itself rolls back on a full disk
                    self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def append(self, kind: RowKind | str, payload: Mapping[str, Any], evidence: EvidenceKind | str | None = None, *, key: str | None = None) -> Row:
        """Add a row and return it once it is on disk.

        Args:
            kind: what the row records.
            payload: plain JSON values; NaN is refused.
            evidence: where the numbers come from; needed for ``evidence`` rows and refused for others. ``real`` needs the payload
                fields ``successes``, ``n`` (at least one trial), ``conditions``, ``dates`` and ``judged_by`` (``operator`` or
                ``external judge``), and no sign of a surrogate.
            key: makes the append idempotent: the same key with the same content returns the row that is there.

        Raises:
            UsageError: an unknown kind or evidence type, an evidence row without its type, or a type on another row.
            DataError: the payload is not JSON, the key was used for other content, real evidence lacks what makes it real, or one
                log would count as two kinds of evidence.
            SealError: a seal is opened before its commitment and a later finding are in the ledger, or a second time.
        """
        row_kind, row_evidence = _member(RowKind, kind, "row kind"), None if evidence is None else _member(EvidenceKind, evidence, "evidence type")
        text = _canonical(payload)
        _check_evidence(row_kind, payload, row_evidence)
        with self._transaction():
            old = None if key is None else self._by_key(key)
            if old is not None:
                if (old.kind, canonical_json(old.payload), old.evidence) != (row_kind, text, row_evidence):
                    raise DataError(f"key {key!r} was used for other content in row {old.id} ({old.kind}); corrections are new rows with a new key")
                return old
            if row_kind is RowKind.SEAL_OPENED:
                self._check_seal(payload)
            elif row_evidence is not None:
                self._check_log(payload, row_evidence)
            elif row_kind is RowKind.CLAIM:
                self._claim(payload)
            return self._insert(row_kind, text, row_evidence, key)

    def _insert(self, kind: RowKind, text: str, evidence: EvidenceKind | None, key: str | None) -> Row:
        last = self._db.execute("SELECT id, hash FROM rows ORDER BY id DESC LIMIT 1").fetchone() or (0, GENESIS)
        fields = (int(last[0]) + 1, self._clock().astimezone(UTC).isoformat(), str(kind), key, text, None if evidence is None else str(evidence), str(last[1]))
        self._db.execute("INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*fields, _row_hash(*fields)))
        return _row((*fields, _row_hash(*fields)))

    def append_claim(self, text: str, *, supporting: Sequence[int], against: Sequence[int] = (), key: str | None = None) -> Claim:
        """Add a claim that rests on evidence rows, and return it with its computed grade.

        Raises:
            UsageError: a row named is missing or is not an evidence row.
        """
        payload = {"text": text, "supporting": list(supporting), "against": list(against)}
        return self._claim(self.append(RowKind.CLAIM, payload, key=key).payload)

    def claims(self) -> tuple[Claim, ...]:
        """Return all claims in order, each with its grade."""
        return tuple(self._claim(row.payload) for row in self.rows(RowKind.CLAIM))

    def rows(self, kind: RowKind | str | None = None) -> tuple[Row, ...]:
        """Return the rows in order, all or those of one kind."""
        where, values = ("", ()) if kind is None else (" WHERE kind = ?", (str(_member(RowKind, kind, "row kind")),))
        return tuple(self._row(r) for r in self._select(f"SELECT * FROM rows{where} ORDER BY id", values))

    @property
    def head(self) -> tuple[int, str]:
        """Id and hash of the newest row; ``(0, GENESIS)`` when empty."""
        found = self._select("SELECT id, hash FROM rows ORDER BY id DESC LIMIT 1")
        return (int(found[0][0]), str(found[0][1])) if found else (0, GENESIS)

    def verify(self, head: tuple[int, str] | None = None) -> int:
        """Walk the chain from the first row and return the number of rows.

        Args:
            head: id and hash of a row known from elsewhere, which must still be there; shows missing newest rows.

        Raises:
            DataError: names the first row that does not fit.
        """
        previous, count, seen = GENESIS, 0, head is None or head == (0, GENESIS)
        for fields in self._select("SELECT * FROM rows ORDER BY id"):
            count += 1
            fault = _fault(fields, count, previous)
            if fault:
                raise DataError(f"{self.path}: the chain breaks at row {fields[0]} ({fields[2]}): {fault}; nothing from this row on can be trusted")
            previous = str(fields[7])
            seen = seen or head == (count, previous)
        if not seen and head is not None:
            raise DataError(f"{self.path}: row {head[0]} with hash {head[1][:12]} is not in the ledger, which has {count} rows; its end was cut or replaced")
        return count

    def _by_key(self, key: str) -> Row | None:
        found = self._select("SELECT * FROM rows WHERE key = ?", (key,))
        return self._row(found[0]) if found else None

    def _by_id(self, number: Any) -> Row | None:
        found = self._select("SELECT * FROM rows WHERE id = ?", (number,)) if type(number) is int else []
        return self._row(found[0]) if found else None

    def _row(self, fields: Sequence[Any]) -> Row:
        """Read a row, which nobody may use once it was edited: no grade and no report may rest on it."""
        if not _is_intact(fields):
            raise DataError(
                f"{self.path}: row {fields[0]} ({fields[2]}) was edited, its content does not match its hash; nothing that rests on it can be trusted"
            )
        return _row(fields)

    def _check_log(self, payload: Mapping[str, Any], evidence: EvidenceKind) -> None:
        """Refuse to count one log as two kinds of evidence."""
        log = payload.get("log")
        if not isinstance(log, str):
            return
        for row in self.rows(RowKind.EVIDENCE):
            if row.payload.get("log") == log and row.evidence is not evidence:
                raise DataError(f"log {log[:12]} is evidence of kind {row.evidence} in row {row.id} and cannot be {evidence} as well")

    def _claim(self, payload: Mapping[str, Any]) -> Claim:
        sides: dict[str, list[tuple[int, EvidenceKind]]] = {"supporting": [], "against": []}
        for side, kinds in sides.items():
            for number in payload.get(side, ()):
                row = self._by_id(number)
                if row is None or row.evidence is None or row.kind is not RowKind.EVIDENCE:
                    raise UsageError(f"a claim names row {number}, which is not an evidence row of {self.path}; append the evidence first")
                kinds.append((row.id, row.evidence))
        return Claim(text=str(payload.get("text", "")), supporting=sides["supporting"], against=sides["against"])

    def _check_seal(self, payload: Mapping[str, Any]) -> None:
        for field, kind in (("commitment_row", RowKind.COMMITMENT), ("finding_row", RowKind.FINDING)):
            row = self._by_id(payload.get(field))
            if row is None or row.kind is not kind:
                raise SealError(f"a seal opens only after a {kind} row is in the ledger: {field} = {payload.get(field)!r} names none; append it first")
        commitment, finding = int(payload["commitment_row"]), int(payload["finding_row"])
        if finding < commitment:
            raise SealError(f"the finding in row {finding} is older than the commitment in row {commitment}: it cannot be about what was sealed there")
        opened = next((r.id for r in self.rows(RowKind.SEAL_OPENED) if r.payload.get("commitment_row") == commitment), None)
        if opened is not None:
            raise SealError(f"the seal of row {commitment} was opened in row {opened} already; a finding made since knows what it held")

    def close(self) -> None:
        """Close the file; the ledger can be opened again."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _member(family: type[_E], value: _E | str, what: str) -> _E:
    try:
        return family(value)
    except ValueError as error:
        raise UsageError(f"unknown {what} {value!r}; {did_you_mean(str(value), [str(member) for member in family])}") from error


def _canonical(payload: Mapping[str, Any]) -> str:
    try:
        text = canonical_json(dict(payload))
    except (TypeError, ValueError) as error:
        raise DataError(f"a ledger row holds plain JSON values, but: {error}; NaN is no value, say None and why") from error
    return text


def _check_evidence(kind: RowKind, payload: Mapping[str, Any], evidence: EvidenceKind | None) -> None:
    if kind is RowKind.EVIDENCE and evidence is None:
        raise UsageError(f"an evidence row says where its numbers come from; give evidence= one of {', '.join(EvidenceKind)}")
    if kind is not RowKind.EVIDENCE and evidence is not None:
        raise UsageError(f"a {kind} row is no evidence and has no evidence type; append the numbers as an evidence row")
    problem = why_not_real(payload) if evidence is EvidenceKind.REAL else ""
    if problem:
        raise DataError(f"real evidence is 'n of N, conditions, dates' of trials on a robot, judged by an operator or an external judge; this row {problem}")


def _row_hash(number: int, time: str, kind: str, key: str | None, payload: str, evidence: str | None, previous: str) -> str:
    return content_hash([number, time, kind, key, payload, evidence, previous])


def _fault(fields: Sequence[Any], position: int, previous: str) -> str:
    if fields[0] != position:
        return f"row {position} is missing"
    if fields[6] != previous:
        return "it does not carry the hash of the row before"
    return "" if _is_intact(fields) else "its content does not match its hash"


def _is_intact(fields: Sequence[Any]) -> bool:
    try:
        return len(fields) == 8 and _row_hash(*fields[:7]) == fields[7]
    except TypeError:  # bytes where text was
        return False


def _row(fields: Sequence[Any]) -> Row:
    return Row(
        id=int(fields[0]),
        time=str(fields[1]),
        kind=RowKind(fields[2]),
        key=fields[3],
        payload=json.loads(fields[4]),
        evidence=None if fields[5] is None else EvidenceKind(fields[5]),
        previous=str(fields[6]),
        hash=str(fields[7]),
    )


def _statements(script: str) -> Iterator[str]:
    """Split a script at the statements' ends; ``executescript`` would commit the transaction it runs in."""
    pending = ""
    for line in script.strip().splitlines():
        pending += line + "\n"
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""
