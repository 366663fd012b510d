"""Stamps that are no time in seconds: another unit, a count of frames, single steps, a clock too coarse, one that jumps or starts again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simgap.checks.data.clock.facts import Clock, tick_of
from simgap.checks.data.report import DataFinding, Severity, listed
from simgap.wording import number_of

_UNITS = {"milliseconds": 1e3, "microseconds": 1e6, "nanoseconds": 1e9}
_HOUR_S = 3600.0
_EPOCH_S, _FAR_S = 1e7, 1e4
"""Stamps beyond the first count from a date, beyond the second from the start of a machine and not of a recording."""
_BLURRED, _LOST = 0.2, 0.5
"""Shares of a step by which neighbouring numbers of a type lie apart that blur single steps, and that lose them."""


class Stamps(NamedTuple):
    """The stamps of a dataset, as far as they can be used as time."""

    clocks: list[Clock]
    """In seconds, one array per episode."""
    found: list[DataFinding]
    is_usable: bool
    """False where steps cannot be read from them."""


def read_stamps(
    indices: Sequence[int], raw: Sequence[NDArray[Any]], key: str, declared_hz: float, convert: str
) -> Stamps:
    """Return stamps in seconds, and what is wrong with them as they are stored.

    Args:
        indices: episode numbers.
        raw: stored stamps per episode, ``(T,)``.
        key: the column.
        declared_hz: frames per second that the dataset declares.
        convert: the command that writes the dataset with positional stamps.
    """
    clocks = [np.asarray(c, dtype=np.float64).reshape(-1) for c in raw]
    if (steps := _held_steps(clocks, key, declared_hz, convert)) is not None:
        return Stamps([np.cumsum(c) for c in clocks], [steps], True)
    if (coarse := _coarse(raw, clocks, key, declared_hz, convert)) is not None:
        return Stamps(clocks, [coarse], False)
    found = [*_backwards(indices, clocks, key)]
    unit = _unit(clocks, key, declared_hz, convert)
    if unit is not None:
        clocks = [c / unit.numbers["per_second"] for c in clocks]
        found.append(unit)
    return Stamps(clocks, found, True)


def _held_steps(clocks: Sequence[Clock], key: str, declared_hz: float, convert: str) -> DataFinding | None:
    """Find a column that holds the time since the frame before and not the time."""
    values = np.concatenate([c[1:] for c in clocks] + [np.zeros(0)])
    steps = np.concatenate([np.diff(c) for c in clocks] + [np.zeros(0)])
    if (
        len(values) < 10
        or (values < 0).any()
        or not 0.5 < float(np.median(values)) * declared_hz < 2.0
        or (steps > 0).mean() > 0.75
    ):
        return None
    return DataFinding(
        code="clock_holds_steps",
        severity=Severity.FAULT,
        sentence=(
            f"{key} holds the time since the frame before (median {1e3 * float(np.median(values)):.1f} ms),"
            " not the time since the start"
        ),
        remedy=f"add the steps up in the recorder; for this copy, positional stamps: {convert}",
        feature=key,
        numbers={"median_s": float(np.median(values))},
    )


def _coarse(
    raw: Sequence[NDArray[Any]], clocks: Sequence[Clock], key: str, declared_hz: float, convert: str
) -> DataFinding | None:
    """Find a clock that cannot count the frames apart: its type is too coarse for a date, or it ticks more slowly than frames come."""
    tick = tick_of(clocks)
    values = np.concatenate(list(clocks)) if clocks else np.zeros(0)
    steps = np.concatenate([np.diff(c) for c in clocks] + [np.zeros(0)])
    if len(steps) < 10:
        return None
    largest = float(np.abs(values).max())
    spacing = float(np.spacing(np.float32(largest)))
    is_float32 = all(c.dtype == np.float32 for c in raw) or bool(
        (values == values.astype(np.float32)).all() and largest > _FAR_S
    )
    usual = float(np.median(np.abs(steps)))
    are_seconds = usual * declared_hz < 10.0  # steps of another unit are far larger, and told as that
    is_lost = is_float32 and are_seconds and largest > _FAR_S and spacing > _BLURRED / declared_hz
    if tick is None and not is_lost:
        return None
    tick = spacing if tick is None else tick
    distinct = len(np.unique(values))
    numbers = {
        "distinct": distinct,
        "frames": len(values),
        "tick_s": tick if np.isfinite(tick) else None,
        "spacing_s": spacing,
        "largest": largest,
    }
    shared = f"{number_of(len(values), 'frame has', 'frames have')} {distinct} different stamps"
    if is_lost:
        since = "a date" if largest > _EPOCH_S else "a start long ago"
        return DataFinding(
            code="clock_lost_in_float32",
            severity=Severity.FAULT if spacing > _LOST / declared_hz else Severity.WARNING,
            sentence=(
                f"{key} counts from {since} (about {largest:.4g}) in float32, whose neighbouring numbers are"
                f" {spacing:g} s apart there, where frames come every {1 / declared_hz:.3g} s: {shared}, and"
                " the time of a frame is lost"
            ),
            remedy=(
                "store the time since the start of the episode, or float64; in this copy only the position"
                f" can be kept: {convert}"
            ),
            feature=key,
            numbers=numbers,
        )
    if not np.isfinite(tick):
        return DataFinding(
            code="clock_stands_still",
            severity=Severity.FAULT,
            sentence=f"{key} never changes within an episode: {shared}, no rate can be read from it",
            remedy=f"read the clock once per frame; for this copy, positional stamps: {convert}",
            feature=key,
            numbers=numbers,
        )
    if tick < 2.0 / declared_hz:  # frames written twice, or a millisecond clock under a fast loop
        return None
    return DataFinding(
        code="clock_too_coarse",
        severity=Severity.WARNING,
        sentence=(
            f"{key} moves in steps of {tick:g} s while frames come every {1 / declared_hz:.3g} s: {shared}"
        ),
        remedy=f"store fractions of a second; for this copy, positional stamps: {convert}",
        feature=key,
        numbers=numbers,
    )


def _unit(clocks: Sequence[Clock], key: str, declared_hz: float, convert: str) -> DataFinding | None:
    """Find stamps in another unit than seconds by what one step of them is."""
    steps = np.concatenate([np.diff(c) for c in clocks] + [np.zeros(0)])
    steps = steps[steps > 0]
    if len(steps) < 5:
        return None
    median = float(np.median(steps))
    if (steps == 1.0).mean() > 0.9 and declared_hz > 2.0 and declared_hz < 500.0:
        name, factor = "frames", declared_hz
    else:
        near = {n: f for n, f in _UNITS.items() if 0.5 < median * declared_hz / f < 2.0}
        if not near:
            return None
        name, factor = next(iter(near.items()))
    what = "counts frames" if name == "frames" else f"is in {name}"
    return DataFinding(
        code="clock_unit",
        severity=Severity.FAULT,
        sentence=(
            f"{key} {what}, and is read as seconds: it steps by {median:.6g} per frame where {declared_hz:g}"
            " fps are declared"
        ),
        remedy=f"divide it by {factor:g}; or write positional stamps: {convert}",
        feature=key,
        numbers={"unit": name, "per_second": factor, "median_step": median},
    )


def _backwards(indices: Sequence[int], clocks: Sequence[Clock], key: str) -> list[DataFinding]:
    back = {n: np.flatnonzero(np.diff(c) < 0) for n, c in zip(indices, clocks, strict=True)}
    same = {n: np.flatnonzero(np.diff(c) == 0) for n, c in zip(indices, clocks, strict=True)}
    bad = {n: int(min([*back[n], *same[n]])) + 1 for n in indices if len(back[n]) or len(same[n])}
    if not bad:
        return []
    first = next(iter(bad))
    jumps = {
        n: (int(k[0]) + 1, float(np.diff(c)[k[0]]), float(c[k[0] + 1]))
        for n, k, c in zip(indices, back.values(), clocks, strict=True)
        if len(k)
    }
    repeats = sum(len(k) for k in same.values())
    parts = [f"episode {n} at frame {k} {_jump(step, value, key)}" for n, (k, step, value) in jumps.items()]
    parts += (
        [f"{number_of(repeats, 'frame shares', 'frames share')} the stamp of the frame before"]
        if repeats
        else []
    )
    again = any(_starts_again(step, value) for _, step, value in jumps.values())
    remedy = "drop the repeated frames, or record with a monotonic clock"
    if again:
        remedy = (
            "a recording was appended without a border: split the episode at these frames, a chunk of actions"
            " must not run over them"
        )
    elif jumps:
        remedy = "record with a monotonic clock (time.monotonic), which no change of the wall clock moves"
    return [
        DataFinding(
            code="clock_not_increasing",
            severity=Severity.FAULT,
            sentence=(
                f"{key} does not increase in {number_of(len(bad), 'episode')}, first in episode {first}"
                " at frame"
                f" {bad[first]}: {listed(parts)}"
            ),
            remedy=remedy,
            feature=key,
            numbers={
                "first_bad_frame": {str(k): v for k, v in bad.items()},
                "repeated": repeats,
                "jumps_s": {str(n): s for n, (_, s, _) in jumps.items()},
            },
        )
    ]


def _starts_again(step: float, value: float) -> bool:
    return abs(value) < 0.1 * abs(step)


def _jump(step: float, value: float, key: str) -> str:
    if _starts_again(step, value):
        return f"starts again at {value:g}: another recording was appended"
    return f"goes back by {-step:.6g} s{hours(step)}"


def hours(step: float) -> str:
    """Return words for a jump of whole hours, as a change of time zone or of daylight saving makes; empty for others."""
    whole = round(abs(step) / _HOUR_S)
    return (
        f" ({whole} h: a change of time zone or of daylight saving)"
        if 1 <= whole <= 14 and abs(abs(step) - whole * _HOUR_S) < 5.0
        else ""
    )


def running_on(indices: Sequence[int], clocks: Sequence[Clock], declared_hz: float) -> Mapping[int, float]:
    """Return the first stamp of each episode that does not begin at 0."""
    return {
        n: float(c[0])
        for n, c in zip(indices, clocks, strict=True)
        if len(c) and abs(float(c[0])) > 1.5 / declared_hz
    }
