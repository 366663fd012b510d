"""Rollouts that are kept group by group: a kill at any moment loses the groups in flight and nothing else.

Several policies may share the workers (a race); a group's batches hold one policy's episodes only, so its
bytes are those it would have had alone, at any number of workers.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from simgap.compute.workers import TaskRunner, run_tasks
from simgap.envs import make_env
from simgap.envs.base import TaskEnv
from simgap.envs.factors import FactorValues
from simgap.errors import UsageError
from simgap.policies.base import Policy
from simgap.policies.bridges.open import open_policy
from simgap.policies.checkpoint import require_env, require_matches
from simgap.provenance import child_rng
from simgap.rollouts import engine
from simgap.rollouts.engine import RolloutSpec, run_group
from simgap.rollouts.record import RolloutRecord
from simgap.rollouts.traces import read_records, write_records
from simgap.seeds import seed_of

Roll: TypeAlias = (
    "Callable[[Arm, Policy, Sequence[TaskEnv], Sequence[int], Sequence[FactorValues]], list[RolloutRecord]]"
)
"""How one group of an arm is run; picklable."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Arm:
    """A policy with its executor and seeds, and where its groups are kept."""

    spec: RolloutSpec
    policy: str
    """Hash of the policy's card."""
    folder: Path
    note: str = ""
    """For the function that rolls: what is different about this arm."""

    @property
    def seeds(self) -> list[int]:
        """All its seeds, in order."""
        return [seed_of(self.spec.purpose, self.spec.seed, i) for i in range(self.spec.episodes)]

    def group(self, index: int) -> list[int]:
        """Return the seeds of one group."""
        return self.seeds[index * engine.GROUP : (index + 1) * engine.GROUP]

    @property
    def groups(self) -> int:
        """Groups in all."""
        return -(-self.spec.episodes // engine.GROUP)

    def about(self, index: int) -> dict[str, Any]:
        """Return what a group's file says of itself: a file of another policy, executor, env or of other seeds is not this group."""
        asked = {k: v for k, v in self.spec.to_json().items() if k != "episodes"}
        return {**asked, "policy": self.policy, "note": self.note, "seeds": self.group(index)}

    def file(self, index: int) -> Path:
        """Return where a group is kept."""
        return self.folder / f"group-{index:05d}.npz"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Task:
    arm: int
    group: int


class _EnoughError(Exception):
    """Leaves the workers early; never seen outside this file."""


def plain(
    arm: Arm,
    policy: Policy,
    envs: Sequence[TaskEnv],
    seeds: Sequence[int],
    conditions: Sequence[FactorValues],
) -> list[RolloutRecord]:
    """Run a group as the engine does."""
    return run_group(policy, envs, seeds, conditions, arm.spec.executor)


def run_arms(
    arms: Sequence[Arm],
    wanted: Mapping[int, Sequence[int]],
    *,
    workers: int,
    enough: Callable[[int, Mapping[int, list[RolloutRecord]]], bool] | None = None,
    progress: Callable[[int], None] | None = None,
    films: bool = True,
    roll: Roll = plain,
    runner: TaskRunner | None = None,
) -> dict[int, dict[int, list[RolloutRecord]]]:
    """Run groups of several arms, or read back those that are kept.

    Args:
        arms: all in the same env on the same engine and renderer, with frames of one size.
        wanted: arm -> its groups; they start in this order, arms in turn.
        workers: processes; 0 runs in this one.
        enough: asked after each group with (arm, that arm's groups so far); True ends the run, and groups in
            flight are lost.
        progress: called with the number of episodes that are new, those read back first.
        films: False keeps no frames.
        roll: how a group is run.
        runner: who runs the groups, such as a cluster; worker processes of this machine by default.

    Returns:
        Arm -> group -> its records in the order of the seeds.

    Raises:
        UsageError: arms of different worlds.
        SimgapError: a checkpoint that cannot be loaded or does not fit the env; a kept group that is damaged.
    """
    worlds = {(a.spec.env, a.spec.engine, a.spec.renderer) for a in arms}
    if len(worlds) > 1:
        raise UsageError(
            f"arms in several worlds {sorted(worlds)}: one run has one env, engine and renderer; run them one"
            " after the other"
        )
    found: dict[int, dict[int, list[RolloutRecord]]] = {a: {} for a in wanted}
    for a, groups in wanted.items():
        for g in groups:
            if arms[a].file(g).is_file():
                found[a][g] = read_records(arms[a].file(g), about=arms[a].about(g))
                _tell(progress, found[a][g])
    if enough is not None and any(enough(a, found[a]) for a in wanted):
        return found
    longest = max((len(g) for g in wanted.values()), default=0)
    todo = [
        _Task(arm=a, group=g[i])
        for i in range(longest)
        for a, g in wanted.items()
        if i < len(g) and g[i] not in found[a]
    ]

    def landed(result: tuple[_Task, list[RolloutRecord]]) -> None:
        task, records = result
        arm = arms[task.arm]
        write_records(arm.file(task.group), records, films=films, about=arm.about(task.group))
        found[task.arm][task.group] = records
        _tell(progress, records)
        if enough is not None and enough(task.arm, found[task.arm]):
            raise _EnoughError

    with contextlib.suppress(_EnoughError):
        # A cluster's workers stand elsewhere. Links stay: relative paths in a policy file start where it was
        # named.
        there = tuple(replace(a, spec=replace(a.spec, checkpoint=a.spec.checkpoint.absolute())) for a in arms)
        (runner or run_tasks)(_setup, (there, roll), todo, workers=workers, on_result=landed)
    return found


def run_kept(
    spec: RolloutSpec,
    folder: Path,
    *,
    policy: str,
    workers: int,
    enough: Callable[[Sequence[RolloutRecord]], bool] | None = None,
    progress: Callable[[int, int], None] | None = None,
    runner: TaskRunner | None = None,
) -> list[RolloutRecord]:
    """Run a policy, group by group, and return the records in the order of the seeds.

    What is returned is the same at any number of workers and after any number of kills: with ``enough``, the
    records of the groups up to the first after which it says so, whatever else was in flight.

    Args:
        spec: policy, executor, env, ranges, seeds.
        folder: where groups are kept.
        policy: hash of its card.
        workers: processes; 0 runs in this one.
        enough: asked with the records of the first groups, without gaps; True stops.
        progress: called with (episodes done, total).
        runner: as for :func:`run_arms`.
    """
    arm, done = Arm(spec=spec, policy=policy, folder=folder), 0

    def told(count: int) -> None:
        nonlocal done
        done += count
        if progress:
            progress(done, spec.episodes)

    def asked(_: int, groups: Mapping[int, list[RolloutRecord]]) -> bool:
        return _until(groups, enough)[1]

    found = run_arms(
        [arm],
        {0: range(arm.groups)},
        workers=workers,
        enough=asked if enough else None,
        progress=told,
        runner=runner,
    )
    return _until(found[0], enough)[0]


def _until(
    groups: Mapping[int, list[RolloutRecord]], enough: Callable[[Sequence[RolloutRecord]], bool] | None
) -> tuple[list[RolloutRecord], bool]:
    """Return the records of the first groups without a gap, no further than the first after which it is enough, and whether it is."""
    records: list[RolloutRecord] = []
    for g in range(len(groups)):
        if g not in groups:
            break
        records = records + groups[g]
        if enough is not None and enough(records):
            return records, True
    return records, False


def _tell(progress: Callable[[int], None] | None, records: Sequence[RolloutRecord]) -> None:
    if progress:
        progress(len(records))


def _setup(arms: tuple[Arm, ...], roll: Roll) -> Callable[[_Task], tuple[_Task, list[RolloutRecord]]]:
    @functools.lru_cache(maxsize=64)
    def policy_of(arm: int) -> Policy:
        spec = arms[arm].spec
        policy = open_policy(spec.checkpoint, bf16=True, threads=1, domain="sim")
        env = envs_of(policy.image_size, 1)[0]
        require_matches(
            policy, env.action_spec, env.state_spec, env.cameras, env.image_size, other=f"env {spec.env}"
        )
        require_env(policy.envs, spec.env)
        return policy

    made: dict[int, list[TaskEnv]] = {}

    def envs_of(image_size: int, count: int) -> list[TaskEnv]:
        spec = arms[0].spec
        envs = made.setdefault(image_size, [])
        while len(envs) < count:
            envs.append(
                envs[0].sibling()
                if envs
                else make_env(spec.env, image_size=image_size, engine=spec.engine, renderer=spec.renderer)
            )
        return envs[:count]

    def run(task: _Task) -> tuple[_Task, list[RolloutRecord]]:
        arm, policy = arms[task.arm], policy_of(task.arm)
        seeds = arm.group(task.group)
        envs = envs_of(policy.image_size, len(seeds))
        conditions = [
            envs[0].factor_space.sample(arm.spec.ranges, child_rng(seed, "factors")) for seed in seeds
        ]
        return task, roll(arm, policy, envs, seeds, conditions)

    return run
