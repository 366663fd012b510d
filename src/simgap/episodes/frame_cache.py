"""Decoded frames on disk: one array a camera, mapped on later loads and believed only as they were written.

Beside each array stands its seal: size, inode and times of the file as it was written here. Where one differs
the frames are decoded again. A hash in the seal would not do: a dataset from elsewhere may bring a cache of
other pixels and a hash that fits them, but no file can bring its inode and the time of its arrival.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from simgap.bounds import EPISODE_FRAMES_BYTES, require_regular
from simgap.episodes.formats.layout import IMAGE_PREFIX
from simgap.episodes.write.files import temporary_name
from simgap.errors import DataError, MachineError
from simgap.provenance import read_sealed, write_sealed

_MOST_IN_MEMORY = 0.5
"""Share of the free memory that images may take where no folder at all can be written."""
_SEAL = ".seal.json"


def mapped(path: Path, shape: tuple[int, ...], said: Callable[[str], None]) -> NDArray[np.uint8] | None:
    """Map cached frames; None where there are none that are what was decoded.

    Args:
        path: of the array.
        shape: ``(N, H, W, 3)``.
        said: told where frames are there but changed.
    """
    if _leads_away(path.parent):
        return None
    try:
        require_regular(path, EPISODE_FRAMES_BYTES)
        array: NDArray[np.uint8] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (DataError, OSError, ValueError, EOFError):
        return None
    if array.shape != shape or array.dtype != np.uint8:
        return None
    if not _is_as_written(path):
        said(f"{path} was not decoded here, or was changed since; its frames are decoded again")
        return None
    return array


def _leads_away(place: Path) -> bool:
    """Return whether a folder of frames, or the cache around it, is a link: what came with a dataset may point anywhere."""
    return place.is_symlink() or place.parent.is_symlink()


def _is_as_written(path: Path) -> bool:
    seal, now = path.with_name(path.name + _SEAL), _state(path)
    try:
        written = read_sealed(seal)
    except DataError:
        return False
    return written.get("state") == now


def _state(path: Path) -> list[int]:
    """Return what changes when a file is written to: no program can set the last of them."""
    about = path.stat()
    return [about.st_size, about.st_ino, about.st_mtime_ns, about.st_ctime_ns]


def file_name(key: str, camera: str) -> str:
    """Return the name of a camera's file: by its feature, for a key map may call the camera otherwise tomorrow."""
    return f"{camera if key == IMAGE_PREFIX + camera else quote(key, safe='')}.npy"


def written(
    places: Sequence[Path], name: str, shape: tuple[int, ...], parts: Iterator[NDArray[np.uint8]]
) -> NDArray[np.uint8]:
    """Write the parts to the first place that can be written and map them; where none can, keep them in memory."""
    for place in places:
        if _leads_away(place):
            continue
        path = place / name
        temporary = temporary_name(path)
        try:
            place.mkdir(parents=True, exist_ok=True)
            stream = temporary.open("wb")
        except OSError:
            continue
        break
    else:
        return _in_memory(shape, parts)
    if place == places[0]:
        _forget_others(place)
    try:
        with stream:
            np.lib.format.write_array_header_1_0(
                stream, {"descr": "|u1", "fortran_order": False, "shape": shape}
            )
            for part in parts:
                stream.write(part.data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
        write_sealed(path.with_name(path.name + _SEAL), {"state": _state(path)})
    except OSError as error:
        raise MachineError(
            f"frame cache {path} cannot be written ({error}); free some space, {_bytes_of(shape) >> 20} MiB"
            " are needed"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
    found = mapped(path, shape, lambda text: None)
    if found is None:
        raise MachineError(f"frame cache {path} does not read back as it was written; check the disk")
    return found


def _in_memory(shape: tuple[int, ...], parts: Iterator[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    needed, free = _bytes_of(shape), os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > _MOST_IN_MEMORY * free:
        raise MachineError(
            f"no folder for decoded frames can be written and {needed >> 20} MiB do not fit into {free >> 20}"
            " MiB of free memory; set XDG_CACHE_HOME to one"
        )
    frames, row = np.empty(shape, dtype=np.uint8), 0
    for part in parts:
        frames[row : row + len(part)] = part
        row += len(part)
    return frames


def _forget_others(folder: Path) -> None:
    """Remove the caches of earlier contents; whoever still maps one keeps it."""
    for old in folder.parent.iterdir():
        if old != folder and old.name.startswith("frames-"):
            shutil.rmtree(old, ignore_errors=True)


def user_cache() -> Path:
    """Return the user's own folder for frames; it is shared by all datasets, so nothing in it is forgotten."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "simgap" / "frames"


def _bytes_of(shape: Sequence[int]) -> int:
    return int(np.prod(shape, dtype=np.int64))
