"""The teacher's closed-form inverse kinematics against mink's differential IK on the same poses: how exact, how long.

Both are asked for the same random reachable poses of the gripper pointing down; MuJoCo's forward kinematics
judges. mink starts from the arm's home pose and steps until it is within the tolerance or out of steps.

    python benchmarks/ik.py --poses 200
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import dataclass
from typing import Any

import mink
import numpy as np
from numpy.typing import NDArray

from simgap.envs._mujoco import mujoco
from simgap.envs.arm import geometry as g
from simgap.envs.arm.model import build_model

TOLERANCE_M = 1e-6
MAX_STEPS = 200


@dataclass(frozen=True, slots=True)
class Row:
    """What one solver did on one pose."""

    error_m: float
    error_rad: float
    time_s: float
    steps: int


def main() -> None:
    """Print both solvers' accuracy and time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--poses", type=int, default=200)
    parser.add_argument("--solver", default="daqp", help="mink's QP solver")
    options = parser.parse_args()
    model = build_model(96, 20.0)
    poses = _reachable(np.random.default_rng(0), options.poses)
    closed, differential = [], []
    for pose in poses:  # the two alternate, so that a busy machine slows both
        closed.append(_closed_form(model, pose))
        differential.append(_mink(model, pose, options.solver))
    print(
        f"{len(poses)} reachable poses of the pointing-down gripper; mink from home, {options.solver}, until"
        f" {TOLERANCE_M:g} m or {MAX_STEPS} steps"
    )
    for name, rows in (("closed form", closed), ("mink", differential)):
        metres, radians, times = (
            np.array([getattr(r, k) for r in rows]) for k in ("error_m", "error_rad", "time_s")
        )
        solved = int((metres < TOLERANCE_M).sum())
        print(
            f"{name:12s} within {TOLERANCE_M:g} m: {solved}/{len(rows)}   worst {metres.max():.1e} m"
            f" {radians.max():.1e} rad   median {1e6 * np.median(times):7.1f} us,"
            f" {np.median([r.steps for r in rows]):.0f} steps"
        )
    print(
        "mink takes"
        f" {np.median([m.time_s for m in differential]) / np.median([c.time_s for c in closed]):.0f} times as"
        " long"
    )


def _reachable(rng: np.random.Generator, count: int) -> list[g.ToolPose]:
    poses: list[g.ToolPose] = []
    while len(poses) < count:
        pose = g.ToolPose(
            rng.uniform(0.10, 0.28),
            rng.uniform(-0.16, 0.16),
            rng.uniform(0.01, 0.12),
            rng.uniform(-math.pi / 4, math.pi / 4),
        )
        try:
            g.inverse(pose, 0.0)
        except g.Unreachable:
            continue
        poses.append(pose)
    return poses


def _rotation(pose: g.ToolPose) -> NDArray[np.float64]:
    x = np.array([-math.cos(pose.yaw), -math.sin(pose.yaw), 0.0])
    z = np.array([0.0, 0.0, -1.0])
    return np.stack([x, np.cross(z, x), z], axis=1)


def _error(model: Any, q: NDArray[np.float64], pose: g.ToolPose) -> tuple[float, float]:
    data = mujoco.MjData(model)
    data.qpos[:5] = q
    mujoco.mj_kinematics(model, data)
    site = model.site("grasp").id
    turn = _rotation(pose).T @ data.site_xmat[site].reshape(3, 3)
    return float(np.linalg.norm(data.site_xpos[site] - pose[:3])), 2 * math.asin(
        min(1.0, float(np.linalg.norm(turn - np.eye(3))) / math.sqrt(8))
    )


def _closed_form(model: Any, pose: g.ToolPose) -> Row:
    began = time.perf_counter()
    angles = g.inverse(pose, 0.0)
    took = time.perf_counter() - began
    return Row(*_error(model, np.radians(angles), pose), took, 1)


def _mink(model: Any, pose: g.ToolPose, solver: str) -> Row:
    began = time.perf_counter()
    configuration = mink.Configuration(model)
    q = configuration.q.copy()
    q[:5] = np.radians(g.HOME_DEG)
    configuration.update(q)
    task = mink.FrameTask("grasp", "site", position_cost=1.0, orientation_cost=0.1, lm_damping=1e-6)
    matrix = np.eye(4)
    matrix[:3, :3], matrix[:3, 3] = _rotation(pose), pose[:3]
    task.set_target(mink.SE3.from_matrix(matrix))
    limits = [mink.ConfigurationLimit(model)]
    steps = 0
    while steps < MAX_STEPS and float(np.linalg.norm(task.compute_error(configuration)[:3])) > TOLERANCE_M:
        configuration.integrate_inplace(
            mink.solve_ik(configuration, [task], 1.0, solver, damping=1e-9, limits=limits), 1.0
        )
        steps += 1
    took = time.perf_counter() - began
    return Row(*_error(model, configuration.q[:5].copy(), pose), took, steps)


if __name__ == "__main__":
    main()
