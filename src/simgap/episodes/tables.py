"""Episodes as Arrow tables: the frames of one episode, its row in ``meta/episodes``, and the feature list of ``info.json``."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from simgap.episodes.layout import ACTION, IMAGE_PREFIX, INDEX_FEATURES, STATE, TIME, place
from simgap.episodes.spec import DatasetSpec
from simgap.episodes.stats import exact_statistics, image_histogram, image_statistics
from simgap.episodes.video import encode_png, rate_fraction
from simgap.errors import DataError
from simgap.provenance import canonical_json
from simgap.types import Episode

HISTOGRAMS = b"simgap.image_histograms"
"""Schema metadata of an episode row: camera -> ``(3, 256)`` counts, so that pooled image statistics stay exact."""
_DTYPES = {"float32": pa.float32(), "float64": pa.float64(), "int64": pa.int64(), "bool": pa.bool_()}


def to_bytes(table: pa.Table) -> bytes:
    """Return a table as Parquet bytes: Snappy, one row group, equal bytes for equal tables."""
    buffer = io.BytesIO()
    is_small = table.num_rows <= 1
    pq.write_table(table, buffer, compression="snappy", row_group_size=max(1, table.num_rows), use_dictionary=not is_small, write_statistics=not is_small)
    return buffer.getvalue()


def column(values: NDArray[Any], *, what: str) -> pa.Array:
    """Return an Arrow column of ``(T,)`` scalars or ``(T, k)`` fixed-size lists."""
    _require_storable(values, what=what)
    name = values.dtype.name
    flat = pa.array(np.ascontiguousarray(values).reshape(-1), type=_DTYPES[name])
    return flat if values.ndim == 1 else pa.FixedSizeListArray.from_arrays(flat, type=pa.list_(_element(_DTYPES[name]), values.shape[1]))


def _require_storable(values: NDArray[Any], *, what: str) -> None:
    if values.dtype.name not in _DTYPES or values.ndim not in (1, 2):
        known = ", ".join(_DTYPES)
        raise DataError(f"{what} has dtype {values.dtype.name} and shape {values.shape}; per-frame columns are (T,) or (T, k) of {known}; convert it")


def _element(kind: pa.DataType) -> pa.Field:
    """Name list items as Parquet does: a table read back and written again then has the same bytes."""
    return pa.field("element", kind)


def _nested(value: list[Any]) -> pa.Array:
    kind, inner = pa.int64() if isinstance(value[0], int) else pa.float64(), value[0]
    while isinstance(inner, list):
        kind, inner = pa.list_(_element(kind)), inner[0]
    return pa.array([value], type=pa.list_(_element(kind)))


def numeric_columns(episode: Episode, spec: DatasetSpec, index: int, first_row: int = 0) -> dict[str, NDArray[Any]]:
    """Return the numeric per-frame columns of an episode by feature name; ``index`` counts from ``first_row``, ``task_index`` is 0."""
    length = len(episode)
    frames = np.arange(length, dtype=np.int64)
    columns: dict[str, NDArray[Any]] = {
        ACTION: episode.action.astype(np.float32),
        **({STATE: episode.state.astype(np.float32)} if len(spec.state_spec) else {}),  # a car without odometry measures nothing, and has no such column
        TIME: episode.time_s.astype(np.float64),
    }
    for name, values in sorted(episode.extras.items()):
        if name in columns or name in INDEX_FEATURES or name.startswith("observation.images") or "/" in name or "image" in name:
            raise DataError(f"extra column {name!r} is a reserved name, or holds '/' or 'image' which LeRobot cannot read; rename it")
        _require_storable(values, what=f"extra column {name!r}")
        columns[name] = values
    return columns | {
        "timestamp": (frames / spec.rate_hz).astype(np.float32),
        "frame_index": frames,
        "episode_index": np.full(length, index, dtype=np.int64),
        "index": first_row + frames,
        "task_index": np.zeros(length, dtype=np.int64),
    }


def frame_table(columns: Mapping[str, NDArray[Any]], episode: Episode, spec: DatasetSpec) -> pa.Table:
    """Return the frames of an episode; PNG cameras ride inside, video cameras do not."""
    table = {name: column(values, what=f"column {name!r}") for name, values in columns.items()}
    if spec.codec == "png":
        kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
        for camera in spec.cameras:
            rows = [{"bytes": encode_png(image), "path": f"frame-{k:06d}.png"} for k, image in enumerate(episode.images[camera])]
            table[IMAGE_PREFIX + camera] = pa.array(rows, type=kind)
    return pa.table(table)


def renumbered(table: pa.Table, first_row: int, task_index: int) -> pa.Table:
    """Return a frame table whose ``index`` starts at the global row and whose ``task_index`` is the given one."""
    rows = np.arange(first_row, first_row + table.num_rows, dtype=np.int64)
    table = table.set_column(table.column_names.index("index"), "index", pa.array(rows))
    tasks = np.full(table.num_rows, task_index, dtype=np.int64)
    return table.set_column(table.column_names.index("task_index"), "task_index", pa.array(tasks))


def episode_row(columns: Mapping[str, NDArray[Any]], episode: Episode, spec: DatasetSpec, index: int) -> pa.Table:
    """Return the one-row table of ``meta/episodes`` with LeRobot's columns, ours, and the statistics of the episode."""
    chunk, file = place(index)
    length = len(episode)
    row: dict[str, pa.Array] = {
        "episode_index": pa.array([index], pa.int64()),
        "tasks": pa.array([[episode.task or spec.task_default]], pa.list_(_element(pa.string()))),
        "length": pa.array([length], pa.int64()),
        "outcome": pa.array([str(episode.outcome.kind)], pa.string()),
        "outcome_detail": pa.array([episode.outcome.detail], pa.string()),
        "success": pa.array([None if episode.outcome.is_void else episode.outcome.is_success], pa.bool_()),
        "seed": pa.array([episode.seed], pa.int64()),
        "factors": pa.array([canonical_json(dict(episode.factors))], pa.string()),
        "data/chunk_index": pa.array([chunk], pa.int64()),
        "data/file_index": pa.array([file], pa.int64()),
        "dataset_from_index": pa.array([int(columns["index"][0])], pa.int64()),
        "dataset_to_index": pa.array([int(columns["index"][0]) + length], pa.int64()),
    }
    if spec.codec == "h264":
        for camera in spec.cameras:
            prefix = f"videos/{IMAGE_PREFIX}{camera}"
            row[f"{prefix}/chunk_index"] = pa.array([chunk], pa.int64())
            row[f"{prefix}/file_index"] = pa.array([file], pa.int64())
            row[f"{prefix}/from_timestamp"] = pa.array([0.0], pa.float64())
            row[f"{prefix}/to_timestamp"] = pa.array([length / spec.rate_hz], pa.float64())
    histograms = {camera: image_histogram(episode.images[camera]) for camera in spec.cameras}
    statistics = {name: exact_statistics(values) for name, values in columns.items() if name not in INDEX_FEATURES}
    statistics |= {IMAGE_PREFIX + camera: image_statistics(h, length) for camera, h in histograms.items()}
    for name, values in statistics.items():
        for key, value in values.items():
            row[f"stats/{name}/{key}"] = _nested(value)
    row["meta/episodes/chunk_index"] = pa.array([chunk], pa.int64())
    row["meta/episodes/file_index"] = pa.array([file], pa.int64())
    stored = json.dumps({camera: h.tolist() for camera, h in sorted(histograms.items())}, separators=(",", ":"))
    return pa.table(row).replace_schema_metadata({HISTOGRAMS: stored.encode()})


def moved_row(row: pa.Table, first_row: int) -> pa.Table:
    """Return an episode row that starts at a global row."""
    metadata = row.schema.metadata
    bounds = {"dataset_from_index": first_row, "dataset_to_index": first_row + int(row["length"][0].as_py())}
    for name, value in bounds.items():
        row = row.set_column(row.column_names.index(name), name, pa.array([value], pa.int64()))
    return row.replace_schema_metadata(metadata)


def features(spec: DatasetSpec, frames: pa.Schema) -> dict[str, Any]:
    """Return the ``features`` of ``info.json`` for a frame schema."""
    result: dict[str, Any] = {}
    names = {ACTION: list(spec.action_spec.names), STATE: list(spec.state_spec.names)}
    arrow_names = {kind: name for name, kind in _DTYPES.items()}
    for field in frames:
        if field.name.startswith(IMAGE_PREFIX):
            continue
        is_list = pa.types.is_fixed_size_list(field.type)
        dtype = arrow_names[field.type.value_type if is_list else field.type]
        result[field.name] = {"dtype": dtype, "shape": [field.type.list_size if is_list else 1], "names": names.get(field.name)}
    height, width = spec.image_size
    for camera in spec.cameras:
        entry: dict[str, Any] = {
            "dtype": "video" if spec.codec == "h264" else "image",
            "shape": [height, width, 3],
            "names": ["height", "width", "channels"],
        }
        if spec.codec == "h264":
            entry["info"] = {
                "video.height": height,
                "video.width": width,
                "video.codec": "h264",
                "video.pix_fmt": "yuv420p",
                "video.fps": plain_rate(spec.rate_hz),
                "video.channels": 3,
                "has_audio": False,
                "video.g": spec.encoding.keyframe_every,
                "video.crf": spec.encoding.crf,
                "video.preset": spec.encoding.preset,
                "is_depth_map": False,
            }
        result[IMAGE_PREFIX + camera] = entry
    return result


def plain_rate(rate_hz: float) -> int | float:
    """Return a rate as the integer LeRobot expects where it is one."""
    fraction = rate_fraction(rate_hz)
    return fraction.numerator if fraction.denominator == 1 else rate_hz


def task_table(tasks: list[str]) -> pa.Table:
    """Return ``meta/tasks.parquet`` with the pandas metadata that makes ``task`` the index, as LeRobot needs it."""
    table = pa.table({"task_index": pa.array(range(len(tasks)), pa.int64()), "task": pa.array(tasks, pa.string())})
    described = [
        {"name": "task_index", "field_name": "task_index", "pandas_type": "int64", "numpy_type": "int64", "metadata": None},
        {"name": "task", "field_name": "task", "pandas_type": "unicode", "numpy_type": "object", "metadata": None},
    ]
    names = [{"name": None, "field_name": None, "pandas_type": "unicode", "numpy_type": "object", "metadata": {"encoding": "UTF-8"}}]
    pandas = {"index_columns": ["task"], "column_indexes": names, "columns": described, "creator": {"library": "pyarrow"}, "pandas_version": "2.2.0"}
    return table.replace_schema_metadata({b"pandas": json.dumps(pandas).encode()})
