"""Two policies on the same initial conditions: the 2x2 table, the interval of the difference, the exact test."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from scipy.optimize import brentq
from scipy.stats import binom, binomtest, norm

from simgap.errors import UsageError
from simgap.statistics.agreeing import discordant_of, mcnemar_interval, restricted_variance
from simgap.statistics.comparisons import ALTERNATIVES, Alternative, Difference, ExactTest
from simgap.statistics.counts import check_confidence, whole
from simgap.statistics.proportions import wilson
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
        The 2x2 table. A condition that is void on a side, or present on one side only, is dropped and
        counted.
    """
    counts = {(True, True): 0, (True, False): 0, (False, True): 0, (False, False): 0}
    dropped = 0
    for condition in sorted(new.keys() | old.keys()):
        pair = (new.get(condition), old.get(condition))
        if pair[0] is None or pair[1] is None or not (pair[0].counts and pair[1].counts):
            dropped += 1
        else:
            counts[pair[0].is_success, pair[1].is_success] += 1
    return PairCounts(
        n11=counts[True, True],
        n10=counts[True, False],
        n01=counts[False, True],
        n00=counts[False, False],
        dropped=dropped,
    )


def paired_difference(
    n11: int, n10: int, n01: int, n00: int, *, dropped: int = 0, confidence: float = 0.95
) -> PairedDifference:
    """Return the paired difference new - old with the exact McNemar p, which decides, and an interval that agrees with it.

    Population: independent pairs; within a pair both policies start from the same initial condition. Assumes
    a fixed number of pairs. The interval excludes 0 exactly when p is below ``1 - confidence``: see
    :func:`simgap.statistics.mcnemar_interval`, a score interval with a continuity correction.

    With no pair everything is undefined. With one pair the interval is defined and nearly all of [-1, 1].
    Without a discordant pair (both always alike, 0/n and n/n included) the difference is 0, the interval
    still has a width, and p is 1: that is not proof of equality.

    Source: McNemar, Psychometrika 12 (1947) 153-157; Tango, Statistics in Medicine 17 (1998) 891-908, for the
    variance.

    Args:
        n11: both succeed.
        n10: only the new one succeeds.
        n01: only the old one succeeds.
        n00: both fail.
        dropped: conditions without a pair that counts, carried through for the report.
        confidence: two-sided level.
    """
    n11, n10, n01, n00 = _table(n11, n10, n01, n00)
    counts = PairCounts(n11=n11, n10=n10, n01=n01, n00=n00, dropped=whole(dropped, "dropped pairs"))
    check_confidence(confidence)
    method = "paired score, agrees with McNemar's exact test"
    if counts.n == 0:
        undefined = Difference(
            point=None,
            low=None,
            high=None,
            method=method,
            confidence=confidence,
            reason="no pair counts (n = 0)",
            n=0,
        )
        return PairedDifference(counts=counts, difference=undefined, p_value=None)
    p_value = 1.0 if counts.discordant == 0 else min(1.0, float(binomtest(n10, counts.discordant).pvalue))
    low, high = mcnemar_interval(n10, n01, counts.n, p_value, confidence)
    point = (n10 - n01) / counts.n
    return PairedDifference(
        counts=counts,
        difference=Difference(
            point=point, low=low, high=high, method=method, confidence=confidence, n=counts.n
        ),
        p_value=p_value,
    )


def mcnemar(n10: int, n01: int, *, mid_p: bool = False, alternative: Alternative = "two-sided") -> ExactTest:
    """Return McNemar's test that two paired arms have one success rate, exact or with mid-p.

    Population: independent pairs; only the discordant ones are counted, and given their number the wins of
    one arm are a fair coin if the arms are equal. The exact test never exceeds its level. Mid-p counts the
    observed table half: nearer to the level and more powerful, it can exceed it by a little (Fagerland,
    Lydersen and Laake, BMC Med Res Methodol 13 (2013) 91), so it is for reading, not for deciding.

    Without a discordant pair p is 1, mid-p .5 one-sided and 1 two-sided: no evidence, which is not equality.
    One discordant pair gives 1 (mid-p .5): it can show nothing.

    Source: McNemar, Psychometrika 12 (1947) 153-157.

    Args:
        n10: pairs on which only the new one succeeds.
        n01: pairs on which only the old one succeeds.
        mid_p: subtract half the probability of the observed table (each tail).
        alternative: ``greater`` asks whether the new one is better.
    """
    n10, n01 = whole(n10, "discordant pairs n10"), whole(n01, "discordant pairs n01")
    if alternative not in ALTERNATIVES:
        raise UsageError(f"unknown alternative {alternative!r}; known: {', '.join(ALTERNATIVES)}")
    method, total = "McNemar mid-p" if mid_p else "McNemar exact", n10 + n01
    half = float(binom.pmf(n10, total, 0.5)) / 2 if mid_p else 0.0
    below, above = float(binom.cdf(n10, total, 0.5)) - half, float(binom.cdf(n01, total, 0.5)) - half
    p_value = {"less": below, "greater": above, "two-sided": min(1.0, 2 * min(below, above))}[alternative]
    reason = "" if total else "no pair is discordant: no evidence, which is not equality"
    return ExactTest(p_value=p_value, method=method, reason=reason, n=total, alternative=alternative)


def newcombe_paired(n11: int, n10: int, n01: int, n00: int, confidence: float = 0.95) -> Difference:
    """Return the paired difference new - old with Newcombe's square-and-add interval with its correction for pairing.

    Population and assumptions as :func:`paired_difference`, whose interval is the one to decide on: it agrees
    with the exact test. This one is closed-form and is built from the two Wilson intervals that are shown
    beside it, so that the three numbers fit together.

    Undefined with no pair. With one pair nearly all of [-1, 1]. 0/n on both sides and n/n on both sides have
    difference 0 and an interval with a width.

    Source: Newcombe, Statistics in Medicine 17 (1998) 2635-2650, method 10.
    """
    n11, n10, n01, n00 = _table(n11, n10, n01, n00)
    check_confidence(confidence)
    n = n11 + n10 + n01 + n00
    method = "Newcombe paired hybrid score"
    new, old = wilson(n11 + n10, n, confidence), wilson(n11 + n01, n, confidence)
    if (
        new.point is None
        or new.low is None
        or new.high is None
        or old.point is None
        or old.low is None
        or old.high is None
    ):
        return Difference(
            point=None,
            low=None,
            high=None,
            method=method,
            confidence=confidence,
            reason="no pair counts (n = 0)",
            n=0,
        )
    margins = (n11 + n10) * (n01 + n00) * (n11 + n01) * (n10 + n00)
    excess = n11 * n00 - n10 * n01
    corrected = max(excess - n / 2, 0.0) if excess > 0 else float(excess)
    phi = corrected / math.sqrt(margins) if margins else 0.0
    point = (n10 - n01) / n
    down_new, up_new, down_old, up_old = (
        new.point - new.low,
        new.high - new.point,
        old.point - old.low,
        old.high - old.point,
    )
    low = point - math.sqrt(max(down_new**2 - 2 * phi * down_new * up_old + up_old**2, 0.0))
    high = point + math.sqrt(max(up_new**2 - 2 * phi * up_new * down_old + down_old**2, 0.0))
    return Difference(
        point=point, low=max(low, -1.0), high=min(high, 1.0), method=method, confidence=confidence, n=n
    )


def tango_interval(n10: int, n01: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return Tango's score interval for (n10 - n01) / n: all differences that the score test does not reject.

    For 95 % it covers .93 at worst of the chances tried at 10 to 40 pairs.

    Needs n >= 1. Ends at exactly -1 or 1 where no difference up to there is rejected.
    """
    n10, n01, n = discordant_of(n10, n01, n, confidence)
    z = float(norm.ppf(0.5 + confidence / 2))
    return -_tango_upper(n01, n10, n, z), _tango_upper(n10, n01, n, z)


def _table(*counts: int) -> tuple[int, int, int, int]:
    n11, n10, n01, n00 = (
        whole(count, f"pairs {name}")
        for name, count in zip(("n11", "n10", "n01", "n00"), counts, strict=True)
    )
    return n11, n10, n01, n00


def _tango_upper(b: int, c: int, n: int, z: float) -> float:
    def excess(delta: float) -> float:
        return _tango_score(b, c, n, delta) + z

    point, last = (b - c) / n, 1.0 - 1e-13
    if point >= last or excess(last) > 0:
        return 1.0
    return float(brentq(excess, point, last, xtol=1e-13))


def _tango_score(b: int, c: int, n: int, delta: float) -> float:
    """Score statistic of the hypothesis that the difference is ``delta``."""
    variance = restricted_variance(b, c, n, delta)
    distance = b - c - n * delta
    if variance <= 0:
        return 0.0 if abs(distance) < 1e-12 else math.copysign(math.inf, distance)
    return distance / math.sqrt(variance)
