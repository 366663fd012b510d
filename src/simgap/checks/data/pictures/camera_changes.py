"""Does a camera, or the light, become another one on the way: from some episode on the view is shifted, turned, darker or of another colour.

Each episode gives each camera one still picture: the median over up to 16 views, on which what moves is gone.
A change is searched over these pictures (:mod:`simgap.measures.picture_changes`), once by their edges and
once by their colours; where one is found, the medians of both sides are laid over each other
(:mod:`simgap.measures.picture_registration`), and what is left is light. Scenes that are drawn anew for each
episode change everywhere and at no single place, so nothing is said of them.

Measured on 14 episodes of our arm at 96 pixels, half of them changed: a fixed wrist camera's shift of 1 % of
the frame is found, and so are 3 degrees, a gain of 0.9 and a cast of 20 %; a front camera that sees a plain
table needs 2 to 5 % of shift along its edges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.checks.data.report import DataFinding, Severity, listed
from simgap.measures.glimpses import Glimpse
from simgap.measures.picture_changes import (
    ALPHA,
    LEAST,
    Pictures,
    Split,
    colours_of,
    edges_of,
    find_splits,
    is_steady,
)
from simgap.measures.picture_registration import Registered, aligned, likeness, register

_SHIFT = 0.006
"""Least shift, of the frame's width."""
_TURN_DEG = 0.6
_ZOOM = 0.02
_ALIKE = 0.75
"""Likeness below which two views cannot be laid over each other."""
_BRIGHT = 0.08
"""Least change of the brightness, as a logarithm."""
_COLOUR = 0.06
"""Least change of one colour against the other two, as a logarithm."""
_VARIES = 12.0
"""Mean distance from the median over the episodes, of 255, up to which a pixel shows one thing."""
_OWN = 0.3
"""By how much of the step a single episode may lie off its side, where only few show it."""
_ASTRAY = 0.1
"""Share of the episodes that may do so: one picture is poorer than the median of many."""
_LITTLE = 0.2
"""Weight of the other pixels when views are laid over each other."""
_DARK, _WHITE = 12.0, 243.0
_EVEN, _UNLIKE = 0.04, 0.3
"""Median distance of the pixels' changes from their median, as a logarithm, up to which light explains them: where the views are hardly alike, and else."""
_FEWEST = 100
"""Pixels that have to show the same thing on both sides for the light to be compared."""
_BLACK = 8.0
_GREY = np.array([0.299, 0.587, 0.114])
_SAME = 2
"""Splits of one camera this near are one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CameraChange:
    """One change of one camera."""

    camera: str
    last_before: int
    """Episode that was looked at."""
    first_after: int
    pose: Registered | None
    """How the view after lies over the one before; None where it stayed, or cannot be laid over it."""
    other_view: bool
    gains: NDArray[np.float64] | None
    """Red, green and blue after, of those before; None where they stayed, or cannot be compared."""
    width: int
    p: float

    @property
    def where(self) -> str:
        """For people."""
        if self.first_after == self.last_before + 1:
            return f"from episode {self.first_after} on"
        return (
            f"from between episodes {self.last_before} and {self.first_after} on (those between were not"
            " looked at)"
        )


def check_camera_changes(looks: Sequence[Glimpse]) -> tuple[dict[str, Any], list[DataFinding]]:
    """Return how many episodes each camera was compared over, and the changes."""
    by_camera: dict[str, list[Glimpse]] = {}
    for look in sorted(looks, key=lambda g: g.episode):
        if look.still is not None and look.mean >= _BLACK:
            by_camera.setdefault(look.camera, []).append(look)
    changes: list[CameraChange] = []
    measured = {}
    for camera, views in by_camera.items():
        alike = _of_one_size(views)
        measured[camera] = {"episodes_compared": len(alike)}
        changes += _changes(camera, alike)
    return measured, [*_moved(changes), *_lit(changes)]


def _of_one_size(views: Sequence[Glimpse]) -> list[Glimpse]:
    shapes = [v.still.picture.shape for v in views if v.still is not None]
    usual = max(set(shapes), key=shapes.count)
    return [v for v in views if v.still is not None and v.still.picture.shape == usual]


def _changes(camera: str, views: Sequence[Glimpse]) -> list[CameraChange]:
    if len(views) < 2 * LEAST:
        return []
    rests = [v.still for v in views if v.still is not None]
    pictures, resting = np.stack([s.picture for s in rests]), np.stack([s.resting for s in rests])
    rng = np.random.default_rng(len(views))
    edges, colours = edges_of(pictures, resting), colours_of(pictures, resting)
    by_edges, by_colours = find_splits(edges, rng), find_splits(colours, rng)
    by_edges, by_colours = (
        [s for s in found if s.p <= ALPHA or is_steady(colours, s.at)] for found in (by_edges, by_colours)
    )
    places = {s.at: s for s in by_edges}
    places |= {s.at: s for s in by_colours if all(abs(s.at - at) > _SAME for at in places)}
    borders = [0, *sorted(places), len(views)]
    found = []
    for start, at, stop in zip(borders, borders[1:], borders[2:], strict=False):
        has = [any(abs(s.at - at) <= _SAME for s in splits) for splits in (by_edges, by_colours)]
        change = _compared(camera, views, places[at], pictures[start:stop], resting[start:stop], at - start)
        if (change.pose is not None or (change.other_view and has[0])) or (
            change.gains is not None and has[1]
        ):
            found.append(change)
    return found


def _compared(
    camera: str,
    views: Sequence[Glimpse],
    split: Split,
    pictures: Pictures,
    resting: NDArray[np.bool_],
    at: int,
) -> CameraChange:
    """Lay the medians of both sides over each other, and compare the colours of what rests in both."""
    before, after = (np.median(pictures[side], axis=0) for side in (slice(0, at), slice(at, None)))
    rests = _rests(pictures[:at], resting[:at]) & _rests(pictures[at:], resting[at:])
    laid = register(before @ _GREY, after @ _GREY, np.where(rests, 1.0, _LITTLE))
    width = before.shape[1]
    can_compare = laid.likeness >= _ALIKE
    other = not can_compare and _is_one_view(pictures[:at]) and _is_one_view(pictures[at:])
    shift = float(np.hypot(laid.right, laid.down)) / width
    has_moved = can_compare and (
        shift >= _SHIFT or abs(laid.turn_deg) >= _TURN_DEG or abs(np.log(laid.zoom)) >= _ZOOM
    )
    if has_moved and split.p > ALPHA:
        has_moved = _is_one_step(before, pictures, at, laid)
    gains = _gains(before, aligned(after, laid), rests, _UNLIKE if can_compare else _EVEN)
    return CameraChange(
        camera=camera, last_before=views[split.at - 1].episode, first_after=views[split.at].episode, pose=laid if has_moved else None,
        other_view=other, gains=gains, width=width, p=split.p,
    )  # fmt: skip


def _rests(pictures: Pictures, resting: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which pixels show the same thing in most episodes of a side."""
    off = np.abs(pictures - np.median(pictures, axis=0)).max(axis=-1)
    return np.asarray((resting.mean(axis=0) >= 0.5) & (off.mean(axis=0) <= _VARIES))


def _is_one_view(pictures: Pictures) -> bool:
    """Return whether the halves of a side show the same thing."""
    middle = len(pictures) // 2
    if middle < 1:
        return False
    halves = [np.median(part, axis=0) @ _GREY for part in (pictures[:middle], pictures[middle:])]
    return likeness(halves[0], halves[1]) >= _ALIKE


def _is_one_step(before: Pictures, pictures: Pictures, at: int, step: Registered) -> bool:
    """Return whether each episode lies where its side does: where poses are drawn anew for each episode, a few say nothing."""
    reach, astray = _reach(step.right, step.down, step.turn_deg, before.shape), 0
    for k, picture in enumerate(pictures):
        own = register(before @ _GREY, picture @ _GREY)
        right, down, turn = (step.right, step.down, step.turn_deg) if k >= at else (0.0, 0.0, 0.0)
        astray += _reach(own.right - right, own.down - down, own.turn_deg - turn, before.shape) > _OWN * reach
        if astray > _ASTRAY * len(pictures):
            return False
    return True


def _reach(right: float, down: float, turn_deg: float, shape: tuple[int, ...]) -> float:
    """Return by how many pixels a pose moves what lies a quarter of the frame off its middle."""
    return float(np.hypot(right, down)) + float(np.deg2rad(abs(turn_deg))) * shape[0] / 4


def _gains(
    before: NDArray[np.float32], after: NDArray[np.float64], rests: NDArray[np.bool_], most: float
) -> NDArray[np.float64] | None:
    """Return what each colour became of what it was, over the pixels that show the same thing; None below what is worth a word."""
    known = np.isfinite(after).all(axis=-1) & rests
    for picture in (before, after):
        known &= (picture > _DARK).all(axis=-1) & (picture < _WHITE).all(axis=-1)
    if known.sum() < _FEWEST:
        return None
    each = np.log(after[known] / before[known])
    logs = np.median(each, axis=0)
    if float(np.median(np.abs(each - logs))) > most:
        return None
    is_other = abs(float(logs.mean())) >= _BRIGHT or float(np.abs(logs - np.median(logs)).max()) >= _COLOUR
    return np.asarray(np.exp(logs)) if is_other else None


# --- in words --------------------------------------------------------------------------------------------------------


def _pose_words(change: CameraChange) -> str:
    if change.pose is None:
        return f"the view of {change.camera} is another one {change.where}"
    pose, parts = change.pose, list[str]()
    for amount, ways in ((pose.right, ("right", "left")), (pose.down, ("down", "up"))):
        if abs(amount) / change.width >= _SHIFT / 2:
            way = ways[0] if amount > 0 else ways[1]
            parts.append(
                f"{'moves ' if not parts else ''}{100 * abs(amount) / change.width:.1f} % of its width {way}"
            )
    words = [" and ".join(parts)] if parts else []
    if abs(pose.turn_deg) >= _TURN_DEG:
        words.append(
            f"turns {abs(pose.turn_deg):.1f} degrees"
            f" {'clockwise' if pose.turn_deg > 0 else 'counter-clockwise'}"
        )
    if abs(np.log(pose.zoom)) >= _ZOOM:
        words.append(f"is {pose.zoom:.2f} times as large")
    return f"the picture of {change.camera} {', '.join(words)} {change.where}"


def _moved(changes: Sequence[CameraChange]) -> list[DataFinding]:
    found = [c for c in changes if c.pose is not None or c.other_view]
    if not found:
        return []
    return [
        DataFinding(
            code="camera_moved",
            severity=Severity.WARNING,
            sentence=(
                "a camera looks elsewhere in one part of the episodes than in the rest:"
                f" {listed([_pose_words(c) for c in found])}"
            ),
            remedy=(
                "compare a frame of both episodes; fix the camera where the robot will be used, and record"
                " the other part again or train on one part; keep both only if the policy has to bear either"
                " pose"
            ),
            feature=found[0].camera,
            numbers={"changes": [_numbers(c) for c in found]},
        )
    ]


def _light_words(change: CameraChange) -> str:
    assert change.gains is not None
    red, green, blue = change.gains
    level = float(np.exp(np.log(change.gains).mean()))
    words = f"{change.camera} is {level:.2f} times as bright {change.where}"
    if float(np.abs(np.log(change.gains / np.median(change.gains))).max()) >= _COLOUR:
        words = (
            f"{change.camera} has {red:.2f} times its red, {green:.2f} its green and {blue:.2f} its blue"
            f" {change.where}"
        )
    return words


def _lit(changes: Sequence[CameraChange]) -> list[DataFinding]:
    found = [c for c in changes if c.gains is not None]
    if not found:
        return []
    return [
        DataFinding(
            code="light_changes",
            severity=Severity.WARNING,
            sentence=(
                "light or exposure is another one in one part of the episodes than in the rest:"
                f" {listed([_light_words(c) for c in found])}"
            ),
            remedy=(
                "fix exposure and white balance of the camera, and light as where the robot will be used;"
                " train with changes of brightness and colour, or on one part"
            ),
            feature=found[0].camera,
            numbers={"changes": [_numbers(c) for c in found]},
        )
    ]


def _numbers(change: CameraChange) -> Mapping[str, Any]:
    numbers: dict[str, Any] = {
        "camera": change.camera,
        "last_before": change.last_before,
        "first_after": change.first_after,
        "p": change.p,
    }
    if change.pose is not None:
        of = 100.0 / change.width
        numbers |= {
            "right_percent": change.pose.right * of,
            "down_percent": change.pose.down * of,
            "turn_deg": change.pose.turn_deg,
        }
        numbers |= {"zoom": change.pose.zoom, "likeness": change.pose.likeness}
    if change.gains is not None:
        numbers["gains_rgb"] = change.gains.tolist()
    return numbers
