"""How a table of paired rates is cut up: rows that a flag leaves out, the scale of each column, policies, and the correlations it prints of itself."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.artefacts.tables import TextTable, as_number
from simgap.artefacts.trials.roles import find
from simgap.artefacts.trials.words import key, yes_no
from simgap.statistics import pearson, spearman

_KEEP = ("include", "included", "used", "in_fit", "in_plot", "in_correlation", "keep", "valid", "is_valid")
_DROP = (
    "exclude",
    "excluded",
    "outlier",
    "is_outlier",
    "invalid",
    "drop",
    "dropped",
    "duplicate",
    "is_duplicate",
    "hidden",
    "flagged",
    "flag",
)
_POLICY = ("policy", "model", "series", "method", "agent", "policy_name")
_PRINTED = ("printed_r", "r_printed", "published_r", "reported_r", "printed_pearson", "paper_r")
_FEWEST = 3


def kept(table: TextTable) -> tuple[NDArray[np.bool_], dict[str, int]]:
    """Return which rows the table's own flags keep, and how many each flag leaves out; a column that says neither yes nor no is no flag."""
    rows, left = np.ones(len(table.rows), dtype=bool), {}
    for names, wanted in ((_KEEP, True), (_DROP, False)):
        for column in (c for c in table.columns if key(c) in names):
            said = [yes_no(c) for c in table.column(column)]
            if any(s is None and c for s, c in zip(said, table.column(column), strict=True)):
                continue
            out = np.array([s is not None and s is not wanted for s in said])
            if out.any() and not out.all():
                left[column] = int(out.sum())
                rows &= ~out
    return rows, left


def fractions(table: TextTable, column: str) -> tuple[NDArray[np.float64], str]:
    """Return a column of rates as fractions, and the scale it is written in: each column has its own."""
    values = table.numbers(column)
    is_percent = bool(np.nanmax(values, initial=0.0) > 1.5) or bool(
        set(key(column).split("_")) & {"pct", "percent", "percentage"}
    )
    return values * (0.01 if is_percent else 1.0), "percent" if is_percent else "fraction"


def printed(table: TextTable, group: str, rows: NDArray[np.int64]) -> list[float]:
    """Return the correlation that the table prints for a group: a column of its own, or a comment that names the group beside a number."""
    column = find(table, _PRINTED)
    if column is not None:
        said = {v for k in rows if np.isfinite(v := as_number(table.column(column)[k]))}
        if len(said) == 1:
            return [float(said.pop())]
    words = re.escape(group.split(" / ")[0]).replace("_", "[ _-]")
    line_start = re.compile(rf"{words}(?:\b.*?\bprinted)?\s+(-?\d?\.\d+)(?:\s|$)", re.IGNORECASE)
    for line in table.comments:
        if found := line_start.match(line):
            return [float(found[1])]
    text = " ".join(table.comments)
    first = re.escape(re.split(r"[\s_-]", group.split(" / ")[0])[0])
    for name in (words, first):
        if found := re.search(rf"\b{name}\b[^;.=]{{0,20}}?\b[rR]\s*=\s*(-?\d?\.\d+)", text):
            return [float(found[1])]
    return []


def within_policy(
    table: TextTable, rows: NDArray[np.int64], real: NDArray[np.float64], sim: NDArray[np.float64]
) -> dict[str, Any]:
    """Return the correlation over the rows of each policy alone, for policies with at least three."""
    column = find(table, _POLICY)
    if column is None:
        return {}
    names = np.array(table.column(column))[rows]
    sizes = {str(p): names == p for p in dict.fromkeys(names.tolist())}
    if len(sizes) < 2:
        return {}
    return {
        p: {"n": int(m.sum()), "pearson_r": pearson(real=real[m], sim=sim[m])}
        for p, m in sizes.items()
        if m.sum() >= _FEWEST
    }


def policy_means(
    table: TextTable,
    groups: dict[str, NDArray[np.int64]],
    real: NDArray[np.float64],
    sim: NDArray[np.float64],
) -> dict[str, Any] | None:
    """Return the correlation over policies, each with the mean of its groups; None unless three policies are in every group."""
    column = find(table, _POLICY)
    if column is None or len(groups) < 2:
        return None
    names = np.array(table.column(column))
    common = [
        p for p in dict.fromkeys(names.tolist()) if all((names[rows] == p).any() for rows in groups.values())
    ]
    if len(common) < _FEWEST:
        return None
    means = [
        [float(np.mean([v[rows][names[rows] == p].mean() for rows in groups.values()])) for p in common]
        for v in (real, sim)
    ]
    rates = {
        "real": dict(zip(common, means[0], strict=True)),
        "sim": dict(zip(common, means[1], strict=True)),
    }
    return {
        "n": len(common),
        "groups": len(groups),
        "pearson_r": pearson(real=means[0], sim=means[1]),
        "spearman_rho": spearman(real=means[0], sim=means[1]),
        **rates,
    }


def policies_of(table: TextTable) -> int | None:
    """Return how many policies a table names, None where no column does."""
    column = find(table, _POLICY)
    return None if column is None else len(set(table.column(column)))
