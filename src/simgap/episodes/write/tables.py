"""Episodes as Arrow tables: the frames of one episode, its row in ``meta/episodes``, and the feature list of ``info.json``."""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from simgap.episodes.formats.layout import ACTION, IMAGE_PREFIX, INDEX_FEATURES, STATE, TIME, place
from simgap.episodes.spec import DatasetSpec
from simgap.episodes.statistics.exact import column_statistics, image_statistics
from simgap.episodes.write.features import DTYPES
from simgap.episodes.write.files import commit
from simgap.errors import DataError
from simgap.provenance import canonical_json
from simgap.types import Episode

SUMMARY = b"simgap.episode"
"""Metadata of a frame table: what finishing needs of an episode (:class:`Summary`), so that it opens one file of each."""
STAMP = b"simgap.stamp"
"""Metadata of a frame table of trials: hash of the stamp under which it was recorded, so that a log cannot be given another one."""
CONTENT = b"simgap.content"
"""Metadata of a frame table of trials: :func:`content_of` the episode, so that an edited one is not taken into the log that it belongs to."""
TRIALS = "trials"
"""Kind of the stamp of a trial log."""
_SAID = ("outcome", "outcome_detail", "success", "seed", "factors")


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """What there is to know of an episode beside its numbers."""

    length: int
    task: str
    histograms: Mapping[str, NDArray[np.int64]]
    """Camera -> ``(3, 256)`` counts of :func:`~simgap.episodes.statistics.exact.image_histogram`: pooled image statistics stay exact."""
    videos: Mapping[str, str]
    """Camera -> SHA-256 of its video file, so that a crash of the machine cannot pass for a whole episode."""

    @classmethod
    def of(
        cls,
        episode: Episode,
        spec: DatasetSpec,
        videos: Mapping[str, bytes],
        histograms: Mapping[str, NDArray[np.int64]],
    ) -> Summary:
        """Sum up an episode whose videos have been encoded and whose pixels have been counted."""
        return cls(
            length=len(episode),
            task=episode.task or spec.task_default,
            histograms=dict(sorted(histograms.items())),
            videos={camera: hashlib.sha256(video).hexdigest() for camera, video in sorted(videos.items())},
        )

    def to_text(self) -> str:
        """Return it as JSON."""
        values = {
            "length": self.length,
            "task": self.task,
            "histograms": {c: h.tolist() for c, h in self.histograms.items()},
            "videos": dict(self.videos),
        }
        return json.dumps(values, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: bytes) -> Summary:
        """Rebuild it from :meth:`to_text`.

        Raises:
            ValueError, KeyError, TypeError: it is something else.
        """
        values = json.loads(text)
        histograms = {
            str(c): np.array(h, dtype=np.int64).reshape(3, 256) for c, h in values["histograms"].items()
        }
        return cls(
            length=int(values["length"]),
            task=str(values["task"]),
            histograms=histograms,
            videos=dict(values["videos"]),
        )


def to_bytes(
    table: pa.Table, *, with_schema: bool = True, metadata: Mapping[bytes, str] | None = None
) -> bytes:
    """Return a table as Parquet bytes: plain pages in one row group, equal bytes for equal tables.

    Tables of one episode are a few KB; compression, dictionaries and statistics would cost more time than
    they save space.

    Args:
        table: its schema metadata is kept.
        with_schema: False leaves out Arrow's own copy of the schema, half of a small file; fixed-size lists
            come back as lists.
        metadata: further entries of the footer.
    """
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        table.schema,
        compression="none",
        use_dictionary=False,
        write_statistics=False,
        store_schema=with_schema,
    ) as writer:
        writer.write_table(table, row_group_size=max(1, table.num_rows))
        if metadata:
            writer.add_key_value_metadata({key.decode(): value for key, value in metadata.items()})
    data: bytes = sink.getvalue().to_pybytes()
    return data


def content_of(columns: Mapping[str, NDArray[Any]], row: pa.Table, summary: Summary) -> str:
    """Return the SHA-256 of what an episode says: its numbers, its outcome and conditions, its pictures by the hashes of their videos.

    Args:
        columns: of :func:`numeric_columns`; ``index`` and ``task_index``, which finishing writes, are left
            out.
        row: of :func:`episode_row`.
        summary: of the same episode.
    """
    digest = hashlib.sha256(
        canonical_json([row[name][0].as_py() for name in _SAID]).encode() + summary.to_text().encode()
    )
    for name in sorted(set(columns) - {"index", "task_index"}):
        digest.update(name.encode() + np.ascontiguousarray(columns[name]).tobytes())
    return digest.hexdigest()


def column(values: NDArray[Any], *, what: str) -> pa.Array:
    """Return an Arrow column of ``(T,)`` scalars or ``(T, k)`` fixed-size lists."""
    _require_storable(values, what=what)
    name = values.dtype.name
    flat = pa.array(np.ascontiguousarray(values).reshape(-1), type=DTYPES[name])
    return (
        flat
        if values.ndim == 1
        else pa.FixedSizeListArray.from_arrays(flat, type=pa.list_(_element(DTYPES[name]), values.shape[1]))
    )


def _require_storable(values: NDArray[Any], *, what: str) -> None:
    if values.dtype.name not in DTYPES or values.ndim not in (1, 2):
        known = ", ".join(DTYPES)
        raise DataError(
            f"{what} has dtype {values.dtype.name} and shape {values.shape}; per-frame columns are (T,) or"
            f" (T, k) of {known}; convert it"
        )


def _element(kind: pa.DataType) -> pa.Field:
    """Name list items as Parquet does: a table read back and written again then has the same bytes."""
    return pa.field("element", kind)


def numeric_columns(episode: Episode, spec: DatasetSpec, index: int) -> dict[str, NDArray[Any]]:
    """Return the numeric per-frame columns of an episode by feature name; ``index`` counts from 0 and ``task_index`` is 0 until all are there."""
    length = len(episode)
    frames = np.arange(length, dtype=np.int64)
    columns: dict[str, NDArray[Any]] = {
        ACTION: episode.action.astype(np.float32),
        # a car without odometry measures nothing, and has no such column
        **({STATE: episode.state.astype(np.float32)} if len(spec.state_spec) else {}),
        TIME: episode.time_s.astype(np.float64),
    }
    for name, values in sorted(episode.extras.items()):
        if (
            name in columns
            or name in INDEX_FEATURES
            or name.startswith("observation.images")
            or "/" in name
            or "image" in name
        ):
            raise DataError(
                f"extra column {name!r} is a reserved name, or holds '/' or 'image' which LeRobot cannot"
                " read; rename it"
            )
        _require_storable(values, what=f"extra column {name!r}")
        columns[name] = values
    return (
        # first, where set_leading() finds them
        {"index": frames, "task_index": np.zeros(length, dtype=np.int64)}
        | columns
        | {
            "timestamp": (frames / spec.rate_hz).astype(np.float32),
            "frame_index": frames,
            "episode_index": np.full(length, index, dtype=np.int64),
        }
    )


def frame_table(columns: Mapping[str, NDArray[Any]], pngs: Mapping[str, Sequence[bytes]]) -> pa.Table:
    """Return the frames of an episode; PNG cameras ride inside, video cameras do not.

    Args:
        columns: of :func:`numeric_columns`.
        pngs: camera -> one PNG a frame.
    """
    table = {name: column(values, what=f"column {name!r}") for name, values in columns.items()}
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    for camera, images in pngs.items():
        table[IMAGE_PREFIX + camera] = pa.array(
            [{"bytes": image, "path": f"frame-{k:06d}.png"} for k, image in enumerate(images)], type=kind
        )
    return pa.table(table)


def episode_row(
    columns: Mapping[str, NDArray[Any]], episode: Episode, spec: DatasetSpec, index: int, summary: Summary
) -> pa.Table:
    """Return the one-row table of ``meta/episodes`` with LeRobot's columns, ours, and the statistics of the episode.

    Args:
        columns: of :func:`numeric_columns`.
        episode: the episode.
        spec: its dataset.
        index: its place.
        summary: of the same episode.
    """
    chunk, file = place(index)
    length = len(episode)
    row: dict[str, Any] = {
        "dataset_from_index": 0,  # these two first, where set_leading() finds them
        "dataset_to_index": length,
        "episode_index": index,
        "tasks": [summary.task],
        "length": length,
        # null: nobody said, which is not a void trial
        "outcome": str(episode.outcome.kind) if episode.outcome.is_recorded else None,
        "outcome_detail": episode.outcome.detail if episode.outcome.is_recorded else None,
        "success": episode.outcome.is_success if episode.outcome.counts else None,
        "seed": episode.seed,
        "factors": canonical_json(dict(episode.factors)),
        "data/chunk_index": chunk,
        "data/file_index": file,
    }
    for camera in summary.videos:
        prefix = f"videos/{IMAGE_PREFIX}{camera}"
        row |= {
            f"{prefix}/chunk_index": chunk,
            f"{prefix}/file_index": file,
            f"{prefix}/from_timestamp": 0.0,
            f"{prefix}/to_timestamp": length / spec.rate_hz,
        }
    statistics = column_statistics(
        {name: values for name, values in columns.items() if name not in INDEX_FEATURES}
    )
    statistics |= {
        IMAGE_PREFIX + camera: image_statistics(summary.histograms[camera], length) for camera in spec.cameras
    }
    row |= {
        f"stats/{name}/{key}": value for name, values in statistics.items() for key, value in values.items()
    }
    row |= {"meta/episodes/chunk_index": chunk, "meta/episodes/file_index": file}
    batch = pa.RecordBatch.from_struct_array(pa.array([row], type=_row_type(tuple(row))))
    return pa.Table.from_batches([batch])


@functools.lru_cache(maxsize=64)
def _row_type(names: tuple[str, ...]) -> pa.DataType:
    return pa.struct([(name, _column_type(name)) for name in names])


def _column_type(name: str) -> pa.DataType:
    if name.startswith("stats/"):
        kind = pa.int64() if name.endswith("/count") else pa.float64()
        is_image = name.startswith(f"stats/{IMAGE_PREFIX}") and not name.endswith("/count")
        for _ in range(3 if is_image else 1):  # lerobot nests [3][1][1] for a camera
            kind = pa.list_(_element(kind))
        return kind
    if name == "tasks":
        return pa.list_(_element(pa.string()))
    kinds = {
        "outcome": pa.string(),
        "outcome_detail": pa.string(),
        "factors": pa.string(),
        "success": pa.bool_(),
    }
    return pa.float64() if name.endswith("_timestamp") else kinds.get(name, pa.int64())


def number_frames(path: Path, length: int, first_row: int, task_index: int) -> None:
    """Write ``index`` and ``task_index`` of an episode into its parquet of frames.

    Raises:
        DataError: the file is not of our layout.
    """
    set_leading(
        path, {"index": np.arange(first_row, first_row + length), "task_index": np.full(length, task_index)}
    )


def number_row(path: Path, length: int, first_row: int) -> None:
    """Write the global rows of an episode into its row file.

    Raises:
        DataError: the file is not of our layout.
    """
    set_leading(
        path,
        {"dataset_from_index": np.array([first_row]), "dataset_to_index": np.array([first_row + length])},
    )


def set_leading(path: Path, columns: Mapping[str, NDArray[np.int64]]) -> None:
    """Overwrite the first columns of a parquet file of ours in place, without reading the rest of it.

    Our pages are plain, so values lie bare and in a known place. What lies between them is compared first.
    Writing the same again changes nothing, and a kill in the middle leaves what the next call puts right.

    Args:
        path: the file.
        columns: the leading columns in order, all of one length, ``int64``.

    Raises:
        DataError: the file begins otherwise.
    """
    template, is_value = _leading_template(tuple(columns), len(next(iter(columns.values()))))
    wanted = template.copy()
    wanted[is_value] = np.concatenate([np.ascontiguousarray(v, dtype="<i8") for v in columns.values()]).view(
        np.uint8
    )
    with path.open("r+b", buffering=0) as stream:
        found = np.frombuffer(stream.read(len(template)), dtype=np.uint8)
        if len(found) != len(template) or not np.array_equal(found[~is_value], template[~is_value]):
            raise DataError(
                f"{path} does not begin with plain columns {', '.join(columns)}, as our writer leaves it;"
                " write the episode again"
            )
        is_new = not np.array_equal(found, wanted)
        is_shared = path.is_symlink() or os.fstat(stream.fileno()).st_nlink > 1
        if is_new and not is_shared:
            stream.seek(0)
            stream.write(wanted.tobytes())
        rest = stream.read() if is_new and is_shared else b""
    if is_new and is_shared:  # the same bytes are a file of somebody else's, too
        commit(path, wanted.tobytes() + rest)


@functools.lru_cache(maxsize=1024)
def _leading_template(names: tuple[str, ...], length: int) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Return how a file begins with these columns, and which of those bytes are values."""
    begins = []
    for fill in (0, -1):
        data = to_bytes(pa.table({name: pa.array(np.full(length, fill, dtype=np.int64)) for name in names}))
        footer = int.from_bytes(data[-8:-4], "little")
        begins.append(np.frombuffer(data[: len(data) - 8 - footer], dtype=np.uint8))
    return begins[0], begins[0] != begins[1]
