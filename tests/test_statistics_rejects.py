"""Races on a budget: what it costs is known before, nobody set aside is called worse, and hardly anything is lost."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simgap.errors import UsageError
from simgap.statistics import BudgetedRace, most_missed, race_on_budget, rejects_schedule
from simgap.types import Outcome

GOOD, BAD, VOID = Outcome.success(), Outcome.failure("dropped"), Outcome.void("renderer died")


def run(table: np.ndarray, looks: Sequence[int], share: float = 0.5) -> BudgetedRace:
    """Race the rows of a table of 0 and 1."""

    def look_at(look: int, names: Sequence[str]) -> Mapping[str, Mapping[int, Outcome]]:
        seeds = range(sum(looks[:look]), sum(looks[: look + 1]))
        return {name: {s: GOOD if table[int(name), s] else BAD for s in seeds} for name in names}

    return race_on_budget([str(i) for i in range(len(table))], looks, look_at, share=share)


@given(
    policies=st.integers(1, 40),
    looks=st.lists(st.integers(1, 32), min_size=1, max_size=12),
    share=st.floats(0.01, 1.0),
)
def test_a_schedule_keeps_its_budget_and_lets_nobody_back_in(
    policies: int, looks: list[int], share: float
) -> None:
    allowed = rejects_schedule(policies, looks, share)
    assert allowed[0] == policies
    assert all(later <= sooner for sooner, later in itertools.pairwise(allowed))
    cost = sum(count * seeds for count, seeds in zip(allowed, looks, strict=True) if count > 1)
    assert cost <= max(share * policies * sum(looks), policies * looks[0])


@given(policies=st.integers(2, 20), looks=st.lists(st.integers(1, 32), min_size=1, max_size=8))
def test_the_whole_budget_sets_nobody_aside_and_a_larger_one_never_fewer(
    policies: int, looks: list[int]
) -> None:
    assert rejects_schedule(policies, looks, 1.0) == (policies,) * len(looks)
    rows = [rejects_schedule(policies, looks, share) for share in (0.2, 0.4, 0.6, 0.8)]
    assert all(a <= b for less, more in itertools.pairwise(rows) for a, b in zip(less, more, strict=True))


def test_as_many_go_on_as_seeds_run_so_far_allow() -> None:
    allowed = rejects_schedule(12, (16,) * 12, 0.5)
    c = max(count * 16 * look for look, count in enumerate(allowed) if count < 12)
    assert all(count == min(12, c // (16 * look)) for look, count in enumerate(allowed) if look)


@pytest.mark.parametrize(("looks", "share"), [((), 0.5), ((0, 4), 0.5), ((4,), 0.0), ((4,), 1.5)])
def test_no_look_and_no_budget_are_refused(looks: tuple[int, ...], share: float) -> None:
    with pytest.raises(UsageError, match="expected"):
        rejects_schedule(3, looks, share)


def test_those_set_aside_trailed_and_are_not_called_worse() -> None:
    table = np.random.default_rng(1).random((8, 96)) < 0.7
    found = run(table, (16,) * 6)
    assert found.trials <= 0.5 * table.size
    assert found.set_aside
    for name in found.set_aside:
        seeds = len(found.outcomes[name])
        kept = [n for n in found.outcomes if len(found.outcomes[n]) > seeds]
        assert all(table[int(name), :seeds].sum() <= table[int(n), :seeds].sum() for n in kept)
    assert set(found.alike) >= set(found.set_aside) & set(found.standing.going_on)
    assert found.winner not in found.set_aside


def test_of_equal_policies_the_one_named_last_wins() -> None:
    assert run(np.ones((5, 64)), (16,) * 4).winner == "4"
    assert run(np.zeros((5, 64)), (16,) * 4).winner == "4"
    assert run(np.ones((1, 64)), (16,) * 4).trials == 16, "one policy alone has nobody to be compared with"


def test_a_policy_that_is_void_throughout_is_not_taken() -> None:
    def look_at(look: int, names: Sequence[str]) -> Mapping[str, Mapping[int, Outcome]]:
        return {
            n: {8 * look + i: VOID if n == "broken" else BAD if i else GOOD for i in range(8)} for n in names
        }

    assert race_on_budget(["fine", "broken"], (8, 8), look_at, share=1.0).winner == "fine"


def test_a_policy_that_is_void_nearly_always_does_not_win_by_the_few_trials_that_count() -> None:
    def look_at(look: int, names: Sequence[str]) -> Mapping[str, Mapping[int, Outcome]]:
        seeds = range(16 * look, 16 * look + 16)
        return {
            n: {
                s: VOID if n == "flaky" and s % 16 else GOOD if n == "flaky" or s % 10 else BAD for s in seeds
            }
            for n in names
        }

    for names in (["fine", "flaky"], ["flaky", "fine"]):
        assert race_on_budget(names, (16,) * 6, look_at, share=1.0).winner == "fine"


@pytest.mark.slow
@pytest.mark.parametrize(
    "rates", [[0.9, 0.9, 0.96, 0.98, 0.97, 0.98], [0.4, 0.5, 0.6, 0.7, 0.8, 0.9], [0.7] * 6]
)
def test_half_the_rollouts_lose_hardly_more_than_all_and_a_best_policy_is_seldom_called_beaten(
    rates: list[float],
) -> None:
    rng, truth = np.random.default_rng(2), np.array(rates)
    lost, beaten, races = [], 0, 80
    for _ in range(races):
        table = rng.random((6, 96)) < truth[:, None]
        found = run(table, (24,) * 4)
        full = 5 - int(np.argmax(table.sum(axis=1)[::-1]))
        lost.append(truth[full] - truth[int(found.winner)])
        best = {str(i) for i in np.flatnonzero(truth == truth.max())}
        beaten += len(best - set(found.standing.going_on))
        assert found.trials <= 0.5 * table.size
    assert np.mean(lost) < 0.01
    assert beaten <= 0.05 * races * len(best) + 3


def test_what_is_missed_is_bounded_as_often_as_it_says_and_shrinks_with_seeds() -> None:
    rng, truth = np.random.default_rng(3), np.array([0.6, 0.7, 0.8])
    holds = 0
    for _ in range(60):
        table = rng.random((3, 48)) < truth[:, None]
        outcomes = {
            str(i): {s: GOOD if hit else BAD for s, hit in enumerate(row)} for i, row in enumerate(table)
        }
        winner = str(2 - int(np.argmax(table.sum(axis=1)[::-1])))
        bound = most_missed(outcomes, winner, 0.8)
        assert bound is not None
        holds += bound >= truth.max() - truth[int(winner)]
    assert holds >= 48
    all_good = [{"a": dict.fromkeys(range(n), GOOD), "b": dict.fromkeys(range(n), GOOD)} for n in (20, 100)]
    few, many = (most_missed(o, "a") for o in all_good)
    assert few is not None
    assert many is not None
    assert 0 < many < few
    assert most_missed({"a": {1: GOOD}, "b": {2: GOOD}}, "a") is None
