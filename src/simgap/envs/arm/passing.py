"""``arm-pass``: reach the pad behind a post without touching the post; left and right of it are equally good ways.

The test bed of mode collapse: demonstrations go either way by a coin that no camera sees. A policy that
learns their mean drives into the post; one that keeps the modes apart does not. ``info["mode"]`` says which
way an episode went.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.conventions import SO101_JOINTS
from simgap.envs._mujoco import mujoco
from simgap.envs.arm import geometry as g
from simgap.envs.arm.env import NEAR_M, RATE_HZ, ArmEnv, arm_settings
from simgap.envs.arm.model import CONTACT
from simgap.envs.arm.pass_factors import PASS_FACTORS, PASS_PLACEMENT, PASS_PRESETS, pass_plan
from simgap.envs.arm.scene import ArmScene
from simgap.envs.arm.world import ArmWorld
from simgap.envs.engines.base import EngineMaker
from simgap.envs.engines.mujoco import MujocoEngine
from simgap.envs.factors import FactorRanges, FactorValues
from simgap.envs.looks import hue_rgb
from simgap.envs.rendering import FrameRenderer
from simgap.types import Outcome

POST_HEIGHT_M = 0.08
"""Lower than the hand and the forearm of a gripper that reaches past it, higher than its fingers."""
PAD_RADIUS_M = 0.020
ZONE_M = 0.015
"""Distance of the gripper point from the pad's middle that counts as on it."""
ZONE_Z_M = 0.045
"""Height of the gripper point below which it counts as on the pad."""
STAY_STEPS = 5
"""Control steps it must stay there, 0.25 s at 20 Hz."""
PASS_MODES = ("no_approach", "collision", "timeout")
PASS_JUDGE = f"pass/1: gripper point within {ZONE_M} m of the pad for {STAY_STEPS} steps, post untouched"
WAYS = ("left", "right", "over")

_PAD_RGB, _POST_RGB = (0.10, 0.55, 0.20), (0.80, 0.35, 0.05)


def _add(spec: Any) -> None:
    cylinder = mujoco.mjtGeom.mjGEOM_CYLINDER
    pad = spec.worldbody.add_body(name="pad", pos=[0.24, 0.0, 0.0])
    pad.add_geom(
        name="pad",
        type=cylinder,
        size=[PAD_RADIUS_M, 0.001, 0],
        pos=[0, 0, 0.001],
        rgba=[*_PAD_RGB, 1],
        contype=0,
        conaffinity=0,
        mass=0.01,
    )
    post = spec.worldbody.add_body(name="post", pos=[0.168, 0.0, 0.0])
    half = POST_HEIGHT_M / 2
    post.add_geom(
        name="post",
        type=cylinder,
        size=[0.01, half, 0],
        pos=[0, 0, half],
        rgba=[*_POST_RGB, 1],
        mass=0.1,
        friction=[1.0, 0.005, 0.0001],
        **CONTACT,
    )


def _apply(world: ArmWorld, values: FactorValues) -> None:
    plan = pass_plan(values)
    world.place_fixture("pad", *plan.pad)
    world.place_fixture("post", *plan.post)
    (pad,), (post,) = world.fixture_geoms["pad"], world.fixture_geoms["post"]
    world.model.geom_size[post, 0] = plan.post_radius
    world.model.geom_rgba[pad, :3] = hue_rgb(_PAD_RGB, values["pad_hue_deg"])
    world.model.geom_rgba[post, :3] = hue_rgb(_POST_RGB, values["post_hue_deg"])


PASS_SCENE = ArmScene(
    cubes=(),
    layout=lambda values: [],
    add=_add,
    fixtures=(("pad", "target"), ("post", "obstacle")),
    apply=_apply,
)
"""A pad to reach and a post in the way."""


@dataclass(slots=True)
class PassJudge:
    """Watches one episode, step by step."""

    way: str = ""
    """How the gripper point last went past the post; empty before."""
    was_past: bool = False
    stayed_steps: int = 0

    def step(self, world: ArmWorld) -> Outcome | None:
        """Look at the world after a control step; an outcome ends the episode."""
        point, post = world.grasp_point(), world.fixture_position("post")
        self._watch(point, post)
        if world.is_touched("post"):
            return Outcome.failure("collision")
        off = point - world.fixture_position("pad")
        is_there = math.hypot(off[0], off[1]) < ZONE_M and off[2] < ZONE_Z_M
        self.stayed_steps = self.stayed_steps + 1 if is_there else 0
        return Outcome.success() if self.stayed_steps >= STAY_STEPS else None

    def at_horizon(self, world: ArmWorld) -> Outcome:
        """Name the failure of an episode that ran out of time."""
        return Outcome.failure("timeout" if self.way else "no_approach")

    def _watch(self, point: NDArray[np.float64], post: NDArray[np.float64]) -> None:
        """Note on which side the gripper point is when it comes past the post."""
        distance = math.hypot(post[0], post[1])
        along = float(point[:2] @ post[:2]) / distance
        if along > distance and not self.was_past:
            aside = float(point[1] * post[0] - point[0] * post[1]) / distance
            self.way = (
                "over"
                if point[2] - (g.TIP_Z - g.GRASP_Z) > POST_HEIGHT_M
                else "left"
                if aside > 0
                else "right"
            )
        self.was_past = along > distance


class ArmPassEnv(ArmEnv):
    """An SO-101-class arm, a post in the way and a pad behind it."""

    def __init__(
        self,
        *,
        image_size: int = 96,
        ranges: FactorRanges | None = None,
        renderer: FrameRenderer | None = None,
        horizon_steps: int = 80,
        render: bool = True,
        engine: EngineMaker = MujocoEngine,
    ) -> None:
        """Build the model; see :class:`~simgap.envs.arm.env.ArmEnv`."""
        settings = arm_settings(
            name="arm-pass",
            task="reach past the post to the green pad",
            horizon_steps=horizon_steps,
            failure_modes=PASS_MODES,
            judge=PASS_JUDGE,
            factor_space=PASS_FACTORS,
            presets=PASS_PRESETS,
            placement_factors=PASS_PLACEMENT,
            modes=WAYS,
        )
        super().__init__(
            settings,
            PASS_SCENE,
            PassJudge,
            image_size=image_size,
            ranges=ranges,
            renderer=renderer,
            render=render,
            engine=engine,
        )

    def _mode(self) -> str:
        judge = self._judge
        assert isinstance(judge, PassJudge)
        return judge.way

    @property
    def position_tolerance_m(self) -> float:
        """The gripper point has to come this near the pad's middle."""
        return ZONE_M

    def near_target(
        self, values: FactorValues, rng: np.random.Generator
    ) -> tuple[FactorValues, NDArray[np.float32] | None] | None:
        """Return a pose over a point up to 5 cm from the pad, clear of the post."""
        plan = pass_plan(values)
        radius, angle = NEAR_M * math.sqrt(rng.uniform()), rng.uniform(-math.pi, math.pi)
        x, y, z = (
            plan.pad[0] + radius * math.cos(angle),
            plan.pad[1] + radius * math.sin(angle),
            rng.uniform(0.03, 0.06),
        )
        if math.hypot(x - plan.post[0], y - plan.post[1]) < plan.post_radius + 0.03:
            return None
        try:
            joints = g.inverse(g.ToolPose(x, y, z, math.atan2(y, x) + rng.uniform(-0.3, 0.3)), 0.011)
        except g.Unreachable:
            return None
        offset = [values[f"{joint}_zero_offset_deg"] for joint in SO101_JOINTS[:5]]
        return values, np.array([*(joints + offset), 0.0], dtype=np.float32)


__all__ = ["RATE_HZ", "ArmPassEnv"]
