"""Do action and state belong together: columns in another order, a state ahead of its command, a state that freezes on the way."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.checks.data.motion.tracking import Tracking, is_idle, longest_lag, shifted
from simgap.checks.data.pooled import Pooled
from simgap.checks.data.report import DataFinding, Severity, listed
from simgap.wording import number_of

_FOLLOWS = 0.15
"""Share of variance that a column which follows an action leaves unexplained at most."""
_BETTER = 3.0
_ROWS = 20_000
_FROZEN_S = 0.5
_FROZEN_FRAMES = 10
_FROZEN_TRAVEL = 0.25


def check_pairing(pooled: Pooled, alive: list[Tracking], swapped: Mapping[str, str]) -> list[DataFinding]:
    """Return the findings; ``swapped`` as :func:`swapped_columns` gave it, ``alive`` without those joints."""
    return [*_swapped(swapped), *_leads(alive, pooled.dataset.info.rate_hz), *_freezes(pooled, alive)]


def relation_of(pooled: Pooled) -> dict[str, Any]:
    """Return how actions relate to the state of the same and of the next frame, over all shared dimensions and all frames that have a next one."""
    own, following, equal_own, equal_next, steps = 0.0, 0.0, 0, 0, 0
    for action, state in zip(pooled.actions, pooled.states, strict=True):
        a, s = (
            v[:, [getattr(j, side) for j in pooled.joints]]
            for v, side in ((action, "action"), (state, "state"))
        )
        if a.shape[1] == 0 or len(a) < 2:
            continue
        same, after = np.abs(a[:-1] - s[:-1]), np.abs(a[:-1] - s[1:])
        own, following = max(own, float(same.max())), max(following, float(after.max()))
        equal_own, equal_next = (
            equal_own + int((same == 0).all(axis=1).sum()),
            equal_next + int((after == 0).all(axis=1).sum()),
        )
        steps += len(after)
    return {
        "shared_dimensions": len(pooled.joints),
        "matched_by_name": pooled.matched_by_name,
        "largest_action_minus_state": own if steps else None,
        "largest_action_minus_next_state": following if steps else None,
        "share_of_frames_equal_to_state": equal_own / steps if steps else None,
        "share_of_frames_equal_to_next_state": equal_next / steps if steps else None,
    }


def swapped_columns(pooled: Pooled, alive: list[Tracking]) -> dict[str, str]:
    """Return the joints whose action another column follows: joint -> that column.

    Joints may move together, so a column counts only if it follows this action much better than the joint's
    own column does and much better than it follows the action it is named after.
    """
    moving = [t for t in alive if not is_idle(t, alive)]
    if len(moving) < 2:
        return {}
    unexplained = _unexplained(pooled, {t.lag_frames or 0 for t in moving})
    joints = {j.name: j for j in pooled.joints}
    named = {j.state: j.action for j in pooled.joints}
    swapped = {}
    for t in moving:
        joint = joints[t.name]
        row = unexplained[joint.action]
        best = int(np.argmin(row))
        is_follower = best != joint.state and row[best] <= _FOLLOWS and _BETTER * row[best] < row[joint.state]
        if is_follower and (best not in named or unexplained[named[best], best] > _BETTER * row[best]):
            swapped[t.name] = pooled.state_names[best]
    return swapped


def _unexplained(pooled: Pooled, lags: set[int]) -> NDArray[np.float64]:
    """Return what each state column leaves unexplained of each action at its best lag, ``(A, S)`` of 0 to 1; 1 where they move against each other.

    The lags tried are those of the joints and some between: motion is smooth, and a lag that is nearly right
    tells a stranger from a follower.
    """
    pairs = list(zip(pooled.actions, pooled.states, strict=True))
    longest = longest_lag(pairs, pooled.dataset.info.rate_hz)
    stride = max(1, sum(len(a) for a, _ in pairs) // _ROWS)
    best = np.zeros((pairs[0][0].shape[1], pairs[0][1].shape[1]))
    steps = max(1, longest // 12)
    for lag in sorted({k for k in lags if k <= longest} | set(range(0, longest + 1, steps))):
        a, s = (_standardised(v[::stride]) for v in shifted(pairs, lag))
        best = np.maximum(best, a.T @ s / max(1, len(a)))
    return np.asarray(1.0 - np.clip(best, 0.0, 1.0) ** 2)


def _standardised(values: NDArray[np.float64]) -> NDArray[np.float64]:
    centred = values - values.mean(axis=0)
    spread = centred.std(axis=0)
    return np.asarray(np.divide(centred, spread, out=np.zeros_like(centred), where=spread > 0))


def _swapped(swapped: Mapping[str, str]) -> list[DataFinding]:
    if not swapped:
        return []
    parts = [f"{other} follows the action of {name}" for name, other in swapped.items()]
    return [
        DataFinding(
            code="columns_swapped",
            severity=Severity.FAULT,
            sentence=f"state columns are in another order than their names say: {listed(parts)}",
            remedy="correct the order of the names or of the columns, in the action or in the state",
            joints=tuple(swapped),
            numbers={"follower": dict(swapped)},
        )
    ]


def _leads(alive: list[Tracking], rate_hz: float) -> list[DataFinding]:
    moving = [t for t in alive if not is_idle(t, alive)]
    ahead = {t.name: t.lead_frames for t in moving if t.lead_frames is not None}
    if not ahead or 2 * len(ahead) < len(moving):
        return []
    low, high = min(ahead.values()), max(ahead.values())
    span = f"{low} to {number_of(high, 'frame')}" if low != high else f"{number_of(low, 'frame')}"
    each = listed([f"{n} {k}" for n, k in ahead.items()], 8)
    return [
        DataFinding(
            code="state_leads_action",
            severity=Severity.FAULT,
            sentence=(
                f"the state moves {span} ({1e3 * low / rate_hz:.0f} to {1e3 * high / rate_hz:.0f} ms) before"
                f" its action: {each}; no command acts backwards, so the columns are shifted against each"
                " other"
            ),
            remedy="find where they were aligned; action[t] is the command sent after state[t] was read",
            joints=tuple(ahead),
            numbers={n: {"lead_frames": k, "ms": 1e3 * k / rate_hz} for n, k in ahead.items()},
        )
    ]


def _freezes(pooled: Pooled, alive: list[Tracking]) -> list[DataFinding]:
    joints = {j.name: j for j in pooled.joints}
    least = max(_FROZEN_FRAMES, round(_FROZEN_S * pooled.dataset.info.rate_hz))
    frozen: dict[str, dict[int, int]] = {}
    for t in alive:
        joint = joints[t.name]
        if joint.is_gripper or t.saturation or t.load or is_idle(t, alive):
            continue
        states = [s[:, joint.state] for s in pooled.states]
        ends = (min(float(s.min()) for s in states), max(float(s.max()) for s in states))
        # a state that waits for its command is not frozen
        lag = -t.lead_frames if t.lead_frames is not None else t.lag_frames or 0
        for number, action, state in zip(pooled.indices, pooled.actions, states, strict=True):
            command = action[np.clip(np.arange(len(state)) - lag, 0, len(state) - 1), joint.action]
            start = _frozen_from(command, state, least, _FROZEN_TRAVEL * t.action_range)
            # a joint may rest at the end of its travel
            if start is not None and float(state[start]) not in ends:
                frozen.setdefault(t.name, {})[number] = start
    if not frozen:
        return []
    first = {n: next(iter(e.items())) for n, e in frozen.items()}
    parts = [
        f"{n} in {len(frozen[n])} episode{'s' if len(frozen[n]) > 1 else ''}, first in episode {e} from"
        f" frame {k}"
        for n, (e, k) in first.items()
    ]
    return [
        DataFinding(
            code="state_freezes",
            severity=Severity.FAULT,
            sentence=f"the state stays at one exact value while its action moves on: {listed(parts)}",
            remedy=(
                "drop these episodes; check the encoder, its cable and the bus for reads that were never"
                " answered"
            ),
            joints=tuple(frozen),
            numbers={
                n: {"first_frame": {str(e): k for e, k in episodes.items()}} for n, episodes in frozen.items()
            },
        )
    ]


def _frozen_from(
    action: NDArray[np.float64], state: NDArray[np.float64], least: int, travel: float
) -> int | None:
    """Return where a run of at least ``least`` equal states begins during which the action moves more than ``travel``.

    A joint that something blocks stays as still, but moves on when its command comes back to where it is; an
    encoder that froze leaps.
    """
    breaks = np.concatenate([[0], np.flatnonzero(np.diff(state) != 0) + 1, [len(state)]])
    for start, stop in pairwise(breaks):
        off = np.abs(action[start:stop] - state[start])
        if (
            stop - start >= least
            and float(np.ptp(action[start:stop])) > travel
            and (stop == len(state) or off[-1] > 0.5 * off.max())
        ):
            return int(start)
    return None
