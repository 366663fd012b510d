"""Writing many episodes into one dataset: by several processes, in bounded memory, and again from where it was killed."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from simgap.compute.locks import alone_in
from simgap.compute.workers import TaskRunner
from simgap.episodes.reader import Dataset, open_dataset
from simgap.episodes.spec import DatasetSpec
from simgap.episodes.write.store import EpisodeWriter, release_claim
from simgap.errors import DataError

SYNC_EVERY = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Converted:
    """What a conversion wrote."""

    root: Path
    fingerprint: str
    episodes: int
    frames: int
    found: int
    """Episodes that an earlier, interrupted run had written."""
    notes: tuple[str, ...]
    videos_copied: bool = False
    """True where videos were taken over as they are, not compressed a second time."""


def fitting_workers(datasets: Sequence[Dataset], workers: int) -> int:
    """Return how many processes may each hold the longest episode decoded, and its copy, in half of the free memory."""
    frame = max(
        (
            sum(int(np.prod(d.frame_shape(c))) for c in d.spec.cameras)
            * max((e.length for e in d.entries), default=0)
            for d in datasets
        ),
        default=0,
    )
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(workers, max(1, int(0.5 * free) // max(1, 2 * frame)))


def write_all(
    out: Path,
    spec: DatasetSpec,
    setup: Callable[..., EpisodeWork],
    setup_args: Sequence[Any],
    jobs: Sequence[tuple[int, ...]],
    workers: int,
    progress: Callable[[int, int], None] | None,
    runner: TaskRunner,
    notes: Sequence[str] = (),
) -> Converted:
    """Write the episodes that are missing and finish; a job begins with the index to write.

    Raises:
        BusyError: another process is writing into the folder.
    """
    with alone_in(out):
        release_claim(out)
        return _write_all(out, spec, setup, setup_args, jobs, workers, progress, runner, notes)


def _write_all(
    out: Path,
    spec: DatasetSpec,
    setup: Callable[..., EpisodeWork],
    setup_args: Sequence[Any],
    jobs: Sequence[tuple[int, ...]],
    workers: int,
    progress: Callable[[int, int], None] | None,
    runner: TaskRunner,
    notes: Sequence[str],
) -> Converted:
    writer = EpisodeWriter(out, spec)
    done = writer.done()
    beyond = sorted(done - {job[0] for job in jobs})
    if beyond:
        raise DataError(
            f"{out} holds episodes {beyond[:5]} that this request does not make; give a new --out"
        )
    count = len(done)

    def on_result(_: int) -> None:
        nonlocal count
        count += 1
        if progress is not None:
            progress(count, len(jobs))

    missing = [job for job in jobs if job[0] not in done]
    runner(setup, setup_args, missing, workers=workers, on_result=on_result)
    fingerprint = writer.finish()
    written = open_dataset(out)
    return Converted(
        root=out,
        fingerprint=fingerprint,
        episodes=written.n_episodes,
        frames=written.n_frames,
        found=len(done),
        notes=tuple(notes),
    )


class EpisodeWork(ABC):
    """What a process does with its jobs, each of which begins with the index to write; what it wrote is on the disk when it is left."""

    def __init__(self, out: Path, spec: DatasetSpec) -> None:
        """Open the output for this process."""
        self.writer = EpisodeWriter(out, spec, sync_every=SYNC_EVERY)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.writer.flush()

    @abstractmethod
    def __call__(self, job: tuple[int, ...]) -> int:
        """Write one episode and return its index."""
