"""Differences of two rates, unpaired and paired: published values and exact coverage."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, binomtest, multinomial

from simgap.errors import UsageError
from simgap.statistics import (
    PairCounts,
    exact_independence,
    mcnemar,
    miettinen_nurminen,
    newcombe_difference,
    newcombe_paired,
    non_inferiority,
    pair_outcomes,
    paired_difference,
    score_statistic,
    tango_interval,
)
from simgap.types import Outcome

UNPAIRED = [newcombe_difference, miettinen_nurminen]


@st.composite
def two_arms(draw: st.DrawFn) -> tuple[int, int, int, int]:
    n1, n2 = draw(st.integers(1, 60)), draw(st.integers(1, 60))
    return draw(st.integers(0, n1)), n1, draw(st.integers(0, n2)), n2


@st.composite
def pair_tables(draw: st.DrawFn) -> tuple[int, int, int, int]:
    cells = draw(st.lists(st.integers(0, 30), min_size=4, max_size=4).filter(sum))
    return cells[0], cells[1], cells[2], cells[3]


def test_known_paired_values_hold_without_the_reference_files() -> None:
    paired = paired_difference(26, 20, 2, 2)
    assert paired.p_value == pytest.approx(1.211166e-4, abs=1e-9)
    assert tango_interval(20, 2, 50) == pytest.approx((0.197623, 0.510564), abs=1e-6)


@pytest.mark.parametrize(("p10", "p01"), [(0.1, 0.1), (0.3, 0.1), (0.05, 0.4), (0.45, 0.45), (0.2, 0.02)])
def test_paired_interval_covers_near_the_nominal_rate(p10: float, p01: float) -> None:
    n, total = 20, 0.0
    law = multinomial(n, [p10, p01, 1 - p10 - p01])
    for n10 in range(n + 1):
        for n01 in range(n + 1 - n10):
            low, high = tango_interval(n10, n01, n)
            total += float(law.pmf([n10, n01, n - n10 - n01])) * (low <= p10 - p01 <= high)
    assert 0.93 < total < 0.985


@pytest.mark.parametrize("method", UNPAIRED)
@pytest.mark.parametrize(("p1", "p2"), [(0.5, 0.5), (0.8, 0.6), (0.3, 0.9)])
def test_unpaired_interval_covers_near_the_nominal_rate(method: Any, p1: float, p2: float) -> None:
    n, ks = 12, np.arange(13)
    weights = np.outer(binom.pmf(ks, n, p1), binom.pmf(ks, n, p2))
    intervals = [[method(int(a), n, int(b), n) for b in ks] for a in ks]
    inside = [
        [d.low is not None and d.high is not None and d.low <= p1 - p2 <= d.high for d in row]
        for row in intervals
    ]
    assert 0.93 < float((weights * np.array(inside)).sum()) < 0.985


@pytest.mark.parametrize(
    ("n10", "n01", "n"), [(0, 0, 1), (0, 0, 10), (1, 0, 1), (10, 0, 10), (0, 10, 10), (3, 2, 9)]
)
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


@pytest.mark.parametrize("method", UNPAIRED)
@settings(max_examples=25)
@given(two_arms())
def test_unpaired_intervals_hold_their_point_stay_in_bounds_and_mirror(
    method: Any, arms: tuple[int, int, int, int]
) -> None:
    k1, n1, k2, n2 = arms
    difference, swapped, failures = method(*arms), method(k2, n2, k1, n1), method(n1 - k1, n1, n2 - k2, n2)
    assert -1.0 <= difference.low <= k1 / n1 - k2 / n2 <= difference.high <= 1.0
    assert difference.low < difference.high
    for other in (swapped, failures):
        assert (difference.low, difference.high) == pytest.approx((-other.high, -other.low), abs=1e-8)
    assert difference.n == n1 + n2


@settings(max_examples=60)
@given(two_arms(), st.floats(-0.95, 0.9))
def test_the_score_falls_as_the_tested_difference_rises(
    arms: tuple[int, int, int, int], delta: float
) -> None:
    assert score_statistic(*arms, delta) >= score_statistic(*arms, delta + 0.05) - 1e-9


def test_the_score_without_a_difference_is_the_pooled_statistic() -> None:
    pooled = 17 / 30
    z = (12 / 18 - 5 / 12) / np.sqrt(pooled * (1 - pooled) * (1 / 18 + 1 / 12))
    assert score_statistic(12, 18, 5, 12, 0.0, small_sample=False) == pytest.approx(z, abs=1e-9)


def test_not_worse_by_a_margin_agrees_with_the_interval() -> None:
    for k_new in range(30, 41):
        low = miettinen_nurminen(k_new, 40, 36, 40, 0.9).low
        p_value = non_inferiority(k_new, 40, 36, 40, margin=0.1).p_value
        assert low is not None
        assert p_value is not None
        assert (low > -0.1) == (p_value < 0.05)
    assert non_inferiority(20, 40, 20, 40, margin=0.0).p_value == pytest.approx(0.5)
    assert non_inferiority(0, 0, 20, 40, margin=0.1).p_value is None
    with pytest.raises(UsageError, match="margin"):
        non_inferiority(1, 2, 1, 2, margin=10)


def test_a_perfect_small_run_does_not_show_that_nothing_was_lost() -> None:
    assert (non_inferiority(10, 10, 10, 10, margin=0.1).p_value or 0) > 0.1
    assert (non_inferiority(100, 100, 100, 100, margin=0.1).p_value or 1) < 0.001


@pytest.mark.parametrize("test", ["boschloo", "barnard", "fisher"])
def test_an_exact_test_never_rejects_equal_rates_more_often_than_its_level(test: str) -> None:
    n, ks = 6, np.arange(7)
    rejects = np.array(
        [[(exact_independence(int(a), n, int(b), n, test).p_value or 0) <= 0.05 for b in ks] for a in ks]
    )
    for p in np.linspace(0.02, 0.98, 33):
        law = binom.pmf(ks, n, p)
        # the supremum over the nuisance rate is sampled
        assert (np.outer(law, law) * rejects).sum() <= 0.05 + 1e-3


@pytest.mark.parametrize("test", ["boschloo", "barnard", "fisher"])
def test_the_direction_of_a_one_sided_test_is_that_of_its_first_arm(test: str) -> None:
    better = exact_independence(9, 10, 3, 10, test, "greater").p_value
    worse = exact_independence(3, 10, 9, 10, test, "less").p_value
    wrong = exact_independence(9, 10, 3, 10, test, "less").p_value
    assert better is not None
    assert worse == pytest.approx(better, rel=1e-3)
    assert better < 0.02
    assert wrong is not None
    assert wrong > 0.9


def test_boschloo_never_says_less_than_fisher() -> None:
    for a in (0, 3, 7, 10):
        for b in (1, 5, 9):
            sharp, conditional = (
                exact_independence(a, 10, b, 10).p_value,
                exact_independence(a, 10, b, 10, "fisher").p_value,
            )
            assert sharp is not None
            assert conditional is not None
            assert sharp <= conditional + 1e-6


@settings(max_examples=50)
@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_is_a_fair_coin_on_the_discordant_pairs(wins: int, losses: int) -> None:
    exact, mid = mcnemar(wins, losses), mcnemar(wins, losses, mid_p=True)
    expected = binomtest(wins, wins + losses).pvalue if wins + losses else 1.0
    assert exact.p_value == pytest.approx(expected, abs=1e-12)
    assert exact.p_value is not None
    assert mid.p_value is not None
    assert 0 < mid.p_value <= exact.p_value <= 1
    assert mcnemar(losses, wins).p_value == pytest.approx(exact.p_value)
    assert (mcnemar(wins, losses, alternative="greater").p_value or 0) == pytest.approx(
        mcnemar(losses, wins, alternative="less").p_value
    )


def test_mid_p_is_nearer_to_its_level_and_the_exact_test_never_above_it() -> None:
    sizes = {False: 0.0, True: 0.0}
    for d in range(6, 60):
        law = binom.pmf(np.arange(d + 1), d, 0.5)
        size = {
            m: float(law[[(mcnemar(k, d - k, mid_p=m).p_value or 0) <= 0.05 for k in range(d + 1)]].sum())
            for m in sizes
        }
        assert size[False] <= 0.05
        assert size[False] <= size[True] <= 0.08
        sizes = {m: sizes[m] + size[m] / 54 for m in sizes}
    assert abs(sizes[True] - 0.05) < abs(sizes[False] - 0.05)


@settings(max_examples=50)
@given(pair_tables())
def test_newcombes_paired_interval_holds_its_point_and_mirrors(cells: tuple[int, int, int, int]) -> None:
    n11, n10, n01, n00 = cells
    difference, mirror = newcombe_paired(*cells), newcombe_paired(n11, n01, n10, n00)
    assert difference.low is not None
    assert difference.high is not None
    assert -1 <= difference.low <= (n10 - n01) / sum(cells) <= difference.high <= 1
    assert difference.low < difference.high
    assert (mirror.low, mirror.high) == pytest.approx((-difference.high, -difference.low), abs=1e-12)


def test_a_published_paired_table_comes_out_by_both_methods() -> None:
    # airway hyper-responsiveness before and after transplantation (Bentur et al. 2009), in Fagerland,
    # Lydersen and Laake (2014)
    newcombe, tango = newcombe_paired(1, 1, 7, 12), tango_interval(1, 7, 21)
    assert (newcombe.low, newcombe.high) == pytest.approx((-0.507, -0.026), abs=5e-4)
    assert tango == pytest.approx((-0.517, -0.026), abs=5e-4)


@pytest.mark.parametrize(
    ("p11", "p10", "p01"), [(0.5, 0.1, 0.1), (0.4, 0.3, 0.1), (0.1, 0.05, 0.4), (0.7, 0.2, 0.02)]
)
def test_newcombes_paired_interval_covers_near_the_nominal_rate(p11: float, p10: float, p01: float) -> None:
    n, total = 10, 0.0
    law = multinomial(n, [p11, p10, p01, 1 - p11 - p10 - p01])
    for n11 in range(n + 1):
        for n10 in range(n + 1 - n11):
            for n01 in range(n + 1 - n11 - n10):
                interval = newcombe_paired(n11, n10, n01, n - n11 - n10 - n01)
                assert interval.low is not None
                assert interval.high is not None
                total += float(law.pmf([n11, n10, n01, n - n11 - n10 - n01])) * (
                    interval.low <= p10 - p01 <= interval.high
                )
    assert 0.92 < total < 0.995


def test_without_pairs_or_evidence_the_paired_tests_say_so() -> None:
    assert not newcombe_paired(0, 0, 0, 0).is_defined
    assert "not equality" in mcnemar(0, 0).reason
    with pytest.raises(UsageError, match="count"):
        mcnemar(-1, 2)
    with pytest.raises(UsageError, match="negative"):
        newcombe_paired(1, 1, -1, 1)
    with pytest.raises(UsageError, match="alternative"):
        mcnemar(1, 2, alternative="better")  # type: ignore[arg-type]
