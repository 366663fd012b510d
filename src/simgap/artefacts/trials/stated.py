"""Totals that a JSON file states beside its trials: number of trials, successes, rate; they have to be those of the trials."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from simgap.artefacts.trials.rows import TrialTable
from simgap.artefacts.trials.words import Said, key
from simgap.checks.data.report import DataFinding, Severity, listed
from simgap.errors import DataError
from simgap.provenance import read_json

_TRIALS = (
    "n_trials",
    "num_trials",
    "n_episodes",
    "num_episodes",
    "total_trials",
    "total_episodes",
    "n_rollouts",
    "num_rollouts",
)
_SUCCESSES = (
    "n_success",
    "n_successes",
    "num_success",
    "num_successes",
    "total_success",
    "total_successes",
    "success_count",
)
_RATES = ("success_rate", "mean_success", "avg_success", "average_success")
_PERCENT = ("pc_success", "success_percent", "success_pct")
_PLACES = (
    "aggregated",
    "overall",
    "summary",
    "totals",
    "total",
    "metrics",
    "stats",
    "statistics",
    "config",
    "meta",
    "metadata",
)


def stated_totals(name: str, trials: TrialTable) -> Iterator[DataFinding]:
    """Yield the totals of a JSON file that its own trials do not give."""
    if trials.table.path.suffix != ".json" or trials.wide:
        return
    try:
        document = read_json(trials.table.path, finite=False)
    except DataError:  # it was read as a table before; what is wrong with it is said there
        return
    stated = dict(_stated(document))
    said = trials.said()
    good, n = (
        sum(s is Said.SUCCESS for s in said),
        sum(s in (Said.SUCCESS, Said.FAILURE, Said.PARTIAL) for s in said),
    )
    wrong: dict[str, tuple[float, float]] = {}
    for place, value in stated.items():
        word = key(place.rpartition(".")[2])
        if word in _TRIALS and value not in (n, len(said)):
            wrong[place] = (value, len(said))
        elif word in _SUCCESSES and value != good:
            wrong[place] = (value, good)
        elif word in (*_RATES, *_PERCENT) and n:
            rate = value / 100 if word in _PERCENT or value > 1 else value
            if abs(rate - good / n) > 0.0051:
                wrong[place] = (value, round(100 * good / n if rate != value else good / n, 3))
    if not wrong:
        return
    parts = [f"{place} says {a:g}, the trials give {b:g}" for place, (a, b) in wrong.items()]
    yield DataFinding(
        code="stated_total_differs",
        severity=Severity.WARNING,
        sentence=f"{name}: totals beside the trials are not theirs: {listed(parts)}",
        remedy="find the trials that are missing, or correct the totals; counts here are those of the trials",
        feature=name,
        numbers={place: {"stated": a, "trials": b} for place, (a, b) in wrong.items()},
    )


def _stated(document: Any) -> Iterator[tuple[str, float]]:
    if not isinstance(document, Mapping):
        return
    known = (*_TRIALS, *_SUCCESSES, *_RATES, *_PERCENT)
    for name, value in document.items():
        if (
            key(str(name)) in known
            and isinstance(value, int | float)
            and not isinstance(value, bool)
            and value == value
        ):
            yield str(name), float(value)
        elif key(str(name)) in _PLACES and isinstance(value, Mapping):
            for inner, number in _stated(value):
                yield f"{name}.{inner}", number
