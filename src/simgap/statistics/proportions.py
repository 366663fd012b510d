"""One success rate: the interval that goes with it, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from scipy.stats import beta, binomtest

from simgap.errors import UsageError
from simgap.statistics.counts import check_counts

WILSON = "Wilson"
CLOPPER_PEARSON = "Clopper-Pearson"
JEFFREYS = "Jeffreys"


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """A success rate that cannot be separated from its n, interval and method.

    Population: independent trials under the stated conditions with one success probability. Voids are not
    trials and do not enter ``n``.
    """

    successes: int
    n: int
    point: float | None
    """``successes / n``; None when n is 0."""
    low: float | None
    """Lower end of the interval; None when undefined."""
    high: float | None
    """Upper end of the interval; None when undefined."""
    method: str
    confidence: float
    """Confidence that the interval ``low`` to ``high`` covers, in (0, 1); of a one-sided bound the other end is 0 or 1."""
    reason: str = ""
    """Why the interval is undefined; empty when it is defined."""
    anytime: bool = False
    """True when the interval holds at every look at once, so that one may stop when one likes; False needs a fixed n."""

    @property
    def is_defined(self) -> bool:
        """True when there is an interval."""
        return self.low is not None and self.high is not None

    def __str__(self) -> str:
        if self.point is None or self.low is None or self.high is None:
            return f"{self.successes} of {self.n} (undefined: {self.reason})"
        level, point, low, high = (
            100 * value for value in (self.confidence, self.point, self.low, self.high)
        )
        return (
            f"{self.successes} of {self.n} ({point:.1f} %, {level:g} % interval {low:.1f} to {high:.1f} %,"
            f" {self.method})"
        )


IntervalMethod: TypeAlias = Callable[[int, int, float], Estimate]


def wilson(k: int, n: int, confidence: float = 0.95) -> Estimate:
    """Return a success rate with its Wilson (1927) score interval.

    Population: independent trials with one success probability. Assumes a fixed n chosen before looking; it
    is not valid for stopping when the result pleases. Covers the nominal rate on average over p and can dip
    below it near 0 and 1 (for 95 %: .83 at worst from 5 trials on): for display and for comparison, not for a
    guarantee.

    At n = 0 the interval is undefined and the reason says so. At n = 1 it is defined and very wide (0/1: 0 to
    .79). 0/n has lower end exactly 0 and n/n upper end exactly 1.

    Args:
        k: successes.
        n: trials that count (no voids).
        confidence: two-sided level.
    """
    return _estimate(k, n, confidence, method=WILSON, scipy_name="wilson")


def clopper_pearson(k: int, n: int, confidence: float = 0.95) -> Estimate:
    """Return a success rate with its Clopper-Pearson (1934) exact interval.

    Population: independent trials with one success probability. Assumes a fixed n chosen before looking.
    Covers at least the nominal rate for every p and n, so it is wider than Wilson's: the one to decide on.

    At n = 0 the interval is undefined and the reason says so. At n = 1 it is defined (0/1: 0 to .975).
    0/n has lower end exactly 0 and n/n upper end exactly 1.

    Args:
        k: successes.
        n: trials that count (no voids).
        confidence: two-sided level.
    """
    return _estimate(k, n, confidence, method=CLOPPER_PEARSON, scipy_name="exact")


def jeffreys(k: int, n: int, confidence: float = 0.95) -> Estimate:
    """Return a success rate with its Jeffreys interval: equal tails of the Beta(k + 1/2, n - k + 1/2) posterior.

    Population: independent trials with one success probability. Assumes a fixed n chosen before looking.
    Covers the nominal rate on average, as Wilson's does, with shorter intervals near 0 and 1 (for 95 %: .87
    at worst from 5 trials on): for display.

    At n = 0 the interval is undefined and the reason says so. 0/n has lower end exactly 0 and n/n upper end
    exactly 1, the rule of Brown, Cai and DasGupta, Statistical Science 16 (2001) 101-133; the plain posterior
    quantile there would exclude the very rate that fits best, and some libraries return it.

    Args:
        k: successes.
        n: trials that count (no voids).
        confidence: two-sided level.
    """
    k, n = check_counts(k, n, confidence)
    if n == 0:
        return _undefined(JEFFREYS, confidence)
    tail = (1 - confidence) / 2
    low = 0.0 if k == 0 else float(beta.ppf(tail, k + 0.5, n - k + 0.5))
    high = 1.0 if k == n else float(beta.ppf(1 - tail, k + 0.5, n - k + 0.5))
    return Estimate(successes=k, n=n, point=k / n, low=low, high=high, method=JEFFREYS, confidence=confidence)


def clopper_pearson_bound(
    k: int, n: int, confidence: float = 0.95, side: Literal["lower", "upper"] = "lower"
) -> Estimate:
    """Return a success rate with an exact one-sided bound: "at least" (``lower``) or "at most" (``upper``).

    Population: independent trials with one success probability. Assumes a fixed n and a side chosen before
    looking. Covers at least the nominal rate for every p and n. Randomised bounds (Vincent et al. 2024) are a
    little sharper (38/50: .651 against .640 here) but give another number each time they are asked; this one
    is reproducible.

    At n = 0 the bound is undefined and the reason says so. At n = 1, 1/1 is at least .05. 0/n is at least 0;
    n/n is at least ``(1 - confidence) ** (1 / n)``, the rule of three: about 1 - 3/n at 95 %.

    Args:
        k: successes.
        n: trials that count (no voids).
        confidence: one-sided level.
        side: which end is bounded; the other end is 0 or 1.
    """
    k, n = check_counts(k, n, confidence)
    if side not in ("lower", "upper"):
        raise UsageError(f"side {side!r}: expected lower or upper")
    method = f"{CLOPPER_PEARSON}, one-sided {side}"
    if n == 0:
        return _undefined(method, confidence)
    low = 0.0 if k == 0 or side == "upper" else float(beta.ppf(1 - confidence, k, n - k + 1))
    high = 1.0 if k == n or side == "lower" else float(beta.ppf(confidence, k + 1, n - k))
    return Estimate(successes=k, n=n, point=k / n, low=low, high=high, method=method, confidence=confidence)


def _undefined(method: str, confidence: float, *, anytime: bool = False) -> Estimate:
    reason = "no trial counts (n = 0)"
    return Estimate(
        successes=0,
        n=0,
        point=None,
        low=None,
        high=None,
        method=method,
        confidence=confidence,
        reason=reason,
        anytime=anytime,
    )


def _estimate(k: int, n: int, confidence: float, *, method: str, scipy_name: str) -> Estimate:
    k, n = check_counts(k, n, confidence)
    if n == 0:
        return _undefined(method, confidence)
    interval = binomtest(k, n).proportion_ci(confidence_level=confidence, method=scipy_name)
    low = 0.0 if k == 0 else float(interval.low)
    high = 1.0 if k == n else float(interval.high)
    return Estimate(successes=k, n=n, point=k / n, low=low, high=high, method=method, confidence=confidence)
