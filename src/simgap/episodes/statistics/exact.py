"""Exact statistics of pooled frames, as a normaliser needs them: never a mean of per-episode quantiles."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Self

import numpy as np
from numpy.typing import NDArray

from simgap.episodes.statistics.selection import key_values, order_keys, select
from simgap.errors import DataError

QUANTILES = {"q01": 0.01, "q10": 0.10, "q50": 0.50, "q90": 0.90, "q99": 0.99}
STATISTICS = ("min", "max", "mean", "std", *QUANTILES)
_BATCH_BYTES = 2 << 20


def exact_statistics(values: NDArray[Any]) -> dict[str, list[Any]]:
    """Return min, max, mean, std, count and quantiles over pooled frames in float64.

    Standard deviations are of the population (``ddof = 0``, two passes); quantiles interpolate linearly. With
    no frames every value is undefined and the dictionary holds the count alone. For more frames than memory:
    :class:`StreamingStatistics`.

    Args:
        values: ``(N, D)`` or ``(N,)`` numbers or booleans.
    """
    return column_statistics({"": np.asarray(values)})[""]


def column_statistics(columns: Mapping[str, NDArray[Any]]) -> dict[str, dict[str, list[Any]]]:
    """Return :func:`exact_statistics` of several columns of equal length, worked out together.

    Args:
        columns: name -> ``(N, D)`` or ``(N,)`` numbers or booleans; at least one.
    """
    if any(len(v) == 0 for v in columns.values()):
        return {name: {"count": [0]} for name in columns}
    wide = {name: v.reshape(len(v), -1) for name, v in columns.items()}
    table = np.concatenate(list(wide.values()), axis=1, dtype=np.float64)
    table.sort(axis=0)  # NaN sorts last
    levels = {"min": table[0], "max": table[-1], "mean": table.mean(axis=0), "std": table.std(axis=0)}
    for name, q in QUANTILES.items():
        low, high, weight = _around(len(table), q)
        levels[name] = _between(table[low], table[high], weight)
    is_nan = np.isnan(table[-1])
    result, start = {}, 0
    for name, values in wide.items():
        stop = start + values.shape[1]
        result[name] = _listed(
            {key: np.where(is_nan, np.nan, level)[start:stop] for key, level in levels.items()}, len(table)
        )
        start = stop
    return result


class StreamingStatistics:
    """:func:`exact_statistics` of rows that come in batches, in constant memory however many come.

    Mean and standard deviation are merged batch by batch in float64 (Chan, Golub and LeVeque, 1983).
    Quantiles are exact, to the last bit those of ``numpy.quantile`` on the pooled rows; no algorithm does
    that in one reading and constant memory, so the rows wait in an unnamed temporary file, which goes with
    this object or its process, and :meth:`result` reads it a few times.
    """

    def __init__(self, *, folder: Path | None = None) -> None:
        """Start with no rows.

        Args:
            folder: where the temporary file goes, as large as all rows together; the system's temporary
                folder by default.
        """
        self._folder = folder
        self._spool: IO[bytes] | None = None
        self._kind = np.dtype(np.float64)
        self._count = 0
        self._low = self._high = self._mean = self._squares = np.zeros(0)

    @property
    def count(self) -> int:
        """Rows seen."""
        return self._count

    def update(self, values: NDArray[Any], valid: NDArray[np.bool_] | None = None) -> None:
        """Add rows.

        Args:
            values: ``(n, D)`` or ``(n,)`` integers, booleans or floats; the same D and dtype every time.
            valid: ``(n,)``; rows of padding are False and do not count.

        Raises:
            DataError: another width or dtype than before.
        """
        rows = np.asarray(values)[slice(None) if valid is None else np.asarray(valid, dtype=bool)]
        if len(rows) == 0:
            return
        rows = np.ascontiguousarray(rows.reshape(len(rows), -1))
        if rows.dtype.kind not in "biuf" or rows.dtype.itemsize > 8:
            raise DataError(
                f"statistics need integers, booleans or floats of at most 64 bits, not {rows.dtype}; convert"
                " them"
            )
        self._require_same(rows.shape[1], rows.dtype)
        numbers = rows.astype(np.float64)
        mean = numbers.mean(axis=0)
        self._join(
            len(rows), numbers.min(axis=0), numbers.max(axis=0), mean, ((numbers - mean) ** 2).sum(axis=0)
        )
        self._file().write(rows.data)

    def merge(self, other: StreamingStatistics) -> None:
        """Add all rows of another object of the same width and dtype, which stays as it is.

        Raises:
            DataError: another width or dtype.
        """
        if other._count == 0:
            return
        self._require_same(len(other._mean), other._kind)
        self._join(other._count, other._low, other._high, other._mean, other._squares)
        spool = self._file()
        for rows in other._rows():
            spool.write(rows.data)

    def result(self) -> dict[str, list[Any]]:
        """Return what :func:`exact_statistics` returns of all rows; more rows may follow."""
        if self._count == 0:
            return {"count": [0]}
        places = {name: _around(self._count, q) for name, q in QUANTILES.items()}
        ranks = sorted({rank for low, high, _ in places.values() for rank in (low, high)})
        keys = select(
            lambda: map(order_keys, self._rows()),
            ranks,
            columns=len(self._mean),
            bits=8 * self._kind.itemsize,
        )
        unsigned = np.dtype(f"u{self._kind.itemsize}")
        at = {
            rank: key_values(k.astype(unsigned), self._kind).astype(np.float64)
            for rank, k in zip(ranks, keys, strict=True)
        }
        levels = {
            "min": self._low,
            "max": self._high,
            "mean": self._mean,
            "std": np.sqrt(self._squares / self._count),
        }
        levels |= {name: _between(at[low], at[high], weight) for name, (low, high, weight) in places.items()}
        is_nan = np.isnan(self._low)
        return _listed({name: np.where(is_nan, np.nan, level) for name, level in levels.items()}, self._count)

    def close(self) -> None:
        """Drop the rows."""
        if self._spool is not None:
            self._spool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _join(
        self,
        count: int,
        low: NDArray[np.float64],
        high: NDArray[np.float64],
        mean: NDArray[np.float64],
        squares: NDArray[np.float64],
    ) -> None:
        if self._count == 0:
            self._count, self._low, self._high, self._mean, self._squares = count, low, high, mean, squares
            return
        total = self._count + count
        step = mean - self._mean
        self._squares = self._squares + squares + step**2 * (self._count * count / total)
        self._mean = self._mean + step * (count / total)
        self._low, self._high = np.minimum(self._low, low), np.maximum(self._high, high)
        self._count = total

    def _require_same(self, width: int, kind: np.dtype[Any]) -> None:
        if self._count == 0:
            self._kind = kind
        elif (width, kind) != (len(self._mean), self._kind):
            raise DataError(
                f"statistics of {len(self._mean)} columns of {self._kind} got {width} of {kind}; convert them"
                " alike"
            )

    def _file(self) -> IO[bytes]:
        if self._spool is None:
            self._spool = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115
        self._spool.seek(0, 2)
        return self._spool

    def _rows(self) -> Iterator[NDArray[Any]]:
        spool, width = self._file(), len(self._mean)
        spool.seek(0)
        size = width * self._kind.itemsize
        while batch := spool.read(max(1, _BATCH_BYTES // size) * size):
            yield np.frombuffer(batch, dtype=self._kind).reshape(-1, width)


def image_histogram(frames: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return how often each value occurs by channel, ``(3, 256)`` int64, from ``(T, H, W, 3)`` frames.

    Histograms add up over episodes, so that every pooled statistic of 8-bit images stays exact.
    """
    from PIL import Image

    total = np.zeros((3, 256), dtype=np.int64)
    for batch in _pixel_batches(frames):
        count = len(batch) // 12 * 12
        # byte b of words[k] holds channel (4 k + b) % 3
        words = np.ascontiguousarray(batch[:count].view(np.uint32).reshape(-1, 3).T)
        for k in range(3 if count else 0):
            # Four counters at once: counting one channel alone is slower, for neighbouring pixels are alike
            # and wait for the same counter.
            counts = Image.frombuffer("RGBA", (words.shape[1], 1), words[k], "raw", "RGBA", 0, 1).histogram()
            for b in range(4):
                total[(4 * k + b) % 3] += counts[256 * b : 256 * (b + 1)]
        for channel in range(3):
            total[channel] += np.bincount(batch[count:][channel::3], minlength=256)
    return total


def _pixel_batches(frames: NDArray[np.uint8]) -> Iterator[NDArray[np.uint8]]:
    """Yield all bytes of ``(T, H, W, 3)`` frames in flat pieces of whole pixels; rows may come in another order."""
    if not frames.flags.c_contiguous and frames[:, ::-1].flags.c_contiguous:
        frames = frames[:, ::-1]
    at_once = max(1, _BATCH_BYTES // max(1, frames[:1].size))
    for k in range(0, len(frames), at_once):
        yield np.ascontiguousarray(frames[k : k + at_once]).reshape(-1)


def image_statistics(histogram: NDArray[np.int64], frames: int) -> dict[str, list[Any]]:
    """Return exact statistics by channel in [0, 1], nested ``[3][1][1]`` as lerobot stores them.

    Args:
        histogram: ``(3, 256)`` counts of :func:`image_histogram`, summed over episodes.
        frames: number of frames, stored as ``count``.
    """
    if frames == 0:
        return {"count": [0]}
    levels = np.arange(256) / 255.0
    pixels = int(histogram[0].sum())
    mean = histogram @ levels / pixels
    cumulative = np.cumsum(histogram, axis=1)
    rows = {
        "min": levels[(cumulative > 0).argmax(axis=1)],
        "max": levels[(cumulative == pixels).argmax(axis=1)],
        "mean": mean,
        "std": np.sqrt((histogram * (levels - mean[:, None]) ** 2).sum(axis=1) / pixels),
    }
    for name, q in QUANTILES.items():
        low, high, weight = _around(pixels, q)
        rows[name] = _between(
            levels[(cumulative > low).argmax(axis=1)], levels[(cumulative > high).argmax(axis=1)], weight
        )
    return {name: [[[float(v)]] for v in values] for name, values in rows.items()} | {"count": [frames]}


def _listed(levels: Mapping[str, NDArray[np.float64]], count: int) -> dict[str, list[Any]]:
    values = {name: level.tolist() for name, level in levels.items()}
    return (
        {name: values[name] for name in STATISTICS[:4]}
        | {"count": [count]}
        | {name: values[name] for name in QUANTILES}
    )


def _around(count: int, q: float) -> tuple[int, int, float]:
    """Return the ranks below and above a quantile, and the weight of the one above."""
    position = (count - 1) * q
    low = int(position)
    return low, min(low + 1, count - 1), position - low


def _between(below: NDArray[np.float64], above: NDArray[np.float64], weight: float) -> NDArray[np.float64]:
    """Interpolate as numpy does, from the nearer end."""
    step = above - below
    return below + step * weight if weight < 0.5 else above - step * (1.0 - weight)
