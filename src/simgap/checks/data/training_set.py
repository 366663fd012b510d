"""The question to the training set: is it what it says it is."""

from __future__ import annotations

from dataclasses import dataclass

from simgap import causes
from simgap.causes import Cause, Family
from simgap.checks.base import Progress, training_assumptions
from simgap.checks.data.dataset import check_data
from simgap.checks.data.report import Severity
from simgap.evidence import Evidence, Need
from simgap.findings import CheckResult, Verdict


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingSet:
    """The training set against its own description."""

    id: str = "training_set"
    question: str = "Is the training set what its own description says?"
    family: Family = Family.DATA
    needs: frozenset[Need] = frozenset({Need.TRAINING})
    can_name: tuple[Cause, ...] = (causes.DATA,)

    def assumes(self, evidence: Evidence) -> frozenset[str]:
        """Return the clock it was recorded by."""
        return frozenset(a for a in training_assumptions(evidence) if a.startswith("clock="))

    def run(self, evidence: Evidence, progress: Progress | None = None) -> CheckResult:
        """Check the data and count the faults."""
        assert evidence.training is not None
        report = check_data(evidence.training.root, progress)
        faults = [f for f in report.findings if f.severity is Severity.FAULT]
        told = "; ".join(f.sentence for f in faults[:3])
        sentence = f"The training set is what it says: {len(report.findings)} remarks, no fault."
        return CheckResult(
            family=self.family,
            name="training set against its own description",
            verdict=Verdict.BROKEN if faults else Verdict.OK,
            cause=causes.DATA if faults else causes.NONE,
            sentence=f"The training set is faulty: {told}" if faults else sentence,
            numbers={"faults": [f.code for f in faults]},
            statistic="faults",
            value=float(len(faults)),
            threshold=0.0,
        )


CHECK = TrainingSet()
