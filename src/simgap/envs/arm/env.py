"""What the arm tasks share: rate, conventions, model and world."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from simgap.conventions import SO101_JOINTS
from simgap.envs.arm import geometry as g
from simgap.envs.arm.model import build_model
from simgap.envs.arm.scene import ArmScene
from simgap.envs.arm.world import ArmWorld
from simgap.envs.contracts import Judge, TaskSettings
from simgap.envs.engines.base import EngineMaker
from simgap.envs.engines.mujoco import MujocoEngine
from simgap.envs.factors import FactorRanges, FactorSpace, FactorValues
from simgap.envs.rendering import FrameRenderer
from simgap.envs.simulated import SimulatedEnv

RATE_HZ = 20.0
SETTLE_STEPS = 2
CAMERAS = ("front", "wrist")
NEAR_M = 0.05
"""Radius round the target in which a probe's near poses lie."""

JudgeMaker = Callable[[], Judge[ArmWorld]]


def arm_settings(
    *,
    name: str,
    task: str,
    horizon_steps: int,
    failure_modes: tuple[str, ...],
    judge: str,
    factor_space: FactorSpace,
    presets: Mapping[str, FactorRanges],
    placement_factors: tuple[str, ...],
    instruction: Callable[[FactorValues], str] | None = None,
    modes: tuple[str, ...] = (),
) -> TaskSettings:
    """Return the settings of an arm task: SO-101 conventions at 20 Hz, a front and a wrist camera."""
    return TaskSettings(
        name=name,
        task=task,
        action_spec=g.action_spec(RATE_HZ),
        state_spec=g.state_spec(RATE_HZ),
        cameras=CAMERAS,
        horizon_steps=horizon_steps,
        failure_modes=failure_modes,
        judge=judge,
        factor_space=factor_space,
        presets=presets,
        placement_factors=placement_factors,
        settle_steps=SETTLE_STEPS,
        state_bound=360.0,
        instruction=instruction,
        modes=modes,
    )


class ArmEnv(SimulatedEnv[ArmWorld]):
    """An SO-101-class arm at a table with something on it."""

    def __init__(
        self,
        settings: TaskSettings,
        scene: ArmScene,
        judge: JudgeMaker,
        *,
        image_size: int = 96,
        ranges: FactorRanges | None = None,
        renderer: FrameRenderer | None = None,
        render: bool = True,
        engine: EngineMaker = MujocoEngine,
    ) -> None:
        """Build the model; see :class:`~simgap.envs.simulated.SimulatedEnv`.

        Args:
            settings: the task.
            scene: what lies on the table.
            judge: maker of a fresh judge.
            image_size: frame height and width, px.
            ranges: what ``reset`` samples from.
            renderer: a renderer to share.
            render: whether to draw.
            engine: what moves the world.
        """
        self._scene, self._judge_maker, self._engine_maker = scene, judge, engine
        world = ArmWorld(build_model(image_size, RATE_HZ, scene), scene, engine)
        super().__init__(
            settings, world, image_size=image_size, ranges=ranges, renderer=renderer, render=render
        )

    def _new_judge(self) -> Judge[ArmWorld]:
        return self._judge_maker()

    def _copy(self, renderer: FrameRenderer | None) -> Self:
        return type(self)(**self._arguments(), renderer=renderer)

    def _arguments(self) -> dict[str, Any]:
        """Return what a subclass's constructor takes to make this env again."""
        return {
            "image_size": self.image_size,
            "ranges": self.ranges,
            "horizon_steps": self.horizon_steps,
            "render": self.renders,
            "engine": self._engine_maker,
        }

    @property
    def position_tolerance_m(self) -> float:
        """The open jaws leave this much on either side of a cube of nominal size."""
        return 0.008

    def target_offset(self, point_m: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return a point from the grasp point, in base axes, ``(2,)`` m."""
        return np.asarray(point_m[:2] - self.world.grasp_point()[:2])

    def near_target(
        self, values: FactorValues, rng: np.random.Generator
    ) -> tuple[FactorValues, NDArray[np.float32] | None] | None:
        """Return a pose that hovers over a point up to 5 cm from the first cube, turned by up to 25 deg against it."""
        cube = self._scene.layout(values)[0]
        radius, angle = NEAR_M * math.sqrt(rng.uniform()), rng.uniform(-math.pi, math.pi)
        pose = g.ToolPose(
            cube.x + radius * math.cos(angle),
            cube.y + radius * math.sin(angle),
            rng.uniform(0.04, 0.07),
            cube.yaw + rng.uniform(-0.44, 0.44),
        )
        try:
            joints = g.inverse(pose, 0.011)
        except g.Unreachable:
            return None
        offset = [values[f"{joint}_zero_offset_deg"] for joint in SO101_JOINTS[:5]]
        return values, np.array([*(joints + offset), 58.0], dtype=np.float32)
