"""Whole files or none: atomic writes that a killed process cannot spoil, and the sweep of what it left behind."""

from __future__ import annotations

import os
import re
import socket
import time
from pathlib import Path

_TEMPORARY = re.compile(r"^\..+\.(?P<host>[A-Za-z0-9-]+)\.(?P<pid>\d+)\.[0-9a-f]{8}\.tmp$")
_FOREIGN_HOST_AGE_S = 24 * 3600.0


def temporary_name(path: Path) -> Path:
    """Return a hidden name beside a file that says which process of which machine is writing it."""
    return path.with_name(f".{path.name}.{_host()}.{os.getpid()}.{os.urandom(4).hex()}.tmp")


def commit(path: Path, data: bytes) -> None:
    """Write a whole file or nothing: temporary name in the same folder, fsync, rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_name(path)
    try:
        with temporary.open("wb") as stream:
            stream.write(data)
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


def is_temporary(name: str) -> bool:
    """Return whether a file name is one of :func:`temporary_name`."""
    return _TEMPORARY.match(name) is not None


def sweep(root: Path) -> list[Path]:
    """Remove temporary files whose writer is dead, and return them; files of live writers stay."""
    removed = []
    for path in sorted(root.rglob(".*.tmp")):
        match = _TEMPORARY.match(path.name)
        if match and _is_abandoned(path, match["host"], int(match["pid"])):
            path.unlink(missing_ok=True)
            removed.append(path)
    return removed


def _is_abandoned(path: Path, host: str, pid: int) -> bool:
    if host != _host():
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
    return False


def _host() -> str:
    return re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname()) or "host"
