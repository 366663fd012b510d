"""The score interval of a weighted sum of independent success rates: an average over tasks, or the difference of two."""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm

from simgap.statistics.counts import Floats

_MULTIPLIERS = np.geomspace(1e-3, 1e9, 49)
"""Lagrange multipliers, in trials, over which the ends are looked for."""
_HALVINGS = 60


def score_ends(k: Floats, n: Floats, weights: Floats, confidence: float) -> tuple[float, float]:
    """Return the values of ``sum(weights * p)`` that the score test does not reject.

    For each value the rates that fit best with it are found (one Lagrange multiplier, a quadratic for each
    rate), and the variance is theirs. Of one rate it is Wilson's interval, of a difference of two Mee's.
    Intervals of the single rates joined by their squares (MOVER) are too short here, because Wilson's are
    short where trials are few: .89 instead of .95 for ten tasks of ten trials.

    Needs a trial for each rate.

    Args:
        k: successes.
        n: trials.
        weights: of either sign, none 0.
        confidence: two-sided level.
    """
    z, seen = float(norm.isf((1 - confidence) / 2)), float(weights @ (k / n))
    return 0.0 - _upper(k, n, -weights, z, -seen), _upper(k, n, weights, z, seen)


def _upper(k: Floats, n: Floats, weights: Floats, z: float, seen: float) -> float:
    most, size = float(np.maximum(weights, 0.0).sum()), float(np.abs(weights).max())

    def value(multiplier: float) -> tuple[float, float]:
        p = _fitted(k, n, -multiplier * weights / size)
        total = float(weights @ p)
        return total, total - seen - z * math.sqrt(float((weights**2 * p * (1 - p) / n).sum()))

    scale = float(n.max())
    kept = 0.0
    for multiplier in (_MULTIPLIERS * scale)[::-1]:
        if value(multiplier)[1] <= 0:
            kept = float(multiplier)
            break
    beyond = kept * float(_MULTIPLIERS[1] / _MULTIPLIERS[0]) if kept else float(_MULTIPLIERS[0]) * scale
    if value(beyond)[1] <= 0:
        return most
    # rates of 0 of n do not move until the multiplier is n: step into where they do
    for _ in range(_HALVINGS):
        if value(kept)[1] < 0:
            break
        middle = (kept + beyond) / 2
        kept, beyond = (kept, middle) if value(middle)[1] > 0 else (middle, beyond)
    root = float(brentq(lambda m: value(m)[1], kept, beyond, rtol=1e-12)) if value(kept)[1] < 0 else kept
    return min(value(root)[0], most)


def _fitted(k: Floats, n: Floats, c: Floats) -> Floats:
    """Return the rates with ``k / p - (n - k) / (1 - p) = c``, the likeliest ones for one value of the weighted sum."""
    linear = n + c
    root = np.sqrt(np.maximum(linear**2 - 4 * c * k, 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        rates: Floats = np.where(linear >= 0, 2 * k / (linear + root), (linear - root) / (2 * c))
    return np.clip(np.nan_to_num(rates, nan=0.0), 0.0, 1.0)
