"""What lies outside the middle 98 %: extremes measured in widths of that band, and tails that only the standard deviation shows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simgap.checks.data.report import DataFinding, Severity, listed
from simgap.checks.data.statistics.facts import gripper_dimensions
from simgap.checks.data.statistics.forms import bounded_rows
from simgap.episodes.statistics.files import StatisticsBlock

OUTLIER = 5.0
"""An extreme this many band widths (q99 - q01) beyond its end is an outlier: a million normal frames reach 0.6, Laplace's 1.2."""
_OUTSIDE = 0.02


def band_excess(block: StatisticsBlock) -> NDArray[np.float64]:
    """Return how far the extremes lie beyond the band from q01 to q99, in widths of the band, ``(D,)``; 0 where that is undefined.

    Measured from the ends of the band, never about zero: a band that lies left or right of zero, or ends near
    it, has no ratio to it.
    """
    if not all(n in block.values for n in ("min", "max", "q01", "q99")):
        return np.zeros(block.size)
    low, high, q01, q99 = (block.values[n] for n in ("min", "max", "q01", "q99"))
    width = q99 - q01
    beyond = np.maximum(high - q99, q01 - low)
    return np.where(width > 0, np.maximum(beyond, 0.0) / np.where(width > 0, width, 1.0), 0.0)


def tail_rms(block: StatisticsBlock) -> NDArray[np.float64]:
    """Return the least root mean square distance from the mean of the 2 % outside ``[q01, q99]``, ``(D,)``; 0 where none is implied.

    98 % of the values lie within the band, at most ``w`` from the mean, so ``std^2 <= 0.98 w^2 + 0.02
    rms^2``.
    """
    mean, std, q01, q99 = (block.get(n) for n in ("mean", "std", "q01", "q99"))
    if mean is None or std is None or q01 is None or q99 is None:
        return np.zeros(block.size)
    reach = np.maximum(q99 - mean, mean - q01)
    squares = np.maximum(std**2 - (1.0 - _OUTSIDE) * reach**2, 0.0) / _OUTSIDE
    return np.where((std > reach) & (q99 > q01), np.sqrt(squares), 0.0)


def _free(block: StatisticsBlock) -> NDArray[np.bool_]:
    """Return the dimensions that can have outliers, ``(D,)``: scaled, no gripper, no entry of a rotation."""
    free = block.scaled.copy()
    free[gripper_dimensions(block)] = False
    free[sorted(bounded_rows(block))] = False
    return free


def outliers(blocks: Sequence[StatisticsBlock]) -> list[DataFinding]:
    """Return extremes that would crush the signal if a policy were scaled by min and max."""
    bad: dict[str, dict[int, float]] = {}
    for b in (b for b in blocks if not b.is_image):
        excess = band_excess(b)
        far = np.flatnonzero((excess >= OUTLIER) & _free(b))
        if len(far):
            bad[b.name] = {int(k): float(excess[k]) for k in far}
    if not bad:
        return []
    order = sorted(bad, key=lambda n: -max(bad[n].values()))
    parts = [
        f"{n} by {max(bad[n].values()):.3g} widths on dimension {max(bad[n], key=bad[n].__getitem__)}"
        for n in order
    ]
    return [
        DataFinding(
            code="outliers",
            severity=Severity.WARNING,
            sentence=(
                "extremes lie far outside the band of the middle 98 % (q01 to q99), so scaling by min and"
                f" max crushes the signal: {listed(parts, 5)}"
            ),
            remedy=(
                "scale by quantiles, or remove the broken frames; never put min and max where quantiles are"
                " missing"
            ),
            feature=order[0],
            numbers={"band_widths": {n: bad[n] for n in order}},
        )
    ]


def heavy_tails(blocks: Sequence[StatisticsBlock]) -> list[DataFinding]:
    """Return dimensions whose standard deviation is larger than their band allows: what lies outside it must lie far outside."""
    bad: dict[str, dict[int, dict[str, float]]] = {}
    for b in (b for b in blocks if not b.is_image):
        rms = tail_rms(b)
        for k in np.flatnonzero((rms > 0) & _free(b)):
            low, high, std = (float(b.values[n][k]) for n in ("q01", "q99", "std"))
            bad.setdefault(b.name, {})[int(k)] = {
                "q01": low,
                "q99": high,
                "std": std,
                "rms_outside": float(rms[k]),
                "rms_at_most": std / _OUTSIDE**0.5,
            }
    if not bad:
        return []
    parts = [
        f"dimension {k} of {n}: {_tail_words(v)}" for n, entries in bad.items() for k, v in entries.items()
    ]
    return [
        DataFinding(
            code="heavy_tail",
            severity=Severity.WARNING,
            sentence=(
                "a standard deviation cannot come from the middle 98 % of the frames, the other 2 % lie far"
                " outside: "
            )
            + listed(parts, 3),
            remedy=(
                "look at those frames (a jump, a wrap, a broken record); until then scale by quantiles: mean"
                " and std would shrink the signal"
            ),
            feature=next(iter(bad)),
            numbers={"tails": bad},
        )
    ]


def _tail_words(v: dict[str, float]) -> str:
    times, ends = 2.0 * v["rms_outside"] / (v["q99"] - v["q01"]), f"{v['q01']:.3g} to {v['q99']:.3g}"
    return (
        f"std {v['std']:.3g}, but 98 % lie within {ends}; the rest lie {v['rms_outside']:.3g} to"
        f" {v['rms_at_most']:.3g} from the mean (root mean square; {times:.0f} times half the band or more)"
    )
