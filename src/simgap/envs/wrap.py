"""Any gymnasium env as one of ours: an explicit map says what its numbers mean, and nothing is guessed."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from simgap.compute.machine import load_compiler_before_gl
from simgap.conventions import ActionSpec, StateSpec
from simgap.envs.base import ObsDict, TaskEnv
from simgap.envs.factors import FactorRanges, FactorSpace, FactorValues
from simgap.errors import ConventionError, UsageError, did_you_mean
from simgap.types import Outcome

RENDERED = "render()"
"""Source of a camera that is the env's own rendering."""
TIMEOUT = "timeout"


@dataclass(frozen=True, kw_only=True, slots=True)
class WrapMap:
    """What has to be known of a foreign env, and cannot be read off it."""

    name: str
    task: str
    """The instruction in words."""
    cameras: Mapping[str, str]
    """Our camera name -> key of an image in the observation (``/`` for nested ones), or :data:`RENDERED`."""
    state: str
    """Key of the vector that encoders would read. Never one that holds where objects are."""
    state_columns: tuple[int, ...] | None = None
    """Entries of that vector to keep, in the order of ``state_spec``; all by default."""
    state_spec: StateSpec
    action_spec: ActionSpec
    """What the env's actions mean; its rate is the control rate."""
    success: str
    """Key of ``info`` that is true once the task is done."""
    horizon_steps: int
    failure_modes: tuple[str, ...] = (TIMEOUT,)
    failure: Callable[[Mapping[str, Any]], str] | None = None
    """Names the failure of an episode that ended without success, from its last ``info``; ``timeout`` without one."""
    factor_space: FactorSpace = field(default_factory=lambda: FactorSpace(()))
    presets: Mapping[str, FactorRanges] = field(
        default_factory=lambda: {"nominal": FactorRanges({}, "nominal")}
    )
    apply_factors: Callable[[gymnasium.Env[Any, Any], FactorValues], None] | None = None
    """Puts factor values into the env, right before its ``reset``."""
    placement_factors: tuple[str, ...] = ()
    teacher: Callable[[TaskEnv], Any] | None = None
    """Makes the env's teacher from our env, whose ``inner`` is the foreign one: an object with a ``name`` for stamps and ``label()``, the action
    for the present state (see ``simgap.teachers.base.Teacher``). Without one, data have to be recorded."""


class WrappedEnv(TaskEnv):
    """A foreign env behind our contract. Without factors of its own, the seed alone decides where an episode starts."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012  gymnasium's own convention
    render_mode = "rgb_array"

    def __init__(
        self,
        maker: Callable[[], gymnasium.Env[Any, Any]],
        mapping: WrapMap,
        *,
        image_size: int = 96,
        ranges: FactorRanges | None = None,
        render: bool = True,
    ) -> None:
        """Make the env and hold it against the map.

        Raises:
            UsageError: something the map names is not there; says what is.
            ConventionError: a vector has another length, or actions other limits, than its spec.
        """
        load_compiler_before_gl()  # the env may draw, and nobody knows with what
        self._maker, self.mapping = maker, mapping
        self.inner = maker()
        if "nominal" not in mapping.presets:
            raise UsageError(
                f"env {mapping.name!r} is mapped without a preset called nominal; it has"
                f" {sorted(mapping.presets)}"
            )
        self._box = _hold_against(self.inner, mapping)
        self.name, self.task = mapping.name, mapping.task
        self.action_spec, self.state_spec = mapping.action_spec, mapping.state_spec
        self.cameras, self.image_size = tuple(mapping.cameras), image_size
        self.horizon_steps, self.failure_modes = mapping.horizon_steps, mapping.failure_modes
        self.factor_space, self.presets = mapping.factor_space, mapping.presets
        self.placement_factors = mapping.placement_factors
        self.ranges = ranges or mapping.presets["nominal"]
        self.renders = render
        self._values: FactorValues = self.factor_space.nominal()
        self._steps, self._finished = 0, True
        self._raw: Any = None
        frame = spaces.Box(0, 255, (image_size, image_size, 3), np.uint8)
        state = spaces.Box(-np.inf, np.inf, (len(self.state_spec),), np.float32)
        self.observation_space = cast(
            "spaces.Space[ObsDict]", spaces.Dict({**dict.fromkeys(self.cameras, frame), "state": state})
        )
        self.action_space = spaces.Box(self.action_spec.low, self.action_spec.high, dtype=np.float32)

    @property
    def factors(self) -> FactorValues:
        """Factor values of the running episode."""
        return self._values

    @property
    def dart_noise(self) -> NDArray[np.float64]:
        """A hundredth of each action's range; 0 for grippers."""
        span = (self.action_spec.high - self.action_spec.low).astype(np.float64)
        return np.where(self.action_spec.gripper_mask, 0.0, 0.01 * span)

    def make_teacher(self) -> Any:
        """Return the map's teacher.

        Raises:
            UsageError: it has none, or what its map makes is not a teacher.
        """
        if self.mapping.teacher is None:
            raise UsageError(
                f"env {self.name!r} is wrapped and its map names no teacher, so nobody can record its"
                " episodes in sim: give WrapMap(teacher=...) a solver (SlideTeacher in"
                " examples/wrapped_envs.py is one) and run `simgap envs add` again, or record episodes"
                " yourself: simgap train FOLDER"
            )
        made = self.mapping.teacher(self)
        if not isinstance(getattr(made, "name", None), str) or not callable(getattr(made, "label", None)):
            raise UsageError(
                f"the teacher of env {self.name!r} is of type {type(made).__name__}; expected an object with"
                " name (a text) and label(), which returns the action for the env's present state or"
                " Abstain(reason), as SlideTeacher in examples/wrapped_envs.py does"
            )
        return made

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[ObsDict, dict[str, Any]]:
        """Start an episode; see :class:`~simgap.envs.base.TaskEnv`."""
        super().reset(seed=seed)
        given = (options or {}).get("factors")
        space = self.factor_space
        self._values = space.sample(self.ranges, self.np_random) if given is None else space.complete(given)
        if self.mapping.apply_factors is not None:
            self.mapping.apply_factors(self.inner, self._values)
        self._raw, _ = self.inner.reset(seed=None if seed is None else seed % 2**31)
        self._steps, self._finished = 0, False
        return self._observe(), {"factors": dict(self._values)}

    def step(self, action: NDArray[np.float32]) -> tuple[ObsDict, float, bool, bool, dict[str, Any]]:
        """Send one action in the convention of the map.

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
        clipped = np.clip(command, self.action_spec.low, self.action_spec.high)
        # a limit of 0.2 in float32 lies above one in float64
        clipped = np.clip(clipped, self._box.low, self._box.high).astype(self._box.dtype)
        self._raw, reward, terminated, truncated, info = self.inner.step(clipped)
        self._steps += 1
        is_success = bool(np.all(info.get(self.mapping.success, False)))
        ended = is_success or terminated or truncated or self._steps >= self.horizon_steps
        told: dict[str, Any] = {}
        if ended:
            self._finished = True
            mode = TIMEOUT if self.mapping.failure is None else self.mapping.failure(info)
            outcome = Outcome.success() if is_success else Outcome.failure(mode)
            told = {"outcome": outcome, "is_success": is_success}
        is_over = ended and (is_success or terminated)
        return self._observe(), float(reward), is_over, ended and not is_over, told

    def render(self) -> NDArray[np.uint8]:
        """Return the cameras side by side, ``(H, cameras x W, 3)`` uint8."""
        frames = self._frames()
        return np.concatenate([frames[c] for c in self.cameras], axis=1)

    def render_still(
        self,
        factors: FactorValues,
        state: NDArray[np.float32] | None = None,
        cameras: Sequence[str] | None = None,
    ) -> dict[str, NDArray[np.uint8]]:
        """Return what the cameras see at the start of an episode with these factors and seed 0; ends the running one.

        Raises:
            UsageError: ``state`` is given: a foreign env cannot be posed.
        """
        if state is not None:
            raise UsageError(
                f"env {self.name!r} is wrapped and cannot be put into a pose; only its starts can be drawn"
            )
        self.reset(seed=0, options={"factors": factors})
        self._finished = True
        frames = self._frames()
        return {c: frames[c] for c in (self.cameras if cameras is None else cameras)}

    def stamp_fields(self) -> dict[str, Any]:
        """Return what made and judged the episodes, as far as a foreign env tells."""
        spec = self.inner.spec
        module = type(self.inner.unwrapped).__module__.partition(".")[0]
        return {
            "engine": (
                f"wrapped {spec.id if spec else type(self.inner.unwrapped).__name__}, {module}"
                f" {_version(module)}"
            ),
            "renderer": f"{module} {_version(module)}",
            "env": self.name,
            "judge": f"info[{self.mapping.success!r}]",
            "horizon_steps": self.horizon_steps,
            "rate_hz": self.action_spec.rate_hz,
            "image_size": self.image_size,
            "clock": "simulated",
        }

    def sibling(self) -> WrappedEnv:
        """Return another env of the same settings."""
        return WrappedEnv(
            self._maker, self.mapping, image_size=self.image_size, ranges=self.ranges, render=self.renders
        )

    def close(self) -> None:
        """Close the foreign env."""
        self.inner.close()

    def _observe(self) -> ObsDict:
        # A copy: an env may write every observation into one buffer, and records keep them all.
        vector = np.array(_picked(self._raw, self.mapping.state), dtype=np.float32).reshape(-1)
        columns = self.mapping.state_columns
        return {**self._frames(), "state": vector if columns is None else vector[list(columns)]}

    def _frames(self) -> dict[str, NDArray[np.uint8]]:
        if not self.renders:
            return {c: np.zeros((self.image_size, self.image_size, 3), np.uint8) for c in self.cameras}
        return {
            c: _square(_image(self.inner, self._raw, source), self.image_size)
            for c, source in self.mapping.cameras.items()
        }


def wrap(
    env: gymnasium.Env[Any, Any] | Callable[[], gymnasium.Env[Any, Any]],
    mapping: WrapMap,
    *,
    image_size: int = 96,
    ranges: FactorRanges | None = None,
    render: bool = True,
) -> WrappedEnv:
    """Turn a gymnasium env with image and state observations into one of ours.

    Args:
        env: a function that makes it, or one made by ``gymnasium.make``, which is then made again from its
            spec.
        mapping: what its numbers mean.
        image_size: side of the frames we hand on; others are averaged to it.
        ranges: what ``reset`` samples factors from.
        render: False leaves frames black.

    Raises:
        UsageError: something needed is missing; says what is there.
        ConventionError: a vector has another length, or actions other limits, than the map says.
    """
    if isinstance(env, gymnasium.Env):
        spec = env.spec
        if spec is None:
            raise UsageError(
                f"{type(env).__name__} has no spec to make it again from; hand wrap() a function that makes"
                " it: rollouts run several at once"
            )
        env.close()
        return WrappedEnv(
            lambda: gymnasium.make(spec), mapping, image_size=image_size, ranges=ranges, render=render
        )
    return WrappedEnv(env, mapping, image_size=image_size, ranges=ranges, render=render)


def _hold_against(inner: gymnasium.Env[Any, Any], mapping: WrapMap) -> spaces.Box:
    """Reset and step once, compare all that the map names with what comes back, and return the action space."""
    box = inner.action_space
    if not isinstance(box, spaces.Box) or len(box.shape) != 1:
        raise UsageError(
            f"env {mapping.name!r} has action space {box}; only a vector of numbers (a one-dimensional Box)"
            " can be learnt here"
        )
    if box.shape[0] != len(mapping.action_spec):
        raise ConventionError(
            f"env {mapping.name!r} takes {box.shape[0]} actions, its map names {len(mapping.action_spec)}:"
            f" {list(mapping.action_spec.names)}"
        )
    if (mapping.action_spec.low < box.low - 1e-6).any() or (mapping.action_spec.high > box.high + 1e-6).any():
        raise ConventionError(
            f"env {mapping.name!r} takes actions in {box.low.tolist()} to {box.high.tolist()}, its map says"
            f" {mapping.action_spec.low.tolist()} to {mapping.action_spec.high.tolist()}; give limits in the"
            " env's own units"
        )
    raw, _ = inner.reset(seed=0)
    for source in mapping.cameras.values():
        _square(_image(inner, raw, source), 8)
    if not mapping.cameras:
        raise UsageError(f"env {mapping.name!r} is mapped without a camera; a student needs at least one")
    vector = np.asarray(_picked(raw, mapping.state))
    if vector.dtype.kind not in "fiu" or vector.ndim > 1:
        raise UsageError(
            f"env {mapping.name!r}: {mapping.state!r} is {vector.dtype} {vector.shape}, not a vector of"
            " numbers"
        )
    length = vector.size if mapping.state_columns is None else len(mapping.state_columns)
    outside = [c for c in mapping.state_columns or () if not 0 <= c < vector.size]
    if outside or length != len(mapping.state_spec):
        what = f"{vector.size} entries" + (
            f", columns {outside} of which do not exist" if outside else f", {length} of them mapped"
        )
        raise ConventionError(
            f"env {mapping.name!r}: {mapping.state!r} has {what}, its map names {len(mapping.state_spec)}:"
            f" {list(mapping.state_spec.names)}"
        )
    _, _, _, _, info = inner.step(np.clip(np.zeros(box.shape), box.low, box.high).astype(box.dtype))
    if mapping.success not in info:
        raise UsageError(
            f"env {mapping.name!r} does not say {mapping.success!r} in info, so nothing can judge it; it says"
            f" {sorted(info) or 'nothing'}"
        )
    if len(mapping.factor_space.factors) and mapping.apply_factors is None:
        raise UsageError(
            f"env {mapping.name!r} is mapped with factors but without apply_factors; nothing would change"
            " with them"
        )
    return box


def _picked(raw: Any, key: str) -> Any:
    """Return an entry of a nested observation."""
    found = raw
    for part in key.split("/"):
        if not isinstance(found, Mapping):
            raise UsageError(
                f"the observation has no {key!r}: it is {type(found).__name__}, no dictionary; choose an"
                " observation type with images and state"
            )
        if part not in found:
            raise UsageError(f"the observation has no {key!r}; {did_you_mean(part, [str(k) for k in found])}")
        found = found[part]
    return found


def _image(inner: gymnasium.Env[Any, Any], raw: Any, source: str) -> NDArray[np.uint8]:
    if source == RENDERED:
        if inner.render_mode != "rgb_array":
            raise UsageError(
                f"a camera is mapped to {RENDERED}, but the env was made with"
                f" render_mode={inner.render_mode!r}; make it with 'rgb_array'"
            )
        return np.asarray(inner.render())
    return np.asarray(_picked(raw, source))


def _square(image: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """Return a square frame of a size, averaged over areas; what is not square is refused, for cutting would hide things."""
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        raise UsageError(f"a camera gives {image.dtype} {image.shape}; uint8 (H, W, 3) RGB is needed")
    if image.shape[0] != image.shape[1]:
        raise UsageError(
            f"a camera gives frames of {image.shape[1]} x {image.shape[0]} px; make the env with square ones:"
            " nothing is cut or squeezed here"
        )
    if image.shape[0] == size:
        return np.array(image)
    from PIL import Image

    method = Image.Resampling.BOX if image.shape[0] > size else Image.Resampling.BILINEAR
    return np.asarray(Image.fromarray(image).resize((size, size), method))


def _version(module: str) -> str:
    try:
        return importlib.metadata.version(
            importlib.metadata.packages_distributions().get(module, [module])[0]
        )
    except importlib.metadata.PackageNotFoundError:
        return "of unknown version"
