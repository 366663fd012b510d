"""What a number of trials can and cannot show, computed exactly and said before the trials are run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

import numpy as np
from scipy.stats import binom, hypergeom

from simgap.errors import UsageError
from simgap.statistics.counts import Floats, check_counts, check_share, whole
from simgap.statistics.paired import mcnemar
from simgap.statistics.proportions import Estimate, clopper_pearson, clopper_pearson_bound

TestName: TypeAlias = Literal["boschloo", "barnard", "fisher"]

LARGEST_ARM = 400
"""Exact power enumerates every pair of counts; beyond this the normal approximation of ``trials_needed`` is exact enough."""
LARGEST_N = 1_000_000

_NUISANCE_POINTS = 200
_STEP = 1e-3
"""Resolution of a smallest detectable difference: a tenth of a point."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What ``n`` trials an arm can show at best. Read it before running them; every field is about the plan, none about data."""

    n: int
    confidence: float
    power: float
    base_rate: float
    """Assumed success rate of the arm compared against."""
    perfect_low: float | None
    """Even n of n leaves rates down to this possible (one-sided exact); None at n = 0."""
    zero_high: float | None
    """Even 0 of n leaves rates up to this possible."""
    half_width: float | None
    """Half width of the exact interval near one half, or None at n = 0."""
    smallest_rise: float | None
    """Smallest rise over ``base_rate`` shown with ``power`` against an independent arm of n; None when no rise is large enough."""
    smallest_rise_paired: float | None
    """The same on matched initial conditions that differ on ``discordant`` of the pairs besides the rise."""
    discordant: float
    """Assumed share of pairs on which equal arms would differ."""

    def words(self) -> list[str]:
        """Return the limits as sentences."""
        if self.perfect_low is None or self.zero_high is None or self.half_width is None:
            return ["No trials: nothing can be shown."]
        lines = [
            (
                f"Even {self.n} of {self.n} leaves a true rate of {100 * self.perfect_low:.1f} % possible;"
                f" even 0 of {self.n} one of {100 * self.zero_high:.1f} %."
            ),
            f"A rate near one half is known to about ±{100 * self.half_width:.0f} points.",
        ]
        for rise, arm in (
            (self.smallest_rise, "another arm of this size"),
            (self.smallest_rise_paired, "another arm on the same initial conditions"),
        ):
            if rise is None:
                lines.append(f"Against {arm} no rise over {100 * self.base_rate:.0f} % would reliably show.")
            else:
                lines.append(
                    f"Against {arm} a rise over {100 * self.base_rate:.0f} % of less than {100 * rise:.0f}"
                    " points would usually be missed."
                )
        return lines


def limits_of(
    n: int, *, base_rate: float = 0.5, discordant: float = 0.2, confidence: float = 0.95, power: float = 0.8
) -> Limits:
    """Return what n trials an arm can and cannot show.

    Population: one arm of n independent trials; two such arms, compared by Boschloo's test (independent) or
    McNemar's exact test (matched). At n = 0 nothing is defined; at n = 1 no rise shows. Between n = 1 and
    large n every limit shrinks, in steps.

    Args:
        n: trials an arm, at most 400.
        base_rate: the rate of the arm compared against.
        discordant: share of matched pairs on which two equal arms would differ; 0 means the same conditions
            always succeed.
        confidence: of intervals, and one minus the two-sided error of tests.
        power: chance with which a difference should show.
    """
    n = check_counts(0, n, confidence)[1]
    perfect = clopper_pearson_bound(n, n, confidence)
    zero = clopper_pearson_bound(0, n, confidence, side="upper")
    middle = clopper_pearson(n // 2, n, confidence)
    half = (middle.high - middle.low) / 2 if middle.low is not None and middle.high is not None else None
    return Limits(
        n=n,
        confidence=confidence,
        power=power,
        base_rate=base_rate,
        perfect_low=perfect.low,
        zero_high=zero.high,
        half_width=half,
        smallest_rise=detectable_rise(n, base_rate, alpha=1 - confidence, power=power),
        smallest_rise_paired=detectable_rise_paired(
            n, base_rate, discordant=discordant, alpha=1 - confidence, power=power
        ),
        discordant=discordant,
    )


def rule_of_three(n: int, confidence: float = 0.95) -> Estimate:
    """Return what n trials without a failure bound: the success rate is at least ``(1 - confidence) ** (1 / n)``, about 1 - 3/n at 95 %.

    Population: independent trials with one success probability and a fixed n, all of them successes.
    Undefined at n = 0; .05 at n = 1. Source: Hanley and Lippman-Hand, JAMA 249 (1983) 1743-1745; the exact
    bound is Clopper and Pearson's.
    """
    return clopper_pearson_bound(n, n, confidence)


def failures_allowed(n: int, target: float, confidence: float = 0.95) -> int | None:
    """Return how many failures in n trials still leave a one-sided exact lower bound of at least ``target``; None: not even 0.

    Population: independent trials at a fixed n; the number is fixed before the first trial. None at n = 0.
    """
    target, n = check_share(target, "target", ends=False), check_counts(0, n, confidence)[1]
    if n == 0:
        return None
    # lower bound of k of n is at least the target exactly when P(X >= k | target) <= 1 - confidence
    too_likely = binom.sf(np.arange(n, -1, -1) - 1, n, target) > (1 - confidence) * (1 + 1e-12)
    allowed = int(np.argmax(too_likely)) if too_likely.any() else n + 1
    return allowed - 1 if allowed else None


def width_of(n: int, rate: float, confidence: float = 0.95) -> float | None:
    """Return the width of the exact interval if the observed rate were nearest to ``rate``; None at n = 0."""
    rate, n = check_share(rate, "rate"), check_counts(0, n, confidence)[1]
    estimate = clopper_pearson(round(n * rate), n, confidence)
    return None if estimate.low is None or estimate.high is None else estimate.high - estimate.low


def trials_for_width(width: float, rate: float = 0.5, confidence: float = 0.95) -> int:
    """Return the smallest n from which on the exact interval at about ``rate`` is no wider than ``width``.

    Population: one arm of independent trials at a fixed n. ``rate`` is a guess; 1/2 is the worst case.
    Because counts are whole the width wiggles with n; the n returned is such that the next ten keep within
    the width as well.

    Raises:
        UsageError: a width outside (0, 1), a rate outside [0, 1], or a width that needs more than a million
            trials.
    """
    width, rate = check_share(width, "width", ends=False), check_share(rate, "rate")
    check_counts(0, 0, confidence)

    def fits(n: int) -> bool:
        return all((width_of(m, rate, confidence) or 1.0) <= width for m in range(n, n + 11))

    high = 1
    while not fits(high):
        high *= 2
        if high > LARGEST_N:
            raise UsageError(f"a width of {width} needs more than {LARGEST_N} trials: ask for less")
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def power_of(
    p0: float, p1: float, n0: int, n1: int | None = None, *, alpha: float = 0.05, test: TestName = "boschloo"
) -> float:
    """Return the exact chance that a two-sided test at level ``alpha`` tells two independent arms of these rates apart.

    Population: two independent samples of independent trials. Enumerates every table, so nothing is
    approximated but the supremum over the nuisance rate in the unconditional tests (200 points). 0 when an
    arm has no trial; at p0 = p1 it is the size of the test.

    Args:
        p0: success rate of the first arm.
        p1: success rate of the second arm.
        n0: trials of the first arm.
        n1: trials of the second arm, ``n0`` by default.
        alpha: two-sided level.
        test: ``boschloo``, ``barnard`` (pooled score) or ``fisher``.
    """
    n0, n1 = whole(n0, "trials of the first arm"), whole(n0 if n1 is None else n1, "trials of the second arm")
    p0, p1, alpha = (
        check_share(p0, "rate p0"),
        check_share(p1, "rate p1"),
        check_share(alpha, "alpha", ends=False),
    )
    if max(n0, n1) > LARGEST_ARM:
        raise UsageError(
            f"arms of {n0} and {n1}: expected 0 to {LARGEST_ARM} trials; for more use trials_needed"
        )
    if 0 in (n0, n1):
        return 0.0
    tables = np.outer(binom.pmf(np.arange(n0 + 1), n0, p0), binom.pmf(np.arange(n1 + 1), n1, p1))
    return float(tables[_p_values(n0, n1, test) <= alpha].sum())


def detectable_rise(
    n: int, base_rate: float, *, alpha: float = 0.05, power: float = 0.8, test: TestName = "boschloo"
) -> float | None:
    """Return the smallest rise over ``base_rate`` that two independent arms of n would show with ``power``, to a tenth of a point.

    Population: as :func:`power_of`. None where even a rise to 1 would be missed, so always at n = 0 and n =
    1.
    """
    if power_of(base_rate, 1.0, n, alpha=alpha, test=test) < power or base_rate >= 1.0:
        return None
    low, high = 0.0, 1.0 - base_rate
    while high - low > _STEP:
        middle = (low + high) / 2
        low, high = (
            (low, middle)
            if power_of(base_rate, base_rate + middle, n, alpha=alpha, test=test) >= power
            else (middle, high)
        )
    return high


def power_of_paired(n: int, rise: float, discordant: float, *, alpha: float = 0.05) -> float:
    """Return the exact chance that McNemar's exact test at level ``alpha`` shows a rise on n matched pairs.

    Population: n independent pairs; the new arm alone succeeds on ``rise + discordant / 2`` of them, the old
    arm alone on ``discordant / 2``. 0 at n = 0 and wherever fewer than 6 discordant pairs are possible (at 5
    %).

    Args:
        n: pairs.
        rise: new rate minus old rate, in [0, 1].
        discordant: share of pairs on which the two would differ without the rise.
        alpha: two-sided level.
    """
    n, rise, discordant = (
        whole(n, "pairs"),
        check_share(rise, "rise"),
        check_share(discordant, "discordant share"),
    )
    alpha = check_share(alpha, "alpha", ends=False)
    if rise + discordant > 1 + 1e-9:
        raise UsageError(
            f"n={n}, rise={rise}, discordant={discordant}: expected shares of pairs that add up to at most 1"
        )
    total = min(rise + discordant, 1.0)
    if n == 0 or total == 0:
        return 0.0
    share = (rise + discordant / 2) / total
    pairs = np.arange(n + 1)
    rejects = np.array(
        [
            float(binom.cdf(c, d, 1 - share) + binom.cdf(c, d, share)) if c >= 0 else 0.0
            for d, c in enumerate(_mcnemar_cuts(n, alpha))
        ]
    )
    return float(binom.pmf(pairs, n, total) @ rejects)


def detectable_rise_paired(
    n: int, base_rate: float, *, discordant: float = 0.2, alpha: float = 0.05, power: float = 0.8
) -> float | None:
    """Return the smallest rise over ``base_rate`` that n matched pairs would show with ``power``; None where none is large enough.

    Population: as :func:`power_of_paired`. The less equal arms would differ on the same conditions, the more
    pairing helps.
    """
    most = min(1.0 - check_share(base_rate, "base rate"), 1.0 - check_share(discordant, "discordant share"))
    if most <= 0 or power_of_paired(n, most, discordant, alpha=alpha) < power:
        return None
    low, high = 0.0, most
    while high - low > _STEP:
        middle = (low + high) / 2
        low, high = (
            (low, middle) if power_of_paired(n, middle, discordant, alpha=alpha) >= power else (middle, high)
        )
    return high


@lru_cache(maxsize=64)
def _mcnemar_cuts(n: int, alpha: float) -> tuple[int, ...]:
    """Return, for d = 0 to n discordant pairs, the most pairs on the losing side that still reject; -1: none do."""
    cuts = []
    for d in range(n + 1):
        cut = int(binom.ppf(alpha / 2, d, 0.5)) if d else -1
        while cut >= 0 and (mcnemar(cut, d - cut).p_value or 0.0) > alpha:
            cut -= 1
        cuts.append(cut)
    return tuple(cuts)


@lru_cache(maxsize=32)
def _p_values(n0: int, n1: int, test: TestName) -> Floats:
    """Return the two-sided p of every table, ``(n0 + 1, n1 + 1)``."""
    k0, k1 = np.meshgrid(np.arange(n0 + 1), np.arange(n1 + 1), indexing="ij")
    if test == "barnard":
        pooled = (k0 + k1) / (n0 + n1)
        variance = pooled * (1 - pooled) * (1 / n0 + 1 / n1)
        extremes = np.abs(
            np.divide(k1 / n1 - k0 / n0, np.sqrt(variance), out=np.zeros(k0.shape), where=variance > 1e-15)
        )
        return _unconditional(-extremes, n0, n1)
    if test not in ("fisher", "boschloo"):
        raise UsageError(f"unknown test {test!r}; known: boschloo, barnard, fisher")
    if test == "fisher":
        return _fisher(n0, n1)
    below = hypergeom.cdf(k0, n0 + n1, k0 + k1, n0)
    above = hypergeom.sf(k0 - 1, n0 + n1, k0 + k1, n0)
    less, greater = _unconditional(below, n0, n1), _unconditional(above, n0, n1)
    both: Floats = np.minimum(2 * np.minimum(less, greater), 1.0)
    return both


def _fisher(n0: int, n1: int) -> Floats:
    """Return Fisher's two-sided p: all tables with the same total that are no likelier than this one."""
    p_values = np.ones((n0 + 1, n1 + 1))
    for total in range(n0 + n1 + 1):
        first = np.arange(max(0, total - n1), min(n0, total) + 1)
        chances = hypergeom.pmf(first, n0 + n1, total, n0)
        p_values[first, total - first] = [chances[chances <= chance * (1 + 1e-7)].sum() for chance in chances]
    return p_values


def _unconditional(order: Floats, n0: int, n1: int) -> Floats:
    """Return the largest chance, over the common rate, of a table at least as extreme; smaller ``order`` is more extreme."""
    rates = (1 - np.cos(np.linspace(0, math.pi, _NUISANCE_POINTS + 2)[1:-1])) / 2
    ranked = np.argsort(np.round(order, 12).ravel(), kind="stable")
    sorted_order = np.round(order, 12).ravel()[ranked]
    last = np.searchsorted(sorted_order, sorted_order, side="right") - 1  # ties count together
    worst = np.zeros(order.size)
    for rate in rates:
        tables = np.outer(
            binom.pmf(np.arange(n0 + 1), n0, rate), binom.pmf(np.arange(n1 + 1), n1, rate)
        ).ravel()[ranked]
        worst = np.maximum(worst, np.cumsum(tables)[last])
    p_values = np.empty(order.size)
    p_values[ranked] = np.minimum(worst, 1.0)
    return p_values.reshape(order.shape)
