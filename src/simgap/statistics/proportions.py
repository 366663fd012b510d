"""One success rate: the interval that goes with it, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from scipy.stats import binomtest

from simgap.errors import UsageError

WILSON = "Wilson"
CLOPPER_PEARSON = "Clopper-Pearson"


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """A success rate that cannot be separated from its n, interval and method.

    Population: independent trials under the stated conditions with one success probability. Voids are not trials and do
    not enter ``n``.
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
    """Two-sided confidence level, in (0, 1)."""
    reason: str = ""
    """Why the interval is undefined; empty when it is defined."""

    @property
    def is_defined(self) -> bool:
        """True when there is an interval."""
        return self.low is not None and self.high is not None

    def __str__(self) -> str:
        if self.point is None or self.low is None or self.high is None:
            return f"{self.successes} of {self.n} (undefined: {self.reason})"
        level, point, low, high = (100 * value for value in (self.confidence, self.point, self.low, self.high))
        return f"{self.successes} of {self.n} ({point:.1f} %, {level:g} % interval {low:.1f} to {high:.1f} %, {self.method})"


IntervalMethod: TypeAlias = Callable[[int, int, float], Estimate]


def check_counts(k: int, n: int, confidence: float) -> None:
    """Raise unless ``0 <= k <= n`` and the confidence level lies strictly between 0 and 1.

    Raises:
        UsageError: names the value that is impossible.
    """
    if not 0 <= k <= n:
        raise UsageError(f"{k} successes of {n} trials is impossible: expected 0 <= successes <= n; count voids separately")
    if not 0.0 < confidence < 1.0:
        raise UsageError(f"confidence {confidence} is impossible: expected a number between 0 and 1, for example 0.95")


def wilson(k: int, n: int, confidence: float = 0.95) -> Estimate:
    """Return a success rate with its Wilson (1927) score interval.

    Population: independent trials with one success probability. Assumes a fixed n chosen before looking; it is not valid
    for stopping when the result pleases. Covers the nominal rate on average over p and can dip below it near 0 and 1:
    for display and for comparison, not for a guarantee.

    At n = 0 the interval is undefined and the reason says so. At n = 1 it is defined and very wide (0/1: 0 to .79).
    0/n has lower end exactly 0 and n/n upper end exactly 1.

    Args:
        k: successes.
        n: trials that count (no voids).
        confidence: two-sided level.
    """
    return _estimate(k, n, confidence, method=WILSON, scipy_name="wilson")


def clopper_pearson(k: int, n: int, confidence: float = 0.95) -> Estimate:
    """Return a success rate with its Clopper-Pearson (1934) exact interval.

    Population: independent trials with one success probability. Assumes a fixed n chosen before looking. Covers at least
    the nominal rate for every p and n, so it is wider than Wilson's: the one to decide on.

    At n = 0 the interval is undefined and the reason says so. At n = 1 it is defined (0/1: 0 to .975).
    0/n has lower end exactly 0 and n/n upper end exactly 1.

    Args:
        k: successes.
        n: trials that count (no voids).
        confidence: two-sided level.
    """
    return _estimate(k, n, confidence, method=CLOPPER_PEARSON, scipy_name="exact")


def _estimate(k: int, n: int, confidence: float, *, method: str, scipy_name: str) -> Estimate:
    k, n = int(k), int(n)
    check_counts(k, n, confidence)
    if n == 0:
        return Estimate(successes=0, n=0, point=None, low=None, high=None, method=method, confidence=confidence, reason="no trial counts (n = 0)")
    interval = binomtest(k, n).proportion_ci(confidence_level=confidence, method=scipy_name)
    low = 0.0 if k == 0 else float(interval.low)
    high = 1.0 if k == n else float(interval.high)
    return Estimate(successes=k, n=n, point=k / n, low=low, high=high, method=method, confidence=confidence)
