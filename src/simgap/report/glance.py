"""The three answers at the top: did it get better, what is broken, was the diagnosis right."""

from __future__ import annotations

from dataclasses import dataclass

from simgap.report.model import ReportModel
from simgap.report.words import SOURCE_NAMES, difference_interval, paired_words, points, seal_order
from simgap.types import EvidenceKind


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One answer, with the section that shows it."""

    label: str
    head: str
    body: str
    tone: str
    anchor: str


def glance(model: ReportModel) -> tuple[Cell, Cell, Cell]:
    """Return the three answers; what was not done is said as not done. Of several comparisons the one with the strongest evidence counts."""
    return _better(model), _broken(model), _right(model)


def _better(model: ReportModel) -> Cell:
    label, anchor = "Did it get better?", "paired"
    if not model.paired:
        return Cell(
            label=label,
            head="Not compared",
            body="no two turns on the same initial conditions",
            tone="none",
            anchor=anchor,
        )
    reach = list(EvidenceKind)
    pair = max(model.paired, key=lambda paired: reach.index(paired.source))
    difference, words = pair.result.difference, paired_words(pair)
    if difference.point is None:
        return Cell(label=label, head="Cannot be told", body=words.body, tone="none", anchor=anchor)
    size = points(difference.point).lstrip("+−")
    heads = {
        "better": f"Yes, by {size} points",
        "worse": f"No, worse by {size} points",
        "unclear": "Not shown",
    }
    body = f"{difference_interval(difference)} on {pair.result.counts.n} pairs, {SOURCE_NAMES[pair.source]}"
    return Cell(label=label, head=heads[words.tone], body=body, tone=words.tone, anchor=anchor)


def _broken(model: ReportModel) -> Cell:
    label, anchor = "What is broken?", "diagnosis"
    if model.diagnosis is None:
        return Cell(label=label, head="Not diagnosed", body="no check was run", tone="none", anchor=anchor)
    if model.diagnosis.broken is None:
        return Cell(
            label=label,
            head="Cannot be told yet",
            body=model.diagnosis.sentence,
            tone="cannot-tell",
            anchor=anchor,
        )
    run = len(model.diagnosis.checks)
    family = "" if model.diagnosis.family is None else f"{model.diagnosis.family}; "
    body = f"{family}from {run} check{'' if run == 1 else 's'} in order of diagnosis"
    return Cell(label=label, head=model.diagnosis.broken, body=body, tone="bad", anchor=anchor)


def _right(model: ReportModel) -> Cell:
    label, anchor = "Was the diagnosis right?", "seal"
    if model.seal is None:
        return Cell(
            label=label,
            head="Unknown",
            body="nothing was sealed to compare it with",
            tone="none",
            anchor=anchor,
        )
    if model.seal.held is None:
        return Cell(
            label=label, head="The seal is still closed", body="open it to know", tone="none", anchor=anchor
        )
    body = f"the seal held: {model.seal.held}"
    if model.seal.agrees is None:
        return Cell(label=label, head="Not decided", body=body, tone="cannot-tell", anchor=anchor)
    order = seal_order(model.seal)
    if order.warning:
        return Cell(label=label, head="Not proved", body=order.text, tone="cannot-tell", anchor=anchor)
    return Cell(
        label=label,
        head="Yes" if model.seal.agrees else "No",
        body=body,
        tone="good" if model.seal.agrees else "bad",
        anchor=anchor,
    )
