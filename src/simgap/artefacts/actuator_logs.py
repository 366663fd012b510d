"""Actuator logs in folders of CSV files: what was commanded, what was measured, and what that says about joints and units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.artefacts.actuator_findings import what_is_wrong
from simgap.artefacts.tables import TextTable, matrix, read_csv
from simgap.bounds import TABLE_ROWS, read_text
from simgap.checks.data.report import DataReport, by_severity
from simgap.errors import DataError
from simgap.measures.actuators import (
    ActuatorLog,
    JointFollow,
    angle_unit,
    follow,
    holds,
    smallest_step,
    time_unit,
)

_NAMES_BYTES = 65536
COMMAND, STATE, EVENTS, JOINTS = "control.csv", "state_motor.csv", "event.csv", "joint_list.txt"
_LOADED_STEPS = 5.0
"""A mean bias of this many encoder steps, on one side in most motions, is a load."""
ASSUMES = (
    "the first joint of joint_list.txt is the first number of every list",
    "time stamps of control and state come from one clock",
    "an encoder cuts a turn into a power of two",
)


def motion_folders(root: Path) -> list[Path]:
    """Return the folders that hold a command log and a state log, the root itself or those just below."""
    return [
        d
        for d in (root, *sorted(p for p in root.iterdir() if p.is_dir()))
        if (d / COMMAND).is_file() and (d / STATE).is_file()
    ]


def check_actuator_logs(root: Path) -> DataReport:
    """Check a folder of actuator logs.

    Raises:
        DataError: a file is missing, empty or garbled; names it.
    """
    logs, files = [], []
    for folder in motion_folders(root):
        log, facts = _read(folder)
        logs.append(log)
        files.append(facts)
    joints = logs[0].joints
    for log in logs:
        if log.joints != joints:
            raise DataError(
                f"{root}: {log.name} has joints {list(log.joints)}, {logs[0].name} has {list(joints)}; check"
                " each robot apart"
            )
    fits = {log.name: [follow(log, k) for k in range(len(joints))] for log in logs}
    rests = {log.name: [holds(log, k) for k in range(len(joints))] for log in logs}
    steps = {
        n: smallest_step(np.concatenate([log.state[:, k] for log in logs])) for k, n in enumerate(joints)
    }
    unit = _unit(steps)
    summary = {n: _summary([f[k] for f in fits.values()], steps[n], unit) for k, n in enumerate(joints)}
    period = float(np.median([log.period_s for log in logs]))
    motions = {
        log.name: {
            **facts,
            "joints": {
                n: fits[log.name][k].to_json() | {"rest": rests[log.name][k].to_json()}
                for k, n in enumerate(joints)
            },
        }
        for log, facts in zip(logs, files, strict=True)
    }
    measured = {
        "clock": {"measured_hz": 1.0 / period, "period_ms": 1e3 * period, "time_unit": files[0]["time_unit"]},
        "units": {"position": unit, "encoder_step": {n: s for n, s in steps.items() if s is not None}},
        "joints": summary,
        "motions": motions,
    }
    return DataReport(
        path=str(root),
        layout={
            "what": "actuator_logs",
            "joints": list(joints),
            "motions": [log.name for log in logs],
            "cameras": {},
        },
        counts={
            "motions": len(logs),
            "commands": sum(len(log.command) for log in logs),
            "states": sum(len(log.state) for log in logs),
        },
        measurements=measured,
        findings=by_severity(what_is_wrong(joints, fits, rests, summary, files, unit)),
        assumes=ASSUMES,
    )


def _read(folder: Path) -> tuple[ActuatorLog, dict[str, Any]]:
    command, state = (read_csv(folder / name, TABLE_ROWS) for name in (COMMAND, STATE))
    for table in (command, state):
        for name in ("timestamp", "positions"):
            if name not in table.columns:
                raise DataError(f"{table.path} has no column {name!r}; it has {list(table.columns)}")
    sent = matrix(command, "positions")
    names = _joints(folder, sent.shape[1])
    measured = matrix(state, "positions", sent.shape[1])
    sent_at, measured_at = _times(command), _times(state)
    found = time_unit(float(np.median(np.diff(sent_at))))
    if found is None:
        raise DataError(
            f"{folder / COMMAND}: time stamps {np.median(np.diff(sent_at)):g} apart are no rate between 1 and"
            " 1000 Hz in any unit; check the clock"
        )
    unit, length = found
    log = ActuatorLog(
        name=folder.name,
        joints=names,
        command_time_s=sent_at * length,
        command=sent,
        state_time_s=measured_at * length,
        state=measured,
    )
    facts: dict[str, Any] = {
        "time_unit": unit,
        "period_ms": 1e3 * log.period_s,
        "longest_gap_ms": 1e3 * float(np.diff(log.command_time_s).max()),
        "duration_s": float(log.command_time_s[-1] - log.command_time_s[0]),
        "commands": len(sent),
        "states": len(measured),
        "clocks_are_identical": bool(np.array_equal(sent_at, measured_at)),
        "start_command": dict(zip(names, sent[0].tolist(), strict=True)),
        "columns": list(state.columns),
        "other_steps": {
            n: smallest_step(matrix(state, n)) for n in state.columns if n in ("velocities", "torques")
        },
        "events": _events(folder, length),
    }
    return log, facts


def _times(table: TextTable) -> NDArray[np.float64]:
    times = table.numbers("timestamp")
    if len(times) < 12 or not np.isfinite(times).all() or (np.diff(times) <= 0).any():
        raise DataError(
            f"{table.path}: {len(times)} time stamps, expected at least 12 finite ones that increase; repair"
            " the log"
        )
    return times


def _joints(folder: Path, width: int) -> tuple[str, ...]:
    path = folder / JOINTS
    names = tuple(read_text(path, _NAMES_BYTES).split()) if path.exists() else ()
    if names and len(names) != width:
        raise DataError(f"{path} names {len(names)} joints, the commands have {width}; correct the list")
    return names or tuple(f"joint_{k}" for k in range(width))


def _events(folder: Path, length: float) -> list[dict[str, Any]]:
    path = folder / EVENTS
    if not path.is_file():
        return []
    table = read_csv(path)
    if "event" not in table.columns or "timestamp" not in table.columns:
        return []
    return [
        {"event": e, "time_s": t * length}
        for e, t in zip(table.column("event"), table.numbers("timestamp").tolist(), strict=True)
    ][:100]


def _unit(steps: Mapping[str, float | None]) -> dict[str, Any]:
    """Return the unit most joints' encoder steps agree on."""
    read = {n: found for n, s in steps.items() if (found := angle_unit(s)) is not None}
    if not read:
        return {"unit": None, "why": "no joint's smallest step is a turn over a power of two"}
    votes = list(read.values())
    unit, bits = max(set(votes), key=votes.count)
    return {
        "unit": unit,
        "encoder_bits": bits,
        "joints": [n for n, f in read.items() if f == (unit, bits)],
        "other_steps": [n for n in steps if n not in read],
    }


def _summary(fits: Sequence[JointFollow], step: float | None, unit: Mapping[str, Any]) -> dict[str, Any]:
    moving = [f for f in fits if f.scale is not None]
    still = [f for f in fits if f.scale is None]
    resolved = [1e3 * f.lag_high_s for f in moving if f.is_resolved and f.lag_high_s is not None]
    biases = np.array([f.bias for f in fits])
    side = float(np.sign(biases.mean())) if len(biases) else 0.0
    same = float((np.sign(biases) == side).mean()) if len(biases) else 0.0
    reference = step or 0.0
    return {
        "motions": len(fits),
        "moving": len(moving),
        "scale": _span([f.scale for f in moving]),
        "lag_ms_up_to": _span(resolved),
        "lag_resolved_in": len(resolved),
        "bias": _span(biases.tolist()) | {"mean": float(biases.mean())},
        "is_loaded": bool(reference > 0 and abs(biases.mean()) > _LOADED_STEPS * reference and same >= 0.75),
        "state_range_while_command_constant": _span([f.state_range for f in still]),
        "unit": unit["unit"],
    }


def _span(values: Sequence[float | None]) -> dict[str, float | None]:
    known = [v for v in values if v is not None]
    return {"min": min(known), "max": max(known)} if known else {"min": None, "max": None}
