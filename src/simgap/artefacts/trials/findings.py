"""What would make a count of trials wrong: voids, missing ends, codes on successes, scorers that disagree, limits, labels, sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from simgap.artefacts.tables import is_missing
from simgap.artefacts.trials.counts import Count
from simgap.artefacts.trials.roles import find
from simgap.artefacts.trials.rows import TableKind, TrialTable, bare_numbers, other_answers, repeats, units_in
from simgap.artefacts.trials.words import Said, ended_by_time, outcome_of, plain
from simgap.checks.data.report import DataFinding, Severity, listed

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


def finding(code: str, severity: Severity, sentence: str, remedy: str, **numbers: Any) -> DataFinding:
    """Return a finding about trials."""
    return DataFinding(code=code, severity=severity, sentence=sentence, remedy=remedy, numbers=numbers)


def judge_table(name: str, trials: TrialTable) -> list[DataFinding]:
    """Return what is wrong with one table of trials."""
    found = [*_read(name, trials), *_labels(name, trials), *_empty(name, trials)]
    if trials.kind is TableKind.TEMPLATE:
        text = (
            f"{name}: all {len(trials.table.rows)} outcomes are blank: a template, its trials are missing and"
            " not failures"
        )
        return [
            *found,
            finding(
                "outcomes_blank",
                Severity.WARNING,
                text,
                "run and log the trials, or leave the file out",
                rows=len(trials.table.rows),
            ),
        ]
    if trials.kind is TableKind.TRIALS:
        for rule in (_voids, _codes, _contradictions, _keys, _caps, _halves, _parts):
            found += rule(name, trials)
    return found


def _voids(name: str, trials: TrialTable) -> list[DataFinding]:
    said = trials.said()
    keys = trials.table.column(trials.trial) if trials.trial else [str(k + 1) for k in range(len(said))]
    void = [k for k, s in zip(keys, said, strict=True) if s is Said.VOID]
    missing = [k for k, s in zip(keys, said, strict=True) if s is Said.MISSING]
    found = []
    if void:
        text = (
            f"{name}: {len(void)} trials are void by their own label ({listed(void)}) and count neither as"
            " success nor as failure"
        )
        found.append(
            finding(
                "void_trials",
                Severity.NOTE,
                text,
                "say the number of voids and their reason beside every rate",
                trials=void,
            )
        )
    if missing:
        text = f"{name}: {len(missing)} of {len(said)} trials have no outcome ({listed(missing)})"
        found.append(
            finding(
                "outcomes_missing",
                Severity.WARNING,
                text,
                "look them up; a blank is not a failure",
                trials=missing,
            )
        )
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
        found.append(
            finding("failure_code_on_success", Severity.WARNING, text, remedy, n=len(wrong), codes=wrong)
        )
    if bare:
        text = f"{name}: {bare} of {sum(s is Said.FAILURE for s, _ in rows)} failures have no code"
        found.append(
            finding(
                "failure_without_code",
                Severity.NOTE,
                text,
                "fill them in from the video; counts of failure modes are incomplete",
                n=bare,
            )
        )
    return found


def _contradictions(name: str, trials: TrialTable) -> list[DataFinding]:
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
                f"{name}: {column} disagrees with the outcome on {len(off)} rows; failures are"
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
        f"{name}: {trials.ends} contradicts {trials.success} on {len(off)} rows"
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


def _keys(name: str, trials: TrialTable) -> list[DataFinding]:
    if trials.trial is None or trials.wide:
        return []
    keys = trials.table.column(trials.trial)
    if len(keys) < 2 or not repeats(keys):
        return []
    text = (
        f"{name}: the column {trials.trial!r} is no key: {repeats(keys)} of {len(keys)} rows share their"
        f" value ({listed(sorted(set(keys)))})"
    )
    return [
        finding(
            "trial_is_no_key",
            Severity.NOTE,
            text,
            "number trials through, so that a row can be named",
            repeated=repeats(keys),
        )
    ]


def _caps(name: str, trials: TrialTable) -> list[DataFinding]:
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


def _labels(name: str, trials: TrialTable) -> list[DataFinding]:
    found = []
    for column in (trials.stage, trials.mode):
        noisy = (
            sorted(
                {
                    c
                    for c in trials.table.column(column)
                    if "(" in c or " or " in c.lower() or "-or-" in c.lower()
                }
            )
            if column
            else []
        )
        if noisy:
            text = f"{name}: labels in {column} carry remarks or are undecided: {listed(noisy)}"
            found.append(
                finding(
                    "label_noise",
                    Severity.NOTE,
                    text,
                    "settle them before counting modes; undecided ones are counted apart here",
                    labels=noisy,
                )
            )
    mixed = {}
    for column in trials.table.columns:
        cells = [c for c in trials.table.column(column) if len(units_in(c)) >= 2 and bare_numbers(c)]
        if len(cells) >= 3 and "note" not in column:
            mixed[column] = {"example": cells[0], "units": sorted(set().union(*(units_in(c) for c in cells)))}
    for column, facts in mixed.items():
        text = (
            f"{name}: cells of {column} mix units and bare numbers in one text ({facts['example']!r}:"
            f" {', '.join(facts['units'])})"
        )
        found.append(
            finding(
                "units_in_text",
                Severity.NOTE,
                text,
                "give each quantity its own column with a unit in its name",
                **facts,
            )
        )
    return found


def _empty(name: str, trials: TrialTable) -> list[DataFinding]:
    table = trials.table
    empty = [c for c in table.columns if len(table.rows) and all(is_missing(v) for v in table.column(c))]
    words = {w for c in (trials.stage, trials.success, trials.mode) if c for w in c.split("_")[:1]}
    scoring = [
        c for c in empty if c not in (trials.stage, trials.success, trials.mode) and c.split("_")[0] in words
    ]
    found = []
    if scoring and trials.kind is TableKind.TRIALS:
        text = (
            f"{name}: the scoring column {listed(scoring)} is empty in all {len(table.rows)} rows: that pass"
            " never ran, the outcome rests on one scorer"
        )
        remedy = "score the videos, blind to the arm, or say that one scorer decided"
        found.append(finding("second_scoring_missing", Severity.WARNING, text, remedy, columns=scoring))
    rest = [c for c in empty if c not in scoring]
    if rest and trials.kind is TableKind.TRIALS:
        found.append(
            finding(
                "empty_columns",
                Severity.NOTE,
                f"{name}: columns without any entry: {listed(rest)}",
                "fill or drop them",
                columns=rest,
            )
        )
    return found


def _read(name: str, trials: TrialTable) -> list[DataFinding]:
    """Say what had to be understood to read a table."""
    said = list(trials.table.notes)
    if trials.wide:
        columns = "; ".join(f"{arm}: {listed(names)}" for arm, names in trials.wide.items())
        said.append(f"one row holds the trials of {len(trials.wide)} arms ({columns})")
    if not said:
        return []
    return [
        finding(
            "table_understood_as",
            Severity.NOTE,
            f"{name}: {'; '.join(said)}",
            "nothing, where that is right; else save it as plain CSV",
            said=said,
        )
    ]


def _halves(name: str, trials: TrialTable) -> list[DataFinding]:
    said = trials.said()
    n = sum(s is Said.PARTIAL for s in said)
    if not n:
        return []
    full, counted = (
        sum(s is Said.SUCCESS for s in said),
        sum(s in (Said.SUCCESS, Said.FAILURE, Said.PARTIAL) for s in said),
    )
    text = (
        f"{name}: {n} trials are half successes; a rate has none, so they count as trials and not as"
        f" successes ({full} of {counted}; "
    )
    text += f"{full + n} of {counted} if they counted)"
    remedy = (
        "enter success 0 or 1 by a rule fixed before the trials, and the half in a column of scores (score"
        " 0.5)"
    )
    return [finding("half_successes", Severity.WARNING, text, remedy, n=n)]


def _parts(name: str, trials: TrialTable) -> list[DataFinding]:
    if not trials.parts:
        return []
    text = (
        f"{name}: {listed(list(trials.parts))} are read as parts of the task, the outcome is {trials.success}"
    )
    return [
        finding(
            "parts_of_task",
            Severity.NOTE,
            text,
            "name the column of the whole task success",
            parts=list(trials.parts),
        )
    ]


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
            f"{name}: the row {listed(totals)} is the sum of the others; adding all rows gives {both} trials"
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


def not_read(others: Sequence[str], unread: Mapping[str, str]) -> list[DataFinding]:
    """Name every table that plays no part in the report: those of another kind, and those that could not be read."""
    found = []
    if others:
        text = f"{len(others)} tables have no columns that this report reads: {listed(list(others), 12)}"
        remedy = (
            "nothing, where they are something else; else name the columns as they are usually called"
            " (success; real_success, sim_success)"
        )
        found.append(finding("tables_not_used", Severity.NOTE, text, remedy, files=list(others)))
    if unread:
        parts = [f"{name} ({reason})" for name, reason in unread.items()]
        text = f"{len(unread)} tables could not be read: {listed(parts, 6)}"
        found.append(
            finding(
                "tables_unreadable",
                Severity.WARNING,
                text,
                "repair or convert them: what they hold is missing here",
                files=dict(unread),
            )
        )
    return found
