"""Episodes against each other and at their start: exact and partial copies, and how long nothing happens before anything does."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.checks.data.pooled import Pooled
from simgap.checks.data.report import DataFinding, Severity, listed
from simgap.wording import number_of

SHORTEST_COPY = 12
"""Rows in a row that are equal to the last bit, and differ among each other, in two episodes: no two recordings share these.
Copies of twice as many are found wherever they lie."""
_STILL_SHARE = 0.02
"""A dimension that has covered less than this share of its range since the start has not begun to move."""
_LONG_IDLE_S = 1.5
"""A start this long outlasts the chunk a policy executes (50 steps at 30 Hz): the picture says "stay", and so does every label."""


def check_episodes(pooled: Pooled) -> tuple[dict[str, Any], list[DataFinding]]:
    """Return how long episodes rest at their start, and what they share with each other."""
    starts = idle_starts(pooled)
    groups = _twins(pooled)
    whole = [_copies(pooled, groups)] if groups else []
    return {"idle_start_frames": _spread(starts)}, [
        *whole,
        *_partial_copies(pooled, groups),
        *_idle(pooled, starts),
    ]


def _spread(frames: dict[int, int]) -> dict[str, float] | None:
    values = np.array(list(frames.values()))
    return (
        {"median": float(np.median(values)), "max": int(values.max()), "mean": float(values.mean())}
        if len(values)
        else None
    )


def _twins(pooled: Pooled) -> list[list[int]]:
    seen: dict[str, list[int]] = defaultdict(list)
    for number, action, state in zip(pooled.indices, pooled.actions, pooled.states, strict=True):
        seen[hashlib.sha256(action.tobytes() + state.tobytes()).hexdigest()].append(number)
    return [group for group in seen.values() if len(group) > 1]


def _copies(pooled: Pooled, twins: list[list[int]]) -> DataFinding:
    return DataFinding(
        code="duplicate_episodes",
        severity=Severity.FAULT,
        sentence=(
            f"{number_of(sum(len(g) - 1 for g in twins), 'episode is an exact copy', 'episodes are exact copies')} of others:"
            f" {listed([' = '.join(map(str, g)) for g in twins])}"
        ),
        remedy="delete the copies; they leak between training and validation and count twice",
        numbers={"groups": twins},
    )


def _partial_copies(pooled: Pooled, twins: list[list[int]]) -> list[DataFinding]:
    """Find long runs of rows that two episodes share to the last bit, exact copies left out."""
    skip = {number for group in twins for number in group[1:]}
    shared: dict[tuple[int, int], tuple[int, int, int]] = {}
    seen: dict[bytes, tuple[int, int]] = {}
    rows = {
        n: np.concatenate([a, s], axis=1)
        for n, a, s in zip(pooled.indices, pooled.actions, pooled.states, strict=True)
        if n not in skip
    }
    for number, table in rows.items():
        hashes = _windows(table)
        frame = 0
        while frame < len(hashes):
            place = seen.get(hashes[frame]) if hashes[frame] else None
            if place is None or place[0] == number:
                frame += 1
                continue
            before = _run(table[:frame][::-1], rows[place[0]][: place[1]][::-1])
            after = _run(table[frame:], rows[place[0]][place[1] :])
            if before + after > shared.get((place[0], number), (0, 0, 0))[2]:
                shared[place[0], number] = (place[1] - before, frame - before, before + after)
            frame += after
        # anchors: a copy twice as long as the shortest holds one for sure
        for frame in range(0, len(hashes), SHORTEST_COPY):
            if hashes[frame]:
                seen.setdefault(hashes[frame], (number, frame))
    if not shared:
        return []
    parts = [
        f"{length} rows of episode {b} (from {frame}) are those of {a} (from {start})"
        for (a, b), (start, frame, length) in shared.items()
    ]
    copies = [
        {"first": a, "second": b, "start_first": s, "start_second": f, "rows": n}
        for (a, b), (s, f, n) in shared.items()
    ]
    return [
        DataFinding(
            code="partly_duplicated_episodes",
            severity=Severity.FAULT,
            sentence=f"{len(shared)} pairs of episodes share rows to the last bit: {listed(parts)}",
            remedy=(
                "find out which recording was cut or resumed twice; copies leak between training and"
                " validation"
            ),
            numbers={"copies": copies},
        )
    ]


def _windows(table: NDArray[np.float64]) -> list[bytes]:
    """Return a hash of every window of rows that all differ from the row before; empty where a robot rests, which many episodes do alike."""
    moves = np.concatenate([[False], (np.diff(table, axis=0) != 0).any(axis=1)])
    run = np.zeros(len(table), dtype=np.int64)
    for k in np.flatnonzero(moves):
        run[k] = run[k - 1] + 1
    ends = range(SHORTEST_COPY - 1, len(table))
    return [
        (
            hashlib.md5(table[k - SHORTEST_COPY + 1 : k + 1].tobytes(), usedforsecurity=False).digest()
            if run[k] >= SHORTEST_COPY - 1
            else b""
        )
        for k in ends
    ]


def _run(a: NDArray[np.float64], b: NDArray[np.float64]) -> int:
    """Return how many rows two tables begin alike."""
    n = min(len(a), len(b))
    same = (a[:n] == b[:n]).all(axis=1)
    return n if same.all() else int(np.argmin(same))


def idle_starts(pooled: Pooled) -> dict[int, int]:
    """Return for each episode how many frames pass before any dimension of the action has moved by a fiftieth of its range."""
    spread = np.ptp(np.concatenate(pooled.actions), axis=0)
    alive = spread > 0
    found = {}
    for number, action in zip(pooled.indices, pooled.actions, strict=True):
        gone = np.abs(action - action[0])[:, alive] > _STILL_SHARE * spread[alive]
        moved = gone.any(axis=1)
        found[number] = int(np.argmax(moved)) if moved.any() else len(action)
    return found


def _idle(pooled: Pooled, starts: dict[int, int]) -> list[DataFinding]:
    rate = pooled.dataset.info.rate_hz
    limit = _LONG_IDLE_S * rate
    long = {n: frames for n, frames in starts.items() if frames > limit}
    if len(long) < 0.2 * len(starts):
        return []
    values = np.array(list(starts.values()))
    return [
        DataFinding(
            code="idle_start",
            severity=Severity.WARNING,
            sentence=(
                f"{len(long)} of {len(starts)} episodes begin with more than {_LONG_IDLE_S:g} s in which"
                f" nothing is commanded (median {np.median(values):.0f} frames,"
                f" {np.median(values) / rate:.1f} s, longest {values.max()}): from the first picture a policy"
                " learns to stay"
            ),
            remedy="trim the starts, or execute a chunk longer than they last",
            numbers={
                "frames": {str(k): v for k, v in long.items()},
                "median": float(np.median(values)),
                "max": int(values.max()),
                "limit_frames": limit,
            },
        )
    ]
