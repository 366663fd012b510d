"""The question to the trial sets as a whole: may they be counted at all."""

from __future__ import annotations

from dataclasses import dataclass

from simgap import causes
from simgap.causes import Cause, Family
from simgap.checks.base import Progress, judge_assumptions
from simgap.checks.evaluation.trial_sets import check_evaluation
from simgap.evidence import Evidence, Need, Role
from simgap.findings import CheckResult


@dataclass(frozen=True, kw_only=True, slots=True)
class CountsAndSeeds:
    """Counts, voids, and seeds that serve two purposes."""

    id: str = "counts_and_seeds"
    question: str = "Are the trials fit to be counted: enough of them, few voids, no seed used twice?"
    family: Family = Family.EVALUATION
    needs: frozenset[Need] = frozenset({Need.IN_USE})
    can_name: tuple[Cause, ...] = (causes.EVALUATION,)

    def assumes(self, evidence: Evidence) -> frozenset[str]:
        """Return what training set and trials have in common."""
        return judge_assumptions(evidence)

    def run(self, evidence: Evidence, progress: Progress | None = None) -> CheckResult:
        """Check the sets of trials that a policy was run in."""
        data = evidence.training
        seeds = () if data is None else (data.episode(i, images=False).seed for i in range(data.n_episodes))
        trained = (seed for seed in seeds if seed is not None)
        screened = () if evidence.screen is None else evidence.screen.outcomes
        sets = {str(s.role): s.outcomes for s in evidence.trials if s.role is not Role.REPLAY}
        return check_evaluation(sets, frozenset(trained), frozenset(screened))


CHECK = CountsAndSeeds()
