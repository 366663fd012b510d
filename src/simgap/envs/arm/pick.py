"""``arm-pick``: pick up the red cube among others."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from simgap.envs._mujoco import mujoco
from simgap.envs.arm import geometry as g
from simgap.envs.arm.factors import ARM_FACTORS, ARM_PRESETS
from simgap.envs.arm.judge import PICK_JUDGE, PICK_MODES, PickJudge
from simgap.envs.arm.model import TIMESTEP_S, build_model
from simgap.envs.arm.world import ArmWorld
from simgap.envs.base import ObsDict, TaskEnv
from simgap.envs.factors import FactorRanges, FactorValues
from simgap.envs.rendering import FrameRenderer
from simgap.errors import UsageError
from simgap.provenance import child_rng

RATE_HZ = 20.0
SETTLE_STEPS = 2
"""Control periods simulated before the first observation, so that cubes rest and the arm droops as it does."""


class ArmPickEnv(TaskEnv):
    """An SO-101-class arm, a red target cube and two distractors on a table."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": int(RATE_HZ)}  # noqa: RUF012  gymnasium's own convention
    render_mode = "rgb_array"

    def __init__(
        self,
        *,
        image_size: int = 96,
        ranges: FactorRanges | None = None,
        renderer: FrameRenderer | None = None,
        horizon_steps: int = 80,
        render: bool = True,
    ) -> None:
        """Build the model; the GL context opens at the first frame.

        Args:
            image_size: frame height and width, px.
            ranges: what ``reset`` samples from when no factors are given; the ``nominal`` preset by default.
            renderer: a renderer to share with other envs of this process.
            horizon_steps: control steps after which the episode is a failure.
            render: False leaves the frames black: for teachers and plants, 20 times faster.
        """
        self.name, self.task = "arm-pick", "pick up the red cube"
        self.action_spec, self.state_spec = g.action_spec(RATE_HZ), g.state_spec(RATE_HZ)
        self.cameras = ("front", "wrist")
        self.image_size, self.horizon_steps = image_size, horizon_steps
        self.failure_modes = PICK_MODES
        self.factor_space, self.presets = ARM_FACTORS, ARM_PRESETS
        self.ranges = ranges or ARM_PRESETS["nominal"]
        self.renders = render
        self.world = ArmWorld(build_model(image_size, RATE_HZ))
        self._renderer, self._owns_renderer = renderer, renderer is None
        self._substeps = round(1.0 / RATE_HZ / TIMESTEP_S)
        self._values: FactorValues = ARM_FACTORS.nominal()
        self._judge = PickJudge()
        self._delayed: deque[NDArray[np.float64]] = deque()
        self._noise = child_rng(0, "noise")
        self._steps = 0
        self._finished = True
        frame = spaces.Box(0, 255, (image_size, image_size, 3), np.uint8)
        seen = spaces.Dict({**dict.fromkeys(self.cameras, frame), "state": spaces.Box(-360.0, 360.0, (6,), np.float32)})
        self.observation_space = cast("spaces.Space[ObsDict]", seen)
        self.action_space = spaces.Box(self.action_spec.low, self.action_spec.high, dtype=np.float32)

    @property
    def factors(self) -> FactorValues:
        """Factor values of the running episode."""
        return self._values

    @property
    def steps(self) -> int:
        """Control steps taken in this episode."""
        return self._steps

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[ObsDict, dict[str, Any]]:
        """Start an episode; see :class:`~simgap.envs.base.TaskEnv`."""
        super().reset(seed=seed)
        given = (options or {}).get("factors")
        values = ARM_FACTORS.sample(self.ranges, self.np_random) if given is None else ARM_FACTORS.complete(given)
        self._values = values
        self._noise = self.np_random
        self.world.apply(values)
        self._delayed = deque(self.world.encoders() for _ in range(int(values["action_latency_steps"])))
        for _ in range(SETTLE_STEPS * self._substeps):
            mujoco.mj_step(self.world.model, self.world.data)
        self._judge, self._steps, self._finished = PickJudge(), 0, False
        return self._observe(), {"factors": dict(values)}

    def step(self, action: NDArray[np.float32]) -> tuple[ObsDict, float, bool, bool, dict[str, Any]]:
        """Send one absolute joint target, in deg and gripper percent, and wait one control period.

        Raises:
            UsageError: NaN in the action, or a step after the end of the episode.
        """
        if self._finished:
            raise UsageError("step() after the episode ended; call reset() first")
        command = np.asarray(action, dtype=np.float64)
        if command.shape != (6,) or not np.isfinite(command).all():
            raise UsageError(f"action must be 6 finite numbers (deg, gripper percent), got {action!r}")
        self._delayed.append(np.clip(command, self.action_spec.low, self.action_spec.high))
        self.world.command(self._delayed.popleft())
        for _ in range(self._substeps):
            mujoco.mj_step(self.world.model, self.world.data)
        self._steps += 1
        outcome = self._judge.step(self.world)
        truncated = outcome is None and self._steps >= self.horizon_steps
        if truncated:
            outcome = self._judge.at_horizon(self.world)
        info: dict[str, Any] = {}
        if outcome is not None:
            self._finished = True
            info = {"outcome": outcome, "is_success": outcome.is_success}
        reward = float(outcome is not None and outcome.is_success)
        return self._observe(), reward, outcome is not None and not truncated, truncated, info

    def render(self) -> NDArray[np.uint8]:
        """Return the cameras side by side, ``(H, 2 W, 3)`` uint8."""
        frames = self._frames()
        return np.concatenate([frames[c] for c in self.cameras], axis=1)

    def render_still(
        self, factors: FactorValues, state: NDArray[np.float32] | None = None, cameras: Sequence[str] | None = None
    ) -> dict[str, NDArray[np.uint8]]:
        """Return what the cameras would see at rest; ends the running episode."""
        self._values = ARM_FACTORS.complete(factors)
        self._finished = True
        self.world.apply(self._values)
        if state is not None:
            self.world.set_encoders(np.asarray(state, dtype=np.float64))
            mujoco.mj_forward(self.world.model, self.world.data)
        self._noise = child_rng(0, "still")
        return self._frames(cameras)

    def stamp_fields(self) -> dict[str, Any]:
        """Return what made and judged the episodes."""
        return {
            "engine": f"mujoco {mujoco.__version__} implicitfast {TIMESTEP_S}s",
            "renderer": "mujoco opengl, no shadows, no multisampling",
            "env": self.name,
            "judge": PICK_JUDGE,
            "horizon_steps": self.horizon_steps,
            "rate_hz": RATE_HZ,
            "image_size": self.image_size,
            "clock": "simulated",
        }

    def sibling(self) -> ArmPickEnv:
        """Return another env of the same settings that shares this one's GL context."""
        return ArmPickEnv(
            image_size=self.image_size,
            ranges=self.ranges,
            renderer=self._open_renderer() if self.renders else None,
            horizon_steps=self.horizon_steps,
            render=self.renders,
        )

    def close(self) -> None:
        """Free the GL context if this env opened it."""
        if self._renderer is not None and self._owns_renderer:
            self._renderer.close()
            self._renderer = None

    def _observe(self) -> ObsDict:
        state = self.world.encoders()
        sigma = self._values["encoder_noise_deg"]
        if sigma > 0:
            state = state + self._noise.normal(0.0, sigma, 6)
        return {**self._frames(), "state": state.astype(np.float32)}

    def _frames(self, cameras: Sequence[str] | None = None) -> dict[str, NDArray[np.uint8]]:
        frames = {camera: np.zeros((self.image_size, self.image_size, 3), np.uint8) for camera in cameras or self.cameras}
        if not self.renders:
            return frames
        renderer = self._open_renderer()
        for camera, out in frames.items():
            renderer.render(self.world.model, self.world.data, self.world.camera_id[camera], out)
            sigma = self._values["image_noise"]
            if sigma > 0:
                noisy = out + self._noise.normal(0.0, sigma, out.shape)
                np.copyto(out, np.clip(noisy, 0, 255).astype(np.uint8))
        return frames

    def _open_renderer(self) -> FrameRenderer:
        if self._renderer is None:
            self._renderer = FrameRenderer(self.world.model, self.image_size)
        return self._renderer
