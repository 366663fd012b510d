"""The privileged solver of ``arm-pass``: out and round the post on the demonstrator's side, then to the pad.

Given the side it is a function of the state alone. Before the post the side decides; beside it the gripper
goes on where it is.
"""

from __future__ import annotations

import math

import numpy as np

from simgap.envs.arm import geometry as g
from simgap.envs.arm.pass_factors import pass_plan
from simgap.envs.arm.passing import ArmPassEnv
from simgap.teachers._arm import LEAD_DEG, ArmMotion
from simgap.teachers.base import Abstain, Label

FINGERS_ALONG_M = 0.019
"""Half length of the closed fingers along the arm, from the gripper point."""
FINGERS_ASIDE_M = 0.009
"""Half width of the fingers across the arm."""
AROUND_M = 0.024
"""Distance kept between fingers and post on the way past."""
RUN_Z = 0.030
"""Height of the gripper point on the way and on the pad."""
AHEAD_M = 0.035
"""How far out the next target lies: less turns earlier."""
LEAD = 0.7
"""Share of the usual lead at which the arm reaches out: 85 deg/s."""
PAN_SHARE = 0.65
"""Share of its way that the pan leads: the farther it has to turn the faster, so that the side is taken first."""


class ArmPassTeacher:
    """Labels states of one :class:`~simgap.envs.arm.passing.ArmPassEnv`."""

    name = "arm-pass round the post/1"

    def __init__(self, env: ArmPassEnv, side: int | None = None) -> None:
        """Read the state of ``env``; nothing is ever written to it.

        Args:
            env: the env.
            side: 0 left, 1 right; the episode's ``demonstrated_side`` by default.
        """
        self._arm, self._env, self._side = ArmMotion(env), env, side

    def label(self) -> Label:
        """Return the next joint targets, ``(6,)`` deg and gripper percent, or abstain with the reason."""
        plan = pass_plan(self._env.factors)
        point = self._arm.world.grasp_point()
        along, aside = plan.along_and_aside(float(point[0]), float(point[1]))
        before = along - plan.post_distance
        touch_along, touch_aside = plan.post_radius + FINGERS_ALONG_M, plan.post_radius + FINGERS_ASIDE_M
        if abs(before) < touch_along and abs(aside) < touch_aside:
            return Abstain("the fingers are at the post")
        sign = self._sign()
        if before > -touch_along - 0.006 and abs(aside) >= touch_aside:
            sign = math.copysign(1.0, aside)
        passing = plan.post_bearing + sign * math.asin((touch_aside + AROUND_M) / plan.post_distance)
        past = _ramp(before, touch_along - 0.004, touch_along + 0.026)
        bearing = passing + (plan.pad_bearing - passing) * past
        lead = self._arm.lead_deg()
        distance = min(plan.pad_distance, max(along, 0.0) + AHEAD_M * lead / LEAD_DEG)
        if before < 0:  # in front of the post there is no way on until there is room beside it
            room = _ramp(sign * aside, touch_aside - 0.006, touch_aside + 0.008)
            stop = plan.post_distance - touch_along + 0.015 - 0.03 * _ramp(-sign * aside, 0.002, 0.012)
            distance = min(distance, stop + room * (plan.pad_distance - stop))
        try:
            goal = g.inverse_tilting(
                g.ToolPose(distance * math.cos(bearing), distance * math.sin(bearing), RUN_Z, bearing), 0.011
            )
        except g.Unreachable as reason:
            return Abstain(str(reason))
        now = self._arm.joints_deg()
        out = self._arm.bounded(np.array([now[0], *goal[1:]]), LEAD * lead)
        out[0] = min(max(min(1.0, PAN_SHARE * lead / LEAD_DEG) * float(goal[0] - now[0]), -lead), lead)
        return self._arm.by(out, 0.0)

    def _sign(self) -> float:
        side = self._env.factors["demonstrated_side"] if self._side is None else self._side
        return 1.0 if side == 0 else -1.0


def _ramp(value: float, low: float, high: float) -> float:
    return min(max((value - low) / (high - low), 0.0), 1.0)


__all__ = ["ArmPassTeacher"]
