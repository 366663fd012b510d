"""Two policies on the same initial conditions: the 2x2 table, the interval of the difference, the exact test."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from scipy.optimize import brentq
from scipy.stats import binomtest, norm

from simgap.errors import UsageError
from simgap.statistics.comparisons import Difference
from simgap.statistics.proportions import check_counts
from simgap.types import Outcome


@dataclass(frozen=True, kw_only=True, slots=True)
class PairCounts:
    """The 2x2 table of two policies on the same initial conditions; the first digit is the new one, the second the old."""

    n11: int
    """Both succeed."""
    n10: int
    """Only the new one succeeds."""
    n01: int
    """Only the old one succeeds."""
    n00: int
    """Both fail."""
    dropped: int = 0
    """Conditions without a pair that counts: void on either side, or tried on one side only."""

    @property
    def n(self) -> int:
        """Pairs that count."""
        return self.n11 + self.n10 + self.n01 + self.n00

    @property
    def discordant(self) -> int:
        """Pairs on which the two differ; only these say which is better."""
        return self.n10 + self.n01


@dataclass(frozen=True, kw_only=True, slots=True)
class PairedDifference:
    """Paired difference of success rates, new minus old, with an exact test."""

    counts: PairCounts
    difference: Difference
    p_value: float | None
    """Two-sided exact McNemar p; None when no pair counts; 1 when no pair is discordant."""


def pair_outcomes(*, new: Mapping[int, Outcome], old: Mapping[int, Outcome]) -> PairCounts:
    """Count pairs of outcomes that share an initial condition.

    Args:
        new: initial condition (seed) -> outcome of the new policy.
        old: the same for the old policy.

    Returns:
        The 2x2 table. A condition that is void on a side, or present on one side only, is dropped and counted.
    """
    counts = {(True, True): 0, (True, False): 0, (False, True): 0, (False, False): 0}
    dropped = 0
    for condition in sorted(new.keys() | old.keys()):
        pair = (new.get(condition), old.get(condition))
        if pair[0] is None or pair[1] is None or pair[0].is_void or pair[1].is_void:
            dropped += 1
        else:
            counts[pair[0].is_success, pair[1].is_success] += 1
    return PairCounts(n11=counts[True, True], n10=counts[True, False], n01=counts[False, True], n00=counts[False, False], dropped=dropped)


def paired_difference(n11: int, n10: int, n01: int, n00: int, *, dropped: int = 0, confidence: float = 0.95) -> PairedDifference:
    """Return the paired difference new - old with Tango's (1998) score interval and the exact McNemar p.

    Population: independent pairs; within a pair both policies start from the same initial condition. Assumes a fixed
    number of pairs. The interval is a score interval and the test is exact, so near p = .05 the two can disagree.

    With no pair everything is undefined. With one pair the interval is defined and nearly all of [-1, 1]. Without a
    discordant pair (both always alike, 0/n and n/n included) the difference is 0, the interval still has a width, and
    p is 1: that is not proof of equality.

    Source: Tango, Statistics in Medicine 17 (1998) 891-908; McNemar, Psychometrika 12 (1947) 153-157.

    Args:
        n11: both succeed.
        n10: only the new one succeeds.
        n01: only the old one succeeds.
        n00: both fail.
        dropped: conditions without a pair that counts, carried through for the report.
        confidence: two-sided level.
    """
    counts = PairCounts(n11=n11, n10=n10, n01=n01, n00=n00, dropped=dropped)
    if min(n11, n10, n01, n00, dropped) < 0:
        raise UsageError(f"negative count in {counts}: expected counts of pairs")
    check_counts(0, counts.n, confidence)
    method = "Tango paired score"
    if counts.n == 0:
        undefined = Difference(point=None, low=None, high=None, method=method, confidence=confidence, reason="no pair counts (n = 0)")
        return PairedDifference(counts=counts, difference=undefined, p_value=None)
    low, high = tango_interval(n10, n01, counts.n, confidence)
    p_value = 1.0 if counts.discordant == 0 else float(binomtest(n10, counts.discordant).pvalue)
    point = (n10 - n01) / counts.n
    return PairedDifference(
        counts=counts, difference=Difference(point=point, low=low, high=high, method=method, confidence=confidence), p_value=min(p_value, 1.0)
    )


def tango_interval(n10: int, n01: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return Tango's score interval for (n10 - n01) / n: all differences that the score test does not reject.

    Needs n >= 1. Ends at exactly -1 or 1 where no difference up to there is rejected.
    """
    z = float(norm.ppf(0.5 + confidence / 2))
    return -_tango_upper(n01, n10, n, z), _tango_upper(n10, n01, n, z)


def _tango_upper(b: int, c: int, n: int, z: float) -> float:
    def excess(delta: float) -> float:
        return _tango_score(b, c, n, delta) + z

    point, last = (b - c) / n, 1.0 - 1e-13
    if point >= last or excess(last) > 0:
        return 1.0
    return float(brentq(excess, point, last, xtol=1e-13))


def _tango_score(b: int, c: int, n: int, delta: float) -> float:
    """Score statistic of the hypothesis that the difference is ``delta``; the nuisance p01 is its restricted MLE."""
    quadratic, linear, constant = 2.0 * n, -b - c + (2 * n - b + c) * delta, -c * delta * (1 - delta)
    p01 = (math.sqrt(max(linear**2 - 4 * quadratic * constant, 0.0)) - linear) / (2 * quadratic)
    variance = n * (2 * p01 + delta * (1 - delta))
    distance = b - c - n * delta
    if variance <= 0:
        return 0.0 if abs(distance) < 1e-12 else math.copysign(math.inf, distance)
    return distance / math.sqrt(variance)
