"""``simgap numbers agree`` and ``combine``: tables that hold simulated and real trials side by side."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simgap.artefacts.tables import TextTable
    from simgap.types import Outcome

Said = tuple[dict[str, Any], list[str], bool]
_COUNTS = ("real_successes", "real_n", "sim_successes", "sim_n")


def agree(args: argparse.Namespace) -> Said:
    """Say how far a simulator orders the policies of a table as the robot does."""
    import numpy as np

    from simgap.artefacts.tables import read_csv
    from simgap.errors import DataError
    from simgap.statistics import agreement_by_condition

    table, rng = read_csv(args.table), np.random.default_rng(args.seed)
    if table.find("policy") is None:
        raise DataError(f"{args.table} has no column policy; it has {', '.join(table.columns)}")
    if table.find("condition") is not None:
        real, sim = (_by_condition(table, side) for side in ("real", "sim"))
        found = agreement_by_condition(real=real, sim=sim, rng=rng, confidence=args.confidence)
    else:
        found = agreement_of_table(table, rng, args.confidence)
    kept = found.leave_one_out
    lines = [
        *map(str, (found.pearson, found.spearman, found.mmrv, found.mmrv_of_a_perfect_simulator)),
        *map(str, (found.bias, found.regret)),
        f"pairs of policies: {found.pairs_agreeing} ordered alike, {found.pairs_reversed} reversed,"
        f" {found.pairs_tied} tied"
        + ("" if found.order.p_value is None else f"; p = {found.order.p_value:.3g} ({found.order.method})"),
        *([] if kept is None else [f"Pearson r without one policy: {kept[0]:.3f} to {kept[1]:.3f}"]),
        "holds for these policies on this task; it does not travel to others",
    ]
    return asdict(found), lines, found.pearson.point is not None


def agreement_of_table(table: TextTable, rng: Any, confidence: float) -> Any:
    """Return the agreement of a table of counts.

    Raises:
        DataError: a column is missing, or a cell is no count.
    """
    from simgap.artefacts.tables import as_number
    from simgap.errors import DataError
    from simgap.statistics import PolicyPair, agreement_of_counts

    absent = [c for c in _COUNTS if c not in table.columns]
    if absent:
        raise DataError(
            f"{table.path} has no column {absent[0]}; expected policy, {', '.join(_COUNTS)}, or policy,"
            " condition, real, sim"
        )
    columns = {c: [as_number(cell) for cell in table.column(c)] for c in _COUNTS}
    wrong = [(c, k + 2) for c, values in columns.items() for k, v in enumerate(values) if not v.is_integer()]
    if wrong:
        raise DataError(f"{table.path}: row {wrong[0][1]} holds no whole number under {wrong[0][0]}")
    rows = zip(table.column("policy"), *(columns[c] for c in _COUNTS), strict=True)
    pairs = [
        PolicyPair(name=name, real_successes=int(a), real_n=int(b), sim_successes=int(c), sim_n=int(d))
        for name, a, b, c, d in rows
    ]
    return agreement_of_counts(pairs, rng=rng, confidence=confidence)


def combine(args: argparse.Namespace) -> Said:
    """Give the real rate with and without the simulated trials."""
    import numpy as np

    from simgap.artefacts.tables import read_csv
    from simgap.errors import DataError
    from simgap.statistics import combine as combined
    from simgap.statistics import two_stage

    table = read_csv(args.table)
    absent = [c for c in ("real", "sim") if c not in table.columns]
    if absent:
        raise DataError(f"{args.table} has no column {absent[0]}; expected real and sim, a start a row")
    real, sim = table.numbers("real"), table.numbers("sim")
    if not np.isfinite(sim).all():
        row = int(np.flatnonzero(~np.isfinite(sim))[0]) + 2
        raise DataError(f"{args.table}: row {row} has no simulated score; leave the start out on both sides")
    both = np.isfinite(real)
    sides = real[both].tolist(), sim[both].tolist(), sim[~both].tolist()
    found = combined(*sides, rng=np.random.default_rng(args.seed), confidence=args.confidence)
    document = asdict(found) | {"two_stage": asdict(two_stage(*sides, confidence=args.confidence))}
    for key in ("variance_real", "variance_rectifier"):
        document[key] = document[key] if np.isfinite(document[key]) else None
    lines = [f"real alone: {found.real_only}", f"with sim: {found.combined}"]
    lines.append(
        "the simulated trials narrow it: show both"
        if found.worth_showing
        else "the simulated trials do not help here: show the real trials alone"
    )
    return document, lines, found.real_only.is_defined


def _by_condition(table: TextTable, side: str) -> dict[str, dict[int, Outcome]]:
    from simgap.artefacts.tables import as_number, is_missing
    from simgap.errors import DataError
    from simgap.types import Outcome

    if side not in table.columns:
        raise DataError(f"{table.path} has no column {side}; expected policy, condition, real, sim")
    numbers = {name: k for k, name in enumerate(dict.fromkeys(table.column("condition")))}
    found: dict[str, dict[int, Outcome]] = {}
    cells = zip(table.column("policy"), table.column("condition"), table.column(side), strict=True)
    for k, (policy, condition, cell) in enumerate(cells):
        row = found.setdefault(policy, {})
        if is_missing(cell):
            continue
        if as_number(cell) not in (0.0, 1.0):
            raise DataError(
                f"{table.path}: row {k + 2} holds {cell[:20]!r} under {side}; write 1, 0 or nothing"
            )
        if numbers[condition] in row:
            raise DataError(
                f"{table.path}: row {k + 2} repeats condition {condition[:40]!r} of {policy[:40]!r}"
            )
        row[numbers[condition]] = (
            Outcome.success() if as_number(cell) == 1.0 else Outcome.failure("not recorded")
        )
    return found
