"""Dimensions that never change: padding and joints nobody used, or a sensor that does not answer."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.checks.data.pooled import Pooled
from simgap.checks.data.report import DataFinding, Severity, listed

_SLIGHT = 0.03
"""Share of what the dimensions of a vector usually cover, below which one may be noise."""
_STEPS = 4
"""Values that the noise of an encoder takes at most."""
_WHITE = 0.2
"""Variance of the steps over that of the values, from which on they do not go anywhere: 2 for white noise, near 0 for motion."""


def check_dead(pooled: Pooled, action: NDArray[np.float64], state: NDArray[np.float64]) -> list[DataFinding]:
    """Name the dimensions that never change in either vector.

    A joint that nobody commanded and that did not move is not used by the task, and zeros at the end of a
    vector are padding to the width of a model: notes. A command without any motion, or a motion without any
    command, is a fault of somebody's.
    """
    constant = {
        key: _constant(values)
        for key, values in ((pooled.dataset.action_key, action), (pooled.dataset.state_key, state))
    }
    partner = {
        (pooled.dataset.action_key, j.action): (pooled.dataset.state_key, j.state) for j in pooled.joints
    }
    partner |= {v: k for k, v in partner.items()}
    moving = {(pooled.dataset.action_key, k) for k in _moving(action)} | {
        (pooled.dataset.state_key, k) for k in _moving(state)
    }
    found = []
    for key, values in ((pooled.dataset.action_key, action), (pooled.dataset.state_key, state)):
        dead = constant[key]
        if not dead:
            continue
        padded = _padding(values, dead)
        torn = [k for k in dead if k not in padded and (key, k) in partner and partner[key, k] in moving]
        names = pooled.names(key)
        still = {names[k]: float(values[0, k]) for k in dead}
        is_all = len(dead) == values.shape[1]
        found.append(
            _finding(
                key,
                still,
                [names[k] for k in padded],
                [names[k] for k in torn],
                values.shape[1],
                is_all=is_all,
            )
        )
    return found


def _finding(
    key: str, still: dict[str, float], padded: list[str], torn: list[str], width: int, *, is_all: bool
) -> DataFinding:
    parts = [f"{n} = {v:g}" for n, v in still.items()]
    sentence = (
        f"{key}: {len(still)} of {width} dimensions never change ({listed(parts)}): std 0, a normaliser"
        " without a floor divides by zero"
    )
    if padded:
        sentence += f"; the last {len(padded)} are zeros, padding to the width of a model"
    if torn:
        sentence += f"; {listed(torn)} moves in the other vector"
    numbers: dict[str, Any] = {"values": still, "padding": padded, "moves_in_the_other": torn}
    remedy = "drop them, or normalise with a floor under the standard deviation"
    if torn:
        remedy = f"look at the sensor, or at the command, of {listed(torn)}; else {remedy}"
    return DataFinding(
        code="dead_dimensions",
        severity=Severity.WARNING if torn or is_all else Severity.NOTE,
        sentence=sentence,
        remedy=remedy,
        feature=key,
        joints=tuple(still),
        numbers=numbers,
    )


def _constant(values: NDArray[np.float64]) -> list[int]:
    return [k for k in range(values.shape[1]) if np.ptp(values[:, k]) == 0.0] if len(values) > 1 else []


def _moving(values: NDArray[np.float64]) -> list[int]:
    """Return the dimensions that move: what flickers by a step or two of its encoder beside others that travel stands still."""
    if len(values) < 2:
        return []
    spans = np.ptp(values, axis=0)
    least = _SLIGHT * float(np.median(spans[spans > 0])) if (spans > 0).any() else 0.0
    moving = []
    for k in np.flatnonzero(spans > 0):
        v = values[:, k]
        flickers = len(np.unique(v)) <= _STEPS or np.diff(v).var() > _WHITE * v.var()
        if not (spans[k] < least and flickers):
            moving.append(int(k))
    return moving


def _padding(values: NDArray[np.float64], dead: list[int]) -> list[int]:
    """Return the zeros at the end of a vector, where they are two or more."""
    last = values.shape[1]
    while last - 1 in dead and values[0, last - 1] == 0.0:
        last -= 1
    return list(range(last, values.shape[1])) if values.shape[1] - last > 1 and last > 0 else []
