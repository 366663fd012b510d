"""Records of a tub: what the catalogs hold, where an episode ends, and which inputs are numbers throughout."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from simgap.bounds import MALFORMED, WIDTH
from simgap.errors import DataError

PAUSE_S, PAUSE_STEPS = 1.0, 10.0
"""A pause in the recording is at least so long, and so many usual steps; an episode ends there."""
NUMBERS = {"float": "float64", "int": "int64", "boolean": "bool", "vector": "float64", "list": "float64"}
"""Types of a manifest that are numbers; the last two are one list per record."""
_NOT_NUMBERS = ("image_array", "str")


class Record(NamedTuple):
    """One line of a catalog."""

    number: int
    session: str
    stamp_ms: float
    values: Mapping[str, Any]
    catalog: Path


class Run(NamedTuple):
    """Records that follow each other without a cut or a pause: one episode."""

    records: list[Record]
    pause_before_s: float | None
    """Length of the pause that ended the episode before, within one session; negative where the clock was set back."""


def runs(records: Sequence[Record]) -> Iterator[Run]:
    """Yield runs of consecutive records of one session; one ends at a deleted record and at a pause."""
    steps = [b.stamp_ms - a.stamp_ms for a, b in pairwise(records) if _are_neighbours(a, b)]
    ahead = [s for s in steps if s > 0]
    longest_ms = max(1e3 * PAUSE_S, PAUSE_STEPS * float(np.median(ahead))) if ahead else 1e3 * PAUSE_S
    current: list[Record] = []
    pause_s: float | None = None
    for record in records:
        if current:
            is_next, step = _are_neighbours(current[-1], record), record.stamp_ms - current[-1].stamp_ms
            if not is_next or abs(step) >= longest_ms:
                yield Run(current, pause_s)
                current, pause_s = [], step / 1e3 if is_next else None
        current.append(record)
    if current:
        yield Run(current, pause_s)


_DATES_S = (1e8, 1e11)
"""A date in seconds lies between these, the years 1973 to 5138; in milliseconds it is a thousand times as large."""


def in_milliseconds(records: Sequence[Record], notes: list[str]) -> list[Record]:
    """Return records whose stamps are milliseconds as their key says, converted and said where they are dates in seconds."""
    if not records or not all(_DATES_S[0] < r.stamp_ms < _DATES_S[1] for r in records):
        return list(records)
    notes.append("_timestamp_ms holds seconds, as their size as dates says: read as such")
    return [r._replace(stamp_ms=1e3 * r.stamp_ms) for r in records]


def _are_neighbours(a: Record, b: Record) -> bool:
    return a.session == b.session and b.number == a.number + 1


class Inputs(NamedTuple):
    """What the records hold of what the manifest declares."""

    numeric: dict[str, tuple[str, int]]
    """Key -> its dtype and width; 0 for a single number."""
    cameras: list[str]
    notes: list[str]
    """One sentence on each declared input that is not read."""


def inputs_of(
    root: Path, kinds: Mapping[str, str], records: Sequence[Record], needed: Sequence[str]
) -> Inputs:
    """Sort the declared inputs; what is not read is said, never dropped without a word.

    Args:
        root: the tub, for messages.
        kinds: input -> its type in the manifest.
        records: all that are not deleted.
        needed: inputs whose absence in some records is an error and no reason to leave them out.

    Raises:
        DataError: no camera.
    """
    held = Counter(key for r in records for key in r.values)
    cameras = [k for k, kind in kinds.items() if kind == "image_array" and held[k]]
    if not cameras:
        raise DataError(
            f"{root} has no camera; its inputs are {dict(kinds)}, expected one of type image_array"
        )
    numeric: dict[str, tuple[str, int]] = {}
    absent: list[str] = []
    notes: list[str] = []
    for key, kind in kinds.items():
        if not held[key]:
            absent.append(key)
        elif kind not in NUMBERS:
            if kind not in _NOT_NUMBERS:
                notes.append(
                    f"input {key!r} of type {kind} is not read: it is neither numbers nor a colour picture"
                )
        elif held[key] < len(records) and key not in needed:
            notes.append(
                f"input {key!r} is left out: {len(records) - held[key]} of {len(records)} records do not"
                " hold it"
            )
        elif kind not in ("vector", "list"):
            numeric[key] = (NUMBERS[kind], 0)
        elif width := _width(records, key):
            numeric[key] = (NUMBERS[kind], width)
        else:
            notes.append(
                f"input {key!r} of type {kind} is left out: it is not a list of equally many numbers in every"
                " record"
            )
    if absent:
        notes.insert(0, f"the manifest declares {', '.join(sorted(absent))}, which the records do not hold")
    undeclared = sorted(k for k in held if k not in kinds and not k.startswith("_"))
    if undeclared:
        notes.append(
            f"the records hold {', '.join(undeclared[:8])}, which the manifest does not declare: not read"
        )
    return Inputs(numeric, cameras, notes)


def _width(records: Sequence[Record], key: str) -> int:
    """Return how many numbers each record has under a key; 0 where that differs or they are no numbers."""
    widths = set()
    for record in records:
        value = record.values.get(key)
        if not isinstance(value, list) or not all(
            isinstance(v, (int, float)) and not isinstance(v, bool) for v in value
        ):
            return 0
        widths.add(len(value))
    return widths.pop() if len(widths) == 1 and max(widths) <= WIDTH else 0


def column(records: Sequence[Record], key: str, kind: str, width: int) -> pa.Array:
    """Return one input of the records as a column.

    Raises:
        DataError: a record has no number; names it.
    """
    try:
        values = np.array([r.values[key] if width else _number(r.values[key]) for r in records]).astype(kind)
        return (
            pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), width)
            if width
            else pa.array(values)
        )
    except MALFORMED as error:
        bad = next((r for r in records if not isinstance(r.values.get(key), (int, float))), records[0])
        raise DataError(
            f"{bad.catalog} record {bad.number} has no number for {key!r} ({error!r}); delete the record"
        ) from error


def _number(value: Any) -> float | int:
    if not isinstance(value, (int, float)):
        raise TypeError(f"{value!r:.40}")
    return value
