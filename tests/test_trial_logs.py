"""Trial logs by kind: how outcomes, arms, starts and counts are written; what is read is counted right, what is not is named."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from simgap.artefacts.read import check_foreign
from simgap.checks.data.dataset import DataReport, Severity
from simgap.cli import main
from simgap.errors import DataError
from simgap.statistics import mcnemar

CASES = Path(__file__).parents[2] / "shared" / "cases"
K = [1, 1, 0, 1, 0, 1, 1, 0, 1, 1]
"""Ends of ten trials, seven of them successes."""


def checked(path: Path) -> DataReport:
    report = check_foreign(path)
    assert report is not None
    return report


def log(root: Path, text: str, name: str = "trials.csv", encoding: str = "utf-8") -> DataReport:
    (root / name).write_text(text, encoding=encoding)
    return checked(root / name)


def csv(header: str, rows: Sequence[Sequence[Any]], mark: str = ",") -> str:
    return "\n".join([header.replace(",", mark), *(mark.join(map(str, r)) for r in rows)]) + "\n"


def arm(report: DataReport, name: str = "all") -> tuple[int, int]:
    found = report.measurements["arms"][name]
    return found["success"], found["n"]


def loud(report: DataReport) -> set[str]:
    return {f.code for f in report.findings if f.severity is not Severity.NOTE}


def test_old_and_new_on_one_row_are_two_arms_on_the_same_scenes() -> None:
    path = CASES / "trials_paired_wide.csv"
    if not path.exists():
        pytest.skip(f"NOT RUN: {path} is not there")
    report = checked(path)
    assert loud(report) == set()
    assert main(["data", "check", str(path)]) == 0
    assert (arm(report, "old"), arm(report, "new")) == ((16, 40), (28, 40))
    (found,) = report.measurements["comparisons"]["trials_paired_wide.csv"]
    assert (found["new"], found["only_new"], found["only_old"], found["distinct_scenes"]) == (
        "new",
        17,
        5,
        12,
    )
    assert found["p_value"] == pytest.approx(mcnemar(17, 5).p_value)
    assert report.measurements["arms"]["new"]["failure_modes"] == {"dropped": 12}


SPELLINGS = [
    "1 0",
    "yes no",
    "TRUE FALSE",
    "pass fail",
    "Success Failure",
    "oui non",
    "✓ ✗",
    "1.0 0.0",
    "y n",
    "ok failed",
]
TITLES = [
    "trial,success",
    "trial,Success?",
    "episode,task_success",
    "Trial,Outcome",
    "run,isSuccess",
    "trial,Success (0/1)",
]


@pytest.mark.parametrize(
    ("words", "header"),
    [
        *((w, TITLES[0]) for w in SPELLINGS),
        *(("1 0", h) for h in TITLES[1:]),
        *(("yes no", h) for h in TITLES[1:]),
    ],
)
def test_yes_and_no_are_read_in_every_spelling(words: str, header: str, tmp_path: Path) -> None:
    yes, no = words.split()
    report = log(tmp_path, csv(header, [[i, yes if k else no] for i, k in enumerate(K)]))
    assert arm(report) == (7, 10)
    assert loud(report) == set()


@pytest.mark.parametrize(
    ("mark", "encoding", "name"),
    [
        (";", "utf-8", "a.csv"),
        ("\t", "utf-8", "a.tsv"),
        (",", "utf-8-sig", "a.csv"),
        ("\t", "utf-16", "a.csv"),
        (";", "latin-1", "a.csv"),
        ("|", "utf-8", "a.csv"),
    ],
)
def test_separators_encodings_and_decimal_commas_of_spreadsheets_are_understood(
    mark: str, encoding: str, name: str, tmp_path: Path
) -> None:
    comma = "," if mark != "," else "."
    rows = [[i, "règle", k, f"4{comma}{i}"] for i, k in enumerate(K)]
    report = log(tmp_path, csv("trial,policy,success,duration_s", rows, mark), name, encoding)
    assert arm(report, "règle") == (7, 10)
    assert report.measurements["tables"][name]["numbers"]["duration_s"] == (4.0, 4.9)
    assert loud(report) == set()


def test_titles_blank_rows_units_and_headers_of_two_rows_are_understood(tmp_path: Path) -> None:
    text = "Evaluation of May,,,,\n,,,,\n,old,,new,\nscene,success,mode,success,mode\n-,(0/1),-,(0/1),-\n"
    text += "".join(f"{i},{k},{'' if k else 'slip'},1,none\n,,,,\n" for i, k in enumerate(K))
    report = log(tmp_path, text)
    assert (arm(report, "old"), arm(report, "new")) == ((7, 10), (10, 10))
    assert loud(report) == set()
    assert "header has two rows" in next(
        f.sentence for f in report.findings if f.code == "table_understood_as"
    )


@pytest.mark.parametrize("form", ["lines", "list", "nested"])
def test_json_rows_are_trials_too(form: str, tmp_path: Path) -> None:
    rows = [
        {"episode": i, "policy": {"name": "act"}, "success": bool(k), "failure_mode": None if k else "slip"}
        for i, k in enumerate(K)
    ]
    text = (
        "\n".join(map(json.dumps, rows))
        if form == "lines"
        else json.dumps(rows if form == "list" else {"config": {"n": 10}, "episodes": rows})
    )
    report = log(tmp_path, text, "eval.jsonl" if form == "lines" else "eval.json")
    assert arm(report, "act") == (7, 10)
    assert report.measurements["arms"]["act"]["failure_modes"] == {"slip": 3}
    assert loud(report) == set()


@pytest.mark.parametrize("code", ["success", "ok", "none", "-", "n/a", "", "—", "No failure"])
def test_what_says_that_nothing_failed_is_no_failure_code_and_no_void(code: str, tmp_path: Path) -> None:
    report = log(
        tmp_path, csv("trial,success,failure_mode", [[i, k, code if k else "slip"] for i, k in enumerate(K)])
    )
    assert arm(report) == (7, 10)
    assert report.measurements["arms"]["all"]["failure_modes"] == {"slip": 3}
    assert loud(report) == set()


@pytest.mark.parametrize("column", ["termination_reason", "status", "outcome", "result"])
def test_a_word_for_how_each_trial_ended_gives_outcome_and_mode(column: str, tmp_path: Path) -> None:
    ends = [
        "success",
        "timeout",
        "success",
        "collision",
        "success",
        "timeout",
        "success",
        "dropped",
        "success",
        "success",
    ]
    report = log(tmp_path, csv(f"trial,{column}", [[i, e] for i, e in enumerate(ends)]))
    assert arm(report) == (6, 10)
    assert loud(report) <= {"outcomes_missing"}


def test_a_time_limit_is_said_of_the_failures_that_it_ended_and_never_of_successes(tmp_path: Path) -> None:
    rows = [
        [i, k, "goal_reached" if k else ("time_limit" if i != 2 else "collision"), 500]
        for i, k in enumerate(K)
    ]
    note = next(
        f
        for f in log(tmp_path, csv("trial,success,termination_reason,steps", rows)).findings
        if f.code == "trials_capped"
    )
    assert note.numbers["n"] == 2
    alike = log(tmp_path, csv("trial,success,n_frames", [[i, k, 500] for i, k in enumerate(K)]), "b.csv")
    assert "trials_capped" not in alike.codes(), "recordings of one length"
    late = log(
        tmp_path,
        csv("trial,success,n_frames", [[i, k, 1794 if k else 300 + i] for i, k in enumerate(K)]),
        "c.csv",
    )
    assert "trials_capped" not in late.codes()


@pytest.mark.parametrize(
    ("header", "rows", "expected"),
    [
        (
            "condition,n_success,n_valid,n_void",
            [["a", 7, 10, 1], ["b", 3, 9, 0]],
            {"a": (7, 10), "b": (3, 9)},
        ),
        (
            "policy,task,successes,trials",
            [["x", "pour", 7, 10], ["x", "wipe", 3, 9]],
            {"x / pour": (7, 10), "x / wipe": (3, 9)},
        ),
        ("policy,success", [["x", "7/10"], ["y", "3/9"]], {"x": (7, 10), "y": (3, 9)}),
        ("policy,success_rate,n_trials", [["x", "70%", 10], ["y", "30 %", 20]], {"x": (7, 10), "y": (6, 20)}),
        (
            "policy,success_rate,episodes",
            [["x", 0.7, 10], ["y", 0.3, 20], ["mean", 0.5, 30]],
            {"x": (7, 10), "y": (6, 20)},
        ),
    ],
)
def test_counts_instead_of_trials_are_read_and_never_pooled(
    header: str, rows: list[list[Any]], expected: dict[str, Any], tmp_path: Path
) -> None:
    report = log(tmp_path, csv(header, rows))
    assert {
        n: (c["success"], c["n"])
        for n, c in report.measurements["tables"]["trials.csv"]["conditions"].items()
    } == expected
    assert "aggregate_only" in report.codes()


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        ([["a", 7.5, 10], ["b", 3, 10]], "half_successes"),
        ([["a", 12, 10], ["b", 3, 10]], "impossible_counts"),
    ],
)
def test_counts_that_are_none_get_no_rate_and_a_name(
    rows: list[list[Any]], code: str, tmp_path: Path
) -> None:
    report = log(tmp_path, csv("condition,successes,trials", rows))
    assert code in loud(report)
    assert list(report.measurements["tables"]["trials.csv"]["conditions"]) == ["b"]


def test_a_half_success_is_a_trial_and_no_success_and_it_is_said_how_to_enter_it(tmp_path: Path) -> None:
    report = log(tmp_path, csv("trial,success", [[0, 1], [1, 0.5], [2, "partial"], [3, 0], [4, 1]]))
    assert arm(report) == (2, 5)
    finding = next(f for f in report.findings if f.code == "half_successes")
    assert "4 of 5 if they counted" in finding.sentence
    assert "score" in finding.remedy


def test_an_audit_that_disagrees_with_the_robots_own_report_is_counted(tmp_path: Path) -> None:
    rows = [[i, "act", k, int(k and i not in (0, 5))] for i, k in enumerate(K)]
    report = log(tmp_path, csv("trial,policy,self_report_success,audit_success", rows))
    assert arm(report, "act") == (5, 10)
    finding = next(f for f in report.findings if f.code == "outcome_contradicted")
    assert finding.numbers["rows"] == [2, 7]
    assert finding.numbers["failures"] == {"audit_success": 5, "self_report_success": 3}


def test_policies_checkpoints_and_executors_are_arms_of_their_own(tmp_path: Path) -> None:
    rows = [
        [i, "act", f"step{c}", e, 1]
        for i, (c, e) in enumerate([(c, e) for c in (1, 2) for e in ("newest", "ensemble")] * 3)
    ]
    report = log(tmp_path, csv("trial,policy,checkpoint,executor,success", rows))
    assert report.measurements["arms"].keys() == {
        f"step{c} / {e}" for c in (1, 2) for e in ("newest", "ensemble")
    }


def test_files_without_a_policy_column_are_arms_by_their_name(tmp_path: Path) -> None:
    for name, ends in (("act.csv", K), ("pi0.csv", [1] * 10)):
        (tmp_path / name).write_text(csv("trial,success", [[i, k] for i, k in enumerate(ends)]))
    report = checked(tmp_path)
    assert (arm(report, "act"), arm(report, "pi0")) == ((7, 10), (10, 10))


def test_arms_on_shared_seeds_are_paired_in_long_tables_too(tmp_path: Path) -> None:
    rows = [
        [p, s, int((s * 7 + (p == "new")) % 3 > 0)] for p in ("baseline", "new", "newer") for s in range(12)
    ]
    found = log(tmp_path, csv("policy,seed,success", rows)).measurements["comparisons"]["trials.csv"]
    assert [(c["new"], c["old"], c["pairs"]) for c in found] == [
        ("new", "baseline", 12),
        ("newer", "baseline", 12),
        ("newer", "new", 12),
    ]
    for c in found:
        low, high = c["interval"]
        assert (low > 0 or high < 0) == (c["p_adjusted"] < 0.05)


def test_the_same_seed_run_again_is_counted_once(tmp_path: Path) -> None:
    rows = [[i, "act", i % 4, K[i % 4]] for i in range(12)]
    report = log(tmp_path, csv("trial,policy,seed,success", rows))
    assert arm(report, "act") == (3, 4)
    assert len(next(f for f in report.findings if f.code == "identical_starts").numbers["rows"]) == 8


@pytest.mark.parametrize(
    "column",
    [("valid", "no", "yes"), ("void", "1", "0"), ("reset_ok", "false", "true"), ("excluded", "yes", "")],
)
def test_trials_that_a_column_leaves_out_are_void(column: tuple[str, str, str], tmp_path: Path) -> None:
    name, out, kept = column
    rows = [[i, k, out if i == 2 else kept] for i, k in enumerate(K)]
    report = log(tmp_path, csv(f"trial,success,{name}", rows))
    assert arm(report) == (7, 9)
    assert report.measurements["arms"]["all"]["void"] == 1


def test_parts_of_a_task_are_no_arms(tmp_path: Path) -> None:
    rows = [[i, 1, int(k or i == 2), k] for i, k in enumerate(K)]
    report = log(tmp_path, csv("trial,grasp_success,lift_success,place_success", rows))
    assert arm(report) == (7, 10)
    assert "parts_of_task" in report.codes()


def test_every_table_that_was_not_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "trials.csv").write_text(csv("trial,success", [[i, k] for i, k in enumerate(K)]))
    (tmp_path / "prices.csv").write_text("item,price\nmilk,2\n")
    (tmp_path / "broken.csv").write_text("trial,success\n1,2,3\n")
    (tmp_path / "more.xlsx").write_bytes(b"PK\x03\x04")
    report = checked(tmp_path)
    assert arm(report) == (7, 10)
    assert next(f for f in report.findings if f.code == "tables_not_used").numbers["files"] == ["prices.csv"]
    assert set(next(f for f in report.findings if f.code == "tables_unreadable").numbers["files"]) == {
        "broken.csv",
        "more.xlsx",
    }


def test_a_spreadsheet_alone_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "trials.xlsx").write_bytes(b"PK\x03\x04")
    with pytest.raises(DataError, match="save each sheet as CSV"):
        check_foreign(tmp_path / "trials.xlsx")


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        (
            '{"per_episode": ['
            + ",".join(
                f'{{"episode_ix": {i}, "success": {str(bool(k)).lower()}, "seed": {i}}}'
                for i, k in enumerate(K)
            )
            + "]}",
            "e.json",
            "all",
        ),
        (
            "sep=;\ntrial;policy;success\n" + "".join(f"{i};act;{k}\n" for i, k in enumerate(K)),
            "e.csv",
            "act",
        ),
        ("#,policy,success\n" + "".join(f"{i},act,{k}\n" for i, k in enumerate(K)), "e.csv", "act"),
        (
            "trial,policy,result\n"
            + "".join(f"{i},act,{'success (slow)' if k else 'failure: slip'}\n" for i, k in enumerate(K)),
            "e.csv",
            "act",
        ),
        (
            "scene,ACT,DP\n" + "".join(f"{i},{'yes' if k else 'no'},yes\n" for i, k in enumerate(K)),
            "e.csv",
            "act",
        ),
    ],
)
def test_further_ways_to_write_the_same_ten_trials(
    text: str, name: str, expected: str, tmp_path: Path
) -> None:
    report = log(tmp_path, text, name)
    assert arm(report, expected) == (7, 10)
    assert loud(report) == set()


def test_success_as_a_count_beside_trials_is_a_count(tmp_path: Path) -> None:
    report = log(tmp_path, csv("policy,success,trials", [["a", 18, 20], ["b", 1, 20]]))
    found = report.measurements["tables"]["trials.csv"]["conditions"]
    assert {n: (c["success"], c["n"]) for n, c in found.items()} == {"a": (18, 20), "b": (1, 20)}


def test_a_copy_or_an_earlier_export_of_a_log_is_counted_once(tmp_path: Path) -> None:
    rows = [[i, "act", k, 4.5 + i] for i, k in enumerate(K)]
    for name, part in (("monday.csv", rows[:6]), ("tuesday.csv", rows), ("tuesday (copy).csv", rows)):
        (tmp_path / name).write_text(csv("trial,policy,success,duration_s", part))
    report = checked(tmp_path)
    assert arm(report, "act") == (7, 10)
    assert [f.code for f in report.findings].count("trials_twice") == 2


@pytest.mark.parametrize("name", ["trial_{}", "success_{}", "run {}", "{}"])
def test_repeated_trials_side_by_side_are_trials_of_their_row(name: str, tmp_path: Path) -> None:
    header = ",".join(["policy", *(name.format(i + 1) for i in range(4))])
    report = log(tmp_path, csv(header, [["a", 1, 0, 1, 1], ["b", 0, 0, 1, ""]]))
    assert (arm(report, "a"), arm(report, "b")) == ((3, 4), (1, 3))


@pytest.mark.parametrize("unknown", ["?", "unclear", "tbd", ""])
def test_what_is_not_known_is_missing_and_no_failure(unknown: str, tmp_path: Path) -> None:
    report = log(
        tmp_path,
        csv("trial,outcome", [[0, "success"], [1, "dropped"], [2, unknown], [3, "slipped"], [4, "success"]]),
    )
    assert arm(report) == (2, 4)
    assert "outcomes_missing" in loud(report)


def test_an_audit_by_its_name_alone_is_a_scoring(tmp_path: Path) -> None:
    report = log(tmp_path, csv("episode,success,audit", [[i, k, int(k and i % 2)] for i, k in enumerate(K)]))
    assert next(f for f in report.findings if f.code == "outcome_contradicted").numbers["failures"][
        "audit"
    ] == sum(not (k and i % 2) for i, k in enumerate(K))
