"""Every public interval covers what it promises and every test errs as rarely as it promises, or its docstring says the measured figure."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simgap.statistics as statistics
from simgap.statistics import (
    agreement_of_counts,
    average_rate_exact,
    beta_mixture,
    clopper_pearson,
    clopper_pearson_bound,
    exact_independence,
    jeffreys,
    mcnemar,
    miettinen_nurminen,
    newcombe_difference,
    paired_difference,
    tango_interval,
    wilson,
)

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from coverage import ROWS, SMALL, TABLE, Row, measured

IDS = [f"{row.names[0]}: {row.what}" for row in ROWS]

NEITHER_INTERVAL_NOR_TEST = {
    "course_of": "exact chances of a design",
    "design_effect": "a point",
    "detectable_rise": "about a plan",
    "detectable_rise_paired": "about a plan",
    "dip_statistic": "a point",
    "failures_allowed": "a count that follows from clopper_pearson_bound",
    "leave_one_out": "the range over the policies left out",
    "limits_of": "about a plan",
    "mmrv": "a point",
    "ordered_pairs": "outcomes in order",
    "pair_outcomes": "a table of counts",
    "pearson": "a point",
    "perfect_run_for": "about a plan",
    "power_of": "the chance of a test",
    "power_of_paired": "the chance of a test",
    "rejects_schedule": "about a plan",
    "score_statistic": "the statistic of miettinen_nurminen",
    "screen_course": "exact chances of a plan",
    "spearman": "a point",
    "tally": "counts",
    "trials_for_width": "about a plan",
    "trials_needed": "about a plan",
    "visible_difference": "about a plan",
    "what_n_cannot_show": "words about a plan",
    "width_of": "about a plan",
}
"""Public functions that return neither, and what they return."""


def test_every_public_interval_and_test_stands_in_a_row_of_the_table() -> None:
    measured_names = {name for row in ROWS for name in row.names}
    public = {
        name
        for name in statistics.__all__
        if inspect.isfunction(getattr(statistics, name)) or hasattr(getattr(statistics, name), "__wrapped__")
    }
    unknown = public - measured_names - NEITHER_INTERVAL_NOR_TEST.keys()
    assert not unknown, f"{sorted(unknown)}: add a row to benchmarks/coverage_fixed.py or coverage_drawn.py"
    assert not measured_names & NEITHER_INTERVAL_NOR_TEST.keys()


def test_a_row_that_misses_its_promise_says_the_measured_figure_in_its_docstring() -> None:
    for row in ROWS:
        if row.documented is not None:
            words = getattr(statistics, row.names[0]).__doc__ or ""
            assert f"{row.documented:g}".removeprefix("0") in words, (
                f"{row.names[0]} does not say {row.documented:g}"
            )


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_an_interval_or_test_keeps_its_promise_in_a_small_measurement(row: Row) -> None:
    worst, _ = measured(row, SMALL)
    assert row.holds(worst), f"{worst} where {row.promise:g} is promised"


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_an_interval_or_test_keeps_its_promise_under_every_truth_of_the_table(row: Row) -> None:
    worst, _ = measured(row, TABLE)
    assert row.holds(worst), f"{worst} where {row.promise:g} is promised"


def test_the_check_of_a_promise_can_fail() -> None:
    def too_short(k: int, n: int) -> Any:
        found = clopper_pearson(k, n, 0.8)
        return found

    from coverage_rows import one_rate

    row = Row(
        names=("too_short",),
        what="a planted one",
        promise=0.95,
        is_interval=True,
        measure=one_rate(too_short, (10, 60)),
    )
    assert not row.holds(measured(row, SMALL)[0])


@st.composite
def counts(draw: st.DrawFn) -> tuple[int, int]:
    n = draw(st.integers(1, 80))
    return draw(st.integers(0, n)), n


RATES = (wilson, jeffreys, clopper_pearson, beta_mixture)


@pytest.mark.parametrize("method", RATES)
@given(case=counts())
def test_an_interval_of_a_rate_mirrors_rises_and_nests(method: Any, case: tuple[int, int]) -> None:
    k, n = case
    found, mirror = method(k, n), method(n - k, n)
    assert (found.low, found.high) == pytest.approx((1 - mirror.high, 1 - mirror.low), abs=1e-9)
    wider = method(k, n, 0.99)
    assert wider.low <= found.low + 1e-12
    assert found.high <= wider.high + 1e-12
    assert found.low - 1e-12 <= k / n <= found.high + 1e-12
    if k < n:
        more = method(k + 1, n)
        assert more.low >= found.low - 1e-12
        assert more.high >= found.high - 1e-12


@given(counts(), counts())
def test_an_interval_of_a_difference_turns_its_sign_with_the_arms_and_mirrors(
    first: tuple[int, int], second: tuple[int, int]
) -> None:
    for method in (newcombe_difference, miettinen_nurminen):
        found, swapped = method(*first, *second), method(*second, *first)
        flipped = method(first[1] - first[0], first[1], second[1] - second[0], second[1])
        for other in (swapped, flipped):
            assert (found.low, found.high) == pytest.approx(
                (-(other.high or 0.0), -(other.low or 0.0)), abs=1e-7
            )
        wider = method(*first, *second, 0.99)
        assert (wider.low or 0.0) <= (found.low or 0.0) + 1e-9
        assert (found.high or 0.0) <= (wider.high or 0.0) + 1e-9


@given(st.tuples(*[st.integers(0, 15)] * 4))
def test_paired_intervals_turn_their_sign_with_the_arms_and_agree_with_the_test(
    table: tuple[int, int, int, int],
) -> None:
    if not sum(table):
        return
    n11, n10, n01, n00 = table
    found, swapped = paired_difference(n11, n10, n01, n00), paired_difference(n11, n01, n10, n00)
    assert (found.difference.low, found.difference.high) == pytest.approx(
        (-(swapped.difference.high or 0.0), -(swapped.difference.low or 0.0)), abs=1e-9
    )
    assert found.p_value == swapped.p_value == mcnemar(n10, n01).p_value
    excludes_zero = (found.difference.low or 0.0) > 0 or (found.difference.high or 0.0) < 0
    assert excludes_zero == ((found.p_value or 1.0) < 0.05)
    low, high = tango_interval(n10, n01, sum(table), 0.9)
    outer = tango_interval(n10, n01, sum(table), 0.99)
    assert outer[0] <= low + 1e-9
    assert high <= outer[1] + 1e-9


@given(st.integers(1, 12), st.integers(1, 12), st.data())
def test_exact_tests_do_not_know_which_outcome_is_called_a_success(
    n1: int, n2: int, data: st.DataObject
) -> None:
    k1, k2 = data.draw(st.integers(0, n1)), data.draw(st.integers(0, n2))
    p = exact_independence(k1, n1, k2, n2, "fisher").p_value
    assert p == pytest.approx(exact_independence(n1 - k1, n1, n2 - k2, n2, "fisher").p_value)
    assert p == pytest.approx(exact_independence(k2, n2, k1, n1, "fisher").p_value)


@given(st.lists(counts(), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_an_exact_average_mirrors_nests_and_does_not_know_the_order_of_tasks(
    tasks: list[tuple[int, int]], random: Any
) -> None:
    found, mirror = average_rate_exact(tasks), average_rate_exact([(n - k, n) for k, n in tasks])
    shuffled = list(tasks)
    random.shuffle(shuffled)
    again, wider = average_rate_exact(shuffled), average_rate_exact(tasks, confidence=0.99)
    assert (found.low, found.high) == pytest.approx(
        (1 - (mirror.high or 0.0), 1 - (mirror.low or 0.0)), abs=1e-8
    )
    assert (found.low, found.high) == pytest.approx((again.low, again.high), abs=1e-8)
    assert (wider.low or 0.0) <= (found.low or 0.0) + 1e-9
    assert (found.low or 0.0) <= (found.point or 0.0) + 1e-9
    assert (found.point or 0.0) <= (found.high or 0.0) + 1e-9


def test_an_exact_average_of_equal_tasks_is_the_interval_of_the_pooled_count() -> None:
    pooled, found = clopper_pearson(23, 30), average_rate_exact([(9, 10), (8, 10), (6, 10)])
    assert (found.low, found.high) == (pooled.low, pooled.high)
    unequal = average_rate_exact([(9, 10), (14, 20)])
    assert 0.35 < (unequal.high or 0.0) - (unequal.low or 0.0) < 0.6
    assert average_rate_exact([(5, 5), (7, 7)]).high == 1.0
    assert not average_rate_exact([]).is_defined
    assert not average_rate_exact([(0, 0), (1, 2)]).is_defined


@given(case=counts(), confidence=st.sampled_from([0.5, 0.9, 0.95, 0.999]))
def test_a_one_sided_bound_is_an_end_of_the_two_sided_interval_at_twice_the_error(
    case: tuple[int, int], confidence: float
) -> None:
    both = clopper_pearson(*case, 2 * confidence - 1) if confidence > 0.5 else None
    if both is not None:
        assert clopper_pearson_bound(*case, confidence).low == pytest.approx(both.low, abs=1e-12)
        assert clopper_pearson_bound(*case, confidence, "upper").high == pytest.approx(both.high, abs=1e-12)


def _policies(rates: Iterator[tuple[int, int]], n: int) -> list[statistics.PolicyPair]:
    return [
        statistics.PolicyPair(name=str(i), real_successes=r, real_n=n, sim_successes=s, sim_n=n)
        for i, (r, s) in enumerate(rates)
    ]


@pytest.mark.parametrize(
    "counted",
    [[(0, 0), (5, 5), (10, 10)], [(10, 10)] * 3, [(9, 10), (10, 10), (10, 9), (8, 10)], [(0, 10), (10, 0)]],
)
def test_an_agreement_always_lies_inside_its_own_interval(counted: list[tuple[int, int]]) -> None:
    found = agreement_of_counts(_policies(iter(counted), 10), rng=np.random.default_rng(3))
    for quantity in (found.pearson, found.spearman, found.mmrv, found.bias, found.regret):
        if quantity.low is not None and quantity.high is not None and quantity.point is not None:
            assert quantity.low <= quantity.point + 1e-12
            assert quantity.point <= quantity.high + 1e-12


def test_a_perfect_simulator_keeps_a_perfect_score_possible() -> None:
    rng = np.random.default_rng(4)
    rates = np.array([0.1, 0.3, 0.45, 0.6, 0.75, 0.9])
    for _ in range(5):
        counted = zip(rng.binomial(20, rates).tolist(), rng.binomial(20, rates).tolist(), strict=True)
        found = agreement_of_counts(_policies(counted, 20), rng=rng)
        assert (found.pearson.high or 0.0) > 0.98
        assert (found.spearman.high or 0.0) == pytest.approx(1.0)
        assert (found.mmrv.low or 0.0) < 0.01
