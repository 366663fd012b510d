"""Does the episode index of a v3.0 dataset point at the rows and the moments of video that belong to each episode.

A file of v3.0 holds several episodes, so every row of ``meta/episodes`` has to say in which file and where.
Converters and merges get that wrong without any error: an episode comes back empty, a chunk is all padding, a
picture is that of another episode.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.bounds import EPISODES
from simgap.checks.data.pooled import Pooled
from simgap.checks.data.report import DataFinding, Severity, listed
from simgap.episodes.formats.index import read_table
from simgap.episodes.formats.layout import VERSION_30
from simgap.episodes.formats.lerobot import episode_numbers
from simgap.episodes.formats.parquet import read_parquet
from simgap.episodes.reader import Dataset
from simgap.errors import DataError
from simgap.wording import number_of

HORIZON = 16
"""Steps of a chunk for which the share of padding is counted."""


def check_index(pooled: Pooled) -> list[DataFinding]:
    """Return the findings about rows and boundaries; only v3.0 has an index that can be wrong about them."""
    if pooled.dataset.info.version != VERSION_30:
        return []
    return [*_elsewhere(pooled), *_boundaries(pooled)]


# --- rows ------------------------------------------------------------------------------------------------------------


def _elsewhere(pooled: Pooled) -> list[DataFinding]:
    """Find episodes whose rows lie in another file than the index names."""
    dataset = pooled.dataset
    short = {e.index: e for e in dataset.entries if pooled.lengths[e.index] < e.length}
    found: dict[str, dict[str, Any]] = {}
    for entry in dataset.entries:
        if "declared_data" in entry.extra:
            numbers = {"length": entry.length, "rows_there": 0, "rows_missing": entry.length}
            found[str(entry.index)] = numbers | {
                "declared_file": entry.extra["declared_data"],
                "right_file": _below(dataset.root, entry.data),
            }
    places = _places(dataset, set(short)) if short else {}
    for index, entry in short.items():
        others = {path: n for path, n in places.get(index, {}).items() if path != entry.data.resolve()}
        if others:
            right = max(others, key=lambda path: others[path])
            numbers = {
                "length": entry.length,
                "rows_there": pooled.lengths[index],
                "rows_missing": entry.length - pooled.lengths[index],
            }
            found[str(index)] = numbers | {
                "declared_file": _below(dataset.root, entry.data),
                "right_file": _below(dataset.root, right),
            }
    if not found:
        return []
    parts = [
        f"episode {k} names {v['declared_file']} and lies in {v['right_file']}"
        f" ({number_of(v['rows_missing'], 'row')})"
        for k, v in found.items()
    ]
    return [
        DataFinding(
            code="rows_elsewhere",
            severity=Severity.FAULT,
            sentence=(
                f"the index sends {number_of(len(found), 'episode')} to the wrong data file, so they"
                " come back without"
                f" frames: {listed(parts)}"
            ),
            remedy=(
                "correct data/chunk_index and data/file_index in meta/episodes; converters get the first"
                " episode of a new file wrong. No row is lost, and nothing has to be downloaded again"
            ),
            feature="meta/episodes",
            numbers=found,
        )
    ]


def _places(dataset: Dataset, wanted: set[int]) -> dict[int, dict[Path, int]]:
    """Return how many rows of each wanted episode every data file holds."""
    places: dict[int, dict[Path, int]] = defaultdict(dict)
    for path in sorted((dataset.root / "data").rglob("*.parquet")):
        try:
            numbers = episode_numbers(read_parquet(path, ["episode_index"]))
        except DataError:  # a stray file, which the layout check names
            continue
        if numbers is None:
            continue
        for index, n in zip(*np.unique(numbers, return_counts=True), strict=True):
            if int(index) in wanted:
                places[int(index)][path.resolve()] = int(n)
    return places


def _below(root: Path, path: Path) -> str:
    return path.resolve().relative_to(root.resolve()).as_posix()


# --- boundaries ------------------------------------------------------------------------------------------------------


def _boundaries(pooled: Pooled) -> list[DataFinding]:
    """Compare the rows an episode claims with those that carry its number."""
    claimed = {
        e.index: _claim(e.extra.get("dataset_from_index"), e.extra.get("dataset_to_index"))
        for e in pooled.dataset.entries
    }
    if all(v is None for v in claimed.values()):
        return []
    true = _true_rows(pooled)
    wrong = [k for k, rows in true.items() if claimed[k] != rows]
    if not wrong:
        return []
    declared = {k: claimed[k] or (0, 0) for k in true}
    observed, exact = (_padding(true, rows) for rows in (declared, true))
    jumps, gaps = _jumps(pooled, declared), _jumps(pooled, true)
    first = wrong[0]
    claims = "no rows" if claimed[first] is None else f"rows {declared[first][0]} to {declared[first][1]}"
    text = f"episode {first} claims {claims} and has {true[first][0]} to {true[first][1]}"
    numbers: dict[str, Any] = {
        "episodes": wrong,
        "horizon": HORIZON,
        "padded_share": observed,
        "padded_share_true": exact,
        "border_jumps_s": jumps,
        "real_gaps": len(gaps),
    }
    times = (
        f"; {len(jumps)} jumps of time lie at episode borders ({min(jumps):.2f} s) and {len(gaps)} within"
        " episodes"
        if jumps
        else ""
    )
    return [
        DataFinding(
            code="boundaries_wrong",
            severity=Severity.FAULT,
            sentence=(
                f"dataset_from_index and dataset_to_index of"
                f" {number_of(len(wrong), 'episode is', 'episodes are')} not their rows:"
                f" {text}; {100 * observed:.1f} % of the steps of a chunk of {HORIZON} count as padding,"
                f" {100 * exact:.1f} % would be right{times}"
            ),
            remedy=(
                "rewrite both columns of meta/episodes by adding up the lengths; a loss that leaves padding"
                " out has ignored most targets"
            ),
            feature="meta/episodes",
            numbers=numbers,
        )
    ]


def _claim(start: Any, stop: Any) -> tuple[int, int] | None:
    return (int(start), int(stop)) if isinstance(start, int) and isinstance(stop, int) else None


def _true_rows(pooled: Pooled) -> dict[int, tuple[int, int]]:
    """Return the global rows of each episode: those of its ``index`` column where it counts, else by adding up."""
    rows, start = {}, 0
    for number, columns in zip(pooled.indices, pooled.episodes, strict=True):
        length = pooled.lengths[number]
        index = columns.get("index")
        if index is not None and len(index) == length and int(index[-1]) - int(index[0]) == length - 1:
            rows[number] = (int(index[0]), int(index[-1]) + 1)
        else:
            rows[number] = (start, start + length)
        start += length
    return rows


def _padding(true: dict[int, tuple[int, int]], declared: dict[int, tuple[int, int]]) -> float:
    """Return the share of steps of all chunks that fall outside the declared rows of their episode."""
    outside = total = 0
    for number, (start, stop) in true.items():
        steps = np.arange(start, stop)[:, None] + np.arange(HORIZON)
        low, high = declared[number]
        outside += int(((steps < low) | (steps >= high)).sum())
        total += steps.size
    return outside / max(1, total)


def _jumps(pooled: Pooled, rows: dict[int, tuple[int, int]]) -> list[float]:
    """Return the steps back in time within the rows of each episode, in seconds."""
    if any("timestamp" not in e for e in pooled.episodes):
        return []
    clock: NDArray[np.float64] = np.concatenate(
        [np.asarray(e["timestamp"], dtype=np.float64).reshape(-1) for e in pooled.episodes]
    )
    jumps = []
    for start, stop in rows.values():
        steps = np.diff(clock[max(0, start) : max(0, stop)])
        jumps += steps[steps < 0].tolist()
    return jumps


# --- what the index says of videos -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """Where one episode says that one camera's frames lie."""

    episode: int
    path: Path
    start_s: float
    stop_s: float | None
    """None where the index does not say."""
    rows: int
    data_file: tuple[int, int]
    """``(chunk, file)`` of the episode's rows."""
    video_file: tuple[int, int]
    """``(chunk, file)`` of its frames."""


def video_claims(pooled: Pooled) -> dict[str, list[Claim]]:
    """Return, for each camera in videos, where the episodes say that their frames lie; empty for images inside the parquet."""
    dataset = pooled.dataset
    # Our own writer gives each episode files of its own, and reading thousands of row files twice takes
    # longer than all else.
    raw = _raw_rows(dataset) if dataset.info.version == VERSION_30 and not dataset.is_ours else {}
    claims: dict[str, list[Claim]] = {}
    for key in dataset.camera_keys.values():
        for entry in dataset.entries:
            span = entry.videos.get(key)
            if span is None or entry.length == 0:
                continue
            row = raw.get(entry.index, {})
            stop = row.get(f"videos/{key}/to_timestamp")
            places = [
                (int(row.get(f"{p}/chunk_index") or 0), int(row.get(f"{p}/file_index") or 0))
                for p in ("data", f"videos/{key}")
            ]
            claims.setdefault(key, []).append(
                Claim(
                    episode=entry.index,
                    path=span.path,
                    start_s=span.start_s,
                    stop_s=None if stop is None else float(stop),
                    rows=entry.length,
                    data_file=places[0],
                    video_file=places[1],
                )
            )
    return claims


def _raw_rows(dataset: Dataset) -> dict[int, dict[str, Any]]:
    rows: dict[int, dict[str, Any]] = {}
    for file in sorted((dataset.root / "meta" / "episodes").glob("chunk-*/file-*.parquet")):
        for row in read_table(file, without="stats/", most_rows=EPISODES).to_pylist():
            rows[int(row["episode_index"])] = row
    return rows
