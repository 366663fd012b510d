"""Policy x env x seeds -> records: groups of envs in lockstep, one batched forward a step, one GL context a worker.

Seeds are cut into groups of a fixed size before workers see them, and a group's batches depend on its own
episodes only, so the same spec gives the same bytes at any number of workers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from simgap.compute.workers import run_tasks
from simgap.conventions import ActionSpec
from simgap.envs import make_env
from simgap.envs.abilities import DrawsLater
from simgap.envs.base import ObsDict, TaskEnv
from simgap.envs.factors import FactorRanges, FactorValues
from simgap.policies.base import Asked, Policy, WatchingPolicy, ask
from simgap.policies.bridges.open import open_policy
from simgap.policies.checkpoint import require_env, require_matches
from simgap.policies.execution import (
    ExecutedAction,
    Executor,
    ExecutorSpec,
    parse_executor,
    require_executable,
)
from simgap.policies.executors import prefix_of
from simgap.provenance import child_rng
from simgap.rollouts.record import RolloutRecord, film_steps
from simgap.seeds import Purpose, seed_of
from simgap.types import Outcome

GROUP = 16
"""Envs a worker steps together."""
WHOLE_FILMS = 2
"""Failures of a group whose every frame is kept; of the others a strip is."""
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


def run_rollouts(
    spec: RolloutSpec, *, workers: int, progress: Callable[[int, int], None] | None = None
) -> list[RolloutRecord]:
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
    policy = open_policy(spec.checkpoint, bf16=True, threads=1, domain="sim")
    envs = [make_env(spec.env, image_size=policy.image_size, engine=spec.engine, renderer=spec.renderer)]
    first = envs[0]
    require_matches(
        policy, first.action_spec, first.state_spec, first.cameras, first.image_size, other=f"env {spec.env}"
    )
    require_env(policy.envs, spec.env)

    def run(seeds: Sequence[int]) -> list[RolloutRecord]:
        while len(envs) < len(seeds):
            envs.append(first.sibling())
        conditions = [first.factor_space.sample(spec.ranges, child_rng(seed, "factors")) for seed in seeds]
        return run_group(policy, envs[: len(seeds)], seeds, conditions, spec.executor)

    return run


def run_group(
    policy: Policy,
    envs: Sequence[TaskEnv],
    seeds: Sequence[int],
    conditions: Sequence[FactorValues],
    executor: str,
    build: Build | None = None,
) -> list[RolloutRecord]:
    """Step a group of envs in lockstep until the last has ended; ``build`` makes the executors in place of the spec's own, for studies of bugs."""
    spec = parse_executor(executor)
    require_executable(policy, spec)
    make = build or ExecutorSpec.build
    with ExitStack() as stack:
        eyes = [stack.enter_context(_Eyes.of(env)) for env in envs]
        executors = [make(spec, policy.action_spec, policy.chunk) for _ in envs]
        slots = [
            _Slot(eye, seed, values, one)
            for eye, seed, values, one in zip(eyes, seeds, conditions, executors, strict=True)
        ]
        shape = (len(slots), policy.image_size, policy.image_size, 3)
        frames = {camera: np.empty(shape, dtype=np.uint8) for camera in policy.cameras}
        step = failed = 0
        while active := [s for s in slots if s.record is None]:
            asking = [s for s in active if s.executor.needs_chunk(step)]
            if asking:
                _ask(policy, asking, frames, step)
            if (
                isinstance(policy, WatchingPolicy)
                and policy.watches
                and (others := [s for s in active if s not in asking])
            ):
                policy.watch(*_seen(others, frames, step))
            for slot in active:
                slot.advance(step, films_failure=failed < WHOLE_FILMS)
                failed += slot.record is not None and not slot.record.outcome.is_success
            step += 1
    return [s.record for s in slots if s.record is not None]


def _ask(policy: Policy, asking: Sequence[_Slot], frames: Mapping[str, NDArray[np.uint8]], step: int) -> None:
    """Hand every slot that asks a chunk, by one forward pass."""
    began = time.perf_counter()
    seen = _seen(asking, frames, step)
    drawn = time.perf_counter()
    chunks = ask(policy, *seen)
    asking[0].forwards.append((drawn - began, time.perf_counter() - drawn, len(asking)))
    for slot, chunk in zip(asking, chunks, strict=True):
        slot.executor.submit(chunk, step)


def _seen(
    slots: Sequence[_Slot], frames: Mapping[str, NDArray[np.uint8]], step: int
) -> tuple[dict[str, NDArray[np.uint8]], NDArray[np.float32], list[Asked]]:
    """Return what a policy is shown of some slots: frames, which are drawn into ``frames``, states, and what comes with them."""
    for row, slot in enumerate(slots):
        slot.eyes.show({camera: out[row : row + 1] for camera, out in frames.items()}, slot.obs)
    asked = [
        Asked(seed=s.seed, step=step, goal=s.eyes.env.task, prefix=prefix_of(s.executor, step)) for s in slots
    ]
    return (
        {camera: out[: len(slots)] for camera, out in frames.items()},
        np.stack([s.obs["state"] for s in slots]),
        asked,
    )


class _Eyes:
    """Frames of an env, drawn only where somebody looks: a policy that is asked every fifth step needs a fifth of them.

    An env that cannot draw a moment that has passed gives the frames of its observations.
    """

    def __init__(self, env: TaskEnv) -> None:
        self.env, self.cameras = env, env.cameras
        self._later = env if env.renders and isinstance(env, DrawsLater) else None
        self._kept: list[Any] = []

    @classmethod
    @contextmanager
    def of(cls, env: TaskEnv) -> Iterator[_Eyes]:
        """Close the env's own eyes while a group runs, if it can draw later."""
        shown = env.renders, env.cameras
        eyes = cls(env)
        if eyes._later is not None:
            env.renders, env.cameras = False, ()
        try:
            yield eyes
        finally:
            env.renders, env.cameras = shown

    def see(self, obs: ObsDict) -> None:
        """Keep what is needed to show this step later."""
        self._kept.append(
            self._later.look()
            if self._later is not None
            else {camera: obs[camera] for camera in self.cameras}
        )

    def show(self, frames: Mapping[str, NDArray[np.uint8]], obs: ObsDict) -> None:
        """Write what the cameras see now, ``(1, H, W, 3)`` each.

        Raises:
            ConventionError: a camera that the env does not have, or frames of another size.
        """
        if self._later is not None:
            self._later.draw([self._later.look()], frames)
            return
        for camera, out in frames.items():
            out[0] = obs[camera]

    def film(self, steps: Sequence[int]) -> dict[str, NDArray[np.uint8]]:
        """Return the frames of some steps, ``(k, H, W, 3)`` by camera, and forget all others."""
        moments = [self._kept[i] for i in steps]
        self._kept = []
        if self._later is None:
            return {camera: np.stack([moment[camera] for moment in moments]) for camera in self.cameras}
        size = self.env.image_size
        frames = {camera: np.empty((len(moments), size, size, 3), dtype=np.uint8) for camera in self.cameras}
        self._later.draw(moments, frames)
        return frames


class _Slot:
    """One env of a group with its executor and its running record."""

    def __init__(self, eyes: _Eyes, seed: int, values: FactorValues, executor: Any) -> None:
        self.eyes, self.seed, self.executor = eyes, seed, executor
        self.obs, _ = eyes.env.reset(seed=seed, options={"factors": values})
        self.values = values
        executor.reset(seed)
        self.record: RolloutRecord | None = None
        self.forwards: list[tuple[float, float, int]] = []
        self._rows: list[tuple[NDArray[np.float32], ExecutedAction]] = []
        self._contacts: list[NDArray[np.bool_]] = []
        self._step_s: list[float] = []

    def advance(self, step: int, *, films_failure: bool = False) -> None:
        sent = self.executor.act(step)
        self._rows.append((self.obs["state"], sent))
        self._contacts.append(self.eyes.env.contacts())
        self.eyes.see(self.obs)
        began = time.perf_counter()
        self.obs, _, _, _, info = self.eyes.env.step(sent.action)
        self._step_s.append(time.perf_counter() - began)
        if "outcome" in info:
            self.record = self._close(info["outcome"], str(info.get("mode", "")), films_failure=films_failure)

    def _close(self, outcome: Outcome, mode: str, *, films_failure: bool) -> RolloutRecord:
        keep = (
            tuple(range(len(self._rows)))
            if films_failure and not outcome.is_success
            else film_steps(len(self._rows))
        )
        return RolloutRecord(
            seed=self.seed,
            outcome=outcome,
            factors=self.values,
            state=np.stack([r[0] for r in self._rows]),
            action=np.stack([sent.action for _, sent in self._rows]),
            age=np.array([sent.age for _, sent in self._rows], dtype=np.float32),
            n_averaged=np.array([sent.n_averaged for _, sent in self._rows], dtype=np.int32),
            disagreement=np.array(
                [np.nan if sent.disagreement is None else sent.disagreement for _, sent in self._rows],
                dtype=np.float32,
            ),
            contacts=np.stack(self._contacts) if self.eyes.env.contact_names else None,
            contact_names=self.eyes.env.contact_names,
            forwards=np.array(self.forwards, dtype=np.float32).reshape(-1, 3),
            step_s=np.array(self._step_s, dtype=np.float32),
            film=self.eyes.film(keep),
            film_steps=keep,
            mode=mode,
        )
