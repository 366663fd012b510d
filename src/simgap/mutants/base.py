"""What a mutant is: a known-bad with one planted fault, graded, on one seam, and the check and cause that have to name it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

import numpy as np

from simgap.causes import Cause, Family


class Seam(StrEnum):
    """Where a mutant acts. Its ``apply`` takes and returns what is in brackets."""

    RECORDING = "recording"
    """A list of :class:`~simgap.types.Episode`."""
    EXECUTOR = "executor"
    """An executor spec, the convention of the actions and the length of a chunk; returns an executor."""
    ROBOT = "robot"
    """An env; returns the :class:`~simgap.mutants.gaps.Gap` of a surrogate that stands for it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Strength:
    """How strong a mutant can be: 0 changes nothing, 1 is plain to see."""

    full: float
    """What strength 1 is, in ``unit``."""
    unit: str

    def of(self, share: float) -> float:
        """Return a strength from 0 to 1 in the unit.

        Raises:
            ValueError: outside of 0 to 1.
        """
        if not 0.0 <= share <= 1.0:
            raise ValueError(f"strength {share!r}; expected 0 (nothing is changed) to 1")
        return share * self.full


@runtime_checkable
class Mutant(Protocol):
    """One known-bad. A frozen class without state; a module of this room holds its own in ``MUTANTS``."""

    @property
    def id(self) -> str:
        """Stable name for machines, ``snake_case``."""

    @property
    def what(self) -> str:
        """What is planted, one sentence."""

    @property
    def family(self) -> Family:
        """Family of the check that has to see it."""

    @property
    def seam(self) -> Seam:
        """Where it acts."""

    @property
    def strength(self) -> Strength:
        """How it is graded."""

    @property
    def breaks(self) -> str:
        """The assumption that no longer holds."""

    @property
    def expected(self) -> Cause:
        """The cause that has to be named."""

    @property
    def found_by(self) -> str:
        """Id of the check that has to name it."""

    def apply(self, target: Any, strength: float, rng: np.random.Generator) -> Any:
        """Return the target with the fault in it; the one given is left as it is.

        Args:
            target: as the seam says.
            strength: 0 to 1.
            rng: draws the joint, the camera or the episode.
        """
