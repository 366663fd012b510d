"""Two ways or one: the dip against its definition, its test against its level, and the entropy of known modes."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from simgap.errors import UsageError
from simgap.statistics import class_entropy, dip_statistic, dip_test

NUMBERS = st.lists(st.integers(-40, 40).map(float), min_size=1, max_size=40)


def _dip_by_definition(sample: np.ndarray) -> float:
    """Smallest distance to a distribution function that is convex up to a mode and concave after it: one linear program a mode."""
    values, repeats = np.unique(sample, return_counts=True)
    upper = np.cumsum(repeats) / len(sample)
    lower, size = upper - repeats / len(sample), len(values)
    return max(
        1 / (2 * len(sample)), min(_distance_with_mode(values, lower, upper, mode) for mode in range(size))
    )


def _distance_with_mode(x: np.ndarray, lower: np.ndarray, upper: np.ndarray, mode: int) -> float:
    """Unknowns: heights left of the mode, just before it, just after it, right of it, and the distance, last."""
    place = [*range(mode + 1), *range(mode + 2, len(x) + 1)]
    rows, limits = [], []

    def at_most(terms: dict[int, float], limit: float) -> None:
        row = np.zeros(len(x) + 2)
        for unknown, factor in terms.items():
            row[unknown] += factor
        rows.append(row)
        limits.append(limit)

    d = len(x) + 1
    for j in range(len(x)):
        before, after = (place[j], place[j]) if j != mode else (mode, mode + 1)
        at_most({before: 1, d: -1}, lower[j])
        at_most({after: -1, d: -1}, -upper[j])
        if j == mode:
            at_most({before: -1, d: -1}, -lower[j])
            at_most({after: 1, d: -1}, upper[j])
    at_most({mode: 1, mode + 1: -1}, 0)
    sides = [
        ([*range(mode + 1)], [*range(mode + 1)], 1),
        ([*range(mode, len(x))], [mode + 1, *range(mode + 2, len(x) + 1)], -1),
    ]
    for points, unknowns, sign in sides:
        for i in range(len(points) - 2):
            first, second = x[points[i + 1]] - x[points[i]], x[points[i + 2]] - x[points[i + 1]]
            at_most(
                {
                    unknowns[i]: -sign / first,
                    unknowns[i + 1]: sign * (1 / first + 1 / second),
                    unknowns[i + 2]: -sign / second,
                },
                0,
            )
        for a, b in itertools.pairwise(unknowns):
            at_most({a: 1, b: -1}, 0)
    found = linprog(
        np.eye(len(x) + 2)[d], A_ub=np.array(rows), b_ub=np.array(limits), bounds=[(0, 1)] * (len(x) + 2)
    )
    return float(found.fun) if found.success else 1.0


def test_the_dip_is_the_distance_to_the_nearest_unimodal_distribution() -> None:
    rng = np.random.default_rng(110)
    for case in range(36):
        n = int(rng.integers(1, 12))
        sample = [
            rng.random(n),
            np.concatenate([rng.normal(0, 1, n // 2), rng.normal(6, 1, n - n // 2)]),
            rng.integers(0, 5, n).astype(float),
        ][case % 3]
        assert dip_statistic(sample) == pytest.approx(_dip_by_definition(sample), abs=1e-7)


@settings(max_examples=60)
@given(NUMBERS)
def test_the_dip_does_not_change_with_shift_scale_mirror_and_order(sample: list[float]) -> None:
    dip = dip_statistic(sample)
    assert dip is not None
    assert 1 / (2 * len(sample)) <= dip <= max(0.25, 1 / (2 * len(sample))) + 1e-12
    assert dip_statistic([3 - 2 * x for x in sample[::-1]]) == pytest.approx(dip)


def test_known_dips_come_out() -> None:
    assert dip_statistic([]) is None
    assert dip_statistic([7.0]) == 0.5
    assert dip_statistic(list(range(10))) == pytest.approx(1 / 20)
    assert dip_statistic([1.0] * 8) == pytest.approx(1 / 16)
    assert dip_statistic([0.0] * 6 + [1.0] * 6) == pytest.approx(0.25)
    with pytest.raises(UsageError, match="finite"):
        dip_statistic([1.0, math.nan])


@pytest.mark.parametrize("law", ["uniform", "normal", "exponential"])
def test_one_mode_is_seldom_taken_for_two(law: str) -> None:
    rng = np.random.default_rng(111)
    sampler = {"uniform": rng.random, "normal": rng.standard_normal, "exponential": rng.standard_exponential}[
        law
    ]
    uniform = np.sort([dip_statistic(rng.random(24)) or 0.0 for _ in range(600)])
    cut = uniform[int(0.95 * 600)]
    taken = np.mean([(dip_statistic(sampler(24)) or 0.0) > cut for _ in range(300)])
    assert taken <= 0.09
    if law != "uniform":
        assert taken <= 0.03


def test_two_ways_around_an_obstacle_are_seen_in_32_rollouts_and_one_way_is_not_taken_for_two() -> None:
    rng = np.random.default_rng(112)
    two = dip_test(
        np.concatenate([rng.normal(-0.1, 0.02, 16), rng.normal(0.1, 0.02, 16)]), rng=rng, draws=500
    )
    one = dip_test(rng.normal(0.0, 0.02, 32), rng=rng, draws=500)
    assert two.test.p_value is not None
    assert one.test.p_value is not None
    assert two.test.p_value < 0.01
    assert one.test.p_value > 0.1
    assert dip_test([], rng=rng).test.p_value is None
    assert dip_test([3.0, 3.0, 3.0], rng=rng, draws=50).test.p_value == 1.0


def test_with_a_handful_of_values_no_p_is_small() -> None:
    rng = np.random.default_rng(113)
    for sample in ([0.0, 1.0], [0.0, 0.0, 1.0]):
        assert (dip_test(sample, rng=rng, draws=300).test.p_value or 0) > 0.05


@given(st.lists(st.integers(0, 30), min_size=2, max_size=6).filter(sum))
def test_entropy_is_highest_when_even_lowest_when_single_and_blind_to_labels(counts: list[int]) -> None:
    rng = np.random.default_rng(114)
    found = class_entropy(counts, len(counts), rng=rng, draws=200)
    assert found.point is not None
    assert found.low is not None
    assert found.high is not None
    assert 0 <= found.low <= found.point <= found.high <= 1
    again = class_entropy(
        {f"way {i}": c for i, c in enumerate(reversed(counts))},
        len(counts),
        rng=np.random.default_rng(114),
        draws=200,
    )
    assert again.point == pytest.approx(found.point)
    assert (found.point == pytest.approx(1.0)) == (len(set(counts)) == 1)
    assert (found.point < 1e-12) == (sum(c > 0 for c in counts) == 1)


def test_entropy_says_little_of_few_rollouts_and_more_of_many() -> None:
    rng = np.random.default_rng(115)
    few, many = class_entropy({"left": 3}, 2, rng=rng), class_entropy({"left": 300}, 2, rng=rng)
    assert few.point == many.point == 0.0
    assert few.high is not None
    assert many.high is not None
    assert few.high > 0.5
    assert many.high < 0.1
    assert class_entropy({"left": 12, "right": 12}, 2, rng=rng).point == pytest.approx(1.0)


@pytest.mark.slow
def test_the_interval_of_the_entropy_covers() -> None:
    rng, shares = np.random.default_rng(116), np.array([0.6, 0.3, 0.1])
    truth = float(-(shares * np.log(shares)).sum() / math.log(3))
    hits = 0
    for _ in range(200):
        found = class_entropy(rng.multinomial(40, shares).tolist(), 3, rng=rng, draws=300)
        hits += (found.low or 0) <= truth <= (found.high or 0)
    assert hits / 200 >= 0.9


def test_no_rollouts_and_fewer_than_two_modes_have_no_entropy() -> None:
    rng = np.random.default_rng(117)
    assert "n = 0" in class_entropy({}, 3, rng=rng).reason
    assert class_entropy({"only": 4}, 1, rng=rng).point is None
    with pytest.raises(UsageError, match="modes"):
        class_entropy([1, 2, 3], 2, rng=rng)
