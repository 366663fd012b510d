"""Before and after the trials: is it worth hardware time, how many trials, and what a given n can never show."""

from __future__ import annotations

import math
from enum import StrEnum

from scipy.stats import norm

from simgap.errors import UsageError
from simgap.statistics.counts import check_confidence, check_share, whole
from simgap.statistics.proportions import clopper_pearson


class ScreenVerdict(StrEnum):
    """What a simulated screen may say, and all it may say."""

    BROKEN = "broken"
    WORTH_HARDWARE_TIME = "worth hardware time"
    UNDECIDED = "undecided"


def screen_verdict(
    k: int, n: int, *, broken_below: float, worthy_above: float, confidence: float = 0.95
) -> ScreenVerdict:
    """Return the verdict of a screen from the exact interval, never from the point.

    Rule: ``broken`` when the whole Clopper-Pearson interval lies below ``broken_below``; ``worth hardware
    time`` when the whole interval lies at or above ``worthy_above``; otherwise ``undecided``: run more, or
    lower the bar openly. A screen decides where hardware time goes and nothing else.

    Population: independent simulated rollouts at a fixed n. n = 0 and, for usual bars, n = 1 are
    ``undecided``. 0/n is ``broken`` and n/n is ``worth hardware time`` only once n is large enough for the
    bars.

    Raises:
        UsageError: the bars are not 0 <= broken_below <= worthy_above <= 1.
    """
    broken_below, worthy_above = (
        check_share(broken_below, "broken_below"),
        check_share(worthy_above, "worthy_above"),
    )
    if not broken_below <= worthy_above:
        raise UsageError(
            f"bars {broken_below} and {worthy_above}: expected 0 <= broken_below <= worthy_above <= 1"
        )
    estimate = clopper_pearson(k, n, confidence)
    if estimate.high is not None and estimate.high < broken_below:
        return ScreenVerdict.BROKEN
    if estimate.low is not None and estimate.low >= worthy_above:
        return ScreenVerdict.WORTH_HARDWARE_TIME
    return ScreenVerdict.UNDECIDED


def trials_needed(p0: float, p1: float, alpha: float = 0.05, power: float = 0.8) -> int:
    """Return the trials **per arm** to tell two independent rates apart with a two-sided exact test.

    Normal approximation with continuity correction (Fleiss, Tytun and Ury 1980), which follows Fisher's test
    closely; an unconditional test needs somewhat fewer, matched initial conditions usually fewer still.

    Population: two independent arms of equal size. Undefined for equal rates: no n tells them apart, which is
    an error. Rates of exactly 0 or 1 are allowed on one side.

    Raises:
        UsageError: a rate, level or power out of range, or equal rates.
    """
    p0, p1 = check_share(p0, "rate p0"), check_share(p1, "rate p1")
    alpha, power = check_share(alpha, "alpha", ends=False), check_share(power, "power", ends=False)
    if p0 == p1:
        raise UsageError(
            f"p0 = p1 = {p0}: no number of trials tells equal rates apart; say which difference matters"
        )
    gap, mean = abs(p1 - p0), (p0 + p1) / 2
    spread = float(norm.ppf(1 - alpha / 2)) * math.sqrt(2 * mean * (1 - mean)) + float(
        norm.ppf(power)
    ) * math.sqrt(p0 * (1 - p0) + p1 * (1 - p1))
    plain = (max(spread, 0.0) / gap) ** 2
    return max(1, math.ceil(plain / 4 * (1 + math.sqrt(1 + 4 / (plain * gap))) ** 2)) if plain > 0 else 1


def visible_difference(p0: float, n: int, alpha: float = 0.05, power: float = 0.8) -> float | None:
    """Return the smallest rise above ``p0`` that n trials an arm would usually show, or None when no rise is large enough.

    Same population and approximation as :func:`trials_needed`, solved for the difference. None at n = 0 and n
    = 1, and wherever even a rise to 1 would need more trials.
    """
    n, p0 = whole(n, "trials"), check_share(p0, "rate p0")
    if n < 2 or p0 >= 1.0 or trials_needed(p0, 1.0, alpha, power) > n:
        return None
    low, high = 1e-4, 1.0 - p0
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (low, middle) if trials_needed(p0, p0 + middle, alpha, power) <= n else (middle, high)
    return high


def perfect_run_for(target: float, confidence: float = 0.95) -> int:
    """Return the smallest n whose n/n leaves a one-sided exact lower bound of at least ``target`` (.9 at 95 %: 29).

    Population: independent trials with one success probability and a fixed n.

    Raises:
        UsageError: target or confidence outside (0, 1).
    """
    target, confidence = check_share(target, "target", ends=False), check_confidence(confidence)
    return math.ceil(math.log(1 - confidence) / math.log(target) - 1e-12)


def what_n_cannot_show(n: int, confidence: float = 0.95) -> str:
    """Return plain words on the limits of n trials, to be read before they are run.

    Population: one arm of n independent trials, and two such arms. At n = 0 it says that nothing can be
    shown.
    """
    n = whole(n, "trials")
    if n == 0:
        return "No trials: nothing can be shown."
    perfect = clopper_pearson(n, n, confidence)
    middle = clopper_pearson(n // 2, n, confidence)
    if perfect.low is None or middle.low is None or middle.high is None:
        raise UsageError(f"n = {n} has no interval")
    words = (
        f"{n} trial{'s' if n > 1 else ''}: even {n} of {n} leaves a true rate of {100 * perfect.low:.0f} %"
        f" possible ({100 * confidence:g} % exact interval)"
    )
    words += f"; a rate near one half is known to about ±{(middle.high - middle.low) / 2 * 100:.0f} points"
    rise = visible_difference(0.5, n)
    if rise is None:
        return words + "; against another arm of this size no improvement on 50 % would reliably show."
    return (
        words
        + f"; against another arm of this size an improvement on 50 % of less than {rise * 100:.0f} points"
        " would usually be missed."
    )
