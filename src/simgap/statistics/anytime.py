"""Intervals that hold at every look at once: look after every trial, stop when you like, the coverage stays."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import betaln, xlog1py, xlogy

from simgap.errors import UsageError
from simgap.statistics.counts import Floats, check_confidence, check_counts, number_rows
from simgap.statistics.proportions import Estimate
from simgap.statistics.quantities import Quantity

BETA_MIXTURE = "Beta-mixture confidence sequence"
BETTING = "hedged betting confidence sequence"
BETTING_FIXED = "betting interval at fixed n"

_HALVINGS = 50
_STAKE, _STAKE_FIXED = 0.5, 0.9
"""Most of its capital that a bet may lose in one round; the first when n is open, the second when it is fixed."""
_ROWS = 256
_GRID, _NEWTON_STEPS = 512, 8


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ConfidenceSequence:
    """The interval after each observation, valid at all of them at once; one entry an observation."""

    points: Floats
    """``(T,)`` running means."""
    lows: Floats
    """``(T,)``."""
    highs: Floats
    """``(T,)``; below ``lows`` where a running intersection is empty: the sequence then contradicts one constant mean."""
    method: str
    confidence: float

    @property
    def n(self) -> int:
        """Observations."""
        return len(self.points)

    def first_excluding(self, value: float) -> int | None:
        """Return after how many observations ``value`` was first outside, or None if it never was."""
        outside = np.flatnonzero((self.lows > value) | (self.highs < value))
        return int(outside[0]) + 1 if len(outside) else None


def log_beta_mixture(
    k: ArrayLike, n: ArrayLike, rate: ArrayLike, prior: tuple[float, float] = (1.0, 1.0)
) -> Floats:
    """Return ln of the e-value against "the success rate is ``rate``" after k successes in n trials; broadcasts.

    The likelihood under rates drawn from a Beta prior over the likelihood at ``rate``: a martingale of mean 1
    when ``rate`` is true, whatever the stopping rule, hence at least ``1 / alpha`` with probability at most
    ``alpha`` (Ville 1939).
    """
    k_, n_, (a, b) = np.asarray(k, dtype=float), np.asarray(n, dtype=float), prior
    log_e: Floats = (
        betaln(a + k_, b + n_ - k_)
        - betaln(a, b)
        - xlogy(k_, rate)
        - xlog1py(n_ - k_, -np.asarray(rate, dtype=float))
    )
    return log_e


def beta_mixture(
    k: int, n: int, confidence: float = 0.95, prior: tuple[float, float] = (1.0, 1.0)
) -> Estimate:
    """Return a success rate with the Beta-mixture (Robbins) confidence sequence at this n.

    Population: trials whose chance of success, given all earlier ones, is one constant. n may be chosen by
    looking: the interval covers at all n at once, for every rate. It depends on the counts alone, not on the
    order. The price against Clopper-Pearson is a width that is larger by a factor of about 1.2 at n = 10 and
    1.7 at n = 400.

    At n = 0 the interval is undefined and the reason says so. At n = 1, 1/1 gives .025 to 1. 0/n has lower
    end exactly 0 and n/n upper end exactly 1.

    Source: Robbins, Annals of Mathematical Statistics 41 (1970) 1397-1409; Ville (1939).

    Args:
        k: successes.
        n: trials that count (no voids).
        confidence: level at which all looks together are covered.
        prior: the Beta mixture; it moves width between rates and never validity. (1, 1) is even, (1/2, 1/2)
            sharper near 0 and 1.
    """
    k, n = check_counts(k, n, confidence)
    if min(prior) <= 0:
        raise UsageError(f"prior {prior}: expected two positive numbers")
    if n == 0:
        reason = "no trial counts (n = 0)"
        return Estimate(
            successes=0,
            n=0,
            point=None,
            low=None,
            high=None,
            method=BETA_MIXTURE,
            confidence=confidence,
            reason=reason,
            anytime=True,
        )

    def excess(rate: float) -> float:
        return float(log_beta_mixture(k, n, rate, prior)) + math.log(1 - confidence)

    low = 0.0 if k == 0 else float(brentq(excess, 1e-300, k / n, xtol=1e-15))
    high = 1.0 if k == n else float(brentq(excess, k / n, math.nextafter(1.0, 0.0), xtol=1e-15))
    return Estimate(
        successes=k,
        n=n,
        point=k / n,
        low=low,
        high=high,
        method=BETA_MIXTURE,
        confidence=confidence,
        anytime=True,
    )


def betting_interval(
    scores: Sequence[float] | Floats,
    confidence: float = 0.95,
    *,
    bounds: tuple[float, float] = (0.0, 1.0),
    fixed_n: bool = False,
    name: str = "mean score",
) -> Quantity:
    """Return the mean of bounded scores with the hedged betting interval of Waudby-Smith and Ramdas.

    Population: scores in ``bounds`` whose mean, given all earlier ones, is one constant; partial credit and
    progress as well as 0 and 1. No other shape is assumed. **Order matters**: give the order in which the
    trials were run and never sort. The interval is the exact set of means that no bet has ruled out, at any
    look so far; no grid is involved.

    With ``fixed_n`` the bets are tuned for this very n, which must have been fixed before: shorter, not valid
    for stopping.

    At n = 0 it is undefined and the reason says so. At n = 1 it is nearly all of ``bounds``. Scores all at an
    end of ``bounds`` give an interval that ends there and has a width. If every mean is ruled out the mean
    was not constant: undefined, with that reason.

    Source: Waudby-Smith and Ramdas, JRSS-B 86 (2024) 1-27 (arXiv:2010.09686), predictable plug-in bets,
    section 4.

    Args:
        scores: ``(T,)`` in the order of the trials.
        confidence: two-sided level.
        bounds: least and greatest possible score.
        fixed_n: tune for this n.
        name: what the scores are, for the report.
    """
    method = BETTING_FIXED if fixed_n else BETTING
    values = _unit(scores, bounds, confidence)
    if len(values) == 0:
        return Quantity(
            name=name,
            n=0,
            point=None,
            low=None,
            high=None,
            method=method,
            confidence=confidence,
            reason="no score (n = 0)",
            anytime=not fixed_n,
        )
    limit = math.log(2 / (1 - confidence))

    def highest(side: int) -> Callable[[float], bool]:
        return lambda mean: bool(
            log_capital(values, mean, 1 - confidence, fixed_n=fixed_n)[side].max() > limit
        )

    low = _halve(highest(0), ruled_out_at_zero=True)
    high = _halve(highest(1), ruled_out_at_zero=False)
    width, point = bounds[1] - bounds[0], float(bounds[0] + (bounds[1] - bounds[0]) * values.mean())
    if low > high:
        reason = "every mean is ruled out at some look: the mean was not constant over the trials"
        return Quantity(
            name=name,
            n=len(values),
            point=point,
            low=None,
            high=None,
            method=method,
            confidence=confidence,
            reason=reason,
            anytime=not fixed_n,
        )
    ends = (bounds[0] + width * low, bounds[0] + width * high)
    return Quantity(
        name=name,
        n=len(values),
        point=point,
        low=ends[0],
        high=ends[1],
        method=method,
        confidence=confidence,
        anytime=not fixed_n,
    )


def betting_sequence(
    scores: Sequence[float] | Floats,
    confidence: float = 0.95,
    *,
    bounds: tuple[float, float] = (0.0, 1.0),
    running: bool = True,
) -> ConfidenceSequence:
    """Return the betting interval after each observation; population and assumptions as :func:`betting_interval`.

    Work grows with the square of the number of scores: half a second for 3,000 of them.

    Args:
        scores: ``(T,)`` in the order of the trials; may be empty.
        confidence: level at which all looks together are covered.
        bounds: least and greatest possible score.
        running: intersect with all earlier intervals, which is valid and tighter; False gives each look's own
            interval.
    """
    values = _unit(scores, bounds, confidence)
    limit, bets = math.log(2 / (1 - confidence)), _bets(values, 1 - confidence)
    lows, highs = _ends_above(values, bets, limit), 1.0 - _ends_above(1.0 - values, bets, limit)
    if running:
        lows, highs = np.maximum.accumulate(lows), np.minimum.accumulate(highs)
    width = bounds[1] - bounds[0]
    points = np.cumsum(values) / np.arange(1, len(values) + 1)
    return ConfidenceSequence(
        points=bounds[0] + width * points,
        lows=bounds[0] + width * lows,
        highs=bounds[0] + width * highs,
        method=BETTING,
        confidence=confidence,
    )


def log_capital(values: Floats, mean: float, alpha: float, *, fixed_n: bool = False) -> tuple[Floats, Floats]:
    """Return ln of the capital of the gamblers who bet that the mean is above, and below, ``mean``, after each observation.

    Each starts with 1 and is a supermartingale when the conditional mean is at most (at least) ``mean``: an
    e-process.

    Args:
        values: ``(..., T)`` in [0, 1], in order.
        mean: the mean bet against, in [0, 1].
        alpha: level the bets are tuned for (two-sided).
        fixed_n: tune for T.
    """
    above, below = _log_factors(
        values, mean, _bets(values, alpha, fixed_n=fixed_n), _STAKE_FIXED if fixed_n else _STAKE
    )
    return np.cumsum(above, axis=-1), np.cumsum(below, axis=-1)


def _bets(values: Floats, alpha: float, *, fixed_n: bool = False) -> Floats:
    """Return the bet before each observation, from the earlier ones alone; one half-success of prior mean 1/2 and variance 1/4."""
    seen = np.arange(1, values.shape[-1] + 1)
    means = (0.5 + np.cumsum(values, axis=-1)) / (seen + 1)
    variances = (0.25 + np.cumsum((values - means) ** 2, axis=-1)) / (seen + 1)
    before = np.concatenate([np.full((*values.shape[:-1], 1), 0.25), variances[..., :-1]], axis=-1)
    horizon: Any = values.shape[-1] if fixed_n else seen * np.log1p(seen)
    bets: Floats = np.sqrt(2 * math.log(2 / alpha) / (before * horizon))
    return bets


def _log_factors(
    values: Floats, mean: float | Floats, bets: Floats, stake: float = _STAKE
) -> tuple[Floats, Floats]:
    """Return ln of each round's factor. Each falls with ``mean`` (rises, for the lower bet), so what is not ruled out is an interval."""
    with np.errstate(divide="ignore"):
        up, down = (
            np.minimum(bets, np.divide(stake, mean)),
            np.minimum(bets, np.divide(stake, np.subtract(1.0, mean))),
        )
        return np.log1p(up * (values - mean)), np.log1p(-down * (values - mean))


def _ends_above(values: Floats, bets: Floats, limit: float) -> Floats:
    """Return, after each observation, the largest mean that the gambler who bets on a larger one has ruled out, 0 where none is.

    The capital falls with the mean. A grid of means brackets the end after every observation in one pass;
    Newton's steps, kept inside the bracket, then find it to the last digits.
    """
    count, grid = len(values), np.linspace(0.0, 1.0, _GRID + 1)
    capital, ends, inside = np.zeros((1, _GRID + 1)), np.zeros(count), np.arange(count)
    for start in range(0, count, _ROWS):
        rows = np.arange(start, min(start + _ROWS, count))
        steps = _log_factors(values[rows, None], grid, bets[rows, None])[0]
        course = capital + np.cumsum(steps, axis=0)
        capital = course[-1:]
        bracket = (course > limit).sum(axis=1)  # grid points that are ruled out: a run from 0 on
        found = rows[bracket > 0]
        low, high = grid[bracket[bracket > 0] - 1], grid[bracket[bracket > 0]]
        seen, middle = inside[None, : rows[-1] + 1] <= found[:, None], (low + high) / 2
        for _ in range(_NEWTON_STEPS if len(found) else 0):
            value, slope = _capital_and_slope(
                values[: rows[-1] + 1], middle[:, None], bets[: rows[-1] + 1], seen
            )
            low, high = np.where(value > limit, middle, low), np.where(value > limit, high, middle)
            step = middle - np.divide(value - limit, slope, out=np.full(len(slope), np.inf), where=slope < 0)
            before, middle = middle, np.where((step >= low) & (step <= high), step, (low + high) / 2)
            if np.all(np.abs(middle - before) < 1e-15):
                break
        ends[found] = middle
    return ends


def _capital_and_slope(
    values: Floats, mean: Floats, bets: Floats, seen: NDArray[np.bool_]
) -> tuple[Floats, Floats]:
    """Return ln of the upper gambler's capital at ``mean`` ``(R, 1)`` after the rounds seen ``(R, T)``, and its derivative by the mean."""
    capped = bets * mean > _STAKE
    bet = np.where(capped, _STAKE / mean, bets)
    factor = 1.0 + bet * (values - mean)
    slope = np.where(capped, bet * values / mean, bet) / factor
    return np.where(seen, np.log(factor), 0.0).sum(axis=1), -np.where(seen, slope, 0.0).sum(axis=1)


def _halve(ruled_out: Callable[[float], bool], *, ruled_out_at_zero: bool) -> float:
    """Return the end of the half-line of means that are ruled out, or the edge of [0, 1] when none is."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if ruled_out(middle) == ruled_out_at_zero else (low, middle)
    return low if ruled_out_at_zero else high


def _unit(scores: Sequence[float] | Floats, bounds: tuple[float, float], confidence: float) -> Floats:
    check_confidence(confidence)
    values = number_rows(scores, "scores")
    if values.ndim != 1 or not bounds[0] < bounds[1]:
        raise UsageError(
            f"scores of shape {values.shape} in {bounds}: expected one row of scores and a lower and a higher"
            " bound"
        )
    if not np.all((values >= bounds[0]) & (values <= bounds[1])):
        raise UsageError(
            f"a score lies outside {bounds} or is not a number: state the true bounds; voids are not scores"
        )
    unit: Floats = (values - bounds[0]) / (bounds[1] - bounds[0])
    return unit
