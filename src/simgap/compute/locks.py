"""One writer at a time in a folder: a second one leaves with a sentence, or waits where the work is shared.

The folder itself is locked, so nothing is left lying about, and a killed holder frees it. Processes of one
machine see each other, and those of several where the filesystem passes locks on; one that cannot lock a
folder (some network mounts) lets everybody in, as before.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from simgap.errors import BusyError

_HELD = (errno.EWOULDBLOCK, errno.EACCES)


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Work in a folder, made if it is not there, as its only writer; an empty one that was made is taken away again.

    Raises:
        BusyError: another process, or another part of this one, is writing into it.
    """
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _HELD:
                raise BusyError(_told(folder, handle)) from None
        yield
    finally:
        if is_new:
            with suppress(OSError):  # something was written, or somebody else took it away
                folder.rmdir()
        os.close(handle)


def _told(folder: Path, handle: int) -> str:
    who = holder_of(handle)
    by = "another process" if who is None else f"process {who}"
    return (
        f"{by} is writing into {folder}; wait for it to end and run the same command again, or choose another"
        " --out"
    )


def holder_of(handle: int) -> int | None:
    """Return the process that holds the lock of an open folder, as far as Linux says it."""
    number = os.fstat(handle).st_ino
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    for fields in map(str.split, lines):
        if (
            len(fields) >= 6
            and fields[1] == "FLOCK"
            and fields[5].rpartition(":")[2] == str(number)
            and fields[4].isdigit()
        ):
            return int(fields[4]) or None
    return None
