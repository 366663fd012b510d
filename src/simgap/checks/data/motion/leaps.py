"""Does the state leap inside an episode: borders that were lost when several episodes were stored as one, rows left out, encoders that slipped.

No joint goes a good part of its way within one frame and rests before and after. Where several joints do at
once, the frame is a border; the checks that follow look at both sides apart, or a lost border is read as a
lag of many frames.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.checks.data.motion.tracking import longest_lag, shifted
from simgap.checks.data.pooled import Pooled
from simgap.checks.data.report import DataFinding, Severity, listed

Array = NDArray[np.float64]

_AROUND = 3
"""Frames on either side that a leap is compared with."""
_SUDDEN = 4.0
"""Times the fastest step around it."""
_FAR = 4.0
"""Times the upper quartile of all steps that move."""
_SHARE = 0.02
"""Share of a joint's range that a leap covers at least; half of it is enough beside joints that leap farther."""
_TOGETHER = 0.3
"""Share of the moving joints that leap at a border."""
_SETTLED_S = 0.7
"""Time on either side over which a joint that slipped has to keep its new distance from the command."""
_SLIP = 0.05
"""Share of its range that a joint which slipped has moved at least: joints that stick and break free stay below."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Leaps:
    """Frames at which the state leaps, by episode; a leap at t lies between frames t - 1 and t."""

    borders: Mapping[int, tuple[int, ...]]
    """Several joints at once."""
    slips: Mapping[str, Mapping[int, Mapping[int, float]]]
    """Joint -> episode -> frame -> size: a joint alone, whose command did not leap."""


def find_leaps(pooled: Pooled) -> Leaps:
    """Return where the state leaps."""
    places = [j for j in pooled.joints if not j.is_velocity]  # a speed may be another one in the next frame
    joints = [j for j in places if not j.is_gripper] or places
    states = [s[:, [j.state for j in joints]] for s in pooled.states]
    reach = np.ptp(np.concatenate(states), axis=0) if joints else np.zeros(0)
    alive = reach > 0
    if not alive.any():
        return Leaps(borders={}, slips={})
    typical = _typical(states)
    borders: dict[int, tuple[int, ...]] = {}
    slips: dict[str, dict[int, dict[int, float]]] = {}
    for place, (number, state) in enumerate(zip(pooled.indices, states, strict=True)):
        leaps = _leaps(state, typical, reach)  # (T - 1, J)
        count = leaps.sum(axis=1)
        is_border = count >= max(2, int(np.ceil(_TOGETHER * alive.sum())))
        if alive.sum() == 1:
            is_border &= False
        if is_border.any():
            borders[number] = tuple((np.flatnonzero(is_border) + 1).tolist())
        for k in np.flatnonzero(leaps.any(axis=0)):
            joint = joints[k]
            for t in np.flatnonzero(leaps[:, k] & ~is_border) + 1:
                size = _slipped(
                    pooled.actions[place][:, joint.action],
                    pooled.states[place][:, joint.state],
                    int(t),
                    pooled,
                    _SLIP * reach[k],
                )
                if size is not None:
                    slips.setdefault(joint.name, {}).setdefault(number, {})[int(t)] = size
    return Leaps(borders=borders, slips=slips)


def _typical(states: Sequence[Array]) -> Array:
    """Return the upper quartile of the steps that move, joint by joint, ``(J,)``."""
    steps = np.abs(np.concatenate([np.diff(s, axis=0) for s in states]))
    return np.array([float(np.quantile(v[v > 0], 0.75)) if (v > 0).any() else np.inf for v in steps.T])


def _leaps(state: Array, typical: Array, reach: Array) -> NDArray[np.bool_]:
    steps = np.abs(np.diff(state, axis=0))
    padded = np.pad(steps, ((_AROUND, _AROUND), (0, 0)))
    around = np.zeros_like(steps)
    for k in [*range(_AROUND), *range(_AROUND + 1, 2 * _AROUND + 1)]:
        around = np.maximum(around, padded[k : k + len(steps)])
    leaps = (steps > _SUDDEN * around) & (steps > _FAR * typical) & (steps > _SHARE * reach)
    leaps[:1] = leaps[-1:] = False  # a step at the end has nothing to be compared with
    return np.asarray(leaps)


def _slipped(action: Array, state: Array, t: int, pooled: Pooled, least: float) -> float | None:
    """Return by how much a joint's distance from its command changes at a frame and stays changed; None where it does not."""
    width = max(5, round(_SETTLED_S * pooled.dataset.info.rate_hz))
    if t < width or len(state) - t < width:
        return None
    lag = _lag_of(action, state, pooled.dataset.info.rate_hz)
    command = action[np.clip(np.arange(len(state)) - lag, 0, len(state) - 1)]
    distance = state - command
    before, after = distance[t - width : t], distance[t : t + width]
    size, lasting = (
        float(np.median(b) - np.median(a)) for a, b in ((before, after), (distance[:t], distance[t:]))
    )
    noise = 1.4826 * float(
        np.median(np.abs(np.concatenate([before - np.median(before), after - np.median(after)])))
    )
    step = float(state[t] - state[t - 1])
    is_kept = abs(size) >= max(least, 4.0 * noise) and max(
        abs(size - step), abs(lasting - step)
    ) <= 0.4 * abs(step)
    return size if is_kept else None


def _lag_of(action: Array, state: Array, rate_hz: float) -> int:
    steps = [(np.diff(action), np.diff(state))]
    scores = []
    for lag in range(min(longest_lag(steps, rate_hz), round(rate_hz)) + 1):
        a, s = shifted(steps, lag)
        s = np.clip(s, *np.quantile(s, (0.02, 0.98)))
        scores.append(float(np.corrcoef(a, s)[0, 1]) if np.ptp(a) > 0 and np.ptp(s) > 0 else 0.0)
    return int(np.argmax(np.abs(scores)))


def cut_at(pooled: Pooled, borders: Mapping[int, Sequence[int]]) -> Pooled:
    """Return the recording with every episode cut at its lost borders; pieces keep the number of their episode."""
    if not borders:
        return pooled
    episodes: list[Mapping[str, NDArray[Any]]] = []
    indices: list[int] = []
    for number, columns in zip(pooled.indices, pooled.episodes, strict=True):
        length = len(columns[pooled.dataset.action_key])
        edges = [0, *borders.get(number, ()), length]
        for start, stop in pairwise(edges):
            episodes.append({k: v[start:stop] for k, v in columns.items()})
            indices.append(number)
    return replace(pooled, episodes=tuple(episodes), indices=tuple(indices))


def check_leaps(pooled: Pooled, leaps: Leaps) -> list[DataFinding]:
    """Return the findings."""
    return [*_borders(pooled, leaps), *_slips(leaps)]


def _borders(pooled: Pooled, leaps: Leaps) -> list[DataFinding]:
    if not leaps.borders:
        return []
    n = sum(map(len, leaps.borders.values()))
    gaps = {int(g) for frames in leaps.borders.values() for g in np.diff([0, *frames])}
    every = f", every {gaps.pop()} frames" if len(gaps) == 1 and n > 2 else ""
    parts = [
        f"episode {e} at frames {listed([str(t) for t in frames], 24)}" for e, frames in leaps.borders.items()
    ]
    return [
        DataFinding(
            code="lost_borders",
            severity=Severity.FAULT,
            sentence=(
                f"the state leaps in several joints at once at {n} frame{'s' if n > 1 else ''} inside"
                f" {len(leaps.borders)} episode{'s' if len(leaps.borders) > 1 else ''}{every}:"
                f" {listed(parts)}; several recordings are stored as one, or rows are missing there. The"
                " other checks of the motion look at the pieces"
            ),
            remedy=(
                "cut the episodes at these frames (frame t begins the next one), or record which rows were"
                " left out; a policy learns the leap as a motion"
            ),
            feature=pooled.dataset.state_key,
            numbers={"frames": {str(e): list(frames) for e, frames in leaps.borders.items()}, "borders": n},
        )
    ]


def _slips(leaps: Leaps) -> list[DataFinding]:
    if not leaps.slips:
        return []
    parts = [
        f"{n} by {size:+.3g} at frame {t} of episode {e}"
        for n, episodes in leaps.slips.items()
        for e, frames in episodes.items()
        for t, size in frames.items()
    ]
    return [
        DataFinding(
            code="joint_slips",
            severity=Severity.FAULT,
            sentence=(
                f"the state leaps away from its command within one frame and stays there: {listed(parts)}"
            ),
            remedy=(
                "look for a slipped horn or coupling, an encoder that lost its turn, or a new calibration;"
                " split the recording there"
            ),
            joints=tuple(leaps.slips),
            numbers={
                n: {str(e): {str(t): v for t, v in frames.items()} for e, frames in episodes.items()}
                for n, episodes in leaps.slips.items()
            },
        )
    ]
