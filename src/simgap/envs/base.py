"""The contract of an env: a gymnasium env with cameras, encoders, a convention, factors and a judge."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import gymnasium
import numpy as np
from numpy.typing import NDArray

from simgap.conventions import ActionSpec, StateSpec
from simgap.envs.factors import FactorRanges, FactorSpace, FactorValues
from simgap.envs.landmarks import CameraPose, Landmark
from simgap.errors import UsageError

ObsDict: TypeAlias = dict[str, NDArray[Any]]
"""Camera name -> ``(H, W, 3)`` uint8 RGB, and ``"state"`` -> ``(S,)`` float32."""


class TaskEnv(gymnasium.Env[ObsDict, NDArray[np.float32]]):
    """A task in a simulator.

    ``reset(seed=..., options={"factors": values})`` puts the world in exactly those factor values; without
    the option it samples from ``ranges`` with the seed. ``info["factors"]`` holds what was used. When an
    episode ends, ``info["outcome"]`` of the last ``step`` holds an :class:`~simgap.types.Outcome`; before, it
    is absent. Nothing privileged is ever in the observation; a teacher reads the env itself.
    """

    name: str
    task: str
    """The instruction in words."""
    action_spec: ActionSpec
    state_spec: StateSpec
    cameras: tuple[str, ...]
    image_size: int
    horizon_steps: int
    """Control steps after which an unfinished episode is a failure."""
    failure_modes: tuple[str, ...]
    factor_space: FactorSpace
    presets: Mapping[str, FactorRanges]
    ranges: FactorRanges
    placement_factors: tuple[str, ...] = ()
    """Factors an operator sets up and can measure on the table or floor; the others are the world's own."""
    modes: tuple[str, ...] = ()
    """Ways in which the task can be done; where there are several, ``info["mode"]`` of the last step says which was taken, or is empty."""
    contact_names: tuple[str, ...] = ()
    """What :meth:`contacts` tells, in its order; empty where an env cannot tell."""
    renders: bool = True
    """False leaves frames black; may be switched between steps."""

    @property
    @abstractmethod
    def factors(self) -> FactorValues:
        """Factor values of the running episode; privileged."""

    @property
    def dart_noise(self) -> NDArray[np.float64]:
        """Standard deviation of the noise that a teacher's executed actions usually get, ``(A,)`` in action units; 0 for grippers."""
        return np.where(self.action_spec.gripper_mask, 0.0, 1.5)

    @abstractmethod
    def stamp_fields(self) -> dict[str, Any]:
        """Return engine, renderer, env, judge, horizon and rate, for provenance stamps."""

    @abstractmethod
    def sibling(self) -> TaskEnv:
        """Return another env of the same settings that shares this one's GL context."""

    @abstractmethod
    def render_still(
        self,
        factors: FactorValues,
        state: NDArray[np.float32] | None = None,
        cameras: Sequence[str] | None = None,
    ) -> dict[str, NDArray[np.uint8]]:
        """Return what some cameras (all by default) would see at rest in these factor values, with encoders at ``state`` (home by default)."""

    def landmarks(self) -> tuple[Landmark, ...]:
        """Return the things of the task where they are now, the target first; privileged."""
        raise UsageError(
            f"env {self.name!r} does not say where its target is; pixels on target cannot be measured in it"
        )

    def frames_at(self, size_px: int) -> dict[str, NDArray[np.uint8]]:
        """Return what every camera sees now in frames of another size, without noise; privileged."""
        raise UsageError(
            f"env {self.name!r} cannot draw frames of {size_px} px beside its own; make it again with that"
            " size"
        )

    def target_offset(self, point_m: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return where a world point lies as a policy has to know it, in the horizontal plane, ``(2,)`` m; privileged.

        An arm needs it from its tool in the axes of its base, a car from its nose in its own axes.
        """
        raise UsageError(
            f"env {self.name!r} does not say how its target has to be known; no probe can be trained in it"
        )

    def near_target(
        self, values: FactorValues, rng: np.random.Generator
    ) -> tuple[FactorValues, NDArray[np.float32] | None] | None:
        """Return factor values and encoder readings in which the robot has come near the target but not straight at it.

        Where it stands tells nothing about where the target is: only pixels do. None when these values allow
        no such pose.
        """
        raise UsageError(
            f"env {self.name!r} does not say how to come near its target; no probe can be trained in it"
        )

    def rest_readings(self, values: FactorValues) -> NDArray[np.float32]:
        """Return what the encoders read, without noise, at the start of an episode with these factors, ``(S,)``."""
        raise UsageError(
            f"env {self.name!r} does not say what its encoders read at the start; no probe can be trained"
            " in it"
        )

    @property
    def position_tolerance_m(self) -> float:
        """Error of the target's position that still lets the task succeed, m."""
        raise UsageError(
            f"env {self.name!r} names no position tolerance; a probe has nothing to be compared with"
        )

    def camera_pose(self, camera: str) -> CameraPose:
        """Return where a camera is now; privileged."""
        raise UsageError(
            f"env {self.name!r} does not say where camera {camera!r} is; pixels on target cannot be measured"
            " in it"
        )

    def segment(self, camera: str, size_px: int | None = None, *, alone: bool = False) -> NDArray[np.int16]:
        """Return which landmark each pixel shows, ``(H, W)``: an index into :meth:`landmarks`, -1 for everything else; privileged.

        Frames have the env's size unless another is given; ``alone`` draws the target as if nothing else were
        there.
        """
        raise UsageError(f"env {self.name!r} has no segmentation; pixels on target cannot be measured in it")

    def contacts(self) -> NDArray[np.bool_]:
        """Return what the robot touches now, one truth value for each of :attr:`contact_names`; privileged."""
        return np.zeros(0, dtype=np.bool_)

    def look(self) -> Any:
        """Return what :meth:`draw` needs to show this moment later in the same episode, or None where frames have to be drawn at once."""
        return None

    def draw(self, looks: Sequence[Any], frames: Mapping[str, NDArray[np.uint8]]) -> None:
        """Draw moments of this episode, in the order in which they came, into frames by camera, ``(T, H, W, 3)``.

        Those are, to the last bit, the frames that ``step`` would have returned.
        """
        raise UsageError(
            f"env {self.name!r} cannot draw a moment that has passed; take the frames that step() returns"
        )

    def snapshot(self) -> Any:
        """Return everything needed to go on exactly from here."""
        raise UsageError(
            f"env {self.name!r} cannot be copied in the middle of an episode; labels cannot be verified in it"
        )

    def restore(self, snapshot: Any) -> None:
        """Go back to a snapshot of this env."""
        raise UsageError(f"env {self.name!r} cannot be put back into a copied state")
