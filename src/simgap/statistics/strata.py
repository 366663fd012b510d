"""Averages over tasks: every task counts the same, however many trials it got, so that the mix of trials cannot move the average."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.optimize import brentq
from scipy.special import rel_entr

from simgap.errors import UsageError
from simgap.statistics.combination import score_ends
from simgap.statistics.comparisons import Difference
from simgap.statistics.counts import Floats, check_confidence, check_counts, number_rows
from simgap.statistics.proportions import IntervalMethod, clopper_pearson
from simgap.statistics.quantities import Quantity


def average_rate(
    tasks: Sequence[tuple[int, int]],
    *,
    weights: Sequence[float] | None = None,
    confidence: float = 0.95,
    interval: IntervalMethod | None = None,
) -> Quantity:
    """Return the average success rate over tasks, each with the same weight unless told otherwise.

    Score interval: the averages that are not rejected with the rates that fit best with them. For display: it
    covers the nominal rate on average and less where all rates are near 0 or 1 and trials are few (for 95 %:
    .85 with three tasks of five trials at .99). To decide use :func:`average_rate_exact`. Pooling the counts
    instead weighs tasks by their trials, and the average then changes with the mix.

    Population: these tasks, fixed; independent trials within and between them, fixed n each. It is about
    these tasks, not about tasks in general. Undefined with no task, and when a task has no trial: leave it
    out openly. One task gives Wilson's interval. 0/n everywhere has lower end 0, n/n everywhere upper end 1,
    and neither has an empty interval.

    Args:
        tasks: (successes, trials) of each task.
        weights: positive, one for each task; they are scaled to add up to 1.
        confidence: two-sided level.
        interval: join the tasks' own intervals of this kind instead (MOVER, Zou and Donner 2008), which is
            too short with many small tasks.
    """
    check_confidence(confidence)
    counts = _tasks(tasks)
    how = "score interval" if interval is None else "MOVER of the tasks' intervals"
    method, name, total = f"{how} over {len(counts)} tasks", "average success rate", sum(n for _, n in counts)
    shares = _shares(weights, len(counts))
    if not counts or min(n for _, n in counts) == 0:
        reason = "a task has no trial" if counts else "no task"
        return Quantity(
            name=name,
            n=total,
            point=None,
            low=None,
            high=None,
            method=method,
            confidence=confidence,
            reason=reason,
        )
    point = min(sum(share * k / n for share, (k, n) in zip(shares, counts, strict=True)), 1.0)
    low, high = (
        combined_ends(counts, np.array(shares), confidence)
        if interval is None
        else _joined(counts, shares, interval, confidence)
    )
    return Quantity(
        name=name,
        n=total,
        point=point,
        low=max(low, 0.0),
        high=min(high, 1.0),
        method=method,
        confidence=confidence,
    )


def _joined(
    counts: Sequence[tuple[int, int]], shares: Sequence[float], interval: IntervalMethod, confidence: float
) -> tuple[float, float]:
    point, down, up = 0.0, 0.0, 0.0
    for share, (k, n) in zip(shares, counts, strict=True):
        estimate = interval(k, n, confidence)
        if estimate.point is None or estimate.low is None or estimate.high is None:
            raise UsageError(f"an interval of {k} of {n} is undefined: {estimate.reason}")
        point += share * estimate.point
        down += (share * (estimate.point - estimate.low)) ** 2
        up += (share * (estimate.high - estimate.point)) ** 2
    return point - math.sqrt(down), point + math.sqrt(up)


def average_rate_exact(
    tasks: Sequence[tuple[int, int]], *, weights: Sequence[float] | None = None, confidence: float = 0.95
) -> Quantity:
    """Return the average success rate over tasks with an interval that covers at least its level, for every rate and number of trials.

    With as many trials in each task and equal weights it is Clopper-Pearson's interval of the pooled count:
    rates that differ from task to task only make the pooled count less spread than one rate would (Hoeffding
    1956). Otherwise the tails are bounded (Chernoff), which costs about a third more width: run as many
    trials in each task.

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
        return Quantity(
            name=name,
            n=total,
            point=None,
            low=None,
            high=None,
            method=method,
            confidence=level,
            reason=reason,
        )
    # what one trial moves the average by, at most
    largest = max(share / n for share, (_, n) in zip(shares, counts, strict=True))
    point = min(sum(share * k / n for share, (k, n) in zip(shares, counts, strict=True)), 1.0)
    if largest * total <= 1 + 1e-9:
        pooled = clopper_pearson(sum(k for k, _ in counts), total, level)
        return Quantity(
            name=name, n=total, point=point, low=pooled.low, high=pooled.high, method=method, confidence=level
        )
    low = 1.0 - _highest_mean(1.0 - point, largest * total, total, (1 - level) / 2)
    high = _highest_mean(point, largest * total, total, (1 - level) / 2)
    method = f"Chernoff bound over {len(counts)} tasks"
    return Quantity(name=name, n=total, point=point, low=low, high=high, method=method, confidence=level)


def _highest_mean(seen: float, spread: float, trials: int, tail: float) -> float:
    """Return the highest average rate under which an average as low as ``seen`` has a bounded chance of more than ``tail``.

    Each trial moves the average by at most ``spread / trials``, so its moments are bounded by those of a
    binomial count of ``trials`` at the rate over ``spread``; for the failures likewise. Both bounds hold, so
    the smaller one does.
    """

    def excess(mean: float) -> float:
        by_successes = rel_entr(seen / spread, mean / spread) + rel_entr(1 - seen / spread, 1 - mean / spread)
        by_failures = rel_entr((1 - seen) / spread, (1 - mean) / spread) + rel_entr(
            1 - (1 - seen) / spread, 1 - (1 - mean) / spread
        )
        return float(trials * max(by_successes, by_failures)) + math.log(tail)

    return 1.0 if seen >= 1.0 or excess(1.0) <= 0 else float(brentq(excess, seen, 1.0, xtol=1e-12))


def average_difference(
    new: Sequence[tuple[int, int]],
    old: Sequence[tuple[int, int]],
    *,
    weights: Sequence[float] | None = None,
    confidence: float = 0.95,
) -> Difference:
    """Return the average over tasks of new rate minus old rate, from independent arms, task by task.

    Score interval, as :func:`average_rate`; what it covers is measured in ``docs/studies/coverage.md``.
    Population and limits as there; tasks must be listed in the same order for both arms. One task gives Mee's
    interval. Undefined with no task or when an arm has no trial in a task.

    Args:
        new: (successes, trials) of the new arm in each task.
        old: the same for the old arm.
        weights: positive, one for each task; they are scaled to add up to 1.
        confidence: two-sided level.
    """
    check_confidence(confidence)
    first, second = _tasks(new), _tasks(old)
    if len(first) != len(second):
        raise UsageError(
            f"{len(first)} tasks against {len(second)}: expected the same tasks in the same order for both"
            " arms"
        )
    method, total = f"score interval over {len(first)} tasks", sum(n for _, n in (*first, *second))
    shares = np.array(_shares(weights, len(first)))
    if not first or min(n for _, n in (*first, *second)) == 0:
        reason = "an arm has no trial in a task" if first else "no task"
        return Difference(
            point=None, low=None, high=None, method=method, confidence=confidence, reason=reason, n=total
        )
    point = float(
        sum(share * (a / n - b / m) for share, (a, n), (b, m) in zip(shares, first, second, strict=True))
    )
    low, high = combined_ends([*first, *second], np.concatenate([shares, -shares]), confidence)
    return Difference(point=point, low=low, high=high, method=method, confidence=confidence, n=total)


def combined_ends(
    tasks: Sequence[tuple[int, int]], weights: Floats, confidence: float
) -> tuple[float, float]:
    """Return the ends of a weighted sum of independent rates, weights of either sign, by the score test."""
    counts = np.array(tasks, dtype=float).reshape(-1, 2)
    used = weights != 0
    return score_ends(counts[used, 0], counts[used, 1], weights[used], confidence)


def _tasks(tasks: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    return [check_counts(k, n, 0.5) for k, n in tasks]


def _shares(weights: Sequence[float] | None, tasks: int) -> list[float]:
    raw = np.ones(tasks) if weights is None else number_rows(weights, "weights")
    if raw.shape != (tasks,) or not np.all(np.isfinite(raw) & (raw > 0)):
        raise UsageError(f"weights {weights} for {tasks} tasks: expected one positive number a task")
    return [float(share) for share in raw / raw.sum()] if tasks else []
