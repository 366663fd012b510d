"""What every simulated task does alike: factors in, commands delayed, engine advanced, cameras drawn, judge asked."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Generic, Self, TypeVar, cast

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from simgap.envs.base import ObsDict, TaskEnv
from simgap.envs.contracts import Judge, TaskSettings, World
from simgap.envs.factors import FactorRanges, FactorValues
from simgap.envs.landmarks import CameraPose, Landmark
from simgap.envs.rendering import FrameRenderer, Look, PixelNoise
from simgap.errors import UsageError
from simgap.provenance import child_rng

WorldT = TypeVar("WorldT", bound=World)


class SimulatedEnv(TaskEnv, Generic[WorldT]):
    """A task whose world is a MuJoCo model moved by an engine."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012  gymnasium's own convention
    render_mode = "rgb_array"
    renderer_maker: type[Any] = FrameRenderer
    """Class of the renderer that opens at the first frame; made from model and size."""

    def __init__(
        self,
        settings: TaskSettings,
        world: WorldT,
        *,
        image_size: int,
        ranges: FactorRanges | None = None,
        renderer: FrameRenderer | None = None,
        render: bool = True,
    ) -> None:
        """Take a world; the GL context opens at the first frame.

        Args:
            settings: the task.
            world: its model, data and engine.
            image_size: frame height and width, px.
            ranges: what ``reset`` samples from when no factors are given; the ``nominal`` preset by default.
            renderer: a renderer to share with other envs of this process.
            render: False leaves the frames black: for teachers and plants, 20 times faster.
        """
        self.settings = settings
        self.name, self.task = settings.name, settings.task
        self.action_spec, self.state_spec = settings.action_spec, settings.state_spec
        self.cameras, self.image_size, self.horizon_steps = (
            settings.cameras,
            image_size,
            settings.horizon_steps,
        )
        self.failure_modes = settings.failure_modes
        self.factor_space, self.presets = settings.factor_space, settings.presets
        self.contact_names = world.contact_table.names
        self.placement_factors, self.modes = settings.placement_factors, settings.modes
        self.ranges = ranges or settings.presets["nominal"]
        self.renders = render
        self.world = world
        self._renderer, self._owns_renderer = renderer, renderer is None
        self._others: dict[int, FrameRenderer] = {}
        self._period_s = 1.0 / settings.action_spec.rate_hz
        self._values: FactorValues = settings.factor_space.nominal()
        self._judge: Judge[WorldT] = self._new_judge()
        self._delayed: deque[NDArray[np.float64]] = deque()
        self._pixel_noise = self._encoder_noise = child_rng(0, "noise")
        self._steps = 0
        self._finished = True
        frame = spaces.Box(0, 255, (image_size, image_size, 3), np.uint8)
        state = spaces.Box(-settings.state_bound, settings.state_bound, (len(self.state_spec),), np.float32)
        self.observation_space = cast(
            "spaces.Space[ObsDict]", spaces.Dict({**dict.fromkeys(self.cameras, frame), "state": state})
        )
        self._low, self._high = self.action_spec.low, self.action_spec.high
        self.action_space = spaces.Box(self._low, self._high, dtype=np.float32)

    @abstractmethod
    def _new_judge(self) -> Judge[WorldT]:
        """Return a judge that has seen nothing yet."""

    @abstractmethod
    def _copy(self, renderer: FrameRenderer | None) -> Self:
        """Return another env of the same settings with a world of its own."""

    @property
    def factors(self) -> FactorValues:
        """Factor values of the running episode."""
        return self._values

    @property
    def steps(self) -> int:
        """Control steps taken in this episode."""
        return self._steps

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[ObsDict, dict[str, Any]]:
        """Start an episode; see :class:`~simgap.envs.base.TaskEnv`."""
        super().reset(seed=seed)
        given = (options or {}).get("factors")
        space = self.factor_space
        values = space.sample(self.ranges, self.np_random) if given is None else space.complete(given)
        self._values = values
        if self.settings.instruction is not None:
            self.task = self.settings.instruction(values)
        # Two streams: a camera that is noisier must not change what the encoders read.
        self._pixel_noise, self._encoder_noise = self.np_random.spawn(2)
        self.world.apply(values)
        self._delayed = deque(self.world.rest_command() for _ in range(int(values["action_latency_steps"])))
        if self.settings.settle_steps:
            self.world.engine.advance(self.settings.settle_steps * self._period_s)
        self._judge, self._steps, self._finished = self._new_judge(), 0, False
        return self._observe(), {"factors": dict(values)}

    def step(self, action: NDArray[np.float32]) -> tuple[ObsDict, float, bool, bool, dict[str, Any]]:
        """Send one action in the env's convention and wait one control period.

        Raises:
            UsageError: NaN in the action, or a step after the end of the episode.
        """
        if self._finished:
            raise UsageError("step() after the episode ended; call reset() first")
        command = np.asarray(action, dtype=np.float64)
        if command.shape != (len(self.action_spec),) or not np.isfinite(command).all():
            raise UsageError(
                f"action must be {len(self.action_spec)} finite numbers"
                f" ({', '.join(self.action_spec.names)}), got {action!r}"
            )
        self._delayed.append(np.minimum(np.maximum(command, self._low), self._high))
        self.world.command(self._delayed.popleft())
        self.world.engine.advance(self._period_s)
        self._steps += 1
        outcome = self._judge.step(self.world)
        truncated = outcome is None and self._steps >= self.horizon_steps
        if truncated:
            outcome = self._judge.at_horizon(self.world)
        info: dict[str, Any] = {}
        if outcome is not None:
            self._finished = True
            info = {"outcome": outcome, "is_success": outcome.is_success}
            if self.modes:
                info["mode"] = self._mode()
        reward = float(outcome is not None and outcome.is_success)
        return self._observe(), reward, outcome is not None and not truncated, truncated, info

    def render(self) -> NDArray[np.uint8]:
        """Return the cameras side by side, ``(H, cameras x W, 3)`` uint8."""
        frames = self._frames(self.cameras)
        return np.concatenate([frames[c] for c in self.cameras], axis=1)

    def render_still(
        self,
        factors: FactorValues,
        state: NDArray[np.float32] | None = None,
        cameras: Sequence[str] | None = None,
    ) -> dict[str, NDArray[np.uint8]]:
        """Return what the cameras would see at rest; ends the running episode."""
        self._values = self.factor_space.complete(factors)
        self._finished = True
        self.world.apply(self._values)
        if state is not None:
            self.world.set_encoders(np.asarray(state, dtype=np.float64))
            self.world.engine.reset()
        self._pixel_noise = child_rng(0, "still")
        return self._frames(self.cameras if cameras is None else cameras)

    def stamp_fields(self) -> dict[str, Any]:
        """Return what made and judged the episodes."""
        return {
            "engine": self.world.engine.stamp,
            "renderer": self.renderer_maker.stamp if self._renderer is None else self._renderer.stamp,
            "env": self.name,
            "judge": self.settings.judge,
            "horizon_steps": self.horizon_steps,
            "rate_hz": self.action_spec.rate_hz,
            "image_size": self.image_size,
            "clock": "simulated",
        }

    def sibling(self) -> Self:
        """Return another env of the same settings that shares this one's GL context."""
        twin = self._copy(self._open_renderer() if self.renders else None)
        twin.renderer_maker = self.renderer_maker
        return twin

    def close(self) -> None:
        """Free the GL context if this env opened it."""
        if self._renderer is not None and self._owns_renderer:
            self._renderer.close()
            self._renderer = None
        for other in self._others.values():
            other.close()
        self._others.clear()

    def frames_at(self, size_px: int) -> dict[str, NDArray[np.uint8]]:
        """Return what every camera sees now in frames of another size, with the noise of this episode's factors left out."""
        renderer = self._renderer_of(size_px)
        frames = {camera: np.empty((size_px, size_px, 3), np.uint8) for camera in self.cameras}
        for camera, out in frames.items():
            renderer.render(self.world.model, self.world.data, self.world.camera_id[camera], out)
        return frames

    def rest_readings(self, values: FactorValues) -> NDArray[np.float32]:
        """Return what the encoders read, without noise, at the start of an episode; ends the running one."""
        self._values, self._finished = self.factor_space.complete(values), True
        self.world.apply(self._values)
        return self.world.encoders().astype(np.float32)

    def landmarks(self) -> tuple[Landmark, ...]:
        """Return the things of the task where the last frame shows them, the target first."""
        return self.world.landmarks()

    def camera_pose(self, camera: str) -> CameraPose:
        """Return where a camera was when the last frame was drawn."""
        index = self.world.camera_id[camera]
        data = self.world.data
        return CameraPose(
            position_m=data.cam_xpos[index].copy(),
            rotation=data.cam_xmat[index].reshape(3, 3).copy(),
            fovy_deg=float(self.world.model.cam_fovy[index]),
        )

    def segment(self, camera: str, size_px: int | None = None, *, alone: bool = False) -> NDArray[np.int16]:
        """Return which landmark each pixel shows, ``(H, W)``; -1 for everything else."""
        world = self.world
        renderer = self._renderer_of(self.image_size if size_px is None else size_px)
        geoms = renderer.segment(
            world.model, world.data, world.camera_id[camera], only=world.landmark_geoms[0] if alone else None
        )
        # the last entry is the background, geom -1
        lookup = np.full(world.model.ngeom + 1, -1, dtype=np.int16)
        for index, ids in enumerate(world.landmark_geoms):
            lookup[list(ids)] = index
        return lookup[geoms]

    def contacts(self) -> NDArray[np.bool_]:
        """Return what the robot touches after the last step."""
        return self.world.contact_table.read(self.world.engine.contacts())

    def look(self) -> Look:
        """Return where everything that cameras see is now."""
        return Look.of(self.world.data)

    def draw(self, looks: Sequence[Look], frames: Mapping[str, NDArray[np.uint8]]) -> None:
        """Draw moments of this episode; see :class:`~simgap.envs.base.TaskEnv`."""
        renderer, noise = self._open_renderer(), PixelNoise(self._values["image_noise"], self._pixel_noise)
        model, data, now = self.world.model, self.world.data, Look.of(self.world.data)
        renderer.make_current()
        for k, look in enumerate(looks):
            look.put(data)
            for camera, out in frames.items():
                renderer.render_here(model, data, self.world.camera_id[camera], out[k])
        now.put(data)
        # apart from rendering, which drives this code out of the processor's caches
        for k in range(len(looks)):
            for out in frames.values():
                noise.add(out[k])

    def snapshot(self) -> Any:
        """Return everything needed to go on exactly from here."""
        own = (
            self._values,
            self._delayed,
            self._judge,
            self._pixel_noise,
            self._encoder_noise,
            self._steps,
            self._finished,
        )
        return self.world.engine.snapshot(), copy.deepcopy(own)

    def restore(self, snapshot: Any) -> None:
        """Go back to a snapshot of this env, within the episode it was taken in."""
        engine, own = snapshot
        self.world.engine.restore(engine)
        (
            self._values,
            self._delayed,
            self._judge,
            self._pixel_noise,
            self._encoder_noise,
            self._steps,
            self._finished,
        ) = copy.deepcopy(own)

    def _mode(self) -> str:
        """Return which of :attr:`modes` the episode took, or an empty text if none."""
        return ""

    def _reading_noise(self, values: FactorValues) -> float:
        """Return the standard deviation of encoder noise, state units; 0 draws nothing."""
        return values.get("encoder_noise_deg", 0.0)

    def _observe(self) -> ObsDict:
        state = self.world.encoders()
        sigma = self._reading_noise(self._values)
        if sigma > 0:
            state = state + self._encoder_noise.normal(0.0, sigma, len(state))
        return {**self._frames(self.cameras), "state": state.astype(np.float32)}

    def _frames(self, cameras: Sequence[str]) -> dict[str, NDArray[np.uint8]]:
        shape = (1, self.image_size, self.image_size, 3)
        if not self.renders:
            return {camera: np.zeros(shape[1:], np.uint8) for camera in cameras}
        frames = {camera: np.empty(shape, np.uint8) for camera in cameras}
        self.draw([self.look()], frames)
        return {camera: out[0] for camera, out in frames.items()}

    def _renderer_of(self, size_px: int) -> FrameRenderer:
        if size_px == self.image_size:
            return self._open_renderer()
        if size_px not in self._others:
            self._others[size_px] = self.renderer_maker(self.world.model, size_px)
        return self._others[size_px]

    def _open_renderer(self) -> FrameRenderer:
        if self._renderer is None:
            self._renderer = self.renderer_maker(self.world.model, self.image_size)
        return self._renderer


__all__ = ["Judge", "SimulatedEnv", "TaskSettings", "World"]
