"""HDF5 episodes: one file an episode as ACT and ALOHA record them, or groups ``data/demo_k`` as robomimic keeps them.

The files say neither unit nor, mostly, rate. Frames compressed as JPEG say nothing of their colour order
either: recorders that hand RGB to OpenCV's encoder store red as blue. Frames are read as any image viewer
shows them; the key map turns them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from simgap.bounds import DAMAGED, DECODED_BYTES, EPISODES, SIDE, TEXT_BYTES, WIDTH, said
from simgap.conventions import Dimension
from simgap.episodes.formats.commands import say_once
from simgap.episodes.formats.hdf5_items import (
    natural_order,
    read_column,
    read_item,
    require_bounded,
    require_closed,
)
from simgap.episodes.formats.hdf5_layout import (
    ROBOMIMIC,
    InputRange,
    Layout,
    input_range,
    layouts,
    limited_actions,
    rate_of,
    robosuite_actions,
    task_of,
)
from simgap.episodes.formats.hdf5_walk import require_own, walk_tree
from simgap.episodes.formats.index import DatasetInfo, EpisodeEntry, Feature
from simgap.episodes.formats.keymap import KeyMap, resolve
from simgap.episodes.formats.layout import require_content
from simgap.episodes.formats.recognise import HDF5_SUFFIXES
from simgap.episodes.formats.source import Opened, Source, require_frame
from simgap.episodes.formats.video import decode_image
from simgap.errors import DataError, MachineError

if TYPE_CHECKING:
    import h5py

_MOST_BYTES = 1 << 42


class _Camera(NamedTuple):
    """How a camera's frames are stored."""

    shape: tuple[int, int, int]
    is_compressed: bool
    is_channel_first: bool


class Hdf5Source(Source):
    """Reads groups of HDF5 files; a file is open only while it is read."""

    def __init__(
        self,
        files: Sequence[Path],
        groups: dict[int, str],
        cameras: dict[str, _Camera],
        numeric: Sequence[str],
    ) -> None:
        """Hold where each episode lies and how each camera is stored."""
        self._files = files
        self._groups = groups
        self._cameras = cameras
        self._numeric = numeric

    def schema(self, entry: EpisodeEntry) -> pa.Schema:
        """Return the columns of :meth:`table`."""
        return self.table(entry).schema

    def table(self, entry: EpisodeEntry) -> pa.Table:
        """Return every table of numbers that has one row a frame."""
        columns: dict[str, Any] = {}
        with opened(entry.data) as file:
            group = file[self._groups[entry.index]]
            for key in self._numeric:
                item = read_item(group, key, entry)
                if item.shape[:1] != (entry.length,):
                    raise DataError(
                        f"{entry.data}: {key!r} of episode {entry.index} has shape {item.shape}, expected"
                        f" {entry.length} rows; drop the episode"
                    )
                columns[key] = read_column(np.asarray(require_bounded(item, entry.data)[()]))
        frames = np.arange(entry.length, dtype=np.int64)
        columns["frame_index"], columns["episode_index"] = (
            pa.array(frames),
            pa.array(np.full(entry.length, entry.index, dtype=np.int64)),
        )
        return pa.table(columns)

    def decode(self, entry: EpisodeEntry, key: str, out: NDArray[np.uint8], start: int = 0) -> None:
        """Copy raw frames, or decode compressed ones; padding behind a JPEG's end does no harm."""
        camera = self._cameras[key]
        with opened(entry.data) as file:
            item = read_item(file[self._groups[entry.index]], key, entry)
            if len(item) < start + len(out):
                raise DataError(
                    f"{entry.data}: {key!r} ends after {len(item)} of {entry.length} frames; the recording"
                    " was cut, drop the episode"
                )
            require_own(item, entry.data, key)
            if item.shape[1:] == out.shape[1:] and item.dtype == np.uint8:
                item.read_direct(out, np.s_[start : start + len(out)])
                return
            if item.nbytes // len(item) > TEXT_BYTES:
                raise DataError(
                    f"{entry.data}: {key!r} of episode {entry.index} has shape {list(item.shape)}, unlike the"
                    " first episode's; drop the episode"
                )
            for k in range(len(out)):
                where = f"{entry.data} frame {start + k} of {key!r}"
                row = item[start + k]
                image = (
                    decode_image(bytes(row), where=where)
                    if camera.is_compressed
                    else np.moveaxis(row, 0, -1)
                    if camera.is_channel_first
                    else row
                )
                require_frame(image, out[k], where)
                out[k] = image

    def has_pictures(self, key: str) -> bool:
        """Return whether frames are pictures one by one."""
        return self._cameras[key].is_compressed

    def content_files(self) -> list[Path]:
        """Return the files."""
        return list(self._files)


@contextmanager
def opened(path: Path) -> Iterator[h5py.File]:
    """Open an HDF5 file for reading, whatever breaks inside told as one line.

    Raises:
        DataError: the file is missing, a pointer, truncated or damaged.
        MachineError: h5py is not installed.
    """
    try:
        import h5py
    except ImportError as error:
        raise MachineError(
            f"{path} is HDF5, and h5py is not installed; pip install 'simgap[hdf5]'"
        ) from error
    require_content(path, limit_bytes=_MOST_BYTES)
    try:
        with h5py.File(path, "r", locking="best-effort") as file:
            yield file
    except DAMAGED as error:
        raise DataError(
            f"{path} cannot be read as HDF5 ({said(error)}); it is truncated or damaged, copy it again"
        ) from error


def open_hdf5(root: Path, keymap: KeyMap | None) -> Opened:
    """Open an HDF5 file, or a folder of them, all of one layout.

    Raises:
        DataError: damaged files, unknown or mixed layouts, no rate, no action or state.
        UsageError: a key map that does not fit.
        MachineError: h5py is not installed.
    """
    files = (
        sorted((p for p in root.iterdir() if p.suffix in HDF5_SUFFIXES), key=natural_order)
        if root.is_dir()
        else [root]
    )
    entries, groups, layout = _episodes(root, files, layouts(keymap))
    first = entries[0]
    notes: list[str] = []
    with opened(first.data) as file:
        group = file[groups[first.index]]
        features, cameras = _features(group, first, layout, notes)
        attributes = _attributes(file, group, layout)
    stated = keymap.rate_hz if keymap is not None else None
    rate_hz = stated if stated is not None else rate_of(attributes)
    if rate_hz is None:
        usual, who = (20, "robosuite controls") if layout is ROBOMIMIC else (50, "ALOHA records")
        command = say_once(root, "--rate-hz", usual)
        raise DataError(
            f"{root} does not say how many frames a second it has; look it up and say it once ({who} at"
            f" {usual}): {command}"
        )
    guess = layout.guess(features)
    roles = resolve(root, features, guess, keymap)
    compressed = sorted(
        name
        for name, key in roles.cameras.items()
        if cameras[key].is_compressed and (keymap is None or name not in keymap.images)
    )
    questions: list[str] = []
    if compressed:
        words = (
            f"frames of {', '.join(compressed)} are JPEGs whose colour order the file does not state, read as"
            " an image viewer shows them"
        )
        questions.append(
            f"{words}; look at one, then say it once:"
            f" {say_once(root, *(w for c in compressed for w in ('--image', f'{c}=rgb')))} (or =bgr)"
        )
    known: dict[str, tuple[Dimension, ...]] = {}
    if layout is ROBOMIMIC and "actions" in features:
        known = {
            "actions": (
                robosuite_actions(attributes, features["actions"].shape[0])
                or limited_actions(attributes, features["actions"].shape[0])
            )
        }
    info = DatasetInfo(
        version=layout.name,
        rate_hz=rate_hz,
        robot_type=layout.robot(attributes),
        total_episodes=len(entries),
        total_frames=sum(e.length for e in entries),
        chunks_size=1000,
        data_path="",
        video_path="",
        features=features,
        raw={"format": layout.name, "rate_hz": rate_hz, "keys": sorted(features)},
    )
    source = Hdf5Source(files, groups, cameras, [k for k, f in features.items() if f.is_numeric])
    return Opened(
        info=info,
        entries=tuple(entries),
        source=source,
        roles=roles,
        dimensions=known,
        notes=(*notes, *questions),
        questions=tuple(questions),
    )


def _attributes(file: h5py.File, group: h5py.Group, layout: Layout) -> dict[str, Any]:
    return {
        **dict(file.attrs),
        **dict(file[layout.parent].attrs if layout.parent else {}),
        **dict(group.attrs),
    }


def stored_input_range(entries: Sequence[EpisodeEntry]) -> InputRange | None:
    """Return what the controllers take that a robomimic file says its actions went through; None where it does not say.

    Raises:
        DataError: the file cannot be read.
    """
    with opened(entries[0].data) as file:
        group = file[str(entries[0].extra["group"]).partition(":")[2]]
        return input_range(_attributes(file, group, ROBOMIMIC))


def _episodes(
    root: Path, files: Sequence[Path], known: Sequence[Layout]
) -> tuple[list[EpisodeEntry], dict[int, str], Layout]:
    """List the episodes of all files."""
    entries: list[EpisodeEntry] = []
    groups: dict[int, str] = {}
    seen: dict[Layout, Path] = {}
    for path in files:
        with opened(path) as file:
            require_closed(file, path)
            layout = next((layout for layout in known if layout.fits(file)), None)
            if layout is None:
                expected = (
                    "expected action and observations (ACT, ALOHA), data/demo_k (robomimic), or a map: --map"
                    " KEY=action --map KEY=state"
                )
                raise DataError(f"{path} has {sorted(map(str, file))[:8]} at its top; {expected}")
            seen.setdefault(layout, path)
            if len(seen) > 1:
                raise DataError(
                    f"{root} mixes {' and '.join(f'{p.name} ({k.name})' for k, p in seen.items())}; put each"
                    " layout in a folder of its own"
                )
            masks = layout.masks(file)
            for name in layout.episodes(file):
                index = len(entries)
                if index >= EPISODES:
                    raise DataError(f"{root} holds more than {EPISODES} episodes; split it")
                action = file[name].get(layout.action)
                if getattr(action, "dtype", None) is not None:
                    require_bounded(action, path)
                # absent, a group, a type, a scalar or empty
                if getattr(action, "shape", ())[:1] in ((), (0,)):
                    raise DataError(f"{path}: {name} has no frames in {layout.action!r}; drop the episode")
                groups[index] = name
                extra = {"group": f"{path.name}:{name}"} | ({"masks": masks[name]} if name in masks else {})
                task = task_of(
                    dict(file[name].attrs), dict(file[layout.parent].attrs) if layout.parent else {}
                )
                entries.append(
                    EpisodeEntry(
                        index=index,
                        length=int(action.shape[0]),
                        tasks=(task,) if task else (),
                        data=path,
                        videos={},
                        extra=extra,
                    )
                )
    if not entries:
        raise DataError(
            f"{root} holds no episode; expected files episode_0.hdf5 ... or groups data/demo_0 ..."
        )
    return entries, groups, next(iter(seen))


def _features(
    group: h5py.Group, entry: EpisodeEntry, layout: Layout, notes: list[str]
) -> tuple[dict[str, Feature], dict[str, _Camera]]:
    """Return what an episode holds: tables of numbers, and cameras."""
    features: dict[str, Feature] = {}
    cameras: dict[str, _Camera] = {}
    odd: list[str] = []
    for key, item in walk_tree(group, entry.data):
        if layout.skips(key):
            continue
        camera = _camera(item, key, entry) if layout.is_camera(key, item) else None
        if camera is not None:
            cameras[key] = camera
            features[key] = Feature(
                key=key, dtype="image", shape=camera.shape, names=("height", "width", "channels")
            )
        elif (
            item.dtype.kind in "fiub"
            and item.ndim in (1, 2)
            and item.shape[0] == entry.length
            and item.nbytes <= DECODED_BYTES
        ):
            width = item.shape[1] if item.ndim == 2 else 1
            if 0 < width <= WIDTH:
                features[key] = Feature(key=key, dtype=str(np.dtype(item.dtype)), shape=(width,), names=())
        else:
            odd.append(f"{key} {item.shape} {item.dtype}")
    if odd:
        notes.append(
            "not read, being neither numbers by frame nor colour images:"
            f" {', '.join(odd[:6])}{' ...' if len(odd) > 6 else ''}"
        )
    return features, cameras


def _camera(item: h5py.Dataset, key: str, entry: EpisodeEntry) -> _Camera | None:
    """Return how frames are stored, or None where they are no colour images."""
    if item.dtype.kind == "u" and item.ndim == 4 and item.dtype.itemsize == 1:
        _, a, b, c = item.shape
        shape = (a, b, c) if c == 3 else (b, c, a) if a == 3 else None
        if shape is None or max(shape) > SIDE:
            return None
        return _Camera(shape=shape, is_compressed=False, is_channel_first=c != 3)
    is_bytes = (item.ndim == 2 and item.dtype == np.uint8) or (item.ndim == 1 and item.dtype.kind in "OSV")
    if is_bytes and len(item) and item.nbytes // len(item) <= TEXT_BYTES:
        data = bytes(item[0])
        if not data.startswith((b"\xff\xd8", b"\x89PNG")):
            return None
        height, width, _ = decode_image(data, where=f"{entry.data} frame 0 of {key!r}").shape
        return _Camera(shape=(height, width, 3), is_compressed=True, is_channel_first=False)
    return None
