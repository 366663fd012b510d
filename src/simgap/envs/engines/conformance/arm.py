"""The arm on two engines: order and sign of joints, limits, droop, inertia, friction, grip."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from simgap.conventions import SO101_JOINTS
from simgap.envs._mujoco import mujoco
from simgap.envs.arm.model import KP, KV
from simgap.envs.arm.world import ArmWorld
from simgap.envs.engines.conformance.arm_grip import ArmProbe, grip_opening, grip_slip, grip_torque, probe_at
from simgap.envs.engines.conformance.base import Measure
from simgap.envs.engines.conformance.bench import STEP_S, G, period
from simgap.provenance import child_rng

JOINTS = SO101_JOINTS
STEP_DEG = 10.0
BEYOND_RAD = 0.3
"""How far past a limit a servo is told to go."""
SLIDE_MPS, SPIN_RAD_S, SLIDE_FRICTION = 0.5, 60.0, 0.3
TABLE_FRICTION, CUBE_FRICTION = 0.5, 0.2
HOLDING_KP = 1000.0
"""Of the servos that hold the arm still while one joint swings, N m/rad."""
HEAVY_KG = 0.08
DROPS = 10
_AWAY = ((-0.12, 0.30), (-0.12, -0.30), (0.45, 0.30))
"""Corners of the table that the arm does not reach."""


def _cleared(probe: ArmProbe, **factors: float) -> ArmWorld:
    """Return a world with the cubes out of the arm's way."""
    world = probe.start(**factors)
    for start, (x, y) in zip(world.cube_qpos, _AWAY, strict=False):
        world.data.qpos[start : start + 2] = x, y
    world.engine.reset()
    return world


def _follows(joint: int) -> Callable[[ArmProbe], float]:
    """Return how far a joint's own reading goes for a command of one unit, less the largest move of any other."""

    def value(probe: ArmProbe) -> float:
        world = _cleared(probe)
        command = world.rest_command()
        world.command(command)
        world.engine.advance(2.0)
        before = world.encoders()
        command[joint] += STEP_DEG
        world.command(command)
        world.engine.advance(2.0)
        moved = (world.encoders() - before) / STEP_DEG
        others = np.abs(np.delete(moved, joint)).max()
        return float(moved[joint] - others)

    return value


def _overshoot(joint: int) -> Callable[[ArmProbe], float]:
    """Return how far a joint goes past its limits when told to, the worse of both ends, deg."""

    def value(probe: ArmProbe) -> float:
        world = _cleared(probe)
        index = int(world.model.joint(JOINTS[joint]).id)
        worst = -math.inf
        for end, limit in zip((-1.0, 1.0), world.model.jnt_range[index], strict=True):
            pose = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 50.0])
            if joint == 1:
                pose[2] = -90.0  # forearm in line with the upper arm, clear of the table both ways
            if joint == 2:
                pose[1] = -100.0 if end > 0 else 90.0
            probe_at(world, pose)
            world.data.qpos[joint] = limit - end * 0.05
            world.data.ctrl[joint] = limit + end * BEYOND_RAD
            world.engine.reset()
            world.engine.advance(1.0)
            worst = max(worst, end * (float(world.data.qpos[joint]) - float(limit)))
        return math.degrees(worst)

    return value


def _droop(joint: int) -> Callable[[ArmProbe], float]:
    """Return how far a joint stays below its command at rest, deg."""

    def value(probe: ArmProbe) -> float:
        world = _cleared(probe)
        world.command(world.rest_command())
        world.engine.advance(3.0)
        return math.degrees(float(world.data.ctrl[joint] - world.data.qpos[joint]))

    return value


def _droop_theory(joint: int) -> Callable[[ArmProbe], float]:
    """Return weight times lever arm over the servo's stiffness, deg, from where the bodies' centres are."""

    def value(probe: ArmProbe) -> float:
        world = _cleared(probe)
        world.command(world.rest_command())
        world.engine.advance(3.0)
        return math.degrees(_lever_torque(world, joint) / KP)

    return value


def _lever_torque(world: ArmWorld, joint: int) -> float:
    """Return the torque about +y that holds everything beyond a joint up at pan 0: minus the sum of weight times lever arm, N m."""
    model, data = world.model, world.data
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    first = int(model.jnt_bodyid[joint])
    beyond = [body for body in range(model.nbody) if first in _chain(model, body)]
    return -float(
        sum(model.body_mass[body] * G * (data.xipos[body, 0] - data.xanchor[joint, 0]) for body in beyond)
    )


def _chain(model: Any, body: int) -> set[int]:
    found = set()
    while body:
        found.add(body)
        body = int(model.body_parentid[body])
    return found


def _gravity(joint: int) -> Callable[[ArmProbe], float]:
    def value(probe: ArmProbe) -> float:
        world = _cleared(probe)
        probe_at(world, [0.0, 20.0, 30.0, 10.0, 0.0, 50.0])
        return float(world.gravity_torque()[joint])

    return value


def _gravity_theory(joint: int) -> Callable[[ArmProbe], float]:
    def value(probe: ArmProbe) -> float:
        world = _cleared(probe)
        probe_at(world, [0.0, 20.0, 30.0, 10.0, 0.0, 50.0])
        return _lever_torque(world, joint)

    return value


SWINGING = 3


def _swing(probe: ArmProbe) -> float:
    """Return the period of the hand swinging from the wrist while all else is held, s."""
    world = _cleared(probe)
    _let_swing(world)
    world.engine.reset()
    return period(world.engine, world.data, SWINGING, limit_s=8.0)


def _let_swing(world: ArmWorld) -> None:
    probe_at(world, [0.0, 0.0, 0.0, 80.0, 0.0, 50.0])  # 10 deg from hanging
    model = world.model
    model.actuator_gainprm[:, 0] = HOLDING_KP
    model.actuator_biasprm[:, 1] = -HOLDING_KP
    model.actuator_gainprm[SWINGING, 0] = model.actuator_biasprm[SWINGING, 1] = model.actuator_biasprm[
        SWINGING, 2
    ] = 0.0
    model.dof_damping[SWINGING] = 0.0


def _swing_theory(probe: ArmProbe) -> float:
    """Return ``2 pi sqrt(I / k) (1 + a^2 / 16)`` with the inertia about the wrist, its servo's included, and the slope of the weight's torque."""
    world = _cleared(probe)
    probe_at(world, [0.0, 0.0, 0.0, 90.0, 0.0, 50.0])
    model, data = world.model, mujoco.MjData(world.model)
    data.qpos[:] = world.data.qpos
    angle, slope = _rest_angle(model, data)
    data.qpos[SWINGING] = angle
    mujoco.mj_forward(model, data)
    inertia = np.empty((model.nv, model.nv))
    mujoco.mj_fullM(model, data, inertia)
    amplitude = math.radians(80.0) - angle
    return 2 * math.pi * math.sqrt(inertia[SWINGING, SWINGING] / slope) * (1 + amplitude**2 / 16)


def _rest_angle(model: Any, data: Any) -> tuple[float, float]:
    """Return where the hand hangs, rad, and the slope of its weight's torque there, N m/rad, by Newton's method."""
    angle, slope = math.radians(90.0), 1.0
    for _ in range(20):
        torques = []
        for at in (angle, angle + 1e-5):
            data.qpos[SWINGING] = at
            mujoco.mj_forward(model, data)
            torques.append(float(data.qfrc_bias[SWINGING]))
        slope = (torques[1] - torques[0]) / 1e-5
        angle -= torques[0] / slope
    return angle, slope


def _rise(joint: int, step: float) -> Callable[[ArmProbe], float]:
    """Return the time until a joint has gone 63 % of a step, ms."""

    def value(probe: ArmProbe) -> float:
        world = _cleared(probe)
        command = world.rest_command()
        world.command(command)
        world.engine.advance(2.0)
        start = float(world.encoders()[joint])
        command[joint] += step
        world.command(command)
        share, before = 0.0, 0.0
        for tick in range(1, 400):
            world.engine.advance(STEP_S)
            before, share = share, (float(world.encoders()[joint]) - start) / step
            if share >= 1 - math.exp(-1):
                return 1e3 * STEP_S * (tick - (share - (1 - math.exp(-1))) / (share - before))
        return math.nan

    return value


def _rise_theory(probe: ArmProbe) -> float:
    """Return the same for ``I q'' + (KV + damping) q' + KP q = KP r`` with the pan's inertia at home, ms."""
    world = _cleared(probe)
    mujoco.mj_forward(world.model, world.data)
    matrix = np.empty((world.model.nv, world.model.nv))
    mujoco.mj_fullM(world.model, world.data, matrix)
    inertia, damping = float(matrix[0, 0]), KV + float(world.model.dof_damping[0])
    root = math.sqrt(damping**2 - 4 * inertia * KP)  # the servo is overdamped: two real poles
    slow, fast = (damping - root) / (2 * inertia), (damping + root) / (2 * inertia)
    time = np.linspace(0.0, 1.0, 100_001)
    response = 1 - (fast * np.exp(-slow * time) - slow * np.exp(-fast * time)) / (fast - slow)
    return 1e3 * float(np.interp(1 - math.exp(-1), response, time))


def _slide(table: float, cube: float) -> Callable[[ArmProbe], float]:
    """Return the deceleration of the sliding target over 0.1 s, m/s^2: from speeds, which no integrator shifts against its positions."""

    def value(probe: ArmProbe) -> float:
        world, dof = _pushed(probe, table, cube, (SLIDE_MPS, 0))
        world.engine.advance(0.1)
        return (SLIDE_MPS - float(world.data.qvel[dof])) / 0.1

    return value


def _spin(probe: ArmProbe) -> float:
    """Return the deceleration of the target spinning on its face over 0.03 s, rad/s^2."""
    world, dof = _pushed(probe, SLIDE_FRICTION, SLIDE_FRICTION, (SPIN_RAD_S, 5))
    world.engine.advance(0.03)
    return (SPIN_RAD_S - float(world.data.qvel[dof + 5])) / 0.03


def _spin_theory(probe: ArmProbe) -> float:
    """Return mu g times 6 x 0.3826 / edge: friction under an even pressure on a square."""
    return 6 * 0.3826 * SLIDE_FRICTION * G / (2 * probe.world.cube_half[0])


def _pushed(probe: ArmProbe, table: float, cube: float, push: tuple[float, int]) -> tuple[ArmWorld, int]:
    """Return a world in which the settled target has just got a velocity, in one degree of freedom, and where its velocity starts."""
    world = _cleared(probe)
    dof = int(world.model.joint(world.scene.cubes[0].name).dofadr[0])
    world.model.geom_friction[world.table, 0] = table
    world.model.geom_friction[world.cube_geom[0], 0] = cube
    world.engine.reset()
    world.engine.advance(0.5)
    world.data.qvel[:] = 0.0
    world.data.qvel[dof + push[1]] = push[0]
    world.engine.reset()
    return world, dof


def _fall(probe: ArmProbe) -> float:
    """Return the speed of a heavy cube after 0.1 s of free fall, m/s."""
    world = _cleared(probe, cube_mass_kg=HEAVY_KG)
    world.data.qpos[world.cube_qpos[0] + 2] += 0.2
    world.data.qvel[:] = 0.0
    world.engine.reset()
    world.engine.advance(0.1)
    return -float(world.data.qvel[int(world.model.joint(world.scene.cubes[0].name).dofadr[0]) + 2])


def _rest_height(probe: ArmProbe) -> float:
    """Return how deep a resting cube sinks in, mm."""
    world = _cleared(probe)
    world.engine.advance(1.0)
    return 1e3 * (world.cube_half[0] - float(world.cube_position(0)[2]))


def _unrest(probe: ArmProbe) -> float:
    """Return the largest speed, m/s or rad/s, that a cube still has 2 s after it fell from 8 cm, over some turns."""
    worst = 0.0
    for turn in range(DROPS):
        world = _cleared(probe)
        start, dof = world.cube_qpos[0], int(world.model.joint(world.scene.cubes[0].name).dofadr[0])
        quaternion = child_rng(turn, "drop").normal(size=4)
        world.data.qpos[start : start + 7] = [0.30, 0.0, 0.08, *(quaternion / np.linalg.norm(quaternion))]
        world.engine.reset()
        world.engine.advance(2.0)
        for _ in range(4):  # a thing that rocks from step to step is still for a moment in each
            world.engine.advance(STEP_S)
            worst = max(worst, float(np.abs(world.data.qvel[dof : dof + 6]).max()))
    return worst


def _joint_measures() -> list[Measure[ArmWorld]]:
    found = []
    for joint, name in enumerate(JOINTS):
        found.append(
            Measure(name=f"order and sign: {name}", unit="1", what="own reading per unit of command, less the largest other", value=_follows(joint),
                    theory=lambda _: 1.0, tolerance=0.12)
        )  # fmt: skip
    for joint, name in enumerate(JOINTS):
        found.append(
            Measure(name=f"limit: {name}", unit="deg", what="overshoot of either limit when told to go 17 deg past it", value=_overshoot(joint),
                    theory=lambda _: 0.0, tolerance=1.0)
        )  # fmt: skip
    for joint in (1, 2, 3):
        found.append(
            Measure(name=f"gravity torque: {JOINTS[joint]}", unit="N m", what="what holds the arm up, stretched out", value=_gravity(joint),
                    theory=_gravity_theory(joint), tolerance=1e-4)
        )  # fmt: skip
    for joint in (1, 2, 3):
        found.append(
            Measure(name=f"droop: {JOINTS[joint]}", unit="deg", what="command less reading at rest at home; torque over stiffness", value=_droop(joint),
                    theory=_droop_theory(joint), tolerance=0.01)
        )  # fmt: skip
    return found


ARM: tuple[Measure[ArmWorld], ...] = (
    *_joint_measures(),
    Measure(name="pendulum: hand", unit="s", what="period of the hand swinging from a free wrist by 10 deg", value=_swing,
            theory=_swing_theory, tolerance=0.01),
    Measure(name="step: shoulder_pan", unit="ms", what="time to 63 % of 10 deg", value=_rise(0, STEP_DEG), theory=_rise_theory, tolerance=5.0),
    Measure(name="step: elbow_flex", unit="ms", what="time to 63 % of 10 deg", value=_rise(2, STEP_DEG), tolerance=5.0),
    Measure(name="step: gripper", unit="ms", what="time to 63 % of closing by 40 %, at the torque limit", value=_rise(5, -40.0), tolerance=8.0),
    Measure(name="free fall", unit="m/s", what="speed of a cube of four times the nominal mass after 0.1 s", value=_fall,
            theory=lambda _: 0.1 * G, tolerance=1e-3),
    Measure(name="slide: cube", unit="m/s^2", what=f"deceleration at friction {SLIDE_FRICTION:g} on both", value=_slide(SLIDE_FRICTION, SLIDE_FRICTION),
            theory=lambda _: SLIDE_FRICTION * G, tolerance=0.1),
    Measure(name="slide: unlike frictions", unit="m/s^2", what=f"deceleration of a cube of friction {CUBE_FRICTION:g} on a table of {TABLE_FRICTION:g}",
            value=_slide(TABLE_FRICTION, CUBE_FRICTION), tolerance=0.1),
    Measure(name="spin: cube", unit="rad/s^2", what="deceleration of a cube spinning on its face", value=_spin, theory=_spin_theory, tolerance=20.0),
    Measure(name="rest: cube", unit="mm", what="how deep a resting cube sinks in", value=_rest_height, theory=lambda _: 0.0, tolerance=0.2),
    Measure(name="rest: dropped cube", unit="m/s, rad/s", what="largest speed 2 s after a fall, over some turns", value=_unrest,
            theory=lambda _: 0.0, tolerance=0.05),
    Measure(name="grip: torque", unit="N m", what="of the gripper's servo, closed on a cube; below zero closes", value=grip_torque,
            theory=lambda p: -float(p.world.model.actuator_forcerange[5, 1]), tolerance=0.01),
    Measure(name="grip: opening", unit="%", what="gripper reading, closed on a cube", value=grip_opening, tolerance=1.5),
    Measure(name="grip: slip", unit="mm/s", what="of a cube that is held up", value=grip_slip, theory=lambda _: 0.0, tolerance=0.2),
)  # fmt: skip
"""What is measured on ``arm-pick``."""
