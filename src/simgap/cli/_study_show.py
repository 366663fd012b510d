"""What a study prints beside the names of its files: the few rows that answer its question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from simgap.statistics import Estimate
    from simgap.studies.execution import Row
    from simgap.studies.selection import TrainingResult

LARGEST = 5
"""Losses among the bugs that are shown; the page has all."""


def execution_document(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the correct executors' rates and what each bug costs, largest loss first."""
    bugs = [
        (r, r.difference.difference)
        for r in rows
        if r.cell.bug and r.difference is not None and r.difference.difference.point is not None
    ]
    bugs.sort(key=lambda pair: pair[1].point or 0.0)
    return {
        "correct": [
            {
                "executor": str(r.cell.spec),
                "base": r.cell.executor,
                "lead": r.cell.lead,
                "latency": r.cell.latency,
                **_rate(r.rate),
            }
            for r in rows
            if not r.cell.bug
        ],
        "bugs": [
            {
                "bug": r.cell.bug,
                "executor": str(r.cell.spec),
                "latency": r.cell.latency,
                **_rate(r.rate),
                "difference": {
                    "point": d.point,
                    "low": d.low,
                    "high": d.high,
                    "confidence": d.confidence,
                    "method": d.method,
                },
                "p_adjusted": r.p_adjusted,
            }
            for r, d in bugs
        ],
    }


def selection_document(results: Sequence[TrainingResult]) -> dict[str, Any]:
    """Return each selector's mean regret and rollouts over the trainings, least regret first."""
    names = list(dict.fromkeys(s.name for r in results for s in r.selectors))
    own = {name: [s for r in results for s in r.selectors if s.name == name] for name in names}
    selectors = [
        {
            "selector": name,
            "mean_regret": sum(s.regret for s in found) / len(found),
            "mean_rollouts": sum(s.rollouts for s in found) / len(found),
        }
        for name, found in own.items()
    ]
    selectors.sort(key=lambda s: (s["mean_regret"], s["mean_rollouts"]))
    random = {
        "selector": "random",
        "mean_regret": sum(r.mean_regret for r in results) / len(results),
        "mean_rollouts": 0.0,
    }
    return {"trainings": len(results), "selectors": [*selectors, random]}


def show_execution(console: Console, document: Mapping[str, Any]) -> None:
    """Draw correct executors by latency, then the largest losses among the bugs."""
    correct, bugs = document["correct"], document["bugs"]
    latencies = sorted({row["latency"] for row in correct})
    table = _table("correct executor", *(f"latency {latency}" for latency in latencies))
    cells = {(row["base"], row["lead"] > 0, row["latency"]): row for row in correct}
    for base, leads in dict.fromkeys((base, leads) for base, leads, _ in cells):
        found = [cells.get((base, leads, latency)) for latency in latencies]
        table.add_row(
            f"{base}, lead = latency" if leads else base,
            *("" if row is None else _rate_text(row) for row in found),
        )
    console.print(table)
    console.print(f"intervals: {correct[0]['method']}, {100 * correct[0]['confidence']:g} %\n")
    if not bugs:
        return
    worst = [row for row in bugs if row["difference"]["point"] < 0][:LARGEST]
    if not worst:
        why = (
            ""
            if any(row["successes"] for row in correct)
            else ", for the correct executors never succeeded: nothing could be lost"
        )
        console.print(f"none of {len(bugs)} executors with a bug lost anything{why}\n")
        return
    table = _table(
        "largest losses among the bugs", "executor", "latency", "success", "points, paired", "p (Holm)"
    )
    for row in worst:
        d = row["difference"]
        interval = "" if d["low"] is None else f" ({100 * d['low']:+.1f} to {100 * d['high']:+.1f})"
        p = "" if row["p_adjusted"] is None else f"{row['p_adjusted']:.2g}"
        table.add_row(
            row["bug"],
            row["executor"],
            str(row["latency"]),
            _rate_text(row),
            f"{100 * d['point']:+.1f}{interval}",
            p,
        )
    console.print(table)
    console.print(
        f"intervals of differences: {worst[0]['difference']['method']},"
        f" {100 * worst[0]['difference']['confidence']:g} %; the page has every row\n"
    )


def show_selection(console: Console, document: Mapping[str, Any]) -> None:
    """Draw the selectors, least regret first."""
    from simgap.studies.selection_page import WORDS

    table = _table("taken by", "mean regret, points", "mean rollouts")
    for row in document["selectors"]:
        words = WORDS.get(row["selector"], "any, at random")
        table.add_row(words, f"{100 * row['mean_regret']:.1f}", f"{row['mean_rollouts']:.0f}")
    console.print(table)
    count = document["trainings"]
    over = f"means over {count} trainings" if count > 1 else "one training"
    console.print(f"{over}; regret: success lost against the best checkpoint of a training\n")


def _rate(rate: Estimate) -> dict[str, Any]:
    return {
        "successes": rate.successes,
        "n": rate.n,
        "low": rate.low,
        "high": rate.high,
        "method": rate.method,
        "confidence": rate.confidence,
    }


def _rate_text(row: Mapping[str, Any]) -> str:
    """Return ``97 of 100 (92-99 %)``."""
    interval = "" if row["low"] is None else f" ({100 * row['low']:.0f}-{100 * row['high']:.0f} %)"
    return f"{row['successes']} of {row['n']}{interval}"


def _table(*headings: str) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for i, heading in enumerate(headings):
        table.add_column(heading, overflow="fold", justify="left" if i == 0 else "right")
    return table
