"""Two arms compared in sequence without a cap: look after every pair, stop at the verdict or when you like."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from simgap.errors import UsageError
from simgap.statistics.agreeing import agreeing_with
from simgap.statistics.anytime import betting_interval, log_capital
from simgap.statistics.comparisons import Difference
from simgap.statistics.counts import Floats, check_confidence, number_rows, outcome_row
from simgap.statistics.evalues import log_e_blocks, log_e_paired, log_mean
from simgap.types import Outcome


class ComparisonVerdict(StrEnum):
    """What a comparison may say."""

    NEW_BETTER = "new better"
    OLD_BETTER = "old better"
    UNDECIDED = "undecided"


@dataclass(frozen=True, kw_only=True, slots=True)
class SequentialComparison:
    """A comparison that was looked at after every pair."""

    verdict: ComparisonVerdict
    """Stays once it has fallen; undecided is not "equal"."""
    n: int
    """Pairs (blocks) seen."""
    stopped_at: int | None
    """Pairs at which the verdict fell."""
    log_e_new_better: float
    """ln of the evidence against "the new arm is not better", now."""
    log_e_old_better: float
    p_value: float
    """Two-sided and anytime-valid: 2 over the largest e-value so far, at most 1."""
    difference: Difference
    """New minus old with an interval that holds at every look and excludes 0 exactly when there is a verdict."""
    method: str
    confidence: float


def compare_paired(
    new: Sequence[bool], old: Sequence[bool], confidence: float = 0.95
) -> SequentialComparison:
    """Compare two arms on matched initial conditions, looking after every pair.

    ``new better`` rejects "given the past, the new arm is not better on the next pair", ``old better`` the
    mirror image, each at half of ``1 - confidence``: the chance of ever giving a wrong direction is at most
    that half, of any verdict on equal arms at most the whole. Only discordant pairs count.

    Population: pairs of trials that start alike. No independence within a pair, no constant rate and no
    number of pairs is assumed.

    Undecided at n = 0, at n = 1, and as long as no pair is discordant, 0/n against 0/n and n/n against n/n
    included. n/n against 0/n is decided from n = 8 on at 95 %.

    Source: a Beta mixture on the sign test; the interval is betting
    (:func:`simgap.statistics.betting_interval`) on the differences.

    Args:
        new: success of the new arm, in the order of the trials, pairs with a void left out (see
            :func:`ordered_pairs`).
        old: success of the old arm on the same initial conditions.
        confidence: two-sided level.
    """
    y1, y0 = _two_rows(
        outcome_row(new, "outcomes of the new arm"), outcome_row(old, "outcomes of the old arm"), confidence
    )
    wins, losses = np.cumsum(y1 > y0).astype(float), np.cumsum(y1 < y0).astype(float)
    up, down = log_e_paired(wins, losses), log_e_paired(losses, wins)
    return _comparison(y1, y0, up, down, "paired Beta-mixture e-process", confidence)


def compare_unpaired(
    new: Sequence[bool], old: Sequence[bool], confidence: float = 0.95
) -> SequentialComparison:
    """Compare two independent arms that are run in turn, one trial each a block, looking after every block.

    The evidence is the average of two one-sided e-processes: the two-sample one of Turner, Ly and Grünwald,
    which is strong where rates are near 0 or 1, and the sign mixture on discordant blocks, which is strong in
    the middle. Error as :func:`compare_paired`. Stops about when a truncated test with a large cap does; with
    a cap use :func:`simgap.statistics.capped_design`, which needs fewer trials.

    Population: blocks of one trial an arm, independent of each other given the past; rates may drift as long
    as the null holds in every block. For matched initial conditions use :func:`compare_paired`: the
    two-sample process is not valid there.

    Undecided at n = 0 and n = 1, and for 0/n against 0/n and n/n against n/n at every n.

    Args:
        new: success of the new arm in the order of the trials.
        old: success of the old arm; block t is ``new[t]`` with ``old[t]``.
        confidence: two-sided level.
    """
    y1, y0 = _two_rows(
        outcome_row(new, "outcomes of the new arm"), outcome_row(old, "outcomes of the old arm"), confidence
    )
    wins, losses = np.cumsum(y1 > y0).astype(float), np.cumsum(y1 < y0).astype(float)
    _, blocks_up, blocks_down = log_e_blocks(y1, y0)
    up, down = (
        log_mean(blocks_up, log_e_paired(wins, losses)),
        log_mean(blocks_down, log_e_paired(losses, wins)),
    )
    return _comparison(y1, y0, up, down, "average of the two-sample and the sign e-process", confidence)


def compare_scores(
    new: Sequence[float], old: Sequence[float], confidence: float = 0.95
) -> SequentialComparison:
    """Compare two arms by scores in [0, 1] (progress, partial credit), looking after every pair. The verdict is about scores, not success.

    A gambler bets on the difference of each pair; valid for matched and for independent pairs, whatever the
    law of the scores. Graded progress usually decides sooner than success does, and decides another question.

    Undecided at n = 0 and n = 1, and as long as all differences are 0.

    Source: Waudby-Smith and Ramdas (arXiv:2010.09686), capital at difference 0.

    Args:
        new: scores of the new arm in the order of the trials, in [0, 1].
        old: scores of the old arm, paired.
        confidence: two-sided level.
    """
    y1, y0 = _two_rows(new, old, confidence)
    up, down = log_capital((y1 - y0 + 1) / 2, 0.5, 1 - confidence)
    return _comparison(y1, y0, up, down, "betting on the paired difference of scores", confidence)


def anytime_difference(
    new: Sequence[float] | Floats, old: Sequence[float] | Floats, confidence: float = 0.95
) -> Difference:
    """Return the mean of new minus old over pairs with a betting interval that holds at every look, and so after any stopping rule.

    Population: pairs, matched or not, of successes (0, 1) or scores in [0, 1] whose mean difference, given
    the past, is one constant. Undefined at n = 0. At n = 1 nearly all of [-1, 1]. If every difference is
    ruled out the mean was not constant: undefined.

    Source: Waudby-Smith and Ramdas (arXiv:2010.09686), see :func:`simgap.statistics.betting_interval`.

    Args:
        new: outcomes of the new arm in the order of the trials.
        old: outcomes of the old arm, paired.
        confidence: level at which all looks together are covered.
    """
    y1, y0 = _two_rows(new, old, confidence)
    interval = betting_interval(y1 - y0, confidence, bounds=(-1.0, 1.0), name="difference")
    return Difference(
        point=interval.point,
        low=interval.low,
        high=interval.high,
        method=interval.method,
        confidence=confidence,
        reason=interval.reason.replace("no score", "no pair counts"),
        n=interval.n,
        anytime=True,
    )


def difference_beside(
    verdict: ComparisonVerdict,
    new: Sequence[float] | Floats,
    old: Sequence[float] | Floats,
    confidence: float = 0.95,
) -> Difference:
    """Return the anytime interval of a difference that agrees with a sequential verdict on the same pairs: the verdict decides.

    The betting interval is taken at half the error and then cut at 0 after a verdict, or widened to 0 without
    one; together with a verdict whose wrong direction costs at most the other half it covers at
    ``confidence``, at every look.

    Args:
        verdict: of the test on these pairs.
        new: outcomes of the new arm in the order of the trials.
        old: outcomes of the old arm, paired.
        confidence: level that verdict and interval keep together.
    """
    sign = {
        ComparisonVerdict.NEW_BETTER: 1,
        ComparisonVerdict.OLD_BETTER: -1,
        ComparisonVerdict.UNDECIDED: 0,
    }[verdict]
    wide = anytime_difference(new, old, (1 + confidence) / 2)
    return replace(agreeing_with(sign, wide), confidence=confidence)


def ordered_pairs(
    *, new: Mapping[int, Outcome], old: Mapping[int, Outcome], order: Iterable[int] | None = None
) -> tuple[list[bool], list[bool], int]:
    """Return the successes of both arms on the conditions that count, in order, and how many conditions were dropped.

    Args:
        new: initial condition (seed) -> outcome of the new arm.
        old: the same for the old arm.
        order: conditions in the order of the trials; by default the order of ``new``, then what only ``old``
            has. A sequential test needs the order in which the trials were run.
    """
    wins: list[bool] = []
    others: list[bool] = []
    dropped = 0
    for condition in dict.fromkeys(order if order is not None else [*new, *old]):
        pair = (new.get(condition), old.get(condition))
        if pair[0] is None or pair[1] is None or not (pair[0].counts and pair[1].counts):
            dropped += 1
        else:
            wins.append(pair[0].is_success)
            others.append(pair[1].is_success)
    return wins, others, dropped


def _two_rows(
    new: Sequence[float] | Floats, old: Sequence[float] | Floats, confidence: float
) -> tuple[Floats, Floats]:
    check_confidence(confidence)
    y1, y0 = number_rows(new, "outcomes of the new arm"), number_rows(old, "outcomes of the old arm")
    if y1.shape != y0.shape or y1.ndim != 1:
        raise UsageError(
            f"{y1.shape} outcomes against {y0.shape}: expected two rows of equal length, one entry a pair;"
            " drop pairs with a void"
        )
    if not np.all((y1 >= 0) & (y1 <= 1) & (y0 >= 0) & (y0 <= 1)):
        raise UsageError(
            "an outcome lies outside 0 to 1 or is not a number: expected successes or scores in [0, 1]; voids"
            " are not scores"
        )
    return y1, y0


def _comparison(
    y1: Floats, y0: Floats, up: Floats, down: Floats, method: str, confidence: float
) -> SequentialComparison:
    verdict, stopped_at = ComparisonVerdict.UNDECIDED, None
    crossed = np.flatnonzero(np.maximum(up, down) >= math.log(2 / (1 - confidence)))
    if len(crossed):
        stopped_at = int(crossed[0]) + 1
        verdict = (
            ComparisonVerdict.NEW_BETTER
            if up[crossed[0]] > down[crossed[0]]
            else ComparisonVerdict.OLD_BETTER
        )
    largest = float(np.max(np.maximum(up, down), initial=0.0))
    return SequentialComparison(
        verdict=verdict,
        n=len(y1),
        stopped_at=stopped_at,
        log_e_new_better=float(up[-1]) if len(up) else 0.0,
        log_e_old_better=float(down[-1]) if len(down) else 0.0,
        p_value=min(1.0, 2 * math.exp(-min(largest, 700.0))),
        difference=difference_beside(verdict, y1, y0, confidence),
        method=method,
        confidence=confidence,
    )
