"""How one still picture lies over another: a shift, a turn and a zoom, found to a fraction of a pixel whatever the light does.

Phase correlation of blurred pictures gives the shift to start from; Gauss-Newton steps on the normalised
pictures then fit a similarity. Pixels far off, such as an object that lies elsewhere, are weighed down
(Tukey's biweight).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

Array = NDArray[np.float64]

_STEPS = 25
_TUKEY = 4.685
_BLURS = (3.0, 1.2)
_SIMPLER = {2: 0.8, 3: 0.7, 4: 0.5}
"""What an answer of so many free numbers leaves unexplained, of what the simpler one does, to be believed."""
_ENOUGH = 0.985
_PEAKS = 4
_TURNS = (0.0, -6.0, 6.0)
"""Turns in degrees from which the fit starts; each catches about 4 degrees to both sides."""


class Registered(NamedTuple):
    """How a picture lies over the reference, in pixels of both."""

    right: float
    down: float
    turn_deg: float
    """Clockwise on the screen."""
    zoom: float
    likeness: float
    """Correlation of the two over each other where they overlap, contrast only; 1 for the same view."""


def register(reference: Array, picture: Array, weight: Array | None = None) -> Registered:
    """Return how ``picture`` lies over ``reference``; the simplest answer that explains it: none, a shift, a turn too, a zoom too.

    Args:
        reference: ``(h, w)`` grey.
        picture: of the same size.
        weight: ``(h, w)`` of 0..1, which pixels of the reference count; all by default.
    """
    weights = np.ones_like(reference) if weight is None else weight
    best = np.zeros(4)
    likeness = _likeness(reference, picture, weights, best)
    for free in (2, 3, 4):
        for turn, peak in [(t, 0) for t in _TURNS] if free > 2 else [(0.0, k) for k in range(_PEAKS)]:
            pose = _fitted(reference, picture, weights, turn, free, peak)
            now = _likeness(reference, picture, weights, pose)
            if 1.0 - now < _SIMPLER[free] * (1.0 - likeness):
                best, likeness = pose, now
        if likeness > _ENOUGH:
            break
    return Registered(
        float(best[0]), float(best[1]), float(np.rad2deg(best[2])), float(np.exp(best[3])), likeness
    )


def _fitted(reference: Array, picture: Array, weights: Array, turn_deg: float, free: int, peak: int) -> Array:
    angle = np.deg2rad(turn_deg)
    turned = np.nan_to_num(_warped(picture, np.array([0.0, 0.0, angle, 0.0])), nan=float(np.median(picture)))
    down, right = _phase_shift(_band(reference, _BLURS[1]) * weights, _band(turned, _BLURS[1]), peak)
    c, s = np.cos(angle), np.sin(angle)
    pose = np.array([c * right - s * down, s * right + c * down, angle, 0.0])
    for blur in _BLURS:
        pose = _descended(_band(reference, blur), _band(picture, blur), weights, pose, free)
    return pose


def _band(grey: Array, blur: float) -> Array:
    soft = ndimage.gaussian_filter(grey, blur) - ndimage.gaussian_filter(grey, 6.0 * blur)
    return np.asarray(soft / max(float(np.sqrt((soft**2).mean())), 1e-6))


def _phase_shift(a: Array, b: Array, peak: int) -> tuple[float, float]:
    """Return the whole-pixel shift of ``b`` over ``a`` at the highest peak, or one after it: down and right, within a third of the frame."""
    h, w = a.shape
    window = np.outer(np.hanning(h + 2)[1:-1], np.hanning(w + 2)[1:-1])
    fa, fb = np.fft.rfft2(a * window), np.fft.rfft2(b * window)
    cross = np.conj(fa) * fb
    surface = np.fft.irfft2(cross / np.maximum(np.abs(cross), 1e-9) ** 0.7, s=(h, w))
    rows, columns = np.fft.fftfreq(h) * h, np.fft.fftfreq(w) * w
    surface[np.abs(rows) > h / 3] = -np.inf
    surface[:, np.abs(columns) > w / 3] = -np.inf
    for _ in range(peak):
        y, x = np.unravel_index(int(np.argmax(surface)), surface.shape)
        surface[np.ix_(np.arange(y - 3, y + 4) % h, np.arange(x - 3, x + 4) % w)] = -np.inf
    y, x = np.unravel_index(int(np.argmax(surface)), surface.shape)
    return float(rows[y]), float(columns[x])


def _grid(shape: tuple[int, ...]) -> tuple[Array, Array]:
    y, x = np.mgrid[: shape[0], : shape[1]].astype(np.float64)
    return x - (shape[1] - 1) / 2, y - (shape[0] - 1) / 2


def _warped(picture: Array, pose: Array) -> Array:
    """Return the picture seen on the grid of the reference; outside is NaN."""
    x, y = _grid(picture.shape)
    scale = np.exp(pose[3])
    c, s = scale * np.cos(pose[2]), scale * np.sin(pose[2])
    at = [
        s * x + c * y + pose[1] + (picture.shape[0] - 1) / 2,
        c * x - s * y + pose[0] + (picture.shape[1] - 1) / 2,
    ]
    return np.asarray(ndimage.map_coordinates(picture, at, order=1, cval=np.nan)) if pose.any() else picture


def _descended(reference: Array, picture: Array, weights: Array, pose: Array, free: int) -> Array:
    x, y = _grid(reference.shape)
    for _ in range(_STEPS):
        seen = _warped(picture, pose)
        known = np.isfinite(seen)
        if known.sum() < 0.3 * seen.size:
            return pose
        whole = np.where(known, seen, 0.0)
        gy, gx = np.gradient(whole)
        inner = ndimage.binary_erosion(known, iterations=2)
        jacobian = np.stack([gx, gy, gy * x - gx * y, gx * x + gy * y][:free], axis=-1)[inner]
        gain = float((whole[inner] * reference[inner]).sum() / max(1e-9, float((whole[inner] ** 2).sum())))
        gain = gain if gain > 0.2 else 1.0
        off = reference[inner] - gain * whole[inner]
        spread = 1.4826 * float(np.median(np.abs(off))) + 1e-6
        trust = weights[inner] * np.clip(1.0 - (off / (_TUKEY * spread)) ** 2, 0.0, None) ** 2
        weighed = jacobian * trust[:, None] * gain
        normal = weighed.T @ (jacobian * gain)
        normal[np.diag_indices(free)] *= 1.001
        step = np.zeros(4)
        step[:free] = np.linalg.lstsq(normal, weighed.T @ off, rcond=1e-9)[0]
        # the step is in the frame of the reference: compose
        scale = np.exp(pose[3])
        c, s = scale * np.cos(pose[2]), scale * np.sin(pose[2])
        pose = pose + np.array([c * step[0] - s * step[1], s * step[0] + c * step[1], step[2], step[3]])
        if not np.isfinite(pose).all() or abs(pose[3]) > 0.5:
            return np.zeros(4)
        if np.abs(step[:2]).max() < 0.003 and np.abs(step[2:]).max() < 5e-5:
            break
    return pose


def _likeness(reference: Array, picture: Array, weights: Array, pose: Array) -> float:
    seen = _warped(_band(picture, _BLURS[1]), pose)
    known = np.isfinite(seen)
    if known.sum() < 0.3 * seen.size:
        return 0.0
    a, b, w = _band(reference, _BLURS[1])[known], seen[known], weights[known]
    return float((w * a * b).sum() / max(1e-9, float(np.sqrt((w * a * a).sum() * (w * b * b).sum()))))


def aligned(picture: NDArray[np.float32], found: Registered) -> NDArray[np.float64]:
    """Return a colour picture as seen on the grid of the reference, ``(h, w, 3)``; NaN outside."""
    pose = np.array([found.right, found.down, np.deg2rad(found.turn_deg), np.log(found.zoom)])
    return np.stack([_warped(picture[..., k].astype(np.float64), pose) for k in range(3)], axis=-1)


def likeness(reference: Array, picture: Array) -> float:
    """Return how alike two grey pictures are as they lie: the correlation of their detail."""
    return _likeness(reference, picture, np.ones_like(reference), np.zeros(4))
