"""Further ways to write a trial log: JSON of evaluation scripts, columns that say failed, totals that a file states, words that contradict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simgap.cli import main
from test_trial_logs import K, arm, csv, log, loud

FLAGS = [bool(k) for k in K]
METRICS = {
    "sum_rewards": [1.0 * k for k in K],
    "max_rewards": [1.0 * k for k in K],
    "successes": FLAGS,
    "video_paths": [],
}
JSONS: dict[str, Any] = {
    "per_task": {
        "per_task": [{"task_group": "g", "task_id": 0, "metrics": METRICS}],
        "overall": {"pc_success": 70.0, "n_episodes": 10},
    },
    "two_tasks": {
        "per_task": [{"task_id": t, "metrics": {"successes": FLAGS[5 * t : 5 * t + 5]}} for t in (0, 1)]
    },
    "side_by_side": {"seed": list(range(10)), "success": FLAGS},
    "in_a_summary": {"policy": "act", "successes": K, "success_rate": 0.7},
    "numbered": {f"episode_{i}": {"success": k, "steps": 100 + i} for i, k in enumerate(FLAGS)},
    "numbered_inside": {
        "config": {"n": 10},
        "episodes": {str(i): {"success": k} for i, k in enumerate(FLAGS)},
    },
    "split": {"columns": ["trial", "success"], "data": [[i, k] for i, k in enumerate(K)]},
}


@pytest.mark.parametrize("form", JSONS)
def test_what_evaluation_scripts_write_is_read_as_trials(form: str, tmp_path: Path) -> None:
    report = log(tmp_path, json.dumps(JSONS[form]), "eval_info.json")
    found = report.measurements["arms"]
    assert [(a["success"], a["n"]) for a in found.values()] == [(7, 10)]
    assert loud(report) == set()


@pytest.mark.parametrize("title", ["failed", "Failed?", "is_failure", "fail", "task_failed"])
@pytest.mark.parametrize("words", [(1, 0), ("yes", "no"), (True, False)])
def test_a_column_that_says_failed_is_the_outcome_the_other_way_round(
    title: str, words: tuple[Any, Any], tmp_path: Path
) -> None:
    report = log(tmp_path, csv(f"trial,{title}", [[i, words[k]] for i, k in enumerate(K)]))
    assert arm(report) == (7, 10)
    assert loud(report) == set()
    assert "table_understood_as" in report.codes()


def test_a_flag_of_failure_beside_the_outcome_stays_a_flag(tmp_path: Path) -> None:
    report = log(tmp_path, csv("trial,success,failed", [[i, k, 1 - k] for i, k in enumerate(K)]))
    assert (arm(report), loud(report)) == ((7, 10), set())
    off = log(
        tmp_path,
        csv("trial,success,failed", [[i, k, k if i < 2 else 1 - k] for i, k in enumerate(K)]),
        "b.csv",
    )
    assert loud(off) == {"outcome_contradicted"}


@pytest.mark.parametrize(
    "stated",
    [
        {"n_trials": 12},
        {"num_successes": 9},
        {"summary": {"success_rate": 0.9}},
        {"overall": {"pc_success": 90.0}},
        {"aggregated": {"n_episodes": 50}},
    ],
)
def test_totals_that_a_file_states_beside_its_trials_are_compared_with_them(
    stated: dict[str, Any], tmp_path: Path
) -> None:
    rows = {"trials": [{"id": i, "success": k} for i, k in enumerate(FLAGS)]}
    assert "stated_total_differs" in loud(log(tmp_path, json.dumps(rows | stated), "r.json"))
    right = {"n_trials": 10, "summary": {"num_successes": 7, "success_rate": 0.7, "pc_success": 70.0}}
    assert loud(log(tmp_path, json.dumps(rows | right), "s.json")) == set()


@pytest.mark.parametrize(("ends", "rows"), [("goal", 0), ("collision", 3), ("timeout", 3)])
def test_a_success_that_ended_in_a_failure_is_contradicted(ends: str, rows: int, tmp_path: Path) -> None:
    table = [[i, k, (ends if i in (0, 1, 3) else "goal") if k else "dropped"] for i, k in enumerate(K)]
    report = log(tmp_path, csv("trial,success,termination_reason", table))
    found = [f for f in report.findings if f.code == "outcome_contradicted"]
    assert [len(f.numbers["rows"]) for f in found] == ([rows] if rows else [])


def test_arms_that_never_shared_a_day_are_confounded_with_it(tmp_path: Path) -> None:
    apart = [["2026-04-01", "a", k] for k in K] + [["2026-04-09", "b", k] for k in K]
    assert loud(log(tmp_path, csv("date,policy,success", apart))) == {"arm_confounded_with_date"}
    mixed = [[f"2026-04-0{1 + i % 3}", "ab"[i // 3 % 2], k] for i, k in enumerate(K * 2)]
    assert loud(log(tmp_path, csv("date,policy,success", mixed), "b.csv")) == set()


def test_counts_without_trials_are_a_note_and_said_once(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        "policy,n_trials,n_void,n_valid,n_success\nold,22,2,20,9\nnew,21,1,20,15\n"
    )
    assert main(["data", "check", str(tmp_path / "t.csv")]) == 0
