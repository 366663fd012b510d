"""Trial logs of others as tables: which column is the outcome, the arm, the stratum; what each row says; what is void or missing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from simgap.artefacts.tables import TextTable, as_number, is_missing
from simgap.artefacts.trials.counts import count_columns
from simgap.artefacts.trials.roles import (
    ENDS,
    MODE,
    STAGE,
    STRATUM,
    TRIAL,
    Outcomes,
    arm_columns,
    find,
    outcomes_of,
    repeated_columns,
    start_columns,
)
from simgap.artefacts.trials.wide import ARM as WIDE_ARM
from simgap.artefacts.trials.wide import FAILED, ROW, to_long, turned, unfolded
from simgap.artefacts.trials.words import (
    VOID,
    Said,
    ended_by_time,
    is_no_code,
    key,
    outcome_of,
    plain,
    yes_no,
)

_VALID = ("valid", "is_valid", "reset_ok", "reset_success", "counts")
_NOT_VALID = (
    "void",
    "is_void",
    "voided",
    "excluded",
    "invalid",
    "discarded",
    "aborted",
    "reset_failed",
    "reset_failure",
)


class TableKind(StrEnum):
    """What a table of trials holds."""

    TRIALS = "trials"
    """One row a trial, with an outcome."""
    TEMPLATE = "template"
    """One row a trial, no outcome filled in."""
    AGGREGATE = "aggregate"
    """One row a condition, with counts."""
    METADATA = "metadata"
    """One row a trial, no outcome column."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TrialTable:
    """One table with its columns named by their use; None where a table has no such column."""

    table: TextTable
    kind: TableKind
    success: str | None
    stage: str | None
    mode: str | None
    arm: str | None
    strata: tuple[str, ...]
    trial: str | None
    success_stage: str | None = None
    """Stage that counts as success, where it had to be inferred."""
    arm_by: tuple[str, ...] = ()
    """All columns that tell arms apart, ``arm`` first."""
    ends: str | None = None
    """Column that says what ended a trial."""
    others: tuple[str, ...] = ()
    """Further scorings of the same trials."""
    parts: tuple[str, ...] = ()
    """Outcomes of parts of the task."""
    starts: tuple[str, ...] = ()
    """Columns that identify the start of a trial."""
    scenes: tuple[str, ...] = ()
    """Columns that identify its scene."""
    wide: dict[str, list[str]] = field(default_factory=dict)
    """Arm -> its columns, where the file has one row for several arms."""
    unnamed: str = "all"
    """What an arm without a name is called."""

    def said(self) -> list[Said]:
        """Return what every row says of its outcome."""
        texts = [
            self.table.column(c) if c else [""] * len(self.table.rows)
            for c in (self.success, self.stage, self.mode, self.ends)
        ]
        left_out = self._left_out()
        return [Said.VOID if out else self._row(*cells) for out, *cells in zip(left_out, *texts, strict=True)]

    def _left_out(self) -> list[bool]:
        """Return which rows a column of validity leaves out."""
        out = [False] * len(self.table.rows)
        for names, wrong in ((_VALID, False), (_NOT_VALID, True)):
            for column in (
                c for c in self.table.columns if key(c) in names and c not in (self.success, self.mode)
            ):
                out = [o or yes_no(c) is wrong for o, c in zip(out, self.table.column(column), strict=True)]
        return out

    def _row(self, success: str, stage: str, mode: str, ends: str) -> Said:
        if any(VOID.search(cell) for cell in (stage, mode, success, ends)):
            return Said.VOID
        if self.success is not None:
            known = outcome_of(success)
            if known is None and self._has_words():
                return Said.FAILURE
            return Said.MISSING if known is None else known
        if is_missing(stage):
            return Said.MISSING
        return Said.SUCCESS if plain(stage) == self.success_stage else Said.FAILURE

    def _has_words(self) -> bool:
        """Return whether the outcome names how a trial failed instead of saying no."""
        column = self.table.column(self.success or "")
        known = [outcome_of(c) for c in column]
        words = [c for c, k in zip(column, known, strict=True) if k is None]
        return (
            Said.SUCCESS in known
            and bool(words)
            and len(set(words)) <= max(8, len(words) // 2)
            and not any(as_number(w) == as_number(w) for w in words)
        )

    def modes(self) -> list[str]:
        """Return the failure mode of every row in its plain form, empty where the row names none."""
        column = self.mode
        if column is None and self.ends is not None:
            column = self.ends
        if column is None and self.success is not None and self._has_words():
            return [
                "" if outcome_of(c) is not None and not ended_by_time(c) else plain(c)
                for c in self.table.column(self.success)
            ]
        if column is None:
            return [""] * len(self.table.rows)
        return [
            "" if is_no_code(m) else "undecided" if re.search(r"\bor\b|\?", m, re.IGNORECASE) else plain(m)
            for m in self.table.column(column)
        ]

    def arms(self) -> list[str]:
        """Return the arm of every row; one unnamed arm where there is no such column."""
        columns = self.arm_by or ((self.arm,) if self.arm else ())
        if not columns:
            return [self.unnamed] * len(self.table.rows)
        return [
            " / ".join("(no name)" if is_missing(c) else c for c in cells)
            for cells in zip(*(self.table.column(c) for c in columns), strict=True)
        ]

    def keys(self, columns: Sequence[str]) -> list[str]:
        """Return one key a row over some columns."""
        return (
            [" / ".join(cells) for cells in zip(*(self.table.column(c) for c in columns), strict=True)]
            if columns
            else [""] * len(self.table.rows)
        )


def read_trials(table: TextTable) -> TrialTable | None:
    """Name the columns of a table of trials by their use, None where it is no such table."""
    if repeated := repeated_columns(table):
        table = unfolded(table, repeated)
    outcomes = outcomes_of(table)
    if outcomes == Outcomes() and find(table, STAGE) is None and (other := turned(table)) is not table:
        table, outcomes = other, outcomes_of(other)
    if outcomes.arms:
        long, wide = to_long(table, outcomes.arms)
        starts, scenes = start_columns(table)
        found = _named(long, Outcomes(main="success", parts=outcomes.parts), TableKind.TRIALS)
        return replace(
            found,
            arm=WIDE_ARM,
            arm_by=(WIDE_ARM,),
            trial=None,
            wide=wide,
            starts=(ROW,),
            scenes=scenes or starts,
        )
    stage, trial, by = find(table, STAGE), find(table, TRIAL), arm_columns(table)
    if count_columns(table) is not None:
        kind = TableKind.AGGREGATE
    elif outcomes.main is None and stage is None:
        if trial is None or not (by or any(re.fullmatch(r"q\d+", c) for c in table.columns)):
            return None
        kind = TableKind.METADATA
    else:
        said = [c for c in table.column(outcomes.main or stage or "") if not is_missing(c)]
        kind = TableKind.TRIALS if said else TableKind.TEMPLATE
    found = _named(table, outcomes, kind)
    return (
        replace(found, success_stage=_success_stage(found))
        if kind is TableKind.TRIALS and found.success is None
        else found
    )


def _named(table: TextTable, outcomes: Outcomes, kind: TableKind) -> TrialTable:
    by, (starts, scenes) = arm_columns(table), start_columns(table)
    by_key = {key(c): c for c in reversed(table.columns)}
    ends = find(table, ENDS)
    return TrialTable(
        table=table,
        kind=kind,
        success=outcomes.main,
        stage=find(table, STAGE),
        mode=find(table, MODE),
        arm=by[0] if by else None,
        arm_by=by,
        strata=tuple(by_key[n] for n in STRATUM if n in by_key and by_key[n] not in by),
        trial=find(table, TRIAL),
        ends=ends if ends != outcomes.main else None,
        others=outcomes.others,
        parts=outcomes.parts,
        starts=starts,
        scenes=scenes,
    )


def _success_stage(found: TrialTable) -> str | None:
    """Infer which stage is success: the one whose rows name no failure, where there is exactly one such stage."""
    if found.stage is None or found.mode is None:
        return None
    named: dict[str, list[bool]] = {}
    for stage, mode in zip(found.table.column(found.stage), found.table.column(found.mode), strict=True):
        if not is_missing(stage) and not VOID.search(stage):
            named.setdefault(plain(stage), []).append(is_no_code(mode))
    clean = [s for s, none in named.items() if all(none)]
    return clean[0] if len(clean) == 1 else None


def other_answers(found: TrialTable) -> dict[str, list[bool | None]]:
    """Return further columns that answer yes or no on nearly every row and mostly as the outcome does, and all that are named as scorings of it."""
    said = found.said()
    answers = {name: [yes_no(c) for c in found.table.column(name)] for name in found.others}
    for name in found.table.columns:
        if key(name) in FAILED and name not in (found.success, found.mode, found.ends):
            said_failed = [yes_no(c) for c in found.table.column(name)]
            if None not in said_failed:
                answers[name] = [not failed for failed in said_failed]
    for name in found.table.columns:
        if name in (found.success, found.trial, found.mode, found.ends) or name in (
            *found.strata,
            *found.arm_by,
            *found.parts,
            *answers,
            ROW,
        ):
            continue
        column = [yes_no(c) for c in found.table.column(name)]
        both = [
            (a, s is Said.SUCCESS)
            for a, s in zip(column, said, strict=True)
            if a is not None and s in (Said.SUCCESS, Said.FAILURE)
        ]
        if (
            len(both) >= max(4, 0.9 * len(said))
            and 0 < sum(a for a, _ in both) < len(both)
            and sum(a == s for a, s in both) >= 0.9 * len(both)
        ):
            answers[name] = column
    return answers


def repeats(values: Sequence[str]) -> int:
    """Return how many values are there more than once."""
    counts: dict[str, int] = {}
    for v in values:
        counts[v] = counts.get(v, 0) + 1
    return sum(n for n in counts.values() if n > 1)


def units_in(cell: str) -> set[str]:
    """Return the units that follow numbers in a cell of text."""
    return {u for u in re.findall(r"[-+]?\d+(?:\.\d+)?\s?(°|deg\b|px\b|mm\b|cm\b|ms\b|s\b|%|Hz\b)", cell)}


def bare_numbers(cell: str) -> bool:
    """Return whether a cell of text holds a number without a unit."""
    return bool(
        re.search(r"[-+]\d+(?:\.\d+)?(?![\d.]*\s?(?:°|deg|px|mm|cm|ms|s\b|%|Hz))", cell)
    ) and not re.fullmatch(r"[-+]?\d+(\.\d+)?", cell)


def numeric_range(table: TextTable, column: str) -> tuple[float, float] | None:
    """Return smallest and largest number of a column, None where it holds none."""
    values = [v for c in table.column(column) if (v := as_number(c)) == v]
    return (min(values), max(values)) if values else None
