"""What is wrong with tables of counts."""

from __future__ import annotations

from typing import Any

from simgap.artefacts.trials.counts import Count
from simgap.checks.data.report import DataFinding, Severity, listed
from simgap.wording import number_of


def finding(code: str, severity: Severity, sentence: str, remedy: str, **numbers: Any) -> DataFinding:
    """Return a finding about trials."""
    return DataFinding(code=code, severity=severity, sentence=sentence, remedy=remedy, numbers=numbers)


def judge_counts(name: str, rows: list[Count]) -> list[DataFinding]:
    """Return what is wrong with a table of counts."""
    kept = [r for r in rows if not r.is_total]
    good, n = sum(r.good or 0 for r in kept), sum(r.n or 0 for r in kept)
    found = []
    wrong = [r.name for r in rows if r.good is not None and r.n is not None and (r.good > r.n or r.good < 0)]
    halves = [r.name for r in rows if r.good is not None and not float(r.good).is_integer()]
    bare = [r.name for r in kept if r.good is None and r.n is not None]
    off = {
        r.name: (r.rate, r.good / r.n)
        for r in rows
        if r.rate is not None and r.good is not None and r.n and abs(r.rate - r.good / r.n) > 0.0051
    }
    text = (
        f"{name} holds counts of {len(kept)} conditions, not trials: {good:g} of {n}; order, failure modes"
        " and pairing are lost"
    )
    found.append(
        finding(
            "aggregate_only",
            Severity.NOTE,
            text,
            "publish one row a trial",
            success=good,
            n=n,
            void=sum(r.void for r in kept),
        )
    )
    totals = [r.name for r in rows if r.is_total]
    if totals:
        both = sum(r.n or 0 for r in rows)
        text = (
            f"{name}: the row {listed(totals)} is the sum of the others; adding all rows gives"
            f" {number_of(both, 'trial')}"
            f" instead of {n}"
        )
        found.append(
            finding(
                "total_row", Severity.WARNING, text, "leave the row out; it is not counted here", rows=totals
            )
        )
    if wrong:
        text = f"{name}: more successes than trials, or fewer than none, in {listed(wrong)}"
        found.append(
            finding(
                "impossible_counts",
                Severity.FAULT,
                text,
                "correct the counts; no rate is given for these",
                rows=wrong,
            )
        )
    if halves:
        text = f"{name}: successes that are no whole number in {listed(halves)}; no rate is given for these"
        remedy = "count whole successes, and give the halves as a mean score beside them"
        found.append(finding("half_successes", Severity.WARNING, text, remedy, rows=halves))
    if bare:
        text = f"{name}: rates without a count that gives them in {listed(bare)}; no interval can be given"
        found.append(
            finding("rates_without_counts", Severity.WARNING, text, "give successes and trials", rows=bare)
        )
    if off:
        parts = [f"{k} {100 * a:.1f} % printed, {100 * b:.1f} % by its counts" for k, (a, b) in off.items()]
        found.append(
            finding(
                "rate_is_not_its_counts",
                Severity.WARNING,
                f"{name}: {listed(parts)}",
                "correct one of the two",
                rows=off,
            )
        )
    return found
