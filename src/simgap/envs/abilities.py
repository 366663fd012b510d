"""What only some envs can do. An env implements a protocol by having its methods; whoever needs one asks with :func:`able`.

:class:`~simgap.envs.base.TaskEnv` is what every env can do. All of this is privileged: it never reaches a student.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from simgap.envs.factors import FactorValues
from simgap.envs.landmarks import CameraPose, Landmark
from simgap.errors import UsageError


@runtime_checkable
class ShowsTarget(Protocol):
    """Says where its target and its cameras are, and which pixels show it."""

    def landmarks(self) -> tuple[Landmark, ...]:
        """Return the things of the task where they are now, the target first."""

    def camera_pose(self, camera: str) -> CameraPose:
        """Return where a camera is now."""

    def frames_at(self, size_px: int) -> dict[str, NDArray[np.uint8]]:
        """Return what every camera sees now in frames of another size, without noise."""

    def segment(self, camera: str, size_px: int | None = None, *, alone: bool = False) -> NDArray[np.int16]:
        """Return which landmark each pixel shows, ``(H, W)``: an index into :meth:`landmarks`, -1 for all else.

        Frames have the env's size unless another is given; ``alone`` draws the target as if nothing else were
        there.
        """


@runtime_checkable
class TrainsProbe(ShowsTarget, Protocol):
    """Says, beyond that, how its target has to be known, how near to come and how exactly."""

    @property
    def position_tolerance_m(self) -> float:
        """Error of the target's position that still lets the task succeed, m."""

    def target_offset(self, point_m: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return where a world point lies as a policy has to know it, in the horizontal plane, ``(2,)`` m.

        An arm needs it from its tool in the axes of its base, a car from its nose in its own axes.
        """

    def near_target(
        self, values: FactorValues, rng: np.random.Generator
    ) -> tuple[FactorValues, NDArray[np.float32] | None] | None:
        """Return factor values and readings in which the robot has come near the target but not straight at it.

        Where it stands tells nothing about where the target is: only pixels do. None when these values allow
        no such pose.
        """

    def rest_readings(self, values: FactorValues) -> NDArray[np.float32]:
        """Return what the encoders read, without noise, at the start of an episode with these factors, ``(S,)``."""


@runtime_checkable
class Rewinds(Protocol):
    """Can be copied in the middle of an episode and put back."""

    def snapshot(self) -> Any:
        """Return everything needed to go on exactly from here."""

    def restore(self, snapshot: Any) -> None:
        """Go back to a snapshot of this env, within the episode it was taken in."""


@runtime_checkable
class DrawsLater(Protocol):
    """Can draw a moment that has passed, so that episodes that are thrown away cost no frames."""

    def look(self) -> Any:
        """Return what :meth:`draw` needs to show this moment later in the same episode."""

    def draw(self, looks: Sequence[Any], frames: Mapping[str, NDArray[np.uint8]]) -> None:
        """Draw moments of this episode, in their order, into frames by camera, ``(T, H, W, 3)``.

        Those are, to the last bit, the frames that ``step`` would have returned.
        """


_LACKS: Mapping[type, str] = {
    ShowsTarget: "does not say where its target is; pixels on target cannot be measured in it",
    TrainsProbe: "does not say how its target has to be known, or how exactly; no probe can be trained in it",
    Rewinds: "cannot be copied in the middle of an episode; labels cannot be verified in it",
    DrawsLater: "cannot draw a moment that has passed; take the frames that step() returns",
}
AbilityT = TypeVar("AbilityT")


def able(env: Any, ability: type[AbilityT]) -> AbilityT:
    """Return an env as one that can do something.

    Raises:
        UsageError: it cannot; says what, and what that rules out.
    """
    if not isinstance(env, ability):
        raise UsageError(f"env {env.name!r} {_LACKS[ability]}")
    return env
