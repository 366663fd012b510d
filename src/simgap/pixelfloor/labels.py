"""A labelled handful of real frames as probe data: where an operator measured the target to be."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simgap.bounds import read_text
from simgap.errors import DataError
from simgap.pixelfloor.floor import FloorReport, FloorVerdict, SizeReport, judge, require_sizes
from simgap.pixelfloor.probe import PhaseError, ProbeSet, ProbeSpec, held_out_errors, train_probe
from simgap.provenance import child_rng

COLUMNS = ("episode", "frame", "x_m", "y_m")
MOST_LABELS = 100_000
LEAST_LABELS = 10
FOLDS = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class FrameLabel:
    """Where the target lies in one frame, in the plane in which the robot has to find it."""

    episode: int
    frame: int
    x_m: float
    y_m: float


def read_labels(path: Path) -> list[FrameLabel]:
    """Read ``episode,frame,x_m,y_m`` lines.

    Raises:
        DataError: a column is missing, a value is no number, or there are too few or too many lines; names
            the line.
    """
    try:
        with io.StringIO(read_text(path), newline="") as stream:
            reader = csv.DictReader(stream)
            missing = [c for c in COLUMNS if c not in (reader.fieldnames or ())]
            if missing:
                raise DataError(
                    f"{path} lacks columns {missing}; its first line must name {','.join(COLUMNS)}"
                )
            found: list[FrameLabel] = []
            for number, row in enumerate(reader, start=2):
                if len(found) >= MOST_LABELS:
                    raise DataError(f"{path} has more than {MOST_LABELS:,} labels; a few hundred are plenty")
                found.append(_label(path, number, row))
    except csv.Error as error:
        raise DataError(f"{path} cannot be read as CSV ({error})") from error
    if len(found) < LEAST_LABELS:
        raise DataError(
            f"{path} has {len(found)} labels; {LEAST_LABELS} are the least that can be told from guessing,"
            " 100 are better"
        )
    return found


def _label(path: Path, number: int, row: Mapping[str, str | None]) -> FrameLabel:
    try:
        label = FrameLabel(
            episode=int(row["episode"] or ""),
            frame=int(row["frame"] or ""),
            x_m=float(row["x_m"] or ""),
            y_m=float(row["y_m"] or ""),
        )
    except (ValueError, TypeError) as error:
        raise DataError(f"{path}, line {number}: {error}; expected {','.join(COLUMNS)} as numbers") from error
    if not np.isfinite([label.x_m, label.y_m]).all() or max(abs(label.x_m), abs(label.y_m)) > 100:
        raise DataError(
            f"{path}, line {number}: position ({label.x_m}, {label.y_m}) m is no place on a table or floor;"
            " metres are expected"
        )
    return label


def shrink(frames: NDArray[np.uint8], size_px: int) -> NDArray[np.uint8]:
    """Return square frames averaged over areas to ``(N, size, size, 3)``."""
    from PIL import Image

    shape = (len(frames), size_px, size_px, 3)
    if frames.shape == shape:
        return frames
    out = np.empty(shape, np.uint8)
    for k, frame in enumerate(frames):
        out[k] = np.asarray(Image.fromarray(frame).resize((size_px, size_px), Image.Resampling.BOX))
    return out


def labelled_floor(
    images: Mapping[str, NDArray[np.uint8]],
    state: NDArray[np.float32],
    labels: Sequence[FrameLabel],
    sizes: Sequence[int],
    *,
    tolerance_m: float,
    name: str,
    spec: ProbeSpec | None = None,
) -> FloorReport:
    """Cross-validate a probe on labelled frames at several sizes, all frames of an episode in one fold.

    A probe can fail for lack of pixels or for lack of labels. Only a size at which it fails while a larger
    one passes on the same labels fails; where no size passes, nobody can tell.

    Args:
        images: camera -> ``(N, H, W, 3)``, one a label.
        state: ``(N, S)`` encoder readings.
        labels: N labels.
        sizes: sides of a frame, px, at most what was recorded.
        tolerance_m: error that the task forgives.
        name: of the data, for the report.
        spec: the probe's training.

    Raises:
        DataError: a size above what was recorded, or fewer episodes than folds.
    """
    spec = spec or ProbeSpec()
    largest = min(min(v.shape[1:3]) for v in images.values())
    above = [s for s in require_sizes(sizes) if s > largest]
    if above:
        raise DataError(f"{name} was recorded at {largest} px; sizes {above} cannot be measured in it")
    episodes = np.array([label.episode for label in labels])
    if len(set(episodes.tolist())) < FOLDS:
        raise DataError(
            f"labels of {name} come from {len(set(episodes.tolist()))} episodes; {FOLDS} are needed, so that"
            " none is both learnt from and scored"
        )
    reports: list[SizeReport] = []
    passed = False
    for size in sorted(require_sizes(sizes), reverse=True):
        data = ProbeSet(
            images={camera: shrink(frames, size) for camera, frames in images.items()},
            state=state,
            target_m=np.array([(label.x_m, label.y_m) for label in labels], np.float32),
            others_m=np.zeros((len(labels), 0, 2), np.float32),
            phase=np.full(len(labels), "labelled"),
        )
        errors = _cross_validated(data, episodes, tolerance_m, spec)
        verdict, reason = judge(errors, tolerance_m)
        if verdict.is_below and not passed:
            verdict, reason = (
                FloorVerdict.CANNOT_TELL,
                f"{reason}; no larger size passes on these {len(labels)} labels, which may be too few",
            )
        passed |= verdict is FloorVerdict.PASS
        reports.append(
            SizeReport(size_px=size, verdict=verdict, reason=reason, errors=tuple(errors), rulers=())
        )
    return FloorReport(
        env=name,
        factors="as recorded",
        cameras=tuple(images),
        tolerance_mm=1000 * tolerance_m,
        sizes=tuple(reports[::-1]),
    )


def _cross_validated(
    data: ProbeSet, episodes: NDArray[np.int_], tolerance_m: float, spec: ProbeSpec
) -> list[PhaseError]:
    """Return errors of predictions, each by a probe that saw no frame of its episode."""
    order = child_rng(spec.seed, "folds").permutation(np.unique(episodes))
    guess, blind = np.empty_like(data.target_m), np.empty_like(data.target_m)
    for fold in range(FOLDS):
        asked = np.isin(episodes, order[fold::FOLDS])
        seen, unseen = data.rows(np.nonzero(~asked)[0]), data.rows(np.nonzero(asked)[0])
        guess[asked] = train_probe(seen, spec)(unseen)
        blind[asked] = seen.target_m.mean(axis=0)
    return held_out_errors(guess, data, blind, tolerance_m)


__all__ = ["FrameLabel", "labelled_floor", "read_labels", "shrink"]
