"""The age probe: a policy whose chunks say what they are, so that an executor's output says what it did.

Success cannot reveal a reversed ensemble or a stale index on short chunks; this does, exactly and in
milliseconds. Each chunk entry holds the step of its observation, the step it is meant for, and its episode.
What comes out of an executor therefore *is* its weighted source step, its index and its episode.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.conventions import ActionSpec, Dimension, StateSpec, Unit
from simgap.errors import SimgapError
from simgap.policies.execution import ExecutedAction, Executor, ExecutorSpec, Mode

_LIMIT = 1e6


def _dimension(name: str, *, is_gripper: bool = False) -> Dimension:
    return Dimension(name=name, unit=Unit.UNKNOWN, low=-_LIMIT, high=_LIMIT, is_gripper=is_gripper)


class AgeProbe:
    """Implements :class:`simgap.policies.base.Policy` for an env whose state is ``(step, episode)``; needs no camera.

    Action ``(source, target, episode, gripper)``: step of the observation, step the entry is meant for,
    episode, and the step of the observation again on a dimension that is never averaged.
    """

    action_spec = ActionSpec(
        rate_hz=1.0,
        dimensions=(
            _dimension("source"),
            _dimension("target"),
            _dimension("episode"),
            _dimension("gripper", is_gripper=True),
        ),
    )
    state_spec = StateSpec(rate_hz=1.0, dimensions=(_dimension("step"), _dimension("episode")))
    cameras: tuple[str, ...] = ()
    image_size = 0

    def __init__(self, chunk: int) -> None:
        """Probe with chunks of this many entries."""
        self.chunk = chunk

    def predict(
        self, images: Mapping[str, NDArray[np.uint8]], state: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Return ``(B, chunk, 4)`` for ``(B, 2)`` states; images are not looked at."""
        step, episode = (np.repeat(state[:, i : i + 1], self.chunk, axis=1) for i in range(2))
        return np.stack((step, step + np.arange(self.chunk), episode, step), axis=2).astype(np.float32)

    def stamp_fields(self) -> Mapping[str, Any]:
        """Return the probe's name and chunk."""
        return {"weights": "age-probe", "chunk": self.chunk}


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeReport:
    """What an executor really does."""

    mean_age: float | None
    """Control steps between observation and action, over the full part of an episode; None when it could not act."""
    expected_age: float
    """The same, in closed form from the spec."""
    faults: tuple[str, ...]
    """Empty when index, order, reset and staleness are exactly as the spec says."""

    @property
    def is_exact(self) -> bool:
        """True without faults."""
        return not self.faults


def expected_age(spec: ExecutorSpec, chunk: int) -> float:
    """Return the mean age of executed actions once an episode is longer than a chunk, with synchronous inference.

    ``(k - 1) / 2`` for k entries sent a chunk, and the delay with which they start; ``sum(w_i (n - 1 - i)) /
    sum(w_i)`` for an ensemble of n predictions.
    """
    usable = chunk - spec.lead_steps
    if spec.mode is not Mode.ENSEMBLE:
        return (_period(spec, chunk) - 1) / 2.0 + spec.delay_steps
    weights = [math.exp(-spec.decay * i) for i in range(usable)]
    return sum(w * (usable - 1 - i) for i, w in enumerate(weights)) / sum(weights)


def probe_executor(executor: Executor, spec: ExecutorSpec, chunk: int) -> ProbeReport:
    """Run an executor on the probe and compare every single step with what its spec promises.

    Args:
        executor: built for ``AgeProbe.action_spec`` and ``chunk``; what it was built by does not matter.
        spec: what it claims to be.
        chunk: entries in a chunk, H.

    Returns:
        The measured and expected mean age, and one line for each kind of fault, with the first step that
        shows it.
    """
    probe = AgeProbe(chunk)
    first = -(-chunk // _period(spec, chunk)) * _period(spec, chunk)
    faults: dict[str, str] = {}
    ages: list[float] = []
    # The first episode ends in mid-chunk: what is left over must not reach the second. Ages count once the
    # first chunk has gone.
    for episode, length in ((1, chunk + chunk // 2 + 1), (2, 4 * chunk)):
        try:
            executor.reset(episode)
            for step in range(length):
                if executor.needs_chunk(step):
                    executor.submit(probe.predict({}, np.array([[step, episode]], np.float32))[0], step)
                executed = executor.act(step)
                for kind, text in _faults(executed, spec, chunk, step, episode).items():
                    faults.setdefault(kind, f"{kind}: episode {episode}, step {step}: {text}")
                if episode == 2 and step >= first:
                    ages.append(step - float(executed.action[0]))
        except SimgapError as error:
            faults.setdefault("refused", f"refused: episode {episode}: {error}")
    whole = ages[: len(ages) - len(ages) % _period(spec, chunk)]
    return ProbeReport(
        mean_age=float(np.mean(whole)) if whole else None,
        expected_age=expected_age(spec, chunk),
        faults=tuple(faults.values()),
    )


def probe_deltas(executor: Executor, chunk: int, episode: int = 1) -> tuple[str, ...]:
    """Return a fault when an executor averages relative actions: +1 and -1 make "stay", which no prediction asked for.

    Every chunk says +1 or -1 throughout, in turn, so whatever is sent has to be one of the two.

    Args:
        executor: built for one action dimension.
        chunk: entries in a chunk, H.
        episode: number to reset to.
    """
    executor.reset(episode)
    for step in range(2 * chunk):
        if executor.needs_chunk(step):
            executor.submit(np.full((chunk, 1), 1.0 if step % 2 else -1.0, np.float32), step)
        sent = float(executor.act(step).action[0])
        if abs(sent) != 1.0:
            return (
                (
                    f"deltas: step {step}: {sent:.3f} was sent where every prediction says +1 or -1; relative"
                    " actions are never averaged"
                ),
            )
    return ()


def _period(spec: ExecutorSpec, chunk: int) -> int:
    return {
        Mode.WHOLE_CHUNK: chunk - spec.lead_steps,
        Mode.RECEDING: spec.replan_steps,
        Mode.REAL_TIME: spec.replan_steps,
    }.get(spec.mode, 1)


def _promised(spec: ExecutorSpec, chunk: int, step: int) -> tuple[float, int, int]:
    """Return the weighted source step, the newest source step, and the number averaged that the spec promises."""
    if spec.mode is not Mode.ENSEMBLE:
        period = _period(spec, chunk)
        newest = step - step % period
        if newest and step - newest < spec.delay_steps:
            newest -= period
        return float(newest), newest, 1
    sources = range(max(0, step - (chunk - spec.lead_steps) + 1), step + 1)
    weights = [math.exp(-spec.decay * i) for i in range(len(sources))]
    return sum(w * s for w, s in zip(weights, sources, strict=True)) / sum(weights), step, len(sources)


def _faults(
    executed: ExecutedAction, spec: ExecutorSpec, chunk: int, step: int, episode: int
) -> dict[str, str]:
    source, target, of_episode, gripper = (float(v) for v in executed.action)
    promised, newest, count = _promised(spec, chunk, step)
    found = {}
    if abs(of_episode - episode) > 1e-3:
        found["reset"] = f"the action rests on episode {of_episode:g}; chunks must not outlive reset"
    if abs(target - (step + spec.lead_steps)) > 1e-3:
        found["index"] = (
            f"entry meant for step {target:g} was sent, expected {step + spec.lead_steps}; read chunk[step -"
            " obs_step + lead]"
        )
    if abs(source - promised) > 1e-3:
        found["staleness"] = (
            f"action rests on step {source:.3f} (age {step - source:.3f}), {spec} promises {promised:.3f};"
            " check weights, order and replanning"
        )
    if abs(gripper - newest) > 1e-3:
        found["gripper"] = (
            f"gripper rests on step {gripper:g}, the newest prediction is of step {newest}; grippers are"
            " never averaged"
        )
    if (
        abs(executed.source_step - source) > 1e-3
        or abs(executed.age - (step - source)) > 1e-3
        or executed.n_averaged != count
    ):
        told = f"source {executed.source_step:.3f}, age {executed.age:.3f}, {executed.n_averaged} averaged"
        found["record"] = (
            f"the record says {told}; the action shows source {source:.3f}, age {step - source:.3f}, expected"
            f" {count} averaged"
        )
    return found
