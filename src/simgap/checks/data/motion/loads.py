"""Joints that something holds up: a hand on a table, an arm that pushes, an object in the way; told from stops, gains and zeros.

While it is blocked the state stays behind its command to one side, for a while; before and after, the joint
follows. A stop of the joint is the same picture, but always at the same end of its travel; an arm that meets
something is held in several joints at once, or at places that it passes on other occasions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Pairs = Sequence[tuple[Array, Array]]

_GAP = 0.05
"""How far the state has to stay behind, in ranges of the command."""
_OFTEN = 5.0
"""The same in usual distances of the state from its command."""
_SHORTEST_S = 0.25
_FEWEST = 12
_MOST = 0.45
"""Share of frames from which on it is the rule and no load."""
_RUNS = 0.7
"""Share of the frames that are far off which belong to such stretches, at least."""
_FOLLOWS = 0.12
"""How far from 1 the scale of the other frames may lie."""
_TIGHT = 0.9
_END = 0.01
"""How near to the end of its travel a joint is always held by its stop, in ranges of the state."""
_TOGETHER = 0.5
"""Share of its held frames in which another joint is held too, from which on it is the arm that meets something."""


def blocked(pairs: Pairs, lag: int, rate_hz: float) -> dict[str, Any]:
    """Return where something holds a joint up, empty where nothing does.

    Args:
        pairs: ``(action, state)`` of each episode.
        lag: frames by which the state follows.
        rate_hz: frames per second.

    Returns:
        ``mask`` over the aligned frames of all episodes, how many, how far off and to which side, and
        ``at_end`` where it is always held at one end of its travel, as a stop does.
    """
    aligned = [(a[: len(a) - lag], s[lag:]) for a, s in pairs if len(a) > lag]
    a, s = (np.concatenate([p[k] for p in aligned]) for k in (0, 1))
    off = s - a
    off = off - float(np.median(off))
    spread, usual = float(np.ptp(a)), float(np.median(np.abs(off)))
    threshold = max(_GAP * spread, _OFTEN * usual)
    edges = np.cumsum([0, *(len(p[0]) for p in aligned)])
    shortest = max(4, round(_SHORTEST_S * rate_hz))
    runs = [
        (i, k)
        for begin, end in pairwise(edges.tolist())
        for i, k in _runs(off[begin:end], threshold, shortest, begin)
        if _is_held(s[i:k], a[i:k], off[i:k])
    ]
    if not runs:
        return {}
    held = np.zeros(len(a), dtype=bool)
    for i, k in runs:
        held[i:k] = True
    side = float(np.sign(off[held].sum()))
    every = np.abs(off) > threshold
    if (
        held.sum() < _FEWEST
        or held.mean() > _MOST
        or held.sum() < _RUNS * every.sum()
        or _is_frozen(s, off, runs, edges.tolist())
    ):
        return {}
    if not _follows(a[~every], s[~every], spread):
        return {}
    end = float(s.max() if side < 0 else s.min())
    return {
        "mask": held,
        "frames": int(held.sum()),
        "share": float(held.mean()),
        "gap": float(np.abs(off[held]).mean()),
        "gap_free": float(np.abs(off[~every]).mean()),
        "side": _side(side),
        "at_end": bool(float(np.quantile(np.abs(s[held] - end), 0.9)) < _END * float(np.ptp(s)) + 1e-12),
    }


def _side(side: float) -> str:
    return "state above command" if side > 0 else "state below command"


def loaded_jaws(a: Array, s: Array, moving: Mask) -> dict[str, Any]:
    """Find jaws that rest on something: both still, the state off the command to one side, while without a load it reaches its commands."""
    residual = s - a
    threshold = _GAP * float(np.ptp(a))
    off = ~moving & (np.abs(residual) > threshold)
    side = np.sign(residual[off].sum()) if off.any() else 0.0
    held = off & (np.sign(residual) == side)
    if held.sum() < _FEWEST or held.sum() < 0.8 * off.sum():
        return {}
    low, high = np.quantile(a[held], (0.05, 0.95))
    reached = ~moving & (np.abs(residual) <= threshold)
    free = reached & (a >= low - threshold) & (a <= high + threshold)
    is_closing = side > 0 and float(np.median(a[held])) < 0.5 * float(a.min() + a.max())
    if free.sum() < _FEWEST and is_closing:
        free = reached  # it never closes on nothing, but it does reach its other commands
    if free.sum() < _FEWEST:
        return {}
    return {
        "mask": held,
        "frames": int(held.sum()),
        "share": float(held.mean()),
        "gap": float(np.abs(residual[held]).mean()),
        "gap_free": float(np.abs(residual[free]).mean()),
        "side": _side(side),
    }


def _runs(off: Array, threshold: float, shortest: int, begin: int) -> list[tuple[int, int]]:
    """Return where the state is beyond the threshold to one side without a break, at least ``shortest`` frames."""
    signs = np.where(np.abs(off) > threshold, np.sign(off), 0.0)
    breaks = [0, *(np.flatnonzero(np.diff(signs)) + 1).tolist(), len(signs)]
    return [(begin + i, begin + k) for i, k in pairwise(breaks) if k - i >= shortest and signs[i] != 0.0]


def _is_held(state: Array, action: Array, off: Array) -> bool:
    """Return whether the state rests while its command is beyond: what moves as its command does lags, it is not held."""
    farthest = float(np.abs(off).max())
    return float(np.ptp(state)) < 0.5 * max(farthest, float(np.ptp(action)))


def _is_frozen(s: Array, off: Array, runs: Sequence[tuple[int, int]], edges: Sequence[int]) -> bool:
    """Return whether the state leaps to its command where it is freed, as of an encoder that had frozen, or stays at one exact value to the end.

    One stretch that ends smoothly shows that the encoder was alive; a command that passes by and is not
    followed shows that it was not.
    """
    if any(off[i] * off[m] < 0 and float(np.ptp(s[i:n])) == 0.0 for (i, _), (m, n) in pairwise(runs)):
        return True
    steps = [(abs(float(s[k] - s[k - 1])), float(np.abs(off[i:k]).max())) for i, k in runs if k not in edges]
    leaps = sum(step > 0.5 * gap for step, gap in steps)
    stuck = sum(float(np.ptp(s[i:k])) == 0.0 for i, k in runs if k in edges)
    return leaps + stuck > 0 and len(steps) - leaps < max(1, leaps)


def _follows(a: Array, s: Array, spread: float) -> bool:
    if len(a) < 2 * _FEWEST or float(np.ptp(a)) < 0.2 * spread or float(np.ptp(s)) == 0.0:
        return False
    scale, _ = np.polyfit(a, s, 1)
    return abs(float(scale) - 1.0) <= _FOLLOWS and float(np.corrcoef(a, s)[0, 1]) ** 2 >= _TIGHT


def at_stops(loads: Mapping[str, tuple[Mapping[str, Any], Mask]]) -> frozenset[str]:
    """Return which joints are held by their own stop: always at one end of their travel, and while no other joint is held.

    Args:
        loads: what :func:`blocked` said of each joint, and in which frames of the recording it was held.
    """
    own = set()
    for name, (load, held) in loads.items():
        others = np.zeros(len(held), dtype=bool)
        for other, (_, mask) in loads.items():
            if other != name:
                others |= mask
        if load.get("at_end") and (held & others).sum() < _TOGETHER * held.sum():
            own.add(name)
    return frozenset(own)
