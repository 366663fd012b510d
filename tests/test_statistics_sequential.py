"""E-processes: exactly fair under the null, seldom wrong however often one looks, and quick when there is something to see."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simgap.errors import UsageError
from simgap.statistics import (
    ComparisonVerdict,
    compare_paired,
    compare_scores,
    compare_unpaired,
    log_e_above,
    log_e_below,
    log_e_blocks,
    log_e_paired,
    log_mean,
    ordered_pairs,
    threshold_test,
)
from simgap.types import Outcome

RATES = st.floats(0.02, 0.98)
BITS = st.lists(st.booleans(), max_size=12)


@given(st.integers(0, 60), st.integers(0, 60), RATES, st.floats(0, 1))
def test_the_threshold_evidence_is_fair_at_the_threshold_and_against_us_beyond_it(
    k: int, failures: int, threshold: float, rate: float
) -> None:
    n = k + failures
    now, win, loss = (math.exp(log_e_below(a, b, threshold)) for a, b in ((k, n), (k + 1, n + 1), (k, n + 1)))
    assert threshold * win + (1 - threshold) * loss == pytest.approx(now, rel=1e-7)
    if rate >= threshold:
        assert rate * win + (1 - rate) * loss <= now * (1 + 1e-7)
    assert loss > win


@given(st.integers(0, 200), st.integers(0, 200), RATES)
def test_above_is_below_of_the_failures(k: int, failures: int, threshold: float) -> None:
    assert float(log_e_above(k, k + failures, threshold)) == pytest.approx(
        float(log_e_below(failures, k + failures, 1 - threshold))
    )


@pytest.mark.parametrize(
    ("k", "n", "threshold"),
    [(0, 1, 0.5), (3, 10, 0.5), (9, 10, 0.2), (700, 1000, 0.3), (990, 1000, 0.05), (3000, 5000, 0.5)],
)
def test_the_threshold_evidence_is_the_integral_it_stands_for_even_where_the_beta_function_underflows(
    k: int, n: int, threshold: float
) -> None:
    nodes, weights = np.polynomial.legendre.leggauss(400)
    rates = (nodes + 1) / 2 * threshold
    log_ratio = k * np.log(rates / threshold) + (n - k) * np.log((1 - rates) / (1 - threshold))
    expected = log_ratio.max() + math.log((weights / 2 * np.exp(log_ratio - log_ratio.max())).sum())
    assert float(log_e_below(k, n, threshold)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("rate", [0.5, 0.6, 0.9])
def test_a_rate_at_or_above_the_threshold_is_seldom_called_below_it(rate: float) -> None:
    k = np.cumsum(np.random.default_rng(30).random((3000, 400)) < rate, axis=1)
    ever = (log_e_below(k, np.arange(1, 401), 0.5) >= math.log(20)).any(axis=1).mean()
    assert ever <= 0.05
    if rate > 0.5:
        assert ever <= 0.01


def test_a_rate_that_wanders_above_the_threshold_is_seldom_called_below_it() -> None:
    rng = np.random.default_rng(31)
    k = np.cumsum(rng.random((2000, 400)) < rng.uniform(0.5, 1.0, (2000, 400)) ** 4 / 2 + 0.5, axis=1)
    assert (log_e_below(k, np.arange(1, 401), 0.5) >= math.log(20)).any(axis=1).mean() <= 0.05


def test_a_threshold_test_stops_soon_when_the_rate_is_clearly_below_and_stays_stopped() -> None:
    fails = [False] * 7
    test = threshold_test([*fails, *[True] * 50], 0.5, "below")
    assert (test.rejected, test.stopped_at, test.n) == (True, 7, 57)
    assert test.log_e < 0 < -math.log(test.p_value)
    assert test.p_value <= 0.05
    assert not threshold_test(fails[:6], 0.5, "below").rejected
    assert threshold_test([True] * 7, 0.5, "above").stopped_at == 7
    assert not threshold_test([True] * 50, 0.5, "below").rejected


def test_without_trials_nothing_is_rejected() -> None:
    test = threshold_test([], 0.5, "below")
    assert (test.rejected, test.n, test.p_value) == (False, 0, 1.0)
    assert not threshold_test([False], 0.5, "below").rejected


@pytest.mark.parametrize(
    "arguments", [([True], 0.0, "below"), ([True], 1.0, "above"), ([True], 0.5, "beside")]
)
def test_impossible_thresholds_and_directions_are_refused(arguments: Any) -> None:
    with pytest.raises(UsageError, match=r"threshold|direction"):
        threshold_test(*arguments)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=12), RATES, RATES)
def test_a_block_of_two_independent_trials_is_never_in_favour_of_the_evidence_under_its_null(
    past: list[tuple[bool, bool]], p: float, q: float
) -> None:
    worse, better = min(p, q), max(p, q)
    # equality, new <= old, old <= new
    for k, (new, old) in enumerate([(p, p), (worse, better), (better, worse)]):
        mean = 0.0
        for y1, y0 in itertools.product([0, 1], repeat=2):
            row1, row0 = [*(float(a) for a, _ in past), y1], [*(float(b) for _, b in past), y0]
            log_e = log_e_blocks(row1, row0)[k]
            gain = log_e[-1] - (log_e[-2] if past else 0.0)
            mean += (new if y1 else 1 - new) * (old if y0 else 1 - old) * math.exp(gain)
        assert mean <= 1 + 1e-9


@given(BITS)
def test_the_two_one_sided_processes_make_up_the_two_sided_one_and_mirror(bits: list[bool]) -> None:
    new, old = np.array(bits, dtype=float), np.array(bits[::-1], dtype=float)
    both, up, down = log_e_blocks(new, old)
    assert np.allclose(both, up + down)
    swapped = log_e_blocks(old, new)
    assert np.allclose(up, swapped[2])
    assert np.allclose(both, log_e_blocks(1 - new, 1 - old)[0])


@given(st.integers(0, 80), st.integers(0, 80))
def test_the_paired_evidence_counts_discordant_pairs_alone_and_is_fair_on_a_coin(
    wins: int, losses: int
) -> None:
    now = math.exp(log_e_paired(wins, losses))
    assert (
        math.exp(log_e_paired(wins + 1, losses)) + math.exp(log_e_paired(wins, losses + 1))
    ) / 2 == pytest.approx(now, rel=1e-7)
    assert (float(log_e_paired(wins, losses)) > float(log_e_paired(losses, wins))) == (wins > losses)


def _ever_decided(up: Any, down: Any) -> tuple[float, float]:
    needed = math.log(2 / 0.05)
    return float((up >= needed).any(axis=1).mean()), float((down >= needed).any(axis=1).mean())


@pytest.mark.parametrize("rate", [0.02, 0.3, 0.8, 0.97])
def test_equal_independent_arms_are_seldom_told_apart_with_a_look_after_every_block(rate: float) -> None:
    rng = np.random.default_rng(32)
    new, old = ((rng.random((2000, 300)) < rate).astype(float) for _ in range(2))
    wins, losses = np.cumsum(new > old, axis=1), np.cumsum(new < old, axis=1)
    _, blocks_up, blocks_down = log_e_blocks(new, old)
    up, down = _ever_decided(
        log_mean(blocks_up, log_e_paired(wins, losses)), log_mean(blocks_down, log_e_paired(losses, wins))
    )
    assert max(up, down) <= 0.025
    assert up + down <= 0.05


def test_matched_arms_of_equal_rate_are_seldom_told_apart_whatever_their_dependence() -> None:
    rng = np.random.default_rng(33)
    hardness = rng.random((2000, 300))
    for share in (0.0, 0.5, 0.9):  # of pairs on which both do the same
        new = hardness < 0.7
        old = np.where(rng.random(hardness.shape) < share, new, rng.random(hardness.shape) < 0.7)
        wins, losses = np.cumsum(new & ~old, axis=1), np.cumsum(old & ~new, axis=1)
        assert max(_ever_decided(log_e_paired(wins, losses), log_e_paired(losses, wins))) <= 0.025


def test_on_negatively_matched_pairs_the_unpaired_process_is_wrong_and_the_paired_one_holds() -> None:
    rng = np.random.default_rng(34)
    new = (rng.random((1000, 300)) < 0.5).astype(float)
    both, _, _ = log_e_blocks(new, 1 - new)  # equal rates, always opposite outcomes
    wins, losses = np.cumsum(new, axis=1), np.cumsum(1 - new, axis=1)
    assert (both >= math.log(20)).any(axis=1).mean() > 0.05
    assert max(_ever_decided(log_e_paired(wins, losses), log_e_paired(losses, wins))) <= 0.025


@pytest.mark.parametrize("compare", [compare_paired, compare_unpaired, compare_scores])
def test_a_clear_difference_is_found_in_its_direction_and_mirrors(compare: Any) -> None:
    rng = np.random.default_rng(35)
    new, old = (rng.random(80) < 0.9).tolist(), (rng.random(80) < 0.3).tolist()
    there, back = compare(new, old), compare(old, new)
    assert there.verdict is ComparisonVerdict.NEW_BETTER
    assert back.verdict is ComparisonVerdict.OLD_BETTER
    assert there.stopped_at == back.stopped_at
    assert there.stopped_at < 40
    assert there.p_value < 0.05
    assert there.difference.anytime
    assert there.difference.low > 0
    assert (back.difference.low, back.difference.high) == pytest.approx(
        (-there.difference.high, -there.difference.low)
    )


@pytest.mark.parametrize("compare", [compare_paired, compare_unpaired, compare_scores])
@pytest.mark.parametrize("n", [0, 1, 50])
@pytest.mark.parametrize("outcome", [True, False])
def test_agreement_on_everything_stays_undecided(compare: Any, n: int, outcome: bool) -> None:
    result = compare([outcome] * n, [outcome] * n)
    assert (result.verdict, result.stopped_at, result.p_value, result.n) == (
        ComparisonVerdict.UNDECIDED,
        None,
        1.0,
        n,
    )
    assert result.difference.is_defined == (n > 0)


def test_all_against_none_is_decided_after_eight_pairs() -> None:
    for n in range(12):
        decided = compare_paired([True] * n, [False] * n).verdict is ComparisonVerdict.NEW_BETTER
        assert decided == (n >= 8)


def test_a_verdict_stays_although_later_pairs_speak_against_it() -> None:
    result = compare_paired([True] * 10 + [False] * 40, [False] * 10 + [True] * 40)
    assert result.verdict is ComparisonVerdict.NEW_BETTER
    assert result.stopped_at == 8
    assert result.log_e_old_better > math.log(40)


def test_partial_credit_decides_where_success_does_not() -> None:
    rng = np.random.default_rng(36)
    new, old = np.clip(rng.normal(0.7, 0.1, 60), 0, 0.99), np.clip(rng.normal(0.4, 0.1, 60), 0, 0.99)
    assert compare_scores(new.tolist(), old.tolist()).verdict is ComparisonVerdict.NEW_BETTER
    assert compare_paired((new == 1).tolist(), (old == 1).tolist()).verdict is ComparisonVerdict.UNDECIDED


def test_equal_scores_are_seldom_told_apart() -> None:
    from simgap.statistics.anytime import log_capital

    rng = np.random.default_rng(37)
    values = (rng.beta(0.4, 0.4, (1500, 200)) - rng.beta(0.4, 0.4, (1500, 200)) + 1) / 2
    assert max(_ever_decided(*log_capital(values, 0.5, 0.05))) <= 0.025


def test_pairs_keep_the_order_of_the_trials_and_drop_voids() -> None:
    good, bad, void = Outcome.success(), Outcome.failure("dropped"), Outcome.void("camera froze")
    new, old = {9: good, 2: bad, 5: void, 7: good}, {2: good, 9: bad, 5: good, 8: good}
    assert ordered_pairs(new=new, old=old) == ([True, False], [False, True], 3)
    assert ordered_pairs(new=new, old=old, order=[2, 9]) == ([False, True], [True, False], 0)


def test_unequal_rows_and_values_that_are_no_outcomes_are_refused() -> None:
    with pytest.raises(UsageError, match="equal length"):
        compare_paired([True], [True, False])
    with pytest.raises(UsageError, match="voids"):
        compare_scores([0.5, float("nan")], [0.5, 0.5])
