"""What every check returns: a verdict with its numbers, and the cause it points at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from simgap import causes
from simgap.causes import Cause, Family

__all__ = ["CheckResult", "Family", "Verdict"]


class Verdict(StrEnum):
    """What a check found."""

    OK = "ok"
    BROKEN = "broken"
    CANNOT_TELL = "cannot tell"
    NOT_RUN = "not run"


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckResult:
    """What one check said."""

    family: Family
    name: str
    verdict: Verdict
    sentence: str
    """The finding in plain words, numbers included."""
    statistic: str = ""
    """What was measured."""
    value: float | None = None
    threshold: float | None = None
    unit: str = ""
    n: int | None = None
    """Episodes, pairs or trials it rests on."""
    cause: Cause = causes.NONE
    """Set when the verdict is broken."""
    numbers: Mapping[str, Any] = field(default_factory=dict)
    """All numbers behind it; what targeting reads."""
    assumes: tuple[str, ...] = ()
    """Assumptions of the check itself, computed from the stamps of what it used."""
    more_trials: int | None = None
    """When it cannot tell: how many further trials would."""

    def with_assumptions(self, assumes: tuple[str, ...]) -> CheckResult:
        """Return the same result with what the check took for granted."""
        return replace(self, assumes=assumes)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "family": str(self.family),
            "name": self.name,
            "verdict": str(self.verdict),
            "sentence": self.sentence,
            "statistic": self.statistic,
            "value": self.value,
            "threshold": self.threshold,
            "unit": self.unit,
            "n": self.n,
            "cause": str(self.cause),
            "numbers": dict(self.numbers),
            "assumes": list(self.assumes),
            "more_trials": self.more_trials,
        }
