"""Batches of trials: planned conditions in, a dataset of full episodes out; resumable, on a robot or several alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from simgap.compute.locks import alone_in
from simgap.compute.workers import run_tasks
from simgap.conventions import require_same
from simgap.episodes.reader import Dataset, open_dataset
from simgap.episodes.spec import DatasetSpec
from simgap.episodes.write.store import EpisodeWriter
from simgap.errors import DataError, TrialFault
from simgap.policies.execution import parse_executor
from simgap.provenance import Stamp
from simgap.robots.base import InitialCondition
from simgap.robots.convention import CommandMap
from simgap.robots.surrogate import SurrogateRobot
from simgap.trials.run import run_replay, run_trial
from simgap.types import Episode, Outcome

MOST_STEPS = 200
"""Control steps of a trial, unless the env's horizon is longer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SurrogateSpec:
    """Which surrogate to drive."""

    env: str
    image_size: int
    seed: int
    gap: str = "random"

    def open(self) -> SurrogateRobot:
        """Start it."""
        return SurrogateRobot(env=self.env, image_size=self.image_size, seed=self.seed, gap=self.gap)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialPlan:
    """What is tried, fixed before the first trial."""

    name: str
    robot: SurrogateSpec
    conditions: tuple[InitialCondition, ...]
    task: str
    max_steps: int = MOST_STEPS
    """Control steps after which a trial without a verdict is void."""
    checkpoint: Path | None = None
    """Policy under test; None for a replay."""
    executor: str = ""
    replay_of: Path | None = None
    """Dataset whose executed actions are replayed, episode ``i`` under condition ``i``."""
    commands: Mapping[str, float] = field(default_factory=dict)
    """Measured multipliers to undo, by dimension."""

    def stamp(self, robot: SurrogateRobot) -> Stamp:
        """Return the stamp of the log."""
        from simgap.policies.bridges.open import read_any_card

        policy = (
            {"replay_of": open_dataset(self.replay_of).fingerprint}
            if self.replay_of
            else {"policy": read_any_card(self._checkpoint()).hash, "executor": self.executor}
        )
        plan = {
            "name": self.name,
            "conditions": [[c.seed, dict(c.placements)] for c in self.conditions],
            "commands": dict(self.commands),
        }
        return Stamp(
            kind="trials",
            fields={**robot.stamp_fields(), "evidence": str(robot.evidence), **policy, "plan": plan},
        )

    def _checkpoint(self) -> Path:
        if self.checkpoint is None:
            raise DataError(
                f"trial plan {self.name!r} names neither a checkpoint nor a dataset to replay; give one"
            )
        return self.checkpoint


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialResult:
    """One finished trial, as the analysis reads it."""

    index: int
    seed: int | None
    """Of its initial condition; None where nobody recorded one."""
    outcome: Outcome
    placements: Mapping[str, float]
    steps: int


def run_trials(
    plan: TrialPlan,
    out: Path,
    *,
    workers: int,
    progress: Callable[[int, int], None] | None = None,
    robot: SurrogateRobot | None = None,
) -> list[TrialResult]:
    """Run what is missing of a plan and return all its results.

    Each trial is on disk before the next begins; killed and called again, it goes on. Workers drive
    surrogates of the same seed: identical robots. A physical robot is one worker.

    Args:
        plan: what is tried.
        out: folder of the log.
        workers: processes; 0 runs in this one.
        progress: called with (trials done, total).
        robot: an open robot of the plan to take the log's stamp from; one is started for it otherwise.

    Raises:
        DataError: the folder holds another plan.
        SimgapError: a policy that does not fit the robot.
    """
    with alone_in(out):
        return _run_trials(plan, out, workers, progress, robot)


def _run_trials(
    plan: TrialPlan,
    out: Path,
    workers: int,
    progress: Callable[[int, int], None] | None,
    robot: SurrogateRobot | None,
) -> list[TrialResult]:
    stamped = robot or plan.robot.open()
    try:
        spec = _dataset_spec(plan, stamped)
    finally:
        if robot is None:
            stamped.close()
    writer = EpisodeWriter(out, spec)
    done = writer.done()
    missing = [i for i in range(len(plan.conditions)) if i not in done]
    count = len(plan.conditions) - len(missing)

    def landed(_: int) -> None:
        nonlocal count
        count += 1
        if progress:
            progress(count, len(plan.conditions))

    if progress:
        progress(count, len(plan.conditions))
    run_tasks(_setup, (plan, spec, out), missing, workers=workers, on_result=landed)
    writer.finish()
    return read_results(open_dataset(out))


def read_results(log: Dataset) -> list[TrialResult]:
    """Return the results of a trial log, in the order of its plan."""
    results = []
    for index in range(log.n_episodes):
        episode = log.episode(index, images=False)
        results.append(
            TrialResult(
                index=index,
                seed=episode.seed,
                outcome=episode.outcome,
                placements=episode.factors,
                steps=len(episode),
            )
        )
    return results


def conditions_of(
    dataset: Dataset, indices: Sequence[int], placement_factors: Sequence[str]
) -> tuple[InitialCondition, ...]:
    """Return the initial conditions under which logged episodes were made, so that an operator can set them up again."""
    conditions = []
    for index in indices:
        episode = dataset.episode(index, images=False)
        conditions.append(
            InitialCondition(
                # A log without seeds: its episodes are told apart by their place.
                seed=index if episode.seed is None else episode.seed,
                placements={k: episode.factors[k] for k in placement_factors if k in episode.factors},
            )
        )
    return tuple(conditions)


def _dataset_spec(plan: TrialPlan, robot: SurrogateRobot) -> DatasetSpec:
    return DatasetSpec(
        name=plan.name,
        action_spec=robot.action_spec,
        state_spec=robot.state_spec,
        cameras=robot.cameras,
        image_size=(plan.robot.image_size, plan.robot.image_size),
        rate_hz=robot.action_spec.rate_hz,
        stamp=plan.stamp(robot),
        task_default=plan.task,
    )


def _setup(plan: TrialPlan, spec: DatasetSpec, out: Path) -> Callable[[int], int]:
    robot = plan.robot.open()
    writer = EpisodeWriter(out, spec)
    commands = CommandMap.correcting(robot.action_spec, plan.commands) if plan.commands else None
    trial = (
        _policy_trial(plan, robot, commands)
        if plan.replay_of is None
        else _replay_trial(plan, robot, commands)
    )

    def run(index: int) -> int:
        outcome, episode = trial(index)
        if episode is None:
            raise TrialFault(
                f"trial {index} broke before the first action ({outcome.detail}); repair the robot and run"
                " the same command again"
            )
        writer.write(index, episode)
        return index

    return run


def _policy_trial(
    plan: TrialPlan, robot: SurrogateRobot, commands: CommandMap | None
) -> Callable[[int], tuple[Outcome, Episode | None]]:
    from simgap.policies.bridges.open import open_policy  # torch: two seconds that a replay does not need
    from simgap.policies.checkpoint import require_matches

    policy = open_policy(plan._checkpoint(), bf16=True, threads=1)
    require_matches(
        policy, robot.action_spec, robot.state_spec, robot.cameras, plan.robot.image_size, other="the robot"
    )
    executor = parse_executor(plan.executor)
    return lambda index: run_trial(
        robot,
        policy,
        executor,
        plan.conditions[index],
        task=plan.task,
        max_steps=plan.max_steps,
        commands=commands,
    )


def _replay_trial(
    plan: TrialPlan, robot: SurrogateRobot, commands: CommandMap | None
) -> Callable[[int], tuple[Outcome, Episode | None]]:
    assert plan.replay_of is not None
    source = open_dataset(plan.replay_of)
    require_same(
        robot.action_spec,
        source.spec.action_spec,
        what="actions",
        ours_name="the robot",
        theirs_name=str(plan.replay_of),
    )

    def trial(index: int) -> tuple[Outcome, Episode | None]:
        logged = source.episode(index, images=False)
        actions: Any = logged.extras.get("executed_action", logged.action)
        return run_replay(
            robot,
            np.asarray(actions, dtype=np.float32),
            plan.conditions[index],
            task=plan.task,
            commands=commands,
        )

    return trial
