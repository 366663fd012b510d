"""Verified labels: asking costs the episode nothing, not a byte, and a teacher that fails from here is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from arm_fixtures import HOME, SIZE, act, drawn, play, wave
from simgap.envs import make_env
from simgap.envs.arm.env import ArmEnv
from simgap.envs.arm.pick import ArmPickEnv
from simgap.errors import UsageError
from simgap.teachers import Abstain, Teacher, make_teacher
from simgap.teachers.arm_pick import ArmPickTeacher
from simgap.teachers.verify import roll_out, verify
from simgap.types import Outcome, OutcomeKind

NOISY = {"action_latency_steps": 2.0, "encoder_noise_deg": 0.2, "image_noise": 3.0}


@pytest.fixture(scope="module", params=["arm-pick", "arm-place", "arm-pass"])
def env(request: pytest.FixtureRequest) -> Iterator[ArmEnv]:
    made = make_env(request.param, image_size=SIZE)
    assert isinstance(made, ArmEnv)
    yield made
    made.close()


def goes_on_as_if_never_asked(env: ArmEnv, steps: int) -> None:
    """Assert that an episode in which labels are verified is the same, byte for byte, as one in which none is."""
    teacher, runs = make_teacher(env), []
    for is_asked in (False, True):
        obs, _ = env.reset(seed=3, options={"factors": drawn(env, 3, "shifted") | NOISY})
        seen: list[Any] = []
        for step in range(steps):
            if is_asked and step % 9 == 4:
                env.renders = True
                assert verify(env, teacher) == Outcome.success()
                assert env.renders
            label = teacher.label()
            assert not isinstance(label, Abstain)
            env.renders = step % 9 in (3, 4)
            obs, reward, terminated, truncated, info = env.step(label)
            seen.append(
                (
                    [obs[k].tobytes() for k in sorted(obs)],
                    label.tobytes(),
                    reward,
                    terminated,
                    truncated,
                    sorted(info),
                )
            )
        env.renders = True
        runs.append(seen)
    assert runs[0] == runs[1]


def test_after_a_verification_the_episode_goes_on_byte_for_byte(env: ArmEnv) -> None:
    goes_on_as_if_never_asked(env, 24)


class _ForgetsTheQueue(ArmPickEnv):
    """A planted fault: commands on their way are not put back."""

    def restore(self, snapshot: Any) -> None:
        delayed = self._delayed
        super().restore(snapshot)
        self._delayed = delayed


def test_the_byte_test_catches_a_planted_restore_that_forgets_the_delayed_commands() -> None:
    env = _ForgetsTheQueue(image_size=SIZE)
    with pytest.raises(AssertionError):
        goes_on_as_if_never_asked(env, 24)
    env.close()


def blind() -> ArmPickEnv:
    return ArmPickEnv(image_size=SIZE, render=False)


class _OpenHanded(ArmPickTeacher):
    """A planted fault: it never closes the jaws."""

    def label(self):  # type: ignore[no-untyped-def]
        label = super().label()
        return label if isinstance(label, Abstain) else np.append(label[:5], np.float32(60.0))


class _Shy(ArmPickTeacher):
    """A planted fault: near the cube it has no plan."""

    def label(self):  # type: ignore[no-untyped-def]
        return Abstain("too near") if self._arm.see(0).distance < 0.02 else super().label()


@pytest.mark.parametrize(
    ("make", "kind", "detail"),
    [(_OpenHanded, OutcomeKind.FAILURE, "missed_grasp"), (_Shy, OutcomeKind.VOID, "too near")],
)
def test_a_planted_teacher_that_does_not_get_there_is_refused(
    make: Any, kind: OutcomeKind, detail: str
) -> None:
    env = blind()
    env.reset(seed=0, options={"factors": drawn(env, 0)})
    teacher: Teacher = make(env)
    outcome = verify(env, teacher)
    assert outcome.kind is kind
    assert detail in outcome.detail
    assert not outcome.is_success
    assert env.steps == 0


@pytest.mark.parametrize("seed", range(4))
def test_labels_of_perturbed_states_are_verified_where_the_teacher_recovers(seed: int) -> None:
    env = blind()
    env.reset(seed=0, options={"factors": drawn(env, seed)})
    play(env, wave(8, seed=seed, amplitude=15.0))
    assert verify(env, ArmPickTeacher(env), extra_steps=40) == Outcome.success()


def test_a_state_whose_cube_is_gone_is_not_verified() -> None:
    env = blind()
    env.reset(seed=0, options={"factors": drawn(env, 0)})
    env.world.data.qpos[env.world.cube_qpos[0]] = 0.45
    env.step(HOME)
    outcome = verify(env, ArmPickTeacher(env))
    assert outcome.kind is OutcomeKind.VOID
    assert "reach is" in outcome.detail


def test_late_in_an_episode_time_is_what_is_missing_and_can_be_granted() -> None:
    env = blind()
    env.horizon_steps = 20
    env.reset(seed=0, options={"factors": drawn(env, 0)})
    play(env, np.tile(HOME, (5, 1)))
    assert verify(env, ArmPickTeacher(env)).kind is OutcomeKind.FAILURE
    assert verify(env, ArmPickTeacher(env), extra_steps=40) == Outcome.success()
    assert (env.horizon_steps, env.steps) == (20, 5)


def test_an_episode_that_is_over_cannot_be_verified() -> None:
    env = blind()
    act(env, ArmPickTeacher(env), drawn(env, 0))
    with pytest.raises(UsageError, match="after the episode ended"):
        verify(env, ArmPickTeacher(env))


def test_a_rollout_stays_where_it_ended() -> None:
    env = blind()
    env.reset(seed=0, options={"factors": drawn(env, 0)})
    assert roll_out(env, ArmPickTeacher(env)) == Outcome.success()
    assert env.steps > 20
