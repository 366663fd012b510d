"""Intervals of one rate: published values, exact coverage, and what they say when there is nothing to say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from simgap.errors import UsageError
from simgap.statistics import Tally, clopper_pearson, tally, wilson
from simgap.types import Outcome


def test_known_values_hold_without_the_reference_files() -> None:
    assert (wilson(28, 50).low, wilson(28, 50).high) == pytest.approx((0.4230602802, 0.6883780079), abs=1e-9)
    assert (clopper_pearson(28, 50).low, clopper_pearson(28, 50).high) == pytest.approx((0.4125441229, 0.7000927791), abs=1e-9)


@pytest.mark.parametrize("method", [wilson, clopper_pearson])
def test_no_trials_means_no_interval_and_a_reason(method: Any) -> None:
    estimate = method(0, 0)
    assert (estimate.point, estimate.low, estimate.high) == (None, None, None)
    assert not estimate.is_defined
    assert "n = 0" in estimate.reason
    assert "undefined" in str(estimate)


@pytest.mark.parametrize("method", [wilson, clopper_pearson])
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


def test_wilson_covers_the_nominal_rate_on_average_but_not_everywhere() -> None:
    coverage = _coverage(wilson, 20, np.linspace(0.02, 0.98, 97))
    assert 0.945 < coverage.mean() < 0.965
    assert coverage.min() < 0.95


@pytest.mark.parametrize(("k", "n"), [(-1, 3), (4, 3), (0, -1)])
def test_impossible_counts_are_refused(k: int, n: int) -> None:
    with pytest.raises(UsageError, match="impossible"):
        wilson(k, n)


def test_an_impossible_confidence_is_refused() -> None:
    with pytest.raises(UsageError, match="confidence"):
        clopper_pearson(1, 2, 95)


def test_voids_stand_beside_the_rate_and_not_inside_it() -> None:
    counts = tally([Outcome.success(), Outcome.failure("dropped"), Outcome.failure("missed"), Outcome.failure("missed"), Outcome.void("camera froze")])
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
