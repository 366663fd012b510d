"""Factors of ``arm-place``: those of a grasp, and which cube is asked for and where the bins stand."""

from __future__ import annotations

from collections.abc import Mapping

from simgap.envs.arm.bins import CENTRE_X_M, CENTRE_Y_M, BinPlace
from simgap.envs.arm.factors import (
    COMMON_SHIFTS,
    CUBE_SHIFTS,
    DISTRACTOR_RANGES,
    CubePose,
    camera_factors,
    contact_factors,
    distractor_factors,
    layout,
    look_factors,
    presets_of,
    servo_factors,
    target_factors,
)
from simgap.envs.factors import Factor, FactorRanges, FactorSpace, FactorValues

COLOURS = ("red", "blue")
"""Of the cubes that have a bin, in the order of ``named``."""
CLEARANCE_M = 0.035
"""Least distance of a distractor's centre to a bin: half a turned cube, a jaw and a finger's width."""

_BIN = "put down by hand beside a mark; the tolerance for a cube's middle is 2 cm"
_PLACE = "where the arm can grasp pointing straight down, clear of the bins"


def _bin_factors() -> list[Factor]:
    choice = "the task's own choice; both are set up alike"
    factors = [
        Factor(
            name="named",
            unit="colour index (0 red, 1 blue)",
            nominal=0.0,
            low=0.0,
            high=1.0,
            integer=True,
            reason=choice,
        ),
        Factor(
            name="red_bin_side",
            unit="side index (0 left, 1 right)",
            nominal=0.0,
            low=0.0,
            high=1.0,
            integer=True,
            reason=choice,
        ),
    ]
    for side in ("left", "right"):
        factors += [
            Factor(name=f"{side}_bin_d{axis}_m", unit="m", nominal=0.0, low=-0.015, high=0.015, reason=_BIN)
            for axis in "xy"
        ]
    return factors


PLACE_FACTORS = FactorSpace(
    [
        *_bin_factors(),
        *target_factors((0.18, 0.14, 0.25), (0.0, -0.085, 0.085), _PLACE),
        *distractor_factors(),
        *look_factors(("target", "distractor", "bin")),
        *camera_factors(),
        *contact_factors(),
        *servo_factors(),
    ]
)

_BINS = tuple(f"{side}_bin_d{axis}_m" for side in ("left", "right") for axis in "xy")
_NOMINAL = {
    "red_bin_side": (0.0, 1.0),
    **dict.fromkeys(_BINS, (-0.006, 0.006)),
    "target_x_m": (0.155, 0.21),
    "target_y_m": (-0.06, 0.06),
    "target_yaw_deg": (-35.0, 35.0),
    **DISTRACTOR_RANGES,
}
PLACE_PRESETS: Mapping[str, FactorRanges] = presets_of(
    _NOMINAL,
    {
        "placement": {"target_x_m": (0.145, 0.225), "target_y_m": (-0.08, 0.08)},
        "bins": dict.fromkeys(_BINS, (-0.015, 0.015)),
        "colour": {
            "target_hue_deg": (-15.0, 15.0),
            "distractor_hue_deg": (-15.0, 15.0),
            "bin_hue_deg": (-15.0, 15.0),
            "table_grey": (0.3, 0.75),
        },
        **CUBE_SHIFTS,
        **COMMON_SHIFTS,
    },
)
PLACE_PLACEMENT: tuple[str, ...] = tuple(
    name
    for name in PLACE_FACTORS.factors
    if name in ("named", "red_bin_side", *_BINS)
    or (
        name.endswith(("_x_m", "_y_m", "_yaw_deg", "_bearing_deg", "_distance_m"))
        and not name.startswith(("front", "wrist"))
    )
)
"""What an operator sets up and can measure: the request, where cubes lie and where bins stand."""


def goal_and_other_bin(values: FactorValues) -> tuple[BinPlace, BinPlace]:
    """Return where the bin of the named colour stands, and the other one."""
    places = [
        BinPlace(CENTRE_X_M + values[f"{side}_bin_dx_m"], sign * CENTRE_Y_M + values[f"{side}_bin_dy_m"])
        for side, sign in (("left", 1.0), ("right", -1.0))
    ]
    side = int(values["red_bin_side"]) ^ int(values["named"])
    return places[side], places[1 - side]


def place_layout(values: FactorValues) -> list[CubePose]:
    """Return where the cubes lie: as in a pick, and clear of both bins."""
    bins = goal_and_other_bin(values)
    return layout(values, lambda pose: all(b.distance(pose.x, pose.y) >= CLEARANCE_M for b in bins))


def instruction(values: FactorValues) -> str:
    """Return what is asked for in words."""
    colour = COLOURS[int(values["named"])]
    return f"put the {colour} cube into the {colour} bin"
