"""Folders of trial logs: counts by arm and stratum with their intervals, and everything that would make a count wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.checks.data_report import DataFinding, DataReport, Severity, by_severity, listed
from simgap.checks.foreign_sidecars import sidecars
from simgap.checks.foreign_tables import TextTable, is_missing
from simgap.checks.foreign_trial_metadata import check_metadata, describe_metadata
from simgap.checks.foreign_trial_rows import (
    Said,
    TableKind,
    TrialTable,
    bare_numbers,
    numeric_range,
    other_answers,
    read_trials,
    repeats,
    total_rows,
    units_in,
)
from simgap.errors import DataError
from simgap.statistics import wilson

ASSUMES = (
    "columns mean what their names say in English or French",
    "one row is one trial, and rows of different files are different trials",
    "a cell without an entry is missing, never a failure",
)
_MOST_TRIALS = 10**9
_CAPPED = 0.2
"""A share of trials within one percent of the longest duration that looks like a time limit."""


def is_trial_table(table: TextTable) -> bool:
    """Return whether a table logs trials."""
    return read_trials(table) is not None


def check_trial_tables(root: Path, tables: Sequence[TextTable]) -> DataReport:
    """Check the tables of a folder of trial logs, and the JSON files beside them."""
    found = {str(t.path.relative_to(root)) if t.path != root else t.path.name: trials for t in tables if (trials := read_trials(t)) is not None}
    findings: list[DataFinding] = []
    documents = {}
    for name, trials in found.items():
        documents[name] = _describe(trials)
        findings += _judge(name, trials)
    metadata = [t for t in found.values() if t.kind is TableKind.METADATA]
    findings += check_metadata(metadata)
    beside, beside_findings = sidecars(root)
    arms = _arms(list(found.values()))
    if not any(t.kind is TableKind.TRIALS for t in found.values()):
        findings.append(_no_outcomes(list(found.values())))
    return DataReport(
        path=str(root),
        layout={"what": "trial_logs", "tables": {n: str(t.kind) for n, t in found.items()}, "cameras": {}},
        counts={
            "tables": len(found),
            "trials": {kind: sum(len(t.table.rows) for t in found.values() if t.kind is kind) for kind in TableKind},
            "outcomes": dict(Counter(str(s) for t in found.values() if t.kind is TableKind.TRIALS for s in t.said())),
        },
        measurements={"tables": documents, "arms": arms, "files_beside": beside},
        findings=by_severity([*findings, *beside_findings]),
        assumes=ASSUMES,
    )


def _arms(tables: Sequence[TrialTable]) -> dict[str, Any]:
    """Return successes of trials by arm over all tables, void and missing ones counted apart."""
    counts: dict[str, Counter[str]] = {}
    modes: dict[str, Counter[str]] = {}
    for trials in tables:
        if trials.kind is TableKind.TRIALS:
            for arm, said, mode in zip(trials.arms(), trials.said(), trials.modes(), strict=True):
                counts.setdefault(arm, Counter())[str(said)] += 1
                if said is Said.FAILURE:
                    modes.setdefault(arm, Counter())[mode or "no code"] += 1
    return {arm: _rate(c) | {"failure_modes": dict(modes.get(arm, Counter()))} for arm, c in counts.items()}


def _rate(counts: Counter[str]) -> dict[str, Any]:
    good, n = counts["success"], counts["success"] + counts["failure"]
    estimate = wilson(good, n)
    interval = None if estimate.low is None or estimate.high is None else [estimate.low, estimate.high]
    return {"success": good, "n": n, "void": counts["void"], "missing": counts["missing"], "interval": interval, "method": "Wilson, 95 %"}


def _describe(trials: TrialTable) -> dict[str, Any]:
    table = trials.table
    roles = {"success": trials.success, "stage": trials.stage, "mode": trials.mode, "arm": trials.arm, "strata": list(trials.strata), "trial": trials.trial}
    facts: dict[str, Any] = {
        "kind": str(trials.kind),
        "rows": len(table.rows),
        "columns": list(table.columns),
        "is_ascii": all(c.isascii() for row in table.rows for c in row),
        "roles": roles,
    }
    if trials.kind is TableKind.METADATA:
        return facts | describe_metadata(trials)
    if trials.kind is TableKind.AGGREGATE:
        return facts | _aggregate(trials)
    said = trials.said()
    facts["outcomes"] = dict(Counter(str(s) for s in said))
    facts["success_stage"] = trials.success_stage
    for name in trials.strata:
        rows: dict[str, Counter[str]] = {}
        for arm, stratum, s in zip(trials.arms(), table.column(name), said, strict=True):
            rows.setdefault(f"{arm} / {stratum}", Counter())[str(s)] += 1
        facts.setdefault("strata", {})[name] = {k: _rate(c) for k, c in rows.items()}
    if (block := table.find("block")) is not None:
        order = dict(zip(table.column(block), trials.arms(), strict=True))
        facts["blocks"] = {b: [a for a, k in zip(trials.arms(), table.column(block), strict=True) if k == b] for b in order}
    facts["numbers"] = {c: numeric_range(table, c) for c in table.columns if table.is_numeric(c)}
    return facts


def _aggregate(trials: TrialTable) -> dict[str, Any]:
    table, totals = trials.table, total_rows(trials)
    n, good = (_counts(table, *names) for names in (("trials", "n", "n_trials"), ("successes",)))
    keep = [k for k in range(len(table.rows)) if k not in totals]
    counts = {table.rows[k][0]: Counter(success=int(good[k]), failure=int(n[k] - good[k])) for k in keep}
    return {
        "conditions": {c: _rate(v) for c, v in counts.items()},
        "total": _rate(sum(counts.values(), Counter())),
        "total_rows": [table.rows[k][0] for k in totals],
        "sum_with_total_rows": int(n.sum()),
        "stored_rate": _stored_rate(table, good / n),
    }


def _counts(table: TextTable, *names: str) -> NDArray[np.float64]:
    """Return a column of counts.

    Raises:
        DataError: a cell that is no whole number from 0; names the row.
    """
    column = table.find(*names) or ""
    values = table.numbers(column)
    for k, value in enumerate(values):
        if not (np.isfinite(value) and 0 <= value <= _MOST_TRIALS and value == int(value)):
            raise DataError(f"{table.path} row {k + 2} holds {table.column(column)[k][:40]!r} as {column!r}, expected a count from 0; correct the table")
    return values


def _stored_rate(table: TextTable, exact: NDArray[np.float64]) -> dict[str, Any] | None:
    """Return how many decimals a stored rate has and how far it lies from its counts; None where there is no such column."""
    column = table.find("success_rate", "rate")
    if column is None:
        return None
    decimals = max((len(c.partition(".")[2]) for c in table.column(column)), default=0)
    return {"decimals": decimals, "largest_difference": float(np.nanmax(np.abs(table.numbers(column) - exact)))}


def _no_outcomes(tables: Sequence[TrialTable]) -> DataFinding:
    kinds = sorted({str(t.kind) for t in tables})
    return DataFinding(
        code="no_outcome_per_trial",
        severity=Severity.WARNING,
        sentence=f"no table holds an outcome a trial (tables are: {', '.join(kinds)}): order, failure modes and pairing cannot be checked",
        remedy="log one row a trial; `simgap trial` does",
    )


def _finding(code: str, severity: Severity, sentence: str, remedy: str, **numbers: Any) -> DataFinding:
    return DataFinding(code=code, severity=severity, sentence=sentence, remedy=remedy, numbers=numbers)


def _judge(name: str, trials: TrialTable) -> list[DataFinding]:
    found = [*_labels(name, trials), *_empty(name, trials)]
    if trials.kind is TableKind.AGGREGATE:
        return [*found, *_totals(name, trials)]
    if trials.kind is TableKind.TEMPLATE:
        text = f"{name}: all {len(trials.table.rows)} outcomes are blank: a template, its trials are missing and not failures"
        return [*found, _finding("outcomes_blank", Severity.WARNING, text, "run and log the trials, or leave the file out", rows=len(trials.table.rows))]
    if trials.kind is TableKind.TRIALS:
        return [*found, *_voids(name, trials), *_codes(name, trials), *_contradictions(name, trials), *_keys(name, trials), *_caps(name, trials)]
    return found


def _totals(name: str, trials: TrialTable) -> list[DataFinding]:
    facts = _aggregate(trials)
    found = [
        _finding(
            "aggregate_only",
            Severity.WARNING,
            f"{name} holds counts of {len(facts['conditions'])} conditions, not trials: {facts['total']['success']} of {facts['total']['n']}; "
            "order, failure modes and pairing are lost",
            "publish one row a trial",
            **facts["total"],
        )
    ]
    if facts["total_rows"]:
        text = f"{name}: the row {listed(facts['total_rows'])} is the sum of the others; adding all rows gives {facts['sum_with_total_rows']} trials "
        text += f"instead of {facts['total']['n']}"
        found.append(_finding("total_row", Severity.WARNING, text, "leave the row out; it is not counted here", rows=facts["total_rows"]))
    return found


def _voids(name: str, trials: TrialTable) -> list[DataFinding]:
    said = trials.said()
    keys = trials.table.column(trials.trial) if trials.trial else [str(k + 1) for k in range(len(said))]
    void = [k for k, s in zip(keys, said, strict=True) if s is Said.VOID]
    missing = [k for k, s in zip(keys, said, strict=True) if s is Said.MISSING]
    found = []
    if void:
        text = f"{name}: {len(void)} trials are void by their own label ({listed(void)}) and count neither as success nor as failure"
        found.append(_finding("void_trials", Severity.NOTE, text, "say the number of voids and their reason beside every rate", trials=void))
    if missing:
        text = f"{name}: {len(missing)} of {len(said)} trials have no outcome ({listed(missing)})"
        found.append(_finding("outcomes_missing", Severity.WARNING, text, "look them up; a blank is not a failure", trials=missing))
    return found


def _codes(name: str, trials: TrialTable) -> list[DataFinding]:
    if trials.mode is None or trials.success is None:
        return []
    rows = list(zip(trials.said(), trials.modes(), strict=True))
    wrong = [m for s, m in rows if s is Said.SUCCESS and m]
    bare = sum(s is Said.FAILURE and not m for s, m in rows)
    found = []
    if wrong:
        text = f"{name}: {len(wrong)} successes carry a failure code ({listed(sorted(set(wrong)))})"
        remedy = "decide what the code means there, or correct the outcome"
        found.append(_finding("failure_code_on_success", Severity.WARNING, text, remedy, n=len(wrong), codes=wrong))
    if bare:
        text = f"{name}: {bare} of {sum(s is Said.FAILURE for s, _ in rows)} failures have no code"
        found.append(_finding("failure_without_code", Severity.NOTE, text, "fill them in from the video; counts of failure modes are incomplete", n=bare))
    return found


def _contradictions(name: str, trials: TrialTable) -> list[DataFinding]:
    said = trials.said()
    found = []
    for column, answers in other_answers(trials).items():
        pairs = enumerate(zip(answers, said, strict=True), start=2)  # row 1 is the header
        off = [k for k, (a, s) in pairs if a is not None and s in (Said.SUCCESS, Said.FAILURE) and a != (s is Said.SUCCESS)]
        if off:
            failures = {str(trials.success or trials.stage): sum(s is Said.FAILURE for s in said), column: sum(a is False for a in answers)}
            text = f"{name}: {column} disagrees with the outcome on {len(off)} rows; failures are {' or '.join(f'{v} by {k}' for k, v in failures.items())}"
            found.append(_finding("outcome_contradicted", Severity.WARNING, text, "define success once, before the trials", rows=off, failures=failures))
    return found


def _keys(name: str, trials: TrialTable) -> list[DataFinding]:
    if trials.trial is None:
        return []
    keys = trials.table.column(trials.trial)
    if len(keys) < 2 or not repeats(keys):
        return []
    text = f"{name}: the column {trials.trial!r} is no key: {repeats(keys)} of {len(keys)} rows share their value ({listed(sorted(set(keys)))})"
    return [_finding("trial_is_no_key", Severity.NOTE, text, "number trials through, so that a row can be named", repeated=repeats(keys))]


def _caps(name: str, trials: TrialTable) -> list[DataFinding]:
    column = trials.table.find("n_frames", "steps", "duration_s")
    if column is None or not trials.table.is_numeric(column):
        return []
    values = trials.table.numbers(column)
    at = values >= 0.99 * values.max()
    if at.sum() < 3 or at.mean() < _CAPPED:
        return []
    durations = trials.table.find("duration_s")
    ends = f", {trials.table.numbers(durations)[at].min():.1f} to {trials.table.numbers(durations)[at].max():.1f} s" if durations else ""
    text = f"{name}: {int(at.sum())} of {len(values)} trials end at {column} {values[at].min():g} to {values.max():g}{ends}: a time limit ended them"
    remedy = "say the limit beside the rate; a longer one could change it"
    return [_finding("trials_capped", Severity.NOTE, text, remedy, n=int(at.sum()), limit=float(values.max()))]


def _labels(name: str, trials: TrialTable) -> list[DataFinding]:
    found = []
    for column in (trials.stage, trials.mode):
        noisy = sorted({c for c in trials.table.column(column) if "(" in c or " or " in c.lower() or "-or-" in c.lower()}) if column else []
        if noisy:
            text = f"{name}: labels in {column} carry remarks or are undecided: {listed(noisy)}"
            found.append(_finding("label_noise", Severity.NOTE, text, "settle them before counting modes; undecided ones are counted apart here", labels=noisy))
    mixed = {}
    for column in trials.table.columns:
        cells = [c for c in trials.table.column(column) if len(units_in(c)) >= 2 and bare_numbers(c)]
        if len(cells) >= 3 and "note" not in column:
            mixed[column] = {"example": cells[0], "units": sorted(set().union(*(units_in(c) for c in cells)))}
    for column, facts in mixed.items():
        text = f"{name}: cells of {column} mix units and bare numbers in one text ({facts['example']!r}: {', '.join(facts['units'])})"
        found.append(_finding("units_in_text", Severity.NOTE, text, "give each quantity its own column with a unit in its name", **facts))
    return found


def _empty(name: str, trials: TrialTable) -> list[DataFinding]:
    table = trials.table
    empty = [c for c in table.columns if len(table.rows) and all(is_missing(v) for v in table.column(c))]
    words = {w for c in (trials.stage, trials.success, trials.mode) if c for w in c.split("_")[:1]}
    scoring = [c for c in empty if c not in (trials.stage, trials.success, trials.mode) and c.split("_")[0] in words]
    found = []
    if scoring and trials.kind is TableKind.TRIALS:
        text = f"{name}: the scoring column {listed(scoring)} is empty in all {len(table.rows)} rows: that pass never ran, the outcome rests on one scorer"
        remedy = "score the videos, blind to the arm, or say that one scorer decided"
        found.append(_finding("second_scoring_missing", Severity.WARNING, text, remedy, columns=scoring))
    rest = [c for c in empty if c not in scoring]
    if rest and trials.kind is TableKind.TRIALS:
        found.append(_finding("empty_columns", Severity.NOTE, f"{name}: columns without any entry: {listed(rest)}", "fill or drop them", columns=rest))
    return found
