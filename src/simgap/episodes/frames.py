"""All frames of a dataset in memory, decoded once: a content-addressed cache beside the dataset is mapped on later loads.

Memory stays bounded: frames go from the decoder to the file in blocks, and what is read later is mapped, not
loaded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.conventions import require_same
from simgap.episodes.formats.keymap import KeyMap
from simgap.episodes.formats.layout import CACHE
from simgap.episodes.frame_cache import file_name, mapped, user_cache, written
from simgap.episodes.reader import Dataset, open_dataset
from simgap.episodes.table import FrameTable
from simgap.errors import ConventionError, DataError
from simgap.provenance import content_hash

__all__ = ["CACHE", "concatenate", "load_frames"]

_CACHE_VERSION = "frames-2"
MOST_GOALS = 64
"""Different tasks of one dataset up to which each can be an input of its own."""
IN_FLIGHT_BYTES = 256 << 20
"""Decoded frames that may wait to be written, over all threads."""


def load_frames(
    root: Path | Dataset,
    *,
    cameras: Sequence[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
    threads: int = 2,
    keymap: KeyMap | None = None,
    said: Callable[[str], None] = lambda text: None,
) -> FrameTable:
    """Return every frame of a dataset as arrays, images as ``(N, H, W, 3)`` uint8.

    The first load decodes (thousands of frames a second a core) and keeps the result beside the dataset under
    the content fingerprint; later loads map that file and cost nothing. Where the dataset's folder cannot be
    written the cache goes to the user's own (``$XDG_CACHE_HOME/simgap``), and only where that fails too the
    images stay in memory.

    Args:
        root: dataset, or its folder or file.
        cameras: names to load; all by default.
        progress: called with ``(episodes decoded, episodes to decode)``, cameras counted one by one.
        threads: decoding threads.
        keymap: as in :func:`~simgap.episodes.reader.open_dataset`.
        said: told in one line where cached frames were changed since they were decoded, and are decoded
            again.

    Raises:
        DataError: an unknown camera, damaged files, or content that changed since it was finished.
        MachineError: no disk for the cache, or no memory where no cache can be written.
    """
    dataset = root if isinstance(root, Dataset) else open_dataset(root, keymap)
    wanted = tuple(dataset.spec.cameras) if cameras is None else tuple(cameras)
    unknown = sorted(set(wanted) - set(dataset.spec.cameras))
    if unknown:
        raise DataError(f"{dataset.root} has no cameras {unknown}; it has {sorted(dataset.spec.cameras)}")
    actions, states = [], []
    for entry in dataset.entries:
        columns = dataset.columns(entry.index)
        actions.append(_rows(columns[dataset.action_key], len(dataset.spec.action_spec)))
        states.append(_rows(columns[dataset.state_key], len(dataset.spec.state_spec)))
        if entry.length != len(actions[-1]):
            raise DataError(
                f"{entry.data} holds {len(actions[-1])} frames of episode {entry.index}, its index row says"
                f" {entry.length}; repair meta or data"
            )
    starts = np.concatenate([[0], np.cumsum([len(a) for a in actions])]).astype(np.int64)
    identity = dataset.identify()
    images = _images(dataset, wanted, starts, identity.frames, progress, threads, said)
    goals, goal = _goals(dataset, starts)
    return FrameTable(
        images=images,
        state=np.concatenate(states),
        action=np.concatenate(actions),
        episode_start=starts,
        action_spec=dataset.spec.action_spec,
        state_spec=dataset.spec.state_spec,
        fingerprint=identity.fingerprint,
        env=str(dataset.spec.stamp.fields.get("env", "")),
        goals=goals,
        goal=goal,
    )


def _goals(dataset: Dataset, starts: NDArray[np.int64]) -> tuple[tuple[str, ...], NDArray[np.float32] | None]:
    """Return the tasks of a dataset and which one each frame belongs to; nothing where an episode names none, or they are too many to be choices."""
    named = [entry.tasks[0] if entry.tasks else "" for entry in dataset.entries]
    goals = tuple(sorted(set(named)))
    if not goals or "" in goals or len(goals) > MOST_GOALS:
        return (), None
    choice = np.array([goals.index(name) for name in named], dtype=np.int64)
    return goals, np.eye(len(goals), dtype=np.float32)[np.repeat(choice, np.diff(starts))]


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
            raise ConventionError(
                f"images differ: {first.fingerprint[:12]} has {shapes[0]}, {other.fingerprint[:12]} has"
                f" {shapes[1]}; render or resize alike"
            )
    offsets = np.cumsum([0] + [len(t) for t in tables[:-1]])
    starts = [t.episode_start[:-1] + o for t, o in zip(tables, offsets, strict=True)]
    goals, goal = _united_goals(tables)
    return FrameTable(
        images={c: np.concatenate([t.images[c] for t in tables]) for c in first.images},
        state=np.concatenate([t.state for t in tables]),
        action=np.concatenate([t.action for t in tables]),
        episode_start=np.concatenate([*starts, [sum(len(t) for t in tables)]]).astype(np.int64),
        action_spec=first.action_spec,
        state_spec=first.state_spec,
        env=first.env if all(t.env == first.env for t in tables) else "",
        fingerprint=first.fingerprint if len(tables) == 1 else content_hash([t.fingerprint for t in tables]),
        goals=goals,
        goal=goal,
    )


def _united_goals(tables: Sequence[FrameTable]) -> tuple[tuple[str, ...], NDArray[np.float32] | None]:
    given = [(t.goals, t.goal) for t in tables if t.goal is not None]
    if len(given) < len(tables):
        return (), None
    goals = tuple(sorted({g for names, _ in given for g in names}))
    columns = []
    for names, goal in given:
        columns.append(np.zeros((len(goal), len(goals)), dtype=np.float32))
        columns[-1][:, [goals.index(n) for n in names]] = goal
    return goals, np.concatenate(columns)


def _images(
    dataset: Dataset,
    cameras: tuple[str, ...],
    starts: NDArray[np.int64],
    identity: str,
    progress: Callable[[int, int], None] | None,
    threads: int,
    said: Callable[[str], None],
) -> dict[str, NDArray[np.uint8]]:
    name = f"{_CACHE_VERSION}-{identity[:16]}"
    shapes = {c: (int(starts[-1]), *dataset.frame_shape(c)) for c in cameras}
    places = [dataset.cache_folder / name, user_cache() / name]
    files = {c: file_name(dataset.camera_key(c), c) for c in cameras}
    cached = {
        c: array
        for c in cameras
        for place in reversed(places)
        if (array := mapped(place / files[c], shapes[c], said)) is not None
    }
    missing = [c for c in cameras if c not in cached]
    total, done = len(missing) * dataset.n_episodes, 0
    for camera in missing:
        parts = _decoded(dataset, camera, starts, threads, _Counter(progress, total, done))
        cached[camera] = written(places, files[camera], shapes[camera], parts)
        done += dataset.n_episodes
    return {c: cached[c] for c in cameras}


class _Counter:
    """Tells how many episodes are decoded."""

    def __init__(self, report: Callable[[int, int], None] | None, total: int, done: int) -> None:
        self._report, self._total, self._done = report, total, done

    def add(self) -> None:
        self._done += 1
        if self._report is not None:
            self._report(self._done, self._total)


def _decoded(
    dataset: Dataset, camera: str, starts: NDArray[np.int64], threads: int, counter: _Counter
) -> Iterator[NDArray[np.uint8]]:
    """Yield the frames of one camera in order: short episodes decoded a few ahead, long ones block by block."""
    shape = dataset.frame_shape(camera)
    jobs = [(e.index, int(b - a)) for e, (a, b) in zip(dataset.entries, pairwise(starts), strict=True)]
    frame_bytes = int(np.prod(shape))
    block = max(1, IN_FLIGHT_BYTES // frame_bytes)
    longest = max((length for _, length in jobs), default=1)

    def work(index: int, length: int, start: int = 0) -> NDArray[np.uint8]:
        frames = np.empty((length, *shape), dtype=np.uint8)
        dataset.decode(index, camera, frames, start)
        return frames

    ahead_most = min(4 * threads, block // max(1, longest))
    if ahead_most < 2:
        for index, length in jobs:
            for start in range(0, length, max(1, block // 2)):
                yield work(index, min(max(1, block // 2), length - start), start)
            counter.add()
        return
    pool = ThreadPoolExecutor(max(1, threads))
    ahead: deque[Future[NDArray[np.uint8]]] = deque()
    try:
        for index, length in jobs:
            ahead.append(pool.submit(work, index, length))
            if len(ahead) >= ahead_most:
                yield ahead.popleft().result()
                counter.add()
        while ahead:
            yield ahead.popleft().result()
            counter.add()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _rows(values: NDArray[Any], width: int) -> NDArray[np.float32]:
    return (
        np.asarray(values, dtype=np.float32).reshape(len(values), -1)
        if len(values)
        else np.zeros((0, width), dtype=np.float32)
    )
