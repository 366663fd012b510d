"""Trial logs of others as tables: which column is the outcome, the arm, the stratum; what each row says; what is void or missing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from simgap.checks.foreign_tables import TextTable, as_number, is_missing

SUCCESS = ("success", "succes", "succès", "is_success", "reussite", "réussite", "outcome", "result")
STAGE = ("stage_live", "stage", "stade_atteint", "phase")
MODE = ("mechanism", "mode_echec", "failure_mode", "failure_code", "failure")
ARM = ("policy", "policy_model", "detecteur", "detector", "method", "model", "arm", "policy_id")
STRATUM = ("objet", "object", "position", "condition", "task", "scene")
TRIAL = ("trial", "episode_id", "trial_id", "rollout_id", "run_id")
TOTALS = ("overall", "total", "all", "sum", "gesamt", "ensemble")
_YES = ("1", "1.0", "true", "yes", "y", "oui", "ja", "success", "succeeded", "pass", "s")
_NO = ("0", "0.0", "false", "no", "n", "non", "nein", "failure", "failed", "fail", "f")
_VOID = re.compile(r"\b(infra|void|aborted|invalid|n/a)\b", re.IGNORECASE)
_DASH = ("-", "—", "–")


class Said(StrEnum):
    """What one row says of its trial."""

    SUCCESS = "success"
    FAILURE = "failure"
    VOID = "void"
    MISSING = "missing"


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

    def said(self) -> list[Said]:
        """Return what every row says of its outcome."""
        texts = [self.table.column(c) if c else [""] * len(self.table.rows) for c in (self.success, self.stage, self.mode)]
        return [self._row(*cells) for cells in zip(*texts, strict=True)]

    def _row(self, success: str, stage: str, mode: str) -> Said:
        if _VOID.search(stage) or _VOID.search(mode) or _VOID.search(success):
            return Said.VOID
        if self.success is not None:
            answer = yes_no(success)
            return Said.MISSING if answer is None else Said.SUCCESS if answer else Said.FAILURE
        if is_missing(stage):
            return Said.MISSING
        return Said.SUCCESS if plain(stage) == self.success_stage else Said.FAILURE

    def modes(self) -> list[str]:
        """Return the failure mode of every row in its plain form, empty where the row names none."""
        if self.mode is None:
            return [""] * len(self.table.rows)
        return ["" if is_missing(m) else "undecided" if re.search(r"\bor\b|\?", m, re.IGNORECASE) else plain(m) for m in self.table.column(self.mode)]

    def arms(self) -> list[str]:
        """Return the arm of every row; one unnamed arm where there is no such column."""
        return self.table.column(self.arm) if self.arm else ["all"] * len(self.table.rows)


def plain(label: str) -> str:
    """Return a label without what follows in brackets or after a dash: ``G (marginal)`` is ``G``."""
    return re.split(r"\s*[(—–]|\s-\s", label.strip(), maxsplit=1)[0].strip()


def yes_no(cell: str) -> bool | None:
    """Return a cell as an outcome, None where it says nothing."""
    word = cell.strip().lower()
    return True if word in _YES else False if word in _NO else None


def read_trials(table: TextTable) -> TrialTable | None:
    """Name the columns of a table of trials by their use, None where it is no such table."""
    success, stage, mode, arm, trial = (table.find(*names) for names in (SUCCESS, STAGE, MODE, ARM, TRIAL))
    strata = tuple(c for name in STRATUM if (c := table.find(name)) is not None)
    if table.find("successes") and table.find("trials", "n", "n_trials"):
        kind = TableKind.AGGREGATE
    elif success is None and stage is None:
        if trial is None or not (arm or any(re.fullmatch(r"q\d+", c) for c in table.columns)):
            return None
        kind = TableKind.METADATA
    else:
        column = success or stage
        said = [c for c in table.column(column or "") if not is_missing(c)]
        kind = TableKind.TRIALS if said else TableKind.TEMPLATE
    found = TrialTable(table=table, kind=kind, success=success, stage=stage, mode=mode, arm=arm, strata=strata, trial=trial)
    return replace(found, success_stage=_success_stage(found)) if kind is TableKind.TRIALS and success is None else found


def _success_stage(found: TrialTable) -> str | None:
    """Infer which stage is success: the one whose rows name no failure, where there is exactly one such stage."""
    if found.stage is None or found.mode is None:
        return None
    named: dict[str, list[bool]] = {}
    for stage, mode in zip(found.table.column(found.stage), found.table.column(found.mode), strict=True):
        if not is_missing(stage) and not _VOID.search(stage):
            named.setdefault(plain(stage), []).append(is_missing(mode))
    clean = [s for s, none in named.items() if all(none)]
    return clean[0] if len(clean) == 1 else None


def total_rows(found: TrialTable) -> list[int]:
    """Return the rows of an aggregate table that are sums of the others."""
    table = found.table
    counts = [table.numbers(c) for c in (table.find("trials", "n", "n_trials"), table.find("successes")) if c]
    return [
        k
        for k, row in enumerate(table.rows)
        if row[0].strip().lower() in TOTALS or (len(table.rows) > 2 and all(abs(2 * v[k] - v.sum()) < 1e-9 for v in counts) and counts)
    ]


def other_answers(found: TrialTable) -> dict[str, list[bool | None]]:
    """Return further columns that answer yes or no on nearly every row and mostly as the outcome does."""
    said = found.said()
    answers = {}
    for name in found.table.columns:
        if name in (found.success, found.trial) or name in found.strata:
            continue
        column = [yes_no(c) for c in found.table.column(name)]
        both = [(a, s is Said.SUCCESS) for a, s in zip(column, said, strict=True) if a is not None and s in (Said.SUCCESS, Said.FAILURE)]
        if len(both) >= max(4, 0.9 * len(said)) and 0 < sum(a for a, _ in both) < len(both) and sum(a == s for a, s in both) >= 0.9 * len(both):
            answers[name] = column
    return answers


def repeats(values: Sequence[str]) -> int:
    """Return how many values are there more than once."""
    return sum(n for n in Counter(values).values() if n > 1)


def units_in(cell: str) -> set[str]:
    """Return the units that follow numbers in a cell of text."""
    return {u for u in re.findall(r"[-+]?\d+(?:\.\d+)?\s?(°|deg\b|px\b|mm\b|cm\b|ms\b|s\b|%|Hz\b)", cell)}


def bare_numbers(cell: str) -> bool:
    """Return whether a cell of text holds a number without a unit."""
    return bool(re.search(r"[-+]\d+(?:\.\d+)?(?![\d.]*\s?(?:°|deg|px|mm|cm|ms|s\b|%|Hz))", cell)) and not re.fullmatch(r"[-+]?\d+(\.\d+)?", cell)


def numeric_range(table: TextTable, column: str) -> tuple[float, float] | None:
    """Return smallest and largest number of a column, None where it holds none."""
    values = [v for c in table.column(column) if (v := as_number(c)) == v]
    return (min(values), max(values)) if values else None
