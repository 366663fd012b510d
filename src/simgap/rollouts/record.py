"""What is kept of a rollout: outcome, conditions, the motion, and a few frames to look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.provenance import content_hash
from simgap.types import Outcome, OutcomeKind

FILM_FRAMES = 6
"""Frames a film strip keeps of one episode."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RolloutRecord:
    """One finished episode of a policy in an env."""

    seed: int
    outcome: Outcome
    factors: Mapping[str, float]
    state: NDArray[np.float32]
    """``(T, S)`` encoder readings."""
    action: NDArray[np.float32]
    """``(T, A)`` what was sent."""
    age: NDArray[np.float32]
    """``(T,)`` steps between each action and the observation behind it."""
    film: Mapping[str, NDArray[np.uint8]]
    """Camera -> ``(k, H, W, 3)`` frames, evenly spaced, or all of a failure."""
    film_steps: tuple[int, ...]
    n_averaged: NDArray[np.int32] | None = None
    """``(T,)`` predictions behind each action."""
    disagreement: NDArray[np.float32] | None = None
    """``(T,)`` between those predictions, as a share of the limits; NaN where fewer than two were averaged."""
    contacts: NDArray[np.bool_] | None = None
    """``(T, C)`` what the robot touched when each action was sent, by :attr:`contact_names`; None where the env cannot tell."""
    contact_names: tuple[str, ...] = ()
    forwards: NDArray[np.float32] | None = None
    """``(k, 3)`` seconds of drawing, seconds of the forward pass, and observations in it, of each batch that this episode was first in.

    Wall time: not kept in traces, not equal between runs.
    """
    step_s: NDArray[np.float32] | None = None
    """``(T,)`` wall seconds of each step of the env, as :attr:`forwards`."""
    mode: str = ""
    """Which of the env's ways the episode took; empty where there is one way, or none was taken."""

    @property
    def steps(self) -> int:
        """Control steps taken."""
        return len(self.action)

    @property
    def is_filmed_whole(self) -> bool:
        """Whether every frame was kept."""
        return bool(self.film) and len(self.film_steps) == self.steps

    def strip(self) -> tuple[dict[str, NDArray[np.uint8]], tuple[int, ...]]:
        """Return at most :data:`FILM_FRAMES` frames by camera, evenly spaced, and their steps."""
        if len(self.film_steps) <= FILM_FRAMES:
            return dict(self.film), self.film_steps
        keep = film_steps(len(self.film_steps))
        return {camera: frames[list(keep)] for camera, frames in self.film.items()}, tuple(
            self.film_steps[k] for k in keep
        )

    @property
    def trace_hash(self) -> str:
        """Hash of outcome and motion: equal for equal runs, byte for byte."""
        return content_hash(
            [str(self.outcome), self.seed, self.state.tobytes().hex(), self.action.tobytes().hex()]
        )

    def to_json(self) -> dict[str, Any]:
        """Return the plain values, without arrays."""
        return {
            "seed": self.seed,
            "outcome": str(self.outcome.kind),
            "detail": self.outcome.detail,
            "steps": self.steps,
            "factors": dict(self.factors),
            **({"mode": self.mode} if self.mode else {}),
            "trace_hash": self.trace_hash,
        }


def outcome_from_json(row: Mapping[str, Any]) -> Outcome:
    """Rebuild the outcome of a :meth:`RolloutRecord.to_json` row."""
    return Outcome(OutcomeKind(row["outcome"]), str(row["detail"]))


def film_steps(length: int, count: int = FILM_FRAMES) -> tuple[int, ...]:
    """Return which frames of an episode a film strip shows, first and last among them."""
    return tuple(int(i) for i in np.unique(np.linspace(0, length - 1, min(count, length)).round()))
