"""Two textbook machines on any engine: a pendulum and a block on a slope, where theory has the last word."""

from __future__ import annotations

import math
from typing import Any

from scipy.special import ellipk

from simgap.envs._mujoco import mujoco
from simgap.envs.engines.base import Engine, EngineMaker
from simgap.envs.engines.conformance.base import Measure, Probe
from simgap.envs.engines.mjcf import compile_with_source

G = 9.81
STEP_S = 0.005
ROD_M, BOB_KG, BOB_HALF_M = 0.2, 0.1, 0.02
ARMATURE = 0.001
SWING_DEG = 60.0
FRICTION = 0.4
STEEP_DEG, GENTLE_DEG = 35.0, 15.0
"""Of slopes that a block of this friction slides down (friction angle 21.8 deg), and rests on."""


def pendulum_period(probe: Probe[Any]) -> float:
    """Return the period of a pendulum let go at 60 deg, s."""
    data, engine = _build(probe.maker, _pendulum())
    data.qpos[0] = math.radians(SWING_DEG)
    engine.reset()
    return period(engine, data, 0)


def pendulum_theory(_: Probe[Any]) -> float:
    """Return ``4 K(sin(a / 2)) sqrt(I / (m g l))``."""
    inertia = BOB_KG * (2 * BOB_HALF_M) ** 2 / 6 + BOB_KG * ROD_M**2 + ARMATURE
    return float(
        4 * ellipk(math.sin(math.radians(SWING_DEG) / 2) ** 2) * math.sqrt(inertia / (BOB_KG * G * ROD_M))
    )


def period(engine: Engine, data: Any, dof: int, limit_s: float = 12.0) -> float:
    """Return twice the mean time between turning points of a joint, s: they need no knowledge of where it would rest."""
    turns: list[float] = []
    before = float(data.qvel[dof])
    for step in range(1, round(limit_s / STEP_S) + 1):
        engine.advance(STEP_S)
        now = float(data.qvel[dof])
        if before * now < 0.0:
            turns.append(STEP_S * (step - 1 + before / (before - now)))
        before = now if now != 0.0 else before
        if len(turns) == 5:
            break
    return 2 * (turns[-1] - turns[0]) / (len(turns) - 1) if len(turns) > 1 else math.nan


def slope_acceleration(probe: Probe[Any]) -> float:
    """Return the acceleration of a block on a slope steeper than its friction angle, m/s^2."""
    data, engine = _build(probe.maker, _block(STEEP_DEG))
    engine.reset()
    engine.advance(0.1)
    before = float(data.qvel[0])
    engine.advance(0.3)
    return (float(data.qvel[0]) - before) / 0.3


def slope_creep(probe: Probe[Any]) -> float:
    """Return how fast a block creeps down a slope on which it should rest, mm/s."""
    data, engine = _build(probe.maker, _block(GENTLE_DEG))
    engine.reset()
    engine.advance(0.2)
    before = float(data.qpos[0])
    engine.advance(1.0)
    return 1e3 * (float(data.qpos[0]) - before)


def _build(maker: EngineMaker, spec: Any) -> tuple[Any, Engine]:
    model = compile_with_source(spec)
    data = mujoco.MjData(model)
    return data, maker(model, data)


def _spec() -> Any:
    spec = mujoco.MjSpec()
    spec.option.timestep = STEP_S / 2
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    spec.option.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
    spec.option.impratio = 10
    return spec


def _pendulum() -> Any:
    spec = _spec()
    body = spec.worldbody.add_body(name="rod", pos=[0, 0, 1])
    body.add_joint(name="pivot", type=mujoco.mjtJoint.mjJNT_HINGE, axis=[0, 1, 0], armature=ARMATURE)
    body.add_geom(
        name="bob", type=mujoco.mjtGeom.mjGEOM_BOX, size=[BOB_HALF_M] * 3, pos=[0, 0, -ROD_M], mass=BOB_KG
    )
    return spec


def _block(slope_deg: float) -> Any:
    """A slope is a floor under a turned gravity."""
    spec = _spec()
    slope = math.radians(slope_deg)
    spec.option.gravity = [G * math.sin(slope), 0.0, -G * math.cos(slope)]
    friction = [FRICTION, 0.005, 0.0001]
    spec.worldbody.add_geom(
        name="slope", type=mujoco.mjtGeom.mjGEOM_PLANE, size=[5, 5, 0.1], friction=friction
    )
    body = spec.worldbody.add_body(name="block", pos=[0, 0, 0.01])
    body.add_freejoint(name="block")
    body.add_geom(
        name="block", type=mujoco.mjtGeom.mjGEOM_BOX, size=[0.03, 0.03, 0.01], mass=0.1, friction=friction
    )
    return spec


BENCH: tuple[Measure[Any], ...] = (
    Measure(
        name="bench: pendulum period",
        unit="s",
        what=f"a {ROD_M:g} m pendulum with reflected inertia, let go at {SWING_DEG:g} deg",
        value=pendulum_period,
        theory=pendulum_theory,
        tolerance=0.004,
    ),
    Measure(
        name="bench: sliding down a slope",
        unit="m/s^2",
        what=f"a block of friction {FRICTION:g} on {STEEP_DEG:g} deg",
        value=slope_acceleration,
        theory=lambda _: (
            G * (math.sin(math.radians(STEEP_DEG)) - FRICTION * math.cos(math.radians(STEEP_DEG)))
        ),
        tolerance=0.05,
    ),
    Measure(
        name="bench: resting on a slope",
        unit="mm/s",
        what=f"creep of a block of friction {FRICTION:g} on {GENTLE_DEG:g} deg",
        value=slope_creep,
        theory=lambda _: 0.0,
        tolerance=1.0,
    ),
)
"""Measures that need an engine only."""

__all__ = ["BENCH", "STEP_S", "G", "period"]
