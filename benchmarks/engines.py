"""Teachers and speed on both physics engines: the same seeds, how often solved, on how many seeds the engines disagree, how long.

Time is processor time of this process, so that a busy machine does not count; nothing is rendered.

    python benchmarks/engines.py --envs arm-pick car-goal -n 100
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from typing import Any

import numpy as np

from simgap.envs import make_env
from simgap.envs.base import TaskEnv
from simgap.provenance import child_rng
from simgap.statistics import clopper_pearson
from simgap.teachers import Abstain, make_teacher


def main() -> None:
    """Print one line an env, preset and engine, and the ratio of their times."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--envs", nargs="+", default=["arm-pick", "car-goal"])
    parser.add_argument("--presets", nargs="+", default=["nominal"])
    parser.add_argument("--engines", nargs="+", default=["mujoco", "drake"])
    parser.add_argument("-n", type=int, default=100)
    options = parser.parse_args()
    for name in options.envs:
        for preset in options.presets:
            results = {
                engine: _play(make_env(name, image_size=16, render=False, engine=engine), preset, options.n)
                for engine in options.engines
            }
            first, *others = results.values()
            for engine, (outcomes, steps, seconds) in results.items():
                counts = Counter(outcomes)
                rate = clopper_pearson(counts.pop("success", 0), len(outcomes))
                print(
                    f"{name} {preset} {engine:7s} {rate}; {dict(counts) or 'no failures'}; {steps:.1f} steps,"
                    f" {1e3 * seconds:.0f} ms an episode"
                )
            for outcomes, _, seconds in others:
                apart = sum(a != b for a, b in zip(first[0], outcomes, strict=True))
                print(
                    f"    other outcome on {apart} of {len(outcomes)} seeds, {seconds / first[2]:.1f} times"
                    " as long"
                )


def _play(env: TaskEnv, preset: str, episodes: int) -> tuple[list[str], float, float]:
    """Return outcomes by seed, steps an episode and seconds of processor time an episode."""
    teacher: Any = make_teacher(env)
    outcomes, steps, began = [], [], time.process_time()
    for seed in range(episodes):
        values = env.factor_space.sample(env.presets[preset], child_rng(seed, "factors"))
        env.reset(seed=seed, options={"factors": values})
        count = 0
        while True:
            label = teacher.label()
            if isinstance(label, Abstain):
                outcomes.append(f"abstained: {label.reason}")
                break
            info = env.step(label)[4]
            count += 1
            if "outcome" in info:
                outcomes.append(str(info["outcome"]))
                break
        steps.append(count)
    return outcomes, float(np.mean(steps)), (time.process_time() - began) / episodes


if __name__ == "__main__":
    main()
