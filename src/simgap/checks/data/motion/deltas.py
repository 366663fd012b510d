"""Actions from which the state was subtracted twice: they look like inverted signs, and are something else."""

from __future__ import annotations

import numpy as np

from simgap.checks.data.pooled import Joint, Pooled
from simgap.checks.data.report import DataFinding, Severity, listed

_AHEAD_S = 0.2
"""How far ahead the motion is looked at that a target asks for."""
_FOLLOWS = 0.1
_LOOKS = ("sign_flip", "gripper_polarity")
"""What such actions look like joint by joint."""
_FOLLOWS_FROM_IT = "state_leads_action"


def name_double_deltas(pooled: Pooled, findings: list[DataFinding]) -> list[DataFinding]:
    """Replace inverted signs by one finding where action plus state is the motion that comes next.

    ``target - state - state`` moves against the state as ``-target`` does. But added to the state the first
    leaves ``target - state``, which points where the joint goes next, and the second ``state - target``,
    which points back.
    """
    flipped = {n for f in findings if f.code in _LOOKS for n in f.joints}
    follows = {
        j.name: r for j in pooled.joints if j.name in flipped and (r := _next_motion(pooled, j)) is not None
    }
    twice = [n for n, r in follows.items() if r > _FOLLOWS]
    if not twice or 2 * len(twice) < len(flipped):
        return findings
    kept = [f for f in findings if not (f.code in (*_LOOKS, _FOLLOWS_FROM_IT) and set(f.joints) <= flipped)]
    found = DataFinding(
        code="deltas_taken_twice",
        severity=Severity.FAULT,
        sentence=(
            f"actions of {listed(twice, 6)} are about minus the state, and action plus state is the motion"
            f" that follows (correlation {min(follows[n] for n in twice):.2f} or more): the state was"
            " subtracted twice, from actions that were relative already"
        ),
        remedy="add the state once, or leave one of the two delta transforms out; the signs are right",
        feature=pooled.dataset.action_key,
        joints=tuple(twice),
        numbers={"correlation": follows},
    )
    return [*kept, found]


def _next_motion(pooled: Pooled, joint: Joint) -> float | None:
    """Return the correlation of action plus state with the change of state a moment later; None where nothing moves."""
    ahead = max(1, round(_AHEAD_S * (pooled.dataset.info.rate_hz or 1.0)))
    left, change = [], []
    for action, state in zip(pooled.actions, pooled.states, strict=True):
        a, s = action[:, joint.action], state[:, joint.state]
        if len(s) > ahead:
            left.append((a + s)[:-ahead])
            change.append(s[ahead:] - s[:-ahead])
    if not left:
        return None
    x, y = np.concatenate(left), np.concatenate(change)
    return float(np.corrcoef(x, y)[0, 1]) if np.ptp(x) > 0 and np.ptp(y) > 0 else None
