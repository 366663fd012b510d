"""Averages over tasks: every task counts the same, however many trials it got, so that the mix of trials cannot move the average."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from simgap.errors import UsageError
from simgap.statistics.comparisons import Difference, newcombe_difference
from simgap.statistics.proportions import IntervalMethod, wilson
from simgap.statistics.quantities import Quantity


def average_rate(
    tasks: Sequence[tuple[int, int]], *, weights: Sequence[float] | None = None, confidence: float = 0.95, interval: IntervalMethod = wilson
) -> Quantity:
    """Return the average success rate over tasks, each with the same weight unless told otherwise.

    The interval joins the tasks' own intervals (MOVER): the distance of each end is the root of the sum of the squared weighted distances.
    Of Wilson's it covers the nominal rate on average and falls to about .92 where all rates are near 0 or 1 and trials are few; to decide,
    join Clopper-Pearson's. Pooling the counts instead weighs tasks by their trials, and the average then changes with the mix.

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
    estimates = [interval(k, n, confidence) for k, n in tasks]
    joined = estimates[0].method if estimates else "Wilson"
    method, name, total = f"MOVER of {joined} intervals over {len(tasks)} tasks", "average success rate", sum(n for _, n in tasks)
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


def _shares(weights: Sequence[float] | None, tasks: int) -> list[float]:
    raw = np.ones(tasks) if weights is None else np.asarray(weights, dtype=float)
    if raw.shape != (tasks,) or not np.all(np.isfinite(raw) & (raw > 0)):
        raise UsageError(f"weights {weights} for {tasks} tasks: expected one positive number a task")
    return [float(share) for share in raw / raw.sum()] if tasks else []
