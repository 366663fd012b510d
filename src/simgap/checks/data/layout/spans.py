"""Do the frames of a video belong to the rows of their episode: as many, at the place the index names, of one episode only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from simgap.checks.data.layout.index import Claim, video_claims
from simgap.checks.data.pooled import Pooled
from simgap.checks.data.report import DataFinding, Severity, listed
from simgap.episodes.formats.layout import expand
from simgap.episodes.formats.video import iterate_frames, video_shape
from simgap.errors import DataError
from simgap.wording import number_of

MOST_FILES = 400
"""Video files whose frames are counted, evenly spread; the index itself is compared whole."""
_MOST_LOOKED_AT = 3
_MOST_FRAMES = 800
_CUT = 6.0
"""Times the usual change between frames that a cut to another scene makes at least."""
_SMALL = 0.05
"""Relative difference of frames and rows up to which the pictures are merely late; above, they belong to another moment."""


class File(NamedTuple):
    """One video file and the episodes that claim a part of it, in order."""

    frames: int | None
    """None where the file is absent, not counted or does not say."""
    claims: Sequence[Claim]


def check_spans(pooled: Pooled) -> tuple[dict[str, Any], list[DataFinding]]:
    """Return how many files were counted, and the findings."""
    claims = video_claims(pooled)
    files = {key: _files(of_key, _counted(of_key)) for key, of_key in claims.items()}
    counted = sum(f.frames is not None for by_path in files.values() for f in by_path.values())
    measured = {"files_counted": counted, "files": sum(map(len, files.values()))}
    rate = pooled.dataset.info.rate_hz
    found = [
        *_rows(pooled, files, rate),
        *_overlaps(pooled, files, rate),
        *_shifted(files, rate),
        *_other_files(pooled, claims),
    ]
    return measured, found


def _counted(claims: Sequence[Claim]) -> set[Path]:
    paths = sorted({c.path for c in claims})
    return set(
        paths
        if len(paths) <= MOST_FILES
        else [paths[k] for k in np.linspace(0, len(paths) - 1, MOST_FILES).astype(int)]
    )


def _files(claims: Sequence[Claim], counted: set[Path]) -> dict[Path, File]:
    by_path: dict[Path, list[Claim]] = defaultdict(list)
    for claim in claims:
        by_path[claim.path].append(claim)
    return {
        path: File(
            _frames(path) if path in counted else None, sorted(c, key=lambda v: (v.start_s, v.episode))
        )
        for path, c in by_path.items()
    }


def _frames(path: Path) -> int | None:
    """Return how many frames a file says it has; one that is absent or cannot be opened is another check's finding."""
    if not path.is_file():
        return None
    try:
        return video_shape(path).frames or None
    except DataError:
        return None


# --- as many frames as rows ------------------------------------------------------------------------------------------


def _rows(pooled: Pooled, files: Mapping[str, Mapping[Path, File]], rate: float) -> list[DataFinding]:
    found = []
    for key, by_path in files.items():
        off = {
            c.episode: (c, n)
            for file in by_path.values()
            for c, n in _frames_by_episode(file, rate)
            if n != c.rows
        }
        if not off:
            continue
        numbers = {str(k): _surplus(c, n) for k, (c, n) in off.items()}
        for k in list(off)[:_MOST_LOOKED_AT]:
            numbers[str(k)] |= _located(off[k][0], off[k][1], rate)
        worst = max(abs(v["ratio"] - 1.0) for v in numbers.values())
        found.append(
            DataFinding(
                code="video_frames_mismatch",
                severity=Severity.FAULT if worst > _SMALL else Severity.WARNING,
                sentence=f"{key}: the video of {number_of(len(off), 'episode')} has another number of frames than rows: "
                + listed(
                    [
                        f"episode {k} {v['video_frames']} for {v['rows']} (x{v['ratio']:.2f}){_words(v)}"
                        for k, v in numbers.items()
                    ]
                ),
                remedy=(
                    "encode these episodes again from their own frames, or drop them; frames are looked up by"
                    " time and would be those of another moment"
                ),
                feature=key,
                numbers={"episodes": numbers},
            )
        )
    return found


def _frames_by_episode(file: File, rate: float) -> list[tuple[Claim, int]]:
    """Return how many frames each episode of a file has: what the index says, and for a file of one episode also what is in it."""
    if len(file.claims) == 1 and file.frames is not None and file.claims[0].start_s < 0.5 / rate:
        return [(file.claims[0], file.frames)]
    found = []
    starts = [c.start_s for c in file.claims] + [np.nan if file.frames is None else file.frames / rate]
    for claim, after in zip(file.claims, starts[1:], strict=True):
        if claim.stop_s is None or not np.isfinite(claim.stop_s):
            continue
        frames = round((claim.stop_s - claim.start_s) * rate)
        has_room = not np.isfinite(after) or round((after - claim.start_s) * rate) >= claim.rows
        ends_at_last = frames == claim.rows - 1 and has_room
        # some writers store when the last frame begins, not when it ends
        found.append((claim, claim.rows if ends_at_last else frames))
    return found


def _surplus(claim: Claim, frames: int) -> dict[str, Any]:
    return {
        "rows": claim.rows,
        "video_frames": frames,
        "surplus": frames - claim.rows,
        "ratio": frames / claim.rows,
    }


def _located(claim: Claim, frames: int, rate: float) -> dict[str, Any]:
    """Return where a surplus lies, by the cut to another scene that it makes; nothing where there is none."""
    surplus = frames - claim.rows
    if surplus < 2 or frames > _MOST_FRAMES or not claim.path.is_file():
        return {}
    changes, last = [], None
    try:
        for time_s, image in iterate_frames(claim.path, claim.start_s):
            if time_s < claim.start_s - 0.5 / rate:
                continue
            small = image[::4, ::4].astype(np.float32)
            if last is not None:
                changes.append(float(np.abs(small - last).mean()))
            last = small
            if len(changes) >= frames - 1:
                break
    except DataError:  # named by the check that looks at the pictures
        return {}
    if len(changes) < 3 or max(changes) < _CUT * max(float(np.median(changes)), 0.2):
        return {"where": "unknown"}
    cut = int(np.argmax(changes)) + 1
    if abs(cut - surplus) <= 1:
        return {"where": "front", "image_state_offset_frames": surplus}
    return (
        {"where": "end", "image_state_offset_frames": 0}
        if abs(cut - claim.rows) <= 1
        else {"where": "unknown"}
    )


def _words(numbers: Mapping[str, Any]) -> str:
    if numbers.get("where") == "front":
        return (
            f", {numbers['surplus']} surplus frames of another scene in front, so every image is"
            f" {number_of(numbers['surplus'], 'frame')} off its state from the start on"
        )
    return (
        f", {numbers['surplus']} surplus frames of another scene at the end"
        if numbers.get("where") == "end"
        else ""
    )


# --- of one episode only ---------------------------------------------------------------------------------------------


def _overlaps(pooled: Pooled, files: Mapping[str, Mapping[Path, File]], rate: float) -> list[DataFinding]:
    found = []
    for key, by_path in files.items():
        pairs = [(a.episode, b.episode) for f in by_path.values() for a, b in _overlapping(f.claims, rate)]
        if not pairs:
            continue
        unclaimed = _unclaimed(pooled, key, set(by_path))
        later = sorted({b for _, b in pairs})
        elsewhere = f"; {listed(unclaimed)} is claimed by nobody" if unclaimed else ""
        found.append(
            DataFinding(
                code="video_spans_overlap",
                severity=Severity.FAULT,
                sentence=(
                    f"{key}: several episodes claim the same frames"
                    f" ({listed([f'{a} and {b}' for a, b in pairs])}): {len(later)} of them are shown"
                    f" pictures of another episode{elsewhere}"
                ),
                remedy=(
                    "correct the chunk, file and from_timestamp of this camera in meta/episodes; each camera"
                    " has its own, not those of the data"
                ),
                feature=key,
                numbers={"pairs": [list(p) for p in pairs], "episodes": later, "unclaimed_files": unclaimed},
            )
        )
    return found


def _overlapping(claims: Sequence[Claim], rate: float) -> list[tuple[Claim, Claim]]:
    # some writers count a frame less
    return [(a, b) for a, b in pairwise(claims) if b.start_s < a.start_s + (a.rows - 1.5) / rate]


def _unclaimed(pooled: Pooled, key: str, claimed: set[Path]) -> list[str]:
    root = pooled.dataset.root
    known = {p.resolve() for p in claimed}
    return [
        p.relative_to(root).as_posix()
        for p in sorted((root / "videos" / key).rglob("*.mp4"))
        if p.resolve() not in known
    ]


def _shifted(files: Mapping[str, Mapping[Path, File]], rate: float) -> list[DataFinding]:
    """Find files whose episodes all begin too late by one constant: times that were added up over several files."""
    found = []
    for key, by_path in files.items():
        shifts: dict[int, float] = {}
        for file in by_path.values():
            wanted = np.concatenate([[0], np.cumsum([c.rows for c in file.claims])])
            offsets = [c.start_s - w / rate for c, w in zip(file.claims, wanted[:-1], strict=True)]
            is_whole = file.frames is not None and abs(file.frames - wanted[-1]) <= 1
            if is_whole and min(offsets) > 1.5 / rate and np.ptp(offsets) < 1.0 / rate:
                shifts |= {c.episode: float(np.median(offsets)) for c in file.claims}
        if not shifts:
            continue
        constants = sorted({round(v, 3) for v in shifts.values()})
        found.append(
            DataFinding(
                code="video_times_accumulated",
                severity=Severity.FAULT,
                sentence=(
                    f"{key}: from_timestamp of episodes {listed([str(k) for k in sorted(shifts)], 8)} is"
                    f" {listed([f'{c:.1f}' for c in constants])} s too late: it counts over all files where"
                    " it should count within its own"
                ),
                remedy="subtract the constant from from_timestamp and to_timestamp in meta/episodes",
                feature=key,
                numbers={"offset_s": {str(k): v for k, v in sorted(shifts.items())}},
            )
        )
    return found


# --- in its own file -------------------------------------------------------------------------------------------------


def _other_files(pooled: Pooled, claims: Mapping[str, Sequence[Claim]]) -> list[DataFinding]:
    """Note the episodes for which the data's file number is another existing video file than the camera's own."""
    dataset = pooled.dataset
    misled: dict[str, list[int]] = {}
    for key, of_key in claims.items():
        for claim in of_key:
            if claim.video_file != claim.data_file:
                chunk, file = claim.data_file
                naive = expand(
                    dataset.info.video_path,
                    {
                        "video_key": key,
                        "chunk_index": chunk,
                        "file_index": file,
                        "episode_index": claim.episode,
                    },
                )
                if (dataset.root / naive).is_file():
                    misled.setdefault(key, []).append(claim.episode)
    if not misled:
        return []
    parts = [f"{key} in episodes {listed([str(e) for e in episodes], 8)}" for key, episodes in misled.items()]
    return [
        DataFinding(
            code="video_files_of_their_own",
            severity=Severity.NOTE,
            sentence=(
                f"cameras lie in other files than the rows: {listed(parts)}; a reader that takes the video's"
                " file from the data's shows other episodes there"
            ),
            remedy=(
                "read chunk, file and from_timestamp of each camera; check a reader by the pictures it shows,"
                " not by their number"
            ),
            feature="videos",
            numbers={"episodes": misled},
        )
    ]
