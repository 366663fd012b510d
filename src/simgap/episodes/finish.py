"""The end of a dataset: global row numbers, tasks, pooled statistics, fingerprint; each file atomic, the whole repeatable."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from simgap.episodes.files import commit
from simgap.episodes.fingerprint import content_fingerprint
from simgap.episodes.layout import (
    CHUNK_SIZE,
    DATA_PATH_30,
    IMAGE_PREFIX,
    VERSION_30,
    VIDEO_PATH_30,
    data_path,
    episodes_path,
)
from simgap.episodes.spec import SCHEMA, DatasetSpec
from simgap.episodes.stats import exact_statistics, image_statistics
from simgap.episodes.tables import HISTOGRAMS, features, moved_row, plain_rate, renumbered, task_table, to_bytes
from simgap.errors import DataError

SIMGAP_JSON = "meta/simgap.json"


def finish_dataset(root: Path, spec: DatasetSpec, done: set[int]) -> str:
    """Write everything that needs all episodes, ``info.json`` last, and return the fingerprint.

    Args:
        root: dataset folder.
        spec: its spec.
        done: indices of complete episodes; must be 0 .. n - 1.

    Raises:
        DataError: no episode, a gap in the indices, or episodes whose columns differ.
    """
    _require_whole(root, done)
    rows = [_read(root / episodes_path(i)) for i in range(len(done))]
    tasks = list(dict.fromkeys(str(row["tasks"][0].as_py()[0]) for row in rows))
    frames: list[pa.Table] = []
    first = 0
    for index, row in enumerate(rows):
        task = tasks.index(str(row["tasks"][0].as_py()[0]))
        frames.append(_number(root, index, row, first, task))
        first += int(row["length"][0].as_py())
    numeric = _pooled(root, frames)
    _commit_json(root / "meta" / "stats.json", _statistics(spec, numeric, rows))
    commit(root / "meta" / "tasks.parquet", to_bytes(task_table(tasks)))
    fingerprint = content_fingerprint(root, spec.to_json())
    summary = {"schema": SCHEMA, "spec": spec.to_json(), "fingerprint": fingerprint, "episodes": len(rows), "frames": first}
    _commit_json(root / SIMGAP_JSON, summary)
    _commit_json(root / "meta" / "info.json", _info(spec, frames[0].schema, len(rows), first, len(tasks)))
    return fingerprint


def _require_whole(root: Path, done: set[int]) -> None:
    if not done:
        raise DataError(f"{root} holds no complete episode; write at least one before finishing")
    missing = sorted(set(range(max(done) + 1)) - done)
    if missing:
        raise DataError(f"{root} lacks episodes {missing[:8]}{' ...' if len(missing) > 8 else ''} of 0..{max(done)}; write them, then finish")


def _number(root: Path, index: int, row: pa.Table, first: int, task: int) -> pa.Table:
    """Give one episode its global rows; files that already have them are left alone."""
    path = root / data_path(index)
    table = _read(path)
    if table.num_rows != int(row["length"][0].as_py()):
        raise DataError(f"{path} has {table.num_rows} frames, its episode row says {row['length'][0].as_py()}; delete both and write the episode again")
    numbered = renumbered(table, first, task)
    if not numbered.equals(table):
        commit(path, to_bytes(numbered))
    moved = moved_row(row, first)
    if not moved.equals(row):
        commit(root / episodes_path(index), to_bytes(moved))
    keep = [name for name in numbered.column_names if not name.startswith(IMAGE_PREFIX)]
    return numbered.select(keep)


def _pooled(root: Path, frames: Sequence[pa.Table]) -> dict[str, NDArray[Any]]:
    for index, table in enumerate(frames):
        if not table.schema.equals(frames[0].schema):
            ours, theirs = set(frames[0].schema), set(table.schema)
            odd = sorted({f.name for f in ours ^ theirs}) or ["order"]
            raise DataError(f"{root}: columns {odd} of episode {index} differ from those of episode 0; every episode needs the same extras")
    whole = pa.concat_tables(frames)
    return {name: column_values(whole[name]) for name in whole.column_names}


def column_values(column: pa.ChunkedArray) -> NDArray[Any]:
    """Return an Arrow column of scalars or equal lists as ``(N,)`` or ``(N, k)``.

    Raises:
        DataError: the lists have different lengths.
    """
    kind = column.type
    if pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        parts = []
        for chunk in column.chunks:
            flat = chunk.flatten().to_numpy(zero_copy_only=False)
            if len(chunk) == 0:
                continue
            if len(flat) % len(chunk) or (not pa.types.is_fixed_size_list(kind) and len(set(chunk.value_lengths().to_pylist())) != 1):
                raise DataError("a list column holds rows of different length")
            parts.append(flat.reshape(len(chunk), -1))
        return np.concatenate(parts) if parts else np.zeros((0, 0))
    return np.asarray(column.to_numpy())


def _statistics(spec: DatasetSpec, numeric: dict[str, NDArray[Any]], rows: Sequence[pa.Table]) -> dict[str, Any]:
    result: dict[str, Any] = {name: exact_statistics(values) for name, values in numeric.items()}
    frames = sum(int(row["length"][0].as_py()) for row in rows)
    for camera in spec.cameras:
        total = np.zeros((3, 256), dtype=np.int64)
        for row in rows:
            total += np.array(json.loads(row.schema.metadata[HISTOGRAMS])[camera], dtype=np.int64)
        result[IMAGE_PREFIX + camera] = image_statistics(total, frames)
    return result


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
        "video_path": VIDEO_PATH_30 if spec.codec == "h264" and spec.cameras else None,
        "features": features(spec, schema),
    }


def _read(path: Path) -> pa.Table:
    try:
        return pq.ParquetFile(path).read(use_threads=False)
    except (OSError, pa.ArrowInvalid) as error:
        raise DataError(f"{path} cannot be read ({error}); delete it and write the episode again") from error


def _commit_json(path: Path, value: Any) -> None:
    commit(path, (json.dumps(value, indent=4, ensure_ascii=False) + "\n").encode())
