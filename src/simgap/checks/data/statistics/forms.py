"""What the numbers of a vector are by their form: rotations whose entries are bounded, limits that are sat at, numbers no float32 holds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simgap.checks.data.report import DataFinding, Severity, listed
from simgap.checks.data.statistics.facts import gripper_dimensions, rot6d_arms
from simgap.episodes.statistics.files import StatisticsBlock

_UNIT_ROWS = ((4, 1.0), (6, 2.0), (3, 1.0), (2, 1.0))
"""Dimensions of a bounded row and the sum of their second moments: quaternion, 6-D rotation, rotation matrix row, sine and cosine."""
_UNIT_SLACK = 2e-3
_LIMITS = {
    "pi/2": np.pi / 2,
    "pi": np.pi,
    "2 pi": 2 * np.pi,
    "90": 90.0,
    "100": 100.0,
    "180": 180.0,
    "360": 360.0,
}
_LARGEST = 1e30
"""Beyond this a statistic is an overflow or a marker for missing values, not a measurement."""


def bounded_rows(block: StatisticsBlock) -> set[int]:
    """Return the dimensions that are entries of a rotation: bounded by 1 whatever happens, so no extreme of theirs is an outlier.

    A quaternion, each row of a rotation matrix and a pair of sine and cosine have length 1 in every frame, so
    the second moments ``mean^2 + std^2`` of their dimensions sum to exactly 1 over any data; a chance
    agreement of three digits is unlikely and harmless.
    """
    found = {10 * arm + k for arm in range(rot6d_arms(block)) for k in range(3, 9)}
    mean, std = block.get("mean"), block.get("std")
    if mean is None or std is None:
        return found
    inside = np.ones(block.size, dtype=bool)
    for name in ("min", "max", "q01", "q99"):
        if (v := block.get(name)) is not None:
            inside &= np.abs(v) <= 1.0 + 1e-3
    moment, moves = mean**2 + std**2, std > 0
    for width, total in _UNIT_ROWS:
        for start in range(block.size - width + 1):
            row = range(start, start + width)
            if (
                not found & set(row)
                and inside[list(row)].all()
                and moves[list(row)].sum() >= 2
                and abs(moment[list(row)].sum() - total) < _UNIT_SLACK
            ):
                found |= set(row)
    return found


def saturated(blocks: Sequence[StatisticsBlock]) -> list[DataFinding]:
    """Note dimensions that sit at a round limit in more than 1 % of the frames: their 99 % quantile is their maximum, or the 1 % their minimum."""
    bad: dict[str, dict[int, str]] = {}
    for b in (b for b in blocks if not b.is_image):
        free = set(range(b.size)) - set(gripper_dimensions(b)) - bounded_rows(b)
        for quantile, extreme in (("q99", "max"), ("q01", "min")):
            q, e = b.get(quantile), b.get(extreme)
            if q is None or e is None:
                continue
            for k in sorted(free):
                name = next((n for n, v in _LIMITS.items() if abs(abs(float(e[k])) - v) <= 1e-4 * v), None)
                if (
                    name is not None
                    and abs(float(q[k] - e[k])) <= 1e-4 * abs(float(e[k]))
                    and float(q[k]) != 0
                    and not _is_still(b, k)
                ):
                    bad.setdefault(b.name, {})[k] = f"{'-' if e[k] < 0 else ''}{name}"
    if not bad:
        return []
    parts = [f"{n} dimension {k} at {v}" for n, entries in bad.items() for k, v in entries.items()]
    return [
        DataFinding(
            code="at_a_limit",
            severity=Severity.NOTE,
            sentence=(
                f"more than 1 % of the frames sit at a round limit: {listed(parts, 6)}: a joint's limit or a"
                " clipped command"
            ),
            remedy="a command that is clipped there teaches the clip; compare with the robot's limits",
            numbers={"limits": bad},
        )
    ]


def _is_still(block: StatisticsBlock, k: int) -> bool:
    return block.width is not None and float(block.width[k]) == 0.0


def is_tame(block: StatisticsBlock) -> bool:
    """Return whether every number of a block is finite and of a size that something measures."""
    return all(
        bool(np.isfinite(v).all()) and bool((np.abs(v) <= _LARGEST).all()) for v in block.values.values()
    )


def overflows(blocks: Sequence[StatisticsBlock]) -> list[DataFinding]:
    """Return statistics beyond anything a robot measures: float32 overflow, or a marker for missing values that was averaged."""
    bad = {
        b.name: [
            f"{n}[{k}] = {v[k]:.3g}"
            for n, v in b.values.items()
            for k in np.flatnonzero(np.abs(v) > _LARGEST)
        ]
        for b in blocks
    }
    bad = {n: texts for n, texts in bad.items() if texts}
    if not bad:
        return []
    return [
        DataFinding(
            code="overflowed_statistics",
            severity=Severity.FAULT,
            sentence="numbers that no robot measures: "
            + listed([f"{n}: {listed(t, 2)}" for n, t in bad.items()], 2),
            remedy=(
                "find the frames that hold them (float32 ends at 3.4e38; some recorders write such numbers"
                " for missing ones) and compute again in float64"
            ),
            feature=next(iter(bad)),
            numbers={"values": bad},
        )
    ]
