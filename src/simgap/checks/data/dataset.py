"""Are the data intact: one report on a LeRobot dataset, ours or others', v3.0 or v2.1, that reads and never writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from simgap.checks.data.clock.timestamps import check_clock
from simgap.checks.data.layout.columns import check_columns
from simgap.checks.data.layout.files import check_layout, counts
from simgap.checks.data.motion.controller import check_controller
from simgap.checks.data.motion.deltas import name_double_deltas
from simgap.checks.data.motion.joints import check_motion
from simgap.checks.data.motion.pairing import relation_of
from simgap.checks.data.pictures.decoded import check_videos
from simgap.checks.data.pooled import pool
from simgap.checks.data.report import DataFinding, DataReport, Severity, by_severity
from simgap.checks.data.statistics.recomputed import check_statistics
from simgap.checks.data.values.episodes import check_episodes
from simgap.checks.data.values.ranges import check_values
from simgap.checks.data.values.starts import check_starts
from simgap.episodes.edit.convert import has_made_up_state
from simgap.episodes.reader import Dataset, open_dataset, outcome_word

__all__ = ["DataFinding", "DataReport", "Severity", "check_data", "describe_data"]

ASSUMES = (
    "names in info.json belong to the columns they are listed with",
    "the state of a joint is meant to follow the action of the same name",
    "frames were recorded in the order of frame_index",
    "a camera that is black or frozen in the frames looked at is so in all of them",
    "pictures whose red and blue are exchanged in every frame and in the statistics look like any others",
)


def check_data(path: Path | str | Dataset, progress: Callable[[int, int], None] | None = None) -> DataReport:
    """Check a dataset, opened already or not, and report everything found.

    Args:
        path: the dataset.
        progress: called with ``(pictures decoded, pictures)`` where pictures are stored one by one.

    Raises:
        DataError: the folder is no dataset that can be read (missing, empty or truncated files, Git LFS
            pointers, NaN, unknown version); one line that names the file or the place.
    """
    dataset = path if isinstance(path, Dataset) else open_dataset(path)
    pooled = pool(dataset)
    layout, layout_findings = check_layout(dataset, pooled)
    clock, clock_findings = check_clock(pooled)
    statistics, statistics_findings = check_statistics(pooled)
    values, value_findings = check_values(pooled)
    episodes, episode_findings = check_episodes(pooled)
    joints, motion_findings = ({}, [_made_up()]) if has_made_up_state(dataset) else check_motion(pooled)
    videos, video_findings = check_videos(pooled, progress)
    findings = [
        *layout_findings,
        *check_columns(dataset, pooled),
        *check_controller(pooled),
        *clock_findings,
        *statistics_findings,
        *value_findings,
        *episode_findings,
        *check_starts(pooled),
        *motion_findings,
        *video_findings,
    ]
    return DataReport(
        path=str(dataset.root),
        layout=_layout(dataset),
        counts=counts(dataset, pooled),
        measurements={
            "layout": layout,
            "clock": clock,
            "relation": relation_of(pooled),
            "joints": joints,
            "statistics": statistics,
            "values": values | episodes,
            "videos": videos,
        },
        findings=by_severity(_once(name_double_deltas(pooled, findings))),
        assumes=ASSUMES,
    )


def _made_up() -> DataFinding:
    return DataFinding(
        code="state_is_previous_action",
        severity=Severity.NOTE,
        sentence=(
            "the state is the command of the frame before, as a conversion was asked to write it where"
            " nothing was measured"
        ),
        remedy=(
            "nothing to do; how the robot follows its commands cannot be read from it, and was not checked"
        ),
    )


def _once(findings: list[DataFinding]) -> list[DataFinding]:
    """Drop the coarse look at a freeze where the exact one has named every one of its episodes."""
    exact = {
        f"{camera} in episode {e}"
        for f in findings
        if f.code == "feed_freezes"
        for camera, episodes in f.numbers.items()
        for e in episodes
    }
    return [
        f
        for f in findings
        if f.code not in ("frozen_segment", "nearly_frozen") or not set(f.numbers["segments"]) <= exact
    ]


def describe_data(path: Path | str | Dataset) -> dict[str, Any]:
    """Return what a dataset says of itself and its fingerprint, without judging it.

    Raises:
        DataError: as :func:`check_data`.
    """
    dataset = path if isinstance(path, Dataset) else open_dataset(path)
    tasks = sorted({t for e in dataset.entries for t in e.tasks})
    outcomes: dict[str, int] = {}
    for entry in dataset.entries:
        outcomes[outcome_word(entry)] = outcomes.get(outcome_word(entry), 0) + 1
    lengths = sorted(e.length for e in dataset.entries)
    return {
        "kind": "data_info",
        "schema": 1,
        "path": str(dataset.root),
        **_layout(dataset),
        "episodes": dataset.n_episodes,
        "frames": dataset.n_frames,
        "length": (
            {"min": lengths[0], "median": lengths[len(lengths) // 2], "max": lengths[-1]} if lengths else None
        ),
        "tasks": tasks,
        "outcomes": outcomes,
        "action_spec": dataset.spec.action_spec.to_json(),
        "state_spec": dataset.spec.state_spec.to_json(),
        "stamp": dataset.spec.stamp.to_json(),
        "fingerprint": dataset.fingerprint,
    }


def _layout(dataset: Dataset) -> dict[str, Any]:
    sessions = sorted({str(e.extra["session"]) for e in dataset.entries if "session" in e.extra})
    return {
        "version": dataset.info.version,
        "is_ours": dataset.is_ours,
        "robot_type": dataset.info.robot_type,
        "rate_hz": dataset.info.rate_hz,
        "action_key": dataset.action_key,
        "state_key": dataset.state_key,
        "cameras": dict(dataset.camera_keys),
    } | ({"sessions": sessions} if sessions else {})
