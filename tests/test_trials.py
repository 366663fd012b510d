"""Trials and replays: every one is an episode, a broken one is void with a reason, a killed batch goes on where it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from arm_fixtures import HOME, SIZE, blind, condition, solve, tiny_checkpoint
from simgap.envs.arm.factors import ARM_PRESETS, PLACEMENT_FACTORS
from simgap.episodes.reader import open_dataset
from simgap.errors import DataError, SimgapError, TrialFault
from simgap.policies.execution import parse_executor
from simgap.robots.base import AppliedAction, InitialCondition, RobotObservation
from simgap.robots.convention import CommandMap
from simgap.robots.refs import SurrogateRef
from simgap.teachers.generation import GenerateSpec, generate
from simgap.trials.batch import TrialPlan, conditions_of, run_trials
from simgap.trials.run import run_replay, run_trial
from simgap.types import EvidenceKind, Outcome


class FakeRobot:
    """An arm without pictures behind the robot interface; ``fault_at`` breaks its camera at that step."""

    evidence, is_live, judge = EvidenceKind.SURROGATE, False, "simulator"
    cameras, image_size = ("front", "wrist"), SIZE

    def __init__(
        self, *, multiplier: float = 1.0, fault_at: int | None = None, horizon_steps: int = 80
    ) -> None:
        self.env = blind(horizon_steps=horizon_steps)
        self.action_spec, self.state_spec = self.env.action_spec, self.env.state_spec
        self.multiplier = np.array([multiplier, 1, 1, 1, 1, 1], dtype=np.float32)
        self.fault_at = fault_at
        self.sent: list[NDArray[np.float32]] = []

    def reset(self, start: InitialCondition) -> InitialCondition:
        self.obs, _ = self.env.reset(seed=start.seed, options={"factors": dict(start.placements)})
        self.sent, self.steps, self.outcome = [], 0, None
        return start

    def observe(self) -> RobotObservation:
        if self.steps == self.fault_at:
            raise TrialFault("front camera froze: its frame is 0.30 s old")
        images = {c: self.obs[c] for c in self.cameras}
        return RobotObservation(
            images=images,
            state=self.obs["state"],
            time_s=self.steps / 20,
            frame_age_s=dict.fromkeys(self.cameras, 0.02),
        )

    def act(self, action: NDArray[np.float32]) -> AppliedAction:
        if not np.isfinite(action).all():
            raise TrialFault("the policy sent NaN")
        self.sent.append(action)
        if self.outcome is None:
            self.obs, *_, info = self.env.step(action * self.multiplier)
            self.steps += 1
            self.outcome = info.get("outcome")
        return AppliedAction(action=action, clipped=False, time_s=self.steps / 20)

    def verdict(self) -> Outcome | None:
        return self.outcome

    def stop(self) -> None:
        self.stops = getattr(self, "stops", 0) + 1

    def stamp_fields(self) -> dict[str, object]:
        return {"robot": "fake"}

    def close(self) -> None:
        pass


class Script:
    """A policy that sends one action for ever."""

    cameras = ("front", "wrist")
    image_size, chunk = SIZE, 5

    def __init__(self, action: NDArray[np.float32] = HOME) -> None:
        env = blind()
        self.action_spec, self.state_spec, self.action = env.action_spec, env.state_spec, action
        self.asked = 0

    def predict(
        self, images: dict[str, NDArray[np.uint8]], state: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        self.asked += 1
        assert all(images[c].shape == (1, SIZE, SIZE, 3) for c in self.cameras)
        return np.tile(self.action, (1, self.chunk, 1))

    def stamp_fields(self) -> dict[str, object]:
        return {}


START = InitialCondition(seed=3, placements={n: condition(3)[n] for n in PLACEMENT_FACTORS})
LATEST = parse_executor("latest")


def trial(robot: FakeRobot, policy: Script | None = None, **kwargs: object):  # type: ignore[no-untyped-def]
    arguments = {"task": "pick up the red cube", "max_steps": 200} | kwargs
    return run_trial(robot, policy or Script(), LATEST, START, **arguments)  # type: ignore[arg-type]


def test_a_trial_is_logged_as_the_episode_that_happened() -> None:
    robot = FakeRobot(horizon_steps=7)
    outcome, episode = trial(robot)
    assert outcome == Outcome.failure("no_approach")
    assert len(episode) == 7
    assert episode.outcome == outcome
    assert (episode.seed, dict(episode.factors)) == (3, dict(START.placements))
    np.testing.assert_allclose(episode.time_s, np.arange(7) / 20)
    assert np.array_equal(episode.action, np.stack(robot.sent))
    assert set(episode.extras) == {"applied_action", "chunk_age", "frame_age_s"}


@pytest.mark.parametrize("at", [1, 4])
def test_a_frozen_camera_makes_a_void_with_its_reason_and_keeps_what_was_seen(at: int) -> None:
    outcome, episode = trial(FakeRobot(fault_at=at))
    assert outcome.is_void
    assert "front camera froze" in outcome.detail
    assert len(episode) == at
    assert episode.outcome == outcome


def test_a_robot_that_breaks_before_the_first_action_leaves_no_episode() -> None:
    outcome, episode = trial(FakeRobot(fault_at=0))
    assert outcome.is_void
    assert episode is None


def test_a_judge_that_never_speaks_makes_a_void() -> None:
    outcome, episode = trial(FakeRobot(), max_steps=5)
    assert (outcome, len(episode)) == (Outcome.void("no verdict after 5 steps"), 5)


def test_commands_are_corrected_on_their_way_and_logged_as_sent() -> None:
    robot = FakeRobot(multiplier=-1.0, horizon_steps=12)
    command = HOME + np.array([20, 0, 0, 0, 0, 0], dtype=np.float32)
    correction = CommandMap.correcting(robot.action_spec, {"shoulder_pan.pos": -1.0})
    _, corrected = trial(robot, Script(command), commands=correction)
    _, plain = trial(FakeRobot(horizon_steps=12), Script(command))
    assert corrected.action[0, 0] == -20.0
    np.testing.assert_allclose(corrected.state, plain.state, atol=1e-4)


def test_an_executor_carries_nothing_from_one_trial_to_the_next() -> None:
    policy = Script()
    episodes = [
        run_trial(
            FakeRobot(horizon_steps=6), policy, parse_executor("whole_chunk"), START, task="t", max_steps=50
        )[1]
        for _ in range(2)
    ]
    assert policy.asked == 4
    assert all(e is not None and e.extras["chunk_age"][0] == 0 for e in episodes)


# Replays


@pytest.fixture(scope="module")
def recorded() -> NDArray[np.float32]:
    outcome, actions = solve(blind(), {n: START.placements[n] for n in PLACEMENT_FACTORS}, seed=3)
    assert outcome == Outcome.success()
    return actions


def test_a_replay_of_a_success_on_the_same_plant_succeeds(recorded: NDArray[np.float32]) -> None:
    outcome, episode = run_replay(FakeRobot(), recorded, START, task="t")
    assert outcome == Outcome.success()
    assert episode is not None
    assert np.array_equal(episode.action, recorded[: len(episode)])


def test_a_replay_that_ends_sooner_than_its_log_ends_there(recorded: NDArray[np.float32]) -> None:
    longer = np.concatenate([recorded, np.tile(recorded[-1], (6, 1))])
    outcome, episode = run_replay(FakeRobot(), longer, START, task="t")
    assert outcome == Outcome.success()
    assert episode is not None
    assert len(episode) == len(recorded)
    # frames after the end would repeat the last one: the store refuses them
    assert (np.diff(episode.time_s) > 0).all()


def test_a_replay_on_a_turned_joint_fails(recorded: NDArray[np.float32]) -> None:
    outcome, _ = run_replay(FakeRobot(multiplier=-1.0), recorded, START, task="t")
    assert outcome.kind == "failure"


def test_a_replay_that_ends_before_any_verdict_is_a_timeout(recorded: NDArray[np.float32]) -> None:
    outcome, episode = run_replay(FakeRobot(), recorded[:5], START, task="t")
    assert (outcome, len(episode or ())) == (Outcome.failure("timeout"), 5)


def test_a_replay_with_a_frozen_camera_is_void(recorded: NDArray[np.float32]) -> None:
    outcome, episode = run_replay(FakeRobot(fault_at=4), recorded, START, task="t")
    assert outcome.is_void
    assert len(episode or ()) == 4


# Batches on surrogates


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = GenerateSpec(env="arm-pick", episodes=3, ranges=ARM_PRESETS["nominal"], image_size=SIZE)
    return generate(spec, tmp_path_factory.mktemp("logged") / "data", workers=0).root


@pytest.fixture(scope="module")
def replay_plan(logged: Path) -> TrialPlan:
    conditions = conditions_of(open_dataset(logged), range(3), PLACEMENT_FACTORS)
    robot = SurrogateRef(env="arm-pick", image_size=SIZE, seed=7, gap="none")
    return TrialPlan(
        name="replays", robot=robot, conditions=conditions, task="pick up the red cube", replay_of=logged
    )


def test_conditions_hold_seed_and_placements_and_nothing_hidden(logged: Path) -> None:
    for start in conditions_of(open_dataset(logged), [0, 2], PLACEMENT_FACTORS):
        assert set(start.placements) == set(PLACEMENT_FACTORS)
        assert dict(start.placements) == pytest.approx(
            {n: condition(start.seed)[n] for n in PLACEMENT_FACTORS}
        )


def test_replays_on_a_surrogate_without_a_gap_follow_the_log_and_end_alike(
    replay_plan: TrialPlan, logged: Path, tmp_path: Path
) -> None:
    results = run_trials(replay_plan, tmp_path / "log", workers=0)
    assert [r.index for r in results] == [0, 1, 2]
    assert sum(r.outcome.is_success for r in results) >= 2
    log, source = open_dataset(tmp_path / "log"), open_dataset(logged)
    for index, result in enumerate(results):
        ours, theirs = log.episode(index, images=False), source.episode(index, images=False)
        count = min(len(ours), len(theirs))
        assert result.seed == theirs.seed
        assert np.abs(ours.state[:count, :5] - theirs.state[:count, :5]).mean() < 1.0
    assert log.spec.stamp.fields["evidence"] == "surrogate"


def test_a_batch_stopped_in_the_middle_goes_on_and_a_worker_process_gives_the_same_log(
    replay_plan: TrialPlan, tmp_path: Path
) -> None:
    class Stop(Exception):
        pass

    def stop(done: int, total: int) -> None:
        if done == 1:
            raise Stop

    with pytest.raises(Stop):
        run_trials(replay_plan, tmp_path / "cut", workers=0, progress=stop)
    seen: list[int] = []
    run_trials(replay_plan, tmp_path / "cut", workers=0, progress=lambda done, total: seen.append(done))
    assert seen == [1, 2, 3]
    run_trials(replay_plan, tmp_path / "whole", workers=1)
    assert open_dataset(tmp_path / "cut").fingerprint == open_dataset(tmp_path / "whole").fingerprint


def test_a_folder_with_another_plan_is_refused(replay_plan: TrialPlan, tmp_path: Path) -> None:
    run_trials(replace(replay_plan, conditions=replay_plan.conditions[:1]), tmp_path / "log", workers=0)
    with pytest.raises(DataError, match="another spec"):
        run_trials(replace(replay_plan, commands={"elbow_flex.pos": -1.0}), tmp_path / "log", workers=0)


def test_a_plan_without_policy_or_dataset_is_refused(replay_plan: TrialPlan, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="neither a checkpoint nor a dataset"):
        run_trials(replace(replay_plan, replay_of=None), tmp_path / "log", workers=0)


def test_trials_of_a_policy_are_logged_with_its_executor_and_the_seal(
    replay_plan: TrialPlan, tmp_path: Path
) -> None:
    checkpoint = tiny_checkpoint(tmp_path / "policy", episodes=1)
    plan = replace(
        replay_plan,
        replay_of=None,
        checkpoint=checkpoint,
        executor="ensemble(0.1)",
        conditions=replay_plan.conditions[:2],
    )
    results = run_trials(plan, tmp_path / "log", workers=0)
    assert len(results) == 2
    fields = open_dataset(tmp_path / "log").spec.stamp.fields
    assert fields["executor"] == "ensemble(0.1)"
    assert len(fields["seal"]) == 64
    wrong = replace(plan, robot=replace(plan.robot, image_size=64))
    with pytest.raises(SimgapError, match="64 px"):
        run_trials(wrong, tmp_path / "wrong", workers=0)
