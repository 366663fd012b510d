"""Ends of trials that contradict themselves, and limits that cut them off."""

from __future__ import annotations

import numpy as np

from simgap.artefacts.tables import is_missing
from simgap.artefacts.trials.count_findings import finding
from simgap.artefacts.trials.roles import find
from simgap.artefacts.trials.rows import TrialTable, other_answers
from simgap.artefacts.trials.words import Said, ended_by_time, outcome_of, plain
from simgap.checks.data.report import DataFinding, Severity, listed
from simgap.wording import number_of

_CAPPED = 0.2
"""A share of trials within one percent of the longest duration that looks like a time limit."""


_LIMIT_REMEDY = "say the limit beside the rate; a longer one could change it"


_DURATIONS = (
    "n_frames",
    "steps",
    "n_steps",
    "num_steps",
    "episode_length",
    "duration_s",
    "duration",
    "time_s",
    "length",
)


def contradicting_ends(name: str, trials: TrialTable) -> list[DataFinding]:
    """Return a finding for each way an outcome and its stated end contradict each other."""
    said = trials.said()
    found = []
    for column, answers in other_answers(trials).items():
        pairs = enumerate(zip(answers, said, strict=True), start=2)  # row 1 is the header
        off = [
            k
            for k, (a, s) in pairs
            if a is not None and s in (Said.SUCCESS, Said.FAILURE) and a != (s is Said.SUCCESS)
        ]
        if off:
            failures = {
                str(trials.success or trials.stage): sum(s is Said.FAILURE for s in said),
                column: sum(a is False for a in answers),
            }
            text = (
                f"{name}: {column} disagrees with the outcome on {number_of(len(off), 'row')}; failures are"
                f" {' or '.join(f'{v} by {k}' for k, v in failures.items())}"
            )
            found.append(
                finding(
                    "outcome_contradicted",
                    Severity.WARNING,
                    text,
                    "define success once, before the trials",
                    rows=off,
                    failures=failures,
                )
            )
    return [*found, *_ended_otherwise(name, trials)]


def _ended_otherwise(name: str, trials: TrialTable) -> list[DataFinding]:
    """Find successes whose own word for how they ended names a failure, and failures that ended in success; a limit alone contradicts nothing."""
    if trials.ends is None or trials.success is None:
        return []
    ends, said = trials.table.column(trials.ends), trials.said()
    good = {
        plain(c)
        for c, s in zip(ends, said, strict=True)
        if s is Said.SUCCESS and outcome_of(c) is Said.SUCCESS
    }
    off = {}
    for row, (cell, s) in enumerate(zip(ends, said, strict=True), start=2):
        known = outcome_of(cell)
        names_failure = (
            not is_missing(cell)
            and known is not Said.SUCCESS
            and (bool(good) or (known is Said.FAILURE and not ended_by_time(cell)))
        )
        if (s is Said.SUCCESS and names_failure and known is not Said.MISSING) or (
            s is Said.FAILURE and known is Said.SUCCESS
        ):
            off[row] = plain(cell)
    # a word that most rows share, such as ``done``, says that the program ended
    if not off or len(off) > 0.5 * len(said):
        return []
    text = (
        f"{name}: {trials.ends} contradicts {trials.success} on {number_of(len(off), 'row')}"
        f" ({listed(sorted(set(off.values())))})"
    )
    return [
        finding(
            "outcome_contradicted",
            Severity.WARNING,
            text,
            "look at these trials and correct one of the two",
            rows=list(off),
            words=off,
        )
    ]


def cut_by_a_limit(name: str, trials: TrialTable) -> list[DataFinding]:
    """Say which failures a time limit ended: by their own word, or because many are equally long; never that it ended a success."""
    said = np.array([s is Said.FAILURE for s in trials.said()])
    if trials.ends is not None:
        timed = said & np.array([ended_by_time(c) for c in trials.table.column(trials.ends)])
        if not timed.any():
            return []
        text = (
            f"{name}: {int(timed.sum())} of {int(said.sum())} failures were ended by a time limit, says"
            f" {trials.ends}"
        )
        return [finding("trials_capped", Severity.NOTE, text, _LIMIT_REMEDY, n=int(timed.sum()))]
    column = find(trials.table, _DURATIONS)
    if column is None or not trials.table.is_numeric(column):
        return []
    values = trials.table.numbers(column)
    near = values >= 0.99 * np.nanmax(values)
    if (near & ~said).sum() > (near & said).sum() or (near.mean() > 0.95 and not said.all()):
        return []  # successes are as long: recordings of one length, no limit
    at = near & said
    if at.sum() < 3 or at.sum() < _CAPPED * len(values):
        return []
    durations = find(trials.table, ("duration_s",))
    ends = (
        f", {trials.table.numbers(durations)[at].min():.1f} to"
        f" {trials.table.numbers(durations)[at].max():.1f} s"
        if durations
        else ""
    )
    text = (
        f"{name}: {int(at.sum())} of {int(said.sum())} failures end at {column} {values[at].min():g} to"
        f" {values[at].max():g}{ends}: a time limit ended them"
    )
    return [
        finding(
            "trials_capped",
            Severity.NOTE,
            text,
            _LIMIT_REMEDY,
            n=int(at.sum()),
            limit=float(values[at].max()),
        )
    ]
