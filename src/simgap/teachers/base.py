"""The contract of a teacher: full physics state in, a label or an abstention out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Abstain:
    """The teacher has no plan from this state; there is no label to learn from."""

    reason: str


Label: TypeAlias = NDArray[np.float32] | Abstain
"""An action in the env's convention, ``(A,)`` float32, or an abstention."""


class Teacher(Protocol):
    """Solves one env from its true state. Memoryless: the same state always gets the same label."""

    name: str

    def label(self) -> Label:
        """Return the action to send in the env's present state."""
        ...
