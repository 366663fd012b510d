"""JSON of evaluation scripts as one object per trial: lists of trials, trials by their number, lists side by side, tables of data frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_LISTS = (
    "trials",
    "episodes",
    "results",
    "rollouts",
    "runs",
    "data",
    "records",
    "evaluations",
    "per_episode",
    "per_task",
)
_OUTCOMES = ("success", "successes", "is_success", "succeeded", "outcome", "outcomes", "results")
_FEWEST = 2


def rows_of_json(document: Any) -> list[Mapping[str, Any]]:
    """Return the objects of a JSON document that holds one row per trial in a usual form; none otherwise."""
    rows = _rows(document)
    if not all(isinstance(row, dict) for row in rows):
        return []
    return [single for row in rows for single in _unfolded(row)]


def _rows(document: Any) -> list[Any]:
    if isinstance(document, list):
        return document
    if not isinstance(document, dict):
        return []
    # a data frame, split
    if isinstance(document.get("columns"), list) and isinstance(document.get("data"), list):
        names = [str(c) for c in document["columns"]]
        return [dict(zip(names, row, strict=False)) for row in document["data"] if isinstance(row, list)]
    lists = {
        str(k).lower(): v for k, v in document.items() if isinstance(v, list) and v and isinstance(v[0], dict)
    }
    named = [v for k, v in lists.items() if k in _LISTS]
    if len(named) == 1:
        return named[0]
    if len(lists) == 1:
        return next(iter(lists.values()))
    if not lists and _list_of_outcomes(document) is not None:
        return [document]
    inside = [v for k, v in document.items() if str(k).lower() in _LISTS and isinstance(v, dict)]
    return _numbered(inside[0]) if len(inside) == 1 else _numbered(document)


def _numbered(document: Mapping[str, Any]) -> list[Any]:
    """Return the objects of one that holds trials by their name or number: all of them objects with one field in common that is an outcome."""
    values = list(document.values())
    if len(values) < _FEWEST or not all(isinstance(v, dict) for v in values):
        return []
    common = set.intersection(*({str(k).lower() for k in v} for v in values))
    return [{"id": str(k), **v} for k, v in document.items()] if common & set(_OUTCOMES) else []


def _list_of_outcomes(row: Mapping[str, Any]) -> list[Any] | None:
    """Return a list of one outcome per trial that an object holds; None where it holds none."""
    for name, value in row.items():
        if (
            str(name).lower() in _OUTCOMES
            and isinstance(value, list)
            and len(value) >= _FEWEST
            and not any(isinstance(v, list | dict) for v in value)
        ):
            return value
    return None


def _unfolded(row: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return one object per trial where an object holds lists side by side, one entry per trial, itself otherwise."""
    holder = next(
        (v for v in (row, *row.values()) if isinstance(v, dict) and _list_of_outcomes(v) is not None), None
    )
    outcomes = _list_of_outcomes(holder) if holder is not None else None
    if holder is None or outcomes is None:
        return [row]
    lists = {k: v for k, v in holder.items() if isinstance(v, list) and len(v) == len(outcomes)}
    single = {
        k: v for k, v in {**row, **holder}.items() if not isinstance(v, list | dict) and not _is_total(k)
    }
    return [
        {**single, **{("success" if v is outcomes else str(k)): v[n] for k, v in lists.items()}}
        for n in range(len(outcomes))
    ]


def _is_total(name: Any) -> bool:
    """Return whether a number beside lists is about all of them and not of each trial."""
    words = set(str(name).lower().split("_"))
    return bool(words & {"rate", "pc", "avg", "mean", "num", "n", "total", "count", "sum"})
