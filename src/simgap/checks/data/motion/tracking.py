"""How the state follows the action, joint by joint: lag, scale and offset, moving and still apart, and what limits it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.checks.data.motion.loads import at_stops, blocked, loaded_jaws
from simgap.checks.data.motion.saturation import FEWEST, find_saturation
from simgap.checks.data.pooled import Joint, Pooled
from simgap.measures.gripper import GripperAgreement, agreement
from simgap.measures.lag_sums import LagSums, lag_sums

_LONGEST_LAG_S = 2.0
_LONGEST_LEAD_S = 1.0
_MOST_FRAMES = 60
_WINDOW_S = 0.25
"""Velocities are differences over this time, so that quantised encoders still give a slope."""
_MOVING = 0.05
_ROUNDING = 3e-7
"""Relative difference of two numbers that a change of float type makes; no encoder repeats its command that well."""


class Relation(StrEnum):
    """What a joint's state is to its action."""

    TRACKED = "tracked"
    """A measurement that follows a command."""
    ECHO_NEXT = "echo_next"
    """``state[t + 1] == action[t]`` exactly."""
    ECHO_SAME = "echo_same"
    """``state[t] == action[t]`` exactly."""
    CONSTANT = "constant"
    """Neither moves, or the action alone does not."""
    STUCK = "stuck"
    """The action moves, the state does not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fit:
    """``state = scale * action + offset`` by least squares."""

    n: int
    scale: float | None = None
    """None where the action hardly varies."""
    offset: float | None = None
    r2: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"n": self.n, "scale": self.scale, "offset": self.offset, "r2": self.r2}


@dataclass(frozen=True, kw_only=True, slots=True)
class Tracking:
    """Everything measured about one joint."""

    name: str
    relation: Relation
    action_range: float
    state_range: float
    lag_frames: int | None = None
    """Lag of the best position fit."""
    lead_frames: int | None = None
    """By how many frames the state is ahead of its action, where that fits clearly better than any lag does."""
    lag_is_resolved: bool = False
    """False where the fit is poor or the best lag is the longest one tried."""
    velocity_lag_frames: float | None = None
    """Lag of the best velocity correlation, interpolated; blind to offsets and slow drift."""
    velocity_correlation: float | None = None
    r2: float | None = None
    rmse: float | None = None
    whole: Fit = Fit(n=0)
    moving: Fit = Fit(n=0)
    still: Fit = Fit(n=0)
    unaffected: Fit = Fit(n=0)
    """Without the frames that saturation or load explains."""
    bias: float | None = None
    """Mean of state minus action at the best lag."""
    bias_still: float | None = None
    """Median of state minus action while neither moves: what lag cannot explain."""
    still_frames: int = 0
    """Frames it rests on."""
    turns: float | None = None
    """Correlation of state and command within episodes, at the lag where it is largest either way; below 0 where one is turned."""
    jaws: GripperAgreement | None = None
    """Of a gripper: how often both are open or closed together."""
    delta_correlation: float | None = None
    """Correlation of the action with the next change of state; near 1 for actions that are differences."""
    saturation: Mapping[str, Any] = field(default_factory=dict)
    """Where command or state stops at a limit; empty where neither does."""
    load: Mapping[str, Any] = field(default_factory=dict)
    """Where something holds the state up, in the jaws or in its way; empty where nothing does."""
    held: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=bool))
    """The frames of that, over all frames of the recording."""

    def to_json(self, rate_hz: float) -> dict[str, Any]:
        """Return plain JSON values, lags also in milliseconds."""
        return {
            "relation": str(self.relation),
            "action_range": self.action_range,
            "state_range": self.state_range,
            "lead_frames": self.lead_frames,
            "lag_frames": self.lag_frames,
            "lag_ms": None if self.lag_frames is None else 1e3 * self.lag_frames / rate_hz,
            "lag_is_resolved": self.lag_is_resolved,
            "velocity_lag_frames": self.velocity_lag_frames,
            "velocity_correlation": self.velocity_correlation,
            "r2": self.r2,
            "rmse": self.rmse,
            "scale": self.whole.scale,
            "offset": self.whole.offset,
            "moving": self.moving.to_json(),
            "still": self.still.to_json(),
            "unaffected": self.unaffected.to_json(),
            "bias": self.bias,
            "bias_still": self.bias_still,
            "offset_still": {
                "action_minus_state": None if self.bias_still is None else -self.bias_still,
                "frames": self.still_frames,
            },
            "correlation_within_episodes": self.turns,
            "delta_correlation": self.delta_correlation,
            "saturation": dict(self.saturation),
            "load": dict(self.load),
        }


def track(pooled: Pooled) -> list[Tracking]:
    """Return the tracking of every joint that action and state share."""
    actions, states = pooled.actions, pooled.states
    rate = pooled.dataset.info.rate_hz
    pairs = [
        [(a[:, j.action], s[:, j.state]) for a, s in zip(actions, states, strict=True)] for j in pooled.joints
    ]
    results = [track_joint(j, p, rate) for j, p in zip(pooled.joints, pairs, strict=True)]
    stops = at_stops({t.name: (t.load, t.held) for t in results if t.load})
    again = [
        track_joint(j, p, rate, is_at_stop=True) if j.name in stops else t
        for j, p, t in zip(pooled.joints, pairs, results, strict=True)
    ]
    return again


def track_joint(
    joint: Joint,
    pairs: list[tuple[NDArray[np.float64], NDArray[np.float64]]],
    rate_hz: float,
    *,
    is_at_stop: bool = False,
) -> Tracking:
    """Measure one joint.

    Args:
        joint: its name decides whether it is jaws that hold something.
        pairs: ``(action, state)`` of each episode, ``(T,)`` each.
        rate_hz: frames per second.
        is_at_stop: what holds it up is known to be its own stop and no load.
    """
    action, state = (np.concatenate([p[k] for p in pairs]) for k in (0, 1))
    spread, state_spread = float(np.ptp(action)), float(np.ptp(state))
    relation = _relation(pairs, spread, state_spread)
    if relation is not Relation.TRACKED:
        lag = {Relation.ECHO_NEXT: 1, Relation.ECHO_SAME: 0}.get(relation)
        return Tracking(
            name=joint.name,
            relation=relation,
            action_range=spread,
            state_range=state_spread,
            lag_frames=lag,
            lag_is_resolved=lag is not None,
        )
    longest = longest_lag(pairs, rate_hz)
    leading = min(longest, round(_LONGEST_LEAD_S * rate_hz))
    sums = lag_sums(pairs, -leading, longest)
    every = sums.pooled() ** 2
    scores = every[leading:]
    lag = int(np.argmax(scores))
    a, s = shifted(pairs, lag)
    moving = _moving(pairs, lag)
    scale, offset = np.polyfit(a, s, 1)
    residual = s - a
    load = loaded_jaws(a, s, moving) if joint.is_gripper else {}
    load = load or ({} if is_at_stop else blocked(pairs, lag, rate_hz))
    held = np.asarray(load.pop("mask", np.zeros(len(a), dtype=bool)))
    saturation = find_saturation(joint, a, s, _firsts(pairs, lag), is_loaded=bool(load))
    affected = held | np.asarray(saturation.pop("mask", np.zeros(len(a), dtype=bool)))
    velocity_lag, correlation = _velocity_lag(pairs, longest, rate_hz)
    return Tracking(
        name=joint.name,
        relation=relation,
        action_range=spread,
        state_range=state_spread,
        lag_frames=lag,
        lead_frames=_lead(every[:leading][::-1], float(scores[lag])),
        lag_is_resolved=bool(scores[lag] >= 0.5 and (lag < longest or longest == 0)),
        velocity_lag_frames=velocity_lag,
        velocity_correlation=correlation,
        r2=float(scores[lag]),
        rmse=float(np.sqrt(np.mean((scale * a + offset - s) ** 2))),
        whole=Fit(n=len(a), scale=float(scale), offset=float(offset), r2=float(scores[lag])),
        moving=_fit(a[moving], s[moving], spread),
        still=_fit(a[~moving], s[~moving], spread),
        unaffected=_fit(a[~affected], s[~affected], spread),
        bias=float(residual.mean()),
        bias_still=float(np.median(residual[~moving])) if (~moving).sum() >= FEWEST else None,
        still_frames=int((~moving).sum()),
        turns=_turns(sums),
        jaws=agreement(a, s) if joint.is_gripper else None,
        delta_correlation=_delta_correlation(pairs),
        saturation=saturation,
        load=load,
        held=_in_recording(held, pairs, lag),
    )


def _in_recording(
    aligned: NDArray[np.bool_], pairs: list[tuple[NDArray[np.float64], NDArray[np.float64]]], lag: int
) -> NDArray[np.bool_]:
    """Return for every frame of the recording what was said of the frames that have a command."""
    parts, place = [], 0
    for a, _ in pairs:
        n = max(0, len(a) - lag)
        parts.append(np.concatenate([np.zeros(len(a) - n, dtype=bool), aligned[place : place + n]]))
        place += n
    return np.concatenate(parts)


def _relation(
    pairs: list[tuple[NDArray[np.float64], NDArray[np.float64]]], spread: float, state_spread: float
) -> Relation:
    if spread == 0.0 or len(pairs) == 0 or max(len(a) for a, _ in pairs) < 4:
        return Relation.CONSTANT
    if state_spread == 0.0:
        return Relation.STUCK
    changed = [np.flatnonzero(np.diff(a[:-1]) != 0) + 1 for a, _ in pairs]
    n = sum(len(c) for c in changed)
    if n >= 5:
        rounding = _ROUNDING * max(spread, *(float(np.abs(a).max()) for a, _ in pairs))
        following = sum(
            int((np.abs(s[c + 1] - a[c]) <= rounding).sum()) for (a, s), c in zip(pairs, changed, strict=True)
        )
        same = sum(
            int((np.abs(s[c] - a[c]) <= rounding).sum()) for (a, s), c in zip(pairs, changed, strict=True)
        )
        if max(following, same) >= 0.99 * n:
            return Relation.ECHO_NEXT if following >= same else Relation.ECHO_SAME
    return Relation.TRACKED


def longest_lag(pairs: list[tuple[NDArray[np.float64], NDArray[np.float64]]], rate_hz: float) -> int:
    """Return the longest lag that is tried, in frames."""
    median = int(np.median([len(a) for a, _ in pairs]))
    return max(0, min(_MOST_FRAMES, round(_LONGEST_LAG_S * rate_hz), median // 3))


def shifted(
    pairs: list[tuple[NDArray[np.float64], NDArray[np.float64]]], lag: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return ``action[t]`` and ``state[t + lag]`` of all episodes; no pair crosses an episode's end."""
    long = [(a[: len(a) - lag], s[lag:]) for a, s in pairs if len(a) > lag]
    return np.concatenate([a for a, _ in long]), np.concatenate([s for _, s in long])


def _turns(sums: LagSums) -> float | None:
    """Return the signed correlation within episodes at the lag where the command explains most."""
    variation = np.maximum(
        sums.ss - np.divide(sums.s**2, sums.n, out=np.zeros_like(sums.s), where=sums.n > 0), 0.0
    )
    total = variation.sum(axis=0)
    r = sums.by_episode()
    share = np.divide(
        (r * np.abs(r) * variation).sum(axis=0), total, out=np.zeros_like(total), where=total > 0
    )
    best = float(share[np.argmax(np.abs(share))]) if len(share) else 0.0
    return float(np.sign(best) * np.sqrt(abs(best))) if best else None


def _lead(scores: NDArray[np.float64], score: float) -> int | None:
    """Return by how many frames the state is ahead of the action, None unless that explains clearly more than ``score``, the best lag's R2.

    Args:
        scores: R2 where the state is ahead by 1, 2 ... frames.
        score: of the best lag.
    """
    best = int(np.argmax(scores)) if len(scores) else 0
    return (
        best + 1 if len(scores) and scores[best] >= 0.7 and 1.0 - scores[best] < 0.7 * (1.0 - score) else None
    )


def _firsts(pairs: list[tuple[NDArray[np.float64], NDArray[np.float64]]], lag: int) -> NDArray[np.bool_]:
    """Return which aligned frames begin an episode."""
    return np.concatenate([np.arange(len(a) - lag) == 0 for a, _ in pairs if len(a) > lag])


def _moving(pairs: list[tuple[NDArray[np.float64], NDArray[np.float64]]], lag: int) -> NDArray[np.bool_]:
    speeds = [
        (np.abs(np.gradient(a))[: len(a) - lag], np.abs(np.gradient(s))[lag:])
        for a, s in pairs
        if len(a) > max(lag, 1)
    ]
    action, state = (np.concatenate([v[k] for v in speeds]) for k in (0, 1))
    limits = [_MOVING * float(np.quantile(v, 0.99)) for v in (action, state)]
    return np.asarray((action > limits[0]) | (state > limits[1]))


def _r2(a: NDArray[np.float64], s: NDArray[np.float64]) -> float:
    if len(a) < 3 or np.ptp(a) == 0 or np.ptp(s) == 0:
        return 0.0
    return float(np.corrcoef(a, s)[0, 1] ** 2)


def _fit(a: NDArray[np.float64], s: NDArray[np.float64], spread: float) -> Fit:
    if len(a) < FEWEST or a.std() < 0.01 * spread:
        return Fit(n=len(a))
    scale, offset = np.polyfit(a, s, 1)
    return Fit(n=len(a), scale=float(scale), offset=float(offset), r2=_r2(a, s))


def _velocity_lag(
    pairs: list[tuple[NDArray[np.float64], NDArray[np.float64]]], longest: int, rate_hz: float
) -> tuple[float | None, float | None]:
    window = max(1, round(_WINDOW_S * rate_hz))
    velocities = [
        (a[window:] - a[:-window], s[window:] - s[:-window])
        for a, s in pairs
        if len(a) > window + longest + 2
    ]
    if not velocities:
        return None, None
    scores = lag_sums(velocities, 0, longest).pooled()
    best = int(np.argmax(scores))
    if scores[best] < 0.5:
        return None, float(scores[best])
    if 0 < best < longest:
        before, peak, after = scores[best - 1 : best + 2]
        bend = before - 2 * peak + after
        return best + float(0.5 * (before - after) / bend if bend < 0 else 0.0), float(peak)
    return float(best), float(scores[best])


def _delta_correlation(pairs: list[tuple[NDArray[np.float64], NDArray[np.float64]]]) -> float | None:
    a = np.concatenate([x[:-1] for x, _ in pairs])
    step = np.concatenate([np.diff(s) for _, s in pairs])
    return float(np.corrcoef(a, step)[0, 1]) if np.ptp(a) > 0 and np.ptp(step) > 0 else None


def is_idle(t: Tracking, alive: list[Tracking]) -> bool:
    """Return whether neither command nor state of a joint moves much beside the others', so that its numbers are noise.

    Both have to be small: a command in radians among degrees is small, its state is not.
    """
    ranges = (
        (t.action_range, [o.action_range for o in alive]),
        (t.state_range, [o.state_range for o in alive]),
    )
    return all(own < 0.1 * float(np.quantile(others, 0.75)) for own, others in ranges)
