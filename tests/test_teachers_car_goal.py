"""The car's teacher: solves what it labels, depends on the state alone, and says why when it has no plan."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from car_fixtures import blind, commands, condition, play, solve, straight
from simgap.envs._mujoco import mujoco
from simgap.envs.car.goal import CarGoalEnv
from simgap.envs.car.layout import Spot
from simgap.envs.factors import FactorValues
from simgap.teachers import Abstain, make_teacher
from simgap.teachers.car_goal import PASS_M, CarGoalTeacher
from simgap.types import Outcome


def successes(conditions: list[FactorValues], noise: float = 0.0) -> int:
    env = blind()
    return sum(
        solve(env, values, seed=i, noise=noise)[0] == Outcome.success() for i, values in enumerate(conditions)
    )


def test_the_teacher_solves_all_of_40_nominal_conditions() -> None:
    assert successes([condition(s) for s in range(40)]) == 40


def test_the_teacher_stays_good_while_its_commands_are_disturbed() -> None:
    assert successes([condition(s) for s in range(24)], noise=1.0) == 24


@pytest.mark.slow
@pytest.mark.parametrize(
    "preset",
    ["wide", "shifted:clutter", "shifted:motor", "shifted:steering", "shifted:latency", "shifted:contact"],
)
def test_the_teacher_stays_good_when_the_world_differs(preset: str) -> None:
    assert successes([condition(s, preset) for s in range(16)]) >= 15


EXTREMES: list[dict[str, float]] = [
    {"action_latency_steps": 7.0},
    {"motor_gain": 0.6},
    {"motor_gain": 1.4},
    {"throttle_dead_zone": 0.25},
    {"steering_offset_deg": 8.0},
    {"friction": 0.2},
    {"path_clearance_m": 0.1},
]


@pytest.mark.parametrize("values", EXTREMES, ids=[next(iter(v)) for v in EXTREMES])
def test_the_teacher_stays_good_far_outside_its_training_ranges(values: dict[str, float]) -> None:
    assert successes([condition(s, **values) for s in range(8)]) >= 7


class _NeverBrakes(CarGoalTeacher):
    def label(self):  # type: ignore[no-untyped-def]
        label = super().label()
        return label if isinstance(label, Abstain) else np.array([label[0], 0.5], dtype=np.float32)


class _Mirrored(CarGoalTeacher):
    def label(self):  # type: ignore[no-untyped-def]
        label = super().label()
        return label if isinstance(label, Abstain) else label * np.array([-1, 1], dtype=np.float32)


class _SeesOneCone(CarGoalTeacher):
    """A planted fault: cones in between are ignored."""

    def label(self):  # type: ignore[no-untyped-def]
        world = self._env.world
        target = world.car_pose().local(world.cone_spot(0))
        return np.array(
            [-2.5 * math.atan2(target.y, target.x), min(0.5, 1.2 * (world.gap(0) - 0.09))], dtype=np.float32
        )


@pytest.mark.parametrize("planted", [_NeverBrakes, _Mirrored])
def test_the_success_test_catches_a_planted_teacher(planted: type[CarGoalTeacher]) -> None:
    env = blind()
    assert solve(env, condition(1), teacher=planted(env))[0] != Outcome.success()


def test_the_teacher_drives_round_a_cone_that_stands_in_the_way_and_one_that_ignores_it_does_not() -> None:
    in_the_way = straight(
        target_x_m=2.0, path_clearance_m=0.1, distractor1_bearing_deg=173.0, distractor1_distance_m=0.9
    )
    env = blind()
    assert solve(env, in_the_way)[0] == Outcome.success()
    assert solve(env, in_the_way, teacher=_SeesOneCone(env))[0] == Outcome.failure("collision")


def labels_the_same_from(
    env: CarGoalEnv, other: CarGoalEnv, teacher: CarGoalTeacher, another: CarGoalTeacher
) -> None:
    mujoco.mj_copyData(other.world.data, other.world.model, env.world.data)
    first, second = teacher.label(), another.label()
    assert isinstance(first, np.ndarray)
    assert np.array_equal(first, second)
    assert np.array_equal(first, teacher.label())


@settings(max_examples=10)
@given(st.integers(0, 1000), st.integers(1, 60))
def test_the_same_state_gets_the_same_label_whatever_came_before(seed: int, steps: int) -> None:
    values = condition(seed, "shifted:latency")
    env, other = blind(), blind()
    teacher, another = CarGoalTeacher(env), CarGoalTeacher(other)
    env.reset(seed=0, options={"factors": values})
    other.reset(seed=1, options={"factors": values})
    play(other, commands(-0.4, 0.5, 5))  # another history
    another.label()
    for _ in range(steps):
        label = teacher.label()
        assert not isinstance(label, Abstain)
        if "outcome" in env.step(label)[4]:
            break
    labels_the_same_from(env, other, teacher, another)


def test_the_memory_test_catches_a_planted_teacher_that_counts() -> None:
    class _Counts(CarGoalTeacher):
        calls = 0

        def label(self):  # type: ignore[no-untyped-def]
            self.calls += 1
            label = super().label()
            return label if isinstance(label, Abstain) else label + np.float32(self.calls)

    env, other = blind(), blind()
    for e in (env, other):
        e.reset(seed=0, options={"factors": straight()})
    with pytest.raises(AssertionError):
        labels_the_same_from(env, other, _Counts(env), _Counts(other))


def test_a_label_does_not_depend_on_speed_which_no_single_frame_shows() -> None:
    env = blind()
    teacher = CarGoalTeacher(env)
    env.reset(seed=0, options={"factors": straight()})
    play(env, commands(0.1, 0.5, 20))
    moving = teacher.label()
    env.world.data.qvel[:] = 0.0
    assert np.array_equal(moving, teacher.label())


def test_labelling_writes_nothing_to_the_env() -> None:
    env = blind()
    env.reset(seed=0, options={"factors": condition(0)})
    data = env.world.data
    before = [a.copy() for a in (data.qpos, data.qvel, data.ctrl, data.xpos, data.userdata)]
    CarGoalTeacher(env).label()
    assert all(
        np.array_equal(a, b)
        for a, b in zip(before, (data.qpos, data.qvel, data.ctrl, data.xpos, data.userdata), strict=True)
    )


@pytest.mark.parametrize("seed", range(4))
def test_the_teacher_recovers_from_where_a_wandering_policy_left_the_car(seed: int) -> None:
    env = blind()
    teacher = CarGoalTeacher(env)
    env.reset(seed=0, options={"factors": condition(seed)})
    play(env, commands(0.8 * (-1) ** seed, 0.4, 22))
    outcome = None
    while outcome is None:
        label = teacher.label()
        assert not isinstance(label, Abstain), label
        outcome = env.step(label)[4].get("outcome")
    assert outcome == Outcome.success()


def test_a_target_beside_the_car_is_backed_off_from_until_it_is_ahead() -> None:
    env = blind()
    teacher = CarGoalTeacher(env)
    env.reset(
        seed=0, options={"factors": straight(distractor1_bearing_deg=-90.0, distractor2_bearing_deg=0.0)}
    )
    env.world.data.qpos[env.world._cone_qpos[0] : env.world._cone_qpos[0] + 2] = 0.1, 0.45
    mujoco.mj_forward(env.world.model, env.world.data)
    env._judge.begin(env.world)  # type: ignore[attr-defined]
    label = teacher.label()
    assert isinstance(label, np.ndarray)
    assert label[1] < 0
    outcome = None
    while outcome is None:
        outcome = env.step(teacher.label())[4].get("outcome")
    assert outcome == Outcome.success()


def _abstains(env: CarGoalEnv, saying: str) -> None:
    mujoco.mj_forward(env.world.model, env.world.data)
    label = CarGoalTeacher(env).label()
    assert isinstance(label, Abstain)
    assert saying in label.reason


def test_the_teacher_abstains_with_the_reason() -> None:
    env = blind()
    target = env.world._cone_qpos[0]
    env.reset(seed=0, options={"factors": straight()})
    env.world.data.qpos[target + 3 : target + 7] = math.sqrt(0.5), math.sqrt(0.5), 0, 0
    _abstains(env, "knocked over")
    env.reset(seed=0, options={"factors": straight()})
    env.world.data.qpos[target] = 5.0
    _abstains(env, "target is off the floor")
    env.reset(seed=0, options={"factors": straight()})
    env.world.data.qpos[env.world._car_qpos] = -2.0
    _abstains(env, "car is off the floor")
    env.reset(seed=0, options={"factors": straight()})
    env.world.data.qpos[target : target + 2] = -0.2, 0.5
    behind = env.world._cone_qpos[1]
    env.world.data.qpos[behind : behind + 2] = -0.3, 0.0
    _abstains(env, "stands behind the car")


@settings(max_examples=40)
@given(
    st.floats(0.5, 2.5),
    st.floats(-1.0, 1.0),
    st.floats(0.4, 2.5),
    st.floats(-1.0, 1.0),
    st.floats(0.4, 2.5),
    st.floats(-1.0, 1.0),
)
def test_the_aim_passes_every_cone_in_between_or_is_the_target(
    tx: float, ty: float, ax: float, ay: float, bx: float, by: float
) -> None:
    from simgap.teachers.car_goal import _aim

    target, others = Spot(tx, ty), [Spot(ax, ay), Spot(bx, by)]
    aim = _aim(target, others)
    assert abs(aim) <= math.pi
    for cone in others:
        if math.hypot(*cone) < math.hypot(*target):
            across = abs(-cone.x * math.sin(aim) + cone.y * math.cos(aim))
            along = cone.x * math.cos(aim) + cone.y * math.sin(aim)
            blocked_both_ways = (
                math.dist(others[0], others[1]) < 2 * PASS_M
                or math.dist(cone, target) < PASS_M
                or math.hypot(*cone) < PASS_M
            )
            assert along < 0 or across >= PASS_M - 1e-6 or blocked_both_ways


def test_the_car_has_a_teacher_by_name() -> None:
    assert isinstance(make_teacher(blind()), CarGoalTeacher)
