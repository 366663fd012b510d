"""An interval and the test beside it never contradict each other: one decides, the other is computed to agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import multinomial

from simgap.statistics import (
    ComparisonVerdict,
    capped_design,
    compare_capped,
    compare_paired,
    compare_scores,
    compare_unpaired,
    mcnemar,
    mcnemar_interval,
    paired_difference,
)


def tables(n: int) -> list[tuple[int, int]]:
    return [(n10, n01) for n10 in range(n + 1) for n01 in range(n + 1 - n10)]


@pytest.mark.parametrize("confidence", [0.95, 0.999999])
def test_the_interval_of_every_small_table_excludes_zero_exactly_when_the_exact_test_rejects(
    confidence: float,
) -> None:
    for n in (1, 2, 3, 5, 6, 7, 8, 12, 17):
        for n10, n01 in tables(n):
            found = paired_difference(0, n10, n01, n - n10 - n01, confidence=confidence)
            low, high = found.difference.low, found.difference.high
            assert low is not None
            assert high is not None
            assert (low > 0 or high < 0) == (mcnemar(n10, n01).p_value < 1 - confidence), (n10, n01, n)
            assert -1 <= low <= (n10 - n01) / n <= high <= 1
            assert low < high


@given(st.integers(0, 400), st.integers(0, 400), st.integers(0, 400), st.sampled_from([0.9, 0.95, 0.99]))
def test_a_large_table_agrees_and_mirrors_too(n10: int, n01: int, same: int, confidence: float) -> None:
    if n10 + n01 + same == 0:
        return
    there, back = (
        paired_difference(same, *cells, 0, confidence=confidence).difference
        for cells in ((n10, n01), (n01, n10))
    )
    assert there.low is not None
    assert there.high is not None
    assert (there.low > 0 or there.high < 0) == (mcnemar(n10, n01).p_value < 1 - confidence)
    assert (back.low, back.high) == pytest.approx((-there.high, -there.low), abs=1e-12)


def coverage(n: int, confidence: float, rates: int) -> float:
    """Return the smallest coverage over a grid of the two discordant rates."""
    cells = tables(n)
    ends = np.array([mcnemar_interval(*t, n, mcnemar(*t).p_value or 0.0, confidence) for t in cells])
    counts = np.array([(a, b, n - a - b) for a, b in cells])
    covered = []
    for p10 in np.linspace(0, 0.98, rates):
        for p01 in np.linspace(0, 0.98 - p10, max(2, int(rates * (1 - p10)))):
            weights = multinomial.pmf(counts, n, [p10, p01, 1 - p10 - p01])
            covered.append(
                weights[(ends[:, 0] <= p10 - p01 + 1e-12) & (p10 - p01 <= ends[:, 1] + 1e-12)].sum()
            )
    return float(min(covered))


@pytest.mark.parametrize("n", [4, 15])
def test_the_paired_interval_covers_at_least_what_it_promises(n: int) -> None:
    assert coverage(n, 0.95, 9) >= 0.95


@pytest.mark.slow
@pytest.mark.parametrize(("confidence", "promise"), [(0.9, 0.9), (0.95, 0.95), (0.99, 0.985)])
def test_the_paired_interval_covers_at_least_what_it_promises_at_every_rate(
    confidence: float, promise: float
) -> None:
    assert min(coverage(n, confidence, 25) for n in (1, 2, 3, 5, 8, 13, 20, 40)) >= promise


def agrees(verdict: ComparisonVerdict, difference: Any) -> bool:
    sign = 0 if difference.low is None else 1 if difference.low > 0 else -1 if difference.high < 0 else 0
    return (
        sign
        == {
            ComparisonVerdict.NEW_BETTER: 1,
            ComparisonVerdict.OLD_BETTER: -1,
            ComparisonVerdict.UNDECIDED: 0,
        }[verdict]
    )


@pytest.mark.parametrize("compare", [compare_paired, compare_unpaired, compare_scores])
def test_a_sequential_verdict_and_its_interval_agree_at_every_look(compare: Any) -> None:
    rng = np.random.default_rng(3)
    for new, old in ((0.9, 0.5), (0.5, 0.8), (0.6, 0.55), (1.0, 0.0)):
        y1, y0 = (rng.random(60) < new).astype(float), (rng.random(60) < old).astype(float)
        for n in range(4, 61, 14):
            found = compare(y1[:n].tolist(), y0[:n].tolist())
            assert agrees(found.verdict, found.difference), (compare.__name__, n)


@pytest.mark.parametrize("paired", [True, False])
def test_a_capped_verdict_and_its_interval_agree(paired: bool) -> None:
    design = capped_design(30, paired=paired)
    rng = np.random.default_rng(4)
    for _ in range(20):
        rates = rng.random(2)
        found = compare_capped(
            (rng.random(30) < rates[0]).tolist(), (rng.random(30) < rates[1]).tolist(), design
        )
        assert agrees(found.verdict, found.difference)


def test_pairs_that_later_point_the_other_way_have_no_one_interval() -> None:
    found = compare_paired([True] * 10 + [False] * 40, [False] * 10 + [True] * 40)
    assert found.verdict is ComparisonVerdict.NEW_BETTER
    assert found.difference.low is None
    assert "not constant" in found.difference.reason


@pytest.mark.slow
@pytest.mark.parametrize(("new", "old"), [(0.5, 0.5), (0.8, 0.6), (0.95, 0.9)])
def test_verdict_and_interval_together_keep_their_promise_at_every_look(new: float, old: float) -> None:
    rng = np.random.default_rng(5)
    missed = 0
    for _ in range(80):
        y1, y0 = (rng.random(60) < new).tolist(), (rng.random(60) < old).tolist()
        looks = [compare_paired(y1[:n], y0[:n]).difference for n in range(6, 61, 9)]
        missed += any(d.low is not None and not d.low <= new - old <= d.high for d in looks)
    assert missed <= 0.05 * 80
