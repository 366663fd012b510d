"""A kit for anybody's robot: does it keep what trials, the guard and the checks rely on.

It drives the robot: small moves about where it stands, one command beyond its limits, a stop. Where the robot is
live that needs a word of the person beside it; without, only what needs no motion is held against it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from simgap.conventions import Reference
from simgap.errors import SimgapError
from simgap.provenance import canonical_json
from simgap.robots.base import AppliedAction, InitialCondition, Robot, RobotObservation
from simgap.robots.guard import WATCHDOG_S
from simgap.robots.readings import Contract
from simgap.robots.refs import RobotRef, require_robot
from simgap.types import Outcome

STEPS = 24
"""Control steps of one drive."""
SETTLING = 20
"""Control steps in which a robot may still come to rest under one command."""
SHARE = 0.05
"""Of the range of a command: how far it is moved."""
STILL = 0.01
"""Of the range of a state: within which it stands still; encoders have noise."""
RATE = 0.15
"""Share by which the loop may run beside its rate."""
BEYOND = 0.1
"""Of the range of a command: how far beyond its limit it is asked to go, for one step."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Clause:
    """One clause of the contract, and what breaks it; empty where nothing does."""

    clause: str
    breach: str = ""
    asked: bool = True
    """False where it could not be asked; the breach then says why not."""

    @property
    def is_broken(self) -> bool:
        """True where it was asked and does not hold."""
        return self.asked and bool(self.breach)

    def to_json(self) -> dict[str, str | bool | None]:
        """Return plain JSON values; ``holds`` is null where it was not asked."""
        return {
            "clause": self.clause,
            "breach": self.breach,
            "holds": not self.breach if self.asked else None,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class _Step:
    seen: RobotObservation
    command: NDArray[np.float32]
    applied: AppliedAction
    wall_s: float


def hold_robot(
    ref: RobotRef, *, may_move: bool, condition: InitialCondition | None = None
) -> tuple[Clause, ...]:
    """Hold a robot against the contract.

    Args:
        ref: the robot; it is opened twice, one after the other.
        may_move: whether a live robot may be driven: somebody stands beside it.
        condition: how it is set up; by default where it likes, seed 0.

    Raises:
        SimgapError: it cannot be opened at all.
    """
    start = condition or InitialCondition(seed=0)
    robot = ref.open()
    try:
        require_robot(robot, ref.name)
        clauses = list(_held(robot, start, may_move=may_move or not robot.is_live))
    finally:
        robot.close()
    clauses.append(
        _asked("closed a second time it stays closed, and it opens again", lambda: _again(ref, robot))
    )
    return tuple(clauses)


def _held(robot: Robot, start: InitialCondition, *, may_move: bool) -> Iterator[Clause]:
    yield _asked("its conventions fit each other", lambda: _conventions(robot))
    yield _asked("its stamp is plain values", lambda: _stamp(robot))
    reset = _asked("it can be set up, and says how it was", lambda: _reset(robot, start))
    yield reset
    if reset.breach:
        return
    yield _asked(
        "a reading is whole: frames with their age, finite encoders, a clock", lambda: _reading(robot)
    )
    yield _asked("without commands it does not move", lambda: _unmoved(robot, robot.observe(), 0.3))
    yield _asked("nobody has judged before the trial began", lambda: _verdict(robot))
    if not may_move:
        yield from (
            Clause(clause=c, breach="the robot is live; allow it to move (--may-move)", asked=False)
            for c in _MOVING
        )
        return
    driven: list[_Step] = []
    yield _asked(_MOVING[0], lambda: _drive(robot, start, driven))
    if len(driven) == STEPS:
        yield _asked(_MOVING[1], lambda: _ages(driven))
        yield _asked(_MOVING[2], lambda: _rate(robot, driven))
    yield _asked(_MOVING[3], lambda: _clipping(robot, start))
    yield _asked(_MOVING[4], lambda: _idle(robot, start))
    yield _asked(_MOVING[5], lambda: _stop(robot, start))


_MOVING = (
    "it does what it is told within its limits, and says so",
    "frames are new, or their ages grow",
    "it holds its rate",
    "its limits are as declared, and clipping is told",
    "under a command that does not change it comes to rest",
    f"it stops within {1000 * WATCHDOG_S:g} ms, stays so, and moves again when it is told to",
)


def _asked(clause: str, ask: Callable[[], str]) -> Clause:
    try:
        return Clause(clause=clause, breach=ask())
    except SimgapError as error:
        return Clause(clause=clause, breach=str(error))
    except Exception as error:
        return Clause(clause=clause, breach=f"it raised {type(error).__name__}: {error}")


def _conventions(robot: Robot) -> str:
    low, high = _limits(robot)
    if robot.action_spec.rate_hz != robot.state_spec.rate_hz:
        return f"commands at {robot.action_spec.rate_hz:g} Hz, states at {robot.state_spec.rate_hz:g} Hz"
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
        return "a command has no limits: a robot that may go anywhere cannot be tried"
    if not robot.cameras or len(set(robot.cameras)) < len(robot.cameras):
        return f"cameras {list(robot.cameras)}: expected one or more, each with a name of its own"
    return ""


def _stamp(robot: Robot) -> str:
    fields = json.loads(canonical_json(dict(robot.stamp_fields())))
    return "" if fields else "it is empty: nothing says which robot this is"


def _reset(robot: Robot, start: InitialCondition) -> str:
    measured = robot.reset(start)
    odd = [n for n, v in measured.placements.items() if not np.isfinite(v)]
    if odd:
        return f"it measured {odd[0]} as {measured.placements[odd[0]]}"
    missing = sorted(set(start.placements) - set(measured.placements))
    return f"it was asked to place {missing[0]} and did not measure it" if missing else ""


def _reading(robot: Robot) -> str:
    _see(robot)
    return ""


def _verdict(robot: Robot) -> str:
    said: object = robot.verdict()
    if said is None:
        return ""
    return f"its judge says {said}" if isinstance(said, Outcome) else f"it says {said!r:.60}, no outcome"


def _drive(robot: Robot, start: InitialCondition, driven: list[_Step]) -> str:
    """Move every joint a little to and fro, and keep what was seen."""
    robot.reset(start)
    low, high = _limits(robot)
    hold = _hold_command(robot, _see(robot))
    for step in range(STEPS):
        swing = SHARE * (high - low) * np.sin(2 * np.pi * (step + 1) / STEPS)
        command = np.clip(hold + swing, low, high).astype(np.float32)
        seen, applied = _see(robot), robot.act(command)
        driven.append(_Step(seen=seen, command=command, applied=applied, wall_s=time.monotonic()))
        off = np.abs(np.asarray(applied.action) - command) > 1e-3 * (high - low)
        if off.any():
            at = int(np.flatnonzero(off)[0])
            name = robot.action_spec.names[at]
            return f"told {name} {command[at]:g}, within its limits, it applied {applied.action[at]:g}"
        if applied.clipped:
            return "it says it clipped a command within its limits"
    before, after = driven[0].seen.state, np.stack([s.seen.state for s in driven])
    if not (np.abs(after - before) > 0.2 * STILL * _span(robot)).any():
        return "its encoders did not change while it was driven"
    return ""


def _ages(driven: list[_Step]) -> str:
    """A frame that is the one before, byte for byte, must have aged by the time between."""
    for camera in driven[0].seen.images:
        repeats = 0
        for last, this in pairwise(driven):
            if not np.array_equal(last.seen.images[camera], this.seen.images[camera]):
                repeats = 0
                continue
            took = this.seen.time_s - last.seen.time_s
            aged = this.seen.frame_age_s[camera] - last.seen.frame_age_s[camera]
            repeats = repeats + 1 if aged < 0.5 * took else 0
            if repeats == 3:
                return (
                    f"the {camera} camera showed the same frame four times while the robot moved, and called it"
                    f" {this.seen.frame_age_s[camera]:.3g} s old: a stale frame is claimed to be fresh"
                )
    return ""


def _rate(robot: Robot, driven: list[_Step]) -> str:
    period, n = 1.0 / robot.action_spec.rate_hz, len(driven) - 1
    said = (driven[-1].applied.time_s - driven[0].applied.time_s) / n
    took = (driven[-1].wall_s - driven[0].wall_s) / n
    if abs(said / period - 1) > RATE:
        return f"by its own clock it runs at {1 / said:.3g} Hz, {1 / period:g} Hz are declared"
    if robot.is_live and abs(took / period - 1) > RATE:
        return f"by this machine's clock it runs at {1 / took:.3g} Hz, {1 / period:g} Hz are declared"
    return ""


def _clipping(robot: Robot, start: InitialCondition) -> str:
    """Ask for a little more than each limit, for one step, and then for where it was."""
    low, high = _limits(robot)
    robot.reset(start)
    hold = _hold_command(robot, _see(robot))
    for at, name in enumerate(robot.action_spec.names):
        command = hold.copy()
        command[at] = high[at] + BEYOND * (high[at] - low[at])
        applied = robot.act(command)
        robot.act(hold)
        did = float(np.asarray(applied.action)[at])
        if did > high[at] + 1e-3 * (high[at] - low[at]):
            return f"told {name} {command[at]:g} it applied {did:g}, beyond the {high[at]:g} that it declares"
        if not applied.clipped:
            return f"told {name} {command[at]:g} it applied {did:g} and did not say that it clipped"
    return ""


def _idle(robot: Robot, start: InitialCondition) -> str:
    robot.reset(start)
    hold = _hold_command(robot, _see(robot))
    for _ in range(SETTLING):
        robot.act(hold)
    before = _see(robot)
    for _ in range(SETTLING // 2):
        robot.act(hold)
    return _moved(robot, before, _see(robot), "it still moves")


def _stop(robot: Robot, start: InitialCondition) -> str:
    robot.reset(start)
    low, high = _limits(robot)
    hold = _hold_command(robot, _see(robot))
    swung = np.where(
        hold + SHARE * (high - low) > high, hold - SHARE * (high - low), hold + SHARE * (high - low)
    )
    robot.act(swung.astype(np.float32))
    began = time.monotonic()
    robot.stop()
    robot.stop()
    took = time.monotonic() - began
    if took > WATCHDOG_S:
        return f"stop() took {1000 * took:.0f} ms"
    if robot.is_live:
        time.sleep(max(0.0, began + WATCHDOG_S - time.monotonic()))
    if told := _unmoved(robot, _see(robot), 0.3):
        return f"{1000 * WATCHDOG_S:g} ms after stop() {told}"
    _see(robot)
    for _ in range(SETTLING):
        robot.act(swung.astype(np.float32))
    back = _see(robot)
    for _ in range(SETTLING):
        robot.act(hold)
    moved = np.abs(_see(robot).state - back.state) > 0.2 * STILL * _span(robot)
    return "" if moved.any() else "after stop() it does not move again"


def _unmoved(robot: Robot, before: RobotObservation, wait_s: float) -> str:
    if robot.is_live:
        time.sleep(wait_s)
    return _moved(robot, before, _see(robot), "it moves without a command")


def _moved(robot: Robot, before: RobotObservation, after: RobotObservation, told: str) -> str:
    span = _span(robot)
    off = np.abs(after.state - before.state) / span
    at = int(np.argmax(off))
    if off[at] <= STILL:
        return ""
    return f"{told}: {robot.state_spec.names[at]} went from {before.state[at]:.3g} to {after.state[at]:.3g}"


def _again(ref: RobotRef, robot: Robot) -> str:
    robot.close()
    other = ref.open()
    try:
        same = (other.action_spec, other.state_spec, tuple(other.cameras)) == (
            robot.action_spec,
            robot.state_spec,
            tuple(robot.cameras),
        )
        other.reset(InitialCondition(seed=0))
        _see(other)
        return "" if same else "it came back with other conventions"
    finally:
        other.close()


def _see(robot: Robot) -> RobotObservation:
    said = robot.observe()
    return Contract.of(robot).seen(said.images, said.state, said.frame_age_s, said.time_s)


def _hold_command(robot: Robot, seen: RobotObservation) -> NDArray[np.float32]:
    """Return the command that asks for no motion: where it stands, no speed, no change, else the middle of the range."""
    low, high = _limits(robot)
    at = dict(zip(robot.state_spec.names, seen.state, strict=True))
    command = [
        0.0
        if d.unit.is_velocity or d.name.endswith(".vel") or d.reference is not Reference.ABSOLUTE
        else at.get(d.name, (a + b) / 2)
        for d, a, b in zip(robot.action_spec.dimensions, low, high, strict=True)
    ]
    return np.asarray(np.clip(command, low, high), np.float32)


def _limits(robot: Robot) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    spec = robot.action_spec
    return np.asarray(spec.low, np.float64), np.asarray(spec.high, np.float64)


def _span(robot: Robot) -> NDArray[np.float64]:
    """Return the range of each state; 1 of its unit where none is declared."""
    spec = robot.state_spec
    span = np.asarray(spec.high, np.float64) - np.asarray(spec.low, np.float64)
    return np.asarray(np.where(np.isfinite(span) & (span > 0), span, 1.0), np.float64)
