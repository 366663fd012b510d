"""All frames of a dataset in memory, decoded once: a content-addressed cache beside the dataset is mapped on later loads."""

from __future__ import annotations

import os
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.conventions import require_same
from simgap.episodes.files import temporary_name
from simgap.episodes.reader import Dataset, open_dataset
from simgap.episodes.table import FrameTable
from simgap.errors import ConventionError, DataError, MachineError
from simgap.provenance import content_hash

CACHE = "cache"
_CACHE_VERSION = "frames-1"


def load_frames(root: Path, *, cameras: Sequence[str] | None = None, progress: Callable[[int, int], None] | None = None, threads: int = 2) -> FrameTable:
    """Return every frame of a dataset as arrays, images as ``(N, H, W, 3)`` uint8.

    The first load decodes (thousands of frames a second a core) and keeps the result in ``<root>/cache`` under the content
    fingerprint; later loads map that file and cost nothing. Where the folder cannot be written the images stay in memory.

    Args:
        root: dataset folder.
        cameras: names to load; all by default.
        progress: called with ``(videos decoded, videos to decode)``.
        threads: decoding threads.

    Raises:
        DataError: an unknown camera, damaged files, or content that changed since it was finished.
    """
    dataset = open_dataset(root)
    wanted = tuple(dataset.spec.cameras) if cameras is None else tuple(cameras)
    unknown = sorted(set(wanted) - set(dataset.spec.cameras))
    if unknown:
        raise DataError(f"{root} has no cameras {unknown}; it has {sorted(dataset.spec.cameras)}")
    episodes = [dataset.columns(e.index) for e in dataset.entries]
    lengths = [len(c[dataset.action_key]) for c in episodes]
    for entry, length in zip(dataset.entries, lengths, strict=True):
        if entry.length != length:
            raise DataError(f"{entry.data} holds {length} frames of episode {entry.index}, its index row says {entry.length}; repair meta or data")
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    fingerprint = dataset.fingerprint
    images = _images(dataset, wanted, starts, fingerprint, progress, threads)
    return FrameTable(
        images=images,
        state=_stack(c[dataset.state_key] for c in episodes),
        action=_stack(c[dataset.action_key] for c in episodes),
        episode_start=starts,
        action_spec=dataset.spec.action_spec,
        state_spec=dataset.spec.state_spec,
        fingerprint=fingerprint,
    )


def concatenate(tables: Sequence[FrameTable]) -> FrameTable:
    """Return several tables of one convention as one.

    Raises:
        DataError: no table, or other cameras or image sizes.
        ConventionError: their action or state conventions differ.
    """
    if not tables:
        raise DataError("no frame table to concatenate; give at least one")
    first = tables[0]
    for other in tables[1:]:
        names = {"ours_name": first.fingerprint[:12], "theirs_name": other.fingerprint[:12]}
        require_same(first.action_spec, other.action_spec, what="actions", **names)
        require_same(first.state_spec, other.state_spec, what="states", **names)
        shapes = [{c: v.shape[1:] for c, v in t.images.items()} for t in (first, other)]
        if shapes[0] != shapes[1]:
            raise ConventionError(f"images differ: {first.fingerprint[:12]} has {shapes[0]}, {other.fingerprint[:12]} has {shapes[1]}; render or resize alike")
    offsets = np.cumsum([0] + [len(t) for t in tables[:-1]])
    starts = [t.episode_start[:-1] + o for t, o in zip(tables, offsets, strict=True)]
    return FrameTable(
        images={c: np.concatenate([t.images[c] for t in tables]) for c in first.images},
        state=np.concatenate([t.state for t in tables]),
        action=np.concatenate([t.action for t in tables]),
        episode_start=np.concatenate([*starts, [sum(len(t) for t in tables)]]).astype(np.int64),
        action_spec=first.action_spec,
        state_spec=first.state_spec,
        fingerprint=first.fingerprint if len(tables) == 1 else content_hash([t.fingerprint for t in tables]),
    )


def _images(
    dataset: Dataset,
    cameras: tuple[str, ...],
    starts: NDArray[np.int64],
    fingerprint: str,
    progress: Callable[[int, int], None] | None,
    threads: int,
) -> dict[str, NDArray[np.uint8]]:
    folder = dataset.root / CACHE / f"{_CACHE_VERSION}-{fingerprint[:16]}"
    shapes = {c: (int(starts[-1]), *dataset.frame_shape(c)) for c in cameras}
    cached = {c: array for c in cameras if (array := _mapped(folder / f"{c}.npy", shapes[c])) is not None}
    missing = [c for c in cameras if c not in cached]
    total, done = len(missing) * dataset.n_episodes, 0
    for camera in missing:
        cached[camera] = _cached(folder, camera, shapes[camera], _counted(_decoded(dataset, camera, starts, threads), progress, total, done))
        done += dataset.n_episodes
    return {c: cached[c] for c in cameras}


def _counted(parts: Iterator[NDArray[np.uint8]], progress: Callable[[int, int], None] | None, total: int, done: int) -> Iterator[NDArray[np.uint8]]:
    for k, part in enumerate(parts, start=done + 1):
        yield part
        if progress is not None:
            progress(k, total)


def _decoded(dataset: Dataset, camera: str, starts: NDArray[np.int64], threads: int) -> Iterator[NDArray[np.uint8]]:
    """Yield the frames of one camera, episode by episode in order; decoding runs a few episodes ahead."""
    shape = dataset.frame_shape(camera)
    jobs = [(e.index, int(b - a)) for e, (a, b) in zip(dataset.entries, pairwise(starts), strict=True)]
    if dataset.info.features[dataset.camera_keys[camera]].dtype == "image":
        threads = 1  # images ride in the table, whose cache is not shared between threads

    def work(job: tuple[int, int]) -> NDArray[np.uint8]:
        frames = np.empty((job[1], *shape), dtype=np.uint8)
        dataset.decode(job[0], camera, frames)
        return frames

    pool = ThreadPoolExecutor(max(1, threads))
    ahead: deque[Future[NDArray[np.uint8]]] = deque()
    try:
        for job in jobs:
            ahead.append(pool.submit(work, job))
            if len(ahead) > 4 * threads:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _mapped(path: Path, shape: tuple[int, ...]) -> NDArray[np.uint8] | None:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError):
        return None
    return array if array.shape == shape and array.dtype == np.uint8 else None


def _cached(folder: Path, camera: str, shape: tuple[int, ...], parts: Iterator[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """Write the parts to the cache and map it; where the folder cannot be written, keep them in memory."""
    path = folder / f"{camera}.npy"
    temporary = temporary_name(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        stream = temporary.open("wb")
    except OSError:
        return _in_memory(shape, parts)
    _forget_others(folder)
    try:
        with stream:
            np.lib.format.write_array_header_1_0(stream, {"descr": "|u1", "fortran_order": False, "shape": shape})
            for part in parts:
                stream.write(part.data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except OSError as error:
        raise MachineError(f"frame cache {path} cannot be written ({error}); free some space, {int(np.prod(shape)) >> 20} MiB are needed") from error
    finally:
        temporary.unlink(missing_ok=True)
    mapped = _mapped(path, shape)
    if mapped is None:
        raise MachineError(f"frame cache {path} does not read back as it was written; check the disk")
    return mapped


def _in_memory(shape: tuple[int, ...], parts: Iterator[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    frames, row = np.empty(shape, dtype=np.uint8), 0
    for part in parts:
        frames[row : row + len(part)] = part
        row += len(part)
    return frames


def _forget_others(folder: Path) -> None:
    """Remove the caches of earlier contents; whoever still maps one keeps it."""
    for old in folder.parent.iterdir():
        if old != folder:
            shutil.rmtree(old, ignore_errors=True)


def _stack(columns: Iterable[NDArray[Any]]) -> NDArray[np.float32]:
    parts = [np.asarray(c, dtype=np.float32).reshape(len(c), -1) for c in columns]
    return np.concatenate(parts)
