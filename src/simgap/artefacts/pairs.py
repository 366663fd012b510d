"""Tables of simulated and real success rates: scales told apart, counts checked, correlations computed again beside the printed ones.

Several definitions of the mean maximum rank violation are in use, weighted by the gap of the real or of the
simulated rates and with ties on either side; all are given, with n. Rates of checkpoints of one training run
are no independent policies.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.artefacts.pair_groups import fractions, kept, policies_of, policy_means, printed, within_policy
from simgap.artefacts.tables import TextTable
from simgap.artefacts.trials.findings import not_read
from simgap.checks.data.report import DataFinding, DataReport, Severity, by_severity, listed
from simgap.statistics import mmrv, pearson, spearman
from simgap.wording import number_of

ASSUMES = (
    "a column with 'real' or 'hw' in its name holds real rates, one with 'sim' or 'generated' simulated ones",
    "rows of one task or panel belong together",
)
_REAL = re.compile(r"(^|_)(real|hw|hardware)(_|$)")
_SIM = re.compile(r"(^|_)(sim|simulated|generated)(_|$)")
_GROUP = ("panel", "task", "env")
_WITHIN = ("source_panel", "embodiment")
_DISAGREE = 0.02
"""A printed correlation this far from the computed one does not reproduce."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PairTable:
    """One table of paired rates."""

    table: TextTable
    real: str
    sim: str
    orders: bool = False
    """True when the columns hold orders of policies (``CABED``), not rates."""


def read_pairs(table: TextTable) -> PairTable | None:
    """Name the real and the simulated column, None where the table has none."""
    real = [c for c in table.columns if _REAL.search(c.lower())]
    sim = [c for c in table.columns if _SIM.search(c.lower())]
    for a in real:
        for b in sim:
            if table.is_numeric(a) and table.is_numeric(b) and not _is_count(a) and not _is_count(b):
                return PairTable(table=table, real=a, sim=b)
    for a in real:
        for b in sim:
            if "order" in a and "order" in b:
                return PairTable(table=table, real=a, sim=b, orders=True)
    return None


def _is_count(name: str) -> bool:
    return bool(re.match(r"(k|n)_", name)) or name.endswith("successes")


def violations(real: NDArray[np.float64], sim: NDArray[np.float64]) -> dict[str, float | None]:
    """Return the mean maximum rank violation by every definition in use.

    The gap that weighs is that of the real rates, as in SimplerEnv's code, or of the simulated ones; "better"
    is ``>`` or ``<`` on both sides, which differ where one side ties: the pair then counts for the policy
    that is better (worse) on the other side.
    """
    return {
        "real gap, >": mmrv(real=real, sim=sim),
        "real gap, <": mmrv(real=-real, sim=-sim),
        "sim gap, >": mmrv(real=sim, sim=real),
        "sim gap, <": mmrv(real=-sim, sim=-real),
    }


def check_pair_tables(
    root: Path, tables: Sequence[TextTable], unread: Mapping[str, str] | None = None
) -> DataReport:
    """Check the tables of a folder that pair simulated and real rates; what was not read is named."""
    found = {t.path.name: pairs for t in tables if (pairs := read_pairs(t)) is not None}
    documents = {name: _describe(pairs) for name, pairs in found.items()}
    others = [t.path.name for t in tables if t.path.name not in found]
    findings = [
        *not_read(others, unread or {}),
        *(f for name in found for f in _judge(name, documents[name])),
    ]
    scales = {n: d["scale"] for n, d in documents.items() if "scale" in d}
    if len(set(scales.values())) > 1:
        findings.append(
            DataFinding(
                code="scales_differ",
                severity=Severity.WARNING,
                sentence=(
                    f"the files do not share a scale: {listed([f'{n} in {s}' for n, s in scales.items()], 8)}"
                ),
                remedy=(
                    "divide percent by 100 before pooling; correlations within one file are not affected,"
                    " rank violations are"
                ),
                numbers=scales,
            )
        )
    return DataReport(
        path=str(root),
        layout={
            "what": "sim_real_pairs",
            "tables": {n: "orders" if p.orders else "rates" for n, p in found.items()},
            "cameras": {},
        },
        counts={"tables": len(found), "pairs": sum(len(p.table.rows) for p in found.values())},
        measurements={"tables": documents},
        findings=by_severity(findings),
        assumes=ASSUMES,
    )


def _describe(pairs: PairTable) -> dict[str, Any]:
    table = pairs.table
    facts: dict[str, Any] = {
        "rows": len(table.rows),
        "columns": list(table.columns),
        "comment_lines": len(table.comments),
    }
    facts |= {"real": pairs.real, "sim": pairs.sim}
    if pairs.orders:
        return facts | {"groups": _orders(pairs)}
    (real, real_scale), (sim, sim_scale) = fractions(table, pairs.real), fractions(table, pairs.sim)
    rows, flags = kept(table)
    complete = np.isfinite(real) & np.isfinite(sim)
    use = np.flatnonzero(rows & complete)
    groups = {g: found for g, members in _groups(table).items() if len(found := np.intersect1d(members, use))}
    facts |= {"scale": real_scale if real_scale == sim_scale else f"real in {real_scale}, sim in {sim_scale}"}
    facts |= {
        "counts": _counts(table, pairs),
        "twins": _twins(table),
        "flags": flags,
        "incomplete": int((~complete).sum()),
    }
    facts |= {
        "out_of_range": [
            int(k) + 2 for k in np.flatnonzero(complete & ((real < 0) | (real > 1) | (sim < 0) | (sim > 1)))
        ]
    }
    facts |= {"policies": policies_of(table), "policy_means": policy_means(table, groups, real, sim)}
    documents = {}
    for group, members in groups.items():
        documents[group] = _group(real[members], sim[members], printed(table, group, members))
        documents[group]["within_policy"] = within_policy(table, members, real[members], sim[members])
        if flags:
            every = np.intersect1d(_groups(table)[group], np.flatnonzero(complete))
            documents[group]["pearson_r_with_flagged_rows"] = pearson(real=real[every], sim=sim[every])
    return facts | {"groups": documents}


def _group(real: NDArray[np.float64], sim: NDArray[np.float64], printed: list[float]) -> dict[str, Any]:
    return {
        "n": len(real),
        "pearson_r": pearson(real=real, sim=sim),
        "spearman_rho": spearman(real=real, sim=sim),
        "mmrv": violations(real, sim),
        "printed_r": printed,
    }


def _groups(table: TextTable) -> dict[str, NDArray[np.int64]]:
    """Return the rows of each task, and of each panel of a task where one task is there twice."""
    names = [c for group in (_GROUP, _WITHIN) if (c := table.find(*group)) is not None]
    keys = (
        [" / ".join(row) for row in zip(*(table.column(c) for c in names), strict=True)]
        if names
        else ["all"] * len(table.rows)
    )
    return {k: np.flatnonzero([x == k for x in keys]) for k in dict.fromkeys(keys)}


def _counts(table: TextTable, pairs: PairTable) -> dict[str, Any] | None:
    """Return whether rates are exactly counts over trials, where the counts are there."""
    found = {}
    for side, rate in (("real", pairs.real), ("sim", pairs.sim)):
        k, n = table.find(f"k_{side}", f"{side}_successes"), table.find(f"n_{side}", "n_episodes")
        if k is None or n is None:
            continue
        good, total, stored = table.numbers(k), table.numbers(n), table.numbers(rate)
        off = np.abs(good / total - stored * (0.01 if np.nanmax(stored) > 1.5 else 1.0))
        found[side] = {"n": sorted({int(v) for v in total}), "largest_difference": float(off.max())}
    return found or None


def _twins(table: TextTable) -> int:
    return len(table.rows) - len(set(table.rows))


def _orders(pairs: PairTable) -> dict[str, Any]:
    """Return Spearman's rho of two orders of the same policies, with the printed one."""
    table = pairs.table
    keys = [
        " / ".join(row)
        for row in zip(*(table.column(c) for c in (table.find("env"), table.find("dim")) if c), strict=True)
    ]
    printed = (
        table.numbers("printed_rho") if "printed_rho" in table.columns else np.full(len(table.rows), np.nan)
    )
    found = {}
    for key, a, b, said in zip(
        keys, table.column(pairs.sim), table.column(pairs.real), printed.tolist(), strict=True
    ):
        comparable = sorted(a) == sorted(b) and len(set(a)) == len(a) > 1
        rho = (
            spearman(sim=[float(a.index(c)) for c in a], real=[float(b.index(c)) for c in a])
            if comparable
            else None
        )
        found[key] = {"n": len(a), "spearman_rho": rho, "printed_rho": said if said == said else None}
    return found


def _judge(name: str, facts: dict[str, Any]) -> list[DataFinding]:
    found = []
    off = {}
    for group, g in facts["groups"].items():
        printed = g["printed_rho"] if "printed_rho" in g else (g["printed_r"] or [None])[0]
        computed = g["spearman_rho"] if "printed_rho" in g else g["pearson_r"]
        if printed is not None and computed is not None and abs(printed - computed) > _DISAGREE:
            off[group] = {"printed": printed, "computed": computed, "n": g["n"]}
    if off:
        parts = [
            f"{g} printed {v['printed']:.3f}, computed {v['computed']:.3f} (n = {v['n']})"
            for g, v in off.items()
        ]
        found.append(
            DataFinding(
                code="printed_correlation_differs",
                severity=Severity.WARNING,
                sentence=f"{name}: correlations do not reproduce from the rows: {listed(parts, 5)}",
                remedy="use the computed one with its n, and ask the authors",
                numbers=off,
            )
        )
    found += _rows(name, facts)
    unequal = {
        g: v["mmrv"]
        for g, v in facts["groups"].items()
        if "mmrv" in v and max(v["mmrv"].values()) - min(v["mmrv"].values()) > 0.005
    }
    if unequal:
        parts = [f"{g} {min(v.values()):.4f} to {max(v.values()):.4f}" for g, v in unequal.items()]
        found.append(
            DataFinding(
                code="definitions_of_mmrv_differ",
                severity=Severity.NOTE,
                sentence=(
                    f"{name}: the mean maximum rank violation depends on whose gap weighs and on how ties"
                    f" count: {listed(parts)}"
                ),
                remedy="say which one is meant; SimplerEnv weighs by the real gap and counts > on both sides",
                numbers=unequal,
            )
        )
    if facts.get("twins"):
        found.append(
            DataFinding(
                code="identical_pairs",
                severity=Severity.NOTE,
                sentence=f"{name}: {number_of(facts['twins'], 'row repeats', 'rows repeat')} another row exactly",
                remedy="check that they are different policies; a mark drawn twice counts twice",
                numbers={"rows": facts["twins"]},
            )
        )
    return found


def _rows(name: str, facts: dict[str, Any]) -> list[DataFinding]:
    """Say which rows count, and over what a correlation is."""
    found = []
    if facts.get("flags"):
        parts = [f"{n} by {c}" for c, n in facts["flags"].items()]
        with_all = [
            f"{g} {v['pearson_r_with_flagged_rows']:.3f}"
            for g, v in facts["groups"].items()
            if v.get("pearson_r_with_flagged_rows") is not None
        ]
        text = (
            f"{name}: rows that the table flags are left out of the correlations ({listed(parts)}); with them"
            f" r is {listed(with_all)}"
        )
        found.append(
            _note(
                "flagged_rows",
                text,
                "say which rows count, and why, before the correlation is read",
                facts["flags"],
            )
        )
    if facts.get("incomplete"):
        text = f"{name}: {number_of(facts['incomplete'], 'row is', 'rows are')} left out, for lack of one of the two rates"
        found.append(
            _note(
                "incomplete_pairs", text, "fill them in, or say their number", {"rows": facts["incomplete"]}
            )
        )
    if facts.get("out_of_range"):
        text = f"{name}: rates below 0 or above 1 in rows {listed([str(k) for k in facts['out_of_range']])}"
        remedy = "correct them, or write all of a column in one scale"
        numbers = {"rows": facts["out_of_range"]}
        found.append(
            DataFinding(
                code="rates_out_of_range",
                severity=Severity.FAULT,
                sentence=text,
                remedy=remedy,
                numbers=numbers,
            )
        )
    if "policies" in facts and facts["policies"] in (None, 1) and facts["rows"] > 2:
        text = (
            f"{name}: no column names several policies, so these correlations are over tasks, conditions or"
            " checkpoints: they do not say whether the simulator "
        )
        text += "ranks policies as reality does"
        found.append(
            _note(
                "not_over_policies",
                text,
                "pair at least three policies on the same tasks",
                {"policies": facts["policies"]},
            )
        )
    return found


def _note(code: str, sentence: str, remedy: str, numbers: dict[str, Any]) -> DataFinding:
    return DataFinding(code=code, severity=Severity.NOTE, sentence=sentence, remedy=remedy, numbers=numbers)
