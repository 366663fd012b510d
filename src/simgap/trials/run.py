"""Runs trials and replays on a robot and logs each as a full episode, one file set a trial, as it ends."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.errors import PolicyFault, TrialFault
from simgap.policies.base import Asked, Policy, WatchingPolicy, ask
from simgap.policies.execution import ExecutorSpec, require_executable
from simgap.policies.executors import prefix_of
from simgap.robots.base import SIMULATOR, AppliedAction, InitialCondition, Robot, RobotObservation
from simgap.robots.convention import CommandMap
from simgap.robots.guard import Guard
from simgap.types import Episode, Outcome


@dataclass(slots=True)
class _Log:
    """Rows of a running trial."""

    observations: list[RobotObservation] = field(default_factory=list)
    commands: list[NDArray[np.float32]] = field(default_factory=list)
    applied: list[AppliedAction] = field(default_factory=list)
    ages: list[float] = field(default_factory=list)

    def row(
        self, seen: RobotObservation, command: NDArray[np.float32], applied: AppliedAction, age: float
    ) -> None:
        self.observations.append(seen)
        self.commands.append(command)
        self.applied.append(applied)
        self.ages.append(age)

    def episode(self, outcome: Outcome, task: str, measured: InitialCondition) -> Episode | None:
        """Return the episode, or None when the trial broke before its first action."""
        if not self.commands:
            return None
        cameras = self.observations[0].images
        extras: dict[str, NDArray[Any]] = {
            "applied_action": np.stack([a.action for a in self.applied]),
            "chunk_age": np.array(self.ages, dtype=np.float32),
            "frame_age_s": np.array(
                [max(o.frame_age_s.values()) for o in self.observations], dtype=np.float32
            ),
        }
        return Episode(
            images={c: np.stack([o.images[c] for o in self.observations]) for c in cameras},
            state=np.stack([o.state for o in self.observations]),
            action=np.stack(self.commands),
            time_s=np.array([o.time_s for o in self.observations]),
            outcome=outcome,
            task=task,
            seed=measured.seed,
            factors=measured.placements,
            extras=extras,
        )


def run_trial(
    robot: Robot,
    policy: Policy,
    executor: ExecutorSpec,
    condition: InitialCondition,
    *,
    task: str,
    max_steps: int,
    commands: CommandMap | None = None,
) -> tuple[Outcome, Episode | None]:
    """Run a policy on a robot once.

    Args:
        robot: anything that can be driven.
        policy: what decides; its convention must be the robot's.
        executor: how its chunks become actions; built anew, so nothing of an earlier trial is left in it.
        condition: where things should lie.
        task: the instruction.
        max_steps: control steps after which the trial is over. A simulator that has not spoken by then makes
            it void; where a person judges, what was not done in time is a failure.
        commands: correction between the policy's convention and the robot's driver, if one was found.

    Returns:
        The outcome, and the trial as an episode; None where it broke before the first action. A fault of the
        robot makes it a void with the reason, not a failure.
    """
    log = _Log()
    require_executable(policy, executor)
    execution = executor.build(policy.action_spec, policy.chunk)
    execution.reset(condition.draws)
    measured = condition
    with Guard(robot) as guard:
        try:
            measured = guard.reset(condition)
            for step in range(max_steps):
                seen = guard.observe()
                frames = {c: seen.images[c][None] for c in policy.cameras}
                asked = Asked(seed=condition.draws, step=step, goal=task, prefix=prefix_of(execution, step))
                if execution.needs_chunk(step):
                    execution.submit(ask(policy, frames, seen.state[None], [asked])[0], step)
                elif isinstance(policy, WatchingPolicy) and policy.watches:
                    policy.watch(frames, seen.state[None], [asked])
                sent = execution.act(step)
                _require_finite(sent.action, policy.action_spec.names)
                command = sent.action if commands is None else commands.apply(sent.action)
                log.row(seen, command, guard.act(command), sent.age)
                if (outcome := guard.verdict()) is not None:
                    break
            else:
                outcome = _unjudged(guard, max_steps)
        except PolicyFault as fault:
            outcome = Outcome.failure(fault.mode, str(fault))
        except TrialFault as fault:
            outcome = Outcome.void(str(fault))
    return outcome, log.episode(outcome, task, measured)


def _require_finite(action: NDArray[np.float32], names: tuple[str, ...]) -> None:
    """Raise where a policy wants no number: its own fault, so a failure; a void would flatter it. Nothing is sent."""
    if not (finite := np.isfinite(action)).all():
        at = int(np.flatnonzero(~finite)[0])
        raise PolicyFault(f"the policy sent {action[at]} for {names[at]}", mode="not_finite")


def _unjudged(guard: Guard, steps: int) -> Outcome:
    """Return the outcome of a trial that ran its whole time: the judge is asked once more, of a robot that stands."""
    guard.stop()
    if (said := guard.verdict()) is not None:
        return said
    if guard.judge == SIMULATOR:
        return Outcome.void(f"no verdict after {steps} steps")
    return Outcome.failure("timeout")


def run_replay(
    robot: Robot,
    actions: NDArray[np.float32],
    condition: InitialCondition,
    *,
    task: str,
    commands: CommandMap | None = None,
) -> tuple[Outcome, Episode | None]:
    """Send logged actions open loop from the logged initial condition and record what the robot does.

    The policy plays no part, so what differs from the log is convention, plant or placement. It ends with the
    judge's verdict: a robot may succeed some steps sooner than its log, and what it does after that is
    nothing to compare.

    Args:
        robot: anything that can be driven.
        actions: ``(T, A)`` as executed when they were logged.
        condition: where things lay then.
        task: the instruction.
        commands: correction under test, if any.
    """
    log = _Log()
    measured = condition
    outcome: Outcome | None = None
    with Guard(robot) as guard:
        try:
            measured = guard.reset(condition)
            for action in actions:
                command = action if commands is None else commands.apply(action)
                seen = guard.observe()
                log.row(seen, command, guard.act(command), 0.0)
                if (outcome := guard.verdict()) is not None:
                    break
        except TrialFault as fault:
            outcome = Outcome.void(str(fault))
    ended = outcome or Outcome.failure("timeout")
    return ended, log.episode(ended, task, measured)
