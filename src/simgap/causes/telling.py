"""A check's numbers in words: the joint, camera or factor that is at fault, and by how much."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from statistics import median

from simgap.causes.base import Numbers, Setting

_ALIKE = 0.05
"""A multiplier this close to -1 is a sign and nothing else."""


def joints(numbers: Numbers, _: Setting) -> str:
    """Say how far each joint moves of what it is told."""
    return ", ".join(_joint(name, float(value)) for name, value in numbers.get("broken", {}).items())


def cameras(numbers: Numbers, _: Setting) -> str:
    """Say how far each camera has moved and turned."""
    return ", ".join(_cameras(numbers.get("fitted", {})))


def light(numbers: Numbers, setting: Setting) -> str:
    """Say which fitted values lie farthest from nominal, as a share of their bounds."""
    known = {n: float(v) for n, v in numbers.get("fitted", {}).items() if n in setting.factors}
    factors = setting.factors
    far = sorted(
        known, key=lambda n: -abs(known[n] - factors[n].nominal) / (factors[n].high - factors[n].low)
    )
    if not far:
        return ""
    return "light or colours have changed: " + ", ".join(
        f"{n} {known[n]:.2g} (training {factors[n].nominal:.2g})" for n in far[:3]
    )


def delay(numbers: Numbers, setting: Setting) -> str:
    """Say how much later commands take effect."""
    if "extra_delay_steps" not in numbers:
        return ""
    steps = float(numbers["extra_delay_steps"])
    late_ms = 1000 * steps / setting.rate_hz
    return f"commands take effect {steps:g} control steps ({late_ms:.0f} ms) later than in training"


def stiffness(numbers: Numbers, _: Setting) -> str:
    """Say how stiff the servos are."""
    ratios = numbers.get("stiffness_ratios")
    if not ratios:
        return ""
    return f"the servos are {median(map(float, ratios.values())):.2f} times as stiff as in training"


def outside(numbers: Numbers, setting: Setting) -> str:
    """Say which placements in use lie outside the training set's ranges."""
    said = []
    for name, (low, high) in setting.trained.items():
        seen = [float(p[name]) for p in numbers.get("in_use_placements", ()) if name in p]
        if seen and (min(seen) < low or max(seen) > high):
            said.append(
                f"{name} is {min(seen):.3g} to {max(seen):.3g} in use, {low:.3g} to {high:.3g} in the"
                " training set"
            )
    return ", ".join(said)


def _joint(name: str, value: float) -> str:
    joint = name.split(".")[0]
    if value >= 0:
        return f"{joint} moves {value:.2f} times what it is told"
    turned = f"{joint} moves the opposite way of what it is told"
    return turned if abs(value + 1.0) < _ALIKE else f"{turned}, {-value:.2f} times as far"


def _cameras(fitted: Mapping[str, float]) -> Iterator[str]:
    for camera in sorted({name.split("_camera_")[0] for name in fitted if "_camera_" in name}):
        moved = (float(fitted.get(f"{camera}_camera_d{axis}_m", 0.0)) for axis in "xyz")
        turned = (float(fitted.get(f"{camera}_camera_{axis}_deg", 0.0)) for axis in ("pitch", "yaw", "roll"))
        yield (
            f"the {camera} camera has moved by {1000 * math.hypot(*moved):.0f} mm and turned by"
            f" {math.hypot(*turned):.1f} deg"
        )
