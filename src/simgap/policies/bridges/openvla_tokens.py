"""Actions as words: OpenVLA writes each dimension as one of the last 256 tokens of its vocabulary.

As read in ``prismatic/vla/action_tokenizer.py`` and ``prismatic/extern/hf/modeling_prismatic.py``
(openvla/openvla): 256 edges, ``linspace(-1, 1, 256)``, bound 255 intervals; a value in the i-th interval,
counted from 1, is token ``vocabulary - i``, and a token is read as the middle of its interval. The value 1
lies beyond the last edge, gets token ``vocabulary - 256`` and is read as the last middle.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simgap.errors import UsageError


@dataclass(frozen=True, kw_only=True, slots=True)
class ActionTokens:
    """The map between normalised actions, -1 to 1, and token ids."""

    vocabulary: int
    """Tokens of the language model without rows that were added to pad its embedding."""
    bins: int = 256

    def __post_init__(self) -> None:
        if self.bins < 2 or self.vocabulary < self.bins:
            raise UsageError(
                f"{self.bins} action tokens do not fit a vocabulary of {self.vocabulary}; correct vocabulary"
            )

    @property
    def edges(self) -> NDArray[np.float64]:
        """Edges of the intervals, ``(bins,)``."""
        return np.linspace(-1.0, 1.0, self.bins)

    @property
    def centres(self) -> NDArray[np.float64]:
        """Middles of the intervals, ``(bins - 1,)``."""
        return 0.5 * (self.edges[:-1] + self.edges[1:])

    def encode(self, actions: ArrayLike) -> NDArray[np.int64]:
        """Return token ids of normalised actions; values beyond -1 and 1 are clipped, as in training."""
        return np.asarray(
            self.vocabulary
            - np.digitize(np.clip(np.asarray(actions, dtype=np.float64), -1.0, 1.0), self.edges),
            dtype=np.int64,
        )

    def decode(self, ids: ArrayLike) -> NDArray[np.float64]:
        """Return normalised actions of token ids. As in OpenVLA, any other token is read as the nearest end; see :meth:`are_actions`."""
        index = np.clip(self.vocabulary - np.asarray(ids, dtype=np.int64) - 1, 0, self.bins - 2)
        return np.asarray(self.centres[index])

    def are_actions(self, ids: ArrayLike) -> NDArray[np.bool_]:
        """Return which token ids stand for an action."""
        found = np.asarray(ids, dtype=np.int64)
        return np.asarray((found >= self.vocabulary - self.bins) & (found < self.vocabulary))
