"""What every check returns: a verdict with its numbers, and the cause it points at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    """What a check found."""

    OK = "ok"
    BROKEN = "broken"
    CANNOT_TELL = "cannot tell"
    NOT_RUN = "not run"


class Family(StrEnum):
    """What a check looks at, in the order of diagnosis: the policy is blamed last."""

    EVALUATION = "evaluation"
    DATA = "data"
    PIXELS = "pixels"
    REPLAY = "replay"
    EXECUTION = "execution"
    PLANT = "plant"
    POLICY = "policy"


class Cause(StrEnum):
    """What can be named as the broken thing."""

    NONE = "none"
    EVALUATION = "evaluation_invalid"
    DATA = "data_faulty"
    CAMERA_SHIFT = "camera_shift"
    LIGHT_COLOUR = "light_colour"
    PIXELS_OTHER = "pixels_other"
    ACTION_SIGN = "action_sign"
    ACTION_SCALE = "action_scale"
    ACTION_CONVENTION = "action_convention"
    """Order, zero, reference, polarity or rotation form: what no multiplier of one joint can undo."""
    JOINT_DEAD = "joint_dead"
    EXECUTION = "execution"
    ACTION_LATENCY = "action_latency"
    PLANT_GAIN = "plant_gain"
    NARROW_DATA = "narrow_data"
    POLICY = "policy_weak"
    UNKNOWN = "cannot_tell"


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
    cause: Cause = Cause.NONE
    """Set when the verdict is broken."""
    numbers: Mapping[str, Any] = field(default_factory=dict)
    """All numbers behind it; what targeting reads."""
    assumes: tuple[str, ...] = ()
    """Assumptions of the check itself, computed from the stamps of what it used."""
    more_trials: int | None = None
    """When it cannot tell: how many further trials would."""

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
