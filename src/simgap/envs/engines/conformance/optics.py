"""Cameras on two engines: the projection formula against the pixels that are drawn from the engine's state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from simgap.envs.engines.conformance.base import Measure, Probe

SIZE_PX = 256


def projection_error(camera: str) -> Callable[[Probe[Any]], float]:
    """Return the measure of one camera: largest distance between the edges of the projected target and those of its pixels, px."""

    def value(probe: Probe[Any]) -> float:
        probe.start()
        target = probe.env.landmarks()[0]
        points = probe.env.camera_pose(camera).project(target.world_points(), SIZE_PX)
        mask = probe.env.segment(camera, SIZE_PX) == 0
        if not mask.any() or (points[:, 2] <= 0).any():
            return float("nan")
        rows, columns = np.nonzero(mask)
        drawn = np.array([columns.min(), columns.max() + 1, rows.min(), rows.max() + 1], dtype=float)
        projected = np.array([points[:, 0].min(), points[:, 0].max(), points[:, 1].min(), points[:, 1].max()])
        return float(np.abs(drawn - projected).max())

    return value


def optics(cameras: tuple[str, ...]) -> list[Measure[Any]]:
    """Return the measures of some cameras, at the start of a nominal episode."""
    return [
        Measure(
            name=f"projection: {camera}",
            unit="px",
            what=f"edges of the target, formula against pixels, {SIZE_PX} px",
            value=projection_error(camera),
            theory=lambda _: 0.0,
            tolerance=1.5,
        )
        for camera in cameras
    ]
