"""Statistics that a normaliser stumbles over: zero ranges, padding, near-constants, outliers, wraps, other units."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from simgap.checks.data.report import DataFinding, Severity, listed
from simgap.checks.data.statistics.bounds import (
    averaged_quantiles,
    contradictions,
    impossible_std,
    polluted_targets,
)
from simgap.checks.data.statistics.facts import facts_of, gripper_dimensions, std_over_state, trailing_zeros
from simgap.checks.data.statistics.forms import bounded_rows, is_tame, overflows, saturated
from simgap.checks.data.statistics.pairs import deltas_taken_twice, grippers, mixed_references
from simgap.checks.data.statistics.tails import heavy_tails, outliers
from simgap.episodes.formats.layout import INDEX_FEATURES
from simgap.episodes.statistics.files import StatisticsBlock

NEARLY_CONSTANT = 0.05
"""A range narrower than this share of its own largest value is a constant with noise on it."""
_SCALES = (("mean and std", ("mean", "std")), ("q01 and q99", ("q01", "q99")))
"""What the two usual normalisers need."""
TURN = 2.0 * float(np.pi)

Judged = tuple[dict[str, Any], list[DataFinding]]


def judge(blocks: Sequence[StatisticsBlock]) -> Judged:
    """Return measurements of every block and what is wrong with them."""
    whole = [b for b in blocks if b.is_even]
    live = [b for b in whole if not b.is_all_zero and b.key not in INDEX_FEATURES]
    bookkeeping = [b for b in whole if b.key in INDEX_FEATURES]
    with np.errstate(over="ignore", invalid="ignore"):  # infinite and overflowing numbers are named as that
        measured = {b.name: facts_of(b) | std_over_state(b, whole) for b in whole}
        beyond = [*overflows(live), *contradictions(live), *contradictions(bookkeeping)]
    averaged = averaged_quantiles([b for b in bookkeeping if is_tame(b)])
    blurred = {b.file for b in bookkeeping if b.key == "index"} if averaged else set()
    tame = [replace(b, count=None) if b.file in blurred else b for b in live if is_tame(b)]
    # quantiles that were averaged over episodes bound nothing
    sharp = [b for b in tame if b.file not in blurred]
    rules: tuple[Callable[[Sequence[StatisticsBlock]], list[DataFinding]], ...] = (
        impossible_std,
        _constants,
        _padding,
        _nearly_constant,
        saturated,
        _wraps,
        polluted_targets,
        deltas_taken_twice,
        mixed_references,
        grippers,
        _units,
    )
    found = [
        *_uneven([b for b in blocks if not b.is_even]),
        *_absent([b for b in whole if b.is_all_zero and b.key not in INDEX_FEATURES]),
        *_incomplete(live),
    ]
    for rule in rules:
        found += rule(tame)
    found += [*outliers(sharp), *heavy_tails(sharp), *beyond, *averaged]
    if live:
        found.append(_unnamed(live))
    return measured, found


def _unnamed(blocks: Sequence[StatisticsBlock]) -> DataFinding:
    return DataFinding(
        code="dimensions_unnamed",
        severity=Severity.NOTE,
        sentence=(
            f"nothing here names the dimensions of {listed([b.name for b in blocks])}, their units, or"
            " whether actions are absolute or differences"
        ),
        remedy=(
            "take names and units from the dataset; spreads alone (std of action over std of state) can only"
            " hint at differences"
        ),
        numbers={"dimensions": {b.name: b.size for b in blocks}},
    )


def _uneven(blocks: Sequence[StatisticsBlock]) -> list[DataFinding]:
    lengths = {
        b.name: {k: len(v) for k, v in b.values.items()} | ({} if b.mask is None else {"mask": len(b.mask)})
        for b in blocks
    }
    if not lengths:
        return []
    return [
        DataFinding(
            code="statistics_of_different_length",
            severity=Severity.FAULT,
            sentence="statistics of one vector have different numbers of dimensions: "
            + listed([f"{n} {v}" for n, v in lengths.items()], 2),
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
            sentence=(
                f"{len(names)} blocks are zero in every statistic ({listed(names)}): not recorded, no"
                " statistics of real values"
            ),
            remedy="do not normalise with them; leave these inputs out or compute them",
            numbers={"blocks": names},
        )
    ]


def _incomplete(blocks: Sequence[StatisticsBlock]) -> list[DataFinding]:
    """Note what a scaling needs and is not here; where only the quantiles are there, or only mean and std, that is what the others need."""
    by_missing: dict[str, list[str]] = {}
    for b in blocks:
        missing = [label for label, names in _SCALES if not all(n in b.values for n in names)]
        for label in missing:
            by_missing.setdefault(label, []).append(b.name)
    return [
        DataFinding(
            code="statistics_incomplete",
            severity=Severity.NOTE,
            sentence=(
                f"{len(names)} of {len(blocks)} blocks have no {label}: a policy that scales by them cannot"
                f" use this file ({listed(names)})"
            ),
            remedy="compute them from the data; never put min and max where quantiles are missing",
            numbers={"missing": label, "blocks": names},
        )
        for label, names in by_missing.items()
    ]


def _constants(blocks: Sequence[StatisticsBlock]) -> list[DataFinding]:
    bad, rare, modes = {}, {}, {}
    for b in blocks:
        padding = set(range(b.size - trailing_zeros(b), b.size)) if b.mask is None else set()
        by_mode = {
            mode: [k for k in dims if b.scaled[k] and k not in padding] for mode, dims in b.still().items()
        }
        flat = sorted({k for dims in by_mode.values() for k in dims})
        if flat:
            bad[b.name], modes[b.name] = flat, by_mode
        moving = [k for k in flat if any(k not in dims for dims in by_mode.values())]
        if moving:
            rare[b.name] = moving
    stuck = {b.name: k for b in blocks for k in gripper_dimensions(b) if k in b.constant()}
    found = []
    few = (
        f"; of these, some move in a few frames ({listed([f'{n} {v}' for n, v in rare.items()])}): 98 % of"
        " the frames have one value"
        if rare
        else ""
    )
    if bad:
        found.append(
            DataFinding(
                code="constant_dimensions",
                severity=Severity.WARNING,
                sentence=(
                    "dimensions without a width, so a normaliser divides by zero:"
                    f" {listed([f'{n} {v}' for n, v in bad.items()], 8)}{few}"
                ),
                remedy=(
                    "mask them: map them to 0 both ways, and watch at run time for values that leave the"
                    " constant"
                ),
                feature=next(iter(bad)),
                numbers={"dimensions": bad, "by_normaliser": modes, "move_in_few_frames": rare},
            )
        )
    if stuck:
        found.append(
            DataFinding(
                code="constant_gripper",
                severity=Severity.WARNING,
                sentence=f"the gripper never moves in {listed(list(stuck))}",
                remedy="a policy trained on these alone cannot grasp; check that the channel was recorded",
                numbers={"dimensions": stuck},
            )
        )
    return found


def _padding(blocks: Sequence[StatisticsBlock]) -> list[DataFinding]:
    padded = {
        b.name: {"dimensions": b.size, "padding": n}
        for b in blocks
        if b.mask is None and (n := trailing_zeros(b)) > 0
    }
    if not padded:
        return []
    parts = [f"the last {v['padding']} of {v['dimensions']} dimensions of {n}" for n, v in padded.items()]
    return [
        DataFinding(
            code="padded_dimensions",
            severity=Severity.NOTE,
            sentence=f"{listed(parts)} are zero in every statistic: padding to a model's width",
            remedy=(
                "nothing, where the model pads itself (openpi does); a scaler without an epsilon divides by"
                " zero there, and a robot never gets them"
            ),
            feature=next(iter(padded)),
            numbers={"padding": padded},
        )
    ]


def _nearly_constant(blocks: Sequence[StatisticsBlock]) -> list[DataFinding]:
    """Return dimensions whose range is noise on a constant; rows of a rotation near the identity are that by their nature, and noted only."""
    bad: dict[bool, dict[str, dict[int, float]]] = {False: {}, True: {}}
    for b in blocks:
        low, high = b.get("q01"), b.get("q99")
        if low is None or high is None or b.is_image:
            continue
        width, size = high - low, np.maximum(np.abs(low), np.abs(high))
        thin = (width > 0) & (width < NEARLY_CONSTANT * size) & b.scaled
        rows = bounded_rows(b)
        for k in np.flatnonzero(thin):
            bad[int(k) in rows].setdefault(b.name, {})[int(k)] = float(2.0 / width[k])
    return [_thin(gains, is_rotation=rotation) for rotation, gains in bad.items() if gains]


def _thin(gains: dict[str, dict[int, float]], *, is_rotation: bool) -> DataFinding:
    parts = [f"{n} {sorted(v)} (noise x{max(v.values()):.0f})" for n, v in gains.items()]
    what = (
        "entries of a rotation stay near one value, as small turns do"
        if is_rotation
        else "dimensions hardly move beside their own value"
    )
    return DataFinding(
        code="nearly_constant_dimensions",
        severity=Severity.NOTE if is_rotation else Severity.WARNING,
        sentence=f"{what}; scaled by quantiles their noise fills the full range: {listed(parts)}",
        remedy=(
            "leave rotation rows unscaled: they lie in -1..1 already"
            if is_rotation
            else "scale them by their limits, or leave them unscaled"
        ),
        feature=next(iter(gains)),
        numbers={"gain": gains},
    )


def _wraps(blocks: Sequence[StatisticsBlock]) -> list[DataFinding]:
    seam: dict[str, list[int]] = {}
    turns: dict[str, list[int]] = {}
    for b in blocks:
        # a gripper opens by anything and never wraps
        may_turn = ~np.isin(np.arange(b.size), gripper_dimensions(b))
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
                sentence=(
                    "angles sit at the +-pi seam: q01 = -pi, q99 = pi, std near pi in"
                    f" {listed([f'{n} {v}' for n, v in seam.items()])}"
                ),
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
                sentence=(
                    f"extremes are a whole turn (6.28): {listed([f'{n} {v}' for n, v in turns.items()])};"
                    " differences of angles that wrapped"
                ),
                remedy="subtract angles modulo a turn, and drop the frames that jump",
                feature=next(iter(turns)),
                numbers={"dimensions": turns},
            )
        )
    return found


def _units(blocks: Sequence[StatisticsBlock]) -> list[DataFinding]:
    """Compare the same dimension between data sets of one file: ranges a thousandfold apart are other units."""
    rows = [b for b in blocks if b.width is not None and b.key.startswith("action") and b.group]
    found: dict[int, dict[str, Any]] = {}
    for k in range(min((b.size for b in rows), default=0)):
        spread = {
            b.group: float(w[k]) for b in rows if (w := b.width) is not None and w[k] > 0 and b.scaled[k]
        }
        if len(spread) > 1 and max(spread.values()) > 1000.0 * min(spread.values()):
            low, high = min(spread, key=spread.__getitem__), max(spread, key=spread.__getitem__)
            found[k] = {
                "smallest": {low: spread[low]},
                "largest": {high: spread[high]},
                "ratio": spread[high] / spread[low],
            }
    if not found:
        return []
    k, worst = max(found.items(), key=lambda item: float(item[1]["ratio"]))
    ends = " against ".join(
        f"{value:.3g} in {name}" for side in ("smallest", "largest") for name, value in worst[side].items()
    )
    return [
        DataFinding(
            code="units_differ_between_sets",
            severity=Severity.WARNING,
            sentence=(
                f"ranges of one dimension differ up to x{worst['ratio']:.3g} between data sets (dimension"
                f" {k}: {ends}): other units"
            ),
            remedy="never normalise one set with another's statistics; convert units before mixing",
            numbers={"dimensions": found},
        )
    ]
