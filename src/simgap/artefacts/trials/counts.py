"""Tables that hold counts of trials instead of trials: ``successes`` of ``trials``, ``n_success`` of ``n_valid``, cells like ``7/10``, rates with n."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from simgap.artefacts.tables import TextTable, as_number, is_missing
from simgap.artefacts.trials.words import key

COUNTS_K: tuple[str, ...] = (
    "successes",
    "n_success",
    "n_successes",
    "num_success",
    "num_successes",
    "success_count",
    "successful",
    "wins",
    "n_pass",
    "passed",
    "reussites",
    "k",
)
COUNTS_N: tuple[str, ...] = (
    "n_valid",
    "valid",
    "trials",
    "n",
    "n_trials",
    "num_trials",
    "attempts",
    "n_attempts",
    "episodes",
    "n_episodes",
    "num_episodes",
    "rollouts",
    "total",
)
COUNTS_N = (*COUNTS_N, "n_rollouts", "essais", "evaluations")
COUNTS_VOID = ("n_void", "n_invalid", "voids", "void", "invalid", "excluded", "n_excluded")
RATES = ("success_rate", "rate", "success_pct", "success_percent", "sr", "success")
TOTALS = ("overall", "total", "all", "sum", "gesamt", "ensemble", "average", "mean", "totals", "avg")
_MOST_TRIALS = 1e9
_OF = re.compile(r"(\d+(?:\.\d+)?)\s*(?:/|of|von|sur)\s*(\d+)(?:\s*\(.*\))?")


@dataclass(frozen=True, kw_only=True, slots=True)
class Count:
    """One row of counts."""

    name: str
    good: float | None
    """Successes; not whole where half successes were entered; None where only a rate is there."""
    n: int | None
    void: int = 0
    rate: float | None = None
    """As printed, a fraction."""
    is_total: bool = False


def count_columns(table: TextTable) -> tuple[str | None, str | None, str | None] | None:
    """Return the columns of successes, of trials and of ``k/n`` cells of a table of counts, None where it is none."""
    by_key = {key(c): c for c in reversed(table.columns)}
    ratio = next((c for c in table.columns if _all_match(table, c)), None)
    if ratio is not None:
        return None, None, ratio
    n = next((by_key[name] for name in COUNTS_N if name in by_key and _whole(table, by_key[name])), None)
    if n is None or max(as_number(c) for c in table.column(n) if not is_missing(c)) <= 1:
        return None
    k = next(
        (
            by_key[name]
            for name in COUNTS_K
            if name in by_key and by_key[name] != n and _numbers(table, by_key[name])
        ),
        None,
    )
    if (
        k is None
        and (said := by_key.get("success")) is not None
        and _whole(table, said)
        and max(table.numbers(said)) > 1
    ):
        k = said
    if k is not None:
        return k, n, None
    rate = next((by_key[name] for name in RATES if name in by_key and _rates(table, by_key[name])), None)
    return (None, n, None) if rate is not None else None


def counts_of(table: TextTable) -> list[Count]:
    """Return the rows of a table of counts; rows that are sums of the others are marked."""
    columns = count_columns(table)
    if columns is None:
        return []
    k, n, ratio = columns
    by_key = {key(c): c for c in reversed(table.columns)}
    void = next((by_key[name] for name in COUNTS_VOID if name in by_key), None)
    rate = next(
        (
            by_key[name]
            for name in RATES
            if name in by_key and by_key[name] not in (k, ratio) and _rates(table, by_key[name])
        ),
        None,
    )
    names = [_name(table, row, {k, n, ratio, void, rate}) for row in table.rows]
    rows = []
    for number, name in enumerate(names):
        cell = {
            c: table.rows[number][table.columns.index(c)] for c in (k, n, ratio, void, rate) if c is not None
        }
        match = _OF.fullmatch(cell[ratio].strip()) if ratio is not None else None
        good = _count(match[1] if match else cell[k] if k is not None else "")
        total = _count(match[2] if match else cell[n] if n is not None else "")
        printed = _fraction(cell[rate]) if rate is not None else None
        if (
            good != good
            and printed is not None
            and total == total
            and abs(printed * total - round(printed * total)) < 0.051
        ):
            good = float(round(printed * total))  # a rate rounded to whole percents gives one count, or none
        voided = _count(cell[void]) if void is not None else 0.0
        missing = int(voided) if voided == voided else 0
        missing = int(voided) if voided == voided else 0
        rows.append(
            Count(
                name=name,
                good=good if good == good else None,
                n=int(total) if total == total else None,
                void=missing,
                rate=printed,
            )
        )
    return _marked(table, rows)


def _count(cell: str) -> float:
    """Return a cell as a count, NaN where it is none that trials can have."""
    value = as_number(cell)
    return value if abs(value) <= _MOST_TRIALS else float("nan")


def _marked(table: TextTable, rows: list[Count]) -> list[Count]:
    whole = [r for r in rows if r.good is not None and r.n is not None]
    sums = (sum(r.good or 0 for r in whole), sum(r.n or 0 for r in whole))
    marked = []
    for row, cells in zip(rows, table.rows, strict=True):
        named = any(c.strip().lower() in TOTALS for c in cells[:3])
        adds = (
            len(whole) > 2
            and row.good is not None
            and row.n is not None
            and abs(2 * row.good - sums[0]) < 1e-9
            and 2 * row.n == sums[1]
        )
        marked.append(replace(row, is_total=named or adds))
    return marked


def _name(table: TextTable, row: tuple[str, ...], counted: set[str | None]) -> str:
    words = [
        c.strip()
        for name, c in zip(table.columns, row, strict=True)
        if name not in counted and "note" not in key(name) and not is_missing(c)
    ]
    text = [w for w in words if as_number(w) != as_number(w)]
    return " / ".join(text[:3]) or (words[0] if words else "all")


def _fraction(cell: str) -> float | None:
    text = cell.strip()
    value = as_number(text.rstrip("% "))
    if value != value:
        return None
    return value / 100 if text.endswith("%") or value > 1 else value


def _all_match(table: TextTable, column: str) -> bool:
    said = [c.strip() for c in table.column(column) if not is_missing(c)]
    return bool(said) and all(_OF.fullmatch(c) for c in said) and "date" not in key(column)


def _numbers(table: TextTable, column: str) -> bool:
    return table.is_numeric(column)


def _whole(table: TextTable, column: str) -> bool:
    return table.is_numeric(column) and all(
        v.is_integer() and v >= 0 for c in table.column(column) if (v := as_number(c)) == v
    )


def _rates(table: TextTable, column: str) -> bool:
    said = [c for c in table.column(column) if not is_missing(c)]
    values = [_fraction(c) for c in said]
    is_binary = (
        key(column) == "success" and set(values) <= {0.0, 0.5, 1.0} and not any("%" in c for c in said)
    )
    return bool(said) and not is_binary and all(v is not None and 0 <= v <= 1 for v in values)


def to_json(rows: list[Count]) -> list[dict[str, Any]]:
    """Return plain JSON values."""
    return [
        {"name": r.name, "success": r.good, "n": r.n, "void": r.void, "rate": r.rate, "is_total": r.is_total}
        for r in rows
    ]
