"""Two independent success rates: the interval of their difference, and exact tests."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

from scipy.stats import barnard_exact, boschloo_exact, fisher_exact

from simgap.errors import UsageError
from simgap.statistics.counts import check_counts
from simgap.statistics.proportions import wilson

Alternative: TypeAlias = Literal["two-sided", "greater", "less"]
"""``greater``: the first (new) rate is above the second (old); ``less``: below."""

ALTERNATIVES = ("two-sided", "greater", "less")

_NUISANCE_POINTS = 64
"""Sampling points of the nuisance parameter in the unconditional tests (scipy calls them n); fewer give unstable digits."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """A difference of two success rates, new minus old, with its interval or the reason why there is none."""

    point: float | None
    low: float | None
    high: float | None
    method: str
    confidence: float
    reason: str = ""
    """Why it is undefined; empty when it is defined."""
    n: int | None = None
    """Trials of both arms together, or pairs when the two are paired."""
    anytime: bool = False
    """True when the interval holds at every look at once, so that one may stop when one likes; False needs a fixed n."""

    @property
    def is_defined(self) -> bool:
        """True when there is an interval."""
        return self.low is not None and self.high is not None


@dataclass(frozen=True, kw_only=True, slots=True)
class ExactTest:
    """A p-value with the test that made it, or the reason why there is none."""

    p_value: float | None
    method: str
    reason: str = ""
    n: int | None = None
    """Trials of both arms together, or pairs when the two are paired."""
    alternative: Alternative = "two-sided"


def newcombe_difference(k1: int, n1: int, k2: int, n2: int, confidence: float = 0.95) -> Difference:
    """Return p1 - p2 of two independent arms with Newcombe's (1998) hybrid score interval.

    Population: two independent samples of independent trials. Assumes fixed sizes and no matching; for
    matched initial conditions use :func:`paired_difference`, which is sharper and right.

    For 95 % it covers .90 at worst of the rates tried (10 trials of each arm, rates .01 and 1): to show, and
    :func:`exact_independence` to decide.

    Undefined when an arm has no trial. At n = 1 an arm it is defined and says almost nothing. 0/n against 0/n
    and n/n against n/n give a difference of 0 with a symmetric-looking, never empty interval.

    Source: Newcombe, Statistics in Medicine 17 (1998) 873-890, method 10.
    """
    k1, n1 = check_counts(k1, n1, confidence)
    k2, n2 = check_counts(k2, n2, confidence)
    method = "Newcombe hybrid score"
    first, second = wilson(k1, n1, confidence), wilson(k2, n2, confidence)
    if (
        first.point is None
        or first.low is None
        or first.high is None
        or second.point is None
        or second.low is None
        or second.high is None
    ):
        reason = "an arm has no trial that counts (n = 0)"
        return Difference(
            point=None, low=None, high=None, method=method, confidence=confidence, reason=reason, n=n1 + n2
        )
    point = first.point - second.point
    low = point - math.hypot(first.point - first.low, second.high - second.point)
    high = point + math.hypot(first.high - first.point, second.point - second.low)
    return Difference(
        point=point, low=max(low, -1.0), high=min(high, 1.0), method=method, confidence=confidence, n=n1 + n2
    )


def exact_independence(
    k1: int, n1: int, k2: int, n2: int, method: str = "boschloo", alternative: Alternative = "two-sided"
) -> ExactTest:
    """Return the exact p that two independent arms share one success rate.

    Population: two independent samples of independent trials with fixed sizes. Fisher's test is conditional
    and conservative; Barnard's (1945, with the pooled score statistic) and Boschloo's (1970) are
    unconditional: they take the worst case over the common rate. Boschloo's is uniformly at least as powerful
    as Fisher's. Choose one before looking.

    Undefined when an arm has no trial. At n = 1 an arm no p is below .5 (one-sided .25). When every trial of
    both arms ended alike (0/n and 0/m, n/n and m/m) p is 1.

    Args:
        k1: successes of the first arm.
        n1: trials of the first arm.
        k2: successes of the second arm.
        n2: trials of the second arm.
        method: ``boschloo``, ``barnard`` or ``fisher``.
        alternative: ``two-sided``; ``greater`` asks whether the first arm is better, ``less`` whether it is
            worse.
    """
    k1, n1 = check_counts(k1, n1, 0.95)
    k2, n2 = check_counts(k2, n2, 0.95)
    names = {"boschloo": "Boschloo exact", "fisher": "Fisher exact", "barnard": "Barnard exact"}
    if method not in names:
        raise UsageError(f"unknown exact test {method!r}; known: {', '.join(names)}")
    if alternative not in ALTERNATIVES:
        raise UsageError(f"unknown alternative {alternative!r}; known: {', '.join(ALTERNATIVES)}")
    if n1 == 0 or n2 == 0:
        return ExactTest(
            p_value=None,
            method=names[method],
            reason="an arm has no trial that counts (n = 0)",
            n=n1 + n2,
            alternative=alternative,
        )
    if k1 + k2 in (0, n1 + n2):
        return ExactTest(
            p_value=1.0,
            method=names[method],
            reason="every trial of both arms ended alike",
            n=n1 + n2,
            alternative=alternative,
        )
    table = [[k1, k2], [n1 - k1, n2 - k2]]
    if method == "fisher":
        p_value = float(fisher_exact(table, alternative=alternative).pvalue)
    elif method == "barnard":
        p_value = float(barnard_exact(table, alternative=alternative, pooled=True, n=_NUISANCE_POINTS).pvalue)
    else:
        p_value = float(boschloo_exact(table, alternative=alternative, n=_NUISANCE_POINTS).pvalue)
    return ExactTest(p_value=min(p_value, 1.0), method=names[method], n=n1 + n2, alternative=alternative)
