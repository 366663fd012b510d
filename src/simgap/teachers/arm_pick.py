"""The privileged solver of ``arm-pick``: hover above the cube, go down round it, close, lift."""

from __future__ import annotations

import numpy as np

from simgap.envs.arm.pick import ArmPickEnv
from simgap.teachers._arm import ArmMotion
from simgap.teachers.base import Label

LIFT_DEG = 30.0


class ArmPickTeacher:
    """Labels states of one :class:`~simgap.envs.arm.pick.ArmPickEnv`."""

    name = "arm-pick waypoints/2"

    def __init__(self, env: ArmPickEnv) -> None:
        """Read the state of ``env``; nothing is ever written to it."""
        self._arm = ArmMotion(env)

    def label(self) -> Label:
        """Return the next joint targets, ``(6,)`` deg and gripper percent, or abstain with the reason."""
        arm = self._arm
        # leaning the upper arm back lifts from anywhere, where a vertical line would meet the wrist's limit
        if arm.is_holding(0):
            return arm.towards(
                arm.joints_deg() - np.array([0.0, LIFT_DEG, 0.0, 0.0, 0.0]), 0.0, 1.25 * arm.lead_deg()
            )
        return arm.grasp(0)
