"""Two shallow bins left and right of the arm, as bodies of boxes."""

from __future__ import annotations

from typing import Any, NamedTuple

from simgap.envs._mujoco import mujoco
from simgap.envs.arm.model import CONTACT

INNER_M = 0.036
"""Half inner edge: a 30 mm cube falls in from 2 cm off the middle."""
WALL_M = 0.003
"""Thickness of walls and floor, as printed or folded."""
HEIGHT_M = 0.028
"""Top of the walls above the table: as high as the cubes, so that none rolls out and the gripper need not dive in."""
OUTER_M = INNER_M + WALL_M
CENTRE_X_M = 0.06
CENTRE_Y_M = 0.15
"""Bins stand at ``(x, +-y)``: within reach pointing down, out of the way of a grasp, and whole in the front camera's frame."""


class BinPlace(NamedTuple):
    """Where a bin stands on the table."""

    x: float
    y: float

    def distance(self, x: float, y: float) -> float:
        """Return how far a point is from the bin's outer rectangle, m; 0 inside."""
        dx, dy = max(0.0, abs(x - self.x) - OUTER_M), max(0.0, abs(y - self.y) - OUTER_M)
        return float((dx**2 + dy**2) ** 0.5)

    def contains(self, x: float, y: float, margin_m: float = 0.0) -> bool:
        """Return whether a point is inside the walls by a margin."""
        return max(abs(x - self.x), abs(y - self.y)) < INNER_M - margin_m


def add_bin(spec: Any, name: str, sign: float) -> None:
    """Add a bin to an ``MjSpec``, left (1) or right (-1); where it stands and its colour are set when factors are applied."""
    body = spec.worldbody.add_body(name=name, pos=[CENTRE_X_M, sign * CENTRE_Y_M, 0.0])
    box, half = mujoco.mjtGeom.mjGEOM_BOX, WALL_M / 2
    middle = INNER_M + half
    parts = [((OUTER_M, OUTER_M, half), (0.0, 0.0, half))]
    for sign in (-1.0, 1.0):
        parts.append(((half, OUTER_M, HEIGHT_M / 2), (sign * middle, 0.0, HEIGHT_M / 2)))
        parts.append(((INNER_M, half, HEIGHT_M / 2), (0.0, sign * middle, HEIGHT_M / 2)))
    for index, (size, position) in enumerate(parts):
        body.add_geom(
            name=f"{name}_{index}",
            type=box,
            size=list(size),
            pos=list(position),
            mass=0.02,
            friction=[1.0, 0.005, 0.0001],
            **CONTACT,
        )
