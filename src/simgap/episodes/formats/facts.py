"""What the meta files of a LeRobot folder say where the data themselves cannot be read: the failure carries it, and repairs nothing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from simgap.bounds import MALFORMED
from simgap.episodes.formats.index import DatasetInfo, EpisodeEntry, read_entries, read_info, read_json_lines
from simgap.episodes.formats.layout import ACTION, STATE, is_lfs_pointer
from simgap.errors import DataError
from simgap.provenance import read_json

_MOST_FILES = 100_000
_MOST_NAMED = 20
_LARGEST_STATS = 64 << 20


def metadata_facts(root: Path) -> dict[str, Any]:
    """Return what a LeRobot folder declares, which of its files are pointers or absent, and how action and state belong together.

    Empty where not even the meta files can be read: then the failure itself says all there is.
    """
    try:
        info = read_info(root)
        entries = read_entries(root, info)
    except DataError:
        return {}
    return {
        "version": info.version,
        "robot_type": info.robot_type,
        "rate_hz": info.rate_hz,
        "episodes_declared": info.total_episodes,
        "frames_declared": info.total_frames,
        "files": _files(root, entries),
        "dimensions": _dimensions(info),
        "stored_ranges": _ranges(root, info),
    }


def _files(root: Path, entries: tuple[EpisodeEntry, ...]) -> dict[str, Any]:
    """Count what is declared, absent, or a pointer of Git LFS instead of its content."""
    declared = {
        "data": {e.data for e in entries},
        "videos": {s.path for e in entries for s in e.videos.values()},
    }
    result: dict[str, Any] = {}
    for kind, paths in declared.items():
        ordered = sorted(paths)[:_MOST_FILES]
        absent = [p for p in ordered if not p.is_file()]
        pointers = [p for p in ordered if is_lfs_pointer(p)]
        result[kind] = {
            "declared": len(paths),
            "missing": len(absent),
            "missing_files": [p.relative_to(root).as_posix() for p in absent[:_MOST_NAMED]],
            "pointers": len(pointers),
            "pointer_bytes": sorted({p.stat().st_size for p in pointers}),
        }
    return result


def _dimensions(info: DatasetInfo) -> dict[str, Any]:
    """Return which dimensions action and state share by name; their numbers of dimensions say nothing about that."""
    action, state = (info.features[k].names if k in info.features else () for k in (ACTION, STATE))
    plain = {_plain(n) for n in state}
    return {
        "action": len(action),
        "state": len(state),
        "shared": [n for n in action if _plain(n) in plain],
        "only_in_action": [n for n in action if _plain(n) not in plain],
        "only_in_state": [n for n in state if _plain(n) not in {_plain(a) for a in action}],
    }


def _plain(name: str) -> str:
    return re.sub(r"[._](pos|position)$", "", name.lower())


def _ranges(root: Path, info: DatasetInfo) -> dict[str, Any]:
    """Compare the stored ranges of the dimensions that action and state share: a follower that lags stays inside its leader's."""
    stored = _stored(root)
    if stored is None or ACTION not in info.features or STATE not in info.features:
        return {}
    columns = {_plain(n): k for k, n in enumerate(info.features[STATE].names)}
    ranges: dict[str, Any] = {}
    for k, name in enumerate(info.features[ACTION].names):
        if _plain(name) not in columns:
            continue
        ends = [
            _end(stored, feature, which, j)
            for feature, j in ((ACTION, k), (STATE, columns[_plain(name)]))
            for which in ("min", "max")
        ]
        low, high, state_low, state_high = ends
        if low is None or high is None or state_low is None or state_high is None:
            return {}
        ranges[name] = {
            "action": [low, high],
            "state": [state_low, state_high],
            "state_is_inside": low <= state_low and state_high <= high,
        }
    return {
        "joints": ranges,
        "state_is_inside": sum(r["state_is_inside"] for r in ranges.values()),
        "of": len(ranges),
    }


def _stored(root: Path) -> list[dict[str, Any]] | None:
    """Return the stored statistics, of each episode or of all; None where there are none that can be read."""
    whole, by_episode = root / "meta" / "stats.json", root / "meta" / "episodes_stats.jsonl"
    path = whole if whole.is_file() else by_episode
    try:
        if not path.is_file() or path.stat().st_size > _LARGEST_STATS:
            return None
        rows = (
            [read_json(path, finite=False)]
            if path == whole
            else [row.get("stats") for _, row in read_json_lines(path)]
        )
    except (
        DataError,
        OSError,
        AttributeError,
    ):  # broken statistics say nothing; the failure is about the data
        return None
    return [r for r in rows if isinstance(r, dict)] or None


def _end(stored: list[dict[str, Any]], feature: str, which: str, k: int) -> float | None:
    try:
        values = [float(row[feature][which][k]) for row in stored]
    except MALFORMED:
        return None
    return min(values) if which == "min" else max(values)
