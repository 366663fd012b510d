"""Group commits: many files for one sync, without ever taking for whole what a power cut has spoiled.

A killed process spoils nothing: what it renamed is complete in the kernel's memory. A machine that goes down
loses what was not synced, in any order, and may leave a name without its content. So a writer that puts syncs
off leaves a mark in the folder first, synced, that names machine, boot and process, and takes it away after
the sync. A mark of an earlier boot says: look before trusting.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

from simgap.episodes.write.files import commit, is_abandoned, sync_filesystem, this_host

_MARK = re.compile(
    r"^\.unsynced\.(?P<host>[A-Za-z0-9-]+)\.(?P<boot>[A-Za-z0-9-]+)\.(?P<pid>\d+)\.[0-9a-f]{8}$"
)
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_UNKNOWN = "unknown"


class Group:
    """The writes of one process to one folder since its last sync."""

    def __init__(
        self, folder: Path, every: int, every_s: float = 10.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Take the limits of a group.

        Args:
            folder: where the mark goes; must be on the filesystem of what is written.
            every: items between two syncs.
            every_s: seconds after which the next item is synced even so.
            clock: monotonic seconds.
        """
        self._folder, self._every, self._every_s, self._clock = folder, every, every_s, clock
        self._mark = folder / f".unsynced.{this_host()}.{_boot()}.{os.getpid()}.{os.urandom(4).hex()}"
        self._count, self._since = 0, 0.0

    def begin(self) -> None:
        """Say that something is about to be written; the first call of a group leaves the mark."""
        if self._count == 0:
            commit(self._mark, b"")
            _sync_folder(self._folder)
            self._since = self._clock()
        self._count += 1

    def end(self) -> None:
        """Say that it has been written; syncs when the group is full or old."""
        if self._count >= self._every or self._clock() - self._since >= self._every_s:
            self.settle()

    def settle(self) -> None:
        """Wait until all of it is on the disk."""
        if self._count:
            sync_filesystem(self._folder)
            self._mark.unlink(missing_ok=True)
            self._count = 0


class Doubt(StrEnum):
    """What the marks in a folder say of its files."""

    NONE = "all of them are on the disk, or a living process will see to it"
    KILLED = "a writer was killed; the files are whole but not yet synced"
    CRASHED = "a machine went down while it wrote; any file since its last sync may be spoiled"


def doubt(folder: Path) -> tuple[Doubt, list[Path]]:
    """Return what the marks of dead writers say, and those marks."""
    worst, marks = Doubt.NONE, []
    for path in sorted(folder.glob(".unsynced.*")):
        match = _MARK.match(path.name)
        if match is None:
            continue
        is_here, is_this_boot = match["host"] == this_host(), match["boot"] == _boot()
        has_gone_down = is_here and not is_this_boot
        if not has_gone_down and not is_abandoned(path, match["host"], int(match["pid"])):
            continue
        marks.append(path)
        was_only_killed = is_here and is_this_boot and match["boot"] != _UNKNOWN
        worst = Doubt.KILLED if was_only_killed and worst is not Doubt.CRASHED else Doubt.CRASHED
    return worst, marks


def _boot() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return _UNKNOWN


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
