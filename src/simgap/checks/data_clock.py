"""Can the recorded clock be believed: real or positional time stamps, measured rate against the declared one, gaps."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.checks.data_pooled import Pooled
from simgap.checks.data_repeats import check_repeats
from simgap.checks.data_report import DataFinding, Severity, listed
from simgap.episodes.layout import TIME

_POSITIONAL_S = 2e-4
"""float32 seconds of a long episode round to about this."""
_RATE_TOLERANCE = 0.02
_GAP = 2.5


def check_clock(pooled: Pooled) -> tuple[dict[str, Any], list[DataFinding]]:
    """Return the measured clock and its findings, and what the images say about the rate; our own ``time_s`` is used where a dataset has it."""
    measured, found = _clock(pooled)
    images, image_findings = check_repeats(pooled, measured)
    return measured | {"images": images}, [*found, *image_findings]


def _clock(pooled: Pooled) -> tuple[dict[str, Any], list[DataFinding]]:
    key = TIME if TIME in pooled.episodes[0] else "timestamp"
    declared = pooled.dataset.info.rate_hz
    if key not in pooled.episodes[0]:
        finding = DataFinding(
            code="no_timestamps",
            severity=Severity.WARNING,
            sentence="the data have no timestamp column: the true rate cannot be checked",
            remedy="record the clock of each frame",
        )
        return {"source": None, "declared_hz": declared}, [finding]
    clocks = [np.asarray(e[key], dtype=np.float64).reshape(-1) for e in pooled.episodes]
    steps = np.concatenate([np.diff(c) for c in clocks] + [np.zeros(0)])
    measured: dict[str, Any] = {"source": key, "declared_hz": declared, "is_positional": False, "measured_hz": None}
    if len(steps) == 0:
        return measured, []
    spread = {"mean": steps.mean(), "median": np.median(steps), "std": steps.std(), "min": steps.min(), "max": steps.max()}
    measured["stamped_hz"] = float(1.0 / steps.mean()) if steps.mean() > 0 else None
    measured["step_ms"] = {name: _ms(value) for name, value in spread.items()}
    if all(np.abs(c - c[0] - np.arange(len(c)) / declared).max() < _POSITIONAL_S for c in clocks):
        return _positional(measured, key, declared)
    measured["measured_hz"] = measured["stamped_hz"]
    found = [*_backwards(pooled, clocks, key), *_rate(pooled, measured, clocks), *_gaps(pooled, clocks, float(np.median(steps)))]
    return measured, [*found, *_overrun(pooled, measured, clocks, key)]


def _positional(measured: dict[str, Any], key: str, declared: float) -> tuple[dict[str, Any], list[DataFinding]]:
    measured["is_positional"] = True
    if key == TIME:
        return measured | {"measured_hz": declared}, []
    finding = DataFinding(
        code="positional_timestamps",
        severity=Severity.NOTE,
        sentence=f"timestamps are positional, exactly k/{declared:g}: the true recording rate cannot be checked from them",
        remedy="measure the loop on the robot, or record a real clock beside the timestamp",
        feature="timestamp",
        numbers={"declared_hz": declared},
    )
    return measured, [finding]


def _backwards(pooled: Pooled, clocks: list[NDArray[np.float64]], key: str) -> list[DataFinding]:
    bad = {n: int(np.argmax(np.diff(c) <= 0)) + 1 for n, c in zip(pooled.indices, clocks, strict=True) if (np.diff(c) <= 0).any()}
    if not bad:
        return []
    first = next(iter(bad))
    return [
        DataFinding(
            code="clock_not_increasing",
            severity=Severity.FAULT,
            sentence=f"{key} does not increase in {len(bad)} episodes, first in episode {first} at frame {bad[first]}",
            remedy="drop the repeated frames, or record with a monotonic clock",
            feature=key,
            numbers={"first_bad_frame": {str(k): v for k, v in bad.items()}},
        )
    ]


def _rate(pooled: Pooled, measured: dict[str, Any], clocks: list[NDArray[np.float64]]) -> list[DataFinding]:
    declared, actual = float(measured["declared_hz"]), measured["measured_hz"]
    if actual is None or abs(actual / declared - 1.0) <= _RATE_TOLERANCE:
        return []
    longest = max(clocks, key=len)
    drift = float(longest[-1] - longest[0] - (len(longest) - 1) / declared)
    video = f"; videos played at {declared:g} fps drift {drift:+.2f} s from the log over the longest episode" if pooled.dataset.camera_keys else ""
    return [
        DataFinding(
            code="rate_mismatch",
            severity=Severity.FAULT if abs(actual / declared - 1.0) > 0.05 else Severity.WARNING,
            sentence=f"declared {declared:g} fps, measured {actual:.2f} Hz ({measured['step_ms']['mean']:.1f} ms mean step){video}",
            remedy="declare the measured rate, or resample to the declared one; run the policy at the rate it was recorded at",
            feature=str(measured["source"]),
            numbers={"declared_hz": declared, "measured_hz": actual, "drift_s": drift},
        )
    ]


def _overrun(pooled: Pooled, measured: dict[str, Any], clocks: list[NDArray[np.float64]], key: str) -> list[DataFinding]:
    """Find true time stamps that, times the declared rate, name frames that are not there."""
    declared = float(measured["declared_hz"])
    last = {n: round(float(c[-1] - c[0]) * declared) for n, c in zip(pooled.indices, clocks, strict=True)}
    beyond = {n: k for n, k in last.items() if k >= pooled.lengths[n]}
    if not beyond or key == TIME:
        return []
    worst = max(beyond, key=lambda n: beyond[n] - pooled.lengths[n])
    return [
        DataFinding(
            code="timestamps_overrun",
            severity=Severity.NOTE,
            sentence=f"time stamps are a real clock: time x {declared:g} fps names frames beyond the last in {len(beyond)} episodes (frame {beyond[worst]} of "
            f"{pooled.lengths[worst]} in episode {worst}), which crashes loaders that look frames up so; nothing is wrong with the data",
            remedy="look frames up by the nearest presentation time and stop at the last one",
            feature=key,
            numbers={str(n): {"asked_for": k, "frames": pooled.lengths[n]} for n, k in beyond.items()},
        )
    ]


def _gaps(pooled: Pooled, clocks: list[NDArray[np.float64]], median: float) -> list[DataFinding]:
    gaps = {n: float(np.diff(c).max()) for n, c in zip(pooled.indices, clocks, strict=True) if len(c) > 1 and np.diff(c).max() > _GAP * median}
    if not gaps:
        return []
    worst = max(gaps, key=lambda n: gaps[n])
    size = f"{_ms(gaps[worst]):.0f} ms in episode {worst} against a median of {_ms(median):.0f} ms"
    return [
        DataFinding(
            code="clock_gaps",
            severity=Severity.WARNING,
            sentence=f"{len(gaps)} episodes have gaps of more than {_GAP:g} steps: {size}",
            remedy=f"look at episodes {listed([str(n) for n in sorted(gaps, key=lambda n: -gaps[n])])}; cut them at the gap or drop them",
            numbers={"largest_gap_ms": {str(n): _ms(g) for n, g in gaps.items()}, "median_ms": _ms(median)},
        )
    ]


def _ms(seconds: float | np.floating[Any]) -> float:
    return float(seconds) * 1e3
