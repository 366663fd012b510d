"""Whether a gripper's label and what came out speak of the same thing: a held state or events, 0 closed or 0 open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MOSTLY = 0.5
"""Share of frames without an event above which a channel of -1, 0 and 1 holds events."""
_AGREES = 0.85
_CLEARLY = 0.15
"""By how much a reading has to agree better than the plain one to be believed instead."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GripperAgreement:
    """Share of frames on which label and output are open or closed together, under each reading of the label."""

    n: int
    plain: float
    """Both as they are, above or below the middle of their range."""
    latched: float | None
    """The label's events held until the next one; None where it holds no events."""

    @property
    def turned(self) -> float:
        """Share under the other polarity of the better reading."""
        return 1.0 - (self.plain if self.latched is None else self.latched)

    @property
    def fault(self) -> str:
        """What the convention gets wrong, empty where nothing."""
        best = max((abs(v - 0.5), v) for v in (self.plain, self.latched) if v is not None)[1]
        turned = "polarity" if best < 0.5 else ""
        if max(best, 1.0 - best) < _AGREES:
            return ""
        if self.latched == best and abs(best - 0.5) > abs(self.plain - 0.5) + _CLEARLY:
            return f"events, {turned}" if turned else "events"
        return turned

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "n": self.n,
            "plain": self.plain,
            "latched": self.latched,
            "turned": self.turned,
            "fault": self.fault,
        }


def agreement(labels: NDArray[np.floating[Any]], outputs: NDArray[np.floating[Any]]) -> GripperAgreement:
    """Compare a gripper's labels with what came out.

    Args:
        labels: ``(T,)``; positions of any unit, or events: 1 opens, -1 closes, 0 changes nothing.
        outputs: ``(T,)`` of the same frames, positions of any unit.
    """
    wanted, found = (np.asarray(v, dtype=np.float64).reshape(-1) for v in (labels, outputs))
    is_open = found > _middle(found)
    plain = float(np.mean((wanted > _middle(wanted, events=_are_events(wanted))) == is_open))
    if not _are_events(wanted):
        return GripperAgreement(n=len(wanted), plain=plain, latched=None)
    return GripperAgreement(n=len(wanted), plain=plain, latched=float(np.mean(latch(wanted) == is_open)))


def latch(events: NDArray[np.floating[Any]]) -> NDArray[np.bool_]:
    """Return the state that events lead to, ``(T,)``: True after an event of 1, False after -1, before the first one its opposite."""
    marks = np.round(np.asarray(events, dtype=np.float64))
    happened = np.flatnonzero(marks)
    if len(happened) == 0:
        return np.zeros(len(marks), dtype=bool)
    last = np.maximum.accumulate(np.where(marks != 0, np.arange(len(marks)), -1))
    return np.where(last < 0, marks[happened[0]] < 0, marks[last] > 0)


def _are_events(labels: NDArray[np.float64]) -> bool:
    marks = np.round(labels)
    is_three = bool(np.isin(marks, (-1.0, 0.0, 1.0)).all() and np.abs(labels - marks).max() < 0.2)
    return is_three and bool((marks > 0).any() and (marks < 0).any()) and float(np.mean(marks == 0)) > _MOSTLY


def _middle(values: NDArray[np.float64], *, events: bool = False) -> float:
    return 0.5 if events else 0.5 * float(values.min() + values.max())
