"""Lengths and limits of the SO-101-class arm, and its closed-form kinematics.

Zero pose: upper arm vertical, forearm level and forward, gripper in line with the forearm; angles in
LeRobot's sense (degrees, gripper 0 closed to 100 open). Base frame: x forward, y left, z up, origin on the
table under the pan axis.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simgap.conventions import SO101_JOINTS, ActionSpec, Dimension, StateSpec, Unit

SHOULDER_X = 0.030
"""Pan axis to shoulder axis, m."""
SHOULDER_Z = 0.116
"""Table to shoulder axis, m."""
UPPER_ARM = 0.113
"""Shoulder to elbow axis, m."""
FOREARM = 0.135
"""Elbow to wrist axis, m."""
WRIST_TO_ROLL = 0.050
"""Wrist axis to the gripper frame, m."""
GRASP_Z = 0.084
"""Gripper frame to the grasp point along the fingers, m."""
TIP_Z = 0.094
"""Gripper frame to the fingertips, m."""
JAW_HINGE_X = 0.022
JAW_HINGE_Z = 0.026
"""Hinge of the moving jaw in the gripper frame, m; the fixed jaw's face is the plane x = 0."""
JAW_CLOSED_DEG = -20.0
JAW_OPEN_DEG = 50.0
"""Jaw angle at gripper 0 and at gripper 100; at 0 deg the jaws are parallel, 22 mm apart."""

JOINT_LIMITS_DEG = ((-110.0, 110.0), (-100.0, 100.0), (-97.0, 97.0), (-95.0, 95.0), (-157.0, 163.0))
"""Five arm joints, in the order of ``SO101_JOINTS``."""
HOME_DEG = (0.0, -45.0, 45.0, 75.0, 0.0)
"""Where episodes start: folded back, camera on the table."""
HOME_GRIPPER = 60.0


class ToolPose(NamedTuple):
    """A pose of the gripper pointing straight down."""

    x: float
    """Grasp point, m, base frame."""
    y: float
    z: float
    yaw: float
    """Direction from the moving jaw to the fixed one, rad about the vertical; 0 is along x, away from the base."""


class Unreachable(Exception):
    """No joint angles reach the pose; the text says why."""


def jaw_rad(gripper: float) -> float:
    """Return the jaw angle in rad of a gripper opening in percent."""
    return math.radians(JAW_CLOSED_DEG + (JAW_OPEN_DEG - JAW_CLOSED_DEG) * gripper / 100.0)


def gripper_percent(jaw: float) -> float:
    """Return the gripper opening in percent of a jaw angle in rad."""
    return (math.degrees(jaw) - JAW_CLOSED_DEG) / (JAW_OPEN_DEG - JAW_CLOSED_DEG) * 100.0


def inverse(pose: ToolPose, grasp_x: float, tilt_deg: float = 0.0) -> NDArray[np.float64]:
    """Return the five joint angles in deg that put the grasp point at ``pose``, pointing down.

    The arm is planar once the pan angle is known, so this is two-link trigonometry, exact, elbow up.

    Args:
        pose: wanted pose.
        grasp_x: offset of the grasp point from the roll axis along the jaw's opening direction, m.
        tilt_deg: how far the fingers point outward from straight down; the jaw's opening direction then
            leaves the horizontal by as much.

    Raises:
        Unreachable: too far, too near, or a joint limit.
    """
    axis_x = pose.x + grasp_x * math.cos(pose.yaw)
    axis_y = pose.y + grasp_x * math.sin(pose.yaw)
    tilt, fingers = math.radians(tilt_deg), WRIST_TO_ROLL + GRASP_Z
    pan = math.atan2(axis_y, axis_x)
    reach = math.hypot(axis_x, axis_y) - SHOULDER_X - fingers * math.sin(tilt)
    height = pose.z + fingers * math.cos(tilt) - SHOULDER_Z
    distance = math.hypot(reach, height)
    if not abs(UPPER_ARM - FOREARM) < distance < UPPER_ARM + FOREARM:
        raise Unreachable(
            f"wrist would be {distance:.3f} m from the shoulder, reach is {abs(UPPER_ARM - FOREARM):.3f} to"
            f" {UPPER_ARM + FOREARM:.3f} m"
        )
    to_wrist = math.atan2(reach, height)
    inner = math.acos((UPPER_ARM**2 + distance**2 - FOREARM**2) / (2 * UPPER_ARM * distance))
    outer = math.acos((UPPER_ARM**2 + FOREARM**2 - distance**2) / (2 * UPPER_ARM * FOREARM))
    lift = to_wrist - inner
    elbow = (math.pi - outer) - math.pi / 2
    wrist = math.pi / 2 - tilt - lift - elbow
    roll = _wrap(pan - pose.yaw)
    angles: NDArray[np.float64] = np.degrees(np.array([pan, lift, elbow, wrist, roll]))
    for name, value, (low, high) in zip(SO101_JOINTS, angles, JOINT_LIMITS_DEG, strict=False):
        if not low <= value <= high:
            raise Unreachable(f"{name} would be {value:.1f} deg, limits are {low:g} to {high:g} deg")
    return angles


def inverse_tilting(pose: ToolPose, grasp_x: float, most_deg: float = 12.0) -> NDArray[np.float64]:
    """Return joint angles as :func:`inverse` does, the fingers tilted outward only as far as a pose near the arm's full reach needs.

    Args:
        pose: wanted pose.
        grasp_x: offset of the grasp point from the roll axis, m.
        most_deg: largest tilt; cubes are still grasped by their faces.

    Raises:
        Unreachable: not even with the largest tilt.
    """
    try:
        return inverse(pose, grasp_x)
    except Unreachable:
        angles = inverse(pose, grasp_x, most_deg)
    low, high = 0.0, most_deg
    for _ in range(8):  # to a twentieth of a degree
        middle = (low + high) / 2
        try:
            angles, high = inverse(pose, grasp_x, middle), middle
        except Unreachable:
            low = middle
    return angles


def _wrap(angle: float) -> float:
    return (angle + math.pi) % (2 * math.pi) - math.pi


def action_spec(rate_hz: float) -> ActionSpec:
    """Return the arm's action convention: absolute joint targets in deg, gripper in percent."""
    return ActionSpec(dimensions=_dimensions(), rate_hz=rate_hz)


def state_spec(rate_hz: float) -> StateSpec:
    """Return the arm's state convention: encoder readings in the same units."""
    return StateSpec(dimensions=_dimensions(), rate_hz=rate_hz)


def _dimensions() -> tuple[Dimension, ...]:
    arm = [
        Dimension(name=f"{n}.pos", unit=Unit.DEG, low=low, high=high)
        for n, (low, high) in zip(SO101_JOINTS[:5], JOINT_LIMITS_DEG, strict=True)
    ]
    return (*arm, Dimension(name="gripper.pos", unit=Unit.PERCENT, low=0.0, high=100.0, is_gripper=True))
