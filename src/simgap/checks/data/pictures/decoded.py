"""Do the cameras see: black, flat, frozen, damaged or ill-timed videos, looked at through frames spread over each episode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from simgap.checks.data.pictures.camera_changes import check_camera_changes
from simgap.checks.data.pictures.nearly_frozen import check_nearly_frozen
from simgap.checks.data.pictures.stills import check_stills
from simgap.checks.data.pictures.stored import check_pictures
from simgap.checks.data.pooled import Pooled
from simgap.checks.data.report import DataFinding, Severity, listed
from simgap.episodes.formats.index import EpisodeEntry
from simgap.episodes.reader import Dataset
from simgap.measures.glimpses import Glimpse, Looker

MOST_VIDEOS = 120
_BLACK_MEAN = 8.0
_BLACK_STD = 4.0
_FLAT_STD = 2.0
"""Spread of a picture without any content, of 255: compression leaves less of one colour, a dark scene with noise more."""
_FROZEN = 10.0
"""Compression alone moves a pixel by less than this between key frames; a moving arm and camera noise by more."""


def check_videos(
    pooled: Pooled, progress: Callable[[int, int], None] | None = None
) -> tuple[dict[str, Any], list[DataFinding]]:
    """Return what was looked at and the findings; at most :data:`MOST_VIDEOS` videos, evenly spread, and never silently fewer."""
    dataset = pooled.dataset
    jobs = [
        (e, name)
        for e in dataset.entries
        for name in dataset.camera_keys
        if e.length > 0 and _is_there(dataset, e, name)
    ]
    looker = Looker(dataset)
    stills, still_findings, told = check_stills(dataset, progress)
    looks = [looker.look(entry, camera) for entry, camera in _spread(jobs, len(dataset.camera_keys))]
    looks = [g for g in looks if not (g.error and g.camera in told)]  # named there, picture by picture
    seen = [g for g in looks if len(g.frames)]
    pictures, picture_findings = check_pictures(pooled, looker, seen)
    compared, change_findings = check_camera_changes(seen)
    exact = {w for f in picture_findings if f.code == "frozen_segment" for w in f.numbers["segments"]} | {
        g.where for g in seen if g.motion < _FROZEN
    }
    nearly = check_nearly_frozen(pooled, seen, frozenset(exact))
    measured: dict[str, Any] = {
        "inspected": len(looks),
        "present": len(jobs),
        "seen_in_key_frames_only": looker.coarse,
        "cameras": pictures,
        "stills": stills,
    }
    measured["compared_over_episodes"] = compared
    return measured, [
        *still_findings,
        *_damaged(looks),
        *_outside(looks),
        *_black(looks),
        *_flat(looks),
        *_frozen(looks),
        *_declared(dataset, looks),
        *picture_findings,
        *nearly,
        *change_findings,
    ]


def _is_there(dataset: Dataset, entry: EpisodeEntry, camera: str) -> bool:
    key = dataset.camera_key(camera)
    return entry.videos[key].exists if key in entry.videos else dataset.info.features[key].dtype != "video"


def _spread(jobs: list[tuple[EpisodeEntry, str]], cameras: int) -> list[tuple[EpisodeEntry, str]]:
    """Return all cameras of evenly spread episodes, so that cameras of one episode can be compared."""
    if len(jobs) <= MOST_VIDEOS:
        return jobs
    episodes = list(dict.fromkeys(e.index for e, _ in jobs))
    kept = {
        episodes[k] for k in np.linspace(0, len(episodes) - 1, max(1, MOST_VIDEOS // cameras)).astype(int)
    }
    return [job for job in jobs if job[0].index in kept]


def _outside(looks: list[Glimpse]) -> list[DataFinding]:
    bad = [v for v in looks if v.outside]
    if not bad:
        return []
    return [
        DataFinding(
            code="video_too_short",
            severity=Severity.FAULT,
            sentence=(
                f"{len(bad)} of {len(looks)} videos looked at do not hold their episode:"
                f" {listed([f'{v.where} {v.outside}' for v in bad])}"
            ),
            remedy=(
                "correct from_timestamp in meta/episodes, or copy the video again; frames are looked up by"
                " time and would be those of another moment"
            ),
            feature=bad[0].camera,
            numbers={"videos": [v.where for v in bad]},
        )
    ]


def _damaged(looks: list[Glimpse]) -> list[DataFinding]:
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
            numbers={"videos": [v.where for v in bad]},
        )
    ]


def _black(looks: list[Glimpse]) -> list[DataFinding]:
    bad = [v for v in looks if v.mean < _BLACK_MEAN and v.spread < _BLACK_STD]
    if not bad:
        return []
    return [
        DataFinding(
            code="black_video",
            severity=Severity.FAULT,
            sentence=(
                f"{len(bad)} of {len(looks)} videos looked at are black:"
                f" {listed([f'{v.where} (mean {v.mean:.1f} of 255)' for v in bad])}"
            ),
            remedy="drop these episodes or this camera; check the camera's cable and exposure",
            feature=bad[0].camera,
            numbers={"mean": {v.where: v.mean for v in bad}},
        )
    ]


def _flat(looks: list[Glimpse]) -> list[DataFinding]:
    bad = [v for v in looks if v.spread < _FLAT_STD and v.mean >= _BLACK_MEAN]
    if not bad:
        return []
    return [
        DataFinding(
            code="flat_video",
            severity=Severity.FAULT,
            sentence=(
                f"{len(bad)} of {len(looks)} videos are one colour:"
                f" {listed([f'{v.where} (mean {v.mean:.0f}, spread {v.spread:.1f})' for v in bad])}"
            ),
            remedy=(
                "decode them with another decoder; a picture of one colour is a camera that failed or a codec"
                " that did"
            ),
            feature=bad[0].camera,
            numbers={"spread": {v.where: v.spread for v in bad}},
        )
    ]


def _frozen(looks: list[Glimpse]) -> list[DataFinding]:
    bad = [v for v in looks if v.motion < _FROZEN and v.mean >= _BLACK_MEAN and v.spread >= _FLAT_STD]
    if not bad:
        return []
    return [
        DataFinding(
            code="frozen_video",
            severity=Severity.WARNING,
            sentence=f"{len(bad)} videos show one unchanging picture: {listed([v.where for v in bad])}",
            remedy="look at them; a camera that froze teaches the policy to ignore it",
            feature=bad[0].camera,
            numbers={"videos": [v.where for v in bad]},
        )
    ]


def _declared(dataset: Dataset, looks: list[Glimpse]) -> list[DataFinding]:
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
                sentence="videos have another size than declared: "
                + listed([f"{k} declared {v['declared']}, found {v['found']}" for k, v in sizes.items()]),
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
                + listed(
                    [f"{k} {v['found_hz']:.2f} fps, info.json {v['declared_hz']:g}" for k, v in rates.items()]
                ),
                remedy="encode the videos at the rate of the data; LeRobot looks frames up by time",
                numbers=rates,
            )
        )
    return found
