"""What lies beside a dataset and says what ``info.json`` does not: calibrations of the motors, and rates that a recorder measured."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from simgap.checks.data.report import DataFinding, Severity, listed
from simgap.conventions import CalibratedRange
from simgap.episodes.reader import Dataset
from simgap.errors import ConventionError, DataError
from simgap.provenance import read_json

_MOST_FILES = 200
_LARGEST = 1 << 20
_OWN = frozenset({"data", "meta", "videos", "video", "images", "cache"})
_RATE = re.compile(r"^(actual|measured|achieved|real|effective)_?(hz|fps|rate|frequency)$", re.IGNORECASE)
_OFF = 0.1


def check_beside(dataset: Dataset) -> tuple[dict[str, Any], list[DataFinding]]:
    """Return calibrations and measured rates by file, and the findings; files of other kinds are left alone."""
    calibrations: dict[str, dict[str, Any]] = {}
    rates: dict[str, dict[str, float]] = {}
    for path, document in _documents(dataset.root):
        name = path.relative_to(dataset.root).as_posix()
        motors = _motors(document)
        if motors:
            calibrations[name] = motors
        measured = dict(_rates(document))
        if measured:
            rates[name] = measured
    declared = dataset.info.rate_hz
    return {"calibrations": calibrations, "rates": rates}, [
        *_calibrated(calibrations),
        *_recorder(rates, declared),
    ]


def _documents(root: Path) -> Iterator[tuple[Path, Any]]:
    """Yield the small JSON files of the folders beside those that LeRobot knows."""
    if not root.is_dir():
        return
    folders = [
        root,
        *(
            p
            for p in sorted(root.iterdir())
            if p.is_dir() and p.name not in _OWN and not p.name.startswith(".") and not p.is_symlink()
        ),
    ]
    seen = 0
    for folder in folders:
        for path in sorted(folder.glob("*.json")):
            seen += 1
            if seen > _MOST_FILES:
                return
            try:
                if path.is_file() and not path.is_symlink() and path.stat().st_size <= _LARGEST:
                    yield path, read_json(path, limit_bytes=_LARGEST, finite=False)
            except (DataError, OSError):  # somebody's notes need not be JSON
                continue


def _motors(document: Any) -> dict[str, Any]:
    """Return the ranges of a calibration file as LeRobot writes it, by motor."""
    found: dict[str, Any] = {}
    for name, entry in document.items() if isinstance(document, dict) else ():
        if not isinstance(entry, dict) or "range_min" not in entry:
            continue
        try:
            ends = CalibratedRange.from_lerobot(entry)
        except ConventionError:
            continue
        known = {k: entry[k] for k in ("homing_offset", "drive_mode") if isinstance(entry.get(k), int)}
        found[str(name)] = {
            "range_min": entry["range_min"],
            "range_max": entry["range_max"],
            **known,
            "degrees_per_percent": ends.degrees_per_percent,
        }
    return found


def _rates(document: Any, depth: int = 0) -> Iterator[tuple[str, float]]:
    """Yield rates that a recorder measured: said so by their key, or frames over a duration."""
    if depth > 4:
        return
    if isinstance(document, list):
        for item in document[:100]:
            yield from _rates(item, depth + 1)
    elif isinstance(document, dict):
        for key, value in document.items():
            if _RATE.match(str(key)) and isinstance(value, (int, float)) and 0 < value < 1e5:
                yield str(key), float(value)
            elif isinstance(value, (dict, list)):
                yield from _rates(value, depth + 1)
        frames, seconds = document.get("n_frames"), document.get("duration_s")
        if isinstance(frames, int) and isinstance(seconds, (int, float)) and frames > 1 and 0 < seconds < 1e7:
            yield "n_frames / duration_s", frames / float(seconds)


def _calibrated(calibrations: dict[str, dict[str, Any]]) -> list[DataFinding]:
    if not calibrations:
        return []
    parts = [
        f"{motor} {v['degrees_per_percent']:.3f}"
        for motors in calibrations.values()
        for motor, v in motors.items()
        if v["degrees_per_percent"]
    ]
    return [
        DataFinding(
            code="calibration_beside",
            severity=Severity.NOTE,
            sentence=(
                f"{listed(list(calibrations))} hold the calibrated range of the motors; one unit of -100..100"
                f" is so many degrees: {listed(parts, 6)}"
            ),
            remedy=(
                "state them as `calibrated` of the dimensions; ticks, degrees and -100..100 can then be"
                " converted into each other"
            ),
            numbers={
                "degrees_per_percent": {
                    f: {m: v["degrees_per_percent"] for m, v in motors.items()}
                    for f, motors in calibrations.items()
                }
            },
        )
    ]


def _recorder(rates: dict[str, dict[str, float]], declared: float) -> list[DataFinding]:
    off = {
        f: {k: v for k, v in found.items() if abs(v / declared - 1.0) > _OFF} for f, found in rates.items()
    }
    off = {f: found for f, found in off.items() if found}
    if not off:
        return []
    parts = [f"{f} says {next(iter(found))} {next(iter(found.values())):.3g}" for f, found in off.items()]
    return [
        DataFinding(
            code="recorder_rate",
            severity=Severity.NOTE,
            sentence=(
                f"notes beside the dataset give other rates than the declared {declared:g} fps:"
                f" {listed(parts)}"
            ),
            remedy="ask which recordings they belong to; leave out those that ran at another rate",
            numbers=off,
        )
    ]
