"""Statistics that no data can have: out of order, impossible spreads, averaged quantiles, targets polluted by minus the state."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.checks.data.report import DataFinding, Severity, listed
from simgap.episodes.statistics.files import StatisticsBlock

_ORDER = ("min", "q01", "q10", "q50", "q90", "q99", "max")
_SLACK = 1e-6
_ROUNDING = 1e-5
"""Float32 carries seven digits: values closer than this share of their size may be one value."""
_CANTELLI = {
    q: (((1 - p) / p) ** 0.5, (p / (1 - p)) ** 0.5)
    for q, p in (("q01", 0.01), ("q10", 0.1), ("q50", 0.5), ("q90", 0.9), ("q99", 0.99))
}
"""Standard deviations by which a quantile of any data can lie below and above the mean (Cantelli's inequality)."""
_CANTELLI_SLACK = 0.15
"""Standard deviations left for quantiles that interpolate between few values."""
_MANY = 1000
"""Values from which 1 % is a share and not one value."""


def std_floor(
    mean: NDArray[np.float64], q01: NDArray[np.float64], q99: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the smallest standard deviation that mean and quantiles allow, ``(D,)``.

    One in a hundred values lies at or below q01 and one in a hundred at or above q99, so
    ``var >= 0.01 (mean - q01)^2 + 0.01 (q99 - mean)^2``.
    """
    low, high = np.maximum(mean - q01, 0.0), np.maximum(q99 - mean, 0.0)
    return np.asarray(np.sqrt(0.01 * low**2 + 0.01 * high**2), dtype=np.float64)


def std_ceiling(
    mean: NDArray[np.float64], low: NDArray[np.float64], high: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the largest standard deviation of numbers between two limits with this mean (Bhatia and Davis 2000), ``(D,)``."""
    return np.asarray(np.sqrt(np.maximum(high - mean, 0.0) * np.maximum(mean - low, 0.0)), dtype=np.float64)


def contradictions(blocks: Sequence[StatisticsBlock]) -> list[DataFinding]:
    """Return numbers that no data can have: out of order, negative spread, a mean outside the range, NaN."""
    bad: dict[str, list[str]] = {}
    for b in blocks:
        texts = [
            f"{name}[{k}] is {v[k]}" for name, v in b.values.items() for k in np.flatnonzero(~np.isfinite(v))
        ]
        present = [n for n in _ORDER if n in b.values]
        for low, high in pairwise(present):
            off = b.values[low] - b.values[high] > _SLACK * np.maximum(1.0, np.abs(b.values[low]))
            texts += [
                f"{low}[{k}] = {b.values[low][k]:.4g} above {high}[{k}] = {b.values[high][k]:.4g}"
                for k in np.flatnonzero(off)
            ]
        if (std := b.get("std")) is not None:
            texts += [f"std[{k}] = {std[k]:.4g}" for k in np.flatnonzero(std < 0)]
        if (mean := b.get("mean")) is not None and "min" in b.values and "max" in b.values:
            slack = _SLACK * np.maximum(1.0, np.abs(mean))
            outside = (mean < b.values["min"] - slack) | (mean > b.values["max"] + slack)
            texts += [
                f"mean[{k}] = {mean[k]:.4g} outside [{b.values['min'][k]:.4g}, {b.values['max'][k]:.4g}]"
                for k in np.flatnonzero(outside)
            ]
        texts += [*_zero_spread(b), *_far_quantiles(b)]
        if texts:
            bad[b.name] = texts
    if not bad:
        return []
    return [
        DataFinding(
            code="contradictory_statistics",
            severity=Severity.FAULT,
            sentence="no data have these statistics: "
            + listed([f"{n}: {listed(t, 2)}" for n, t in bad.items()], 2),
            remedy="compute them again from pooled rows in float64",
            feature=next(iter(bad)),
            numbers={"contradictions": bad},
        )
    ]


def _zero_spread(block: StatisticsBlock) -> list[str]:
    """Say where the standard deviation is 0 although the values differ by more than rounding."""
    std, low, high = (block.get(n) for n in ("std", "min", "max"))
    if std is None or low is None or high is None:
        return []
    apart = (std == 0) & (high - low > _ROUNDING * np.maximum(np.abs(low), np.abs(high)))
    return [
        f"std[{k}] = 0 while min {low[k]:.4g} and max {high[k]:.4g} differ" for k in np.flatnonzero(apart)
    ]


def _far_quantiles(block: StatisticsBlock) -> list[str]:
    """Say where a quantile is on the wrong side of the mean by more than Cantelli's inequality allows any data."""
    mean, std = block.get("mean"), block.get("std")
    if mean is None or std is None:
        return []
    texts = []
    for name, (below, above) in _CANTELLI.items():
        if (q := block.get(name)) is not None:
            below = np.inf if name == "q01" else below  # the far side of these is the bound of impossible_std
            above = np.inf if name == "q99" else above
            room = _CANTELLI_SLACK * std + 1e-6 * np.maximum(1.0, np.abs(mean))
            away = np.where(std > 0, std, 1.0)
            off = (q < mean - below * away - room) | (q > mean + above * away + room)
            texts += [
                f"{name}[{k}] = {q[k]:.4g}, but mean {mean[k]:.4g} and std {std[k]:.4g} rule it out"
                for k in np.flatnonzero(off)
            ]
    return texts


def impossible_std(blocks: Sequence[StatisticsBlock]) -> list[DataFinding]:
    """Return standard deviations that the same block's mean, quantiles or extremes rule out."""
    bad = {b.name: entries for b in blocks if (entries := [*_too_small(b), *_too_large(b)])}
    if not bad:
        return []
    parts = [f"std[{v[0]['dimension']}] of {n} is {v[0]['std']:.4g}, {_bound(v[0])}" for n, v in bad.items()]
    return [
        DataFinding(
            code="impossible_std",
            severity=Severity.FAULT,
            sentence=f"standard deviations contradict the other statistics beside them: {listed(parts, 3)}",
            remedy=(
                "compute them again in float64 from pooled values: squares of uint8 overflow, and the spread"
                " of episode means is no spread of pixels"
            ),
            feature=next(iter(bad)),
            numbers={"impossible": bad},
        )
    ]


def _too_small(block: StatisticsBlock) -> list[dict[str, float]]:
    mean, std, low, high = (block.get(n) for n in ("mean", "std", "q01", "q99"))
    if std is None or low is None or high is None:
        return []
    middle = (low + high) / 2 if mean is None else mean  # the mean that allows the smallest
    floor = std_floor(middle, low, high)
    return [
        {"dimension": int(k), "std": float(std[k]), "at_least": float(floor[k])}
        for k in np.flatnonzero(std < 0.9 * floor - 1e-12)
    ]


def _too_large(block: StatisticsBlock) -> list[dict[str, float]]:
    mean, std, low, high = (block.get(n) for n in ("mean", "std", "min", "max"))
    if std is None or low is None or high is None:
        return []
    # without a mean Popoviciu's inequality: half the range
    middle = (low + high) / 2 if mean is None else mean
    ceiling = std_ceiling(middle, low, high)
    q01, q99 = block.get("q01"), block.get("q99")
    if (
        mean is not None
        and q01 is not None
        and q99 is not None
        and block.count is not None
        and block.count >= _MANY
    ):
        inside, outside = np.maximum(q99 - mean, mean - q01), np.maximum(high - mean, mean - low)
        # 2 % and the values at the ends
        ceiling = np.minimum(ceiling, np.sqrt(0.98 * inside**2 + 0.022 * outside**2))
    over = std > 1.02 * ceiling + 1e-4 * np.abs(middle) + 1e-9
    return [
        {"dimension": int(k), "std": float(std[k]), "at_most": float(ceiling[k])}
        for k in np.flatnonzero(over)
    ]


def _bound(entry: dict[str, float]) -> str:
    if "at_least" in entry:
        return f"its quantiles demand at least {entry['at_least']:.4g}"
    return f"its extremes and quantiles allow at most {entry['at_most']:.4g}"


def averaged_quantiles(blocks: Sequence[StatisticsBlock]) -> list[DataFinding]:
    """Return bookkeeping columns that show per-episode quantiles averaged over episodes: ``index`` counts all rows, so its quantiles are known."""
    bad = {}
    for b in blocks:
        if b.key != "index" or b.size != 1 or not all(n in b.values for n in ("min", "max", "q01", "q99")):
            continue
        low, high, q01, q99 = (float(b.values[n][0]) for n in ("min", "max", "q01", "q99"))
        if high > low and (q99 - q01) < 0.9 * (high - low):
            bad[b.name] = {
                "q01": q01,
                "q99": q99,
                "true_q01": low + 0.01 * (high - low),
                "true_q99": low + 0.99 * (high - low),
            }
    if not bad:
        return []
    name, v = next(iter(bad.items()))
    return [
        DataFinding(
            code="quantiles_are_episode_means",
            severity=Severity.FAULT,
            sentence=(
                f"{name} counts the rows: its 1 % and 99 % are {v['true_q01']:.0f} and {v['true_q99']:.0f},"
                f" stored are {v['q01']:.0f} and {v['q99']:.0f}: quantiles of episodes were averaged, in"
                " every feature of this file"
            ),
            remedy=(
                "recompute from pooled rows; policies that scale by quantiles are affected, those that scale"
                " by mean and std are not"
            ),
            feature=name,
            numbers=bad,
        )
    ]


def polluted_targets(blocks: Sequence[StatisticsBlock]) -> list[DataFinding]:
    """Find relative targets (target minus state) of which a share is minus the state, because the target was zero or missing."""
    found = []
    for action in (b for b in blocks if b.key in ("action", "actions")):
        for state in (
            b
            for b in blocks
            if b.key in ("state", "observation.state") and b.group == action.group and b.file == action.file
        ):
            numbers = pollution(action, state)
            if numbers is None:
                continue
            found.append(
                DataFinding(
                    code="relative_targets_polluted",
                    severity=Severity.FAULT,
                    sentence=(
                        f"{action.name}: over {numbers['dimensions']} dimensions the mean action is"
                        f" {numbers['slope']:.2f} times the mean state (correlation"
                        f" {numbers['correlation']:.4f}): what target minus state gives when about"
                        f" {numbers['share']:.0%} of the targets are zero"
                    ),
                    remedy=(
                        "drop padded or missing targets and compute the statistics again; a policy normalised"
                        " with these is pulled towards minus the state"
                    ),
                    feature=action.name,
                    numbers=numbers,
                )
            )
    return found


def pollution(action: StatisticsBlock, state: StatisticsBlock) -> dict[str, Any] | None:
    """Return the evidence that a share of relative actions is minus the state, None where there is none.

    If a share p of ``target - state`` has target 0 and the rest is near 0, then ``mean(a) = -p mean(s)`` in
    every dimension and ``var(a) = p var(s) + p (1 - p) mean(s)^2``; p is the same for all dimensions, which
    no honest action has.
    """
    n = min(action.size, state.size)
    means, spreads = [(b.get("mean"), b.get("std")) for b in (action, state)], None
    if n < 6 or any(v is None for pair in means for v in pair):
        return None
    (ma, sa), (ms, ss) = (tuple(np.asarray(v)[:n] for v in pair) for pair in means)
    used = ss > 0
    if used.sum() < 6 or np.ptp(ms[used]) == 0 or np.ptp(ma[used]) == 0:
        return None
    ma, sa, ms, ss = ma[used], sa[used], ms[used], ss[used]
    correlation = float(np.corrcoef(ma, ms)[0, 1])
    slope = float(ma @ ms / (ms @ ms))
    share = -slope
    if correlation > -0.98 or not 0.02 < share < 0.98:
        return None
    spreads = sa / np.sqrt(share * ss**2 + share * (1.0 - share) * ms**2)
    return {
        "dimensions": int(used.sum()),
        "correlation": correlation,
        "slope": slope,
        "share": share,
        "std_over_mixture": {"min": float(spreads.min()), "max": float(spreads.max())},
        "std_action_over_state": (sa / ss).tolist(),
    }
