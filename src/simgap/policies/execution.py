"""From overlapping chunks to the one action sent now: the executor is part of the policy under test.

Time is counted in control steps of one episode. A chunk made from the observation of step ``s`` proposes
``chunk[i]`` for step ``s + i``; the action sent at step ``t`` is read at ``i = t - s + lead_steps``, never at
another index.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import StrEnum

from simgap.conventions import ActionSpec, Reference
from simgap.errors import ConventionError, UsageError, did_you_mean
from simgap.policies.base import AskedPolicy, Policy, WatchingPolicy
from simgap.policies.executors import (
    DelayedExecutor,
    EnsembleExecutor,
    ExecutedAction,
    Executor,
    SingleChunkExecutor,
)

__all__ = ["ExecutedAction", "Executor", "ExecutorSpec", "Mode", "parse_executor", "require_executable"]


class Mode(StrEnum):
    """How overlapping chunks become one action."""

    LATEST = "latest"
    """Replan every step, send the newest prediction."""
    WHOLE_CHUNK = "whole_chunk"
    """Send a chunk to its end, then replan."""
    RECEDING = "receding"
    """Send the first k entries of a chunk, then replan."""
    ENSEMBLE = "ensemble"
    """Replan every step, average all predictions for this step."""
    REAL_TIME = "real_time"
    """As ``receding`` with a delay, and every chunk goes on from the one before (real-time chunking, arXiv 2506.07339)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ExecutorSpec:
    """A mode and its numbers. ``str(spec)`` and :func:`parse_executor` are inverse; the text goes into provenance stamps."""

    mode: Mode
    replan_steps: int = 1
    """``receding`` and ``real_time``: entries of a chunk that are sent."""
    decay: float = 0.0
    """``ensemble``: m of ``w_i = exp(-m i)``, i = 0 the OLDEST prediction (ACT, arXiv 2304.13705): m > 0 weighs old ones more,
    m = 0 all alike, m < 0 new ones more."""
    lead_steps: int = 0
    """Read the chunk this many entries ahead: the action sent now takes effect ``lead_steps`` later, so send the one meant for
    then. Set it to the measured latency in control steps; ages still count from the observation to now."""
    delay_steps: int = 0
    """``receding`` and ``real_time``: control steps between an observation and the chunk made from it, measured on the machine that
    drives. Meanwhile the chunk before goes on."""

    def __post_init__(self) -> None:
        if (
            self.replan_steps < 1
            or self.lead_steps < 0
            or self.delay_steps < 0
            or not math.isfinite(self.decay)
        ):
            raise UsageError(
                f"executor {self}: replan steps start at 1, lead and delay steps at 0, and the decay is"
                " finite"
            )
        if self.delay_steps > self.replan_steps or (
            self.delay_steps and self.mode not in (Mode.RECEDING, Mode.REAL_TIME)
        ):
            raise UsageError(
                f"executor {self}: a delay belongs to receding(k) or real_time(k) and is at most k, or chunks"
                " would overtake each other; raise k"
            )
        if self.lead_steps and (self.delay_steps or self.mode is Mode.REAL_TIME):
            raise UsageError(
                f"executor {self}: lead and delay are two answers to latency; give the delay of inference, or"
                " the lead of actuation, not both"
            )

    @property
    def asks_for_prefix(self) -> bool:
        """Whether chunks have to go on from the one before, which only some policies can."""
        return self.mode is Mode.REAL_TIME

    def __str__(self) -> str:
        parts = (
            [str(self.replan_steps)]
            if self.mode in _COUNTED
            else [repr(float(self.decay))]
            if self.mode is Mode.ENSEMBLE
            else []
        )
        parts = (
            parts
            + ([f"lead={self.lead_steps}"] if self.lead_steps else [])
            + ([f"delay={self.delay_steps}"] if self.delay_steps else [])
        )
        return f"{self.mode}({', '.join(parts)})" if parts else str(self.mode)

    def build(self, action_spec: ActionSpec, chunk: int) -> Executor:
        """Return a fresh executor; call its ``reset`` before the first chunk.

        Args:
            action_spec: convention of the actions.
            chunk: entries in a chunk, H.

        Raises:
            UsageError: the chunk is too short for the mode.
            ConventionError: averaging of delta actions.
        """
        usable = chunk - self.lead_steps - self.delay_steps
        needed = self.replan_steps if self.mode in _COUNTED else 1
        if usable < needed:
            whole = needed + self.lead_steps + self.delay_steps
            raise UsageError(
                f"{self} needs {whole} entries, the policy's chunk has {chunk}; lower k, the lead or the"
                " delay, or train a longer chunk"
            )
        if self.delay_steps or self.mode is Mode.REAL_TIME:
            return DelayedExecutor(
                action_spec,
                chunk,
                replan_steps=self.replan_steps,
                delay_steps=self.delay_steps,
                goes_on=self.mode is Mode.REAL_TIME,
            )
        if self.mode is not Mode.ENSEMBLE:
            replan = {Mode.LATEST: 1, Mode.WHOLE_CHUNK: usable, Mode.RECEDING: self.replan_steps}[self.mode]
            return SingleChunkExecutor(action_spec, chunk, replan_steps=replan, lead_steps=self.lead_steps)
        deltas = [d.name for d in action_spec.dimensions if d.reference is Reference.DELTA]
        if deltas:
            raise ConventionError(
                f"{self} would average delta actions of {deltas}: +1 and -1 make 'stay'. Use receding(k), or"
                " absolute targets"
            )
        return EnsembleExecutor(action_spec, chunk, decay=self.decay, lead_steps=self.lead_steps)


def require_executable(policy: Policy, executor: ExecutorSpec) -> None:
    """Raise unless a policy can do what an executor will ask of it.

    Raises:
        UsageError: chunks have to go on from the one before, and the policy makes every chunk anew; or the
            policy has an executor of its own.
    """
    if executor.asks_for_prefix and not (isinstance(policy, AskedPolicy) and policy.inpaints):
        instead = f"receding({executor.replan_steps}{f', delay={executor.delay_steps}' if executor.delay_steps else ''})"
        raise UsageError(
            f"{executor} wants chunks that go on from the one before, which only a flow head can; use"
            f" {instead}, or train with --head flow"
        )
    if (
        isinstance(policy, WatchingPolicy)
        and policy.is_executor
        and executor != ExecutorSpec(mode=Mode.LATEST)
    ):
        raise UsageError(
            f"{executor} on top of a policy that executes its own chunks would execute twice; use latest, or"
            " execution ours in its policy file"
        )


_COUNTED = (Mode.RECEDING, Mode.REAL_TIME)


def parse_executor(text: str) -> ExecutorSpec:
    """Read ``latest``, ``whole_chunk``, ``receding(5)``, ``ensemble(0.1)``, ``real_time(5, delay=2)``.

    All but the last take an optional ``lead=N``, as in ``receding(5, lead=2)``; ``receding`` takes
    ``delay=N`` instead.

    Raises:
        UsageError: names the forms that exist.
    """
    forms = (
        "latest, whole_chunk, receding(5), ensemble(0.1), each with an optional lead=N as in receding(5,"
        " lead=2), or real_time(5, delay=2)"
    )
    match = re.fullmatch(r"\s*(\w+)\s*(?:\(([^()]*)\))?\s*", text)
    if match is None:
        raise UsageError(f"executor {text!r} cannot be read; write {forms}")
    if match[1] not in list(Mode):
        raise UsageError(
            f"executor {match[1]!r} is unknown; {did_you_mean(match[1], list(Mode))}; write {forms}"
        )
    mode = Mode(match[1])
    arguments = [a.strip() for a in (match[2] or "").split(",") if a.strip()]
    named = [a.split("=", 1) for a in arguments if "=" in a]
    values = [a for a in arguments if "=" not in a]
    options = {name.strip(): value.strip() for name, value in named}
    takes_value = mode in (*_COUNTED, Mode.ENSEMBLE)
    if len(values) != takes_value or len(options) < len(named) or not set(options) <= {"lead", "delay"}:
        raise UsageError(f"executor {text!r} has the wrong arguments; write {forms}")
    try:
        return ExecutorSpec(
            mode=mode,
            replan_steps=int(values[0]) if mode in _COUNTED else 1,
            decay=float(values[0]) if mode is Mode.ENSEMBLE else 0.0,
            lead_steps=int(options.get("lead", "0")),
            delay_steps=int(options.get("delay", "0")),
        )
    except ValueError as error:
        raise UsageError(f"executor {text!r} has an argument that is no number; write {forms}") from error
