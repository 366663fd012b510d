"""The broken thing by its name and number, and the correction itself: what a reader wants to know first."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from simgap.diagnosis import Diagnosis
from simgap.envs.factors import FactorRanges, FactorSpace
from simgap.findings import Cause

NAMES: Mapping[Cause, str] = {
    Cause.NONE: "nothing found broken",
    Cause.EVALUATION: "the evaluation",
    Cause.DATA: "the training data",
    Cause.CAMERA_SHIFT: "pixels: a camera has moved",
    Cause.LIGHT_COLOUR: "pixels: light or colours have changed",
    Cause.PIXELS_OTHER: "pixels: something unmodelled is in view",
    Cause.ACTION_SIGN: "convention: the sign of a joint's command",
    Cause.ACTION_SCALE: "convention: the scale of a joint's command",
    Cause.ACTION_CONVENTION: "convention: order, zero or reference of the commands",
    Cause.JOINT_DEAD: "replay: a joint does not follow its command",
    Cause.EXECUTION: "execution of the chunks",
    Cause.ACTION_LATENCY: "plant: commands take effect late",
    Cause.PLANT_GAIN: "plant: servo stiffness",
    Cause.NARROW_DATA: "policy: over-specialised, the training set is narrow",
    Cause.POLICY: "policy: weak on the robot, cause unknown",
}

_ALIKE = 0.05
"""A multiplier this close to -1 is a sign and nothing else."""


def broken_words(
    found: Diagnosis, *, training: FactorRanges, space: FactorSpace, rate_hz: float
) -> str | None:
    """Return what is broken with its joint, camera or factor and its number; None when it cannot be told yet.

    Args:
        found: the diagnosis.
        training: what the training set was sampled from.
        space: factors of the env.
        rate_hz: control rate.
    """
    numbers = found.parameters
    said = ""
    match found.cause:
        case Cause.ACTION_SIGN | Cause.ACTION_SCALE:
            said = ", ".join(_joint(name, float(value)) for name, value in numbers.get("broken", {}).items())
        case Cause.CAMERA_SHIFT:
            said = ", ".join(_cameras(numbers.get("fitted", {})))
        case Cause.LIGHT_COLOUR:
            said = _light(numbers.get("fitted", {}), space)
        case Cause.ACTION_LATENCY if "extra_delay_steps" in numbers:
            steps = float(numbers["extra_delay_steps"])
            said = (
                f"commands take effect {steps:g} control steps ({1000 * steps / rate_hz:.0f} ms) later than"
                " in training"
            )
        case Cause.PLANT_GAIN if numbers.get("stiffness_ratios"):
            said = (
                f"the servos are {float(np.median(list(numbers['stiffness_ratios'].values()))):.2f} times as"
                " stiff as in training"
            )
        case Cause.NARROW_DATA:
            said = ", ".join(_outside(numbers.get("in_use_placements", ()), training))
    return said or NAMES.get(found.cause)


def corrections(found: Diagnosis) -> list[tuple[str, str, str]]:
    """Return (what, as it is, as it has to be) of each command to correct; empty where no convention is at fault."""
    broken = (
        found.parameters.get("broken", {}) if found.cause in (Cause.ACTION_SIGN, Cause.ACTION_SCALE) else {}
    )
    return [
        (f"what is sent to {name}", "command", f"command / {_plain(float(value))}")
        for name, value in broken.items()
    ]


def needs_data(found: Diagnosis) -> bool:
    """Return whether new episodes are the remedy: only then is there anything for `simgap target` to plan."""
    return found.cause in (
        Cause.CAMERA_SHIFT,
        Cause.LIGHT_COLOUR,
        Cause.ACTION_LATENCY,
        Cause.PLANT_GAIN,
        Cause.NARROW_DATA,
    )


def _plain(value: float) -> str:
    return f"{value:.3g}" if value >= 0 else f"({value:.3g})"


def _joint(name: str, value: float) -> str:
    joint = name.split(".")[0]
    if value >= 0:
        return f"{joint} moves {value:.2f} times what it is told"
    turned = f"{joint} moves the opposite way of what it is told"
    return turned if abs(value + 1.0) < _ALIKE else f"{turned}, {-value:.2f} times as far"


def _cameras(fitted: Mapping[str, float]) -> list[str]:
    said = []
    for camera in sorted({name.split("_camera_")[0] for name in fitted if "_camera_" in name}):
        moved_mm = 1000 * math.hypot(
            *(float(fitted.get(f"{camera}_camera_d{axis}_m", 0.0)) for axis in "xyz")
        )
        turned_deg = math.hypot(
            *(float(fitted.get(f"{camera}_camera_{axis}_deg", 0.0)) for axis in ("pitch", "yaw", "roll"))
        )
        said.append(f"the {camera} camera has moved by {moved_mm:.0f} mm and turned by {turned_deg:.1f} deg")
    return said


def _light(fitted: Mapping[str, float], space: FactorSpace) -> str:
    """Return the fitted values that lie farthest from nominal, as a share of their bounds."""
    known = {n: float(v) for n, v in fitted.items() if n in space.factors}
    far = sorted(
        known,
        key=lambda n: (
            -abs(known[n] - space.factors[n].nominal) / (space.factors[n].high - space.factors[n].low)
        ),
    )
    if not far:
        return ""
    return "light or colours have changed: " + ", ".join(
        f"{n} {known[n]:.2g} (training {space.factors[n].nominal:.2g})" for n in far[:3]
    )


def _outside(placements: Any, training: FactorRanges) -> list[str]:
    said = []
    for name, (low, high) in training.ranges.items():
        seen = [float(p[name]) for p in placements if name in p]
        if seen and (min(seen) < low or max(seen) > high):
            said.append(
                f"{name} is {min(seen):.3g} to {max(seen):.3g} in use, {low:.3g} to {high:.3g} in the"
                " training set"
            )
    return said
