"""Frames in memory: what a trainer reads, one row a frame, episodes one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simgap.conventions import ActionSpec, StateSpec
from simgap.errors import DataError


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class FrameTable:
    """All frames of a dataset as arrays."""

    images: Mapping[str, NDArray[np.uint8]]
    """Camera -> ``(N, H, W, 3)`` uint8 RGB."""
    state: NDArray[np.float32]
    """``(N, S)``."""
    action: NDArray[np.float32]
    """``(N, A)``."""
    episode_start: NDArray[np.int64]
    """``(E + 1,)`` row of the first frame of each episode, and N at the end."""
    action_spec: ActionSpec
    state_spec: StateSpec
    fingerprint: str
    """Content hash of the dataset."""
    env: str = ""
    """Env the episodes were made in, as the dataset's stamp says; empty for recorded ones."""
    goals: tuple[str, ...] = ()
    """Tasks in words that episodes ask for; empty where nobody says."""
    goal: NDArray[np.float32] | None = None
    """``(N, G)``, one 1 a row: which of :attr:`goals` a frame's episode asks for."""

    def __post_init__(self) -> None:
        n = len(self.action)
        if (
            len(self.state) != n
            or any(len(v) != n for v in self.images.values())
            or int(self.episode_start[-1]) != n
        ):
            raise DataError(f"frame table {self.fingerprint[:12]}: columns of different length")
        if self.goal is not None and (
            self.goal.shape != (n, len(self.goals)) or len(set(self.goals)) != len(self.goals)
        ):
            raise DataError(
                f"frame table {self.fingerprint[:12]}: goals {list(self.goals)} for a goal column of shape"
                f" {self.goal.shape}; expected {n} rows, a column each"
            )

    def __len__(self) -> int:
        return len(self.action)

    @property
    def n_episodes(self) -> int:
        """Number of episodes."""
        return len(self.episode_start) - 1
