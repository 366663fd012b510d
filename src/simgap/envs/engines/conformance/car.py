"""The car on two engines: signs and limits of its commands, speed, lag, turning circle, friction, and cones that fall."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from simgap.envs._mujoco import mujoco
from simgap.envs.car import geometry as g
from simgap.envs.car.world import CarWorld
from simgap.envs.engines.conformance.base import Measure, Probe
from simgap.envs.engines.conformance.bench import G

STEP_S = 0.01
THROTTLE, STEERING = 0.5, 0.5
SLIDE_MPS, SLIDE_S, SLIDE_FRICTION = 2.0, 0.4, 0.4
LEAN_BACK_DEG, LEAN_OVER_DEG = 25.0, 55.0
"""From these a cone rights itself, and falls: its tipping angle is 42 deg."""
_AWAY = ((3.0, 1.8), (3.0, -1.8), (-1.5, -1.8))

CarProbe = Probe[CarWorld]


def _cleared(probe: CarProbe, **factors: float) -> CarWorld:
    """Return a world with the cones out of the car's way."""
    world = probe.start(**factors)
    for index, (x, y) in enumerate(_AWAY):
        start = _cone_qpos(world, index)
        world.data.qpos[start : start + 2] = x, y
    world.engine.reset()
    return world


def _cone_qpos(world: CarWorld, cone: int) -> int:
    body = int(world.model.geom_bodyid[world.cone_geom[cone]])
    return int(world.model.jnt_qposadr[world.model.body_jntadr[body]])


def _cone_dof(world: CarWorld, cone: int) -> int:
    body = int(world.model.geom_bodyid[world.cone_geom[cone]])
    return int(world.model.body_dofadr[body])


def _joint(world: CarWorld, name: str) -> float:
    return float(world.data.qpos[int(world.model.joint(name).qposadr[0])])


def _drive(world: CarWorld, steering: float, throttle: float, seconds: float) -> None:
    world.command(np.array([steering, throttle]))
    world.engine.advance(seconds)


def _speed(throttle: float) -> Callable[[CarProbe], float]:
    def value(probe: CarProbe) -> float:
        world = _cleared(probe)
        _drive(world, 0.0, throttle, 2.0)
        return world.speed()

    return value


def _speed_theory(throttle: float) -> Callable[[CarProbe], float]:
    """Return the speed at which motors and drag balance: ``v0 / (1 + drag lag / mass)``, with ``v0`` the no-load speed."""

    def value(probe: CarProbe) -> float:
        f = probe.env.factor_space.nominal()
        dead = f["throttle_dead_zone"]
        free = math.copysign((abs(throttle) - dead) / (1 - dead), throttle) * g.TOP_SPEED_MPS
        return free / (1 + f["drag"] * f["motor_lag_s"] / g.CAR_MASS_KG)

    return value


def _steered(side: str, command: float) -> Callable[[CarProbe], float]:
    """Return the angle of a front wheel at a steering command, deg, counterclockwise positive."""

    def value(probe: CarProbe) -> float:
        world = _cleared(probe)
        _drive(world, command, 0.0, 1.0)
        return math.degrees(_joint(world, f"steer_{side}"))

    return value


def _steered_theory(side: str, command: float) -> Callable[[CarProbe], float]:
    angles = g.ackermann(-command * math.radians(g.STEERING_LIMIT_DEG))
    return lambda _: math.degrees(angles.left if side == "left" else angles.right)


def _radius(probe: CarProbe) -> float:
    """Return the turning radius of the rear axle at half steering and a walking pace, m, positive to the left."""
    world = _cleared(probe)
    _drive(world, STEERING, 0.3, 1.5)
    path, turned, before = 0.0, 0.0, world.car_pose()
    for _ in range(100):
        world.engine.advance(2 * STEP_S)
        now = world.car_pose()
        path += math.hypot(now.x - before.x, now.y - before.y)
        turned += (now.yaw - before.yaw + math.pi) % (2 * math.pi) - math.pi
        before = now
    return path / turned if turned else math.nan


def _rise(probe: CarProbe) -> float:
    """Return the time until the car has 63 % of its speed after a throttle step, ms."""
    world = _cleared(probe)
    world.command(np.array([0.0, THROTTLE]))
    speeds = [0.0]
    for _ in range(400):
        world.engine.advance(STEP_S)
        speeds.append(world.speed())
    return 1e3 * STEP_S * float(np.interp((1 - math.exp(-1)) * speeds[-1], speeds, np.arange(len(speeds))))


def _rise_theory(probe: CarProbe) -> float:
    """Return mass, with what turns in it, over the slope of motor pull and drag: ``M / (m / lag + drag)``, ms."""
    world = probe.start()
    f = probe.env.factor_space.nominal()
    mass = g.CAR_MASS_KG
    for name in ("rear_left", "rear_right", "front_left", "front_right"):
        joint = world.model.joint(name)
        inertia = float(
            world.model.body_inertia[int(joint.bodyid[0]), 1] + world.model.dof_armature[int(joint.dofadr[0])]
        )
        mass += inertia / g.WHEEL_RADIUS_M**2
    return 1e3 * mass / (g.CAR_MASS_KG / f["motor_lag_s"] + f["drag"])


def _servo_rise(probe: CarProbe) -> float:
    """Return the time until the left front wheel has turned 63 % of a step to full lock, ms."""
    world = _cleared(probe)
    _drive(world, 0.0, 0.3, 1.0)
    world.command(np.array([-1.0, 0.3]))
    angles = [_joint(world, "steer_left")]
    for _ in range(200):
        world.engine.advance(STEP_S)
        angles.append(_joint(world, "steer_left"))
    reached = np.maximum.accumulate(angles)
    return (
        1e3
        * STEP_S
        * float(
            np.interp(
                angles[0] + (1 - math.exp(-1)) * (angles[-1] - angles[0]), reached, np.arange(len(reached))
            )
        )
    )


def _servo_theory(probe: CarProbe) -> float:
    """Return the same for a servo that turns at ``(target - angle) / lag``, but at no more than its rate, ms."""
    f = probe.env.factor_space.nominal()
    step = g.ackermann(math.radians(g.STEERING_LIMIT_DEG)).left
    rate, lag = math.radians(f["steering_rate_deg_s"]), f["steering_lag_s"]
    fast = max(step - rate * lag, 0.0)  # turned at the full rate
    wanted = (1 - math.exp(-1)) * step
    if wanted <= fast:
        return 1e3 * wanted / rate
    return 1e3 * (fast / rate + lag * math.log((step - fast) / (step - wanted)))


def _ride_height(probe: CarProbe) -> float:
    """Return how deep the wheels of the resting car sink in, mm."""
    world = _cleared(probe)
    world.engine.advance(1.0)
    return -1e3 * float(world.data.xpos[int(world.model.body("car").id)][2])


def _locked(probe: CarProbe) -> float:
    """Return the deceleration of the car sliding on wheels that do not turn, m/s^2."""
    world = _cleared(probe, friction=SLIDE_FRICTION)
    for name in ("rear_left", "rear_right", "front_left", "front_right"):
        world.model.dof_damping[int(world.model.joint(name).dofadr[0])] = 100.0
    return _slowed(world, int(world.model.joint("car").dofadr[0]))


def _cone_slide(probe: CarProbe) -> float:
    """Return the deceleration of an upright cone sliding over the floor, m/s^2."""
    world = _cleared(probe, friction=SLIDE_FRICTION)
    return _slowed(world, _cone_dof(world, 0))


def _slowed(world: CarWorld, dof: int) -> float:
    world.engine.reset()
    world.engine.advance(0.5)
    world.data.qvel[:] = 0.0
    world.data.qvel[dof] = -SLIDE_MPS
    world.engine.reset()
    world.engine.advance(SLIDE_S)
    return (SLIDE_MPS + float(world.data.qvel[dof])) / SLIDE_S


def _leaning(lean_deg: float) -> Callable[[CarProbe], float]:
    """Return the tilt of a cone 2 s after it was let go at a lean, on the edge of its foot, deg."""

    def value(probe: CarProbe) -> float:
        world = _cleared(probe)
        start, lean = _cone_qpos(world, 0), math.radians(lean_deg)
        radius = float(world.model.geom_size[world.cone_geom[0], 0])
        world.data.qpos[start + 2] = radius * math.sin(lean)
        world.data.qpos[start + 3 : start + 7] = math.cos(lean / 2), 0.0, math.sin(lean / 2), 0.0
        world.data.qvel[:] = 0.0
        world.engine.reset()
        world.engine.advance(2.0)
        return min(math.degrees(world.cone_tilt(0)), 90.0)

    return value


def _unrest(probe: CarProbe) -> float:
    """Return the largest speed, m/s or rad/s, that a cone still has 3 s after it fell on the edge of its foot, over some leans."""
    worst = 0.0
    for lean in (-20.0, -12.0, 5.0, 16.0, 24.0):
        world = _cleared(probe)
        start, dof, half = _cone_qpos(world, 0), _cone_dof(world, 0), math.radians(lean) / 2
        world.data.qpos[start + 2] += 0.04
        world.data.qpos[start + 3 : start + 7] = math.cos(half), 0.0, math.sin(half), 0.0
        world.engine.reset()
        world.engine.advance(3.0)
        for _ in range(4):
            world.engine.advance(STEP_S)
            worst = max(worst, float(np.abs(world.data.qvel[dof : dof + 6]).max()))
    return worst


def _pushing(probe: CarProbe) -> float:
    """Return the mean speed of the car over a second in which it pushes a cone ahead of it, m/s."""
    world = _cleared(probe)
    start, pose = _cone_qpos(world, 0), world.car_pose()
    world.data.qpos[start : start + 2] = (
        pose.x + g.BUMPER_M + 0.01 + float(world.model.geom_size[world.cone_geom[0], 0]),
        pose.y,
    )
    world.engine.reset()
    _drive(world, 0.0, THROTTLE, 1.0)
    before = world.car_pose().x
    world.engine.advance(1.0)
    return world.car_pose().x - before


def _pushing_theory(probe: CarProbe) -> float:
    """Return the speed at which the motors balance drag and the cone's friction, m/s."""
    f = probe.env.factor_space.nominal()
    slope = g.CAR_MASS_KG / f["motor_lag_s"] + f["drag"]
    return _speed_theory(THROTTLE)(probe) - f["friction"] * f["cone_mass_kg"] * G / slope


def _weight(probe: CarProbe) -> float:
    """Return what holds the car up, N."""
    world = _cleared(probe)
    mujoco.mj_kinematics(world.model, world.data)
    return float(world.engine.bias_torque()[int(world.model.joint("car").dofadr[0]) + 2])


def _zero(_: CarProbe) -> float:
    return 0.0


CAR: tuple[Measure[CarWorld], ...] = (
    Measure(name="order and sign: forward", unit="m/s", what=f"speed at throttle {THROTTLE:g}, where motors and drag balance", value=_speed(THROTTLE),
            theory=_speed_theory(THROTTLE), tolerance=0.01),
    Measure(name="order and sign: backward", unit="m/s", what=f"speed at throttle {-THROTTLE:g}", value=_speed(-THROTTLE),
            theory=_speed_theory(-THROTTLE), tolerance=0.01),
    Measure(name="limit: left wheel, full right", unit="deg", what="Ackermann angle of the outer wheel", value=_steered("left", 1.0),
            theory=_steered_theory("left", 1.0), tolerance=0.3),
    Measure(name="limit: right wheel, full right", unit="deg", what="Ackermann angle of the inner wheel", value=_steered("right", 1.0),
            theory=_steered_theory("right", 1.0), tolerance=0.3),
    Measure(name="limit: left wheel, full left", unit="deg", what="Ackermann angle of the inner wheel", value=_steered("left", -1.0),
            theory=_steered_theory("left", -1.0), tolerance=0.3),
    Measure(name="turning circle", unit="m", what=f"radius of the rear axle's path at steering {STEERING:g}, positive to the left", value=_radius,
            theory=lambda _: -g.WHEELBASE_M / math.tan(math.radians(STEERING * g.STEERING_LIMIT_DEG)), tolerance=0.02),
    Measure(name="gravity: weight", unit="N", what="what holds the car up", value=_weight, theory=lambda _: g.CAR_MASS_KG * G, tolerance=0.01),
    Measure(name="gravity: wheels", unit="mm", what="how deep the wheels sink in at rest", value=_ride_height, theory=_zero, tolerance=0.5),
    Measure(name="step: throttle", unit="ms", what=f"time to 63 % of the speed at throttle {THROTTLE:g}", value=_rise, theory=_rise_theory, tolerance=8.0),
    Measure(name="step: steering", unit="ms", what="time to 63 % of full lock while rolling", value=_servo_rise, theory=_servo_theory, tolerance=8.0),
    Measure(name="slide: locked wheels", unit="m/s^2", what=f"deceleration of the car at friction {SLIDE_FRICTION:g}", value=_locked,
            theory=lambda _: SLIDE_FRICTION * G, tolerance=0.12),
    Measure(name="slide: cone", unit="m/s^2", what=f"deceleration of an upright cone at friction {SLIDE_FRICTION:g}", value=_cone_slide,
            theory=lambda _: SLIDE_FRICTION * G, tolerance=0.16),
    Measure(name="topple: rights itself", unit="deg", what=f"tilt 2 s after a cone was let go at {LEAN_BACK_DEG:g} deg", value=_leaning(LEAN_BACK_DEG),
            theory=_zero, tolerance=1.0),
    Measure(name="topple: falls", unit="deg", what=f"tilt, up to 90, 2 s after a cone was let go at {LEAN_OVER_DEG:g} deg", value=_leaning(LEAN_OVER_DEG),
            theory=lambda _: 90.0, tolerance=1.0),
    Measure(name="rest: dropped cone", unit="m/s, rad/s", what="largest speed 3 s after a fall, over some leans", value=_unrest,
            theory=_zero, tolerance=0.05),
    Measure(name="push: cone", unit="m/s", what="mean speed of a car at throttle 0.5 that pushes a cone ahead of it", value=_pushing,
            theory=_pushing_theory, tolerance=0.02),
)  # fmt: skip
"""What is measured on ``car-goal``."""
