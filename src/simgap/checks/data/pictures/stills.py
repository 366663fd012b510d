"""Can every stored picture be read: each one is decoded, by the decoder that a conversion uses, and all that fail are named."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from simgap.checks.data.report import DataFinding, Severity, listed
from simgap.episodes.formats.commands import convert_command
from simgap.episodes.formats.index import EpisodeEntry
from simgap.episodes.formats.layout import TUB
from simgap.episodes.reader import Dataset
from simgap.errors import DataError

_BLOCK_BYTES, _GROUP_BYTES = 4 << 20, 64 << 20
"""Decoded pictures that one thread holds; more where they lie in row groups, which are read whole."""
_THREADS = 8
_NAMED = 40


class Damage(NamedTuple):
    """One picture that cannot be read."""

    camera: str
    episode: int
    frame: int
    words: str


def check_stills(
    dataset: Dataset, progress: Callable[[int, int], None] | None = None
) -> tuple[dict[str, Any], list[DataFinding], frozenset[str]]:
    """Decode every picture that is stored by itself, and return how many, what is damaged, and the cameras looked at.

    Videos are looked at elsewhere: one damaged frame there spoils those behind it. A dataset of ours is
    compared with its fingerprint, which no damage passes.

    Args:
        dataset: what to read.
        progress: called with ``(pictures decoded, pictures)``.
    """
    cameras = [
        c
        for c, key in dataset.camera_keys.items()
        if not dataset.is_ours and dataset.source.has_pictures(key)
    ]
    jobs = [
        (c, entry, start, stop)
        for c in cameras
        for entry in dataset.entries
        for start, stop in _blocks(dataset, c, entry)
    ]
    total, done = sum(stop - start for *_, start, stop in jobs), 0
    damaged: list[Damage] = []
    with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as pool:
        for (*_, start, stop), found in zip(
            jobs, pool.map(lambda job: _damages(dataset, *job), jobs), strict=True
        ):
            damaged += found
            for _ in range(stop - start):
                done += 1
                if progress is not None:
                    progress(done, total)
    return (
        {"pictures_decoded": total, "damaged": len(damaged)},
        _finding(dataset, damaged, total),
        frozenset(cameras),
    )


def _blocks(dataset: Dataset, camera: str, entry: EpisodeEntry) -> Iterator[tuple[int, int]]:
    most = _GROUP_BYTES if dataset.info.is_lerobot else _BLOCK_BYTES
    size = max(1, most // max(1, int(np.prod(dataset.frame_shape(camera)))))
    for start in range(0, entry.length, size):
        yield start, min(entry.length, start + size)


def _damages(dataset: Dataset, camera: str, entry: EpisodeEntry, start: int, stop: int) -> list[Damage]:
    """Decode a block at once, which is what a conversion does, and one by one where that fails."""
    out = np.empty((stop - start, *dataset.frame_shape(camera)), dtype=np.uint8)
    try:
        dataset.decode(entry.index, camera, out, start)
        return []
    except DataError:
        pass  # found again below, with its frame
    found = []
    for k in range(start, stop):
        try:
            dataset.decode(entry.index, camera, out[:1], k)
        except DataError as error:
            found.append(Damage(camera, entry.index, k, str(error)))
    return found


def _finding(dataset: Dataset, damaged: list[Damage], total: int) -> list[DataFinding]:
    if not damaged:
        return []
    frames: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for d in damaged:
        frames[d.camera][str(d.episode)].append(d.frame)
    where = [f"frame {d.frame} of episode {d.episode} ({d.camera})" for d in damaged]
    numbers: dict[str, Any] = {"frames": frames, "of": total, "words": [d.words for d in damaged[:_NAMED]]}
    remedy = "copy them again"
    if dataset.info.version == TUB:
        records = sorted({int(dataset.entry(d.episode).extra["first_record"]) + d.frame for d in damaged})
        numbers["records"] = records
        where = [f"record {r}" for r in records]
        remedy += (
            f", or delete these records: add {listed([str(r) for r in records], _NAMED)} to deleted_indexes"
            " in the last line of manifest.json"
        )
    else:
        episodes = {d.episode for d in damaged}
        whole = [e.index for e in dataset.entries if e.length > 0 and e.index not in episodes]
        if whole:
            remedy += (
                ", or leave their episodes out:"
                f" {convert_command(dataset, '--episodes', ','.join(map(str, whole)))}"
            )
    return [
        DataFinding(
            code="damaged_pictures",
            severity=Severity.FAULT,
            sentence=(
                f"{len(damaged)} of {total} stored pictures cannot be read: {listed(where, 12)}; the first:"
                f" {damaged[0].words}"
            ),
            remedy=remedy,
            feature=damaged[0].camera,
            numbers=numbers,
        )
    ]
