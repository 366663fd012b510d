"""The SQLite schema of a ledger, and what in a file differs from it."""

from __future__ import annotations

import functools
import os
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

from simgap.errors import DataError
from simgap.ledger.rows import GENESIS

SCHEMA_VERSION = 1
APPLICATION_ID = 0x53474150
LIMIT_BYTES = 256 << 20
"""No ledger is larger: tens of rows a turn."""
_ROW_BYTES = 64 << 20
"""No row is larger."""
_MAGIC = b"SQLite format 3\0"
_LAST = "SELECT hash FROM rows ORDER BY id DESC LIMIT 1"
SCHEMA = f"""
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
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
"""

Entry = tuple[str, str, str, str | None]
"""Type, name, table and SQL of an entry of ``sqlite_master``."""


def connect(path: Path, *, create: bool, timeout_s: float) -> sqlite3.Connection:
    """Open a file that :func:`require_plain` let through; nothing in its schema is trusted and no row may be huge."""
    mode = "rwc" if create else "rw"
    quoted = _quoted(path)
    db = sqlite3.connect(f"file:{quoted}?mode={mode}", uri=True, timeout=timeout_s, isolation_level=None)
    db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _ROW_BYTES)
    for pragma in ("synchronous = EXTRA", "trusted_schema = OFF", "cell_size_check = ON"):
        db.execute(f"PRAGMA {pragma}")
    return db


def _quoted(path: Path) -> str:
    from urllib.parse import quote

    return quote(os.fsencode(path.absolute()))


def require_plain(path: Path, *, may_be_new: bool) -> None:
    """Refuse what is no ledger before SQLite opens it: no regular file, no SQLite, somebody else's, or huge.

    Raises:
        DataError: names the file and what it is instead.
    """
    try:
        about = path.stat()
    except FileNotFoundError:
        if may_be_new:
            return
        raise DataError(
            f"{path} is missing; restore the ledger from a copy, or run what wrote it again into a new folder"
        ) from None
    except OSError as error:
        raise DataError(
            f"{path} cannot be used as a ledger ({error.strerror or error}); give another path"
        ) from error
    if not stat.S_ISREG(about.st_mode):
        raise DataError(f"{path} cannot be used as a ledger (it is no regular file); give another path")
    if about.st_size == 0 and may_be_new:
        return
    if about.st_size > LIMIT_BYTES:
        raise DataError(
            f"{path} has {about.st_size:,} bytes, more than the {LIMIT_BYTES:,} a ledger may have; give"
            " another path"
        )
    with path.open("rb") as handle:  # before any connection: closing it would release the locks of one
        header = handle.read(100)
    if len(header) < 100 or not header.startswith(_MAGIC):
        raise DataError(f"{path} cannot be used as a ledger (it is no SQLite file); give another path")
    if (application := int.from_bytes(header[68:72], "big")) != APPLICATION_ID:
        raise DataError(
            f"{path} is an SQLite file but not a ledger (application id {application:#x}); give another path"
        )
    if (version := int.from_bytes(header[60:64], "big")) != SCHEMA_VERSION:
        raise DataError(
            f"{path} has ledger schema {version}, this version reads {SCHEMA_VERSION}; use the version that"
            " wrote it"
        )
    if header[18:20] != b"\x01\x01":
        raise DataError(
            f"{path} was switched to a write-ahead log, in which rows can lie outside the file: it was"
            " changed; restore a copy"
        )
    for beside in (_beside(path, suffix) for suffix in ("-wal", "-shm")):
        if beside.exists():
            raise DataError(
                f"{beside} lies beside the ledger, which simgap never writes, and may hold rows: restore the"
                " ledger from a copy"
            )


def size_faults(db: sqlite3.Connection, path: Path) -> Iterator[str]:
    """Yield what the file holds beyond its end; to be called inside a transaction, while nobody writes."""
    pages, size = (int(db.execute(f"PRAGMA {name}").fetchone()[0]) for name in ("page_count", "page_size"))
    if (found := path.stat().st_size) != pages * size and not _beside(path, "-journal").exists():
        yield (
            f"the file has {found:,} bytes and its pages {pages * size:,}: it was cut, or something was added"
            " to it"
        )


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def schema_faults(db: sqlite3.Connection) -> Iterator[str]:
    """Yield every difference between the schema of an open file and ours: entries missing, changed and added."""
    live: list[Entry] = db.execute("SELECT type, name, tbl_name, sql FROM sqlite_master").fetchall()
    for entry in sorted(expected_entries() - set(live), key=lambda entry: (entry[0] != "table", str(entry))):
        changed = any(other[:2] == entry[:2] for other in live)
        yield f"the {entry[0]} {entry[1]} {'was changed' if changed else 'is missing'}"
    known = {entry[:2] for entry in expected_entries()}
    for entry in sorted(set(live), key=str):
        if entry[:2] not in known:
            yield f"the {entry[0]} {entry[1]!r:.60} was added, which no ledger of ours has"
    for name, expected in (
        ("application_id", APPLICATION_ID),
        ("user_version", SCHEMA_VERSION),
        ("encoding", "UTF-8"),
    ):
        if (found := db.execute(f"PRAGMA {name}").fetchone()[0]) != expected:
            yield f"its {name} is {found}, expected {expected}"


@functools.cache
def expected_entries() -> frozenset[Entry]:
    """Return the entries of ``sqlite_master`` that our schema makes, as this SQLite writes them."""
    db = sqlite3.connect(":memory:")
    try:
        for statement in statements():
            db.execute(statement)
        return frozenset(db.execute("SELECT type, name, tbl_name, sql FROM sqlite_master").fetchall())
    finally:
        db.close()


def statements() -> Iterator[str]:
    """Split the schema at the statements' ends; ``executescript`` would commit the transaction it runs in."""
    pending = ""
    for line in SCHEMA.strip().splitlines():
        pending += line + "\n"
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""
