"""Folders of trial logs: counts by arm and stratum with their intervals, and everything that would make a count wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from simgap.artefacts.sidecars import sidecars
from simgap.artefacts.tables import TextTable
from simgap.artefacts.trials.count_findings import finding, judge_counts
from simgap.artefacts.trials.counts import RATES, Count, counts_of, to_json
from simgap.artefacts.trials.findings import judge_table, not_read
from simgap.artefacts.trials.metadata import apart_by_day, check_metadata, describe_metadata
from simgap.artefacts.trials.pairs import comparisons, identical_starts, pair_findings
from simgap.artefacts.trials.roles import find
from simgap.artefacts.trials.rows import TableKind, TrialTable, numeric_range, read_trials
from simgap.artefacts.trials.stated import stated_totals
from simgap.artefacts.trials.words import Said
from simgap.checks.data.report import DataFinding, DataReport, Severity, by_severity
from simgap.statistics import wilson

ASSUMES = (
    "columns mean what their names say in English or French",
    "one row is one trial, and rows of different files are different trials",
    "a cell without an entry is missing, never a failure",
)


def is_trial_table(table: TextTable) -> bool:
    """Return whether a table logs trials."""
    return read_trials(table) is not None


def check_trial_tables(
    root: Path, tables: Sequence[TextTable], unread: Mapping[str, str] | None = None
) -> DataReport:
    """Check the tables of a folder of trial logs, and the JSON files beside them.

    Args:
        root: the folder, or the file.
        tables: what was read there.
        unread: tables that could not be read, with the reason.
    """
    names = {str(t.path.relative_to(root)) if t.path != root else t.path.name: t for t in tables}
    found = {name: trials for name, t in names.items() if (trials := read_trials(t)) is not None}
    if sum(t.kind is TableKind.TRIALS and not t.arm_by for t in found.values()) > 1:
        found = {
            n: t if t.arm_by else replace(t, unnamed=Path(n).with_suffix("").as_posix())
            for n, t in found.items()
        }
    found, copies = _without_copies(found)
    findings: list[DataFinding] = [*copies, *not_read([n for n in names if n not in found], unread or {})]
    documents: dict[str, Any] = {}
    compared: dict[str, list[dict[str, Any]]] = {}
    for name, trials in found.items():
        documents[name] = _describe(trials)
        if trials.kind is TableKind.AGGREGATE:
            findings += judge_counts(name, counts_of(trials.table))
        findings += judge_table(name, trials)
        if trials.kind is TableKind.TRIALS:
            pairs = comparisons(trials)
            findings += [
                *pair_findings(name, trials, pairs),
                *stated_totals(name, trials),
                *apart_by_day(name, trials),
            ]
            compared |= {name: [c.to_json() for c in pairs]} if pairs else {}
    metadata = [t for t in found.values() if t.kind is TableKind.METADATA]
    findings += check_metadata(metadata)
    beside, beside_findings = sidecars(root)
    arms = _arms(list(found.values()))
    if not any(t.kind in (TableKind.TRIALS, TableKind.AGGREGATE) for t in found.values()):
        findings.append(_no_outcomes(list(found.values())))
    return DataReport(
        path=str(root),
        layout={"what": "trial_logs", "tables": {n: str(t.kind) for n, t in found.items()}, "cameras": {}},
        counts={
            "tables": len(found),
            "trials": {
                kind: sum(len(t.table.rows) for t in found.values() if t.kind is kind) for kind in TableKind
            },
            "outcomes": dict(
                Counter(str(s) for t in found.values() if t.kind is TableKind.TRIALS for s in t.said())
            ),
        },
        measurements={"tables": documents, "arms": arms, "comparisons": compared, "files_beside": beside},
        findings=by_severity([*findings, *beside_findings]),
        assumes=ASSUMES,
    )


def _without_copies(tables: dict[str, TrialTable]) -> tuple[dict[str, TrialTable], list[DataFinding]]:
    """Leave out tables of trials whose rows are all in another one: a copy, or an earlier export of a log that grew."""
    sets = {
        n: set(t.table.rows) for n, t in tables.items() if t.kind is TableKind.TRIALS and _tells_rows_apart(t)
    }
    inside: dict[str, str] = {}
    for name, rows in sets.items():
        for other, more in sets.items():
            alike = (
                other != name
                and other not in inside
                and tables[other].table.columns == tables[name].table.columns
            )
            if alike and len(rows) > 2 and rows <= more and name not in inside:
                inside[name] = other
    findings = [
        finding(
            "trials_twice",
            Severity.WARNING,
            f"all {len(sets[a])} trials of {a} are in {b} too: a copy or an earlier export, counted once",
            "keep one of the two",
            file=a,
            other=b,
        )
        for a, b in inside.items()
    ]
    return {n: t for n, t in tables.items() if n not in inside}, findings


def _tells_rows_apart(trials: TrialTable) -> bool:
    return len(set(trials.table.rows)) == len(trials.table.rows) and len(trials.table.columns) > 3


def _arms(tables: Sequence[TrialTable]) -> dict[str, Any]:
    """Return successes of trials by arm over all tables, void and missing ones counted apart, identical starts once."""
    counts: dict[str, Counter[str]] = {}
    modes: dict[str, Counter[str]] = {}
    for trials in tables:
        if trials.kind is TableKind.TRIALS:
            skip = set(identical_starts(trials))
            for row, (arm, said, mode) in enumerate(
                zip(trials.arms(), trials.said(), trials.modes(), strict=True)
            ):
                if row in skip:
                    continue
                counts.setdefault(arm, Counter())[str(said)] += 1
                if said is Said.FAILURE:
                    modes.setdefault(arm, Counter())[mode or "no code"] += 1
    return {arm: _rate(c) | {"failure_modes": dict(modes.get(arm, Counter()))} for arm, c in counts.items()}


def _rate(counts: Counter[str]) -> dict[str, Any]:
    good, n = counts["success"], counts["success"] + counts["failure"] + counts["partial"]
    estimate = wilson(good, n)
    interval = None if estimate.low is None or estimate.high is None else [estimate.low, estimate.high]
    aside = {k: counts[k] for k in ("void", "missing", "partial")}
    return {"success": good, "n": n, **aside, "interval": interval, "method": "Wilson, 95 %"}


def _describe(trials: TrialTable) -> dict[str, Any]:
    table = trials.table
    roles = {
        "success": trials.success,
        "stage": trials.stage,
        "mode": trials.mode,
        "arm": trials.arm,
        "arms": list(trials.arm_by),
        "strata": list(trials.strata),
        "trial": trials.trial,
    }
    roles |= {
        "others": list(trials.others),
        "parts": list(trials.parts),
        "ends": trials.ends,
        "starts": list(trials.starts),
        "scenes": list(trials.scenes),
    }
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
        facts["blocks"] = {
            b: [a for a, k in zip(trials.arms(), table.column(block), strict=True) if k == b] for b in order
        }
    facts["numbers"] = {c: numeric_range(table, c) for c in table.columns if table.is_numeric(c)}
    return facts


def _aggregate(trials: TrialTable) -> dict[str, Any]:
    rows = counts_of(trials.table)
    conditions: dict[str, dict[str, Any]] = {}
    for row in (r for r in rows if not r.is_total):
        if (
            row.good is None
            or row.n is None
            or not float(row.good).is_integer()
            or not 0 <= row.good <= row.n
        ):
            continue  # named in a finding
        name = row.name if row.name not in conditions else f"{row.name} ({len(conditions) + 1})"
        conditions[name] = _rate(Counter(success=int(row.good), failure=row.n - int(row.good), void=row.void))
    good, n = sum(c["success"] for c in conditions.values()), sum(c["n"] for c in conditions.values())
    return {
        "conditions": conditions,
        "total": _rate(Counter(success=good, failure=n - good)),
        "total_rows": [r.name for r in rows if r.is_total],
        "sum_with_total_rows": sum(r.n or 0 for r in rows),
        "stored_rate": _stored_rate(trials.table, rows),
        "rows_of_counts": to_json(rows),
    }


def _stored_rate(table: TextTable, rows: Sequence[Count]) -> dict[str, Any] | None:
    """Return how many decimals a stored rate has and how far it lies from its counts; None where there is no such column."""
    column = find(table, RATES)
    off = [abs(r.rate - r.good / r.n) for r in rows if r.rate is not None and r.good is not None and r.n]
    if column is None or not off:
        return None
    decimals = max((len(c.partition(".")[2]) for c in table.column(column)), default=0)
    return {"decimals": decimals, "largest_difference": max(off)}


def _no_outcomes(tables: Sequence[TrialTable]) -> DataFinding:
    kinds = sorted({str(t.kind) for t in tables})
    return DataFinding(
        code="no_outcome_per_trial",
        severity=Severity.WARNING,
        sentence=(
            f"no table holds the outcome of each trial (tables are: {', '.join(kinds)}): order, failure modes"
            " and pairing cannot be checked"
        ),
        remedy="log one row a trial; `simgap trial` does",
    )
