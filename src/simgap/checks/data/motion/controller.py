"""Do actions fit the controller that they went through, by the settings that are stored beside them."""

from __future__ import annotations

import numpy as np

from simgap.checks.data.pooled import Pooled
from simgap.checks.data.report import DataFinding, Severity, listed
from simgap.episodes.formats.hdf5 import stored_input_range
from simgap.episodes.formats.layout import ROBOMIMIC_HDF5

_BEYOND = 1e-3
"""Share of the range that rounding may add."""


def check_controller(pooled: Pooled) -> list[DataFinding]:
    """Compare actions of a robomimic file with the input range in its ``env_args``; what lies outside is clipped before it acts."""
    if pooled.dataset.info.version != ROBOMIMIC_HDF5:
        return []
    taken = stored_input_range(pooled.dataset.entries)
    if taken is None:
        return []
    action = pooled.pooled(pooled.dataset.action_key)[:, : taken.dimensions]
    ends = (taken.lows, taken.highs) if len(taken.lows) == action.shape[1] else (taken.low, taken.high)
    lows, highs = (np.broadcast_to(np.asarray(end, dtype=np.float64), action.shape[1]) for end in ends)
    margin = _BEYOND * (highs - lows)
    outside = (action < lows - margin) | (action > highs + margin)
    if not outside.any():
        return []
    shares = {n: float(s) for n, s in zip(pooled.action_names, outside.mean(axis=0), strict=False) if s > 0}
    beyond = outside.any(axis=0)
    low, high = float(action[:, beyond].min()), float(action[:, beyond].max())
    above = action.max(axis=0) / np.where(highs > 0, highs, np.inf)
    below = action.min(axis=0) / np.where(lows < 0, lows, -np.inf)
    factor = float(np.maximum(above, below)[beyond].max())
    least, most = float(lows[beyond].min()), float(highs[beyond].max())
    parts = [f"{n} in {100 * s:.3g} % of frames" for n, s in shares.items()]
    return [
        DataFinding(
            code="actions_beyond_controller",
            severity=Severity.FAULT,
            sentence=(
                f"actions reach {low:.4g} to {high:.4g} where env_args says that {listed(list(taken.kinds))}"
                f" takes {least:g} to {most:g}: {100 * float(outside.any(axis=1).mean()):.3g} % of frames are"
                f" clipped before they act ({listed(parts)})"
            ),
            remedy=(
                f"find out in which units they were recorded: divided by {factor:.3g} they would fit; or"
                " correct the input range in env_args. A replay of these actions is not what was"
                " demonstrated"
            ),
            feature=pooled.dataset.action_key,
            joints=tuple(shares),
            numbers={
                "input_range": [least, most],
                "actions": [low, high],
                "share_of_frames": shares,
                "factor": factor,
            },
        )
    ]
