"""Statistics that a normaliser stumbles over: zero ranges, padding, near-constants, outliers, wraps, other units."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from simgap.checks.data_report import DataFinding, Severity, listed
from simgap.checks.stats_bounds import averaged_quantiles, contradictions, impossible_std, polluted_targets
from simgap.checks.stats_facts import facts_of, gripper_dimensions, gripper_facts, outlier_ratio, std_over_state, trailing_zeros
from simgap.episodes.layout import INDEX_FEATURES
from simgap.episodes.statistics_files import StatisticsBlock

NEARLY_CONSTANT = 0.05
"""A range narrower than this share of its own largest value is a constant with noise on it."""
OUTLIER = 10.0
"""An extreme this many times beyond the 1 % or 99 % quantile is an outlier."""
TURN = 2.0 * float(np.pi)

Judged = tuple[dict[str, Any], list[DataFinding]]


def judge(blocks: Sequence[StatisticsBlock]) -> Judged:
    """Return measurements of every block and what is wrong with them."""
    whole = [b for b in blocks if b.is_even]
    live = [b for b in whole if not b.is_all_zero and b.key not in INDEX_FEATURES]
    bookkeeping = [b for b in whole if b.key in INDEX_FEATURES]
    measured = {b.name: facts_of(b) | std_over_state(b, whole) for b in whole}
    rules: tuple[Callable[[Sequence[StatisticsBlock]], list[DataFinding]], ...] = (
        contradictions,
        impossible_std,
        _constants,
        _padding,
        _nearly_constant,
        _outliers,
        _wraps,
        polluted_targets,
        _grippers,
        _units,
    )
    found = [*_uneven([b for b in blocks if not b.is_even]), *_absent([b for b in whole if b.is_all_zero and b.key not in INDEX_FEATURES]), *_incomplete(live)]
    for rule in rules:
        found += rule(live)
    found += [*contradictions(bookkeeping), *averaged_quantiles(bookkeeping)]
    if live:
        found.append(_unnamed(live))
    return measured, found


def _unnamed(blocks: Sequence[StatisticsBlock]) -> DataFinding:
    return DataFinding(
        code="dimensions_unnamed",
        severity=Severity.NOTE,
        sentence=f"nothing here names the dimensions of {listed([b.name for b in blocks])}, their units, or whether actions are absolute or differences",
        remedy="take names and units from the dataset; spreads alone (std of action over std of state) can only hint at differences",
        numbers={"dimensions": {b.name: b.size for b in blocks}},
    )


def _uneven(blocks: Sequence[StatisticsBlock]) -> list[DataFinding]:
    lengths = {b.name: {k: len(v) for k, v in b.values.items()} | ({} if b.mask is None else {"mask": len(b.mask)}) for b in blocks}
    if not lengths:
        return []
    return [
        DataFinding(
            code="statistics_of_different_length",
            severity=Severity.FAULT,
            sentence="statistics of one vector have different numbers of dimensions: " + listed([f"{n} {v}" for n, v in lengths.items()], 2),
            remedy="compute them again; a normaliser would fail or shift every dimension",
            numbers={"lengths": lengths},
        )
    ]


def _absent(blocks: Sequence[StatisticsBlock]) -> list[DataFinding]:
    if not blocks:
        return []
    names = [b.name for b in blocks]
    return [
        DataFinding(
            code="statistics_not_recorded",
            severity=Severity.NOTE,
            sentence=f"{len(names)} blocks are zero in every statistic ({listed(names)}): not recorded, no statistics of real values",
            remedy="do not normalise with them; leave these inputs out or compute them",
            numbers={"blocks": names},
        )
    ]


def _incomplete(blocks: Sequence[StatisticsBlock]) -> list[DataFinding]:
    by_missing: dict[str, list[str]] = {}
    for b in blocks:
        missing = [label for label, names in (("mean and std", ("mean", "std")), ("q01 and q99", ("q01", "q99"))) if not all(n in b.values for n in names)]
        for label in missing:
            by_missing.setdefault(label, []).append(b.name)
    return [
        DataFinding(
            code="statistics_incomplete",
            severity=Severity.NOTE,
            sentence=f"{len(names)} of {len(blocks)} blocks have no {label}: a policy that scales by them cannot use this file ({listed(names)})",
            remedy="compute them from the data; never put min and max where quantiles are missing",
            numbers={"missing": label, "blocks": names},
        )
        for label, names in by_missing.items()
    ]


def _constants(blocks: Sequence[StatisticsBlock]) -> list[DataFinding]:
    bad = {}
    for b in blocks:
        padding = set(range(b.size - trailing_zeros(b), b.size)) if b.mask is None else set()
        scaled = [k for k in b.constant() if b.scaled[k] and k not in padding]
        if scaled:
            bad[b.name] = scaled
    grippers = {b.name: k for b in blocks for k in gripper_dimensions(b) if k in b.constant()}
    found = []
    if bad:
        found.append(
            DataFinding(
                code="constant_dimensions",
                severity=Severity.WARNING,
                sentence=f"dimensions that a normaliser scales never change, so it divides by zero: {listed([f'{n} {v}' for n, v in bad.items()], 8)}",
                remedy="mask them: map them to 0 both ways, and watch at run time for values that leave the constant",
                feature=next(iter(bad)),
                numbers={"dimensions": bad},
            )
        )
    if grippers:
        found.append(
            DataFinding(
                code="constant_gripper",
                severity=Severity.WARNING,
                sentence=f"the gripper never moves in {listed(list(grippers))}",
                remedy="a policy trained on these alone cannot grasp; check that the channel was recorded",
                numbers={"dimensions": grippers},
            )
        )
    return found


def _padding(blocks: Sequence[StatisticsBlock]) -> list[DataFinding]:
    padded = {b.name: {"dimensions": b.size, "padding": n} for b in blocks if b.mask is None and (n := trailing_zeros(b)) > 0}
    if not padded:
        return []
    parts = [f"the last {v['padding']} of {v['dimensions']} dimensions of {n}" for n, v in padded.items()]
    return [
        DataFinding(
            code="padded_dimensions",
            severity=Severity.WARNING,
            sentence=f"{listed(parts)} are zero in every statistic: padding to a model's width, std 0 and q01 == q99",
            remedy="cut the padding off before scaling, or scale it with an epsilon and never send it to a robot",
            feature=next(iter(padded)),
            numbers={"padding": padded},
        )
    ]


def _nearly_constant(blocks: Sequence[StatisticsBlock]) -> list[DataFinding]:
    bad: dict[str, dict[int, float]] = {}
    for b in blocks:
        low, high = b.get("q01"), b.get("q99")
        if low is None or high is None or b.is_image:
            continue
        width, size = high - low, np.maximum(np.abs(low), np.abs(high))
        thin = (width > 0) & (width < NEARLY_CONSTANT * size) & b.scaled
        if thin.any():
            bad[b.name] = {int(k): float(2.0 / width[k]) for k in np.flatnonzero(thin)}
    if not bad:
        return []
    parts = [f"{n} {sorted(v)} (noise x{max(v.values()):.0f})" for n, v in bad.items()]
    return [
        DataFinding(
            code="nearly_constant_dimensions",
            severity=Severity.WARNING,
            sentence=f"dimensions hardly move beside their own value, so scaling by quantiles blows noise up to full range: {listed(parts)}",
            remedy="scale them by their limits (a rotation entry by -1..1), or leave them unscaled",
            feature=next(iter(bad)),
            numbers={"gain": bad},
        )
    ]


def _outliers(blocks: Sequence[StatisticsBlock]) -> list[DataFinding]:
    bad: dict[str, dict[int, float]] = {}
    for b in blocks:
        ratio = outlier_ratio(b)
        if b.is_image:
            continue
        far = np.flatnonzero(ratio >= OUTLIER)
        if len(far):
            bad[b.name] = {int(k): float(ratio[k]) for k in far}
    if not bad:
        return []
    order = sorted(bad, key=lambda n: -max(bad[n].values()))
    parts = [f"{n} x{max(bad[n].values()):.0f} on dimension {max(bad[n], key=bad[n].__getitem__)}" for n in order]
    return [
        DataFinding(
            code="outliers",
            severity=Severity.WARNING,
            sentence=f"extremes lie far beyond the 1 % and 99 % quantiles, so scaling by min and max would crush the signal: {listed(parts, 5)}",
            remedy="scale by quantiles, or remove the broken frames; never put min and max where quantiles are missing",
            feature=order[0],
            numbers={"ratio": {n: bad[n] for n in order}},
        )
    ]


def _wraps(blocks: Sequence[StatisticsBlock]) -> list[DataFinding]:
    seam: dict[str, list[int]] = {}
    turns: dict[str, list[int]] = {}
    for b in blocks:
        may_turn = ~np.isin(np.arange(b.size), gripper_dimensions(b))  # a gripper opens by anything and never wraps
        low, high, std = b.get("q01"), b.get("q99"), b.get("std")
        if low is not None and high is not None and std is not None:
            at = (np.abs(low + np.pi) < 0.02) & (np.abs(high - np.pi) < 0.02) & (std > 2.0) & may_turn
            if at.any():
                seam[b.name] = [int(k) for k in np.flatnonzero(at)]
        if (low := b.get("min")) is not None and (high := b.get("max")) is not None:
            at = ((np.abs(np.abs(low) - TURN) < 0.02) | (np.abs(np.abs(high) - TURN) < 0.02)) & may_turn
            if at.any():
                turns[b.name] = [int(k) for k in np.flatnonzero(at)]
    found = []
    if seam:
        found.append(
            DataFinding(
                code="wrapped_angle",
                severity=Severity.FAULT,
                sentence=f"angles sit at the +-pi seam: q01 = -pi, q99 = pi, std near pi in {listed([f'{n} {v}' for n, v in seam.items()])}",
                remedy="use a 6-D rotation or move the zero of the angle, then compute the statistics again",
                feature=next(iter(seam)),
                numbers={"dimensions": seam},
            )
        )
    if turns:
        found.append(
            DataFinding(
                code="whole_turn_steps",
                severity=Severity.WARNING,
                sentence=f"extremes are a whole turn (6.28): {listed([f'{n} {v}' for n, v in turns.items()])}; differences of angles that wrapped",
                remedy="subtract angles modulo a turn, and drop the frames that jump",
                feature=next(iter(turns)),
                numbers={"dimensions": turns},
            )
        )
    return found


def _grippers(blocks: Sequence[StatisticsBlock]) -> list[DataFinding]:
    ranges = {b.name: f for b in blocks for f in gripper_facts(b) or [] if not f["is_constant"] and f["high"] is not None}
    highs = {n: f["high"] for n, f in ranges.items()}
    if not highs or max(highs.values()) < 1.5 * min(highs.values()):
        return []
    ordered = sorted(highs, key=highs.__getitem__)
    return [
        DataFinding(
            code="gripper_ranges_differ",
            severity=Severity.NOTE,
            sentence=f"grippers have different ranges: {ordered[0]} ends at {highs[ordered[0]]:.3g}, {ordered[-1]} at {highs[ordered[-1]]:.3g}",
            remedy="look up the unit and which end is open before mixing; statistics do not say it",
            numbers={"high": highs},
        )
    ]


def _units(blocks: Sequence[StatisticsBlock]) -> list[DataFinding]:
    """Compare the same dimension between data sets of one file: ranges a thousandfold apart are other units."""
    rows = [b for b in blocks if b.width is not None and b.key.startswith("action") and b.group]
    found: dict[int, dict[str, Any]] = {}
    for k in range(min((b.size for b in rows), default=0)):
        spread = {b.group: float(w[k]) for b in rows if (w := b.width) is not None and w[k] > 0 and b.scaled[k]}
        if len(spread) > 1 and max(spread.values()) > 1000.0 * min(spread.values()):
            low, high = min(spread, key=spread.__getitem__), max(spread, key=spread.__getitem__)
            found[k] = {"smallest": {low: spread[low]}, "largest": {high: spread[high]}, "ratio": spread[high] / spread[low]}
    if not found:
        return []
    k, worst = max(found.items(), key=lambda item: float(item[1]["ratio"]))
    ends = " against ".join(f"{value:.3g} in {name}" for side in ("smallest", "largest") for name, value in worst[side].items())
    return [
        DataFinding(
            code="units_differ_between_sets",
            severity=Severity.WARNING,
            sentence=f"ranges of one dimension differ up to x{worst['ratio']:.3g} between data sets (dimension {k}: {ends}): other units",
            remedy="never normalise one set with another's statistics; convert units before mixing",
            numbers={"dimensions": found},
        )
    ]
