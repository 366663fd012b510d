"""Two arms compared in sequence with a cap on the pairs: a truncated exact test, sharper than any test without a cap.

A hardware budget is a cap. Knowing it, the error can be spent step by step and computed exactly instead of
being bounded: after pair n a table is decisive if its score statistic is large enough that the chance of
having decided by now stays within its share of ``alpha``, by default ``alpha n / n_max``, for **every** value
of the nuisance parameter. This is Barnard's test made sequential (the idea of Snyder et al., "Is Your
Imitation Learning Policy Better than Mine?", arXiv:2503.10966, where the regions are optimised; here they are
ordered by the score statistic, written from the definition).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from simgap.errors import UsageError
from simgap.statistics.comparisons import Difference
from simgap.statistics.counts import Floats, check_confidence, check_share, number_rows, outcome_row, whole
from simgap.statistics.sequential import ComparisonVerdict, difference_beside

LARGEST_CAP = 300
"""Work grows with the cube of the cap: about 2 s at 200. Beyond, use the e-processes of :mod:`simgap.statistics.sequential`."""

_NUISANCE_POINTS = 24
"""Values of the nuisance parameter in (0, 1/2] (independent) or (0, 1] (paired) at which the error is bounded."""
_RESERVE = 0.99
"""Part of the error that is spent; the rest covers the nuisance values between the points (a test measures that it does)."""

Counts: TypeAlias = NDArray[np.int64]

_Steps: TypeAlias = Callable[[Floats], tuple[Floats, Floats, Floats, Floats]]
"""Nuisance values -> chances that a pair is (both, only the first, only the second, neither), of the two counters."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class CappedDesign:
    """When to stop comparing two arms whose pairs are limited to ``n_max``. Made before the first trial."""

    n_max: int
    cuts: Floats
    """``(n_max,)`` least absolute score statistic that decides after n pairs; inf where none does."""
    paired: bool
    """True for matched initial conditions, False for independent arms run in turn."""
    confidence: float
    """Two-sided: each direction has half of the error."""

    @property
    def method(self) -> str:
        """The name for reports."""
        return (
            f"truncated sequential {'McNemar' if self.paired else 'Barnard'} test, at most {self.n_max} pairs"
        )

    def verdict(self, wins: int, losses: int, n: int) -> ComparisonVerdict:
        """Return what n pairs say.

        Args:
            wins: paired: pairs that only the new arm solved. Independent: successes of the new arm.
            losses: paired: pairs that only the old arm solved. Independent: successes of the old arm.
            n: pairs so far, 1 to ``n_max``; ask after every pair and stop at a verdict.
        """
        wins, losses, n = whole(wins, "wins"), whole(losses, "losses"), whole(n, "pairs")
        if not ((wins + losses <= n if self.paired else max(wins, losses) <= n) and 1 <= n <= self.n_max):
            raise UsageError(
                f"counts {wins} and {losses} after {n} pairs: impossible, or outside the design of 1 to"
                f" {self.n_max} pairs"
            )
        z = float(_score(np.array(wins), np.array(losses), n, self.paired))
        if abs(z) < self.cuts[n - 1]:
            return ComparisonVerdict.UNDECIDED
        return ComparisonVerdict.NEW_BETTER if z > 0 else ComparisonVerdict.OLD_BETTER


@dataclass(frozen=True, kw_only=True, slots=True)
class CappedComparison:
    """A comparison by a design with a cap."""

    verdict: ComparisonVerdict
    n: int
    """Pairs used: those up to the verdict, or all that were given."""
    finished: bool
    """True when the verdict fell or the cap was reached: undecided then is final."""
    difference: Difference
    """New minus old over the pairs used, with an interval that holds at every look; a fixed-n one would not hold after stopping."""
    method: str
    confidence: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Course:
    """What a design does when the rates are known: exact, by enumeration."""

    chance_new_better: float
    chance_old_better: float
    mean_pairs: float


def capped_design(
    n_max: int, confidence: float = 0.95, *, paired: bool = False, spending: float = 1.0
) -> CappedDesign:
    """Return when to stop comparing two arms with at most ``n_max`` pairs.

    Population: independent arms: pairs of independent trials with one rate an arm. Paired: independent pairs
    with one chance of each of the four outcomes. Rates must not drift (the e-processes of
    :mod:`simgap.statistics.sequential` allow it). The chance of a verdict in a wrong direction is at most
    half of ``1 - confidence``, of any verdict on equal arms at most the whole.

    All arguments are fixed before the first trial. With n_max of 1 or 2 nothing is ever decided at 95 %.

    Args:
        n_max: most pairs.
        confidence: two-sided level.
        paired: True for matched initial conditions.
        spending: by pair n the error spent is at most its share ``(n / n_max) ** spending``. 1 stops soonest;
            2 costs about two pairs more on average and keeps nearly the power of a fixed ``n_max`` (50 pairs,
            .7 against .9: .67 of .70, where 1 has .62).

    Raises:
        UsageError: a cap outside 1 to 300, an impossible level, or a spending outside 1 to 10.
    """
    level, cap = check_confidence(confidence), whole(n_max, "cap of pairs")
    if not 1.0 <= number_rows(spending, "spending") <= 10.0:
        raise UsageError(f"spending {spending}: expected 1 (stop soon) to 10 (stop late)")
    if not 1 <= cap <= LARGEST_CAP:
        raise UsageError(
            f"a cap of {cap} pairs: expected 1 to {LARGEST_CAP}; beyond that compare without a cap, the"
            " difference is then small"
        )
    return _capped_design(cap, level, bool(paired), float(spending))


@lru_cache(maxsize=16)
def _capped_design(n_max: int, confidence: float, paired: bool, spending: float) -> CappedDesign:
    steps, points = _kernel(paired)
    alpha, mass, spent = _RESERVE * (1 - confidence) / 2, np.ones((len(points), 1, 1)), np.zeros(len(points))
    cuts, chances = np.full(n_max, math.inf), steps(points)
    floor = 0.7 * float(norm.isf(alpha))  # no table with a smaller statistic is ever worth its error
    for n in range(1, n_max + 1):
        mass, z = _advance(mass, chances), _scores(n, paired)
        order = np.flatnonzero(z.ravel() > floor)
        order = order[np.argsort(-z.ravel()[order], kind="stable")]
        heights = z.ravel()[order]
        taken = np.cumsum(mass.reshape(len(points), -1)[:, order], axis=1)
        fits = np.all(spent[:, None] + taken <= alpha * (n / n_max) ** spending, axis=0)
        count = int(np.argmin(fits)) if not fits.all() else len(fits)
        while 0 < count < len(heights) and heights[count - 1] == heights[count]:
            count -= 1  # tables of one statistic stop together or not at all
        if count:
            cuts[n - 1] = heights[count - 1]
            spent = spent + taken[:, count - 1]
            mass[:, np.abs(z) >= cuts[n - 1]] = 0.0
    cuts.flags.writeable = False  # designs are shared
    return CappedDesign(n_max=n_max, cuts=cuts, paired=paired, confidence=confidence)


def compare_capped(new: Sequence[bool], old: Sequence[bool], design: CappedDesign) -> CappedComparison:
    """Run a design over pairs of outcomes; pairs after the verdict or the cap are not looked at.

    Args:
        new: success of the new arm in the order of the trials, pairs with a void left out.
        old: success of the old arm, pair by pair.
        design: from :func:`capped_design`.
    """
    if len(new) != len(old):
        raise UsageError(
            f"{len(new)} outcomes against {len(old)}: expected two rows of equal length, one entry a pair"
        )
    y_new, y_old = outcome_row(new, "outcomes of the new arm"), outcome_row(old, "outcomes of the old arm")
    first = second = n = 0
    verdict = ComparisonVerdict.UNDECIDED
    for y1, y0 in zip(y_new[: design.n_max], y_old[: design.n_max], strict=True):
        n += 1
        first += bool(y1) and not (design.paired and bool(y0))
        second += bool(y0) and not (design.paired and bool(y1))
        verdict = design.verdict(first, second, n)
        if verdict is not ComparisonVerdict.UNDECIDED:
            break
    finished = verdict is not ComparisonVerdict.UNDECIDED or n == design.n_max
    difference = difference_beside(verdict, y_new[:n], y_old[:n], design.confidence)
    return CappedComparison(
        verdict=verdict,
        n=n,
        finished=finished,
        difference=difference,
        method=design.method,
        confidence=design.confidence,
    )


def course_of(design: CappedDesign, new: float, old: float, discordant: float | None = None) -> Course:
    """Return the chance of each verdict and the mean number of pairs when the rates are known.

    Args:
        design: from :func:`capped_design`.
        new: success rate of the new arm.
        old: success rate of the old arm.
        discordant: paired designs only: the chance that a pair differs, at least ``abs(new - old)``.
    """
    new, old = check_share(new, "rate of the new arm"), check_share(old, "rate of the old arm")
    if design.paired != (discordant is not None):
        raise UsageError(
            f"discordant {discordant}: expected a share of pairs for a paired design, and None for"
            " independent arms"
        )
    if discordant is None:
        chances = (new * old, new * (1 - old), (1 - new) * old, (1 - new) * (1 - old))
    else:
        wins, losses = (discordant + new - old) / 2, (discordant - new + old) / 2
        if min(wins, losses) < 0 or discordant > min(new + old, 2 - new - old) + 1e-12:
            raise UsageError(f"rates {new} and {old} cannot differ on {discordant} of the pairs")
        chances = (0.0, wins, losses, 1 - discordant)
    as_arrays = tuple(np.array([[[chance]]]) for chance in chances)
    mass, up, down, pairs = np.ones((1, 1, 1)), 0.0, 0.0, 0.0
    for n in range(1, design.n_max + 1):
        pairs += float(mass.sum())
        mass, z = _advance(mass, as_arrays), _scores(n, design.paired)
        up += float(mass[0][z >= design.cuts[n - 1]].sum())
        down += float(mass[0][-z >= design.cuts[n - 1]].sum())
        mass[:, np.abs(z) >= design.cuts[n - 1]] = 0.0
    return Course(chance_new_better=up, chance_old_better=down, mean_pairs=pairs)


def _kernel(paired: bool) -> tuple[_Steps, Floats]:
    """Return how a pair moves the two counters under equality, and the nuisance values, dense near the ends."""
    if paired:
        points = (1 - np.cos(np.linspace(0, math.pi, _NUISANCE_POINTS + 1)[1:])) / 2
        return lambda q: (0 * _cells(q), _cells(q / 2), _cells(q / 2), _cells(1 - q)), points
    # p and 1 - p have mirrored tables
    points = (1 - np.cos(np.linspace(0, math.pi / 2, _NUISANCE_POINTS + 1)[1:])) / 2
    return lambda p: (_cells(p * p), _cells(p * (1 - p)), _cells(p * (1 - p)), _cells((1 - p) ** 2)), points


def _cells(values: Floats) -> Floats:
    return values[:, None, None]


def _advance(mass: Floats, chances: tuple[Floats, ...]) -> Floats:
    """Return the chance of each table not yet decided, ``(nuisance, first counter, second counter)``, one pair later."""
    both, first, second, neither = chances
    size = mass.shape[1]
    later = np.zeros((mass.shape[0], size + 1, size + 1))
    later[:, 1:, 1:] += both * mass
    later[:, 1:, :-1] += first * mass
    later[:, :-1, 1:] += second * mass
    later[:, :-1, :-1] += neither * mass
    return later


def _scores(n: int, paired: bool) -> Floats:
    """Return the score statistic of every table after n pairs, ``(n + 1, n + 1)``."""
    first, second = np.meshgrid(np.arange(n + 1), np.arange(n + 1), indexing="ij")
    return _score(first, second, n, paired)


def _score(first: Counts, second: Counts, n: int, paired: bool) -> Floats:
    """Return the pooled score statistic (McNemar's when paired), 0 where it is undefined; rounded so that ties are ties."""
    pooled = (first + second) / (2 * n)
    variance = (first + second).astype(float) if paired else 2 * n * pooled * (1 - pooled)
    scores: Floats = np.round(
        np.divide(
            first - second, np.sqrt(variance), out=np.zeros(np.shape(variance)), where=variance > 1e-12
        ),
        9,
    )
    return scores
