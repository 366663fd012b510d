"""Are the numbers plausible: repeats, wraps, limits, lengths; dead dimensions and units have files of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.checks.data.pooled import Pooled, is_gripper_name
from simgap.checks.data.report import DataFinding, Severity, listed
from simgap.checks.data.values.dead import check_dead
from simgap.checks.data.values.units import check_units
from simgap.conventions import Dimension, Unit, VectorSpec
from simgap.episodes.edit.convert import source_formats
from simgap.episodes.formats.layout import TUB
from simgap.measures.scaling import circular_std
from simgap.wording import number_of

_REPEATED = 0.2
_SHORT = 0.25
_TURNS = {
    Unit.DEG: ("degrees", 360.0),
    Unit.RAD: ("radians", 2 * float(np.pi)),
    Unit.TICKS: ("servo ticks", 4096.0),
}
"""What a whole turn is in each unit that measures an angle; in any other nothing wraps."""
_APPLIED = "applied_action"
"""Column of a trial: the command after the robot clipped it."""
_ASKED_BEYOND = 0.02
"""Share of its range by which a command may lie outside its limits: rounding and the noise of a recording."""
_MEASURED_BEYOND = 0.1
"""The same for a measured joint: its mechanical stop lies behind the servo's limit and gives way under load.

Jaws of our arm that are pressed on the table are measured up to 6 % beyond their limit; another unit is
beyond by far more.
"""


def check_values(pooled: Pooled) -> tuple[dict[str, Any], list[DataFinding]]:
    """Return measurements and findings about the values themselves."""
    action, state = pooled.pooled(pooled.dataset.action_key), pooled.pooled(pooled.dataset.state_key)
    measured, repeats = _repeats(pooled)
    measured["exactly"] = _exactly(pooled, action)
    found = [
        *check_dead(pooled, action, state),
        *check_units(pooled, action, state),
        *_limits(pooled, action, state),
    ]
    return measured, [*found, *repeats, *_wraps(pooled), *_lengths(pooled)]


def _exactly(pooled: Pooled, action: NDArray[np.float64]) -> dict[str, dict[str, float]]:
    """Return the share of frames in which an action is exactly 0, and at its own least and greatest value: dead zones and stops."""
    ends = {"zero": np.zeros(action.shape[1]), "at_least": action.min(axis=0), "at_most": action.max(axis=0)}
    return {
        n: {k: float((action[:, d] == v[d]).mean()) for k, v in ends.items()}
        for d, n in enumerate(pooled.action_names)
    }


def _limits(pooled: Pooled, action: NDArray[np.float64], state: NDArray[np.float64]) -> list[DataFinding]:
    # donkeycar's channels run from -1 to 1
    if not pooled.dataset.is_ours and pooled.dataset.info.version != TUB:
        return []
    spec, key = pooled.dataset.spec, pooled.dataset.action_key
    found = []
    # what was asked and what was handed to the motors were logged apart
    if all(_APPLIED in e for e in pooled.episodes):
        applied = pooled.pooled(_APPLIED)
        if applied.shape == action.shape:
            found += _clipped(key, spec.action_spec, action)
            key, action = _APPLIED, applied
    found += _outside(key, spec.action_spec, action, _ASKED_BEYOND)
    return [*found, *_outside(pooled.dataset.state_key, spec.state_spec, state, _MEASURED_BEYOND)]


def _beyond(spec: VectorSpec, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how far values lie outside their limits, ``(N, D)`` in shares of the range, 0 inside."""
    low, high = spec.low.astype(np.float64), spec.high.astype(np.float64)
    return np.asarray(
        np.maximum(0.0, np.maximum(low - values, values - high)) / np.where(high > low, high - low, 1.0)
    )


def _strays(spec: VectorSpec, values: NDArray[np.float64], tolerance: float) -> tuple[dict[str, Any], str]:
    """Return the numbers of a finding on dimensions that lie further outside than a share of their range, and those in words; empty without any."""
    beyond = _beyond(spec, values)
    shares = {
        n: float(share)
        for n, share in zip(spec.names, (beyond > tolerance).mean(axis=0), strict=True)
        if share > 0
    }
    most = {n: float(beyond[:, k].max()) for k, n in enumerate(spec.names) if n in shares}
    parts = [
        f"{n} in {100 * share:.1f} % of frames, by up to {100 * most[n]:.3g} % of its range"
        for n, share in shares.items()
    ]
    return (
        ({"share_of_frames": shares, "most_beyond": most, "tolerance": tolerance}, listed(parts))
        if shares
        else ({}, "")
    )


def _outside(key: str, spec: VectorSpec, values: NDArray[np.float64], tolerance: float) -> list[DataFinding]:
    numbers, words = _strays(spec, values, tolerance)
    if not numbers:
        return []
    return [
        DataFinding(
            code="outside_limits",
            severity=Severity.FAULT,
            sentence=(
                f"{key} leaves the limits of its own spec by more than the {100 * tolerance:g} % of a range"
                f" that are allowed: {words}"
            ),
            remedy=(
                "correct the limits or the unit in the spec (a channel of a tub runs from -1 to 1), or clip"
                " where the data are made"
            ),
            feature=key,
            joints=tuple(numbers["share_of_frames"]),
            numbers=numbers,
        )
    ]


def _clipped(key: str, spec: VectorSpec, asked: NDArray[np.float64]) -> list[DataFinding]:
    """Say where a policy asked for more than the robot gives; the log of a trial keeps what was asked, as it has to."""
    numbers, words = _strays(spec, asked, _ASKED_BEYOND)
    if not numbers:
        return []
    return [
        DataFinding(
            code="asked_beyond_limits",
            severity=Severity.NOTE,
            sentence=(
                f"{key} holds what a policy asked, beyond the limits in {words}; the robot clipped it"
                f" ({_APPLIED} holds what it did)"
            ),
            remedy=(
                "train on applied_action if these episodes are to be learnt from; a policy that asks far"
                " beyond has another unit or normaliser"
            ),
            feature=key,
            joints=tuple(numbers["share_of_frames"]),
            numbers=numbers,
        )
    ]


def _repeats(pooled: Pooled) -> tuple[dict[str, Any], list[DataFinding]]:
    shares = {}
    for name, tables in (("action", pooled.actions), ("state", pooled.states)):
        same = np.concatenate(
            [(np.diff(t, axis=0) == 0).all(axis=1) for t in tables] + [np.zeros(0, dtype=bool)]
        )
        # what nobody measured repeats nothing
        shares[name] = float(same.mean()) if len(same) and tables[0].shape[1] else None
    share = shares["state"]
    if share is None or share < _REPEATED:
        return {"repeated_frames": shares}, []
    finding = DataFinding(
        code="repeated_frames",
        severity=Severity.NOTE,
        sentence=(
            f"{100 * share:.1f} % of frames repeat the previous state exactly: pauses, stiction or an encoder"
            " read more slowly than the loop runs"
        ),
        remedy="trim pauses at start and end; compare the sensor rate with the loop rate",
        numbers=shares,
    )
    return {"repeated_frames": shares}, [finding]


def _wraps(pooled: Pooled) -> list[DataFinding]:
    """Find angles that jump by a whole turn from one frame to the next."""
    found: dict[str, dict[str, Any]] = {}
    spec = pooled.dataset.spec
    for key, names, dimensions, tables in (
        (pooled.dataset.action_key, pooled.action_names, spec.action_spec.dimensions, pooled.actions),
        (pooled.dataset.state_key, pooled.state_names, spec.state_spec.dimensions, pooled.states),
    ):
        steps = np.abs(np.concatenate([np.diff(t, axis=0) for t in tables]))
        values = np.concatenate(tables)
        spread = np.ptp(values, axis=0)
        declared = {d.name: d for d in dimensions}
        for kind, (unit, turn) in _TURNS.items():
            may_turn = np.array([_may_turn(n, declared.get(n), kind) for n in names], dtype=bool)
            is_one_turn = (spread > 0.97 * turn) & (spread < 1.1 * turn)  # 360 degrees are also many radians
            # A wrap goes from end to end, and nothing lies between it and the motion; what steps by any width
            # does not wrap.
            whole, part = (
                (steps > 0.75 * turn).sum(axis=0),
                ((steps > 0.25 * turn) & (steps <= 0.75 * turn)).sum(axis=0),
            )
            jumps = whole * (is_one_turn & may_turn & (part < whole))
            for k in np.flatnonzero(jumps):
                column = values[:, k]
                found[f"{names[k]} ({key})"] = {
                    "jumps": int(jumps[k]),
                    "share": float(jumps[k] / max(1, len(steps))),
                    "turn": turn,
                    "unit": unit,
                    "std": float(column.std()),
                    "circular_std": circular_std(column, turn),
                }
    if not found:
        return []
    parts = [
        f"{n} {v['jumps']} times by about {v['turn']:.5g} ({v['unit']}; std {v['std']:.3g}, circular"
        f" {v['circular_std']:.3g})"
        for n, v in found.items()
    ]
    return [
        DataFinding(
            code="angle_wraps",
            severity=Severity.FAULT,
            sentence=f"angles jump by a whole turn within one frame: {listed(parts)}",
            remedy=(
                "unwrap them, move the zero of the joint away from the seam, or use a 6-D rotation;"
                " differences of such angles are whole turns too"
            ),
            joints=tuple(found),
            numbers=found,
        )
    ]


def _may_turn(name: str, dimension: Dimension | None, unit: Unit) -> bool:
    """Return whether a dimension can be an angle in this unit: it is declared so or not at all, and it is no gripper."""
    if dimension is None:
        return not is_gripper_name(name)
    return dimension.unit in (unit, Unit.UNKNOWN) and not (dimension.is_gripper or is_gripper_name(name))


def _lengths(pooled: Pooled) -> list[DataFinding]:
    found = []
    empty = [k for k, n in pooled.lengths.items() if n == 0]
    median = float(np.median([n for n in pooled.lengths.values() if n > 0]))
    short = {k: n for k, n in pooled.lengths.items() if 0 < n < max(3.0, _SHORT * median)}
    if empty:
        found.append(
            DataFinding(
                code="empty_episodes",
                severity=Severity.FAULT,
                sentence=f"{number_of(len(empty), 'episode has', 'episodes have')} no frames: {listed([str(k) for k in empty])}",
                remedy="remove their rows from the index",
                numbers={"episodes": empty},
            )
        )
    if short:
        parts = [f"{k} ({n})" for k, n in short.items()]
        found.append(
            DataFinding(
                code="short_episodes",
                # a driver stops where the road ends
                severity=Severity.NOTE if TUB in source_formats(pooled.dataset) else Severity.WARNING,
                sentence=(
                    f"{len(short)} episodes are shorter than a quarter of the median of {median:.0f} frames:"
                    f" {listed(parts)}"
                ),
                remedy="look at them; aborted recordings teach stopping",
                numbers={"lengths": {str(k): n for k, n in short.items()}, "median": median},
            )
        )
    return found
