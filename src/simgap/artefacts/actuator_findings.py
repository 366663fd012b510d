"""What an actuator's log says is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.checks.data.report import DataFinding, Severity, listed
from simgap.measures.actuators import (
    LONGEST_LAG_S,
    Holds,
    JointFollow,
)

_UNIT_FACTORS = {
    "degrees for radians": 180.0 / np.pi,
    "radians for degrees": np.pi / 180.0,
    "percent for a fraction": 100.0,
    "a fraction for percent": 0.01,
}


def what_is_wrong(
    joints: Sequence[str],
    fits: Mapping[str, Sequence[JointFollow]],
    rests: Mapping[str, Sequence[Holds]],
    summary: Mapping[str, Mapping[str, Any]],
    files: Sequence[Mapping[str, Any]],
    unit: Mapping[str, Any],
) -> list[DataFinding]:
    """Return everything that is wrong with actuator logs."""
    found = [
        *_units(unit, files),
        *_conventions(joints, fits),
        *_loads(summary),
        *_dead_bands(joints, rests),
        *_lags(joints, fits),
        *_stiction(joints, fits),
    ]
    if all(f["clocks_are_identical"] for f in files):
        found.append(
            DataFinding(
                code="command_and_state_share_stamps",
                severity=Severity.NOTE,
                sentence=(
                    "command and state carry the same time stamps: both were logged in one pass of the loop,"
                    " so part of every lag is the order of logging"
                ),
                remedy="stamp the read and the write apart before a lag is compared between two robots",
            )
        )
    return found


def _units(unit: Mapping[str, Any], files: Sequence[Mapping[str, Any]]) -> list[DataFinding]:
    names = sorted({str(f["time_unit"]) for f in files})
    known = unit["unit"]
    angle = (
        f"positions are in {known} (encoder of {unit['encoder_bits']} bits)"
        if known
        else "the unit of positions cannot be told from the encoder's step"
    )
    found = [
        DataFinding(
            code="units_undeclared",
            severity=Severity.NOTE if known else Severity.WARNING,
            sentence=(
                f"the files state no units; from the numbers, {angle} and time stamps in"
                f" {' and '.join(names)}"
            ),
            remedy=(
                "write the units beside the logs; the same layout is used with other time units by simulators"
            ),
            numbers={"position": dict(unit), "time": names},
        )
    ]
    if len(names) > 1:
        found.append(
            DataFinding(
                code="time_units_differ",
                severity=Severity.FAULT,
                sentence=f"motions of one folder use different time units: {', '.join(names)}",
                remedy="convert to one unit before comparing rates or lags",
                numbers={"time": names},
            )
        )
    return found


def _conventions(joints: Sequence[str], fits: Mapping[str, Sequence[JointFollow]]) -> list[DataFinding]:
    """Name a sign or a unit only where every motion of a joint shows the same factor; gravity and dead band never do."""
    found = []
    for k, name in enumerate(joints):
        scales = [f[k].scale for f in fits.values() if f[k].scale is not None and (f[k].r2 or 0.0) > 0.9]
        known = np.array([s for s in scales if s is not None])
        if not len(known):
            continue
        if (known < 0).all():
            found.append(
                _convention(
                    name, "sign_flip", f"moves against its command in all {len(known)} motions", known
                )
            )
        for words, factor in _UNIT_FACTORS.items():
            if (np.abs(known / factor - 1.0) < 0.1).all():
                found.append(
                    _convention(
                        name,
                        "unit_mismatch",
                        f"has a scale near {factor:.4g} in all {len(known)} motions: {words}",
                        known,
                    )
                )
    return found


def _convention(joint: str, code: str, what: str, scales: NDArray[np.float64]) -> DataFinding:
    return DataFinding(
        code=code,
        severity=Severity.FAULT,
        sentence=f"{joint} {what}",
        remedy="correct the convention of command or state for this joint",
        joints=(joint,),
        numbers={"scales": scales.tolist()},
    )


def _loads(summary: Mapping[str, Mapping[str, Any]]) -> list[DataFinding]:
    loaded = {n: s for n, s in summary.items() if s["is_loaded"]}
    if not loaded:
        return []
    parts = [
        f"{n} {s['bias']['mean']:+.3f} (scale {s['scale']['min']:.2f} to {s['scale']['max']:.2f})"
        for n, s in loaded.items()
        if s["scale"]["min"] is not None
    ]
    return [
        DataFinding(
            code="load",
            severity=Severity.NOTE,
            sentence=(
                "joints rest off their command on one side and their apparent scale changes with the motion:"
                f" {listed(parts)}: gravity with dead band, not a unit or an offset"
            ),
            remedy="model the load, or compare joints at equal poses; do not correct it as a scale",
            joints=tuple(loaded),
            numbers={n: dict(s["bias"]) | {"scale": s["scale"]} for n, s in loaded.items()},
        )
    ]


def _dead_bands(joints: Sequence[str], rests: Mapping[str, Sequence[Holds]]) -> list[DataFinding]:
    widths: dict[str, list[float]] = {}
    for held in rests.values():
        for name, rest in zip(joints, held, strict=True):
            if rest.hysteresis is not None and rest.rising >= 2 and rest.falling >= 2:
                widths.setdefault(name, []).append(rest.hysteresis)
    if not widths:
        return []
    mean = {
        n: float(np.mean(v))
        for n, v in sorted(widths.items(), key=lambda item: -abs(float(np.mean(item[1]))))
    }
    return [
        DataFinding(
            code="dead_band",
            severity=Severity.NOTE,
            sentence="held joints rest apart by the side they came from: "
            + listed([f"{n} {w:.4f}" for n, w in mean.items()]),
            remedy="give the simulator's joints friction; a replay cannot be closer than this",
            joints=tuple(mean),
            numbers={"width": mean},
        )
    ]


def _lags(joints: Sequence[str], fits: Mapping[str, Sequence[JointFollow]]) -> list[DataFinding]:
    unresolved = {
        m: [n for n, f in zip(joints, row, strict=True) if f.lag_samples is not None and not f.is_resolved]
        for m, row in fits.items()
    }
    unresolved = {m: names for m, names in unresolved.items() if names}
    if not unresolved:
        return []
    return [
        DataFinding(
            code="lag_not_identifiable",
            severity=Severity.NOTE,
            sentence=(
                f"the best lag is the longest one tried ({1e3 * LONGEST_LAG_S:.0f} ms):"
                f" {listed([f'{m} {names}' for m, names in unresolved.items()], 8)}; slow motions do not show"
                " a lag"
            ),
            remedy="take the lag from fast motions of the same joint",
            numbers={"motions": unresolved},
        )
    ]


def _stiction(joints: Sequence[str], fits: Mapping[str, Sequence[JointFollow]]) -> list[DataFinding]:
    still = {
        (m, n): f.state_range
        for m, row in fits.items()
        for n, f in zip(joints, row, strict=True)
        if f.lag_samples is None
    }
    frozen = [k for k, reach in still.items() if reach == 0.0]
    if not frozen:
        return []
    return [
        DataFinding(
            code="stiction",
            severity=Severity.NOTE,
            sentence=(
                f"where a command is constant the state does not move at all in {len(frozen)} of {len(still)}"
                " cases: stiction within one encoder step"
            ),
            remedy="none needed; do not read it as a dead encoder while the joint moves elsewhere",
            numbers={"still": len(frozen), "cases": len(still)},
        )
    ]
