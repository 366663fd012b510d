"""One guard around any robot: what it says is checked, what it is sent is finite, and it never keeps moving by itself."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from arm_fixtures import HOME
from simgap.conventions import ActionSpec, Dimension, StateSpec, Unit
from simgap.episodes.reader import open_dataset
from simgap.episodes.spec import DatasetSpec
from simgap.episodes.write.store import EpisodeWriter
from simgap.errors import DataError, MachineError, PolicyFault, TrialFault, UsageError
from simgap.provenance import Stamp
from simgap.robots.base import AppliedAction, InitialCondition, RobotObservation
from simgap.robots.guard import Guard
from simgap.robots.refs import CodeRef, SurrogateRef, named_robot, require_robot
from simgap.trials.batch import TrialPlan, conditions_of, read_results, run_trials
from simgap.trials.rows import read_rows
from simgap.trials.run import run_replay
from simgap.types import EvidenceKind, Outcome
from test_trials import START, FakeRobot, Script, trial

JOINT = Dimension(name="joint.pos", unit=Unit.DEG, low=-90.0, high=90.0)


class OneJoint:
    """A robot of one joint and one camera; a test says what it does wrong."""

    evidence, is_live, judge = EvidenceKind.SURROGATE, False, "operator"
    action_spec = ActionSpec(dimensions=(JOINT,), rate_hz=20.0)
    state_spec = StateSpec(dimensions=(JOINT,), rate_hz=20.0)
    cameras, image_size = ("top",), 8

    def __init__(self, **wrong: Any) -> None:
        self.wrong = wrong
        self.sent: list[float] = []
        self.stops, self.resets, self.closed = 0, 0, 0
        self.time_s, self.at = 0.0, np.zeros(1, np.float32)

    def reset(self, condition: InitialCondition) -> InitialCondition:
        self.resets += 1
        if self.resets in self.wrong.get("resets", ()):
            raise TrialFault("the gripper does not open")
        self.time_s = 0.0
        return condition

    def observe(self) -> RobotObservation:
        parts = {
            "images": {"top": np.zeros((8, 8, 3), np.uint8)},
            "state": self.at,
            "time_s": self.time_s,
            "frame_age_s": {"top": 0.01},
        }
        return RobotObservation(**(parts | self.wrong.get("seen", {})))

    def act(self, action: NDArray[np.float32]) -> AppliedAction:
        if "act" in self.wrong:
            self.wrong["act"]()
        self.sent.append(float(action[0]))
        limit = self.wrong.get("limit", 90.0)
        self.at = np.clip(action, -limit, limit)
        self.time_s += 0.05
        return AppliedAction(action=self.at, clipped=False, time_s=self.time_s)

    def verdict(self) -> Outcome | None:
        said: Callable[[OneJoint], Outcome | None] = self.wrong.get("verdict", lambda robot: None)
        return said(self)

    def stop(self) -> None:
        self.stops += 1

    def stamp_fields(self) -> dict[str, Any]:
        return {"robot": "one joint"}

    def close(self) -> None:
        self.closed += 1


ACTION = np.zeros(1, np.float32)
FRAME = np.zeros((8, 8, 3), np.uint8)


@pytest.mark.parametrize(
    ("seen", "told"),
    [
        ({"frame_age_s": {"top": 0.3}}, r"top camera froze: its frame is 0\.30 s old, 0\.25 s is allowed"),
        ({"frame_age_s": {"top": -0.1}}, "check its clock"),
        ({"frame_age_s": {}}, "age of the top camera"),
        ({"frame_age_s": None}, "for frame_age_s"),
        ({"images": {}}, "frame of the top camera"),
        ({"images": {"top": FRAME[:4]}}, r"expected uint8 \[8, 8, 3\]"),
        ({"images": {"top": FRAME.astype(np.float32)}}, "expected uint8"),
        ({"state": np.array([np.nan], np.float32)}, "check the encoder"),
        ({"state": np.zeros(2, np.float32)}, "the state is"),
        ({"time_s": float("nan")}, "clock"),
    ],
)
def test_a_reading_that_is_none_breaks_the_trial(seen: dict[str, Any], told: str) -> None:
    with Guard(OneJoint(seen=seen)) as guard, pytest.raises(TrialFault, match=told):
        guard.observe()


def test_the_age_of_a_frame_that_is_allowed_can_be_set() -> None:
    robot = OneJoint(seen={"frame_age_s": {"top": 0.3}})
    with Guard(robot, stale_s=0.4) as guard:
        assert guard.observe().frame_age_s == {"top": 0.3}


def test_a_clock_that_goes_back_breaks_the_trial_and_begins_anew_in_the_next() -> None:
    robot = OneJoint()
    with Guard(robot) as guard:
        guard.act(ACTION)
        robot.time_s = 0.0
        with pytest.raises(TrialFault, match="clock went back"):
            guard.observe()
        guard.reset(START)
        guard.observe()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_command_that_is_not_finite_never_reaches_a_robot(bad: float) -> None:
    robot = OneJoint()
    with Guard(robot) as guard, pytest.raises(TrialFault, match="nothing was sent"):
        guard.act(np.array([bad], np.float32))
    assert robot.sent == []


def test_clipping_that_a_robot_keeps_to_itself_is_told() -> None:
    with Guard(OneJoint()) as guard:
        assert not guard.act(np.array([89.0], np.float32)).clipped
        assert guard.act(np.array([120.0], np.float32)).clipped


class Live(OneJoint):
    is_live = True


def test_a_live_robot_is_stopped_when_commands_cease_and_the_trial_is_void() -> None:
    robot = Live()
    with Guard(robot, watchdog_s=0.1) as guard:
        time.sleep(0.15)
        assert robot.stops == 0  # nothing was commanded yet
        guard.act(ACTION)
        began = time.monotonic()
        while not robot.stops and time.monotonic() < began + 5:
            time.sleep(0.005)
        assert robot.stops == 1
        for ask in (guard.observe, lambda: guard.act(ACTION)):
            with pytest.raises(TrialFault, match="the watchdog stopped the robot"):
                ask()
    assert len(robot.sent) == 1


def test_a_live_robot_that_is_commanded_in_time_is_left_alone() -> None:
    robot = Live()
    with Guard(robot, watchdog_s=1.0) as guard:
        for _ in range(10):
            guard.act(ACTION)
            time.sleep(0.01)
        assert robot.stops == 0
    assert robot.stops == 1


def test_a_live_robot_whose_driver_hangs_in_a_command_is_stopped_from_outside() -> None:
    robot = Live()
    robot.wrong["act"] = lambda: time.sleep(0.4)
    with Guard(robot, watchdog_s=0.1) as guard, pytest.raises(TrialFault, match="watchdog"):
        guard.act(ACTION)
    assert robot.stops >= 2  # by the watchdog, and at the end


def test_a_robot_that_only_moves_while_it_is_driven_waits_as_long_as_a_policy_thinks() -> None:
    robot = OneJoint()
    with Guard(robot, watchdog_s=0.02) as guard:
        guard.act(ACTION)
        time.sleep(0.15)
        guard.act(ACTION)
    assert robot.stops == 1


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, TrialFault, PolicyFault, SystemExit])
def test_a_robot_is_stopped_whatever_ends_the_trial(error: type[BaseException]) -> None:
    def broken() -> None:
        raise error("over")

    robot = OneJoint(act=broken)
    actions = np.zeros((3, 1), np.float32)
    if error is TrialFault:
        assert run_replay(robot, actions, START, task="t")[0].is_void
    else:
        with pytest.raises(error):
            run_replay(robot, actions, START, task="t")
    assert robot.stops == 1


# Outcomes


def test_a_cable_that_comes_loose_makes_a_void_that_keeps_what_was_seen() -> None:
    def loose() -> None:
        if len(robot.sent) == 2:
            raise ConnectionError("port /dev/ttyACM0 is gone")

    robot = OneJoint(act=loose)
    outcome, episode = run_replay(robot, np.zeros((5, 1), np.float32), START, task="t")
    assert outcome.is_void
    assert (
        "sending a command, the robot's driver failed: ConnectionError: port /dev/ttyACM0" in outcome.detail
    )
    assert len(episode or ()) == 2
    assert robot.stops == 1


def test_a_robot_that_cannot_be_stopped_ends_everything_with_one_line() -> None:
    def gone() -> None:
        raise OSError("port is gone")

    robot = OneJoint()
    robot.stop = gone  # type: ignore[method-assign]
    with pytest.raises(MachineError, match=r"cannot be stopped \(port is gone\): switch it off"):
        run_replay(robot, np.zeros((2, 1), np.float32), START, task="t")


def test_a_reset_that_fails_makes_a_void() -> None:
    robot = OneJoint(resets=(1,))
    outcome, episode = run_replay(robot, np.zeros((3, 1), np.float32), START, task="t")
    assert (outcome, episode) == (Outcome.void("the gripper does not open"), None)
    assert robot.stops == 1


class Person(FakeRobot):
    """An arm whose trials a person judges, once the arm stands."""

    judge = "operator"
    says: Outcome | None = None

    def verdict(self) -> Outcome | None:
        return self.says if getattr(self, "stops", 0) else None


def test_where_a_person_judges_what_is_not_done_in_time_is_a_failure() -> None:
    outcome, episode = trial(Person(), max_steps=4)
    assert (outcome, len(episode)) == (Outcome.failure("timeout"), 4)


def test_a_person_is_asked_once_more_when_the_time_is_up_and_the_robot_stands() -> None:
    robot = Person()
    robot.says = Outcome.success()
    assert trial(robot, max_steps=4)[0] == Outcome.success()


class Refusing(Script):
    """A policy that at its second chunk wants what cannot be sent."""

    def __init__(self, fault: PolicyFault | float) -> None:
        super().__init__()
        self.fault = fault

    def predict(
        self, images: dict[str, NDArray[np.uint8]], state: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        chunk = super().predict(images, state)
        if self.asked == 2:
            if isinstance(self.fault, PolicyFault):
                raise self.fault
            chunk[..., 2] = self.fault
        return chunk


@pytest.mark.parametrize(
    ("fault", "mode", "reason"),
    [
        (np.nan, "not_finite", "sent nan for elbow_flex.pos"),
        (PolicyFault("infinity at step 0", mode="not_finite"), "not_finite", "infinity at step 0"),
        (PolicyFault("1e300 fits no float32", mode="out_of_range"), "out_of_range", "1e300"),
        (PolicyFault("it leaves the table"), "policy_fault", "it leaves the table"),
    ],
)
def test_a_fault_of_the_policy_is_a_failure_that_keeps_its_own_mode_and_reason(
    fault: PolicyFault | float, mode: str, reason: str
) -> None:
    robot = FakeRobot()
    outcome, episode = trial(robot, Refusing(fault))
    assert outcome == Outcome.failure(mode)
    assert reason in outcome.reason
    assert len(episode) == len(robot.sent) == 1
    assert np.array_equal(robot.sent[0], HOME)


def test_a_fault_of_a_policy_keeps_its_mode_on_the_way_from_a_worker() -> None:
    back = pickle.loads(pickle.dumps(PolicyFault("too far", mode="out_of_range")))
    assert (str(back), back.mode) == ("too far", "out_of_range")


# Batches


class Held:
    """A reference to a robot that is there once; opening it a second time is a mistake."""

    def __init__(self, robot: OneJoint) -> None:
        self.robot, self.name, self.is_one_of_many, self.opened = robot, "held", False, 0

    def open(self) -> OneJoint:
        self.opened += 1
        assert self.opened == 1, "opened twice"
        return self.robot

    def stamp_fields(self) -> dict[str, Any]:
        return {}


def reaches(robot: OneJoint) -> Outcome | None:
    return Outcome.success() if len(robot.sent) % 3 == 0 else None


@pytest.fixture
def logged(tmp_path: Path) -> Path:
    """Four episodes of a robot, of which nobody recorded seeds."""
    spec = DatasetSpec(
        name="log",
        action_spec=OneJoint.action_spec,
        state_spec=OneJoint.state_spec,
        cameras=OneJoint.cameras,
        image_size=(8, 8),
        rate_hz=20.0,
        stamp=Stamp(kind="recorded", fields={}),
        task_default="t",
    )
    writer = EpisodeWriter(tmp_path / "log", spec)
    for index in range(4):
        actions = np.full((3, 1), 1.0 + index, np.float32)
        writer.write(index, run_replay(OneJoint(), actions, InitialCondition(), task="t")[1])  # type: ignore[arg-type]
    writer.finish()
    return tmp_path / "log"


def plan_of(robot: OneJoint, log: Path) -> TrialPlan:
    conditions = conditions_of(open_dataset(log), range(4), ())
    return TrialPlan(name="held", robot=Held(robot), conditions=conditions, task="t", replay_of=log)


def test_a_robot_of_which_there_is_one_is_opened_once_and_driven_here(logged: Path, tmp_path: Path) -> None:
    robot = OneJoint(verdict=reaches)
    plan = plan_of(robot, logged)
    results = run_trials(plan, tmp_path / "out", workers=2)
    assert [r.outcome for r in results] == [Outcome.success()] * 4
    assert (plan.robot.opened, robot.closed, robot.resets) == (1, 1, 4)  # type: ignore[attr-defined]
    assert robot.sent == [1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]


def test_a_robot_that_is_open_already_stays_open(logged: Path, tmp_path: Path) -> None:
    robot = OneJoint(verdict=reaches)
    plan = plan_of(robot, logged)
    run_trials(plan, tmp_path / "out", workers=0, robot=robot)
    assert (plan.robot.opened, robot.closed) == (0, 0)  # type: ignore[attr-defined]


def test_a_trial_says_its_condition_its_time_and_its_judge_and_no_seed_where_there_is_none(
    logged: Path, tmp_path: Path
) -> None:
    results = run_trials(plan_of(OneJoint(), logged), tmp_path / "out", workers=0)
    assert [r.seed for r in results] == [None] * 4
    assert len({r.condition_id for r in results}) == 4
    assert {r.judge for r in results} == {"operator"}
    assert all(r.began and r.began.startswith("20") and r.began.endswith("+00:00") for r in results)
    assert [round(r.rate_hz or 0, 3) for r in results] == [20.0] * 4
    assert [r.clipped for r in results] == [0.0] * 4


def test_clipped_commands_are_counted(logged: Path, tmp_path: Path) -> None:
    # a joint that does a twentieth of what it is told has to be told 20, 40, 60 and 80 degrees
    plan = replace(plan_of(OneJoint(limit=50.0), logged), commands={"joint.pos": 0.05})
    results = run_trials(plan, tmp_path / "out", workers=0)
    assert [r.clipped for r in results] == [0.0, 0.0, 1.0, 1.0]


def test_a_reset_that_fails_is_a_void_of_the_set_and_the_others_are_run(logged: Path, tmp_path: Path) -> None:
    robot = OneJoint(verdict=reaches, resets=(2,))
    results = run_trials(plan_of(robot, logged), tmp_path / "out", workers=0)
    assert [(r.index, r.steps, str(r.outcome)) for r in results] == [
        (0, 3, "success"),
        (1, 0, "void(the gripper does not open)"),
        (2, 3, "success"),
        (3, 3, "success"),
    ]
    log = open_dataset(tmp_path / "out")
    assert log.n_episodes == 3
    assert [log.episode(i, images=False).action[0, 0] for i in range(3)] == [1.0, 3.0, 4.0]
    again = run_trials(plan_of(OneJoint(), logged), tmp_path / "out", workers=0)
    assert again == results  # nothing is missing, so nothing is run
    assert read_results(log) == results


def test_a_batch_that_is_killed_after_a_void_goes_on_behind_it(logged: Path, tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    robot = OneJoint(verdict=reaches, resets=(1,))
    with pytest.raises(KeyboardInterrupt):
        run_trials(plan_of(robot, logged), tmp_path / "out", workers=0, progress=stop)
    assert robot.closed == 1
    results = run_trials(plan_of(OneJoint(verdict=reaches), logged), tmp_path / "out", workers=0)
    assert [r.steps for r in results] == [0, 3, 3, 3]
    assert [row.episode for _, row in sorted(read_rows(tmp_path / "out").items())] == [None, 0, 1, 2]


def test_a_trial_that_was_killed_between_its_row_and_its_episode_is_run_again(
    logged: Path, tmp_path: Path
) -> None:
    class Killed(Exception):
        pass

    def killed(*_: object) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EpisodeWriter, "write", killed)
        with pytest.raises(Killed):
            run_trials(plan_of(OneJoint(), logged), tmp_path / "out", workers=0)
    assert set(read_rows(tmp_path / "out")) == {0}
    assert [r.steps for r in run_trials(plan_of(OneJoint(), logged), tmp_path / "out", workers=0)] == [3] * 4


def test_a_set_in_which_nothing_was_tried_says_why(logged: Path, tmp_path: Path) -> None:
    robot = OneJoint(resets=range(9))
    with pytest.raises(TrialFault, match=r"none of 4 trials .* \(the gripper does not open\)"):
        run_trials(plan_of(robot, logged), tmp_path / "out", workers=0)
    assert robot.closed == 1


def test_a_row_of_a_trial_that_was_edited_is_not_believed(logged: Path, tmp_path: Path) -> None:
    run_trials(plan_of(OneJoint(resets=(2,)), logged), tmp_path / "out", workers=0)
    row = tmp_path / "out" / "meta" / "trials" / "000001.json"
    row.write_text(row.read_text().replace("does not open", "is fine"))
    with pytest.raises(DataError, match="changed since it was written"):
        read_results(open_dataset(tmp_path / "out"))


def test_a_log_of_an_earlier_version_is_read_without_what_it_does_not_say(
    logged: Path, tmp_path: Path
) -> None:
    before = run_trials(plan_of(OneJoint(verdict=reaches), logged), tmp_path / "out", workers=0)
    for row in (tmp_path / "out" / "meta" / "trials").glob("*.json"):
        row.unlink()
    old = run_trials(plan_of(OneJoint(), logged), tmp_path / "out", workers=0)
    assert old == [replace(r, condition_id=None, began=None, judge=None) for r in before]


# References


def test_a_reference_travels_to_a_worker() -> None:
    ref = SurrogateRef(env="arm-pick", image_size=48, seed=3)
    assert pickle.loads(pickle.dumps(ref)) == ref
    assert ref.is_one_of_many


def test_a_robot_of_ones_own_is_opened_by_the_name_a_command_gave_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(__file__).parent
    ref = pickle.loads(pickle.dumps(named_robot("test_robots_guard:OneJoint", folder)))
    assert isinstance(ref, CodeRef)
    assert not ref.is_one_of_many
    assert ref.open().stamp_fields() == {"robot": "one joint"}
    assert ref.stamp_fields()["driver"]["name"] == "test_robots_guard:OneJoint"
    with pytest.raises(UsageError, match="no robot: it has no evidence, action_spec"):
        require_robot(object(), "x:Y")
    for text in ("arm", "no_such_module:Arm", "../x:Arm"):
        with pytest.raises(UsageError):
            named_robot(text, folder)
