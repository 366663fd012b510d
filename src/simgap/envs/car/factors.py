"""Factors of the driving tasks, with units, bounds and reasons, and the presets that sample them."""

from __future__ import annotations

from collections.abc import Mapping

from simgap.envs.factors import Factor, FactorRanges, FactorSpace

Range = tuple[float, float]

CONES = ("target", "distractor1", "distractor2")

_PLACE = "floor in front of the start mark that the camera sees and a room has; put down with a tape measure"
_AROUND = "any side of the target, far enough that the two stopping zones do not touch"
_LOOKS = (
    "indoor lamps and printed colours vary this much between rooms (Dactyl's vision ranges: contrast .5-1.5,"
    " saturation +-15 %)"
)
_FLOOR = "tiles, parquet, carpet; MuJoCo Playground varies floor grey by .25"
_MOUNT = (
    "a printed mast that bends when the car hits something: Squint uses +-2 mm and 1 deg for a mount,"
    " Playground +-5 cm and 10 deg for a clamp"
)
_PLANT = "Dactyl: mass x .5-1.5, friction x .7-1.3, gain x .75-1.5"
_CONE = "mini training cones: 15 to 23 cm"
_MOTOR = "brushed motor on two lithium cells: 8.4 V full, 6.4 V empty, 7.4 V nominal; unit to unit 10 %"


def _factor(
    name: str, unit: str, nominal: float, bounds: Range, reason: str, *, integer: bool = False
) -> Factor:
    return Factor(
        name=name, unit=unit, nominal=nominal, low=bounds[0], high=bounds[1], reason=reason, integer=integer
    )


def _placement() -> list[Factor]:
    factors = [
        _factor("car_x_m", "m", 0.0, (-0.15, 0.15), "how well a car is put on its mark, and other marks"),
        _factor("car_y_m", "m", 0.0, (-0.4, 0.4), "how well a car is put on its mark, and other marks"),
        _factor(
            "car_yaw_deg",
            "deg",
            0.0,
            (-30.0, 30.0),
            "heading on the mark; beyond it the target leaves the frame",
        ),
        _factor("target_x_m", "m", 1.6, (0.4, 2.6), _PLACE),
        _factor("target_y_m", "m", 0.0, (-0.9, 0.9), _PLACE),
    ]
    for name, side in (("distractor1", 90.0), ("distractor2", -90.0)):
        factors += [
            _factor(f"{name}_bearing_deg", "deg", side, (-180.0, 180.0), _AROUND),
            _factor(f"{name}_distance_m", "m", 0.5, (0.35, 1.0), _AROUND),
        ]
    factors.append(
        _factor(
            "path_clearance_m",
            "m",
            0.28,
            (0.10, 0.45),
            "how far other cones keep from the straight way to the target; half a car and a cone are 0.15",
        )
    )
    return factors


def _looks() -> list[Factor]:
    return [
        _factor("cone_height_m", "m", 0.18, (0.13, 0.25), _CONE),
        _factor(
            "band_height_m",
            "m",
            0.04,
            (0.01, 0.05),
            "tape, two bands a cone; their order alone tells cones apart, so a band's pixels are the pixels"
            " on target",
        ),
        _factor("target_hue_deg", "deg", 0.0, (-25.0, 25.0), _LOOKS),
        _factor("distractor_hue_deg", "deg", 0.0, (-25.0, 25.0), _LOOKS),
        _factor("cone_hue_deg", "deg", 0.0, (-20.0, 20.0), _LOOKS),
        _factor("floor_grey", "1", 0.55, (0.15, 0.9), _FLOOR),
        _factor("floor_contrast", "1", 0.15, (0.0, 0.5), _FLOOR),
        _factor(
            "floor_turn_deg",
            "deg",
            0.0,
            (-180.0, 180.0),
            "the pattern of the floor has nothing to do with where the mark is",
        ),
        _factor("wall_grey", "1", 0.5, (0.2, 1.0), _LOOKS),
        _factor("light_intensity", "1", 1.0, (0.25, 1.8), _LOOKS),
        _factor("light_warmth", "1", 0.0, (-1.0, 1.0), "-1 is bluish (8,000 K), 1 is yellowish (3,000 K)"),
        _factor("light_azimuth_deg", "deg", 45.0, (-180.0, 180.0), _LOOKS),
        _factor(
            "image_noise",
            "1/255",
            0.0,
            (0.0, 20.0),
            "sensor noise of a 2 Mpx phone-type sensor in room light, standard deviation",
        ),
    ]


def _camera() -> list[Factor]:
    factors = [_factor(f"onboard_camera_d{axis}_m", "m", 0.0, (-0.03, 0.03), _MOUNT) for axis in "xyz"]
    factors += [
        _factor(f"onboard_camera_{axis}_deg", "deg", 0.0, (-12.0, 12.0), _MOUNT)
        for axis in ("pitch", "yaw", "roll")
    ]
    factors.append(
        _factor(
            "onboard_camera_fovy_deg",
            "deg",
            0.0,
            (-8.0, 8.0),
            "lens tolerance, difference from nominal: several degrees between screwed lenses",
        )
    )
    return factors


def _plant() -> list[Factor]:
    return [
        _factor(
            "friction", "1", 0.8, (0.2, 1.4), "rubber on parquet .7-.9, on dusty tiles .3-.5, on carpet 1"
        ),
        _factor("car_mass_kg", "kg", 1.2, (0.7, 2.2), _PLANT + "; another battery or board"),
        _factor("cone_mass_kg", "kg", 0.15, (0.04, 0.5), "empty plastic to one weighted with sand"),
        _factor("motor_gain", "1", 1.0, (0.6, 1.4), _MOTOR),
        _factor(
            "motor_lag_s", "s", 0.15, (0.06, 0.4), "geared toy motors reach 63 % of their speed in .1-.3 s"
        ),
        _factor(
            "throttle_dead_zone",
            "1",
            0.10,
            (0.0, 0.25),
            "share of full voltage that a gearbox takes to turn at all",
        ),
        _factor("drag", "N s/m", 0.4, (0.0, 3.0), "rolling resistance: tiles to carpet"),
        _factor("steering_gain", "1", 1.0, (0.6, 1.4), "end points of the servo set by eye"),
        _factor(
            "steering_offset_deg",
            "deg",
            0.0,
            (-8.0, 8.0),
            "trim: the true centre is not the middle of the end points (donkeycars report +.29 of full"
            " scale); positive turns right",
        ),
        _factor(
            "steering_lag_s", "s", 0.05, (0.02, 0.2), "micro servos settle in .05-.1 s after a small step"
        ),
        _factor(
            "steering_rate_deg_s",
            "deg/s",
            350.0,
            (120.0, 600.0),
            "micro servos: .10-.17 s for 60 deg at 4.8 V, geared 1:1 to the wheels",
        ),
        _factor(
            "action_latency_steps",
            "control steps",
            0.0,
            (0.0, 8.0),
            "camera, Wi-Fi and inference: 0-.4 s on cars that stream MJPEG",
            integer=True,
        ),
    ]


CAR_FACTORS = FactorSpace([*_placement(), *_looks(), *_camera(), *_plant()])

PLACEMENT_FACTORS: tuple[str, ...] = tuple(f.name for f in _placement() if f.name != "path_clearance_m")
"""What an operator sets up and can measure: where the car starts and where the cones stand."""

_NOMINAL: dict[str, Range] = {
    "car_x_m": (-0.02, 0.02),
    "car_y_m": (-0.02, 0.02),
    "car_yaw_deg": (-8.0, 8.0),
    "target_x_m": (1.2, 2.0),
    "target_y_m": (-0.45, 0.45),
    "distractor1_bearing_deg": (-180.0, 180.0),
    "distractor1_distance_m": (0.4, 0.7),
    "distractor2_bearing_deg": (-180.0, 180.0),
    "distractor2_distance_m": (0.4, 0.7),
}
_SHIFTS: dict[str, dict[str, Range]] = {
    "placement": {
        "target_x_m": (1.0, 2.3),
        "target_y_m": (-0.65, 0.65),
        "car_y_m": (-0.1, 0.1),
        "car_yaw_deg": (-12.0, 12.0),
    },
    "clutter": {
        "path_clearance_m": (0.12, 0.28),
        "distractor1_distance_m": (0.35, 0.9),
        "distractor2_distance_m": (0.35, 0.9),
    },
    "sizes": {"cone_height_m": (0.15, 0.22), "band_height_m": (0.03, 0.05)},
    "light": {
        "light_intensity": (0.45, 1.5),
        "light_warmth": (-0.8, 0.8),
        "light_azimuth_deg": (-180.0, 180.0),
        "image_noise": (0.0, 6.0),
    },
    "colour": {
        "target_hue_deg": (-15.0, 15.0),
        "distractor_hue_deg": (-15.0, 15.0),
        "cone_hue_deg": (-10.0, 10.0),
    },
    "floor": {
        "floor_grey": (0.3, 0.75),
        "floor_contrast": (0.0, 0.4),
        "floor_turn_deg": (-180.0, 180.0),
        "wall_grey": (0.3, 0.7),
    },
    "onboard_camera": {
        **{f"onboard_camera_d{a}_m": (-0.01, 0.01) for a in "xyz"},
        **{f"onboard_camera_{a}_deg": (-4.0, 4.0) for a in ("pitch", "yaw", "roll")},
        "onboard_camera_fovy_deg": (-3.0, 3.0),
    },
    "contact": {"friction": (0.45, 1.1), "car_mass_kg": (0.9, 1.6), "cone_mass_kg": (0.08, 0.3)},
    "motor": {
        "motor_gain": (0.85, 1.15),
        "motor_lag_s": (0.1, 0.25),
        "throttle_dead_zone": (0.07, 0.13),
        "drag": (0.2, 1.2),
    },
    "steering": {
        "steering_gain": (0.85, 1.15),
        "steering_offset_deg": (-3.0, 3.0),
        "steering_lag_s": (0.03, 0.1),
        "steering_rate_deg_s": (220.0, 450.0),
    },
    "latency": {"action_latency_steps": (0.0, 3.0)},
}

_WIDE: dict[str, Range] = {
    **{f"onboard_camera_{a}_deg": (-3.0, 3.0) for a in ("pitch", "yaw", "roll")},
    "light_intensity": (0.55, 1.4),
    "light_warmth": (-0.6, 0.6),
    "action_latency_steps": (0.0, 2.0),
}
"""Where training randomises less than the shifted test set moves: the test has to leave the training set."""


def _presets() -> dict[str, FactorRanges]:
    nominal = FactorRanges(_NOMINAL, "nominal")
    everything: dict[str, Range] = {}
    for shift in _SHIFTS.values():
        everything |= shift
    presets = {
        "nominal": nominal,
        "shifted": nominal.override(everything, "shifted"),
        "wide": nominal.override(everything | _WIDE, "wide"),
    }
    for name, shift in _SHIFTS.items():
        presets[f"shifted:{name}"] = nominal.override(shift, f"shifted:{name}")
    return presets


CAR_PRESETS: Mapping[str, FactorRanges] = _presets()
