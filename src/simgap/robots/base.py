"""One interface for anything that can be driven: a surrogate, a car, a LeRobot arm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from simgap.conventions import ActionSpec, StateSpec
from simgap.types import EvidenceKind, Frame, Outcome, Vector


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RobotObservation:
    """One reading of every sensor, with the age of each frame."""

    images: Mapping[str, Frame]
    state: Vector
    time_s: float
    """Robot clock at the reading."""
    frame_age_s: Mapping[str, float]
    """Camera -> age of its frame at ``time_s``; a frame is never passed off as fresh."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class AppliedAction:
    """What the driver did with a command."""

    action: NDArray[np.float32]
    """The command after clipping to the limits, ``(A,)``: what was handed to the motors."""
    clipped: bool
    time_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class InitialCondition:
    """How a trial starts: what an operator can set up and measure (object placements), never a hidden quantity."""

    seed: int
    placements: Mapping[str, float] = field(default_factory=dict)
    """Placement factor -> value in its unit, for example ``target_x_m``."""


class Robot(Protocol):
    """What trials and replays talk to."""

    evidence: EvidenceKind
    action_spec: ActionSpec
    state_spec: StateSpec
    cameras: tuple[str, ...]

    def reset(self, condition: InitialCondition) -> InitialCondition:
        """Go home, let the operator place the objects, and return the condition as measured."""
        ...

    def observe(self) -> RobotObservation:
        """Read every sensor once.

        Raises:
            TrialFault: a sensor is stale or gone; the trial is void.
        """
        ...

    def act(self, action: NDArray[np.float32]) -> AppliedAction:
        """Clip, send, wait one control period, and return what was sent."""
        ...

    def verdict(self) -> Outcome | None:
        """Return the operator's or judge's outcome once the trial is over, else None."""
        ...

    def close(self) -> None:
        """Stop and let go."""
        ...
