"""Stages cached by content: what went in decides the folder, so equal work is done once and shared."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from simgap.provenance import content_hash


class StageCache:
    """Folders named by the hash of everything a stage depends on."""

    def __init__(self, root: Path) -> None:
        """Use ``root``; it is made when the first stage runs."""
        self.root = root

    def folder(self, stage: str, key: Any) -> Path:
        """Return the folder of a stage for a JSON-able key."""
        return self.root / stage / content_hash(key)[:20]

    @contextmanager
    def holding(self, folder: Path) -> Iterator[Path]:
        """Let one process at a time work in a folder; others wait and then find the work done."""
        folder.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder.parent / f".{folder.name}.lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield folder
        finally:
            os.close(handle)
