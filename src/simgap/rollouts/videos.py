"""Videos of failures, to look at: cameras side by side, at the control rate."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from urllib.parse import quote

import numpy as np

from simgap.episodes.write.encoders import ENCODINGS, VideoEncoder
from simgap.provenance import write_atomic
from simgap.rollouts.record import RolloutRecord

INDEX = "index.html"
"""Page beside the videos that shows them all."""
LONGEST_MODE = 60
"""Characters of a failure's name in that of its video: wrapped envs name failures as they like, file systems take 255."""


def write_videos(folder: Path, records: Iterable[RolloutRecord], rate_hz: float) -> list[Path]:
    """Write an H.264 video of every failure whose frames were all kept, with a page that lists them, and return the videos.

    Args:
        folder: where they go; made with the first one.
        records: successes and strips among them are left out.
        rate_hz: control steps a second, which a frame of each is.
    """
    written: list[Path] = []
    seen: list[tuple[str, RolloutRecord]] = []
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
        seen.append((path.name, record))
    if seen:
        write_atomic(folder / INDEX, _page(seen))
    return written


def _page(seen: Sequence[tuple[str, RolloutRecord]]) -> str:
    """Return a page that shows every video with its failure, seed and length, and asks nothing of the network."""
    rows = []
    for name, record in sorted(seen, key=lambda item: (str(item[1].outcome), item[1].seed)):
        cameras = ", ".join(sorted(record.film))
        about = (
            f"{record.outcome.detail or record.outcome.kind}: seed {record.seed}, {record.steps} steps;"
            f" {cameras}"
        )
        rows.append(
            f'<figure><video src="{quote(name)}" controls loop muted'
            f' preload="metadata"></video><figcaption>{escape(about)}</figcaption></figure>'
        )
    head = '<!doctype html><html lang="en"><meta charset="utf-8"><title>Failures</title>'
    style = (
        "<style>body{font:16px sans-serif;margin:2em}figure{display:inline-block;margin:0 1em 1em"
        " 0}video{min-width:320px}</style>"
    )
    return f"{head}{style}<h1>{len(seen)} failures on video</h1>{''.join(rows)}</html>\n"
