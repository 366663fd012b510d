"""Runs the checks in order and names the broken thing, with the numbers, the remedy and the next command.

Order: evaluation, data, pixels, replay, execution, plant, policy. The first broken check is the diagnosis,
because what comes later rests on what comes earlier; the policy is blamed last. An evaluation that is not fit
to be read silences only what counts its trials. "Cannot tell yet" is an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from simgap import causes
from simgap.causes import Cause, cause_of
from simgap.checks.base import Check, ask
from simgap.checks.registry import all_checks
from simgap.evidence import Evidence
from simgap.findings import CheckResult, Family, Verdict


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagnosis:
    """Which thing is broken."""

    cause: Cause
    family: Family | None
    sentence: str
    checks: tuple[CheckResult, ...]
    remedy: str
    next_command: str = ""
    more_trials: int | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Numbers of the broken check; what targeting reads."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "cause": str(self.cause),
            "family": None if self.family is None else str(self.family),
            "sentence": self.sentence,
            "remedy": self.remedy,
            "next_command": self.next_command,
            "more_trials": self.more_trials,
            "parameters": dict(self.parameters),
            "checks": [c.to_json() for c in self.checks],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Diagnosis:
        """Rebuild a diagnosis from :meth:`to_json`."""
        checks = tuple(
            CheckResult(
                **{
                    **row,
                    "family": Family(row["family"]),
                    "verdict": Verdict(row["verdict"]),
                    "cause": cause_of(row["cause"]),
                    "assumes": tuple(row["assumes"]),
                }
            )
            for row in data["checks"]
        )
        family = None if data["family"] is None else Family(data["family"])
        rest = {k: data[k] for k in ("sentence", "remedy", "next_command", "more_trials", "parameters")}
        return cls(cause=cause_of(data["cause"]), family=family, checks=checks, **rest)


def decide(checks: Sequence[CheckResult]) -> Diagnosis:
    """Return the diagnosis that follows from checks in the order of diagnosis: the first broken one.

    Each check decides on its own evidence. Trials that are not fit to be counted take away what counts them, the
    judgement of the policy, and nothing else: what replays, pictures or data show is named, and the evaluation's
    problem is said beside it. With none broken, a check that cannot tell makes the diagnosis "cannot tell yet" and
    names the trials that would. A policy that is weak for no known reason is blamed only when every other check
    could tell.
    """
    ordered = _policy_last(sorted(checks, key=lambda c: list(Family).index(c.family)))
    unsure = [c for c in ordered if c.verdict is Verdict.CANNOT_TELL]
    broken = [
        c
        for c in ordered
        # "The policy is weak" is what is left when everything else is excluded; with a check that cannot tell
        # it is not.
        if c.verdict is Verdict.BROKEN
        and not (c.cause.is_by_exclusion and any(u.family is not Family.POLICY for u in unsure))
    ]
    if broken:
        named = next((c for c in broken if c.family is not Family.EVALUATION), broken[0])
        return Diagnosis(
            cause=named.cause,
            family=named.family,
            sentence=" ".join([named.sentence, *_beside(named, ordered)]),
            checks=tuple(ordered),
            remedy=named.cause.remedy,
            parameters=named.numbers,
        )
    if unsure:
        more = unsure[0].more_trials
        sentence = f"Cannot tell yet. {unsure[0].sentence}" + (
            f" Run {more} more of that set." if more else ""
        )
        return Diagnosis(
            cause=causes.UNKNOWN,
            family=None,
            sentence=sentence,
            checks=tuple(ordered),
            remedy=causes.UNKNOWN.remedy,
            more_trials=more,
        )
    skipped = ", ".join(str(c.family) for c in ordered if c.verdict is Verdict.NOT_RUN)
    sentence = f"Nothing broken was found. {ordered[-1].sentence}" + (
        f" Not looked at: {skipped}." if skipped else ""
    )
    return Diagnosis(
        cause=causes.NONE, family=None, sentence=sentence, checks=tuple(ordered), remedy=causes.NONE.remedy
    )


def _beside(named: CheckResult, ordered: Sequence[CheckResult]) -> list[str]:
    """Return what has to be said of the evaluation where something else is named."""
    if named.family is Family.EVALUATION:
        return []
    return [
        f"Beside it: {c.sentence}"
        for c in ordered
        if c.family is Family.EVALUATION and c.verdict in (Verdict.BROKEN, Verdict.CANNOT_TELL)
    ]


def _policy_last(ordered: list[CheckResult]) -> list[CheckResult]:
    """Withdraw judgements of the policy that rest on something broken.

    That it is weak is what is left when nothing else is broken; everything that is said of it counts trials, and
    means nothing where these are not fit to be counted.
    """
    broken = [c for c in ordered if c.verdict is Verdict.BROKEN and not c.cause.is_by_exclusion]
    if not broken:
        return ordered
    uncounted = any(c.family is Family.EVALUATION for c in broken)
    told = f" What is broken above ({broken[0].family}) has to be repaired before the policy can be judged."

    def is_withdrawn(check: CheckResult) -> bool:
        is_said = check.verdict in (Verdict.BROKEN, Verdict.OK)
        return check.cause.is_by_exclusion or (uncounted and is_said and check.family is Family.POLICY)

    return [
        replace(c, verdict=Verdict.CANNOT_TELL, cause=causes.NONE, sentence=c.sentence + told)
        if is_withdrawn(c)
        else c
        for c in ordered
    ]


def diagnose(
    evidence: Evidence, checks: Sequence[Check] | None = None, progress: Callable[[str], None] | None = None
) -> Diagnosis:
    """Ask every check for which the evidence is there, and decide.

    Args:
        evidence: what there is to read.
        checks: the checks to ask; all that are known by default.
        progress: told the family before each check runs.
    """
    results = []
    for check in all_checks() if checks is None else checks:
        if progress:
            progress(str(check.family))
        results.append(ask(check, evidence))
    return decide(results)
