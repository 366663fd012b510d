"""The end of a dataset: global row numbers, tasks, pooled statistics, fingerprint; each file atomic, the whole repeatable."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from simgap.bounds import MALFORMED, said
from simgap.episodes.fingerprint import content_fingerprint
from simgap.episodes.formats.layout import (
    CHUNK_SIZE,
    DATA_PATH_30,
    IMAGE_PREFIX,
    VERSION_30,
    VIDEO_PATH_30,
    data_path,
    episodes_path,
    video_path,
)
from simgap.episodes.formats.parquet import open_parquet, read_parquet
from simgap.episodes.spec import SCHEMA, DatasetSpec
from simgap.episodes.statistics.exact import StreamingStatistics, image_statistics
from simgap.episodes.write.features import features, plain_rate, task_table
from simgap.episodes.write.files import commit, sync_filesystem
from simgap.episodes.write.tables import (
    CONTENT,
    SUMMARY,
    TRIALS,
    Summary,
    content_of,
    number_frames,
    number_row,
    to_bytes,
)
from simgap.errors import DataError
from simgap.provenance import file_hash, read_json

SIMGAP_JSON = "meta/simgap.json"
_BATCH = 256
"""Episodes whose numbers are in memory at the same time."""


def finish_dataset(root: Path, spec: DatasetSpec, done: set[int]) -> str:
    """Write everything that needs all episodes, ``info.json`` last, and return the fingerprint.

    Memory does not grow with the number of frames. Doing it again writes the same bytes.

    Args:
        root: dataset folder.
        spec: its spec.
        done: indices of complete episodes; must be 0 .. n - 1.

    Raises:
        DataError: no episode, a gap in the indices, or episodes whose columns differ.
    """
    _require_whole(root, done)
    (root / "meta" / "info.json").unlink(missing_ok=True)
    pool = _Pool(root, spec)
    tasks: dict[str, int] = {}
    for index in range(len(done)):
        summary, frames = read_frames(root / data_path(index))
        if spec.stamp.kind == TRIALS:
            _require_as_recorded(root, spec, index, summary, frames)
        task = tasks.setdefault(summary.task, len(tasks))
        number_frames(root / data_path(index), summary.length, pool.frames, task)
        number_row(root / episodes_path(index), summary.length, pool.frames)
        pool.add(index, summary, task, frames)
    _commit_json(root / "meta" / "stats.json", pool.statistics())
    commit(root / "meta" / "tasks.parquet", to_bytes(task_table(list(tasks))))
    sync_filesystem(root / "meta")  # the numbers were written in place
    fingerprint = content_fingerprint(root, spec.to_json())
    ours = {
        "schema": SCHEMA,
        "spec": spec.to_json(),
        "fingerprint": fingerprint,
        "episodes": len(done),
        "frames": pool.frames,
    }
    _commit_json(root / SIMGAP_JSON, ours)
    _commit_json(root / "meta" / "info.json", _info(spec, pool.schema, len(done), pool.frames, len(tasks)))
    return fingerprint


def require_unchanged(root: Path, spec: DatasetSpec) -> str:
    """Return the fingerprint of a finished dataset whose content is still what was finished.

    Raises:
        DataError: it is not: a result that is read back is believed only as it was written.
    """
    recorded, actual = (
        str(read_json(root / SIMGAP_JSON)["fingerprint"]),
        content_fingerprint(root, spec.to_json()),
    )
    if actual != recorded:
        raise DataError(
            f"{root} changed since it was finished (fingerprint {actual[:12]}, recorded {recorded[:12]});"
            " restore it, or make it again elsewhere"
        )
    return actual


def _require_as_recorded(
    root: Path, spec: DatasetSpec, index: int, summary: Summary, frames: pa.Table
) -> None:
    """Raise unless an episode of a trial log says what it said when it was recorded: a set of trials goes on after a kill, not after an edit."""
    path = root / data_path(index)
    columns = {name: column_values(frames[name]) for name in frames.column_names}
    told = (open_parquet(path).metadata.metadata or {}).get(CONTENT, b"").decode()
    is_filmed = is_sound(root, spec, index)
    if not is_filmed or told != content_of(columns, read_parquet(root / episodes_path(index)), summary):
        raise DataError(
            f"episode {index} of {root} is not the one that was recorded: {path} or its row or video was"
            " changed; delete it and run it again"
        )


def _require_whole(root: Path, done: set[int]) -> None:
    if not done:
        raise DataError(f"{root} holds no complete episode; write at least one before finishing")
    missing = sorted(set(range(max(done) + 1)) - done)
    if missing:
        raise DataError(
            f"{root} lacks episodes {missing[:8]}{' ...' if len(missing) > 8 else ''} of 0..{max(done)};"
            " write them, then finish"
        )


def read_frames(path: Path) -> tuple[Summary, pa.Table]:
    """Read the numbers of an episode of ours, and what its footer says of it; PNG frames stay unread.

    Raises:
        DataError: it is damaged.
    """
    try:
        file = open_parquet(path)
        summary = Summary.from_text((file.metadata.metadata or {})[SUMMARY])
        table = read_parquet(
            path, [name for name in file.schema_arrow.names if not name.startswith(IMAGE_PREFIX)]
        )
    except (DataError, *MALFORMED) as error:
        raise DataError(
            f"{path} cannot be read ({said(error)}); delete it and write the episode again"
        ) from error
    if table.num_rows != summary.length:
        raise DataError(
            f"{path} has {table.num_rows} frames, its footer says {summary.length}; delete it and write the"
            " episode again"
        )
    return summary, table


def is_sound(root: Path, spec: DatasetSpec, index: int) -> bool:
    """Return whether an episode is on disk as it was written: its tables can be read whole and its videos have their hashes."""
    try:
        summary, _ = read_frames(root / data_path(index))
        whole = [read_parquet(root / place(index)) for place in (data_path, episodes_path)]
        hashes = {
            camera: file_hash(root / video_path(index, IMAGE_PREFIX + camera))
            for camera in (spec.cameras if spec.has_videos else ())
        }
    except (DataError, OSError):
        return False
    return whole[1]["length"].to_pylist() == [summary.length] and hashes == summary.videos


class _Pool:
    """Statistics of all frames, a batch of episodes at a time."""

    def __init__(self, root: Path, spec: DatasetSpec) -> None:
        self._root, self._spec = root, spec
        self._columns: dict[str, StreamingStatistics] = {}
        self._histograms = {camera: np.zeros((3, 256), dtype=np.int64) for camera in spec.cameras}
        self._waiting: list[pa.Table] = []
        self.frames = 0
        self.schema = pa.schema([])

    def add(self, index: int, summary: Summary, task: int, frames: pa.Table) -> None:
        if index == 0:
            self.schema = frames.schema
            self._columns = {
                name: StreamingStatistics(folder=self._root / "meta") for name in frames.column_names
            }
        elif not frames.schema.equals(self.schema):
            odd = sorted({f.name for f in set(self.schema) ^ set(frames.schema)}) or ["order"]
            raise DataError(
                f"{self._root}: columns {odd} of episode {index} differ from those of episode 0; every"
                " episode needs the same extras"
            )
        numbers = {
            "index": np.arange(self.frames, self.frames + summary.length),
            "task_index": np.full(summary.length, task),
        }
        for name, values in numbers.items():
            frames = frames.set_column(frames.column_names.index(name), name, pa.array(values))
        self._waiting.append(frames)
        for camera, total in self._histograms.items():
            total += summary.histograms[camera]
        self.frames += summary.length
        if len(self._waiting) >= _BATCH:
            self._drain()

    def statistics(self) -> dict[str, Any]:
        self._drain()
        result: dict[str, Any] = {}
        for name, column in self._columns.items():
            result[name] = column.result()
            column.close()
        return result | {
            IMAGE_PREFIX + camera: image_statistics(total, self.frames)
            for camera, total in self._histograms.items()
        }

    def _drain(self) -> None:
        if self._waiting:
            whole = pa.concat_tables(self._waiting)
            for name, column in self._columns.items():
                column.update(column_values(whole[name]))
            self._waiting.clear()


def column_values(column: pa.ChunkedArray) -> NDArray[Any]:
    """Return an Arrow column of scalars or equal lists as ``(N,)`` or ``(N, k)``.

    Raises:
        DataError: the lists have different lengths.
    """
    kind = column.type
    if column.null_count:
        raise DataError(
            f"{column.null_count} rows hold nothing (null), expected a number in each; drop these frames or"
            " fill them in"
        )
    if pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        parts = []
        for chunk in column.chunks:
            if len(chunk) == 0:
                continue
            values = chunk.flatten()
            if values.null_count:
                raise DataError(
                    f"{values.null_count} numbers are missing (null) inside its rows; drop these frames or"
                    " fill them in"
                )
            flat = values.to_numpy(zero_copy_only=False)
            if len(flat) % len(chunk) or (
                not pa.types.is_fixed_size_list(kind) and len(set(chunk.value_lengths().to_pylist())) != 1
            ):
                raise DataError("a list column holds rows of different length")
            parts.append(flat.reshape(len(chunk), -1))
        return np.concatenate(parts) if parts else np.zeros((0, 0))
    return np.asarray(column.to_numpy())


def _info(spec: DatasetSpec, schema: pa.Schema, episodes: int, frames: int, tasks: int) -> dict[str, Any]:
    return {
        "codebase_version": VERSION_30,
        "robot_type": spec.robot_type,
        "total_episodes": episodes,
        "total_frames": frames,
        "total_tasks": tasks,
        "chunks_size": CHUNK_SIZE,
        "data_files_size_in_mb": 100,
        "video_files_size_in_mb": 200,
        "fps": plain_rate(spec.rate_hz),
        "splits": {"train": f"0:{episodes}"},
        "data_path": DATA_PATH_30,
        "video_path": VIDEO_PATH_30 if spec.has_videos else None,
        "features": features(spec, schema),
    }


def _commit_json(path: Path, value: Any) -> None:
    commit(path, (json.dumps(value, indent=4, ensure_ascii=False) + "\n").encode())
