"""Factors of ``arm-pass``: where post and pad stand, and which way the demonstrator goes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from simgap.envs.arm.factors import COMMON_SHIFTS, camera_factors, look_factors, presets_of, servo_factors
from simgap.envs.factors import Factor, FactorRanges, FactorSpace, FactorValues

_POST = "in the way of a straight reach from home, far enough out that the closed gripper starts clear of it"
_PAD = "behind the post, far enough that the gripper fits in between, within reach pointing down"


def _own() -> list[Factor]:
    return [
        Factor(
            name="demonstrated_side",
            unit="side index (0 left, 1 right)",
            nominal=0.0,
            low=0.0,
            high=1.0,
            integer=True,
            reason="the demonstrator's whim: nothing in the world shows it",
        ),
        Factor(name="post_bearing_deg", unit="deg", nominal=0.0, low=-15.0, high=15.0, reason=_POST),
        Factor(name="post_distance_m", unit="m", nominal=0.168, low=0.160, high=0.176, reason=_POST),
        Factor(
            name="post_radius_m", unit="m", nominal=0.010, low=0.007, high=0.013, reason="broomstick to dowel"
        ),
        Factor(name="pad_offset_deg", unit="deg", nominal=0.0, low=-5.0, high=5.0, reason=_PAD),
        Factor(name="pad_distance_m", unit="m", nominal=0.240, low=0.232, high=0.255, reason=_PAD),
    ]


PASS_FACTORS = FactorSpace([*_own(), *look_factors(("pad", "post")), *camera_factors(), *servo_factors()])

PASS_PLACEMENT: tuple[str, ...] = ("post_bearing_deg", "post_distance_m", "pad_offset_deg", "pad_distance_m")
"""What an operator sets up and can measure. Which side a demonstrator takes is his own and of no trial."""

PASS_PRESETS: Mapping[str, FactorRanges] = presets_of(
    {
        "demonstrated_side": (0.0, 1.0),
        "post_bearing_deg": (-8.0, 8.0),
        "post_distance_m": (0.164, 0.172),
        "pad_offset_deg": (-2.0, 2.0),
        "pad_distance_m": (0.236, 0.248),
    },
    {
        "placement": {
            "post_bearing_deg": (-13.0, 13.0),
            "post_distance_m": (0.160, 0.176),
            "pad_offset_deg": (-4.0, 4.0),
            "pad_distance_m": (0.232, 0.254),
        },
        "sizes": {"post_radius_m": (0.008, 0.012)},
        "colour": {"pad_hue_deg": (-15.0, 15.0), "post_hue_deg": (-15.0, 15.0), "table_grey": (0.3, 0.75)},
        **COMMON_SHIFTS,
    },
)


class PassPlan(NamedTuple):
    """Where post and pad stand, in polar coordinates about the pan axis."""

    post_bearing: float
    """rad."""
    post_distance: float
    """m."""
    post_radius: float
    pad_bearing: float
    pad_distance: float

    @property
    def post(self) -> tuple[float, float]:
        """The post's axis, m."""
        return self.post_distance * math.cos(self.post_bearing), self.post_distance * math.sin(
            self.post_bearing
        )

    @property
    def pad(self) -> tuple[float, float]:
        """The pad's middle, m."""
        return self.pad_distance * math.cos(self.pad_bearing), self.pad_distance * math.sin(self.pad_bearing)

    def along_and_aside(self, x: float, y: float) -> tuple[float, float]:
        """Return how far a point is out along the post's bearing, and how far to the left of it, m."""
        cos, sin = math.cos(self.post_bearing), math.sin(self.post_bearing)
        return x * cos + y * sin, y * cos - x * sin


def pass_plan(values: FactorValues) -> PassPlan:
    """Return where post and pad stand in these factor values."""
    bearing = values["post_bearing_deg"]
    return PassPlan(
        math.radians(bearing),
        values["post_distance_m"],
        values["post_radius_m"],
        math.radians(bearing + values["pad_offset_deg"]),
        values["pad_distance_m"],
    )
