"""Intervals of a difference that exclude zero exactly when the test beside them rejects: one method decides, the interval is computed to agree."""

from __future__ import annotations

import math
from dataclasses import replace

from scipy.optimize import brentq
from scipy.stats import beta, norm

from simgap.errors import UsageError
from simgap.statistics.comparisons import Difference
from simgap.statistics.counts import check_counts, check_share

_LAST = 1.0 - 1e-13
_CORRECTION = 1.0
"""Continuity correction in pairs: a pair won instead of lost moves ``n10 - n01`` by two, the score by half of that."""
_TINY = 5e-324
"""The smallest number above 0: the end of an interval whose test, not its width, rules zero out."""


def mcnemar_interval(
    n10: int, n01: int, n: int, p_value: float, confidence: float = 0.95
) -> tuple[float, float]:
    """Return an interval for ``(n10 - n01) / n`` that excludes 0 exactly when McNemar's exact p is below ``1 - confidence``.

    All differences that a score test with a continuity correction does not reject: ``|n10 - n01 - n delta| -
    k <= z sqrt(variance(delta))``, with Tango's restricted variance. The correction ``k`` is one pair; only
    where that and the exact p are on different sides of the level, which is near the level, it is what makes
    the statistic at ``delta = 0`` the normal deviate of the exact p, for the end on the side of 0.

    Coverage, enumerated over rates at 1 to 100 pairs: at least .96 for a promise of .95, at least .923 for
    .9, at least .986 for .99 (below .99 only with 2 to 10 pairs). Wider than Tango's interval by about a pair
    at each end.

    Needs n >= 1. Without a discordant pair symmetric around 0, with a width. n/n against 0/n ends at exactly
    1.

    Source: Tango, Statistics in Medicine 17 (1998) 891-908, for the variance.

    Args:
        n10: pairs on which only the new one succeeds.
        n01: pairs on which only the old one succeeds.
        n: all pairs that count.
        p_value: two-sided exact McNemar p of these pairs.
        confidence: two-sided level.
    """
    n10, n01, n = discordant_of(n10, n01, n, confidence)
    p_value = check_share(p_value, "p-value")
    z, distance, discordant = float(norm.isf((1.0 - confidence) / 2)), abs(n10 - n01), n10 + n01
    rejected = p_value < 1.0 - confidence
    inner = _CORRECTION
    if (distance - inner > z * math.sqrt(discordant)) != rejected:
        inner = distance - (0.0 if p_value >= 1.0 else float(norm.isf(p_value / 2))) * math.sqrt(discordant)
    low = -_upper(n01, n10, n, z, inner if n10 >= n01 else _CORRECTION)
    high = _upper(n10, n01, n, z, inner if n01 >= n10 else _CORRECTION)
    return _ends(low, high, rejected=rejected, sign=n10 - n01)


def discordant_of(n10: int, n01: int, n: int, confidence: float) -> tuple[int, int, int]:
    """Return the counts of a paired interval as plain ``int``.

    Raises:
        UsageError: no counts, no pair, or more discordant pairs than pairs.
    """
    n10, n = check_counts(n10, n, confidence)
    n01, n = check_counts(n01, n, confidence)
    if n == 0 or n10 + n01 > n:
        raise UsageError(
            f"{n10} and {n01} discordant pairs of {n}: expected at least one pair and no more discordant ones"
            " than pairs"
        )
    return n10, n01, n


def agreeing_with(verdict: int, interval: Difference) -> Difference:
    """Return an anytime interval cut or widened at zero so that it agrees with a sequential verdict.

    Args:
        verdict: 1 when the new arm is shown to be better, -1 when the old one is, 0 undecided.
        interval: at half the error of the verdict, so that verdict and interval together keep the whole: a
            difference other than 0 is missed by the interval (half) or by a verdict in the wrong direction
            (half), and 0 only by a verdict.
    """
    if interval.low is None or interval.high is None or interval.point is None:
        return interval
    if verdict * interval.point < 0:
        reason = (
            "later pairs point the other way than the verdict: the difference was not constant, so no one"
            " interval describes it"
        )
        return replace(interval, low=None, high=None, reason=reason)
    low, high = _ends(interval.low, interval.high, rejected=verdict != 0, sign=verdict)
    method = (
        f"{interval.method}, cut at the verdict"
        if (low, high) != (interval.low, interval.high)
        else interval.method
    )
    return replace(interval, low=low, high=high, method=method)


def _ends(low: float, high: float, *, rejected: bool, sign: int) -> tuple[float, float]:
    if not rejected:
        return min(low, 0.0), max(high, 0.0)
    return (max(low, _TINY), max(high, _TINY)) if sign > 0 else (min(low, -_TINY), min(high, -_TINY))


def _upper(b: int, c: int, n: int, z: float, correction: float) -> float:
    """Return the largest difference that the corrected score test does not reject, 1 where there is none below."""

    def excess(delta: float) -> float:
        return n * delta - (b - c) - correction - z * math.sqrt(restricted_variance(b, c, n, delta))

    point = (b - c) / n
    if point >= _LAST or excess(_LAST) <= 0:
        return 1.0
    if excess(point) < 0:
        return float(brentq(excess, point, _LAST, xtol=1e-13))
    # far in the tail at an extreme level: the exact bound of the discordant pairs alone
    share = float(beta.ppf(norm.sf(z), c, b + 1))
    return -(2.0 * share - 1.0) * (b + c) / n


def restricted_variance(b: int, c: int, n: int, delta: float) -> float:
    """Return the variance of ``b - c`` when the difference is ``delta`` and the rest is as likely as can be (Tango's estimate)."""
    quadratic, linear, constant = 2.0 * n, -b - c + (2 * n - b + c) * delta, -c * delta * (1 - delta)
    p01 = (math.sqrt(max(linear**2 - 4 * quadratic * constant, 0.0)) - linear) / (2 * quadratic)
    return max(n * (2 * p01 + delta * (1 - delta)), 0.0)
