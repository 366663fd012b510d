"""Smoothness: published reference behaviours, invariances, planted faults, and quiet on the teacher's own traces."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arm_fixtures import blind, condition, solve
from simgap import causes
from simgap.causes import Cause
from simgap.checks.policy.beside_teacher import check_beside_teacher, teacher_records
from simgap.envs import make_env
from simgap.errors import UsageError
from simgap.findings import Verdict
from simgap.measures.motion import (
    disagreement_by_age,
    freeze_share,
    log_dimensionless_jerk,
    longest_freeze_s,
    path_ratio,
    seam_jump,
    seams,
    sparc,
    speed,
)
from simgap.measures.smoothness import FEWEST, Trace, check_smoothness, measure, ruler_of, trace_of
from simgap.rollouts.record import RolloutRecord
from simgap.seeds import Purpose, seed_of
from simgap.types import Outcome

RATE = 20.0


def minimum_jerk(duration_s: float, rate_hz: float, distance: float = 1.0) -> np.ndarray:
    tau = np.linspace(0, 1, round(duration_s * rate_hz) + 1)
    return (distance * (10 * tau**3 - 15 * tau**4 + 6 * tau**5))[:, None]


# -- published reference behaviours


def test_a_minimum_jerk_reach_has_the_published_arc_length_and_the_jerk_of_its_closed_form() -> None:
    assert sparc(speed(minimum_jerk(4, RATE), RATE), RATE) == pytest.approx(-1.40, abs=0.02)
    assert log_dimensionless_jerk(speed(minimum_jerk(4, 1000.0), 1000.0), 1000.0) == pytest.approx(
        -np.log(720 / 1.875**2), abs=0.02
    )
    assert log_dimensionless_jerk(speed(minimum_jerk(4, RATE), RATE), RATE) == pytest.approx(-5.2, abs=0.15)


def test_jitter_is_seen_by_both_at_20_hz_and_at_50_hz_by_jerk_alone() -> None:
    rng = np.random.default_rng(0)
    for rate, seen in ((20.0, True), (50.0, False)):
        clean = speed(minimum_jerk(4, rate), rate)
        jittered = np.abs(clean * (1 + 0.25 * rng.standard_normal(len(clean))))
        arc, jerk = sparc(jittered, rate), log_dimensionless_jerk(jittered, rate)
        assert arc is not None
        assert jerk is not None
        assert (arc < -1.5) is seen
        assert jerk < -11


def test_a_stop_halfway_breaks_the_motion_in_both_measures() -> None:
    reach = minimum_jerk(2, RATE)
    stopped = np.concatenate([reach, np.repeat(reach[-1:], 40, axis=0), reach[-1:] + reach])
    speeds = speed(stopped, RATE)
    arc, jerk = sparc(speeds, RATE), log_dimensionless_jerk(speeds, RATE)
    assert arc is not None
    assert jerk is not None
    assert arc < -2.5
    assert jerk < -9
    assert longest_freeze_s(speeds, 0.02, RATE) == pytest.approx(2.0, abs=0.5)


# -- invariances


@given(st.integers(0, 1000), st.floats(1e-3, 1e3), st.floats(0.2, 5.0))
def test_amplitude_changes_nothing_and_playing_faster_no_jerk_and_no_path(
    seed: int, scale: float, faster: float
) -> None:
    rng = np.random.default_rng(seed)
    position = np.cumsum(rng.normal(size=(60, 3)), axis=0)
    speeds = speed(position, RATE)
    for found, scaled in (
        (sparc(speeds, RATE), sparc(speeds * scale, RATE)),
        (log_dimensionless_jerk(speeds, RATE), log_dimensionless_jerk(speeds * scale, RATE)),
        (
            log_dimensionless_jerk(speeds, RATE),
            log_dimensionless_jerk(speed(position, RATE * faster), RATE * faster),
        ),
        (path_ratio(position), path_ratio(position * scale)),
        (freeze_share(speeds, 1.0), freeze_share(speeds * scale, scale)),
    ):
        assert found is not None
        assert scaled == pytest.approx(found, rel=1e-6, abs=1e-6)


@given(st.floats(1.0, 8.0))
def test_the_duration_of_a_reach_hardly_changes_its_smoothness(duration_s: float) -> None:
    speeds = speed(minimum_jerk(duration_s, 100.0), 100.0)
    assert sparc(speeds, 100.0) == pytest.approx(-1.41, abs=0.03)
    assert log_dimensionless_jerk(speeds, 100.0) == pytest.approx(-5.32, abs=0.2)


@given(st.integers(0, 500))
def test_a_rotation_of_space_changes_neither_speed_nor_way(seed: int) -> None:
    rng = np.random.default_rng(seed)
    position = np.cumsum(rng.normal(size=(30, 3)), axis=0)
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    assert np.allclose(speed(position, RATE), speed(position @ turn, RATE))
    assert path_ratio(position) == pytest.approx(path_ratio(position @ turn))


def test_what_does_not_move_or_is_too_short_is_undefined_and_not_smooth() -> None:
    still = speed(np.zeros((30, 2)), RATE)
    assert sparc(still, RATE) is log_dimensionless_jerk(still, RATE) is path_ratio(np.zeros((30, 2))) is None
    assert (
        sparc(np.ones(2), RATE)
        is freeze_share(np.zeros(0), 1.0)
        is longest_freeze_s(np.zeros(0), 1.0, RATE)
        is None
    )
    assert freeze_share(still, 1e-9) == 1.0
    assert log_dimensionless_jerk(np.full(50, 0.3), RATE) is None
    assert path_ratio(np.array([[0.0], [1.0], [0.0]])) is None
    with pytest.raises(UsageError):
        speed(np.array([[np.nan], [0.0]]), RATE)


# -- chunks


def test_seams_are_where_the_observation_behind_an_action_changes() -> None:
    receding = np.array([0, 1, 2, 0, 1, 2, 0], dtype=float)
    assert seams(receding).tolist() == [False, False, False, True, False, False, True]
    assert seams(np.zeros(4)).tolist() == [False, True, True, True]
    action = np.cumsum(np.ones((30, 1)), axis=0)
    age = np.arange(30) % 5.0
    assert seam_jump(action, seams(age)) == pytest.approx(1.0)
    action += 4.0 * (np.arange(30) // 5)[:, None]
    assert seam_jump(action, seams(age)) == pytest.approx(5.0)
    assert seam_jump(action, seams(np.zeros(30))) is None


def test_disagreement_grows_with_age_where_predictions_drift_and_is_zero_where_they_do_not() -> None:
    steps, horizon = np.arange(20), 6
    true = np.sin(np.arange(40) / 3)
    agreed = np.stack([true[s : s + horizon] for s in steps])[:, :, None]
    assert np.allclose(disagreement_by_age(agreed, steps, np.ones(1)), 0.0)
    drifting = agreed + 0.1 * np.arange(horizon)[None, :, None]
    assert np.allclose(disagreement_by_age(drifting, steps, np.array([0.5])), 0.2 * np.arange(horizon))
    sparse = disagreement_by_age(agreed[:1], steps[:1], np.ones(1))
    assert sparse[0] == 0.0
    assert np.isnan(sparse[1:]).all()


# -- beside a teacher


def reach(
    seed: int,
    *,
    freeze: int = 0,
    jitter: float = 0.0,
    jump: float = 0.0,
    detour: float = 0.0,
    success: bool = True,
    chunked: bool = True,
) -> Trace:
    rng = np.random.default_rng(seed)
    there = minimum_jerk(rng.uniform(1.8, 2.4), RATE) * rng.uniform(0.3, 0.5, 3)
    hold = np.repeat(there[-1:], int(rng.integers(2, 6)), axis=0)
    onward = there[-1] + minimum_jerk(1.5, RATE) * rng.uniform(-0.3, 0.3, 3)
    parts = [there, hold, onward]
    if freeze:
        middle = len(there) // 2
        parts = [
            there[:middle],
            np.repeat(there[middle : middle + 1], freeze, axis=0),
            there[middle:],
            hold,
            onward,
        ]
    position = np.concatenate(parts)
    phase = np.linspace(0, np.pi * 6, len(position))
    position = position + detour * np.stack([np.sin(phase), 1 - np.cos(phase), 0 * phase], axis=1)
    position = (
        position + rng.normal(scale=2e-4, size=position.shape) + jitter * rng.normal(size=position.shape)
    )
    action = position + jump * rng.choice([-1, 1], (len(position) // 5 + 1, 3))[np.arange(len(position)) // 5]
    age = np.arange(len(position)) % 5.0 if chunked else None
    return Trace(position=position, rate_hz=RATE, action=action, age=age, is_success=success)


TEACHER = [reach(s, chunked=False) for s in range(40)]


@pytest.mark.parametrize(
    ("fault", "measure_name", "cause"),
    [
        ({"freeze": 30}, "longest_freeze_s", causes.POLICY),
        ({"jitter": 0.01}, "log_dimensionless_jerk", causes.POLICY),
        ({"jump": 0.08}, "seam_jump", causes.EXECUTION),
        ({"detour": 0.1}, "path_ratio", causes.POLICY),
    ],
    ids=["freeze", "jerk", "seam", "detour"],
)
def test_a_planted_fault_of_motion_is_named(fault: dict[str, Any], measure_name: str, cause: Cause) -> None:
    found = check_smoothness([reach(s, **fault) for s in range(100, 130)], TEACHER)
    assert found.verdict is Verdict.BROKEN
    assert measure_name in found.numbers["found"]
    assert found.cause is cause


def test_a_difference_that_nobody_would_feel_is_no_finding_however_sure() -> None:
    found = check_smoothness([reach(s, jump=0.004) for s in range(100, 180)], TEACHER)
    assert found.numbers["seam_jump"]["p"] < 0.01
    assert found.numbers["seam_jump"]["policy"] > found.numbers["seam_jump"]["bound"]
    assert "seam_jump" not in found.numbers.get("found", ())


def test_the_teacher_s_own_traces_are_quiet_nearly_always() -> None:
    quiet = [
        check_smoothness([reach(1000 * k + s) for s in range(20)], TEACHER).verdict is Verdict.OK
        for k in range(30)
    ]
    assert sum(quiet) >= 29


def test_episodes_that_failed_and_stood_still_until_the_horizon_say_nothing_about_smoothness() -> None:
    failed = []
    for s in range(10):
        trace = reach(s + 500, success=False)
        rest = np.repeat(trace.position[-1:], 200, axis=0)
        failed.append(
            Trace(
                position=np.concatenate([trace.position, rest]),
                rate_hz=RATE,
                action=np.concatenate([trace.action, rest]),
                is_success=False,
            )
        )
    assert check_smoothness([*failed, *(reach(s + 600) for s in range(20))], TEACHER).verdict is Verdict.OK


def test_few_episodes_cannot_tell_and_a_teacher_that_never_moves_is_refused() -> None:
    few = check_smoothness([reach(s) for s in range(FEWEST - 3)], TEACHER)
    assert (few.verdict, few.more_trials) == (Verdict.CANNOT_TELL, 3)
    with pytest.raises(UsageError, match="no motion"):
        ruler_of([Trace(position=np.zeros((9, 2)), rate_hz=RATE, action=np.zeros((9, 2)))])


def test_real_teacher_rollouts_are_measured_quietly_and_a_held_action_is_seen() -> None:
    env = blind()
    made = []
    for seed in range(2 * FEWEST):
        outcome, actions = solve(env, condition(seed), seed=seed)
        assert outcome is not None
        record = RolloutRecord(
            seed=seed,
            outcome=outcome,
            factors={},
            state=actions,
            action=actions,
            age=np.zeros(len(actions), np.float32),
            film={},
            film_steps=(),
        )
        made.append(trace_of(record, env.state_spec, env.action_spec))
    env.close()
    assert made[0].position.shape[1] == 5, "the gripper is left out"
    first, second = made[:FEWEST], made[FEWEST:]
    assert check_smoothness(first, second).verdict is Verdict.OK
    held = [
        Trace(
            position=np.repeat(t.position, 4, axis=0)[: 4 * 40],
            rate_hz=t.rate_hz,
            action=np.repeat(t.action, 4, axis=0)[: 4 * 40],
        )
        for t in first
    ]
    assert check_smoothness(held, second).verdict is Verdict.BROKEN


def test_measures_cover_every_name_and_are_undefined_where_there_are_no_chunks() -> None:
    ruler = ruler_of(TEACHER)
    assert measure(TEACHER[0], ruler)["seam_jump"] is None
    assert measure(TEACHER[0], ruler, every=5)["seam_jump"] is not None
    assert Outcome.success().is_success


@pytest.mark.slow
def test_a_teacher_beside_itself_is_quiet_in_motion_and_in_ways_and_one_way_only_is_seen() -> None:
    seeds = [seed_of(Purpose.SELECT, 3, i) for i in range(96)]
    records = teacher_records("arm-pass", make_env("arm-pass", render=False).presets["nominal"], seeds)
    half = len(records) // 2
    policy, teacher = records[:half], records[half:]
    motion, ways = check_beside_teacher(policy, teacher, "arm-pass", np.random.default_rng(0))
    assert motion.verdict is Verdict.OK, motion.sentence
    assert ways.verdict is Verdict.OK, ways.sentence
    usual = max({r.mode for r in records}, key=[r.mode for r in records].count)
    one_way = [r for r in records if r.mode == usual][:half]
    _, lost = check_beside_teacher(one_way, teacher, "arm-pass", np.random.default_rng(0))
    assert lost.verdict is Verdict.BROKEN, lost.sentence
    assert f"always goes {usual}" in lost.sentence
