"""The map between what was meant and what came out: order, direction, slope, offset and reference of every dimension.

Labels and the predictions of a policy on the same frames, commands and the readings of a replay, a dataset
before and after a driver's update: where two logs of one motion differ by a convention, one map explains them
on every episode, and where they differ by skill or by physics none does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from simgap.conventions import AffineMap
from simgap.errors import DataError

Array = NDArray[np.float64]
Log = NDArray[np.floating[Any]]
"""One episode or chunk, ``(T, A)``."""

_TRIM = 0.1
"""Share of rows with the largest residuals that the second fit leaves out: contacts and stops follow no map."""
_FEWEST = 12
_CLEARLY = 3.0
"""How many times better another dimension has to explain one before the order is doubted; joints may move together."""
_SAME = 0.8
"""Share of variance that a dimension in another place explains at least."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DimensionFit:
    """``found[t + lag] = slope * wanted[source][t] + offset`` of one dimension."""

    name: str
    source: str
    """The wanted dimension that explains it: its own name where the order is right."""
    n: int
    lag_frames: int = 0
    slope: float | None = None
    """None where one side does not move."""
    offset: float | None = None
    r2: float = 0.0
    wanted_range: float = 0.0
    slope_error: float = 0.0
    """Standard error of the slope; rows are taken as ten times fewer than they are, neighbours are alike."""
    difference: float | None = None
    """Median of found minus wanted: the offset where the slope is 1."""
    difference_spread: float = 0.0
    """Median distance of found minus wanted from that."""
    correlation: float = 0.0
    """Of found with wanted, both as they are."""
    summed_correlation: float = 0.0
    """Of the running sum of found with wanted, episode by episode: near 1 where steps were given for positions."""
    differenced_correlation: float = 0.0
    """Of found with the running sum of wanted: near 1 where positions were given for steps."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {field: getattr(self, field) for field in self.__slots__}


def fit_map(
    wanted: Sequence[Log], found: Sequence[Log], names: Sequence[str], *, longest_lag: int = 0
) -> tuple[DimensionFit, ...]:
    """Fit the map from what was wanted to what was found, dimension by dimension.

    Args:
        wanted: episodes of labels, commands or the older convention, ``(T, A)`` each.
        found: the same episodes as they came out, aligned frame by frame.
        names: dimension names, in vector order of both.
        longest_lag: frames that found may be behind wanted, for replays of a plant; 0 where both sides belong
            to the same instant.

    Raises:
        DataError: sides of different shape, another number of dimensions than names, or values that are not
            finite.
    """
    pairs = _paired(wanted, found, len(names))
    lags = range(max(0, min(longest_lag, min(len(w) for w, _ in pairs) - 3)) + 1)
    scores = np.stack([_correlations(*_shifted(pairs, lag)) for lag in lags])  # (L, A wanted, A found)
    explained = scores**2
    order = _order(explained.max(axis=0))
    return tuple(
        _fit(pairs, names, k, order[k], int(np.argmax(explained[:, order[k], k]))) for k in range(len(names))
    )


def _paired(wanted: Sequence[Log], found: Sequence[Log], width: int) -> list[tuple[Array, Array]]:
    if len(wanted) != len(found) or not wanted:
        raise DataError(
            f"{len(wanted)} episodes were wanted and {len(found)} found; give the same ones on both sides, at"
            " least one"
        )
    pairs = [
        (np.asarray(w, dtype=np.float64), np.asarray(f, dtype=np.float64))
        for w, f in zip(wanted, found, strict=True)
    ]
    for k, (w, f) in enumerate(pairs):
        if w.shape != f.shape or w.ndim != 2 or w.shape[1] != width:
            raise DataError(
                f"episode {k} was wanted as {w.shape} and found as {f.shape}; expected (T, {width}) on both"
                " sides, frame by frame"
            )
        if not (np.isfinite(w).all() and np.isfinite(f).all()):
            raise DataError(f"episode {k} holds NaN or infinity; drop these frames on both sides")
    return pairs


def _shifted(pairs: Sequence[tuple[Array, Array]], lag: int) -> tuple[Array, Array]:
    long = [(w[: len(w) - lag], f[lag:]) for w, f in pairs if len(w) > lag]
    return np.concatenate([w for w, _ in long]), np.concatenate([f for _, f in long])


def _correlations(wanted: Array, found: Array) -> Array:
    a, b = (_standardised(v) for v in (wanted, found))
    return np.asarray(a.T @ b / max(1, len(a)))


def _standardised(values: Array) -> Array:
    centred = values - values.mean(axis=0)
    spread = centred.std(axis=0)
    floor = 1e-9 * np.maximum(1.0, np.abs(values).max(axis=0))
    return np.asarray(np.divide(centred, spread, out=np.zeros_like(centred), where=spread > floor))


def _order(explained: Array) -> list[int]:
    """Return which wanted dimension each found one is, by the assignment that explains most; its own unless another is clearly better."""
    size = len(explained)
    wanted, found = linear_sum_assignment(-explained)
    best = dict(zip(found.tolist(), wanted.tolist(), strict=True))
    order = list(range(size))
    moved = [k for k in range(size) if best[k] != k]
    if moved and all(
        explained[best[k], k] >= _SAME and 1.0 - explained[k, k] > _CLEARLY * (1.0 - explained[best[k], k])
        for k in _moving(moved, explained)
    ):
        for k in moved:
            order[k] = best[k]
    return order


def _moving(moved: list[int], explained: Array) -> list[int]:
    """Return those that anything explains at all: a dimension that stands still fits every place."""
    return [k for k in moved if explained[:, k].max() > 0.05]


def _fit(
    pairs: Sequence[tuple[Array, Array]], names: Sequence[str], k: int, source: int, lag: int
) -> DimensionFit:
    w, f = (v[:, column] for v, column in zip(_shifted(pairs, lag), (source, k), strict=True))
    spread = float(np.ptp(w))
    plain = DimensionFit(name=names[k], source=names[source], n=len(w), lag_frames=lag, wanted_range=spread)
    if len(w) < _FEWEST or spread <= 0.0 or float(np.ptp(f)) <= 0.0:
        return plain
    own = [(a[:, k], b[:, k]) for a, b in pairs]
    slope, offset = np.polyfit(w, f, 1)
    residual = np.abs(f - slope * w - offset)
    keep = residual <= np.quantile(residual, 1.0 - _TRIM)
    if np.ptp(w[keep]) > 0.5 * spread:
        slope, offset = np.polyfit(w[keep], f[keep], 1)
        residual = np.abs(f - slope * w - offset)
    difference = float(np.median(f - w))
    rest = float(np.sqrt(np.mean(residual[keep] ** 2)))
    return DimensionFit(
        name=names[k],
        source=names[source],
        n=len(w),
        lag_frames=lag,
        slope=float(slope),
        offset=float(offset),
        r2=_correlation(w, f) ** 2,
        wanted_range=spread,
        slope_error=rest / max(float(w.std()), 1e-12) / np.sqrt(max(1.0, len(w) / 10.0)),
        difference=difference,
        difference_spread=float(np.median(np.abs(f - w - difference))),
        correlation=_correlation(*(np.concatenate(v) for v in zip(*own, strict=True))),
        summed_correlation=_within(own, summed=1),
        differenced_correlation=_within(own, summed=0),
    )


def _within(own: Sequence[tuple[Array, Array]], *, summed: int) -> float:
    """Return the correlation within episodes after one side has been summed up along time."""
    sides = [[np.cumsum(pair[j]) if j == summed else pair[j] for pair in own] for j in (0, 1)]
    return _correlation(*(np.concatenate([v - v.mean() for v in side]) for side in sides))


def _correlation(a: Array, b: Array) -> float:
    if len(a) < 3 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return 0.0
    return float(np.corrcoef(a, b)[0, 1])


def map_of(fits: Sequence[DimensionFit]) -> AffineMap | None:
    """Return the map found, as one that can be undone; None where a dimension could not be told."""
    names = tuple(f.name for f in fits)
    lines = [(f.slope, f.offset) for f in fits]
    if any(s is None or o is None or s == 0.0 for s, o in lines):
        return None
    return AffineMap(
        source=names,
        order=tuple(names.index(f.source) for f in fits),
        scale=tuple(float(s) for s, _ in lines if s is not None),
        offset=tuple(float(o) for _, o in lines if o is not None),
        target=names,
    )
