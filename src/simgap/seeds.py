"""Seeds by purpose: training, screening, reporting and trials never share one."""

from __future__ import annotations

import hashlib
from enum import StrEnum


class Purpose(StrEnum):
    """What a seed is for; a seed of one purpose is never drawn for another."""

    TRAIN = "train"
    TARGET = "target"
    SELECT = "select"
    REPORT = "report"
    TRIAL = "trial"
    REPLAY = "replay"


def seed_of(purpose: Purpose, root: int, index: int) -> int:
    """Return a 62-bit seed; two purposes, roots or indices share one with probability 2^-62."""
    digest = hashlib.sha256(f"{purpose}/{root}/{index}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 2
