"""What a diagnosis reads: data sets, policy, trial sets and screens, each part optional and typed.

Nothing in a check asks where a part came from: a run of the demo is one maker of evidence among others. A part that is missing
is no error; the checks that need it are not asked, and say so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path

from simgap.envs.factors import FactorRanges
from simgap.episodes.reader import Dataset
from simgap.rollouts.screen import ScreenReport
from simgap.trials.batch import TrialResult, read_results


class Role(StrEnum):
    """What a set of trials was run for."""

    IN_USE = "trials in use"
    TRAINING_CONDITIONS = "trials under training conditions"
    REPLAY = "replays of logged episodes"


class Need(StrEnum):
    """A part of the evidence that a check may need, in words."""

    TRAINING = "the training set"
    TRAINING_RANGES = "the ranges that the training set was sampled from"
    POLICY = "the policy"
    EXECUTOR = "the executor"
    IN_USE = "trials in use"
    TRAINING_CONDITIONS = "trials under training conditions"
    REPLAYS = "replays of logged episodes"
    SCREEN = "a screen in sim"
    ENV = "an env of the task"


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialSet:
    """Trials that were run for one purpose."""

    role: Role
    outcomes: tuple[TrialResult, ...]
    log: Dataset | None = None
    """Their full episodes; None where only outcomes are known."""

    @classmethod
    def of_log(cls, role: Role, log: Dataset) -> TrialSet:
        """Return a set with the outcomes that its log holds."""
        return cls(role=role, outcomes=tuple(read_results(log)), log=log)


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """What is there to read; see the module."""

    training: Dataset | None = None
    """What the policy was trained on."""
    training_ranges: FactorRanges | None = None
    policy: Path | None = None
    """Checkpoint folder or policy file."""
    executor: str = ""
    trials: tuple[TrialSet, ...] = ()
    screen: ScreenReport | None = None
    env: str = ""
    """Env of the same task, by name."""
    seed: int = 0
    """Of the resampling and the searches of the checks."""
    workers: int = 0
    """Processes for searches; changes no number."""

    def trial_set(self, role: Role) -> TrialSet | None:
        """Return the set of trials with this role."""
        return next((s for s in self.trials if s.role is role), None)

    def log(self, role: Role) -> Dataset:
        """Return the log of a role that a check has named in its needs.

        Raises:
            LookupError: it is not there; the check ran without what it needs.
        """
        found = self.trial_set(role)
        if found is None or found.log is None:
            raise LookupError(f"there is no log of {role}")
        return found.log

    def missing(self, needs: frozenset[Need]) -> tuple[Need, ...]:
        """Return those needs that this evidence does not meet, in their order."""
        return tuple(need for need in Need if need in needs and not _HAS[need](self))


def _has_log(evidence: Evidence, role: Role) -> bool:
    found = evidence.trial_set(role)
    return found is not None and found.log is not None


_HAS: Mapping[Need, Callable[[Evidence], bool]] = {
    Need.TRAINING: lambda e: e.training is not None,
    Need.TRAINING_RANGES: lambda e: e.training_ranges is not None,
    Need.POLICY: lambda e: e.policy is not None,
    Need.EXECUTOR: lambda e: bool(e.executor),
    Need.IN_USE: partial(_has_log, role=Role.IN_USE),
    Need.TRAINING_CONDITIONS: partial(_has_log, role=Role.TRAINING_CONDITIONS),
    Need.REPLAYS: partial(_has_log, role=Role.REPLAY),
    Need.SCREEN: lambda e: e.screen is not None,
    Need.ENV: lambda e: bool(e.env),
}
