"""Where things are and how big they look: privileged geometry for measuring pixels, never for a student."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Landmark:
    """One thing of a task: the target first, then what it could be mistaken for, then goals and obstacles."""

    name: str
    role: str
    """``target``, ``distractor``, ``goal`` or ``obstacle``."""
    position_m: NDArray[np.float64]
    """Centre in the world frame, ``(3,)``."""
    rotation: NDArray[np.float64]
    """World from body, ``(3, 3)``."""
    corners_m: NDArray[np.float64]
    """Points in the body frame whose convex hull is its shape, ``(K, 3)``."""

    def world_points(self) -> NDArray[np.float64]:
        """Return the corners in the world frame, ``(K, 3)`` m."""
        return np.asarray(self.position_m + self.corners_m @ self.rotation.T)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class CameraPose:
    """A pinhole camera that looks along its own -z, x to the right, y up, as in MuJoCo and OpenGL."""

    position_m: NDArray[np.float64]
    """``(3,)``, world frame."""
    rotation: NDArray[np.float64]
    """World from camera, ``(3, 3)``."""
    fovy_deg: float
    """Vertical field of view."""

    def project(self, points_m: NDArray[np.float64], size_px: int) -> NDArray[np.float64]:
        """Return where world points fall in a square frame: column, row in px from the top left corner, and depth in m, ``(N, 3)``.

        A pixel with index ``k`` covers ``k .. k + 1``. Points behind the camera have a depth below zero and
        no meaningful column and row.
        """
        local = (np.atleast_2d(points_m) - self.position_m) @ self.rotation
        depth = -local[:, 2]
        focal_px = 0.5 * size_px / np.tan(np.radians(self.fovy_deg) / 2)
        with np.errstate(divide="ignore", invalid="ignore"):
            column = 0.5 * size_px + focal_px * local[:, 0] / depth
            row = 0.5 * size_px - focal_px * local[:, 1] / depth
        return np.stack([column, row, depth], axis=1)


def box_corners(half_m: tuple[float, float, float]) -> NDArray[np.float64]:
    """Return the eight corners of a box with these half edges, ``(8, 3)`` m."""
    signs = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], dtype=np.float64)
    return np.asarray(signs * np.asarray(half_m))


def cone_corners(
    radius_m: float, height_m: float, sides: int = 24, top_radius_m: float = 0.0
) -> NDArray[np.float64]:
    """Return points of an upright cone or frustum whose base is at z = 0, ``(2 sides, 3)`` m."""
    angle = np.linspace(0, 2 * np.pi, sides, endpoint=False)
    ring = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    base = np.column_stack([ring * radius_m, np.zeros(sides)])
    top = np.column_stack([ring * top_radius_m, np.full(sides, height_m)])
    return np.concatenate([base, top])
