"""The privileged solver of ``car-goal``: drive at the target, or at the nearest way past a cone that stands in between, and brake by distance.

It is a function of what a camera can show (where the cones are, as seen from the car) and of the last
command, never of speed, so that a policy that sees one frame can learn it: a label that depended on speed
would be an average to such a policy. Of the plant it heeds only what no fixed rule survives: long delays, for
which it drives more slowly, and a very stiff gearbox.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from simgap.envs.car import geometry as g
from simgap.envs.car.factors import CONES
from simgap.envs.car.goal import RATE_HZ, CarGoalEnv
from simgap.envs.car.judge import PUSHED_RAD
from simgap.envs.car.layout import FLOOR_X, FLOOR_Y, Spot
from simgap.teachers.base import Abstain, Label

STEERING_PER_BEARING = 1.1
"""Wheel angle over the bearing of the aim."""
CRUISE_THROTTLE = 0.5
"""0.53 m/s on the nominal car."""
REST_GAP_M = 0.17
"""Gap at which the nominal car comes to rest: its throttle has fallen to what its gearbox takes to turn at all."""
REST_THROTTLE = 0.10
STICKY_THROTTLE = 0.15
"""A gearbox that takes more than this to turn gets what is missing, or the car would stop too far away."""
THROTTLE_PER_METRE = 1.2
UNHURRIED_S = 0.3
LAG_S = 0.15
"""Where motor lag and latency together pass ``UNHURRIED_S`` the teacher drives and brakes more slowly in proportion, or it would weave and overrun."""
REVERSE_THROTTLE = -0.35
BEHIND_RAD = math.radians(75.0)
"""A target at a larger bearing is not in the frame any more: back off."""
AHEAD_RAD = math.radians(20.0)
"""Backing off ends when the target is this nearly ahead."""
PASS_M = 0.21
"""Way's distance from the axis of a cone that is passed: half a car, a cone, and 6 cm."""
TURN_RADIUS_M = g.WHEELBASE_M / math.tan(math.radians(g.STEERING_LIMIT_DEG))


class CarGoalTeacher:
    """Labels states of one :class:`~simgap.envs.car.goal.CarGoalEnv`."""

    name = "car-goal pursuit/1"

    def __init__(self, env: CarGoalEnv) -> None:
        """Read the state of ``env``; nothing is ever written to it."""
        self._env = env

    def label(self) -> Label:
        """Return the next command, ``(2,)`` steering and throttle, or abstain with the reason."""
        world = self._env.world
        reason = self._hopeless()
        if reason:
            return Abstain(reason)
        pose = world.car_pose()
        target, *others = (pose.local(world.cone_spot(cone)) for cone in range(len(CONES)))
        bearing = math.atan2(target.y, target.x)
        if self._must_back_off(target, bearing):
            if any(-0.5 < cone.x < 0.0 and abs(cone.y) < PASS_M for cone in others):
                return Abstain("the target is out of reach of the steering, and a cone stands behind the car")
            return _command(-math.copysign(math.radians(g.STEERING_LIMIT_DEG), bearing), REVERSE_THROTTLE)
        aim = _aim(target, others)
        factors = self._env.factors
        haste = min(1.0, UNHURRIED_S / (LAG_S + factors["action_latency_steps"] / RATE_HZ))
        rest = REST_THROTTLE + max(
            0.0, factors["throttle_dead_zone"] / factors["motor_gain"] - STICKY_THROTTLE
        )
        cruise = CRUISE_THROTTLE * haste * (1.0 - 0.4 * min(1.0, abs(aim) / math.radians(40.0)))
        return _command(
            STEERING_PER_BEARING * aim,
            min(cruise, rest + THROTTLE_PER_METRE * haste * (world.gap(0) - REST_GAP_M)),
        )

    def _hopeless(self) -> str:
        world = self._env.world
        pose, target = world.car_pose(), world.cone_spot(0)
        for name, x, y in (("car", pose.x, pose.y), ("target", target.x, target.y)):
            if not (FLOOR_X[0] <= x <= FLOOR_X[1] and FLOOR_Y[0] <= y <= FLOOR_Y[1]):
                return f"the {name} is off the floor"
        if any(world.cone_tilt(cone) > PUSHED_RAD for cone in range(len(CONES))):
            return "a cone was knocked over"
        return ""

    def _must_back_off(self, target: Spot, bearing: float) -> bool:
        """Return whether no forward arc reaches the target; while the car is backing off already, until it is nearly ahead."""
        if float(self._env.world.data.userdata[1]) < 0.5 * REVERSE_THROTTLE:
            return abs(bearing) > AHEAD_RAD
        inside = (
            math.hypot(target.x, abs(target.y) - TURN_RADIUS_M)
            < 0.8 * math.hypot(TURN_RADIUS_M, g.BUMPER_M) - 0.12
        )
        return abs(bearing) > BEHIND_RAD or inside


def _aim(target: Spot, others: list[Spot]) -> float:
    """Return the bearing to drive at, rad: the target's, or the nearest to it that passes every cone in between."""
    direct, distance = math.atan2(target.y, target.x), math.hypot(*target)
    near = [cone for cone in others if math.hypot(*cone) < distance and cone.x > -0.1]
    bearings = [direct]
    for cone in near:
        half = math.asin(min(1.0, PASS_M / math.hypot(*cone)))
        bearings += [math.atan2(cone.y, cone.x) + half, math.atan2(cone.y, cone.x) - half]
    free = [b for b in bearings if all(_passes(b, cone) for cone in near)]
    return min(free or bearings, key=lambda b: abs(b - direct))


def _passes(bearing: float, cone: Spot) -> bool:
    along = cone.x * math.cos(bearing) + cone.y * math.sin(bearing)
    across = -cone.x * math.sin(bearing) + cone.y * math.cos(bearing)
    return along < 0.0 or abs(across) > PASS_M - 1e-6


def _command(angle: float, throttle: float) -> NDArray[np.float32]:
    steering = -angle / math.radians(g.STEERING_LIMIT_DEG)  # a positive command is to the right
    return np.array([min(1.0, max(-1.0, steering)), min(1.0, max(-1.0, throttle))], dtype=np.float32)
