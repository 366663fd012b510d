"""Videos of failures, to look at: cameras side by side, at the control rate."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from simgap.episodes.encoders import ENCODINGS, VideoEncoder
from simgap.provenance import write_atomic
from simgap.rollouts.record import RolloutRecord

LONGEST_MODE = 60
"""Characters of a failure's name in that of its video: wrapped envs name failures as they like, file systems take 255."""


def write_videos(folder: Path, records: Iterable[RolloutRecord], rate_hz: float) -> list[Path]:
    """Write an H.264 video of every failure whose frames were all kept, and return the files.

    Args:
        folder: where they go; made with the first one.
        records: successes and strips among them are left out.
        rate_hz: control steps a second, which a frame of each is.
    """
    written = []
    encoder = VideoEncoder("h264", ENCODINGS["h264"], rate_hz)
    for record in records:
        if record.outcome.is_success or not record.is_filmed_whole:
            continue
        frames = np.concatenate([record.film[camera] for camera in sorted(record.film)], axis=2)
        even = frames[:, : frames.shape[1] // 2 * 2, : frames.shape[2] // 2 * 2]
        if even.size == 0:
            continue  # nothing of an image of one pixel can be seen
        folder.mkdir(parents=True, exist_ok=True)
        mode = re.sub("[^A-Za-z0-9]+", "-", record.outcome.detail or str(record.outcome.kind))[:LONGEST_MODE]
        path = folder / f"{mode}-seed-{record.seed}.mp4"
        write_atomic(path, encoder.encode(np.ascontiguousarray(even)))
        written.append(path)
    return written
