"""``car-goal``: drive to the cone whose upper band is blue and stop in front of it."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from simgap.envs.base import ObsDict
from simgap.envs.car import geometry as g
from simgap.envs.car.factors import CAR_FACTORS, CAR_PRESETS, PLACEMENT_FACTORS
from simgap.envs.car.judge import GOAL_JUDGE, GOAL_MODES, STOP_GAP_M, GoalJudge
from simgap.envs.car.layout import Spot
from simgap.envs.car.model import CONE_CONTACT_RADIUS_M, build_model
from simgap.envs.car.world import CarWorld
from simgap.envs.contracts import Judge, TaskSettings
from simgap.envs.engines.base import EngineMaker
from simgap.envs.engines.mujoco import MujocoEngine
from simgap.envs.factors import FactorRanges, FactorValues
from simgap.envs.rendering import FrameRenderer
from simgap.envs.simulated import SimulatedEnv

RATE_HZ = 20.0
HORIZON_STEPS = 300
"""15 s."""
SETTLE_STEPS = 2
NEAR_M = (0.5, 0.75)
DART_NOISE = (0.15, 0.05)
"""Of steering and throttle commands: the car weaves by a few centimetres and its speed changes by a tenth."""


class CarGoalEnv(SimulatedEnv[CarWorld]):
    """A 1:14 car with one camera, and three orange cones that differ by the order of two bands of tape."""

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
            task="drive to the cone with the blue band on top and stop in front of it",
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
        super().__init__(
            settings, world, image_size=image_size, ranges=ranges, renderer=renderer, render=render
        )

    @property
    def dart_noise(self) -> NDArray[np.float64]:
        """Standard deviation of the noise on a teacher's executed commands."""
        return np.array(DART_NOISE)

    @property
    def position_tolerance_m(self) -> float:
        """Half of what is left between touching the cone and standing too far from it."""
        return 0.5 * (STOP_GAP_M - CONE_CONTACT_RADIUS_M)

    def target_offset(self, point_m: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return a point from the middle of the bumper in the car's axes, ``(2,)`` m: ahead, left."""
        ahead = self.world.car_pose().local(Spot(float(point_m[0]), float(point_m[1])))
        return np.array([ahead.x - g.BUMPER_M, ahead.y])

    def near_target(
        self, values: FactorValues, rng: np.random.Generator
    ) -> tuple[FactorValues, NDArray[np.float32] | None] | None:
        """Return values in which the target stands 0.5 to 0.75 m from the rear axle, up to 25 deg off the car's heading: where the car brakes."""
        distance, bearing = (
            rng.uniform(*NEAR_M),
            math.radians(values["car_yaw_deg"] + rng.uniform(-25.0, 25.0)),
        )
        x, y = (
            values["car_x_m"] + distance * math.cos(bearing),
            values["car_y_m"] + distance * math.sin(bearing),
        )
        space = self.factor_space.factors
        if not (
            space["target_x_m"].low <= x <= space["target_x_m"].high
            and space["target_y_m"].low <= y <= space["target_y_m"].high
        ):
            return None
        return values | {"target_x_m": x, "target_y_m": y}, None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[ObsDict, dict[str, Any]]:
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
