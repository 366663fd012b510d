"""Where a series of episodes becomes another one: one change of level, its place with an interval, and how surely it is none of chance.

The place is the split that explains most. Two routes call it a change. With enough episodes a permutation
test does: the order of the episodes is shuffled, every joint with the same order, and the largest statistic
of all joints and splits is compared, so that false alarms are counted over all joints together. With few
episodes no order is rare, and only a step that stands far out of what both sides spread, and of what one
episode's own value is uncertain by, counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

ALPHA = 0.01
"""Chance of a false alarm over all series of one family."""
SHUFFLES = 999
FEW = 10
"""Below this many episodes no split is rare among all orders at :data:`ALPHA`."""
_APART = 4.0
"""Widths of either side by which a step stands out where episodes are few."""
_CUT = 1.92
"""Drop of the log likelihood that bounds a 95 % interval of one parameter."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One change of level in a series."""

    at: int
    """Position of the first value after it."""
    low: int
    high: int
    """Interval of ``at`` by the likelihood of the split."""
    before: float
    after: float
    """Medians of both sides."""
    spread: float
    """Median distance from the median of its side, as a standard deviation."""
    is_separated: bool
    """True where every value after lies beyond every value before, or the other way round."""
    p: float = 1.0
    """Of the family, by permutation; 1 where episodes are too few for it."""

    @property
    def size(self) -> float:
        """After minus before."""
        return self.after - self.before


def find_changes(
    series: Mapping[str, Array], floors: Mapping[str, float], rng: np.random.Generator
) -> dict[str, Change]:
    """Return the changes that are none of chance, by the name of their series.

    Args:
        series: one value an episode, ``(E,)`` each, all of the same episodes; NaN where an episode says
            nothing.
        floors: least step that matters in each series, in its unit; a smaller one is no change however sure.
        rng: draws the orders.
    """
    known = {n: v for n, v in series.items() if np.isfinite(v).sum() >= 3}
    if not known:
        return {}
    places = {n: np.flatnonzero(np.isfinite(v)) for n, v in known.items()}
    changes = {n: _located(v[places[n]]) for n, v in known.items()}
    found = {}
    wanted = {n: c for n, c in changes.items() if abs(c.size) >= floors[n]}
    ps = _family(known, wanted, rng) if wanted else {}
    for name, c in wanted.items():
        there = places[name]
        p = ps.get(name, 1.0)
        if p <= ALPHA or _stands_out(known[name][there], c, floors[name]):
            found[name] = Change(
                at=int(there[c.at]), low=int(there[c.low]), high=int(there[c.high]), before=c.before, after=c.after,
                spread=c.spread, is_separated=c.is_separated, p=p,
            )  # fmt: skip
    return found


def _located(values: Array) -> Change:
    """Return the split that leaves least absolute deviation, with the interval of its place."""
    n = len(values)
    costs = np.full(n, np.inf)
    for k in range(1, n):
        costs[k] = sum(float(np.abs(side - np.median(side)).sum()) for side in (values[:k], values[k:]))
    at = int(np.argmin(costs))
    left, right = values[:at], values[at:]
    floor = 1e-9 * max(1.0, float(np.abs(values).max()))
    # Laplace: log likelihood -n log(cost)
    likely = np.flatnonzero(n * np.log((costs + floor) / (costs[at] + floor)) <= _CUT)
    off = np.concatenate([np.abs(left - np.median(left)), np.abs(right - np.median(right))])
    apart = left.max() < right.min() or right.max() < left.min()
    return Change(
        at=at, low=int(likely.min()), high=int(likely.max()), before=float(np.median(left)), after=float(np.median(right)),
        spread=1.4826 * float(np.median(off)), is_separated=bool(apart),
    )  # fmt: skip


def _stands_out(values: Array, c: Change, floor: float) -> bool:
    """Return whether a step of few episodes stands far out of both sides; a lone first or last episode is an odd one and no change."""
    n = len(values)
    if not c.is_separated or n < 3 or (n > 3 and not 2 <= c.at <= n - 2):
        return False
    widths = [float(np.ptp(v)) for v in (values[: c.at], values[c.at :]) if len(v) > 1]
    gap = float(max(values[c.at :].min() - values[: c.at].max(), values[: c.at].min() - values[c.at :].max()))
    return gap >= floor and gap >= _APART * max(widths)


def _family(
    series: Mapping[str, Array], wanted: Mapping[str, Change], rng: np.random.Generator
) -> dict[str, float]:
    """Return the chance, over all series, of a split as clear as each one's under any order of the episodes."""
    ranked = {n: _ranks(v) for n, v in series.items()}
    length = len(next(iter(series.values())))
    if length < FEW:
        return {}
    observed = {n: _largest(ranked[n][None])[0] for n in wanted}
    table = np.stack(list(ranked.values()))  # (S, E)
    largest = np.empty(SHUFFLES)
    for k in range(SHUFFLES):
        largest[k] = _largest(table[:, rng.permutation(length)]).max()
    return {n: float((1 + (largest >= v - 1e-9).sum()) / (1 + SHUFFLES)) for n, v in observed.items()}


def _ranks(values: Array) -> Array:
    """Return centred ranks, 0 where a value is missing."""
    known = np.isfinite(values)
    ranks = np.zeros(len(values))
    _, places, counts = np.unique(values[known], return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - (counts + 1) / 2.0
    ranks[known] = middle[places] - middle[places].mean()
    return ranks


def _largest(ranks: Array) -> Array:
    """Return the largest standardised sum of ranks over all splits, ``(S,)``."""
    n = ranks.shape[1]
    sums = np.abs(np.cumsum(ranks, axis=1)[:, :-1])
    k = np.arange(1, n)
    spread = np.sqrt(np.maximum((ranks**2).mean(axis=1, keepdims=True) * k * (n - k) / max(1, n - 1), 1e-12))
    return np.asarray((sums / spread).max(axis=1))
