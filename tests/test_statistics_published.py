"""Published and independently computed values; the files that hold them are not shipped, so these tests may skip."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from simgap.statistics import clopper_pearson, exact_independence, newcombe_difference, paired_difference, perfect_run_for, trials_needed, wilson


def reference(name: str) -> Any:
    folder = Path(os.environ.get("SIMGAP_REFERENCE", Path(__file__).parents[1] / ".." / "shared" / "reference"))
    path = folder / name
    if not path.is_file():
        pytest.skip(f"published values not found: {path}; set SIMGAP_REFERENCE to the folder that holds {name}")
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


def test_unpaired_comparisons_agree_with_independent_libraries() -> None:
    rows = reference("stats_reference_values.json")["two_sample"]["rows"]
    assert len(rows) >= 10
    for row in rows:
        counts = (row["k1"], row["n1"], row["k0"], row["n0"])
        difference = newcombe_difference(*counts)
        assert (difference.low, difference.high) == pytest.approx(row["ci95_diff_p1_minus_p0"]["newcomb"], abs=2e-9)
        assert exact_independence(*counts, method="fisher").p_value == pytest.approx(row["fisher"]["two-sided"], abs=2e-9)
        assert exact_independence(*counts).p_value == pytest.approx(row["boschloo"]["two-sided"], rel=1e-4, abs=1e-9)


def test_paired_comparisons_agree_with_independent_libraries() -> None:
    rows = reference("stats_reference_values.json")["paired"]["rows"]
    assert len(rows) >= 10
    for row in rows:
        paired = paired_difference(row["n11"], row["n10"], row["n01"], row["n00"])
        assert paired.p_value == pytest.approx(row["mcnemar_exact_p"], abs=1e-8)
        assert paired.difference.point == pytest.approx(row["diff_n10_minus_n01_over_n"], abs=1e-9)
        assert (paired.difference.low, paired.difference.high) == pytest.approx(row["tango95"], abs=1e-9)


def test_real_robot_counts_of_roboarena_give_the_published_fisher_p() -> None:
    data = reference("roboarena_real_counts.json")
    names = {"specialist": "fast_specialist"}
    published = data["published_metrics"]["fisher_p_examples"]
    assert len(published) == 7
    for pair, p_value in published.items():
        first, second = (_policy(names.get(name, name), data["policies"]) for name in pair.split("_vs_"))
        counts = [data[key][policy] for policy in (first, second) for key in ("real_successes", "n_trials")]
        assert exact_independence(*counts, method="fisher").p_value == pytest.approx(p_value, abs=6e-4)


def test_real_robot_counts_of_a_serving_sweep_give_the_published_intervals() -> None:
    data = reference("dream_machines_serving_sweep.json")
    default, *others = data["arms"]
    for arm, p_value in zip(others, data["recomputed"]["boschloo_p"], strict=True):
        counts = (arm["successes"], arm["n"], default["successes"], default["n"])
        difference = newcombe_difference(*counts)
        assert difference.low is not None
        assert difference.high is not None
        assert [100 * difference.low, 100 * difference.high] == pytest.approx(data["published_metrics"]["newcombe95_diff_pp"][arm["name"]], abs=0.06)
        assert exact_independence(*counts).p_value == pytest.approx(p_value, abs=2e-6)


def test_planning_agrees_with_exact_power() -> None:
    data = reference("sample_size_and_power.json")
    for target, n in data["zero_failure_n"].items():
        assert perfect_run_for(float(target)) == n
    for name, power in data["power_two_sided_05"].items():
        arm, rates = name.removeprefix("n=").split("/arm,")
        low, high = (float(rate) for rate in rates.split("v"))
        assert trials_needed(low, high, power=power["fisher"]) == pytest.approx(int(arm), rel=0.15)


def _policy(short: str, policies: list[str]) -> str:
    candidates = [p for p in policies if p in (f"{short}_droid", f"paligemma_{short}_droid")]
    assert len(candidates) == 1
    return candidates[0]
