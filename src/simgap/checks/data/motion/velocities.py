"""Actions that are velocities, by their name or by what their owner says: compared with the change of the state, never with the state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.checks.data.pooled import Joint, Pooled, is_gripper_name, is_velocity_name, velocity_stem
from simgap.checks.data.report import DataFinding, Severity, listed
from simgap.conventions import Dimension, Reference, Unit
from simgap.measures.lag_sums import lag_sums
from simgap.measures.units import PER_DEGREE, is_cartesian, unit_pair

Array = NDArray[np.float64]
Pairs = Sequence[tuple[Array, Array]]

_WINDOW_S = 0.5
"""Over this time velocities are summed and compared with how far the state went."""
_FOLLOWS = 0.7
_CLEARLY = 0.1
_UNRELATED = 0.4
_IDLE = 0.1
_PLAUSIBLE = (0.67, 1.5)
_LONG_LAG_S = 0.3
_EARLY_S = 0.1
_ANGLES = (Unit.DEG, Unit.RAD, Unit.TICKS)


@dataclass(frozen=True, kw_only=True, slots=True)
class Speed:
    """How a state goes where a velocity tells it to."""

    name: str
    correlation: float
    """Of the summed velocity with the way of the state, at the lag where it is largest either way."""
    as_position: float
    """Of the action with the state itself, within episodes, at its best lag."""
    ratio: float
    """Change of the state per second over the action, after the units that both state."""
    lag_frames: int
    is_stated: bool
    """Whether both sides state units that can be compared."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {f: getattr(self, f) for f in self.__slots__ if f != "name"}


def says_velocity(name: str, dimension: Dimension | None = None) -> bool:
    """Return whether the name of a dimension or its declared unit says that it is a velocity."""
    return is_velocity_name(name) or (dimension is not None and dimension.unit.is_velocity)


def velocity_joints(pooled: Pooled) -> tuple[Joint, ...]:
    """Return the actions that say they are velocities, each with the state that it moves."""
    declared, measured = (
        {d.name: d for d in s.dimensions}
        for s in (pooled.dataset.spec.action_spec, pooled.dataset.spec.state_spec)
    )
    places = [k for k, n in enumerate(pooled.state_names) if not says_velocity(n, measured.get(n))]
    by_stem = {velocity_stem(pooled.state_names[k]): k for k in reversed(places)}
    own = {j.action: j.state for j in pooled.joints}
    found = []
    for k, name in enumerate(pooled.action_names):
        d = declared.get(name)
        if (
            is_gripper_name(name)
            or not says_velocity(name, d)
            or (d is not None and d.reference is not Reference.ABSOLUTE)
        ):
            continue
        # the state of the same name is a velocity as well
        if own.get(k) is not None and own[k] not in places:
            continue
        place = own.get(k, by_stem.get(velocity_stem(name)))
        if place is not None:
            found.append(Joint(name=name, action=k, state=place))
    return tuple(found)


def check_velocities(pooled: Pooled, joints: Sequence[Joint]) -> list[DataFinding]:
    """Return what is said of velocities: signs, scales and lags, and positions that stand in their place."""
    speeds = [s for j in joints if (s := speed(pooled, j)) is not None]
    rate = pooled.dataset.info.rate_hz
    follow = [s for s in speeds if abs(s.correlation) >= _FOLLOWS and not _is_position(s)]
    return [*_positions(pooled, speeds), *_strangers(speeds), *_scales(follow, rate), *_lags(follow, rate)]


def speed(pooled: Pooled, joint: Joint) -> Speed | None:
    """Measure one velocity; None where nothing moves or every episode is too short."""
    rate = pooled.dataset.info.rate_hz
    window = max(2, round(_WINDOW_S * rate))
    every = [
        (a, s[:, joint.state])
        for a, s in zip((a[:, joint.action] for a in pooled.actions), pooled.states, strict=True)
    ]
    pairs = [(a, s) for a, s in every if len(a) > 3 * window]
    if not pairs or _is_idle(pooled, joint):
        return None
    longest = min(round(rate), min(len(a) for a, _ in pairs) - 2 * window)
    moved = [(_sums(a, window) / rate, s[window:] - s[:-window]) for a, s in pairs]
    sums = lag_sums(moved, -window, longest)
    r = sums.pooled()
    k = int(np.argmax(np.abs(r)))
    lag = int(sums.lags[k])
    sides = [(a[: len(a) - lag], s[lag:]) if lag >= 0 else (a[-lag:], s[: len(s) + lag]) for a, s in moved]
    a, s = (np.concatenate([p[i] for p in sides]) for i in (0, 1))
    if np.ptp(a) == 0 or np.ptp(s) == 0:
        return None
    expected = _expected(pooled, joint)
    return Speed(
        name=joint.name,
        correlation=float(r[k]),
        as_position=float(np.sqrt(max(0.0, float(lag_sums(pairs, 0, longest).explained().max())))),
        ratio=float(np.polyfit(a, s, 1)[0]) / (expected or 1.0),
        lag_frames=lag,
        is_stated=expected is not None,
    )


def _sums(values: Array, window: int) -> Array:
    total = np.concatenate([[0.0], np.cumsum(values)])
    return np.asarray(total[window:-1] - total[: -window - 1])


def _is_idle(pooled: Pooled, joint: Joint) -> bool:
    ranges = np.array([np.ptp(np.concatenate(pooled.states)[:, k]) for k in range(len(pooled.state_names))])
    return bool(
        ranges[joint.state] < _IDLE * np.quantile(ranges, 0.75)
        and np.ptp(np.concatenate(pooled.actions)[:, joint.action]) < _IDLE
    )


def _expected(pooled: Pooled, joint: Joint) -> float | None:
    """Return how much of the state's unit a second of one unit of the action is; None where one of them is not stated."""
    action = pooled.dataset.spec.action_spec.dimensions
    state = pooled.dataset.spec.state_spec.dimensions
    if len(action) <= joint.action or len(state) <= joint.state:
        return None
    given, moved = action[joint.action].unit, state[joint.state].unit
    is_length = given in (Unit.METRE_PER_SECOND, Unit.MILLIMETRE_PER_SECOND)
    if not given.is_velocity or not (moved.is_length if is_length else moved in _ANGLES):
        return None
    return PER_DEGREE[moved] / PER_DEGREE[given]


def _is_position(s: Speed) -> bool:
    return s.as_position >= 0.9 and s.as_position > abs(s.correlation) + _CLEARLY


def _positions(pooled: Pooled, speeds: Sequence[Speed]) -> list[DataFinding]:
    found = [s for s in speeds if _is_position(s)]
    if not found:
        return []
    return [
        DataFinding(
            code="actions_are_positions",
            severity=Severity.WARNING,
            sentence=(
                f"actions of {listed([s.name for s in found])} are called velocities and follow the state"
                f" itself, not its change (correlation {min(s.as_position for s in found):.2f} against"
                f" {max(abs(s.correlation) for s in found):.2f}): they are positions"
            ),
            remedy=(
                "say in which unit they are, such as --is 'action:*=rad', or rename them; a controller that"
                " takes velocities would run away"
            ),
            feature=pooled.dataset.action_key,
            joints=tuple(s.name for s in found),
            numbers={s.name: s.to_json() for s in found},
        )
    ]


def _strangers(speeds: Sequence[Speed]) -> list[DataFinding]:
    lost = [s for s in speeds if abs(s.correlation) < _UNRELATED and s.as_position < _UNRELATED]
    if not lost:
        return []
    return [
        DataFinding(
            code="state_unrelated",
            severity=Severity.WARNING,
            sentence=(
                f"the state of {listed([s.name for s in lost])} neither goes where its velocity points nor"
                " follows it at any lag"
            ),
            remedy="check the names and the column order",
            joints=tuple(s.name for s in lost),
            numbers={s.name: s.to_json() for s in lost},
        )
    ]


def _scales(speeds: Sequence[Speed], rate_hz: float) -> list[DataFinding]:
    found = []
    for s in speeds:
        said = _scale(s, rate_hz)
        if said is None:
            continue
        code, severity, text = said
        found.append(
            DataFinding(
                code=code,
                severity=severity,
                sentence=text,
                remedy=(
                    "convert the velocities before training, or say their unit with --is 'action:NAME=rad/s'"
                ),
                joints=(s.name,),
                numbers=s.to_json(),
            )
        )
    return found


def _scale(s: Speed, rate_hz: float) -> tuple[str, Severity, str] | None:
    """Return code, severity and sentence about sign and scale; only where units are stated can a ratio that is no unit be wrong."""
    if s.correlation < 0:
        return (
            "sign_flip",
            Severity.FAULT,
            (
                f"the state of {s.name} goes against its velocity (correlation {s.correlation:.3f}): a sign"
                " is flipped"
            ),
        )
    if _PLAUSIBLE[0] < s.ratio < _PLAUSIBLE[1]:
        return None
    text = f"the state of {s.name} changes by {s.ratio:.4g} of its unit per second where its action says 1"
    if abs(s.ratio / rate_hz - 1.0) < 0.15:
        return (
            "unit_mismatch",
            Severity.FAULT,
            f"{text}: the actions are steps per frame at {rate_hz:g} Hz, no velocities per second",
        )
    pair = unit_pair(s.ratio, is_length=is_cartesian(s.name))
    if pair is not None and (s.is_stated or "degrees for radians" in pair or "radians for degrees" in pair):
        return "unit_mismatch", Severity.FAULT, f"{text}, as {pair}"
    return (
        ("scale_mismatch", Severity.WARNING, f"{text}: gain, unit or calibration differ")
        if s.is_stated
        else None
    )


def _lags(speeds: Sequence[Speed], rate_hz: float) -> list[DataFinding]:
    if not speeds:
        return []
    frames = float(np.median([s.lag_frames for s in speeds]))
    names, numbers = tuple(s.name for s in speeds), {s.name: s.to_json() for s in speeds}
    ms = 1e3 * frames / rate_hz
    if frames / rate_hz < -_EARLY_S:
        return [
            DataFinding(
                code="state_leads_action",
                severity=Severity.FAULT,
                sentence=(
                    f"the state goes {-frames:g} frames ({-ms:.0f} ms) before its velocity says so; no"
                    " command acts backwards, so the columns are shifted against each other"
                ),
                remedy="find where they were aligned; action[t] is the command sent after state[t] was read",
                joints=names,
                numbers=numbers,
            )
        ]
    if frames < 0.5:
        return []
    is_long = frames / rate_hz > _LONG_LAG_S
    return [
        DataFinding(
            code="long_lag" if is_long else "lag",
            severity=Severity.WARNING if is_long else Severity.NOTE,
            sentence=f"the state goes where its velocity points after {frames:g} frames ({ms:.0f} ms)",
            remedy="give the simulator the same lag, and check it again on the robot",
            joints=names,
            numbers=numbers,
        )
    ]
