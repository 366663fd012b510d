"""Replay: logged actions sent open loop must move the robot as they moved the simulator. The policy plays no part.

What a joint makes of its command is its multiplier: 1 where the conventions agree, -1 where a sign is turned,
anything else where units or gear ratios differ. Before that, the readings of robot and simulator are held
against each other: where a joint does what another was told, the order differs, and where it stands off by
the same angle everywhere, its zero does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap import causes
from simgap.causes import Cause
from simgap.checks.replay.motions import arm_columns, response_of
from simgap.conventions import ActionSpec
from simgap.findings import CheckResult, Family, Verdict
from simgap.measures.maps import DimensionFit, fit_map
from simgap.measures.response import MAX_DELAY, MIN_ROWS, Motion, Response, multiplier_at
from simgap.measures.units import PER_DEGREE, unit_pair
from simgap.wording import number_of

SCALE_LIMIT = 0.12
"""Relative deviation of a multiplier that everyday tolerances stay under; a wrong unit or range is far above."""
FOLLOWS_LIMIT = 0.1
"""Multiplier under which a joint does not follow its command at all: it has no sign, and nothing can be divided by it."""
OFFSET_LIMIT_DEG = 8.0
"""Angle between what robot and simulator read, the same over all replays, that sag and play stay under."""
_FOLLOWS_R2 = 0.9
"""Share of a joint's variance in the simulator that its reading on the robot repeats where it does follow, in whatever unit."""
BOOTSTRAPS = 100


NAME = "replay of logged actions"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Comparison:
    """Multipliers of the robot's joints, in the simulator's."""

    ratios: Mapping[str, float | None]
    intervals: Mapping[str, tuple[float, float]]
    clips: Mapping[str, float]
    dead: Mapping[str, float]
    """Joints that only the simulator moves, or that hardly follow."""
    readings: Mapping[str, DimensionFit]
    """What the robot reads against what the simulator reads."""
    zeros: Mapping[str, float]
    """Joints that read another angle than the simulator's, the same everywhere, and by how much."""

    @property
    def order(self) -> list[str]:
        """The simulator's joint that each of the robot's follows."""
        return [f.source for f in self.readings.values()]

    @property
    def told(self) -> dict[str, float]:
        """Joints whose multiplier could be fitted, with an interval."""
        return {n: r for n, r in self.ratios.items() if r is not None and n in self.intervals}

    @property
    def sure(self) -> dict[str, float]:
        """Joints that are surely off: only these may be named, or one noisy joint would hide another."""
        return {
            n: r
            for n, r in self.told.items()
            if abs(r - 1.0) > SCALE_LIMIT and not self.intervals[n][0] <= 1.0 <= self.intervals[n][1]
        }

    @property
    def unsure(self) -> dict[str, float]:
        """Joints that look off while their interval allows 1."""
        return {n: r for n, r in self.told.items() if abs(r - 1.0) > SCALE_LIMIT and n not in self.sure}


def check_replay(
    robot: Sequence[Motion],
    simulator: Sequence[Motion],
    spec: ActionSpec,
    *,
    clips: Mapping[str, float] | None = None,
    assumes: tuple[str, ...] = (),
    rng: np.random.Generator,
) -> CheckResult:
    """Compare each joint's multiplier on the robot with the simulator's on the same commands.

    Args:
        robot: replays on the robot.
        simulator: the same actions as logged in the simulator.
        spec: the action convention.
        clips: of :func:`clips_of`, for joints that stand at a stop.
        assumes: assumptions of the simulator's side.
        rng: for the bootstrap over replays.
    """
    base: dict[str, Any] = {"family": Family.REPLAY, "name": NAME, "n": len(robot), "assumes": assumes}
    if len(robot) < 3:
        text = f"{len(robot)} usable replays; at least 3 are needed."
        return CheckResult(**base, verdict=Verdict.CANNOT_TELL, sentence=text, more_trials=3 - len(robot))
    ours, theirs = response_of(robot, spec), response_of(simulator, spec)
    found = _compare(robot, simulator, ours, theirs, spec, clips or {}, rng)
    off = found.sure | dict(found.dead)
    shown = off or found.told
    base["numbers"] = _numbers(found, ours, theirs)
    other = _other_convention(found, is_off=bool(off))
    if other:
        numbers = base.pop("numbers") | {"broken": {}, "also_off": list(off)}
        return CheckResult(
            **base, **other, verdict=Verdict.BROKEN, cause=causes.ACTION_CONVENTION, numbers=numbers
        )
    if not shown:
        return CheckResult(
            **base,
            verdict=Verdict.CANNOT_TELL,
            sentence="No joint moved enough in the replays to tell its multiplier.",
        )
    worst = max(shown, key=lambda n: abs(shown[n] - 1.0))
    value = shown[worst]
    if not off and found.unsure:
        low, high = found.intervals[worst]
        text = (
            f"{worst} may move {value:.2f} times what it is told, but the replays leave {low:.2f} to"
            f" {high:.2f} open."
        )
        return CheckResult(**base, verdict=Verdict.CANNOT_TELL, sentence=text, more_trials=2 * len(robot))
    cause = _cause(value, is_off=bool(off), is_dead=worst in found.dead)
    if cause in (causes.ACTION_SIGN, causes.ACTION_SCALE) and worst not in found.clips:
        value = _refined(value, worst, robot, ours, theirs, spec, found.intervals[worst])
    base["numbers"] |= {
        "broken": {worst: value} if off and worst not in found.dead else {},
        "also_off": [n for n in off if n != worst],
    }
    return CheckResult(
        **base,
        verdict=Verdict.BROKEN if off else Verdict.OK,
        sentence=_sentence(cause, worst, value, found, spec),
        statistic=f"multiplier of {worst}",
        value=value,
        threshold=1.0 - SCALE_LIMIT if value < 1 else 1.0 + SCALE_LIMIT,
        cause=cause,
    )


def _refined(
    value: float,
    name: str,
    robot: Sequence[Motion],
    ours: Response,
    theirs: Response,
    spec: ActionSpec,
    interval: tuple[float, float],
) -> float:
    """Return the multiplier to correct by: -1 for a sign that is only turned, else the one at the simulator's stiffness."""
    if value < 0 and (interval[0] <= -1.0 <= interval[1] or abs(value + 1.0) < SCALE_LIMIT):
        return -1.0
    reference = next(j for j in theirs.joints if j.name == name)
    column = spec.names.index(name)
    scale = PER_DEGREE[spec.dimensions[column].unit]
    found = multiplier_at(
        robot, column, reference, delay_steps=ours.delay_steps, limits=(spec.low, spec.high), per_degree=scale
    )
    return value if found is None or found * value < 0 or abs(found - 1.0) < SCALE_LIMIT else found


def _other_convention(found: _Comparison, *, is_off: bool) -> dict[str, Any]:
    """Return what is said of another order or zero, empty where there is none; a turned sign explains a zero that moved with it."""
    moved = [n for n, source in zip(found.readings, found.order, strict=True) if n != source]
    if moved:
        parts = [f"{n} does what {found.readings[n].source} is told" for n in moved]
        return {
            "sentence": f"The robot's joints are in another order: {', '.join(parts)}.",
            "statistic": "joints in another place",
            "value": float(len(moved)),
        }
    if is_off or not found.zeros:
        return {}
    worst = max(found.zeros, key=lambda n: abs(found.zeros[n]))
    parts = [f"{n} {found.zeros[n]:+.1f}" for n in found.zeros]
    text = (
        "The robot reads other angles than the simulator on the same commands, by the same amount"
        f" everywhere: {', '.join(parts)}; a zero has moved."
    )
    return {
        "sentence": text,
        "statistic": f"offset of {worst}",
        "value": found.zeros[worst],
        "threshold": OFFSET_LIMIT_DEG,
    }


def _readings(
    robot: Sequence[Motion], simulator: Sequence[Motion], spec: ActionSpec
) -> dict[str, DimensionFit]:
    """Fit what the robot reads against what the simulator reads on the same commands; either may end first, and unpaired logs are not compared."""
    columns = arm_columns(spec)
    if len(robot) != len(simulator):
        return {}
    lengths = [min(len(a[1]), len(b[1])) for a, b in zip(robot, simulator, strict=True)]
    longest = max(0, min(MAX_DELAY, min(lengths) - MIN_ROWS))
    wanted, read = ([side[k][1][:n, columns] for k, n in enumerate(lengths)] for side in (simulator, robot))
    return {f.name: f for f in fit_map(wanted, read, [spec.names[i] for i in columns], longest_lag=longest)}


def _zeros(readings: Mapping[str, DimensionFit], spec: ActionSpec) -> dict[str, float]:
    """Return the joints whose zero has moved; a slope away from 1 shifts a joint that works far from zero, and has no intercept."""
    found = {}
    for name, f in readings.items():
        limit = OFFSET_LIMIT_DEG * PER_DEGREE[spec.dimensions[spec.names.index(name)].unit]
        if (
            f.difference is None
            or f.offset is None
            or f.slope is None
            or f.r2 < _FOLLOWS_R2
            or abs(f.slope - 1.0) > SCALE_LIMIT
        ):
            continue
        if (
            min(abs(f.difference), abs(f.offset)) > limit
            and f.difference * f.offset > 0
            and abs(f.difference) > 3.0 * f.difference_spread
        ):
            found[name] = f.difference
    return found


def _compare(
    robot: Sequence[Motion],
    simulator: Sequence[Motion],
    ours: Response,
    theirs: Response,
    spec: ActionSpec,
    clips: Mapping[str, float],
    rng: np.random.Generator,
) -> _Comparison:
    readings = _readings(robot, simulator, spec)
    ratios, intervals = _ratios(ours, theirs), _intervals(robot, theirs, spec, rng)
    for name, stop in clips.items():
        value = _from_stop(stop, name, spec, ratios.get(name) or 1.0)
        ratios[name], intervals[name] = value, (value, value)
    # A joint that only the simulator moves gives no stiffness to divide by; with encoder noise it gives a
    # multiplier near 0.
    still = [
        n
        for n in ratios
        if n not in clips and ours.multiplier(n) is None and theirs.multiplier(n) is not None
    ]
    # A reading in radians is a small multiple of a command in degrees, but it follows; a dead joint's noise
    # does not.
    follows = {n for n, f in readings.items() if f.r2 > _FOLLOWS_R2 and unit_pair(ratios.get(n) or 1.0)}
    weak = {
        n: r
        for n, r in ratios.items()
        if r is not None and n in intervals and abs(r) < FOLLOWS_LIMIT and n not in follows
    }
    return _Comparison(
        ratios=ratios,
        intervals=intervals,
        clips=clips,
        dead=dict.fromkeys(still, 0.0) | weak,
        readings=readings,
        zeros=_zeros(readings, spec),
    )


def _numbers(found: _Comparison, ours: Response, theirs: Response) -> dict[str, Any]:
    return {
        "multipliers": dict(found.ratios),
        "intervals_95": {n: list(v) for n, v in found.intervals.items()},
        "clipped_at": dict(found.clips),
        "delay_steps": {"robot": ours.delay_steps, "simulator": theirs.delay_steps},
        "stiffness": {
            j.name: [j.stiffness, t.stiffness] for j, t in zip(ours.joints, theirs.joints, strict=True)
        },
        "order": found.order,
        "offsets": {n: f.difference for n, f in found.readings.items()},
    }


def _sentence(cause: Cause, worst: str, value: float, found: _Comparison, spec: ActionSpec) -> str:
    low, high = found.intervals.get(worst, (value, value))
    if cause is causes.JOINT_DEAD:
        return (
            f"{worst} hardly follows its command (multiplier {value:.2f}), and the simulator's does: wiring,"
            " power or servo id."
        )
    if cause is not causes.NONE and worst in found.clips:
        stop, column = found.clips[worst], spec.names.index(worst)
        limit = spec.high[column] if stop * value > 0 else spec.low[column]
        return (
            f"The robot cuts commands of {worst} at {stop:.1f}, where its joint reaches {limit:.1f}: it moves"
            f" {value:.2f} times what it is told."
        )
    if cause is causes.ACTION_SIGN:
        return (
            f"{worst} moves against its command (multiplier {value:.2f}, 95 % interval {low:.2f} to"
            f" {high:.2f}): its sign is turned."
        )
    if cause is causes.ACTION_SCALE:
        pair = unit_pair(value)
        if pair:
            return (
                f"{worst} moves {value:.4g} times what it is told: {pair} (factor"
                f" {max(abs(value), 1 / abs(value)):.1f})."
            )
        return (
            f"{worst} moves {value:.2f} times what it is told (95 % interval {low:.2f} to {high:.2f}): a"
            " unit, range or gear ratio differs."
        )
    told = len(found.told)
    who = (
        "Every joint does"
        if told == len(found.ratios)
        else f"{told} of {number_of(len(found.ratios), 'joint')} moved enough to tell; they do"
    )
    return (
        f"{who} what is asked, to {abs(value - 1):.1%} of the simulator's response (worst {worst});"
        f" {SCALE_LIMIT:.0%} is tolerance."
    )


def _from_stop(stop: float, name: str, spec: ActionSpec, fitted: float) -> float:
    """Return the multiplier that puts a joint at its limit when its command is cut to ``stop``; the sign is the fitted one's."""
    column = spec.names.index(name)
    limit = float(spec.high[column]) if stop * fitted > 0 else float(spec.low[column])
    return limit / stop if abs(stop) > 1.0 else fitted


def _cause(value: float, *, is_off: bool, is_dead: bool) -> Cause:
    if not is_off:
        return causes.NONE
    if is_dead:
        return causes.JOINT_DEAD
    return causes.ACTION_SIGN if value < 0 else causes.ACTION_SCALE


def _ratios(ours: Response, theirs: Response) -> dict[str, float | None]:
    ratios: dict[str, float | None] = {}
    for a, b in zip(ours.joints, theirs.joints, strict=True):
        ratios[a.name] = (
            None
            if a.multiplier is None or b.multiplier is None or abs(b.multiplier) < 0.2
            else a.multiplier / b.multiplier
        )
    return ratios


def _intervals(
    robot: Sequence[Motion], theirs: Response, spec: ActionSpec, rng: np.random.Generator
) -> dict[str, tuple[float, float]]:
    """Bootstrap whole replays: frames of one replay are not independent."""
    draws: dict[str, list[float]] = {j.name: [] for j in theirs.joints}
    for _ in range(BOOTSTRAPS):
        picked = [robot[int(i)] for i in rng.integers(len(robot), size=len(robot))]
        for name, ratio in _ratios(response_of(picked, spec), theirs).items():
            if ratio is not None:
                draws[name].append(ratio)
    return {n: _percentiles(np.array(v)) for n, v in draws.items() if len(v) >= BOOTSTRAPS // 2}


def _percentiles(values: NDArray[np.float64]) -> tuple[float, float]:
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)
