"""What ``meta`` stores about features that are no joints: images, the columns that number rows, and per-episode values."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from simgap.checks.data.pooled import Pooled
from simgap.checks.data.report import DataFinding, Severity, flat_numbers, listed
from simgap.checks.data.statistics.bounds import impossible_std
from simgap.episodes.formats.index import read_table
from simgap.episodes.formats.layout import INDEX_FEATURES
from simgap.episodes.statistics.files import StatisticsBlock, read_statistics
from simgap.errors import DataError
from simgap.wording import number_of

_MOST_FILES = 2000


def check_stored(
    pooled: Pooled, stored: Mapping[str, Any], exact: Mapping[str, Mapping[str, list[Any]]]
) -> tuple[dict[str, Any], list[DataFinding]]:
    """Return facts and findings about stored statistics beside those of action and state.

    Args:
        pooled: the dataset.
        stored: the parsed ``meta/stats.json``.
        exact: exact statistics of the numbering columns.
    """
    root = pooled.dataset.root
    images = set(pooled.dataset.camera_keys.values())
    blocks = [b for b in read_statistics(root / "meta" / "stats.json") if b.key in images] if stored else []
    zero = _zero_episodes(root, sorted(images))
    found = impossible_std([b for b in blocks if b.is_even and not _is_placeholder(b)])
    if zero["zero"]:
        found.append(
            DataFinding(
                code="image_std_zero",
                severity=Severity.FAULT,
                sentence=(
                    f"the stored standard deviation of images is exactly 0 in {zero['zero']} of"
                    f" {number_of(zero['episodes'], 'episode')}: squares of uint8 overflow"
                ),
                remedy=(
                    "recompute statistics in float64; a policy that scales images by mean and std is"
                    " affected, one with ImageNet statistics is not"
                ),
                feature=sorted(images)[0] if images else None,
                numbers=zero,
            )
        )
    return {"image_std_zero_episodes": zero}, [*found, *_stale(stored, exact)]


def _is_placeholder(block: StatisticsBlock) -> bool:
    mean, std = block.get("mean"), block.get("std")
    return mean is None or std is None or bool((std == 0).all() or (std == 1).all() or (std == 0.5).all())


def _stale(stored: Mapping[str, Any], exact: Mapping[str, Mapping[str, list[Any]]]) -> list[DataFinding]:
    """Compare stored extremes of the numbering columns with the rows; what numbers rows has to agree exactly."""
    off = {}
    for key in INDEX_FEATURES:
        entry, true = stored.get(key), exact.get(key)
        if key == "timestamp" or not isinstance(entry, dict) or true is None:
            continue
        for name in ("min", "max"):
            values = flat_numbers(entry.get(name))
            if values is not None and len(values) == 1 and float(values[0]) != float(true[name][0]):
                off[f"{name} of {key}"] = {"stored": float(values[0]), "rows": float(true[name][0])}
    if not off:
        return []
    return [
        DataFinding(
            code="stale_numbering",
            severity=Severity.WARNING,
            sentence="meta/stats.json is older than the rows: "
            + listed(
                [f"{n} is stored as {v['stored']:g}, the rows give {v['rows']:g}" for n, v in off.items()]
            ),
            remedy=(
                "recompute meta/stats.json; it was put together before the rows were renumbered, and a"
                " sampler that trusts it misses tasks"
            ),
            numbers=off,
        )
    ]


def _zero_episodes(root: Path, images: list[str]) -> dict[str, int]:
    """Return in how many episodes of a v3.0 index the stored image std is exactly 0 in every channel."""
    episodes = zero = 0
    for file in sorted((root / "meta" / "episodes").glob("chunk-*/file-*.parquet"))[:_MOST_FILES]:
        try:
            table = read_table(file)
        except DataError:
            continue  # the reader names it
        columns = [f"stats/{key}/std" for key in images if f"stats/{key}/std" in table.column_names]
        for row in zip(*(table[c].to_pylist() for c in columns), strict=True):
            values = [flat_numbers(v) for v in row]
            known = [v for v in values if v is not None and len(v)]
            episodes += bool(known)
            zero += bool(known) and all(not np.any(v) for v in known)
    return {"episodes": episodes, "zero": zero}
