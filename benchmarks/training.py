"""Observations a second of the training loop, against the same loop fed with ready batches from memory.

The two alternate in one run, so that a busy machine slows both: the ratio is the cost of drawing, shifting
and masking.

    python benchmarks/training.py --threads 2
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

from simgap.policies.inference import torch_threads
from simgap.training import TrainSpec
from simgap.training.batches import Batch
from simgap.training.plan import make_plan
from simgap.training.run import TrainingRun

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from synthetic import find_the_square


def main() -> None:
    """Print both rates and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--image-size", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4, help="steps of each kind in a round")
    parser.add_argument("--float32", action="store_true", help="not bfloat16")
    options = parser.parse_args()
    spec = TrainSpec(batch=options.batch, threads=options.threads, bf16=not options.float32)
    table = find_the_square(
        np.random.default_rng(0),
        episodes=100,
        length=40,
        image_size=options.image_size,
        cameras=("front", "wrist"),
    )
    with torch_threads(1):
        run = TrainingRun([table], make_plan([table], None, spec), spec)
        ready = [run.draw() for _ in range(options.steps)]
        _rate(run, ready)  # warm-up: thread pool, kernels, optimiser state
        rates = [(_rate(run, None, options.steps), _rate(run, ready)) for _ in range(options.rounds)]
    whole, fed = (float(np.median([r[i] for r in rates])) * options.batch for i in range(2))
    ratio = float(np.median([a / b for a, b in rates]))
    print(
        f"{options.image_size} px, 2 cameras, batch {options.batch}, {options.threads} threads,"
        f" {'float32' if options.float32 else 'bfloat16'}"
    )
    print(f"training loop        {whole:7.0f} observations/s")
    print(f"fed ready batches    {fed:7.0f} observations/s")
    print(f"ratio (median of {options.rounds}) {ratio:6.2f}")


def _rate(run: TrainingRun, ready: list[Batch] | None, steps: int = 0) -> float:
    count = steps if ready is None else len(ready)
    began = time.monotonic()
    for i in range(count):
        run.advance(run.draw() if ready is None else ready[i])
    return count / (time.monotonic() - began)


if __name__ == "__main__":
    main()
