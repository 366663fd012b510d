"""Where a series of still pictures, one per episode, becomes another one: between which episodes, and how surely.

Each pixel is ranked over the episodes, so that one that always differs a little counts as much as one that
differs much; the split at which most pixels change sides is compared with what the same pictures give in any
other order (permutation). A split counts only if it tells the episodes of both sides apart: each picture is
put between the medians of the two sides, which are made without that picture, and has to lie on its own side.
Where few episodes, or few on one side, make no order rare, the split has to be the clearer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

Array = NDArray[np.float64]
Pictures = NDArray[np.float32]

ALPHA = 0.01
SHUFFLES = 199
SUREST = 6
"""Pictures without which a split that is not rare among orders is never believed."""
LEAST = 2
"""Episodes that each side needs: a single one is an odd episode and no change."""
_STEP = 4.0
"""Differences of a pixel below this, of 255, are noise."""
_CAP = 60.0
_SHARED = 0.3
"""Share of the episodes that have to show an edge: a camera that moved shows each in one part, a thing put elsewhere in a few."""
_EDGES = 0.12
"""Share of the pixels that count as edges."""
_USABLE = 0.6
"""Share of the episodes in which a pixel has to show something that rests."""
_FEWEST_PIXELS = 30
_CELL_ROWS = 16
_DARK = 8.0
_STEADY = 0.04
"""Difference of the light, as a logarithm, that a fixed scene shows between episodes."""
_SIDE = 0.15
"""How far, from the middle (0) to the median of a side (0.5), pictures have to lie on their own side."""
_STRAYS = 0.05
"""Share of the episodes that may lie on the other side: an odd one now and then."""
_JUMP = 0.6
"""Step from the last three episodes before to the first three after, of the whole step: a drift makes less."""
_FOLDS = 6
_DEEP = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Split:
    """A change between two neighbouring runs of episodes."""

    start: int
    """First picture of the run before."""
    at: int
    """First picture after."""
    stop: int
    """End of the run after."""
    p: float
    """By permutation."""


class Series(NamedTuple):
    """One row of numbers per episode, and which of them show something that rests."""

    values: Pictures
    """``(E, P)`` of 255; of colours, red, green and blue of one cell after the other."""
    known: NDArray[np.bool_]


def edges_of(pictures: Pictures, resting: NDArray[np.bool_]) -> Series:
    """Return where the edges lie that most episodes share: what a moved camera changes and light does not.

    Args:
        pictures: ``(E, h, w, 3)`` still pictures.
        resting: ``(E, h, w)``.
    """
    details = np.stack([_detail(p.mean(axis=-1)) for p in pictures])
    energy = np.quantile(np.where(resting, np.abs(details), 0.0), 1.0 - _SHARED, axis=0)
    energy[resting.mean(axis=0) < _USABLE] = 0.0
    least = max(_STEP / 2, float(np.quantile(energy, 1.0 - _EDGES)))
    chosen = energy >= least
    return Series(details[:, chosen].astype(np.float32), resting[:, chosen])


def colours_of(pictures: Pictures, resting: NDArray[np.bool_]) -> Series:
    """Return the colours of square cells: what light changes, and a small shift hardly.

    Args:
        pictures: ``(E, h, w, 3)`` still pictures.
        resting: ``(E, h, w)``.
    """
    side = max(1, pictures.shape[1] // _CELL_ROWS)
    rows, columns = pictures.shape[1] // side, pictures.shape[2] // side
    weights = resting[:, : rows * side, : columns * side, None].astype(np.float32)
    parts = (
        pictures[:, : rows * side, : columns * side] * weights,
        np.broadcast_to(weights, (*weights.shape[:3], 3)),
    )
    sums, counts = (p.reshape(len(pictures), rows, side, columns, side, 3).sum(axis=(2, 4)) for p in parts)
    known = counts >= 0.5 * side * side
    means = np.where(known, sums / np.maximum(counts, 1.0), 0.0)
    return Series(means.reshape(len(pictures), -1).astype(np.float32), known.reshape(len(pictures), -1))


def _detail(grey: NDArray[np.float32]) -> Array:
    soft = ndimage.gaussian_filter(grey.astype(np.float64), 1.0)
    return np.asarray(soft - ndimage.gaussian_filter(soft, 4.0))


def find_splits(series: Series, rng: np.random.Generator) -> list[Split]:
    """Return the changes of a series of pictures.

    Args:
        series: numbers of the pictures.
        rng: draws the orders.
    """
    count = len(series.values)
    usable = series.known.mean(axis=0) >= _USABLE
    if count < 2 * LEAST or usable.sum() < _FEWEST_PIXELS:
        return []
    values, there = series.values[:, usable], series.known[:, usable]
    borders: dict[int, float] = {}
    _segment(_ranks(values), 0, count, _DEEP, rng, borders)
    found: list[Split] = []
    for start, at, stop in _runs(borders, count):
        if is_clear(
            sides_of(values[start:stop], there[start:stop], at - start),
            at - start,
            strict=borders[at] > ALPHA,
        ):
            found.append(Split(start=start, at=at, stop=stop, p=borders[at]))
    return found


def _runs(borders: Iterable[int], count: int) -> list[tuple[int, int, int]]:
    """Return each border with the run before and the run after it."""
    edges = [0, *sorted(borders), count]
    return list(zip(edges, edges[1:], edges[2:], strict=False))


def _segment(
    ranks: Array, start: int, stop: int, deep: int, rng: np.random.Generator, borders: dict[int, float]
) -> None:
    """Split a run where its pictures change most, and then both parts."""
    count = stop - start
    if deep == 0 or count < 2 * LEAST:
        return
    part = _centred(ranks[start:stop])
    scores = _scores(part)
    at = int(np.argmax(scores))
    beaten = sum(
        float(_scores(part[rng.permutation(count)]).max()) >= scores[at] - 1e-9 for _ in range(SHUFFLES)
    )
    p = float((1 + beaten) / (1 + SHUFFLES))
    if p > ALPHA and (count < SUREST or len(ranks) > count):
        return
    borders[start + at] = p
    if p > ALPHA:
        return
    _segment(ranks, start, start + at, deep - 1, rng, borders)
    _segment(ranks, start + at, stop, deep - 1, rng, borders)


def _ranks(values: Pictures) -> Array:
    """Return each pixel's rank among the episodes, ``(E, P)``; values that differ by noise share one."""
    rounded = np.round(values / (_STEP / 2))
    ranks = np.empty(values.shape)
    for k in range(len(values)):
        ranks[k] = (rounded < rounded[k]).sum(axis=0) + 0.5 * (rounded == rounded[k]).sum(axis=0)
    return ranks


def _centred(ranks: Array) -> Array:
    return np.asarray(ranks - ranks.mean(axis=0))


def _scores(ranks: Array) -> Array:
    """Return, for each split, the mean over pixels of the squared standardised sum of ranks before it, ``(E,)``."""
    count = len(ranks)
    k = np.arange(1, count)
    sums = np.cumsum(ranks, axis=0)[:-1]
    spread = (ranks**2).mean(axis=0)
    varying = spread > 1e-9
    scores = np.full(count, -np.inf)
    if varying.any():
        weighed = (sums[:, varying] ** 2 / spread[varying]).mean(axis=1)
        scores[1:] = weighed * (count - 1) / (k * (count - k))
    scores[:LEAST] = scores[count - LEAST + 1 :] = -np.inf
    return scores


def sides_of(pictures: Pictures, known: NDArray[np.bool_], at: int) -> Array:
    """Return where each picture lies between the medians of the two sides, made without it: -0.5 before, 0.5 after, ``(E,)``."""
    count = len(pictures)
    folds = np.arange(count) % min(_FOLDS, count)
    if min(at, count - at) <= _FOLDS:
        folds = np.arange(count)
    masked = np.where(known, pictures, np.nan)
    place = np.zeros(count)
    halves = (slice(0, at), slice(at, count))
    for fold in np.unique(folds):
        kept = folds != fold
        before, after = (_median(masked[side][kept[side]]) for side in halves)
        apart = np.clip(after - before, -_CAP, _CAP)
        apart[~np.isfinite(apart) | (np.abs(apart) < _STEP / 2)] = 0.0
        within = _median(
            np.concatenate(
                [np.abs(masked[s][kept[s]] - m) for s, m in zip(halves, (before, after), strict=True)]
            )
        )
        trust = np.abs(apart) / (np.where(np.isfinite(within), within, np.inf) + _STEP / 2)
        middle = 0.5 * (after + before)
        for k in np.flatnonzero(folds == fold):
            off = np.clip(masked[k] - middle, -0.5 * _CAP, 0.5 * _CAP)
            seen = np.isfinite(off) & (trust > 0.0)
            if seen.any():
                place[k] = _middle(off[seen] / apart[seen], trust[seen])
    return place


def _median(values: Pictures) -> Pictures:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # pixels that nothing is known of stay NaN
        return np.asarray(np.nanmedian(values, axis=0), dtype=np.float32)


def _middle(shares: Pictures, weights: Pictures) -> float:
    """Return the weighted mean of the shares that lie between the weighted quartiles."""
    order = np.argsort(shares)
    mass = np.cumsum(weights[order])
    inner = order[(mass >= 0.2 * mass[-1]) & (mass <= 0.8 * mass[-1])]
    chosen = inner if len(inner) else order
    return float((shares[chosen] * weights[chosen]).sum() / weights[chosen].sum())


def is_clear(place: Array, at: int, *, strict: bool) -> bool:
    """Return whether a split tells the episodes of both sides apart, at one step."""
    own = np.concatenate([-place[:at], place[at:]])
    if strict:
        return bool((own >= _SIDE).all())
    strays = int((own < _SIDE).sum())
    near = float(np.median(place[at : at + 3]) - np.median(place[max(0, at - 3) : at]))
    return strays <= _STRAYS * len(own) + 0.5 and near >= _JUMP


def is_steady(colours: Series, at: int) -> bool:
    """Return whether the light hardly differs within either side: where it is drawn anew for each episode, a few say nothing."""
    for side in (slice(0, at), slice(at, None)):
        values, known = colours.values[side], colours.known[side]
        usable = known.all(axis=0) & (values > _DARK).all(axis=0)
        if not usable.any():
            return False
        off = np.log(
            values / np.maximum(np.median(values, axis=0), 1e-6),
            where=usable,
            out=np.full(values.shape, np.nan, np.float32),
        )
        if any(
            float(np.abs(_median(off[:, k::3].T)).max()) > _STEADY
            for k in range(3)
            if bool(np.asarray(usable)[k::3].any())
        ):
            return False
    return True
