"""Policy, blamed last: does it fail where its training set does not reach, or everywhere?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from simgap import causes
from simgap.envs.factors import FactorRanges
from simgap.findings import CheckResult, Family, Verdict
from simgap.statistics import Estimate, exact_independence, newcombe_difference, trials_needed, wilson
from simgap.trials.batch import TrialResult
from simgap.wording import number_of

SIGNIFICANT = 0.05
SHORTFALL = 0.15
"""Drop against the screen that matters to a user."""
FIRST_TRIALS = 12
"""Trials asked for where there is none."""
COVERAGE_MARGIN = 0.1
"""Share of a range by which a placement may lie outside it and still count as covered: measurement error and a little generalisation."""


def is_covered(placements: Mapping[str, float], ranges: FactorRanges) -> bool:
    """Return whether a placement lies within the training set's ranges."""
    for name, (low, high) in ranges.ranges.items():
        margin = COVERAGE_MARGIN * (high - low)
        if name in placements and not low - margin <= placements[name] <= high + margin:
            return False
    return True


def check_policy(
    in_use: Sequence[TrialResult],
    training_conditions: Sequence[TrialResult],
    ranges: FactorRanges,
    screen: Estimate,
) -> CheckResult:
    """Compare success inside and outside what the training set covers, and inside with the screen.

    Args:
        in_use: trials as objects lie in use.
        training_conditions: trials with objects placed as in the training set.
        ranges: what the training set was sampled from.
        screen: the policy's rate in its own simulator.
    """
    trials = [r for r in (*in_use, *training_conditions) if r.outcome.counts]
    inside = [r for r in trials if is_covered(r.placements, ranges)]
    outside = [r for r in trials if not is_covered(r.placements, ranges)]
    good_in, good_out = sum(r.outcome.is_success for r in inside), sum(r.outcome.is_success for r in outside)
    rate_in, rate_out = wilson(good_in, len(inside)), wilson(good_out, len(outside))
    numbers = {
        "inside": [good_in, len(inside)],
        "outside": [good_out, len(outside)],
        "screen": [screen.successes, screen.n],
        "outside_failures": [dict(r.placements) for r in outside if not r.outcome.is_success],
        "in_use_placements": [dict(r.placements) for r in in_use],
    }
    base: dict[str, Any] = {
        "family": Family.POLICY,
        "name": "coverage of the training set",
        "n": len(trials),
        "numbers": numbers,
        "statistic": "success outside minus inside the training ranges",
    }
    if outside and inside:
        difference = newcombe_difference(good_out, len(outside), good_in, len(inside))
        p_value = exact_independence(good_out, len(outside), good_in, len(inside)).p_value
        base |= {"value": difference.point, "threshold": -SHORTFALL}
        drop = -(difference.point or 0.0)
        if p_value is not None and p_value < SIGNIFICANT and drop > SHORTFALL:
            text = (
                f"Over-specialised: {rate_in} where the training set covers the placement, {rate_out} where"
                f" it does not (exact p = {p_value:.2g}); {len(outside)} of {len(trials)} placements lie"
                " outside."
            )
            return CheckResult(**base, verdict=Verdict.BROKEN, cause=causes.NARROW_DATA, sentence=text)
        if drop > SHORTFALL:
            more = max(1, trials_needed(good_in / len(inside), good_out / len(outside)) - len(outside))
            text = (
                f"Success looks lower outside the training set ({rate_out}) than inside ({rate_in}), but"
                f" {number_of(len(outside), 'trial')} cannot show it."
            )
            return CheckResult(**base, verdict=Verdict.CANNOT_TELL, more_trials=more, sentence=text)
    return _against_screen(base, good_in, len(inside), rate_in, screen)


def _is_weak(good: int, n: int, screen: Estimate) -> bool:
    """Return whether a rate lies surely and much below the screen's, by the exact test that also decides on coverage."""
    if n == 0 or screen.point is None:
        return False
    p_value = exact_independence(good, n, screen.successes, screen.n).p_value
    return p_value is not None and p_value < SIGNIFICANT and good / n - screen.point < -SHORTFALL


def _against_screen(base: dict[str, Any], good: int, n: int, rate: Estimate, screen: Estimate) -> CheckResult:
    difference = newcombe_difference(good, n, screen.successes, screen.n)
    if difference.high is None or difference.point is None:
        why = (
            "No trial lies inside the training set's ranges."
            if n == 0
            else "The screen has no rollout that counts."
        )
        return CheckResult(
            **base, verdict=Verdict.CANNOT_TELL, sentence=why, more_trials=FIRST_TRIALS if n == 0 else None
        )
    if _is_weak(good, n, screen):
        text = (
            f"The policy does worse on the robot ({rate}) than in its simulator ({screen}) even where it was"
            " trained."
        )
        return CheckResult(**base, verdict=Verdict.BROKEN, cause=causes.POLICY, sentence=text)
    if difference.point < -SHORTFALL:
        more = max(1, trials_needed(good / n, screen.successes / screen.n) - n)
        text = (
            f"The policy looks worse on the robot ({rate}) than in its simulator ({screen}), but"
            f" {number_of(n, 'trial')}"
            " cannot show it."
        )
        return CheckResult(**base, verdict=Verdict.CANNOT_TELL, more_trials=more, sentence=text)
    text = (
        f"Where it was trained the policy does on the robot ({rate}) what it does in its simulator"
        f" ({screen})."
    )
    return CheckResult(**base, verdict=Verdict.OK, sentence=text)
