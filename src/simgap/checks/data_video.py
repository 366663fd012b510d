"""Do the cameras see: black, frozen, damaged or ill-timed videos, looked at through their key frames."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simgap.checks.data_report import DataFinding, Severity, listed
from simgap.episodes.index import EpisodeEntry, VideoSpan
from simgap.episodes.reader import Dataset
from simgap.episodes.video import VideoShape, iterate_frames, video_shape
from simgap.errors import DataError

MOST_VIDEOS = 120
_MOST_FRAMES = 24
_BLACK_MEAN = 8.0
_BLACK_STD = 4.0
_FROZEN = 10.0
"""Compression alone moves a pixel by less than this between key frames; a moving arm and camera noise by more."""


class _Look(NamedTuple):
    """What one video looked like."""

    where: str
    camera: str
    shape: VideoShape | None
    mean: float
    spread: float
    """Standard deviation over pixels, of 255."""
    motion: float
    """Largest difference of any looked-at pixel from the first frame, of 255."""
    error: str
    outside: str = ""
    """What of the episode lies outside the file, in words."""


def check_videos(dataset: Dataset) -> tuple[dict[str, Any], list[DataFinding]]:
    """Return what was looked at and the findings; at most :data:`MOST_VIDEOS` videos, evenly spread, and never silently fewer."""
    jobs: list[tuple[EpisodeEntry, str, VideoSpan]] = []
    for name, key in dataset.camera_keys.items():
        jobs += [(e, name, e.videos[key]) for e in dataset.entries if e.length > 0 and key in e.videos and e.videos[key].exists]
    chosen = jobs if len(jobs) <= MOST_VIDEOS else [jobs[k] for k in np.linspace(0, len(jobs) - 1, MOST_VIDEOS).astype(int)]
    looks = [_look(dataset, entry, camera, span) for entry, camera, span in chosen]
    measured = {"inspected": len(looks), "present": len(jobs)}
    return measured, [*_damaged(looks), *_outside(looks), *_black(looks), *_frozen(looks), *_declared(dataset, looks)]


def _look(dataset: Dataset, entry: EpisodeEntry, camera: str, span: VideoSpan) -> _Look:
    where = f"episode {entry.index}"
    stop = span.start_s + entry.length / dataset.info.rate_hz
    try:
        shape = video_shape(span.path)
        outside = _beyond(span.start_s, stop, shape)
        if outside:
            return _Look(where, camera, shape, np.nan, np.nan, np.nan, "", outside)
        frames: list[NDArray[np.float32]] = []
        for time_s, image in iterate_frames(span.path, span.start_s, key_frames_only=True):
            if time_s < span.start_s - 1e-3 and frames == []:
                continue
            if time_s >= stop or len(frames) >= _MOST_FRAMES:
                break
            frames.append(image[::4, ::4].astype(np.float32))
        if not frames:
            return _Look(where, camera, shape, np.nan, np.nan, np.nan, "")
        stack = np.stack(frames)
        motion = float(np.abs(stack - stack[0]).max()) if len(frames) > 1 else np.nan
        return _Look(where, camera, shape, float(stack.mean()), float(stack.std()), motion, "")
    except DataError as error:
        return _Look(where, camera, None, np.nan, np.nan, np.nan, str(error))


def _beyond(start_s: float, stop_s: float, shape: VideoShape) -> str:
    """Say what part of a span a file does not hold; nothing where the container declares no length."""
    length_s = shape.frames / shape.rate_hz if shape.frames and shape.rate_hz else np.inf
    if not start_s >= 0.0:  # NaN too
        return f"starts at {start_s:g} s"
    return f"needs {start_s:.2f} to {stop_s:.2f} s of a file of {length_s:.2f} s" if stop_s > length_s + 1.5 / (shape.rate_hz or 1.0) else ""


def _outside(looks: list[_Look]) -> list[DataFinding]:
    bad = [v for v in looks if v.outside]
    if not bad:
        return []
    return [
        DataFinding(
            code="video_too_short",
            severity=Severity.FAULT,
            sentence=f"{len(bad)} of {len(looks)} videos looked at do not hold their episode: {listed([f'{v.camera} in {v.where} {v.outside}' for v in bad])}",
            remedy="correct from_timestamp in meta/episodes, or copy the video again; frames are looked up by time and would be those of another moment",
            feature=bad[0].camera,
            numbers={"videos": [f"{v.camera} {v.where}" for v in bad]},
        )
    ]


def _damaged(looks: list[_Look]) -> list[DataFinding]:
    bad = [v for v in looks if v.error]
    if not bad:
        return []
    return [
        DataFinding(
            code="damaged_videos",
            severity=Severity.FAULT,
            sentence=f"{len(bad)} videos cannot be decoded: {bad[0].error}",
            remedy="copy or download them again, or drop their episodes",
            feature=bad[0].camera,
            numbers={"videos": [f"{v.camera} {v.where}" for v in bad]},
        )
    ]


def _black(looks: list[_Look]) -> list[DataFinding]:
    bad = [v for v in looks if v.mean < _BLACK_MEAN and v.spread < _BLACK_STD]
    if not bad:
        return []
    return [
        DataFinding(
            code="black_video",
            severity=Severity.FAULT,
            sentence=f"{len(bad)} of {len(looks)} videos looked at are black: {listed([f'{v.camera} in {v.where} (mean {v.mean:.1f} of 255)' for v in bad])}",
            remedy="drop these episodes or this camera; check the camera's cable and exposure",
            feature=bad[0].camera,
            numbers={"mean": {f"{v.camera} {v.where}": v.mean for v in bad}},
        )
    ]


def _frozen(looks: list[_Look]) -> list[DataFinding]:
    bad = [v for v in looks if v.motion < _FROZEN and v.mean >= _BLACK_MEAN]
    if not bad:
        return []
    return [
        DataFinding(
            code="frozen_video",
            severity=Severity.WARNING,
            sentence=f"{len(bad)} videos show one unchanging picture: {listed([f'{v.camera} in {v.where}' for v in bad])}",
            remedy="look at them; a camera that froze teaches the policy to ignore it",
            feature=bad[0].camera,
            numbers={"videos": [f"{v.camera} {v.where}" for v in bad]},
        )
    ]


def _declared(dataset: Dataset, looks: list[_Look]) -> list[DataFinding]:
    sizes, rates = {}, {}
    for look in looks:
        if look.shape is None:
            continue
        declared = dataset.frame_shape(look.camera)[:2]
        if (look.shape.height, look.shape.width) != declared:
            sizes[look.camera] = {"declared": list(declared), "found": [look.shape.height, look.shape.width]}
        if look.shape.rate_hz and abs(look.shape.rate_hz / dataset.info.rate_hz - 1.0) > 0.01:
            rates[look.camera] = {"declared_hz": dataset.info.rate_hz, "found_hz": look.shape.rate_hz}
    found = []
    if sizes:
        found.append(
            DataFinding(
                code="image_size_mismatch",
                severity=Severity.FAULT,
                sentence="videos have another size than declared: " + listed([f"{k} declared {v['declared']}, found {v['found']}" for k, v in sizes.items()]),
                remedy="correct the shape in info.json",
                numbers=sizes,
            )
        )
    if rates:
        found.append(
            DataFinding(
                code="video_rate_mismatch",
                severity=Severity.FAULT,
                sentence="videos run at another rate than the data: "
                + listed([f"{k} {v['found_hz']:.2f} fps, info.json {v['declared_hz']:g}" for k, v in rates.items()]),
                remedy="encode the videos at the rate of the data; LeRobot looks frames up by time",
                numbers=rates,
            )
        )
    return found
