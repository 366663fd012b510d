"""Published and independently computed values; the files that hold them are not shipped, so these tests may skip."""

from __future__ import annotations

import csv
import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simgap.statistics import (
    benjamini_hochberg,
    betting_interval,
    bonferroni,
    clopper_pearson,
    clopper_pearson_bound,
    combine,
    compare_unpaired,
    detectable_rise,
    exact_independence,
    failures_allowed,
    holm,
    jeffreys,
    letters,
    mcnemar,
    miettinen_nurminen,
    newcombe_difference,
    paired_difference,
    perfect_run_for,
    power_of,
    prediction_powered,
    suresim,
    tango_interval,
    trials_needed,
    width_of,
    wilson,
)


def reference(name: str) -> Any:
    folder = Path(
        os.environ.get("SIMGAP_REFERENCE", Path(__file__).parents[1] / ".." / "shared" / "reference")
    )
    path = folder / name
    if not path.is_file():
        pytest.skip(
            f"published values not found: {path}; set SIMGAP_REFERENCE to the folder that holds {name}"
        )
    return json.loads(path.read_text())


@pytest.mark.parametrize("level", ["0.90", "0.95", "0.99"])
def test_intervals_agree_with_independent_libraries(level: str) -> None:
    rows = reference("stats_reference_values.json")["binomial_intervals"]["rows"]
    assert len(rows) == 24
    for row in rows:
        for method, name in ((wilson, "wilson"), (clopper_pearson, "clopper_pearson")):
            estimate = method(row["k"], row["n"], float(level))
            if level in row:
                assert (estimate.low, estimate.high) == pytest.approx(row[level][name], abs=2e-10)


def test_jeffreys_agrees_inside_and_keeps_its_ends_where_a_library_does_not() -> None:
    for row in reference("stats_reference_values.json")["binomial_intervals"]["rows"]:
        for level in ("0.90", "0.95"):
            estimate, (low, high) = jeffreys(row["k"], row["n"], float(level)), row[level]["jeffreys"]
            assert estimate.low == (0.0 if row["k"] == 0 else pytest.approx(low, abs=2e-10))
            assert estimate.high == (1.0 if row["k"] == row["n"] else pytest.approx(high, abs=2e-10))
            assert low > 0  # the library's interval excludes 0 at 0/n
            assert high < 1


def test_one_sided_bounds_agree_and_the_wald_interval_shows_why_it_is_not_offered() -> None:
    for row in reference("stats_reference_values.json")["binomial_intervals"]["rows"]:
        k, n = row["k"], row["n"]
        for level in ("0.90", "0.95"):
            assert clopper_pearson_bound(k, n, float(level)).low == pytest.approx(
                row[level]["one_sided_lower_cp"], abs=2e-10
            )
            assert clopper_pearson_bound(k, n, float(level), "upper").high == pytest.approx(
                row[level]["one_sided_upper_cp"], abs=2e-10
            )
            low, high = row[level]["wald"]
            assert (low == high) == (k in (0, n))


def test_unpaired_comparisons_agree_with_independent_libraries() -> None:
    rows = reference("stats_reference_values.json")["two_sample"]["rows"]
    assert len(rows) >= 10
    for row in rows:
        counts = (row["k1"], row["n1"], row["k0"], row["n0"])
        difference = newcombe_difference(*counts)
        assert (difference.low, difference.high) == pytest.approx(
            row["ci95_diff_p1_minus_p0"]["newcomb"], abs=2e-9
        )
        for method, name, exact in (
            ("fisher", "fisher", 1e-9),
            ("boschloo", "boschloo", 1e-4),
            ("barnard", "barnard_pooled", 1e-4),
        ):
            for alternative in ("two-sided", "greater", "less"):
                p_value = exact_independence(*counts, method=method, alternative=alternative).p_value
                assert p_value == pytest.approx(row[name][alternative], rel=exact, abs=2e-9)


def test_the_score_interval_is_the_right_one_and_not_that_of_a_library_with_a_wrong_root() -> None:
    data = reference("stats_reference_values.json")["two_sample"]
    for row in data["rows"]:
        counts, published = (row["k1"], row["n1"], row["k0"], row["n0"]), row["ci95_diff_p1_minus_p0"]
        score, mee = miettinen_nurminen(*counts), miettinen_nurminen(*counts, small_sample=False)
        assert (score.low, score.high) == pytest.approx(published["miettinen_nurminen(own)"], abs=1e-8)
        assert (mee.low, mee.high) == pytest.approx(published["mee_no_factor(own)"], abs=1e-8)
        wrong = published["statsmodels_score_DO_NOT_USE(issue 10269)"]
        if not isinstance(wrong, str):  # on some tables the library fails instead
            assert max(abs((score.low or 0) - wrong[0]), abs((score.high or 0) - wrong[1])) > 4e-4
    for row in data["mn_checks"]:
        score = miettinen_nurminen(row["k1"], row["n1"], row["k0"], row["n0"])
        assert (score.low, score.high) == pytest.approx(row["mn"], abs=1e-8)


def test_paired_comparisons_agree_with_independent_libraries() -> None:
    rows = reference("stats_reference_values.json")["paired"]["rows"]
    assert len(rows) >= 10
    for row in rows:
        paired = paired_difference(row["n11"], row["n10"], row["n01"], row["n00"])
        assert paired.p_value == pytest.approx(row["mcnemar_exact_p"], abs=1e-8)
        assert mcnemar(row["n10"], row["n01"]).p_value == pytest.approx(row["mcnemar_exact_p"], abs=1e-8)
        assert mcnemar(row["n10"], row["n01"], mid_p=True).p_value == pytest.approx(
            row["mcnemar_midp"], abs=1e-8
        )
        assert paired.difference.point == pytest.approx(row["diff_n10_minus_n01_over_n"], abs=1e-9)
        assert tango_interval(row["n10"], row["n01"], paired.counts.n) == pytest.approx(
            row["tango95"], abs=1e-9
        )


def test_real_robot_counts_of_roboarena_give_the_published_fisher_p() -> None:
    data = reference("roboarena_real_counts.json")
    names = {"specialist": "fast_specialist"}
    published = data["published_metrics"]["fisher_p_examples"]
    assert len(published) == 7
    for pair, p_value in published.items():
        first, second = (_policy(names.get(name, name), data["policies"]) for name in pair.split("_vs_"))
        counts = [data[key][policy] for policy in (first, second) for key in ("real_successes", "n_trials")]
        assert exact_independence(*counts, method="fisher").p_value == pytest.approx(p_value, abs=6e-4)


def test_real_robot_counts_of_roboarena_give_the_listed_intervals() -> None:
    data = reference("roboarena_real_counts.json")
    for policy, ends in data["wilson95"].items():
        estimate = wilson(data["real_successes"][policy], data["n_trials"][policy])
        assert (estimate.low, estimate.high) == pytest.approx(ends, abs=6e-5)


def test_a_real_campaign_that_was_stopped_after_looking_is_undecided_by_what_allows_looking() -> None:
    folder = Path(os.environ.get("SIMGAP_REAL_DATA", Path(__file__).parents[2] / "shared" / "data"))
    path = folder / "trials_so101_tube_insertion_v2" / "trials_v2.csv"
    if not path.is_file():
        pytest.skip(f"real trials not found: {path}; set SIMGAP_REAL_DATA to the folder that holds them")
    rows = [row for row in csv.DictReader(path.read_text().splitlines()) if row["mechanism"] != "INFRA"]
    arms = {
        name: [row["stage_live"] == "S" for row in rows if row["policy"] == name]
        for name in ("ACT-A", "ACT-B")
    }
    assert {name: (sum(arm), len(arm)) for name, arm in arms.items()} == {"ACT-A": (6, 20), "ACT-B": (5, 20)}
    found = compare_unpaired(arms["ACT-A"], arms["ACT-B"])  # 40 of 80 planned trials were run
    assert str(found.verdict) == "undecided"
    assert found.p_value > 0.5
    assert found.difference.low is not None
    assert found.difference.high is not None
    assert found.difference.low < -0.2
    assert found.difference.high > 0.3
    smallest = detectable_rise(20, 0.25)
    assert smallest is not None
    assert smallest > 0.4  # said before: 20 trials an arm show nothing smaller than this


def test_real_robot_counts_of_a_serving_sweep_give_the_published_intervals() -> None:
    data = reference("dream_machines_serving_sweep.json")
    default, *others = data["arms"]
    for arm, p_value in zip(others, data["recomputed"]["boschloo_p"], strict=True):
        counts = (arm["successes"], arm["n"], default["successes"], default["n"])
        difference = newcombe_difference(*counts)
        assert difference.low is not None
        assert difference.high is not None
        assert [100 * difference.low, 100 * difference.high] == pytest.approx(
            data["published_metrics"]["newcombe95_diff_pp"][arm["name"]], abs=0.06
        )
        assert exact_independence(*counts).p_value == pytest.approx(p_value, abs=2e-6)


def test_planning_agrees_with_exact_power() -> None:
    data = reference("sample_size_and_power.json")
    for target, n in data["zero_failure_n"].items():
        assert perfect_run_for(float(target)) == n
    for name, power in data["power_two_sided_05"].items():
        arm, rates = name.removeprefix("n=").split("/arm,")
        low, high = (float(rate) for rate in rates.split("v"))
        assert trials_needed(low, high, power=power["fisher"]) == pytest.approx(int(arm), rel=0.15)
        assert power_of(low, high, int(arm), test="fisher") == pytest.approx(power["fisher"], abs=6e-5)
        if "barnard_pooled" in power:
            assert power_of(low, high, int(arm), test="barnard") == pytest.approx(
                power["barnard_pooled"], abs=6e-5
            )
    for name, allowed in data["max_failures_allowed"].items():
        n, target = (part.split("=")[1] for part in name.split(","))
        assert failures_allowed(int(n), float(target)) == allowed
    for name, width in data["cp_width_at_p"].items():
        n, rate = (part.split("=")[1] for part in name.split(","))
        assert width_of(int(n), float(rate)) == pytest.approx(width, abs=6e-5)


def test_adjusted_p_values_agree_with_an_independent_library() -> None:
    data = reference("stats_reference_values.json")["multiplicity"]
    assert holm(data["p"]) == pytest.approx(data["holm"])
    assert bonferroni(data["p"]) == pytest.approx(data["bonferroni"])
    assert benjamini_hochberg(data["p"]) == pytest.approx(data["fdr_bh"], abs=1e-9)
    for ours, sidak, hommel in zip(holm(data["p"]), data["holm-sidak"], data["hommel"], strict=True):
        assert ours >= max(sidak, hommel) - 1e-9  # Holm assumes nothing about dependence and pays for it


def test_letters_agree_with_an_independent_implementation() -> None:
    cases = reference("stats_reference_values.json")["cld"]["cases"]
    assert len(cases) >= 5
    for case in cases:
        assert (
            list(letters(case["models"], [tuple(pair) for pair in case["significant_pairs"]]).values())
            == case["letters"]
        )


def test_many_real_arms_against_a_default_give_the_published_holm_p() -> None:
    data = reference("dream_machines_serving_sweep.json")
    default, *others = data["arms"]
    p_values = [
        exact_independence(a["successes"], a["n"], default["successes"], default["n"]).p_value or 0.0
        for a in others
    ]
    for arm, adjusted in zip(others, holm(p_values), strict=True):
        assert adjusted == pytest.approx(
            data["published_metrics"]["holm_p_vs_default(boschloo)"][arm["name"]], abs=6e-3
        )
    assert holm(p_values) == pytest.approx(data["recomputed"]["holm_p"], abs=6e-5)


def test_prediction_powered_inference_agrees_with_its_authors_library() -> None:
    data = reference("stats_reference_values.json")["ppi_example"]["data"]
    cells = data["paired_counts"]
    real = [1.0] * (cells["Y1f1"] + cells["Y1f0"]) + [0.0] * (cells["Y0f1"] + cells["Y0f0"])
    sim = [1.0] * cells["Y1f1"] + [0.0] * cells["Y1f0"] + [1.0] * cells["Y0f1"] + [0.0] * cells["Y0f0"]
    extra = [1.0] * data["sim_unpaired_successes"] + [0.0] * (data["N"] - data["sim_unpaired_successes"])
    for level in ("0.95", "0.9"):
        for weight, name in ((0.0, "classical_clt"), (1.0, "ppi_lam1"), (None, "ppi_plusplus")):
            found = prediction_powered(real, sim, extra, confidence=float(level), weight=weight)
            assert (found.low, found.high) == pytest.approx(data[name][level], abs=2e-10)
    found = combine(real, sim, extra, rng=np.random.default_rng(0))
    assert (found.real_only.low, found.real_only.high) == pytest.approx(
        data["clopper_pearson_real_only_95"], abs=2e-10
    )
    assert not found.worth_showing


def test_few_pairs_undercover_as_simulated_before_and_the_real_trials_alone_are_shorter() -> None:
    rows = reference("ppi_small_n_coverage_simulation.json")["rows"]
    assert len(rows) == 32
    rng = np.random.default_rng(120)
    wider = 0
    for row in rows:
        methods, real, sim, rho, n = row["methods"], row["p_real"], row["p_sim"], row["rho"], row["n_paired"]
        assert methods["clopper_pearson_real_only"]["coverage"] >= 0.95
        wider += (
            methods["suresim_uniform_wsr"]["mean_width"] > methods["clopper_pearson_real_only"]["mean_width"]
        )
        if n in (10, 100):
            both = real * sim + rho * math.sqrt(real * (1 - real) * sim * (1 - sim))
            drawn = rng.choice(4, (150, n), p=[both, real - both, sim - both, 1 - real - sim + both])
            hits = [_covered(cells, rng.random(row["N_sim"]) < sim, real) for cells in drawn]
            assert np.mean(hits) == pytest.approx(methods["ppi_lam1_clt"]["coverage"], abs=0.13)
    assert wider == 30


def test_sim_plus_real_saves_or_costs_width_as_published_at_the_published_moments() -> None:
    data = reference("suresim_table1.json")
    gains = [row["var_rectifier"] < row["var_real"] for row in data["rows"]]
    assert gains == data["recomputed"]["benefit_condition_var_rectifier_lt_var_real"]
    rng = np.random.default_rng(121)
    alone, joined = np.zeros((2, len(gains)))
    for i, row in enumerate(data["rows"]):
        for _ in range(6):
            real, sim, extra = _scores_like(row, rng)
            for total, found in (
                (alone, betting_interval(real, 0.9, fixed_n=True)),
                (joined, suresim(real, sim, extra, rng=rng, confidence=0.9)),
            ):
                assert found.low is not None
                assert found.high is not None
                total[i] += (found.high - found.low) / 6
    saved = 1 - joined / alone
    assert alone[0] == pytest.approx(
        data["published_metrics"]["diffusion_policy_mean_CI_width"]["Classical(WSR)"], abs=0.02
    )
    # the law of the scores is not published, only its moments
    assert joined[0] == pytest.approx(
        data["published_metrics"]["diffusion_policy_mean_CI_width"]["SureSim"], abs=0.03
    )
    # an unrelated simulator costs width, one that follows reality saves much
    assert saved[2] < 0 < 0.3 < saved[3]


def test_a_randomised_bound_is_sharper_than_the_reproducible_one_on_published_counts() -> None:
    data = reference("vincent2024_bc_generalisation.json")
    for name, published in (("pour_ice_ood_good", 0.6513), ("pour_ice_ood_bad", 0.0297)):
        row = data["recomputed"][name]
        bound = clopper_pearson_bound(row["k"], row["n"]).low
        assert bound == pytest.approx(row["clopper_pearson_one_sided_lower"], abs=1e-6)
        assert bound is not None
        assert row["published_UMA_lower_bound_alpha.05(randomised)"] == published > bound


def test_published_times_to_decision_add_up_and_partial_credit_decides_sooner() -> None:
    data = reference("nscore_lbm_times_to_decision.json")["tableII"]
    for side, cap in (("sim", 200), ("hardware", 50)):
        tasks = {name: row for name, row in data[side].items() if name != "Total"}
        totals = [
            2 * sum(row[i] if row[i] is not None else cap for row in tasks.values())
            for i in range(len(data["columns"]))
        ]
        assert totals == data[side]["Total"]
        progress, binary = (
            totals[data["columns"].index("WSR_progress")],
            totals[data["columns"].index("WSR_binary")],
        )
        assert progress < 0.65 * binary


def _covered(cells: Any, extra: Any, truth: float) -> bool:
    found = prediction_powered(
        (cells < 2).astype(float), np.isin(cells, (0, 2)).astype(float), extra.astype(float), weight=1.0
    )
    return found.low is not None and found.high is not None and found.low <= truth <= found.high


def _scores_like(row: dict[str, Any], rng: np.random.Generator) -> tuple[Any, Any, Any]:
    """Return scores with the published means and the published variances of the real score and of the rectifier, nearly."""
    mean, variance, n = row["mean_real"], row["var_real"], row["n"]
    total = mean * (1 - mean) / variance - 1
    copied = max(0.0, 1 - row["var_rectifier"] / (2 * variance))
    real = rng.beta(mean * total, (1 - mean) * total, n)
    sim = np.where(rng.random(n) < copied, real, rng.beta(mean * total, (1 - mean) * total, n))
    return real, sim, rng.beta(mean * total, (1 - mean) * total, row["N"])


def _policy(short: str, policies: list[str]) -> str:
    candidates = [p for p in policies if p in (f"{short}_droid", f"paligemma_{short}_droid")]
    assert len(candidates) == 1
    return candidates[0]
