"""Closed-form inverse kinematics against MuJoCo's own forward kinematics."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from arm_fixtures import blind
from simgap.conventions import SO101_JOINTS
from simgap.envs._mujoco import mujoco
from simgap.envs.arm import geometry as g

poses = st.builds(
    g.ToolPose,
    st.floats(-0.05, 0.32),
    st.floats(-0.3, 0.3),
    st.floats(0.0, 0.25),
    st.floats(-math.pi, math.pi),
)
WORLD = blind().world


def error_m(angles_deg: NDArray[np.float64], pose: g.ToolPose, grasp_x: float) -> tuple[float, float]:
    """Return how far, in m and rad, MuJoCo puts the gripper from a pose."""
    data = WORLD.data
    data.qpos[:5] = np.radians(angles_deg)
    mujoco.mj_kinematics(WORLD.model, data)
    matrix = data.site_xmat[WORLD.grasp_site].reshape(3, 3)
    point = data.site_xpos[WORLD.grasp_site] + matrix[:, 0] * grasp_x
    wanted = np.array([[-math.cos(pose.yaw), -math.sin(pose.yaw), 0.0], [0.0, 0.0, -1.0]])
    return float(np.linalg.norm(point - np.array(pose[:3]))), float(
        np.abs(matrix[:, [0, 2]].T - wanted).max()
    )


@settings(max_examples=300)
@given(poses, st.floats(0.0, 0.02))
def test_mujoco_puts_the_gripper_where_the_closed_form_says(pose: g.ToolPose, grasp_x: float) -> None:
    try:
        angles = g.inverse(pose, grasp_x)
    except g.Unreachable:
        assume(False)
        raise AssertionError from None
    distance, turn = error_m(angles, pose, grasp_x)
    assert distance < 1e-9
    assert turn < 1e-9
    assert all(low <= a <= high for a, (low, high) in zip(angles, g.JOINT_LIMITS_DEG, strict=True))


def test_most_of_the_table_in_front_of_the_arm_is_reachable() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        pose = g.ToolPose(
            rng.uniform(0.12, 0.25), rng.uniform(-0.14, 0.14), 0.02, rng.uniform(-math.pi / 4, math.pi / 4)
        )
        if math.hypot(pose.x, pose.y) < 0.26:
            g.inverse(pose, 0.013)


def test_the_forward_test_catches_a_planted_wrong_length(monkeypatch: pytest.MonkeyPatch) -> None:
    pose = g.ToolPose(0.2, 0.05, 0.02, 0.3)
    monkeypatch.setattr(g, "FOREARM", g.FOREARM + 1e-6)
    assert error_m(g.inverse(pose, 0.012), pose, 0.012)[0] > 1e-9


@pytest.mark.parametrize(
    "pose", [g.ToolPose(0.6, 0, 0.02, 0), g.ToolPose(0.0, 0.0, 0.5, 0), g.ToolPose(0.031, 0.0, -0.02, 0)]
)
def test_a_pose_out_of_reach_is_refused_with_distance_and_reach_or_the_joint_that_stops_it(
    pose: g.ToolPose,
) -> None:
    with pytest.raises(
        g.Unreachable,
        match=(
            r"wrist would be 0\.\d+ m from the shoulder, reach is 0\.022 to 0\.248 m|would be .* deg,"
            r" limits are"
        ),
    ):
        g.inverse(pose, 0.012)


def test_a_joint_that_stops_the_arm_is_named_with_its_limits() -> None:
    with pytest.raises(g.Unreachable, match=r"shoulder_pan would be .* limits are -110 to 110 deg"):
        g.inverse(g.ToolPose(-0.15, 0.01, 0.02, math.pi), 0.0)


@given(st.floats(-50.0, 150.0))
def test_gripper_percent_and_jaw_angle_undo_each_other(percent: float) -> None:
    assert g.gripper_percent(g.jaw_rad(percent)) == pytest.approx(percent, abs=1e-9)


def test_the_model_has_the_joints_and_limits_of_the_convention() -> None:
    spec = g.action_spec(20.0)
    for joint, dimension in zip(SO101_JOINTS[:5], spec.dimensions, strict=False):
        low, high = np.degrees(WORLD.model.joint(joint).range)
        assert (low, high) == pytest.approx((dimension.low, dimension.high))
    assert spec.names == tuple(f"{j}.pos" for j in SO101_JOINTS)
    assert list(spec.gripper_mask) == [False] * 5 + [True]


@settings(max_examples=150)
@given(st.floats(0.15, 0.27), st.floats(-0.1, 0.1), st.floats(0.01, 0.06), st.floats(1.0, 12.0))
def test_a_tilt_leans_the_fingers_outward_by_exactly_that_about_the_grasp_point(
    x: float, y: float, z: float, tilt_deg: float
) -> None:
    pose = g.ToolPose(x, y, z, math.atan2(y, x))
    try:
        angles = g.inverse(pose, 0.0, tilt_deg)
    except g.Unreachable:
        assume(False)
        raise AssertionError from None
    distance, _ = error_m(angles, pose, 0.0)
    fingers = WORLD.data.site_xmat[WORLD.grasp_site].reshape(3, 3)[:, 2]
    assert distance < 1e-9
    assert math.degrees(math.acos(-fingers[2])) == pytest.approx(tilt_deg, abs=1e-6)
    assert fingers[:2] @ [x, y] > 0


def test_the_fingers_tilt_only_where_they_have_to_and_then_as_little_as_possible() -> None:
    near, far = g.ToolPose(0.18, 0.0, 0.048, 0.0), g.ToolPose(0.222, 0.118, 0.048, 0.0)
    assert np.array_equal(g.inverse_tilting(near, 0.017), g.inverse(near, 0.017))
    with pytest.raises(g.Unreachable):
        g.inverse(far, 0.017)
    angles = g.inverse_tilting(far, 0.017)
    tilt_deg = 90.0 - float(angles[1:4].sum())
    assert 0.0 < tilt_deg < 12.0
    with pytest.raises(g.Unreachable):
        g.inverse(far, 0.017, tilt_deg - 0.1)
    with pytest.raises(g.Unreachable):
        g.inverse_tilting(g.ToolPose(0.6, 0.0, 0.02, 0.0), 0.012)
