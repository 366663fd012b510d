"""Intervals of one rate: published values, exact coverage, and what they say when there is nothing to say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from simgap.errors import UsageError
from simgap.statistics import (
    Tally,
    beta_mixture,
    clopper_pearson,
    clopper_pearson_bound,
    jeffreys,
    tally,
    wilson,
)
from simgap.types import Outcome

METHODS = [wilson, clopper_pearson, jeffreys, beta_mixture]


@st.composite
def counts(draw: st.DrawFn) -> tuple[int, int]:
    n = draw(st.integers(1, 300))
    return draw(st.integers(0, n)), n


def test_known_values_hold_without_the_reference_files() -> None:
    assert (wilson(28, 50).low, wilson(28, 50).high) == pytest.approx((0.4230602802, 0.6883780079), abs=1e-9)
    assert (clopper_pearson(28, 50).low, clopper_pearson(28, 50).high) == pytest.approx(
        (0.4125441229, 0.7000927791), abs=1e-9
    )


@pytest.mark.parametrize("method", METHODS)
def test_no_trials_means_no_interval_and_a_reason(method: Any) -> None:
    estimate = method(0, 0)
    assert (estimate.point, estimate.low, estimate.high) == (None, None, None)
    assert not estimate.is_defined
    assert "n = 0" in estimate.reason
    assert "undefined" in str(estimate)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n", [1, 2, 10, 400])
def test_all_or_none_ends_at_exactly_zero_or_one_and_never_collapses(method: Any, n: int) -> None:
    none, every = method(0, n), method(n, n)
    assert none.low == 0.0
    assert none.high > 0.0
    assert every.high == 1.0
    assert every.low < 1.0


@pytest.mark.parametrize("n", [1, 7, 20, 40])
def test_exact_interval_covers_at_least_the_nominal_rate_everywhere(n: int) -> None:
    assert _coverage(clopper_pearson, n, np.linspace(0.0, 1.0, 501)).min() >= 0.95 - 1e-12


@pytest.mark.parametrize("method", [wilson, jeffreys])
def test_intervals_for_display_cover_the_nominal_rate_on_average_but_not_everywhere(method: Any) -> None:
    coverage = _coverage(method, 20, np.linspace(0.02, 0.98, 97))
    assert 0.945 < coverage.mean() < 0.965
    assert coverage.min() < 0.95


@pytest.mark.parametrize("side", ["lower", "upper"])
@pytest.mark.parametrize("n", [1, 7, 20])
def test_a_one_sided_bound_covers_at_least_its_level_and_is_not_the_two_sided_one(side: Any, n: int) -> None:
    coverage = _coverage(lambda k, m: clopper_pearson_bound(k, m, 0.95, side), n, np.linspace(0.0, 1.0, 401))
    assert coverage.min() >= 0.95 - 1e-12
    assert clopper_pearson_bound(n, n).low == pytest.approx(0.05 ** (1 / n))
    two_sided, bound = clopper_pearson(n, n), clopper_pearson_bound(n, n)
    assert two_sided.low is not None
    assert bound.low is not None
    assert two_sided.low < bound.low
    assert clopper_pearson_bound(n - 1, n, 0.975).low == pytest.approx(clopper_pearson(n - 1, n).low)


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=40)
@given(counts(), st.sampled_from([0.8, 0.95, 0.99]))
def test_every_interval_holds_its_point_and_mirrors_successes_and_failures(
    method: Any, count: tuple[int, int], level: float
) -> None:
    k, n = count
    estimate, mirror = method(k, n, level), method(n - k, n, level)
    assert 0.0 <= estimate.low <= k / n <= estimate.high <= 1.0
    assert (estimate.low, estimate.high) == pytest.approx((1 - mirror.high, 1 - mirror.low), abs=1e-9)


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=40)
@given(counts())
def test_one_success_more_never_lowers_an_end_and_more_confidence_never_shortens(
    method: Any, count: tuple[int, int]
) -> None:
    k, n = count
    estimate, wider = method(k, n, 0.9), method(k, n, 0.95)
    assert wider.low <= estimate.low + 1e-12
    assert estimate.high <= wider.high + 1e-12
    if k < n:
        better = method(k + 1, n, 0.9)
        assert estimate.low <= better.low
        assert estimate.high <= better.high


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=40)
@given(counts(), st.integers(2, 5))
def test_more_trials_of_the_same_rate_shorten_the_interval(
    method: Any, count: tuple[int, int], factor: int
) -> None:
    k, n = count
    small, large = method(k, n), method(factor * k, factor * n)
    assert large.high - large.low < small.high - small.low


@pytest.mark.parametrize("method", [*METHODS, clopper_pearson_bound])
@pytest.mark.parametrize(("k", "n"), [(-1, 3), (4, 3), (0, -1)])
def test_impossible_counts_are_refused(method: Any, k: int, n: int) -> None:
    with pytest.raises(UsageError, match="impossible"):
        method(k, n)


@pytest.mark.parametrize("method", [*METHODS, clopper_pearson_bound])
def test_an_impossible_confidence_is_refused(method: Any) -> None:
    with pytest.raises(UsageError, match="confidence"):
        method(1, 2, 95)


def test_only_the_interval_that_may_be_looked_at_says_so() -> None:
    assert [method(3, 7).anytime for method in METHODS] == [False, False, False, True]


def test_voids_stand_beside_the_rate_and_not_inside_it() -> None:
    counts = tally(
        [
            Outcome.success(),
            Outcome.failure("dropped"),
            Outcome.failure("missed"),
            Outcome.failure("missed"),
            Outcome.void("camera froze"),
        ]
    )
    assert (counts.successes, counts.n, counts.void_count) == (1, 4, 1)
    assert list(counts.failures.items()) == [("missed", 2), ("dropped", 1)]
    assert counts.voids == {"camera froze": 1}
    assert counts.estimate().n == 4


def test_an_empty_tally_has_an_undefined_rate() -> None:
    assert tally([]) == Tally()
    assert Tally().estimate().point is None


def _coverage(method: Any, n: int, rates: Any) -> Any:
    """Probability that the interval holds the rate, by exact enumeration, for each rate."""
    ks = np.arange(n + 1)
    estimates = [method(int(k), n) for k in ks]
    low, high = np.array([e.low for e in estimates]), np.array([e.high for e in estimates])
    p = np.asarray(rates)[:, None]
    return (binom.pmf(ks, n, p) * ((low <= p) & (p <= high))).sum(axis=1)


def test_an_outcome_that_nobody_recorded_is_counted_neither_as_a_trial_nor_as_a_void() -> None:
    counts = tally(
        [Outcome.success(), Outcome.not_recorded(), Outcome.void("frozen"), Outcome.not_recorded()]
    )
    assert (counts.n, counts.unrecorded, dict(counts.voids)) == (1, 2, {"frozen": 1})
