"""A screen that stops early: broken, worth hardware time, or go on. With a cap the error is spent exactly; without one it is bounded."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.stats import binom

from simgap.errors import UsageError
from simgap.statistics.anytime import beta_mixture
from simgap.statistics.counts import Floats, check_confidence, check_counts, check_share, number_rows, whole
from simgap.statistics.evalues import log_e_above, log_e_below
from simgap.statistics.planning import ScreenVerdict
from simgap.statistics.proportions import Estimate
from simgap.types import Outcome

LARGEST_CAP = 20_000


@dataclass(frozen=True, kw_only=True, slots=True)
class ScreenPlan:
    """When to stop a screen of at most ``n_max`` rollouts; fixed before the first."""

    broken_below: float
    worthy_above: float
    broken_at: tuple[int, ...]
    """Entry n - 1: with this many successes or fewer after n rollouts the policy is broken; -1: not yet possible."""
    worthy_at: tuple[int, ...]
    """Entry n - 1: with this many successes or more after n rollouts it is worth hardware time; n + 1: not yet possible."""
    method: str
    confidence: float

    @property
    def n_max(self) -> int:
        """Most rollouts."""
        return len(self.broken_at)

    def verdict(self, k: int, n: int) -> ScreenVerdict:
        """Return what k successes in n rollouts say; ask after every rollout and stop at a verdict. Undecided at n = 0."""
        k, n = check_counts(k, n, self.confidence)
        if n > self.n_max:
            raise UsageError(
                f"{n} rollouts, but the plan ends at {self.n_max}: a plan holds for what was fixed before"
            )
        if n and k <= self.broken_at[n - 1]:
            return ScreenVerdict.BROKEN
        return (
            ScreenVerdict.WORTH_HARDWARE_TIME if n and k >= self.worthy_at[n - 1] else ScreenVerdict.UNDECIDED
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ScreenRun:
    """A screen by a plan."""

    verdict: ScreenVerdict
    rollouts: int
    """Rollouts used, voids included; later ones need not be run."""
    voids: int
    rate: Estimate
    """Of the rollouts used, with an interval that holds at every look."""
    finished: bool
    """True when the verdict fell or the cap was reached: undecided then is final."""
    method: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ScreenCourse:
    """What a plan does to a policy of known rate: exact, by enumeration."""

    chance_broken: float
    chance_worthy: float
    mean_rollouts: float


def sequential_screen_verdict(
    k: int, n: int, *, broken_below: float, worthy_above: float, confidence: float = 0.95
) -> ScreenVerdict:
    """Return the verdict of a screen that has no cap and is looked at after every rollout.

    The sequential twin of :func:`simgap.statistics.screen_verdict`, which needs a fixed n. The chance of ever
    saying ``broken`` of a policy whose rate is at least ``broken_below`` is at most half of ``1 -
    confidence``, likewise for ``worth hardware time`` below ``worthy_above``. A verdict stands once it has
    fallen: stop there.

    Population: rollouts whose chance of success given all earlier ones stays on one side of the bar.
    Undecided at n = 0 and, for usual bars, n = 1. 0/n is ``broken`` and n/n ``worth hardware time`` once n is
    large enough (.5 and .7: from 8 and 15 on).

    Raises:
        UsageError: the bars are not 0 < broken_below <= worthy_above < 1.
    """
    k, n = check_counts(k, n, confidence)
    _check_bars(broken_below, worthy_above)
    needed = math.log(2 / (1 - confidence))
    if float(log_e_below(k, n, broken_below)) >= needed:
        return ScreenVerdict.BROKEN
    return (
        ScreenVerdict.WORTH_HARDWARE_TIME
        if float(log_e_above(k, n, worthy_above)) >= needed
        else ScreenVerdict.UNDECIDED
    )


def capped_screen(
    n_max: int, *, broken_below: float, worthy_above: float, confidence: float = 0.95, spending: float = 1.0
) -> ScreenPlan:
    """Return the plan of a screen of at most ``n_max`` rollouts, with exact error: the one to use when the cap is known.

    After n rollouts the policy is broken if the chance, at a rate of exactly ``broken_below``, of having been
    called broken by now stays within ``(1 - confidence) / 2 * (n / n_max) ** spending``; mirrored for
    ``worthy_above``. Fewer successes are likelier at lower rates, so the chance is smaller at every higher
    rate, and the bound holds for all of them.

    Population: independent rollouts with one success rate. ``n_max`` is fixed before the first. With few
    rollouts nothing is ever decided: at .5 and 95 % the first chance for 0/n is after about log2 of ``2 n_max
    / (n alpha)`` rollouts.

    Args:
        n_max: most rollouts.
        broken_below: a rate at or above this must not be called broken.
        worthy_above: a rate below this must not be called worth hardware time.
        confidence: both wrong verdicts together at most ``1 - confidence``.
        spending: 1 stops soonest; 2 stops a little later and decides more often by the cap.

    Raises:
        UsageError: a cap outside 1 to 20000, bars that are not 0 < broken_below <= worthy_above < 1, or a
            spending outside 1 to 10.
    """
    cap, level = _check_plan(n_max, broken_below, worthy_above, confidence)
    if not 1.0 <= number_rows(spending, "spending") <= 10.0:
        raise UsageError(f"spending {spending}: expected 1 (stop soon) to 10 (stop late)")
    return _capped_screen(cap, float(broken_below), float(worthy_above), level, float(spending))


@lru_cache(maxsize=64)
def _capped_screen(
    n_max: int, broken_below: float, worthy_above: float, confidence: float, spending: float
) -> ScreenPlan:
    shares = (1 - confidence) / 2 * (np.arange(1, n_max + 1) / n_max) ** spending
    broken = _spend(broken_below, shares)
    # failures of -1 become n + 1
    worthy = tuple(n - failures for n, failures in enumerate(_spend(1 - worthy_above, shares), start=1))
    method = f"truncated sequential binomial test, at most {n_max} rollouts"
    return ScreenPlan(
        broken_below=broken_below,
        worthy_above=worthy_above,
        broken_at=broken,
        worthy_at=worthy,
        method=method,
        confidence=confidence,
    )


def uncapped_screen(
    n_max: int, *, broken_below: float, worthy_above: float, confidence: float = 0.95
) -> ScreenPlan:
    """Return :func:`sequential_screen_verdict` as a table up to ``n_max``, which may be extended later without losing validity.

    Raises:
        UsageError: as :func:`capped_screen`.
    """
    cap, level = _check_plan(n_max, broken_below, worthy_above, confidence)
    return _uncapped_screen(cap, float(broken_below), float(worthy_above), level)


@lru_cache(maxsize=64)
def _uncapped_screen(n_max: int, broken_below: float, worthy_above: float, confidence: float) -> ScreenPlan:
    needed = math.log(2 / (1 - confidence))
    broken = tuple(_most_successes(n, broken_below, needed) for n in range(1, n_max + 1))
    worthy = tuple(n - _most_successes(n, 1 - worthy_above, needed) for n in range(1, n_max + 1))
    return ScreenPlan(
        broken_below=broken_below,
        worthy_above=worthy_above,
        broken_at=broken,
        worthy_at=worthy,
        method="one-sided Beta-mixture e-processes, no cap",
        confidence=confidence,
    )


def run_screen(plan: ScreenPlan, outcomes: Iterable[Outcome]) -> ScreenRun:
    """Run a plan over outcomes in the order of the rollouts; it takes none after the verdict or the cap, so a generator is run no further.

    Voids are counted and do not count as rollouts of the plan. No outcome at all is undecided with an
    undefined rate.
    """
    k = n = voids = 0
    verdict = ScreenVerdict.UNDECIDED
    for outcome in outcomes:
        if not outcome.counts:
            voids += 1
            continue
        k, n = k + outcome.is_success, n + 1
        verdict = plan.verdict(k, n)
        if verdict is not ScreenVerdict.UNDECIDED or n == plan.n_max:
            break
    finished = verdict is not ScreenVerdict.UNDECIDED or n == plan.n_max
    rate = beta_mixture(k, n, plan.confidence)
    return ScreenRun(
        verdict=verdict, rollouts=n + voids, voids=voids, rate=rate, finished=finished, method=plan.method
    )


def screen_course(plan: ScreenPlan, rate: float) -> ScreenCourse:
    """Return the chance of each verdict and the mean number of rollouts for a policy of this success rate."""
    rate = check_share(rate, "rate")
    mass, broken, worthy, mean = np.ones(1), 0.0, 0.0, 0.0
    for low, high in zip(plan.broken_at, plan.worthy_at, strict=True):
        mean += float(mass.sum())
        mass = np.append(mass * (1 - rate), 0.0) + np.append(0.0, mass * rate)
        broken += float(mass[: low + 1].sum())
        worthy += float(mass[high:].sum())
        mass[: low + 1] = 0.0
        mass[high:] = 0.0
    return ScreenCourse(chance_broken=broken, chance_worthy=worthy, mean_rollouts=mean)


def _spend(rate: float, shares: Floats) -> tuple[int, ...]:
    """Return the most successes after each n that may stop, so that P(stopped by n | rate) is at most the nth share; -1: none."""
    mass, spent = np.ones(1), 0.0
    bounds: list[int] = []
    for n, share in enumerate(shares, start=1):
        mass = np.append(mass * (1 - rate), 0.0) + np.append(0.0, mass * rate)
        taken = np.cumsum(mass[: int(binom.ppf(0.5, n, rate)) + 1])  # never more successes than the middle
        bound = int(np.searchsorted(spent + taken, share, side="right")) - 1
        if bound >= 0:
            spent += float(taken[bound])
            mass[: bound + 1] = 0.0
        bounds.append(bound)
    return tuple(bounds)


def _most_successes(n: int, threshold: float, needed: float) -> int:
    """Return the most successes in n that are enough evidence for a rate below the threshold, or -1."""
    enough = np.flatnonzero(log_e_below(np.arange(int(n * threshold) + 1), n, threshold) >= needed)
    return int(enough[-1]) if len(enough) else -1


def _check_plan(n_max: int, broken_below: float, worthy_above: float, confidence: float) -> tuple[int, float]:
    cap = whole(n_max, "cap of rollouts")
    if not 1 <= cap <= LARGEST_CAP:
        raise UsageError(f"a cap of {cap} rollouts: expected 1 to {LARGEST_CAP}")
    _check_bars(broken_below, worthy_above)
    return cap, check_confidence(confidence)


def _check_bars(broken_below: float, worthy_above: float) -> None:
    if not 0.0 < check_share(broken_below, "broken_below") <= check_share(worthy_above, "worthy_above") < 1.0:
        raise UsageError(
            f"bars {broken_below} and {worthy_above}: expected 0 < broken_below <= worthy_above < 1"
        )
