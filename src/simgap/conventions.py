"""Action and state conventions as types: what each number in a vector means.

A convention travels with datasets and inside checkpoints. Mixing two that differ is an error that names both;
nothing is converted silently.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.errors import ConventionError


class Unit(StrEnum):
    """Unit of one dimension."""

    DEG = "deg"
    RAD = "rad"
    PERCENT = "percent"
    """0 to 100, as LeRobot uses for a gripper opening (0 closed, 100 open)."""
    METRE = "m"
    METRE_PER_SECOND = "m/s"
    NORMALISED = "normalised"
    """-1 to 1, as a car's steering and throttle."""
    RANGE_100 = "range_100"
    """-100 to 100 of a calibrated range, as LeRobot's default arm mode."""
    TICKS = "ticks"
    """Raw servo counts."""
    UNKNOWN = "unknown"
    """Not stated and not decidable from the numbers."""


class Reference(StrEnum):
    """What a value is measured against."""

    ABSOLUTE = "absolute"
    DELTA = "delta"


@dataclass(frozen=True, kw_only=True, slots=True)
class Dimension:
    """One entry of an action or state vector."""

    name: str
    unit: Unit
    low: float
    """Lower limit in ``unit``."""
    high: float
    """Upper limit in ``unit``."""
    reference: Reference = Reference.ABSOLUTE
    is_gripper: bool = False
    """Grippers are never averaged over chunks; 0 is closed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VectorSpec:
    """The convention of an action or state vector.

    ``ActionSpec`` and ``StateSpec`` are this class under the name of their use.
    """

    dimensions: tuple[Dimension, ...]
    rate_hz: float

    @property
    def names(self) -> tuple[str, ...]:
        """Names in vector order."""
        return tuple(d.name for d in self.dimensions)

    @property
    def low(self) -> NDArray[np.float32]:
        """Lower limits, ``(A,)`` float32."""
        return np.array([d.low for d in self.dimensions], dtype=np.float32)

    @property
    def high(self) -> NDArray[np.float32]:
        """Upper limits, ``(A,)`` float32."""
        return np.array([d.high for d in self.dimensions], dtype=np.float32)

    @property
    def gripper_mask(self) -> NDArray[np.bool_]:
        """True where the dimension is a gripper, ``(A,)`` bool."""
        return np.array([d.is_gripper for d in self.dimensions], dtype=bool)

    def __len__(self) -> int:
        return len(self.dimensions)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"rate_hz": self.rate_hz, "dimensions": [asdict(d) for d in self.dimensions]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> VectorSpec:
        """Rebuild a spec from :meth:`to_json`.

        Raises:
            ConventionError: a field is missing or a unit is unknown.
        """
        try:
            dimensions = tuple(
                Dimension(
                    name=str(d["name"]),
                    unit=Unit(d["unit"]),
                    low=float(d["low"]),
                    high=float(d["high"]),
                    reference=Reference(d.get("reference", "absolute")),
                    is_gripper=bool(d.get("is_gripper", False)),
                )
                for d in data["dimensions"]
            )
            return cls(dimensions=dimensions, rate_hz=float(data["rate_hz"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ConventionError(f"stored convention cannot be read ({error!r}); it needs rate_hz and, per dimension, name, unit, low, high") from error


ActionSpec = VectorSpec
StateSpec = VectorSpec


def require_same(ours: VectorSpec, theirs: VectorSpec, *, what: str, ours_name: str, theirs_name: str) -> None:
    """Raise unless two conventions are equal.

    Raises:
        ConventionError: names the first difference and both sides.
    """
    if ours.names != theirs.names:
        raise ConventionError(f"{what} differ: {ours_name} has {list(ours.names)}, {theirs_name} has {list(theirs.names)}; reorder or rename explicitly")
    for a, b in zip(ours.dimensions, theirs.dimensions, strict=True):
        if a != b:
            raise ConventionError(f"{what} {a.name!r} differs: {ours_name} says {a}, {theirs_name} says {b}; convert explicitly")
    if abs(ours.rate_hz - theirs.rate_hz) > 1e-6:
        raise ConventionError(f"{what} rates differ: {ours_name} {ours.rate_hz} Hz, {theirs_name} {theirs.rate_hz} Hz; resample explicitly")


SO101_JOINTS = ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper")
"""LeRobot's motor names of the SO-101 arm, in vector order."""
