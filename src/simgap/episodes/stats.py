"""Exact statistics of pooled frames, as a normaliser needs them: never a mean of per-episode quantiles."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

QUANTILES = {"q01": 0.01, "q10": 0.10, "q50": 0.50, "q90": 0.90, "q99": 0.99}
STATISTICS = ("min", "max", "mean", "std", *QUANTILES)


def exact_statistics(values: NDArray[Any]) -> dict[str, list[Any]]:
    """Return min, max, mean, std, count and quantiles over pooled frames in float64.

    Standard deviations are of the population (``ddof = 0``, two passes); quantiles interpolate linearly. With no frames every
    value is undefined and the dictionary holds the count alone.

    Args:
        values: ``(N, D)`` or ``(N,)`` numbers or booleans.
    """
    table = np.asarray(values, dtype=np.float64)
    if len(table) == 0:
        return {"count": [0]}
    table = table.reshape(len(table), -1)
    levels = np.quantile(table, list(QUANTILES.values()), axis=0)
    result: dict[str, list[Any]] = {
        "min": table.min(axis=0).tolist(),
        "max": table.max(axis=0).tolist(),
        "mean": table.mean(axis=0).tolist(),
        "std": table.std(axis=0).tolist(),
        "count": [len(table)],
    }
    return result | {name: level.tolist() for name, level in zip(QUANTILES, levels, strict=True)}


def image_histogram(frames: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return how often each value occurs by channel, ``(3, 256)`` int64, from ``(T, H, W, 3)`` frames.

    Histograms add up over episodes, so that every pooled statistic of 8-bit images stays exact.
    """
    return np.stack([np.bincount(frames[..., c].reshape(-1), minlength=256) for c in range(3)]).astype(np.int64)


def image_statistics(histogram: NDArray[np.int64], frames: int) -> dict[str, list[Any]]:
    """Return exact statistics by channel in [0, 1], nested ``[3][1][1]`` as lerobot stores them.

    Args:
        histogram: ``(3, 256)`` counts of :func:`image_histogram`, summed over episodes.
        frames: number of frames, stored as ``count``.
    """
    if frames == 0:
        return {"count": [0]}
    levels = np.arange(256) / 255.0
    rows: dict[str, list[float]] = {name: [] for name in STATISTICS}
    for counts in histogram:
        present = np.flatnonzero(counts)
        total = int(counts.sum())
        mean = float((counts * levels).sum() / total)
        rows["min"].append(float(levels[present[0]]))
        rows["max"].append(float(levels[present[-1]]))
        rows["mean"].append(mean)
        rows["std"].append(float(np.sqrt((counts * (levels - mean) ** 2).sum() / total)))
        cumulative = np.cumsum(counts)
        for name, q in QUANTILES.items():
            rows[name].append(_quantile(cumulative, levels, q))
    return {name: [[[v]] for v in values] for name, values in rows.items()} | {"count": [frames]}


def _quantile(cumulative: NDArray[np.int64], levels: NDArray[np.float64], q: float) -> float:
    position = (int(cumulative[-1]) - 1) * q
    low = int(np.floor(position))
    below, above = (float(levels[int(np.searchsorted(cumulative, rank, side="right"))]) for rank in (low, min(low + 1, int(cumulative[-1]) - 1)))
    return below + (above - below) * (position - low)
