"""Names and places of a LeRobot dataset on disk, and the guards against paths and files that lie."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

from simgap.bounds import require_regular
from simgap.errors import DataError

VERSION_30 = "v3.0"
VERSION_21 = "v2.1"
VERSION_20 = "v2.0"
LEROBOT_VERSIONS = (VERSION_30, VERSION_21, VERSION_20)
TUB = "tub v2"
ACT_HDF5 = "act hdf5"
ROBOMIMIC_HDF5 = "robomimic hdf5"
MAPPED_HDF5 = "mapped hdf5"
CHUNK_SIZE = 1000
"""Files of one folder; episode 1000 opens ``chunk-001``."""
DATA_PATH_30 = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
VIDEO_PATH_30 = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
DATA_PATH_21 = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
VIDEO_PATH_21 = "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4"

ACTION = "action"
STATE = "observation.state"
IMAGE_PREFIX = "observation.images."
TIME = "time_s"
"""Our per-frame true clock; lerobot's ``timestamp`` stays positional."""
CACHE = "cache"
"""Folder of decoded frames inside a dataset folder."""
KEYMAP_JSON = "simgap-map.json"
"""What the keys of a foreign dataset mean, beside its files."""
INDEX_FEATURES = ("timestamp", "frame_index", "episode_index", "index", "task_index")
LFS_MARK = b"version https://git-lfs"

_FIELD = re.compile(r"\{([a-z_]+)(?::0?(\d)d)?\}")


def place(episode: int) -> tuple[int, int]:
    """Return ``(chunk_index, file_index)`` of an episode in our one-file-an-episode layout."""
    return divmod(episode, CHUNK_SIZE)


def data_path(episode: int) -> str:
    """Return the relative path of an episode's frames."""
    chunk, file = place(episode)
    return f"data/chunk-{chunk:03d}/file-{file:03d}.parquet"


def episodes_path(episode: int) -> str:
    """Return the relative path of an episode's row, whose presence commits the episode."""
    chunk, file = place(episode)
    return f"meta/episodes/chunk-{chunk:03d}/file-{file:03d}.parquet"


def video_path(episode: int, key: str) -> str:
    """Return the relative path of an episode's video of one camera feature."""
    chunk, file = place(episode)
    return f"videos/{key}/chunk-{chunk:03d}/file-{file:03d}.mp4"


def expand(template: str, values: Mapping[str, int | str]) -> str:
    """Fill a path template of a foreign ``info.json`` without handing it to ``str.format``.

    Raises:
        DataError: the template names an unknown field or holds stray braces.
    """

    def fill(match: re.Match[str]) -> str:
        name, width = match[1], match[2]
        if name not in values:
            raise DataError(
                f"path template {template!r} asks for {name!r}; known: {', '.join(sorted(values))}"
            )
        value = values[name]
        return f"{value:0{int(width)}d}" if isinstance(value, int) and width else str(value)

    path = _FIELD.sub(fill, template)
    if "{" in path or "}" in path:
        raise DataError(
            f"path template {template!r} cannot be read; expected fields such as {{episode_index:06d}}"
        )
    return path


def inside(root: Path, relative: str) -> Path:
    """Return a path below the root, as :class:`Below` does.

    Raises:
        DataError: the path is absolute, climbs out, or a link leads elsewhere.
    """
    return Below(root).path(relative)


class Below:
    """Paths below one root, each folder on the way looked at once.

    A link may leave the root only into the blob store of a Hugging Face cache (``snapshots/<revision>``
    beside ``blobs``).

    """

    def __init__(self, root: Path) -> None:
        """Take the root."""
        home = root.resolve()
        self._root = root
        self._homes = [home] + ([home.parent.parent / "blobs"] if home.parent.name == "snapshots" else [])
        self._folders: dict[str, bool] = {}

    def path(self, relative: str) -> Path:
        """Return a path below the root.

        Raises:
            DataError: the path is absolute, climbs out, or a link leads elsewhere.
        """
        path = self._root / relative
        try:
            if "\0" in relative:
                raise ValueError("it holds a NUL")
            folder = str(path.parent)
            if folder not in self._folders:
                self._folders[folder] = self._holds(path.parent)
            is_inside = self._folders[folder] and (not path.is_symlink() or self._holds(path))
        except (RuntimeError, OSError, ValueError) as error:  # a loop of links, a name too long, a NUL
            raise DataError(
                f"path {relative[:80]!r} of {self._root} leads nowhere ({error}); restore the files or"
                " correct info.json"
            ) from error
        if os.path.isabs(relative) or ".." in relative.split("/") or not is_inside:
            raise DataError(
                f"path {relative[:200]!r} leaves the dataset folder {self._root}; expected a path inside it;"
                " do not use this dataset"
            )
        return path

    def _holds(self, path: Path) -> bool:
        resolved = path.resolve()
        return any(resolved.is_relative_to(home) for home in self._homes)


def is_lfs_pointer(path: Path) -> bool:
    """Return whether a file is a Git LFS pointer instead of its content."""
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode) or about.st_size > 1024:
            return False
        with path.open("rb") as handle:
            return handle.read(len(LFS_MARK)) == LFS_MARK
    except OSError:
        return False


def require_content(path: Path, *, limit_bytes: int = 8 << 30) -> None:
    """Raise unless a file is there, has content of sane size and is no Git LFS pointer.

    Raises:
        DataError: names the file and the remedy.
    """
    size = require_regular(path, limit_bytes)
    if size == 0:
        raise DataError(f"{path} is empty (0 bytes); copy or download the file again")
    if is_lfs_pointer(path):
        raise DataError(
            f"{path} is a Git LFS pointer of {size} bytes, not the data; run 'git lfs pull' in its repository"
        )
