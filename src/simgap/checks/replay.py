"""Replay: logged actions sent open loop must move the robot as they moved the simulator. The policy plays no part.

What a joint makes of its command is its multiplier: 1 where the conventions agree, -1 where a sign is turned, anything
else where units or gear ratios differ.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simgap.checks.base import Cause, CheckResult, Family, Verdict
from simgap.checks.response import Motion, Response, fit_response
from simgap.conventions import ActionSpec
from simgap.episodes.reader import Dataset

SCALE_LIMIT = 0.12
"""Relative deviation of a multiplier that everyday tolerances stay under; a wrong unit or range is far above."""
FOLLOWS_LIMIT = 0.1
"""Multiplier under which a joint does not follow its command at all: it has no sign, and nothing can be divided by it."""
BOOTSTRAPS = 100


def motions_of(log: Dataset, count: int | None = None) -> list[Motion]:
    """Return what was commanded and what the encoders read, per episode of a log."""
    found = []
    for index in range(log.n_episodes if count is None else min(count, log.n_episodes)):
        episode = log.episode(index, images=False)
        command = episode.extras.get("executed_action", episode.action)
        if len(episode) > 12 and not episode.outcome.is_void:
            found.append((np.asarray(command, dtype=np.float32), episode.state))
    return found


def arm_columns(spec: ActionSpec) -> list[int]:
    """Return the dimensions a response is fitted for: grippers close on things, so their reading says little."""
    return [i for i, dimension in enumerate(spec.dimensions) if not dimension.is_gripper]


def response_of(motions: Sequence[Motion], spec: ActionSpec) -> Response:
    """Fit the response of every dimension but the grippers."""
    columns = arm_columns(spec)
    cut = [(a[:, columns], s[:, columns]) for a, s in motions]
    return fit_response(cut, [spec.names[i] for i in columns], (spec.low[columns], spec.high[columns]))


def check_replay(
    robot: Sequence[Motion], simulator: Sequence[Motion], spec: ActionSpec, *, assumes: tuple[str, ...] = (), rng: np.random.Generator
) -> CheckResult:
    """Compare each joint's multiplier on the robot with the simulator's on the same commands.

    Args:
        robot: replays on the robot.
        simulator: the same actions as logged in the simulator.
        spec: the action convention.
        assumes: assumptions of the simulator's side.
        rng: for the bootstrap over replays.
    """
    if len(robot) < 3:
        return CheckResult(
            family=Family.REPLAY,
            name="replay of logged actions",
            verdict=Verdict.CANNOT_TELL,
            sentence=f"{len(robot)} usable replays; at least 3 are needed.",
            more_trials=3 - len(robot),
            n=len(robot),
            assumes=assumes,
        )
    ours, theirs = response_of(robot, spec), response_of(simulator, spec)
    ratios = _ratios(ours, theirs)
    intervals = _intervals(robot, theirs, spec, rng)
    numbers = {
        "multipliers": ratios,
        "intervals_95": intervals,
        "delay_steps": {"robot": ours.delay_steps, "simulator": theirs.delay_steps},
        "stiffness": {j.name: [j.stiffness, t.stiffness] for j, t in zip(ours.joints, theirs.joints, strict=True)},
    }
    told = {n: r for n, r in ratios.items() if r is not None and n in intervals}
    # A joint that only the simulator moves gives no stiffness to divide by; with encoder noise it gives a multiplier near 0.
    still = [n for n in ratios if ours.multiplier(n) is None and theirs.multiplier(n) is not None]
    dead = dict.fromkeys(still, 0.0) | {n: r for n, r in told.items() if abs(r) < FOLLOWS_LIMIT}
    if not told and not dead:
        sentence = "No joint moved enough in the replays to tell its multiplier."
        return CheckResult(
            family=Family.REPLAY,
            name="replay of logged actions",
            verdict=Verdict.CANNOT_TELL,
            sentence=sentence,
            n=len(robot),
            numbers=numbers,
            assumes=assumes,
        )
    # Only joints whose interval excludes 1 may be named, or one noisy joint would hide another that is surely off.
    sure = {n: r for n, r in told.items() if abs(r - 1.0) > SCALE_LIMIT and not intervals[n][0] <= 1.0 <= intervals[n][1]}
    off = sure | dead
    worst = max(off or told, key=lambda n: abs((off or told)[n] - 1.0))
    value = (off or told)[worst]
    low, high = intervals.get(worst, (value, value))
    cause = _cause(value, is_off=bool(off), is_dead=worst in dead)
    if cause is Cause.ACTION_SIGN:
        sentence = f"{worst} moves against its command (multiplier {value:.2f}, 95 % interval {low:.2f} to {high:.2f}): its sign is turned."
    elif cause is Cause.ACTION_SCALE:
        sentence = f"{worst} moves {value:.2f} times what it is told (95 % interval {low:.2f} to {high:.2f}): a unit, range or gear ratio differs."
    elif cause is Cause.JOINT_DEAD:
        sentence = f"{worst} hardly follows its command (multiplier {value:.2f}), and the simulator's does: wiring, power or servo id."
    else:
        who = "Every joint does" if len(told) == len(ratios) else f"{len(told)} of {len(ratios)} joints moved enough to tell; they do"
        sentence = f"{who} what is asked, to {abs(value - 1):.1%} of the simulator's response (worst {worst}); {SCALE_LIMIT:.0%} is tolerance."
    return CheckResult(
        family=Family.REPLAY,
        name="replay of logged actions",
        verdict=Verdict.BROKEN if off else Verdict.OK,
        sentence=sentence,
        statistic=f"multiplier of {worst}",
        value=value,
        threshold=1.0 - SCALE_LIMIT if value < 1 else 1.0 + SCALE_LIMIT,
        n=len(robot),
        cause=cause,
        numbers={**numbers, "broken": {worst: value} if off and worst not in dead else {}, "also_off": [n for n in off if n != worst]},
        assumes=assumes,
    )


def _cause(value: float, *, is_off: bool, is_dead: bool) -> Cause:
    if not is_off:
        return Cause.NONE
    if is_dead:
        return Cause.JOINT_DEAD
    return Cause.ACTION_SIGN if value < 0 else Cause.ACTION_SCALE


def _ratios(ours: Response, theirs: Response) -> dict[str, float | None]:
    ratios: dict[str, float | None] = {}
    for a, b in zip(ours.joints, theirs.joints, strict=True):
        ratios[a.name] = None if a.multiplier is None or b.multiplier is None or abs(b.multiplier) < 0.2 else a.multiplier / b.multiplier
    return ratios


def _intervals(robot: Sequence[Motion], theirs: Response, spec: ActionSpec, rng: np.random.Generator) -> dict[str, tuple[float, float]]:
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
