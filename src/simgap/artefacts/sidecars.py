"""JSON files beside trial logs: calibrations, reports, and numbers that JSON does not have."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from simgap.bounds import parsing, read_text
from simgap.checks.data.report import DataFinding, Severity, listed
from simgap.episodes.formats.layout import require_content
from simgap.provenance import read_json

_LIMIT = 4 << 20
_MOST_FILES = 200
TICKS_A_TURN = 4096


def sidecars(root: Path) -> tuple[dict[str, Any], list[DataFinding]]:
    """Return facts about the JSON files of a folder and its subfolders, and findings about them.

    Raises:
        DataError: a file is no JSON at all.
    """
    files = sorted(islice(root.rglob("*.json"), _MOST_FILES)) if root.is_dir() else []
    facts, found = {}, []
    for path in files:
        name = str(path.relative_to(root))
        document, not_finite = _read(path)
        with parsing(path, "expected a calibration or a report; repair it, or put it elsewhere"):
            facts[name] = _describe(document) | {"bare_nan": not_finite}
        if not_finite:
            found.append(
                DataFinding(
                    code="json_with_nan",
                    severity=Severity.WARNING,
                    sentence=(
                        f"{name} holds {not_finite} bare NaN or Infinity: no JSON, most readers refuse it;"
                        " they are read as missing here"
                    ),
                    remedy="write null for what was not measured",
                    feature=name,
                    numbers={"n": not_finite},
                )
            )
        status = facts[name].get("verdict")
        if isinstance(status, str) and status.upper() in ("FAULT", "FAIL", "BROKEN"):
            joints = facts[name].get("joints") or []
            found.append(
                DataFinding(
                    code="reported_fault",
                    severity=Severity.WARNING,
                    sentence=f"{name} reports {status}" + (f" for {listed(joints, 6)}" if joints else ""),
                    remedy="read that report before trusting the trials beside it",
                    feature=name,
                    joints=tuple(joints),
                    numbers={"status": status},
                )
            )
    return facts, [*found, *_calibrations(facts)]


def _read(path: Path) -> tuple[Any, int]:
    require_content(path, limit_bytes=_LIMIT)
    document = read_json(path, limit_bytes=_LIMIT, finite=False)
    count = 0

    def none(_: str) -> None:
        nonlocal count
        count += 1

    return json.loads(read_text(path, _LIMIT), parse_constant=none) if document is not None else None, count


def _describe(document: Any) -> dict[str, Any]:
    if not isinstance(document, dict):
        return {"what": type(document).__name__}
    motors = {
        k: v for k, v in document.items() if isinstance(v, dict) and {"range_min", "range_max"} <= set(v)
    }
    if motors and len(motors) == len(document):
        spans = {k: abs(int(v["range_max"]) - int(v["range_min"])) for k, v in motors.items()}
        return {
            "what": "calibration",
            "range": {k: [v["range_min"], v["range_max"]] for k, v in motors.items()},
            "homing_offset": {k: v.get("homing_offset") for k, v in motors.items()},
            "degrees_per_range_unit": {k: s * 360.0 / TICKS_A_TURN / 200.0 for k, s in spans.items()},
        }
    verdict = document.get("verdict")
    facts: dict[str, Any] = {"what": "report", "keys": sorted(document)}
    if isinstance(verdict, dict):
        facts |= {"verdict": verdict.get("status"), "joints": [str(j) for j in verdict.get("joints") or []]}
    if isinstance(document.get("report"), dict):
        facts["report"] = document["report"]
        facts["units"] = sorted(
            {k.rsplit("_", 1)[1] for k in document if k.endswith(("_deg", "_rad", "_mm"))}
        )
    return facts


def _calibrations(facts: Mapping[str, Mapping[str, Any]]) -> list[DataFinding]:
    """Compare calibrations of one folder: a range unit is another angle on each arm."""
    files = {n: f["degrees_per_range_unit"] for n, f in facts.items() if f.get("what") == "calibration"}
    if len(files) < 2:
        return []
    (first, a), *others = files.items()
    off = {
        j: {first: a[j], n: b[j]}
        for n, b in others
        for j in a
        if j in b and abs(a[j] - b[j]) > 0.02 * abs(b[j])
    }
    if not off:
        return []
    parts = [f"{j} {' against '.join(f'{v:.3f}' for v in d.values())}" for j, d in off.items()]
    return [
        DataFinding(
            code="calibrations_differ",
            severity=Severity.NOTE,
            sentence=(
                "one unit of the -100..100 mode is another angle by calibration (degrees a unit):"
                f" {listed(parts)}"
            ),
            remedy="compare arms in degrees, never in range units",
            joints=tuple(off),
            numbers=off,
        )
    ]
