"""The report as one HTML file: inline style, inline pictures, no script, nothing loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from simgap.errors import DataError
from simgap.ledger import Grade
from simgap.provenance import write_atomic
from simgap.report import plots, words
from simgap.report.glance import glance
from simgap.report.images import encode_films
from simgap.report.model import FAMILIES, CheckResult, CheckVerdict, Diagnosis, ReportModel
from simgap.types import EvidenceKind

LIMIT_BYTES = 6_000_000
"""No report is larger."""
_SYMBOLS = {
    CheckVerdict.OK: "✓",
    CheckVerdict.BROKEN: "✕",
    CheckVerdict.CANNOT_TELL: "?",
    CheckVerdict.NOT_RUN: "–",
}
_GRAVITY = (CheckVerdict.BROKEN, CheckVerdict.CANNOT_TELL, CheckVerdict.OK, CheckVerdict.NOT_RUN)
_GRADE_TONES = {
    Grade.HARDWARE: "real",
    Grade.SURROGATE: "surrogate",
    Grade.SIMULATED: "sim",
    Grade.CONTRADICTED: "contradicted",
    Grade.UNDECIDED: "none",
    Grade.NONE: "none",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One family in the order of diagnosis, with the gravest verdict of its checks."""

    family: str
    verdict: CheckVerdict
    checks: Sequence[CheckResult]


def render_report(model: ReportModel) -> str:
    """Return the report as HTML text; every text of the model is escaped.

    Raises:
        DataError: the text alone is larger than a report may be.
    """
    films, left_out = encode_films(model.films)
    html = (
        _environment()
        .get_template("report.html.j2")
        .render(
            m=model,
            w=words,
            plots=plots,
            banner=words.banner(model.sources),
            sources=[kind for kind in EvidenceKind if kind in {rate.source for rate in model.rates}],
            glance=glance(model),
            films=films,
            left_out=left_out,
            steps=steps(model.diagnosis),
            symbols=_SYMBOLS,
            tones=_GRADE_TONES,
            style=_style(),
        )
    )
    if len(html.encode()) > LIMIT_BYTES:
        raise DataError(
            f"the report would have {len(html.encode()):,} bytes, more than {LIMIT_BYTES:,}; give fewer"
            " ledger rows, stamps or checks"
        )
    return html


def write_report(model: ReportModel, path: Path) -> Path:
    """Render the report, write it whole or not at all, and return its path."""
    write_atomic(path, render_report(model))
    return path


def steps(diagnosis: Diagnosis | None) -> tuple[Step, ...]:
    """Return the seven families in order; one without checks is ``not run``."""
    checks = () if diagnosis is None else diagnosis.checks
    found = {family: tuple(check for check in checks if check.family == family) for family in FAMILIES}
    return tuple(Step(family=family, verdict=_gravest(of), checks=of) for family, of in found.items())


def _gravest(checks: Sequence[CheckResult]) -> CheckVerdict:
    return min((check.verdict for check in checks), key=_GRAVITY.index, default=CheckVerdict.NOT_RUN)


def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("simgap.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _style() -> Markup:
    """Return our own style sheet; it is the one text that is not escaped, and holds nothing of the model."""
    source, _, _ = PackageLoader("simgap.report").get_source(_environment(), "style.css")
    return Markup(source)
