"""Every arm task: the contract of gymnasium, the same bytes for the same seed, presets that start, landmarks where things are."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from arm_fixtures import HOME, SIZE, drawn, play, wave
from simgap.envs import make_env
from simgap.envs.arm.env import ArmEnv

NAMES = ("arm-pick", "arm-place", "arm-pass")


@pytest.fixture(scope="module", params=NAMES)
def env(request: pytest.FixtureRequest) -> Iterator[ArmEnv]:
    made = make_env(request.param, image_size=SIZE)
    assert isinstance(made, ArmEnv)
    yield made
    made.close()


def test_the_env_keeps_the_contract_of_gymnasium(env: ArmEnv) -> None:
    check_env(env, skip_render_check=True)
    assert env.reset(seed=3)[0] in env.observation_space


def test_the_same_seed_gives_the_same_bytes_noise_included(env: ArmEnv) -> None:
    noisy = drawn(env, 5, "shifted", image_noise=4.0, encoder_noise_deg=0.2, action_latency_steps=2.0)
    runs = []
    for one in (env, env.sibling(), env):
        seen = [one.reset(seed=5, options={"factors": noisy})[0]]
        seen += [one.step(action)[0] for action in wave(3)]
        runs.append([{k: v.tobytes() for k, v in o.items()} for o in seen])
    assert runs[0] == runs[1] == runs[2]
    assert runs[0][0] != runs[0][1]


def test_every_preset_gives_worlds_that_start_and_show_something(env: ArmEnv) -> None:
    assert {"nominal", "shifted", "wide"} < set(env.presets)
    for index, preset in enumerate(env.presets):
        obs, _ = env.reset(seed=index, options={"factors": drawn(env, index, preset)})
        assert np.isfinite(obs["state"]).all()
        assert obs["front"].std() > 3


def test_each_shifted_group_moves_its_own_factors_only_and_all_together_are_the_union(env: ArmEnv) -> None:
    nominal = env.presets["nominal"].ranges
    moved: dict[str, tuple[float, float]] = {}
    for name, preset in env.presets.items():
        if name.startswith("shifted:"):
            own = {k: v for k, v in preset.ranges.items() if nominal.get(k) != v}
            assert own, name
            assert not moved.keys() & own.keys(), name
            moved |= own
    assert {**nominal, **moved} == dict(env.presets["shifted"].ranges)


def test_every_factor_has_unit_and_reason_and_its_nominal_value_inside_its_bounds(env: ArmEnv) -> None:
    for factor in env.factor_space.factors.values():
        assert factor.unit, factor.name
        assert factor.reason, factor.name
        assert factor.low <= factor.nominal <= factor.high, factor.name


def test_landmarks_are_seen_where_they_are(env: ArmEnv) -> None:
    env.render_still(drawn(env, 2))
    marks = env.landmarks()
    assert marks[0].role == "target"
    assert {m.role for m in marks} <= {"target", "distractor", "goal", "obstacle"}
    shown = env.segment("front", 192)
    pose = env.camera_pose("front")
    for index, mark in enumerate(marks):
        rows, columns = np.nonzero(shown == index)
        assert len(rows) > 20, mark.name
        points = pose.project(mark.world_points(), 192)
        assert points[:, 0].min() - 2 < columns.min() + 0.5 < columns.max() + 0.5 < points[:, 0].max() + 2, (
            mark.name
        )
        assert points[:, 1].min() - 2 < rows.min() + 0.5 < rows.max() + 0.5 < points[:, 1].max() + 2, (
            mark.name
        )


def test_a_pose_near_the_target_is_one_the_arm_takes_and_the_offset_says_how_near(env: ArmEnv) -> None:
    rng, found = np.random.default_rng(0), 0
    for seed in range(12):
        values = drawn(env, seed)
        near = env.near_target(values, rng)
        if near is None:
            continue
        found += 1
        assert near[1] is not None
        env.render_still(near[0], near[1])
        distance = float(np.linalg.norm(env.target_offset(env.landmarks()[0].position_m)))
        assert distance < 0.055
    assert found >= 6


def test_without_pictures_the_motion_is_the_same(env: ArmEnv) -> None:
    values, dark = drawn(env, 4), make_env(env.name, image_size=SIZE, render=False)
    states = []
    for one in (env, dark):
        one.reset(seed=0, options={"factors": values})
        assert isinstance(one, ArmEnv)
        states.append(play(one, wave(5))[0])
    assert np.array_equal(*states)


def test_home_is_where_episodes_start_and_nothing_is_touched_there(env: ArmEnv) -> None:
    for preset in ("nominal", "wide"):
        obs, _ = env.reset(seed=1, options={"factors": drawn(env, 1, preset)})
        offsets = np.array(
            [
                env.factors[f"{joint}_zero_offset_deg"]
                for joint in ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll")
            ]
        )
        assert np.abs(obs["state"][:5] - HOME[:5] - offsets).max() < 2.5
        assert not any(env.world.is_touched(name) for name in env.world.fixture_body)
