"""Fills the report's model from what a run left on disk; every number is read back, none is typed."""

from __future__ import annotations

import datetime
import itertools
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from simgap import __version__
from simgap.causes import NewEpisodes
from simgap.diagnosis import Diagnosis
from simgap.envs import make_env
from simgap.episodes.reader import open_dataset
from simgap.findings import CheckResult, Family, Verdict
from simgap.ledger import Ledger, Row, RowKind
from simgap.ledger.summary import summary_of_row
from simgap.loop.films import films_of
from simgap.loop.naming import corrections
from simgap.loop.recorded import require_recorded
from simgap.loop.results import Turn, TurnResult, compare
from simgap.loop.words import blind_spots, broken_thing, held_values, next_command, verdict_sentence
from simgap.provenance import library_version
from simgap.report import model as m
from simgap.statistics import tally
from simgap.targeting import DataPlan
from simgap.trials.batch import read_results
from simgap.types import EvidenceKind


def report_model(result: TurnResult, command: str) -> m.ReportModel:
    """Return the report of a run.

    Args:
        result: a finished run.
        command: what the user typed.

    Raises:
        DataError: the ledger was edited, or the run's files are not the ones it counted.
    """
    with Ledger.of_run(result.folder) as ledger:
        rows, claims, head = ledger.rows(), ledger.claims(), ledger.head_text
    require_recorded(result, rows)
    turns = result.turns
    return m.ReportModel(
        title=f"{_number_of_turns(result)} of the loop on {result.spec.env}, seed {result.spec.seed}",
        env=result.spec.env,
        date=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        command=command,
        verdict=verdict_sentence(result),
        duration_s=result.duration_s,
        versions={"simgap": __version__, "python": platform.python_version()}
        | {n: library_version(n) for n in ("mujoco", "torch", "numpy", "av")},
        claims=claims,
        rates=_rates(turns),
        paired=_paired(result),
        failures=[f for t in turns for f in _failures(t)],
        films=films_of(result),
        diagnosis=_diagnosis(result),
        seal=_seal(result, rows),
        plan=_plan(result),
        blind_spots=blind_spots(result),
        stamps=_stamps(result, turns),
        seeds=_seeds(result),
        ledger=[_entry(r) for r in rows],
        ledger_head=head,
    )


def _number_of_turns(result: TurnResult) -> str:
    asked = result.spec.turns
    return {1: "One turn", 2: "Two turns"}.get(asked, f"{asked} turns")


def _rates(turns: Sequence[Turn]) -> list[m.Rate]:
    rates = []
    for turn in turns:
        # A turn that corrects a convention keeps its policy, and so its screen: shown once.
        for conditions, report in (
            turn.screens if turn.number == 1 or turn.screens != turns[turn.number - 2].screens else ()
        ):
            rates.append(
                m.Rate(
                    label="Sim screen",
                    turn=turn.number,
                    source=EvidenceKind.SIM,
                    estimate=report.rate,
                    conditions=conditions,
                    verdict=str(report.verdict),
                )
            )
        for label, log, conditions in (
            ("Surrogate, in use", turn.in_use, "objects as they lie in use"),
            ("Surrogate, training conditions", turn.conditions, "objects placed as in the training set"),
        ):
            if log is not None:
                counts = tally(r.outcome for r in read_results(open_dataset(log)))
                rates.append(
                    m.Rate(
                        label=label,
                        turn=turn.number,
                        source=EvidenceKind.SURROGATE,
                        estimate=counts.estimate(),
                        conditions=conditions,
                        voids=counts.voids,
                    )
                )
    return rates


def _paired(result: TurnResult) -> list[m.Paired]:
    """Return the newest turn against the first, then each later turn against the one before it."""
    if result.paired is None:
        return []
    turns = result.turns
    compared = [(turns[0], turns[-1], result.paired)]
    if len(turns) > 2:
        compared += [
            (old, new, paired)
            for old, new in itertools.pairwise(turns)
            if (paired := compare(old, new)) is not None
        ]
    return [
        m.Paired(
            old=f"turn {old.number}",
            new=f"turn {new.number}",
            source=EvidenceKind.SURROGATE,
            result=paired,
            conditions="the same initial conditions, in use",
        )
        for old, new, paired in compared
    ]


def _failures(turn: Turn) -> list[m.FailureModes]:
    found = []
    for label, log in (
        ("Surrogate, in use", turn.in_use),
        ("Surrogate, training conditions", turn.conditions),
    ):
        if log is not None:
            counts = tally(r.outcome for r in read_results(open_dataset(log)))
            found.append(
                m.FailureModes(
                    label=label,
                    turn=turn.number,
                    source=EvidenceKind.SURROGATE,
                    successes=counts.successes,
                    n=counts.n,
                    modes=counts.failures,
                )
            )
    return found


def _diagnosis(result: TurnResult) -> m.Diagnosis | None:
    found = result.diagnosis
    if found is None:
        return None
    broken = [c for c in found.checks if c.verdict is Verdict.BROKEN]
    checks = [
        m.CheckResult(
            family=str(c.family),
            name=c.name,
            verdict=m.CheckVerdict(str(c.verdict)),
            sentence=c.sentence,
            statistic=c.statistic,
            value=c.value,
            threshold=c.threshold,
            unit=c.unit,
            n=c.n,
            note=among_others(c, broken, found),
            shared_assumptions=c.assumes,
        )
        for c in found.checks
    ]
    return m.Diagnosis(
        broken=broken_thing(result),
        family=None if found.family is None else str(found.family),
        sentence=found.sentence,
        numbers=_numbers(found),
        checks=checks,
        remedy=found.remedy,
        corrections=[m.Correction(what=what, was=was, now=now) for what, was, now in corrections(found)],
        next_command=found.next_command or next_command(result, found, 1 if len(result.turns) > 2 else None),
        trace=_trace(result, found),
    )


def among_others(check: CheckResult, broken: Sequence[CheckResult], found: Diagnosis) -> str:
    """Say of a broken check what it has to do with the diagnosis, where several are broken."""
    if len(broken) < 2 or check not in broken:
        return ""
    if check.family is Family.EVALUATION and found.family is not Family.EVALUATION:
        return (
            "Stands beside the diagnosis, which does not count these trials. Rates, and what is said of the"
            " policy, wait for its repair."
        )
    if check.family == found.family and check.cause is found.cause:
        later = ", ".join(
            str(c.family) for c in broken if c is not check and c.family is not Family.EVALUATION
        )
        if not later:
            return "This is the diagnosis."
        return (
            "This is the diagnosis: it comes first in the order. Also broken, and perhaps only because of"
            f" it: {later}."
        )
    return (
        f"May follow from the diagnosis ({found.family}), which comes earlier: judge it again when that is"
        " repaired."
    )


def _trace(result: TurnResult, found: Diagnosis) -> m.JointTrace | None:
    """Return command and reading of the blamed joint in the replay in which it was told to move most."""
    blamed = list(found.parameters.get("broken", {}))
    replays = result.turns[0].replays
    if replays is None or not blamed or not corrections(found):
        return None
    log = open_dataset(replays)
    names = log.spec.action_spec.names
    if blamed[0] not in names or blamed[0] not in log.spec.state_spec.names:
        return None
    told, read = names.index(blamed[0]), log.spec.state_spec.names.index(blamed[0])
    episodes = [log.episode(i, images=False) for i in range(log.n_episodes)]
    moved = [float(np.ptp(e.action[:, told])) if len(e) > 1 else 0.0 for e in episodes]
    if not moved or max(moved) == 0.0:
        return None
    most = int(np.argmax(moved))
    return m.JointTrace(
        name=blamed[0].split(".")[0],
        unit=str(log.spec.action_spec.dimensions[told].unit),
        label=f"replay {most + 1} of {len(episodes)} on the surrogate",
        times_s=[float(t) for t in episodes[most].time_s],
        commanded=[float(v) for v in episodes[most].action[:, told]],
        measured=[float(v) for v in episodes[most].state[:, read]],
    )


def _numbers(found: Diagnosis) -> list[m.Fact]:
    broken = next((c for c in found.checks if c.family == found.family), None)
    if broken is None or broken.value is None:
        return []
    facts = [
        m.Fact(
            name=broken.statistic,
            value=f"{broken.value:.3g} {broken.unit}".strip(),
            note=f"limit {broken.threshold:.3g}" if broken.threshold else "",
        )
    ]
    for name, value in list(dict(found.parameters.get("fitted", {})).items())[:8]:
        facts.append(m.Fact(name=f"fitted {name}", value=f"{value:.3g}"))
    return facts


def _seal(result: TurnResult, rows: Sequence[Row]) -> m.Seal:
    diagnoses = {f"turn/{t.number}/diagnosis" for t in result.turns}
    order = [
        _entry(r) for r in rows if r.kind in (RowKind.COMMITMENT, RowKind.SEAL_OPENED) or r.key in diagnoses
    ]
    diagnosed = "not diagnosed" if result.diagnosis is None else str(result.diagnosis.cause)
    held = None if result.gap is None else str(result.gap.kind)
    facts = [] if result.gap is None else [m.Fact(name=n, value=v) for n, v in held_values(result.gap)]
    explanation = "" if result.gap is None else result.gap.sentence()
    return m.Seal(
        commitment=result.seal,
        diagnosed=diagnosed,
        held=held,
        agrees=result.diagnosis_agrees,
        explanation=explanation,
        held_values=facts,
        order=order,
    )


def _plan(result: TurnResult) -> m.DataPlan | None:
    plan: DataPlan | None = result.turns[0].plan
    if plan is None:
        return None
    space = make_env(result.spec.env, render=False, by="run.json of the run").factor_space.factors
    repair = None if result.diagnosis is None else result.diagnosis.cause.repair
    why = repair.why if isinstance(repair, NewEpisodes) else ""
    factors = [
        m.FactorChange(name=n, unit=space[n].unit, before=_before(result, n), after=after, why=why)
        for n, after in plan.changes.items()
    ]
    mixture = []
    if plan.kind == "episodes":
        mixture = [
            m.Share(name="first training set", episodes=result.spec.episodes, weight=1.0 - plan.new_share),
            m.Share(name="targeted episodes", episodes=plan.episodes, weight=plan.new_share),
        ]
    corrections = [
        m.Correction(what=f"command of {n}", was="sent as it is", now=f"divided by {v:.3g}")
        for n, v in plan.multipliers.items()
    ]
    by_whom = "the teacher, in the simulator" if plan.kind == "episodes" else ""
    return m.DataPlan(
        sentence=plan.sentence,
        episodes=plan.episodes or None,
        by_whom=by_whom,
        factors=factors,
        mixture=mixture,
        corrections=corrections,
    )


def _before(result: TurnResult, name: str) -> tuple[float, float] | None:
    found = result.ranges.ranges.get(name)
    return None if found is None else (float(found[0]), float(found[1]))


def _stamps(result: TurnResult, turns: Sequence[Turn]) -> list[m.StampView]:
    views: list[m.StampView] = []
    logs: list[tuple[str, Path]] = [(f"training set {i + 1}", d) for i, d in enumerate(turns[-1].datasets)]
    logs += [(f"trials, turn {t.number}, in use", t.in_use) for t in turns if t.in_use is not None]
    for label, path in logs:
        dataset = open_dataset(path)
        fields: dict[str, Any] = {**dict(dataset.spec.stamp.fields), "fingerprint": dataset.fingerprint}
        views.append(m.StampView(label=label, hash=dataset.spec.stamp.hash, fields=_short(fields)))
    for label, report in ((f"screen, turn {t.number}, {c}", r) for t in turns for c, r in t.screens):
        views.append(
            m.StampView(label=label, hash=report.stamp.hash, fields=_short(dict(report.stamp.fields)))
        )
    return views


def _short(fields: dict[str, Any]) -> dict[str, Any]:
    """Leave the long list of planned conditions to the log itself."""
    return {k: v for k, v in fields.items() if k != "plan"}


def _seeds(result: TurnResult) -> dict[str, str]:
    screened = [s for _, r in result.turns[0].screens for s in r.outcomes]
    tried = [r.seed for r in result.turns[0].results]
    return {
        "run": str(result.spec.seed),
        "screen (select)": f"{len(screened)} seeds, the first {screened[0]}" if screened else "none",
        "trials": f"{len(tried)} seeds, the first {tried[0]}" if tried else "none",
        "overlap of the two": str(len(set(screened) & set(tried))),
    }


def _entry(row: Row) -> m.LedgerEntry:
    return m.LedgerEntry(
        id=row.id,
        time=str(row.time),
        kind=str(row.kind),
        evidence=row.evidence,
        summary=summary_of_row(row),
        hash=row.hash,
    )
