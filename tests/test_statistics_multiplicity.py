"""Many comparisons: adjusted p-values keep their promise, and letters say exactly what the pairs say."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import false_discovery_control, norm

from simgap.errors import UsageError
from simgap.statistics import benjamini_hochberg, bonferroni, holm, letters

PS = st.lists(st.floats(0, 1), max_size=12)


@given(PS)
def test_adjusted_p_values_keep_their_order_and_holm_is_never_above_bonferroni(p_values: list[float]) -> None:
    plain, stepped, discovery = bonferroni(p_values), holm(p_values), benjamini_hochberg(p_values)
    for p, d, h, b in zip(p_values, discovery, stepped, plain, strict=True):
        assert 0 <= p <= d + 1e-12 <= h + 2e-12 <= b + 3e-12 <= 1 + 3e-12
    for i, j in combinations(range(len(p_values)), 2):
        if p_values[i] <= p_values[j]:
            assert stepped[i] <= stepped[j]


@given(PS, st.randoms(use_true_random=False))
def test_adjusting_does_not_depend_on_the_order_given(p_values: list[float], random: object) -> None:
    order = list(range(len(p_values)))
    random.shuffle(order)  # type: ignore[attr-defined]
    for adjust in (holm, bonferroni, benjamini_hochberg):
        straight = adjust(p_values)
        assert adjust([p_values[i] for i in order]) == pytest.approx([straight[i] for i in order])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_discovery_rates_are_those_of_scipy(p_values: list[float]) -> None:
    assert benjamini_hochberg(p_values) == pytest.approx(
        false_discovery_control(p_values, method="bh").tolist(), abs=1e-12
    )


def test_holm_makes_a_false_claim_no_more_often_than_its_level_even_for_dependent_tests() -> None:
    rng = np.random.default_rng(70)
    common = rng.normal(size=(3000, 1))
    z = 0.7 * common + np.sqrt(1 - 0.49) * rng.normal(size=(3000, 8))
    z[:, 5:] += 3  # three of the eight differences are real
    p = norm.sf(z)
    false = [min(holm(row)[:5]) <= 0.05 for row in p.tolist()]
    assert np.mean(false) <= 0.05
    assert np.mean([min(row[:5]) <= 0.05 for row in p.tolist()]) > 0.1


def test_nothing_in_nothing_out_and_one_is_unchanged() -> None:
    for adjust in (holm, bonferroni, benjamini_hochberg):
        assert adjust([]) == []
        assert adjust([0.03]) == [0.03]
        with pytest.raises(UsageError, match="numbers in"):
            adjust([0.1, float("nan")])


@st.composite
def verdicts(draw: st.DrawFn) -> tuple[list[str], list[tuple[str, str]]]:
    names = [f"p{i}" for i in range(draw(st.integers(1, 7)))]
    pairs = list(combinations(names, 2))
    return names, [pair for pair in pairs if draw(st.booleans())]


@given(verdicts())
def test_two_policies_share_a_letter_exactly_when_they_were_not_told_apart(
    case: tuple[list[str], list[tuple[str, str]]],
) -> None:
    names, different = case
    shown = letters(names, different)
    assert list(shown) == names
    assert all(shown.values())
    for a, b in combinations(names, 2):
        assert bool(set(shown[a]) & set(shown[b])) == ((a, b) not in different)
    assert letters(names, [(b, a) for a, b in different]) == shown
    assert shown[names[0]].startswith("a")


def test_letters_refuse_unknown_repeated_and_self_compared_policies() -> None:
    for names, pairs in [(["a", "a"], []), (["a", "b"], [("a", "c")]), (["a", "b"], [("a", "a")])]:
        with pytest.raises(UsageError, match=r"twice|different names"):
            letters(names, pairs)
    assert letters([], []) == {}


def test_more_groups_than_letters_are_refused() -> None:
    names = [f"p{i}" for i in range(60)]
    with pytest.raises(UsageError, match="print the pairs"):
        letters(names, combinations(names, 2))
