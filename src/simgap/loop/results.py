"""One turn, and a run of any number of them, as they came out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from simgap.diagnosis import Diagnosis
from simgap.envs.factors import FactorRanges
from simgap.episodes.reader import open_dataset
from simgap.errors import UsageError
from simgap.evidence import Evidence, Role, TrialSet
from simgap.loop.spec import TurnSpec
from simgap.mutants.gaps import Gap
from simgap.rollouts.screen import ScreenReport
from simgap.statistics import PairedDifference, pair_outcomes, paired_difference
from simgap.targeting import DataPlan
from simgap.trials.batch import TrialResult, read_results


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """One turn as it came out."""

    number: int
    """From 1."""
    datasets: tuple[Path, ...]
    """What the policy was trained on; the newest is the last."""
    checkpoint: Path
    executor: str
    screens: tuple[tuple[str, ScreenReport], ...]
    """Conditions in words -> screen."""
    in_use: Path | None = None
    conditions: Path | None = None
    replays: Path | None = None
    diagnosis: Diagnosis | None = None
    plan: DataPlan | None = None
    """What the next turn changes."""

    @property
    def results(self) -> list[TrialResult]:
        """Trials in use; empty when the screen kept the policy from the robot."""
        return [] if self.in_use is None else read_results(open_dataset(self.in_use))


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnResult:
    """Everything a report needs, all of it on disk."""

    spec: TurnSpec
    folder: Path
    ranges: FactorRanges
    """What the first training set was sampled from."""
    turns: tuple[Turn, ...]
    """In order; the first is turn 1."""
    paired: PairedDifference | None
    """The newest turn against the first, on the same conditions."""
    seal: str
    gap: Gap | None
    duration_s: float
    """From the first row of the ledger to the last."""
    ledger_head: str
    """Number and hash of the ledger's newest row."""

    @property
    def diagnosis(self) -> Diagnosis | None:
        """Return what was said of the robot as it came, in turn 1: later turns repair what it names."""
        return self.turns[0].diagnosis

    @property
    def diagnosis_agrees(self) -> bool | None:
        """Return whether the first diagnosis names what was sealed; None without either."""
        if self.gap is None or self.diagnosis is None:
            return None
        return self.diagnosis.cause is self.gap.kind

    @property
    def is_better(self) -> bool | None:
        """Return whether the newest turn is shown to be better than the first on the same conditions, by the exact test; None when it was not tried."""
        if self.paired is None or self.paired.difference.low is None:
            return None
        return self.paired.difference.low > 0

    def turn(self, number: int | None) -> Turn:
        """Return a turn by its number, or the newest that was diagnosed; the first where none was.

        Raises:
            UsageError: there is no such turn.
        """
        if number is None:
            return next((t for t in reversed(self.turns) if t.diagnosis is not None), self.turns[0])
        if not 1 <= number <= len(self.turns):
            raise UsageError(f"{self.folder} has no turn {number}; it has turns 1 to {len(self.turns)}")
        return self.turns[number - 1]


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What the plans before a turn left it to work with: all that they changed so far, for the sums of the loop."""

    ranges: FactorRanges
    """What the newest training set was sampled from."""
    shares: tuple[float, ...] = (1.0,)
    """Share of a batch that is drawn from each training set."""
    commands: Mapping[str, float] = field(default_factory=dict)
    """Measured multipliers that are undone, by dimension."""

    def then(self, plan: DataPlan) -> Asked:
        """Return what the turn after a plan works with."""
        ranges, shares = self.ranges, self.shares
        if plan.kind == "episodes":
            assert plan.ranges is not None
            ranges = plan.ranges
            shares = (*(s * (1.0 - plan.new_share) for s in shares), plan.new_share)
        undone = {n: self.commands.get(n, 1.0) * m for n, m in plan.multipliers.items()}
        return Asked(ranges=ranges, shares=shares, commands={**self.commands, **undone})


def asked_of(ranges: FactorRanges, before: tuple[Turn, ...]) -> Asked:
    """Return what the turn after ``before`` works with.

    Args:
        ranges: what the first training set was sampled from.
        before: all turns before it.
    """
    asked = Asked(ranges=ranges)
    for turn in before:
        if turn.plan is not None:
            asked = asked.then(turn.plan)
    return asked


def compare(old: Turn, new: Turn) -> PairedDifference | None:
    """Return the paired difference of any two turns on the same conditions, new minus old; None when one was not tried."""
    if old.in_use is None or new.in_use is None:
        return None
    after, before = ({r.seed: r.outcome for r in turn.results if r.seed is not None} for turn in (new, old))
    counts = pair_outcomes(new=after, old=before)
    return paired_difference(counts.n11, counts.n10, counts.n01, counts.n00, dropped=counts.dropped)


def overall(turns: tuple[Turn, ...]) -> PairedDifference | None:
    """Return the newest turn against the first; None where there is only one, or the newest was not tried."""
    return compare(turns[0], turns[-1]) if len(turns) > 1 else None


def turn_evidence(turn: Turn, spec: TurnSpec, ranges: FactorRanges, *, workers: int = 0) -> Evidence:
    """Return what a diagnosis of a turn that was tried on the robot reads.

    The reference is the newest training set: what the policy was last taught of the robot.

    Args:
        turn: with its logs.
        spec: of the run.
        ranges: what the newest training set was sampled from.
        workers: processes for the searches; changes no number.
    """
    logs = (
        (Role.IN_USE, turn.in_use),
        (Role.TRAINING_CONDITIONS, turn.conditions),
        (Role.REPLAY, turn.replays),
    )
    return Evidence(
        training=open_dataset(turn.datasets[-1]),
        training_ranges=ranges,
        policy=turn.checkpoint,
        executor=turn.executor,
        trials=tuple(TrialSet.of_log(role, open_dataset(log)) for role, log in logs if log is not None),
        screen=turn.screens[0][1],
        env=spec.env,
        seed=spec.seed,
        workers=workers,
    )
