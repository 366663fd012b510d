"""Are actions positions at all: steps, distances and velocities that stand under the name of a position, or under their own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.checks.data.motion.tracking import Relation, Tracking, longest_lag
from simgap.checks.data.motion.velocities import says_velocity
from simgap.checks.data.pooled import Joint, Pooled
from simgap.checks.data.report import DataFinding, Severity, listed
from simgap.conventions import Dimension, Reference
from simgap.measures.lag_sums import lag_sums
from simgap.measures.units import unit_pair

Array = NDArray[np.float64]
_WINDOW_S = 0.5
_FOLLOWS = 0.85
"""Correlation of the summed action with the change of the state, over half a second, from which on the action is a difference."""
_CLEARLY = 0.12
"""By how much that has to exceed the correlation with the state itself, within episodes, which a smooth motion has at some lag too."""


def check_differences(pooled: Pooled, tracks: Sequence[Tracking]) -> tuple[list[DataFinding], frozenset[str]]:
    """Return the findings, and the joints whose action is no position."""
    rate = pooled.dataset.info.rate_hz
    joints = {j.name: j for j in pooled.joints}
    declared = {d.name: d for d in pooled.dataset.spec.action_spec.dimensions}
    actions, states = pooled.actions, pooled.states
    found: dict[str, dict[str, Any]] = {}
    for t in tracks:
        if t.relation is not Relation.TRACKED:
            continue
        j = joints[t.name]
        numbers = difference(
            j, [(a[:, j.action], s[:, j.state]) for a, s in zip(actions, states, strict=True)], rate
        )
        if numbers:
            found[t.name] = numbers
    said = {n for n in found if _is_declared(n, declared.get(n))}
    groups = (
        ([n for n in found if n not in said], Severity.WARNING),
        ([n for n in found if n in said], Severity.NOTE),
    )
    return [_finding(names, found, severity, rate) for names, severity in groups if names], frozenset(found)


def difference(joint: Joint, pairs: Sequence[tuple[Array, Array]], rate_hz: float) -> dict[str, Any]:
    """Return how the action of a joint follows the change of its state; empty where it follows the state or neither."""
    window = max(2, round(_WINDOW_S * rate_hz))
    moved = [(_sums(a, window), s[window:] - s[:-window]) for a, s in pairs if len(a) > 2 * window + 12]
    if not moved or joint.is_gripper:
        return {}
    longest = min(longest_lag(moved, rate_hz), round(rate_hz))
    changes, plain = lag_sums(moved, -window, longest), lag_sums(pairs, 0, longest)
    r = changes.pooled()
    k = int(np.argmax(r))
    position = float(np.sqrt(plain.explained().max()))
    if r[k] < max(_FOLLOWS, position + _CLEARLY):
        return {}
    slope = _slope(moved, int(changes.lags[k]))
    return {
        "correlation": float(r[k]),
        "correlation_as_position": position,
        "state_per_summed_action": slope,
        "lag_frames": int(changes.lags[k]),
    }


def _sums(values: Array, window: int) -> Array:
    total = np.concatenate([[0.0], np.cumsum(values)])
    return np.asarray(total[window:-1] - total[: -window - 1]) if window else values


def _slope(pairs: Sequence[tuple[Array, Array]], lag: int) -> float:
    sides = [
        (a[: len(a) - lag], s[lag:]) if lag >= 0 else (a[-lag:], s[: len(s) + lag])
        for a, s in pairs
        if len(a) > abs(lag) + 3
    ]
    a, s = (np.concatenate([p[k] for p in sides]) for k in (0, 1))
    return float(np.polyfit(a, s, 1)[0]) if np.ptp(a) > 0 else float("nan")


def _is_declared(name: str, dimension: Dimension | None) -> bool:
    """Return whether the data say themselves that an action is no absolute position."""
    if says_velocity(name, dimension) or re.search(r"delta", name, re.IGNORECASE):
        return True
    return dimension is not None and dimension.reference is not Reference.ABSOLUTE


def _kind(slope: float, rate_hz: float) -> str:
    if 0.7 < slope < 1.4:
        return "they are steps"
    per_second = slope * rate_hz
    if 0.7 < per_second < 1.4:
        return "they are velocities in the unit of the state per second"
    pair = unit_pair(per_second)
    same = (
        f", as velocities would with {pair}" if pair in ("degrees for radians", "radians for degrees") else ""
    )
    return f"a second of them moves the state by {per_second:.3g} times their value{same}"


def _finding(
    names: Sequence[str], found: dict[str, dict[str, Any]], severity: Severity, rate_hz: float
) -> DataFinding:
    slope = float(np.median([found[n]["state_per_summed_action"] for n in names]))
    what = _kind(slope, rate_hz)
    under = "" if severity is Severity.NOTE else ", under the name of a position"
    return DataFinding(
        code="actions_are_differences",
        severity=severity,
        sentence=f"actions of {listed(list(names))} follow the change of state, not the state{under}: {what}",
        remedy=(
            "say so with --is 'action:*=delta' (steps), 'action:*=chunk_delta' (distances to the state) or"
            " 'action:*=rad/s' (velocities, deg/s and m/s alike); never mix with absolute actions"
        ),
        joints=tuple(names),
        numbers={n: found[n] for n in names},
    )
