"""Sums of products of a command and a state at every lag at once, episode by episode: correlations at any lag, pooled or within, cost nothing after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.signal import correlate

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LagSums:
    """Of ``action[t]`` and ``state[t + lag]``, ``(E, L)`` each; no pair crosses the end of an episode."""

    lags: NDArray[np.int64]
    """``(L,)``; negative where the state is ahead."""
    n: Array
    a: Array
    s: Array
    aa: Array
    ss: Array
    cross: Array

    def pooled(self, weights: Array | None = None) -> Array:
        """Return the correlation over all frames at each lag, ``(L,)``; 0 where one side does not move or fewer than three frames are left.

        Args:
            weights: how often each episode counts, ``(E,)``.
        """
        n, a, s, aa, ss, cross = (
            v.sum(axis=0) if weights is None else weights @ v
            for v in (self.n, self.a, self.s, self.aa, self.ss, self.cross)
        )
        return _correlation(n, a, s, aa, ss, cross)

    def by_episode(self) -> Array:
        """Return the correlation within each episode at each lag, ``(E, L)``."""
        return _correlation(self.n, self.a, self.s, self.aa, self.ss, self.cross)

    def explained(self, weights: Array | None = None) -> Array:
        """Return the share of the state's variation within episodes that the command explains, each with its own zero and slope, ``(L,)``."""
        variation = np.maximum(self.ss - _over(self.s**2, self.n), 0.0)
        parts = self.by_episode() ** 2 * variation
        total, told = (v.sum(axis=0) if weights is None else weights @ v for v in (variation, parts))
        return _over(told, total)


def lag_sums(pairs: Sequence[tuple[Array, Array]], lowest: int, highest: int) -> LagSums:
    """Sum up a command and a state.

    Args:
        pairs: ``(action, state)`` of each episode, ``(T,)`` each.
        lowest: first lag, negative for states ahead of their command.
        highest: last lag.
    """
    lags = np.arange(lowest, highest + 1)
    middle = [float(np.mean(np.concatenate([p[k] for p in pairs]))) for k in (0, 1)]
    rows = [_episode(a - middle[0], s - middle[1], lags) for a, s in pairs]
    n, a, s, aa, ss, cross = (np.stack(column) for column in zip(*rows, strict=True))
    return LagSums(lags=lags, n=n, a=a, s=s, aa=aa, ss=ss, cross=cross)


def _episode(a: Array, s: Array, lags: NDArray[np.int64]) -> tuple[Array, ...]:
    length = len(a)
    full = correlate(s, a, mode="full")  # entry length - 1 + lag is the sum over t of a[t] s[t + lag]
    inside = np.abs(lags) < length
    left = np.where(inside, length - np.abs(lags), 0)
    cross = np.where(inside, full[np.clip(length - 1 + lags, 0, 2 * length - 2)], 0.0)
    begin_a, begin_s = np.maximum(-lags, 0), np.maximum(lags, 0)
    parts = []
    for values, begin in ((a, begin_a), (s, begin_s), (a * a, begin_a), (s * s, begin_s)):
        total = np.concatenate([[0.0], np.cumsum(values)])
        start = np.minimum(begin, length)
        parts.append(total[np.minimum(start + left, length)] - total[start])
    return (left.astype(np.float64), *parts, cross)


def _over(top: Array, bottom: Array) -> Array:
    return np.asarray(np.divide(top, bottom, out=np.zeros_like(top), where=bottom > 0))


def _correlation(n: Array, a: Array, s: Array, aa: Array, ss: Array, cross: Array) -> Array:
    va, vs, both = aa - _over(a * a, n), ss - _over(s * s, n), cross - _over(a * s, n)
    there = (n >= 3) & (va > 1e-12 * np.maximum(aa, 1e-300)) & (vs > 1e-12 * np.maximum(ss, 1e-300))
    return np.asarray(
        np.clip(
            np.divide(both, np.sqrt(np.maximum(va * vs, 1e-300)), out=np.zeros_like(both), where=there),
            -1.0,
            1.0,
        )
    )
