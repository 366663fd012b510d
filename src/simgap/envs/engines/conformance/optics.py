"""Cameras on two engines: the projection formula against the pixels that are drawn from the engine's state."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from simgap.envs.engines.conformance.base import Measure, Probe

SIZE_PX = 256


def projection_error(camera: str) -> Callable[[Probe[Any]], float]:
    """Return the measure of one camera: largest distance between the edges of the projected target and those of its pixels, px.

    Over the corners of where the nominal preset puts the target: near the middle of a frame a wrong field of
    view hardly shows.
    """

    def value(probe: Probe[Any]) -> float:
        ranges = probe.env.presets["nominal"].ranges
        placed = [name for name in ("target_x_m", "target_y_m") if name in ranges]
        spots = itertools.product(*(ranges[name] for name in placed))
        gaps = [
            _gap(probe, camera, {}),
            *(_gap(probe, camera, dict(zip(placed, spot, strict=True))) for spot in spots),
        ]
        seen = [gap for gap in gaps if gap is not None]
        return max(seen) if seen else math.nan

    return value


def _gap(probe: Probe[Any], camera: str, factors: dict[str, float]) -> float | None:
    """Return the distance for one placement; None where the target is not wholly in the frame."""
    probe.start(**factors)
    points = probe.env.camera_pose(camera).project(probe.env.landmarks()[0].world_points(), SIZE_PX)
    low, high = points[:, :2].min(axis=0), points[:, :2].max(axis=0)
    if (points[:, 2] <= 0).any() or (low < 0).any() or (high > SIZE_PX).any():
        return None
    rows, columns = np.nonzero(probe.env.segment(camera, SIZE_PX, alone=True) == 0)
    if not rows.size:
        return math.inf
    drawn = np.array([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1], dtype=float)
    return float(np.abs(drawn - np.concatenate([low, high])).max())


def optics(probe: Probe[Any]) -> list[Measure[Any]]:
    """Return the measures of the cameras that see the whole target somewhere, with targets where the nominal preset puts them."""
    return [
        Measure(
            name=f"projection: {camera}",
            unit="px",
            what=f"edges of the target, formula against pixels, {SIZE_PX} px, over its placements",
            value=projection_error(camera),
            theory=lambda _: 0.0,
            tolerance=1.0,
        )
        for camera in probe.env.cameras
        if not math.isnan(projection_error(camera)(probe))
    ]
