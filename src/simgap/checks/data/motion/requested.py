"""Was what the data call an action really sent: requests that a safety limit cut before the robot saw them.

A recorder that keeps the request and not what came back from the driver teaches commands that were never
executed. Where the sent command is a column, the two are compared; where an action is a velocity and the
state integrates it, the state tells.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.checks.data.pooled import Pooled
from simgap.checks.data.report import DataFinding, Severity, listed

Array = NDArray[np.float64]

_SENT = re.compile(r"(sent|executed|applied|performed|clipped)", re.IGNORECASE)
_SHARE = 0.01
_FEWEST = 12
_FITS = 0.95


def check_requested(pooled: Pooled) -> list[DataFinding]:
    """Return the finding about requests that were not sent, if there are any."""
    cut = _from_columns(pooled) or _from_motion(pooled)
    if not cut:
        return []
    parts = [
        f"{n} in {100 * v['share']:.0f} % of frames"
        + (f", cut to {v['limit']:.3g}" if v["limit"] is not None else "")
        for n, v in cut.items()
    ]
    return [
        DataFinding(
            code="requested_not_sent",
            severity=Severity.WARNING,
            sentence=f"the action is what was requested, not what was sent: {listed(parts)}",
            remedy=(
                "keep both columns and say which one the policy learns; a request beyond the limit is a"
                " command that the robot never executed"
            ),
            feature=pooled.dataset.action_key,
            joints=tuple(cut),
            numbers=cut,
        )
    ]


def _from_columns(pooled: Pooled) -> dict[str, dict[str, Any]]:
    """Compare the action with a column of what was sent.

    In our own data ``executed_action`` differs from the label by the noise that a teacher recovers from;
    there, only commands that stand at one limit count.
    """
    action = pooled.pooled(pooled.dataset.action_key)
    found: dict[str, dict[str, Any]] = {}
    for key in _sent_columns(pooled, action.shape[1]):
        sent = pooled.pooled(key)
        spread = np.maximum(np.ptp(action, axis=0), 1e-9)
        for k, name in enumerate(pooled.action_names):
            differs = np.abs(sent[:, k] - action[:, k]) > 1e-4 * spread[k]
            at_limit = differs & ((sent[:, k] == sent[:, k].max()) | (sent[:, k] == sent[:, k].min()))
            if pooled.dataset.is_ours:
                differs = at_limit
            if differs.mean() >= _SHARE and differs.sum() >= _FEWEST:
                is_cut = at_limit.sum() >= 0.9 * differs.sum()
                found[name] = _cut(action[differs, k], sent[differs, k], differs) | {"column": key}
                found[name]["limit"] = float(np.abs(sent[differs, k]).max()) if is_cut else None
    return found


def _sent_columns(pooled: Pooled, width: int) -> list[str]:
    """Return the columns that hold what was sent; two actions of one width are compared by position, like their names."""
    own = pooled.dataset.action_key
    columns = [
        k
        for k in pooled.episodes[0]
        if k != own and _SENT.search(k) and re.search(r"action|command", k, re.IGNORECASE)
    ]
    return [
        k
        for k in columns
        if all(k in e and e[k].reshape(len(e[k]), -1).shape[1] == width for e in pooled.episodes)
    ]


def _from_motion(pooled: Pooled) -> dict[str, dict[str, Any]]:
    """Find velocities that the state follows up to a limit and no further."""
    stems = {re.sub(r"[._](pos|position)$", "", n): k for k, n in enumerate(pooled.state_names)}
    found: dict[str, dict[str, Any]] = {}
    for k, name in enumerate(pooled.action_names):
        stem, changes = re.subn(r"[._](vel|velocity)$", "", name)
        if changes and stem in stems:
            cut = _integrated(pooled, k, stems[stem])
            if cut:
                found[name] = cut
    return found


def _integrated(pooled: Pooled, action: int, state: int) -> dict[str, Any]:
    sides = zip(pooled.actions, pooled.states, strict=True)
    pairs = [(a[:-1, action], np.diff(s[:, state])) for a, s in sides if len(a) > 1]
    if not pairs:
        return {}
    asked, moved = (np.concatenate([p[k] for p in pairs]) for k in (0, 1))
    for rate in (pooled.dataset.info.rate_hz, 1.0):  # a velocity by the second, or by the frame
        speed = moved * rate
        limit = float(np.quantile(np.abs(speed), 0.995))
        free, beyond = np.abs(asked) < 0.98 * limit, np.abs(asked) > 1.05 * limit
        if (
            limit <= 0
            or free.sum() < _FEWEST
            or beyond.sum() < _FEWEST
            or beyond.mean() < _SHARE
            or np.ptp(asked[free]) == 0
            or np.ptp(speed[free]) == 0
        ):
            continue
        follows = (
            float(np.corrcoef(asked[free], speed[free])[0, 1]) ** 2 > _FITS
            and abs(_slope(asked[free], speed[free]) - 1.0) < 0.1
        )
        stops = np.mean(np.abs(np.abs(speed[beyond]) - limit) < 0.02 * limit) > 0.9
        if follows and stops:
            return _cut(asked[beyond], speed[beyond], beyond) | {"column": None, "limit": limit}
    return {}


def _cut(asked: Array, done: Array, where: NDArray[np.bool_]) -> dict[str, Any]:
    return {"share": float(where.mean()), "frames": int(where.sum()), "slope_on_clipped": _slope(asked, done)}


def _slope(asked: Array, done: Array) -> float:
    """Return the slope through the origin."""
    return float(asked @ done / (asked @ asked)) if asked @ asked > 0 else 0.0
