"""One interface for anything that can be driven: a surrogate, a car, a LeRobot arm."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from simgap.conventions import ActionSpec, StateSpec
from simgap.mutants.gaps import Gap
from simgap.types import EvidenceKind, Frame, Outcome, Vector

SIMULATOR, OPERATOR, EXTERNAL = "simulator", "operator", "external judge"
JUDGES = (SIMULATOR, OPERATOR, EXTERNAL)


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

    seed: int | None = None
    """What it was drawn with; None where nobody recorded a seed."""
    placements: Mapping[str, float] = field(default_factory=dict)
    """Placement factor -> value in its unit, for example ``target_x_m``."""
    id: str = ""
    """What tells it apart where there is no seed, for example ``condition 7`` of an operator's list."""

    @property
    def condition_id(self) -> str | None:
        """What two trials of the same condition share; None where nothing tells conditions apart."""
        return self.id or condition_of(self.seed)

    @property
    def draws(self) -> int:
        """Seed of whatever is drawn during a trial: the recorded one, or one that follows from the condition."""
        if self.seed is not None:
            return self.seed
        text = repr([self.id, sorted(self.placements.items())])
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")


def condition_of(seed: int | None) -> str | None:
    """Return the identity of the condition that a seed draws; None without one."""
    return None if seed is None else f"seed {seed}"


class Robot(Protocol):
    """What trials and replays talk to."""

    evidence: EvidenceKind
    action_spec: ActionSpec
    state_spec: StateSpec
    cameras: tuple[str, ...]
    image_size: int
    """Side of its frames in px."""
    is_live: bool
    """Whether its time goes on between commands, as that of hardware does; a watchdog then stops it when commands cease."""
    judge: str
    """Who says how a trial ended: ``simulator``, ``operator`` or ``external judge``."""

    def reset(self, condition: InitialCondition) -> InitialCondition:
        """Go home, let the operator place the objects, and return the condition as measured.

        Raises:
            TrialFault: it could not be brought about; the trial is void.
        """
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
        """Return the judge's outcome once the trial is over, else None."""
        ...

    def stop(self) -> None:
        """Stand still and stay so until the next command; from any thread, at any time, as often as it is called."""
        ...

    def stamp_fields(self) -> dict[str, Any]:
        """Return what this robot is, for the stamp of a log."""
        ...

    def close(self) -> None:
        """Stop and let go; a second time does nothing."""
        ...


class SealedRobot(Robot, Protocol):
    """A robot that hides a gap and has committed to it."""

    seal: str
    """SHA-256 commitment to what is hidden."""

    def open_seal(self, diagnosis_hash: str) -> Gap:
        """Show the hidden gap, against the ledger hash of a diagnosis that is already written.

        Raises:
            SealError: no hash, or what is shown does not match the commitment.
        """
        ...
