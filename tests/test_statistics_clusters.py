"""Trials that belong together, and tasks that are averaged: intervals that allow for it cover, naive ones do not."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simgap.errors import UsageError
from simgap.statistics import (
    average_difference,
    average_rate,
    clopper_pearson,
    cluster_bootstrap,
    clustered_rate,
    design_effect,
    miettinen_nurminen,
    wilson,
)


def _clustered(rng: np.random.Generator, clusters: int, size: int, rate: float, alike: float) -> np.ndarray:
    total = (1 - alike) / alike
    return rng.binomial(size, rng.beta(rate * total, (1 - rate) * total, clusters))


@pytest.mark.parametrize(
    ("clusters", "size", "rate", "alike"), [(10, 5, 0.8, 0.4), (20, 5, 0.8, 0.4), (10, 10, 0.5, 0.8)]
)
def test_the_clustered_interval_covers_where_the_naive_one_does_not(
    clusters: int, size: int, rate: float, alike: float
) -> None:
    rng, honest, naive = np.random.default_rng(90), 0, 0
    for _ in range(200):
        k = _clustered(rng, clusters, size, rate, alike)
        wide, narrow = (
            clustered_rate(k.tolist(), [size] * clusters),
            clopper_pearson(int(k.sum()), clusters * size),
        )
        honest += (wide.low or 0) <= rate <= (wide.high or 0)
        naive += (narrow.low or 0) <= rate <= (narrow.high or 0)
    assert honest / 200 >= 0.93
    assert naive / 200 < 0.87


def test_the_design_effect_is_one_plus_the_size_times_the_likeness() -> None:
    rng = np.random.default_rng(91)
    found = design_effect(_clustered(rng, 3000, 6, 0.7, 0.5).tolist(), [6] * 3000)
    assert found.design_effect == pytest.approx(1 + 5 * 0.5, rel=0.06)
    assert found.intraclass == pytest.approx(0.5, abs=0.03)
    assert found.effective_n == pytest.approx(18000 / 3.5, rel=0.06)
    assert found.clusters == 3000


def test_independent_trials_have_no_design_effect_and_identical_ones_the_size_of_the_cluster() -> None:
    rng = np.random.default_rng(92)
    assert design_effect(rng.binomial(4, 0.6, 4000).tolist(), [4] * 4000).design_effect == pytest.approx(
        1.0, abs=0.06
    )
    same = design_effect((4 * (rng.random(2000) < 0.6)).tolist(), [4] * 2000)
    assert same.design_effect == pytest.approx(4.0, rel=0.01)
    assert same.intraclass == pytest.approx(1.0)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=2, max_size=12))
def test_a_clustered_interval_holds_its_point_and_is_never_shorter_than_the_naive_one(
    cells: list[tuple[int, int]],
) -> None:
    k, m = [a for a, _ in cells], [a + b for a, b in cells]
    estimate = clustered_rate(k, m)
    if sum(m) == 0 or sum(size > 0 for size in m) < 2:
        assert not estimate.is_defined
        return
    naive = clopper_pearson(sum(k), sum(m))
    assert estimate.low is not None
    assert estimate.high is not None
    assert naive.low is not None
    assert naive.high is not None
    assert 0 <= estimate.low <= sum(k) / sum(m) <= estimate.high <= 1
    assert estimate.high - estimate.low >= naive.high - naive.low - 1e-9
    mirror = clustered_rate([b for _, b in cells], m)
    assert (mirror.low, mirror.high) == pytest.approx((1 - estimate.high, 1 - estimate.low), abs=1e-9)
    assert clustered_rate([*k, 0], [*m, 0]) == estimate


def test_when_all_succeed_only_the_number_of_clusters_is_believed() -> None:
    assert clustered_rate([5, 5, 5], [5, 5, 5]).low == clopper_pearson(3, 3).low
    assert clustered_rate([0, 0], [9, 9]).high == clopper_pearson(0, 2).high
    assert design_effect([5, 5], [5, 5]).design_effect is None


def test_one_cluster_and_no_trial_say_nothing_about_others() -> None:
    assert "one cluster" in clustered_rate([3], [5]).reason
    assert "n = 0" in clustered_rate([], []).reason
    assert design_effect([3], [5]).effective_n is None
    with pytest.raises(UsageError, match="one count a cluster"):
        clustered_rate([3, 2], [2, 2])


def test_the_bootstrap_draws_whole_clusters() -> None:
    rng = np.random.default_rng(93)
    # ten trials of a condition all end alike
    rows = np.repeat((rng.random((40, 1)) < 0.6).astype(float), 10, axis=1)
    found = cluster_bootstrap(lambda x: x.mean(axis=(1, 2)), rows, name="rate", rng=np.random.default_rng(1))
    loose = cluster_bootstrap(
        lambda x: x.mean(axis=(1, 2)), rows.reshape(-1, 1), name="rate", rng=np.random.default_rng(1)
    )
    assert found == cluster_bootstrap(
        lambda x: x.mean(axis=(1, 2)), rows, name="rate", rng=np.random.default_rng(1)
    )
    assert found.low is not None
    assert found.high is not None
    assert loose.low is not None
    assert loose.high is not None
    assert (found.high - found.low) == pytest.approx((loose.high - loose.low) * np.sqrt(10), rel=0.2)
    assert found.n == 40


def test_the_bootstrap_covers_with_many_clusters() -> None:
    rng, inside = np.random.default_rng(94), 0
    for _ in range(200):
        found = cluster_bootstrap(
            lambda x: x.mean(axis=1), rng.exponential(size=40), name="mean", rng=rng, draws=300
        )
        inside += (found.low or 0) <= 1.0 <= (found.high or 0)
    assert inside / 200 > 0.87


def test_the_bootstrap_says_when_it_has_nothing_to_draw() -> None:
    def mean(x: np.ndarray) -> np.ndarray:
        return np.asarray(x.mean(axis=1))

    rng = np.random.default_rng(95)
    assert "no variation" in cluster_bootstrap(mean, np.ones(10), name="m", rng=rng).reason
    assert "one cluster" in cluster_bootstrap(mean, np.ones(1), name="m", rng=rng).reason
    assert "no cluster" in cluster_bootstrap(mean, np.ones(0), name="m", rng=rng).reason
    with np.errstate(invalid="ignore"):
        assert (
            "on these data"
            in cluster_bootstrap(lambda x: np.log(x.mean(axis=1)), -np.ones(5), name="m", rng=rng).reason
        )


@pytest.mark.parametrize("rates", [[0.2, 0.5, 0.9], [0.95, 0.9, 0.99, 0.8]])
def test_the_average_over_tasks_is_covered_at_about_the_nominal_rate(rates: list[float]) -> None:
    rng = np.random.default_rng(96)
    sizes = np.array([10, 40, 20, 15])[: len(rates)]
    shown = decided = 0
    exact = lru_cache(clopper_pearson)
    for _ in range(200):
        tasks = [(int(k), int(n)) for k, n in zip(rng.binomial(sizes, rates), sizes, strict=True)]
        for_show, to_decide = average_rate(tasks), average_rate(tasks, interval=exact)
        shown += (for_show.low or 0) <= np.mean(rates) <= (for_show.high or 0)
        decided += (to_decide.low or 0) <= np.mean(rates) <= (to_decide.high or 0)
    assert 0.9 <= shown / 200 <= 0.995
    assert decided / 200 >= 0.95


def test_the_average_over_tasks_does_not_move_with_the_mix_of_trials() -> None:
    assert average_rate([(9, 10), (1, 10)]).point == pytest.approx(average_rate([(90, 100), (1, 10)]).point)
    assert average_rate([(9, 10), (1, 10)], weights=[3, 1]).point == pytest.approx(0.7)
    assert average_rate([(7, 10)]).low == pytest.approx(wilson(7, 10).low)
    difference, alone = (
        average_difference([(7, 10)], [(3, 9)]),
        miettinen_nurminen(7, 10, 3, 9, small_sample=False),
    )
    assert (difference.low, difference.high) == pytest.approx((alone.low, alone.high))
    both = average_difference([(7, 10), (5, 10)], [(3, 9), (5, 10)])
    mirror = average_difference([(3, 9), (5, 10)], [(7, 10), (5, 10)])
    assert both.low is not None
    assert both.high is not None
    assert (mirror.low, mirror.high) == pytest.approx((-both.high, -both.low))
    assert both.n == 39


def test_a_task_without_trials_leaves_the_average_undefined() -> None:
    assert not average_rate([(1, 2), (0, 0)]).is_defined
    assert not average_rate([]).is_defined
    assert not average_difference([(1, 2)], [(0, 0)]).is_defined
    assert not average_difference([], []).is_defined
    for wrong in [
        lambda: average_difference([(1, 2)], []),
        lambda: average_rate([(1, 2)], weights=[0.0]),
        lambda: average_rate([(3, 2)]),
    ]:
        with pytest.raises(UsageError):
            wrong()


def test_all_or_none_over_all_tasks_ends_at_the_edge_with_a_width() -> None:
    assert average_rate([(0, 5), (0, 9)]).low == 0.0
    every = average_rate([(5, 5), (9, 9)])
    assert every.high == 1.0
    assert every.low is not None
    assert every.low < 0.9
