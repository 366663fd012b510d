"""The teacher: solves what it labels, depends on the state alone, and says why when it has no plan."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arm_fixtures import HOME, blind, condition, play, solve, wave
from simgap.envs._mujoco import mujoco
from simgap.envs.arm.pick import ArmPickEnv
from simgap.envs.factors import FactorValues
from simgap.errors import UsageError
from simgap.teachers import Abstain, make_teacher
from simgap.teachers.arm_pick import ArmPickTeacher
from simgap.types import Outcome


def successes(conditions: list[FactorValues]) -> int:
    env = blind()
    return sum(solve(env, values, seed=i)[0] == Outcome.success() for i, values in enumerate(conditions))


def test_the_teacher_solves_all_of_100_nominal_conditions_but_one() -> None:
    assert successes([condition(s) for s in range(100)]) >= 99


@pytest.mark.slow
@pytest.mark.parametrize(
    "preset", ["shifted:latency", "shifted:actuator", "shifted:contact", "shifted:sizes", "shifted:encoder"]
)
def test_the_teacher_stays_good_when_the_plant_differs(preset: str) -> None:
    assert successes([condition(s, preset) for s in range(20)]) >= 19


@pytest.mark.parametrize(
    "values", [{"action_latency_steps": 7.0}, {"actuator_gain": 0.6}, {"actuator_gain": 1.6}]
)
def test_the_teacher_stays_good_far_outside_its_training_ranges(values: dict[str, float]) -> None:
    assert successes([condition(s, **values) for s in range(12)]) >= 11


def test_the_success_test_catches_a_planted_teacher_that_never_closes() -> None:
    class _OpenHanded(ArmPickTeacher):
        def label(self):  # type: ignore[no-untyped-def]
            label = super().label()
            return label if isinstance(label, Abstain) else np.append(label[:5], np.float32(60.0))

    env = blind(horizon_steps=40)
    teacher = _OpenHanded(env)
    env.reset(seed=0, options={"factors": condition(0)})
    outcome = None
    while outcome is None:
        outcome = env.step(teacher.label())[4].get("outcome")
    assert outcome == Outcome.failure("missed_grasp")


def labels_the_same_from(
    env: ArmPickEnv, other: ArmPickEnv, teacher: ArmPickTeacher, another: ArmPickTeacher
) -> None:
    mujoco.mj_copyData(other.world.data, other.world.model, env.world.data)
    first, second = teacher.label(), another.label()
    assert isinstance(first, np.ndarray)
    assert np.array_equal(first, second)
    assert np.array_equal(first, teacher.label())


@settings(max_examples=8)
@given(st.integers(0, 1000), st.integers(1, 30))
def test_the_same_state_gets_the_same_label_whatever_came_before(seed: int, steps: int) -> None:
    values = condition(seed, "shifted:latency")
    env, other = blind(), blind()
    teacher, another = ArmPickTeacher(env), ArmPickTeacher(other)
    env.reset(seed=0, options={"factors": values})
    other.reset(seed=1, options={"factors": values})
    play(other, wave(5, seed=seed))  # another history
    another.label()
    for _ in range(steps):
        label = teacher.label()
        assert not isinstance(label, Abstain)
        if "outcome" in env.step(label)[4]:
            break
    labels_the_same_from(env, other, teacher, another)


def test_the_memory_test_catches_a_planted_teacher_that_counts() -> None:
    class _Counts(ArmPickTeacher):
        calls = 0

        def label(self):  # type: ignore[no-untyped-def]
            self.calls += 1
            label = super().label()
            return label if isinstance(label, Abstain) else label + np.float32(self.calls)

    env, other = blind(), blind()
    for e in (env, other):
        e.reset(seed=0, options={"factors": condition(0)})
    with pytest.raises(AssertionError):
        labels_the_same_from(env, other, _Counts(env), _Counts(other))


def test_labelling_writes_nothing_to_the_env() -> None:
    env = blind()
    env.reset(seed=0, options={"factors": condition(0)})
    data = env.world.data
    before = [
        a.copy() for a in (data.qpos, data.qvel, data.ctrl, data.xpos, env.world.model.actuator_gainprm)
    ]
    ArmPickTeacher(env).label()
    after = [data.qpos, data.qvel, data.ctrl, data.xpos, env.world.model.actuator_gainprm]
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


@settings(max_examples=15)
@given(st.integers(0, 10_000))
def test_labels_are_actions_of_the_convention_and_lead_by_a_bounded_angle(seed: int) -> None:
    env = blind()
    teacher = ArmPickTeacher(env)
    obs, _ = env.reset(seed=seed, options={"factors": condition(seed)})
    for _ in range(25):
        label = teacher.label()
        assert not isinstance(label, Abstain)
        assert label.dtype == np.float32
        assert (label >= env.action_spec.low).all()
        assert (label <= env.action_spec.high).all()
        assert np.abs(label[:5] - obs["state"][:5]).max() < 25.0
        obs, *_, info = env.step(label)
        if "outcome" in info:
            break


def test_a_cube_out_of_reach_gets_no_label_but_the_distance_and_the_reach() -> None:
    env = blind()
    env.reset(seed=0, options={"factors": condition(0)})
    env.world.data.qpos[env.world.cube_qpos[0]] = 0.5
    mujoco.mj_forward(env.world.model, env.world.data)
    label = ArmPickTeacher(env).label()
    assert isinstance(label, Abstain)
    assert "reach is" in label.reason


def test_a_cube_that_fell_off_the_table_gets_no_label() -> None:
    env = blind()
    env.reset(seed=0, options={"factors": condition(0)})
    env.world.data.qpos[env.world.cube_qpos[0] + 2] = -0.3
    mujoco.mj_forward(env.world.model, env.world.data)
    label = ArmPickTeacher(env).label()
    assert isinstance(label, Abstain)
    assert "fell off" in label.reason


@pytest.mark.parametrize("seed", range(6))
def test_the_teacher_recovers_from_where_a_wandering_policy_left_the_arm(seed: int) -> None:
    env = blind(horizon_steps=110)
    teacher = ArmPickTeacher(env)
    env.reset(seed=0, options={"factors": condition(seed)})
    play(env, wave(12, seed=seed, amplitude=20.0))
    outcome = None
    while outcome is None:
        label = teacher.label()
        assert not isinstance(label, Abstain), label
        outcome = env.step(label)[4].get("outcome")
    assert outcome == Outcome.success()


def test_a_cube_turned_on_another_face_is_still_picked_up() -> None:
    env = blind()
    teacher = ArmPickTeacher(env)
    env.reset(seed=0, options={"factors": condition(0)})
    start, half = env.world.cube_qpos[0], np.sqrt(0.5)
    env.world.data.qpos[start + 3 : start + 7] = half, half, 0, 0
    env.step(HOME)
    outcome = None
    while outcome is None:
        outcome = env.step(teacher.label())[4].get("outcome")
    assert outcome == Outcome.success()


def test_an_env_without_a_teacher_is_refused_with_what_to_do() -> None:
    env = blind()
    env.name = "stranger"
    with pytest.raises(UsageError, match="train on them: simgap train"):
        make_teacher(env)
