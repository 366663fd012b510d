"""What is measured on every env: whether the second engine has read the same bodies, masses and frames from the model file."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.envs._mujoco import mujoco
from simgap.envs.engines.conformance.base import Measure, Probe
from simgap.envs.engines.drake import DrakeEngine
from simgap.provenance import child_rng

POSES = 20


def _positions(probe: Probe[Any]) -> NDArray[np.float64]:
    """Return where the engine itself says the bodies are, ``(nbody, 3)`` m."""
    engine, data = probe.world.engine, probe.world.data
    return engine.body_positions() if isinstance(engine, DrakeEngine) else np.array(data.xpos)


def _inertia(probe: Probe[Any]) -> NDArray[np.float64]:
    """Return the engine's own mass matrix with reflected inertias, ``(nv, nv)``, in MuJoCo's order."""
    engine, model, data = probe.world.engine, probe.world.model, probe.world.data
    if isinstance(engine, DrakeEngine):
        return engine.mass_matrix()
    return _mujoco_inertia(model, data)


def _mujoco_inertia(model: Any, data: Any) -> NDArray[np.float64]:
    scratch = mujoco.MjData(model)
    scratch.qpos[:] = data.qpos
    mujoco.mj_forward(model, scratch)
    matrix = np.empty((model.nv, model.nv))
    mujoco.mj_fullM(model, scratch, matrix)
    return matrix


def _scatter(probe: Probe[Any], pose: int) -> None:
    """Put every hinge somewhere within its limits, and every free body somewhere, turned."""
    world, rng = probe.world, child_rng(pose, "conformance")
    model, data = world.model, world.data
    for joint in range(model.njnt):
        start = int(model.jnt_qposadr[joint])
        if model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_FREE:
            quaternion = rng.normal(size=4)
            data.qpos[start : start + 3] = rng.uniform(-1.0, 1.0, 3)
            data.qpos[start + 3 : start + 7] = quaternion / np.linalg.norm(quaternion)
        else:
            low, high = model.jnt_range[joint] if model.jnt_limited[joint] else (-np.pi, np.pi)
            data.qpos[start] = rng.uniform(low, high)
    data.qvel[:] = 0.0
    world.engine.reset()


def _misplaced(probe: Probe[Any]) -> float:
    """Return the largest distance between where the engine and MuJoCo's kinematics put a body, over scattered poses, mm."""
    probe.start()
    worst = 0.0
    for pose in range(POSES):
        _scatter(probe, pose)
        moving = probe.world.model.body_weldid != 0
        worst = max(
            worst, float(np.linalg.norm(_positions(probe) - probe.world.data.xpos, axis=1)[moving].max())
        )
    return 1e3 * worst


def _mismatched(probe: Probe[Any]) -> float:
    """Return the largest difference between the engine's mass matrix and MuJoCo's, of the geometric mean of its diagonal entries, %."""
    probe.start()
    worst = 0.0
    for pose in range(POSES):
        _scatter(probe, pose)
        theirs = _mujoco_inertia(probe.world.model, probe.world.data)
        scale = np.sqrt(np.outer(np.diag(theirs), np.diag(theirs)))
        worst = max(worst, float((np.abs(_inertia(probe) - theirs) / scale).max()))
    return 1e2 * worst


COMMON: tuple[Measure[Any], ...] = (
    Measure(
        name="kinematics: bodies",
        unit="mm",
        what=(
            "largest distance between a body by the engine's own reading of the model and by MuJoCo's, over"
            " scattered poses"
        ),
        value=_misplaced,
        theory=lambda _: 0.0,
        tolerance=0.005,
    ),
    Measure(
        name="inertia: mass matrix",
        unit="%",
        what=(
            "largest difference of the engine's own mass matrix from MuJoCo's, reflected inertias included,"
            " over scattered poses"
        ),
        value=_mismatched,
        theory=lambda _: 0.0,
        tolerance=0.01,
    ),
)
"""Measures of any env."""
