"""Do the limits that a dataset declares guard its channels, or are they in another unit and never act."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.checks.data.pooled import Pooled
from simgap.checks.data.report import DataFinding, Severity, listed
from simgap.conventions import Dimension
from simgap.episodes.formats.vectors import UNLIMITED

_CHANNELS = ((0.0, 1.0), (-1.0, 1.0), (0.0, 100.0), (-100.0, 100.0))
"""What a channel that counts along a range runs between."""
_TOUCHES = 0.005
"""Distance from an end, in widths of the channel, that counts as standing at it."""
_SHARE = 0.01
_WIDER = 0.1


def check_limits(pooled: Pooled) -> list[DataFinding]:
    """Return the finding about limits that cannot act; only our own specs declare any."""
    if not pooled.dataset.is_ours:
        return []
    inert: dict[str, dict[str, Any]] = {}
    sides = (
        (pooled.dataset.action_key, pooled.dataset.spec.action_spec),
        (pooled.dataset.state_key, pooled.dataset.spec.state_spec),
    )
    for key, spec in sides:
        values = pooled.pooled(key)
        for k, dimension in enumerate(spec.dimensions):
            channel = channel_of(values[:, k])
            if channel is not None and is_inert(dimension, channel):
                numbers = {
                    "declared": [dimension.low, dimension.high],
                    "unit": str(dimension.unit),
                    "channel": list(channel),
                }
                inert.setdefault(dimension.name, numbers)
    if not inert:
        return []
    ends = {n: (*v["declared"], v["unit"], *v["channel"]) for n, v in inert.items()}
    parts = [
        f"{n} declares {a:g}..{b:g} {unit} and runs from {c:g} to {d:g}"
        for n, (a, b, unit, c, d) in ends.items()
    ]
    return [
        DataFinding(
            code="limits_inert",
            severity=Severity.FAULT,
            sentence=(
                "limits are in another unit than their channel, so no value is ever outside them:"
                f" {listed(parts)}"
            ),
            remedy=(
                "state unit and limits of the channel in the spec; a clamp with these limits lets through"
                " what the joint cannot do"
            ),
            joints=tuple(inert),
            numbers=inert,
        )
    ]


def channel_of(values: NDArray[np.float64]) -> tuple[float, float] | None:
    """Return the range a channel counts along where its values stand at both ends of one and never leave it.

    Args:
        values: all values of one dimension, ``(N,)``.
    """
    for low, high in _CHANNELS:
        near = _TOUCHES * (high - low)
        ends = [(np.abs(values - end) <= near).mean() for end in (low, high)]
        if values.min() >= low - near and values.max() <= high + near and min(ends) >= _SHARE:
            return low, high
    return None


def is_inert(dimension: Dimension, channel: tuple[float, float]) -> bool:
    """Return whether declared limits hold all that a channel can carry and more."""
    low, high = channel
    if dimension.high - dimension.low >= UNLIMITED or (
        low == 0.0 and dimension.low == -high and dimension.high == high
    ):
        # nobody stated limits, or it uses one half of a range about zero: a car that only goes forward
        return False
    margin = _WIDER * (high - low)
    holds = dimension.low <= low + 1e-9 and dimension.high >= high - 1e-9
    return holds and (dimension.low < low - margin or dimension.high > high + margin)
