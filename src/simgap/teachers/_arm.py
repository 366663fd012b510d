"""What the arm's teachers share: bounded steps in joint space, the view from the tool, and a grasp.

Everything is a function of the state alone. Targets lead the measured joints by a bounded angle, so a label
never depends on how the episode got where it is, and it stays defined off the teacher's own path.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simgap.envs.arm import geometry as g
from simgap.envs.arm.env import RATE_HZ, ArmEnv
from simgap.envs.arm.model import KP
from simgap.teachers.base import Abstain, Label

HOVER_Z = 0.048
"""Height of the grasp point above the table while it moves over the cube, m."""
OPEN_PERCENT = 58.0
"""Jaw opening on the way: a 30 mm cube fits, a neighbour 52 mm away is not touched."""
LEAD_DEG = 12.0
"""How far a target may lead the measured angle; with the servo's 0.1 s lag this is 120 deg/s."""
SERVO_LAG_S = 0.1
DESCENT_LEAD_M = 0.022
GAP_M = 0.006
"""Distance kept between the fixed jaw and the cube on the way down."""
CLOSE_M = 0.005
"""Height above the grasp at which the open jaws begin to close."""
TIP_M = g.TIP_Z - g.GRASP_Z
"""How far the fingertips reach below the grasp point."""


class Sight(NamedTuple):
    """A cube as seen from the tool, lengths in m, angles in rad."""

    centre: NDArray[np.float64]
    """World frame, ``(3,)``."""
    half: float
    yaw: float
    """Grasp yaw, about the vertical."""
    turned: float
    """How far the tool is turned against it."""
    is_flat: bool
    """Whether it lies on a face."""
    margin: float
    """Smaller of the gaps to the two jaws; below zero where a jaw would land on it."""
    aside: float
    """Distance of its middle from the middle of the jaws' width."""
    play: float
    """How much wider the jaws are open than it is."""
    height: float
    """Of the grasp point above what the cube lies on, or would lie on if it hangs between the jaws."""
    floor: float
    """Height of that above the table."""
    distance: float
    """Horizontal distance of the grasp point from where it should be."""

    def is_between(self, margin_m: float) -> bool:
        """Return whether the jaws, moved straight down, would have the cube between them by a margin."""
        return self.margin > margin_m and self.aside < ASIDE_M and self.turned < TURNED


ASIDE_M = 0.008
TURNED = math.radians(10.0)


class ArmMotion:
    """Reads the state of one env and turns goals into labels; nothing is ever written to the env."""

    def __init__(self, env: ArmEnv) -> None:
        self.env, self.world = env, env.world
        self._low, self._high = env.action_spec.low[:5], env.action_spec.high[:5]

    def joints_deg(self) -> NDArray[np.float64]:
        """Return the five true joint angles, ``(5,)`` deg."""
        return np.asarray(np.degrees(self.world.data.qpos[:5]))

    def lead_deg(self) -> float:
        """Lead further when commands arrive late or the servos are weak, so that the speed stays the same."""
        delay_s = self.env.factors["action_latency_steps"] / RATE_HZ
        lag_s = SERVO_LAG_S / self.env.factors["actuator_gain"]
        return LEAD_DEG * (lag_s + delay_s) / SERVO_LAG_S

    def towards(self, goal_deg: NDArray[np.float64], gripper: float, lead_deg: float) -> NDArray[np.float32]:
        """Move every joint the same share of the way, the largest by at most ``lead_deg``."""
        return self.by(self.bounded(goal_deg, lead_deg), gripper)

    def bounded(self, goal_deg: NDArray[np.float64], lead_deg: float) -> NDArray[np.float64]:
        """Return the step of every joint in deg, ``(5,)``: the same share of the way for all."""
        step = goal_deg - self.joints_deg()
        largest = float(np.abs(step).max())
        return step * min(1.0, lead_deg / largest) if largest > 0 else step

    def by(self, step_deg: NDArray[np.float64], gripper: float) -> NDArray[np.float32]:
        """Return the action that moves the joints by a step and holds up the arm's weight, ``(6,)``."""
        weight = np.degrees(self.world.gravity_torque() / (KP * self.env.factors["actuator_gain"]))
        arm = np.minimum(
            np.maximum(self.joints_deg() + step_deg + weight + self.world.offset_deg[:5], self._low),
            self._high,
        )
        return np.array([*arm, gripper], dtype=np.float32)

    def tool(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the grasp site's position, ``(3,)`` m, and its axes in the world, ``(3, 3)``: jaw opening, jaw width, along the fingers."""
        data, site = self.world.data, self.world.grasp_site
        return np.asarray(data.site_xpos[site]), np.asarray(data.site_xmat[site].reshape(3, 3))

    def tool_yaw(self) -> float:
        """Return the direction from the moving jaw to the fixed one about the vertical, rad."""
        matrix = self.tool()[1]
        return math.atan2(-matrix[1, 0], -matrix[0, 0])

    def see(self, cube: int) -> Sight:
        """Return where a cube is as seen from the tool."""
        site, tool = self.tool()
        centre, half = self.world.cube_position(cube), self.world.cube_half[cube]
        axes = self.world.data.xmat[self.world.cube_body[cube]].reshape(3, 3)
        flat = int(np.argmin(np.abs(axes[2])))  # a cube on another face is still a cube
        yaw = quarter_turn(math.atan2(axes[1, flat], axes[0, flat]))
        away = centre[:2] - site[:2]
        floor = max(float(centre[2]) - half, 0.0)
        turned = abs(wrap(self.tool_yaw() - yaw))
        width = half * (math.cos(turned) + math.sin(turned))
        opening = g.JAW_HINGE_X + (g.GRASP_Z - g.JAW_HINGE_Z) * math.sin(float(self.world.data.qpos[5]))
        across = float(tool[:2, 0] @ away)
        return Sight(
            centre=centre,
            half=half,
            yaw=yaw,
            turned=turned,
            is_flat=float(np.abs(axes[2]).max()) >= 0.9,
            margin=min(across - width, opening - across - width),
            aside=abs(float(tool[:2, 1] @ away)),
            play=opening - 2 * width,
            height=float(self.world.grasp_point()[2]) - floor,
            floor=floor,
            distance=math.hypot(*(site + tool[:, 0] * (half + GAP_M) - centre)[:2]),
        )

    def is_holding(self, cube: int) -> bool:
        """Return True while both jaws push on a cube with most of the torque that the gripper has."""
        return all(self.world.jaw_contacts(cube)) and self.world.gripper_torque() < -0.25

    def grasp(self, cube: int) -> Label:
        """Return the next action of a grasp: hover over the cube, go down round it, close; abstain where there is no plan."""
        sight = self.see(cube)
        if sight.centre[2] < -0.01:
            return Abstain("the cube fell off the table")
        try:
            return self._grasp(sight)
        except g.Unreachable as reason:
            return Abstain(str(reason))

    def up(self, pose: g.ToolPose) -> NDArray[np.float32]:
        """Rise to a pose with open jaws; where it cannot be reached, lean the upper arm back, which lifts from anywhere."""
        try:
            return self.towards(g.inverse_tilting(pose, 0.011), OPEN_PERCENT, self.lead_deg())
        except g.Unreachable:
            return self.by(np.array([0.0, -self.lead_deg(), 0.0, 0.0, 0.0]), OPEN_PERCENT)

    def _grasp(self, sight: Sight) -> NDArray[np.float32]:
        lead = self.lead_deg()
        point = self.world.grasp_point()
        here = g.ToolPose(float(point[0]), float(point[1]), float(point[2]), self.tool_yaw())
        if not sight.is_flat:  # a jaw stands on the cube: back off and let it fall flat
            return self.up(here._replace(z=HOVER_Z + 0.02))
        grasp_z = max(sight.half, 0.0125)
        goal = g.ToolPose(float(sight.centre[0]), float(sight.centre[1]), sight.floor + grasp_z, sight.yaw)
        clear_z = 2 * sight.half + TIP_M + 0.004
        is_round = sight.height < clear_z - 0.008  # the tips are below the cube's upper face
        if is_round and sight.is_between(-0.003):
            # The further the jaws have closed, the less height matters: noise must not make them open again.
            closed = min(max(1.0 - sight.play / 0.02, 0.0), 1.0)
            if sight.height < grasp_z + CLOSE_M * (1.0 + 2.0 * closed):
                return self.towards(g.inverse_tilting(goal, sight.half + 0.002), 0.0, lead)
        if sight.is_between(
            -0.003 if is_round else 0.001 + 0.002 * min(max((sight.height - clear_z) / 0.01, 0.0), 1.0)
        ):
            pose = goal._replace(
                z=sight.floor + max(grasp_z, sight.height - DESCENT_LEAD_M * lead / LEAD_DEG)
            )
            return self.towards(g.inverse_tilting(pose, sight.half + GAP_M), OPEN_PERCENT, lead)
        if sight.height < clear_z - 0.004 and sight.distance < 0.06:  # beside the cube: up before sideways
            return self.up(here._replace(z=HOVER_Z + 0.01))
        pose = goal._replace(z=sight.floor + min(max(sight.height, clear_z), HOVER_Z))
        return self.towards(g.inverse_tilting(pose, sight.half + GAP_M), OPEN_PERCENT, lead)


def quarter_turn(angle: float) -> float:
    """Return the equivalent grasp yaw of a cube in [-45, 45) deg, rad."""
    return (angle + math.pi / 4) % (math.pi / 2) - math.pi / 4


def wrap(angle: float) -> float:
    """Return an angle in [-pi, pi)."""
    return (angle + math.pi) % (2 * math.pi) - math.pi
