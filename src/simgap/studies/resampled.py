"""What closed-loop selectors cost and lose when the select seeds are drawn again: one draw of them says little about a regret of a point."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simgap.errors import UsageError
from simgap.rollouts.select import replay_race
from simgap.types import Outcome

FULL = "full_evaluation"
RACE = "race"
NO_BUDGET = "race_without_budget"
HALF = "half_the_seeds"


@dataclass(frozen=True, kw_only=True, slots=True)
class ResampledSelector:
    """One way of choosing over many draws of the select seeds."""

    name: str
    regret: float
    """Mean over the draws."""
    against_full: float
    """Mean of its regret minus full evaluation's on the same seeds."""
    low: float
    """2.5 % quantile of that difference over the draws."""
    high: float
    """97.5 % quantile."""
    share: float
    """Mean rollouts, as a share of full evaluation's."""


def resampled(
    select: Sequence[Mapping[int, Outcome]],
    rates: Sequence[float],
    rng: np.random.Generator,
    *,
    draws: int = 200,
    confidence: float = 0.95,
    progress: Callable[[int], None] | None = None,
) -> tuple[ResampledSelector, ...]:
    """Redraw the select seeds with replacement, the same for all checkpoints, and let each selector choose anew.

    The true rates stand still, so their noise is common to all selectors. Beside the race and full evaluation
    stand a race without a budget and full evaluation on the first half of the seeds, which costs as much as
    the race may.

    Args:
        select: of each checkpoint, seed -> outcome, on common seeds.
        rates: true rate of each.
        rng: generator of the draws.
        draws: how many.
        confidence: of the races.
        progress: called with 1 after each draw.

    Raises:
        UsageError: checkpoints on different seeds, or no draw.
    """
    if draws < 1 or len({tuple(row) for row in select}) != 1:
        raise UsageError(
            f"{draws} draws over {len(select)} checkpoints: expected a draw or more, and the same select"
            " seeds for all"
        )
    rows = [list(row.values()) for row in select]
    truth, n = np.asarray(rates, dtype=float), len(rows[0])
    names = (FULL, RACE, NO_BUDGET, HALF)
    regret, cost = np.zeros((2, len(names), draws))
    for draw in range(draws):
        picked = rng.integers(0, n, size=n)
        again = [{seed: row[i] for seed, i in enumerate(picked)} for row in rows]
        taken = (
            (highest(again, n), len(rows) * n),
            replay_race(again, confidence),
            replay_race(again, confidence, share=1.0),
            (highest(again, n // 2), len(rows) * (n // 2)),
        )
        for i, (best, trials) in enumerate(taken):
            regret[i, draw], cost[i, draw] = truth.max() - truth[best], trials
        if progress:
            progress(1)
    return tuple(_summary(name, regret[i], regret[0], cost[i] / cost[0]) for i, name in enumerate(names))


def highest(outcomes: Sequence[Mapping[int, Outcome]], seeds: int) -> int:
    """Return which checkpoint has the highest rate over the first seeds, the last of equals."""
    counted = [[o.is_success for o in list(row.values())[:seeds] if o.counts] for row in outcomes]
    return last_largest([float(np.mean(row)) if row else -1.0 for row in counted])


def last_largest(values: Sequence[float]) -> int:
    """Return the last index of the largest value: of equal checkpoints the one trained longest."""
    return len(values) - 1 - int(np.argmax(list(reversed(values))))


def _summary(
    name: str, regret: NDArray[np.float64], full: NDArray[np.float64], share: NDArray[np.float64]
) -> ResampledSelector:
    low, high = np.quantile(regret - full, (0.025, 0.975))
    return ResampledSelector(
        name=name,
        regret=float(regret.mean()),
        against_full=float((regret - full).mean()),
        low=float(low),
        high=float(high),
        share=float(share.mean()),
    )
