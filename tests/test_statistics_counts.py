"""What is no count is refused in one sentence by every function that takes counts, before anything is computed."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import simgap.statistics as statistics
from simgap.errors import UsageError
from simgap.statistics import PolicyPair, betting_interval, mcnemar, threshold_test, wilson

NO_COUNTS = (
    7.5, Fraction(15, 2), np.float32(7.5), -1, -1.0, math.nan, math.inf, -math.inf, np.nan, True, np.bool_(True), "7", "seven", b"7", None,
    10**400, 1e300, 10**12, [7], np.array([7.0, 8.0]), Decimal("NaN"), 7j,
)  # fmt: skip


def _rng() -> np.random.Generator:
    return np.random.default_rng(0)


def _agreement(x: Any, place: int) -> Any:
    fields = dict(zip(("real_successes", "real_n", "sim_successes", "sim_n"), (5, 10, 5, 10), strict=True))
    name = list(fields)[place]
    policies = [PolicyPair(name=str(i), **(fields | ({name: x} if i == 0 else {}))) for i in range(3)]
    return statistics.agreement_of_counts(policies, rng=_rng(), draws=20)


PLACES: dict[str, tuple[Callable[[Any], Any], ...]] = {
    "wilson": (lambda x: statistics.wilson(x, 10), lambda x: statistics.wilson(3, x)),
    "jeffreys": (lambda x: statistics.jeffreys(x, 10), lambda x: statistics.jeffreys(3, x)),
    "clopper_pearson": (
        lambda x: statistics.clopper_pearson(x, 10),
        lambda x: statistics.clopper_pearson(3, x),
    ),
    "clopper_pearson_bound": (
        lambda x: statistics.clopper_pearson_bound(x, 10),
        lambda x: statistics.clopper_pearson_bound(3, x),
    ),
    "beta_mixture": (lambda x: statistics.beta_mixture(x, 10), lambda x: statistics.beta_mixture(3, x)),
    "newcombe_difference": (
        lambda x: statistics.newcombe_difference(x, 10, 3, 10),
        lambda x: statistics.newcombe_difference(3, 10, 3, x),
    ),
    "miettinen_nurminen": (
        lambda x: statistics.miettinen_nurminen(x, 10, 3, 10),
        lambda x: statistics.miettinen_nurminen(3, x, 3, 10),
    ),
    "non_inferiority": (
        lambda x: statistics.non_inferiority(3, 10, x, 10, margin=0.1),
        lambda x: statistics.non_inferiority(3, x, 3, 10, margin=0.1),
    ),
    "score_statistic": (
        lambda x: statistics.score_statistic(3, 10, x, 10, 0.1),
        lambda x: statistics.score_statistic(3, 10, 3, x, 0.1),
    ),
    "exact_independence": (
        lambda x: statistics.exact_independence(x, 10, 3, 10),
        lambda x: statistics.exact_independence(3, 10, 3, x),
    ),
    "paired_difference": tuple(
        (lambda x, i=i: statistics.paired_difference(*[3] * i, x, *[3] * (3 - i))) for i in range(4)
    ),
    "newcombe_paired": tuple(
        (lambda x, i=i: statistics.newcombe_paired(*[3] * i, x, *[3] * (3 - i))) for i in range(4)
    ),
    "mcnemar": (lambda x: statistics.mcnemar(x, 1), lambda x: statistics.mcnemar(1, x)),
    "tango_interval": (
        lambda x: statistics.tango_interval(x, 3, 30),
        lambda x: statistics.tango_interval(3, 3, x),
    ),
    "mcnemar_interval": (
        lambda x: statistics.mcnemar_interval(x, 3, 30, 1.0),
        lambda x: statistics.mcnemar_interval(3, 3, x, 1.0),
    ),
    "screen_verdict": (
        lambda x: statistics.screen_verdict(x, 10, broken_below=0.5, worthy_above=0.7),
        lambda x: statistics.screen_verdict(3, x, broken_below=0.5, worthy_above=0.7),
    ),
    "sequential_screen_verdict": (
        lambda x: statistics.sequential_screen_verdict(x, 10, broken_below=0.5, worthy_above=0.7),
        lambda x: statistics.sequential_screen_verdict(3, x, broken_below=0.5, worthy_above=0.7),
    ),
    "capped_screen": (lambda x: statistics.capped_screen(x, broken_below=0.5, worthy_above=0.7),),
    "uncapped_screen": (lambda x: statistics.uncapped_screen(x, broken_below=0.5, worthy_above=0.7),),
    "capped_design": (
        lambda x: statistics.capped_design(x),
        lambda x: statistics.capped_design(20).verdict(x, 1, 10),
    ),
    "visible_difference": (lambda x: statistics.visible_difference(0.5, x),),
    "what_n_cannot_show": (lambda x: statistics.what_n_cannot_show(x),),
    "limits_of": (lambda x: statistics.limits_of(x),),
    "rule_of_three": (lambda x: statistics.rule_of_three(x),),
    "failures_allowed": (lambda x: statistics.failures_allowed(x, 0.9),),
    "width_of": (lambda x: statistics.width_of(x, 0.9),),
    "power_of": (
        lambda x: statistics.power_of(0.5, 0.9, x),
        lambda x: statistics.power_of(0.5, 0.9, 10, x if x is not None else "x"),
    ),
    "power_of_paired": (lambda x: statistics.power_of_paired(x, 0.2, 0.2),),
    "detectable_rise": (lambda x: statistics.detectable_rise(x, 0.5),),
    "detectable_rise_paired": (lambda x: statistics.detectable_rise_paired(x, 0.5),),
    "design_effect": (
        lambda x: statistics.design_effect([x, 3], [10, 10]),
        lambda x: statistics.design_effect([3, 3], [x, 10]),
    ),
    "clustered_rate": (
        lambda x: statistics.clustered_rate([x, 3], [10, 10]),
        lambda x: statistics.clustered_rate([3, 3], [x, 10]),
    ),
    "average_rate": (
        lambda x: statistics.average_rate([(x, 10), (3, 10)]),
        lambda x: statistics.average_rate([(3, x), (3, 10)]),
    ),
    "average_rate_exact": (
        lambda x: statistics.average_rate_exact([(x, 10)]),
        lambda x: statistics.average_rate_exact([(3, x), (3, 10)]),
    ),
    "average_difference": (
        lambda x: statistics.average_difference([(x, 10)], [(3, 10)]),
        lambda x: statistics.average_difference([(3, 10)], [(3, x)]),
    ),
    "selection_optimism": (
        lambda x: statistics.selection_optimism([x, 3], 10, rng=_rng(), draws=10),
        lambda x: statistics.selection_optimism([3, 3], x, rng=_rng(), draws=10),
    ),
    "rejects_schedule": (
        lambda x: statistics.rejects_schedule(x, [10, 10]),
        lambda x: statistics.rejects_schedule(3, [x, 10]),
    ),
    "log_e_below": (
        lambda x: statistics.log_e_below(x, 10, 0.5),
        lambda x: statistics.log_e_below(3, x, 0.5),
    ),
    "log_e_above": (
        lambda x: statistics.log_e_above(x, 10, 0.5),
        lambda x: statistics.log_e_above(3, x, 0.5),
    ),
    "log_e_paired": (lambda x: statistics.log_e_paired(x, 3), lambda x: statistics.log_e_paired(3, x)),
    "class_entropy": (
        lambda x: statistics.class_entropy([x, 3], 2, rng=_rng(), draws=10),
        lambda x: statistics.class_entropy([3, 3], x, rng=_rng(), draws=10),
    ),
    "agreement_of_counts": tuple((lambda x, i=i: _agreement(x, i)) for i in range(4)),
    "dip_test": (lambda x: statistics.dip_test([1.0, 2.0], rng=_rng(), draws=x),),
}
"""Every public function that takes a count: calls that put a value into the place of one."""

_ARRAYS = {"log_e_below", "log_e_above", "log_e_paired", "sequential"}
_COUNT_NAMES = {
    "k",
    "n",
    "k1",
    "n1",
    "k2",
    "n2",
    "k_new",
    "n_new",
    "n10",
    "n01",
    "n11",
    "n0",
    "n_max",
    "successes",
    "counts",
    "tasks",
    "sizes",
    "policies",
}
_NO_COUNTS_HERE = {"eliminations": "outcomes", "PairCounts": "a value"}


@pytest.mark.parametrize("name", PLACES)
def test_what_is_no_count_is_refused_in_one_line_by_every_function_that_takes_counts(name: str) -> None:
    for call in PLACES[name]:
        for value in NO_COUNTS:
            if name in _ARRAYS and isinstance(value, list | np.ndarray):
                continue  # these broadcast
            with pytest.raises(UsageError) as caught:
                call(value)
            assert "\n" not in str(caught.value)
            assert len(str(caught.value)) < 300


def test_every_public_function_that_takes_counts_stands_in_the_list() -> None:
    for name in statistics.__all__:
        thing = getattr(statistics, name)
        if inspect.isfunction(thing) and _COUNT_NAMES & set(inspect.signature(thing).parameters):
            assert name in PLACES or name in _NO_COUNTS_HERE, (
                f"{name} takes counts: add its places to the list"
            )


@pytest.mark.parametrize("whole", [7, 7.0, np.int64(7), np.uint8(7), np.float64(7.0), np.array(7)])
def test_whole_numbers_of_any_type_are_counts_and_come_back_as_plain_ones(whole: Any) -> None:
    found = wilson(whole, 10)
    assert found == wilson(7, 10)
    assert type(found.successes) is int


def test_a_half_success_is_told_how_to_be_entered_and_the_advice_works() -> None:
    with pytest.raises(UsageError, match="betting_interval"):
        wilson(7.5, 10)  # type: ignore[arg-type]
    scores = [1.0] * 6 + [0.5] * 3 + [0.0]
    assert betting_interval(scores).point == pytest.approx(0.75)


def test_outcomes_that_are_unknown_never_count_as_successes() -> None:
    for row in ([math.nan] * 7, [None] * 7, [0.5] * 7, ["yes"] * 7, [2] * 7):
        with pytest.raises(UsageError, match="outcomes"):
            threshold_test(row, 0.5, "above")  # type: ignore[arg-type]
        for compare in (statistics.compare_paired, statistics.compare_unpaired):
            with pytest.raises(UsageError, match="outcomes"):
                compare(row, [False] * 7)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="outcomes"):
            statistics.compare_capped(row, [False] * 7, statistics.capped_design(10))  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="outcomes"):
            statistics.log_e_blocks(row, [0] * 7)
        with pytest.raises(UsageError, match="outcomes"):
            statistics.eliminations([[row, row]])  # type: ignore[arg-type]
    assert threshold_test(np.ones(7), 0.5, "above").rejected
    won = np.ones((1, 2, 9), dtype=bool)
    assert np.isinf(statistics.eliminations(won)).all()
    assert statistics.log_e_blocks(won[0, 0], ~won[0, 1])[1][-1] > 1
    assert threshold_test((x > 0 for x in range(1, 8)), 0.5, "above").rejected
    assert mcnemar(7, 0).p_value == pytest.approx(2 / 2**7)


@pytest.mark.parametrize("level", [0, 1, 95, -0.5, math.nan, "0.95", None, True, [0.95]])
def test_a_level_that_is_none_is_refused(level: Any) -> None:
    for call in (
        lambda: wilson(3, 10, level),
        lambda: statistics.paired_difference(1, 2, 3, 4, confidence=level),
        lambda: betting_interval([0.5], level),
        lambda: statistics.capped_screen(10, broken_below=0.5, worthy_above=0.7, confidence=level),
        lambda: statistics.clustered_rate([3], [5], level),
        lambda: statistics.average_rate([(3, 5)], confidence=level),
        lambda: statistics.anytime_difference([1], [0], level),
        lambda: statistics.tango_interval(1, 2, 5, level),
    ):
        with pytest.raises(UsageError, match="confidence"):
            call()
