"""Does a convention change on the way: a zero, a sign, a unit or a pairing that is another one from some episode on.

Each episode gives each joint a few numbers of its own: how the state lies off its command, how it turns with
it, over what range, and where the pose lies as a whole. A change of one of them is searched over the episodes
(:mod:`simgap.measures.change_points`), and the checks that pool all episodes leave out the joints that
changed: an average over two conventions is neither.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.checks.data.motion.odd import OfEpisodes, odd_episodes, odd_findings
from simgap.checks.data.motion.scales import SAG_DEG, degree_of
from simgap.checks.data.motion.tracking import longest_lag
from simgap.checks.data.pooled import Joint, Pooled
from simgap.checks.data.report import DataFinding, Severity, listed
from simgap.measures.change_points import Change, find_changes
from simgap.measures.lag_sums import lag_sums

Array = NDArray[np.float64]
Pairs = Sequence[tuple[Array, Array]]

_OFFSET = 0.05
"""Least change of a zero, in ranges that a joint covers within an episode."""
_CLEAR = 2.0
"""The same in robust deviations of the distance between state and command within an episode."""
_POSE = 0.07
"""Least change of the pose as a whole, in ranges of the whole recording."""
_OUT = 2.5
"""Least change of a zero in robust deviations of the episodes about it: what drifts or varies with the task stays below."""
_IDLE = 0.1
"""A joint that covers less than this share of what most others cover is parked, and its numbers are noise."""
_TURNS = 1.2
"""Least change of the correlation with the command: from following it to turning against it, or to neither."""
_LOSES = 0.5
_FACTOR = 3.0
"""Least factor between the ranges before and after: units differ by more, tasks by less."""
_SCALE = 1.25
"""Least factor between the scales before and after, of a state that follows its command closely."""
_QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
_SAME = 0.35
"""By how much start and end may differ from the common step, in shares of it, when a zero moved: a new task or rest moves one and not the other."""
_ALIKE = 0.25
"""The same of most parts of the pose; the task moves some of them."""
_ROWS = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class JointSeries:
    """What each episode says of one joint, ``(E,)`` each; NaN where it says nothing."""

    name: str
    distance: Array
    """Median of the state minus what the command leads to."""
    noise: float
    """Median over episodes of the robust deviation of that distance within one."""
    follows: Array
    """Correlation of state and command within the episode."""
    slopes: Array
    """State by command within the episode."""
    commanded: Array
    """Range of the command within the episode."""
    log_range: Array
    """Of the state, logarithm."""
    poses: Mapping[str, Array]
    """``action`` and ``state`` -> quantiles, start and end, ``(E, Q)``."""
    within: float
    """Median over episodes of the range within one, of the state."""
    widest: float
    """The same of the widest quarter of the episodes: a unit that changes on the way parks no joint."""
    whole: float
    """Range of the state over all episodes, outermost twentieths left out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Changes:
    """What changed, and which joints no pooled number speaks of."""

    findings: tuple[DataFinding, ...]
    joints: frozenset[str]


def check_changes(pooled: Pooled) -> Changes:
    """Return the changes over the episodes."""
    if len(pooled.indices) < 3 or not pooled.joints:
        return Changes(findings=(), joints=frozenset())
    rng = np.random.default_rng(len(pooled.indices))
    actions, states, rate = pooled.actions, pooled.states, pooled.dataset.info.rate_hz
    series = [
        joint_series(j, [(a[:, j.action], s[:, j.state]) for a, s in zip(actions, states, strict=True)], rate)
        for j in pooled.joints
    ]
    typical = float(np.quantile([s.widest for s in series], 0.75)) if series else 0.0
    parked = [s for s in series if s.widest < _IDLE * typical]
    series = [s for s in series if s not in parked]
    pairing = _pairing(series, rng)
    scales = _scales([s for s in series if s.name not in pairing], rng)
    units = find_changes(
        {s.name: s.log_range for s in series}, {s.name: float(np.log(_FACTOR)) for s in series}, rng
    )
    units = {n: c for n, c in units.items() if n not in pairing and n not in scales}
    rest = [s for s in series if s.name not in pairing and s.name not in units and s.name not in scales]
    off = [*rest, *parked]  # a command that a parked joint leaves on one side only is no other parking place
    floors = {s.name: max(_OFFSET * (typical if s in parked else s.within), _CLEAR * s.noise) for s in off}
    zeros = find_changes({s.name: s.distance for s in off}, floors, rng)
    lying = {s.name for s in parked}
    zeros = {
        n: c
        for n, c in zeros.items()
        if abs(c.size) >= _OUT * c.spread and (n not in lying or c.is_separated)
    }
    poses = _poses([s for s in rest if s.name not in zeros], rng)
    grippers = {j.name for j in pooled.joints if j.is_gripper}
    odd = {
        s.name: found
        for s in rest
        if s.name not in {*zeros, *poses, *grippers}
        and (found := odd_episodes(_of_episodes(s, SAG_DEG * (degree_of(pooled, s.name) or 0.0))))
    }
    numbers = pooled.indices
    findings = [
        *_paired(pairing, numbers),
        *_scaled(scales, numbers),
        *_units(units, numbers),
        *_zeros(zeros, poses, numbers),
        *odd_findings(odd, numbers),
    ]
    return Changes(findings=tuple(findings), joints=frozenset({*pairing, *scales, *units, *zeros, *odd}))


def joint_series(joint: Joint, pairs: Pairs, rate_hz: float) -> JointSeries:
    """Measure one joint episode by episode, at the lag that fits all of them with a zero and a sign of their own."""
    lag = _common_lag(pairs, rate_hz)
    cut = [(a[: len(a) - lag], s[lag:]) if len(a) - lag >= _ROWS else (a[:0], s[:0]) for a, s in pairs]
    n = len(pairs)
    follows, slopes, distance, noise, log_range = (np.full(n, np.nan) for _ in range(5))
    for k, (a, s) in enumerate(cut):
        if len(a) and np.ptp(a) > 0 and np.ptp(s) > 0:
            follows[k] = float(np.corrcoef(a, s)[0, 1])
            slopes[k] = float(np.polyfit(a, s, 1)[0])
        if len(pairs[k][1]) >= _ROWS and np.ptp(pairs[k][1]) > 0:
            log_range[k] = float(np.log(np.ptp(pairs[k][1])))
    believed = np.abs(follows) > 0.9
    slope = float(np.median(slopes[believed])) if believed.any() else 1.0
    slope = 1.0 if 0.67 < slope < 1.5 else slope
    for k, (a, s) in enumerate(cut):
        if len(a):
            off = s - slope * a
            distance[k] = float(np.median(off))
            noise[k] = 1.4826 * float(np.median(np.abs(off - distance[k])))
    state = np.concatenate([s for _, s in pairs])
    within = [float(np.ptp(s)) for _, s in pairs]
    commanded = np.array([float(np.ptp(a)) if len(a) else 0.0 for a, _ in pairs])
    return JointSeries(
        name=joint.name, distance=distance, noise=float(np.nanmedian(noise)) if np.isfinite(noise).any() else 0.0,
        follows=follows, slopes=slopes, commanded=commanded, log_range=log_range,
        poses={"action": _pose([a for a, _ in pairs]), "state": _pose([s for _, s in pairs])},
        within=float(np.median(within)), widest=float(np.quantile(within, 0.75)), whole=float(np.ptp(np.quantile(state, (0.05, 0.95)))),
    )  # fmt: skip


def _pose(values: Sequence[Array]) -> Array:
    return np.array([[*np.quantile(v, _QUANTILES), v[0], v[-1]] for v in values])


def _common_lag(pairs: Pairs, rate_hz: float) -> int:
    """Return the lag at which the command explains most of the state, each episode about its own mean and with its own slope."""
    long = [p for p in pairs if len(p[0]) >= _ROWS] or list(pairs)
    return int(np.argmax(lag_sums(long, 0, longest_lag(long, rate_hz)).explained()))


def _pairing(series: Sequence[JointSeries], rng: np.random.Generator) -> dict[str, Change]:
    """Find joints that follow their command in some episodes and turn against it, or ignore it, in the rest."""
    alive = {s.name: s.follows for s in series if np.nanmax(np.abs(s.follows), initial=0.0) > 0.9}
    found = find_changes(alive, dict.fromkeys(alive, _LOSES), rng)
    follows = {n: c for n, c in found.items() if max(abs(c.before), abs(c.after)) > 0.8 and c.spread < 0.2}
    return {
        n: c for n, c in follows.items() if abs(c.size) > _TURNS or min(abs(c.before), abs(c.after)) < 0.4
    }


def _scales(series: Sequence[JointSeries], rng: np.random.Generator) -> dict[str, Change]:
    """Find joints that follow their command closely, and from some episode on by another factor."""
    logs = {
        s.name: np.where(
            (np.abs(s.follows) > 0.95) & (s.slopes != 0),
            np.log(np.abs(np.where(s.slopes == 0, 1.0, s.slopes))),
            np.nan,
        )
        for s in series
    }
    found = find_changes(logs, dict.fromkeys(logs, float(np.log(_SCALE))), rng)
    return {n: c for n, c in found.items() if c.is_separated and abs(c.size) >= _OUT * c.spread}


def _of_episodes(s: JointSeries, sag: float) -> OfEpisodes:
    shares = [
        v / m if (m := float(np.median(v))) > 0 else np.zeros_like(v)
        for v in (s.commanded, np.nan_to_num(np.exp(s.log_range)))
    ]
    return OfEpisodes(
        follows=s.follows,
        slopes=s.slopes,
        distance=s.distance,
        ranges=np.maximum(*shares),
        noise=s.noise,
        within=s.within,
        sag=sag,
    )


def _poses(series: Sequence[JointSeries], rng: np.random.Generator) -> dict[str, Change]:
    """Find joints whose whole pose moves by one step in action and state alike: start, end, and everything between."""
    offsets: dict[str, Array] = {}
    for s in series:
        moved = [p - np.median(p, axis=0) for p in s.poses.values()]
        offsets[s.name] = np.median(np.concatenate(moved, axis=1), axis=1)
    found = find_changes(offsets, {s.name: _POSE * s.whole for s in series}, rng)
    kept = {}
    for s in series:
        if s.name not in found:
            continue
        c = found[s.name]
        steps = np.concatenate(
            [np.median(p[c.at :], axis=0) - np.median(p[: c.at], axis=0) for p in s.poses.values()]
        )
        apart = np.abs(steps / c.size - 1.0).reshape(2, -1)
        is_whole = (
            bool((steps / c.size > 0).all())
            and float(np.median(apart)) <= _ALIKE
            and bool((apart[:, -2:] <= _SAME).all())
        )
        # a joint that moves less than the step was put elsewhere by hand
        if is_whole and c.is_separated and _OUT * c.spread <= abs(c.size) <= s.within:
            kept[s.name] = c
    return kept


# --- in words --------------------------------------------------------------------------------------------------------


def _numbers(c: Change, episodes: Sequence[int]) -> dict[str, Any]:
    return {
        "episode": episodes[c.at],
        "episode_low": episodes[c.low],
        "episode_high": episodes[c.high],
        "before": c.before,
        "after": c.after,
        "size": c.size,
        "p": c.p,
        "is_separated": c.is_separated,
    }


def _where(c: Change, episodes: Sequence[int]) -> str:
    low, at, high = episodes[c.low], episodes[c.at], episodes[c.high]
    return f"from episode {at} on" + (f" (between {low} and {high})" if low != high else "")


def _paired(found: Mapping[str, Change], episodes: Sequence[int]) -> list[DataFinding]:
    if not found:
        return []
    parts = [
        f"{n} correlates at {c.before:+.2f} with its action before and at {c.after:+.2f}"
        f" {_where(c, episodes)}"
        for n, c in found.items()
    ]
    return [
        DataFinding(
            code="pairing_changes",
            severity=Severity.FAULT,
            sentence=(
                "action and state belong together otherwise in one part of the episodes than in the rest:"
                f" {listed(parts)}"
            ),
            remedy=(
                "find what changed in the recorder there (sign, order of the joints, drive mode), convert one"
                " part, or keep them apart"
            ),
            joints=tuple(found),
            numbers={n: _numbers(c, episodes) for n, c in found.items()},
        )
    ]


def _scaled(found: Mapping[str, Change], episodes: Sequence[int]) -> list[DataFinding]:
    if not found:
        return []
    parts = [
        f"{n} moves {np.exp(c.size):.3g} times as far for its command {_where(c, episodes)}"
        for n, c in found.items()
    ]
    return [
        DataFinding(
            code="scale_changes",
            severity=Severity.FAULT,
            sentence=f"a state follows its action by another factor from some episode on: {listed(parts)}",
            remedy=(
                "find what changed there: a factor of 57.3 is degrees for radians, 11.4 servo ticks for"
                " degrees, another one a new calibrated range; convert one part, or keep them apart"
            ),
            joints=tuple(found),
            numbers={n: _numbers(c, episodes) | {"factor": float(np.exp(c.size))} for n, c in found.items()},
        )
    ]


def _units(found: Mapping[str, Change], episodes: Sequence[int]) -> list[DataFinding]:
    if not found:
        return []
    parts = [
        f"{n} covers {np.exp(c.size):.3g} times its earlier range {_where(c, episodes)}"
        for n, c in found.items()
    ]
    return [
        DataFinding(
            code="range_changes",
            severity=Severity.WARNING,
            sentence=f"the range of a state is another one from some episode on: {listed(parts)}",
            remedy=(
                "a factor of 57.3 is degrees for radians: convert one part; else find out what was recorded"
                " differently"
            ),
            joints=tuple(found),
            numbers={n: _numbers(c, episodes) | {"factor": float(np.exp(c.size))} for n, c in found.items()},
        )
    ]


def _zeros(
    zeros: Mapping[str, Change], poses: Mapping[str, Change], episodes: Sequence[int]
) -> list[DataFinding]:
    if not zeros and not poses:
        return []
    parts = [
        f"the state of {n} lies {c.size:+.3g} further off its action {_where(c, episodes)}"
        for n, c in zeros.items()
    ]
    parts += [
        f"action and state of {n} lie {c.size:+.3g} apart from before {_where(c, episodes)}, from start"
        " to end"
        for n, c in poses.items()
    ]
    named = {**zeros, **poses}
    return [
        DataFinding(
            code="recalibrated_midway",
            severity=Severity.FAULT if zeros else Severity.WARNING,
            sentence=f"a zero moves between two episodes: {listed(parts)}",
            remedy=(
                "look for a new calibration, a changed horn or another robot there; subtract the step from"
                " one part, or train on one part"
            ),
            joints=tuple(named),
            numbers={
                n: _numbers(c, episodes) | {"side": "state against action" if n in zeros else "both"}
                for n, c in named.items()
            },
        )
    ]
