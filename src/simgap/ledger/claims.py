"""Claims, when evidence supports one, and the grades that follow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from simgap.errors import UsageError
from simgap.types import EvidenceKind

WORKS = 0.5
"""The bar of a claim that states none: it works more often than not. Below it a screen calls a policy broken."""
_FORBIDDEN = "certif"


class Grade(StrEnum):
    """How far a claim reaches; computed from its evidence and typed in by nobody."""

    HARDWARE = "supported on hardware"
    SURROGATE = "supported on a surrogate only"
    SIMULATED = "simulated only"
    CONTRADICTED = "contradicted"
    UNDECIDED = "undecided"
    NONE = "no evidence"


class Says(StrEnum):
    """What a row of evidence says about a claim."""

    FOR = "for"
    AGAINST = "against"
    UNDECIDED = "undecided"


_REACH = {EvidenceKind.SIM: 1, EvidenceKind.SECOND_ENGINE: 1, EvidenceKind.SURROGATE: 2, EvidenceKind.REAL: 3}
_GRADES = {0: Grade.NONE, 1: Grade.SIMULATED, 2: Grade.SURROGATE, 3: Grade.HARDWARE}


def grade(
    supporting: Iterable[EvidenceKind],
    against: Iterable[EvidenceKind] = (),
    undecided: Iterable[EvidenceKind] = (),
) -> Grade:
    """Return the grade of a claim: as far as its strongest evidence reaches, unless evidence against it reaches as far.

    Any amount of simulation stays ``simulated only``, a second engine included. Evidence that speaks neither
    way raises nothing: with nothing else the claim is ``undecided``. Without evidence: ``no evidence``.
    """
    reach = max((_REACH[kind] for kind in supporting), default=0)
    opposed = max((_REACH[kind] for kind in against), default=0)
    if opposed >= max(reach, 1):
        return Grade.CONTRADICTED
    return Grade.UNDECIDED if not reach and any(True for _ in undecided) else _GRADES[reach]


def what_it_says(successes: int, n: int, at_least: float) -> Says:
    """Return what ``successes`` of ``n`` say about "it succeeds in at least this share of trials".

    Decided by the exact (Clopper-Pearson) 95 % interval of the rate: all of it at or above the bar supports
    the claim, all of it below speaks against it, and an interval that holds the bar says neither. So 0 of 20
    never supports a claim, and 3 of 3 (29 % to 100 %) does not support "more often than not".
    """
    from simgap.statistics import clopper_pearson  # scipy, which a claim that is only read does not need

    rate = clopper_pearson(successes, n)
    if rate.low is None or rate.high is None:
        return Says.UNDECIDED
    if rate.low >= at_least:
        return Says.FOR
    return Says.AGAINST if rate.high < at_least else Says.UNDECIDED


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """A sentence with the ledger rows for and against it. It has no field for a grade: the grade is computed.

    :meth:`~simgap.ledger.Ledger.claims` sorts the rows by what their numbers say; a claim built by hand holds
    what it was given.
    """

    text: str
    supporting: Sequence[tuple[int, EvidenceKind]] = ()
    """Evidence rows whose numbers support it: row id and type."""
    against: Sequence[tuple[int, EvidenceKind]] = ()
    """Evidence rows that speak against it."""
    undecided: Sequence[tuple[int, EvidenceKind]] = ()
    """Evidence rows whose numbers say neither."""
    uncounted: Sequence[tuple[int, str]] = ()
    """Rows that were named and do not count: row id and why."""
    at_least: float = WORKS
    """The success rate that the claim states."""

    def __post_init__(self) -> None:
        require_claimable(self.text)

    @property
    def grade(self) -> Grade:
        """The grade that follows from the evidence types."""
        return grade(
            *((kind for _, kind in side) for side in (self.supporting, self.against, self.undecided))
        )


def require_claimable(text: str) -> None:
    """Refuse the word that no number of ours has a right to.

    Raises:
        UsageError: names the claim.
    """
    if _FORBIDDEN in text.lower():
        raise UsageError(
            f"claim {text!r} uses a word this project has no right to; say what was measured: n of N,"
            " interval, conditions, dates"
        )


def require_bar(at_least: Any) -> float:
    """Return the bar of a claim, :data:`WORKS` where none is stated.

    Raises:
        UsageError: it is no rate above 0.
    """
    if at_least is None:
        return WORKS
    if type(at_least) not in (int, float) or not 0 < at_least <= 1:
        raise UsageError(
            f"a claim states a success rate above 0 and at most 1, not at_least = {at_least!r:.40}"
        )
    return float(at_least)


def counts_of(payload: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return successes and n of a row of evidence; None where it has no whole numbers that can be counts."""
    successes, n = payload.get("successes"), payload.get("n")
    if type(n) is not int or type(successes) is not int or not 0 <= successes <= n or n < 1:
        return None
    return successes, n
