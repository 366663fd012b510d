"""Runs the checks in order and names the broken thing, with the numbers, the remedy and the next command.

Order: evaluation, data, pixels, replay, execution, plant, policy. The first broken check is the diagnosis,
because what comes later rests on what comes earlier; the policy is blamed last. "Cannot tell yet" is an
answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from simgap import causes
from simgap.causes import Cause, cause_of
from simgap.checks.data.dataset import check_data
from simgap.checks.data.report import Severity
from simgap.checks.evaluation.trial_sets import check_evaluation
from simgap.checks.execution.chunks import check_execution
from simgap.checks.pixels.pose_and_light import check_pixels, first_frames
from simgap.checks.plant.servos import check_plant
from simgap.checks.policy.coverage import check_policy
from simgap.checks.replay.open_loop import check_replay, clips_of, motions_of, usable_replays
from simgap.envs import make_env
from simgap.envs.factors import FactorRanges
from simgap.episodes.reader import Dataset, open_dataset
from simgap.findings import CheckResult, Family, Verdict
from simgap.measures.response import Motion
from simgap.policies.bridges.open import read_any_card
from simgap.policies.execution import parse_executor
from simgap.provenance import assumptions, child_rng
from simgap.rollouts.screen import ScreenReport
from simgap.trials.batch import read_results


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnEvidence:
    """What a diagnosis reads; every field is on disk."""

    env: str
    training: Path
    """Dataset the policy was trained on."""
    training_ranges: FactorRanges
    checkpoint: Path
    executor: str
    screen: ScreenReport
    in_use: Path
    """Trial log with objects as they lie in use."""
    training_conditions: Path
    """Trial log with objects placed as in the training set."""
    replays: Path
    """Replays of the first episodes of ``training`` on the robot."""
    seed: int = 0
    workers: int = 0
    """Processes for the searches of the pixel check; changes no number."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagnosis:
    """Which thing is broken."""

    cause: Cause
    family: Family | None
    sentence: str
    checks: tuple[CheckResult, ...]
    remedy: str
    next_command: str = ""
    more_trials: int | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Numbers of the broken check; what targeting reads."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "cause": str(self.cause),
            "family": None if self.family is None else str(self.family),
            "sentence": self.sentence,
            "remedy": self.remedy,
            "next_command": self.next_command,
            "more_trials": self.more_trials,
            "parameters": dict(self.parameters),
            "checks": [c.to_json() for c in self.checks],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Diagnosis:
        """Rebuild a diagnosis from :meth:`to_json`."""
        checks = tuple(
            CheckResult(
                **{
                    **row,
                    "family": Family(row["family"]),
                    "verdict": Verdict(row["verdict"]),
                    "cause": cause_of(row["cause"]),
                    "assumes": tuple(row["assumes"]),
                }
            )
            for row in data["checks"]
        )
        family = None if data["family"] is None else Family(data["family"])
        rest = {k: data[k] for k in ("sentence", "remedy", "next_command", "more_trials", "parameters")}
        return cls(cause=cause_of(data["cause"]), family=family, checks=checks, **rest)


def decide(checks: Sequence[CheckResult]) -> Diagnosis:
    """Return the diagnosis that follows from checks in the order of diagnosis: the first broken one.

    With none broken, a check that cannot tell makes the diagnosis "cannot tell yet" and names the trials that
    would. A policy that is weak for no known reason is blamed only when every other check could tell.
    """
    ordered = _policy_last(sorted(checks, key=lambda c: list(Family).index(c.family)))
    unsure = [c for c in ordered if c.verdict is Verdict.CANNOT_TELL]
    for check in ordered:
        # "The policy is weak" is what is left when everything else is excluded; with a check that cannot tell
        # it is not.
        by_exclusion = check.cause.is_by_exclusion and any(c.family is not Family.POLICY for c in unsure)
        if check.verdict is Verdict.BROKEN and not by_exclusion:
            return Diagnosis(
                cause=check.cause,
                family=check.family,
                sentence=check.sentence,
                checks=tuple(ordered),
                remedy=check.cause.remedy,
                parameters=check.numbers,
            )
    if unsure:
        more = unsure[0].more_trials
        sentence = f"Cannot tell yet. {unsure[0].sentence}" + (
            f" Run {more} more of that set." if more else ""
        )
        return Diagnosis(
            cause=causes.UNKNOWN,
            family=None,
            sentence=sentence,
            checks=tuple(ordered),
            remedy=causes.UNKNOWN.remedy,
            more_trials=more,
        )
    skipped = ", ".join(str(c.family) for c in ordered if c.verdict is Verdict.NOT_RUN)
    sentence = f"Nothing broken was found. {ordered[-1].sentence}" + (
        f" Not looked at: {skipped}." if skipped else ""
    )
    return Diagnosis(
        cause=causes.NONE, family=None, sentence=sentence, checks=tuple(ordered), remedy=causes.NONE.remedy
    )


def _policy_last(ordered: list[CheckResult]) -> list[CheckResult]:
    """Withdraw the verdict "the policy is weak" where something else is broken: it is what is left when nothing is."""
    broken = [c for c in ordered if c.verdict is Verdict.BROKEN and not c.cause.is_by_exclusion]
    if not broken:
        return ordered
    told = f" What is broken above ({broken[0].family}) has to be repaired before the policy can be judged."
    return [
        (
            replace(c, verdict=Verdict.CANNOT_TELL, cause=causes.NONE, sentence=c.sentence + told)
            if c.cause.is_by_exclusion
            else c
        )
        for c in ordered
    ]


def diagnose(evidence: TurnEvidence, progress: Callable[[str], None] | None = None) -> Diagnosis:
    """Run every check on a turn's evidence and decide.

    Args:
        evidence: logs and screen of the turn.
        progress: told the family before each check runs.
    """
    training, in_use = open_dataset(evidence.training), open_dataset(evidence.in_use)
    conditions, replays = open_dataset(evidence.training_conditions), open_dataset(evidence.replays)
    shared = tuple(sorted(assumptions(training.spec.stamp)))
    spec = training.spec.action_spec
    usable = usable_replays(replays)
    robot, simulator = motions_of(replays, usable), motions_of(training, usable)
    judged = tuple(sorted(assumptions(in_use.spec.stamp) & set(shared)))
    clock = tuple(a for a in shared if a.startswith("clock="))
    steps: tuple[tuple[Family, tuple[str, ...], Callable[[], CheckResult]], ...] = (
        (Family.EVALUATION, judged, lambda: _evaluation(evidence, training, in_use, conditions, replays)),
        (Family.DATA, clock, lambda: _data(evidence.training)),
        (Family.PIXELS, shared, lambda: _pixels(evidence, training, in_use, shared)),
        (Family.REPLAY, shared, lambda: _replay(evidence, replays, robot, simulator)),
        (Family.EXECUTION, (*clock, f"executor={evidence.executor}"), lambda: _execution(evidence, in_use)),
        (Family.PLANT, shared, lambda: check_plant(robot, simulator, spec, assumes=shared)),
        (
            Family.POLICY,
            judged,
            lambda: check_policy(
                read_results(in_use), read_results(conditions), evidence.training_ranges, evidence.screen.rate
            ),
        ),
    )
    results = []
    for family, assumes, run in steps:
        if progress:
            progress(str(family))
        results.append(replace(run(), assumes=assumes))
    return decide(results)


def _evaluation(
    evidence: TurnEvidence, training: Dataset, in_use: Dataset, conditions: Dataset, replays: Dataset
) -> CheckResult:
    trained = frozenset(training.episode(i, images=False).seed for i in range(training.n_episodes))
    sets = {
        "trials in use": read_results(in_use),
        "trials under training conditions": read_results(conditions),
    }
    return check_evaluation(sets, trained, frozenset(evidence.screen.outcomes))


def _replay(
    evidence: TurnEvidence, replays: Dataset, robot: list[Motion], simulator: list[Motion]
) -> CheckResult:
    spec = replays.spec.action_spec
    return check_replay(
        robot,
        simulator,
        spec,
        clips=clips_of(replays, spec),
        rng=child_rng(evidence.seed, "replay bootstrap"),
    )


def _data(path: Path) -> CheckResult:
    report = check_data(path)
    faults = [f for f in report.findings if f.severity is Severity.FAULT]
    base: dict[str, Any] = {
        "family": Family.DATA,
        "name": "training set against its own description",
        "numbers": {"faults": [f.code for f in faults]},
        "statistic": "faults",
        "value": float(len(faults)),
        "threshold": 0.0,
    }
    if faults:
        return CheckResult(
            **base,
            verdict=Verdict.BROKEN,
            cause=causes.DATA,
            sentence=f"The training set is faulty: {'; '.join(f.sentence for f in faults[:3])}",
        )
    return CheckResult(
        **base,
        verdict=Verdict.OK,
        sentence=f"The training set is what it says: {len(report.findings)} remarks, no fault.",
    )


def _pixels(evidence: TurnEvidence, training: Dataset, log: Dataset, shared: tuple[str, ...]) -> CheckResult:
    env = make_env(evidence.env, image_size=training.spec.image_size[0])
    try:
        return check_pixels(
            env,
            {camera: first_frames(log, camera) for camera in training.spec.cameras},
            assumes=shared,
            seed=evidence.seed,
            workers=evidence.workers,
        )
    finally:
        env.close()


def _execution(evidence: TurnEvidence, log: Dataset) -> CheckResult:
    chunk = read_any_card(evidence.checkpoint).architecture.chunk
    executor = parse_executor(evidence.executor)
    episodes = [log.episode(i, images=False) for i in range(log.n_episodes)]
    return check_execution(episodes, executor, executor.build(log.spec.action_spec, chunk), chunk)
