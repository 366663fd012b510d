"""What the meta files of a LeRobot dataset say: ``info.json``, its features, and where each episode lies (v3.0, v2.1, v2.0)."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from simgap.episodes.layout import (
    DATA_PATH_21,
    DATA_PATH_30,
    LEROBOT_VERSIONS,
    VERSION_30,
    VIDEO_PATH_21,
    VIDEO_PATH_30,
    expand,
    inside,
    require_content,
)
from simgap.errors import DataError
from simgap.provenance import read_json

_MOST_EPISODES = 10_000_000
_MOST_ROWS = 200_000_000
_MOST_BYTES = 16 << 30


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
        raise DataError(f"{root} {'is no folder' if root.exists() else 'does not exist'}; give the folder that holds meta/ and data/")
    path = root / "meta" / "info.json"
    if not path.is_file():
        if (root / "meta" / "simgap.json").is_file():
            raise DataError(f"{root} is an unfinished dataset (meta/info.json is missing); run again what was writing it, it goes on where it stopped")
        raise DataError(f"{path} is missing; {root} is no LeRobot dataset folder")
    require_content(path, limit_bytes=64 << 20)
    raw = read_json(path)
    version = raw.get("codebase_version") if isinstance(raw, dict) else None
    if version not in LEROBOT_VERSIONS:
        raise DataError(
            f"{path} declares codebase_version {version!r}; this reader knows {', '.join(LEROBOT_VERSIONS)}; convert the dataset with lerobot's scripts"
        )
    is_30 = version == VERSION_30
    try:
        return DatasetInfo(
            version=str(version),
            rate_hz=_rate(raw["fps"], path),
            robot_type=str(raw.get("robot_type") or "unknown"),
            total_episodes=int(raw["total_episodes"]),
            total_frames=int(raw["total_frames"]),
            chunks_size=max(1, int(raw.get("chunks_size") or 1000)),
            data_path=str(raw.get("data_path") or (DATA_PATH_30 if is_30 else DATA_PATH_21)),
            video_path=str(raw.get("video_path") or (VIDEO_PATH_30 if is_30 else VIDEO_PATH_21)),
            features={str(k): _feature(str(k), v) for k, v in raw["features"].items()},
            raw=raw,
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise DataError(f"{path} cannot be read ({error!r}); expected fps, total_episodes, total_frames and features of a LeRobot dataset") from error


def read_entries(root: Path, info: DatasetInfo) -> tuple[EpisodeEntry, ...]:
    """Return the episodes a dataset lists, by index.

    Raises:
        DataError: unreadable meta files, an episode listed twice, or paths that leave the folder.
    """
    entries = _entries_30(root, info) if info.version == VERSION_30 else _entries_21(root, info)
    found: dict[int, EpisodeEntry] = {}
    for entry in entries:
        if entry.index in found:
            raise DataError(f"{root}/meta lists episode {entry.index} twice; remove one of the two rows")
        if len(found) >= _MOST_EPISODES:
            raise DataError(f"{root}/meta lists more than {_MOST_EPISODES} episodes; split the dataset")
        found[entry.index] = entry
    return tuple(found[i] for i in sorted(found))


def read_table(path: Path, *, without: str = "\0", columns_without: Collection[str] = ()) -> pa.Table:
    """Read a whole Parquet file after looking at its size, empty, truncated and pointer files refused.

    Args:
        path: the file.
        without: columns whose names start like this stay unread.
        columns_without: columns that stay unread, such as images.

    Raises:
        DataError: names the file and the fault.
    """
    require_content(path)
    try:
        file = pq.ParquetFile(path)
        meta = file.metadata
        size = sum(meta.row_group(k).total_byte_size for k in range(meta.num_row_groups))
        if meta.num_rows > _MOST_ROWS or size > _MOST_BYTES:
            raise DataError(f"{path} declares {meta.num_rows} rows and {size} bytes, more than this reader accepts; split the dataset")
        names = [n for n in file.schema_arrow.names if not n.startswith(without) and n not in columns_without]
        return file.read(columns=names, use_threads=False)
    except PermissionError as error:
        raise DataError(f"{path} may not be read (permission denied); change its permissions") from error
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path} is no readable Parquet file ({first_line(error)}); it is truncated or damaged, copy it again") from error


def _entries_30(root: Path, info: DatasetInfo) -> Iterator[EpisodeEntry]:
    files = sorted((root / "meta" / "episodes").glob("chunk-*/file-*.parquet"))
    if not files:
        raise DataError(f"{root}/meta/episodes holds no Parquet file; a v3.0 dataset needs one; download it again")
    cameras = [f.key for f in info.features.values() if f.dtype == "video"]
    for file in files:
        for row in read_table(file, without="stats/").to_pylist():
            try:
                values: dict[str, int | str] = {"chunk_index": int(row["data/chunk_index"]), "file_index": int(row["data/file_index"])}
                index, length = int(row["episode_index"]), int(row["length"])
                videos = {key: _span_30(root, info, key, row) for key in cameras if row.get(f"videos/{key}/chunk_index") is not None}
                tasks = tuple(str(t) for t in row.get("tasks") or ())
            except (KeyError, TypeError, ValueError, OverflowError) as error:
                raise DataError(f"{file} lacks or garbles a column ({error!r}); expected the episode index of a v3.0 dataset") from error
            yield EpisodeEntry(
                index=index,
                length=length,
                tasks=tasks,
                data=inside(root, expand(info.data_path, values | {"episode_index": index, "episode_chunk": index // info.chunks_size})),
                videos=videos,
                extra={k: v for k, v in row.items() if "/" not in k and k not in ("episode_index", "length", "tasks")},
            )


def _span_30(root: Path, info: DatasetInfo, key: str, row: Mapping[str, Any]) -> VideoSpan:
    values: dict[str, int | str] = {"video_key": key, "chunk_index": int(row[f"videos/{key}/chunk_index"]), "file_index": int(row[f"videos/{key}/file_index"])}
    return _located(root, expand(info.video_path, values), float(row.get(f"videos/{key}/from_timestamp") or 0.0))


def _entries_21(root: Path, info: DatasetInfo) -> Iterator[EpisodeEntry]:
    cameras = [f.key for f in info.features.values() if f.dtype == "video"]
    for row in _jsonl(root / "meta" / "episodes.jsonl"):
        try:
            index, length = int(row["episode_index"]), int(row["length"])
            tasks = tuple(str(t) for t in row.get("tasks") or ())
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise DataError(f"{root}/meta/episodes.jsonl garbles a row ({error!r}); expected episode_index, length and a list of tasks") from error
        chunk = index // info.chunks_size
        values: dict[str, int | str] = {"episode_chunk": chunk, "episode_index": index, "chunk_index": chunk, "file_index": index}
        yield EpisodeEntry(
            index=index,
            length=length,
            tasks=tasks,
            data=inside(root, expand(info.data_path, values)),
            videos={key: _located(root, expand(info.video_path, values | {"video_key": key}), 0.0) for key in cameras},
            extra={k: v for k, v in row.items() if k not in ("episode_index", "length", "tasks")},
        )


def _located(root: Path, relative: str, start_s: float) -> VideoSpan:
    """Return the declared place, or the one other place people use (``video/`` for ``videos/``) where the file really is."""
    declared = inside(root, relative)
    if not declared.is_file() and relative.startswith("videos/"):
        other = inside(root, "video/" + relative.removeprefix("videos/"))
        if other.is_file():
            return VideoSpan(path=other, start_s=start_s, is_standard=False)
    return VideoSpan(path=declared, start_s=start_s, is_standard=True)


def _jsonl(path: Path) -> Iterator[dict[str, Any]]:
    for number, row in read_json_lines(path):
        if not isinstance(row, dict):
            raise DataError(f"{path} line {number} is no JSON object; repair it")
        yield row


def read_json_lines(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield ``(line number, value)`` of a bounded file of JSON lines; empty lines are passed over.

    Raises:
        DataError: the file is missing, empty, a pointer or no JSON lines; names the line.
    """
    require_content(path, limit_bytes=1 << 30)
    number = 0
    try:
        with path.open(encoding="utf-8") as handle:
            for number, line in enumerate(handle, start=1):
                if line.strip():
                    yield number, json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} line {number} is not JSON lines ({error}); repair it") from error


def _feature(key: str, value: Mapping[str, Any]) -> Feature:
    shape = value.get("shape") or ()
    return Feature(key=key, dtype=str(value["dtype"]), shape=tuple(int(s) for s in shape), names=_names(value.get("names")))


def _names(value: Any) -> tuple[str, ...]:
    """Flatten the forms in use: a list, nested lists, or ``{"motors": [...]}``."""
    if isinstance(value, dict):
        return tuple(n for v in value.values() for n in _names(v)) if all(isinstance(v, (list, dict)) for v in value.values()) else tuple(value)
    if isinstance(value, (list, tuple)):
        return tuple(n for v in value for n in (_names(v) if isinstance(v, (list, dict)) else (str(v),)))
    return ()


def _rate(value: Any, path: Path) -> float:
    rate = float(value)
    if not 0.0 < rate < 1e5:
        raise DataError(f"{path} declares fps {value!r}; expected a positive rate in Hz")
    return rate


def first_line(error: BaseException) -> str:
    """Return what an exception of a library says, cut to one line."""
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
