"""Evidence that may be looked at after every trial: e-processes on a success rate and on the difference of two arms.

An e-process starts at 1 and has mean at most 1 under its null hypothesis at every stopping time, so the
chance that it *ever* reaches ``1 / alpha`` is at most ``alpha`` (Ville 1939). Averages of e-processes are
e-processes; largest values are not. Everything is computed as a natural logarithm and broadcasts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc, betaln, xlog1py, xlogy

from simgap.errors import UsageError
from simgap.statistics.counts import (
    Floats,
    check_confidence,
    check_share,
    count_rows,
    outcome_row,
    outcome_rows,
)

_UNDERFLOW = 1e-200
_SMOOTHING = 0.18
"""Pseudo-counts of the rates that the two-sample process bets on; any positive number is valid (Turner et al. use .18)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SequentialTest:
    """What a test that was looked at after every trial has found by now."""

    null: str
    """The hypothesis that is rejected, in words."""
    rejected: bool
    """True once the evidence has been enough; later trials cannot take it back."""
    n: int
    """Trials seen."""
    stopped_at: int | None
    """Trials at which it was first rejected."""
    log_e: float
    """ln of the e-value now."""
    p_value: float
    """Anytime-valid: one over the largest e-value so far, at most 1."""
    method: str
    confidence: float


def log_e_below(k: ArrayLike, n: ArrayLike, threshold: float) -> Floats:
    """Return ln of the e-value against "the success rate is at least ``threshold``" after k successes in n trials.

    The likelihood under rates drawn evenly from (0, threshold), over the likelihood at the threshold. The
    ratio of a rate below the threshold has mean at most 1 under every rate at or above it, so the test is
    one-sided and valid for all of them.

    Population: trials whose chance of success given all earlier ones is at least the threshold under the
    null, constant or not. 0 at n = 0. At n = 1 a failure gives ``ln((1 - threshold / 2) / (1 - threshold))``.
    Depends on the counts alone.
    """
    return _log_e_below(*_counts(k, n), check_share(threshold, "threshold", ends=False))


def _log_e_below(k_: Floats, n_: Floats, threshold: float) -> Floats:
    mass = betainc(k_ + 1, n_ - k_ + 1, threshold)
    with np.errstate(divide="ignore"):
        log_e: Floats = (
            betaln(k_ + 1, n_ - k_ + 1)
            + np.log(mass)
            - xlogy(k_ + 1, threshold)
            - xlog1py(n_ - k_, -threshold)
        )
    tiny = np.asarray(mass < _UNDERFLOW)
    if not tiny.any():
        return log_e
    repaired = np.array(log_e)
    repaired[tiny] = _log_e_by_series(
        np.broadcast_to(k_, tiny.shape)[tiny], np.broadcast_to(n_, tiny.shape)[tiny], threshold
    )
    return repaired


def log_e_above(k: ArrayLike, n: ArrayLike, threshold: float) -> Floats:
    """Return ln of the e-value against "the success rate is at most ``threshold``": :func:`log_e_below` of the failures."""
    k_, n_ = _counts(k, n)
    return _log_e_below(n_ - k_, n_, 1 - check_share(threshold, "threshold", ends=False))


def log_e_paired(wins: ArrayLike, losses: ArrayLike) -> Floats:
    """Return ln of the e-value against "the new arm is not better", from the discordant pairs alone.

    If, given the past, the new arm is not better on the next pair, a discordant pair is won with chance at
    most 1/2. No independence within a pair is needed, nor constant rates, so it suits matched initial
    conditions.

    0 without a discordant pair. Swap the arguments for "the old arm is not better".
    """
    won, lost = count_rows(wins, "wins"), count_rows(losses, "losses")
    return _log_e_below(lost, won + lost, 0.5)


def log_e_blocks(new: ArrayLike, old: ArrayLike) -> tuple[Floats, Floats, Floats]:
    """Return ln of three e-processes on blocks of one independent trial an arm: against equality, new <= old, and old <= new.

    Each block bets on the rates seen in *earlier* blocks against their mean; the one-sided ones sit out the
    blocks in which the earlier rates point the other way. Turner, Ly and Grünwald show mean at most 1 under
    equality; for a bet on new > old the mean is ``(1 + c (p_new - m)) (1 - c (p_old - m))`` with ``c = (a -
    m) / (m (1 - m))``, at most 1 whenever p_new <= p_old.

    Population: blocks whose two trials are independent of each other given the past. For matched pairs use
    :func:`log_e_paired`.

    Source: Turner, Ly and Grünwald, "Generic e-variables for exact sequential k-sample tests"
    (arXiv:2106.02693).

    Args:
        new: ``(..., T)`` 0 or 1, in order.
        old: ``(..., T)`` 0 or 1, in order.

    Returns:
        Three arrays ``(..., T)``.
    """
    y1, y0 = outcome_rows(new, "outcomes of the new arm"), outcome_rows(old, "outcomes of the old arm")
    if y1.shape != y0.shape:
        raise UsageError(
            f"outcomes of shapes {y1.shape} and {y0.shape}: expected 0 and 1, one of each arm in every block"
        )
    a, b = _rate_before(y1), _rate_before(y0)
    m = (a + b) / 2
    gain = (
        y1 * np.log(a / m)
        + (1 - y1) * np.log((1 - a) / (1 - m))
        + y0 * np.log(b / m)
        + (1 - y0) * np.log((1 - b) / (1 - m))
    )
    return (
        np.cumsum(gain, axis=-1),
        np.cumsum(np.where(a > b, gain, 0.0), axis=-1),
        np.cumsum(np.where(a < b, gain, 0.0), axis=-1),
    )


def log_mean(*log_e: Floats) -> Floats:
    """Return ln of the average of e-processes, itself an e-process; chosen before looking it is as good as the best but a constant."""
    mean: Floats = np.logaddexp.reduce(np.stack(np.broadcast_arrays(*log_e))) - math.log(len(log_e))
    return mean


def threshold_test(
    outcomes: Iterable[bool], threshold: float, direction: Literal["below", "above"], confidence: float = 0.95
) -> SequentialTest:
    """Test in sequence whether a success rate is ``below`` (``above``) a threshold, looking after every trial.

    ``below`` rejects "the rate is at least the threshold"; ``above`` rejects "the rate is at most the
    threshold". The chance of ever rejecting a true one is at most ``1 - confidence``, whatever the stopping
    rule and the number of trials.

    Population: as :func:`log_e_below`. Nothing is rejected at n = 0, nor at n = 1 with usual thresholds. 0/n
    rejects "at least .5" at 95 % from n = 7 on, n/n likewise "at most .5".

    Args:
        outcomes: successes (True) and failures in the order of the trials, voids left out.
        threshold: the rate tested, strictly between 0 and 1.
        direction: what one hopes to show.
        confidence: one-sided level.

    Raises:
        UsageError: a threshold or level out of range, or an unknown direction.
    """
    check_confidence(confidence)
    if direction not in ("below", "above"):
        raise UsageError(f"direction {direction!r}: expected below or above")
    successes = np.cumsum(outcome_row(outcomes))
    trials = np.arange(1, len(successes) + 1)
    log_e = (log_e_below if direction == "below" else log_e_above)(successes, trials, threshold)
    words = f"the success rate is at {'least' if direction == 'below' else 'most'} {threshold:g}"
    return sequential_test(
        log_e, null=words, method="one-sided Beta-mixture e-process", confidence=confidence
    )


def sequential_test(log_e: Floats, *, null: str, method: str, confidence: float) -> SequentialTest:
    """Return what an e-process that was looked at after every trial has found; with no trial nothing is rejected and p is 1.

    Args:
        log_e: ``(T,)`` ln of the e-process after each trial.
        null: the hypothesis it tests, in words.
        method: which e-process it is.
        confidence: reject when the e-process reaches ``1 / (1 - confidence)``.
    """
    if len(log_e) == 0:
        return SequentialTest(
            null=null,
            rejected=False,
            n=0,
            stopped_at=None,
            log_e=0.0,
            p_value=1.0,
            method=method,
            confidence=confidence,
        )
    crossed = np.flatnonzero(log_e >= -math.log(1 - confidence))
    return SequentialTest(
        null=null,
        rejected=len(crossed) > 0,
        n=len(log_e),
        stopped_at=int(crossed[0]) + 1 if len(crossed) else None,
        log_e=float(log_e[-1]),
        p_value=float(min(1.0, math.exp(-min(float(log_e.max()), 700.0)))),
        method=method,
        confidence=confidence,
    )


def _log_e_by_series(k: Floats, n: Floats, threshold: float) -> Floats:
    """Return :func:`log_e_below` where the incomplete Beta underflows: ``(1 - t) / (k + 1) 2F1(n + 2, 1; k + 2; t)``, all terms positive."""
    total, term, j = np.ones_like(k), np.ones_like(k), 0
    while np.any(term > 1e-16 * total):
        term = term * (n + 2 + j) / (k + 2 + j) * threshold
        total, j = total + term, j + 1
    log_e: Floats = math.log1p(-threshold) - np.log(k + 1) + np.log(total)
    return log_e


def _counts(k: ArrayLike, n: ArrayLike) -> tuple[Floats, Floats]:
    k_, n_ = count_rows(k, "successes"), count_rows(n, "trials")
    if np.any(k_ > n_):
        raise UsageError("more successes than trials: expected 0 <= successes <= n; count voids separately")
    return k_, n_


def _rate_before(outcomes: Floats) -> Floats:
    """Return the smoothed success rate of the trials before each one, ``(..., T)``."""
    successes = np.cumsum(outcomes, axis=-1) - outcomes
    rate: Floats = (successes + _SMOOTHING) / (np.arange(outcomes.shape[-1]) + 2 * _SMOOTHING)
    return rate
