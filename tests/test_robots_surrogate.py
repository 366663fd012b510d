"""The surrogate: a gap that is drawn from a seed, sealed, really there, never told before the diagnosis, and checked when told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arm_fixtures import HOME, SIZE, blind, condition, wave
from simgap import causes
from simgap.causes import Cause
from simgap.conventions import SO101_JOINTS
from simgap.envs import ENVS, make_env
from simgap.envs.arm.factors import ARM_FACTORS, ARM_PRESETS, PLACEMENT_FACTORS
from simgap.envs.factors import FactorRanges, FactorSpace
from simgap.errors import MachineError, SealError, TrialFault, UsageError
from simgap.mutants.gaps import (
    GAPS,
    Gap,
    draw_gap,
    gap_from_json,
    nonce_of,
    parse_gap,
    possible_kinds,
    seal_of,
)
from simgap.robots import surrogate_process
from simgap.robots.base import InitialCondition
from simgap.robots.surrogate import STALE_S, SurrogateRobot
from simgap.robots.surrogate_process import FRAME_LAG_S, OPERATOR_ERROR_M, SurrogateWorld
from simgap.robots.wire import receive, send
from simgap.types import EvidenceKind, Outcome

kinds = st.one_of(st.none(), st.sampled_from([row.cause for row in GAPS.values()]))
ARM = make_env("arm-pick", image_size=SIZE, render=False)


# The draw and the seal


@given(st.integers(0, 2**62), kinds)
def test_the_same_seed_draws_the_same_gap_and_seal(seed: int, kind: Cause | None) -> None:
    assert draw_gap(seed, kind, ARM) == draw_gap(seed, kind, ARM)
    assert seal_of(draw_gap(seed, kind, ARM), seed) == seal_of(draw_gap(seed, kind, ARM), seed)


@given(st.integers(0, 2**62), kinds)
def test_a_gap_stays_within_the_bounds_of_its_factors_and_survives_json(
    seed: int, kind: Cause | None
) -> None:
    gap = draw_gap(seed, kind, ARM)
    assert gap_from_json(json.loads(json.dumps(gap.to_json()))) == gap
    ARM_FACTORS.complete(gap.factors)
    assert gap.kind is (kind or gap.kind)
    assert gap.joint in ("", *SO101_JOINTS)
    assert bool(gap.factors) + bool(gap.joint) + bool(gap.placements) == (gap.kind is not causes.NONE)
    for name, (low, high) in gap.placements.items():
        assert name in PLACEMENT_FACTORS
        assert ARM_FACTORS.factors[name].low <= low < ARM_PRESETS["nominal"].ranges[name][0]
        assert ARM_FACTORS.factors[name].high >= high > ARM_PRESETS["nominal"].ranges[name][1]
    assert gap.sentence()


def test_random_draws_every_real_kind_about_equally_often_and_never_none() -> None:
    drawn = [draw_gap(seed, None, ARM).kind for seed in range(600)]
    assert causes.NONE not in drawn
    assert min(drawn.count(k) for k in [row.cause for row in GAPS.values()] if k is not causes.NONE) > 60


@given(st.integers(0, 2**62), st.integers(0, 2**62))
def test_two_seeds_have_two_seals_even_for_the_same_gap(one: int, other: int) -> None:
    gap = Gap(kind=causes.NONE)
    assert (seal_of(gap, one) == seal_of(gap, other)) == (one == other)


@given(st.integers(0, 2**62))
def test_a_seal_holds_every_field_of_the_gap(seed: int) -> None:
    gap = draw_gap(seed, causes.ACTION_SCALE, ARM)
    forged = [
        replace(gap, kind=causes.ACTION_SIGN),
        replace(gap, joint="gripper"),
        replace(gap, multiplier=gap.multiplier + 0.001),
        replace(gap, factors={"friction": 1.0}),
        replace(gap, placements={"target_x_m": (0.1, 0.2)}),
    ]
    assert len({seal_of(g, seed) for g in [gap, *forged]}) == 6


def test_an_unknown_gap_is_refused_with_the_nearest() -> None:
    assert parse_gap("random") is None
    assert parse_gap("action_sign") is causes.ACTION_SIGN
    with pytest.raises(UsageError, match="action_sign"):
        parse_gap("action_sing")


# The world behind the seal, without its process


def world(gap: str | Gap, seed: int = 0, **kwargs: Any) -> SurrogateWorld:
    made = SurrogateWorld("arm-pick", SIZE, seed, gap if isinstance(gap, str) else str(gap.kind))
    made.env = blind(**kwargs)
    if isinstance(gap, Gap):
        made.gap = gap
        made.multiplier[:] = 1.0
        if gap.joint:
            made.multiplier[SO101_JOINTS.index(gap.joint)] = gap.multiplier
    return made


def drive(
    robot: SurrogateWorld, actions: np.ndarray, *, trial: int = 0, placements: dict[str, float] | None = None
) -> np.ndarray:
    robot.reset(trial, placements or {})
    states = []
    for action in actions:
        robot.act(action)
        states.append(robot.observe()[1]["state"])
    return np.stack(states)


@pytest.mark.parametrize("joint", SO101_JOINTS[:5])
def test_a_sign_gap_mirrors_its_joint_and_no_other(joint: str) -> None:
    index = SO101_JOINTS.index(joint)
    turned = world(Gap(kind=causes.ACTION_SIGN, joint=joint, multiplier=-1.0))
    actions = wave(10)
    mirrored = actions.copy()
    mirrored[:, index] *= -1
    np.testing.assert_allclose(drive(turned, actions), drive(world("none"), mirrored), atol=1e-4)
    moved, straight = drive(turned, actions), drive(world("none"), actions)
    others = [i for i in range(6) if i != index]
    assert (
        np.abs(moved[:, index] - straight[:, index]).max()
        > 3 * np.abs(moved[:, others] - straight[:, others]).max()
    )


def test_a_scale_gap_scales_the_command_of_its_joint() -> None:
    scaled = world(Gap(kind=causes.ACTION_SCALE, joint="elbow_flex", multiplier=0.7))
    actions = wave(10)
    smaller = actions.copy()
    smaller[:, 2] *= 0.7
    np.testing.assert_allclose(drive(scaled, actions), drive(world("none"), smaller), atol=1e-3)


@pytest.mark.parametrize("steps", [1, 5, 8])
def test_a_latency_gap_delays_every_command_by_its_steps(steps: int) -> None:
    late = world(Gap(kind=causes.ACTION_LATENCY, factors={"action_latency_steps": float(steps)}))
    actions = wave(14)
    waited = np.concatenate([np.tile(HOME, (steps, 1)), actions[: len(actions) - steps]])
    np.testing.assert_allclose(drive(late, actions), drive(world("none"), waited), atol=1e-3)


def test_what_the_driver_says_was_applied_is_the_command_and_not_what_the_gap_made_of_it() -> None:
    turned = world(Gap(kind=causes.ACTION_SIGN, joint="shoulder_pan", multiplier=-1.0))
    turned.reset(0, {})
    command = HOME + np.array([20, 0, 0, 0, 0, 0], dtype=np.float32)
    assert turned.act(command) == {"applied": command.tolist(), "clipped": False, "time_s": 0.05}
    beyond = turned.act(command + np.array([500, 0, 0, 0, 0, 0], dtype=np.float32))
    assert (beyond["applied"][0], beyond["clipped"]) == (110.0, True)


def test_without_a_gap_every_factor_lies_within_everyday_tolerances() -> None:
    robot, nominal = world("none"), ARM_FACTORS.nominal()
    placements = {n: condition(3)[n] for n in PLACEMENT_FACTORS}
    for trial in range(30):
        measured = robot.reset(trial, placements)
        values = robot.env.factors  # type: ignore[attr-defined]
        assert measured == placements
        for name, factor in ARM_FACTORS.factors.items():
            expected = placements.get(name, nominal[name])
            allowed = {
                "image_noise": 2.0,
                "encoder_noise_deg": 0.1,
                "target_x_m": 6 * OPERATOR_ERROR_M,
                "target_y_m": 6 * OPERATOR_ERROR_M,
            }
            tolerance = allowed.get(name, 0.03 * (factor.high - factor.low) + 0.1 * (name == "friction"))
            assert abs(values[name] - expected) <= tolerance, name


@given(st.integers(0, 500))
def test_a_gap_of_factors_is_on_top_of_the_tolerances_and_leaves_the_rest_alone(seed: int) -> None:
    hidden = {"front_camera_yaw_deg": 6.0, "light_intensity": 0.4}
    values = []
    for gap in (Gap(kind=causes.NONE), Gap(kind=causes.CAMERA_SHIFT, factors=hidden)):
        robot = world(gap)
        robot.reset(seed, {})
        values.append(robot.env.factors)  # type: ignore[attr-defined]
    for name in ARM_FACTORS.factors:
        if name not in hidden:
            assert values[0][name] == values[1][name]
    assert values[1]["front_camera_yaw_deg"] == pytest.approx(6.0, abs=0.1)
    assert values[1]["light_intensity"] == pytest.approx(0.4, abs=0.05)


def test_a_site_of_the_narrow_data_gap_lays_its_objects_wider_and_a_planned_placement_is_kept() -> None:
    narrow = world("narrow_data")
    xs = [narrow.reset(trial, {})["target_x_m"] for trial in range(60)]
    low, high = ARM_PRESETS["nominal"].ranges["target_x_m"]
    assert min(xs) < low
    assert max(xs) > high
    assert narrow.reset(0, {"target_x_m": 0.17})["target_x_m"] == 0.17
    inside = [world("none").reset(trial, {})["target_x_m"] for trial in range(20)]
    assert all(low <= x <= high for x in inside)


def test_the_same_trial_of_the_same_robot_goes_the_same_way_after_any_other() -> None:
    one, other = world("action_scale", seed=4), world("action_scale", seed=4)
    first = drive(one, wave(6), trial=5)
    drive(other, wave(6), trial=1)
    assert np.array_equal(first, drive(other, wave(6), trial=5))
    assert not np.array_equal(first, drive(other, wave(6), trial=6))


def test_a_camera_freezes_with_a_frame_that_ages_honestly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surrogate_process, "DROPOUT_CHANCE", 1.0)
    robot = SurrogateWorld("arm-pick", SIZE, 0, "none")
    robot.reset(3, {})
    ages, frames = [], []
    for action in wave(36):
        robot.act(action)
        header, arrays = robot.observe()
        ages.append(header["frame_age_s"]["front"])
        frames.append(arrays["front"])
        assert header["frame_age_s"]["wrist"] == FRAME_LAG_S
    frozen = int(np.argmax(np.array(ages) > FRAME_LAG_S))
    assert 4 <= frozen <= 29
    np.testing.assert_allclose(np.diff(ages[frozen - 1 :]), 0.05)
    assert all(np.array_equal(frames[frozen - 1], f) for f in frames[frozen:])
    assert not np.array_equal(frames[0], frames[1])
    robot.env.close()


def test_cameras_seldom_freeze() -> None:
    robot = world("none")
    froze = [robot.reset(trial, {}) and robot._frozen_from is not None for trial in range(300)]
    assert 0 <= sum(froze) < 12


def test_the_robot_says_nothing_until_the_trial_is_over_and_then_stands_still() -> None:
    robot = world("none", horizon_steps=3)
    robot.reset(0, {})
    for action in wave(3):
        assert robot.outcome is None
        robot.act(action)
    assert robot.outcome == Outcome.failure("no_approach")
    before = robot.observe()[1]["state"]
    assert robot.act(HOME)["time_s"] == pytest.approx(0.15)
    assert np.array_equal(robot.observe()[1]["state"], before)


@pytest.mark.parametrize("env", sorted(ENVS))
@pytest.mark.parametrize("kind", [row.cause for row in GAPS.values()], ids=str)
def test_every_env_of_ours_has_a_surrogate_with_every_kind_of_gap(env: str, kind: Cause) -> None:
    world = SurrogateWorld(env, 32, 3, str(kind))
    assert world.gap.kind is kind
    world.env.factor_space.complete(world.gap.factors)
    for seed in range(3):
        measured = world.reset(seed, {})
        for _ in range(3):
            world.act(np.full(len(world.env.action_spec), 0.1, np.float32))
        _, arrays = world.observe()
        assert set(arrays) == {*world.env.cameras, "state"}
        assert world.reset(seed, measured) == measured
    world.env.close()


def test_an_env_without_the_factors_of_a_gap_is_told_so_and_never_drawn_one() -> None:
    class Bare:
        name, cameras, placement_factors = "push", ("top",), ()
        action_spec, factor_space, presets = ARM.action_spec, FactorSpace(()), {"nominal": FactorRanges({})}

    bare: Any = Bare()
    assert possible_kinds(bare) == (causes.NONE, causes.ACTION_SIGN, causes.ACTION_SCALE)
    assert {draw_gap(seed, None, bare).kind for seed in range(40)} == {
        causes.ACTION_SIGN,
        causes.ACTION_SCALE,
    }
    with pytest.raises(UsageError, match="push cannot have gap camera_shift: it has no factors of a camera"):
        draw_gap(0, causes.CAMERA_SHIFT, bare)


# The process


@pytest.fixture(scope="module")
def robot() -> Iterator[SurrogateRobot]:
    made = SurrogateRobot(env="arm-pick", image_size=SIZE, seed=11, gap="action_sign")
    yield made
    made.close()


def test_another_process_of_the_same_seed_has_the_seal_this_one_computes(robot: SurrogateRobot) -> None:
    assert robot.seal == seal_of(draw_gap(11, causes.ACTION_SIGN, ARM), 11)
    assert robot.evidence is EvidenceKind.SURROGATE
    assert robot.stamp_fields()["seal"] == robot.seal
    assert "action_sign" not in json.dumps(robot.stamp_fields())


def test_a_trial_over_the_wire_reads_like_a_robot(robot: SurrogateRobot) -> None:
    placements = {n: condition(3)[n] for n in PLACEMENT_FACTORS}
    measured = robot.reset(InitialCondition(seed=5, placements=placements))
    assert (measured.seed, dict(measured.placements)) == (5, placements)
    seen = robot.observe()
    assert seen.images["front"].shape == (SIZE, SIZE, 3)
    assert seen.images["front"].std() > 3
    assert set(seen.frame_age_s) == set(robot.cameras)
    applied = robot.act(HOME)
    assert not applied.clipped
    assert robot.observe().time_s == pytest.approx(seen.time_s + 0.05)
    assert robot.verdict() is None


def test_nan_is_refused_before_it_reaches_the_robot(robot: SurrogateRobot) -> None:
    robot.reset(InitialCondition(seed=5))
    with pytest.raises(TrialFault, match="nothing was sent"):
        robot.act(np.full(6, np.nan, dtype=np.float32))
    assert robot.observe().time_s == 0.0


@pytest.mark.parametrize(
    "diagnosis", ["", "abc", "g" * 64, "a" * 63, "a" * 65, "A" * 64, " " * 64, "a" * 64 + "\n"]
)
def test_the_seal_stays_shut_without_the_hash_of_a_diagnosis(robot: SurrogateRobot, diagnosis: str) -> None:
    with pytest.raises(SealError, match="diagnose first"):
        robot.open_seal(diagnosis)


def test_the_seal_opens_against_a_hash_and_shows_what_was_sealed(robot: SurrogateRobot) -> None:
    assert robot.open_seal("ab" * 32) == draw_gap(11, causes.ACTION_SIGN, ARM)


@pytest.mark.parametrize("forge", ["gap", "nonce"])
def test_a_forged_gap_does_not_match_its_seal(
    robot: SurrogateRobot, forge: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gap = draw_gap(11, causes.ACTION_SIGN, ARM)
    shown = {
        "gap": (
            replace(gap, joint="wrist_roll" if gap.joint != "wrist_roll" else "elbow_flex")
            if forge == "gap"
            else gap
        )
    }
    answer = {"gap": shown["gap"].to_json(), "nonce": nonce_of(11 if forge == "gap" else 12)}
    monkeypatch.setattr(robot, "_ask", lambda *_: (answer, {}))
    with pytest.raises(SealError, match="does not match the commitment"):
        robot.open_seal("ab" * 32)


def test_a_stale_frame_is_a_fault_that_names_the_camera_and_its_age(
    robot: SurrogateRobot, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(age: float) -> Any:
        frame = np.zeros((SIZE, SIZE, 3), np.uint8)
        arrays = {"front": frame, "wrist": frame, "state": np.zeros(6, np.float32)}
        return lambda *_: ({"time_s": 1.0, "frame_age_s": {"front": age, "wrist": 0.02}}, arrays)

    monkeypatch.setattr(robot, "_ask", answer(STALE_S))
    assert robot.observe().frame_age_s["front"] == STALE_S
    monkeypatch.setattr(robot, "_ask", answer(0.27))
    with pytest.raises(TrialFault, match=r"front camera froze: its frame is 0\.27 s old"):
        robot.observe()


ANSWERS = {
    "reset": {"placements"},
    "observe": {"time_s", "frame_age_s"},
    "act": {"applied", "clipped", "time_s"},
    "verdict": {"outcome"},
}


def test_no_answer_holds_more_than_a_robot_would_say() -> None:
    """Two robots of one trial, with and without a gap: what they say in words is the same, only pictures and encoders differ."""
    said = []
    for gap in ("none", "action_sign", "camera_shift"):
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "simgap.robots.surrogate_process",
                "--env",
                "arm-pick",
                "--image-size",
                str(SIZE),
                "--seed",
                "2",
                "--gap",
                gap,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        header, _ = receive(process.stdout)
        assert set(header) == {"seal"}
        words = []
        for verb, arrays in [
            ("reset", {}),
            ("observe", {}),
            ("act", {"action": HOME}),
            ("observe", {}),
            ("verdict", {}),
        ]:
            send(process.stdin, {"verb": verb, "seed": 4, "placements": {}}, arrays)
            header, parts = receive(process.stdout)
            assert set(header) == ANSWERS[verb]
            assert set(parts) == ({"front", "wrist", "state"} if verb == "observe" else set())
            words.append(header)
        assert set(words[0]["placements"]) == set(PLACEMENT_FACTORS)
        said.append(words)
        send(process.stdin, {"verb": "peek"})
        assert set(receive(process.stdout)[0]) == {"error"}
        process.stdin.close()
        assert process.wait(timeout=10) == 0
        process.stdout.close()
    assert said[0] == said[1] == said[2]


def test_a_surrogate_that_dies_is_one_clear_error_and_close_is_harmless() -> None:
    made = SurrogateRobot(env="arm-pick", image_size=SIZE, seed=1, gap="none")
    os.kill(made._child.pid, signal.SIGKILL)
    with pytest.raises(MachineError, match="died"):
        made.observe()
    made.close()
    made.close()


def test_an_unknown_gap_or_env_is_refused_before_a_process_starts() -> None:
    with pytest.raises(UsageError, match="arm-pick"):
        SurrogateRobot(env="arm-pik", image_size=SIZE, seed=1)
    with pytest.raises(UsageError, match="action_sign"):
        SurrogateRobot(env="arm-pick", image_size=SIZE, seed=1, gap="action_sing")
