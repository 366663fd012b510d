"""How an actuator follows its command, from a log of both: lag, scale and bias by joint, dead band and load, units from the encoder's step.

A unit or a sign is one factor in every motion. Gravity, dead band and stiction are not: they change the
apparent scale from one motion to the next, keep their sign, and leave a held joint off its command by an
amount that depends on where it came from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

LONGEST_LAG_S = 0.395
_HOLD_S = 0.3
"""A command that rests this long is a hold."""
_TURN_BITS = range(10, 17)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ActuatorLog:
    """One motion: commands sent and positions measured."""

    name: str
    joints: tuple[str, ...]
    command_time_s: NDArray[np.float64]
    """``(N,)``."""
    command: NDArray[np.float64]
    """``(N, J)`` in the log's own unit."""
    state_time_s: NDArray[np.float64]
    """``(M,)``."""
    state: NDArray[np.float64]
    """``(M, J)``."""

    @property
    def period_s(self) -> float:
        """Median time between commands."""
        return float(np.median(np.diff(self.command_time_s)))


@dataclass(frozen=True, kw_only=True, slots=True)
class JointFollow:
    """``state(t) = scale * command(t - lag) + offset`` of one joint in one motion."""

    state_range: float
    bias: float
    """Mean of state minus command."""
    lag_samples: int | None = None
    """None where the command is constant."""
    lag_low_s: float | None = None
    lag_high_s: float | None = None
    """The lag lies above ``low`` and not above ``high``: a sampled log cannot tell closer."""
    is_resolved: bool = False
    """False at the longest lag tried: the motion is too slow to tell."""
    scale: float | None = None
    offset: float | None = None
    r2: float | None = None
    rmse: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values, lags in milliseconds."""
        ms = [None if v is None else 1e3 * v for v in (self.lag_low_s, self.lag_high_s)]
        return {
            "is_constant": self.lag_samples is None,
            "state_range": self.state_range,
            "bias": self.bias,
            "lag_samples": self.lag_samples,
            "lag_ms": {"above": ms[0], "up_to": ms[1]},
            "lag_is_resolved": self.is_resolved,
            "scale": self.scale,
            "offset": self.offset,
            "r2": self.r2,
            "rmse": self.rmse,
        }


def follow(log: ActuatorLog, joint: int) -> JointFollow:
    """Fit one joint: a zero-order-hold command delayed by whole samples, least squares for scale and offset at each delay."""
    held = np.searchsorted(log.command_time_s, log.state_time_s, side="right") - 1
    inside = held >= 0
    command, state = log.command[:, joint], log.state[:, joint]
    reach, bias = float(np.ptp(state)), float((state[inside] - command[held[inside]]).mean())
    if np.ptp(command) == 0.0:
        return JointFollow(state_range=reach, bias=bias)
    longest = max(1, int(np.ceil(LONGEST_LAG_S / log.period_s)))
    best: tuple[float, int, float, float, float] | None = None
    for lag in range(1, longest + 1):
        rows = held - lag
        used = rows >= 0
        if used.sum() < 12:
            break
        a, s = command[rows[used]], state[used]
        if np.ptp(a) == 0.0 or np.ptp(s) == 0.0:
            continue
        scale, offset = np.polyfit(a, s, 1)
        error = float(np.mean((scale * a + offset - s) ** 2))
        if best is None or error < best[0]:
            best = (error, lag, float(scale), float(offset), 1.0 - error / float(s.var()))
    if best is None:
        return JointFollow(state_range=reach, bias=bias)
    error, lag, scale, offset, r2 = best
    return JointFollow(
        state_range=reach,
        bias=bias,
        lag_samples=lag,
        lag_low_s=(lag - 1) * log.period_s,
        lag_high_s=lag * log.period_s,
        is_resolved=lag < longest,
        scale=scale,
        offset=offset,
        r2=r2,
        rmse=float(np.sqrt(error)),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Holds:
    """What a joint does where its command rests after a move."""

    rising: int
    """Holds that the command reached from below."""
    falling: int
    error_after_rising: float | None
    """Mean of state minus command over the last half of these holds."""
    error_after_falling: float | None
    settle_s: float | None
    """Median time from the last change of the command until the state rests."""

    @property
    def hysteresis(self) -> float | None:
        """Error after falling minus error after rising: the width of the dead band."""
        if self.error_after_rising is None or self.error_after_falling is None:
            return None
        return self.error_after_falling - self.error_after_rising

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "holds_after_rising": self.rising,
            "holds_after_falling": self.falling,
            "error_after_rising": self.error_after_rising,
            "error_after_falling": self.error_after_falling,
            "hysteresis": self.hysteresis,
            "settle_ms": None if self.settle_s is None else 1e3 * self.settle_s,
        }


def holds(log: ActuatorLog, joint: int) -> Holds:
    """Measure the held error of one joint by the side it came from; needs command and state rows at the same times."""
    empty = Holds(rising=0, falling=0, error_after_rising=None, error_after_falling=None, settle_s=None)
    command, state = log.command[:, joint], log.state[:, joint]
    if len(command) != len(state):
        return empty
    need = max(2, round(_HOLD_S / log.period_s))
    moves = np.flatnonzero(np.diff(command) != 0.0)
    if not len(moves):
        return empty
    ends = [*moves[1:], len(command) - 1]
    errors: dict[bool, list[float]] = {True: [], False: []}
    settle = []
    for move, end in zip(moves, ends, strict=True):
        if end - move < need:
            continue
        rest = state[move + 1 : end + 1]
        is_rising = bool(command[move + 1] > command[move])
        errors[is_rising].append(float((rest[len(rest) // 2 :] - command[move + 1]).mean()))
        changes = np.flatnonzero(np.diff(rest) != 0.0)
        settle.append((int(changes[-1]) + 1 if len(changes) else 0) * log.period_s)
    mean = {k: float(np.mean(v)) if v else None for k, v in errors.items()}
    return Holds(
        rising=len(errors[True]),
        falling=len(errors[False]),
        error_after_rising=mean[True],
        error_after_falling=mean[False],
        settle_s=float(np.median(settle)) if settle else None,
    )


def smallest_step(values: NDArray[np.float64]) -> float | None:
    """Return the smallest distance between two different values, None where all are equal; rounding of floats is no step."""
    levels = np.unique(values)
    steps = np.diff(levels)
    steps = steps[steps > 1e-9 * max(1.0, float(np.abs(levels).max()))]
    return float(steps.min()) if len(steps) else None


def angle_unit(step: float | None) -> tuple[str, int] | None:
    """Return the unit whose turn, cut into ``2**bits`` encoder steps, gives this step, with the bits; None where none does."""
    if step is None:
        return None
    for unit, turn in (("rad", 2.0 * float(np.pi)), ("deg", 360.0)):
        for bits in _TURN_BITS:
            if abs(step / (turn / 2**bits) - 1.0) < 1e-3:
                return unit, bits
    return ("ticks", 0) if step == 1.0 else None


def time_unit(step: float) -> tuple[str, float] | None:
    """Return the unit of time stamps and its length in seconds, by the only reading that gives a rate between 1 and 1000 Hz."""
    for unit, length in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)):
        if 1e-3 <= step * length < 1.0:
            return unit, length
    return None
