"""Choosing among policies: the best one is seldom dropped, the worst soon, and the winner's own rate is not believed."""

from __future__ import annotations

import math

import numpy as np
import pytest

from simgap.errors import UsageError
from simgap.statistics import (
    eliminations,
    log_e_paired,
    race,
    select_against_report,
    selection_optimism,
    wilson,
)
from simgap.types import Outcome

GOOD, BAD, VOID = Outcome.success(), Outcome.failure("dropped"), Outcome.void("renderer died")


def _outcomes(table: np.ndarray) -> dict[str, dict[int, Outcome]]:
    return {
        f"policy{i}": {seed: GOOD if hit else BAD for seed, hit in enumerate(row)}
        for i, row in enumerate(table)
    }


@pytest.mark.parametrize("rates", [[0.8, 0.7, 0.6, 0.3], [0.9] * 5, [0.5, 0.5, 0.1]])
def test_a_best_policy_is_seldom_dropped_however_often_one_looks(rates: list[float]) -> None:
    rng = np.random.default_rng(50)
    gone = eliminations((rng.random((400, len(rates), 200)) < np.array(rates)[None, :, None]).astype(float))
    for i, rate in enumerate(rates):
        if rate == max(rates):
            assert np.isfinite(gone[:, i]).mean() <= 0.05
    assert np.isfinite(gone).sum(axis=1).max() < len(rates)  # somebody always stays


def test_a_best_policy_is_seldom_dropped_when_seeds_are_hard_for_all_alike() -> None:
    rng = np.random.default_rng(51)
    hardness = rng.random((500, 1, 200))
    own = rng.random((500, 3, 200))
    successes = np.where(own < 0.7, hardness < 0.6, rng.random((500, 3, 200)) < 0.6).astype(float)
    gone = eliminations(successes)
    assert np.isfinite(gone).mean(axis=0).max() <= 0.05


def test_the_worse_a_policy_the_sooner_it_is_dropped() -> None:
    rng = np.random.default_rng(52)
    rates = np.array([0.9, 0.75, 0.5, 0.1])
    gone = np.minimum(
        eliminations((rng.random((150, 4, 250)) < rates[None, :, None]).astype(float)), 250
    ).mean(axis=0)
    assert gone[3] < gone[2] < gone[1] < gone[0]
    assert gone[3] < 12


def test_averaging_evidence_drops_no_later_than_bonferroni_over_the_others() -> None:
    rng = np.random.default_rng(53)
    table = rng.random((4, 40)) < np.array([0.9, 0.9, 0.9, 0.5])[:, None]
    outcomes = _outcomes(table)
    for seeds in range(5, 41):
        part = {name: dict(list(row.items())[:seeds]) for name, row in outcomes.items()}
        dropped = {e.name for e in race(part).entrants if not e.stays}
        for j in range(4):
            wins = [
                (np.sum(table[i, :seeds] & ~table[j, :seeds]), np.sum(table[j, :seeds] & ~table[i, :seeds]))
                for i in range(4)
                if i != j
            ]
            bonferroni = max(float(log_e_paired(w, losses)) for w, losses in wins) >= math.log(3 / 0.05)
            assert not bonferroni or f"policy{j}" in dropped
    against_three = np.array([[1] * 7, [1] * 7, [1] * 7, [0] * 7])
    # each of the three alone is not enough for Bonferroni
    assert math.log(20) < float(log_e_paired(7, 0)) < math.log(3 * 20)
    assert len(race(_outcomes(against_three)).going_on) == 3


def test_a_race_says_who_goes_on_who_is_beaten_by_whom_and_who_cannot_be_told_apart() -> None:
    rng = np.random.default_rng(54)
    result = race(_outcomes(rng.random((3, 80)) < np.array([0.9, 0.85, 0.2])[:, None]))
    assert result.going_on == ("policy0", "policy1") or result.going_on == ("policy1", "policy0")
    assert result.winner is None
    loser = result.entrants[-1]
    assert (loser.name, loser.stays) == ("policy2", False)
    assert loser.beaten_by in result.going_on
    assert loser.log_e_not_best >= math.log(20)
    assert result.letters == {result.going_on[0]: "a", result.going_on[1]: "a", "policy2": "b"}
    assert len(result.claims) == 3
    assert [c.p_value for c in result.claims] == sorted(c.p_value for c in result.claims)
    strongest = result.claims[0]
    assert strongest.worse == "policy2"
    assert strongest.wins > strongest.losses
    assert strongest.pairs == 80
    assert strongest.p_value < strongest.adjusted <= 0.05


def test_a_race_of_two_ends_with_a_winner() -> None:
    assert race(_outcomes(np.array([[1] * 12, [0] * 12]))).winner == "policy0"


def test_a_dropped_policy_that_gets_no_more_seeds_stays_dropped() -> None:
    rng = np.random.default_rng(55)
    table = rng.random((3, 120)) < np.array([0.9, 0.85, 0.2])[:, None]
    outcomes = _outcomes(table)
    short = {name: dict(list(row.items())[:30]) for name, row in outcomes.items()}
    assert "policy2" not in race(short).going_on
    longer = {**outcomes, "policy2": short["policy2"]}
    assert "policy2" not in race(longer).going_on
    assert {c.pairs for c in race(longer).claims if c.worse == "policy2"} == {30}


def test_the_race_and_its_simulation_agree() -> None:
    rng = np.random.default_rng(56)
    table = rng.random((4, 60)) < np.array([0.9, 0.6, 0.5, 0.3])[:, None]
    gone = eliminations(table[None].astype(float))[0]
    first = int(gone.min())
    part = {name: dict(list(row.items())[:first]) for name, row in _outcomes(table).items()}
    before = {name: dict(list(row.items())[: first - 1]) for name, row in _outcomes(table).items()}
    assert [e.name for e in race(part).entrants if not e.stays] == [f"policy{int(gone.argmin())}"]
    assert len(race(before).going_on) == 4


@pytest.mark.parametrize("seeds", [0, 1])
def test_with_hardly_any_seed_everybody_stays(seeds: int) -> None:
    outcomes = {"a": dict.fromkeys(range(seeds), GOOD), "b": dict.fromkeys(range(seeds), BAD)}
    assert set(race(outcomes).going_on) == {"a", "b"}


def test_equal_outcomes_tell_nobody_apart_and_one_policy_alone_proves_nothing() -> None:
    alike = race(_outcomes(np.ones((3, 50))))
    assert len(alike.going_on) == 3
    assert set(alike.letters.values()) == {"a"}
    alone = race({"only": dict.fromkeys(range(9), GOOD)})
    assert alone.winner == "only"
    assert alone.entrants[0].log_e_not_best == 0.0
    assert alone.claims == ()
    with pytest.raises(UsageError, match="without policies"):
        race({})


def test_voids_and_missing_seeds_do_not_count_and_are_shown() -> None:
    outcomes = {"a": dict.fromkeys(range(10), GOOD), "b": {**dict.fromkeys(range(5), BAD), 5: VOID, 40: BAD}}
    result = race(outcomes)
    assert {e.name: e.voids for e in result.entrants} == {"a": 0, "b": 1}
    assert result.claims[0].pairs == 5


@pytest.mark.parametrize(
    ("rates", "n"), [([0.7] * 8, 50), ([0.5] * 4, 20), ([0.3, 0.45, 0.6, 0.75, 0.9], 50)]
)
def test_the_estimated_winners_curse_is_about_the_real_one(rates: list[float], n: int) -> None:
    rng = np.random.default_rng(57)
    truth, real, estimated = np.array(rates), [], []
    for _ in range(150):
        counts = rng.binomial(n, truth)
        best = int(np.argmax(counts + rng.random(len(truth)) * 0.5))
        real.append(counts[best] / n - truth[best])
        point = selection_optimism(counts.tolist(), n, rng=rng, draws=300).point
        assert point is not None
        estimated.append(point)
    assert np.mean(estimated) == pytest.approx(np.mean(real), abs=0.025)


def test_more_policies_and_fewer_rollouts_make_the_curse_worse() -> None:
    def excess(policies: int, n: int) -> float:
        point = selection_optimism(
            [round(0.7 * n)] * policies, n, rng=np.random.default_rng(58), draws=3000
        ).point
        assert point is not None
        return point

    assert excess(2, 50) < excess(10, 50) < excess(10, 10)


def test_the_curse_of_nothing_selected_is_said_in_words() -> None:
    rng = np.random.default_rng(59)
    assert selection_optimism([], 10, rng=rng).point is None
    assert selection_optimism([0, 0], 0, rng=rng).point is None
    alone = selection_optimism([7], 10, rng=rng)
    assert alone.point == 0.0
    assert "nothing was selected" in alone.reason
    perfect = selection_optimism([10, 10, 10], 10, rng=rng)
    assert perfect.point is not None
    assert abs(perfect.point) < 0.05
    with pytest.raises(UsageError, match="impossible"):
        selection_optimism([11, 3], 10, rng=rng)


def test_the_measured_curse_is_selection_minus_report() -> None:
    difference = select_against_report(wilson(48, 50), wilson(80, 100))
    assert difference.point == pytest.approx(0.16)
    assert difference.low is not None
    assert difference.low > 0
    assert not select_against_report(wilson(48, 50), wilson(0, 0)).is_defined
