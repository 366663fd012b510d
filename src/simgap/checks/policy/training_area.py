"""The question to the policy, asked last: does it fail where its training set did not reach, or everywhere."""

from __future__ import annotations

from dataclasses import dataclass

from simgap import causes
from simgap.causes import Cause, Family
from simgap.checks.base import Progress, judge_assumptions
from simgap.checks.policy.coverage import check_policy
from simgap.evidence import Evidence, Need, Role
from simgap.findings import CheckResult
from simgap.trials.batch import read_results


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingArea:
    """Success inside and outside of what the training set covers, and against the screen."""

    id: str = "training_area"
    question: str = "Does the policy fail only where its training set did not reach, or everywhere?"
    family: Family = Family.POLICY
    needs: frozenset[Need] = frozenset(
        {Need.IN_USE, Need.TRAINING_CONDITIONS, Need.TRAINING_RANGES, Need.SCREEN}
    )
    can_name: tuple[Cause, ...] = (causes.NARROW_DATA, causes.POLICY)

    def assumes(self, evidence: Evidence) -> frozenset[str]:
        """Return what training set and trials have in common."""
        return judge_assumptions(evidence)

    def run(self, evidence: Evidence, progress: Progress | None = None) -> CheckResult:
        """Compare success inside and outside."""
        assert evidence.training_ranges is not None
        assert evidence.screen is not None
        in_use, conditions = (
            read_results(evidence.log(role)) for role in (Role.IN_USE, Role.TRAINING_CONDITIONS)
        )
        return check_policy(in_use, conditions, evidence.training_ranges, evidence.screen.rate)


CHECK = TrainingArea()
