"""The ruler: how many pixels lie across the target, measured by a segmentation render and by the projection formula.

The two share the scene and nothing else: one counts what the rasteriser drew, the other projects the corners
of the target through a pinhole and takes the area of their hull. Across means the side of a square of the
same area.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import ConvexHull, QhullError

from simgap.envs.abilities import ShowsTarget, able
from simgap.envs.base import TaskEnv
from simgap.envs.landmarks import CameraPose, Landmark
from simgap.policies.cnn import stem_stride

AGREE_PX = 1.0
"""Largest difference of the two measurements."""
FINE_PX = 192
"""Areas are counted in frames of at least this side and scaled down: an area is then known to a few hundredths of a pixel."""
HIDDEN_SHARE = 0.05
"""A target with more of its area behind something else counts as covered."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """One target in one frame."""

    across_px: float
    """By segmentation, what is covered left out."""
    alone_px: float
    """By segmentation as if nothing else were there: what the formula is compared with."""
    projected_px: float
    """By the formula, clipped to the frame."""
    contrast: float
    """Distance of mean colours of target and surround, 0 to 441 (8-bit RGB); NaN where no pixel of the frame shows the target."""
    mm_per_px: float
    """Size of a pixel at the target's distance."""

    @property
    def is_covered(self) -> bool:
        """True when more than :data:`HIDDEN_SHARE` of the target in the frame is behind something else."""
        return self.across_px**2 < (1.0 - HIDDEN_SHARE) * self.alone_px**2


@dataclass(frozen=True, kw_only=True, slots=True)
class Ruler:
    """Readings of one camera, phase and frame size."""

    camera: str
    phase: str
    size_px: int
    n: int
    covered: int
    """Frames in which something stands between camera and target."""
    absent: int
    """Frames without any of the target."""
    across_px_median: float
    across_px_p5: float
    """5th percentile; zeros of covered and absent targets count."""
    disagreement_px_max: float
    """Largest difference of segmentation and formula."""
    contrast_median: float | None
    """None where no pixel shows the target in any frame."""
    mm_per_px_median: float
    cells_across_median: float
    """Target over one cell of the encoder's map after its stem and its strided layer."""

    @property
    def agrees(self) -> bool:
        """True when the two measurements agree within :data:`AGREE_PX`."""
        return self.disagreement_px_max <= AGREE_PX

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self) | {"agrees": self.agrees}


def read_frame(env: TaskEnv, camera: str, size_px: int, frame: NDArray[np.uint8]) -> Reading:
    """Measure the target in what a camera of ``env`` shows now.

    Args:
        env: reset or posed; the state the frame was drawn from.
        camera: its name.
        size_px: side of the frame.
        frame: the frame, ``(size, size, 3)``.
    """
    shown = able(env, ShowsTarget)
    target, pose = shown.landmarks()[0], shown.camera_pose(camera)
    zoom = -(-FINE_PX // size_px)
    drawn, alone = (
        float((shown.segment(camera, zoom * size_px, alone=a) == 0).sum()) / zoom**2 for a in (False, True)
    )
    depth_m = float(pose.project(target.position_m, size_px)[0, 2])
    focal_px = 0.5 * size_px / float(np.tan(np.radians(pose.fovy_deg) / 2))
    return Reading(
        across_px=drawn**0.5,
        alone_px=alone**0.5,
        projected_px=projected_across_px(target, pose, size_px),
        contrast=_contrast(frame, shown.segment(camera, size_px) == 0),
        mm_per_px=1000.0 * abs(depth_m) / focal_px,
    )


def summarise(readings: Sequence[Reading], *, camera: str, phase: str, size_px: int) -> Ruler:
    """Pool the readings of one camera, phase and size; undefined stays None."""
    across = np.array([r.across_px for r in readings])
    contrast = np.array([r.contrast for r in readings])
    contrast = contrast[np.isfinite(contrast)]
    return Ruler(
        camera=camera,
        phase=phase,
        size_px=size_px,
        n=len(readings),
        covered=sum(r.is_covered for r in readings),
        absent=sum(r.alone_px == 0 for r in readings),
        across_px_median=float(np.median(across)),
        across_px_p5=float(np.percentile(across, 5)),
        disagreement_px_max=max(abs(r.alone_px - r.projected_px) for r in readings),
        contrast_median=float(np.median(contrast)) if len(contrast) else None,
        mm_per_px_median=float(np.median([r.mm_per_px for r in readings])),
        cells_across_median=float(np.median(across)) / (2 * stem_stride(size_px)),
    )


def projected_across_px(target: Landmark, pose: CameraPose, size_px: int) -> float:
    """Return the side of a square of the target's projected area inside the frame, px, by the pinhole formula alone."""
    return float(np.sqrt(_area(_outline(target, pose, size_px))))


def _outline(target: Landmark, pose: CameraPose, size_px: int) -> NDArray[np.float64]:
    """Return the convex outline of the target's image clipped to the frame, ``(K, 2)`` px; empty when it is outside or behind."""
    points = pose.project(target.world_points(), size_px)
    empty = np.zeros((0, 2))
    if (points[:, 2] <= 1e-6).any():
        return empty
    try:
        outline: NDArray[np.float64] = points[ConvexHull(points[:, :2]).vertices, :2]
    except QhullError:  # a target seen exactly edge-on has no area
        return empty
    for axis, bound, keep_below in (
        (0, 0.0, False),
        (0, float(size_px), True),
        (1, 0.0, False),
        (1, float(size_px), True),
    ):
        outline = _clip(outline, axis, bound, keep_below)
    return outline


def _clip(outline: NDArray[np.float64], axis: int, bound: float, keep_below: bool) -> NDArray[np.float64]:
    """Clip a convex polygon against one side of the frame (Sutherland and Hodgman)."""
    kept: list[NDArray[np.float64]] = []
    sign = 1.0 if keep_below else -1.0
    for start, end in zip(outline, np.roll(outline, -1, axis=0), strict=True):
        a, b = sign * (bound - start[axis]), sign * (bound - end[axis])
        if a >= 0:
            kept.append(start)
        if a * b < 0:
            kept.append(start + (end - start) * (a / (a - b)))
    return np.array(kept).reshape(-1, 2)


def _area(outline: NDArray[np.float64]) -> float:
    if len(outline) < 3:
        return 0.0
    x, y = outline[:, 0], outline[:, 1]
    return float(0.5 * abs(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1))))


def _contrast(frame: NDArray[np.uint8], mask: NDArray[np.bool_]) -> float:
    if not mask.any() or mask.all():
        return float("nan")
    rows, columns = np.nonzero(mask)
    reach = 1 + round(0.5 * float(np.sqrt(mask.sum())))
    top, left = max(0, rows.min() - reach), max(0, columns.min() - reach)
    window = (slice(top, rows.max() + reach + 1), slice(left, columns.max() + reach + 1))
    around = ~mask[window]
    pixels = frame[window].astype(np.float64)
    if not around.any():
        return float("nan")
    return float(np.linalg.norm(pixels[~around].mean(axis=0) - pixels[around].mean(axis=0)))


def measure(
    env: TaskEnv,
    scenes: Mapping[str, Sequence[tuple[Any, NDArray[np.float32] | None]]],
    cameras: Sequence[str],
    sizes: Sequence[int],
) -> list[Ruler]:
    """Measure the target over scenes, for each camera, phase and frame size.

    Args:
        env: an env that renders.
        scenes: phase -> (factor values, encoder readings or None for the start).
        cameras: names.
        sizes: sides of a frame, px.
    """
    found: dict[tuple[str, str, int], list[Reading]] = {}
    for phase, poses in scenes.items():
        for values, state in poses:
            env.render_still(values, state, cameras=())
            for size in sizes:
                frames = able(env, ShowsTarget).frames_at(size)
                for camera in cameras:
                    found.setdefault((camera, phase, size), []).append(
                        read_frame(env, camera, size, frames[camera])
                    )
    return [
        summarise(readings, camera=camera, phase=phase, size_px=size)
        for (camera, phase, size), readings in found.items()
    ]
