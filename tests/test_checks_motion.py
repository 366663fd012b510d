"""Replay and plant checks on the arm itself, without pictures: every planted gap is named, everyday tolerances are not."""

from __future__ import annotations

import itertools
import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from arm_fixtures import condition
from simgap import causes
from simgap.checks.plant.servos import DELAY_LIMIT_STEPS, STIFFNESS_LIMIT, check_plant
from simgap.checks.replay import open_loop as module
from simgap.checks.replay.motions import motions_of, usable_replays
from simgap.checks.replay.open_loop import SCALE_LIMIT, check_replay
from simgap.conventions import SO101_JOINTS
from simgap.diagnosis import decide
from simgap.envs.arm.pick import ArmPickEnv
from simgap.errors import DataError
from simgap.findings import CheckResult, Family, Verdict
from simgap.measures.response import Motion
from simgap.provenance import canonical_json
from simgap.teachers import make_teacher
from simgap.teachers.generation import roll_teacher
from simgap.types import Episode, Outcome

REPLAYS = 6


class Bench:
    """Holds teacher episodes of the simulator, and a robot that plays their commands with something planted."""

    def __init__(self) -> None:
        self.env = ArmPickEnv(image_size=48, render=False)
        self.spec = self.env.action_spec
        teacher = make_teacher(self.env)
        self.episodes: list[Episode] = []
        for seed in range(30):
            episode = roll_teacher(self.env, teacher, condition(seed), seed, 1.5).episode
            if episode is not None and episode.outcome.is_success and len(self.episodes) < REPLAYS:
                self.episodes.append(episode)
        self.simulator: list[Motion] = [(e.extras["executed_action"], e.state) for e in self.episodes]

    def robot(
        self,
        *,
        replays: int = REPLAYS,
        seed: int = 0,
        joint: str = "",
        multiplier: float = 1.0,
        noise: float = 0.1,
        **factors: float,
    ) -> list[Motion]:
        """Replay on a robot with everyday tolerances."""
        rng = np.random.default_rng(seed)
        multipliers = np.ones(len(self.spec))
        if joint:
            multipliers[self.spec.names.index(f"{joint}.pos")] = multiplier
        motions = []
        for episode in self.episodes[:replays]:
            everyday = {
                "friction": rng.uniform(0.9, 1.1),
                "actuator_gain": rng.uniform(0.97, 1.03),
                "encoder_noise_deg": noise,
            }
            obs, _ = self.env.reset(
                seed=int(rng.integers(10**6)), options={"factors": {**episode.factors, **everyday, **factors}}
            )
            states, sent = [], []
            for action in episode.extras["executed_action"]:
                states.append(obs["state"])
                sent.append(action)
                obs, _, terminated, truncated, _ = self.env.step(
                    np.clip(action * multipliers, self.spec.low, self.spec.high).astype(np.float32)
                )
                if terminated or truncated:
                    break
            motions.append((np.stack(sent), np.stack(states)))
        return motions

    def replay(self, robot: list[Motion]) -> CheckResult:
        return check_replay(
            robot,
            self.simulator[: len(robot)],
            self.spec,
            assumes=("engine=mujoco",),
            rng=np.random.default_rng(0),
        )

    def plant(self, robot: list[Motion]) -> CheckResult:
        return check_plant(robot, self.simulator[: len(robot)], self.spec, assumes=("engine=mujoco",))


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench()


@pytest.fixture(autouse=True)
def _few_bootstraps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BOOTSTRAPS", 8)


@pytest.mark.parametrize("seed", range(4))
def test_everyday_tolerances_and_encoder_noise_fire_neither_check(bench: Bench, seed: int) -> None:
    robot = bench.robot(seed=seed)
    replay, plant = bench.replay(robot), bench.plant(robot)
    assert (replay.verdict, replay.cause, replay.numbers["broken"], replay.numbers["also_off"]) == (
        Verdict.OK,
        causes.NONE,
        {},
        [],
    )
    assert (plant.verdict, plant.cause, plant.value) == (Verdict.OK, causes.NONE, 0.0)
    assert replay.assumes == plant.assumes == ("engine=mujoco",)


@pytest.mark.parametrize("joint", SO101_JOINTS[:5])
def test_a_turned_sign_is_named_with_its_joint_and_interval(bench: Bench, joint: str) -> None:
    robot = bench.robot(joint=joint, multiplier=-1.0)
    found = bench.replay(robot)
    assert (found.verdict, found.cause) == (Verdict.BROKEN, causes.ACTION_SIGN)
    assert list(found.numbers["broken"]) == [f"{joint}.pos"]
    assert found.value == pytest.approx(-1.0, abs=0.1)
    low, high = found.numbers["intervals_95"][f"{joint}.pos"]
    assert low - 0.05 <= -1.0 <= high + 0.05
    assert high < 0
    assert f"{joint}.pos moves against its command" in found.sentence
    assert decide([bench.plant(robot), found]).cause is causes.ACTION_SIGN, "replay comes before plant"


@pytest.mark.parametrize("multiplier", [0.6, 1.4])  # at 1.5 the wrist spends most of a grasp at its stop
@pytest.mark.parametrize("joint", SO101_JOINTS[1:4])
def test_a_wrong_scale_is_named_with_its_joint_and_an_interval_that_excludes_one(
    bench: Bench, joint: str, multiplier: float
) -> None:
    found = bench.replay(bench.robot(joint=joint, multiplier=multiplier))
    assert (found.verdict, found.cause) == (Verdict.BROKEN, causes.ACTION_SCALE)
    assert list(found.numbers["broken"]) == [f"{joint}.pos"]
    assert found.value == pytest.approx(multiplier, rel=0.1)
    low, high = found.numbers["intervals_95"][f"{joint}.pos"]
    assert (high < 1.0) if multiplier < 1.0 else (low > 1.0)
    assert found.threshold == pytest.approx(1.0 - SCALE_LIMIT if multiplier < 1.0 else 1.0 + SCALE_LIMIT)
    assert "95 % interval" in found.sentence


def test_a_joint_that_differs_less_than_the_limit_is_not_named(bench: Bench) -> None:
    assert bench.replay(bench.robot(joint="wrist_flex", multiplier=1.06)).verdict is Verdict.OK


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_a_joint_that_does_not_follow_at_all_is_neither_a_sign_nor_a_scale(
    bench: Bench, noise: float
) -> None:
    found = bench.replay(bench.robot(joint="elbow_flex", multiplier=0.0, noise=noise))
    assert (found.verdict, found.cause) == (Verdict.BROKEN, causes.JOINT_DEAD)
    assert found.numbers["broken"] == {}, "nothing can be divided by a multiplier of zero"
    assert "elbow_flex.pos" in found.sentence


def test_a_noisy_joint_does_not_hide_one_that_is_surely_off(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    robot = bench.robot(joint="wrist_flex", multiplier=0.6)
    real, told = module._ratios, itertools.cycle([2.5, 0.2])

    def unsettled(ours: module.Response, theirs: module.Response) -> dict[str, float | None]:
        return real(ours, theirs) | {"wrist_roll.pos": next(told)}

    monkeypatch.setattr(module, "_ratios", unsettled)
    found = bench.replay(robot)
    low, high = found.numbers["intervals_95"]["wrist_roll.pos"]
    assert low < 1.0 < high
    assert list(found.numbers["broken"]) == ["wrist_flex.pos"]


def test_what_a_gripper_holds_fires_nothing(bench: Bench) -> None:
    robot = bench.robot(cube_mass_kg=0.08, friction=1.4)
    held = [
        (a, np.concatenate([s[:, :5], s[:, 5:] * 0.5 + 20.0], axis=1).astype(np.float32)) for a, s in robot
    ]
    replay = bench.replay(held)
    assert "gripper.pos" not in replay.numbers["multipliers"]
    assert replay.verdict is Verdict.OK
    assert bench.plant(held).verdict is Verdict.OK


@pytest.mark.parametrize("replays", [0, 1, 2])
def test_fewer_than_three_replays_cannot_tell_and_name_how_many_would(bench: Bench, replays: int) -> None:
    robot = bench.robot(joint="wrist_flex", multiplier=-1.0, replays=replays)
    for found in (bench.replay(robot), bench.plant(robot)):
        assert (found.verdict, found.cause, found.n, found.more_trials) == (
            Verdict.CANNOT_TELL,
            causes.NONE,
            replays,
            3 - replays,
        )
        assert found.value is None


def test_three_replays_are_enough_to_name_a_sign(bench: Bench) -> None:
    assert (
        bench.replay(bench.robot(joint="shoulder_pan", multiplier=-1.0, replays=3)).cause
        is causes.ACTION_SIGN
    )


@pytest.mark.parametrize("delay", [2, 4, 8])
def test_a_delay_is_found_to_the_step_and_leaves_replay_whole(bench: Bench, delay: int) -> None:
    robot = bench.robot(action_latency_steps=float(delay))
    plant, replay = bench.plant(robot), bench.replay(robot)
    assert (plant.verdict, plant.cause, plant.value) == (Verdict.BROKEN, causes.ACTION_LATENCY, float(delay))
    assert plant.numbers["extra_delay_s"] == pytest.approx(delay / bench.spec.rate_hz)
    assert replay.verdict is Verdict.OK
    assert decide([replay, plant]).family is Family.PLANT


@pytest.mark.parametrize("delay", [0, 1])
def test_a_step_of_jitter_is_no_broken_plant(bench: Bench, delay: int) -> None:
    found = bench.plant(bench.robot(action_latency_steps=float(delay)))
    assert (found.verdict, found.value) == (Verdict.OK, float(delay))
    assert delay < DELAY_LIMIT_STEPS
    assert ("1 control step later than in it" if delay else "with the simulator's delay") in found.sentence


def test_a_weak_servo_is_named_by_the_plant_check_alone(bench: Bench) -> None:
    robot = bench.robot(actuator_gain=0.6)
    found = bench.plant(robot)
    assert (found.verdict, found.cause) == (Verdict.BROKEN, causes.PLANT_GAIN)
    ratio = float(np.median(list(found.numbers["stiffness_ratios"].values())))
    assert ratio == pytest.approx(0.63, abs=0.06)
    assert abs(ratio - 1.0) > STIFFNESS_LIMIT
    assert bench.replay(robot).verdict is Verdict.OK


def test_a_stiff_servo_up_to_its_bound_stays_below_the_limit_today(bench: Bench) -> None:
    """A known blind spot: the share closed in a step saturates, so the stiffest servo of the bounds is just told apart or not at all."""
    ratios = [
        float(
            np.median(list(bench.plant(bench.robot(actuator_gain=gain)).numbers["stiffness_ratios"].values()))
        )
        for gain in (1.2, 1.4)
    ]
    assert 1.0 < ratios[0] < ratios[1] < 1.0 + STIFFNESS_LIMIT


def test_replays_in_which_nothing_moves_cannot_tell(bench: Bench) -> None:
    still = [(np.zeros((40, 6), np.float32), np.zeros((40, 6), np.float32))] * 4
    replay = check_replay(still, still, bench.spec, rng=np.random.default_rng(0))
    plant = check_plant(still, still, bench.spec)
    assert replay.verdict is plant.verdict is Verdict.CANNOT_TELL
    assert "nan" not in plant.sentence


def test_joints_that_did_not_move_are_not_said_to_do_what_they_are_told(bench: Bench) -> None:
    def frozen(motions: list[Motion]) -> list[Motion]:
        cut = []
        for a, s in motions:
            a, s = a.copy(), s.copy()
            a[:, 4], s[:, 4] = 0.0, 0.0
            cut.append((a, s))
        return cut

    found = check_replay(
        frozen(bench.robot()), frozen(bench.simulator), bench.spec, rng=np.random.default_rng(0)
    )
    assert found.verdict is Verdict.OK
    assert "4 of 5 joints" in found.sentence


def test_the_replay_check_gives_the_same_numbers_twice_and_they_are_plain_json(bench: Bench) -> None:
    robot = bench.robot(joint="wrist_flex", multiplier=0.6)
    one, two = bench.replay(robot), bench.replay(robot)
    assert canonical_json(one.to_json()) == canonical_json(two.to_json())
    json.dumps(bench.plant(robot).to_json(), allow_nan=False)


UNCORRECTED: Any = SimpleNamespace(stamp=SimpleNamespace(fields={}))


@pytest.mark.parametrize("commands", [{"pan.pos": -2.0}, {"pan.pos": "twice"}, {"pan.pos": 0.0}])
def test_a_log_of_corrected_commands_is_read_as_what_was_asked_for(commands: dict[str, Any]) -> None:
    state = np.zeros((30, 2), np.float32)
    episode = Episode(
        images={},
        state=state,
        action=state + 3,
        time_s=np.arange(30) / 20,
        outcome=Outcome.success(),
        task="",
        seed=0,
    )
    spec = SimpleNamespace(
        stamp=SimpleNamespace(fields={"plan": {"commands": commands}}),
        action_spec=SimpleNamespace(names=("pan.pos", "lift.pos")),
    )
    log: Any = SimpleNamespace(n_episodes=1, episode=lambda *_, **__: episode, spec=spec, root="log")
    if commands["pan.pos"] == -2.0:
        assert motions_of(log)[0][0][0].tolist() == [-6.0, 3.0]
    else:
        with pytest.raises(DataError, match="are no numbers"):
            motions_of(log)


def test_voids_and_stumps_are_left_out_of_the_motions() -> None:
    def logged(steps: int, outcome: Outcome) -> Episode:
        zeros = np.zeros((steps, 6), np.float32)
        extras = {"executed_action": np.full((steps, 6), 2.0, np.float32)}
        return Episode(
            images={},
            state=zeros,
            action=zeros + 1,
            time_s=np.arange(steps) / 20,
            outcome=outcome,
            task="",
            seed=0,
            extras=extras,
        )

    episodes = [
        logged(30, Outcome.success()),
        logged(30, Outcome.void("camera froze")),
        logged(5, Outcome.failure("dropped")),
    ]
    log: Any = SimpleNamespace(n_episodes=3, episode=lambda index, images: episodes[index], spec=UNCORRECTED)
    found = motions_of(log)
    assert len(found) == 1
    assert (found[0][0] == 2.0).all(), "what was executed, not the label"


def test_the_bench_itself_moves_every_arm_joint(bench: Bench) -> None:
    assert len(bench.episodes) == REPLAYS
    assert all(np.std(np.concatenate([a[:, j] for a, _ in bench.simulator])) > 1.5 for j in range(5))


def test_both_sides_of_a_comparison_take_the_same_replays_when_one_is_void() -> None:
    def logged(value: float, outcome: Outcome) -> Episode:
        rows = np.full((30, 6), value, np.float32)
        return Episode(
            images={},
            state=rows,
            action=rows,
            time_s=np.arange(30) / 20,
            outcome=outcome,
            task="",
            seed=int(value),
        )

    robot: Any = SimpleNamespace(
        n_episodes=3,
        episode=lambda i, images: logged(i, Outcome.void("camera froze") if i == 1 else Outcome.success()),
        spec=UNCORRECTED,
    )
    simulator: Any = SimpleNamespace(
        n_episodes=5, episode=lambda i, images: logged(i, Outcome.success()), spec=UNCORRECTED
    )
    usable = usable_replays(robot)
    assert (
        [float(a[0, 0]) for a, _ in motions_of(simulator, usable)]
        == [float(a[0, 0]) for a, _ in motions_of(robot, usable)]
        == [0.0, 2.0]
    )
