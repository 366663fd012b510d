"""What the meta files of a LeRobot dataset say: ``info.json``, its features, and where each episode lies (v3.0, v2.1, v2.0)."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from simgap.bounds import EPISODES, LINES_BYTES, LONGEST, ROWS, SIDE, json_lines, parsing
from simgap.episodes.formats.layout import (
    DATA_PATH_21,
    DATA_PATH_30,
    LEROBOT_VERSIONS,
    VERSION_30,
    VIDEO_PATH_21,
    VIDEO_PATH_30,
    Below,
    expand,
    require_content,
)
from simgap.episodes.formats.parquet import open_parquet, read_parquet
from simgap.errors import DataError
from simgap.provenance import hashable, read_object

_LONGEST_S = 1e7
"""A place in a video; a hundred days."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Feature:
    """One entry of ``features`` in ``info.json``."""

    key: str
    dtype: str
    shape: tuple[int, ...]
    names: tuple[str, ...]
    """Names of the dimensions; empty where none are given."""

    @property
    def is_image(self) -> bool:
        """True for a camera, in a video or inside the parquet."""
        return self.dtype in ("video", "image")

    @property
    def is_numeric(self) -> bool:
        """True for numbers and booleans, scalars or vectors."""
        return self.dtype.startswith(("float", "int", "uint", "bool"))


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetInfo:
    """The declared facts of a dataset; nothing here has been checked against the data."""

    version: str
    """LeRobot's ``v3.0``, ``v2.1``, ``v2.0``, or the name of another format."""
    rate_hz: float
    robot_type: str
    total_episodes: int
    total_frames: int
    chunks_size: int
    data_path: str
    video_path: str
    features: Mapping[str, Feature]
    raw: Mapping[str, Any]
    """The parsed file."""

    @property
    def is_lerobot(self) -> bool:
        """True for a LeRobot folder; only there do LeRobot's files and columns have to be."""
        return self.version in LEROBOT_VERSIONS


@dataclass(frozen=True, kw_only=True, slots=True)
class VideoSpan:
    """Where the frames of one camera of one episode lie."""

    path: Path
    start_s: float
    is_standard: bool
    """False when the file is not at the place ``info.json`` declares."""

    @property
    def exists(self) -> bool:
        """True when the file is there."""
        return self.path.is_file()


@dataclass(frozen=True, kw_only=True, slots=True)
class EpisodeEntry:
    """One row of the episode index."""

    index: int
    length: int
    tasks: tuple[str, ...]
    data: Path
    videos: Mapping[str, VideoSpan]
    """Camera feature key -> span; empty for images inside the parquet."""
    extra: Mapping[str, Any]
    """All further columns but statistics."""


def read_info(root: Path) -> DatasetInfo:
    """Read and check ``meta/info.json``.

    Raises:
        DataError: no folder, no dataset, unfinished, unknown version, or fields missing.
    """
    if not root.is_dir():
        raise DataError(
            f"{root} {'is no folder' if root.exists() else 'does not exist'}; give the folder that holds"
            " meta/ and data/"
        )
    path = root / "meta" / "info.json"
    if not path.is_file():
        if (root / "meta" / "simgap.json").is_file():
            raise DataError(
                f"{root} is an unfinished dataset (meta/info.json is missing); run again what was writing it,"
                " it goes on where it stopped"
            )
        raise DataError(f"{path} is missing; {root} is no LeRobot dataset folder")
    require_content(path)
    raw = hashable(read_object(path, finite=False))
    version = raw.get("codebase_version")
    if version not in LEROBOT_VERSIONS:
        raise DataError(
            f"{path} declares codebase_version {version!r}; this reader knows {', '.join(LEROBOT_VERSIONS)};"
            " convert the dataset with lerobot's scripts"
        )
    is_30 = version == VERSION_30
    with parsing(
        path, "expected fps, total_episodes, total_frames and features of a LeRobot dataset; restore the file"
    ):
        return DatasetInfo(
            version=str(version),
            rate_hz=_rate(raw["fps"], path),
            robot_type=str(raw.get("robot_type") or "unknown"),
            total_episodes=int(raw["total_episodes"]),
            total_frames=int(raw["total_frames"]),
            chunks_size=max(1, int(raw.get("chunks_size") or 1000)),
            data_path=str(raw.get("data_path") or (DATA_PATH_30 if is_30 else DATA_PATH_21)),
            video_path=str(raw.get("video_path") or (VIDEO_PATH_30 if is_30 else VIDEO_PATH_21)),
            features={str(k): _feature(str(k), v, path) for k, v in raw["features"].items()},
            raw=raw,
        )


def read_entries(root: Path, info: DatasetInfo) -> tuple[EpisodeEntry, ...]:
    """Return the episodes a dataset lists, by index.

    Raises:
        DataError: unreadable meta files, an episode listed twice, or paths that leave the folder.
    """
    below = Below(root)
    entries = _entries_30(root, info, below) if info.version == VERSION_30 else _entries_21(root, info, below)
    found: dict[int, EpisodeEntry] = {}
    for entry in entries:
        if entry.index in found:
            raise DataError(f"{root}/meta lists episode {entry.index} twice; remove one of the two rows")
        if len(found) >= EPISODES:
            raise DataError(f"{root}/meta lists more than {EPISODES} episodes; split the dataset")
        found[entry.index] = entry
    return tuple(found[i] for i in sorted(found))


def read_table(
    path: Path, *, without: str = "\0", columns_without: Collection[str] = (), most_rows: int = ROWS
) -> pa.Table:
    """Read a whole Parquet file after looking at its size, empty, truncated and pointer files refused.

    Args:
        path: the file.
        without: columns whose names start like this stay unread.
        columns_without: columns that stay unread, such as images.
        most_rows: what the file may declare.

    Raises:
        DataError: names the file and the fault.
    """
    names = [
        n
        for n in open_parquet(path).schema_arrow.names
        if not n.startswith(without) and n not in columns_without
    ]
    return read_parquet(path, names, most_rows=most_rows)


def _entries_30(root: Path, info: DatasetInfo, below: Below) -> Iterator[EpisodeEntry]:
    files = sorted((root / "meta" / "episodes").glob("chunk-*/file-*.parquet"))
    if not files:
        raise DataError(
            f"{root}/meta/episodes holds no Parquet file; a v3.0 dataset needs one; download it again"
        )
    cameras = [f.key for f in info.features.values() if f.dtype == "video"]
    for file in files:
        for row in read_table(file, without="stats/", most_rows=EPISODES).to_pylist():
            with parsing(file, "expected the episode index of a v3.0 dataset; download it again"):
                values: dict[str, int | str] = {
                    "chunk_index": int(row["data/chunk_index"]),
                    "file_index": int(row["data/file_index"]),
                }
                index, length = _place_and_length(row, file)
                videos = {
                    key: _span_30(below, info, key, row)
                    for key in cameras
                    if row.get(f"videos/{key}/chunk_index") is not None
                }
                tasks = _tasks(row)
            yield EpisodeEntry(
                index=index,
                length=length,
                tasks=tasks,
                data=below.path(
                    expand(
                        info.data_path,
                        values | {"episode_index": index, "episode_chunk": index // info.chunks_size},
                    )
                ),
                videos=videos,
                extra={
                    k: v
                    for k, v in row.items()
                    if "/" not in k and k not in ("episode_index", "length", "tasks")
                },
            )


def _span_30(below: Below, info: DatasetInfo, key: str, row: Mapping[str, Any]) -> VideoSpan:
    values: dict[str, int | str] = {
        "video_key": key,
        "chunk_index": int(row[f"videos/{key}/chunk_index"]),
        "file_index": int(row[f"videos/{key}/file_index"]),
    }
    start_s = float(row.get(f"videos/{key}/from_timestamp") or 0.0)
    if not 0.0 <= start_s < _LONGEST_S:
        raise ValueError(f"from_timestamp of {key} is {start_s:g} s")
    return _located(below, expand(info.video_path, values), start_s)


def _place_and_length(row: Mapping[str, Any], file: Path) -> tuple[int, int]:
    """Return number and length of an episode; lengths of nothing stay, for they are counted and told."""
    index, length = (_whole(row[name]) for name in ("episode_index", "length"))
    if index < 0 or length > ROWS:
        raise DataError(
            f"{file} lists episode {index} with {length} frames; expected a number from 0 and at most {ROWS}"
            " frames; repair the row"
        )
    return index, length


def _whole(value: Any) -> int:
    if isinstance(value, bool) or int(value) != value:
        raise ValueError(f"{value!r:.40} is no whole number")
    return int(value)


def _tasks(row: Mapping[str, Any]) -> tuple[str, ...]:
    tasks = row.get("tasks") or ()
    return (tasks,) if isinstance(tasks, str) else tuple(str(t) for t in tasks)


def _entries_21(root: Path, info: DatasetInfo, below: Below) -> Iterator[EpisodeEntry]:
    cameras = [f.key for f in info.features.values() if f.dtype == "video"]
    for row in list(_jsonl(root / "meta" / "episodes.jsonl")):  # all of them before a path is looked at
        with parsing(
            f"{root}/meta/episodes.jsonl",
            "expected episode_index, length and a list of tasks in each line; repair it",
        ):
            index, length = _place_and_length(row, root / "meta" / "episodes.jsonl")
            tasks = _tasks(row)
        chunk = index // info.chunks_size
        values: dict[str, int | str] = {
            "episode_chunk": chunk,
            "episode_index": index,
            "chunk_index": chunk,
            "file_index": index,
        }
        yield EpisodeEntry(
            index=index,
            length=length,
            tasks=tasks,
            data=below.path(expand(info.data_path, values)),
            videos={
                key: _located(below, expand(info.video_path, values | {"video_key": key}), 0.0)
                for key in cameras
            },
            extra={k: v for k, v in row.items() if k not in ("episode_index", "length", "tasks")},
        )


def _located(below: Below, relative: str, start_s: float) -> VideoSpan:
    """Return the declared place, or the one other place people use (``video/`` for ``videos/``) where the file really is."""
    declared = below.path(relative)
    if not declared.is_file() and relative.startswith("videos/"):
        other = below.path("video/" + relative.removeprefix("videos/"))
        if other.is_file():
            return VideoSpan(path=other, start_s=start_s, is_standard=False)
    return VideoSpan(path=declared, start_s=start_s, is_standard=True)


def _jsonl(path: Path) -> Iterator[dict[str, Any]]:
    for number, row in read_json_lines(path):
        if not isinstance(row, dict):
            raise DataError(f"{path} line {number} is no JSON object; repair it")
        yield row


def read_json_lines(path: Path, most_lines: int = EPISODES) -> Iterator[tuple[int, Any]]:
    """Return ``(line number, value)`` of a bounded file of JSON lines; empty lines are passed over.

    Raises:
        DataError: the file is missing, empty, a pointer or no JSON lines; names the line.
    """
    require_content(path, limit_bytes=LINES_BYTES)
    return json_lines(path, most_lines)


def _feature(key: str, value: Mapping[str, Any], path: Path) -> Feature:
    feature = Feature(
        key=key,
        dtype=str(value["dtype"]),
        shape=tuple(_whole(s) for s in value.get("shape") or ()),
        names=_names(value.get("names")),
    )
    side = SIDE if feature.is_image else LONGEST
    if any(not 0 < s <= side for s in feature.shape) or math.prod(feature.shape) > LONGEST:
        raise DataError(
            f"{path} declares {key!r} with shape {list(feature.shape)}; expected sides from 1 to {side} of"
            f" {LONGEST} numbers at most; correct it"
        )
    return feature


def _names(value: Any) -> tuple[str, ...]:
    """Flatten the forms in use: a list, nested lists, or ``{"motors": [...]}``."""
    if isinstance(value, dict):
        return (
            tuple(n for v in value.values() for n in _names(v))
            if all(isinstance(v, (list, dict)) for v in value.values())
            else tuple(value)
        )
    if isinstance(value, (list, tuple)):
        return tuple(n for v in value for n in (_names(v) if isinstance(v, (list, dict)) else (str(v),)))
    return ()


def _rate(value: Any, path: Path) -> float:
    rate = float(value)
    if not 1e-3 <= rate < 1e5:
        raise DataError(f"{path} declares fps {value!r}; expected a positive rate in Hz")
    return rate


def first_line(error: BaseException) -> str:
    """Return what an exception of a library says, cut to one line."""
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
