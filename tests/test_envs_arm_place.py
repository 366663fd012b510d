"""arm-place: what is asked for shows, bins and cubes never overlap, the judge names what happened."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arm_fixtures import HOME, SIZE, act, drawn, play
from simgap.envs import make_env
from simgap.envs.arm import geometry as g
from simgap.envs.arm.bins import HEIGHT_M, INNER_M, OUTER_M
from simgap.envs.arm.factors import MIN_GAP
from simgap.envs.arm.judge import AT_BIN_M, HOLD_STEPS, LIFT_M, PLACE_MODES
from simgap.envs.arm.place import ArmPlaceEnv
from simgap.envs.arm.place_factors import PLACE_FACTORS, PLACE_PLACEMENT, goal_and_other_bin, place_layout
from simgap.envs.factors import FactorValues
from simgap.teachers.arm_place import ArmPlaceTeacher
from simgap.types import Outcome

any_placement = st.fixed_dictionaries(
    {
        n: st.integers(int(f.low), int(f.high)).map(float) if f.integer else st.floats(f.low, f.high)
        for n, f in PLACE_FACTORS.factors.items()
        if n in PLACE_PLACEMENT or n.endswith("_size_m")
    }
)


def blind(**kwargs: int) -> ArmPlaceEnv:
    return ArmPlaceEnv(image_size=SIZE, render=False, **kwargs)


def condition(seed: int, **values: float) -> FactorValues:
    return drawn(blind(), seed, **values)


@given(any_placement)
def test_cubes_and_bins_never_overlap_for_any_factor_value(values: dict[str, float]) -> None:
    full = PLACE_FACTORS.complete(values)
    poses, bins = place_layout(full), goal_and_other_bin(full)
    for index, pose in enumerate(poses):
        corner = pose.half * math.sqrt(2)
        assert min(b.distance(pose.x, pose.y) for b in bins) > corner
        assert math.hypot(pose.x, pose.y) - corner > 0.05, "a cube stands in the arm's base"
        for other in poses[:index]:
            assert math.hypot(pose.x - other.x, pose.y - other.y) >= MIN_GAP - 1e-9
    assert abs(bins[0].y - bins[1].y) > 2 * OUTER_M
    assert min(math.hypot(b.x, abs(b.y) - OUTER_M) for b in bins) > 0.05, "a bin stands in the arm's base"


@settings(max_examples=6, deadline=None)
@given(any_placement)
def test_cubes_touch_nothing_but_the_table_when_an_episode_starts(values: dict[str, float]) -> None:
    env = blind()
    env.reset(seed=0, options={"factors": PLACE_FACTORS.complete(values)})
    for cube in env.world.cube_geom:
        assert set(env.world.engine.touching(cube).tolist()) <= {env.world.table}


@given(st.integers(0, 1), st.integers(0, 1))
def test_the_goal_is_the_bin_of_the_named_colour(named: int, side: int) -> None:
    goal, other = goal_and_other_bin(
        PLACE_FACTORS.complete({"named": float(named), "red_bin_side": float(side)})
    )
    assert goal.y * other.y < 0
    assert (goal.y > 0) == (side == named), (
        "red on the left and red named, or red on the right and blue named"
    )


def test_what_is_asked_for_is_said_in_words_and_an_episode_of_the_other_colour_says_the_other() -> None:
    env = blind()
    assert env.task == "put the red cube into the red bin"
    env.reset(seed=0, options={"factors": {"named": 1.0}})
    assert env.task == "put the blue cube into the blue bin"
    env.reset(seed=0)
    assert env.task == "put the red cube into the red bin"


def colour_of(env: ArmPlaceEnv, name: str) -> str:
    index = [m.name for m in env.landmarks()].index(name)
    pixels = env.frames_at(192)["front"][env.segment("front", 192) == index]
    red, _, blue = pixels.mean(axis=0)
    return "red" if red > 1.5 * blue else "blue" if blue > 1.5 * red else "neither"


@pytest.mark.parametrize("named", [0.0, 1.0])
def test_target_and_goal_bin_have_the_named_colour_and_their_rivals_the_other(named: float) -> None:
    env = ArmPlaceEnv(image_size=SIZE)
    for side in (0.0, 1.0):
        env.render_still(condition(1, named=named, red_bin_side=side))
        mine, theirs = ("red", "blue") if named == 0.0 else ("blue", "red")
        assert (colour_of(env, "target"), colour_of(env, "goal_bin")) == (mine, mine)
        assert (colour_of(env, "distractor1"), colour_of(env, "other_bin")) == (theirs, theirs)
    env.close()


def test_the_front_camera_sees_both_bins_whole() -> None:
    env = ArmPlaceEnv(image_size=SIZE)
    for side in (0.0, 1.0):
        env.render_still(PLACE_FACTORS.complete({"red_bin_side": side}))
        pose = env.camera_pose("front")
        for mark in env.landmarks()[-2:]:
            points = pose.project(mark.world_points(), 96)
            assert (points[:, :2] > 0).all()
            assert (points[:, :2] < 96).all()
    env.close()


def test_a_cube_dropped_over_a_bin_stays_in_it() -> None:
    env = blind()
    for index, (dx, dy) in enumerate([(0.0, 0.0), (0.02, 0.0), (-0.02, 0.02), (0.0, -0.02)]):
        env.reset(seed=0, options={"factors": condition(index)})
        goal, start = env.world.fixture_position("goal_bin").copy(), env.world.cube_qpos[0]
        env.world.data.qpos[start : start + 3] = goal[0] + dx, goal[1] + dy, 0.06
        env.world.engine.reset()
        env.world.engine.advance(1.0)
        assert np.abs(env.world.cube_position(0)[:2] - goal[:2]).max() < INNER_M
        assert env.world.cube_position(0)[2] < HEIGHT_M


# The judge


def _lifted(env: ArmPlaceEnv, share: float = 1.0) -> bool:
    return float(env.world.cube_position(0)[2]) - env.world.cube_half[0] > share * LIFT_M


def _until(env: ArmPlaceEnv, values: FactorValues, until: Callable[[], bool]) -> list[np.ndarray]:
    actions, info = act(env, ArmPlaceTeacher(env), values, until=until)
    assert "outcome" not in info
    return actions


def nothing() -> Outcome | None:
    env = blind(horizon_steps=6)
    env.reset(seed=0, options={"factors": condition(0)})
    return play(env, np.tile(HOME, (6, 1)))[1]


def close_beside_it() -> Outcome | None:
    env, values = blind(horizon_steps=30), condition(0)
    env.reset(seed=0, options={"factors": values})
    pose = g.ToolPose(
        values["target_x_m"], values["target_y_m"], 0.02, math.radians(values["target_yaw_deg"])
    )
    over = np.array([*g.inverse(pose._replace(z=0.08), 0.013), 60.0], dtype=np.float32)
    down = np.array([*g.inverse(pose, 0.013), 60.0], dtype=np.float32)
    return play(env, np.concatenate([np.tile(over, (12, 1)), np.tile(down, (6, 1)), np.tile(over, (12, 1))]))[
        1
    ]


def take_the_blue_one() -> Outcome | None:
    """Send what picks up the red cube in a world that differs by one thing: the red and a blue cube have changed places."""
    base = {"distractor2_bearing_deg": 0.0, "distractor2_distance_m": 0.1, "target_x_m": 0.18}
    theirs = PLACE_FACTORS.complete(
        {**base, "target_y_m": 0.05, "distractor1_bearing_deg": -90.0, "distractor1_distance_m": 0.09}
    )
    ours = PLACE_FACTORS.complete(
        {**base, "target_y_m": -0.04, "distractor1_bearing_deg": 90.0, "distractor1_distance_m": 0.09}
    )
    env = blind()
    actions, info = act(env, ArmPlaceTeacher(env), theirs)
    assert info["outcome"] == Outcome.success()
    env.reset(seed=0, options={"factors": ours})
    return play(env, np.stack(actions))[1]


def go_to_the_other_bin() -> Outcome | None:
    """Send what solves a world that differs by one thing: the bins have changed places."""
    env = blind()
    actions, info = act(env, ArmPlaceTeacher(env), condition(3, red_bin_side=1.0))
    assert info["outcome"] == Outcome.success()
    env.reset(seed=0, options={"factors": condition(3, red_bin_side=0.0)})
    return play(env, np.stack([*actions, *[actions[-1]] * 20]))[1]


def let_go_when(until: Callable[[ArmPlaceEnv], bool]) -> Outcome | None:
    env = blind()
    actions = _until(env, condition(0), lambda: until(env))
    opened = np.append(actions[-1][:5], np.float32(60.0))
    return play(env, np.tile(opened, (130, 1)))[1]


def let_go_on_the_way() -> Outcome | None:
    return let_go_when(lambda env: _lifted(env, 0.6))


def let_go_before_the_bin() -> Outcome | None:
    def is_close(env: ArmPlaceEnv) -> bool:
        off = float(np.abs(env.world.cube_position(0)[:2] - env.world.fixture_position("goal_bin")[:2]).max())
        return _lifted(env, 0.6) and off < OUTER_M + AT_BIN_M - 0.003

    return let_go_when(is_close)


def carry_for_too_long() -> Outcome | None:
    env = blind()
    held = _until(env, condition(0), lambda: _lifted(env))
    env.horizon_steps = len(held) + 8
    return play(env, np.tile(held[-1], (8, 1)))[1]


MODES: dict[str, Callable[[], Outcome | None]] = {
    "no_approach": nothing,
    "wrong_object": take_the_blue_one,
    "missed_grasp": close_beside_it,
    "dropped": let_go_on_the_way,
    "wrong_bin": go_to_the_other_bin,
    "missed_bin": let_go_before_the_bin,
    "timeout": carry_for_too_long,
}


@pytest.mark.parametrize("mode", PLACE_MODES)
def test_the_judge_names_the_failure_that_was_acted_out(mode: str) -> None:
    assert MODES[mode]() == Outcome.failure(mode)


def test_the_judge_calls_success_only_after_the_cube_was_let_go_and_stayed() -> None:
    env = blind()
    _, info = act(env, ArmPlaceTeacher(env), condition(0))
    assert info["outcome"] == Outcome.success()
    assert env._judge.goal_steps == HOLD_STEPS
    assert not any(env.world.jaw_contacts(0))
    assert "mode" not in info, "there is one way to do it"


def test_a_cube_that_is_held_in_the_bin_is_no_success() -> None:
    env = blind()
    held = _until(
        env,
        condition(0),
        lambda: (
            float(np.abs(env.world.cube_position(0)[:2] - env.world.fixture_position("goal_bin")[:2]).max())
            < 0.012
        ),
    )
    goal = env.world.fixture_position("goal_bin")
    low = np.array(
        [*g.inverse(g.ToolPose(goal[0], goal[1], 0.022, math.atan2(goal[1], goal[0])), 0.012), 0.0],
        dtype=np.float32,
    )
    assert play(env, np.tile(low, (env.horizon_steps - len(held) - 1, 1)))[1] is None
    assert float(env.world.cube_position(0)[2]) < HEIGHT_M + env.world.cube_half[0]
    assert any(env.world.jaw_contacts(0))


def test_the_second_engine_moves_bins_that_factors_have_moved() -> None:
    pytest.importorskip("pydrake", reason="engine drake is not installed: pip install 'simgap[drake]'")
    env = make_env("arm-place", image_size=SIZE, render=False, engine="drake")
    assert isinstance(env, ArmPlaceEnv)
    _, info = act(env, ArmPlaceTeacher(env), drawn(env, 0, "shifted:bins"))
    assert info["outcome"] == Outcome.success()
