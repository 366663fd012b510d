"""What a data check says: findings with code, severity, numbers, cause and remedy, and the measurements behind them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

SCHEMA = 1


class Severity(StrEnum):
    """How much a finding matters."""

    FAULT = "fault"
    """The data are not what they claim; repair before training."""
    WARNING = "warning"
    """A decision is needed, or a usual tool will stumble."""
    NOTE = "note"
    """A fact worth knowing; nothing is wrong."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DataFinding:
    """One thing a data check found."""

    code: str
    """Stable name for machines, ``snake_case``."""
    severity: Severity
    sentence: str
    """What was found, with its size, in words."""
    remedy: str
    """What to do about it."""
    feature: str | None = None
    """The feature of ``info.json`` or the file group concerned."""
    joints: tuple[str, ...] = ()
    """Names of the dimensions concerned, worst first."""
    numbers: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "code": self.code,
            "severity": str(self.severity),
            "feature": self.feature,
            "joints": list(self.joints),
            "sentence": self.sentence,
            "remedy": self.remedy,
            "numbers": dict(self.numbers),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class DataReport:
    """Everything a data check of one dataset says."""

    path: str
    layout: Mapping[str, Any]
    """Version, robot, keys, cameras, declared rate."""
    counts: Mapping[str, Any]
    """Episodes, frames and videos, declared and found; outcomes where recorded."""
    measurements: Mapping[str, Any]
    """Clock, per-joint tracking and statistics, whether or not they led to a finding."""
    findings: tuple[DataFinding, ...]
    """Worst first."""
    assumes: tuple[str, ...]
    """What the check takes for granted and cannot see fail."""

    @property
    def is_clean(self) -> bool:
        """True when there is nothing worse than a note."""
        return all(f.severity is Severity.NOTE for f in self.findings)

    def codes(self) -> frozenset[str]:
        """Return the codes of all findings."""
        return frozenset(f.code for f in self.findings)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        document = {
            "kind": "data_check",
            "schema": SCHEMA,
            "path": self.path,
            "is_clean": self.is_clean,
            "layout": dict(self.layout),
            "counts": dict(self.counts),
            "measurements": dict(self.measurements),
            "findings": [f.to_json() for f in self.findings],
            "assumes": list(self.assumes),
        }
        return cast("dict[str, Any]", _finite(document))


def _finite(value: Any) -> Any:
    """Return a JSON value in which what is undefined is null, never NaN."""
    if isinstance(value, Mapping):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value


def by_severity(findings: list[DataFinding]) -> tuple[DataFinding, ...]:
    """Return findings with faults first, otherwise in the order they were made."""
    order = list(Severity)
    return tuple(sorted(findings, key=lambda f: order.index(f.severity)))


def listed(names: list[str] | tuple[str, ...], most: int = 4) -> str:
    """Return names as text, cut after a few with the number left out."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def flat_numbers(value: Any) -> NDArray[np.float64] | None:
    """Return a stored list of numbers flattened, ``(D,)``; None where it is no such list."""
    try:
        return None if value is None else np.asarray(value, dtype=np.float64).reshape(-1)
    except (TypeError, ValueError, OverflowError):
        return None
