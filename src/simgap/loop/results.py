"""One turn, and a run of two, as they came out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from simgap.diagnosis import Diagnosis
from simgap.envs.factors import FactorRanges
from simgap.episodes.reader import open_dataset
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
    datasets: tuple[Path, ...]
    checkpoint: Path
    executor: str
    screens: tuple[tuple[str, ScreenReport], ...]
    """Conditions in words -> screen."""
    in_use: Path | None = None
    conditions: Path | None = None

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
    first: Turn
    replays: Path | None
    diagnosis: Diagnosis | None
    plan: DataPlan | None
    second: Turn | None
    paired: PairedDifference | None
    seal: str
    gap: Gap | None
    duration_s: float
    """From the first row of the ledger to the last."""
    ledger_head: str
    """Number and hash of the ledger's newest row."""

    @property
    def diagnosis_agrees(self) -> bool | None:
        """Return whether the diagnosis names what was sealed; None without either."""
        if self.gap is None or self.diagnosis is None:
            return None
        return self.diagnosis.cause is self.gap.kind

    @property
    def is_better(self) -> bool | None:
        """Return whether turn 2 is shown to be better on the same conditions, by the exact test; None when it was not tried."""
        if self.paired is None or self.paired.difference.low is None:
            return None
        return self.paired.difference.low > 0


def compare(first: Turn, second: Turn | None) -> PairedDifference | None:
    """Return the paired difference of two turns on the same conditions, new minus old; None when turn 2 was not tried."""
    if second is None or second.in_use is None:
        return None
    new, old = ({r.seed: r.outcome for r in turn.results if r.seed is not None} for turn in (second, first))
    counts = pair_outcomes(new=new, old=old)
    return paired_difference(counts.n11, counts.n10, counts.n01, counts.n00, dropped=counts.dropped)


def turn_evidence(
    turn: Turn, spec: TurnSpec, ranges: FactorRanges, replays: Path, *, workers: int = 0
) -> Evidence:
    """Return what a diagnosis of a turn that was tried on the robot reads.

    Args:
        turn: with its logs.
        spec: of the run.
        ranges: what the training set was sampled from.
        replays: log of the replays.
        workers: processes for the searches; changes no number.
    """
    assert turn.in_use is not None
    assert turn.conditions is not None
    logs = (
        (Role.IN_USE, turn.in_use),
        (Role.TRAINING_CONDITIONS, turn.conditions),
        (Role.REPLAY, replays),
    )
    return Evidence(
        training=open_dataset(turn.datasets[0]),
        training_ranges=ranges,
        policy=turn.checkpoint,
        executor=turn.executor,
        trials=tuple(TrialSet.of_log(role, open_dataset(log)) for role, log in logs),
        screen=turn.screens[0][1],
        env=spec.env,
        seed=spec.seed,
        workers=workers,
    )
