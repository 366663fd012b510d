"""Features of info.json and the task table."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from simgap.episodes.formats.layout import ACTION, IMAGE_PREFIX, INDEX_FEATURES, STATE
from simgap.episodes.spec import DatasetSpec
from simgap.episodes.write.encoders import rate_fraction

DTYPES = {"float32": pa.float32(), "float64": pa.float64(), "int64": pa.int64(), "bool": pa.bool_()}


def features(spec: DatasetSpec, frames: pa.Schema) -> dict[str, Any]:
    """Return the ``features`` of ``info.json`` for a frame schema."""
    result: dict[str, Any] = {}
    names = {ACTION: list(spec.action_spec.names), STATE: list(spec.state_spec.names)}
    arrow_names = {kind: name for name, kind in DTYPES.items()}
    for field in sorted(frames, key=lambda f: f.name in INDEX_FEATURES):
        if field.name.startswith(IMAGE_PREFIX):
            continue
        is_list = pa.types.is_fixed_size_list(field.type)
        dtype = arrow_names[field.type.value_type if is_list else field.type]
        result[field.name] = {
            "dtype": dtype,
            "shape": [field.type.list_size if is_list else 1],
            "names": names.get(field.name),
        }
    height, width = spec.image_size
    for camera in spec.cameras:
        entry: dict[str, Any] = {
            "dtype": "video" if spec.has_videos else "image",
            "shape": [height, width, 3],
            "names": ["height", "width", "channels"],
        }
        if spec.has_videos:
            entry["info"] = {
                "video.height": height,
                "video.width": width,
                "video.codec": spec.codec,
                "video.pix_fmt": "yuv420p",
                "video.fps": plain_rate(spec.rate_hz),
                "video.channels": 3,
                "has_audio": False,
                "video.g": spec.encoding.keyframe_every,
                **(
                    {"video.qp": spec.encoding.qp}
                    if spec.encoding.crf is None
                    else {"video.crf": spec.encoding.crf}
                ),
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
    table = pa.table(
        {"task_index": pa.array(range(len(tasks)), pa.int64()), "task": pa.array(tasks, pa.string())}
    )
    described = [
        {
            "name": "task_index",
            "field_name": "task_index",
            "pandas_type": "int64",
            "numpy_type": "int64",
            "metadata": None,
        },
        {
            "name": "task",
            "field_name": "task",
            "pandas_type": "unicode",
            "numpy_type": "object",
            "metadata": None,
        },
    ]
    names = [
        {
            "name": None,
            "field_name": None,
            "pandas_type": "unicode",
            "numpy_type": "object",
            "metadata": {"encoding": "UTF-8"},
        }
    ]
    pandas = {
        "index_columns": ["task"],
        "column_indexes": names,
        "columns": described,
        "creator": {"library": "pyarrow"},
        "pandas_version": "2.2.0",
    }
    return table.replace_schema_metadata({b"pandas": json.dumps(pandas).encode()})
