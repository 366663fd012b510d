"""Tables in which one row holds the outcomes of several arms on one scene, turned into one row for each trial."""

from __future__ import annotations

from dataclasses import replace

from simgap.artefacts.tables import TextTable, is_missing
from simgap.artefacts.trials.words import key, yes_no

ARM = "arm"
ROW = "scene_row"
"""Number of the row that two trials share: they started alike."""


def unfolded(table: TextTable, repeated: tuple[str, ...]) -> TextTable:
    """Return a table of repeated trials side by side with one row for each trial; blank cells are trials that were not run."""
    at = {c: k for k, c in enumerate(table.columns)}
    common = [c for c in table.columns if c not in repeated]
    rows = [
        (*(row[at[c]] for c in common), name, row[at[name]])
        for row in table.rows
        for name in repeated
        if row[at[name]].strip()
    ]
    note = f"columns {repeated[0]} to {repeated[-1]} hold repeated trials of their row"
    return replace(
        table, columns=(*common, "repeat", "success"), rows=tuple(rows), notes=(*table.notes, note)
    )


FAILED = ("failed", "fail", "is_failed", "is_fail", "is_failure", "failure", "task_failed", "has_failed")


def turned(table: TextTable) -> TextTable:
    """Return a table whose only outcome is a column that says *failed*, with the success that it means; others as they are."""
    column = next((c for c in table.columns if key(c) in FAILED), None)
    if column is None:
        return table
    said = [yes_no(c) for c in table.column(column)]
    if not said or any(
        s is None and not is_missing(c) for s, c in zip(said, table.column(column), strict=True)
    ):
        return table
    words = {True: "0", False: "1", None: ""}
    at = table.columns.index(column)
    columns = [c for c in table.columns if c != column]
    rows = tuple(
        (*(v for k, v in enumerate(row) if k != at), words[s])
        for row, s in zip(table.rows, said, strict=True)
    )
    return replace(
        table,
        columns=(*columns, "success"),
        rows=rows,
        notes=(*table.notes, f"{column} says which trials failed, the rest are successes"),
    )


def to_long(table: TextTable, arms: tuple[tuple[str, str], ...]) -> tuple[TextTable, dict[str, list[str]]]:
    """Return the table with one row for each arm and scene, and the columns that were read for each arm.

    Args:
        table: the wide table.
        arms: arm and its outcome column.
    """
    own: dict[str, dict[str, str]] = {arm: {"success": column} for arm, column in arms}
    taken = {column for _, column in arms}
    for column in table.columns:
        words = key(column)
        for arm, _ in arms:
            base = (
                words.removeprefix(f"{arm}_")
                if words.startswith(f"{arm}_")
                else words.removesuffix(f"_{arm}")
                if words.endswith(f"_{arm}")
                else ""
            )
            if base and column not in taken:
                own[arm][base] = column
                taken.add(column)
    bases = list(dict.fromkeys(b for columns in own.values() for b in columns))
    common = [c for c in table.columns if c not in taken and key(c) not in (ARM, ROW)]
    at = {c: k for k, c in enumerate(table.columns)}
    rows = []
    for number, row in enumerate(table.rows, start=2):
        for arm, columns in own.items():
            cells = [row[at[columns[b]]] if b in columns else "" for b in bases]
            rows.append((str(number), arm, *cells, *(row[at[c]] for c in common)))
    long = replace(table, columns=(ROW, ARM, *bases, *common), rows=tuple(rows))
    return long, {arm: list(columns.values()) for arm, columns in own.items()}
