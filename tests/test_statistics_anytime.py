"""Intervals that may be looked at after every trial: they cover at all looks together, and the fixed-n ones do not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from simgap.errors import UsageError
from simgap.statistics import beta_mixture, betting_interval, betting_sequence, clopper_pearson
from simgap.statistics.anytime import log_beta_mixture, log_capital

SCORES = st.lists(st.floats(0, 1), min_size=1, max_size=30)


@given(
    st.integers(0, 40),
    st.integers(0, 40),
    st.floats(0.01, 0.99),
    st.sampled_from([(1.0, 1.0), (0.5, 0.5), (3.0, 0.7)]),
)
def test_the_mixture_is_a_martingale_under_the_rate_it_is_tested_against(
    k: int, failures: int, rate: float, prior: tuple[float, float]
) -> None:
    n = k + failures
    now = math.exp(log_beta_mixture(k, n, rate, prior))
    then = rate * math.exp(log_beta_mixture(k + 1, n + 1, rate, prior)) + (1 - rate) * math.exp(
        log_beta_mixture(k, n + 1, rate, prior)
    )
    assert then == pytest.approx(now, rel=1e-9)
    assert float(log_beta_mixture(0, 0, rate, prior)) == 0.0


@pytest.mark.parametrize("rate", [0.05, 0.5, 0.9])
def test_the_mixture_covers_at_all_looks_together_where_an_exact_interval_does_not(rate: float) -> None:
    rng = np.random.default_rng(20)
    n = np.arange(1, 501)
    k = np.cumsum(rng.random((2000, 500)) < rate, axis=1)
    ever_out = (log_beta_mixture(k, n, rate) > math.log(20)).any(axis=1).mean()
    assert ever_out <= 0.05
    below, above = binom.cdf(k[:300], n, rate), binom.sf(k[:300] - 1, n, rate)
    # Clopper-Pearson, looked at 500 times
    assert (np.minimum(below, above) < 0.025).any(axis=1).mean() > 0.15


def test_looking_costs_width() -> None:
    for k, n in [(5, 10), (114, 400), (18, 20)]:
        peeked, fixed = beta_mixture(k, n), clopper_pearson(k, n)
        assert peeked.low is not None
        assert peeked.high is not None
        assert fixed.low is not None
        assert fixed.high is not None
        assert peeked.low < fixed.low
        assert fixed.high < peeked.high
        assert 1.1 < (peeked.high - peeked.low) / (fixed.high - fixed.low) < 1.8


def test_a_prior_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="prior"):
        beta_mixture(1, 2, prior=(0.0, 1.0))


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("law", ["coin", "partial credit", "rare progress"])
def test_bets_cover_the_mean_of_any_bounded_score_at_all_looks_together(law: str, fixed: bool) -> None:
    rng = np.random.default_rng(21)
    scores, mean = {
        "coin": ((rng.random((1500, 150)) < 0.8).astype(float), 0.8),
        "partial credit": (rng.beta(0.5, 0.5, (1500, 150)), 0.5),
        "rare progress": (np.where(rng.random((1500, 150)) < 0.1, rng.random((1500, 150)), 0.0), 0.05),
    }[law]
    above, below = log_capital(scores, mean, 0.05, fixed_n=fixed)
    assert (np.maximum(above, below).max(axis=1) > math.log(2 / 0.05)).mean() <= 0.05


def test_bets_cover_when_trials_depend_on_each_other_but_the_mean_stands() -> None:
    rng = np.random.default_rng(22)
    # the spread of the next score depends on the past
    moods = 0.5 + 0.4 * np.sign(np.cumsum(rng.normal(size=(1500, 150)), axis=1))
    scores = np.where(rng.random((1500, 150)) < 0.5, 0.5 - moods / 2, 0.5 + moods / 2)
    above, below = log_capital(scores, 0.5, 0.05)
    assert (np.maximum(above, below).max(axis=1) > math.log(2 / 0.05)).mean() <= 0.05


@settings(max_examples=40)
@given(SCORES, st.booleans())
def test_what_the_bets_rule_out_is_outside_the_interval_and_nothing_else(
    scores: list[float], fixed: bool
) -> None:
    interval = betting_interval(scores, fixed_n=fixed)
    assert interval.low is not None
    assert interval.high is not None
    for mean in np.linspace(0.005, 0.995, 67):
        above, below = log_capital(np.array(scores), float(mean), 0.05, fixed_n=fixed)
        out = max(above.max(), below.max()) > math.log(40)
        if min(abs(mean - interval.low), abs(mean - interval.high)) > 1e-9:
            assert out == (not interval.low <= mean <= interval.high)


@settings(max_examples=30)
@given(SCORES)
def test_bets_mirror_and_scale_with_their_bounds(scores: list[float]) -> None:
    interval = betting_interval(scores)
    mirror = betting_interval([1 - s for s in scores])
    percent = betting_interval([100 * s for s in scores], bounds=(0.0, 100.0))
    assert interval.low is not None
    assert interval.high is not None
    assert (mirror.low, mirror.high) == pytest.approx((1 - interval.high, 1 - interval.low), abs=1e-9)
    assert (percent.low, percent.high) == pytest.approx((100 * interval.low, 100 * interval.high), abs=1e-6)


@settings(max_examples=15)
@given(SCORES)
def test_the_sequence_at_each_look_is_the_interval_of_what_was_seen_by_then(scores: list[float]) -> None:
    sequence = betting_sequence(scores)
    for t in range(1, len(scores) + 1):
        seen = betting_interval(scores[:t])
        assert (sequence.lows[t - 1], sequence.highs[t - 1]) == pytest.approx((seen.low, seen.high), abs=1e-9)
    assert np.all(np.diff(sequence.lows) >= 0)
    assert np.all(np.diff(sequence.highs) <= 0)
    alone = betting_sequence(scores, running=False)
    assert np.all(alone.lows <= sequence.lows + 1e-12)


def test_a_sequence_says_when_a_value_was_first_excluded() -> None:
    sequence = betting_sequence([1.0] * 40)
    first = sequence.first_excluding(0.5)
    assert first is not None
    assert sequence.lows[first - 1] > 0.5 >= sequence.lows[first - 2]
    assert sequence.first_excluding(1.0) is None
    assert betting_sequence([]).n == 0


def test_a_rate_that_drifts_contradicts_itself_and_is_reported_as_such() -> None:
    drifted = betting_interval([0.0] * 100 + [1.0] * 100)
    assert not drifted.is_defined
    assert "not constant" in drifted.reason
    assert drifted.point == 0.5


def test_order_matters_so_sorting_is_not_harmless() -> None:
    scores = [1.0, 0.0, 1.0, 1.0] * 12
    assert betting_interval(sorted(scores)).low != betting_interval(scores).low


@pytest.mark.parametrize("fixed", [False, True])
def test_constant_scores_leave_a_width_and_no_score_leaves_nothing(fixed: bool) -> None:
    none, every = betting_interval([0.0] * 30, fixed_n=fixed), betting_interval([1.0] * 30, fixed_n=fixed)
    assert none.low == 0.0
    assert none.high is not None
    assert 0 < none.high < 0.4
    assert every.high == 1.0
    assert betting_interval([1.0], fixed_n=fixed).high == 1.0
    empty = betting_interval([], fixed_n=fixed)
    assert (empty.point, empty.is_defined) == (None, False)
    assert "n = 0" in empty.reason
    assert "undefined" in str(empty)
    assert "95 %" in str(none)


@pytest.mark.parametrize("scores", [[0.5, 1.2], [float("nan")], [[0.1, 0.2]]])
def test_scores_outside_their_bounds_are_refused_and_not_clipped(scores: list[float]) -> None:
    with pytest.raises(UsageError, match=r"scores|score lies"):
        betting_interval(scores)


def test_fixing_n_beforehand_shortens_the_interval() -> None:
    scores = [1.0, 0.0, 1.0, 1.0, 0.0] * 10
    peeked, fixed = betting_interval(scores), betting_interval(scores, fixed_n=True)
    assert peeked.low is not None
    assert peeked.high is not None
    assert fixed.low is not None
    assert fixed.high is not None
    assert fixed.high - fixed.low < 0.95 * (peeked.high - peeked.low)
    assert peeked.anytime
    assert not fixed.anytime
