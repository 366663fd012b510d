"""Differences of two rates, unpaired and paired: published values and exact coverage."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom, multinomial

from simgap.errors import UsageError
from simgap.statistics import PairCounts, exact_independence, newcombe_difference, pair_outcomes, paired_difference, tango_interval
from simgap.types import Outcome


def test_known_paired_values_hold_without_the_reference_files() -> None:
    paired = paired_difference(26, 20, 2, 2)
    assert paired.p_value == pytest.approx(1.211166e-4, abs=1e-9)
    assert (paired.difference.low, paired.difference.high) == pytest.approx((0.197623, 0.510564), abs=1e-6)


@pytest.mark.parametrize(("p10", "p01"), [(0.1, 0.1), (0.3, 0.1), (0.05, 0.4), (0.45, 0.45), (0.2, 0.02)])
def test_paired_interval_covers_near_the_nominal_rate(p10: float, p01: float) -> None:
    n, total = 20, 0.0
    law = multinomial(n, [p10, p01, 1 - p10 - p01])
    for n10 in range(n + 1):
        for n01 in range(n + 1 - n10):
            low, high = tango_interval(n10, n01, n)
            total += float(law.pmf([n10, n01, n - n10 - n01])) * (low <= p10 - p01 <= high)
    assert 0.93 < total < 0.985


@pytest.mark.parametrize(("p1", "p2"), [(0.5, 0.5), (0.8, 0.6), (0.3, 0.9)])
def test_unpaired_interval_covers_near_the_nominal_rate(p1: float, p2: float) -> None:
    n, ks = 15, np.arange(16)
    weights = np.outer(binom.pmf(ks, n, p1), binom.pmf(ks, n, p2))
    intervals = [[newcombe_difference(int(a), n, int(b), n) for b in ks] for a in ks]
    inside = [[d.low is not None and d.high is not None and d.low <= p1 - p2 <= d.high for d in row] for row in intervals]
    assert 0.93 < float((weights * np.array(inside)).sum()) < 0.985


@pytest.mark.parametrize(("n10", "n01", "n"), [(0, 0, 1), (0, 0, 10), (1, 0, 1), (10, 0, 10), (0, 10, 10), (3, 2, 9)])
def test_paired_interval_holds_its_point_stays_in_bounds_and_mirrors(n10: int, n01: int, n: int) -> None:
    low, high = tango_interval(n10, n01, n)
    assert -1.0 <= low <= (n10 - n01) / n <= high <= 1.0
    assert low < high
    assert tango_interval(n01, n10, n) == pytest.approx((-high, -low), abs=1e-10)


def test_agreement_on_every_pair_is_not_proof_of_equality() -> None:
    paired = paired_difference(10, 0, 0, 0)
    assert paired.p_value == 1.0
    assert paired.difference.point == 0.0
    assert paired.difference.low is not None
    assert paired.difference.low < -0.2


def test_no_pairs_means_no_difference_and_a_reason() -> None:
    paired = paired_difference(0, 0, 0, 0, dropped=3)
    assert paired.p_value is None
    assert not paired.difference.is_defined
    assert "n = 0" in paired.difference.reason
    assert paired.counts.dropped == 3


def test_an_arm_without_trials_makes_the_difference_undefined() -> None:
    assert newcombe_difference(0, 0, 3, 5).point is None
    assert exact_independence(0, 0, 3, 5).p_value is None
    assert exact_independence(5, 5, 7, 7).p_value == 1.0


def test_pairs_with_a_void_or_a_missing_side_are_dropped_and_counted() -> None:
    good, bad, void = Outcome.success(), Outcome.failure("dropped"), Outcome.void("camera froze")
    new = {1: good, 2: good, 3: bad, 4: void, 5: bad, 7: good}
    old = {1: good, 2: bad, 3: good, 4: good, 5: bad, 6: good}
    assert pair_outcomes(new=new, old=old) == PairCounts(n11=1, n10=1, n01=1, n00=1, dropped=3)


def test_impossible_tables_and_unknown_tests_are_refused() -> None:
    with pytest.raises(UsageError, match="negative"):
        paired_difference(1, -1, 0, 0)
    with pytest.raises(UsageError, match="boschloo"):
        exact_independence(1, 2, 1, 2, method="chi")
