"""Screens, sample sizes, and the limits of n in words."""

from __future__ import annotations

import pytest

from simgap.errors import UsageError
from simgap.statistics import (
    ScreenVerdict,
    perfect_run_for,
    screen_verdict,
    trials_needed,
    visible_difference,
    what_n_cannot_show,
)


@pytest.mark.parametrize(
    ("k", "n", "verdict"),
    [
        (0, 0, ScreenVerdict.UNDECIDED),
        (0, 1, ScreenVerdict.UNDECIDED),
        (1, 1, ScreenVerdict.UNDECIDED),
        (0, 20, ScreenVerdict.BROKEN),
        (20, 20, ScreenVerdict.WORTH_HARDWARE_TIME),
        (114, 400, ScreenVerdict.BROKEN),
        (397, 400, ScreenVerdict.WORTH_HARDWARE_TIME),
        (10, 20, ScreenVerdict.UNDECIDED),
        (18, 20, ScreenVerdict.UNDECIDED),
    ],
)
def test_a_screen_decides_on_the_whole_interval(k: int, n: int, verdict: ScreenVerdict) -> None:
    assert screen_verdict(k, n, broken_below=0.5, worthy_above=0.8) is verdict


def test_a_screen_can_say_three_things_and_no_more() -> None:
    assert [str(v) for v in ScreenVerdict] == ["broken", "worth hardware time", "undecided"]


def test_crossed_bars_are_refused() -> None:
    with pytest.raises(UsageError, match="bars"):
        screen_verdict(1, 2, broken_below=0.9, worthy_above=0.5)


def test_sample_size_falls_with_the_gap_and_grows_with_power() -> None:
    assert trials_needed(0.5, 0.9) < trials_needed(0.7, 0.9) < trials_needed(0.8, 0.9)
    assert trials_needed(0.7, 0.9, power=0.9) > trials_needed(0.7, 0.9, power=0.8)
    assert trials_needed(0.9, 0.7) == trials_needed(0.7, 0.9)
    assert trials_needed(0.0, 1.0) >= 3


def test_no_number_of_trials_tells_equal_rates_apart() -> None:
    with pytest.raises(UsageError, match="equal"):
        trials_needed(0.5, 0.5)


def test_the_visible_difference_is_the_inverse_of_the_sample_size() -> None:
    rise = visible_difference(0.5, 40)
    assert rise is not None
    assert trials_needed(0.5, 0.5 + rise) <= 40 < trials_needed(0.5, 0.5 + rise - 0.01)
    assert visible_difference(0.5, 1) is None
    assert visible_difference(1.0, 1000) is None


def test_a_perfect_run_needs_29_trials_to_show_ninety_percent() -> None:
    assert [perfect_run_for(target) for target in (0.8, 0.9, 0.95, 0.98, 0.99)] == [14, 29, 59, 149, 299]


@pytest.mark.parametrize(("n", "words"), [(0, "nothing"), (1, "3 %"), (20, "83 %"), (400, "99 %")])
def test_the_limits_of_n_are_said_in_words(n: int, words: str) -> None:
    assert words in what_n_cannot_show(n)
