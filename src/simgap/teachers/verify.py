"""Verified labels: a label counts if its teacher, rolled out from that very state, solves the task."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from simgap.envs.abilities import Rewinds, able
from simgap.envs.base import TaskEnv
from simgap.teachers.base import Abstain, Teacher
from simgap.types import Outcome


def roll_out(env: TaskEnv, teacher: Teacher) -> Outcome:
    """Let a teacher act until the episode ends; the env stays there.

    Args:
        env: an env in the middle of an episode.
        teacher: its teacher.

    Returns:
        What the judge said; void with the reason if the teacher abstained on the way.

    Raises:
        UsageError: the episode is over already.
    """
    while True:
        label = teacher.label()
        if isinstance(label, Abstain):
            return Outcome.void(f"the teacher abstained: {label.reason}")
        info = env.step(label)[4]
        if "outcome" in info:
            outcome = info["outcome"]
            assert isinstance(outcome, Outcome)
            return outcome


def verify(env: TaskEnv, teacher: Teacher, *, extra_steps: int = 0) -> Outcome:
    """Return how a teacher's rollout from the present state ends, and put the env back exactly where it was.

    Nothing is drawn meanwhile. The rollout is noise-free, so a label of a perturbed state is verified as what
    it is: the way on from there. Only a success verifies it.

    Args:
        env: an env in the middle of an episode, with snapshots.
        teacher: its teacher; memoryless, so being asked changes nothing in it.
        extra_steps: control steps granted beyond the horizon, for states late in an episode whose label is
            right all the same.

    Returns:
        Success if the label of this state is verified; the failure otherwise, or void with the reason of an
        abstention.

    Raises:
        UsageError: the env cannot be copied, or the episode is over.
    """
    with _set_aside(env, extra_steps):
        return roll_out(env, teacher)


@contextmanager
def _set_aside(env: TaskEnv, extra_steps: int) -> Iterator[None]:
    """Restore state, horizon and rendering afterwards."""
    rewinding = able(env, Rewinds)
    snapshot, renders, horizon = rewinding.snapshot(), env.renders, env.horizon_steps
    env.renders, env.horizon_steps = False, horizon + extra_steps
    try:
        yield
    finally:
        rewinding.restore(snapshot)
        env.renders, env.horizon_steps = renders, horizon


__all__ = ["roll_out", "verify"]
