"""One self-contained HTML report of a turn or several; it only reads the model it is given."""

from __future__ import annotations

from simgap.report.model import (
    FAMILIES,
    BlindSpot,
    CheckResult,
    CheckVerdict,
    Correction,
    DataPlan,
    Diagnosis,
    Fact,
    FactorChange,
    FailureModes,
    FilmStrip,
    JointTrace,
    LedgerEntry,
    Paired,
    Rate,
    ReportModel,
    Seal,
    Share,
    StampView,
)
from simgap.report.render import render_report, write_report

__all__ = [
    "FAMILIES",
    "BlindSpot",
    "CheckResult",
    "CheckVerdict",
    "Correction",
    "DataPlan",
    "Diagnosis",
    "Fact",
    "FactorChange",
    "FailureModes",
    "FilmStrip",
    "JointTrace",
    "LedgerEntry",
    "Paired",
    "Rate",
    "ReportModel",
    "Seal",
    "Share",
    "StampView",
    "render_report",
    "write_report",
]
