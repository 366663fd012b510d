"""Claims, the grades that follow from their evidence, and what evidence has to hold before it counts as real."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from simgap.errors import UsageError
from simgap.types import EvidenceKind

_JUDGES = ("operator", "external judge")
_REAL_FIELDS = ("successes", "n", "conditions", "dates", "judged_by")
_FORBIDDEN = "certif"


class Grade(StrEnum):
    """How far a claim reaches; computed from the types of its evidence and typed in by nobody."""

    HARDWARE = "supported on hardware"
    SURROGATE = "supported on a surrogate only"
    SIMULATED = "simulated only"
    CONTRADICTED = "contradicted"
    NONE = "no evidence"


_REACH = {EvidenceKind.SIM: 1, EvidenceKind.SECOND_ENGINE: 1, EvidenceKind.SURROGATE: 2, EvidenceKind.REAL: 3}
_GRADES = {0: Grade.NONE, 1: Grade.SIMULATED, 2: Grade.SURROGATE, 3: Grade.HARDWARE}


def grade(supporting: Iterable[EvidenceKind], against: Iterable[EvidenceKind] = ()) -> Grade:
    """Return the grade of a claim: as far as its strongest evidence reaches, unless evidence against it reaches as far.

    Any amount of simulation stays ``simulated only``, a second engine included. Without evidence: ``no evidence``.
    """
    reach = max((_REACH[kind] for kind in supporting), default=0)
    opposed = max((_REACH[kind] for kind in against), default=0)
    return Grade.CONTRADICTED if opposed >= max(reach, 1) else _GRADES[reach]


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """A sentence with the ledger rows for and against it. It has no field for a grade: the grade is computed."""

    text: str
    supporting: Sequence[tuple[int, EvidenceKind]] = ()
    """Evidence rows for the claim: row id and type."""
    against: Sequence[tuple[int, EvidenceKind]] = ()
    """Evidence rows that speak against it."""

    def __post_init__(self) -> None:
        if _FORBIDDEN in self.text.lower():
            raise UsageError(f"claim {self.text!r} uses a word this project has no right to; say what was measured: n of N, interval, conditions, dates")

    @property
    def grade(self) -> Grade:
        """The grade that follows from the evidence types."""
        return grade((kind for _, kind in self.supporting), (kind for _, kind in self.against))


def why_not_real(payload: Mapping[str, Any]) -> str:
    """Return what keeps a payload from being the record of real trials; nothing when it may be one."""
    missing = [name for name in _REAL_FIELDS if payload.get(name) in (None, "", [], {}, ())]
    if missing:
        return f"lacks {', '.join(missing)}"
    n, successes = payload["n"], payload["successes"]
    if type(n) is not int or type(successes) is not int or not 0 <= successes <= n or n < 1:
        return f"has {successes!r} of {n!r}, expected whole numbers with at least one trial"
    if payload["judged_by"] not in _JUDGES:
        return f"has judged_by = {payload['judged_by']!r}, expected one of {', '.join(_JUDGES)}"
    robot = payload.get("robot")
    if "seal" in payload or (isinstance(robot, Mapping) and robot.get("kind") == "surrogate"):
        return "names a surrogate"
    return ""
