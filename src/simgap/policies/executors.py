"""The executors: what each mode does with the chunks it is given. See :mod:`simgap.policies.execution` for the words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from simgap.conventions import ActionSpec
from simgap.errors import TrialFault
from simgap.policies.base import Prefix


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ExecutedAction:
    """The action sent at one step, and what it rests on."""

    action: NDArray[np.float32]
    """``(A,)`` in action-spec units; the caller's to keep."""
    source_step: float
    """Step of the observation behind it; the weighted mean when several were averaged."""
    age: float
    """``step - source_step``: control steps since that observation."""
    n_averaged: int
    disagreement: float | None
    """Largest weighted standard deviation between the averaged predictions, as a share of a dimension's limits, grippers
    left out; None when fewer than two predictions were averaged."""


class Executor(Protocol):
    """One contract for every mode. One executor drives one episode at a time."""

    def reset(self, episode: int) -> None:
        """Forget every chunk and start an episode at step 0."""
        ...

    def needs_chunk(self, step: int) -> bool:
        """Return whether the policy should be asked at this step."""
        ...

    def submit(self, chunk: NDArray[np.float32], obs_step: int, *, episode: int | None = None) -> None:
        """Hand over a chunk ``(H, A)`` made from the observation of ``obs_step``."""
        ...

    def act(self, step: int) -> ExecutedAction:
        """Return the action of this step."""
        ...


class _Clock:
    """Step and episode bookkeeping shared by the executors: what may be called when."""

    def __init__(self, chunk: int, size: int) -> None:
        self.shape = (chunk, size)
        self.episode: int | None = None
        self.last_obs = -1
        self.last_act = -1

    def reset(self, episode: int) -> None:
        self.episode, self.last_obs, self.last_act = episode, -1, -1

    def submitted(self, chunk: NDArray[np.float32], obs_step: int, episode: int | None) -> None:
        if self.episode is None:
            raise TrialFault(
                "a chunk was submitted before reset(episode); reset the executor at the start of every"
                " episode"
            )
        if episode is not None and episode != self.episode:
            raise TrialFault(
                f"a chunk of episode {episode} was submitted in episode {self.episode}; reset the executor at"
                " the start of every episode"
            )
        if chunk.shape != self.shape:
            raise TrialFault(
                f"a chunk of shape {chunk.shape} was submitted, the executor was built for {self.shape}"
                " (entries, dimensions)"
            )
        if obs_step <= self.last_obs:
            raise TrialFault(
                f"a chunk of step {obs_step} came after one of step {self.last_obs}; steps only grow, reset"
                " starts the next episode"
            )
        self.last_obs = obs_step

    def acted(self, step: int) -> None:
        if self.episode is None:
            raise TrialFault(
                "act was called before reset(episode); reset the executor at the start of every episode"
            )
        if step <= self.last_act:
            raise TrialFault(
                f"act({step}) came after act({self.last_act}); steps only grow, reset starts the next episode"
            )
        if step < self.last_obs:
            raise TrialFault(
                f"act({step}) with a chunk of step {self.last_obs}: an action cannot rest on an observation"
                " from the future"
            )
        self.last_act = step


class SingleChunkExecutor:
    """Sends entries of the newest chunk: modes ``latest``, ``receding`` and ``whole_chunk``.

    A chunk that arrives late (asynchronous inference) is read at the index of the step, not at its start.
    """

    def __init__(self, action_spec: ActionSpec, chunk: int, *, replan_steps: int, lead_steps: int) -> None:
        self._clock = _Clock(chunk, len(action_spec))
        self._chunk = np.zeros((chunk, len(action_spec)), dtype=np.float32)
        self._replan_steps = replan_steps
        self._lead_steps = lead_steps

    def reset(self, episode: int) -> None:
        """Forget the chunk and start an episode."""
        self._clock.reset(episode)

    def needs_chunk(self, step: int) -> bool:
        """Return True when there is no chunk or its share is spent."""
        return self._clock.last_obs < 0 or step - self._clock.last_obs >= self._replan_steps

    def submit(self, chunk: NDArray[np.float32], obs_step: int, *, episode: int | None = None) -> None:
        """Replace the chunk.

        Raises:
            TrialFault: before reset, for another episode, of another shape, not newer, or while the last one
                is not spent (which would make it another executor).
        """
        gap = obs_step - self._clock.last_obs
        if self._clock.last_obs >= 0 and 0 < gap < self._replan_steps:
            raise TrialFault(
                f"a chunk of step {obs_step} came {gap} steps after the last, this executor commits for"
                f" {self._replan_steps}; ask needs_chunk(step) first"
            )
        self._clock.submitted(chunk, obs_step, episode)
        self._chunk[:] = chunk

    def act(self, step: int) -> ExecutedAction:
        """Return ``chunk[step - obs_step + lead]``.

        Raises:
            TrialFault: no chunk, steps that do not grow, or an index beyond the chunk's end (never clamped).
        """
        self._clock.acted(step)
        if self._clock.last_obs < 0:
            raise TrialFault(
                f"act({step}) without a chunk in episode {self._clock.episode}; submit one when"
                " needs_chunk(step) says so"
            )
        age = step - self._clock.last_obs
        index = age + self._lead_steps
        if index >= len(self._chunk):
            raise TrialFault(
                f"act({step}) would read entry {index} of a chunk of {len(self._chunk)} made at step"
                f" {step - age}; submit a newer chunk"
            )
        return ExecutedAction(
            action=self._chunk[index].copy(),
            source_step=float(step - age),
            age=float(age),
            n_averaged=1,
            disagreement=None,
        )


class DelayedExecutor:
    """Sends entries of a chunk ``delay`` steps after the observation it was made from; until then the chunk before goes on.

    This is what asynchronous inference does, told apart from it by nothing but that the delay is declared:
    modes ``receding`` with a delay, and ``real_time``, whose chunks go on from the one before. The first
    chunk of an episode is waited for.
    """

    def __init__(
        self, action_spec: ActionSpec, chunk: int, *, replan_steps: int, delay_steps: int, goes_on: bool
    ) -> None:
        self._clock = _Clock(chunk, len(action_spec))
        self._chunks: list[tuple[int, NDArray[np.float32]]] = []
        self._replan_steps, self._delay_steps, self._goes_on = replan_steps, delay_steps, goes_on

    def reset(self, episode: int) -> None:
        """Forget every chunk and start an episode."""
        self._clock.reset(episode)
        self._chunks.clear()

    def needs_chunk(self, step: int) -> bool:
        """Return True when there is no chunk or the newest one's share is spent."""
        return self._clock.last_obs < 0 or step - self._clock.last_obs >= self._replan_steps

    def prefix(self, step: int) -> Prefix | None:
        """Return what a chunk made from the observation of this step has to go on from; None for the first one and for ``receding``."""
        if not self._goes_on or not self._chunks:
            return None
        source, newest = self._chunks[-1]
        known = max(0, len(newest) - (step - source))
        actions = np.zeros_like(newest)
        actions[:known] = newest[len(newest) - known :]
        return Prefix(actions=actions, frozen=min(self._delay_steps, known), known=known)

    def submit(self, chunk: NDArray[np.float32], obs_step: int, *, episode: int | None = None) -> None:
        """Hand over a chunk.

        Raises:
            TrialFault: before reset, for another episode, of another shape, not newer, or while the last one
                is not spent.
        """
        gap = obs_step - self._clock.last_obs
        if self._clock.last_obs >= 0 and 0 < gap < self._replan_steps:
            raise TrialFault(
                f"a chunk of step {obs_step} came {gap} steps after the last, this executor commits for"
                f" {self._replan_steps}; ask needs_chunk(step) first"
            )
        self._clock.submitted(chunk, obs_step, episode)
        self._chunks = [*self._chunks[-1:], (obs_step, chunk.copy())]

    def act(self, step: int) -> ExecutedAction:
        """Return ``chunk[step - obs_step]`` of the newest chunk that is ``delay`` steps old, or of the first.

        Raises:
            TrialFault: no chunk, steps that do not grow, or an index beyond the chunk's end (never clamped).
        """
        self._clock.acted(step)
        if not self._chunks:
            raise TrialFault(
                f"act({step}) without a chunk in episode {self._clock.episode}; submit one when"
                " needs_chunk(step) says so"
            )
        is_there = len(self._chunks) == 1 or step - self._chunks[-1][0] >= self._delay_steps
        source, chunk = self._chunks[-1 if is_there else 0]
        age = step - source
        if age >= len(chunk):
            raise TrialFault(
                f"act({step}) would read entry {age} of a chunk of {len(chunk)} made at step {source}; submit"
                " a newer chunk"
            )
        return ExecutedAction(
            action=chunk[age].copy(),
            source_step=float(source),
            age=float(age),
            n_averaged=1,
            disagreement=None,
        )


def prefix_of(executor: Executor, step: int) -> Prefix | None:
    """Return what a chunk made from the observation of this step has to go on from; None for executors that replace chunks whole."""
    return executor.prefix(step) if isinstance(executor, DelayedExecutor) else None


class EnsembleExecutor:
    """Averages every prediction for the step: ``w_i = exp(-m i)``, i = 0 the oldest. Grippers take the newest prediction.

    A gripper is never averaged: half of 'open' and half of 'closed' is a grasp that slips.
    """

    def __init__(self, action_spec: ActionSpec, chunk: int, *, decay: float, lead_steps: int) -> None:
        self._clock = _Clock(chunk, len(action_spec))
        self._chunks = np.zeros((chunk, chunk, len(action_spec)), dtype=np.float32)
        self._obs_steps = np.full(chunk, -1, dtype=np.int64)
        self._slots = np.arange(chunk)
        self._weights = np.exp(-decay * np.arange(chunk, dtype=np.float64))
        self._gripper = action_spec.gripper_mask
        self._range = np.where(
            action_spec.high > action_spec.low, action_spec.high - action_spec.low, 1.0
        ).astype(np.float64)
        self._lead_steps = lead_steps

    def reset(self, episode: int) -> None:
        """Forget every chunk and start an episode."""
        self._clock.reset(episode)
        self._obs_steps[:] = -1

    def needs_chunk(self, step: int) -> bool:
        """Return True once a step."""
        return self._clock.last_obs < step

    def submit(self, chunk: NDArray[np.float32], obs_step: int, *, episode: int | None = None) -> None:
        """Add a chunk to the average.

        Raises:
            TrialFault: before reset, for another episode, of another shape, or not newer than the last.
        """
        self._clock.submitted(chunk, obs_step, episode)
        # Two chunks that share a slot are at least H steps apart, so the older one has no entry left.
        slot = obs_step % len(self._slots)
        self._chunks[slot] = chunk
        self._obs_steps[slot] = obs_step

    def act(self, step: int) -> ExecutedAction:
        """Return the weighted mean of ``chunk[step - obs_step + lead]`` over all chunks that reach this step.

        Raises:
            TrialFault: no chunk reaches this step, or steps that do not grow.
        """
        self._clock.acted(step)
        index = step - self._obs_steps + self._lead_steps
        live = self._slots[(self._obs_steps >= 0) & (index < len(self._slots))]
        if len(live) == 0:
            raise TrialFault(
                f"act({step}): no chunk reaches this step (newest from step {self._clock.last_obs}); submit"
                " one when needs_chunk(step) says so"
            )
        order = live[np.argsort(self._obs_steps[live])]
        predictions = self._chunks[order, index[order]].astype(np.float64)
        weights = self._weights[: len(order)] / self._weights[: len(order)].sum()
        mean = weights @ predictions
        spread = np.sqrt(weights @ (predictions - mean) ** 2) / self._range
        mean[self._gripper] = predictions[-1, self._gripper]
        source = float(weights @ self._obs_steps[order])
        return ExecutedAction(
            action=mean.astype(np.float32),
            source_step=source,
            age=step - source,
            n_averaged=len(order),
            disagreement=float(spread[~self._gripper].max(initial=0.0)) if len(order) > 1 else None,
        )
