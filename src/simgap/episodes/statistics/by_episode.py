"""Statistics that LeRobot v2.1 keeps by episode (``episodes_stats.jsonl``): read as blocks, and put together over episodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.episodes.formats.index import read_json_lines
from simgap.episodes.statistics.files import StatisticsBlock, blocks_in
from simgap.errors import DataError

EPISODE_STATISTICS = "episodes_stats.jsonl"
_MOST_EPISODES = 200_000
_IMAGE_NDIM = 3
_TOLERANCE = 1e-3
"""Share of a dimension's range in the whole dataset that a stored value may be off."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class EpisodeStatistics:
    """One line of the file."""

    index: int
    blocks: Mapping[str, StatisticsBlock]
    """Feature -> its statistics in this episode."""
    flat_images: tuple[str, ...] = ()
    """Image features whose statistics are no ``(channels, 1, 1)``."""


def read_episode_statistics(path: Path) -> tuple[EpisodeStatistics, ...]:
    """Return the lines of an ``episodes_stats.jsonl``.

    Raises:
        DataError: no such lines, a line without an episode or statistics, or too many; names file and line.
    """
    found = []
    for number, row in islice(read_json_lines(path), _MOST_EPISODES + 1):
        index, stats = (row.get("episode_index"), row.get("stats")) if isinstance(row, dict) else (None, None)
        if not isinstance(index, int) or isinstance(index, bool) or not isinstance(stats, dict):
            raise DataError(
                f"{path} line {number} is no {{'episode_index': 0, 'stats': {{...}}}}; repair the line, or"
                " write them again: simgap data stats --write"
            )
        blocks = {b.key: b for b in blocks_in(stats, path.name, f"episode {index}")}
        flat = tuple(
            k
            for k, b in blocks.items()
            if b.is_image and _depth(stats[k].get("mean")) not in (0, _IMAGE_NDIM) and b.size > 1
        )
        found.append(EpisodeStatistics(index=index, blocks=blocks, flat_images=flat))
    if len(found) > _MOST_EPISODES:
        raise DataError(f"{path} holds more than {_MOST_EPISODES} lines; split the dataset")
    return tuple(found)


def is_episode_statistics(path: Path) -> bool:
    """Return whether a file of JSON lines begins like LeRobot's statistics by episode."""
    if path.suffix != ".jsonl":
        return False
    try:
        first = next(iter(read_json_lines(path)), None)
    except DataError:
        return False
    return first is not None and isinstance(first[1], dict) and {"episode_index", "stats"} <= set(first[1])


def over_episodes(episodes: Sequence[EpisodeStatistics]) -> tuple[StatisticsBlock, ...]:
    """Return one block a feature over all episodes that have it: exact for min, max, mean and std where the counts are there.

    Quantiles are left out: those of a whole do not follow from those of its parts.
    """
    keys = dict.fromkeys(k for e in episodes for k in e.blocks)
    # numbers that overflow stay infinite, and are judged as that
    with np.errstate(over="ignore", invalid="ignore"):
        return tuple(
            b
            for k in keys
            if (b := _together(k, [e.blocks[k] for e in episodes if k in e.blocks])) is not None
        )


def _together(key: str, parts: Sequence[StatisticsBlock]) -> StatisticsBlock | None:
    sizes = {p.size for p in parts}
    if len(sizes) != 1 or not all(p.is_even for p in parts):
        return None
    values: dict[str, Any] = {}
    for name, over in (("min", np.min), ("max", np.max)):
        if all(name in p.values for p in parts):
            values[name] = over([p.values[name] for p in parts], axis=0)
    counts = [p.count for p in parts]
    known = [c for c in counts if c is not None]
    if len(known) == len(counts) and all("mean" in p.values and "std" in p.values for p in parts):
        weights = np.array(known, dtype=np.float64)[:, None] / sum(known)
        means, stds = (np.array([p.values[n] for p in parts]) for n in ("mean", "std"))
        values["mean"] = (weights * means).sum(axis=0)
        values["std"] = np.sqrt((weights * (stds**2 + (means - values["mean"]) ** 2)).sum(axis=0))
    if len(values) < 2:
        return None
    total = sum(known) if len(known) == len(counts) else None
    return StatisticsBlock(
        file=parts[0].file, group="", key=key, values=values, is_image=parts[0].is_image, count=total
    )


def worst_of(
    block: StatisticsBlock, values: NDArray[np.float64], span: NDArray[Any]
) -> tuple[str, int, float, float] | None:
    """Return the statistic, dimension, stored and exact value that is furthest off in the span of the dataset, None where all agree."""
    exact = {
        "min": values.min(axis=0),
        "max": values.max(axis=0),
        "mean": values.mean(axis=0),
        "std": values.std(axis=0),
    }
    found: list[tuple[float, str, int, float, float]] = []
    for name, true in exact.items():
        stored = block.get(name)
        if stored is None or len(stored) != len(true):
            continue
        room = np.maximum(_TOLERANCE * span, 1e-5 * np.maximum(np.abs(values).max(axis=0), 1e-4))
        off = np.abs(stored - true)
        for k in np.flatnonzero(~(off <= room)):
            found.append(
                (
                    float(np.nan_to_num(off[k] / room[k], nan=np.inf)),
                    name,
                    int(k),
                    float(stored[k]),
                    float(true[k]),
                )
            )
    return max(found)[1:] if found else None


def _depth(value: Any) -> int:
    depth = 0
    while isinstance(value, list) and value and depth < 8:
        depth, value = depth + 1, value[0]
    return depth
