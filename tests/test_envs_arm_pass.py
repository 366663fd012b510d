"""arm-pass: two equally good ways that no camera tells apart, a post that their mean runs into, a judge that names both."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arm_fixtures import HOME, SIZE, act, drawn, play
from simgap.envs.arm import geometry as g
from simgap.envs.arm.pass_factors import PASS_FACTORS, PASS_PLACEMENT, pass_plan
from simgap.envs.arm.passing import PASS_MODES, POST_HEIGHT_M, STAY_STEPS, WAYS, ArmPassEnv
from simgap.teachers import Abstain
from simgap.teachers.arm_pass import FINGERS_ALONG_M, ArmPassTeacher
from simgap.types import Outcome

any_placement = st.fixed_dictionaries(
    {
        n: st.floats(PASS_FACTORS.factors[n].low, PASS_FACTORS.factors[n].high)
        for n in (*PASS_PLACEMENT, "post_radius_m")
    }
)


def blind(**kwargs: int) -> ArmPassEnv:
    return ArmPassEnv(image_size=SIZE, render=False, **kwargs)


@given(any_placement)
def test_there_is_room_before_and_behind_the_post_for_any_factor_value(values: dict[str, float]) -> None:
    plan = pass_plan(PASS_FACTORS.complete(values))
    home = 0.108
    assert plan.post_distance - plan.post_radius - FINGERS_ALONG_M > home + 0.01
    along, _ = plan.along_and_aside(*plan.pad)
    assert along - FINGERS_ALONG_M > plan.post_distance + plan.post_radius
    assert along > plan.post_distance + 0.04, "the post is between home and pad"
    g.inverse(g.ToolPose(*plan.pad, 0.03, plan.pad_bearing), 0.011)


def test_the_side_that_is_demonstrated_shows_nowhere() -> None:
    env = ArmPassEnv(image_size=SIZE)
    seen = [
        env.reset(seed=0, options={"factors": drawn(env, 0, demonstrated_side=side)})[0]
        for side in (0.0, 1.0)
    ]
    assert all(np.array_equal(seen[0][k], seen[1][k]) for k in seen[0])
    env.close()


@pytest.mark.parametrize(
    "name", ["pad_hue_deg", "post_hue_deg", "post_radius_m", "post_bearing_deg", "pad_distance_m"]
)
def test_a_look_or_place_factor_changes_the_picture(name: str) -> None:
    env = ArmPassEnv(image_size=SIZE)
    values = PASS_FACTORS.nominal()
    before = env.render_still(values)["front"]
    assert not np.array_equal(
        before, env.render_still(values | {name: PASS_FACTORS.factors[name].high})["front"]
    )
    env.close()


@pytest.mark.parametrize(("side", "way"), [(0, "left"), (1, "right")])
def test_the_way_that_was_taken_is_told_with_the_outcome(side: int, way: str) -> None:
    env = blind()
    for seed in range(4):
        _, info = act(env, ArmPassTeacher(env, side), drawn(env, seed))
        assert (info["outcome"], info["mode"]) == (Outcome.success(), way)


def test_a_census_over_seeds_counts_both_ways_about_equally() -> None:
    env = blind()
    ways = [act(env, ArmPassTeacher(env), drawn(env, seed))[1]["mode"] for seed in range(24)]
    assert set(ways) == {"left", "right"} < set(WAYS)
    assert 6 <= ways.count("left") <= 18


# The mean of two good ways


def mean_of_labels(env: ArmPassEnv, values: dict[str, float], weight: float = 0.5) -> dict[str, Any]:
    """Send at every step the mean of what the two teachers would send there; where they have nothing to say, what was sent last."""
    left, right = ArmPassTeacher(env, 0), ArmPassTeacher(env, 1)
    env.reset(seed=0, options={"factors": values})
    sent, info = HOME, {}
    while "outcome" not in info:
        one, other = left.label(), right.label()
        if not isinstance(one, Abstain) and not isinstance(other, Abstain):
            sent = (weight * one + (1 - weight) * other).astype(np.float32)
        info = env.step(sent)[4]
    return info


def test_the_mean_of_both_teachers_actions_drives_into_the_post() -> None:
    env = blind()
    assert [mean_of_labels(env, drawn(env, seed))["outcome"] for seed in range(16)] == [
        Outcome.failure("collision")
    ] * 16


def test_the_mean_of_both_teachers_episodes_drives_into_the_post() -> None:
    env = blind()
    for seed in range(8):
        values = drawn(env, seed)
        left, right = (np.stack(act(env, ArmPassTeacher(env, side), values)[0]) for side in (0, 1))
        shorter = min(len(left), len(right))
        env.reset(seed=0, options={"factors": values})
        assert play(env, (left[:shorter] + right[:shorter]) / 2)[1] == Outcome.failure("collision")


def test_the_mean_test_spares_a_policy_that_keeps_to_one_way() -> None:
    env = blind()
    assert all(
        mean_of_labels(env, drawn(env, seed), weight)["outcome"] == Outcome.success()
        for seed in range(4)
        for weight in (0.0, 1.0)
    )


# The judge


def reach(*poses: tuple[float, float, float], steps: int = 14) -> np.ndarray:
    """Return commands that go to one pose after another, gripper closed, high ones with the fingers tilted outward."""
    rows = [
        np.array(
            [*g.inverse(g.ToolPose(x, y, z, math.atan2(y, x)), 0.011, 30.0 if z > 0.1 else 0.0), 0.0],
            dtype=np.float32,
        )
        for x, y, z in poses
    ]
    return np.repeat(np.stack(rows), steps, axis=0)


def run(actions: np.ndarray, **kwargs: int) -> dict[str, Any]:
    env = blind(**kwargs)
    env.reset(seed=0, options={"factors": PASS_FACTORS.nominal()})
    info: dict[str, Any] = {}
    for action in actions:
        info = env.step(action)[4]
        if "outcome" in info:
            break
    return info


MODES: dict[str, Callable[[], dict[str, Any]]] = {
    "no_approach": lambda: run(np.tile(HOME, (8, 1)), horizon_steps=8),
    "collision": lambda: run(reach((0.24, 0.0, 0.03), steps=40)),
    "timeout": lambda: run(reach((0.12, 0.06, 0.04), (0.22, 0.07, 0.04)), horizon_steps=28),
}


@pytest.mark.parametrize("mode", PASS_MODES)
def test_the_judge_names_the_failure_that_was_acted_out(mode: str) -> None:
    assert MODES[mode]()["outcome"] == Outcome.failure(mode)


def test_a_failure_says_which_way_was_taken_too_and_nothing_if_none_was() -> None:
    assert MODES["timeout"]()["mode"] == "left"
    assert MODES["no_approach"]()["mode"] == ""


def test_going_over_the_post_is_a_third_way_and_is_called_so() -> None:
    high = POST_HEIGHT_M + 0.04
    info = run(
        reach((0.12, 0.0, high), (0.17, 0.0, high), (0.235, 0.0, high), (0.24, 0.0, 0.03)), horizon_steps=80
    )
    assert (info["outcome"], info["mode"]) == (Outcome.success(), "over")


def test_the_judge_calls_success_only_after_the_stay() -> None:
    env = blind()
    _, info = act(env, ArmPassTeacher(env), drawn(env, 0))
    assert info["outcome"] == Outcome.success()
    assert env._judge.stayed_steps == STAY_STEPS


def test_a_post_that_is_touched_ends_the_episode_at_once() -> None:
    env = blind()
    env.reset(seed=0, options={"factors": PASS_FACTORS.nominal()})
    _, outcome = play(env, reach((0.24, 0.0, 0.03), steps=60))
    assert outcome == Outcome.failure("collision")
    assert env.steps < 40
    assert env.world.is_touched("post")
