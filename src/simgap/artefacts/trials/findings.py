"""What would make a count of trials wrong: voids, missing ends, codes on successes, scorers that disagree, limits, labels, sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from simgap.artefacts.tables import is_missing
from simgap.artefacts.trials.count_findings import finding
from simgap.artefacts.trials.ends import contradicting_ends, cut_by_a_limit
from simgap.artefacts.trials.rows import TableKind, TrialTable, bare_numbers, repeats, units_in
from simgap.artefacts.trials.words import Said
from simgap.checks.data.report import DataFinding, Severity, listed
from simgap.wording import number_of


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
        for rule in (_voids, _codes, contradicting_ends, _keys, cut_by_a_limit, _halves, _parts):
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
            f"{name}: {number_of(len(void), 'trial is void by its', 'trials are void by their')} own"
            f" label ({listed(void)}) and count neither as"
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
        text = f"{name}: {len(missing)} of {number_of(len(said), 'trial has', 'trials have')} no outcome ({listed(missing)})"
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


def _keys(name: str, trials: TrialTable) -> list[DataFinding]:
    if trials.trial is None or trials.wide:
        return []
    keys = trials.table.column(trials.trial)
    if len(keys) < 2 or not repeats(keys):
        return []
    text = (
        f"{name}: the column {trials.trial!r} is no key: {repeats(keys)} of"
        f" {number_of(len(keys), 'row')} share their"
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
            f"{name}: the scoring column {listed(scoring)} is empty in all"
            f" {number_of(len(table.rows), 'row')}: that pass"
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
        said.append(f"one row holds the trials of {number_of(len(trials.wide), 'arm')} ({columns})")
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
        f"{name}: {number_of(n, 'trial is a half success', 'trials are half successes')}; a rate has"
        " none, so they count as trials and not as"
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


def not_read(others: Sequence[str], unread: Mapping[str, str]) -> list[DataFinding]:
    """Name every table that plays no part in the report: those of another kind, and those that could not be read."""
    found = []
    if others:
        text = f"{number_of(len(others), 'table has', 'tables have')} no columns that this report reads: {listed(list(others), 12)}"
        remedy = (
            "nothing, where they are something else; else name the columns as they are usually called"
            " (success; real_success, sim_success)"
        )
        found.append(finding("tables_not_used", Severity.NOTE, text, remedy, files=list(others)))
    if unread:
        parts = [f"{name} ({reason})" for name, reason in unread.items()]
        text = f"{number_of(len(unread), 'table')} could not be read: {listed(parts, 6)}"
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
