"""The MuJoCo model of the arm, a table and a few cubes, written with ``MjSpec`` from primitives only."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from simgap.envs._mujoco import mujoco
from simgap.envs.arm import geometry as g
from simgap.envs.arm.scene import PICK_SCENE, ArmScene
from simgap.envs.engines.mjcf import compile_with_source

KP = 20.0
"""Position gain of every joint, N m / rad; with KV it gives the 0.1 s lag that SO-101 recordings show (4-5 frames at 30 fps, less the camera's)."""
KV = 2.0
"""Velocity gain, N m s / rad."""
TORQUE_LIMIT = 2.9
"""Stall torque of an STS3215 servo at 12 V, N m."""
GRIPPER_TORQUE_LIMIT = 0.4
TIMESTEP_S = 0.0025
CONTACT: dict[str, list[float]] = {"solref": [0.01, 1.0], "solimp": [0.95, 0.99, 0.001, 0.5, 2.0]}
"""Contact as stiff as four time steps allow: the jaws press half a millimetre into a cube of 20 g, not the three of MuJoCo's default."""


def build_model(image_size: int, rate_hz: float, scene: ArmScene = PICK_SCENE) -> Any:
    """Return the compiled ``mujoco.MjModel``.

    Args:
        image_size: largest frame that will be rendered, px.
        rate_hz: control rate; the period must be a whole number of time steps.
        scene: what lies on the table.
    """
    substeps = 1.0 / rate_hz / TIMESTEP_S
    if abs(substeps - round(substeps)) > 1e-9:
        raise ValueError(f"control period {1 / rate_hz:g} s is not a whole number of {TIMESTEP_S:g} s steps")
    spec = mujoco.MjSpec()
    spec.option.timestep = TIMESTEP_S
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    spec.option.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
    spec.option.impratio = 10
    visual = spec.visual
    visual.global_.offwidth = visual.global_.offheight = image_size
    visual.quality.offsamples = 0
    visual.quality.numslices = 12
    visual.map.znear, visual.map.zfar = 0.02, 20.0
    visual.headlight.ambient = [0.45, 0.45, 0.45]
    visual.headlight.diffuse = [0.25, 0.25, 0.25]
    visual.headlight.specular = [0, 0, 0]
    world = spec.worldbody
    world.add_light(
        name="lamp",
        pos=[0.3, 0.3, 1.2],
        dir=[-0.2, -0.3, -1.0],
        type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL,
        diffuse=[0.5, 0.5, 0.5],
    )
    box = mujoco.mjtGeom.mjGEOM_BOX
    world.add_geom(
        name="table",
        type=box,
        size=[0.4, 0.4, 0.02],
        pos=[0.2, 0, -0.02],
        rgba=[0.55, 0.55, 0.55, 1],
        friction=[1, 0.005, 0.0001],
        **CONTACT,
    )
    world.add_geom(
        name="floor",
        type=mujoco.mjtGeom.mjGEOM_PLANE,
        size=[3, 3, 0.1],
        pos=[0, 0, -0.7],
        rgba=[0.35, 0.36, 0.38, 1],
        contype=0,
        conaffinity=0,
    )
    world.add_camera(name="front", **_look_at((0.56, 0.0, 0.36), (0.17, 0.0, 0.02)), fovy=38)
    _add_arm(spec)
    for cube in scene.cubes:
        body = world.add_body(name=cube.name, pos=[0.2, 0, 0.012])
        body.add_freejoint(name=cube.name)
        body.add_geom(
            name=cube.name,
            type=box,
            size=[0.012] * 3,
            mass=0.02,
            rgba=[*cube.rgb, 1],
            friction=[1.0, 0.01, 0.001],
            condim=4,
            **CONTACT,
        )
    scene.add(spec)
    return compile_with_source(spec)


def _add_arm(spec: Any) -> None:
    box, cylinder = mujoco.mjtGeom.mjGEOM_BOX, mujoco.mjtGeom.mjGEOM_CYLINDER
    white, dark = [0.92, 0.92, 0.88, 1], [0.12, 0.12, 0.13, 1]
    shell: dict[str, Any] = {"rgba": white, "contype": 2, "conaffinity": 1, **CONTACT}
    base = spec.worldbody.add_body(name="base")
    base.add_geom(type=cylinder, size=[0.04, 0.025, 0], pos=[0, 0, 0.025], mass=0.3, **shell)
    pan = base.add_body(name="shoulder", pos=[0, 0, 0.05])
    _hinge(pan, "shoulder_pan", [0, 0, 1], g.JOINT_LIMITS_DEG[0])
    pan.add_geom(type=box, size=[0.025, 0.025, 0.03], pos=[0.01, 0, 0.03], mass=0.1, **shell)
    upper = pan.add_body(name="upper_arm", pos=[g.SHOULDER_X, 0, g.SHOULDER_Z - 0.05])
    _hinge(upper, "shoulder_lift", [0, 1, 0], g.JOINT_LIMITS_DEG[1])
    upper.add_geom(
        type=box, size=[0.014, 0.018, g.UPPER_ARM / 2], pos=[0, 0, g.UPPER_ARM / 2], mass=0.1, **shell
    )
    quarter = math.sqrt(0.5)
    fore = upper.add_body(name="forearm", pos=[0, 0, g.UPPER_ARM], quat=[quarter, 0, quarter, 0])
    _hinge(fore, "elbow_flex", [0, 1, 0], g.JOINT_LIMITS_DEG[2])
    fore.add_geom(type=box, size=[0.012, 0.016, g.FOREARM / 2], pos=[0, 0, g.FOREARM / 2], mass=0.1, **shell)
    wrist = fore.add_body(name="wrist", pos=[0, 0, g.FOREARM])
    _hinge(wrist, "wrist_flex", [0, 1, 0], g.JOINT_LIMITS_DEG[3])
    wrist.add_geom(
        type=box, size=[0.014, 0.014, 0.022], pos=[0, 0, 0.022], mass=0.06, **(shell | {"rgba": dark})
    )
    hand = wrist.add_body(name="gripper", pos=[0, 0, g.WRIST_TO_ROLL])
    _hinge(hand, "wrist_roll", [0, 0, 1], g.JOINT_LIMITS_DEG[4])
    hand.add_geom(type=box, size=[0.024, 0.014, 0.011], pos=[0.012, 0, 0.011], mass=0.06, **shell)
    pad: dict[str, Any] = {
        "friction": [1.0, 0.01, 0.001],
        "condim": 4,
        "rgba": dark,
        "contype": 2,
        "conaffinity": 1,
        **CONTACT,
    }
    length = (g.TIP_Z - 0.02) / 2
    hand.add_geom(
        name="fixed_jaw",
        type=box,
        size=[0.004, 0.009, length],
        pos=[-0.004, 0, 0.02 + length],
        mass=0.02,
        **pad,
    )
    hand.add_site(name="grasp", pos=[0, 0, g.GRASP_Z], group=4)
    hand.add_camera(
        name="wrist", **_look_at((0.012, -0.062, 0.0), (0.012, 0.0, 0.085), up=(0.0, 0.0, -1.0)), fovy=62
    )
    jaw = hand.add_body(name="moving_jaw", pos=[g.JAW_HINGE_X, 0, g.JAW_HINGE_Z])
    _hinge(jaw, "gripper", [0, 1, 0], (g.JAW_CLOSED_DEG - 2, g.JAW_OPEN_DEG + 2))
    length = (g.TIP_Z - g.JAW_HINGE_Z) / 2
    jaw.add_geom(
        name="moving_jaw", type=box, size=[0.004, 0.009, length], pos=[0.004, 0, length], mass=0.02, **pad
    )
    for name in ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper"):
        limit = GRIPPER_TORQUE_LIMIT if name == "gripper" else TORQUE_LIMIT
        servo = spec.add_actuator(
            name=name,
            target=name,
            trntype=mujoco.mjtTrn.mjTRN_JOINT,
            forcerange=[-limit, limit],
            forcelimited=True,
        )
        servo.set_to_position(kp=KP, kv=KV)


def _hinge(body: Any, name: str, axis: list[float], limits_deg: tuple[float, float]) -> None:
    body.add_joint(
        name=name,
        type=mujoco.mjtJoint.mjJNT_HINGE,
        axis=axis,
        range=list(limits_deg),  # MjSpec reads angles in degrees
        armature=0.01,
        damping=0.05,
        limited=mujoco.mjtLimited.mjLIMITED_TRUE,
    )


def _look_at(
    eye: tuple[float, float, float],
    at: tuple[float, float, float],
    up: tuple[float, float, float] = (0.0, 0.0, 1.0),
) -> dict[str, list[float]]:
    """Return pos and quat of a camera at ``eye`` that looks at ``at``; a MuJoCo camera looks along its -z."""
    back = np.asarray(eye, dtype=float) - np.asarray(at, dtype=float)
    back /= np.linalg.norm(back)
    right = np.cross(up, back)
    right /= np.linalg.norm(right)
    matrix = np.stack([right, np.cross(back, right), back], axis=1)
    quat = np.empty(4)
    mujoco.mju_mat2Quat(quat, matrix.reshape(-1))
    return {"pos": [float(v) for v in eye], "quat": [float(v) for v in quat]}
