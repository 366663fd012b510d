"""The env: the same seed gives the same bytes, each factor does its own thing and no other, the judge names what happened."""

from __future__ import annotations

import gc
from collections.abc import Callable

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from arm_fixtures import HOME, SIZE, blind, condition, play, solve, wave
from simgap.envs import make_env
from simgap.envs.arm import geometry as g
from simgap.envs.arm.factors import ARM_FACTORS, ARM_PRESETS
from simgap.envs.arm.judge import HOLD_STEPS, LIFT_M, PICK_MODES
from simgap.envs.arm.model import build_model
from simgap.envs.arm.pick import ArmPickEnv
from simgap.errors import UsageError
from simgap.types import Outcome


@pytest.fixture(scope="module")
def seeing() -> ArmPickEnv:
    return ArmPickEnv(image_size=SIZE)


def test_the_env_keeps_the_contract_of_gymnasium() -> None:
    env = ArmPickEnv(image_size=SIZE, horizon_steps=20)
    check_env(env, skip_render_check=True)
    assert env.reset(seed=3)[0] in env.observation_space
    env.close()


def test_the_same_seed_gives_the_same_bytes_frames_and_noise_included(seeing: ArmPickEnv) -> None:
    noisy = condition(5, "shifted", image_noise=4.0, encoder_noise_deg=0.2)
    other = ArmPickEnv(image_size=SIZE)
    runs = []
    for env in (seeing, other, seeing):
        obs, _ = env.reset(seed=5, options={"factors": noisy})
        seen = [obs]
        for action in wave(4):
            seen.append(env.step(action)[0])
        runs.append([{k: v.tobytes() for k, v in o.items()} for o in seen])
    assert runs[0] == runs[1] == runs[2]
    assert runs[0][0] != runs[0][1]
    other.close()


def test_a_reset_forgets_the_episode_before(seeing: ArmPickEnv) -> None:
    values = condition(1)
    fresh = seeing.reset(seed=1, options={"factors": values})[0]
    seeing.reset(seed=2, options={"factors": condition(2, "shifted")})
    for action in wave(6):
        seeing.step(action)
    again = seeing.reset(seed=1, options={"factors": values})[0]
    assert all(np.array_equal(fresh[k], again[k]) for k in fresh)


def test_sampled_and_given_factors_are_reported_and_equal() -> None:
    env = blind()
    _, info = env.reset(seed=11)
    _, again = env.reset(seed=11)
    assert info["factors"] == again["factors"]
    _, given_back = env.reset(seed=11, options={"factors": info["factors"]})
    assert given_back["factors"] == info["factors"]
    assert env.reset(seed=12)[1]["factors"] != info["factors"]


def test_an_observation_holds_cameras_and_encoders_and_nothing_privileged() -> None:
    env = blind()
    one, _ = env.reset(seed=0, options={"factors": condition(1)})
    assert set(one) == {"front", "wrist", "state"}
    assert one["state"].shape == (6,)
    # What the cubes are and where they lie is nowhere but in the pictures: without pictures two scenes look
    # alike.
    states = []
    for values in (condition(1), condition(2, target_hue_deg=20.0, cube_mass_kg=0.06, friction=0.6)):
        env.reset(seed=0, options={"factors": values})
        states.append(play(env, wave(10))[0])
    assert np.array_equal(*states)


def test_without_rendering_frames_are_black_and_the_motion_is_the_same(seeing: ArmPickEnv) -> None:
    values = condition(4)
    seeing.reset(seed=0, options={"factors": values})
    dark = blind()
    obs, _ = dark.reset(seed=0, options={"factors": values})
    assert not obs["front"].any()
    assert np.array_equal(play(seeing, wave(5))[0], play(dark, wave(5))[0])


CAMERA_FACTORS = [n for n in ARM_FACTORS.factors if n.startswith(("front_camera", "wrist_camera"))]


@pytest.mark.parametrize("name", CAMERA_FACTORS)
def test_a_camera_factor_moves_the_picture_of_its_camera_only(name: str, seeing: ArmPickEnv) -> None:
    values = condition(3)
    before = seeing.render_still(values)
    after = seeing.render_still(values | {name: ARM_FACTORS.factors[name].high / 2})
    own = name.split("_")[0]
    assert np.abs(after[own].astype(int) - before[own]).mean() > 0.3
    assert all(np.array_equal(after[c], before[c]) for c in seeing.cameras if c != own)


@pytest.mark.parametrize(
    "name",
    [
        "target_hue_deg",
        "distractor_hue_deg",
        "table_grey",
        "light_intensity",
        "light_warmth",
        "light_azimuth_deg",
        "image_noise",
        "target_size_m",
    ],
)
def test_a_look_factor_changes_the_picture_and_no_motion(name: str, seeing: ArmPickEnv) -> None:
    values = condition(3)
    changed = values | {name: ARM_FACTORS.factors[name].high}
    assert not np.array_equal(seeing.render_still(values)["front"], seeing.render_still(changed)["front"])
    env = blind()
    env.reset(seed=0, options={"factors": values})
    states = play(env, wave(5))[0]
    env.reset(seed=0, options={"factors": changed})
    assert np.array_equal(play(env, wave(5))[0], states)


def test_the_factors_of_an_episode_leave_no_trace_in_the_next_still(seeing: ArmPickEnv) -> None:
    values = condition(3)
    before = seeing.render_still(values)
    seeing.render_still({name: f.high for name, f in ARM_FACTORS.factors.items()})
    after = seeing.render_still(values)
    assert all(np.array_equal(before[c], after[c]) for c in seeing.cameras)


def delays_by_exactly(make: Callable[[], ArmPickEnv], steps: int) -> None:
    """Assert that commands under a latency of ``steps`` act as the same commands sent that much later without one."""
    env, actions = make(), wave(16)
    env.reset(seed=0, options={"factors": condition(0, action_latency_steps=float(steps))})
    late = play(env, actions)[0]
    env = blind()
    env.reset(seed=0, options={"factors": condition(0)})
    waited = play(env, np.concatenate([np.tile(HOME, (steps, 1)), actions[: len(actions) - steps]]))[0]
    np.testing.assert_allclose(late, waited, atol=1e-4)


@pytest.mark.parametrize("steps", [0, 1, 3, 7])
def test_latency_delays_commands_by_exactly_its_steps(steps: int) -> None:
    delays_by_exactly(blind, steps)


class _OffByOne(ArmPickEnv):
    """A planted fault: one command is lost from the queue at reset."""

    def reset(self, **kwargs):  # type: ignore[no-untyped-def]
        out = super().reset(**kwargs)
        self._delayed.popleft()
        return out


def test_the_latency_test_catches_a_planted_delay_that_is_off_by_one() -> None:
    with pytest.raises(AssertionError):
        delays_by_exactly(lambda: _OffByOne(image_size=SIZE, render=False), 3)


@settings(max_examples=8)
@given(st.sampled_from(g.SO101_JOINTS[:5]), st.floats(-10.0, 10.0))
def test_a_zero_offset_shifts_readings_and_commands_alike(joint: str, offset: float) -> None:
    env, actions, index = blind(), wave(6), g.SO101_JOINTS.index(joint)
    env.reset(seed=0, options={"factors": condition(0)})
    states = play(env, actions)[0]
    positions = env.world.data.qpos[:6].copy()
    shift = np.zeros(6, dtype=np.float32)
    shift[index] = offset
    env.reset(seed=0, options={"factors": condition(0, **{f"{joint}_zero_offset_deg": offset})})
    shifted = play(env, actions + shift)[0]
    np.testing.assert_allclose(shifted, states + shift, atol=1e-3)
    np.testing.assert_allclose(env.world.data.qpos[:6], positions, atol=1e-5)


def test_a_weaker_servo_follows_more_slowly_and_a_stronger_one_faster() -> None:
    env, reached = blind(), []
    target = HOME + np.array([40.0, 0, 0, 0, 0, 0], dtype=np.float32)
    for gain in (0.5, 1.0, 1.6):
        env.reset(seed=0, options={"factors": condition(0, actuator_gain=gain)})
        reached.append(play(env, np.tile(target, (3, 1)))[0][-1, 0])
    assert reached[0] < reached[1] < reached[2]


@pytest.mark.parametrize("mass_kg", [0.005, 0.02, 0.08])
def test_a_cube_of_any_mass_falls_with_g(mass_kg: float) -> None:
    env = blind()
    env.reset(seed=0, options={"factors": condition(0, cube_mass_kg=mass_kg, target_size_m=0.03)})
    data = env.world.data
    data.qpos[env.world.cube_qpos[0] + 2] = 0.5
    env.world.engine.reset()
    before = float(data.qpos[env.world.cube_qpos[0] + 2])
    env.world.engine.advance(0.2)
    assert before - data.qpos[env.world.cube_qpos[0] + 2] == pytest.approx(0.5 * 9.81 * 0.2**2, rel=0.02)


def deepest_mm(env: ArmPickEnv) -> float:
    """Return how deep a jaw is in the cube after a pick, mm."""
    assert solve(env, condition(0))[0] == Outcome.success()
    contact, world = env.world.data.contact, env.world
    jaws = (contact.geom == world.cube_geom[0]).any(axis=1) & np.isin(
        contact.geom, [world.fixed_jaw, world.moving_jaw]
    ).any(axis=1)
    assert jaws.any()
    return float(-contact.dist[jaws].min()) * 1e3


def test_jaws_press_less_than_a_millimetre_into_the_cube_they_hold() -> None:
    assert deepest_mm(blind()) < 1.0


def test_the_press_test_catches_a_planted_soft_contact() -> None:
    env = blind()
    env.world.model.geom_solref[:] = 0.02, 1.0
    env.world.model.geom_solimp[:] = 0.9, 0.95, 0.001, 0.5, 2.0
    assert deepest_mm(env) > 2.0


def test_commands_are_clipped_to_the_limits_of_the_convention() -> None:
    env = blind()
    ends = []
    for pan in (110.0, 5000.0):
        env.reset(seed=0, options={"factors": condition(0)})
        ends.append(play(env, np.tile(HOME + np.array([pan, 0, 0, 0, 0, 0], dtype=np.float32), (5, 1)))[0])
    assert np.array_equal(*ends)


@pytest.mark.parametrize(
    "bad", [np.full(6, np.nan), np.array([np.inf, 0, 0, 0, 0, 0]), np.zeros(5), np.zeros((1, 6))]
)
def test_an_action_that_is_no_six_finite_numbers_is_refused(bad: np.ndarray) -> None:
    env = blind()
    env.reset(seed=0)
    with pytest.raises(UsageError, match="6 finite numbers"):
        env.step(bad.astype(np.float32))


def test_a_step_before_a_reset_or_after_the_end_is_refused() -> None:
    env = blind(horizon_steps=1)
    with pytest.raises(UsageError, match="reset"):
        env.step(HOME)
    env.reset(seed=0)
    assert env.step(HOME)[3]
    with pytest.raises(UsageError, match="after the episode ended"):
        env.step(HOME)


def test_an_unknown_env_is_refused_with_the_known_names() -> None:
    with pytest.raises(UsageError, match="arm-pick"):
        make_env("arm-pik")


def test_a_control_period_that_is_no_whole_number_of_time_steps_is_refused() -> None:
    with pytest.raises(ValueError, match=r"0\.0025"):
        build_model(SIZE, 30.0)


def test_siblings_share_a_renderer_and_nothing_else(seeing: ArmPickEnv) -> None:
    values = condition(3)
    obs, _ = seeing.reset(seed=0, options={"factors": values})
    other = seeing.sibling()
    seen, _ = other.reset(seed=0, options={"factors": values})
    assert np.array_equal(obs["front"], seen["front"])
    other.step(wave(1)[0])
    assert np.array_equal(seeing.render()[:, :SIZE], obs["front"])
    assert other._renderer is seeing._renderer


def test_closing_a_sibling_leaves_the_shared_renderer_open(seeing: ArmPickEnv) -> None:
    values = condition(3)
    before = seeing.render_still(values)["front"]
    other = seeing.sibling()
    other.reset(seed=0)
    other.close()
    seeing.render_still(condition(4))
    assert np.array_equal(seeing.render_still(values)["front"], before)


@pytest.mark.parametrize("closed", [False, True])
def test_two_envs_of_other_sizes_in_one_process_draw_into_their_own_contexts(closed: bool) -> None:
    one, two = ArmPickEnv(image_size=SIZE), ArmPickEnv(image_size=96)
    alone = one.render_still(condition(0))["front"]
    larger = two.render_still(condition(1))["front"]
    if closed:
        two.close()
    assert not np.array_equal(one.render_still(condition(1))["front"], alone)  # a stale frame would be equal
    assert np.array_equal(one.render_still(condition(0))["front"], alone)
    if not closed:
        assert np.array_equal(two.render_still(condition(1))["front"], larger)
        two.close()
    one.close()


def test_an_env_that_is_forgotten_takes_nothing_of_anothers_with_it() -> None:
    kept, forgotten = ArmPickEnv(image_size=96), ArmPickEnv(image_size=SIZE)
    before = kept.render_still(condition(0))["front"]
    forgotten.render_still(condition(1))
    kept.render_still(condition(1))
    del forgotten
    gc.collect()
    assert np.array_equal(kept.render_still(condition(0))["front"], before)
    kept.close()


# The judge


def nothing() -> tuple[ArmPickEnv, Outcome | None]:
    env = blind(horizon_steps=6)
    env.reset(seed=0, options={"factors": condition(0)})
    return env, play(env, np.tile(HOME, (6, 1)))[1]


def hover_and_go_on() -> tuple[ArmPickEnv, Outcome | None]:
    env, values = blind(horizon_steps=25), condition(0)
    env.reset(seed=0, options={"factors": values})
    pose = g.ToolPose(values["target_x_m"], values["target_y_m"], 0.02, np.radians(values["target_yaw_deg"]))
    over = np.array([*g.inverse(pose._replace(z=0.08), 0.013), 60.0], dtype=np.float32)
    near = np.array([*g.inverse(pose, 0.013), 60.0], dtype=np.float32)
    return env, play(env, np.concatenate([np.tile(over, (12, 1)), np.tile(near, (13, 1))]))[1]


def lift_and_let_go() -> tuple[ArmPickEnv, Outcome | None]:
    actions = _until_lifted(0.6)
    env = blind(horizon_steps=len(actions) + 15)
    env.reset(seed=0, options={"factors": condition(0)})
    opened = actions[-1].copy()
    opened[5] = 100.0
    return env, play(env, np.concatenate([actions, np.tile(opened, (15, 1))]))[1]


def push_off_the_table() -> tuple[ArmPickEnv, Outcome | None]:
    env = blind()
    env.reset(seed=0, options={"factors": condition(0)})
    start = env.world.cube_qpos[0]
    env.world.data.qpos[start] = 0.7
    return env, play(env, np.tile(HOME, (30, 1)))[1]


def lift_too_late() -> tuple[ArmPickEnv, Outcome | None]:
    actions = _until_lifted(0.6)
    env = blind(horizon_steps=len(actions))
    env.reset(seed=0, options={"factors": condition(0)})
    return env, play(env, actions)[1]


def take_the_blue_one() -> tuple[ArmPickEnv, Outcome | None]:
    """Send what picks up the red cube in a world that differs by one thing: the red and a blue cube have changed places."""
    ours = {
        "target_x_m": 0.18,
        "target_y_m": -0.04,
        "distractor1_bearing_deg": 90.0,
        "distractor1_distance_m": 0.09,
    }
    theirs = {
        "target_x_m": 0.18,
        "target_y_m": 0.05,
        "distractor1_bearing_deg": -90.0,
        "distractor1_distance_m": 0.09,
    }
    nominal = ARM_FACTORS.nominal() | {"distractor2_bearing_deg": 0.0, "distractor2_distance_m": 0.1}
    outcome, actions = solve(blind(), nominal | theirs)
    assert outcome == Outcome.success()
    env = blind()
    env.reset(seed=0, options={"factors": nominal | ours})
    return env, play(env, actions)[1]


def pick() -> tuple[ArmPickEnv, Outcome | None]:
    env = blind()
    return env, solve(env, condition(0))[0]


def _until_lifted(share: float) -> np.ndarray:
    """Return the teacher's actions up to the step at which the cube is ``share`` of the way to lifted."""
    env = blind()
    _, actions = solve(env, condition(0))
    env.reset(seed=0, options={"factors": condition(0)})
    for count, action in enumerate(actions, start=1):
        env.step(action)
        if env.world.cube_position(0)[2] - env.world.cube_half[0] > share * LIFT_M:
            return actions[:count]
    raise AssertionError("the teacher did not lift")


MODES: dict[str, Callable[[], tuple[ArmPickEnv, Outcome | None]]] = {
    "no_approach": nothing,
    "missed_grasp": hover_and_go_on,
    "dropped": lift_and_let_go,
    "timeout": lift_too_late,
    "wrong_object": take_the_blue_one,
}


@pytest.mark.parametrize("mode", PICK_MODES)
def test_the_judge_names_the_failure_that_was_acted_out(mode: str) -> None:
    assert MODES[mode]()[1] == Outcome.failure(mode)


def test_the_judge_calls_a_cube_on_the_floor_dropped_without_waiting_for_the_horizon() -> None:
    env, outcome = push_off_the_table()
    assert outcome == Outcome.failure("dropped")
    assert env.steps < env.horizon_steps


def test_the_judge_calls_success_only_after_the_hold() -> None:
    env, outcome = pick()
    assert outcome == Outcome.success()
    height = env.world.cube_position(0)[2] - env.world.cube_half[0]
    assert height > LIFT_M
    assert env._judge.held_steps == HOLD_STEPS


def test_a_cube_that_is_thrown_up_but_not_held_is_no_success() -> None:
    env = blind(horizon_steps=12)
    env.reset(seed=0, options={"factors": condition(0)})
    start = env.world.cube_qpos[0]
    for _ in range(HOLD_STEPS + 2):
        env.world.data.qpos[start + 2] = 0.3
        assert "outcome" not in env.step(HOME)[4]


def test_the_last_step_says_how_it_ended_and_no_step_before() -> None:
    env = blind(horizon_steps=3)
    env.reset(seed=0)
    infos = [env.step(HOME) for _ in range(3)]
    assert [info for *_, info in infos[:2]] == [{}, {}]
    *_, reward, terminated, truncated, info = infos[2]
    assert (reward, terminated, truncated, info["is_success"]) == (0.0, False, True, False)


def test_every_preset_gives_worlds_that_start(seeing: ArmPickEnv) -> None:
    for index, preset in enumerate(ARM_PRESETS):
        obs, _ = seeing.reset(seed=index, options={"factors": condition(index, preset)})
        assert np.isfinite(obs["state"]).all()
        assert obs["front"].std() > 3
