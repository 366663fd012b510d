"""Single items of an HDF5 file: bounded, closed, and named in order."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from simgap.bounds import DECODED_BYTES, HDF5_OBJECTS
from simgap.episodes.formats.hdf5_walk import require_own
from simgap.episodes.formats.index import EpisodeEntry
from simgap.errors import DataError

if TYPE_CHECKING:
    import h5py


def require_closed(file: h5py.File, path: Path) -> None:
    """Raise unless every link of a file stays inside it, before anything follows one: a link may name a pipe, or any file at all.

    Raises:
        DataError: names the link, or a file of far too many objects.
    """
    import h5py

    count = 0

    def look(name: str, link: object) -> str | None:
        nonlocal count
        count += 1
        return name if isinstance(link, h5py.ExternalLink) or count > HDF5_OBJECTS else None

    found = file.visititems_links(look)
    if found is not None and count > HDF5_OBJECTS:
        raise DataError(f"{path} holds more than {HDF5_OBJECTS} objects; split it")
    if found is not None:
        raise DataError(f"{path}: {found} is a link into another file; copy the data into one file")


def require_bounded(item: h5py.Dataset, path: Path) -> h5py.Dataset:
    """Return a table whose values lie in the file and may be held whole.

    Raises:
        DataError: names it.
    """
    require_own(item, path, str(item.name))
    if item.size is not None and item.nbytes > DECODED_BYTES:
        raise DataError(
            f"{path}: {item.name} declares shape {list(item.shape)}, {item.nbytes} bytes, more than the"
            f" {DECODED_BYTES} read here; split it"
        )
    return item


def read_item(group: h5py.Group, key: str, entry: EpisodeEntry) -> h5py.Dataset:
    """Return a dataset of a group, or raise with the place that has none."""
    item = group.get(key)
    if getattr(item, "dtype", None) is None:
        raise DataError(
            f"{entry.data} has no {key!r} in episode {entry.index} ({group.name}), which the first episode"
            " has; drop one of the two"
        )
    return item


def read_column(values: NDArray[Any]) -> pa.Array:
    """Return values as one column, a list a row where there are several."""
    if values.ndim == 1:
        return pa.array(values)
    return pa.FixedSizeListArray.from_arrays(
        pa.array(np.ascontiguousarray(values).reshape(-1)), values.shape[1]
    )


def natural_order(path: Path) -> list[tuple[int, int, str]]:
    """Sort ``episode_10`` behind ``episode_9``."""
    return [
        (0, int(part), "") if part.isdigit() else (1, 0, part)
        for part in re.split(r"(\d+)", path.name)
        if part
    ]
