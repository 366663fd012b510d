"""Can the recorded clock be believed: real or positional time stamps, measured rate against the declared one, gaps and pauses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from simgap.checks.data.clock.facts import Clock, Running, pooled_step, rate_groups, running
from simgap.checks.data.clock.faults import hours, read_stamps, running_on
from simgap.checks.data.clock.gaps import find_gaps, find_jitter, find_overrun
from simgap.checks.data.clock.repeats import check_repeats
from simgap.checks.data.pooled import Pooled
from simgap.checks.data.report import DataFinding, Severity, listed
from simgap.episodes.formats.commands import convert_command
from simgap.episodes.formats.layout import TIME, TUB
from simgap.wording import number_of

_POSITIONAL_S = 2e-4
"""float32 seconds of a long episode round to about this."""
_RATE_TOLERANCE = 0.02
_RATE_FAULT = 0.05
_RATES_APART = 0.1
_FEW_STEPS = 10
"""An episode of fewer says nothing of its rate."""
_NO_LOOP_HZ = 150.0
"""A tub stamped faster than this was stamped while it was written; no car's loop runs so."""


def check_clock(pooled: Pooled) -> tuple[dict[str, Any], list[DataFinding]]:
    """Return the measured clock and its findings, and what the images say about the rate; our own ``time_s`` is used where a dataset has it."""
    measured, found = _clock(pooled)
    found = [*found, *_paused_between(pooled, measured)]
    images, image_findings = check_repeats(pooled, measured)
    return measured | {"images": images}, [*found, *image_findings]


def _clock(pooled: Pooled) -> tuple[dict[str, Any], list[DataFinding]]:
    dataset, declared = pooled.dataset, pooled.dataset.info.rate_hz
    key = dataset.time_key(pooled.episodes[0])
    if key is None:
        return {"source": None, "declared_hz": declared}, [_none()]
    raw = [np.asarray(e[key]).reshape(-1) for e in pooled.episodes]
    stamps = read_stamps(
        pooled.indices, raw, key, declared, convert_command(dataset, "--clock", "positional")
    )
    clocks, found = stamps.clocks, stamps.found
    steps = np.concatenate([np.diff(c) for c in clocks] + [np.zeros(0)])
    measured: dict[str, Any] = {
        "source": key,
        "declared_hz": declared,
        "is_positional": False,
        "measured_hz": None,
    }
    if len(steps) == 0:
        return measured, found
    spread = {
        "mean": steps.mean(),
        "median": np.median(steps),
        "std": steps.std(),
        "min": steps.min(),
        "max": steps.max(),
    }
    measured["stamped_hz"] = float(1.0 / steps.mean()) if steps.mean() > 0 else None
    measured["step_ms"] = {name: 1e3 * float(value) for name, value in spread.items()}
    if not stamps.is_usable:
        return measured, found
    if dataset.info.is_lerobot and key == "timestamp":
        found = [*found, *_runs_on(pooled, clocks)]
    if all(
        _is_positional(c, declared, is_float32=r.dtype == np.float32)
        for c, r in zip(clocks, raw, strict=True)
    ):
        return _positional(measured, key, declared, found)
    sorted_out = {n: running(c, declared) for n, c in zip(pooled.indices, clocks, strict=True)}
    told = {n: r for n, r in sorted_out.items() if pooled.lengths[n] > _FEW_STEPS} or sorted_out
    step = pooled_step(told, pooled.lengths)
    measured |= _figures(sorted_out, step)
    if step is None:
        return measured, found
    changes = [*_rates(pooled, told), *_changes(pooled, told)]
    found = [*found, *(changes or _rate(pooled, measured))]
    # the steps of stamps that are no clock of the loop have no gaps either
    if measured["measured_hz"] < 4 * declared:
        found += [
            *find_gaps(pooled, sorted_out, step),
            *_pauses(pooled, sorted_out),
            *find_jitter(measured, sorted_out),
        ]
    return measured, [*found, *find_overrun(pooled, measured, clocks, key)]


def _none() -> DataFinding:
    return DataFinding(
        code="no_timestamps",
        severity=Severity.NOTE,
        sentence="the data have no timestamp column: the true rate cannot be checked",
        remedy="record the clock of each frame, or name the column that holds it with --map KEY=time",
    )


def _is_positional(clock: Clock, declared: float, *, is_float32: bool) -> bool:
    rounding = float(np.spacing(np.float32(np.abs(clock).max(initial=0.0)))) if is_float32 else 0.0
    tolerance = max(_POSITIONAL_S, min(rounding, 0.05 / declared))
    return (
        bool(np.abs(clock - clock[0] - np.arange(len(clock)) / declared).max() < tolerance)
        if len(clock)
        else True
    )


def _positional(
    measured: dict[str, Any], key: str, declared: float, found: list[DataFinding]
) -> tuple[dict[str, Any], list[DataFinding]]:
    measured["is_positional"] = True
    if key == TIME:
        return measured | {"measured_hz": declared}, found
    finding = DataFinding(
        code="positional_timestamps",
        severity=Severity.NOTE,
        sentence=(
            f"timestamps are positional, exactly k/{declared:g}: the true recording rate cannot be checked"
            " from them"
        ),
        remedy="measure the loop on the robot, or record a real clock beside the timestamp",
        feature="timestamp",
        numbers={"declared_hz": declared},
    )
    return measured, [*found, finding]


def _figures(found: Mapping[int, Running], step: float | None) -> dict[str, Any]:
    """Return rate, jitter, gaps and pauses of all episodes together."""
    pauses = [s for r in found.values() for _, s in r.pauses]
    return {
        "measured_hz": None if step is None else 1.0 / step,
        "jitter_ms": 1e3 * float(np.median([r.jitter_s for r in found.values()])),
        "missing_frames": sum(r.missing for r in found.values()),
        "largest_gap_ms": 1e3 * max((r.largest_gap_s for r in found.values()), default=0.0),
        "pauses": {
            "count": len(pauses),
            "total_s": float(sum(pauses)),
            "longest_s": float(max(pauses, default=0.0)),
        },
    }


def _rate(pooled: Pooled, measured: dict[str, Any]) -> list[DataFinding]:
    dataset, declared, actual = pooled.dataset, float(measured["declared_hz"]), measured["measured_hz"]
    if actual is None or abs(actual / declared - 1.0) <= _RATE_TOLERANCE:
        return []
    longest = max(pooled.lengths.values())
    drift = (longest - 1) * (1.0 / actual - 1.0 / declared)
    numbers = {"declared_hz": declared, "measured_hz": actual, "drift_s": drift}
    if dataset.info.version == TUB and actual > _NO_LOOP_HZ:
        sentence = (
            f"records are {1e3 / actual:.3g} ms apart ({actual:.0f} Hz): they were stamped when the tub was"
            " written, not when the car drove"
        )
        rate = (
            ""
            if dataset.keymap is not None and dataset.keymap.rate_hz
            else "state the rate of the drive with --rate-hz; "
        )
        remedy = f"{rate}then leave the stamps out: {convert_command(dataset, '--clock', 'positional')}"
        return [
            DataFinding(
                code="rate_mismatch",
                severity=Severity.FAULT,
                sentence=sentence,
                remedy=remedy,
                feature=str(measured["source"]),
                numbers=numbers,
            )
        ]
    video = (
        f"; videos played at {declared:g} fps drift {drift:+.2f} s from the log over the longest episode"
        if dataset.camera_keys
        else ""
    )
    is_far = abs(actual / declared - 1.0) > _RATE_FAULT
    return [
        DataFinding(
            code="rate_mismatch",
            severity=Severity.FAULT if is_far else Severity.NOTE,
            sentence=(
                f"declared {declared:g} fps, measured {actual:.2f} Hz ({1e3 / actual:.1f} ms step while it"
                f" runs, pauses left out){video}"
            ),
            remedy=(
                "declare the measured rate, or resample to the declared one; run the policy at the rate it"
                " was recorded at"
            ),
            feature=str(measured["source"]),
            numbers=numbers,
        )
    ]


def _rates(pooled: Pooled, found: Mapping[int, Running]) -> list[DataFinding]:
    """Find sessions that ran at different rates and stand in one dataset that declares one."""
    groups = rate_groups(found, _RATES_APART)
    if len(groups) < 2:
        return []
    usual = groups[0][0]
    others = [(step, episodes) for step, episodes in groups[1:] if abs(step / usual - 1.0) > _RATES_APART]
    if not others:
        return []
    said = [
        f"{1 / step:.1f} Hz in {number_of(len(episodes), 'episode')} ({listed([str(k) for k in episodes])})"
        for step, episodes in (groups[0], *others)
    ]
    slow = max(step for step, _ in groups)
    return [
        DataFinding(
            code="rates_differ",
            severity=Severity.FAULT,
            sentence=(
                f"episodes were recorded at different rates, {pooled.dataset.info.rate_hz:g} fps declared for"
                f" all: {listed(said)}"
            ),
            remedy=(
                "keep one rate: write each group by itself with --episodes, the faster ones with --resample"
                f" {1 / slow:.3g}, and declare that rate"
            ),
            feature="timestamp",
            numbers={f"{1 / step:.2f}": episodes for step, episodes in groups},
        )
    ]


def _changes(pooled: Pooled, found: Mapping[int, Running]) -> list[DataFinding]:
    """Find episodes whose rate changes on the way and stays changed."""
    changed = {n: r.change for n, r in found.items() if r.change is not None}
    if not changed:
        return []
    parts = [
        f"episode {n} from {1 / a:.1f} to {1 / b:.1f} Hz at frame {k}" for n, (k, a, b) in changed.items()
    ]
    return [
        DataFinding(
            code="rate_changes",
            severity=Severity.FAULT,
            sentence=(
                f"the rate changes within {len(changed)} episodes, {pooled.dataset.info.rate_hz:g} fps"
                f" declared: {listed(parts)}"
            ),
            remedy=(
                "split these episodes there: two recordings were joined, or the loop was slowed down by"
                " something that began then"
            ),
            feature="timestamp",
            numbers={
                str(n): {"frame": k, "before_hz": 1 / a, "after_hz": 1 / b}
                for n, (k, a, b) in changed.items()
            },
        )
    ]


def _pauses(pooled: Pooled, found: Mapping[int, Running]) -> list[DataFinding]:
    """Say where an episode goes on after a pause: a chunk of actions runs over it."""
    pauses = {n: r.pauses for n, r in found.items() if r.pauses}
    if not pauses:
        return []
    lengths = [s for each in pauses.values() for _, s in each]
    where = [
        f"episode {n} before frame {k} ({s:.1f} s{hours(s)})" for n, each in pauses.items() for k, s in each
    ]
    return [
        DataFinding(
            code="recording_pauses",
            severity=Severity.WARNING,
            sentence=(
                f"{len(lengths)} pauses within {number_of(len(pauses), 'episode')}, {sum(lengths):.1f}"
                " s in all, the"
                f" longest {max(lengths):.1f} s: {listed(where)}"
            ),
            remedy=(
                "split the episodes there, or drop them; a chunk of actions must not run over a pause. The"
                " rate is that of the loop, without them"
            ),
            feature="timestamp",
            numbers={
                "count": len(lengths),
                "total_s": sum(lengths),
                "longest_s": max(lengths),
                "pauses": {str(n): [[k, s] for k, s in each] for n, each in pauses.items()},
            },
        )
    ]


def _paused_between(pooled: Pooled, measured: dict[str, Any]) -> list[DataFinding]:
    """Say where the reader ended an episode because the recording paused, or its clock was set."""
    steps = {
        e.index: float(e.extra["pause_before_s"])
        for e in pooled.dataset.entries
        if "pause_before_s" in e.extra
    }
    rate = measured.get("measured_hz") or measured["declared_hz"]
    pauses, back = {k: s for k, s in steps.items() if s > 0}, {k: s for k, s in steps.items() if s < 0}
    found = []
    if pauses:
        longest = max(pauses.values())
        measured["pauses"] = {"count": len(pauses), "total_s": sum(pauses.values()), "longest_s": longest}
        found.append(
            DataFinding(
                code="recording_pauses",
                severity=Severity.NOTE,
                sentence=(
                    f"the recording paused {len(pauses)} times, {sum(pauses.values()):.1f} s in all, the"
                    f" longest {longest:.1f} s{hours(longest)}; an episode ends at each"
                    f" ({pooled.dataset.n_episodes} in all), and the rate of {rate:.3g} Hz is that of the"
                    " loop"
                ),
                remedy="nothing to do",
                numbers={**measured["pauses"], "before_episode_s": {str(k): s for k, s in pauses.items()}},
            )
        )
    if back:
        parts = [f"by {-s:.6g} s{hours(s)} before episode {k}" for k, s in back.items()]
        found.append(
            DataFinding(
                code="clock_set_back",
                severity=Severity.NOTE,
                sentence=(
                    f"the clock was set back {len(back)} times: {listed(parts)}; an episode ends at each"
                ),
                remedy="nothing to do here; record with a monotonic clock",
                numbers={str(k): s for k, s in back.items()},
            )
        )
    return found


def _runs_on(pooled: Pooled, clocks: list[Clock]) -> list[DataFinding]:
    """Find stamps of a LeRobot dataset that do not begin at 0 in every episode."""
    starts = running_on(pooled.indices, clocks, pooled.dataset.info.rate_hz)
    if not starts:
        return []
    has_videos = any(e.videos for e in pooled.dataset.entries)
    first, last = next(iter(starts)), list(starts)[-1]
    lookup = (
        "LeRobot looks a frame up at this time of the episode's video, and finds none or another"
        if has_videos
        else "LeRobot's begin at 0"
    )
    return [
        DataFinding(
            code="clock_runs_on",
            severity=Severity.FAULT if has_videos else Severity.WARNING,
            sentence=(
                f"timestamp does not begin at 0 in {len(starts)} of {number_of(len(clocks), 'episode')}"
                f" (episode {first}"
                f" at {starts[first]:.6g} s, episode {last} at {starts[last]:.6g} s): {lookup}"
            ),
            remedy=(
                f"subtract the first stamp of each episode; this does it: {convert_command(pooled.dataset)}"
            ),
            feature="timestamp",
            numbers={str(n): s for n, s in starts.items()},
        )
    ]
