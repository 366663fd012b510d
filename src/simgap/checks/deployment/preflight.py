"""Before the first motion: is each camera in its slot, the right way up, as much in frame as in training, alive, and is the object visible?

Live frames are compared with frames of the training set, no simulator and no scene measurement needed. What
two candidates explain equally well is never named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from simgap import causes
from simgap.checks.deployment.visible import Frames, result
from simgap.findings import CheckResult, Verdict

Picture = NDArray[np.float64]

_GRID = 24
_CLEAR = 1.3
"""The best candidate is named when the next best is this many times as far."""
_FLOOR = 2.0
"""Differences of small pictures, of 255, that noise makes."""
_FLAT_STD = 2.0
_DARK_MAX, _DARK_STD = 40.0, 4.0
STALE = 3.0
"""Mean difference, of 255, that one held step makes no scene show."""

TURNS: Mapping[str, Callable[[Picture], Picture]] = {
    "identity": lambda f: f,
    "rot180": lambda f: f[..., ::-1, ::-1, :],
    "hflip": lambda f: f[..., :, ::-1, :],
    "vflip": lambda f: f[..., ::-1, :, :],
    "rot90": lambda f: np.swapaxes(f, -3, -2)[..., ::-1, :, :],
    "rot270": lambda f: np.swapaxes(f, -3, -2)[..., :, ::-1, :],
    "transpose": lambda f: np.swapaxes(f, -3, -2),
    "antitranspose": lambda f: np.swapaxes(f, -3, -2)[..., ::-1, ::-1, :],
}
"""The eight ways a picture can lie; a frame that is not square has the first four."""
MIRRORED = ("hflip", "vflip", "transpose", "antitranspose")


def thumbnails(frames: Frames, grid: int = _GRID) -> Picture:
    """Return frames averaged over a grid, ``(N, grid, grid, 3)`` of 255."""
    rows, columns = (np.linspace(0, n, grid + 1).astype(int) for n in frames.shape[1:3])
    wide = frames.astype(np.float64)
    by_row = np.stack([wide[:, a : max(b, a + 1)].mean(axis=1) for a, b in pairwise(rows)], axis=1)
    return np.stack([by_row[:, :, a : max(b, a + 1)].mean(axis=2) for a, b in pairwise(columns)], axis=2)


def _nearest(live: Picture, training: Picture) -> float:
    """Return the distance of live pictures to their nearest training pictures, the median over live ones."""
    return float(np.median([np.abs(training - f).mean(axis=(1, 2, 3)).min() for f in live]))


def check_slots(live: Mapping[str, Frames], training: Mapping[str, Frames]) -> CheckResult:
    """Find which live camera sits in which slot: each against the training frames of every slot.

    Args:
        live: slot -> a few frames now.
        training: slot -> frames of the training set, some tens spread over it; the same slots.
    """
    slots = sorted(live)
    small = [{s: thumbnails(side[s]) for s in slots} for side in (live, training)]
    matrix = np.array([[_nearest(small[0][a], small[1][b]) for b in slots] for a in slots])
    rows, columns = linear_sum_assignment(matrix)
    best, own = float(matrix[rows, columns].sum()), float(np.trace(matrix))
    others = [
        float(sum(matrix[k, p[k]] for k in range(len(slots))))
        for p in _swaps(len(slots))
        if list(p) != columns.tolist()
    ]
    second = min(others, default=np.inf)
    numbers = {
        "slots": slots,
        "distance": matrix.tolist(),
        "assignment": columns.tolist(),
        "own_over_best": own / max(best, 1e-9),
        "second_over_best": None if not np.isfinite(second) else second / max(best, 1e-9),
    }
    fields: dict[str, Any] = {
        "statistic": "distance to the nearest training picture",
        "value": own,
        "unit": "1/255",
        "numbers": numbers,
    }
    fields["n"] = len(live[slots[0]])
    if second < _CLEAR * max(best, _FLOOR):
        return result(
            Verdict.CANNOT_TELL, "Cameras look too much alike to tell which is in which slot.", **fields
        )
    if columns.tolist() != list(range(len(slots))):
        parts = ", ".join(
            f"{slots[a]} shows {slots[b]}" for a, b in zip(rows, columns, strict=True) if a != b
        )
        return result(
            Verdict.BROKEN,
            f"Cameras are in each other's slots: {parts} (their own slots are {own / max(best, 1e-9):.1f}"
            " times as far).",
            **fields,
        )
    return result(Verdict.OK, "Every camera shows what its slot showed in training.", **fields)


def _swaps(n: int) -> list[tuple[int, ...]]:
    """Return the identity and every exchange of two slots; enough to see whether the best assignment stands alone."""
    found = [tuple(range(n))]
    for a in range(n):
        for b in range(a + 1, n):
            p = list(range(n))
            p[a], p[b] = p[b], p[a]
            found.append(tuple(p))
    return found


def _likeness(a: Picture, b: Picture) -> float:
    """Return one minus the correlation of two pictures: blind to brightness and contrast, not to place."""
    x, y = (v - v.mean(axis=(0, 1)) for v in (a, b))
    power = float(np.sqrt((x**2).sum() * (y**2).sum()))
    return 1.0 - float((x * y).sum()) / power if power > 0 else 1.0


def check_orientation(live: Frames, training: Frames, *, camera: str = "camera") -> CheckResult:
    """Find which of the eight turns and mirrors maps live frames to the training frames.

    Args:
        live: a few frames now.
        training: frames of the training set.
        camera: its name, for the sentence.
    """
    now, then = thumbnails(live), thumbnails(training)
    square = live.shape[1] == live.shape[2] and training.shape[1] == training.shape[2]
    names = list(TURNS) if square else list(TURNS)[:4]
    distance = {
        n: float(np.median([min(_likeness(TURNS[n](f), t) for t in then) for f in now])) for n in names
    }
    best = min(distance, key=distance.__getitem__)
    rest = sorted(v for n, v in distance.items() if n != best)
    numbers = {"distance": distance, "best": best, "is_mirror": best in MIRRORED}
    fields: dict[str, Any] = {
        "statistic": "one minus correlation",
        "value": distance["identity"],
        "numbers": numbers,
        "n": len(live),
    }
    near = _CLEAR * distance[best] + 0.02
    if rest[0] < near and (best == "identity" or distance["identity"] < near):
        return result(
            Verdict.CANNOT_TELL,
            f"The {camera} scene looks alike turned or mirrored; nothing tells its orientation.",
            **fields,
        )
    if best == "identity":
        return result(Verdict.OK, f"The {camera} picture lies as in training.", **fields)
    what = "mirrored" if best in MIRRORED else "turned"
    text = (
        f"The {camera} picture is {what} against training: {best} maps it back ({distance[best]:.2f} against"
        f" {distance['identity']:.2f})."
    )
    return result(Verdict.BROKEN, text, **fields)


def check_crop(live: Frames, training: Frames, *, camera: str = "camera") -> CheckResult:
    """Find how much of the live frame's side was in frame in training, and with it the radial error a policy makes.

    Args:
        live: frames now.
        training: frames as the network saw them in training (after its own cropping), of the same scene
            content.
        camera: its name.
    """
    grid = 2 * _GRID
    now, then = thumbnails(live, grid), thumbnails(training, grid)
    sides = np.concatenate([np.linspace(0.7, 1.0, 61), 1.0 / np.linspace(0.7, 0.995, 60)])
    cost = [
        float(np.median([min(_likeness(_zoomed(f, s), t) for t in _zoom_pair(then, s)) for f in now]))
        for s in sides
    ]
    side = float(sides[int(np.argmin(cost))])
    identity = cost[int(np.argmin(np.abs(sides - 1.0)))]
    numbers = {
        "side": side,
        "radial_error": abs(1.0 / side - 1.0),
        "distance": min(cost),
        "identity": identity,
    }
    fields: dict[str, Any] = {
        "statistic": "side of the live frame seen in training",
        "value": side,
        "threshold": 0.02,
        "numbers": numbers,
        "n": len(live),
    }
    if abs(side - 1.0) > 0.02 and identity > _CLEAR * min(cost) + 0.005:
        off = numbers["radial_error"]
        text = (
            f"Training saw {side:.1%} of the side of the {camera} frame: everything is off by {off:.1%} of"
            " its distance from the centre."
        )
        return result(Verdict.BROKEN, text, **fields)
    return result(Verdict.OK, f"The {camera} frame is cropped as in training.", **fields)


def _zoom_pair(then: Picture, side: float) -> Picture:
    return then if side <= 1.0 else np.stack([_zoomed(t, 1.0 / side) for t in then])


def _zoomed(frame: Picture, side: float) -> Picture:
    """Return the centre ``side`` of a picture stretched to its full size, bilinear; the picture itself for a side of 1 and more."""
    if side >= 1.0:
        return frame
    n = frame.shape[0]
    at = (np.arange(n) + 0.5 - n / 2) * side + n / 2 - 0.5
    low = np.clip(np.floor(at).astype(int), 0, n - 2)
    w = (at - low)[:, None]
    rows = frame[low] * (1 - w[..., None]) + frame[low + 1] * w[..., None]
    return np.asarray(rows[:, low] * (1 - w[None]) + rows[:, low + 1] * w[None])


def check_alive(
    frames: Frames, *, colour: tuple[float, float, float] | None = None, camera: str = "camera"
) -> CheckResult:
    """Check decoded frames for what no scene gives: one colour, darkness without texture, red and blue exchanged against a known colour.

    Args:
        frames: as the policy gets them, decoded by the path that feeds it.
        colour: mean red, green and blue, of 255, that the scene is known to have.
        camera: its name.
    """
    mean, spread, top = (
        frames.mean(axis=(0, 1, 2), dtype=np.float64),
        float(frames.std()),
        float(frames.max()),
    )
    numbers: dict[str, Any] = {"mean": mean.tolist(), "spread": spread, "max": top}
    fields: dict[str, Any] = {
        "statistic": "spread of pixels",
        "value": spread,
        "threshold": _FLAT_STD,
        "unit": "1/255",
        "numbers": numbers,
        "n": len(frames),
    }
    if spread < _FLAT_STD:
        return result(
            Verdict.BROKEN,
            f"The {camera} frames are flat: one colour of mean {mean.mean():.0f}, spread {spread:.1f}.",
            **fields,
        )
    if top < _DARK_MAX and spread < _DARK_STD:
        return result(
            Verdict.BROKEN,
            f"The {camera} frames are dark without texture: nothing above {top:.0f}, spread {spread:.1f}.",
            **fields,
        )
    if colour is not None:
        known = np.asarray(colour)
        as_is, turned = float(np.abs(mean - known).max()), float(np.abs(mean[::-1] - known).max())
        numbers |= {"off": as_is, "off_exchanged": turned}
        if abs(known[0] - known[2]) > 4.0 and turned < 0.5 * as_is:
            text = (
                f"Red and blue of the {camera} frames are exchanged: mean {mean.round().tolist()}, the scene"
                f" is {known.round().tolist()}."
            )
            return result(Verdict.BROKEN, text, cause=causes.PIXELS_OTHER, **fields)
    return result(Verdict.OK, f"The {camera} frames show a scene.", **fields)


def check_reset(
    first: Sequence[Frames], held: Sequence[Frames], later: Sequence[Frames], *, camera: str = "camera"
) -> CheckResult:
    """Compare the picture a reset returns with the one after a step in which nothing was commanded to move.

    Args:
        first: per reset, the frame that the reset returned, ``(H, W, 3)``.
        held: per reset, the frame after one held step.
        later: per reset, the frame after one more.
        camera: its name.
    """
    jump, still = (
        float(np.mean([np.abs(a.astype(np.float64) - b).mean() for a, b in zip(x, y, strict=True)]))
        for x, y in ((first, held), (held, later))
    )
    numbers = {"at_reset": jump, "after": still}
    fields: dict[str, Any] = {
        "statistic": "difference over a held step",
        "value": jump,
        "threshold": STALE,
        "unit": "1/255",
        "numbers": numbers,
    }
    fields["n"] = len(first)
    if jump > STALE and jump > 4.0 * max(still, 0.25):
        text = (
            f"The {camera} picture after a reset is not of the scene it was reset to: it changes by"
            f" {jump:.1f} of 255 over a held step, then by {still:.1f}."
        )
        return result(Verdict.BROKEN, text, **fields)
    return result(Verdict.OK, f"The first {camera} picture shows the scene of its state.", **fields)
