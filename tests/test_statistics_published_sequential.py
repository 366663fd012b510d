"""Published sequences of real trials and independently computed values of what may be looked at after every trial."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from simgap.statistics import (
    beta_mixture,
    betting_interval,
    betting_sequence,
    capped_design,
    compare_capped,
    compare_paired,
    compare_unpaired,
    log_e_blocks,
    log_mean,
)
from simgap.statistics.anytime import log_beta_mixture, log_capital
from test_statistics_published import reference


def test_confidence_sequences_agree_with_an_independent_library() -> None:
    data = reference("stats_reference_values.json")
    for arm in data["confidence_sequences"]["rows"].values():
        outcomes = [float(bit) for bit in arm["sequence"]]
        sequence = betting_sequence(outcomes, running=False)
        for row in arm["rows"]:
            low, high = sequence.lows[row["n"] - 1], sequence.highs[row["n"] - 1]
            assert _on_a_grid(float(low), float(high), 1000) == pytest.approx(
                row["hedged_betting_cs_grid1000"], abs=1e-9
            )
            for prior, name in (((1.0, 1.0), "beta11_mixture_cs"), ((0.5, 0.5), "beta_half_half_mixture_cs")):
                mixture = beta_mixture(row["S"], row["n"], prior=prior)
                assert (mixture.low, mixture.high) == pytest.approx(row[name], abs=2e-10)
        fixed = betting_interval(outcomes, fixed_n=True)
        # bets are capped a little differently
        assert (fixed.low, fixed.high) == pytest.approx(arm["betting_ci_fixed_n50"], abs=6e-3)
    for row in data["confidence_sequences"]["more"]:
        mixture = beta_mixture(row["S"], row["n"], 1 - row["alpha"])
        assert (mixture.low, mixture.high) == pytest.approx(row["beta11_mixture_cs"], abs=2e-10)
    mixture = beta_mixture(18, 20)
    assert (mixture.low, mixture.high) == pytest.approx(
        [float(end) for end in data["mpmath_check_18_20_beta11"]], abs=1e-12
    )


def test_a_confidence_sequence_is_never_shorter_than_the_likelihood_interval_used_in_best_arm_search() -> (
    None
):
    for row in reference("stats_reference_values.json")["kl_bounds"]["rows"]:
        k, n = round(row["phat"] * row["n"]), row["n"]
        for end in (row["L"], row["U"]):
            if 0 < end < 1:
                log_ratio = k * math.log(max(row["phat"], 1e-300) / end) + (n - k) * math.log(
                    max(1 - row["phat"], 1e-300) / (1 - end)
                )
                assert log_ratio == pytest.approx(row["beta"], abs=1e-7)
                assert float(log_beta_mixture(k, n, end)) < row["beta"]


def _step_data() -> dict[str, Any]:
    datasets = reference("step_sequences_and_stopping_times.json")["datasets"]
    assert len(datasets) == 8
    return datasets  # type: ignore[no-any-return]


def _arms(entry: dict[str, Any]) -> tuple[list[bool], list[bool]]:
    return [bit == "1" for bit in entry["p1_sequence"]], [bit == "1" for bit in entry["p0_sequence"]]


def test_published_e_processes_come_out_on_every_real_sequence() -> None:
    for entry in _step_data().values():
        new, old = (np.array(arm, dtype=float) for arm in _arms(entry))
        assert (new.sum(), old.sum()) == (entry["successes_p1"], entry["successes_p0"])
        blocks, _, _ = log_e_blocks(new, old)
        bets = log_mean(*log_capital((new - old + 1) / 2, 0.5, entry["alpha"]))
        published = entry["own_two_sample_eprocess(g=.18)"]
        assert blocks[-1] == pytest.approx(published["final_log_e"], abs=1e-6)
        stops = {"two_sample": blocks, "betting": bets, "average": log_mean(blocks, bets)}
        for name, log_e in stops.items():
            crossed = np.flatnonzero(log_e >= -math.log(entry["alpha"]))
            assert (int(crossed[0]) + 1 if len(crossed) else None) == entry["own_eprocess_first_block"][name]


def test_the_interval_of_a_real_difference_excludes_no_difference_at_the_published_pair() -> None:
    published = reference("stats_reference_values.json")["anytime_difference_by_betting"]
    names = {"CarrotDistribution": "CarrotOnPlate_distribution", "CarrotPolicy": "CarrotOnPlate_policy"}
    data = _step_data()
    for name, expected in published.items():
        new, old = (np.array(arm, dtype=float) for arm in _arms(data[names.get(name, name)]))
        sequence = betting_sequence(new - old, 1 - expected["alpha"], bounds=(-1.0, 1.0), running=False)
        low, high = (float(sequence.lows[-1]) + 1) / 2, (float(sequence.highs[-1]) + 1) / 2
        grid = [2 * end - 1 for end in _on_a_grid(low, high, 1000)]
        assert grid == pytest.approx(expected["final_cs_for_p1_minus_p0"], abs=1e-9)
        grids = [
            _on_a_grid((a + 1) / 2, (b + 1) / 2, 1000)
            for a, b in zip(sequence.lows.tolist(), sequence.highs.tolist(), strict=True)
        ]
        outside = [t for t, (a, b) in enumerate(grids, start=1) if a > 0.5 + 1e-9 or b < 0.5 - 1e-9]
        first = expected["first_trial_pair_at_which_hedged_betting_cs_of_difference_excludes_0"]
        assert (outside[0] if outside else None) == first
        exact = sequence.first_excluding(0.0)
        # no grid, no widening: sooner or at the same pair
        assert first is None or (exact is not None and exact <= first)


def test_every_published_decision_is_reached_in_its_direction_and_at_about_its_time() -> None:
    for name, entry in _step_data().items():
        new, old = _arms(entry)
        expected = (
            "undecided"
            if name == "CarrotOnPlate_distribution"
            else "new better"
            if sum(new) > sum(old)
            else "old better"
        )
        open_ended = compare_unpaired(new, old, 1 - entry["alpha"])
        signs = compare_paired(new, old, 1 - entry["alpha"])
        assert str(open_ended.verdict) == str(signs.verdict) == expected
        savi = entry["rerun_pkg_0.0.9"]["SAVI"]
        if expected != "undecided":
            assert open_ended.stopped_at is not None
            assert open_ended.stopped_at <= 1.15 * savi + 5


def test_a_design_with_a_cap_decides_about_when_the_published_optimised_one_does() -> None:
    design = capped_design(200)
    for name, entry in _step_data().items():
        step = entry["rerun_pkg_0.0.9"].get("STEP-200")
        if entry["alpha"] != 0.05 or step is None:
            continue
        new, old = _arms(entry)
        found = compare_capped(new, old, design)
        if isinstance(step, str):
            assert str(found.verdict) == "undecided"
        else:
            assert str(found.verdict) == ("new better" if sum(new) > sum(old) else "old better"), name
            assert abs(found.n - step) <= 3


def _on_a_grid(low: float, high: float, steps: int) -> list[float]:
    """Return the hull of the grid points inside, widened by a step, as the grid implementation does."""
    return [
        max(0.0, (math.ceil(low * steps - 1e-9) - 1) / steps),
        min(1.0, (math.floor(high * steps + 1e-9) + 1) / steps),
    ]
