"""How one unit becomes another: a straight line, where there is one."""

from __future__ import annotations

import math
from typing import NamedTuple

from simgap.conventions.spec import NATURAL_RANGE, CalibratedRange, Dimension, Unit
from simgap.errors import ConventionError


class Line(NamedTuple):
    """``y = scale * x + offset``."""

    scale: float = 1.0
    offset: float = 0.0

    def then(self, other: Line) -> Line:
        """Return this line and then another."""
        return Line(self.scale * other.scale, self.offset * other.scale + other.offset)

    def inverse(self) -> Line:
        """Return the line back."""
        return Line(1.0 / self.scale, -self.offset / self.scale)


def line_between(a: Dimension, b: Dimension) -> Line:
    """Return the map of absolute values between two conventions of one dimension."""
    if Unit.UNKNOWN in (a.unit, b.unit):
        raise _refused(a, b, "nobody said what the numbers mean", "look the unit up and state it in the spec")
    if a.frame != b.frame:
        raise _refused(
            a, b, "that needs the pose between the frames", "transform the poses where it is known"
        )
    if a.is_gripper != b.is_gripper:
        raise _refused(a, b, "only one of them is a gripper", "correct is_gripper in one of the specs")
    is_turned = a.opens_high != b.opens_high
    if a.unit is b.unit and a.calibrated == b.calibrated and not is_turned:
        middle = Line()
    elif a.unit in NATURAL_RANGE and b.unit in NATURAL_RANGE and a.calibrated == b.calibrated:
        turn = Line(-1.0, 1.0) if is_turned else Line()
        middle = _to_fraction(a.unit).then(turn).then(_to_fraction(b.unit).inverse())
    else:
        middle = (
            _to_physical(a, b).then(_turned(a, b) if is_turned else Line()).then(_to_physical(b, a).inverse())
        )
    own, other = Line(a.sign, a.zero), Line(b.sign, b.zero)
    return own.then(middle).then(other.inverse())


def _to_fraction(unit: Unit) -> Line:
    low, high = NATURAL_RANGE[unit]
    return Line(1.0 / (high - low), -low / (high - low))


def _to_physical(d: Dimension, other: Dimension) -> Line:
    """Return the map from a dimension's unit to degrees or metres, or to these per second."""
    if _kind(d) != _kind(other):
        raise _refused(
            d, other, f"{_kind(d)} is no {_kind(other).partition(' ')[2]}", "check the units of both"
        )
    if (plain := _SCALES.get(d.unit)) is not None:
        return Line(plain)
    if d.calibrated is None:
        raise _refused(
            d,
            other,
            f"what {d.name!r} in {d.unit} stands for depends on its calibrated range",
            "state calibrated= in its spec",
        )
    if d.unit is Unit.TICKS:
        return _ticks_to_degrees(d.calibrated)
    low, high = _physical_ends(d.calibrated)
    return _to_fraction(d.unit).then(Line(high - low, low))


_SCALES = {
    Unit.DEG: 1.0,
    Unit.RAD: 180.0 / math.pi,
    Unit.METRE: 1.0,
    Unit.MILLIMETRE: 1e-3,
    Unit.DEG_PER_SECOND: 1.0,
    Unit.RAD_PER_SECOND: 180.0 / math.pi,
    Unit.METRE_PER_SECOND: 1.0,
    Unit.MILLIMETRE_PER_SECOND: 1e-3,
}
"""Degrees or metres, or these per second, in one of each unit."""


def _kind(d: Dimension) -> str:
    unit = d.calibrated.unit if d.unit in NATURAL_RANGE and d.calibrated is not None else d.unit
    if unit.is_velocity:
        return (
            "a speed" if unit in (Unit.METRE_PER_SECOND, Unit.MILLIMETRE_PER_SECOND) else "an angular speed"
        )
    return "a length" if unit.is_length else "an angle"


def _ticks_to_degrees(ends: CalibratedRange) -> Line:
    """Angles are counted from the middle of the range, as LeRobot does."""
    degrees = 360.0 / ends.ticks_per_turn
    return Line(degrees, -degrees * 0.5 * (ends.low + ends.high))


def _physical_ends(ends: CalibratedRange) -> tuple[float, float]:
    line = {Unit.TICKS: _ticks_to_degrees(ends), Unit.RAD: Line(180.0 / math.pi)}.get(ends.unit, Line())
    return line.scale * ends.low + line.offset, line.scale * ends.high + line.offset


def _turned(a: Dimension, b: Dimension) -> Line:
    """Return the map that swaps open and closed, about the middle of the range both share."""
    if a.calibrated is None or a.calibrated != b.calibrated:
        raise _refused(
            a,
            b,
            "open and closed can only be swapped about a range that both share",
            "state the same calibrated= (closed to open) in both",
        )
    return Line(-1.0, sum(_physical_ends(a.calibrated)))


def _refused(a: Dimension, b: Dimension, why: str, remedy: str) -> ConventionError:
    return ConventionError(f"cannot convert {a.describe()} to {b.describe()}: {why}; {remedy}")
