"""The joint response fit on plants whose multiplier, delay and stiffness are known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simgap.measures import response as module
from simgap.measures.response import MAX_DELAY, Motion, fit_response

NAMES = ("a.pos", "b.pos", "c.pos")
LIMITS = (np.full(3, -110.0, dtype=np.float32), np.full(3, 110.0, dtype=np.float32))


def plant(
    *,
    multipliers: tuple[float, ...] = (1.0, 1.0, 1.0),
    stiffness: float = 0.4,
    delay: int = 0,
    noise: float = 0.0,
    offset: float = 0.0,
    length: int = 40,
    episodes: int = 4,
    seed: int = 0,
    still: tuple[int, ...] = (),
    blocked: float = 0.0,
) -> list[Motion]:
    """Return motions of first-order servos: ``s' = s + k (m a[t-d] + c - s)``.

    Args:
        multipliers: what each joint makes of its command.
        stiffness: share of the distance closed in a step.
        delay: steps.
        noise: of the encoder, standard deviation.
        offset: of the servo's zero.
        length: steps an episode.
        episodes: number of them.
        seed: of everything.
        still: joints that are never commanded.
        blocked: share of the steps in which something holds the joints.
    """
    rng = np.random.default_rng(seed)
    motions = []
    for _ in range(episodes):
        steps = rng.normal(0, 6, (length, 3)) * (rng.random((length, 3)) < 0.3)
        command = np.clip(np.cumsum(steps, axis=0), -40, 40)
        command[:, list(still)] = 0.0
        state = np.zeros((length, 3))
        state[0] = np.array(multipliers) * command[0] + offset
        stuck = rng.random((length, 3)) < blocked
        for t in range(length - 1):
            goal = np.array(multipliers) * command[max(0, t - delay)] + offset
            state[t + 1] = state[t] + np.where(stuck[t], rng.normal(0, 3, 3), stiffness * (goal - state[t]))
        motions.append(
            (command.astype(np.float32), (state + rng.normal(0, noise, state.shape)).astype(np.float32))
        )
    return motions


@settings(max_examples=40)
@given(
    st.tuples(*[st.one_of(st.floats(0.4, 2.0), st.floats(-2.0, -0.4))] * 3),
    st.integers(0, 10),
    st.floats(0.15, 0.9),
    st.floats(-8, 8),
    st.integers(0, 10**6),
)
def test_multiplier_delay_stiffness_and_offset_of_a_known_plant_are_recovered(
    multipliers: tuple[float, float, float], delay: int, stiffness: float, offset: float, seed: int
) -> None:
    found = fit_response(
        plant(
            multipliers=multipliers, delay=delay, stiffness=stiffness, offset=offset, seed=seed, episodes=6
        ),
        NAMES,
        LIMITS,
    )
    assert found.delay_steps == delay
    for joint, expected in zip(found.joints, multipliers, strict=True):
        assert joint.multiplier == pytest.approx(expected, rel=0.02)
        assert joint.stiffness == pytest.approx(stiffness, rel=0.02)
        assert joint.offset == pytest.approx(offset, abs=0.3)


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_the_sign_is_told_through_encoder_noise(sign: float) -> None:
    for seed in range(10):
        found = fit_response(plant(multipliers=(1.0, sign, 1.0), noise=0.1, seed=seed), NAMES, LIMITS)
        assert found.multiplier("b.pos") == pytest.approx(sign, abs=0.1)


def test_the_delay_is_told_through_encoder_noise_and_tolerances() -> None:
    for seed in range(10):
        motions = plant(multipliers=(1.03, 0.98, 1.0), delay=seed % 8, noise=0.1, offset=0.5, seed=seed)
        assert fit_response(motions, NAMES, LIMITS).delay_steps == seed % 8


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.5])
def test_a_joint_that_is_not_commanded_gets_no_multiplier_and_the_others_keep_theirs(noise: float) -> None:
    found = fit_response(plant(still=(1,), noise=noise), NAMES, LIMITS)
    dead = found.joints[1]
    assert (dead.multiplier, dead.stiffness, dead.offset) == (None, None, None)
    assert dead.excitation < module.MIN_EXCITATION
    assert found.multiplier("a.pos") == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_a_joint_that_ignores_its_command_is_never_said_to_follow_it(noise: float) -> None:
    found = fit_response(plant(multipliers=(1.0, 0.0, 1.0), noise=noise), NAMES, LIMITS)
    value = found.multiplier("b.pos")
    assert value is None or abs(value) < 0.05


def test_rows_in_which_something_holds_the_joint_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    motions = plant(multipliers=(0.7, 1.0, 1.4), blocked=0.06, episodes=8)
    kept = fit_response(motions, NAMES, LIMITS)
    errors = [
        abs(j.multiplier - m)
        for j, m in zip(kept.joints, (0.7, 1.0, 1.4), strict=True)
        if j.multiplier is not None
    ]
    assert max(errors) < 0.03
    monkeypatch.setattr(module, "TRIM", 0.0)  # the planted fault: contacts are believed
    believed = fit_response(motions, NAMES, LIMITS)
    assert max(
        abs(j.multiplier - m)
        for j, m in zip(believed.joints, (0.7, 1.0, 1.4), strict=True)
        if j.multiplier is not None
    ) > max(errors)
    assert believed.joints[0].residual > 3 * kept.joints[0].residual


def test_rows_at_a_joint_limit_are_left_out() -> None:
    motions = plant(multipliers=(1.5, 1.0, 1.0), episodes=6)
    clipped = [(a, np.clip(s, -30, 30)) for a, s in motions]
    limits = (np.full(3, -30.0, dtype=np.float32), np.full(3, 30.0, dtype=np.float32))
    assert fit_response(clipped, NAMES, limits).multiplier("a.pos") == pytest.approx(1.5, rel=0.05)


@pytest.mark.parametrize("length", range(9, 31))
def test_episodes_of_any_length_are_fitted_or_left_untold_but_never_crash(length: int) -> None:
    found = fit_response(plant(delay=1, length=length, episodes=8), NAMES, LIMITS)
    if length > 12:
        assert found.delay_steps == 1
        assert found.multiplier("a.pos") == pytest.approx(1.0, abs=0.02)


def test_one_short_episode_does_not_hide_the_delay_of_the_others() -> None:
    found = fit_response([*plant(delay=7), *plant(delay=7, length=13, episodes=1)], NAMES, LIMITS)
    assert found.delay_steps == 7
    assert found.episodes == 4


def test_a_delay_longer_than_the_longest_tried_is_not_reported_as_none() -> None:
    assert fit_response(plant(delay=MAX_DELAY + 2, length=60), NAMES, LIMITS).delay_steps >= MAX_DELAY - 2


@settings(max_examples=15)
@given(st.floats(0.3, 3.0), st.integers(0, 10**6))
def test_the_fit_is_blind_to_the_unit(scale: float, seed: int) -> None:
    motions = plant(multipliers=(1.2, -1.0, 0.8), noise=0.05, seed=seed)
    scaled = [((a * scale).astype(np.float32), (s * scale).astype(np.float32)) for a, s in motions]
    one = fit_response(motions, NAMES, LIMITS)
    other = fit_response(scaled, NAMES, (LIMITS[0] * np.float32(scale), LIMITS[1] * np.float32(scale)))
    for a, b in zip(one.joints, other.joints, strict=True):
        if a.multiplier is not None and b.multiplier is not None:
            assert a.multiplier == pytest.approx(b.multiplier, rel=1e-3)
