"""The kit for anybody's robot: the surrogates pass, and each planted fault is caught by the clause that it breaks."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from simgap.cli import main
from simgap.conventions import ActionSpec, Dimension, StateSpec, Unit
from simgap.envs import ENVS
from simgap.errors import MachineError, TrialFault
from simgap.robots.base import AppliedAction, InitialCondition, RobotObservation
from simgap.robots.conformance import hold_robot
from simgap.robots.refs import SurrogateRef
from simgap.types import EvidenceKind, Outcome
from test_loop import LocalSurrogate

JOINT = Dimension(name="joint.pos", unit=Unit.DEG, low=-90.0, high=90.0)


class Servo:
    """A good robot of one joint, whose time goes on while it is driven."""

    evidence, is_live, judge = EvidenceKind.SURROGATE, False, "operator"
    rate_hz = 20.0
    action_spec = ActionSpec(dimensions=(JOINT,), rate_hz=20.0)
    state_spec = StateSpec(dimensions=(JOINT,), rate_hz=20.0)
    cameras, image_size = ("top",), 8
    now_s = 0.0

    def __init__(self) -> None:
        self.at = np.zeros(1, np.float32)

    def reset(self, condition: InitialCondition) -> InitialCondition:
        self.at, self.now_s = np.zeros(1, np.float32), 0.0
        return condition

    def observe(self) -> RobotObservation:
        return RobotObservation(
            images={"top": self.frame()}, state=self.at, time_s=self.now_s, frame_age_s={"top": self.age()}
        )

    def frame(self) -> NDArray[np.uint8]:
        return np.full((8, 8, 3), int(128 + self.at[0]), np.uint8)

    def age(self) -> float:
        return 0.01

    def act(self, action: NDArray[np.float32]) -> AppliedAction:
        self.at = np.clip(action, -90.0, 90.0)
        self.now_s += 1 / self.rate_hz
        return AppliedAction(action=self.at, clipped=bool((self.at != action).any()), time_s=self.now_s)

    def verdict(self) -> Outcome | None:
        return None

    def stop(self) -> None:
        pass

    def stamp_fields(self) -> dict[str, Any]:
        return {"robot": "servo"}

    def close(self) -> None:
        pass


class Frozen(Servo):
    def frame(self) -> NDArray[np.uint8]:
        return np.zeros((8, 8, 3), np.uint8)


class SlowCamera(Servo):
    """A camera of a quarter of the rate, which says how old its frame is."""

    def frame(self) -> NDArray[np.uint8]:
        return np.full((8, 8, 3), round(self.now_s * 20 + 1e-6) // 4, np.uint8)

    def age(self) -> float:
        return 0.01 + 0.05 * (round(self.now_s * 20 + 1e-6) % 4)


class Silent(Servo):
    def act(self, action: NDArray[np.float32]) -> AppliedAction:
        applied = super().act(action)
        return AppliedAction(action=applied.action, clipped=False, time_s=applied.time_s)


class Boundless(Servo):
    def act(self, action: NDArray[np.float32]) -> AppliedAction:
        applied = super().act(action)
        return AppliedAction(action=action, clipped=applied.clipped, time_s=applied.time_s)


class Narrow(Servo):
    def act(self, action: NDArray[np.float32]) -> AppliedAction:
        applied = super().act(np.clip(action, -2.0, 2.0).astype(np.float32))
        return AppliedAction(action=applied.action, clipped=True, time_s=applied.time_s)


class Alarmist(Servo):
    def act(self, action: NDArray[np.float32]) -> AppliedAction:
        applied = super().act(action)
        return AppliedAction(action=applied.action, clipped=True, time_s=applied.time_s)


class Drifting(Servo):
    drift = 0.0

    def act(self, action: NDArray[np.float32]) -> AppliedAction:
        applied = super().act(action)
        self.drift += 0.5
        self.at = self.at + np.float32(self.drift)
        return applied


class Restless(Servo):
    def observe(self) -> RobotObservation:
        self.at = self.at + np.float32(3)
        return super().observe()


class Fast(Servo):
    rate_hz = 30.0


class Deaf(Servo):
    def act(self, action: NDArray[np.float32]) -> AppliedAction:
        before, applied = self.at, super().act(action)
        self.at = before
        return applied


class SlowStop(Servo):
    def stop(self) -> None:
        time.sleep(0.3)


class StoppedForGood(Servo):
    is_stopped = False

    def stop(self) -> None:
        self.is_stopped = True

    def act(self, action: NDArray[np.float32]) -> AppliedAction:
        before, applied = self.at, super().act(action)
        if self.is_stopped:
            self.at = before
        return applied


class OnceOnly(Servo):
    opened: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).opened += 1
        if self.opened % 2 == 0:
            raise MachineError("the port is busy")


class ClosedOnce(Servo):
    is_closed = False

    def close(self) -> None:
        if self.is_closed:
            raise OSError("port is closed")
        self.is_closed = not self.is_closed


class Stuck(Servo):
    def reset(self, condition: InitialCondition) -> InitialCondition:
        raise TrialFault("the gripper does not open")


class Hasty(Servo):
    def verdict(self) -> Outcome | None:
        return Outcome.success()


class TwoRates(Servo):
    state_spec = StateSpec(dimensions=(JOINT,), rate_hz=30.0)


class Ageless(Servo):
    def age(self) -> float:
        return float("nan")


class Backwards(Servo):
    def observe(self) -> RobotObservation:
        self.now_s = -1.0
        return super().observe()


class Crashing(Servo):
    def stop(self) -> None:
        raise ValueError("no such port")


class Nameless(Servo):
    def stamp_fields(self) -> dict[str, Any]:
        return {}


class Live(Servo):
    """The same, in this machine's time, and fast."""

    is_live = True
    rate_hz = 100.0
    action_spec = ActionSpec(dimensions=(JOINT,), rate_hz=100.0)
    state_spec = StateSpec(dimensions=(JOINT,), rate_hz=100.0)
    takes_s = 0.01

    def act(self, action: NDArray[np.float32]) -> AppliedAction:
        until = time.monotonic() + self.takes_s
        applied = super().act(action)
        time.sleep(max(0.0, until - time.monotonic() - 0.0002))
        return applied


class Rolling(Live):
    """Goes on towards where it was told to go, and stop() changes nothing."""

    told = 0.0

    def reset(self, condition: InitialCondition) -> InitialCondition:
        self.told = 0.0
        return super().reset(condition)

    def act(self, action: NDArray[np.float32]) -> AppliedAction:
        applied = super().act(action)
        self.told, self.since = float(action[0]), time.monotonic()
        return applied

    def observe(self) -> RobotObservation:
        if self.told:
            self.at = np.full(1, self.told + 20 * (time.monotonic() - self.since), np.float32)
        return super().observe()


class Late(Live):
    """Says that it runs at its rate, and takes twice as long."""

    takes_s = 0.02


class Ref:
    """A reference to a robot of a test."""

    def __init__(self, robot: type[Servo]) -> None:
        self.robot, self.name, self.is_one_of_many = robot, robot.__name__, False

    def open(self) -> Servo:
        return self.robot()

    def stamp_fields(self) -> dict[str, Any]:
        return {}


def broken(robot: type[Servo]) -> dict[str, str]:
    return {c.clause: c.breach for c in hold_robot(Ref(robot), may_move=True) if c.is_broken}


@pytest.mark.parametrize("robot", [Servo, SlowCamera])
def test_a_good_robot_keeps_every_clause(robot: type[Servo]) -> None:
    assert broken(robot) == {}
    assert len(hold_robot(Ref(robot), may_move=True)) == 13


PLANTED = [
    (Frozen, "frames are new", "a stale frame is claimed to be fresh"),
    (Silent, "clipping is told", "did not say that it clipped"),
    (Boundless, "clipping is told", "beyond the 90 that it declares"),
    (Narrow, "within its limits", "it applied"),
    (Alarmist, "within its limits", "clipped a command within its limits"),
    (Drifting, "comes to rest", "it still moves: joint.pos went from"),
    (Restless, "without commands", "it moves without a command"),
    (Fast, "holds its rate", "at 30 Hz, 20 Hz are declared"),
    (Deaf, "within its limits", "encoders did not change"),
    (SlowStop, "stops within 500 ms", "stop() took 6"),
    (StoppedForGood, "moves again", "does not move again"),
    (OnceOnly, "opens again", "the port is busy"),
    (ClosedOnce, "opens again", "port is closed"),
    (Stuck, "can be set up", "the gripper does not open"),
    (Hasty, "nobody has judged", "success"),
    (TwoRates, "conventions", "states at 30 Hz"),
    (Ageless, "a reading is whole", "age of the top camera"),
    (Backwards, "a reading is whole", "clock"),
    (Crashing, "stops within 500 ms", "ValueError: no such port"),
    (Nameless, "stamp", "nothing says which robot"),
]


@pytest.mark.parametrize(("robot", "clause", "breach"), PLANTED, ids=[r.__name__ for r, *_ in PLANTED])
def test_a_planted_fault_is_caught_by_the_clause_that_it_breaks(
    robot: type[Servo], clause: str, breach: str
) -> None:
    found = broken(robot)
    assert any(clause in c and breach in b for c, b in found.items()), found


def test_a_live_robot_keeps_the_contract_and_is_not_moved_without_a_word() -> None:
    assert broken(Live) == {}
    still = hold_robot(Ref(Live), may_move=False)
    assert sum(not c.asked for c in still) == 6
    assert not any(c.is_broken for c in still)
    assert {c.to_json()["holds"] for c in still} == {True, None}


@pytest.mark.parametrize(
    ("robot", "breach"),
    [
        (Rolling, "500 ms after stop() it moves without a command"),
        pytest.param(Late, "by this machine's clock it runs at", marks=pytest.mark.slow),
    ],
)
def test_what_only_time_shows_is_caught_on_a_live_robot(robot: type[Servo], breach: str) -> None:
    assert any(breach in b for b in broken(robot).values())


@pytest.mark.parametrize("env", sorted(ENVS))
def test_the_surrogate_of_every_env_keeps_the_contract(env: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SurrogateRef, "open", lambda ref: LocalSurrogate(ref))
    clauses = hold_robot(SurrogateRef(env=env, image_size=32, seed=0, gap="none"), may_move=False)
    assert [c.breach for c in clauses if c.breach] == []
    assert len(clauses) == 13


@pytest.mark.slow
@pytest.mark.parametrize("env", sorted(ENVS))
def test_the_process_of_a_surrogate_keeps_the_contract(env: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["robots", "check", f"surrogate:{env}", "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["not_asked"] == 0


# The verb


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parent)


def test_a_robot_that_breaks_the_contract_is_exit_code_1(
    here: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["robots", "check", "test_robots_conformance:Silent", "--quiet"]) == 1
    out = capsys.readouterr().out
    assert "breaks     its limits are as declared, and clipping is told" in out
    assert "keeps 12 of 13 clauses" in out


def test_the_robots_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["robots", "--json"]) == 0
    listed = {row["name"] for row in json.loads(capsys.readouterr().out)["robots"]}
    assert {f"surrogate:{env}" for env in ENVS} <= listed


@pytest.mark.parametrize(
    "name", ["arm", "surrogate:arm-pik", "surrogate:", "json:loads", "no_such:Arm", "surrogate:os:system"]
)
def test_a_name_that_is_no_robot_is_one_line(
    name: str, here: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["robots", "check", name, "--quiet"]) in (2, 3)
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
