"""CSV files of others, read within bounds: comments apart, every row of one width, numbers where they are numbers."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.artefacts.dialects import (
    SEPARATORS,
    cleaned,
    decoded,
    header_after_hash,
    separator,
    table_of_objects,
)
from simgap.artefacts.json_rows import rows_of_json
from simgap.bounds import MALFORMED, TABLE_CELLS, TABLE_COLUMNS, TEXT_BYTES, TRIAL_ROWS, read_bytes
from simgap.episodes.formats.index import read_json_lines
from simgap.episodes.formats.layout import require_content
from simgap.errors import DataError
from simgap.provenance import read_json

MISSING = ("", "<missing>", "na", "n/a", "nan", "none", "null", "-", "—")
"""Cells that say nothing, lower case."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TextTable:
    """One CSV file."""

    path: Path
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    comments: tuple[str, ...] = ()
    """Lines that began with ``#``, without it, and titles above the header."""
    notes: tuple[str, ...] = ()
    """What had to be understood to read it, in words."""

    def column(self, name: str) -> list[str]:
        """Return one column as text, spaces around cells removed."""
        at = self.columns.index(name)
        return [row[at].strip() for row in self.rows]

    def numbers(self, name: str) -> NDArray[np.float64]:
        """Return one column as numbers, ``(N,)`` float64, NaN where a cell is missing or no number."""
        return np.array([as_number(cell) for cell in self.column(name)], dtype=np.float64)

    def is_numeric(self, name: str) -> bool:
        """Return whether every cell that says something is a number, and at least one does."""
        said = [c for c in self.column(name) if not is_missing(c)]
        return bool(said) and all(np.isfinite(as_number(c)) for c in said)

    def find(self, *names: str) -> str | None:
        """Return the first column with one of these names, None where there is none."""
        lower = {c.lower(): c for c in self.columns}
        return next((lower[n] for n in names if n in lower), None)


def is_missing(cell: str) -> bool:
    """Return whether a cell says nothing."""
    return cell.strip().lower() in MISSING


def as_number(cell: str) -> float:
    """Return a cell as a number, NaN where it is none."""
    try:
        value = float(cell)
    except ValueError:
        return float("nan")
    return value if np.isfinite(value) else float("nan")


def read_csv(path: Path, most_rows: int = TRIAL_ROWS) -> TextTable:
    """Read a table of text: separated by commas, semicolons, tabs or bars; lines that begin with ``#`` are comments.

    Raises:
        DataError: missing, empty, too large, no text, or a row of another width than the header.
    """
    require_content(path, limit_bytes=TEXT_BYTES)
    text, encoding = decoded(read_bytes(path, TEXT_BYTES), str(path))
    lines = text.splitlines(keepends=True)
    comments = tuple(line[1:].strip() for line in lines if line.startswith("#"))
    body = [line for line in lines if not line.startswith("#")]
    stated = re.fullmatch(r"sep=(.)\s*", body[0]) if body else None  # what spreadsheets write for each other
    body = body[1:] if stated else body
    first = max((line.count(m) for line in body[:1] for m in SEPARATORS), default=0)
    if (
        len(lines) > most_rows
        or first > TABLE_COLUMNS
        or max(text.count(m) for m in SEPARATORS) > TABLE_CELLS
    ):
        raise DataError(
            f"{path} has more than {most_rows} rows, {TABLE_COLUMNS} columns or {TABLE_CELLS} cells, which is"
            " no log of trials; split it"
        )
    try:
        mark = stated[1] if stated else separator(body)
        rows = [row for row in csv.reader(body, delimiter=mark) if row]
        hidden = header_after_hash(comments, rows[0], mark) if rows and lines[0].startswith("#") else None
        rows = rows if hidden is None else [hidden, *rows]
    except csv.Error as error:
        raise DataError(f"{path} is no readable CSV ({error}); save it again") from error
    notes = [f"the text is {encoding}, not UTF-8"] if encoding else []
    return _table(path, rows, mark, comments, notes)


def read_json_table(path: Path) -> TextTable | None:
    """Read JSON lines or a JSON list of objects as a table; None where the file holds something else.

    Raises:
        DataError: missing, too large, or not JSON at all.
    """
    is_lines = path.suffix == ".jsonl"
    objects: list[Mapping[str, Any]] = (
        [v for _, v in read_json_lines(path) if isinstance(v, dict)]
        if is_lines
        else rows_of_json(read_json(path))
    )
    if not objects or len(objects) > TRIAL_ROWS:
        return None
    rows = table_of_objects(objects)
    return None if not rows[0] or len(rows) * len(rows[0]) > TABLE_CELLS else _table(path, rows, ",", (), [])


def _table(
    path: Path, rows: list[list[str]], mark: str, comments: tuple[str, ...], notes: list[str]
) -> TextTable:
    if not rows or len(rows) * len(rows[0]) > TABLE_CELLS or len(rows[0]) > TABLE_COLUMNS:
        raise DataError(
            f"{path} holds {len(rows)} rows of {len(rows[0]) if rows else 0} cells, expected a header and"
            f" {TABLE_CELLS} cells at most; check the file"
        )
    full, titles, done = cleaned(rows, mark)
    if not full:
        raise DataError(f"{path} holds blank rows alone; expected a header and a row for each trial")
    header = full[0]
    for number, row in enumerate(full[1:], start=2):
        if len(row) != len(header):
            raise DataError(
                f"{path} row {number} has {len(row)} cells, its header has {len(header)}; quote cells that"
                " hold commas"
            )
    said = (*comments, *titles)
    return TextTable(
        path=path,
        columns=tuple(header),
        rows=tuple(tuple(r) for r in full[1:]),
        comments=said,
        notes=(*notes, *done),
    )


def matrix(table: TextTable, name: str, width: int | None = None) -> NDArray[np.float64]:
    """Return a column of bracketed lists as ``(N, width)`` float64.

    Raises:
        DataError: a cell is no list of numbers, or of another length.
    """
    parsed = [_list(cell, table.path, number) for number, cell in enumerate(table.column(name), start=2)]
    lengths = {len(p) for p in parsed} | ({width} if width is not None else set())
    if len(lengths) != 1:
        raise DataError(
            f"{table.path}: column {name!r} holds lists of {sorted(lengths)} numbers; expected one length"
            " throughout"
        )
    values = np.array(parsed, dtype=np.float64).reshape(len(parsed), lengths.pop())
    if not np.isfinite(values).all():
        raise DataError(
            f"{table.path}: column {name!r} holds {int((~np.isfinite(values)).sum())} numbers that are none"
            " (NaN or infinite); repair the log"
        )
    return values


def _list(cell: str, path: Path, number: int) -> list[float]:
    try:
        value: Any = json.loads(cell)
        return [float(v) for v in value]
    except MALFORMED as error:
        raise DataError(
            f"{path} row {number} holds {cell[:40]!r}, expected a list of numbers such as [0.1, 0.2]"
        ) from error
