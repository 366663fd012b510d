"""Batches of trials: planned conditions in, a dataset of full episodes out; resumable, on a robot or several alike."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
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
from simgap.robots.base import InitialCondition, Robot, condition_of
from simgap.robots.convention import CommandMap
from simgap.robots.refs import RobotRef
from simgap.trials.rows import TrialRow, read_rows
from simgap.trials.run import run_replay, run_trial
from simgap.types import Episode, Outcome

MOST_STEPS = 200
"""Control steps of a trial, unless the env's horizon is longer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialPlan:
    """What is tried, fixed before the first trial."""

    name: str
    robot: RobotRef
    conditions: tuple[InitialCondition, ...]
    task: str
    max_steps: int = MOST_STEPS
    """Control steps of a trial, after which no more is sent."""
    checkpoint: Path | None = None
    """Policy under test; None for a replay."""
    executor: str = ""
    replay_of: Path | None = None
    """Dataset whose executed actions are replayed, episode ``i`` under condition ``i``."""
    commands: Mapping[str, float] = field(default_factory=dict)
    """Measured multipliers to undo, by dimension."""

    def stamp(self, robot: Robot) -> Stamp:
        """Return the stamp of the log."""
        from simgap.policies.bridges.open import read_any_card

        policy = (
            {"replay_of": open_dataset(self.replay_of).fingerprint}
            if self.replay_of
            else {"policy": read_any_card(self._checkpoint()).hash, "executor": self.executor}
        )
        plan = {
            "name": self.name,
            "conditions": [[c.seed, dict(c.placements), *([c.id] if c.id else [])] for c in self.conditions],
            "commands": dict(self.commands),
        }
        return Stamp(
            kind="trials",
            fields={
                **robot.stamp_fields(),
                **self.robot.stamp_fields(),
                "evidence": str(robot.evidence),
                **policy,
                "plan": plan,
            },
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
    """Commands that were sent; 0 where it broke before the first."""
    condition_id: str | None = None
    """What trials of one condition share; None where nothing tells conditions apart."""
    began: str | None = None
    """UTC, ISO 8601; None where nobody recorded it."""
    judge: str | None = None
    """Who said how it ended; None where nobody recorded it."""
    clipped: float | None = None
    """Share of commands that the robot changed; None where what it applied is not logged."""
    rate_hz: float | None = None
    """Of its control loop, by the robot's clock."""


def run_trials(
    plan: TrialPlan,
    out: Path,
    *,
    workers: int,
    progress: Callable[[int, int], None] | None = None,
    robot: Robot | None = None,
) -> list[TrialResult]:
    """Run what is missing of a plan and return all its results.

    Each trial is on disk before the next begins; killed and called again, it goes on. Where all robots of
    the plan are alike each worker opens its own; a robot of which there is one is opened once, and driven
    from this process.

    Args:
        plan: what is tried.
        out: folder of the log.
        workers: processes; 0 runs in this one.
        progress: called with (trials done, total).
        robot: the plan's robot where it is open already; it stays open. It is opened for the log's stamp
            otherwise.

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
    robot: Robot | None,
) -> list[TrialResult]:
    here = robot if robot is not None else plan.robot.open()
    try:
        spec = _dataset_spec(plan, here)
        writer = EpisodeWriter(out, spec)
        missing = _missing(plan, writer)
        count = len(plan.conditions) - len(missing)

        def landed(_: int) -> None:
            nonlocal count
            count += 1
            if progress:
                progress(count, len(plan.conditions))

        if progress:
            progress(count, len(plan.conditions))
        if workers and plan.robot.is_one_of_many:
            run_tasks(_setup, (plan, spec, out, None), missing, workers=workers, on_result=landed)
        else:
            run_tasks(_setup, (plan, spec, out, here), missing, workers=0, on_result=landed)
    finally:
        if robot is None:
            here.close()
    if not writer.done():
        raise _nothing_tried(out)
    writer.finish()
    return read_results(open_dataset(out))


def _missing(plan: TrialPlan, writer: EpisodeWriter) -> list[int]:
    """Return the trials that have not ended. One whose row stands there without its episode was killed, and is run again."""
    rows, written = read_rows(writer.root), writer.done()
    ended = {i for i, row in rows.items() if row.episode is None or row.episode in written}
    claimed = {row.episode for row in rows.values()}
    ended |= {e for e in written if e not in claimed}  # logged before there were rows
    return [i for i in range(len(plan.conditions)) if i not in ended]


def _nothing_tried(out: Path) -> TrialFault:
    rows = read_rows(out)
    reason = next((row.outcome.detail for row in rows.values()), "no trial was planned")
    return TrialFault(
        f"none of {len(rows)} trials got to its first action ({reason}); repair the robot, delete {out} and run"
        " the same command again"
    )


def read_results(log: Dataset) -> list[TrialResult]:
    """Return the results of a trial log, in the order of its plan; trials that broke before their first action included.

    Raises:
        DataError: a row of a trial was changed, or says something else than its episode.
    """
    rows = read_rows(log.root)
    by_episode = {row.episode: row for row in rows.values()}
    results = [_tried(log, index, by_episode.get(index)) for index in range(log.n_episodes)]
    results += [_set_aside(row) for row in rows.values() if row.episode is None]
    return sorted(results, key=lambda result: result.index)


def _tried(log: Dataset, index: int, row: TrialRow | None) -> TrialResult:
    episode = log.episode(index, images=False)
    outcome = episode.outcome
    if row is not None:
        if row.outcome != outcome:
            raise DataError(
                f"{log.root} says two things of trial {row.index}: {row.outcome} in its row, {outcome} in its"
                " episode; restore the log"
            )
        outcome = row.outcome  # with its reason
    steps, took = len(episode) - 1, float(episode.time_s[-1] - episode.time_s[0])
    applied = episode.extras.get("applied_action")
    return TrialResult(
        index=index if row is None else row.index,
        seed=episode.seed,
        outcome=outcome,
        placements=episode.factors,
        steps=len(episode),
        condition_id=condition_of(episode.seed) if row is None else row.condition_id,
        began=None if row is None else row.began,
        judge=None if row is None else row.judge,
        clipped=None if applied is None else float((np.abs(applied - episode.action) > 1e-3).any(1).mean()),
        rate_hz=steps / took if took > 0 else None,
    )


def _set_aside(row: TrialRow) -> TrialResult:
    return TrialResult(
        index=row.index,
        seed=row.seed,
        outcome=row.outcome,
        placements=row.placements,
        steps=0,
        condition_id=row.condition_id,
        began=row.began,
        judge=row.judge,
    )


def conditions_of(
    dataset: Dataset, indices: Sequence[int], placement_factors: Sequence[str]
) -> tuple[InitialCondition, ...]:
    """Return the initial conditions under which logged episodes were made, so that an operator can set them up again."""
    conditions = []
    for index in indices:
        episode = dataset.episode(index, images=False)
        conditions.append(
            InitialCondition(
                seed=episode.seed,
                placements={k: episode.factors[k] for k in placement_factors if k in episode.factors},
                # A log without seeds: its episodes are told apart by their place.
                id="" if episode.seed is not None else f"episode {index} of {dataset.fingerprint[:12]}",
            )
        )
    return tuple(conditions)


def _dataset_spec(plan: TrialPlan, robot: Robot) -> DatasetSpec:
    return DatasetSpec(
        name=plan.name,
        action_spec=robot.action_spec,
        state_spec=robot.state_spec,
        cameras=robot.cameras,
        image_size=(robot.image_size, robot.image_size),
        rate_hz=robot.action_spec.rate_hz,
        stamp=plan.stamp(robot),
        task_default=plan.task,
    )


def _setup(plan: TrialPlan, spec: DatasetSpec, out: Path, open_here: Robot | None) -> Callable[[int], int]:
    robot = open_here if open_here is not None else plan.robot.open()
    writer = EpisodeWriter(out, spec)
    commands = CommandMap.correcting(robot.action_spec, plan.commands) if plan.commands else None
    trial = (
        _policy_trial(plan, robot, commands)
        if plan.replay_of is None
        else _replay_trial(plan, robot, commands)
    )

    def run(index: int) -> int:
        began = datetime.now(UTC).isoformat(timespec="seconds")
        outcome, episode = trial(index)
        condition = plan.conditions[index]
        if episode is None and open_here is None:
            # several workers number their episodes by the plan: one that is missing would leave a gap
            raise TrialFault(
                f"trial {index} broke before the first action ({outcome.detail}); repair the robot and run"
                " the same command again"
            )
        row = TrialRow(
            index=index,
            episode=None if episode is None else index if open_here is None else _next_place(writer),
            seed=condition.seed,
            condition_id=condition.condition_id,
            placements=condition.placements if episode is None else episode.factors,
            began=began,
            judge=robot.judge,
            outcome=outcome,
        )
        row.write(out)
        if episode is not None and row.episode is not None:
            writer.write(row.episode, episode)
        return index

    return run


def _next_place(writer: EpisodeWriter) -> int:
    """Return the first free place of a log: one that a trial without an action did not need is the next one's."""
    written = writer.done()
    return next(i for i in itertools.count() if i not in written)


def _policy_trial(
    plan: TrialPlan, robot: Robot, commands: CommandMap | None
) -> Callable[[int], tuple[Outcome, Episode | None]]:
    from simgap.policies.bridges.open import open_policy  # torch: two seconds that a replay does not need
    from simgap.policies.checkpoint import require_matches

    policy = open_policy(plan._checkpoint(), bf16=True, threads=1)
    require_matches(
        policy, robot.action_spec, robot.state_spec, robot.cameras, robot.image_size, other="the robot"
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
    plan: TrialPlan, robot: Robot, commands: CommandMap | None
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
