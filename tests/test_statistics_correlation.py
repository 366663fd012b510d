"""Sim against real: what the statistics are invariant to, their traps, and what noise alone would give."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import pearsonr, spearmanr

from simgap.errors import UsageError
from simgap.statistics import (
    PolicyPair,
    agreement_by_condition,
    agreement_of_counts,
    leave_one_out,
    mmrv,
    order_test,
    pearson,
    spearman,
)
from simgap.statistics.correlation import mmrv_rows, pearson_rows, spearman_rows
from simgap.types import Outcome

RATE = st.integers(0, 20).map(lambda k: k / 20)
GOOD, BAD, VOID = Outcome.success(), Outcome.failure("dropped"), Outcome.void("camera froze")


@st.composite
def sides(draw: st.DrawFn, least: int = 1, most: int = 9) -> tuple[list[float], list[float]]:
    size = draw(st.integers(least, most))
    return draw(st.lists(RATE, min_size=size, max_size=size)), draw(
        st.lists(RATE, min_size=size, max_size=size)
    )


@pytest.mark.parametrize("ties", ["simpler", "strict"])
@given(sides())
def test_mmrv_lies_between_nothing_and_the_range_of_reality_and_is_strict_by_definition(
    ties: Any, both: tuple[list[float], list[float]]
) -> None:
    real, sim = both
    value = mmrv(real=real, sim=sim, ties=ties)
    k = range(len(real))
    worst = []
    for i in k:
        wrong = [
            abs(real[i] - real[j])
            * (
                (real[i] > real[j]) != (sim[i] > sim[j])
                if ties == "simpler"
                else (real[i] - real[j]) * (sim[i] - sim[j]) < 0
            )
            for j in k
        ]
        worst.append(max(wrong))
    assert value == pytest.approx(sum(worst) / len(real))
    assert value is not None
    assert 0 <= value <= max(real) - min(real) + 1e-12


@given(sides(), st.randoms(use_true_random=False))
def test_mmrv_depends_on_the_order_of_sim_alone_and_scales_with_real(
    both: tuple[list[float], list[float]], random: Any
) -> None:
    real, sim = both
    value = mmrv(real=real, sim=sim)
    assert mmrv(real=real, sim=[math.exp(3 * s) - 7 for s in sim]) == pytest.approx(value)
    assert mmrv(real=[100 * r for r in real], sim=sim) == pytest.approx(100 * (value or 0))
    order = list(range(len(real)))
    random.shuffle(order)
    assert mmrv(real=[real[i] for i in order], sim=[sim[i] for i in order]) == pytest.approx(value)


@given(sides())
def test_mmrv_of_the_right_order_is_zero_and_strict_never_punishes_more(
    both: tuple[list[float], list[float]],
) -> None:
    real, sim = both
    assert mmrv(real=real, sim=[r / 2 + 0.1 for r in real]) == 0.0
    assert (mmrv(real=real, sim=sim, ties="strict") or 0) <= (mmrv(real=real, sim=sim) or 0) + 1e-12
    if len(set(sim)) == len(sim) and len(set(real)) == len(real):
        assert mmrv(real=real, sim=sim, ties="strict") == mmrv(real=real, sim=sim)


def test_a_simulator_that_says_nothing_is_perfect_by_the_strict_rule_and_not_by_the_published_one() -> None:
    assert mmrv(real=[0.9, 0.5, 0.1], sim=[0.5, 0.5, 0.5], ties="strict") == 0.0
    assert mmrv(real=[0.9, 0.5, 0.1], sim=[0.5, 0.5, 0.5]) == pytest.approx(0.4)


def test_the_arguments_of_mmrv_cannot_be_swapped_by_position() -> None:
    with pytest.raises(TypeError):
        mmrv([0.1, 0.2], [0.2, 0.1])  # type: ignore[call-arg, misc]
    assert mmrv(real=[0.3, 0.7], sim=[0.6, 0.5]) == pytest.approx(0.4)
    assert mmrv(real=[0.6, 0.5], sim=[0.3, 0.7]) == pytest.approx(0.1)


@given(sides(least=3))
def test_correlations_are_those_of_scipy_and_undefined_where_a_side_is_constant(
    both: tuple[list[float], list[float]],
) -> None:
    real, sim = both
    if len(set(real)) == 1 or len(set(sim)) == 1:
        assert pearson(real=real, sim=sim) is None
        assert spearman(real=real, sim=sim) is None
    else:
        assert pearson(real=real, sim=sim) == pytest.approx(pearsonr(real, sim).statistic, abs=1e-9)
        assert spearman(real=real, sim=sim) == pytest.approx(spearmanr(real, sim).statistic, abs=1e-9)
        assert pearson(real=sim, sim=real) == pytest.approx(pearson(real=real, sim=sim))
        assert pearson(real=[3 * r - 1 for r in real], sim=[-s for s in sim]) == pytest.approx(
            -(pearson(real=real, sim=sim) or 0)
        )


def test_two_policies_have_no_correlation() -> None:
    assert pearson(real=[0.1, 0.9], sim=[0.2, 0.3]) is None
    assert spearman(real=[0.1, 0.9], sim=[0.2, 0.3]) is None
    assert mmrv(real=[], sim=[]) is None
    assert mmrv(real=[0.4], sim=[0.1]) == 0.0


@given(st.lists(sides(least=4, most=4), min_size=1, max_size=4))
def test_many_draws_at_once_give_what_one_by_one_gives(cases: list[tuple[list[float], list[float]]]) -> None:
    real, sim = np.array([c[0] for c in cases]), np.array([c[1] for c in cases])
    for i, (r, s) in enumerate(cases):
        assert mmrv_rows(real, sim)[i] == mmrv(real=r, sim=s)
        for rows, one in ((pearson_rows, pearson), (spearman_rows, spearman)):
            value = rows(real, sim)[i]
            assert (None if math.isnan(value) else pytest.approx(value)) == one(real=r, sim=s)


@pytest.mark.parametrize("count", [3, 4, 5])
def test_a_perfect_order_of_few_policies_has_the_p_of_one_order_in_all(count: int) -> None:
    order = list(range(count))
    assert order_test(real=order, sim=order).p_value == pytest.approx(1 / math.factorial(count))
    assert order_test(real=order, sim=order[::-1]).p_value == 1.0


def test_orders_of_many_policies_are_drawn_and_agree_with_enumeration() -> None:
    real, sim = [1, 2, 3, 4, 5, 6, 7, 8], [2, 1, 4, 3, 6, 5, 8, 7]
    exact = order_test(real=real, sim=sim).p_value
    rng = np.random.default_rng(80)
    uniform = [
        order_test(real=rng.random(9), sim=rng.random(9), rng=rng, draws=200).p_value or 0 for _ in range(200)
    ]
    assert exact is not None
    assert exact < 0.01
    assert np.mean(np.array(uniform) <= 0.1) == pytest.approx(0.1, abs=0.07)
    with pytest.raises(UsageError, match="rng="):
        order_test(real=[*real, 9], sim=[*sim, 9])
    assert order_test(real=[1, 1], sim=[1, 2]).p_value is None


def test_one_policy_apart_can_carry_a_correlation() -> None:
    real, sim = [0.0, 0.8, 0.85, 0.9], [0.1, 0.9, 0.86, 0.88]
    found = leave_one_out(real=real, sim=sim)
    assert found is not None
    assert (pearson(real=real, sim=sim) or 0) > 0.99
    assert found[0] < -0.3
    assert leave_one_out(real=real[:3], sim=sim[:3]) is None


@pytest.mark.parametrize("wrong", [([0.1], [0.1, 0.2]), ([float("nan"), 1.0, 2.0], [1.0, 2.0, 3.0])])
def test_unequal_rows_and_missing_rates_are_refused(wrong: tuple[list[float], list[float]]) -> None:
    for statistic in (mmrv, pearson, spearman):
        with pytest.raises(UsageError, match=r"one of each|finite"):
            statistic(real=wrong[0], sim=wrong[1])


def _policies(real: list[int], sim: list[int], n: int) -> list[PolicyPair]:
    return [
        PolicyPair(name=f"p{i}", real_successes=r, real_n=n, sim_successes=s, sim_n=n)
        for i, (r, s) in enumerate(zip(real, sim, strict=True))
    ]


def test_an_agreement_is_the_same_for_the_same_generator_and_counts_its_pairs() -> None:
    policies = _policies([2, 10, 15, 15], [4, 12, 11, 19], 20)
    first = agreement_of_counts(policies, rng=np.random.default_rng(81))
    assert first == agreement_of_counts(policies, rng=np.random.default_rng(81))
    assert (first.pairs_agreeing, first.pairs_reversed, first.pairs_tied) == (4, 1, 1)
    assert first.regret.point == 0.0
    assert first.bias.point == pytest.approx(0.05)
    assert first.pearson.point == pytest.approx(pearson(real=[2, 10, 15, 15], sim=[4, 12, 11, 19]))


def test_more_trials_shorten_the_interval_of_a_correlation() -> None:
    widths = []
    for n in (20, 200):
        found = agreement_of_counts(
            _policies([n // 10, n // 2, 9 * n // 10], [n // 5, n // 2, 9 * n // 10], n),
            rng=np.random.default_rng(82),
        ).pearson
        assert found.low is not None
        assert found.high is not None
        widths.append(found.high - found.low)
    assert widths[1] < widths[0] / 1.5


def test_a_perfect_simulator_of_close_policies_is_far_from_a_perfect_score() -> None:
    close = agreement_of_counts(
        _policies([12, 13, 14, 15, 16, 17], [13, 12, 14, 16, 15, 17], 20), rng=np.random.default_rng(83)
    )
    far = agreement_of_counts(
        _policies([2, 6, 10, 14, 18, 20], [2, 6, 10, 14, 18, 20], 20), rng=np.random.default_rng(83)
    )
    assert (close.mmrv_of_a_perfect_simulator.point or 0) > 0.06
    assert (close.mmrv.point or 0) < (close.mmrv_of_a_perfect_simulator.high or 0)
    assert (far.mmrv_of_a_perfect_simulator.point or 1) < 0.03


def test_the_regret_of_a_tied_choice_is_that_of_choosing_at_random() -> None:
    assert agreement_of_counts(
        _policies([20, 10, 0], [15, 15, 0], 20), rng=np.random.default_rng(84)
    ).regret.point == pytest.approx(0.25)


def test_few_or_constant_policies_have_no_correlation_and_a_reason() -> None:
    two = agreement_of_counts(_policies([3, 9], [2, 8], 10), rng=np.random.default_rng(85))
    assert two.pearson.point is None
    assert "line" in two.pearson.reason
    assert two.mmrv.is_defined
    constant = agreement_of_counts(_policies([0, 0, 0], [2, 8, 5], 10), rng=np.random.default_rng(85))
    assert constant.pearson.point is None
    assert "alike" in constant.spearman.reason
    assert constant.order.p_value is None
    with pytest.raises(UsageError, match="no policy"):
        agreement_of_counts([], rng=np.random.default_rng(85))
    with pytest.raises(UsageError, match="without a trial"):
        agreement_of_counts(_policies([0], [0], 0), rng=np.random.default_rng(85))


def _world(
    rng: np.random.Generator, shared: float
) -> tuple[dict[str, dict[int, Outcome]], dict[str, dict[int, Outcome]]]:
    """Two policies at rates .5 and .7 on 40 conditions; hardness is common to all with the given chance."""
    hardness = rng.random(40)
    sides_ = []
    for _ in range(2):
        side = {}
        for name, rate in (("a", 0.5), ("b", 0.7), ("c", 0.3)):
            own = np.where(rng.random(40) < shared, hardness, rng.random(40))
            side[name] = {i: GOOD if h < rate else BAD for i, h in enumerate(own)}
        sides_.append(side)
    return sides_[0], sides_[1]


def test_shared_start_conditions_narrow_the_interval_that_separate_noise_would_give() -> None:
    real, sim = _world(np.random.default_rng(86), shared=1.0)
    together = agreement_by_condition(real=real, sim=sim, rng=np.random.default_rng(87)).bias
    counts = [
        PolicyPair(
            name=n,
            real_successes=sum(o.is_success for o in real[n].values()),
            real_n=40,
            sim_successes=sum(o.is_success for o in sim[n].values()),
            sim_n=40,
        )
        for n in real
    ]
    apart = agreement_of_counts(counts, rng=np.random.default_rng(87)).bias
    assert together.point == pytest.approx(apart.point)
    assert together.low is not None
    assert together.high is not None
    assert apart.low is not None
    assert apart.high is not None
    assert together.high - together.low < apart.high - apart.low
    # forty conditions without a difference leave one of a few points possible
    assert together.high >= 3.0 / 40


def test_the_interval_over_conditions_covers_the_bias_of_a_simulator() -> None:
    rng, inside = np.random.default_rng(88), 0
    for _ in range(60):
        real, sim = _world(rng, shared=0.7)
        bias = agreement_by_condition(real=real, sim=sim, rng=rng, draws=2).bias
        assert bias.low is not None
        assert bias.high is not None
        inside += bias.low <= 0.0 <= bias.high
    assert inside / 60 > 0.88


def test_voids_and_missing_conditions_are_left_out_of_the_rates() -> None:
    real = {"a": {1: GOOD, 2: BAD, 3: VOID}, "b": {1: BAD, 2: BAD, 3: GOOD}, "c": {1: GOOD, 2: GOOD, 3: GOOD}}
    sim = {name: {c: o for c, o in row.items() if c != 2} for name, row in real.items()}
    found = agreement_by_condition(real=real, sim=sim, rng=np.random.default_rng(89), draws=50)
    assert found.bias.point == pytest.approx((0.5 + 1 / 6 + 0) / 3)
    with pytest.raises(UsageError, match="expected the same"):
        agreement_by_condition(real=real, sim={"a": {}}, rng=np.random.default_rng(0))
    with pytest.raises(UsageError, match="without a trial"):
        agreement_by_condition(real=real, sim={**sim, "a": {3: VOID}}, rng=np.random.default_rng(0))
