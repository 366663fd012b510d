"""Pooled statistics of a million frames: how far from numpy on all of them at once, and how much memory.

Every way of working them out runs in a process of its own, so that its peak memory is its own. Frames are
made batch by batch from seeds and never held by the streaming side: six joints in float32, a clock in
float64, a counter in int64, and small images.

    python benchmarks/exact_statistics.py
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.episodes.statistics.exact import (
    QUANTILES,
    STATISTICS,
    StreamingStatistics,
    image_histogram,
    image_statistics,
)

BATCH = 10_000
COLUMNS = ("joints", "clock", "counter", "padded")


def batches(
    frames: int, size: int
) -> Iterator[tuple[dict[str, NDArray[Any]], NDArray[np.bool_], NDArray[np.uint8]]]:
    """Yield columns, which rows of ``padded`` are no padding, and images ``(n, size, size, 3)``."""
    for start in range(0, frames, BATCH):
        rng = np.random.default_rng(start)
        n = min(BATCH, frames - start)
        columns = {
            "joints": (
                (rng.normal(size=(n, 6)) * [1, 5, 20, 60, 90, 0.01] + [0, 30, -45, 70, 5, 50]).astype(
                    np.float32
                )
            ),
            "clock": (start + np.arange(n)) / 20.0 + rng.uniform(0, 0.01, n),
            "counter": start + np.arange(n),
            "padded": rng.lognormal(0, 3, (n, 2)).astype(np.float32),
        }
        yield (
            columns,
            rng.uniform(size=n) < 0.8,
            rng.integers(0, 1 + rng.integers(255), (n, size, size, 3), dtype=np.uint8),
        )


def streamed(frames: int, size: int) -> dict[str, Any]:
    """Return statistics of all frames, seen once."""
    streams = {name: StreamingStatistics() for name in COLUMNS}
    histogram = np.zeros((3, 256), dtype=np.int64)
    for columns, valid, images in batches(frames, size):
        for name, stream in streams.items():
            stream.update(columns[name], valid if name == "padded" else None)
        histogram += image_histogram(images)
    images_found = {name: np.ravel(v).tolist() for name, v in image_statistics(histogram, frames).items()}
    return {name: stream.result() for name, stream in streams.items()} | {"images": images_found}


def pooled(frames: int, size: int) -> dict[str, Any]:
    """Return the same from numpy, with everything in memory."""
    made = list(batches(frames, size))
    tables: dict[str, NDArray[Any]] = {
        name: np.concatenate([c[name][v] if name == "padded" else c[name] for c, v, _ in made])
        for name in COLUMNS
    }
    tables["images"] = np.concatenate([i.reshape(-1, 3) for _, _, i in made])
    result: dict[str, Any] = {}
    for name, table in tables.items():
        scale = 255.0 if name == "images" else 1.0
        wide = table.reshape(len(table), -1)
        found: dict[str, list[float]] = {key: [] for key in STATISTICS}
        for values in (wide[:, k].astype(np.float64) / scale for k in range(wide.shape[1])):
            for key, value in (
                ("min", values.min()),
                ("max", values.max()),
                ("mean", values.mean()),
                ("std", values.std()),
            ):
                found[key].append(float(value))
            for key, q in QUANTILES.items():
                found[key].append(float(np.quantile(values, q)))
        result[name] = found
    return result


def measured(way: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run one way in a process of its own; return its answer, seconds and peak memory in MiB."""
    command = [
        sys.executable,
        __file__,
        "--way",
        way,
        "--frames",
        str(options.frames),
        "--image-size",
        str(options.image_size),
    ]
    answer: dict[str, Any] = json.loads(
        subprocess.run(command, check=True, capture_output=True, text=True).stdout
    )
    return answer


def main() -> None:
    """Print errors, seconds and peaks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--image-size", type=int, default=8)
    parser.add_argument("--way", choices=["streamed", "pooled", "nothing"])
    options = parser.parse_args()
    if options.way:
        began = time.process_time()
        ways = {"streamed": streamed, "pooled": pooled, "nothing": lambda *_: {}}
        found = ways[options.way](options.frames, options.image_size)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"found": found, "cpu_s": time.process_time() - began, "peak_mib": peak}))
        return
    runs = {way: measured(way, options) for way in ("nothing", "streamed", "pooled")}
    print(f"{options.frames} frames, images of {options.image_size} px")
    for way in ("streamed", "pooled"):
        extra = runs[way]["peak_mib"] - runs["nothing"]["peak_mib"]
        print(
            f"{way:9s} {runs[way]['cpu_s']:6.1f} s, peak {runs[way]['peak_mib']:6.0f} MiB, {extra:.0f} MiB"
            " above an idle process"
        )
    for name in (*COLUMNS, "images"):
        errors = {}
        for key in STATISTICS:
            ours, theirs = (np.array(runs[way]["found"][name][key]) for way in ("streamed", "pooled"))
            errors[key] = float((np.abs(ours - theirs) / np.maximum(np.abs(theirs), 1e-300)).max())
        exact = [key for key, error in errors.items() if error == 0]
        rest = ", ".join(f"{key} {error:.1e}" for key, error in errors.items() if error)
        print(
            f"{name:9s} exact: {', '.join(exact) or 'none'}"
            + (f"; largest relative error: {rest}" if rest else "")
        )


if __name__ == "__main__":
    main()
