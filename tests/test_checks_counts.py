"""Evaluation, execution and policy checks: each on the fault it is there for, and on what must not fire."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arm_fixtures import blind
from simgap import causes
from simgap.checks.evaluation.trial_sets import MIN_TRIALS, VOID_LIMIT, check_evaluation
from simgap.checks.execution.chunks import CLIPPED_LIMIT, check_execution, expected_ages
from simgap.checks.policy.coverage import COVERAGE_MARGIN, SHORTFALL, SIGNIFICANT, check_policy, is_covered
from simgap.envs.factors import FactorRanges
from simgap.findings import CheckResult, Verdict
from simgap.policies.execution import ExecutorSpec, parse_executor
from simgap.policies.executors import Executor
from simgap.statistics import exact_independence, wilson
from simgap.trials.batch import TrialResult
from simgap.types import Episode, Outcome

SPEC = blind().action_spec
CHUNK = 10
RANGES = FactorRanges({"target_x_m": (0.15, 0.21), "target_y_m": (-0.07, 0.07)}, "nominal")
INSIDE, OUTSIDE = {"target_x_m": 0.18, "target_y_m": 0.0}, {"target_x_m": 0.18, "target_y_m": 0.12}


def trials(
    good: int,
    bad: int,
    *,
    void: int = 0,
    seed: int = 0,
    placements: dict[str, float] | None = None,
    reason: str = "camera froze",
) -> list[TrialResult]:
    outcomes = [Outcome.success()] * good + [Outcome.failure("missed")] * bad + [Outcome.void(reason)] * void
    return [
        TrialResult(index=i, seed=seed + i, outcome=o, placements=placements or INSIDE, steps=40)
        for i, o in enumerate(outcomes)
    ]


def evaluated(
    in_use: Sequence[TrialResult],
    conditions: Sequence[TrialResult] | None = None,
    trained: frozenset[int] = frozenset({10**6}),
) -> CheckResult:
    return check_evaluation(
        {"in use": in_use, "conditions": trials(8, 2, seed=500) if conditions is None else conditions},
        trained,
        frozenset({10**7}),
    )


# Evaluation


def test_an_outcome_that_nobody_recorded_is_no_void_and_is_told() -> None:
    in_use = trials(6, 3) + [
        TrialResult(index=9 + i, seed=90 + i, outcome=Outcome.not_recorded(), placements=INSIDE, steps=40)
        for i in range(12)
    ]
    found = evaluated(in_use)
    assert found.verdict is Verdict.OK
    assert "0 are void" in found.sentence
    assert "Nobody recorded how 12 trials ended" in found.sentence
    none = evaluated([dataclasses.replace(r, outcome=Outcome.not_recorded()) for r in trials(6, 3)])
    assert none.verdict is Verdict.CANNOT_TELL
    assert "say success or failure of each" in none.sentence


def test_a_condition_without_a_seed_that_is_counted_twice_is_seen() -> None:
    named = [dataclasses.replace(r, seed=None, condition_id=f"spot {r.index}") for r in trials(6, 3)]
    assert evaluated(named).verdict is Verdict.OK
    twice = [dataclasses.replace(r, condition_id="spot 0") if r.index == 4 else r for r in named]
    found = evaluated(twice)
    assert found.verdict is Verdict.BROKEN
    assert "1 initial conditions of in use were counted twice" in found.sentence


def test_trials_of_others_without_seeds_are_not_counted_twice_and_it_is_said_what_cannot_be_seen() -> None:
    nameless = [dataclasses.replace(r, seed=None) for r in trials(9, 3)]
    result = evaluated(nameless)
    assert result.verdict is Verdict.OK
    assert "12 of 22 carry neither seed nor condition" in result.sentence
    assert "counted twice cannot be seen" in result.sentence
    assert "no seed serves two purposes" in evaluated(trials(9, 3)).sentence


@pytest.mark.parametrize(("good", "bad", "void"), [(12, 0, 0), (0, 12, 0), (20, 9, 3), (8, 0, 0), (9, 0, 3)])
def test_an_evaluation_in_order_is_ok_whatever_the_rate(good: int, bad: int, void: int) -> None:
    found = evaluated(trials(good, bad, void=void))
    assert (found.verdict, found.cause) == (Verdict.OK, causes.NONE)
    assert found.n == good + bad + 10
    assert f"{void} are void" in found.sentence


def test_too_many_voids_make_an_evaluation_invalid_and_their_reason_is_said() -> None:
    found = evaluated(trials(10, 5, void=6))
    assert (found.verdict, found.cause) == (Verdict.BROKEN, causes.EVALUATION)
    assert "6 of 21 trials of in use are void (mostly: camera froze)" in found.sentence
    assert VOID_LIMIT < 6 / 21


def test_voids_of_one_set_are_not_averaged_away_by_the_other() -> None:
    assert evaluated(trials(40, 0), trials(5, 2, void=5, seed=500)).cause is causes.EVALUATION


def test_the_limits_named_are_those_of_the_smallest_set() -> None:
    found = evaluated(trials(2, 1), trials(4, 1, seed=500))
    assert (found.verdict, found.more_trials) == (Verdict.CANNOT_TELL, MIN_TRIALS - 3)
    assert found.sentence.startswith(
        f"Of in use 3 trials count, at least {MIN_TRIALS} are needed. 3 trials: even 3 of 3 leaves"
    )


def test_too_few_trials_cannot_tell_and_the_missing_number_is_named() -> None:
    found = evaluated(trials(3, 2))
    assert (found.verdict, found.cause, found.more_trials) == (
        Verdict.CANNOT_TELL,
        causes.NONE,
        MIN_TRIALS - 5,
    )
    assert evaluated(trials(12, 0), []).more_trials == MIN_TRIALS
    assert evaluated([], []).more_trials == MIN_TRIALS


def test_an_evaluation_without_any_set_cannot_tell() -> None:
    found = check_evaluation({}, frozenset(), frozenset())
    assert (found.verdict, found.more_trials) == (Verdict.CANNOT_TELL, MIN_TRIALS)


def test_an_initial_condition_counted_twice_is_found_within_a_set_and_between_sets() -> None:
    again = evaluated([*trials(10, 2), *trials(1, 0, seed=3)])
    assert again.cause is causes.EVALUATION
    assert "1 initial conditions of in use were counted twice" in again.sentence
    both = evaluated(trials(12, 0, seed=0), trials(12, 0, seed=11))
    assert both.cause is causes.EVALUATION
    assert "1 initial conditions stand in more than one set" in both.sentence


def test_seeds_that_leaked_from_training_or_screen_are_found() -> None:
    leaked = evaluated(trials(12, 0), trained=frozenset({4, 5}))
    assert leaked.cause is causes.EVALUATION
    assert "2 seeds of in use were also trained or screened on" in leaked.sentence
    screened = check_evaluation({"in use": trials(12, 0)}, frozenset({900, 901}), frozenset({901, 902}))
    assert screened.cause is causes.EVALUATION
    assert "1 seed of the screen was also trained on" in screened.sentence


def test_replays_may_share_the_seeds_of_the_episodes_they_replay() -> None:
    assert check_evaluation({"replays": trials(8, 0)}, frozenset(range(8)), frozenset()).verdict is Verdict.OK


# Execution


def episode(ages: Sequence[float], *, clipped: float = 0.0, outcome: Outcome | None = None) -> Episode:
    steps = len(ages)
    action = np.zeros((steps, 6), np.float32)
    applied = action.copy()
    applied[: round(clipped * steps), 2] += 5.0
    extras = {"chunk_age": np.asarray(ages, np.float32), "applied_action": applied}
    return Episode(
        images={},
        state=action,
        action=action,
        time_s=np.arange(steps) / 20,
        outcome=outcome or Outcome.success(),
        task="",
        seed=0,
        extras=extras,
    )


def build(text: str) -> Executor:
    return parse_executor(text).build(SPEC, CHUNK)


def executed(episodes: Sequence[Episode], declared: str) -> CheckResult:
    spec: ExecutorSpec = parse_executor(declared)
    return check_execution(episodes, spec, spec.build(SPEC, CHUNK), CHUNK)


MODES = ["latest", "whole_chunk", "receding(5)", "receding(3, lead=2)", "ensemble(0.1)", "ensemble(-0.1)"]


@pytest.mark.parametrize("mode", MODES)
def test_trials_executed_as_declared_are_ok_in_every_mode(mode: str) -> None:
    logs = [episode(expected_ages(build(mode), steps, 6, CHUNK)) for steps in (1, 13, 40)]
    found = executed(logs, mode)
    assert (found.verdict, found.cause, found.n, found.value) == (Verdict.OK, causes.NONE, 3, 0.0)


def test_the_expected_ages_are_those_of_the_definition() -> None:
    assert expected_ages(build("latest"), 7, 6, CHUNK).tolist() == [0.0] * 7
    assert expected_ages(build("receding(3)"), 7, 6, CHUNK).tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert expected_ages(build("whole_chunk"), 12, 6, CHUNK).tolist() == [*range(10), 0, 1]
    assert expected_ages(build("ensemble(0.0)"), 12, 6, CHUNK).tolist() == pytest.approx(
        [0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 4.5, 4.5]
    )


@pytest.mark.parametrize(("ran", "declared"), [(a, b) for a in MODES for b in MODES if a != b])
def test_another_executor_than_the_declared_one_is_broken(ran: str, declared: str) -> None:
    found = executed([episode(expected_ages(build(ran), 40, 6, CHUNK))] * 3, declared)
    assert (found.verdict, found.cause, found.value) == (Verdict.BROKEN, causes.EXECUTION, 3.0)
    assert "3 of 3 trials" in found.sentence


@pytest.mark.parametrize("mode", MODES[1:])
def test_a_queue_that_is_not_reset_between_trials_is_broken(mode: str) -> None:
    ages = expected_ages(build(mode), 80, 6, CHUNK)
    found = executed([episode(ages[:37]), episode(ages[37:])], mode)
    assert (found.verdict, found.value) == (Verdict.BROKEN, 1.0)


@pytest.mark.parametrize("mode", MODES)
def test_an_observation_one_step_old_is_broken(mode: str) -> None:
    assert executed([episode(expected_ages(build(mode), 30, 6, CHUNK) + 1.0)], mode).cause is causes.EXECUTION


def test_commands_at_the_limits_in_many_steps_are_broken_and_in_a_few_are_not() -> None:
    ages = expected_ages(build("receding(5)"), 40, 6, CHUNK)
    many = executed([episode(ages, clipped=0.5)] * 4, "receding(5)")
    assert (many.verdict, many.cause) == (Verdict.BROKEN, causes.EXECUTION)
    assert "50% of all commands were clipped" in many.sentence
    few = executed([episode(ages, clipped=0.1)] * 4, "receding(5)")
    assert few.verdict is Verdict.OK
    assert few.numbers["clipped_share"] == pytest.approx(0.1)
    assert few.numbers["clipped_share"] < CLIPPED_LIMIT


def test_void_trials_and_logs_without_ages_are_not_judged() -> None:
    void = episode([7.0] * 20, outcome=Outcome.void("camera froze"))
    assert executed([void], "latest").verdict is Verdict.NOT_RUN
    assert executed([], "latest").verdict is Verdict.NOT_RUN
    assert executed([void, episode([0.0] * 20)], "latest").n == 1


# Policy


def judged(
    inside: tuple[int, int], outside: tuple[int, int], screen: tuple[int, int] = (95, 96)
) -> CheckResult:
    """Successes and trials inside and outside, and of the screen."""
    good_in, n_in = inside
    good_out, n_out = outside
    in_use = trials(good_out, n_out - good_out, placements=OUTSIDE)
    return check_policy(in_use, trials(good_in, n_in - good_in, seed=500), RANGES, wilson(*screen))


def test_failures_only_outside_the_training_ranges_are_narrow_data() -> None:
    found = judged((23, 24), (6, 18))
    assert (found.verdict, found.cause) == (Verdict.BROKEN, causes.NARROW_DATA)
    assert found.numbers["outside_failures"] == [OUTSIDE] * 12
    assert found.value == pytest.approx(6 / 18 - 23 / 24)
    assert "exact p" in found.sentence


def test_a_drop_outside_that_few_trials_cannot_show_names_how_many_would() -> None:
    found = judged((7, 8), (2, 4))
    assert (found.verdict, found.cause) == (Verdict.CANNOT_TELL, causes.NONE)
    assert found.more_trials is not None
    assert found.more_trials > 4


def test_the_same_rate_inside_outside_and_in_the_screen_is_ok() -> None:
    found = judged((23, 24), (17, 18))
    assert (found.verdict, found.cause) == (Verdict.OK, causes.NONE)


def test_worse_than_the_screen_everywhere_is_a_weak_policy_and_not_narrow_data() -> None:
    found = judged((10, 20), (9, 20))
    assert (found.verdict, found.cause) == (Verdict.BROKEN, causes.POLICY)


def test_better_outside_than_inside_is_no_narrow_data() -> None:
    assert judged((14, 20), (20, 20), (14, 20)).verdict is Verdict.OK


def test_looking_worse_than_the_screen_on_few_trials_is_not_called_the_same() -> None:
    found = judged((2, 3), (0, 0))
    assert found.verdict is Verdict.CANNOT_TELL
    assert found.more_trials is not None
    assert found.more_trials >= 1
    assert "cannot show it" in found.sentence


@pytest.mark.parametrize(("inside", "screen"), [((0, 0), (95, 96)), ((5, 6), (0, 0)), ((0, 0), (0, 0))])
def test_nothing_is_concluded_from_no_trial_or_no_screen(
    inside: tuple[int, int], screen: tuple[int, int]
) -> None:
    found = judged(inside, (0, 0), screen)
    assert (found.verdict, found.value) == (Verdict.CANNOT_TELL, None)
    assert ("The screen" in found.sentence) == (inside[1] > 0)


def test_voids_count_neither_inside_nor_outside() -> None:
    voids = trials(0, 0, void=9, placements=OUTSIDE)
    found = check_policy(voids, trials(12, 0, seed=500), RANGES, wilson(95, 96))
    assert found.verdict is Verdict.OK
    assert found.numbers["outside"] == [0, 0]


@settings(max_examples=40)
@given(
    st.integers(0, 25),
    st.integers(0, 25),
    st.integers(0, 25),
    st.integers(0, 25),
    st.integers(0, 40),
    st.integers(0, 40),
)
def test_narrow_data_is_named_only_when_the_exact_test_says_so_and_nothing_crashes(
    a: int, b: int, c: int, d: int, e: int, f: int
) -> None:
    found = judged((a, a + b), (c, c + d), (e, e + f))
    assert (found.verdict is Verdict.BROKEN) == (found.cause is not causes.NONE)
    if found.cause is causes.NARROW_DATA:
        p_value = exact_independence(c, c + d, a, a + b).p_value
        assert p_value is not None
        assert p_value < SIGNIFICANT
        assert a / (a + b) - c / (c + d) > SHORTFALL
    if found.verdict is Verdict.OK:
        assert a / (a + b) - e / (e + f) >= -SHORTFALL, "a shortfall that matters is never called equal"
    if found.more_trials is not None:
        assert found.more_trials >= 1


def test_the_policy_check_names_narrow_data_on_equal_rates_no_more_often_than_its_level() -> None:
    rng = np.random.default_rng(0)
    fired = 0
    for _ in range(60):
        inside, outside = int(rng.binomial(24, 0.8)), int(rng.binomial(18, 0.8))
        fired += judged((inside, 24), (outside, 18), (80, 100)).cause is causes.NARROW_DATA
    assert fired / 60 <= SIGNIFICANT + 0.04


def test_a_placement_is_covered_up_to_the_margin_of_each_range() -> None:
    margin = COVERAGE_MARGIN * 0.14
    assert is_covered({"target_x_m": 0.15, "target_y_m": 0.07 + 0.9 * margin}, RANGES)
    assert not is_covered({"target_x_m": 0.15, "target_y_m": 0.07 + 1.1 * margin}, RANGES)
    assert not is_covered({"target_y_m": -0.07 - 1.1 * margin}, RANGES)
    assert is_covered({"something_else": 5.0}, RANGES)
