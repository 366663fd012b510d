"""CSV files of others, read within bounds: comments apart, every row of one width, numbers where they are numbers."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.bounds import MALFORMED, TABLE_CELLS, TABLE_COLUMNS, TEXT_BYTES, TRIAL_ROWS, read_text
from simgap.episodes.layout import require_content
from simgap.errors import DataError

MISSING = ("", "<missing>", "na", "n/a", "nan", "none", "null", "-", "—")
"""Cells that say nothing, lower case."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TextTable:
    """One CSV file."""

    path: Path
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    comments: tuple[str, ...] = ()
    """Lines that began with ``#``, without it."""

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
        return float(cell)
    except ValueError:
        return float("nan")


def read_csv(path: Path, most_rows: int = TRIAL_ROWS) -> TextTable:
    """Read a CSV file with one header line; lines that begin with ``#`` are comments.

    Raises:
        DataError: missing, empty, too large, no UTF-8, or a row of another width than the header.
    """
    require_content(path, limit_bytes=TEXT_BYTES)
    text = read_text(path)
    if text.count("\n") > most_rows or text.partition("\n")[0].count(",") > TABLE_COLUMNS or text.count(",") > TABLE_CELLS:
        raise DataError(f"{path} has more than {most_rows} rows, {TABLE_COLUMNS} columns or {TABLE_CELLS} cells, which is no log of trials; split it")
    lines = text.splitlines(keepends=True)
    comments = tuple(line[1:].strip() for line in lines if line.startswith("#"))
    try:
        rows = [row for row in csv.reader(line for line in lines if not line.startswith("#")) if row]
    except csv.Error as error:
        raise DataError(f"{path} is no readable CSV ({error}); save it again") from error
    if not rows or len(rows) * len(rows[0]) > TABLE_CELLS or len(rows[0]) > TABLE_COLUMNS:
        raise DataError(
            f"{path} holds {len(rows)} rows of {len(rows[0]) if rows else 0} cells, expected a header and {TABLE_CELLS} cells at most; check the file"
        )
    header = tuple(c.strip() for c in rows[0])
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(header):
            raise DataError(f"{path} row {number} has {len(row)} cells, its header has {len(header)}; quote cells that hold commas")
    return TextTable(path=path, columns=header, rows=tuple(tuple(r) for r in rows[1:]), comments=comments)


def matrix(table: TextTable, name: str, width: int | None = None) -> NDArray[np.float64]:
    """Return a column of bracketed lists as ``(N, width)`` float64.

    Raises:
        DataError: a cell is no list of numbers, or of another length.
    """
    parsed = [_list(cell, table.path, number) for number, cell in enumerate(table.column(name), start=2)]
    lengths = {len(p) for p in parsed} | ({width} if width is not None else set())
    if len(lengths) != 1:
        raise DataError(f"{table.path}: column {name!r} holds lists of {sorted(lengths)} numbers; expected one length throughout")
    values = np.array(parsed, dtype=np.float64).reshape(len(parsed), lengths.pop())
    if not np.isfinite(values).all():
        raise DataError(f"{table.path}: column {name!r} holds {int((~np.isfinite(values)).sum())} numbers that are none (NaN or infinite); repair the log")
    return values


def _list(cell: str, path: Path, number: int) -> list[float]:
    try:
        value: Any = json.loads(cell)
        return [float(v) for v in value]
    except MALFORMED as error:
        raise DataError(f"{path} row {number} holds {cell[:40]!r}, expected a list of numbers such as [0.1, 0.2]") from error
