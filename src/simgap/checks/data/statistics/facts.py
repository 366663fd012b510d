"""Facts that a block of statistics tells by its form: padding, rotations, grippers, outliers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.episodes.statistics.files import StatisticsBlock


def facts_of(block: StatisticsBlock) -> dict[str, Any]:
    """Return what a block says, for machines."""
    width, std, mean = block.width, block.get("std"), block.get("mean")
    facts: dict[str, Any] = {
        "file": block.file,
        "dimensions": block.size,
        "statistics": sorted(block.values),
        "is_recorded": not block.is_all_zero,
    }
    if block.counts:
        facts |= dict(block.counts)
    if block.mask is not None:
        facts["not_normalised"] = [int(k) for k in np.flatnonzero(~block.mask)]
    if block.is_all_zero:
        return facts
    facts |= {"constant": block.constant(), "trailing_zeros": trailing_zeros(block)}
    if width is not None:
        facts["range"] = width.tolist()
        facts["gain_if_not_applied"] = [2.0 / w if w > 0 else None for w in width.tolist()]
    if std is not None:
        facts["std_min"] = {"dimension": int(std.argmin()), "value": float(std.min())}
    if mean is not None:
        facts["mean"] = mean.tolist()
    for name, ratio in side_ratios(block).items():
        facts[name] = [None if not np.isfinite(r) else float(r) for r in ratio]
    arms = rot6d_arms(block)
    if arms:
        facts["layout"] = {
            "arms": arms,
            "each": "3 position, 6-D rotation, gripper",
            "why": "entries 3 and 7 of every ten end at 1: rotation diagonals",
        }
    if (gripper := gripper_facts(block)) is not None:
        facts["gripper"] = gripper
    return facts


def trailing_zeros(block: StatisticsBlock) -> int:
    """Return how many dimensions at the end are zero in every statistic: padding to a model's width."""
    zero = np.all([v == 0.0 for v in block.values.values()], axis=0)
    return int(np.argmin(zero[::-1])) if not zero.all() else block.size


def rot6d_arms(block: StatisticsBlock) -> int:
    """Return the number of arms in a vector of ten a arm (3 position, 6-D rotation, gripper), 0 where it has no such form."""
    low, high = block.get("q01"), block.get("q99")
    if block.size % 10 or low is None or high is None:
        return 0
    ends = np.array([10 * arm + k for arm in range(block.size // 10) for k in (3, 7)])
    return (
        block.size // 10 if bool((np.abs(high[ends] - 1.0) < 1e-3).all() and (low[ends] > 0.9).all()) else 0
    )


def gripper_dimensions(block: StatisticsBlock) -> list[int]:
    """Return the dimensions that are grippers by the form of the vector: the unscaled last one, or each tenth of 6-D rotations."""
    if block.mask is not None and block.size and not block.mask[-1] and block.mask[:-1].any():
        return [block.size - 1]
    return [10 * arm + 9 for arm in range(rot6d_arms(block))]


def gripper_facts(block: StatisticsBlock) -> list[dict[str, Any]] | None:
    """Return range, share of time at the high end and binarity of each gripper; polarity cannot be told from statistics."""
    found = []
    for k in gripper_dimensions(block):
        low, high = (
            next((float(block.values[n][k]) for n in names if n in block.values), None)
            for names in (("min", "q01"), ("max", "q99"))
        )
        mean, std = (None if (v := block.get(n)) is None else float(v[k]) for n in ("mean", "std"))
        fact: dict[str, Any] = {
            "dimension": k,
            "low": low,
            "high": high,
            "mean": mean,
            "is_constant": low == high,
            "polarity": "not decidable from statistics",
        }
        if mean is not None and std is not None and low == 0.0 and high == 1.0:
            fact["is_binary"] = bool(std >= 0.95 * np.sqrt(mean * (1.0 - mean)))
        found.append(fact)
    return found or None


def side_ratios(block: StatisticsBlock) -> dict[str, NDArray[np.float64]]:
    """Return ``max_over_q99`` and ``min_over_q01``, ``(D,)`` each, NaN where a sign makes no ratio; empty without these statistics."""
    if not all(n in block.values for n in ("min", "max", "q01", "q99")):
        return {}
    ratios = {}
    for name, extreme, quantile, sign in (
        ("max_over_q99", "max", "q99", 1.0),
        ("min_over_q01", "min", "q01", -1.0),
    ):
        e, q = sign * block.values[extreme], sign * block.values[quantile]
        ratios[name] = np.where((q > 0) & (e > 0), e / np.where(q > 0, q, 1.0), np.nan)
    return ratios


def std_over_state(action: StatisticsBlock, blocks: Sequence[StatisticsBlock]) -> dict[str, Any]:
    """Return the spread of each action over that of the state at the same place, where both are there; small ratios hint at differences."""
    if action.key not in ("action", "actions") or "std" not in action.values:
        return {}
    for state in blocks:
        if (
            state.key in ("state", "observation.state", "proprio")
            and state.group == action.group
            and "std" in state.values
        ):
            n = min(action.size, state.size)
            spread = state.values["std"][:n]
            ratio = action.values["std"][:n] / np.where(spread > 0, spread, np.nan)
            return {"std_over_state": [None if not np.isfinite(r) else float(r) for r in ratio]}
    return {}
