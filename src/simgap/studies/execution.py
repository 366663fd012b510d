"""What an executor costs: the same weights from the same starts, over modes, latencies and seeded bugs.

Latency is the env's own ``action_latency_steps``: what is sent takes effect that many control steps later. A
lead of as many steps is the executor's answer to it. A bug that shows only in a second episode gets one: each
of its rollouts follows one from another start with the same executor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simgap.conventions import ActionSpec
from simgap.envs import make_env
from simgap.envs.base import TaskEnv
from simgap.envs.factors import FactorRanges, FactorValues
from simgap.errors import UsageError
from simgap.mutants.execution import EXECUTION_BUGS
from simgap.policies.base import Policy
from simgap.policies.bridges.open import AnyCard, read_any_card
from simgap.policies.execution import ExecutorSpec, Mode, parse_executor
from simgap.policies.executors import ExecutedAction, Executor
from simgap.provenance import canonical_json, content_hash, source_hash, write_atomic
from simgap.rollouts import engine
from simgap.rollouts.engine import Build, RolloutSpec, run_group
from simgap.rollouts.kept import Arm, run_arms
from simgap.rollouts.record import RolloutRecord
from simgap.seeds import Purpose
from simgap.statistics import (
    Estimate,
    PairedDifference,
    holm,
    pair_outcomes,
    paired_difference,
    tally,
    wilson,
)

LATENCY = "action_latency_steps"
AVERAGED_DELTAS = "averaged_deltas"
BUGS = ("queue_never_reset", "reversed_weights", "first_entry_only", "stale_index", AVERAGED_DELTAS)
"""Those of the study; the last is made here from absolute targets, the others are the executors' own."""
_SECOND_EPISODE = ("queue_never_reset",)
"""Bugs that do nothing in a first episode."""


class MeanOfDeltas:
    """An ensemble of *changes*: averages how far each chunk would move now, and moves that far from what was sent last.

    What averaging delta actions does. Only the newest chunk aims at where it should be by now; the others go
    on by what they had planned from elsewhere, so an error is corrected by the newest one's share alone, step
    by step.
    """

    def __init__(self, spec: ExecutorSpec, action_spec: ActionSpec, chunk: int) -> None:
        self._chunks: list[tuple[int, NDArray[np.float32]]] = []
        self._spec, self._grips, self._length = spec, action_spec.gripper_mask, chunk
        self._low, self._high = action_spec.low, action_spec.high
        self._sent: NDArray[np.float64] | None = None

    def reset(self, episode: int) -> None:
        """Forget everything."""
        self._chunks.clear()
        self._sent = None

    def needs_chunk(self, step: int) -> bool:
        """Return True: once a step."""
        return not self._chunks or self._chunks[-1][0] < step

    def submit(self, chunk: NDArray[np.float32], obs_step: int, *, episode: int | None = None) -> None:
        """Add a chunk."""
        self._chunks = [
            (s, c) for s, c in self._chunks if obs_step - s + self._spec.lead_steps < self._length
        ]
        self._chunks.append((obs_step, chunk.copy()))

    def act(self, step: int) -> ExecutedAction:
        """Return what was sent last plus the weighted mean of the chunks' changes; grippers take the newest target."""
        rows, index = (
            [c for _, c in self._chunks],
            [step - s + self._spec.lead_steps for s, _ in self._chunks],
        )
        newest = rows[-1][index[-1]].astype(np.float64)
        before = newest if self._sent is None else self._sent
        deltas = np.stack([c[i] - (c[i - 1] if i else before) for c, i in zip(rows, index, strict=True)])
        weights = np.exp(-self._spec.decay * np.arange(len(rows)))
        weights /= weights.sum()
        sent = np.where(self._grips, newest, np.clip(before + weights @ deltas, self._low, self._high))
        self._sent = sent
        source = float(weights @ np.array([s for s, _ in self._chunks]))
        return ExecutedAction(
            action=sent.astype(np.float32),
            source_step=source,
            age=step - source,
            n_averaged=len(rows),
            disagreement=None,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One condition of the study."""

    executor: str
    """Without lead."""
    latency: int
    lead: int = 0
    bug: str = ""

    @property
    def spec(self) -> ExecutorSpec:
        """The executor that is claimed."""
        return replace(parse_executor(self.executor), lead_steps=self.lead)

    @property
    def label(self) -> str:
        """A short name."""
        return f"{self.spec}, latency {self.latency}" + (f", {self.bug}" if self.bug else "")


@dataclass(frozen=True, kw_only=True, slots=True)
class ExecutionStudy:
    """What to run."""

    checkpoint: Path
    env: str
    ranges: FactorRanges
    executors: tuple[str, ...] = ("latest", "receding(5)", "whole_chunk", "ensemble(0.1)")
    latencies: tuple[int, ...] = (0, 2, 4)
    bugs: tuple[str, ...] = BUGS
    starts: int = 200
    seed: int = 0
    engine: str = "mujoco"

    def rollouts(self, cell: Cell) -> RolloutSpec:
        """Return what one cell runs; every cell starts alike."""
        ranges = self.ranges.override(
            {LATENCY: (float(cell.latency), float(cell.latency))},
            f"{self.ranges.name}+latency-{cell.latency}",
        )
        return RolloutSpec(
            env=self.env,
            checkpoint=self.checkpoint,
            executor=str(cell.spec),
            ranges=ranges,
            episodes=self.starts,
            purpose=Purpose.SELECT,
            seed=self.seed,
            engine=self.engine,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """What a cell found."""

    cell: Cell
    rate: Estimate
    mean_age: float
    against: Cell | None
    """The cell it is compared with: the same executor without the bug, or without latency."""
    difference: PairedDifference | None
    p_adjusted: float | None
    """Exact McNemar, Holm over the study."""
    failures: Mapping[str, int] = field(default_factory=dict)


def cells_of(study: ExecutionStudy, card: AnyCard) -> list[Cell]:
    """Return every condition that can be made with this policy's chunk: correct ones first.

    Raises:
        UsageError: an unknown bug, an executor with a lead of its own, or none that fits.
    """
    unknown = [b for b in study.bugs if b != AVERAGED_DELTAS and b not in EXECUTION_BUGS]
    if unknown:
        raise UsageError(f"bug {unknown[0]!r} is unknown; known: {', '.join(sorted(EXECUTION_BUGS))}")
    leading = [e for e in study.executors if parse_executor(e).lead_steps]
    if leading:
        raise UsageError(
            f"executor {leading[0]} has a lead of its own, and the study gives each the lead of every"
            " latency; leave it out, name --latencies"
        )
    correct: list[Cell] = []
    for executor in study.executors:
        for latency in study.latencies:
            correct += [
                Cell(executor=executor, latency=latency, lead=lead)
                for lead in dict.fromkeys((0, latency))
                if _fits(executor, lead, card)
            ]
    if not correct:
        raise UsageError(
            f"no executor of {', '.join(study.executors)} fits a chunk of {card.architecture.chunk}; lower k"
            " or the latencies"
        )
    planted = [
        replace(c, bug=bug)
        for bug in study.bugs
        for c in correct
        if c.lead == 0 and c.spec.mode in _modes(bug)
    ]
    return correct + planted


def _modes(bug: str) -> Sequence[Mode]:
    return (Mode.ENSEMBLE,) if bug == AVERAGED_DELTAS else EXECUTION_BUGS[bug].modes


def _fits(executor: str, lead: int, card: AnyCard) -> bool:
    spec = parse_executor(executor)
    return card.architecture.chunk - lead >= (spec.replan_steps if spec.mode is Mode.RECEDING else 1)


def builder(bug: str) -> Build:
    """Return what makes executors with a bug of the study; without one, correct ones."""
    if not bug:
        return ExecutorSpec.build
    return MeanOfDeltas if bug == AVERAGED_DELTAS else EXECUTION_BUGS[bug].build


def roll_cell(
    arm: Arm,
    policy: Policy,
    envs: Sequence[TaskEnv],
    seeds: Sequence[int],
    conditions: Sequence[FactorValues],
) -> list[RolloutRecord]:
    """Run a group of a cell; ``arm.note`` is the bug."""
    if not arm.note:
        return run_group(policy, envs, seeds, conditions, arm.spec.executor)
    make = builder(arm.note)
    if arm.note not in _SECOND_EPISODE:
        return run_group(policy, envs, seeds, conditions, arm.spec.executor, make)
    used: list[Executor] = []

    def first(spec: ExecutorSpec, action_spec: ActionSpec, chunk: int) -> Executor:
        used.append(make(spec, action_spec, chunk))
        return used[-1]

    # The episode before is the neighbour's: one start on. A group of one precedes itself.
    run_group(
        policy, envs, [*seeds[1:], seeds[0]], [*conditions[1:], conditions[0]], arm.spec.executor, first
    )
    again = iter(used)
    return run_group(policy, envs, seeds, conditions, arm.spec.executor, lambda *_: next(again))


def run_execution(
    study: ExecutionStudy, out: Path, *, workers: int, progress: Callable[[int], None] | None = None
) -> list[Row]:
    """Run every cell, or go on where a killed study stopped, and compare.

    Args:
        study: what to run.
        out: folder; groups of rollouts are kept by what they depend on.
        workers: processes; 0 runs in this one.
        progress: called with the number of rollouts that are new.
    """
    card = read_any_card(study.checkpoint)
    cells = cells_of(study, card)
    made_by = make_env(
        study.env, image_size=card.architecture.image_size, render=False, engine=study.engine
    ).stamp_fields()
    shared = {
        **made_by,
        "policy": card.hash,
        "source": source_hash("envs", "rollouts", "policies", "mutants", "studies")[:16],
        "group": engine.GROUP,
    }
    arms = []
    for cell in cells:
        spec = study.rollouts(cell)
        folder = out / "cells" / content_hash({**spec.to_json(), **shared, "bug": cell.bug})[:16]
        arms.append(Arm(spec=spec, policy=card.hash, folder=folder, note=cell.bug))
    found = run_arms(
        arms,
        {i: range(a.groups) for i, a in enumerate(arms)},
        workers=workers,
        progress=progress,
        films=False,
        roll=roll_cell,
    )
    records = {cell: [r for g in sorted(found[i]) for r in found[i][g]] for i, cell in enumerate(cells)}
    return rows_of(records)


def rows_of(records: Mapping[Cell, Sequence[RolloutRecord]]) -> list[Row]:
    """Compare each cell with its own correct or undelayed one, start by start."""
    rows: list[Row] = []
    for cell, ran in records.items():
        counts = tally(r.outcome for r in ran)
        other = replace(cell, bug="") if cell.bug else replace(cell, latency=0, lead=0)
        found = None
        if other != cell and other in records:
            pairs = pair_outcomes(
                new={r.seed: r.outcome for r in ran}, old={r.seed: r.outcome for r in records[other]}
            )
            found = paired_difference(pairs.n11, pairs.n10, pairs.n01, pairs.n00, dropped=pairs.dropped)
        rows.append(
            Row(
                cell=cell,
                rate=counts.estimate(wilson),
                mean_age=float(np.mean(np.concatenate([r.age for r in ran]))),
                against=other if found is not None else None,
                difference=found,
                p_adjusted=None,
                failures=dict(counts.failures),
            )
        )
    tested = [i for i, r in enumerate(rows) if r.difference is not None and r.difference.p_value is not None]
    adjusted = holm([float(rows[i].difference.p_value) for i in tested])  # type: ignore[union-attr, arg-type]
    for i, p in zip(tested, adjusted, strict=True):
        rows[i] = replace(rows[i], p_adjusted=p)
    return rows


def write_rows(rows: Sequence[Row], out: Path) -> Path:
    """Write the numbers as JSON."""
    document = [
        {
            "executor": str(r.cell.spec),
            "latency": r.cell.latency,
            "bug": r.cell.bug,
            "successes": r.rate.successes,
            "n": r.rate.n,
            "wilson": [r.rate.low, r.rate.high],
            "mean_age": r.mean_age,
            "against": None if r.against is None else r.against.label,
            "difference": (
                None
                if r.difference is None
                else [
                    r.difference.difference.point,
                    r.difference.difference.low,
                    r.difference.difference.high,
                ]
            ),
            "p_adjusted": r.p_adjusted,
            "failures": dict(r.failures),
        }
        for r in rows
    ]
    write_atomic(out / "execution.json", canonical_json(document))
    return out / "execution.json"
