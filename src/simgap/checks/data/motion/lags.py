"""How late the state follows, limb by limb and with an interval, and whether it is as late in the last rows as in the first."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.checks.data.motion.tracking import Tracking, is_idle, longest_lag
from simgap.checks.data.pooled import Joint, Pooled, is_gripper_name
from simgap.checks.data.report import DataFinding, Severity, listed
from simgap.conventions import SO101_JOINTS
from simgap.measures.change_points import find_changes
from simgap.measures.lag_sums import LagSums, lag_sums

Array = NDArray[np.float64]
Pairs = Sequence[tuple[Array, Array]]

LONG_LAG_S = 0.3
"""Twice what healthy arms of this kind show."""
SO101_LAG_S = (0.065, 0.167)
"""Between these lie the lags of every SO-100 and SO-101 arm whose logs were read or are published."""
_SO101_LATE_S = 0.183
"""The latest of them was read off frames of 33 ms: half a frame more is still that arm."""
_DRAWS = 200
_BLOCKS = 12
"""Parts of a recording that are drawn from for the interval, at least; few long episodes are cut."""
_MOST_BLOCKS = 64
_TELLS = 0.7
_WIDE = 0.75
"""Width of an interval, in its own middle, from which on the lag cannot be told; one of three frames always can."""
_WINDOW_S = 3.0
_WINDOW_FRAMES = 30
_MOST_WINDOWS = 240
_SHIFT = 0.7
"""Least change of the lag on the way, in frames: a row that was lost or written twice is one."""
_SIDES = re.compile(r"^(left|right|arm_?\d+|robot_?\d+|l|r)(?=[._])", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupLag:
    """How late the joints of one limb are, in frames."""

    group: str
    joints: tuple[str, ...]
    frames: float
    low: float
    high: float

    @property
    def is_told(self) -> bool:
        """False where the interval is as wide as the lag."""
        return self.high - self.low <= max(3.0, _WIDE * self.frames)

    def words(self, rate_hz: float) -> str:
        """For people."""
        ms = [1e3 * v / rate_hz for v in (self.frames, self.low, self.high)]
        return f"{self.group} {self.frames:.1f} frames ({ms[0]:.0f} ms; {ms[1]:.0f} to {ms[2]:.0f})"

    def to_json(self, rate_hz: float) -> dict[str, Any]:
        """Return plain JSON values."""
        ms = {
            k: 1e3 * v / rate_hz
            for k, v in (("ms", self.frames), ("ms_low", self.low), ("ms_high", self.high))
        }
        return {"frames": self.frames, "low": self.low, "high": self.high, "joints": list(self.joints), **ms}


def group_of(name: str) -> str:
    """Return the limb a joint belongs to by its name: its side, and arm, gripper or hand."""
    side = _SIDES.match(name)
    kind = (
        "gripper"
        if is_gripper_name(name)
        else "hand"
        if re.search(r"hand|thumb|finger", name.lower())
        else "arm"
    )
    head = side[1].lower() if side else ""
    return (
        kind if not head else head if re.match(r"(arm|robot)", head) and kind == "arm" else f"{head} {kind}"
    )


def check_lags(pooled: Pooled, alive: Sequence[Tracking]) -> list[DataFinding]:
    """Return what is said of lags; only joints that move and follow have one."""
    rate = pooled.dataset.info.rate_hz
    seen = [
        t
        for t in alive
        if t.lag_is_resolved
        and t.lag_frames is not None
        and (t.r2 or 0) >= _TELLS
        and not is_idle(t, list(alive))
    ]
    # what holds a joint up is no lag of it
    seen = [t for t in seen if not t.load or is_gripper_name(t.name)] or seen
    if not seen:
        return []
    pairs = _pairs(pooled, {t.name for t in seen})
    groups: dict[str, list[str]] = {}
    for t in seen:
        groups.setdefault(group_of(t.name), []).append(t.name)
    rng = np.random.default_rng(len(pooled.indices))
    lags = [group_lag(g, {n: pairs[n] for n in names}, rate, rng) for g, names in groups.items()]
    found = _moves(
        pooled, {n: pairs[n] for t in seen if not is_gripper_name(t.name) for n in (t.name,)} or pairs, rng
    )
    return [*found, *_said(seen, lags, rate, is_so101=is_so101(pooled))]


def is_so101(pooled: Pooled) -> bool:
    """Return whether the arm is an SO-100 or SO-101: by what the recording says, or because its joints have these names."""
    declared = re.search(r"so[-_]?10[01]", pooled.dataset.info.robot_type or "", re.IGNORECASE) is not None
    return declared or all(any(j in n for n in pooled.state_names) for j in SO101_JOINTS)


def _is_late(lag: GroupLag, rate_hz: float, *, is_so101: bool) -> bool:
    """Return whether a limb follows later than arms do; jaws are judged by the wide limit, for what they hold bends their lag."""
    if (
        is_so101
        and "gripper" not in lag.group
        and lag.low / rate_hz > SO101_LAG_S[1]
        and lag.frames / rate_hz > _SO101_LATE_S
    ):
        return True
    return lag.frames / rate_hz > LONG_LAG_S and lag.low / rate_hz > 0.8 * LONG_LAG_S


def _pairs(pooled: Pooled, names: set[str]) -> dict[str, Pairs]:
    joints: list[Joint] = [j for j in pooled.joints if j.name in names]
    actions, states = pooled.actions, pooled.states
    return {
        j.name: [(a[:, j.action], s[:, j.state]) for a, s in zip(actions, states, strict=True)]
        for j in joints
    }


def group_lag(group: str, pairs: Mapping[str, Pairs], rate_hz: float, rng: np.random.Generator) -> GroupLag:
    """Return the lag of one limb with its 95 % interval by drawing parts of the recording anew."""
    sums = {n: _blocks(p, rate_hz) for n, p in pairs.items()}
    blocks = max(len(s.n) for s in sums.values())
    curve = np.mean([s.explained() for s in sums.values()], axis=0)
    draws = rng.multinomial(blocks, np.full(blocks, 1.0 / blocks), size=_DRAWS).astype(np.float64)
    peaks = [peak(np.mean([s.explained(w) for s in sums.values()], axis=0)) for w in draws]
    low, high = np.quantile(peaks, (0.025, 0.975))
    frames = peak(curve)
    return GroupLag(
        group=group,
        joints=tuple(pairs),
        frames=frames,
        low=float(min(low, frames)),
        high=float(max(high, frames)),
    )


def _blocks(pairs: Pairs, rate_hz: float) -> LagSums:
    """Return the sums of parts of a recording that are long enough to show a lag."""
    longest = longest_lag(list(pairs), rate_hz)
    pieces = max(1, -(-_BLOCKS // len(pairs)))
    least = 2 * longest + 12
    parts = [
        (a[i:k], s[i:k]) for a, s in pairs for i, k in _cuts(len(a), min(pieces, max(1, len(a) // least)))
    ]
    sums = lag_sums(parts, 0, longest)
    if len(parts) <= _MOST_BLOCKS:
        return sums
    edges = np.linspace(0, len(parts), _MOST_BLOCKS, endpoint=False).astype(int)
    merged = [
        np.add.reduceat(v, edges, axis=0) for v in (sums.n, sums.a, sums.s, sums.aa, sums.ss, sums.cross)
    ]
    return LagSums(
        lags=sums.lags, n=merged[0], a=merged[1], s=merged[2], aa=merged[3], ss=merged[4], cross=merged[5]
    )


def _cuts(length: int, pieces: int) -> list[tuple[int, int]]:
    edges = np.linspace(0, length, pieces + 1).astype(int)
    return list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))


def peak(curve: Array) -> float:
    """Return where a curve over lags is highest, between the lags by a parabola through the top."""
    best = int(np.argmax(curve))
    if not 0 < best < len(curve) - 1:
        return float(best)
    before, top, after = curve[best - 1 : best + 2]
    bend = before - 2 * top + after
    return best + float(np.clip(0.5 * (before - after) / bend, -0.5, 0.5) if bend < 0 else 0.0)


def _said(
    seen: Sequence[Tracking], lags: Sequence[GroupLag], rate_hz: float, *, is_so101: bool
) -> list[DataFinding]:
    told = [g for g in lags if g.is_told]
    if not told or max(g.high for g in told) < 0.5:
        return []
    late = [g for g in told if _is_late(g, rate_hz, is_so101=is_so101)]
    unsure = [g.group for g in lags if not g.is_told]
    rest = f"; of {listed(unsure)} the motion is too slow to tell" if unsure else ""
    own = {t.name: int(t.lag_frames or 0) for t in seen}
    names = tuple(n for g in late or told for n in g.joints)
    most = max(g.frames for g in told)
    beyond = (
        f"; SO-101 arms follow after {1e3 * SO101_LAG_S[0]:.0f} to {1e3 * SO101_LAG_S[1]:.0f} ms"
        if late and is_so101
        else ""
    )
    remedy = "give the simulator the same lag" + (
        f"; a chunk shorter than {most:.0f} steps never sees its own effect; look for frames that are paired"
        " late or buffered in the recorder or the driver before blaming a policy"
        if late
        else ", and check it again on the robot"
    )
    return [
        DataFinding(
            code="long_lag" if late else "lag",
            severity=Severity.WARNING if late else Severity.NOTE,
            sentence=(
                "the state follows the action after (95 % interval):"
                f" {listed([g.words(rate_hz) for g in told], 8)}{rest}{beyond}"
            ),
            remedy=remedy,
            joints=names,
            numbers={
                t.name: {
                    "frames": own[t.name],
                    "ms": 1e3 * own[t.name] / rate_hz,
                    "velocity_frames": t.velocity_lag_frames,
                }
                for t in seen
            }
            | {"groups": {g.group: g.to_json(rate_hz) | {"is_told": g.is_told} for g in lags}},
        )
    ]


# --- the same lag in every row ---------------------------------------------------------------------------------------


def _moves(pooled: Pooled, pairs: Mapping[str, Pairs], rng: np.random.Generator) -> list[DataFinding]:
    """Find the row from which on action and state are paired with another lag than before: a row was lost, or written twice."""
    rate = pooled.dataset.info.rate_hz
    lengths = [len(a) for a, _ in next(iter(pairs.values()))]
    width = max(_WINDOW_FRAMES, round(_WINDOW_S * rate), -(-sum(lengths) // _MOST_WINDOWS))
    windows = [
        (place, i, k)
        for place, n in enumerate(lengths)
        for i, k in _cuts(n, max(1, n // width))
        if k - i >= _WINDOW_FRAMES
    ]
    if len(windows) < 6:
        return []
    longest = min(longest_lag(list(next(iter(pairs.values()))), rate), width // 3)
    curves, variation = np.zeros((len(windows), longest + 1)), np.zeros(len(windows))
    for p in pairs.values():
        sums = lag_sums([(p[e][0][i:k], p[e][1][i:k]) for e, i, k in windows], 0, longest)
        moves = np.maximum(
            sums.ss - np.divide(sums.s**2, sums.n, out=np.zeros_like(sums.s), where=sums.n > 0), 0.0
        )[:, 0]
        share = moves / max(float(moves.max()), 1e-300)
        curves += share[:, None] * sums.by_episode() ** 2
        variation += share
    curves /= np.maximum(variation, 1e-300)[:, None]
    lags = np.array([peak(c) for c in curves])
    tells = (
        (curves.max(axis=1) > 0.9) & (variation > 0.1 * float(np.median(variation))) & (lags < longest - 1)
    )
    found = find_changes({"lag": np.where(tells, lags, np.nan)}, {"lag": _SHIFT}, rng)
    if not found:
        return []
    c = found["lag"]
    if abs(c.size) < 3.0 * c.spread:
        return []
    place, frame, _ = windows[c.at]
    episode, row = _first_row(pooled, pairs, windows, c.at, (round(c.before), round(c.after)))
    del place, frame
    return [
        DataFinding(
            code="pairing_shifts",
            severity=Severity.FAULT,
            sentence=(
                f"from frame {row} of episode {episode} on the state follows the action after {c.after:.1f}"
                f" frames and before it after {c.before:.1f}: rows of one side were lost or written twice"
                " there"
            ),
            remedy=(
                "compare the frame counters of both sides there; shift one side back by the difference, or"
                " keep the parts apart"
            ),
            joints=tuple(pairs),
            numbers={
                "episode": episode,
                "frame": row,
                "frames_before": c.before,
                "frames_after": c.after,
                "p": c.p,
            },
        )
    ]


def _first_row(
    pooled: Pooled,
    pairs: Mapping[str, Pairs],
    windows: Sequence[tuple[int, int, int]],
    at: int,
    lags: tuple[int, int],
) -> tuple[int, int]:
    """Return episode and frame of the first row of the new lag: where changing over leaves least of the motion unexplained."""
    span = windows[max(0, at - 1) : at + 1]
    costs: list[tuple[float, int, int]] = []
    for place in dict.fromkeys(e for e, _, _ in span):
        low, high = min(i for e, i, _ in span if e == place), max(k for e, _, k in span if e == place)
        off = np.zeros((2, high - low))
        for p in pairs.values():
            a, s = p[place]
            reach = max(float(np.ptp(s)), 1e-300)
            for side, lag in enumerate(lags):
                distance = s - a[np.clip(np.arange(len(a)) - lag, 0, len(a) - 1)]
                off[side] += np.abs(distance - np.median(distance))[low:high] / reach
        before, after = (
            np.concatenate([[0.0], np.cumsum(off[0])]),
            np.concatenate([np.cumsum(off[1][::-1])[::-1], [0.0]]),
        )
        k = int(np.argmin(before + after))
        gained = float(off.sum(axis=1).max() - (before + after)[k])
        costs.append((gained, place, low + k))
    inside = [c for c in costs if c[2] < len(next(iter(pairs.values()))[c[1]][0])]
    _, place, row = max(inside or costs)
    return pooled.indices[place], row
