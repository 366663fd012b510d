"""The privileged solver of ``arm-place``: a grasp, then up, over to the bin of the cube's colour, down and open."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from simgap.envs.arm import geometry as g
from simgap.envs.arm.bins import HEIGHT_M, INNER_M, OUTER_M
from simgap.envs.arm.place import ArmPlaceEnv
from simgap.teachers._arm import OPEN_PERCENT, ArmMotion
from simgap.teachers.base import Abstain, Label

CARRY_Z = 0.080
"""Height of the grasp point on the way, m: the lower edge of a 30 mm cube passes 3 cm above the walls."""
DROP_Z = 0.055
"""Height at which the jaws open: the cube's lower edge is a centimetre above the walls, and so are the opening jaws."""
LIFTED_Z = (0.025, 0.055)
"""Below the first the arm only lifts; above the second it only travels; in between it does both."""
CARRY_LEAD = 0.6
"""Share of the usual lead while something is held: 70 deg/s."""
OVER_M = 0.012
"""Distance from the bin's middle within which the cube is let go."""


class ArmPlaceTeacher:
    """Labels states of one :class:`~simgap.envs.arm.place.ArmPlaceEnv`."""

    name = "arm-place waypoints/1"

    def __init__(self, env: ArmPlaceEnv) -> None:
        """Read the state of ``env``; nothing is ever written to it."""
        self._arm = ArmMotion(env)

    def label(self) -> Label:
        """Return the next joint targets, ``(6,)`` deg and gripper percent, or abstain with the reason."""
        world = self._arm.world
        cube, half = world.cube_position(0), world.cube_half[0]
        goal, other = (world.fixture_position(name) for name in ("goal_bin", "other_bin"))
        height = float(cube[2]) - half
        off_goal = float(np.abs(cube[:2] - goal[:2]).max())
        if off_goal < INNER_M and height < HEIGHT_M:
            return self._stay(goal)
        if off_goal < OVER_M and float(world.grasp_point()[2]) < DROP_Z + 0.012:
            return self._stay(goal)
        if self._arm.is_holding(0):
            return self._carry(goal, half)
        for name, bin_m in (("its", goal), ("the other", other)):
            if height < HEIGHT_M and float(np.abs(cube[:2] - bin_m[:2]).max()) < OUTER_M + half:
                return Abstain(f"the cube is at the walls of {name} bin")
        return self._arm.grasp(0)

    def _stay(self, goal: NDArray[np.float64]) -> NDArray[np.float32]:
        """Open over the bin and stay there."""
        return self._arm.towards(_over(goal, DROP_Z), OPEN_PERCENT, self._arm.lead_deg())

    def _carry(self, goal: NDArray[np.float64], half: float) -> NDArray[np.float32]:
        """Lift, travel, and sink over the bin, one passing into the other."""
        arm = self._arm
        point, lead = arm.world.grasp_point(), CARRY_LEAD * arm.lead_deg()
        distance = float(np.abs(arm.world.cube_position(0)[:2] - goal[:2]).max())
        height = DROP_Z + (CARRY_Z - DROP_Z) * _ramp(distance, OVER_M, OVER_M + 0.03)
        travel = arm.bounded(_over(goal, height), lead)
        lift = np.array([0.0, -arm.lead_deg(), 0.0, 0.0, 0.0])
        share = _ramp(float(point[2]) - half, *LIFTED_Z)
        return arm.by(share * travel + (1.0 - share) * lift, 0.0)


def _over(goal: NDArray[np.float64], z: float) -> NDArray[np.float64]:
    """Return the joint angles over a bin's middle with the jaws opening along the arm, ``(5,)`` deg."""
    return g.inverse_tilting(
        g.ToolPose(float(goal[0]), float(goal[1]), z, math.atan2(goal[1], goal[0])), 0.012
    )


def _ramp(value: float, low: float, high: float) -> float:
    return min(max((value - low) / (high - low), 0.0), 1.0)
