"""What n can show, exactly: power by enumeration, widths, failures allowed, and the limits in words."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from simgap.errors import UsageError
from simgap.statistics import (
    clopper_pearson_bound,
    detectable_rise,
    detectable_rise_paired,
    exact_independence,
    failures_allowed,
    limits_of,
    mcnemar,
    perfect_run_for,
    power_of,
    power_of_paired,
    rule_of_three,
    trials_for_width,
    trials_needed,
    width_of,
)
from simgap.statistics.power import TestName as ExactName
from simgap.statistics.power import _p_values


@pytest.mark.parametrize("test", ["fisher", "barnard", "boschloo"])
def test_the_tables_behind_the_power_are_those_of_the_tests(test: ExactName) -> None:
    table = _p_values(9, 7, test)
    for a, b in [(0, 3), (3, 6), (9, 4), (5, 1), (4, 4), (0, 0), (9, 7)]:
        assert table[a, b] == pytest.approx(exact_independence(a, 9, b, 7, test).p_value, abs=2e-4)


@pytest.mark.parametrize("test", ["fisher", "barnard", "boschloo"])
def test_at_equal_rates_the_power_is_the_size_and_stays_below_the_level(test: ExactName) -> None:
    sizes = [power_of(p, p, 12, test=test) for p in np.linspace(0.013, 0.987, 40)]
    assert max(sizes) <= 0.05 + 1e-4
    assert power_of(0.5, 0.9, 12, test=test) > 0.3


def test_power_grows_with_the_difference_and_mirrors() -> None:
    powers = [power_of(0.5, p, 25) for p in (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)]
    assert powers == sorted(powers)
    assert power_of(0.3, 0.8, 15, 20) == pytest.approx(power_of(0.8, 0.3, 20, 15), abs=1e-9)
    assert power_of(0.3, 0.8, 15) == pytest.approx(power_of(0.7, 0.2, 15), abs=1e-9)


def test_boschloo_has_at_least_the_power_of_fisher() -> None:
    for p1 in (0.6, 0.75, 0.9):
        assert power_of(0.5, p1, 20) >= power_of(0.5, p1, 20, test="fisher") - 1e-9


def test_the_smallest_detectable_rise_is_the_smallest() -> None:
    rise = detectable_rise(30, 0.5)
    assert rise is not None
    assert power_of(0.5, 0.5 + rise, 30) >= 0.8 > power_of(0.5, 0.5 + rise - 0.005, 30)
    # the approximation follows the conservative test
    assert trials_needed(0.5, 0.5 + rise) == pytest.approx(30, rel=0.35)
    assert detectable_rise(60, 0.5) < rise  # type: ignore[operator]


@pytest.mark.parametrize("n", [0, 1, 2])
def test_a_handful_of_trials_shows_no_rise_at_all(n: int) -> None:
    assert detectable_rise(n, 0.5) is None
    assert detectable_rise_paired(n, 0.5) is None
    assert detectable_rise(50, 1.0) is None


def test_paired_power_is_what_the_exact_test_does() -> None:
    n, rise, discordant = 25, 0.3, 0.1
    rng = np.random.default_rng(60)
    draws = rng.multinomial(n, [rise + discordant / 2, discordant / 2, 1 - rise - discordant], size=1500)
    rejects = np.array([(mcnemar(int(w), int(losses)).p_value or 0) <= 0.05 for w, losses, _ in draws])
    assert power_of_paired(n, rise, discordant) == pytest.approx(rejects.mean(), abs=0.04)


def test_pairs_that_seldom_differ_by_chance_need_fewer_trials() -> None:
    rises = [detectable_rise_paired(50, 0.5, discordant=d) for d in (0.0, 0.1, 0.3)]
    assert None not in rises
    assert rises == sorted(rises, key=lambda r: r or 0)
    assert rises[0] < (detectable_rise(50, 0.5) or 1)  # type: ignore[operator]


def test_paired_power_under_equality_stays_below_the_level() -> None:
    for discordant in (0.1, 0.5, 1.0):
        assert power_of_paired(40, 0.0, discordant) <= 0.05
    assert power_of_paired(0, 0.3, 0.1) == power_of_paired(5, 0.0, 0.0) == 0.0


@settings(max_examples=60)
@given(st.integers(1, 400), st.floats(0.5, 0.98))
def test_failures_allowed_is_the_largest_number_that_still_shows_the_target(n: int, target: float) -> None:
    allowed = failures_allowed(n, target)
    if allowed is not None:
        assert (clopper_pearson_bound(n - allowed, n).low or 0) >= target - 1e-9
    one_more = 0 if allowed is None else allowed + 1
    assert one_more > n or (clopper_pearson_bound(n - one_more, n).low or 0) < target


def test_a_perfect_run_is_no_failure_allowed() -> None:
    for target in (0.8, 0.9, 0.95):
        n = perfect_run_for(target)
        assert failures_allowed(n, target) == 0
        assert failures_allowed(n - 1, target) is None
    assert failures_allowed(0, 0.9) is None


@pytest.mark.parametrize("n", [1, 10, 30, 300])
def test_the_rule_of_three_holds_and_is_a_little_pessimistic(n: int) -> None:
    low = rule_of_three(n).low
    assert low is not None
    assert binom.pmf(n, n, low) == pytest.approx(0.05)
    assert max(1 - 3 / n, 0) <= low
    assert n < 30 or low == pytest.approx(1 - 3 / n, abs=0.005)
    assert not rule_of_three(0).is_defined


@settings(max_examples=5)
@given(st.floats(0.1, 0.6), st.sampled_from([0.5, 0.8, 0.95, 1.0]))
def test_the_trials_for_a_width_give_it_and_one_fewer_does_not(width: float, rate: float) -> None:
    n = trials_for_width(width, rate)
    assert all((width_of(m, rate) or 1) <= width for m in range(n, n + 11))
    assert n == 1 or any((width_of(m, rate) or 1) > width for m in range(n - 1, n + 10))


def test_the_limits_are_said_in_sentences_and_shrink_with_n() -> None:
    few, many = limits_of(10), limits_of(80)
    assert few.half_width is not None
    assert many.half_width is not None
    assert many.half_width < few.half_width
    assert few.smallest_rise_paired is None
    text = " ".join(few.words())
    assert "10 of 10 leaves a true rate of 74.1 %" in text
    assert "no rise" in text
    assert limits_of(0).words() == ["No trials: nothing can be shown."]
    assert len(limits_of(1).words()) == 4


def test_impossible_plans_are_refused() -> None:
    for wrong in [
        lambda: trials_for_width(0.0),
        lambda: trials_for_width(1e-4),
        lambda: power_of(0.5, 1.5, 10),
        lambda: power_of(0.5, 0.9, 401),
        lambda: power_of_paired(10, 0.8, 0.4),
        lambda: failures_allowed(10, 1.0),
        lambda: width_of(10, 2.0),
        lambda: power_of(0.5, 0.6, 5, test="chi"),  # type: ignore[arg-type]
    ]:
        with pytest.raises(UsageError):
            wrong()
