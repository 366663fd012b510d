"""What lies on the arm's table, as data: the model is built from it and the world puts factors into it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from simgap.envs.arm.factors import CubePose, layout
from simgap.envs.factors import FactorValues


@dataclass(frozen=True, kw_only=True, slots=True)
class Cube:
    """A free cube; its size, yaw and hue are factors of its name."""

    name: str
    rgb: tuple[float, float, float]
    role: str
    """``target`` or ``distractor``."""
    hue_factor: str
    mass_factor: str = "cube_mass_kg"


def nothing(_: Any) -> None:
    """Add or change nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmScene:
    """Cubes, and whatever else a task adds."""

    cubes: tuple[Cube, ...]
    layout: Callable[[FactorValues], list[CubePose]]
    """Where each cube lies, in order."""
    add: Callable[[Any], None] = nothing
    """Adds further bodies to an ``MjSpec``."""
    fixtures: tuple[tuple[str, str], ...] = ()
    """``(body name, role)`` of added bodies that are landmarks: goals and obstacles."""
    apply: Callable[[Any, FactorValues], None] = lambda world, values: None
    """Puts a task's own factors into an :class:`~simgap.envs.arm.world.ArmWorld`."""


PICK_SCENE = ArmScene(
    cubes=(
        Cube(name="target", rgb=(0.85, 0.12, 0.10), role="target", hue_factor="target_hue_deg"),
        Cube(name="distractor1", rgb=(0.12, 0.30, 0.85), role="distractor", hue_factor="distractor_hue_deg"),
        Cube(name="distractor2", rgb=(0.90, 0.75, 0.10), role="distractor", hue_factor="distractor_hue_deg"),
    ),
    layout=layout,
)
"""The red cube and two others."""
