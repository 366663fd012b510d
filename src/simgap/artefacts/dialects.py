"""How others write a table: encodings, separators, decimal commas, title lines, headers of two rows, rows of units, JSON rows."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from simgap.errors import DataError

SEPARATORS = (",", ";", "\t", "|")
_NAMES = {";": "semicolons", "\t": "tabs", "|": "bars"}
_UNIT = re.compile(
    r"[\[(]?\s*(s|sec|ms|us|ns|min|h|m|mm|cm|deg|°|rad|%|hz|fps|n|nm|kg|g|px|bool|0/1|1/0|y/n|yes/no|true/false|int|float|str|text|-|#)?\s*[\])]?",
    re.I,
)
_DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+")
_SAMPLE = 50


def decoded(content: bytes, what: str) -> tuple[str, str]:
    """Return the text of a file, and its encoding where it is not UTF-8.

    Raises:
        DataError: the file is binary.
    """
    for mark, name in ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"), (b"\xef\xbb\xbf", "utf-8-sig")):
        if content.startswith(mark):
            try:
                return content.decode(name), "UTF-16" if name == "utf-16" else ""
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{what} begins like {name.upper()} text and is none; save it as UTF-8"
                ) from error
    if b"\0" in content:
        raise DataError(f"{what} is not text; save the table as CSV")
    try:
        return content.decode("utf-8"), ""
    except UnicodeDecodeError:
        return content.decode("cp1252", errors="replace"), "Latin-1"


def header_after_hash(comments: Sequence[str], row: Sequence[str], mark: str) -> list[str] | None:
    """Return the header that a ``#`` hides: the last comment, where it has as many short cells as a first row that holds numbers."""
    cells = [c.strip() for c in comments[-1].split(mark)] if comments else []
    if len(cells) != len(row) or len(row) < 2 or any(len(c) > 30 for c in cells):
        return None
    return (
        [cells[0] or "no", *cells[1:]]
        if any(re.fullmatch(r"[-+]?\d+([.,]\d+)?", c.strip()) for c in row)
        else None
    )


def separator(lines: Sequence[str]) -> str:
    """Return what separates the cells: what gives the most columns that nearly all lines agree on; a comma where nothing does."""
    best, columns = ",", 1
    for mark in SEPARATORS:
        widths = Counter(len(row) for row in csv.reader(lines[:_SAMPLE], delimiter=mark) if row)
        if not widths:
            continue
        width, agree = max(widths.items(), key=lambda item: (item[1], item[0]))
        if width > columns and agree >= 0.8 * sum(widths.values()):
            best, columns = mark, width
    return best


def cleaned(rows: list[list[str]], mark: str) -> tuple[list[list[str]], list[str], list[str]]:
    """Return header and rows without blank lines, titles, a second header and units, the titles, and what was done.

    Args:
        rows: parsed rows, each with its own number of cells.
        mark: the separator.
    """
    done = [f"cells are separated by {_NAMES[mark]}"] if mark in _NAMES else []
    full = [row for row in rows if any(c.strip() for c in row)]
    if len(full) < len(rows):
        done.append(f"{len(rows) - len(full)} blank rows are left out")
    titles = []
    while len(full) > 1 and sum(bool(c.strip()) for c in full[0]) == 1 < sum(
        bool(c.strip()) for c in full[1]
    ):
        titles.append(next(c.strip() for c in full.pop(0) if c.strip()))
    if titles:
        done.append(f"{len(titles)} title lines before the header are left out")
    if not full:
        return [], titles, done
    full = _same_width(full)
    full, two = _one_header(full)
    done += ["the header has two rows, which are joined"] if two else []
    if len(full) > 2 and _is_units(full[1]):
        full.pop(1)
        done.append("the row below the header holds units and is left out")
    if mark != "," and any(_DECIMAL_COMMA.fullmatch(c.strip()) for row in full[1:] for c in row):
        full[1:] = [
            [c.replace(",", ".") if _DECIMAL_COMMA.fullmatch(c.strip()) else c for c in row]
            for row in full[1:]
        ]
        done.append("numbers have decimal commas")
    header, renamed = _unique([c.strip() for c in full[0]])
    full[0] = header
    done += [f"columns without a name of their own are called {', '.join(renamed[:4])}"] if renamed else []
    return full, titles, done


def _same_width(rows: list[list[str]]) -> list[list[str]]:
    """Cut empty cells behind the header's last one, which spreadsheets write; other differences in width stay."""
    width = len(rows[0])
    while (
        width > 1
        and not rows[0][width - 1].strip()
        and all(len(r) < width or not r[width - 1].strip() for r in rows)
    ):
        width -= 1
    return [
        row[:width] if len(row) > width and not any(c.strip() for c in row[width:]) else row for row in rows
    ]


def _one_header(rows: list[list[str]]) -> tuple[list[list[str]], bool]:
    """Join a row of group names with the row of columns below it."""
    if len(rows) < 3 or len(rows[0]) != len(rows[1]):
        return rows, False
    top, below = [c.strip() for c in rows[0]], [c.strip() for c in rows[1]]
    grouped = sum(bool(c) for c in top) < len(top) or len(set(top)) < len(top)
    if (
        not grouped
        or not all(re.search(r"[^\W\d]", c) for c in below)
        or len(set(below)) == len(below)
        or _is_units(rows[1])
    ):
        return rows, False
    filled, last = [], ""
    for name in top:
        last = name or last
        filled.append(last)
    once = Counter(below)
    joined = [
        f"{a}_{b}" if a and (once[b] > 1 or a == t) and a.lower() != b.lower() else b
        for a, b, t in zip(filled, below, top, strict=True)
    ]
    return [joined, *rows[2:]], True


def _is_units(row: Sequence[str]) -> bool:
    said = [c.strip() for c in row if c.strip()]
    return (
        len(said) >= 2
        and all(_UNIT.fullmatch(c) for c in said)
        and any(re.search(r"[a-z°%/]", c, re.IGNORECASE) for c in said)
    )


def _unique(names: list[str]) -> tuple[list[str], list[str]]:
    seen: Counter[str] = Counter()
    found, renamed = [], []
    for k, name in enumerate(names):
        seen[name] += 1
        given = name if name and seen[name] == 1 else f"{name or 'column'}_{seen[name] if name else k + 1}"
        found.append(given)
        if given != name:
            renamed.append(given)
    return found, renamed


def table_of_objects(objects: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Return header and rows of JSON objects: nested ones joined by ``_``, true and false as words, null and what is absent as blank."""
    flat = [_flat(row) for row in objects]
    columns = list(dict.fromkeys(k for row in flat for k in row))
    return [columns, *([row.get(c, "") for c in columns] for row in flat)]


def _flat(row: Mapping[str, Any], before: str = "", depth: int = 0) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in row.items():
        name = f"{before}{key}"
        if isinstance(value, dict) and depth < 2:
            found |= _flat(value, f"{name}_", depth + 1)
        elif isinstance(value, bool):
            found[name] = "true" if value else "false"
        elif value is None:
            found[name] = ""
        else:
            found[name] = str(value)[:1000]
    return found
