"""The judge of driving to a cone: success or a named failure mode, from privileged state."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from simgap.envs.car.factors import CONES
from simgap.envs.car.layout import FLOOR_X, FLOOR_Y, Spot
from simgap.envs.car.world import CarWorld
from simgap.types import Outcome

STOP_GAP_M = 0.25
"""From the middle of the bumper to the cone's axis, measured with a tape."""
STILL_MPS = 0.05
HOLD_STEPS = 10
"""Control steps the car must stand there, 0.5 s at 20 Hz."""
GIVEN_UP_STEPS = 60
"""Control steps of standing still anywhere else that end an episode, 3 s."""
MOVED_M = 0.10
"""Way from the start that counts as having moved."""
PUSHED_M = 0.01
PUSHED_RAD = math.radians(5.0)
"""A cone that is farther than this from where it stood was hit, even if nothing touches it now."""
GOAL_MODES = ("collision", "wrong_object", "missed", "never_moved", "timeout")
GOAL_JUDGE = f"goal/1: stands within {STOP_GAP_M} m for {HOLD_STEPS} steps, no cone touched"


@dataclass(slots=True)
class GoalJudge:
    """Watches one episode, step by step."""

    still_steps: int = 0
    start: Spot | None = None
    cones: list[Spot] = field(default_factory=list)

    def begin(self, world: CarWorld) -> None:
        """Remember where everything stands before the first command."""
        pose = world.car_pose()
        self.start, self.cones = Spot(pose.x, pose.y), [world.cone_spot(cone) for cone in range(len(CONES))]

    def step(self, world: CarWorld) -> Outcome | None:
        """Look at the world after a control step; an outcome ends the episode."""
        if any(self._hit(world, cone) for cone in range(len(CONES))):
            return Outcome.failure("collision")
        pose = world.car_pose()
        if not (FLOOR_X[0] <= pose.x <= FLOOR_X[1] and FLOOR_Y[0] <= pose.y <= FLOOR_Y[1]):
            return Outcome.failure("missed")
        self.still_steps = self.still_steps + 1 if abs(world.speed()) < STILL_MPS else 0
        if self.still_steps >= HOLD_STEPS:
            nearest = min(range(len(CONES)), key=world.gap)
            if world.gap(nearest) <= STOP_GAP_M:
                return Outcome.success() if nearest == 0 else Outcome.failure("wrong_object")
        if self.still_steps >= GIVEN_UP_STEPS:
            return Outcome.failure("missed" if self._moved(world) else "never_moved")
        return None

    def at_horizon(self, world: CarWorld) -> Outcome:
        """Name the failure of an episode that ran out of time."""
        return Outcome.failure("timeout" if self._moved(world) else "never_moved")

    def _moved(self, world: CarWorld) -> bool:
        pose = world.car_pose()
        return self.start is not None and math.dist(self.start, (pose.x, pose.y)) > MOVED_M

    def _hit(self, world: CarWorld, cone: int) -> bool:
        return (
            world.touched(cone)
            or math.dist(world.cone_spot(cone), self.cones[cone]) > PUSHED_M
            or world.cone_tilt(cone) > PUSHED_RAD
        )
