"""A command clipped at a limit, or a state that stops while the command goes on."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.checks.data.pooled import Joint

FEWEST = 12


_BINS = 12


_ROUND_LIMITS = (1.0, 100.0, 180.0, 255.0, 360.0, 1023.0, 4095.0, float(np.pi))
"""Ends of common ranges; 0 and 90 are not among them, arms rest there."""


_SHORTEST_RUN = 3.0


def find_saturation(
    joint: Joint,
    a: NDArray[np.float64],
    s: NDArray[np.float64],
    firsts: NDArray[np.bool_],
    *,
    is_loaded: bool,
) -> dict[str, Any]:
    """Find a command clipped at a limit, or a state that stops while the command goes on; jaws fully open or closed are no limit."""
    command = {} if joint.is_gripper else _clipped(a, firsts)
    if command:
        return command
    return {} if is_loaded else _stopped(a, s)


def _clipped(a: NDArray[np.float64], firsts: NDArray[np.bool_]) -> dict[str, Any]:
    if len(np.unique(a)) <= 16:
        return {}
    speed = np.where(firsts[1:], 0.0, np.abs(np.diff(a)))  # nothing moves from one episode into the next
    fast = 0.2 * float(np.quantile(speed[speed > 0], 0.9)) if (speed > 0).any() else np.inf
    for side, limit in (("high", float(a.max())), ("low", float(a.min()))):
        at = a == limit
        entries = np.flatnonzero(~at[:-1] & at[1:] & ~firsts[1:])
        runs = int((at & (firsts | ~np.concatenate([[False], at[:-1]]))).sum())
        abrupt = int((speed[entries] >= fast).sum())
        is_round = any(abs(abs(limit) - r) <= 1e-6 * max(1.0, r) for r in _ROUND_LIMITS)
        if (
            at.sum() >= max(FEWEST, _SHORTEST_RUN * runs)
            and at.mean() >= 0.01
            and (is_round or (abrupt >= 3 and abrupt >= 0.5 * len(entries)))
        ):
            return {
                "mask": at,
                "what": "action",
                "side": side,
                "limit": limit,
                "frames": int(at.sum()),
                "share": float(at.mean()),
            }
    return {}


def _stopped(a: NDArray[np.float64], s: NDArray[np.float64]) -> dict[str, Any]:
    spread = float(np.ptp(a))
    edges = np.linspace(a.min(), a.max(), _BINS + 1)
    bins = np.clip(np.digitize(a, edges) - 1, 0, _BINS - 1)
    filled = [b for b in range(_BINS) if (bins == b).sum() >= 5]
    means = {b: float(s[bins == b].mean()) for b in filled}
    for side, order in (("high", filled[::-1]), ("low", filled)):
        flat = [
            b
            for k, b in enumerate(order)
            if all(abs(means[c] - means[order[0]]) < 0.02 * spread for c in order[: k + 1])
        ]
        rest = [b for b in order if b not in flat]
        inside = np.isin(bins, flat)
        if len(flat) < 3 or len(rest) < 2 or inside.mean() < 0.02 or s[inside].std() > 0.05 * spread:
            continue
        limit = means[order[0]]
        beyond = float(np.abs(a[inside] - limit).max())
        if beyond > 0.2 * spread and abs(means[rest[-1]] - limit) > 0.1 * spread:
            extreme = float(a.max() if side == "high" else a.min())
            return {
                "mask": inside,
                "what": "state",
                "side": side,
                "limit": limit,
                "command": extreme,
                "frames": int(inside.sum()),
                "share": float(inside.mean()),
            }
    return {}
