"""Paired rates by kind: scales, flags, printed correlations, policies; and tables that nobody wrote for us never end in a traceback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simgap.artefacts.read import check_foreign
from simgap.checks.data.dataset import DataReport, Severity
from simgap.errors import SimgapError

RATES = [("a", 0.1, 0.2), ("b", 0.4, 0.5), ("c", 0.5, 0.4), ("d", 0.9, 0.8), ("e", 0.6, 0.75)]


def pairs(root: Path, header: str, rows: list[list[Any]], comment: str = "") -> DataReport:
    (root / "pairs.csv").write_text(
        comment + "\n".join([header, *(",".join(map(str, r)) for r in rows)]) + "\n"
    )
    report = check_foreign(root)
    assert report is not None
    return report


def groups(report: DataReport) -> dict[str, Any]:
    found: dict[str, Any] = report.measurements["tables"]["pairs.csv"]["groups"]
    return found


def test_each_column_has_its_own_scale(tmp_path: Path) -> None:
    report = pairs(
        tmp_path, "task,policy,real_success,sim_success_pct", [["t", p, r, 100 * s] for p, r, s in RATES]
    )
    assert report.measurements["tables"]["pairs.csv"]["scale"] == "real in fraction, sim in percent"
    assert groups(report)["t"]["mmrv"]["real gap, >"] <= 1.0


@pytest.mark.parametrize("flag", ["excluded", "is_outlier", "included"])
def test_rows_that_a_flag_leaves_out_do_not_count_and_are_said(flag: str, tmp_path: Path) -> None:
    keep, drop = ("yes", "no") if flag == "included" else ("no", "yes")
    rows = [["t", p, r, s, keep] for p, r, s in RATES] + [["t", "f", 0.95, 0.05, drop]]
    report = pairs(tmp_path, f"task,policy,real_success,sim_success,{flag}", rows)
    real, sim = [r for _, r, _ in RATES], [s for _, _, s in RATES]
    assert groups(report)["t"]["pearson_r"] == pytest.approx(np.corrcoef(real, sim)[0, 1])
    note = next(f for f in report.findings if f.code == "flagged_rows")
    assert note.numbers == {flag: 1}
    assert f"{np.corrcoef([*real, 0.95], [*sim, 0.05])[0, 1]:.3f}" in note.sentence
    assert report.is_clean


@pytest.mark.parametrize(
    "form", ["# values: Push the cube r={r} MMRV=0.1", "# Push: R = {r} [0.2, 0.9]", "column"]
)
@pytest.mark.parametrize("is_right", [True, False])
def test_a_printed_correlation_is_found_wherever_it_stands_and_compared(
    form: str, is_right: bool, tmp_path: Path
) -> None:
    r = np.corrcoef([r for _, r, _ in RATES], [s for _, _, s in RATES])[0, 1] - (0.0 if is_right else 0.2)
    extra = [f"{r:.3f}"] if form == "column" else []
    rows = [["Push the cube", p, a, b, *extra] for p, a, b in RATES]
    header = "task,policy,real_success,sim_success" + (",printed_r" if extra else "")
    report = pairs(tmp_path, header, rows, "" if extra else form.format(r=f"{r:.3f}") + "\n")
    assert ("printed_correlation_differs" in report.codes()) is not is_right


def test_correlations_are_grouped_by_policy_and_over_their_means(tmp_path: Path) -> None:
    rows = [[t, p, r + 0.02 * k, s - 0.01 * k] for t in ("x", "y") for p, r, s in RATES for k in range(3)]
    report = pairs(tmp_path, "task,policy,real_success,sim_success", rows)
    assert groups(report)["x"]["within_policy"]["a"] == {"n": 3, "pearson_r": pytest.approx(-1.0)}
    assert report.measurements["tables"]["pairs.csv"]["policy_means"]["n"] == 5
    alone = pairs(tmp_path, "task,condition,real_success,sim_success", [["t", p, r, s] for p, r, s in RATES])
    assert "not_over_policies" in alone.codes()
    assert alone.is_clean


def test_missing_and_impossible_rates_are_counted(tmp_path: Path) -> None:
    rows = [["t", p, r, s] for p, r, s in RATES]
    report = pairs(
        tmp_path, "task,policy,real_success,sim_success", [*rows, ["t", "f", "", 0.5], ["t", "g", -0.2, 0.5]]
    )
    assert next(f for f in report.findings if f.code == "incomplete_pairs").numbers == {"rows": 1}
    assert next(f for f in report.findings if f.severity is Severity.FAULT).code == "rates_out_of_range"


def ends_well(path: Path) -> None:
    """Check what lies at a path: a report that is JSON, or one error of ours in one line."""
    said = ""
    try:
        report = check_foreign(path)
        json.dumps(None if report is None else report.to_json(), allow_nan=False)
    except SimgapError as error:
        said = str(error)
    assert "\n" not in said


CELLS = [
    "",
    "nan",
    "inf",
    "-inf",
    "1e400",
    "9" * 400,
    "7/0",
    "0/0",
    "1/2",
    "-3",
    "0.5",
    "yes",
    "n/a",
    "\x00",
    '"',
    "é",
    "2026-01-01",
    "[1, 2]",
    "<missing>",
]
HEADERS = [
    "success",
    "old_success",
    "new_success",
    "trials",
    "successes",
    "seed",
    "policy",
    "real_success",
    "sim_success",
    "n_valid",
    "mode",
    "",
    "success",
]


@pytest.mark.parametrize(
    "seed", [*range(12), *(pytest.param(s, marks=pytest.mark.slow) for s in range(12, 400))]
)
def test_a_table_of_anything_ends_in_a_report_or_in_one_line(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    width = int(rng.integers(1, 8))
    names = [str(n) for n in rng.choice(HEADERS, width)]
    rows = [
        [str(c) for c in rng.choice([*CELLS, "0", "1", "1", "0", "12", "0.25"], width)]
        for _ in range(int(rng.integers(0, 9)))
    ]
    mark = str(rng.choice([",", ";", "\t"]))
    if seed % 3:
        text = "\n".join(mark.join(r) for r in [names, *rows])
        (tmp_path / "t.csv").write_text(text)
    else:
        (tmp_path / "t.json").write_text(json.dumps([dict(zip(names, r, strict=True)) for r in rows]))
    ends_well(tmp_path)


@pytest.mark.parametrize(
    "seed", [*range(8), *(pytest.param(s, marks=pytest.mark.slow) for s in range(8, 300))]
)
def test_statistics_of_anything_end_in_a_report_or_in_one_line(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    odd = [
        0,
        1,
        -1,
        1e308,
        -1e308,
        float("nan"),
        float("inf"),
        1e-320,
        None,
        "x",
        [],
        [1],
        True,
        3.4e38,
        np.pi / 2,
    ]
    names = ["mean", "std", "min", "max", "q01", "q99", "count", "mask"]

    def values() -> list[Any]:
        chosen = [odd[int(k)] for k in rng.integers(0, len(odd), int(rng.integers(1, 5)))]
        return chosen if rng.random() < 0.4 else rng.normal(0, 10.0 ** float(rng.integers(-3, 4)), 4).tolist()

    document = {
        k: {n: values() for n in names if rng.random() < 0.8}
        for k in ("state", "actions", "action", "observation.images.top", "index")
    }
    name = "episodes_stats.jsonl" if seed % 4 == 0 else "norm_stats.json"
    (tmp_path / name).write_text(
        json.dumps({"episode_index": 0, "stats": document}) + "\n"
        if name.endswith("l")
        else json.dumps(document)
    )
    ends_well(tmp_path)
