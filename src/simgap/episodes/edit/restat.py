"""Exact statistics of a whole dataset, compared with those stored beside it, and put in their place."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.episodes.formats.commands import convert_command
from simgap.episodes.formats.index import read_json_lines
from simgap.episodes.formats.layout import INDEX_FEATURES, VERSION_21
from simgap.episodes.reader import Dataset
from simgap.episodes.statistics.by_episode import EPISODE_STATISTICS, read_episode_statistics, worst_of
from simgap.episodes.statistics.exact import (
    QUANTILES,
    STATISTICS,
    StreamingStatistics,
    exact_statistics,
    image_histogram,
    image_statistics,
)
from simgap.episodes.write.files import commit
from simgap.errors import DataError, UsageError
from simgap.provenance import read_json

BLOCK_BYTES = 64 << 20
"""Frames decoded at a time."""
TOLERANCE = 1e-3
"""Share of a dimension's range that a stored value may be off before it is called wrong."""
IMAGE_TOLERANCE = 0.02
"""The same for mean and standard deviation of images, which the usual tools sample before they measure and compress after."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredDifference:
    """One stored number that the data do not give."""

    feature: str
    dimension: str
    statistic: str
    stored: float | None
    """None where nothing, or no number, is stored."""
    exact: float

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "feature": self.feature,
            "dimension": self.dimension,
            "statistic": self.statistic,
            "stored": self.stored,
            "exact": self.exact,
        }


def dataset_statistics(
    dataset: Dataset, *, images: bool = True, progress: Callable[[int, int], None] | None = None
) -> tuple[dict[str, dict[str, list[Any]]], tuple[str, ...]]:
    """Return exact statistics of every numeric feature and, by channel in [0, 1], of every camera; memory stays constant.

    Args:
        dataset: what to measure.
        images: False leaves the cameras, which need every frame decoded, out.
        progress: called with ``(episodes measured, episodes)``.

    Returns:
        Feature -> statistic -> values, and a sentence for each camera that could not be measured.
    """
    entries = [e for e in dataset.entries if e.length > 0]
    cameras = dict(dataset.camera_keys) if images else {}
    histograms = {name: np.zeros((3, 256), dtype=np.int64) for name in cameras}
    notes: list[str] = []
    with ExitStack() as stack:
        running: dict[str, StreamingStatistics] = {}
        for done, entry in enumerate(entries, start=1):
            for key, values in dataset.columns(entry.index).items():
                if key not in running:
                    running[key] = stack.enter_context(StreamingStatistics())
                if not np.isfinite(values).all():
                    bad = int((~np.isfinite(values)).sum())
                    raise DataError(
                        f"{entry.data}: {key!r} of episode {entry.index} holds {bad} numbers that are none"
                        " (NaN or infinite); drop it or re-record"
                    )
                if values.size:
                    running[key].update(values)
            for camera in list(cameras):
                try:
                    for block in _blocks(dataset, entry.index, entry.length, camera):
                        histograms[camera] += image_histogram(block)
                except DataError as error:
                    notes.append(f"camera {camera!r} was not measured: {error}")
                    del cameras[camera], histograms[camera]
            if progress is not None:
                progress(done, len(entries))
        result = {key: statistics.result() for key, statistics in running.items() if statistics.count}
    frames = sum(e.length for e in entries)
    return result | {cameras[name]: image_statistics(h, frames) for name, h in histograms.items()}, tuple(
        notes
    )


def stored_statistics(dataset: Dataset) -> dict[str, Any] | None:
    """Return ``meta/stats.json`` as it is, or None where there is none; v2.1 keeps its numbers by episode."""
    path = dataset.root / "meta" / "stats.json"
    if not dataset.info.is_lerobot or not path.is_file():
        return None
    stored = read_json(path, finite=False)
    if not isinstance(stored, dict):
        raise DataError(
            f"{path} holds no JSON object; expected statistics by feature; repair it with --write"
        )
    return stored


def compare(
    dataset: Dataset, stored: Mapping[str, Any], exact: Mapping[str, Mapping[str, list[Any]]]
) -> list[StoredDifference]:
    """Return every stored value that is further from the exact one than its tolerance, the worst first, row numbers last."""
    found: list[tuple[float, StoredDifference]] = []
    for feature, statistics in exact.items():
        if feature in INDEX_FEATURES and feature not in stored:
            continue
        entry = stored.get(feature)
        if entry is None and feature not in {
            dataset.action_key,
            dataset.state_key,
            *dataset.camera_keys.values(),
        }:
            continue  # a flag or a reward that no policy reads: absent is not wrong
        names = _names(dataset, feature, statistics)
        span = np.ravel(np.subtract(statistics["max"], statistics["min"])).astype(float)
        is_image = feature in dataset.camera_keys.values()
        for statistic in ("mean", "std") if is_image else STATISTICS:
            true = np.ravel(np.asarray(statistics[statistic], dtype=float))
            given = _numbers(entry.get(statistic) if isinstance(entry, dict) else None, len(true))
            if given is None:
                if (
                    not isinstance(entry, dict)
                    or statistic not in QUANTILES
                    or any(q in entry for q in QUANTILES)
                ):
                    found.append(
                        (
                            np.inf,
                            StoredDifference(
                                feature=feature,
                                dimension="",
                                statistic=statistic,
                                stored=None,
                                exact=float(true[0]),
                            ),
                        )
                    )
                continue
            room = np.maximum(
                (IMAGE_TOLERANCE if is_image else TOLERANCE) * np.where(span > 0, span, 1.0),
                1e-5 * np.abs(true) + 1e-9,
            )
            for k in np.flatnonzero(~(np.abs(given - true) <= room)):
                off = abs(given[k] - true[k]) / (span[k] or 1.0)
                difference = StoredDifference(
                    feature=feature,
                    dimension=names[k],
                    statistic=statistic,
                    stored=float(given[k]),
                    exact=float(true[k]),
                )
                found.append((float(off), difference))
    return [d for _, d in sorted(found, key=lambda pair: (pair[1].feature in INDEX_FEATURES, -pair[0]))]


def write_statistics(dataset: Dataset, exact: Mapping[str, Mapping[str, list[Any]]]) -> list[Path]:
    """Put exact statistics in the place of the stored ones, atomically; features that were not measured keep what they have.

    Raises:
        UsageError: a format that has no place for statistics.
    """
    if not dataset.info.is_lerobot:
        raise UsageError(
            f"{dataset.root} is {dataset.info.version}, which has no place for statistics; convert it first:"
            f" {convert_command(dataset)}"
        )
    path = dataset.root / "meta" / "stats.json"
    try:
        before = stored_statistics(dataset) or {}
    except DataError:
        before = {}
    merged = {**before, **exact}
    commit(path, (json.dumps(merged, indent=4, ensure_ascii=False) + "\n").encode())
    written = [path]
    by_episode = dataset.root / "meta" / "episodes_stats.jsonl"
    if dataset.info.version == VERSION_21 and by_episode.is_file():
        commit(by_episode, "".join(_episode_lines(dataset, by_episode)).encode())
        written.append(by_episode)
    return written


def stale_episodes(dataset: Dataset) -> list[int]:
    """Return the episodes whose line in v2.1's ``episodes_stats.jsonl`` is missing or does not give their rows; none without that file.

    Raises:
        DataError: a line is no statistics of an episode.
    """
    path = dataset.root / "meta" / EPISODE_STATISTICS
    if dataset.info.version != VERSION_21 or not path.is_file():
        return []
    lines = {e.index: e.blocks for e in read_episode_statistics(path)}
    stale = []
    for entry in dataset.entries:
        blocks = lines.get(entry.index)
        columns = {
            k: np.asarray(v, dtype=np.float64).reshape(len(v), -1)
            for k, v in dataset.columns(entry.index).items()
            if v.size
        }
        wrong = blocks is None or any(
            (block := blocks.get(k)) is not None
            and (worst_of(block, v, np.ptp(v, axis=0)) is not None or block.count not in (None, len(v)))
            for k, v in columns.items()
        )
        if entry.length > 0 and wrong:
            stale.append(entry.index)
    return stale


def _episode_lines(dataset: Dataset, path: Path) -> Iterator[str]:
    """Yield the lines of v2.1's file, numbers exact, images as they were."""
    try:
        stored = {
            int(row["episode_index"]): row
            for _, row in read_json_lines(path)
            if isinstance(row, dict) and "episode_index" in row
        }
    except (DataError, ValueError, TypeError):
        stored = {}  # written anew; the statistics of images that stood in them are lost
    for entry in dataset.entries:
        before = stored.get(entry.index, {}).get("stats", {})
        exact = {
            key: exact_statistics(values)
            for key, values in dataset.columns(entry.index).items()
            if values.size and key in dataset.info.features
        }
        yield (
            json.dumps({"episode_index": entry.index, "stats": {**before, **exact}}, ensure_ascii=False)
            + "\n"
        )


def _blocks(dataset: Dataset, index: int, length: int, camera: str) -> Iterator[NDArray[np.uint8]]:
    shape = dataset.frame_shape(camera)
    step = max(1, BLOCK_BYTES // int(np.prod(shape)))
    for start in range(0, length, step):
        frames = np.empty((min(step, length - start), *shape), dtype=np.uint8)
        dataset.decode(index, camera, frames, start)
        yield frames


def _names(dataset: Dataset, feature: str, statistics: Mapping[str, list[Any]]) -> list[str]:
    width = int(np.size(statistics["min"]))
    if feature in dataset.camera_keys.values():
        return ["red", "green", "blue"]
    declared = dataset.info.features.get(feature)
    if declared is not None and len(declared.names) == width:
        return list(declared.names)
    return [feature] if width == 1 else [f"{feature}[{k}]" for k in range(width)]


def _numbers(value: Any, count: int) -> NDArray[np.float64] | None:
    try:
        numbers = np.ravel(np.asarray(value, dtype=np.float64))
    except (TypeError, ValueError, OverflowError):
        return None
    return numbers if value is not None and len(numbers) == count else None
