"""The ledger: rows are added to one SQLite file, and nothing is read or added before the whole of it was held against its chain."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from simgap.errors import DataError, UsageError
from simgap.ledger.claims import Claim, Says, counts_of, require_bar, what_it_says
from simgap.ledger.examine import Examination, examine
from simgap.ledger.heads import LEDGER_FILE, Head, head_fault, kept_heads
from simgap.ledger.plain import canonical_text, member_of, plain_copy
from simgap.ledger.real import log_path, read_real_log, why_unproved
from simgap.ledger.rows import GENESIS, Row, RowKind, as_row, row_hash
from simgap.ledger.rules import require_claim, require_lawful
from simgap.ledger.schema import connect, require_plain, statements
from simgap.provenance import canonical_json
from simgap.types import EvidenceKind


class Ledger:
    """Append-only rows in one SQLite file, shared by several processes and safe under a kill at any moment.

    Every append is one transaction on a rollback journal with ``synchronous=EXTRA``: once :meth:`append` has
    returned, the row survives a kill and a power cut, and the file can be copied on its own. Before the first
    use, and again whenever another connection has changed the file, the whole of it is held against schema,
    chain and rules.

    Args:
        path: the file; made when missing.
        clock: the current UTC time.
        timeout_s: how long to wait for another process.
        create: False for those who only read: a missing file is then an error.

    Raises:
        DataError: the file is not a ledger, or of another schema version.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        timeout_s: float = 30.0,
        create: bool = True,
    ) -> None:
        self.path = path
        self._clock = clock
        self._examined: Examination | None = None
        self._seen_version = -1
        require_plain(path, may_be_new=create)
        if create:
            path.parent.mkdir(parents=True, exist_ok=True)
        with self._readable():
            self._db = connect(path, create=create, timeout_s=timeout_s)
        self._file = os.stat(path)
        try:
            with self._readable():
                self._prepare()
        except BaseException:
            self._db.close()
            raise

    @classmethod
    def of_run(cls, folder: Path) -> Self:
        """Open the ledger of a run to read it: it is whole, and ends where the run's files say.

        Raises:
            DataError: missing, broken, or not the ledger that the run ended with.
        """
        ledger = cls(folder / LEDGER_FILE, create=False)
        try:
            ledger.require_kept(folder)
        except BaseException:
            ledger.close()
            raise
        return ledger

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """Turn what SQLite says (no database, locked, disk full) into an error that names the file."""
        try:
            yield
        except (sqlite3.Error, UnicodeError) as error:
            raise DataError(
                f"{self.path} cannot be used as a ledger ({error}); give another path, free some space, or"
                " wait for the process that holds it"
            ) from error

    def _prepare(self) -> None:
        if self._pragma("application_id") != 0 or self._pragma("user_version") != 0:
            return
        with self._transaction():
            if self._db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0] == 0:
                for statement in statements():
                    self._db.execute(statement)

    def _pragma(self, name: str) -> int:
        return int(self._db.execute(f"PRAGMA {name}").fetchone()[0])

    @contextmanager
    def _transaction(self, begin: str = "BEGIN IMMEDIATE") -> Iterator[None]:
        with self._readable():
            self._db.execute(begin)
            try:
                yield
            except BaseException:
                if self._db.in_transaction:  # SQLite itself rolls back on a full disk
                    self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def examine(self, heads: Mapping[str, Head] | None = None) -> Examination:
        """Read the whole file and return all that is wrong with it."""
        with self._transaction("BEGIN"):
            return examine(self._db, self.path, heads)

    def _trusted(self) -> Examination:
        """Return the rows of a ledger that is whole; inside a transaction.

        Raises:
            DataError: it is not.
        """
        if not self.path.exists() or not os.path.samestat(self._file, self.path.stat()):
            raise DataError(
                f"{self.path} was moved or replaced while it was open; what is added would be lost with it:"
                " run the same command again"
            )
        version = self._pragma("data_version")  # another value once another connection has written
        if self._examined is None or version != self._seen_version:
            self._examined, self._seen_version = examine(self._db, self.path), version
        if self._examined.faults:
            faults = self._examined.faults
            more = f" ({len(faults)} faults in all)" if len(faults) > 1 else ""
            raise DataError(
                f"{self.path}: {faults[0]}{more}; nothing is read from it or added to it: "
                f"`simgap ledger verify {self.path}` names all, restore it from a copy or begin a new folder"
            )
        return self._examined

    def _read(self) -> Examination:
        with self._transaction("BEGIN"):
            return self._trusted()

    def append(
        self,
        kind: RowKind | str,
        payload: Mapping[str, Any],
        evidence: EvidenceKind | str | None = None,
        *,
        key: str | None = None,
    ) -> Row:
        """Add a row and return it once it is on disk.

        Args:
            kind: what the row records.
            payload: plain JSON values; NaN is refused.
            evidence: where the numbers come from; needed for ``evidence`` rows and refused for others. A
                ``real`` row is what its trial log says, read again here; :meth:`append_trials` fills it in.
            key: makes the append idempotent: the same key with the same content returns the row that is
                there.

        Raises:
            UsageError: an unknown kind or evidence type, an evidence row without its type, or a type on
                another row.
            DataError: the ledger is broken, the payload is not JSON, the key was used for other content, no
                trial log bears real evidence out, or one log would count as two kinds of evidence.
            SealError: a seal is opened before its commitment and a later finding are in the ledger, or a
                second time.
        """
        row_kind, row_evidence = (
            member_of(RowKind, kind, "row kind"),
            None if evidence is None else member_of(EvidenceKind, evidence, "evidence type"),
        )
        if key is not None and (type(key) is not str or not key):
            raise UsageError(f"the key of a row is text, not {key!r:.60}")
        text = canonical_text(payload)
        with self._transaction():
            past = self._trusted().past
            old = None if key is None else past.keys.get(key)
            if old is not None:
                if (old.kind, canonical_json(old.payload), old.evidence) != (row_kind, text, row_evidence):
                    raise DataError(
                        f"key {key!r} was used for other content in row {old.id} ({old.kind}); corrections"
                        " are new rows with a new key"
                    )
                return plain_copy(old)
            said = json.loads(text)  # as a reader will see it
            require_lawful(row_kind, said, row_evidence, past)
            if row_evidence is EvidenceKind.REAL:
                self._require_proved(said)
            row = self._insert(row_kind, text, row_evidence, key)
        self._took(row)
        return plain_copy(row)

    def append_trials(self, log: Path, *, label: str = "", key: str | None = None) -> Row:
        """Add a log of trials on hardware as real evidence; all of the row is read from the log.

        Raises:
            DataError: the log does not prove that it is one, see :mod:`simgap.ledger.real`.
        """
        found = read_real_log(log, self._today())
        payload = {
            **found,
            "log_path": log_path(log, self.path.parent),
            **({"label": label} if label else {}),
        }
        return self.append(RowKind.EVIDENCE, payload, EvidenceKind.REAL, key=key)

    def _require_proved(self, payload: Mapping[str, Any]) -> None:
        problem = why_unproved(payload, self.path.parent, self._today())
        if problem:
            raise DataError(f"real evidence is what its trial log says, and of this row {problem}")

    def _insert(self, kind: RowKind, text: str, evidence: EvidenceKind | None, key: str | None) -> Row:
        number, previous = self._end()
        fields = (
            number + 1,
            self._clock().astimezone(UTC).isoformat(),
            str(kind),
            key,
            text,
            None if evidence is None else str(evidence),
            previous,
        )
        self._db.execute("INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*fields, row_hash(*fields)))
        return as_row((*fields, row_hash(*fields)))

    def _took(self, row: Row) -> None:
        """Take a row of our own into what was examined; a connection's own writes leave its ``data_version`` as it is."""
        assert self._examined is not None
        self._examined.past.add(row)
        self._examined.hashes.append(row.hash)
        self._examined.kinds[row.id] = str(row.kind)

    def append_claim(
        self,
        text: str,
        *,
        supporting: Sequence[int],
        against: Sequence[int] = (),
        at_least: float | None = None,
        key: str | None = None,
    ) -> Claim:
        """Add a claim about a success rate and return it with its computed grade.

        Args:
            text: the claim in words.
            supporting: the evidence rows it rests on. Their numbers decide what they say, see
                :func:`~simgap.ledger.claims.what_it_says`: a row may speak against the claim that names it.
            against: evidence rows that speak against it whatever their rate is.
            at_least: the success rate that is claimed; more often than not, unless given.
            key: makes it idempotent.

        Raises:
            UsageError: a row named is missing or is not an evidence row, or the bar is no rate.
        """
        payload: dict[str, Any] = {"text": text, "supporting": list(supporting), "against": list(against)}
        if at_least is not None:
            payload["at_least"] = require_bar(at_least)
        row = self.append(RowKind.CLAIM, payload, key=key)
        return self._claim(row.payload, self._read())

    def claims(self) -> tuple[Claim, ...]:
        """Return all claims in order, each with its grade; the logs of real evidence are read again for it."""
        found = self._read()
        return tuple(
            self._claim(row.payload, found) for row in found.past.rows.values() if row.kind is RowKind.CLAIM
        )

    def rows(self, kind: RowKind | str | None = None) -> tuple[Row, ...]:
        """Return the rows in order, all or those of one kind."""
        wanted = None if kind is None else member_of(RowKind, kind, "row kind")
        return tuple(
            plain_copy(row) for row in self._read().past.rows.values() if wanted is None or row.kind is wanted
        )

    @property
    def head(self) -> tuple[int, str]:
        """Id and hash of the newest row; ``(0, GENESIS)`` when empty."""
        with self._readable():
            return self._end()

    def _end(self) -> tuple[int, str]:
        found = self._db.execute("SELECT id, hash FROM rows ORDER BY id DESC LIMIT 1").fetchone()
        return (0, GENESIS) if found is None else (int(found[0]), str(found[1]))

    @property
    def head_text(self) -> str:
        """The head as it is printed and kept: number and hash."""
        return str(Head(*self.head))

    def verify(self, head: tuple[int, str] | None = None) -> int:
        """Hold the whole file against schema, chain and rules, and return the number of rows.

        Args:
            head: id and hash of a row known from elsewhere, which must still be there; shows missing newest
                rows.

        Raises:
            DataError: names the first row that does not fit.
        """
        self._examined = None
        found = self._read()
        self._require_head(found, Head(*head) if head is not None else None, "", may_have_grown=True)
        return len(found.hashes)

    def require_kept(self, folder: Path) -> None:
        """Refuse a ledger that does not end at the heads which its folder keeps.

        Raises:
            DataError: says which file keeps another head, and what that means.
        """
        found = self._read()
        for name, kept in kept_heads(folder).items():
            self._require_head(found, kept, f"{name} keeps another head: ", may_have_grown=False)

    def _require_head(
        self, found: Examination, head: Head | None, where: str, *, may_have_grown: bool
    ) -> None:
        fault = (
            "" if head is None else head_fault(head, found.hashes, found.kinds, may_have_grown=may_have_grown)
        )
        if fault:
            raise DataError(
                f"{self.path}: {where}{fault}; restore the ledger from a copy, or begin a new folder"
            )

    def _claim(self, payload: Mapping[str, Any], found: Examination) -> Claim:
        rows = found.past.rows
        require_claim(payload, rows)
        bar = require_bar(payload.get("at_least"))
        sides: dict[Says, list[tuple[int, EvidenceKind]]] = {side: [] for side in Says}
        uncounted: list[tuple[int, str]] = []
        for row in map(rows.__getitem__, payload.get("supporting", ())):
            assert row.evidence is not None
            counts = counts_of(row.payload)
            problem = (
                why_unproved(row.payload, self.path.parent, self._today())
                if row.evidence is EvidenceKind.REAL
                else ""
            )
            if problem or counts is None:
                uncounted.append((row.id, problem or "it holds no counts of trials"))
                continue
            sides[what_it_says(*counts, bar)].append((row.id, row.evidence))
        for row in map(rows.__getitem__, payload.get("against", ())):
            assert row.evidence is not None
            sides[Says.AGAINST].append((row.id, row.evidence))
        return Claim(
            text=payload["text"],
            supporting=sides[Says.FOR],
            against=sides[Says.AGAINST],
            undecided=sides[Says.UNDECIDED],
            uncounted=uncounted,
            at_least=bar,
        )

    def _today(self) -> date:
        return self._clock().astimezone(UTC).date()

    def close(self) -> None:
        """Close the file; the ledger can be opened again."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
