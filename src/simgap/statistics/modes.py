"""Several ways of doing one thing: are there two modes (Hartigan's dip test), and how evenly are they used (class entropy)?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simgap.errors import UsageError
from simgap.statistics.comparisons import ExactTest
from simgap.statistics.counts import Floats, check_confidence, number_rows, whole
from simgap.statistics.proportions import clopper_pearson
from simgap.statistics.quantities import Quantity

_STEPS = 160
"""Values tried along each family of shares."""
_EDGE = 1e-12
LARGEST_CLASSES = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class DipTest:
    """Hartigan's dip of a sample, with its test."""

    dip: float | None
    """Greatest distance to the nearest unimodal distribution, between 1 / (2 n) and 1/4; None at n = 0."""
    test: ExactTest
    """Null hypothesis: one mode. A small p says two or more; a large one says "not shown", never "one"."""


def dip_statistic(sample: Sequence[float] | Floats) -> float | None:
    """Return Hartigan's dip: the greatest distance of the empirical distribution from the nearest unimodal one.

    Population: independent draws of one number. Unchanged by shifting, scaling and mirroring. By convention
    at least ``1 / (2 n)``, reached by an even spacing and by equal values; two equal clumps far apart reach
    1/4. None at n = 0, .5 at n = 1.

    Source: Hartigan and Hartigan, Annals of Statistics 13 (1985) 70-84.

    Args:
        sample: ``(n,)`` in any order, finite.
    """
    values = number_rows(sample, "a sample")
    if values.ndim != 1 or not np.all(np.isfinite(values)):
        raise UsageError(f"a sample of shape {values.shape}: expected one row of finite numbers")
    if len(values) == 0:
        return None
    x, repeats = np.unique(values, return_counts=True)
    # height of the distribution function at a value, in counts, and just before it
    upper = np.cumsum(repeats).astype(float)
    lower: Floats = upper - repeats
    dip, low, high = 1.0, 0, len(x) - 1
    while low < high:  # a mode may be a single value, however often it occurs
        here = slice(low, high + 1)
        # touched by the greatest convex minorant, which lies below the steps
        convex = low + _hull(x[here], lower[here], sign=1)
        # touched by the least concave majorant, above them
        concave = low + _hull(x[here], upper[here], sign=-1)
        below = np.interp(x[here], x[convex], lower[convex])
        above = np.interp(x[here], x[concave], upper[concave])
        gaps = above - below
        at_convex, at_concave = gaps[convex - low], gaps[concave - low]
        widest = max(float(at_convex.max()), float(at_concave.max()))
        if widest <= dip:
            break
        if at_convex.max() > at_concave.max():
            new_low = int(convex[np.argmax(at_convex)])
            new_high = int(concave[np.searchsorted(concave, new_low)])
        else:
            new_high = int(concave[np.argmax(at_concave)])
            new_low = int(convex[np.searchsorted(convex, new_high, side="right") - 1])
        left, right = slice(0, new_low - low), slice(new_high - low + 1, None)
        dip = max(
            dip,
            float((upper[here] - below)[left].max(initial=0.0)),
            float((above - lower[here])[right].max(initial=0.0)),
        )
        if (new_low, new_high) == (low, high):
            break
        low, high = new_low, new_high
    return dip / (2 * len(values))


def dip_test(sample: Sequence[float] | Floats, *, rng: np.random.Generator, draws: int = 2000) -> DipTest:
    """Test whether a sample has more than one mode.

    The p-value is the share of uniform samples of the same size with a dip at least as large: the uniform is
    the unimodal distribution with the largest dips (asymptotically), so the test errs towards "one mode".
    Rounding makes modes of its own: ties from a coarse grid count as clumps.

    Population: independent draws of one number. Undefined at n = 0. Below n = 4 no p is small: nothing can be
    shown. All values equal: p is 1. Work: about 0.1 ms a draw at n = 30, 1 ms at n = 500.

    Source: Hartigan and Hartigan, Annals of Statistics 13 (1985) 70-84.

    Args:
        sample: ``(n,)``, for example the position across two ways around an obstacle, once a rollout.
        rng: generator of the uniform samples.
        draws: uniform samples; the smallest possible p is ``1 / (draws + 1)``.
    """
    draws = whole(draws, "draws", least=1)
    dip, method = dip_statistic(sample), f"Hartigan's dip, {draws} uniform samples"
    if dip is None:
        return DipTest(
            dip=None,
            test=ExactTest(
                p_value=None, method=method, reason="no value (n = 0)", n=0, alternative="greater"
            ),
        )
    count = len(sample)
    uniform = rng.random((draws, count))
    hits = sum((dip_statistic(row) or 0.0) >= dip * (1 - 1e-12) for row in uniform)
    return DipTest(
        dip=dip,
        test=ExactTest(p_value=(hits + 1) / (draws + 1), method=method, n=count, alternative="greater"),
    )


def class_entropy(
    counts: Mapping[str, int] | Sequence[int],
    classes: int,
    *,
    rng: np.random.Generator,
    draws: int = 1000,
    confidence: float = 0.95,
) -> Quantity:
    """Return how evenly a set of known modes is used: Shannon entropy over its largest value, 0 (one mode only) to 1 (all alike).

    Population: independent rollouts of one context, usually the successful ones, each labelled with one of
    ``classes`` modes known beforehand. Report it apart from the success rate: a policy that always takes one
    way can succeed always. The point is the plug-in value, which is too low by about ``(classes - 1) / (2 n
    ln classes)``. The interval holds every value that the plug-in does not contradict (each tail at half of
    the error), so even use lies inside it when use is even. With two classes it is the image of
    Clopper-Pearson's interval of the share and covers at least its level. With more the shares behind a value
    are taken from three families: powers of the observed shares, one larger class among equal ones, and some
    classes only; measured for 95 %: .95 to 1.00.

    Undefined at n = 0 and with fewer than two classes. At n = 1 the point is 0 and the interval says nothing.

    Args:
        counts: rollouts of each mode; modes that did not occur may be left out.
        classes: number of modes that are possible.
        rng: generator of the draws, which more than two classes need.
        draws: counts drawn for each value that is tried.
        confidence: of the interval.
    """
    check_confidence(confidence)
    classes, draws = whole(classes, "classes", most=LARGEST_CLASSES), whole(draws, "draws", least=1)
    values = list(counts.values()) if isinstance(counts, Mapping) else list(counts)
    seen = [whole(value, "rollouts of a mode") for value in values]
    if classes < len(seen):
        raise UsageError(f"counts {seen} of {classes} classes: expected counts of at most that many modes")
    n, name = sum(seen), "normalised class entropy"
    method = (
        "Clopper-Pearson of the share"
        if classes == 2
        else f"values that the counts do not contradict, {draws} draws of each"
    )
    if n == 0 or classes < 2:
        reason = "no rollout (n = 0)" if n == 0 else "fewer than two classes"
        return Quantity(
            name=name,
            n=n,
            point=None,
            low=None,
            high=None,
            method=method,
            confidence=confidence,
            reason=reason,
        )
    full = np.array(seen + [0] * (classes - len(seen)), dtype=float)
    point = float(_entropy(full / n))
    low, high = (
        _two_ways(seen[0], n, confidence)
        if classes == 2
        else _many_ways(full, n, point, rng, draws, confidence)
    )
    return Quantity(
        name=name,
        n=n,
        point=point,
        low=min(low, point),
        high=max(high, point),
        method=method,
        confidence=confidence,
    )


def _two_ways(first: int, n: int, confidence: float) -> tuple[float, float]:
    share = clopper_pearson(first, n, confidence)
    ends = np.array([share.low, share.high], dtype=float)
    values = _entropy(np.stack([ends, 1 - ends], axis=1))
    return float(values.min()), 1.0 if ends[0] <= 0.5 <= ends[1] else float(values.max())


def _many_ways(
    counts: Floats, n: int, point: float, rng: np.random.Generator, draws: int, confidence: float
) -> tuple[float, float]:
    """Return the ends of the values, along three families of shares, of which the plug-in lies in neither tail; one step of the grid wider."""
    classes, steps, tail = len(counts), np.linspace(0.0, 1.0, _STEPS), (1 - confidence) / 2
    smooth = np.sort((counts + 0.5) / (n + classes / 2))[::-1]
    powers = (smooth / smooth[0]) ** np.tan(np.clip(steps, 0, 1 - 1e-3) * math.pi / 2)[:, None]
    larger = np.full((_STEPS, classes), 1.0) * (1 - steps)[:, None] / classes
    larger[:, 0] += steps
    some = np.clip((1 + (1 - steps) * (classes - 1))[:, None] - np.arange(classes), 0.0, 1.0)
    ends = [point]
    for family in (powers, larger, some):
        shares = family / family.sum(axis=1, keepdims=True)
        drawn = _entropy(rng.multinomial(n, shares, size=(draws, _STEPS)) / n)
        below, above = (
            (1 + (drawn <= point + _EDGE).sum(axis=0)) / (draws + 1),
            (1 + (drawn >= point - _EDGE).sum(axis=0)) / (draws + 1),
        )
        kept = np.flatnonzero((below >= tail) & (above >= tail))
        if len(kept):
            wider = [max(int(kept[0]) - 1, 0), min(int(kept[-1]) + 1, _STEPS - 1)]
            ends += _entropy(shares[wider]).tolist()
    return min(ends), max(ends)


def _entropy(shares: Floats) -> Floats:
    """Return the entropy over its largest value, ``(..., M)`` to ``(...)``."""
    logs = np.log(shares, out=np.zeros_like(shares), where=shares > 0)
    # no -0
    value: Floats = np.abs(np.clip(-(shares * logs).sum(axis=-1) / math.log(shares.shape[-1]), 0.0, 1.0))
    return value


def _hull(x: Floats, y: Floats, *, sign: int) -> NDArray[np.int64]:
    """Return the indices of the lower (``sign`` 1) or upper (-1) hull of points with rising x."""
    kept: list[int] = []
    xs, ys = x.tolist(), (sign * y).tolist()
    for i in range(len(xs)):
        while len(kept) > 1:
            a, b = kept[-2], kept[-1]
            if (ys[b] - ys[a]) * (xs[i] - xs[b]) < (ys[i] - ys[b]) * (xs[b] - xs[a]):
                break
            kept.pop()
        kept.append(i)
    return np.array(kept, dtype=np.int64)
