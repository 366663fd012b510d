"""Executors with one bug each, as found in public code: for studies of what a bug costs, and for tests that the probe sees it.

None is ever built from an executor's text. Success hides most of them on short chunks; the probe does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from simgap import causes
from simgap.causes import Cause, Family
from simgap.conventions import ActionSpec, Reference
from simgap.mutants.base import Seam, Strength
from simgap.policies.execution import ExecutorSpec, Mode
from simgap.policies.executors import EnsembleExecutor, ExecutedAction, Executor

Chunk = NDArray[np.float32]


class Wrapped:
    """Hands everything through; a bug changes one thing."""

    def __init__(self, inner: Executor) -> None:
        self.inner = inner

    def reset(self, episode: int) -> None:
        """Pass on."""
        self.inner.reset(episode)

    def needs_chunk(self, step: int) -> bool:
        """Pass on."""
        return self.inner.needs_chunk(step)

    def submit(self, chunk: Chunk, obs_step: int, *, episode: int | None = None) -> None:
        """Pass on."""
        self.inner.submit(chunk, obs_step, episode=episode)

    def act(self, step: int) -> ExecutedAction:
        """Pass on."""
        return self.inner.act(step)


class QueueNeverReset:
    """A queue of actions that outlives the episode: the next one begins with what was left of this one."""

    def __init__(self, k: int) -> None:
        self._queue: list[Chunk] = []
        self._k = k
        self._source = 0

    def reset(self, episode: int) -> None:
        """Do nothing: the bug."""

    def needs_chunk(self, step: int) -> bool:
        """Return True when the queue is empty."""
        return not self._queue

    def submit(self, chunk: Chunk, obs_step: int, *, episode: int | None = None) -> None:
        """Fill the queue."""
        self._queue, self._source = list(chunk[: self._k]), obs_step

    def act(self, step: int) -> ExecutedAction:
        """Return the queue's head."""
        action = self._queue.pop(0).copy()
        return ExecutedAction(
            action=action,
            source_step=float(self._source),
            age=float(step - self._source),
            n_averaged=1,
            disagreement=None,
        )


class ForgottenReset(Wrapped):
    """Resets for the first episode, then never again."""

    _is_first = True

    def reset(self, episode: int) -> None:
        """Pass on once."""
        if self._is_first:
            self.inner.reset(episode)
        self._is_first = False


class FirstEntryOnly(Wrapped):
    """Sends ``chunk[0]`` whatever the step."""

    def submit(self, chunk: Chunk, obs_step: int, *, episode: int | None = None) -> None:
        """Repeat the first entry."""
        self.inner.submit(np.repeat(chunk[:1], len(chunk), axis=0), obs_step, episode=episode)


class StaleIndex(Wrapped):
    """Reads each chunk one entry early, as if it belonged to the step of its arrival."""

    def submit(self, chunk: Chunk, obs_step: int, *, episode: int | None = None) -> None:
        """Move entries one step later."""
        self.inner.submit(np.concatenate((chunk[:1], chunk[:-1])), obs_step, episode=episode)


class StaleObservation(Wrapped):
    """Plans from the observation before the current one, as a loop with a buffered camera does."""

    _last: Chunk | None = None

    def submit(self, chunk: Chunk, obs_step: int, *, episode: int | None = None) -> None:
        """Hand over the chunk before."""
        self.inner.submit(chunk if self._last is None else self._last, obs_step, episode=episode)
        self._last = chunk.copy()


def _never_reset(spec: ExecutorSpec, action_spec: ActionSpec, chunk: int) -> Executor:
    return QueueNeverReset(
        spec.replan_steps if spec.mode is Mode.RECEDING else 1 if spec.mode is Mode.LATEST else chunk
    )


def _reversed(spec: ExecutorSpec, action_spec: ActionSpec, chunk: int) -> Executor:
    return replace(spec, decay=-spec.decay).build(action_spec, chunk)


def _mean_of_deltas(spec: ExecutorSpec, action_spec: ActionSpec, chunk: int) -> Executor:
    return EnsembleExecutor(action_spec, chunk, decay=spec.decay, lead_steps=spec.lead_steps)


def _mean_of_grippers(spec: ExecutorSpec, action_spec: ActionSpec, chunk: int) -> Executor:
    blind = replace(
        action_spec,
        dimensions=tuple(
            replace(d, is_gripper=False, reference=Reference.ABSOLUTE) for d in action_spec.dimensions
        ),
    )
    return EnsembleExecutor(blind, chunk, decay=spec.decay, lead_steps=spec.lead_steps)


@dataclass(frozen=True, kw_only=True, slots=True)
class ExecutionBug:
    """One bug, and what the probe says of it."""

    build: Callable[[ExecutorSpec, ActionSpec, int], Executor]
    """Like :meth:`ExecutorSpec.build`, without its refusals."""
    fault: str
    """Kind of fault by which the probe names it."""
    modes: tuple[Mode, ...]
    """Modes in which the bug can be made."""


_SINGLE = (Mode.LATEST, Mode.WHOLE_CHUNK, Mode.RECEDING)
EXECUTION_BUGS: Mapping[str, ExecutionBug] = {
    "queue_never_reset": ExecutionBug(
        build=_never_reset, fault="reset", modes=(Mode.WHOLE_CHUNK, Mode.RECEDING)
    ),
    "forgotten_reset": ExecutionBug(
        build=lambda s, a, h: ForgottenReset(s.build(a, h)), fault="refused", modes=(*_SINGLE, Mode.ENSEMBLE)
    ),
    "reversed_weights": ExecutionBug(build=_reversed, fault="staleness", modes=(Mode.ENSEMBLE,)),
    "first_entry_only": ExecutionBug(
        build=lambda s, a, h: FirstEntryOnly(s.build(a, h)),
        fault="index",
        modes=(Mode.WHOLE_CHUNK, Mode.RECEDING, Mode.ENSEMBLE),
    ),
    "stale_index": ExecutionBug(
        build=lambda s, a, h: StaleIndex(s.build(a, h)),
        fault="index",
        modes=(Mode.WHOLE_CHUNK, Mode.RECEDING, Mode.ENSEMBLE),
    ),
    "stale_observation": ExecutionBug(
        build=lambda s, a, h: StaleObservation(s.build(a, h)),
        fault="staleness",
        modes=(*_SINGLE, Mode.ENSEMBLE),
    ),
    "averaged_deltas": ExecutionBug(build=_mean_of_deltas, fault="deltas", modes=(Mode.ENSEMBLE,)),
    "averaged_grippers": ExecutionBug(build=_mean_of_grippers, fault="gripper", modes=(Mode.ENSEMBLE,)),
}
"""Name -> bug."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ExecutorMutant:
    """One of the bugs as a mutant; it is there or it is not."""

    id: str
    what: str
    bug: ExecutionBug
    strength: Strength = Strength(full=1.0, unit="the bug")
    family: Family = Family.EXECUTION
    seam: Seam = Seam.EXECUTOR
    breaks: str = "the executor does with chunks what its text says"
    expected: Cause = causes.EXECUTION
    found_by: str = "chunk_ages"

    def apply(
        self, target: tuple[ExecutorSpec, ActionSpec, int], strength: float, rng: np.random.Generator
    ) -> Executor:
        """Return the executor that a spec would make, with the bug unless ``strength`` is 0."""
        spec, action_spec, chunk = target
        return self.bug.build(*target) if self.strength.of(strength) else spec.build(action_spec, chunk)


_WHAT = {
    "queue_never_reset": "a queue of actions outlives its episode",
    "forgotten_reset": "the executor is reset for the first episode only",
    "reversed_weights": "an ensemble weighs the newest chunk least",
    "first_entry_only": "the first entry of a chunk is sent at every step",
    "stale_index": "chunks are read one entry early",
    "stale_observation": "each chunk is that of the observation before",
    "averaged_deltas": "an ensemble averages differences against different starts",
    "averaged_grippers": "an ensemble averages open with closed",
}
MUTANTS: tuple[ExecutorMutant, ...] = tuple(
    ExecutorMutant(id=name, what=_WHAT[name], bug=bug) for name, bug in EXECUTION_BUGS.items()
)
