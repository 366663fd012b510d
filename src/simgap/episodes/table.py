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

    def __post_init__(self) -> None:
        n = len(self.action)
        if len(self.state) != n or any(len(v) != n for v in self.images.values()) or int(self.episode_start[-1]) != n:
            raise DataError(f"frame table {self.fingerprint[:12]}: columns of different length")

    def __len__(self) -> int:
        return len(self.action)

    @property
    def n_episodes(self) -> int:
        """Number of episodes."""
        return len(self.episode_start) - 1
