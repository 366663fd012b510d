"""An env's contract and its teacher, tried."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from simgap.cli._options import workers_of
from simgap.cli._output import progress

if TYPE_CHECKING:
    from simgap.envs.base import TaskEnv
    from simgap.envs.factors import FactorRanges


def contract_of(name: str, engine: str) -> tuple[list[str], list[str]]:
    """Return faults and notes of gymnasium's checker and of the determinism check."""
    import re
    import warnings

    from gymnasium.utils.env_checker import check_env

    from simgap.envs import make_env

    env = make_env(name, image_size=48, engine=engine)
    faults = []
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            check_env(env)
        except Exception as error:  # whatever the checker or the env raises is what we came to hear
            faults.append(f"gymnasium's checker: {type(error).__name__}: {error}")
    notes = [" ".join(re.sub(r"\x1b\[\d*m", "", str(w.message)).split()) for w in seen]
    first, again, other = (_trace(env, seed) for seed in (0, 0, 1))
    if first != again:
        faults.append("the same seed and actions gave other bytes the second time")
    if first == other:
        faults.append("two seeds gave the same episode")
    env.close()
    return faults, [n.removeprefix("WARN: ") for n in dict.fromkeys(notes)]


def _trace(env: TaskEnv, seed: int) -> bytes:
    import numpy as np

    from simgap.provenance import child_rng

    rng = child_rng(7, "actions")
    obs, _ = env.reset(seed=seed)
    parts = [obs]
    for _ in range(8):
        action = rng.uniform(env.action_spec.low, env.action_spec.high).astype(np.float32)
        obs, _, terminated, truncated, _ = env.step(action)
        parts.append(obs)
        if terminated or truncated:
            break
    return b"".join(o[key].tobytes() for o in parts for key in sorted(o))


ABSTAINED = "abstained: "


def try_teacher(args: argparse.Namespace, ranges: FactorRanges) -> list[Any]:
    """Return the teacher's outcomes, and the reason as a text where it abstained."""
    from simgap.compute.workers import run_tasks
    from simgap.seeds import Purpose, seed_of

    results: list[Any] = []
    seeds = [seed_of(Purpose.TRAIN, args.seed, i) for i in range(args.n)]
    with progress(args.n, "teacher episodes", args.quiet) as advance:

        def landed(result: Any) -> None:
            results.append(result)
            advance()

        run_tasks(
            _teacher,
            (args.env, ranges, args.noise_deg, args.engine),
            seeds,
            workers=workers_of(args),
            on_result=landed,
        )
    return results


def _teacher(name: str, ranges: FactorRanges, noise_deg: float, engine: str) -> Callable[[int], Any]:
    from simgap.envs import make_env
    from simgap.provenance import child_rng
    from simgap.teachers import make_teacher
    from simgap.teachers.generation import roll_teacher

    env = make_env(name, image_size=16, render=False, engine=engine)
    teacher = make_teacher(env)

    def play(seed: int) -> Any:
        values = env.factor_space.sample(ranges, child_rng(seed, "factors"))
        rollout = roll_teacher(env, teacher, values, seed, noise_deg)
        return f"{ABSTAINED}{rollout.abstained}" if rollout.episode is None else rollout.episode.outcome

    return play
