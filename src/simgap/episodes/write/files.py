"""Whole files or none: atomic writes that a killed process cannot spoil, and the sweep of what it left behind."""

from __future__ import annotations

import ctypes
import functools
import os
import re
import socket
import sys
import time
from pathlib import Path

_TEMPORARY = re.compile(r"^\..+\.(?P<host>[A-Za-z0-9-]+)\.(?P<pid>\d+)\.[0-9a-f]{8}\.tmp$")
_FOREIGN_HOST_AGE_S = 24 * 3600.0


def temporary_name(path: Path) -> Path:
    """Return a hidden name beside a file that says which process of which machine is writing it."""
    return path.with_name(f".{path.name}.{this_host()}.{os.getpid()}.{os.urandom(4).hex()}.tmp")


def commit(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Write a whole file or nothing: temporary name in the same folder, fsync, rename.

    Args:
        path: the file.
        data: its content.
        durable: False leaves out the fsync: no killed process can spoil the file then, but a power cut can.
    """
    temporary = temporary_name(path)
    try:
        try:
            stream = temporary.open("wb")
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            stream = temporary.open("wb")
        with stream:
            stream.write(data)
            if durable:
                stream.flush()
                os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def commit_new(path: Path, data: bytes) -> bool:
    """Write a file only where none is yet; return False, and leave the other, where one is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_name(path)
    try:
        with temporary.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink(missing_ok=True)
    return True


def sync_filesystem(folder: Path) -> None:
    """Wait until everything written so far to the filesystem of a folder is on the disk."""
    if sys.platform != "linux":
        os.sync()
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(handle):
            raise OSError(ctypes.get_errno(), f"cannot sync {folder}")
    finally:
        os.close(handle)


def is_temporary(name: str) -> bool:
    """Return whether a file name is one of :func:`temporary_name`."""
    return _TEMPORARY.match(name) is not None


def sweep(root: Path) -> list[Path]:
    """Remove temporary files whose writer is dead, and return them; files of live writers stay."""
    removed = []
    for path in sorted(root.rglob(".*.tmp")):
        match = _TEMPORARY.match(path.name)
        if match and is_abandoned(path, match["host"], int(match["pid"])):
            path.unlink(missing_ok=True)
            removed.append(path)
    return removed


def is_abandoned(path: Path, host: str, pid: int) -> bool:
    """Return whether the process that made a file is gone; one of another machine once the file is a day old."""
    if host != this_host():
        try:
            return time.time() - path.stat().st_mtime > _FOREIGN_HOST_AGE_S
        except FileNotFoundError:
            return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    """Return whether a process has ended and only its parent has not asked yet; init processes of containers may never ask."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("Z", "X")
    except (OSError, IndexError):
        return False


@functools.cache
def this_host() -> str:
    """Return this machine's name as it can stand in a file name."""
    return re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname()) or "host"
