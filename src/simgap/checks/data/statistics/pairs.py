"""The statistics of actions beside those of the state they belong to: relative or absolute, relative twice, grippers in other units."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.checks.data.report import DataFinding, Severity, listed
from simgap.checks.data.statistics.facts import gripper_facts
from simgap.episodes.statistics.files import StatisticsBlock

_ACTIONS = ("action", "actions")
_STATES = ("state", "observation.state", "proprio")
_FEWEST = 4
"""Moving dimensions below which nothing is said about a whole vector."""
_TWICE = 0.15
"""Relative distance from "minus the state" within which mean and spread of the actions say that they are."""


def pairs(blocks: Sequence[StatisticsBlock]) -> Iterator[tuple[StatisticsBlock, StatisticsBlock]]:
    """Yield each action block with the state block of its own data set and file."""
    for action in (b for b in blocks if b.key in _ACTIONS):
        for state in (
            b for b in blocks if b.key in _STATES and b.group == action.group and b.file == action.file
        ):
            yield action, state


def deltas_taken_twice(blocks: Sequence[StatisticsBlock]) -> list[DataFinding]:
    """Find actions that are minus the state in every dimension: the state was subtracted from actions that were relative already."""
    found = []
    for action, state in pairs(blocks):
        moments = _moments(action, state)
        if moments is None:
            continue
        ma, sa, ms, ss = moments
        scale = np.maximum(ss, np.abs(ms))
        off = np.maximum(np.abs(ma + ms) / scale, np.abs(sa - ss) / ss)
        turned = np.abs(ms) > 0.3 * ss  # where the mean tells minus the state from the state
        if (
            len(ms) < _FEWEST
            or turned.sum() < 3
            or not (off[turned] < _TWICE).all()
            or (off < _TWICE).mean() < 0.8
        ):
            continue
        alike = int((off < _TWICE).sum())
        found.append(
            DataFinding(
                code="deltas_taken_twice",
                severity=Severity.FAULT,
                sentence=(
                    f"{action.name}: mean and spread of {alike} of {len(off)} dimensions are those of minus"
                    " the state: what is left when the state is subtracted from actions that are relative"
                    " already (or every sign is inverted, which only the rows can tell)"
                ),
                remedy=(
                    "subtract the state once: leave the delta transform out for actions that are stored as"
                    " differences, and compute the statistics again"
                ),
                feature=action.name,
                numbers={"relative_distance": off.tolist(), "dimensions": len(off)},
            )
        )
    return found


def mixed_references(blocks: Sequence[StatisticsBlock]) -> list[DataFinding]:
    """Note action vectors of which some dimensions look absolute and some like differences, by their spread beside the state's."""
    mixed: dict[str, dict[str, list[int]]] = {}
    for action, state in pairs(blocks):
        if action.size != state.size or (moments := _moments(action, state, drop_still=False)) is None:
            continue
        ma, sa, ms, ss = moments
        moves = (ss > 0) & (sa > 0)
        spread = sa / np.where(ss > 0, ss, 1.0)
        absolute = moves & (spread > 0.6) & (spread < 1.7) & (np.abs(ma - ms) < ss)
        relative = (
            moves & (spread < 0.25) & (np.abs(ma) < ss) & ((np.abs(ms) > 2 * ss) | (np.abs(ma) < 3 * sa))
        )
        if absolute.any() and relative.sum() >= 2:
            mixed[action.name] = {
                "absolute": np.flatnonzero(absolute).tolist(),
                "relative": np.flatnonzero(relative).tolist(),
            }
    if not mixed:
        return []
    parts = [
        f"{n}: {v['relative']} spread like differences, {v['absolute']} like the state itself"
        for n, v in mixed.items()
    ]
    return [
        DataFinding(
            code="mixed_references",
            severity=Severity.NOTE,
            sentence=f"one vector seems to hold differences and absolute values: {listed(parts, 3)}",
            remedy=(
                "say for each dimension which it is (a gripper is often absolute beside relative joints) and"
                " convert each by its own rule"
            ),
            feature=next(iter(mixed)),
            numbers={"dimensions": mixed},
        )
    ]


def grippers(blocks: Sequence[StatisticsBlock]) -> list[DataFinding]:
    """Note grippers in different units: those of several data sets, and a command beside the measurement of the same one."""
    ranges = {
        b.name: f
        for b in blocks
        for f in gripper_facts(b) or []
        if not f["is_constant"] and f["high"] is not None
    }
    highs = {n: float(f["high"]) for n, f in ranges.items()}
    found = []
    sides = {
        n: v
        for a, s in pairs(blocks)
        if {a.name, s.name} <= set(highs)
        for n, v in ((a.name, highs[a.name]), (s.name, highs[s.name]))
    }
    for action, state in pairs(blocks):
        a, s = sides.get(action.name), sides.get(state.name)
        if a is not None and s is not None and max(abs(a), abs(s)) > 1.5 * min(abs(a), abs(s)):
            found.append(
                DataFinding(
                    code="gripper_units_differ",
                    severity=Severity.NOTE,
                    sentence=(
                        f"the gripper of {action.name} is commanded up to {a:.3g} and measured up to {s:.3g}:"
                        " two different units"
                    ),
                    remedy=(
                        "never subtract one from the other; keep the gripper absolute where joints are made"
                        " relative"
                    ),
                    numbers={"action": a, "state": s},
                )
            )
    alike = {n: v for n, v in highs.items() if n.rpartition("/")[2] not in _STATES}
    if alike and max(alike.values()) >= 1.5 * min(alike.values()):
        ordered = sorted(alike, key=alike.__getitem__)
        found.append(
            DataFinding(
                code="gripper_ranges_differ",
                severity=Severity.NOTE,
                sentence=(
                    f"grippers have different ranges: {ordered[0]} ends at {alike[ordered[0]]:.3g},"
                    f" {ordered[-1]} at {alike[ordered[-1]]:.3g}"
                ),
                remedy="look up the unit and which end is open before mixing; statistics do not say it",
                numbers={"high": alike},
            )
        )
    return found


def _moments(
    action: StatisticsBlock, state: StatisticsBlock, *, drop_still: bool = True
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]] | None:
    """Return mean and std of action and state over their common dimensions, None where they are not stored."""
    n = min(action.size, state.size)
    values = [b.get(name) for b in (action, state) for name in ("mean", "std")]
    if any(v is None or not np.isfinite(v).all() for v in values):
        return None
    ma, sa, ms, ss = (np.asarray(v)[:n] for v in values)
    used = (ss > 0) & (sa > 0) if drop_still else np.ones(n, dtype=bool)
    return (ma[used], sa[used], ms[used], ss[used]) if used.any() else None
