"""The result type of everything that is neither a success rate nor a difference of two."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Quantity:
    """A number that is neither a rate nor a difference of rates, with its n, interval and method, or the reason why there is none."""

    name: str
    """What it is, with its unit: "mean score", "MMRV", "Pearson r"."""
    n: int
    """What it was computed from; the method says what is counted."""
    point: float | None
    low: float | None
    high: float | None
    method: str
    confidence: float
    reason: str = ""
    """Why it is undefined; empty when it is defined."""
    anytime: bool = False
    """True when the interval holds at every look at once; False needs a fixed n."""

    @property
    def is_defined(self) -> bool:
        """True when there is an interval."""
        return self.low is not None and self.high is not None

    def __str__(self) -> str:
        if self.point is None:
            return f"{self.name} undefined ({self.reason})"
        if self.low is None or self.high is None:
            return f"{self.name} {self.point:.3g} (n = {self.n}, no interval: {self.reason})"
        return (
            f"{self.name} {self.point:.3g} (n = {self.n}, {100 * self.confidence:g} % interval {self.low:.3g}"
            f" to {self.high:.3g}, {self.method})"
        )
