"""Parquet files of anybody, opened and read within bounds: what a file declares is added up before a value is decoded."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from simgap import bounds
from simgap.bounds import DAMAGED, open_regular
from simgap.episodes.formats.layout import require_content
from simgap.errors import DataError

_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 12}
"""Bytes of one decoded value by physical type."""
_TEXT = ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
_BATCH_ROWS = 65536
_BATCH_BYTES = 64 << 20
_MAGIC = b"PAR1"


def open_parquet(path: Path) -> pq.ParquetFile:
    """Open a file whose footer declares a bounded number of rows and columns.

    Raises:
        DataError: missing, no regular file, empty, a pointer, damaged, or too large; names it.
    """
    require_content(path)
    _require_footer(path)
    try:
        file = pq.ParquetFile(pa.OSFile(os.fsencode(path)))
        names = file.schema_arrow.names
    except (pa.ArrowException, *DAMAGED) as error:
        raise DataError(_damaged(path, error)) from error
    meta = file.metadata
    if (
        meta.num_rows > bounds.ROWS
        or meta.num_columns > bounds.COLUMNS
        or meta.num_columns * meta.num_row_groups > bounds.COLUMN_CHUNKS
    ):
        raise DataError(
            f"{path} declares {meta.num_rows} rows, {meta.num_columns} columns and {meta.num_row_groups} row"
            f" groups, more than is read here ({bounds.ROWS} rows, {bounds.COLUMNS} columns); split the"
            " dataset"
        )
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise DataError(
            f"{path} has two columns called {twice[0]!r}, and only one can be meant; write the file again"
        )
    return file


def read_parquet(
    path: Path,
    columns: Sequence[str] | None = None,
    *,
    most_rows: int = bounds.ROWS,
    decoded_bytes: int = bounds.DECODED_BYTES,
) -> pa.Table:
    """Read whole columns of a file.

    Args:
        path: the file.
        columns: their names; all of them by default.
        most_rows: what the file may declare.
        decoded_bytes: what the columns may take decoded.

    Raises:
        DataError: as :func:`open_parquet`, or more rows or bytes than that.
    """
    file = open_parquet(path)
    if file.metadata.num_rows > most_rows:
        raise DataError(
            f"{path} declares {file.metadata.num_rows} rows, more than the {most_rows} that are read here;"
            " split the dataset"
        )
    names = (
        file.schema_arrow.names if columns is None else [n for n in columns if n in file.schema_arrow.names]
    )
    batch_rows = _batch_rows(path, file, set(names), decoded_bytes)
    batches, size = [], 0
    try:
        for batch in file.iter_batches(batch_rows, columns=names, use_threads=False):
            size += batch.nbytes
            if size > decoded_bytes:
                raise DataError(_too_large(path, size, decoded_bytes))
            batches.append(batch)
        schema = pa.schema([file.schema_arrow.field(n) for n in names])
        table = pa.Table.from_batches(batches, schema=batches[0].schema if batches else schema)
        table.validate()
        return table
    except (pa.ArrowException, *DAMAGED) as error:
        raise DataError(_damaged(path, error)) from error


def read_group(
    path: Path, file: pq.ParquetFile, group: int, column: str, *, decoded_bytes: int = bounds.DECODED_BYTES
) -> pa.ChunkedArray:
    """Read one column of one row group, such as pictures.

    Raises:
        DataError: no such column, damaged, or more bytes than that.
    """
    declared = sum(
        file.metadata.row_group(group).column(k).total_uncompressed_size for k in _leaves(file, {column})
    )
    if declared > decoded_bytes:
        raise DataError(_too_large(path, declared, decoded_bytes))
    try:
        batches, size = [], 0
        for batch in file.iter_batches(
            _BATCH_ROWS if declared < (1 << 20) else 256,
            row_groups=[group],
            columns=[column],
            use_threads=False,
        ):
            size += batch.nbytes
            if size > decoded_bytes:
                raise DataError(_too_large(path, size, decoded_bytes))
            batches.append(batch.column(0))
        return (
            pa.chunked_array(batches)
            if batches
            else pa.chunked_array([], type=file.schema_arrow.field(column).type)
        )
    except (pa.ArrowException, *DAMAGED) as error:
        raise DataError(
            f"{path} has no readable column {column!r} ({bounds.said(error)}); it is damaged, copy it again"
        ) from error


def _batch_rows(path: Path, file: pq.ParquetFile, names: set[str], decoded_bytes: int) -> int:
    """Return how many rows to decode at a time, after adding up what the columns take: run lengths and dictionaries declare nearly nothing."""
    size, text = 0, 0
    leaves = _leaves(file, names)
    for group in range(file.metadata.num_row_groups):
        described = file.metadata.row_group(group)
        for chunk in map(described.column, leaves):
            if chunk.physical_type in _TEXT:
                size += chunk.total_uncompressed_size
                text = max(text, chunk.total_uncompressed_size)
            else:
                size += max(chunk.num_values * _WIDTHS.get(chunk.physical_type, 8), 0)
    if size > decoded_bytes:
        raise DataError(_too_large(path, size, decoded_bytes))
    # a row may repeat the longest text of its dictionary
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES // max(1, text)))


def _leaves(file: pq.ParquetFile, names: set[str]) -> list[int]:
    """Return the places of the stored columns that some columns of a table are made of; all of them where that cannot be told."""
    found: list[int] = []
    place = 0
    for field in file.schema_arrow:
        n = _leaf_count(field.type)
        if field.name in names:
            found += range(place, place + n)
        place += n
    return found if place == file.metadata.num_columns else list(range(file.metadata.num_columns))


def _leaf_count(kind: pa.DataType) -> int:
    if pa.types.is_nested(kind):
        return sum(_leaf_count(kind.field(k).type) for k in range(kind.num_fields))
    return 1


def _require_footer(path: Path) -> None:
    """Raise unless the footer lies in the file and is of bounded size, before anything allocates it."""
    with open_regular(path) as stream:
        size = stream.seek(0, os.SEEK_END)
        if size < 12:
            raise DataError(
                f"{path} has {size} bytes and is no Parquet file; it is truncated or damaged, copy it again"
            )
        stream.seek(size - 8)
        tail = stream.read(8)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != _MAGIC or length > min(bounds.FOOTER_BYTES, size - 12):
        raise DataError(
            f"{path} is no readable Parquet file (it does not end with a footer); it is truncated or damaged,"
            " copy it again"
        )


def _too_large(path: Path, size: int, limit: int) -> str:
    return (
        f"{path} takes {size} bytes or more when it is decoded, more than the {limit} that are read here;"
        " split the dataset"
    )


def _damaged(path: Path, error: BaseException) -> str:
    return (
        f"{path} is no readable Parquet file ({bounds.said(error)}); it is truncated or damaged, copy it"
        " again"
    )
