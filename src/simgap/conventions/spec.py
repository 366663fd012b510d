"""What each number in a vector means: unit, reference, limits, frame, direction, zero, polarity, rate.

A convention travels with datasets and inside checkpoints. Mixing two that differ is an error that names both;
nothing is converted silently.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
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
    """0 to 100 of a range, as LeRobot uses for a gripper opening (0 closed, 100 open)."""
    FRACTION = "fraction"
    """0 to 1 of a range, as simulators and policies use for grippers and hands."""
    METRE = "m"
    MILLIMETRE = "mm"
    METRE_PER_SECOND = "m/s"
    MILLIMETRE_PER_SECOND = "mm/s"
    RAD_PER_SECOND = "rad/s"
    DEG_PER_SECOND = "deg/s"
    NORMALISED = "normalised"
    """-1 to 1, as a car's steering and throttle."""
    RANGE_100 = "range_100"
    """-100 to 100 of a calibrated range, as LeRobot's default arm mode."""
    TICKS = "ticks"
    """Raw servo counts."""
    UNKNOWN = "unknown"
    """Not stated and not decidable from the numbers."""

    @property
    def is_velocity(self) -> bool:
        """True for what is measured by the second."""
        return self in (
            Unit.METRE_PER_SECOND,
            Unit.MILLIMETRE_PER_SECOND,
            Unit.RAD_PER_SECOND,
            Unit.DEG_PER_SECOND,
        )

    @property
    def is_length(self) -> bool:
        """True for places of a tool and openings of jaws."""
        return self in (Unit.METRE, Unit.MILLIMETRE)


NATURAL_RANGE: Mapping[Unit, tuple[float, float]] = {
    Unit.PERCENT: (0.0, 100.0),
    Unit.FRACTION: (0.0, 1.0),
    Unit.NORMALISED: (-1.0, 1.0),
    Unit.RANGE_100: (-100.0, 100.0),
}
"""Ends of the units that count along a range instead of measuring an angle or a length."""


class Reference(StrEnum):
    """What a value is measured against."""

    ABSOLUTE = "absolute"
    DELTA = "delta"
    """From step to step: ``a[t] = x[t] - x[t - 1]``, the first against the state at the start of the chunk."""
    CHUNK_DELTA = "chunk_delta"
    """Against the state at the start of the chunk, for every step of it: ``a[t] = x[t] - state``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CalibratedRange:
    """The readings between which a unit of :data:`NATURAL_RANGE` counts: what -100 and 100, or 0 and 100, stand for."""

    low: float
    """Reading at the lower end of the unit (-100, 0 or -1)."""
    high: float
    """Reading at the upper end; below ``low`` where the range runs backwards."""
    unit: Unit = Unit.TICKS
    """Unit of the readings: ``ticks``, ``deg``, ``rad`` or ``m``."""
    ticks_per_turn: float = 4096.0
    """Servo counts of one turn. LeRobot's own degrees divide by 4095, see :meth:`from_lerobot`."""

    def __post_init__(self) -> None:
        if self.unit not in (Unit.TICKS, Unit.DEG, Unit.RAD, Unit.METRE):
            raise ConventionError(
                f"calibrated range in {self.unit}: expected the readings at its ends in ticks, deg, rad or m"
            )
        if not (
            math.isfinite(self.low)
            and math.isfinite(self.high)
            and self.low != self.high
            and self.ticks_per_turn > 0
        ):
            raise ConventionError(
                f"calibrated range {self.low:g}..{self.high:g} {self.unit} has no width; expected two"
                " different finite readings; calibrate"
            )

    @property
    def degrees_per_percent(self) -> float | None:
        """Degrees of one unit of -100..100 (half of one unit of 0..100 is the same angle); None for a range in metres."""
        width = self.high - self.low
        turns = {
            Unit.TICKS: width / self.ticks_per_turn,
            Unit.DEG: width / 360.0,
            Unit.RAD: width / (2 * math.pi),
        }.get(self.unit)
        return None if turns is None else turns * 360.0 / 200.0

    @classmethod
    def from_lerobot(cls, entry: Mapping[str, Any]) -> CalibratedRange:
        """Return the range of one motor of a LeRobot calibration file (``range_min``, ``range_max``, ``drive_mode``).

        LeRobot turns ticks into degrees with 360 / 4095 around the middle of the range, and so does this
        range.

        Raises:
            ConventionError: an entry is missing or no number.
        """
        try:
            low, high, turned = (
                float(entry["range_min"]),
                float(entry["range_max"]),
                bool(entry.get("drive_mode") or 0),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ConventionError(
                f"calibration entry {dict(entry)!r:.120} cannot be read ({error!r}); expected range_min and"
                " range_max in ticks"
            ) from error
        return (
            cls(low=high, high=low, ticks_per_turn=4095.0)
            if turned
            else cls(low=low, high=high, ticks_per_turn=4095.0)
        )


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
    """Grippers are never averaged over chunks."""
    opens_high: bool = True
    """Polarity of a gripper: True where 0 is closed and the high end open, False where 0 is open."""
    frame: str = ""
    """Frame a Cartesian value is expressed in, such as ``base`` or ``tool``; empty for joints."""
    sign: int = 1
    """-1 where the positive direction is turned against the joint's reference convention."""
    zero: float = 0.0
    """Where the zero lies: ``reference value = sign * value + zero``, in ``unit``."""
    calibrated: CalibratedRange | None = None
    """What the ends of a unit that counts along a range stand for; needed to turn it into an angle or length."""

    def __post_init__(self) -> None:
        if self.sign not in (1, -1):
            raise ConventionError(f"dimension {self.name!r} has sign {self.sign!r}; expected 1 or -1")
        if not math.isfinite(self.zero):
            raise ConventionError(
                f"dimension {self.name!r} has its zero at {self.zero!r}; expected a finite value in"
                f" {self.unit}"
            )
        if not self.opens_high and not self.is_gripper:
            raise ConventionError(
                f"dimension {self.name!r} is no gripper and cannot open; set is_gripper or leave opens_high"
                " alone"
            )
        if self.unit is Unit.TICKS and self.calibrated is not None and self.calibrated.unit is not Unit.TICKS:
            raise ConventionError(
                f"dimension {self.name!r} counts ticks, its calibrated range is in {self.calibrated.unit};"
                " give the range in ticks"
            )

    def describe(self) -> str:
        """Return the convention in words, what is usual left out."""
        parts = [str(self.unit), str(self.reference)]
        if self.is_gripper:
            parts.append(f"gripper {'closed' if self.opens_high else 'open'} at the low end")
        parts += (
            [f"in frame {self.frame!r}"] * bool(self.frame)
            + ["turned"] * (self.sign < 0)
            + [f"zero at {self.zero:g}"] * bool(self.zero)
        )
        if self.calibrated is not None:
            parts.append(f"range {self.calibrated.low:g}..{self.calibrated.high:g} {self.calibrated.unit}")
        return f"{self.name!r} ({', '.join(parts)})"

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; what was added after the first version of the format only where it is not the default."""
        plain: dict[str, Any] = {
            "name": self.name,
            "unit": str(self.unit),
            "low": self.low,
            "high": self.high,
            "reference": str(self.reference),
            "is_gripper": self.is_gripper,
        }
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name not in plain and value != field.default:
                plain[field.name] = value
        if self.calibrated is not None:
            plain["calibrated"] = {
                "low": self.calibrated.low,
                "high": self.calibrated.high,
                "unit": str(self.calibrated.unit),
                "ticks_per_turn": self.calibrated.ticks_per_turn,
            }
        return plain

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Dimension:
        """Rebuild a dimension from :meth:`to_json`; :meth:`VectorSpec.from_json` says what is wrong with a bad one."""
        ends = data.get("calibrated")
        calibrated = None
        if ends is not None:
            calibrated = CalibratedRange(
                low=float(ends["low"]),
                high=float(ends["high"]),
                unit=Unit(ends["unit"]),
                ticks_per_turn=float(ends.get("ticks_per_turn", 4096.0)),
            )
        for name in ("is_gripper", "opens_high"):
            if not isinstance(data.get(name, False), bool):
                raise TypeError(f"{name} is {data[name]!r:.40}, expected true or false")
        if not (isinstance(data["name"], str) and data["name"]):
            raise TypeError(f"name is {data['name']!r:.40}, expected text")
        return cls(
            name=data["name"],
            unit=Unit(data["unit"]),
            low=float(data["low"]),
            high=float(data["high"]),
            reference=Reference(data.get("reference", "absolute")),
            is_gripper=bool(data.get("is_gripper", False)),
            opens_high=bool(data.get("opens_high", True)),
            frame=str(data.get("frame", "")),
            sign=int(data.get("sign", 1)),
            zero=float(data.get("zero", 0.0)),
            calibrated=calibrated,
        )


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
        return {"rate_hz": self.rate_hz, "dimensions": [d.to_json() for d in self.dimensions]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> VectorSpec:
        """Rebuild a spec from :meth:`to_json`.

        Raises:
            ConventionError: a field is missing or a unit is unknown.
        """
        try:
            return cls(
                dimensions=tuple(Dimension.from_json(d) for d in data["dimensions"]),
                rate_hz=float(data["rate_hz"]),
            )
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise ConventionError(
                f"stored convention cannot be read ({error!r:.200}); it needs rate_hz and, per dimension,"
                " name, unit, low, high"
            ) from error


ActionSpec = VectorSpec
StateSpec = VectorSpec


def require_same(
    ours: VectorSpec, theirs: VectorSpec, *, what: str, ours_name: str, theirs_name: str
) -> None:
    """Raise unless two conventions are equal.

    Raises:
        ConventionError: names the first difference and both sides.
    """
    if ours.names != theirs.names:
        raise ConventionError(
            f"{what} differ: {ours_name} has {list(ours.names)}, {theirs_name} has {list(theirs.names)};"
            " reorder or rename explicitly"
        )
    for a, b in zip(ours.dimensions, theirs.dimensions, strict=True):
        if a != b:
            ours_say, theirs_say = _said_apart(a, b)
            raise ConventionError(
                f"{what} {a.name!r} differs: {ours_name} says {ours_say}, {theirs_name} says {theirs_say};"
                " convert explicitly"
            )
    if abs(ours.rate_hz - theirs.rate_hz) > 1e-6:
        raise ConventionError(
            f"{what} rates differ: {ours_name} {ours.rate_hz} Hz, {theirs_name} {theirs.rate_hz} Hz; resample"
            " explicitly"
        )


def _said_apart(a: Dimension, b: Dimension) -> tuple[str, str]:
    """Return what two dimensions say where they differ, field by field."""
    apart = [f.name for f in fields(Dimension) if getattr(a, f.name) != getattr(b, f.name)]

    def word(value: object) -> str:
        if isinstance(value, CalibratedRange):
            return f"{value.low:g}..{value.high:g} {value.unit}"
        return f"{value:g}" if isinstance(value, float) else str(value)

    first, second = (
        ", ".join(f"{name} {word(getattr(dimension, name))}" for name in apart) for dimension in (a, b)
    )
    return first, second


SO101_JOINTS = ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper")
"""LeRobot's motor names of the SO-101 arm, in vector order."""
