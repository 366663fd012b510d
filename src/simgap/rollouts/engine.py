"""Policy x env x seeds -> records: groups of envs in lockstep, one batched forward a step, one GL context a worker.

Seeds are cut into groups of a fixed size before workers see them, and a group's batches depend on its own episodes only,
so the same spec gives the same bytes at any number of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from simgap.conventions import ActionSpec
from simgap.envs import make_env
from simgap.envs.base import TaskEnv
from simgap.envs.factors import FactorRanges, FactorValues
from simgap.policies.base import Asked, Policy, ask
from simgap.policies.checkpoint import load_policy, require_env, require_matches
from simgap.policies.execution import ExecutedAction, Executor, ExecutorSpec, parse_executor, require_executable
from simgap.policies.executors import prefix_of
from simgap.provenance import child_rng
from simgap.rollouts.record import RolloutRecord, film_steps
from simgap.seeds import Purpose, seed_of
from simgap.workers import run_tasks

GROUP = 16
"""Envs a worker steps together."""
Build: TypeAlias = Callable[[ExecutorSpec, ActionSpec, int], Executor]
"""Makes an executor for a chunk of so many entries, as :meth:`ExecutorSpec.build` does."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutSpec:
    """What to run."""

    env: str
    checkpoint: Path
    executor: str
    ranges: FactorRanges
    episodes: int
    purpose: Purpose = Purpose.SELECT
    seed: int = 0
    engine: str = "mujoco"
    """What moves the world."""
    renderer: str = "opengl"
    """What draws it."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values, without the checkpoint's path: its hash identifies it."""
        return {
            "env": self.env,
            "executor": self.executor,
            "ranges": self.ranges.to_json(),
            "episodes": self.episodes,
            "purpose": str(self.purpose),
            "seed": self.seed,
            "engine": self.engine,
            "renderer": self.renderer,
        }


def run_rollouts(spec: RolloutSpec, *, workers: int, progress: Callable[[int, int], None] | None = None) -> list[RolloutRecord]:
    """Run a policy from ``spec.episodes`` initial conditions and return the records in seed order.

    Args:
        spec: policy, executor, env, ranges, seeds.
        workers: processes; 0 runs in this one.
        progress: called with (episodes done, total).

    Raises:
        SimgapError: a checkpoint that cannot be loaded or does not fit the env; one line that names both.
    """
    seeds = [seed_of(spec.purpose, spec.seed, i) for i in range(spec.episodes)]
    groups = [tuple(seeds[i : i + GROUP]) for i in range(0, len(seeds), GROUP)]
    records: dict[int, RolloutRecord] = {}

    def landed(done: list[RolloutRecord]) -> None:
        records.update({r.seed: r for r in done})
        if progress:
            progress(len(records), len(seeds))

    run_tasks(_setup, (spec,), groups, workers=workers, on_result=landed)
    return [records[s] for s in seeds]


def _setup(spec: RolloutSpec) -> Callable[[Sequence[int]], list[RolloutRecord]]:
    policy = load_policy(spec.checkpoint, bf16=True, threads=1, domain="sim")
    envs = [make_env(spec.env, image_size=policy.image_size, engine=spec.engine, renderer=spec.renderer)]
    first = envs[0]
    require_matches(policy, first.action_spec, first.state_spec, first.cameras, first.image_size, other=f"env {spec.env}")
    require_env(policy, spec.env)

    def run(seeds: Sequence[int]) -> list[RolloutRecord]:
        while len(envs) < len(seeds):
            envs.append(first.sibling())
        conditions = [first.factor_space.sample(spec.ranges, child_rng(seed, "factors")) for seed in seeds]
        return run_group(policy, envs[: len(seeds)], seeds, conditions, spec.executor)

    return run


def run_group(
    policy: Policy, envs: Sequence[TaskEnv], seeds: Sequence[int], conditions: Sequence[FactorValues], executor: str, build: Build | None = None
) -> list[RolloutRecord]:
    """Step a group of envs in lockstep until the last has ended; ``build`` makes the executors in place of the spec's own, for studies of bugs."""
    spec = parse_executor(executor)
    require_executable(policy, spec)
    make = build or ExecutorSpec.build
    slots = [_Slot(env, seed, values, make(spec, policy.action_spec, policy.chunk)) for env, seed, values in zip(envs, seeds, conditions, strict=True)]
    step = 0
    while active := [s for s in slots if s.record is None]:
        asking = [s for s in active if s.executor.needs_chunk(step)]
        if asking:
            images = {c: np.stack([s.obs[c] for s in asking]) for c in policy.cameras}
            asked = [Asked(seed=s.seed, step=step, goal=s.env.task, prefix=prefix_of(s.executor, step)) for s in asking]
            chunks = ask(policy, images, np.stack([s.obs["state"] for s in asking]), asked)
            for slot, chunk in zip(asking, chunks, strict=True):
                slot.executor.submit(chunk, step)
        for slot in active:
            slot.advance(step)
        step += 1
    return [s.record for s in slots if s.record is not None]


class _Slot:
    """One env of a group with its executor and its running record."""

    def __init__(self, env: TaskEnv, seed: int, values: FactorValues, executor: Any) -> None:
        self.env, self.seed, self.executor = env, seed, executor
        self.obs, _ = env.reset(seed=seed, options={"factors": values})
        self.values = values
        executor.reset(seed)
        self.record: RolloutRecord | None = None
        self._rows: list[tuple[NDArray[np.float32], ExecutedAction]] = []
        self._frames: list[dict[str, NDArray[np.uint8]]] = []

    def advance(self, step: int) -> None:
        sent = self.executor.act(step)
        self._rows.append((self.obs["state"], sent))
        self._frames.append({c: self.obs[c] for c in self.env.cameras})
        self.obs, _, _, _, info = self.env.step(sent.action)
        if "outcome" in info:
            self.record = self._close(info["outcome"], str(info.get("mode", "")))

    def _close(self, outcome: Any, mode: str) -> RolloutRecord:
        keep = film_steps(len(self._rows))
        film = {c: np.stack([self._frames[i][c] for i in keep]) for c in self.env.cameras}
        self._frames.clear()
        return RolloutRecord(
            seed=self.seed,
            outcome=outcome,
            factors=self.values,
            state=np.stack([r[0] for r in self._rows]),
            action=np.stack([sent.action for _, sent in self._rows]),
            age=np.array([sent.age for _, sent in self._rows], dtype=np.float32),
            n_averaged=np.array([sent.n_averaged for _, sent in self._rows], dtype=np.int32),
            disagreement=np.array([np.nan if sent.disagreement is None else sent.disagreement for _, sent in self._rows], dtype=np.float32),
            film=film,
            film_steps=keep,
            mode=mode,
        )
