"""Real trials with the help of simulated ones: what covers, what does not, and when help is worth showing."""

from __future__ import annotations

import numpy as np
import pytest

from simgap.errors import UsageError
from simgap.statistics import (
    Estimate,
    Quantity,
    clopper_pearson,
    combine,
    prediction_powered,
    suresim,
    two_stage,
)


def _world(
    rng: np.random.Generator, pairs: int, extra: int, real: float, sim: float, rho: float
) -> tuple[list[float], list[float], list[float]]:
    both = real * sim + rho * np.sqrt(real * (1 - real) * sim * (1 - sim))
    cells = rng.choice(4, pairs, p=[both, real - both, sim - both, 1 - real - sim + both])
    return (
        (cells < 2).astype(float).tolist(),
        np.isin(cells, (0, 2)).astype(float).tolist(),
        (rng.random(extra) < sim).astype(float).tolist(),
    )


def _inside(interval: Quantity | Estimate, value: float) -> bool:
    return interval.low is not None and interval.high is not None and interval.low <= value <= interval.high


@pytest.mark.slow
@pytest.mark.parametrize(("pairs", "rho", "sim"), [(10, 0.8, 0.85), (30, 0.0, 0.3), (60, 0.5, 0.85)])
def test_the_real_rate_is_covered_however_wrong_the_simulator(pairs: int, rho: float, sim: float) -> None:
    rng = np.random.default_rng(100)
    hits = np.zeros(3)
    for _ in range(60):
        world = _world(rng, pairs, 100, 0.8, sim, rho)
        hits += [
            _inside(suresim(*world, rng=rng), 0.8),
            _inside(two_stage(*world), 0.8),
            _inside(clopper_pearson(int(sum(world[0])), pairs), 0.8),
        ]
    assert hits.min() >= 56


def test_the_asymptotic_interval_undercovers_with_few_pairs_and_recovers_with_many() -> None:
    rng = np.random.default_rng(101)
    covers = {
        n: np.mean(
            [_inside(prediction_powered(*_world(rng, n, 400, 0.8, 0.85, 0.8)), 0.8) for _ in range(400)]
        )
        for n in (10, 400)
    }
    assert covers[10] < 0.8
    assert covers[400] > 0.92


def test_prediction_powered_inference_reduces_to_what_it_is_made_of() -> None:
    y, f, extra = [1.0, 0.0, 1.0, 1.0, 0.0, 1.0], [1.0, 0.0, 1.0, 0.0, 0.0, 1.0], [1.0, 0.0] * 20
    assert prediction_powered(y, f, extra, weight=0.0).point == pytest.approx(4 / 6)
    assert prediction_powered(y, f, extra, weight=1.0).point == pytest.approx(0.5 + 1 / 6)
    shortest = prediction_powered(y, f, extra)
    for weight in np.linspace(-1, 2, 13):
        other = prediction_powered(y, f, extra, weight=float(weight))
        assert shortest.low is not None
        assert shortest.high is not None
        assert other.low is not None
        assert other.high is not None
        assert other.high == 1.0 or shortest.high - shortest.low <= other.high - other.low + 0.01


def test_help_is_not_worth_showing_with_few_pairs_or_an_unrelated_simulator() -> None:
    rng = np.random.default_rng(102)
    few, unrelated = (
        combine(*_world(rng, 30, 400, 0.8, 0.85, 0.8), rng=rng),
        combine(*_world(rng, 150, 400, 0.8, 0.85, 0.0), rng=rng),
    )
    assert not few.worth_showing
    assert not unrelated.worth_showing
    assert unrelated.correlation is not None
    assert unrelated.correlation < 0.5
    assert unrelated.variance_rectifier > unrelated.variance_real
    assert isinstance(few.real_only, Estimate)


def test_help_is_worth_showing_when_the_simulator_follows_reality_trial_by_trial() -> None:
    rng = np.random.default_rng(103)
    found = combine(*_world(rng, 200, 4000, 0.7, 0.7, 0.95), rng=rng)
    assert found.worth_showing
    assert found.variance_rectifier < found.variance_real
    assert found.combined.low is not None
    assert found.combined.high is not None
    assert found.real_only.low is not None
    assert found.real_only.high is not None
    assert found.combined.high - found.combined.low < found.real_only.high - found.real_only.low


def test_scores_use_bets_for_the_real_trials_alone() -> None:
    rng = np.random.default_rng(104)
    found = combine([0.2, 0.7, 0.4, 0.9], [0.3, 0.6, 0.5, 0.8], [0.5] * 30, rng=rng)
    assert isinstance(found.real_only, Quantity)
    assert found.real_only.point == pytest.approx(0.55)


@pytest.mark.parametrize("outcome", [0.0, 1.0])
def test_all_alike_leaves_a_width_where_it_is_exact_and_nothing_where_it_is_asymptotic(
    outcome: float,
) -> None:
    found = combine([outcome] * 20, [outcome] * 20, [outcome] * 100, rng=np.random.default_rng(105))
    assert not found.asymptotic.is_defined
    assert "not certainty" in found.asymptotic.reason
    assert found.correlation is None
    assert found.combined.low is not None
    assert found.combined.high is not None
    assert found.combined.low < found.combined.high
    assert _inside(found.combined, outcome)


@pytest.mark.parametrize(("pairs", "extra"), [(0, 50), (1, 50), (5, 0), (0, 0)])
def test_too_little_of_either_kind_is_said_in_words(pairs: int, extra: int) -> None:
    rng = np.random.default_rng(106)
    y, f, more = [1.0] * pairs, [1.0] * pairs, [1.0] * extra
    found = combine(y, f, more, rng=rng)
    assert found.real_only.is_defined == (pairs > 0)
    assert found.combined.is_defined == (pairs > 0)
    assert not found.worth_showing
    assert not found.asymptotic.is_defined
    assert two_stage(y, f, more).is_defined == (pairs > 0 and extra > 0)
    for undefined in (found.asymptotic, *([] if pairs else [found.combined])):
        assert undefined.reason


def test_the_shuffle_comes_from_the_generator_given() -> None:
    world = _world(np.random.default_rng(107), 20, 60, 0.8, 0.8, 0.5)
    assert suresim(*world, rng=np.random.default_rng(1)) == suresim(*world, rng=np.random.default_rng(1))


def test_a_real_trial_without_its_twin_and_scores_out_of_range_are_refused() -> None:
    rng = np.random.default_rng(108)
    with pytest.raises(UsageError, match="twin"):
        combine([1.0, 0.0], [1.0], [1.0], rng=rng)
    with pytest.raises(UsageError, match="outside"):
        suresim([1.0], [2.0], [1.0], rng=rng)
    with pytest.raises(UsageError, match="share"):
        two_stage([1.0], [1.0], [1.0], rectifier_share=1.0)
