"""Exact order statistics of more numbers than fit in memory: radix selection over several readings of them.

No algorithm finds an exact quantile in one reading and constant memory (Munro and Paterson, "Selection and
sorting with limited storage", 1980). Several readings suffice: numbers are mapped to unsigned integers of the
same order, and each reading counts the next eleven bits of those that share the bits found so far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

DIGIT_BITS = 11
"""Bits settled in one reading: three readings for 32-bit numbers, six for 64-bit ones, 16 KiB a column and rank sought."""


def order_keys(values: NDArray[Any]) -> NDArray[Any]:
    """Return unsigned integers of the same width in the order of the numbers; NaN comes last or first by its sign bit.

    Args:
        values: integers, booleans or IEEE floats of 8 to 64 bits.
    """
    if values.dtype.kind == "b":
        return values.view(np.uint8)
    bits = values.dtype.itemsize * 8
    plain = np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")
    top = plain.dtype.type(1 << (bits - 1))
    if values.dtype.kind == "u":
        return plain
    if values.dtype.kind == "i":
        return np.asarray(plain ^ top)
    return np.where(plain & top, ~plain, plain | top)  # negative floats grow in magnitude as their bits do


def key_values(keys: NDArray[Any], kind: np.dtype[Any]) -> NDArray[Any]:
    """Return the numbers of :func:`order_keys`."""
    if kind.kind == "b":
        return keys.astype(bool)
    top = keys.dtype.type(1 << (keys.dtype.itemsize * 8 - 1))
    if kind.kind == "u":
        return keys.view(kind)
    if kind.kind == "i":
        return np.asarray(keys ^ top).view(kind)
    return np.where(keys & top, keys ^ top, ~keys).view(kind)


def select(
    read: Callable[[], Iterable[NDArray[Any]]], ranks: Sequence[int], *, columns: int, bits: int
) -> NDArray[np.uint64]:
    """Return the keys of given ranks of every column, ``(len(ranks), columns)``.

    Args:
        read: starts a new reading of all rows, in batches ``(n, columns)`` of unsigned keys; called ``bits /
            DIGIT_BITS`` times.
        ranks: 0 for the smallest, below the number of rows.
        columns: width of a batch.
        bits: width of a key.
    """
    found = np.zeros((len(ranks), columns), dtype=np.uint64)
    left = np.repeat(np.asarray(ranks, dtype=np.int64)[:, None], columns, axis=1)
    above = bits
    while above > 0:
        below = max(above - DIGIT_BITS, 0)
        counts = [
            {int(p): np.zeros(1 << (above - below), dtype=np.int64) for p in np.unique(found[:, c])}
            for c in range(columns)
        ]
        for batch in read():
            for column, wanted in enumerate(counts):
                _count(batch[:, column], wanted, above, below)
        for rank, column in np.ndindex(*found.shape):
            prefix = int(found[rank, column])
            cumulative = np.cumsum(counts[column][prefix])
            digit = int(np.searchsorted(cumulative, left[rank, column], side="right"))
            left[rank, column] -= int(cumulative[digit - 1]) if digit else 0
            found[rank, column] = (prefix << (above - below)) | digit
        above = below
    return found


def _count(keys: NDArray[Any], wanted: dict[int, NDArray[np.int64]], above: int, below: int) -> None:
    """Add how often each digit ``above`` to ``below`` follows each wanted prefix."""
    kind = keys.dtype.type
    is_first = above == keys.dtype.itemsize * 8
    mask = kind((1 << (above - below)) - 1)
    heads = keys if is_first else keys >> kind(above)
    digits = ((keys >> kind(below)) & mask).astype(np.intp)
    for prefix, counts in wanted.items():
        counts += np.bincount(digits if is_first else digits[heads == kind(prefix)], minlength=len(counts))
