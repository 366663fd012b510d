"""``car-goal``: drive to the cone with the blue band and stop in front of it."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from simgap.envs.base import ObsDict
from simgap.envs.car import geometry as g
from simgap.envs.car.factors import CAR_FACTORS, CAR_PRESETS, PLACEMENT_FACTORS
from simgap.envs.car.judge import GOAL_JUDGE, GOAL_MODES, GoalJudge
from simgap.envs.car.model import build_model
from simgap.envs.car.world import CarWorld
from simgap.envs.engines.base import EngineMaker
from simgap.envs.engines.mujoco import MujocoEngine
from simgap.envs.factors import FactorRanges
from simgap.envs.rendering import FrameRenderer
from simgap.envs.simulated import Judge, SimulatedEnv, TaskSettings

RATE_HZ = 20.0
HORIZON_STEPS = 300
"""15 s."""
SETTLE_STEPS = 2
DART_NOISE = (0.15, 0.06)
"""Of steering and throttle commands: the car weaves by a few centimetres and its speed changes by a tenth."""


class CarGoalEnv(SimulatedEnv[CarWorld]):
    """A 1:14 car with one camera, and three orange cones that differ by a band of coloured tape."""

    def __init__(
        self,
        *,
        image_size: int = 96,
        ranges: FactorRanges | None = None,
        renderer: FrameRenderer | None = None,
        horizon_steps: int = HORIZON_STEPS,
        render: bool = True,
        engine: EngineMaker = MujocoEngine,
        wheel_speed: bool = False,
    ) -> None:
        """Build the model; the GL context opens at the first frame.

        Args:
            image_size: frame height and width, px.
            ranges: what ``reset`` samples from when no factors are given; the ``nominal`` preset by default.
            renderer: a renderer to share with other envs of this process.
            horizon_steps: control steps after which the episode is a failure.
            render: False leaves the frames black: for teachers and plants.
            engine: what moves the world.
            wheel_speed: adds ``wheel.vel`` to the state, for cars with an encoder on the rear axle.
        """
        self._engine_maker, self._wheel_speed = engine, wheel_speed
        settings = TaskSettings(
            name="car-goal",
            task="drive to the cone with the blue band and stop in front of it",
            action_spec=g.action_spec(RATE_HZ),
            state_spec=g.state_spec(RATE_HZ, wheel_speed=wheel_speed),
            cameras=("onboard",),
            horizon_steps=horizon_steps,
            failure_modes=GOAL_MODES,
            judge=GOAL_JUDGE,
            factor_space=CAR_FACTORS,
            presets=CAR_PRESETS,
            placement_factors=PLACEMENT_FACTORS,
            settle_steps=SETTLE_STEPS,
            state_bound=10.0,
        )
        world = CarWorld(build_model(image_size, RATE_HZ), engine, wheel_speed=wheel_speed)
        super().__init__(settings, world, image_size=image_size, ranges=ranges, renderer=renderer, render=render)

    @property
    def dart_noise(self) -> NDArray[np.float64]:
        """Standard deviation of the noise on a teacher's executed commands."""
        return np.array(DART_NOISE)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[ObsDict, dict[str, Any]]:
        """Start an episode; see :class:`~simgap.envs.base.TaskEnv`."""
        started = super().reset(seed=seed, options=options)
        judge = self._judge
        assert isinstance(judge, GoalJudge)
        judge.begin(self.world)
        return started

    def step(self, action: NDArray[np.float32]) -> tuple[ObsDict, float, bool, bool, dict[str, Any]]:
        """Send one steering and throttle command and wait one control period; see :class:`~simgap.envs.simulated.SimulatedEnv`."""
        sent = np.asarray(action, dtype=np.float64)
        if sent.shape == (2,):  # anything else is refused below
            self.world.note_sent(np.clip(sent, self.action_spec.low, self.action_spec.high))
        return super().step(action)

    def _new_judge(self) -> Judge[CarWorld]:
        return GoalJudge()

    def _copy(self, renderer: FrameRenderer | None) -> Self:
        return type(self)(
            image_size=self.image_size,
            ranges=self.ranges,
            renderer=renderer,
            horizon_steps=self.horizon_steps,
            render=self.renders,
            engine=self._engine_maker,
            wheel_speed=self._wheel_speed,
        )
