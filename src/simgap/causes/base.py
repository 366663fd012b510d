"""A cause as a row of the table, and what the sentences about it may read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, SupportsIndex, TypeAlias

from simgap.causes.repairs import NoRepair, Repair

Numbers: TypeAlias = Mapping[str, Any]
"""What a check measured, by name."""


class Family(StrEnum):
    """What a check looks at, in the order of diagnosis: the policy is blamed last."""

    EVALUATION = "evaluation"
    DATA = "data"
    PIXELS = "pixels"
    DEPLOYMENT = "deployment"
    REPLAY = "replay"
    EXECUTION = "execution"
    PLANT = "plant"
    POLICY = "policy"


class Bounded(Protocol):
    """A factor, as far as a sentence about it needs to know."""

    @property
    def low(self) -> float:
        """Lowest value."""

    @property
    def high(self) -> float:
        """Highest value."""

    @property
    def nominal(self) -> float:
        """Value in the simulator as it is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """What a measured number is held against when it is put into words."""

    trained: Mapping[str, tuple[float, float]]
    """Ranges of the factors that the training set was sampled from."""
    factors: Mapping[str, Bounded]
    """Factors of the env; empty where there is none."""
    rate_hz: float
    """Control rate."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Cause:
    """What can be named as the broken thing. Compared by identity."""

    id: str
    """Name for machines, ``snake_case``."""
    family: Family | None
    """Where it is looked for; None where nothing is blamed."""
    words: str
    """The broken thing in a few words; empty where nothing can be named."""
    remedy: str
    """What to do about it, whole sentences."""
    repair: Repair = NoRepair()
    """What the next turn changes, and which of the check's numbers it reads."""
    tell: Callable[[Numbers, Setting], str] | None = None
    """Puts the check's numbers into words, joint, camera or factor first; an empty text where they say nothing."""
    is_by_exclusion: bool = False
    """True for what is left when nothing else is broken."""

    def __str__(self) -> str:
        return self.id

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        # A cause of the table is the same object in every process and in every copy.
        from simgap.causes.table import TABLE, cause_of

        return (cause_of, (self.id,)) if TABLE.get(self.id) is self else object.__reduce_ex__(self, protocol)

    def say(self, numbers: Numbers, setting: Setting) -> str:
        """Return what is broken with its number, or the few words where the numbers say nothing."""
        return (self.tell(numbers, setting) if self.tell is not None else "") or self.words
