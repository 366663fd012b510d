"""Factors of the arm tasks, with units, bounds and reasons, and the presets that sample them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from simgap.conventions import SO101_JOINTS
from simgap.envs.factors import Factor, FactorRanges, FactorSpace, FactorValues

Range = tuple[float, float]
Bounds = tuple[float, float, float]
"""``(nominal, low, high)``."""

_PLACE = "where the arm can grasp pointing straight down"
_LOOKS = (
    "indoor lamps and printed colours vary this much between rooms (Dactyl's vision ranges: contrast .5-1.5,"
    " saturation +-15 %)"
)
_CAMERA = "a camera on a clamp: MuJoCo Playground uses +-5 cm and 10 deg, Squint +-2.5 cm"
_WRIST = "a printed camera mount: Squint uses +-2 mm and 1 deg; wider for a bent mount"
_PLANT = "Dactyl: mass x .5-1.5, friction x .7-1.3, gain x .75-1.5"


def target_factors(x_m: Bounds, y_m: Bounds, reason: str) -> list[Factor]:
    """Return where the target cube lies and how large it is; ``(nominal, low, high)`` of its position."""
    return [
        Factor(name="target_x_m", unit="m", nominal=x_m[0], low=x_m[1], high=x_m[2], reason=reason),
        Factor(name="target_y_m", unit="m", nominal=y_m[0], low=y_m[1], high=y_m[2], reason=reason),
        Factor(
            name="target_yaw_deg",
            unit="deg",
            nominal=0.0,
            low=-45.0,
            high=45.0,
            reason="a cube repeats every 90 deg",
        ),
        Factor(
            name="target_size_m",
            unit="m",
            nominal=0.024,
            low=0.018,
            high=0.030,
            reason="must fit between the jaws; Squint uses 2.2-2.8 cm",
        ),
    ]


def distractor_factors() -> list[Factor]:
    """Return where the two other cubes lie round the target, and how large they are."""
    factors = []
    for name in ("distractor1", "distractor2"):
        factors += [
            Factor(
                name=f"{name}_bearing_deg",
                unit="deg",
                nominal=90.0 if name.endswith("1") else -90.0,
                low=-180.0,
                high=180.0,
                reason="any side of the target",
            ),
            Factor(
                name=f"{name}_distance_m",
                unit="m",
                nominal=0.08,
                low=0.055,
                high=0.14,
                reason="clear of the open jaw",
            ),
            Factor(
                name=f"{name}_yaw_deg",
                unit="deg",
                nominal=0.0,
                low=-45.0,
                high=45.0,
                reason="a cube repeats every 90 deg",
            ),
            Factor(
                name=f"{name}_size_m", unit="m", nominal=0.024, low=0.018, high=0.030, reason="as the target"
            ),
        ]
    return factors


def look_factors(hues: tuple[str, ...]) -> list[Factor]:
    """Return hue shifts of the named things, the table, the light and the pixels' noise."""
    return [
        *(
            Factor(name=f"{name}_hue_deg", unit="deg", nominal=0.0, low=-30.0, high=30.0, reason=_LOOKS)
            for name in hues
        ),
        Factor(name="table_grey", unit="1", nominal=0.55, low=0.15, high=0.9, reason=_LOOKS),
        Factor(name="light_intensity", unit="1", nominal=1.0, low=0.25, high=1.8, reason=_LOOKS),
        Factor(
            name="light_warmth",
            unit="1",
            nominal=0.0,
            low=-1.0,
            high=1.0,
            reason="-1 is bluish (8,000 K), 1 is yellowish (3,000 K)",
        ),
        Factor(name="light_azimuth_deg", unit="deg", nominal=45.0, low=-180.0, high=180.0, reason=_LOOKS),
        Factor(
            name="image_noise",
            unit="1/255",
            nominal=0.0,
            low=0.0,
            high=20.0,
            reason="sensor noise of a webcam in room light, standard deviation",
        ),
    ]


def camera_factors() -> list[Factor]:
    """Return where both cameras sit, differences from nominal."""
    factors = []
    for camera, metres, degrees, reason in (("front", 0.08, 12.0, _CAMERA), ("wrist", 0.02, 12.0, _WRIST)):
        for axis in "xyz":
            factors.append(
                Factor(
                    name=f"{camera}_camera_d{axis}_m",
                    unit="m",
                    nominal=0.0,
                    low=-metres,
                    high=metres,
                    reason=reason,
                )
            )
        for axis in ("pitch", "yaw", "roll"):
            factors.append(
                Factor(
                    name=f"{camera}_camera_{axis}_deg",
                    unit="deg",
                    nominal=0.0,
                    low=-degrees,
                    high=degrees,
                    reason=reason,
                )
            )
        factors.append(
            Factor(
                name=f"{camera}_camera_fovy_deg",
                unit="deg",
                nominal=0.0,
                low=-6.0,
                high=6.0,
                reason="lens tolerance, difference from nominal",
            )
        )
    return factors


def contact_factors() -> list[Factor]:
    """Return what a cube between two jaws feels."""
    return [
        Factor(name="friction", unit="1", nominal=1.0, low=0.4, high=1.6, reason=_PLANT),
        Factor(name="cube_mass_kg", unit="kg", nominal=0.02, low=0.005, high=0.08, reason=_PLANT),
    ]


def servo_factors() -> list[Factor]:
    """Return servos, delay and encoders."""
    factors = [
        Factor(name="actuator_gain", unit="1", nominal=1.0, low=0.5, high=1.6, reason=_PLANT),
        Factor(
            name="action_latency_steps",
            unit="control steps",
            nominal=0.0,
            low=0.0,
            high=10.0,
            integer=True,
            reason="bus, network and inference delay: 0-0.5 s is seen on LeRobot arms",
        ),
        Factor(
            name="encoder_noise_deg",
            unit="deg",
            nominal=0.0,
            low=0.0,
            high=1.0,
            reason="12-bit encoder: 0.09 deg a count, standard deviation",
        ),
    ]
    for joint in SO101_JOINTS[:5]:
        factors.append(
            Factor(
                name=f"{joint}_zero_offset_deg",
                unit="deg",
                nominal=0.0,
                low=-10.0,
                high=10.0,
                reason="homing by hand to a mark; Menlo uses +-0.02 rad for a calibrated arm",
            )
        )
    return factors


ARM_FACTORS = FactorSpace(
    [
        *target_factors((0.18, 0.12, 0.25), (0.0, -0.14, 0.14), _PLACE),
        *distractor_factors(),
        *look_factors(("target", "distractor")),
        *camera_factors(),
        *contact_factors(),
        *servo_factors(),
    ]
)
"""Factors of ``arm-pick``."""

PLACEMENT_FACTORS: tuple[str, ...] = tuple(
    name
    for name in ARM_FACTORS.factors
    if name.endswith(("_x_m", "_y_m", "_yaw_deg", "_bearing_deg", "_distance_m"))
    and not name.startswith(("front", "wrist"))
)
"""What an operator sets up and can measure: where the cubes lie."""

DISTRACTOR_RANGES: dict[str, Range] = {
    "distractor1_bearing_deg": (-180.0, 180.0),
    "distractor1_distance_m": (0.06, 0.10),
    "distractor1_yaw_deg": (-45.0, 45.0),
    "distractor2_bearing_deg": (-180.0, 180.0),
    "distractor2_distance_m": (0.06, 0.10),
    "distractor2_yaw_deg": (-45.0, 45.0),
}
_NOMINAL: dict[str, Range] = {
    "target_x_m": (0.15, 0.21),
    "target_y_m": (-0.07, 0.07),
    "target_yaw_deg": (-35.0, 35.0),
    **DISTRACTOR_RANGES,
}
CUBE_SHIFTS: dict[str, dict[str, Range]] = {
    "sizes": {name: (0.020, 0.028) for name in ("target_size_m", "distractor1_size_m", "distractor2_size_m")},
    "contact": {"friction": (0.7, 1.3), "cube_mass_kg": (0.01, 0.04)},
}
"""Shifts of tasks that grasp."""
COMMON_SHIFTS: dict[str, dict[str, Range]] = {
    "light": {
        "light_intensity": (0.45, 1.5),
        "light_warmth": (-0.8, 0.8),
        "light_azimuth_deg": (-180.0, 180.0),
        "image_noise": (0.0, 6.0),
    },
    "front_camera": {
        **{f"front_camera_d{a}_m": (-0.025, 0.025) for a in "xyz"},
        **{f"front_camera_{a}_deg": (-4.0, 4.0) for a in ("pitch", "yaw", "roll")},
        "front_camera_fovy_deg": (-2.0, 2.0),
    },
    "wrist_camera": {
        **{f"wrist_camera_d{a}_m": (-0.004, 0.004) for a in "xyz"},
        **{f"wrist_camera_{a}_deg": (-3.0, 3.0) for a in ("pitch", "yaw", "roll")},
    },
    "actuator": {"actuator_gain": (0.75, 1.4)},
    "latency": {"action_latency_steps": (0.0, 3.0)},
    "encoder": {
        **{f"{j}_zero_offset_deg": (-2.0, 2.0) for j in SO101_JOINTS[:5]},
        "encoder_noise_deg": (0.0, 0.2),
    },
}
"""Shifts of every arm task."""
LOOKS_WIDE: dict[str, Range] = {
    **{f"front_camera_d{a}_m": (-0.02, 0.02) for a in "xyz"},
    **{f"front_camera_{a}_deg": (-3.0, 3.0) for a in ("pitch", "yaw", "roll")},
    "light_intensity": (0.55, 1.4),
    "light_warmth": (-0.6, 0.6),
}
_WIDE: dict[str, Range] = {**LOOKS_WIDE, "action_latency_steps": (0.0, 2.0)}
"""Where training randomises less than the shifted test set moves: the test has to leave the training set."""
_SHIFT_ORDER = (
    "placement",
    "bins",
    "post",
    "sizes",
    "light",
    "colour",
    "front_camera",
    "wrist_camera",
    "contact",
    "actuator",
    "latency",
    "encoder",
)


def presets_of(
    nominal: Mapping[str, Range], shifts: Mapping[str, Mapping[str, Range]]
) -> dict[str, FactorRanges]:
    """Return ``nominal``, ``shifted`` (every group together), ``wide`` (for training) and ``shifted:<group>`` for each group alone."""
    base = FactorRanges(dict(nominal), "nominal")
    ordered = {name: shifts[name] for name in sorted(shifts, key=_SHIFT_ORDER.index)}
    everything: dict[str, Range] = {}
    for shift in ordered.values():
        everything |= shift
    presets = {
        "nominal": base,
        "shifted": base.override(everything, "shifted"),
        "wide": base.override(everything | _WIDE, "wide"),
    }
    for name, shift in ordered.items():
        presets[f"shifted:{name}"] = base.override(shift, f"shifted:{name}")
    return presets


_PICK_SHIFTS: dict[str, dict[str, Range]] = {
    "placement": {"target_x_m": (0.13, 0.225), "target_y_m": (-0.12, 0.12)},
    "colour": {
        "target_hue_deg": (-15.0, 15.0),
        "distractor_hue_deg": (-15.0, 15.0),
        "table_grey": (0.3, 0.75),
    },
    **CUBE_SHIFTS,
    **COMMON_SHIFTS,
}
_SCENES: dict[str, dict[str, Range]] = {
    "clean": {f"distractor{i}_distance_m": (0.12, 0.14) for i in (1, 2)},
    # Close by, and turned from blue and yellow towards green-blue and the orange of a red cube in warm light.
    "cluttered": {
        **{f"distractor{i}_distance_m": (0.055, 0.07) for i in (1, 2)},
        "distractor_hue_deg": (-30.0, -20.0),
    },
    "looks": {
        **_PICK_SHIFTS["colour"],
        **_PICK_SHIFTS["light"],
        **_PICK_SHIFTS["front_camera"],
        **_PICK_SHIFTS["wrist_camera"],
        **LOOKS_WIDE,
    },
}
"""Scenes that differ from nominal in nothing but what the cameras see: for the pixel floor."""

_BY_GROUP = presets_of(_NOMINAL, _PICK_SHIFTS)
ARM_PRESETS: Mapping[str, FactorRanges] = _BY_GROUP | {
    name: _BY_GROUP["nominal"].override(scene, name) for name, scene in _SCENES.items()
}


class CubePose(NamedTuple):
    """A cube lying on the table."""

    x: float
    y: float
    yaw: float
    """rad."""
    half: float
    """Half edge, m."""


TABLE_X = (0.10, 0.30)
TABLE_Y = (-0.20, 0.20)
MIN_GAP = 0.052
"""Smallest distance between cube centres, m: the open jaw passes."""


def layout(values: FactorValues, is_free: Callable[[CubePose], bool] = lambda pose: True) -> list[CubePose]:
    """Return where the target and the two distractors lie.

    A distractor that would leave the table, crowd another cube or lie where it may not is moved round the
    target in steps of 20 deg (and farther out after a full round), so that every factor value gives a valid
    scene and none is rejected.

    Args:
        values: factor values.
        is_free: what else has to hold of a distractor's place.
    """
    poses = [
        CubePose(
            values["target_x_m"],
            values["target_y_m"],
            math.radians(values["target_yaw_deg"]),
            values["target_size_m"] / 2,
        )
    ]
    for name in ("distractor1", "distractor2"):
        half, yaw = values[f"{name}_size_m"] / 2, math.radians(values[f"{name}_yaw_deg"])
        pose = poses[0]
        for attempt in range(72):
            bearing = math.radians(values[f"{name}_bearing_deg"] + 20.0 * attempt)
            distance = values[f"{name}_distance_m"] + 0.02 * (attempt // 18)
            pose = CubePose(
                poses[0].x + distance * math.cos(bearing),
                poses[0].y + distance * math.sin(bearing),
                yaw,
                half,
            )
            if (
                TABLE_X[0] <= pose.x <= TABLE_X[1]
                and TABLE_Y[0] <= pose.y <= TABLE_Y[1]
                and all(math.hypot(pose.x - p.x, pose.y - p.y) >= MIN_GAP for p in poses)
                and is_free(pose)
            ):
                break
        poses.append(pose)
    return poses
