"""The contract of a policy: observations in, chunks of future actions out, convention included."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from simgap.conventions import ActionSpec, StateSpec


class Policy(Protocol):
    """Maps a batch of observations to a batch of action chunks. Stateless: memory belongs to the executor."""

    action_spec: ActionSpec
    state_spec: StateSpec
    cameras: tuple[str, ...]
    image_size: int
    chunk: int
    """Number of future control steps in a chunk; entry 0 is for the step of the observation."""

    def predict(self, images: Mapping[str, NDArray[np.uint8]], state: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return chunks in action-spec units.

        Args:
            images: camera -> ``(B, H, W, 3)`` uint8.
            state: ``(B, S)`` float32 in state-spec units.

        Returns:
            ``(B, chunk, A)`` float32, already denormalised.
        """
        ...

    def stamp_fields(self) -> Mapping[str, Any]:
        """Return weights hash, normaliser hash, data fingerprint and the like, for provenance stamps."""
        ...
