"""The question to the executor: does it do with chunks what it promises."""

from __future__ import annotations

from dataclasses import dataclass

from simgap import causes
from simgap.causes import Cause, Family
from simgap.checks.base import Progress, training_assumptions
from simgap.checks.execution.chunks import check_execution
from simgap.evidence import Evidence, Need, Role
from simgap.findings import CheckResult
from simgap.policies.bridges.open import read_any_card
from simgap.policies.execution import parse_executor


@dataclass(frozen=True, kw_only=True, slots=True)
class ChunkAges:
    """Logged ages and clipping of what was sent."""

    id: str = "chunk_ages"
    question: str = "Is each action sent as old as the executor makes it, and sent unclipped?"
    family: Family = Family.EXECUTION
    needs: frozenset[Need] = frozenset({Need.IN_USE, Need.POLICY, Need.EXECUTOR})
    can_name: tuple[Cause, ...] = (causes.EXECUTION,)

    def assumes(self, evidence: Evidence) -> frozenset[str]:
        """Return the clock and the executor that the log is held against."""
        clock = {a for a in training_assumptions(evidence) if a.startswith("clock=")}
        return frozenset(clock | ({f"executor={evidence.executor}"} if evidence.executor else set()))

    def run(self, evidence: Evidence, progress: Progress | None = None) -> CheckResult:
        """Hold the logged ages against those of the executor."""
        assert evidence.policy is not None
        log = evidence.log(Role.IN_USE)
        chunk = read_any_card(evidence.policy).architecture.chunk
        executor = parse_executor(evidence.executor)
        episodes = [log.episode(i, images=False) for i in range(log.n_episodes)]
        return check_execution(episodes, executor, executor.build(log.spec.action_spec, chunk), chunk)


CHECK = ChunkAges()
