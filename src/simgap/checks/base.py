"""What a check is: a question about evidence, what it needs, what it can name, and what it takes for granted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias, runtime_checkable

from simgap.causes import Cause, Family
from simgap.evidence import Evidence, Need, Role
from simgap.findings import CheckResult, Verdict
from simgap.provenance import assumptions

Progress: TypeAlias = Callable[[int, int], None]
"""Told (done, of) while a check works."""


@runtime_checkable
class Check(Protocol):
    """One question about evidence. A frozen class without state; a module of a family holds it as ``CHECK``."""

    @property
    def id(self) -> str:
        """Stable name for machines, ``snake_case``."""

    @property
    def question(self) -> str:
        """What is asked, one sentence with a question mark."""

    @property
    def family(self) -> Family:
        """Where it stands in the order of diagnosis."""

    @property
    def needs(self) -> frozenset[Need]:
        """Parts of the evidence without which it is not asked."""

    @property
    def can_name(self) -> tuple[Cause, ...]:
        """Causes that it can name."""

    def assumes(self, evidence: Evidence) -> frozenset[str]:
        """Return what it takes for granted, computed from the stamps of what it reads."""

    def run(self, evidence: Evidence, progress: Progress | None = None) -> CheckResult:
        """Return what it says; called only where nothing it needs is missing."""


def ask(check: Check, evidence: Evidence, progress: Progress | None = None) -> CheckResult:
    """Run a check, or say which parts of the evidence it would need.

    Raises:
        ValueError: the check names a cause that it did not say it can name: a defect of the check.
    """
    assumes = tuple(sorted(check.assumes(evidence)))
    missing = evidence.missing(check.needs)
    if missing:
        return CheckResult(
            family=check.family,
            name=check.question,
            verdict=Verdict.NOT_RUN,
            sentence=f"Not asked: there is no {_listed(missing)}.",
            assumes=assumes,
        )
    said = check.run(evidence, progress)
    if said.verdict is Verdict.BROKEN and said.cause not in check.can_name:
        raise ValueError(f"check {check.id} names {said.cause}, which is not in its can_name")
    return said.with_assumptions(assumes)


def training_assumptions(evidence: Evidence) -> frozenset[str]:
    """Return what the training set takes for granted; nothing where there is none."""
    return frozenset() if evidence.training is None else frozenset(assumptions(evidence.training.spec.stamp))


def judge_assumptions(evidence: Evidence) -> frozenset[str]:
    """Return what training set and trials in use both take for granted: judge, horizon, env."""
    tried, trained = evidence.trial_set(Role.IN_USE), training_assumptions(evidence)
    if tried is None or tried.log is None:
        return trained
    return trained & frozenset(assumptions(tried.log.spec.stamp))


def _listed(missing: tuple[Need, ...]) -> str:
    words = [str(need).removeprefix("the ").removeprefix("a ").removeprefix("an ") for need in missing]
    return " and no ".join(words)
