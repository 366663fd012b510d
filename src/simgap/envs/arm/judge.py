"""The judges of tasks that grasp: success or a named failure mode, from privileged state."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simgap.envs.arm.bins import HEIGHT_M, INNER_M, OUTER_M
from simgap.envs.arm.world import ArmWorld
from simgap.types import Outcome

LIFT_M = 0.05
"""Height of the target's centre above rest that counts as lifted."""
HOLD_STEPS = 5
"""Control steps it must stay there, 0.25 s at 20 Hz."""
NEAR_M = 0.03
"""Distance of the grasp point to the target that counts as an approach."""
PICK_MODES = ("no_approach", "wrong_object", "missed_grasp", "dropped", "timeout")
PICK_JUDGE = f"pick/1: lifted {LIFT_M} m for {HOLD_STEPS} steps"
PLACE_MODES = ("no_approach", "wrong_object", "missed_grasp", "dropped", "wrong_bin", "missed_bin", "timeout")
PLACE_JUDGE = f"place/1: let go inside the walls of its bin for {HOLD_STEPS} steps"
AT_BIN_M = 0.03
"""Distance to a bin's walls within which a cube that is lost has missed the bin rather than been dropped on the way."""


@dataclass(slots=True)
class PickJudge:
    """Watches one episode, step by step."""

    held_steps: int = 0
    was_near: bool = False
    was_lifted: bool = False

    def step(self, world: ArmWorld) -> Outcome | None:
        """Look at the world after a control step; an outcome ends the episode."""
        target = world.cube_position(0)
        height = float(target[2]) - world.cube_half[0]
        self.was_near |= float(np.linalg.norm(world.grasp_point() - target)) < NEAR_M
        self.was_lifted |= height > 0.4 * LIFT_M
        held = height > LIFT_M and any(world.jaw_contacts(0))
        self.held_steps = self.held_steps + 1 if held else 0
        if self.held_steps >= HOLD_STEPS:
            return Outcome.success()
        for distractor in (1, 2):
            if float(world.cube_position(distractor)[2]) - world.cube_half[distractor] > 0.6 * LIFT_M:
                return Outcome.failure("wrong_object")
        if height < -0.05:
            return Outcome.failure("dropped")
        return None

    def at_horizon(self, world: ArmWorld) -> Outcome:
        """Name the failure of an episode that ran out of time."""
        height = float(world.cube_position(0)[2]) - world.cube_half[0]
        if self.was_lifted:
            return Outcome.failure("dropped" if height < 0.4 * LIFT_M else "timeout")
        return Outcome.failure("missed_grasp" if self.was_near else "no_approach")


@dataclass(slots=True)
class PlaceJudge:
    """Watches one episode of ``arm-place``, step by step."""

    goal_steps: int = 0
    """Control steps for which the target has lain in its bin, let go."""
    other_steps: int = 0
    was_near: bool = False
    was_lifted: bool = False
    was_at_bin: bool = False
    """Whether the target was carried up to a bin."""

    def step(self, world: ArmWorld) -> Outcome | None:
        """Look at the world after a control step; an outcome ends the episode."""
        target = world.cube_position(0)
        height = float(target[2]) - world.cube_half[0]
        self.was_near |= float(np.linalg.norm(world.grasp_point() - target)) < NEAR_M
        self.was_lifted |= height > 0.4 * LIFT_M
        bins = {name: target[:2] - world.fixture_position(name)[:2] for name in ("goal_bin", "other_bin")}
        self.was_at_bin |= (
            height > 0.4 * LIFT_M and min(float(np.abs(d).max()) for d in bins.values()) < OUTER_M + AT_BIN_M
        )
        is_let_go = height < HEIGHT_M and not any(world.jaw_contacts(0))
        self.goal_steps = (
            self.goal_steps + 1 if is_let_go and float(np.abs(bins["goal_bin"]).max()) < INNER_M else 0
        )
        self.other_steps = (
            self.other_steps + 1 if is_let_go and float(np.abs(bins["other_bin"]).max()) < INNER_M else 0
        )
        if self.goal_steps >= HOLD_STEPS:
            return Outcome.success()
        if self.other_steps >= HOLD_STEPS:
            return Outcome.failure("wrong_bin")
        for distractor in (1, 2):
            if float(world.cube_position(distractor)[2]) - world.cube_half[distractor] > 0.6 * LIFT_M:
                return Outcome.failure("wrong_object")
        if height < -0.05:
            return Outcome.failure("missed_bin" if self.was_at_bin else "dropped")
        return None

    def at_horizon(self, world: ArmWorld) -> Outcome:
        """Name the failure of an episode that ran out of time."""
        height = float(world.cube_position(0)[2]) - world.cube_half[0]
        if self.was_lifted:
            lost = "missed_bin" if self.was_at_bin else "dropped"
            return Outcome.failure(lost if height < 0.4 * LIFT_M else "timeout")
        return Outcome.failure("missed_grasp" if self.was_near else "no_approach")
