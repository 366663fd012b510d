"""The privileged solver of ``arm-pick``: waypoints by closed-form inverse kinematics, chosen from the true state.

It is a function of the state alone: hover above the cube, descend, close, lift. Targets lead the measured joints by a
bounded angle, so a label never depends on how the episode got where it is, and it stays defined off its own path.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from simgap.envs.arm import geometry as g
from simgap.envs.arm.model import KP
from simgap.envs.arm.pick import RATE_HZ, ArmPickEnv
from simgap.teachers.base import Abstain, Label

HOVER_Z = 0.048
"""Height of the grasp point above the table while it moves over the cube, m."""
LIFT_DEG = 30.0
OPEN_PERCENT = 58.0
"""Jaw opening on the way: a 30 mm cube fits, a neighbour 52 mm away is not touched."""
LEAD_DEG = 12.0
"""How far a target may lead the measured angle; with the servo's 0.1 s lag this is 120 deg/s."""
SERVO_LAG_S = 0.1
DESCENT_LEAD_M = 0.022
ALIGNED_M = 0.006
ALIGNED_DEG = 6.0


class ArmPickTeacher:
    """Labels states of one :class:`~simgap.envs.arm.pick.ArmPickEnv`."""

    name = "arm-pick waypoints/1"

    def __init__(self, env: ArmPickEnv) -> None:
        """Read the state of ``env``; nothing is ever written to it."""
        self._env = env

    def label(self) -> Label:
        """Return the next joint targets, ``(6,)`` deg and gripper percent, or abstain with the reason."""
        world = self._env.world
        target = world.cube_position(0)
        half = world.cube_half[0]
        up = world.data.xmat[world.cube_body[0]].reshape(3, 3)
        if target[2] < -0.01:
            return Abstain("the cube fell off the table")
        if all(world.jaw_contacts(0)) and self._gripping():
            return self._raise()
        yaw = _quarter_turn(math.atan2(up[1, _flat_axis(up)], up[0, _flat_axis(up)]))
        try:
            return self._plan(target, half, yaw, up)
        except g.Unreachable as reason:
            return Abstain(str(reason))

    def _plan(self, target: NDArray[np.float64], half: float, yaw: float, up: NDArray[np.float64]) -> NDArray[np.float32]:
        world = self._env.world
        point = world.grasp_point()
        offset = half + 0.002
        grasp_z = max(half, 0.0125)
        if float(np.abs(up[2]).max()) < 0.9:  # a jaw stands on the cube: back off and let it fall flat
            return self._command(g.inverse(g.ToolPose(float(point[0]), float(point[1]), HOVER_Z + 0.02, self._tool_yaw()), 0.011), OPEN_PERCENT, self._lead())
        goal = g.ToolPose(float(target[0]), float(target[1]), grasp_z, yaw)
        above = math.hypot(*(self._jaw_middle(offset)[:2] - target[:2]))
        turned = math.degrees(abs(_wrap(self._tool_yaw() - yaw)))
        if above > ALIGNED_M or turned > ALIGNED_DEG:
            low = point[2] < HOVER_Z - 0.015 and above < 0.06
            pose = g.ToolPose(float(point[0]), float(point[1]), HOVER_Z + 0.01, self._tool_yaw()) if low else goal._replace(z=HOVER_Z)
            return self._command(g.inverse(pose, 0.011 if low else offset), OPEN_PERCENT, self._lead())
        if point[2] > grasp_z + 0.004:
            pose = goal._replace(z=max(grasp_z, float(point[2]) - DESCENT_LEAD_M * self._lead() / LEAD_DEG))
            return self._command(g.inverse(pose, offset), OPEN_PERCENT, self._lead())
        return self._command(g.inverse(goal, offset), 0.0, self._lead())

    def _raise(self) -> NDArray[np.float32]:
        """Lean the upper arm back: that lifts from anywhere, where a straight vertical line would meet the wrist's limit."""
        now = np.degrees(self._env.world.data.qpos[:5])
        return self._command(now - np.array([0.0, LIFT_DEG, 0.0, 0.0, 0.0]), 0.0, 1.25 * self._lead())

    def _command(self, goal_deg: NDArray[np.float64], gripper: float, lead_deg: float) -> NDArray[np.float32]:
        """Move every joint the same share of the way, the largest by at most ``lead_deg``, and hold up the arm's weight."""
        world = self._env.world
        now = np.degrees(world.data.qpos[:5])
        step = goal_deg - now
        largest = float(np.abs(step).max())
        step *= min(1.0, lead_deg / largest) if largest > 0 else 1.0
        gain = KP * self._env.factors["actuator_gain"]
        weight = np.degrees(world.gravity_torque() / gain)
        arm = np.clip(now + step + weight + world.offset_deg[:5], self._env.action_spec.low[:5], self._env.action_spec.high[:5])
        return np.array([*arm, gripper], dtype=np.float32)

    def _lead(self) -> float:
        """Lead further when commands arrive late or the servos are weak, so that the speed stays the same."""
        delay_s = self._env.factors["action_latency_steps"] / RATE_HZ
        lag_s = SERVO_LAG_S / self._env.factors["actuator_gain"]
        return LEAD_DEG * (lag_s + delay_s) / SERVO_LAG_S

    def _gripping(self) -> bool:
        """Return True once the jaw pushes with most of the torque it has."""
        return self._env.world.gripper_torque() < -0.25

    def _tool_yaw(self) -> float:
        matrix = self._env.world.data.site_xmat[self._env.world.grasp_site].reshape(3, 3)
        return math.atan2(-matrix[1, 0], -matrix[0, 0])

    def _jaw_middle(self, offset: float) -> NDArray[np.float64]:
        world = self._env.world
        site = world.grasp_site
        return np.asarray(world.data.site_xpos[site] + world.data.site_xmat[site].reshape(3, 3)[:, 0] * offset)


def _flat_axis(matrix: NDArray[np.float64]) -> int:
    """Return which body axis of a cube lies flattest, so that a cube on another face is still a cube."""
    return int(np.argmin(np.abs(matrix[2])))


def _quarter_turn(angle: float) -> float:
    """Return the equivalent grasp yaw of a cube in [-45, 45) deg."""
    return (angle + math.pi / 4) % (math.pi / 2) - math.pi / 4


def _wrap(angle: float) -> float:
    return (angle + math.pi) % (2 * math.pi) - math.pi
