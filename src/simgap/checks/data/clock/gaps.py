"""Gaps, pauses, jitter and overruns of the clock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simgap.checks.data.clock.facts import Clock, Running
from simgap.checks.data.pooled import Pooled
from simgap.checks.data.report import DataFinding, Severity, listed
from simgap.episodes.formats.layout import TIME
from simgap.wording import number_of

_FEW_MISSING = 0.01


_HICCUP_S = 0.5
"""Gaps up to this are what a busy USB bus does now and then, as long as few frames are missing."""


_MOST_JITTER = 0.2


def find_gaps(pooled: Pooled, found: Mapping[int, Running], step: float) -> list[DataFinding]:
    """Say which frames are missing between others; a pause is told apart."""
    gaps = {n: r for n, r in found.items() if r.missing}
    if not gaps:
        return []
    missing, frames = sum(r.missing for r in gaps.values()), sum(pooled.lengths.values())
    share = missing / (missing + frames)
    worst = max(gaps, key=lambda n: gaps[n].largest_gap_s or step)
    longest = max(gaps[worst].largest_gap_s, 2 * step)
    is_little = share < _FEW_MISSING and longest <= _HICCUP_S
    many = sorted(gaps, key=lambda n: -gaps[n].missing)
    return [
        DataFinding(
            code="clock_gaps",
            severity=Severity.NOTE if is_little else Severity.WARNING,
            sentence=(
                f"about {number_of(missing, 'frame is', 'frames are')} missing ({100 * share:.1f} %),"
                f" in {len(gaps)} of {len(found)}"
                f" episodes; the longest gap is {1e3 * longest:.0f} ms in episode {worst} against a step of"
                f" {1e3 * step:.0f} ms"
            ),
            remedy=(
                f"look at episodes {listed([str(n) for n in many])}; cut them at the gaps or drop them"
                if not is_little
                else "nothing to do; if it grows, look at the load of the machine and the USB bus"
            ),
            feature="timestamp",
            numbers={
                "largest_gap_ms": {str(n): 1e3 * r.largest_gap_s for n, r in gaps.items()},
                "missing": missing,
                "share": share,
                "step_ms": 1e3 * step,
            },
        )
    ]


def find_jitter(measured: dict[str, Any], found: Mapping[int, Running]) -> list[DataFinding]:
    """Return the findings on jitter."""
    bursts = [n for n, r in found.items() if r.in_bursts]
    jitter, step = measured["jitter_ms"], 1e3 / measured["measured_hz"]
    if bursts:
        return [
            DataFinding(
                code="clock_bursts",
                severity=Severity.WARNING,
                sentence=(
                    f"frames come in bursts in {len(bursts)} of {number_of(len(found), 'episode')}:"
                    " most steps are far"
                    f" from their median, {step:.1f} ms on the average while it runs"
                ),
                remedy=(
                    "stamp frames where they are taken and not where a buffer is emptied; a delta of two"
                    " states means nothing over unequal steps"
                ),
                feature="timestamp",
                numbers={"episodes": bursts, "mean_step_ms": step},
            )
        ]
    if jitter <= _MOST_JITTER * step:
        return []
    return [
        DataFinding(
            code="clock_jitter",
            severity=Severity.NOTE,
            sentence=f"steps scatter by {jitter:.1f} ms (standard deviation) around {step:.1f} ms",
            remedy=(
                "look frames up by time and not by number; a loop that sleeps for the rest of its period"
                " scatters less"
            ),
            feature="timestamp",
            numbers={"jitter_ms": jitter, "step_ms": step},
        )
    ]


def find_overrun(
    pooled: Pooled, measured: dict[str, Any], clocks: list[Clock], key: str
) -> list[DataFinding]:
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
            sentence=(
                f"time stamps are a real clock: time x {declared:g} fps names frames beyond the last in"
                f" {number_of(len(beyond), 'episode')} (frame {beyond[worst]} of"
                f" {pooled.lengths[worst]} in episode"
                f" {worst}), which crashes loaders that look frames up so; nothing is wrong with the data"
            ),
            remedy="look frames up by the nearest presentation time and stop at the last one",
            feature=key,
            numbers={str(n): {"asked_for": k, "frames": pooled.lengths[n]} for n, k in beyond.items()},
        )
    ]
