"""What a report shows, as plain frozen values. The report only reads this; nothing in it is computed from files.

Anything unknown is None (or empty) and is printed as unknown or not run, never left out silently.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from simgap.errors import UsageError
from simgap.findings import Verdict
from simgap.ledger import Claim
from simgap.statistics import Estimate, PairedDifference
from simgap.types import EvidenceKind, Frame, Outcome

FAMILIES = ("evaluation", "data", "pixels", "replay", "execution", "plant", "policy")
"""The order of diagnosis; the report shows all seven and says of each missing one that it was not run."""
CheckVerdict = Verdict
"""What a check found."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rate:
    """One success rate as measured: where, when, under which conditions, with its voids beside it."""

    label: str
    """Short name, for example ``Surrogate, in use``."""
    turn: int
    source: EvidenceKind
    estimate: Estimate
    conditions: str = ""
    """In words: which factors, which seeds."""
    voids: Mapping[str, int] = field(default_factory=dict)
    """Reason -> count; not part of the rate."""
    verdict: str = ""
    """Screen verdict where there is one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Paired:
    """Two turns on the same initial conditions."""

    old: str
    """Name of the older side, for example ``turn 1``."""
    new: str
    source: EvidenceKind
    result: PairedDifference
    conditions: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class FailureModes:
    """How one set of trials ended."""

    label: str
    turn: int
    source: EvidenceKind
    successes: int
    n: int
    """Trials that count."""
    modes: Mapping[str, int] = field(default_factory=dict)
    """Mode -> count, most frequent first."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class FilmStrip:
    """What happened, in a few pictures; every camera has one frame for each time."""

    label: str
    """Where it comes from, for example ``Surrogate, turn 1``."""
    outcome: Outcome
    source: EvidenceKind
    times_s: Sequence[float]
    cameras: Mapping[str, Sequence[Frame]]
    """Camera name -> frames, one a time; the mapping's order is the order shown."""
    seed: int | None = None
    condition: str = ""
    """Short name of the initial condition, for example ``7 of 16``."""
    note: str = ""

    def __post_init__(self) -> None:
        wrong = {
            name: len(frames) for name, frames in self.cameras.items() if len(frames) != len(self.times_s)
        }
        if wrong:
            raise UsageError(
                f"film strip {self.label!r} has {len(self.times_s)} times, but frames {wrong}; give one frame"
                " a time and camera"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckResult:
    """What one check said."""

    family: str
    """One of :data:`FAMILIES`."""
    name: str
    verdict: CheckVerdict
    sentence: str
    """The finding in plain words."""
    statistic: str = ""
    """What is measured, for example ``delay of the executed action``."""
    value: float | None = None
    threshold: float | None = None
    unit: str = ""
    n: int | None = None
    """How many episodes, pairs or trials it rests on."""
    note: str = ""
    """What its verdict has to do with those of other checks."""
    shared_assumptions: Sequence[str] | None = None
    """Assumptions it shares with the thing it checks; empty when computed and none, None when unknown."""

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise UsageError(f"check {self.name!r} has family {self.family!r}; known: {', '.join(FAMILIES)}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Fact:
    """A named number or text, printed as it is."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class JointTrace:
    """What a joint was told and what it did, on one clock."""

    name: str
    unit: str
    label: str
    """Where it was seen, for example ``replay 3 on the surrogate``."""
    times_s: Sequence[float]
    commanded: Sequence[float]
    measured: Sequence[float]

    def __post_init__(self) -> None:
        if not len(self.times_s) == len(self.commanded) == len(self.measured) > 1:
            lengths = (len(self.times_s), len(self.commanded), len(self.measured))
            raise UsageError(
                f"the trace of {self.name!r} has {lengths} times, commands and readings; give as many of"
                " each, two at least"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagnosis:
    """Which thing is broken, from what, and what to do."""

    broken: str | None
    """The broken thing in a few words; None when it cannot be told yet."""
    family: str | None
    """The family it belongs to; None when it cannot be told yet."""
    sentence: str
    numbers: Sequence[Fact] = ()
    checks: Sequence[CheckResult] = ()
    remedy: str = ""
    corrections: Sequence[Correction] = ()
    """What to change by hand, where that is the remedy."""
    next_command: str = ""
    trace: JointTrace | None = None
    """Of the joint that is blamed, where one is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Seal:
    """The sealed truth of a surrogate against the diagnosis that was committed before."""

    commitment: str
    """Hash committed before the first trial."""
    diagnosed: str
    held: str | None
    """What the seal held; None while it is closed."""
    agrees: bool | None
    """None while closed, or when it cannot be decided."""
    explanation: str = ""
    held_values: Sequence[Fact] = ()
    order: Sequence[LedgerEntry] = ()
    """The rows that show the order: commitment, finding, opening."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FactorChange:
    """What the next batch of data does with one factor."""

    name: str
    unit: str
    before: tuple[float, float] | None
    """Range in the old data; None when it was not varied or is unknown."""
    after: tuple[float, float]
    why: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """One part of a training mixture."""

    name: str
    episodes: int
    weight: float
    """Sampling share in [0, 1]."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Correction:
    """One convention that was corrected instead of collecting data."""

    what: str
    was: str
    now: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DataPlan:
    """What was changed for the next turn: targeted episodes, a corrected convention, or both."""

    sentence: str
    episodes: int | None = None
    """New episodes; None when none were asked for."""
    by_whom: str = ""
    factors: Sequence[FactorChange] = ()
    mixture: Sequence[Share] = ()
    corrections: Sequence[Correction] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class BlindSpot:
    """An assumption for which no independent evidence exists."""

    assumption: str
    rests_on_it: str = ""
    """What would fall with it."""
    how_to_test: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class LedgerEntry:
    """A ledger row, as much of it as a reader needs."""

    id: int
    time: str
    kind: str
    evidence: EvidenceKind | None
    summary: str
    hash: str


@dataclass(frozen=True, kw_only=True, slots=True)
class StampView:
    """A provenance stamp under the name of the artefact it belongs to."""

    label: str
    hash: str
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ReportModel:
    """All that a report shows."""

    title: str
    env: str
    date: str
    """As printed; the caller decides the time zone."""
    command: str
    verdict: str
    """The first sentence names the broken thing and its number; the rest says how the run came out."""
    duration_s: float | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    claims: Sequence[Claim] = ()
    rates: Sequence[Rate] = ()
    paired: Sequence[Paired] = ()
    failures: Sequence[FailureModes] = ()
    films: Sequence[FilmStrip] = ()
    diagnosis: Diagnosis | None = None
    seal: Seal | None = None
    plan: DataPlan | None = None
    blind_spots: Sequence[BlindSpot] | None = None
    """None when they were not computed, which is not the same as none found."""
    stamps: Sequence[StampView] = ()
    seeds: Mapping[str, str] = field(default_factory=dict)
    """Purpose -> seeds, as text."""
    ledger: Sequence[LedgerEntry] = ()
    ledger_head: str = ""

    @property
    def sources(self) -> frozenset[EvidenceKind]:
        """Kinds of evidence that count here; the banner follows from it. A set in which every trial is void counts for nothing."""
        counted = [r.source for r in self.rates if r.estimate.n > 0] + [
            p.source for p in self.paired if p.result.counts.n > 0
        ]
        return frozenset(counted + [f.source for f in self.failures if f.n > 0])
