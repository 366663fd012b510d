"""Rollouts without outcomes: who ran when, on which clock, from which pose; what a pooled comparison would mix."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.artefacts.tables import TextTable
from simgap.artefacts.trials.rows import TrialTable
from simgap.checks.data.report import DataFinding, Severity, listed

_UNIX_NS = (1e18, 4e18)
"""Nanoseconds since 1970 of the years 2001 to 2096; a clock since boot is far below."""
_MOST_PAIRS = 1_000_000
"""Arms times dates; a column with another value in each row names no arms."""
_FEWEST_A_DAY = 3
"""Trials of an arm below which its days say nothing."""
_REGIME_NS = 60e9
"""Two offsets further apart than a minute belong to two starts of the machine."""
_MARKERS = {"<missing>": re.compile(r"^<missing>$"), "string:": re.compile(r"^string:")}


def describe_metadata(trials: TrialTable) -> dict[str, Any]:
    """Return facts about a table of rollouts without outcomes."""
    table = trials.table
    facts: dict[str, Any] = {"markers": _markers(table), "clocks": _clocks(table)}
    if trials.arm is not None:
        facts["arms"] = dict(Counter(trials.arms()))
        date = table.find("utc_date", "date")
        if date is not None and len(facts["arms"]) * len(set(table.column(date))) <= _MOST_PAIRS:
            facts["dates"] = _dates(trials.arms(), table.column(date))
    joints = [c for c in table.columns if re.fullmatch(r"q\d+", c)]
    values = np.stack([table.numbers(c) for c in joints], axis=1) if joints else np.zeros((0, 0))
    values = values[np.isfinite(values).all(axis=1)]
    if len(values):
        reach = float(np.abs(values).max())
        facts["initial_state"] = {
            "joints": joints,
            "n": len(values),
            "largest": reach,
            "unit": "rad" if reach < 2 * np.pi else "not decidable",
        }
        facts["initial_state"]["spread"] = values.std(axis=0).tolist()
    offsets = _offsets(table)
    if offsets is not None:
        facts["clock_regimes"] = [
            {"n": len(r), "from_ns": float(r.min()), "to_ns": float(r.max())} for r in _regimes(offsets)
        ]
    facts["paths_not_here"] = [
        c
        for c in table.columns
        if re.search(r"_path$", c) and not any((table.path.parent / p).exists() for p in table.column(c)[:20])
    ]
    return facts


def _markers(table: TextTable) -> dict[str, int]:
    cells = [c for row in table.rows for c in row]
    return {
        name: n for name, pattern in _MARKERS.items() if (n := sum(bool(pattern.search(c)) for c in cells))
    }


def _clocks(table: TextTable) -> dict[str, str]:
    """Return which columns of nanoseconds count from 1970 and which from the start of a machine."""
    found = {}
    for name in table.columns:
        if name.endswith("_ns") and table.is_numeric(name) and "gap" not in name and "offset" not in name:
            median = float(np.median(table.numbers(name)))
            found[name] = "unix" if _UNIX_NS[0] < median < _UNIX_NS[1] else "monotonic"
    return found


def _offsets(table: TextTable) -> NDArray[np.float64] | None:
    name = table.find("offset_ns")
    return table.numbers(name) if name is not None and table.is_numeric(name) else None


def _regimes(offsets: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    ordered = np.sort(offsets[np.isfinite(offsets)])
    return np.split(ordered, np.flatnonzero(np.diff(ordered) > _REGIME_NS) + 1)


def _dates(arms: Sequence[str], dates: Sequence[str]) -> dict[str, Any]:
    days: dict[str, set[str]] = {a: set() for a in sorted(set(arms))}
    counts: dict[str, Counter[str]] = {d: Counter() for d in sorted(set(dates))}
    for a, d in zip(arms, dates, strict=True):
        days[a].add(d)
        counts[d][a] += 1
    spans = {a: sorted(found) for a, found in days.items()}
    return {
        "by_day": {d: dict(c) for d, c in counts.items()},
        "by_arm": {a: {"first": d[0], "last": d[-1], "days": len(d)} for a, d in spans.items()},
        "days": len(set(dates)),
        "days_without_some_arm": sum(len(c) < len(spans) for c in counts.values()),
        "association": _association(arms, dates),
    }


def _association(arms: Sequence[str], dates: Sequence[str]) -> float:
    """Return Cramer's V of arm and date: 0 where every day has the same mix, 1 where the date tells the arm."""
    if not len(arms):
        return 0.0
    rows, columns = ({name: k for k, name in enumerate(sorted(set(said)))} for said in (arms, dates))
    table = np.zeros((len(rows), len(columns)))
    for a, d in zip(arms, dates, strict=True):
        table[rows[a], columns[d]] += 1
    expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0) / table.sum()
    chi2 = float(((table - expected) ** 2 / expected).sum())
    return float(np.sqrt(chi2 / (table.sum() * max(1, min(table.shape) - 1))))


def check_metadata(tables: Sequence[TrialTable]) -> list[DataFinding]:
    """Return what a comparison from these tables would get wrong."""
    found = []
    for trials in tables:
        facts, name = describe_metadata(trials), trials.table.path.name
        found += [*_confounded(name, facts), *_two_clocks(name, facts)]
        if facts["markers"]:
            text = (
                f"{name}: cells hold markers that are no values:"
                f" {listed([f'{k} {n} times' for k, n in facts['markers'].items()])}"
            )
            found.append(
                _note(
                    "literal_markers",
                    text,
                    "read <missing> as missing and drop the prefix; neither is a name of something",
                    facts["markers"],
                )
            )
        if facts["paths_not_here"]:
            text = (
                f"{name}: {listed(facts['paths_not_here'])} name files of another release that are not here"
            )
            found.append(
                _note(
                    "paths_not_here",
                    text,
                    "fetch the release if the rollouts themselves are needed",
                    {"columns": facts["paths_not_here"]},
                )
            )
    return found


def apart_by_day(name: str, trials: TrialTable) -> list[DataFinding]:
    """Return the finding where arms of a log never ran on one day, and one ran after the other: what the day changed is in their difference."""
    column = trials.table.find("utc_date", "date", "day")
    if column is None or len(set(trials.arms())) < 2:
        return []
    days: dict[str, list[str]] = {}
    for arm, day in zip(trials.arms(), trials.table.column(column), strict=True):
        if day.strip():
            days.setdefault(arm, []).append(day.strip()[:10])
    if len(days) < 2 or min(map(len, days.values())) < _FEWEST_A_DAY:
        return []
    spans = sorted((min(d), max(d), arm) for arm, d in days.items())
    if any(before[1] >= after[0] for before, after in pairwise(spans)):
        return []
    parts = [f"{arm} {first} to {last}" if first != last else f"{arm} {first}" for first, last, arm in spans]
    text = (
        f"{name}: arms ran on different days: {listed(parts, 6)}; what else changed between the days is in"
        " their difference"
    )
    remedy = "run the arms in turns on each day, or say the days beside the comparison"
    numbers = {arm: [first, last] for first, last, arm in spans}
    return [
        DataFinding(
            code="arm_confounded_with_date",
            severity=Severity.WARNING,
            sentence=text,
            remedy=remedy,
            numbers=numbers,
        )
    ]


def _note(code: str, sentence: str, remedy: str, numbers: dict[str, Any]) -> DataFinding:
    return DataFinding(code=code, severity=Severity.NOTE, sentence=sentence, remedy=remedy, numbers=numbers)


def _confounded(name: str, facts: dict[str, Any]) -> list[DataFinding]:
    dates = facts.get("dates")
    if not dates or len(dates["by_arm"]) < 2 or dates["days"] < 2:
        return []
    spans = dates["by_arm"]
    apart = len({(s["first"], s["last"]) for s in spans.values()}) > 1
    if not apart or dates["association"] < 0.3:
        return []
    parts = [f"{a} {s['first']} to {s['last']} ({s['days']} days)" for a, s in spans.items()]
    return [
        DataFinding(
            code="arm_confounded_with_date",
            severity=Severity.WARNING,
            sentence=(
                f"{name}: arms ran on different days: {listed(parts, 6)}; on {dates['days_without_some_arm']}"
                f" of {dates['days']} days an arm is absent: a pooled comparison mixes dates"
            ),
            remedy="compare within days on which both arms ran, or block by day",
            numbers=dates,
        )
    ]


def _two_clocks(name: str, facts: dict[str, Any]) -> list[DataFinding]:
    found = []
    if len(set(facts["clocks"].values())) > 1:
        parts = [f"{c} ({k})" for c, k in facts["clocks"].items()]
        found.append(
            _note(
                "two_clocks",
                f"{name}: two clocks side by side: {listed(parts)}",
                "never subtract one from the other",
                facts["clocks"],
            )
        )
    regimes = facts.get("clock_regimes") or []
    if len(regimes) > 1:
        gap = regimes[1]["from_ns"] - regimes[0]["to_ns"]
        text = (
            f"{name}: the offset between the clocks has {len(regimes)} regimes"
            f" ({', '.join(str(r['n']) for r in regimes)} rollouts, {gap / 1e9:.0f} s apart): "
        )
        text += "the machine was restarted"
        found.append(_note("clock_regimes", text, "take the offset of the right start", {"regimes": regimes}))
    return found
