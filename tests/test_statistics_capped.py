"""Designs with a cap: the error is exact, the verdict is early, and nothing is decided beyond what was fixed."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from simgap.errors import UsageError
from simgap.statistics import (
    ComparisonVerdict,
    ScreenVerdict,
    capped_design,
    capped_screen,
    compare_capped,
    compare_unpaired,
    course_of,
    power_of,
    run_screen,
    screen_course,
    screen_verdict,
    sequential_screen_verdict,
    uncapped_screen,
)
from simgap.statistics.capped import _scores
from simgap.types import Outcome

BARS = {"broken_below": 0.5, "worthy_above": 0.7}


@pytest.mark.parametrize("n_max", [5, 20, 60])
def test_equal_independent_arms_are_told_apart_no_more_often_than_the_level_at_any_rate(n_max: int) -> None:
    design = capped_design(n_max)
    for rate in np.linspace(0.003, 0.997, 47):  # none of them is a point the design was made at
        course = course_of(design, rate, rate)
        assert course.chance_new_better == pytest.approx(course.chance_old_better, abs=1e-12)
        assert course.chance_new_better <= 0.025
    # and the error is used
    assert n_max < 20 or max(course_of(design, r, r).chance_new_better for r in (0.2, 0.35, 0.5)) > 0.015


@pytest.mark.parametrize("n_max", [5, 20, 60])
def test_equal_matched_arms_are_told_apart_no_more_often_than_the_level_at_any_discordance(
    n_max: int,
) -> None:
    design = capped_design(n_max, paired=True)
    for discordant in np.linspace(0.003, 1.0, 47):
        assert course_of(design, 0.5, 0.5, discordant).chance_new_better <= 0.025


def test_a_worse_arm_is_called_better_even_less_often() -> None:
    design = capped_design(40)
    errors = [course_of(design, 0.6 - gap, 0.6).chance_new_better for gap in (0.0, 0.05, 0.1, 0.2, 0.4)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-4


@pytest.mark.parametrize("n", [1, 2, 5, 12, 30])
@pytest.mark.parametrize("paired", [False, True])
def test_the_statistic_rises_with_wins_and_mirrors(n: int, paired: bool) -> None:
    z = _scores(n, paired)
    inside = np.add.outer(np.arange(n + 1), np.arange(n + 1)) <= (n if paired else 2 * n)
    rises = (np.diff(z, axis=0) >= 0)[inside[1:]]
    assert rises.all()
    assert np.array_equal(z, -z.T)
    if not paired:
        assert np.allclose(z, z[::-1, ::-1].T)  # successes and failures swapped, arms swapped


def test_the_exact_course_is_what_running_the_design_gives() -> None:
    design, rng = capped_design(30), np.random.default_rng(40)
    course = course_of(design, 0.85, 0.45)
    runs = [
        compare_capped((rng.random(30) < 0.85).tolist(), (rng.random(30) < 0.45).tolist(), design)
        for _ in range(400)
    ]
    assert np.mean([r.verdict is ComparisonVerdict.NEW_BETTER for r in runs]) == pytest.approx(
        course.chance_new_better, abs=0.06
    )
    assert np.mean([r.n for r in runs]) == pytest.approx(course.mean_pairs, abs=1.2)


def test_a_cap_saves_pairs_against_a_fixed_number_and_costs_little_power() -> None:
    course = course_of(capped_design(50), 0.92, 0.56)
    fixed = power_of(0.56, 0.92, 50)
    assert course.chance_new_better > fixed - 0.03
    assert course.mean_pairs < 25


def test_patience_keeps_power_and_costs_a_few_pairs_at_the_same_error() -> None:
    hasty, patient = capped_design(40), capped_design(40, spending=2.0)
    assert (
        max(course_of(patient, rate, rate).chance_new_better for rate in np.linspace(0.01, 0.99, 33)) <= 0.025
    )
    early, late = course_of(hasty, 0.9, 0.65), course_of(patient, 0.9, 0.65)
    assert late.chance_new_better > early.chance_new_better + 0.02
    assert early.mean_pairs < late.mean_pairs < early.mean_pairs + 4
    plan, slow = capped_screen(100, **BARS), capped_screen(100, **BARS, spending=2.0)
    assert screen_course(slow, 0.5).chance_broken <= 0.025
    assert screen_course(slow, 0.35).chance_broken > screen_course(plan, 0.35).chance_broken
    for wrong in (lambda: capped_design(10, spending=0.5), lambda: capped_screen(10, **BARS, spending=11.0)):
        with pytest.raises(UsageError, match="spending"):
            wrong()


def test_a_known_cap_decides_sooner_than_no_cap() -> None:
    rng, design = np.random.default_rng(41), capped_design(60)
    capped, open_ended = [], []
    for _ in range(60):
        new, old = (rng.random(60) < 0.8).tolist(), (rng.random(60) < 0.45).tolist()
        capped.append(compare_capped(new, old, design).n)
        open_ended.append(compare_unpaired(new, old).stopped_at or 60)
    assert np.mean(capped) < np.mean(open_ended) - 2


def test_undecided_is_final_only_at_the_cap() -> None:
    design = capped_design(20)
    half, whole = (
        compare_capped([True] * 10, [True] * 10, design),
        compare_capped([True] * 30, [True] * 30, design),
    )
    assert (half.verdict, half.finished, half.n) == (ComparisonVerdict.UNDECIDED, False, 10)
    assert (whole.verdict, whole.finished, whole.n) == (ComparisonVerdict.UNDECIDED, True, 20)
    early = compare_capped([True] * 20, [False] * 20, design)
    assert early.verdict is ComparisonVerdict.NEW_BETTER
    assert early.n == early.difference.n < 10
    assert early.difference.anytime
    assert early.difference.point == 1.0
    assert compare_capped([], [], design).n == 0
    assert not compare_capped([], [], design).difference.is_defined
    assert "20 pairs" in early.method


def test_concordant_pairs_do_not_move_a_paired_design() -> None:
    assert _scores(8, True)[6, 2] == _scores(30, True)[6, 2] == pytest.approx(4 / math.sqrt(8), abs=1e-8)
    design = capped_design(40, paired=True)
    plain = compare_capped([True] * 12, [False] * 12, design)
    padded = compare_capped([True] * 5 + [True] * 12, [True] * 5 + [False] * 12, design)
    assert plain.verdict is padded.verdict is ComparisonVerdict.NEW_BETTER
    assert padded.n - 5 <= plain.n <= 10


def test_with_one_or_two_pairs_nothing_is_ever_decided() -> None:
    for n_max in (1, 2):
        assert np.isinf(capped_design(n_max).cuts).all()


def test_impossible_designs_and_questions_are_refused() -> None:
    design = capped_design(20)
    for wrong in [
        lambda: capped_design(0),
        lambda: capped_design(301),
        lambda: design.verdict(1, 1, 21),
        lambda: design.verdict(5, 1, 4),
    ]:
        with pytest.raises(UsageError, match=r"cap of|impossible"):
            wrong()
    with pytest.raises(UsageError, match="discordant"):
        course_of(design, 0.5, 0.5, 0.2)
    with pytest.raises(UsageError, match="cannot differ"):
        course_of(capped_design(20, paired=True), 0.9, 0.9, 0.5)
    with pytest.raises(UsageError, match="equal length"):
        compare_capped([True], [], design)


@pytest.mark.parametrize("make", [capped_screen, uncapped_screen])
@pytest.mark.parametrize("n_max", [1, 20, 150])
def test_a_screen_is_wrong_about_a_policy_at_its_bar_no_more_often_than_half_the_level(
    make: Any, n_max: int
) -> None:
    plan = make(n_max, **BARS)
    assert screen_course(plan, 0.5).chance_broken <= 0.025
    assert screen_course(plan, 0.7 - 1e-12).chance_worthy <= 0.025
    courses = [screen_course(plan, rate) for rate in np.linspace(0.0, 1.0, 21)]
    assert all(a.chance_broken >= b.chance_broken - 1e-12 for a, b in itertools.pairwise(courses))
    assert all(a.chance_worthy <= b.chance_worthy + 1e-12 for a, b in itertools.pairwise(courses))


def test_a_capped_screen_spends_nearly_all_of_its_error_and_no_more() -> None:
    assert 0.02 < screen_course(capped_screen(150, **BARS), 0.5).chance_broken <= 0.025


@settings(max_examples=30)
@given(st.integers(2, 80), st.floats(0.1, 0.6), st.floats(0.0, 0.3))
def test_the_bounds_of_a_plan_never_cross_and_never_retreat(n_max: int, low: float, gap: float) -> None:
    plan = capped_screen(n_max, broken_below=low, worthy_above=low + gap)
    for n, (broken, worthy) in enumerate(zip(plan.broken_at, plan.worthy_at, strict=True), start=1):
        assert -1 <= broken < worthy <= n + 1
    assert list(plan.broken_at) == sorted(plan.broken_at)
    spare = [n - worthy for n, worthy in enumerate(plan.worthy_at, start=1)]
    assert spare == sorted(spare)


def test_the_course_of_a_screen_is_what_running_it_gives() -> None:
    plan, rng = capped_screen(60, **BARS), np.random.default_rng(42)
    course = screen_course(plan, 0.85)
    runs = [
        run_screen(
            plan, [Outcome.success() if hit else Outcome.failure("dropped") for hit in rng.random(60) < 0.85]
        )
        for _ in range(500)
    ]
    assert np.mean([r.verdict is ScreenVerdict.WORTH_HARDWARE_TIME for r in runs]) == pytest.approx(
        course.chance_worthy, abs=0.06
    )
    assert np.mean([r.rollouts for r in runs]) == pytest.approx(course.mean_rollouts, abs=2.0)
    assert course.chance_broken + course.chance_worthy <= 1


def test_an_early_stop_saves_half_the_rollouts_of_a_broken_policy_and_little_power() -> None:
    plan, ks = capped_screen(100, **BARS), np.arange(101)
    course = screen_course(plan, 0.3)
    fixed = sum(
        binom.pmf(k, 100, 0.3) for k in ks if screen_verdict(int(k), 100, **BARS) is ScreenVerdict.BROKEN
    )
    assert course.mean_rollouts < 50
    assert course.chance_broken > fixed - 0.03


def test_a_screen_runs_no_rollout_after_its_verdict_and_counts_voids_beside() -> None:
    def rollouts() -> Any:
        yield Outcome.void("renderer died")
        for _ in range(30):
            yield Outcome.failure("dropped")
        raise AssertionError("ran on after the verdict")

    run = run_screen(capped_screen(100, **BARS), rollouts())
    assert run.verdict is ScreenVerdict.BROKEN
    assert run.finished
    assert run.voids == 1
    assert run.rollouts == run.rate.n + 1 < 12
    assert run.rate.anytime


def test_a_screen_without_rollouts_is_undecided_with_a_reason() -> None:
    run = run_screen(capped_screen(100, **BARS), [Outcome.void("renderer died")])
    assert (run.verdict, run.finished, run.rate.point, run.voids) == (ScreenVerdict.UNDECIDED, False, None, 1)


def test_the_screen_without_a_cap_agrees_with_its_table_and_needs_more_than_one_rollout() -> None:
    plan = uncapped_screen(40, **BARS)
    for n in range(0, 41, 5):
        for k in range(n + 1):
            assert plan.verdict(k, n) is sequential_screen_verdict(k, n, **BARS)
    assert [sequential_screen_verdict(0, n, **BARS) for n in (0, 1, 7, 8)] == [
        ScreenVerdict.UNDECIDED
    ] * 3 + [ScreenVerdict.BROKEN]
    assert sequential_screen_verdict(14, 14, **BARS) is ScreenVerdict.UNDECIDED
    assert sequential_screen_verdict(15, 15, **BARS) is ScreenVerdict.WORTH_HARDWARE_TIME


def test_looking_repeatedly_at_the_fixed_n_screen_is_what_these_plans_avoid() -> None:
    k = np.cumsum(np.random.default_rng(43).random((1500, 150)) < 0.5, axis=1)
    n = np.arange(1, 151)
    # upper Clopper-Pearson end below .5, looked at every time
    peeked = (binom.cdf(k, n, 0.5) < 0.025).any(axis=1).mean()
    assert peeked > 0.08
    plan = np.array(capped_screen(150, **BARS).broken_at)
    assert (k <= plan).any(axis=1).mean() <= 0.025 + 3 * math.sqrt(0.025 / 1500)


def test_impossible_screens_are_refused() -> None:
    for wrong in [
        lambda: capped_screen(0, **BARS),
        lambda: capped_screen(10, broken_below=0.9, worthy_above=0.5),
        lambda: sequential_screen_verdict(1, 2, broken_below=0.0, worthy_above=0.5),
        lambda: capped_screen(10, **BARS).verdict(3, 11),
        lambda: screen_course(capped_screen(10, **BARS), 1.5),
    ]:
        with pytest.raises(UsageError):
            wrong()
