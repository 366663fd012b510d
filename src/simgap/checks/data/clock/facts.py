"""What the time stamps of a recording say: the step of its loop, what is missing between frames, where it paused, and in what they count.

The rate is that of the loop while it ran. A mean over all steps would count every pause of the recording as
slowness, so the step is the mean of those steps that lie near their median; what is longer is counted apart,
as frames that are missing or as a pause.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Clock = NDArray[np.float64]

LATE = 2.5
"""Steps beyond this many usual ones are no jitter: a frame or more is missing."""
PAUSE_S = 1.0
PAUSE_STEPS = 10.0
"""A pause is at least :data:`PAUSE_S` and this many usual steps; donkeycar's users lift the thumb, LeRobot's reset the scene."""
_NEAR = 0.5
"""Steps this near to the median, in shares of it, are steps of the running loop."""
_BURSTS = 0.6
"""With fewer steps than this share near the median, or more of the time in late ones, there is no usual step: frames come in bursts."""
_COARSE = 0.2
"""Share of steps of exactly zero above which the clock ticks more slowly than frames come."""
_WINDOW = 30
"""Steps over which a rate is read where it may change within an episode."""
_CHANGE = 1.25


@dataclass(frozen=True, kw_only=True, slots=True)
class Running:
    """One episode's steps, sorted into what they mean; times in s."""

    step_s: float | None
    """Step of the loop; None with fewer than two usable stamps."""
    jitter_s: float
    """Standard deviation of the steps near the median."""
    missing: int
    """Frames that are missing in gaps shorter than a pause."""
    largest_gap_s: float
    """0 without any gap."""
    gap_frame: int
    """Frame behind the largest gap, pauses left out."""
    pauses: tuple[tuple[int, float], ...]
    """``(frame behind it, length in s)`` of each pause."""
    in_bursts: bool
    change: tuple[int, float, float] | None
    """``(frame, step before, step after)`` where the rate changes for good."""


def tick_of(clocks: Sequence[Clock]) -> float | None:
    """Return the tick of a clock that stands still while frames come and then jumps; None for a clock that is fine enough."""
    steps = np.concatenate([np.diff(c) for c in clocks] + [np.zeros(0)])
    ahead = steps[steps > 0]
    if len(steps) < 10 or (steps == 0).mean() <= _COARSE or (steps < 0).any():
        return None
    if len(ahead) == 0:
        return np.inf
    tick = float(np.median(ahead[ahead < 1.5 * ahead.min()]))
    parts = ahead / tick
    return tick if (np.abs(parts - np.round(parts)) < 0.1).mean() > 0.9 else None


def running(clock: Clock, declared_hz: float | None = None) -> Running:
    """Return what the stamps of one episode say, in their own unit.

    Args:
        clock: stamps, ``(T,)``.
        declared_hz: rate that the dataset declares; where steps are whole multiples of its step, frames are
            missing from that loop.
    """
    steps = np.diff(clock)
    ahead = steps[steps > 0]
    if len(ahead) == 0:
        return Running(
            step_s=None,
            jitter_s=0.0,
            missing=0,
            largest_gap_s=0.0,
            gap_frame=0,
            pauses=(),
            in_bursts=False,
            change=None,
        )
    median = float(np.median(ahead))
    runs = (steps > 0) & (steps < max(PAUSE_S, PAUSE_STEPS * median))
    is_thinned = declared_hz is not None and all(
        _is_thinned(part, 1.0 / declared_hz) for part in np.array_split(steps[runs], 2)
    )
    change = None if is_thinned else _change(steps[runs], np.flatnonzero(runs))
    if is_thinned and declared_hz is not None:
        median = 1.0 / declared_hz
    near = ahead[np.abs(ahead - median) <= _NEAR * median]
    step, jitter = float(near.mean()), float(near.std())
    late = steps[runs & (steps > LATE * step)]
    in_bursts = (
        change is None
        and not is_thinned
        and (len(near) < _BURSTS * len(ahead) or late.sum() > _BURSTS * steps[runs].sum())
    )
    if in_bursts:  # bursts keep the pace of their source on the whole
        step = float(steps[runs].mean())
    is_pause = steps >= max(PAUSE_S, PAUSE_STEPS * step)
    gaps = (
        np.flatnonzero((steps > LATE * step) & ~is_pause)
        if change is None and not in_bursts
        else np.zeros(0, dtype=np.intp)
    )
    worst = int(gaps[np.argmax(steps[gaps])]) if len(gaps) else -1
    singles = _single(steps, step, jitter) if change is None and not in_bursts else 0
    return Running(
        step_s=step,
        jitter_s=jitter,
        missing=int(np.round(steps[gaps] / step - 1).sum()) + singles,
        largest_gap_s=float(steps[worst]) if worst >= 0 else 0.0,
        gap_frame=worst + 1,
        pauses=tuple((int(k) + 1, float(steps[k])) for k in np.flatnonzero(is_pause)),
        in_bursts=in_bursts,
        change=change,
    )


def _is_thinned(steps: Clock, step: float) -> bool:
    """Return whether steps are whole multiples of a loop's, a good part of them single ones."""
    parts = steps / step
    on_grid = np.abs(parts - np.round(parts)) < 0.1
    return len(parts) > 10 and bool(on_grid.mean() > 0.95 and (np.round(parts) == 1).mean() > 0.2)


def _single(steps: Clock, step: float, jitter: float) -> int:
    """Return how many single frames are missing: steps of two, where the loop is steady enough to tell them from lateness."""
    if jitter > 0.15 * step:
        return 0
    return int((np.abs(steps / step - 2.0) < 0.25).sum())


def _change(steps: Clock, places: NDArray[np.intp]) -> tuple[int, float, float] | None:
    """Return where the usual step changes and stays so: two levels, each steady over at least two windows."""
    count = len(steps) // _WINDOW
    if count < 4:
        return None
    levels = np.log(np.median(steps[: count * _WINDOW].reshape(count, _WINDOW), axis=1))
    splits = range(2, count - 1)
    best = min(
        splits,
        key=lambda k: float(
            np.abs(levels[:k] - np.median(levels[:k])).sum()
            + np.abs(levels[k:] - np.median(levels[k:])).sum()
        ),
    )
    before, after = float(np.median(levels[:best])), float(np.median(levels[best:]))
    noise = max(
        float(np.median(np.abs(levels[:best] - before))), float(np.median(np.abs(levels[best:] - after)))
    )
    if abs(after - before) < np.log(_CHANGE) or abs(after - before) < 4 * noise:
        return None
    return int(places[best * _WINDOW]) + 1, float(np.exp(before)), float(np.exp(after))


def pooled_step(found: Mapping[int, Running], lengths: Mapping[int, int]) -> float | None:
    """Return the step of all episodes together, each counted with its frames."""
    known = [(r.step_s, lengths[k]) for k, r in found.items() if r.step_s is not None]
    if not known:
        return None
    steps, weights = np.array([s for s, _ in known]), np.array([n for _, n in known], dtype=np.float64)
    order = np.argsort(steps)
    half = int(np.searchsorted(np.cumsum(weights[order]), 0.5 * weights.sum()))
    median = float(steps[order][min(half, len(steps) - 1)])
    near = np.abs(steps / median - 1.0) <= 0.1
    return float((steps[near] * weights[near]).sum() / weights[near].sum())


def rate_groups(found: Mapping[int, Running], apart: float = 0.1) -> list[tuple[float, list[int]]]:
    """Return ``(step, episodes)`` of each group of episodes whose step is the same within a share, most frames' worth first.

    Episodes of few frames say little about their rate and join none.
    """
    ordered = sorted((r.step_s, k) for k, r in found.items() if r.step_s is not None)
    groups: list[list[tuple[float, int]]] = []
    for step, k in ordered:
        if (
            groups
            and step / groups[-1][-1][0] - 1.0 <= 0.5 * apart
            and step / groups[-1][0][0] - 1.0 <= 2 * apart
        ):
            groups[-1].append((step, k))
        else:
            groups.append([(step, k)])
    return sorted(
        ((float(np.median([s for s, _ in g])), sorted(k for _, k in g)) for g in groups),
        key=lambda g: -len(g[1]),
    )
