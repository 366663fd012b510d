"""Does each episode begin with a reset: starts that lie where the episode before ended, while no two starts are alike."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simgap.checks.data.pooled import Pooled
from simgap.checks.data.report import DataFinding, Severity, listed
from simgap.wording import number_of

_MEETS = 0.02
"""Share of a joint's range within which a start lies at the end before, in every joint."""
_APART = 0.1
"""Share of a joint's range by which it lies off the usual start in some joint."""
_SHARE = 0.3
_FEWEST = 2
_CHANCE = 3.0
"""Times as many as under another order of the episodes."""


def check_starts(pooled: Pooled) -> list[DataFinding]:
    """Return the finding about episodes that begin where the one before ended."""
    starts, ends = _ends(pooled)
    n, width = starts.shape
    if n < _FEWEST + 1 or width < 2:
        return []
    usual = np.median(starts, axis=0)
    is_odd = np.abs(starts - usual).max(axis=1) > _APART
    gaps = np.abs(starts[:, None, :] - ends[None, :, :]).max(axis=2)  # (start, end)
    meets = gaps <= _MEETS
    chained = [k for k in range(1, n) if meets[k, k - 1] and is_odd[k]]
    own = np.eye(n, dtype=bool) | np.eye(n, k=-1, dtype=bool)  # an episode may well end where it began
    by_chance = float((meets & ~own).sum() / max(1, n - 2))
    if (
        len(chained) < max(_FEWEST, _SHARE * (n - 1))
        or len(chained) < _CHANCE * by_chance
        or np.abs(starts - usual).max() <= _APART
    ):
        return []
    numbers = [pooled.indices[k] for k in chained]
    return [
        DataFinding(
            code="chained_starts",
            severity=Severity.WARNING,
            sentence=(
                f"{len(chained)} of {number_of(n - 1, 'episode begins', 'episodes begin')} where the"
                " one before ended"
                f" ({listed([str(k) for k in numbers], 8)}), each at another pose: nothing was reset between"
                " them"
            ),
            remedy=(
                "keep such episodes on one side of a split (they are one session), and reset to one pose if"
                " the policy starts from one"
            ),
            feature=pooled.dataset.state_key,
            numbers={"episodes": numbers, "of": n - 1, "under_another_order": by_chance},
        )
    ]


def _ends(pooled: Pooled) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return first and last state of each episode, in ranges of the joints that move, ``(E, J)`` each."""
    columns = [j.state for j in pooled.joints]
    states = [s[:, columns] for s in pooled.states]
    reach = np.ptp(np.concatenate(states), axis=0) if columns else np.zeros(0)
    alive = reach > 0
    first, last = (np.stack([s[k] for s in states])[:, alive] / reach[alive] for k in (0, -1))
    return first, last
