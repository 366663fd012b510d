"""Lengths, limits and conventions of the car.

Car frame: origin on the floor under the middle of the rear axle, x forward, y left, z up. Commands follow
donkeycar: ``steering.pos`` -1 is full left, +1 full right; ``throttle.vel`` -1 is full reverse, +1 full
forward. Angles inside are in the usual sense, counterclockwise positive, so a positive steering command is a
negative wheel angle.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from simgap.conventions import ActionSpec, Dimension, StateSpec, Unit

WHEELBASE_M = 0.18
"""Rear to front axle; 1:14 touring cars and buggies have 0.17 to 0.19 m."""
TRACK_M = 0.15
"""Between the middles of left and right wheels."""
WHEEL_RADIUS_M = 0.033
"""65 mm wheels, the size that kits with geared motors come with."""
BUMPER_M = 0.235
"""Rear axle to the front of the bumper; distances to cones are taken from its middle."""
TAIL_M = -0.055
"""Rear axle to the rearmost point."""
CAMERA_X_M, CAMERA_Z_M = 0.16, 0.14
"""Lens, in the car frame: on a short mast behind the front axle."""
CAMERA_PITCH_DEG = -12.0
"""Down, so that a cone that is being touched still has its foot in the frame."""
CAMERA_FOVY_DEG = 75.0

STEERING_LIMIT_DEG = 25.0
"""Wheel angle of the bicycle model at a command of 1; turning radius 0.39 m at the rear axle."""
TOP_SPEED_MPS = 1.2
"""At full throttle and without drag: geared toy motors on 65 mm wheels reach 0.7 to 1.5 m/s."""
CAR_MASS_KG = 1.2
"""Chassis, 2-cell battery, board and camera."""


class WheelAngles(NamedTuple):
    """Steering angles of the two front wheels, rad, counterclockwise positive."""

    left: float
    right: float


def ackermann(angle: float) -> WheelAngles:
    """Return wheel angles whose axes meet the rear axle's line in one point.

    ``cot(outer) - cot(inner) = track / wheelbase``, both derived from the bicycle model's angle.

    Args:
        angle: of the bicycle model, rad, counterclockwise positive, below 1.1 rad.
    """
    tangent = math.tan(angle)
    return WheelAngles(
        left=math.atan2(WHEELBASE_M * tangent, WHEELBASE_M - 0.5 * TRACK_M * tangent),
        right=math.atan2(WHEELBASE_M * tangent, WHEELBASE_M + 0.5 * TRACK_M * tangent),
    )


def action_spec(rate_hz: float) -> ActionSpec:
    """Return the car's action convention."""
    return ActionSpec(dimensions=_commands(), rate_hz=rate_hz)


def state_spec(rate_hz: float, *, wheel_speed: bool = False) -> StateSpec:
    """Return the car's state convention: the last command sent, and the driven wheels' speed on a car that measures it."""
    wheel = (
        (Dimension(name="wheel.vel", unit=Unit.METRE_PER_SECOND, low=-3.0, high=3.0),) if wheel_speed else ()
    )
    return StateSpec(dimensions=(*_commands(), *wheel), rate_hz=rate_hz)


def _commands() -> tuple[Dimension, ...]:
    return tuple(
        Dimension(name=name, unit=Unit.NORMALISED, low=-1.0, high=1.0)
        for name in ("steering.pos", "throttle.vel")
    )
