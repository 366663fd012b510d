"""``simgap numbers``: what it prints is what the functions say, and exit codes say whether anything can be said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simgap.cli import main
from simgap.statistics import (
    PolicyPair,
    agreement_of_counts,
    average_rate,
    capped_design,
    combine,
    compare_capped,
    course_of,
    exact_independence,
    limits_of,
    miettinen_nurminen,
    newcombe_difference,
    non_inferiority,
    paired_difference,
    trials_needed,
    wilson,
)


def run(capsys: pytest.CaptureFixture[str], *words: str | Path, code: int = 0) -> dict[str, Any]:
    assert main(["numbers", *map(str, words), "--json"]) == code
    document = json.loads(capsys.readouterr().out)
    assert isinstance(document, dict)
    return document


def test_a_plan_says_what_n_trials_show_and_how_many_a_rise_needs(capsys: pytest.CaptureFixture[str]) -> None:
    found = run(capsys, "plan", "10", "--rise", "0.4", "--width", "0.3", "--target", "0.5")
    assert found["trials_needed"] == trials_needed(0.5, 0.9)
    assert found["rows"][0]["perfect_low"] == limits_of(10).perfect_low
    course = course_of(capped_design(10), 0.9, 0.5)
    assert found["rows"][0]["early_stopping"]["mean_pairs"] == course.mean_pairs
    assert found["rows"][0]["failures_allowed"] == 1
    assert [row["n"] for row in run(capsys, "plan")["rows"]] == [10, 20, 50]
    assert "above 1" in run(capsys, "plan", "10", "--rise", "0.7", code=2)["error"]


def test_one_rate_has_the_interval_of_the_function_and_no_trials_have_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = run(capsys, "rate", "17/20")
    assert [found["wilson"][k] for k in ("low", "high")] == [wilson(17, 20).low, wilson(17, 20).high]
    assert run(capsys, "rate", "0/0", code=1)["wilson"]["reason"]
    assert "17/20" in run(capsys, "rate", "21/20", code=2)["error"]


def test_tasks_are_averaged_and_sessions_widen_the_interval(capsys: pytest.CaptureFixture[str]) -> None:
    counts = ["9/10", "4/10", "7/10"]
    assert run(capsys, "rate", *counts, "--average")["average"]["low"] == pytest.approx(
        average_rate([(9, 10), (4, 10), (7, 10)]).low
    )
    found = run(capsys, "rate", *counts, "--clusters")
    assert found["design_effect"]["effective_n"] < 30
    assert found["rate"]["low"] < wilson(20, 30).low
    assert "--average" in run(capsys, "rate", *counts, "--weights", "1,1,1", code=2)["error"]


def test_two_policies_are_compared_by_interval_and_exact_test(capsys: pytest.CaptureFixture[str]) -> None:
    found = run(capsys, "compare", "17/20", "11/20", "--margin", "0.1")
    assert found["newcombe"]["low"] == newcombe_difference(17, 20, 11, 20).low
    assert found["miettinen_nurminen"]["low"] == miettinen_nurminen(17, 20, 11, 20).low
    assert found["test"]["p_value"] == exact_independence(17, 20, 11, 20).p_value
    wanted = non_inferiority(17, 20, 11, 20, margin=0.1).p_value
    assert found["not_worse_by_margin"]["p_value"] == wanted
    tasks = run(capsys, "compare", "9/10", "5/10", "3/10", "2/10")
    assert tasks["average"]["point"] == pytest.approx(0.45)
    assert "as many" in run(capsys, "compare", "9/10", "5/10", "3/10", code=2)["error"]
    assert "one of these" in run(capsys, "compare", code=2)["error"]


def test_pairs_are_compared_as_pairs(capsys: pytest.CaptureFixture[str]) -> None:
    found = run(capsys, "compare", "--pairs", "9,8,2,1", "--margin", "0.2")
    assert found["p_value"] == paired_difference(9, 8, 2, 1).p_value
    assert found["is_not_worse_by_margin"] is True
    assert run(capsys, "compare", "--pairs", "9,8,2,1", "--margin", "0.01")["is_not_worse_by_margin"] is False


def test_early_stopping_says_whether_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "compare", "--at-most", "30")["earliest_pairs"] == 5
    words = ("compare", "--at-most", "30", "--new")
    wanted = compare_capped([True] * 8, [False] * 8, capped_design(30))
    found = run(capsys, *words, "11111111", "--old", "00000000")
    assert (found["verdict"], found["pairs"]) == (str(wanted.verdict), wanted.n)
    assert run(capsys, *words, "110", "--old", "100", code=1)["finished"] is False
    assert "neither" in run(capsys, *words, "110", code=2)["error"]


def test_a_table_of_counts_says_how_far_sim_orders_policies_as_the_robot_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "policies.csv"
    rows = [("a", 5, 10, 60, 100), ("b", 8, 10, 90, 100), ("c", 2, 10, 30, 100)]
    text = "policy,real_successes,real_n,sim_successes,sim_n\n"
    path.write_text(text + "".join(",".join(map(str, row)) + "\n" for row in rows))
    found = run(capsys, "agree", path)
    pairs = [
        PolicyPair(name=n, real_successes=a, real_n=b, sim_successes=c, sim_n=d) for n, a, b, c, d in rows
    ]
    wanted = agreement_of_counts(pairs, rng=np.random.default_rng(0))
    assert (found["pearson"]["low"], found["regret"]["high"]) == (wanted.pearson.low, wanted.regret.high)
    assert found["pairs_agreeing"] == 3
    path.write_text(text + "a,5,10,x,100\n")
    assert "row 2" in run(capsys, "agree", path, code=3)["error"]


def test_a_table_of_trials_pairs_policies_by_condition(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, rng = tmp_path / "trials.csv", np.random.default_rng(1)
    lines, rates = ["policy,condition,real,sim"], []
    for policy, rate in (("a", 0.2), ("b", 0.5), ("c", 0.9)):
        ends = (rng.random((30, 2)) < rate).astype(int)
        lines += [f"{policy},s{k},{real},{sim}" for k, (real, sim) in enumerate(ends)]
        rates.append(ends.mean(axis=0))
    path.write_text("\n".join(lines) + "\n")
    found = run(capsys, "agree", path)
    assert found["policies"] == 3
    assert found["pearson"]["point"] == pytest.approx(np.corrcoef(np.array(rates).T)[0, 1])
    path.write_text("\n".join([*lines, "a,s0,1,1"]) + "\n")
    assert "repeats condition 's0'" in run(capsys, "agree", path, code=3)["error"]


def test_simulated_trials_are_added_to_real_ones_as_far_as_they_agree(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng, path = np.random.default_rng(3), tmp_path / "scores.csv"
    sim = (rng.random(300) < 0.6).astype(float)
    real = np.where(rng.random(60) < 0.97, sim[:60], 1 - sim[:60])
    lines = ["real,sim", *(f"{real[k] if k < 60 else ''},{s}" for k, s in enumerate(sim))]
    path.write_text("\n".join(lines) + "\n")
    found = run(capsys, "combine", path)
    wanted = combine(
        real.tolist(), sim[:60].tolist(), sim[60:].tolist(), rng=np.random.default_rng(0), confidence=0.95
    )
    assert found["combined"]["low"] == pytest.approx(wanted.combined.low)
    assert found["real_only"]["successes"] == int(real.sum())
    path.write_text("real,sim\n1,\n")
    assert "no simulated score" in run(capsys, "combine", path, code=3)["error"]


def test_every_action_shows_an_example_that_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for action in ("plan", "rate", "compare"):
        assert main(["numbers", action, "--help"]) == 0
        text = " ".join(capsys.readouterr().out.split())
        command = (
            text.split("Example: simgap ")[1]
            .split(" simgap ")[0]
            .split(" positional")[0]
            .split(" options")[0]
        )
        assert main(command.split()) == 0
        assert capsys.readouterr().out
