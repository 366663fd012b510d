"""Ratios that betray a pair of units: what a joint's numbers are times another's where one side speaks radians and the other degrees."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from simgap.conventions import Unit

UNIT_FACTORS: Mapping[str, float] = {
    "radians for degrees": np.pi / 180,
    "degrees for radians": 180 / np.pi,
    "a fraction for percent": 0.01,
    "percent for a fraction": 100.0,
    "radians for servo ticks": np.pi / 2048,
    "servo ticks for radians": 2048 / np.pi,
    "degrees for servo ticks": 360 / 4096,
    "servo ticks for degrees": 4096 / 360,
    "metres for millimetres": 0.001,
    "millimetres for metres": 1000.0,
}
"""``found = factor * wanted``; the name says what was found for what was wanted."""

PER_DEGREE: Mapping[Unit, float] = {
    Unit.DEG: 1.0,
    Unit.RAD: np.pi / 180,
    Unit.TICKS: 4096 / 360,
    Unit.RANGE_100: 1.0,
    Unit.PERCENT: 0.5,
    Unit.NORMALISED: 0.01,
    Unit.FRACTION: 0.005,
    Unit.METRE: 0.001,
    Unit.MILLIMETRE: 1.0,
    Unit.DEG_PER_SECOND: 1.0,
    Unit.RAD_PER_SECOND: np.pi / 180,
    Unit.METRE_PER_SECOND: 0.001,
    Unit.MILLIMETRE_PER_SECOND: 1.0,
    Unit.UNKNOWN: 1.0,
}
"""About how much of a unit is as much motion as one degree of a joint: thresholds that were set in degrees are scaled by it.

A percent of a range of about 180 degrees is about 2 degrees, and a degree at the end of a short link about a
millimetre; for what is undeclared the numbers are taken as they are.
"""


LENGTH_FACTORS: Mapping[str, float] = {
    "metres for millimetres": 0.001,
    "millimetres for metres": 1000.0,
    "metres for centimetres": 0.01,
    "centimetres for metres": 100.0,
    "centimetres for millimetres": 0.1,
    "millimetres for centimetres": 10.0,
}
"""The same of places and openings."""
_AXES = frozenset({*"xyz", *(f"{p}{a}" for p in "tp" for a in "xyz")})
_SUFFIXES = frozenset({"pos", "position", "vel", "velocity", "mm", "m"})
_NO_PLACES = re.compile(
    r"quat|rot|ori|euler|ang|acc|gyro|imu|mag|motor|joint|axis|force|torque|wrench", re.IGNORECASE
)
_PLACES = re.compile(
    r"(?:^|[._/])(?:xyz|(?:\w+_)?(?:eef|ee|tcp|tool)_pos|translation)(?:\[\d+\]|[._]\d)$", re.IGNORECASE
)


def is_cartesian(name: str) -> bool:
    """Return whether a name says that a number is a place along an axis: ``x``, ``ee.pos_z``, ``tcp_y``, ``eef_pos[2]``."""
    words = [w for w in re.split(r"[._/\s]+", name.lower()) if w]
    while len(words) > 1 and words[-1] in _SUFFIXES:
        words.pop()
    is_axis = bool(words) and words[-1] in _AXES and not any(_NO_PLACES.search(w) for w in words[:-1])
    return is_axis or _PLACES.search(name) is not None


def unit_pair(factor: float, tolerance: float = 0.15, *, is_length: bool = False) -> str | None:
    """Return the pair of units that a ratio betrays, such as ``radians for degrees``; None where it is none of them.

    Args:
        factor: found over wanted, without its sign.
        tolerance: relative deviation that gain and load may add.
        is_length: of places and openings, which are no angles.
    """
    pairs = LENGTH_FACTORS if is_length else UNIT_FACTORS
    return next((name for name, f in pairs.items() if abs(abs(factor) / f - 1.0) < tolerance), None)


def ticks_of_range(factor: float) -> float:
    """Return over how many servo ticks a range of -100..100 was calibrated if degrees are ``factor`` times its numbers."""
    return abs(factor) * 200.0 * 4096.0 / 360.0
