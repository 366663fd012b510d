"""Evaluation: are the trials fit to be counted at all?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from simgap import causes
from simgap.findings import CheckResult, Family, Verdict
from simgap.robots.base import condition_of
from simgap.statistics import what_n_cannot_show
from simgap.trials.batch import TrialResult
from simgap.wording import number_of

VOID_LIMIT = 0.25
"""Share of void trials above which a set says more about the set-up than about the policy."""
MIN_TRIALS = 8


def check_evaluation(
    sets: Mapping[str, Sequence[TrialResult]], training_seeds: frozenset[int], screen_seeds: frozenset[int]
) -> CheckResult:
    """Check counts, voids, and that no seed serves two purposes.

    Args:
        sets: name of a trial set -> its results.
        training_seeds: seeds of the episodes the policy was trained on.
        screen_seeds: seeds the policy was screened on.
    """
    problems: list[str] = []
    few: list[tuple[int, str]] = []
    unknown = 0
    for name, results in sets.items():
        counted = [r for r in results if r.outcome.counts]
        voids = sum(r.outcome.is_void for r in results)
        if results and voids / len(results) > VOID_LIMIT:
            reasons = Counter(r.outcome.detail for r in results if r.outcome.is_void).most_common(1)[0][0]
            problems.append(
                f"{voids} of {number_of(len(results), 'trial')} of {name} {'is' if voids == 1 else 'are'}"
                f" void (mostly: {reasons})"
            )
        if len(counted) < MIN_TRIALS:
            few.append((len(counted), name))
        conditions = [c for r in results if (c := _condition(r)) is not None]
        unknown += len(results) - len(conditions)
        again = [c for c, count in Counter(conditions).items() if count > 1]
        if again:
            problems.append(f"{len(again)} initial conditions of {name} were counted twice")
        leaked = {r.seed for r in results} & (training_seeds | screen_seeds)
        if leaked and not name.startswith("replay"):
            problems.append(f"{len(leaked)} seeds of {name} were also trained or screened on")
    stands_in = Counter(c for results in sets.values() for c in {_condition(r) for r in results} - {None})
    shared = [c for c, count in stands_in.items() if count > 1]
    if shared:
        problems.append(f"{len(shared)} initial conditions stand in more than one set")
    if training_seeds & screen_seeds:
        problems.append(
            f"{number_of(len(training_seeds & screen_seeds), 'seed of the screen was', 'seeds of the screen were')} also trained on"
        )
    n = sum(r.outcome.counts for results in sets.values() for r in results)
    unrecorded = sum(not r.outcome.is_recorded for results in sets.values() for r in results)
    base: dict[str, Any] = {
        "family": Family.EVALUATION,
        "name": "counts, voids, seeds",
        "n": n,
        "numbers": {"problems": problems},
    }
    if problems:
        return CheckResult(
            **base,
            verdict=Verdict.BROKEN,
            cause=causes.EVALUATION,
            sentence=f"The evaluation is not fit to be read: {'; '.join(problems)}.",
        )
    if few or not sets:
        least, name = min(few, default=(0, "the evaluation"))
        text = f"Of {name} {number_of(least, 'trial counts', 'trials count')}, at least {MIN_TRIALS} are needed. {what_n_cannot_show(least)}"
        if unrecorded:
            text = f"{_unrecorded(unrecorded)} {text}"
        return CheckResult(**base, verdict=Verdict.CANNOT_TELL, more_trials=MIN_TRIALS - least, sentence=text)
    voids = sum(r.outcome.is_void for results in sets.values() for r in results)
    return CheckResult(
        **base,
        verdict=Verdict.OK,
        sentence=(
            f"{number_of(n, 'trial counts', 'trials count')}, {number_of(voids, 'is', 'are')} void with a"
            f" reason, and {_told(unknown, n + voids + unrecorded)}."
            f"{' ' + _unrecorded(unrecorded) if unrecorded else ''}"
        ),
    )


def _condition(result: TrialResult) -> str | None:
    """Return what trials of one condition share; None where nothing tells."""
    return result.condition_id or condition_of(result.seed)


def _unrecorded(n: int) -> str:
    many = number_of(n, "trial", "trials")
    return f"Nobody recorded how {many} ended: say success or failure of each, and ask again."


def _told(unknown: int, of: int) -> str:
    """Say what is known of the seeds."""
    if not unknown:
        return "no seed serves two purposes"
    return f"{unknown} of {of} carry neither seed nor condition, so whether a condition was counted twice cannot be seen"
