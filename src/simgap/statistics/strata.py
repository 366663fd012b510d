"""Averages over tasks: every task counts the same, however many trials it got, so that the mix of trials cannot move the average."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.optimize import brentq
from scipy.special import rel_entr

from simgap.errors import UsageError
from simgap.statistics.comparisons import Difference, newcombe_difference
from simgap.statistics.counts import check_confidence, check_counts, number_rows
from simgap.statistics.proportions import IntervalMethod, clopper_pearson, wilson
from simgap.statistics.quantities import Quantity


def average_rate(
    tasks: Sequence[tuple[int, int]], *, weights: Sequence[float] | None = None, confidence: float = 0.95, interval: IntervalMethod = wilson
) -> Quantity:
    """Return the average success rate over tasks, each with the same weight unless told otherwise.

    The interval joins the tasks' own intervals (MOVER): the distance of each end is the root of the sum of the squared weighted distances.
    For display: of Wilson's it covers the nominal rate on average and less where all rates are near 0 or 1 (measured for 95 %: .91 with ten
    tasks of ten trials at .99). To decide use :func:`average_rate_exact`. Pooling the counts instead weighs tasks by their trials, and the
    average then changes with the mix.

    Population: these tasks, fixed; independent trials within and between them, fixed n each. It is about these tasks, not about tasks in general.
    Undefined with no task, and when a task has no trial: leave it out openly. One task gives its own interval. 0/n everywhere has lower
    end 0, n/n everywhere upper end 1, and neither has an empty interval.

    Source: Zou and Donner, Statistics in Medicine 27 (2008) 1693-1702.

    Args:
        tasks: (successes, trials) of each task.
        weights: positive, one a task; they are scaled to add up to 1.
        confidence: two-sided level.
        interval: of one task.
    """
    check_confidence(confidence)
    estimates = [interval(k, n, confidence) for k, n in _tasks(tasks)]
    joined = estimates[0].method if estimates else "Wilson"
    method, name, total = f"MOVER of {joined} intervals over {len(tasks)} tasks", "average success rate", sum(e.n for e in estimates)
    shares = _shares(weights, len(tasks))
    point, low, high = 0.0, 0.0, 0.0
    for share, estimate in zip(shares, estimates, strict=True):
        if estimate.point is None or estimate.low is None or estimate.high is None:
            return Quantity(name=name, n=total, point=None, low=None, high=None, method=method, confidence=confidence, reason="a task has no trial")
        point += share * estimate.point
        low += (share * (estimate.point - estimate.low)) ** 2
        high += (share * (estimate.high - estimate.point)) ** 2
    if not tasks:
        return Quantity(name=name, n=0, point=None, low=None, high=None, method=method, confidence=confidence, reason="no task")
    ends = (max(point - math.sqrt(low), 0.0), min(point + math.sqrt(high), 1.0))
    return Quantity(name=name, n=total, point=point, low=ends[0], high=ends[1], method=method, confidence=confidence)


def average_rate_exact(tasks: Sequence[tuple[int, int]], *, weights: Sequence[float] | None = None, confidence: float = 0.95) -> Quantity:
    """Return the average success rate over tasks with an interval that covers at least its level, for every rate and number of trials.

    With as many trials in each task and equal weights it is Clopper-Pearson's interval of the pooled count: rates that differ from task to
    task only make the pooled count less spread than one rate would (Hoeffding 1956). Otherwise the tails are bounded (Chernoff), which costs
    about a third more width: run as many trials in each task.

    Population and undefined cases as :func:`average_rate`.

    Source: Hoeffding, Annals of Mathematical Statistics 27 (1956) 713-721, theorem 4; JASA 58 (1963) 13-30.

    Args:
        tasks: (successes, trials) of each task.
        weights: positive, one for each task; they are scaled to add up to 1.
        confidence: two-sided level.
    """
    level, counts = check_confidence(confidence), _tasks(tasks)
    shares, total, name = _shares(weights, len(counts)), sum(n for _, n in counts), "average success rate"
    method = f"Clopper-Pearson of the pooled count over {len(counts)} tasks"
    if not counts or min(n for _, n in counts) == 0:
        reason = "a task has no trial" if counts else "no task"
        return Quantity(name=name, n=total, point=None, low=None, high=None, method=method, confidence=level, reason=reason)
    largest = max(share / n for share, (_, n) in zip(shares, counts, strict=True))  # what one trial moves the average by, at most
    point = min(sum(share * k / n for share, (k, n) in zip(shares, counts, strict=True)), 1.0)
    if largest * total <= 1 + 1e-9:
        pooled = clopper_pearson(sum(k for k, _ in counts), total, level)
        return Quantity(name=name, n=total, point=point, low=pooled.low, high=pooled.high, method=method, confidence=level)
    low = 1.0 - _highest_mean(1.0 - point, largest * total, total, (1 - level) / 2)
    high = _highest_mean(point, largest * total, total, (1 - level) / 2)
    method = f"Chernoff bound over {len(counts)} tasks"
    return Quantity(name=name, n=total, point=point, low=low, high=high, method=method, confidence=level)


def _highest_mean(seen: float, spread: float, trials: int, tail: float) -> float:
    """Return the highest average rate under which an average as low as ``seen`` has a bounded chance of more than ``tail``.

    Each trial moves the average by at most ``spread / trials``, so its moments are bounded by those of a binomial count of ``trials`` at the
    rate over ``spread``; for the failures likewise. Both bounds hold, so the smaller one does.
    """

    def excess(mean: float) -> float:
        by_successes = rel_entr(seen / spread, mean / spread) + rel_entr(1 - seen / spread, 1 - mean / spread)
        by_failures = rel_entr((1 - seen) / spread, (1 - mean) / spread) + rel_entr(1 - (1 - seen) / spread, 1 - (1 - mean) / spread)
        return float(trials * max(by_successes, by_failures)) + math.log(tail)

    return 1.0 if seen >= 1.0 or excess(1.0) <= 0 else float(brentq(excess, seen, 1.0, xtol=1e-12))


def average_difference(
    new: Sequence[tuple[int, int]], old: Sequence[tuple[int, int]], *, weights: Sequence[float] | None = None, confidence: float = 0.95
) -> Difference:
    """Return the average over tasks of new rate minus old rate, from independent arms, task by task.

    Joins the tasks' Newcombe intervals (MOVER). Population and limits as :func:`average_rate`; tasks must be listed in the same order for
    both arms. Undefined with no task or when an arm has no trial in a task.

    Args:
        new: (successes, trials) of the new arm in each task.
        old: the same for the old arm.
        weights: positive, one a task; they are scaled to add up to 1.
        confidence: two-sided level.
    """
    check_confidence(confidence)
    new, old = _tasks(new), _tasks(old)
    if len(new) != len(old):
        raise UsageError(f"{len(new)} tasks against {len(old)}: expected the same tasks in the same order for both arms")
    method, total = f"MOVER of Newcombe intervals over {len(new)} tasks", sum(n for _, n in (*new, *old))
    shares, point, low, high = _shares(weights, len(new)), 0.0, 0.0, 0.0
    for share, (k1, n1), (k2, n2) in zip(shares, new, old, strict=True):
        part = newcombe_difference(k1, n1, k2, n2, confidence)
        if part.point is None or part.low is None or part.high is None:
            return Difference(point=None, low=None, high=None, method=method, confidence=confidence, reason="an arm has no trial in a task", n=total)
        point += share * part.point
        low += (share * (part.point - part.low)) ** 2
        high += (share * (part.high - part.point)) ** 2
    if not new:
        return Difference(point=None, low=None, high=None, method=method, confidence=confidence, reason="no task", n=0)
    ends = (max(point - math.sqrt(low), -1.0), min(point + math.sqrt(high), 1.0))
    return Difference(point=point, low=ends[0], high=ends[1], method=method, confidence=confidence, n=total)


def _tasks(tasks: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    return [check_counts(k, n, 0.5) for k, n in tasks]


def _shares(weights: Sequence[float] | None, tasks: int) -> list[float]:
    raw = np.ones(tasks) if weights is None else number_rows(weights, "weights")
    if raw.shape != (tasks,) or not np.all(np.isfinite(raw) & (raw > 0)):
        raise UsageError(f"weights {weights} for {tasks} tasks: expected one positive number a task")
    return [float(share) for share in raw / raw.sum()] if tasks else []
