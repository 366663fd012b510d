"""Are images repeated: a camera slower than the rows, rows written faster than declared, a feed that froze for a while."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.checks.data.pooled import Pooled
from simgap.checks.data.report import DataFinding, Severity, listed
from simgap.errors import DataError

MOST_PIXELS = 30_000_000
"""Pixels looked at a camera, whole episodes evenly spread: about a second of decoding."""
FEWEST_FRAMES = 200
"""Frames looked at a camera whatever their size."""
_NEW = 0.2
"""Change between frames, of that of the liveliest tenth, above which a frame is a new picture where changes of all sizes occur."""
_APART = 3.0
"""Factor without any change between, above which small changes are compression and large ones new pictures."""
_NOTHING = 0.02
"""Mean change of a pixel, of 255, that cannot be told from none."""
_LEAST = 0.3
"""Mean change of a pixel, of 255, below which nothing is new: compression."""
_REGULAR = 0.9
_FREEZE_S = 1.0
_FEWEST_REPEATS = 5
_TRAVEL = 0.1
"""Share of a dimension's range that counts as motion of the robot during a freeze; a camera need not see small ones."""
_STRAIGHT = 0.02
"""Bend of an action between knots, of that at the knots, that interpolation leaves."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Feed:
    """What was seen of one camera."""

    changes: Mapping[int, NDArray[np.float64]]
    """Mean change of a pixel from frame to frame, by episode, ``(T - 1,)``."""
    undecoded: int
    """Episodes that could not be looked at; the check of the videos names them."""

    @property
    def threshold(self) -> float:
        """Change above which a frame is a new picture."""
        changes = np.concatenate(list(self.changes.values()))
        lively = float(np.quantile(changes, 0.9))
        return _gap(changes, 0.5 * _NEW * lively, lively) or max(_LEAST, _NEW * lively)

    def is_new(self, episode: int) -> NDArray[np.bool_]:
        """Return which frames are new pictures, ``(T,)``; the first always is."""
        return np.concatenate([[True], self.changes[episode] > self.threshold])


def check_repeats(pooled: Pooled, clock: Mapping[str, Any]) -> tuple[dict[str, Any], list[DataFinding]]:
    """Return what was measured by camera, and the findings.

    Args:
        pooled: the dataset.
        clock: what the clock check measured; a real clock decides between a slow camera and rows that are too
            fast.
    """
    feeds = {name: _feed(pooled, name) for name in pooled.dataset.camera_keys}
    feeds = {name: feed for name, feed in feeds.items() if feed.changes}
    measured: dict[str, Any] = {}
    for name, feed in feeds.items():
        news = {k: feed.is_new(k) for k in feed.changes}
        each = {k: _every(changes, feed.threshold) for k, changes in feed.changes.items()}
        usual = sorted(each.values())[(len(each) - 1) // 2]
        measured[name] = {
            "frames_looked_at": int(sum(map(len, news.values()))),
            "episodes_looked_at": len(news),
            "episodes_not_decoded": feed.undecoded,
            "new_share": float(np.concatenate(list(news.values())).mean()),
            "every": usual,
            "every_in_slower_episodes": {str(k): n for k, n in each.items() if n > max(2, 1.5 * usual)},
        }
    return measured, [*_repeated(pooled, measured, clock), *_freezes(pooled, feeds, measured)]


def _feed(pooled: Pooled, camera: str) -> Feed:
    dataset = pooled.dataset
    try:
        shape = dataset.frame_shape(camera)
    except DataError:  # an odd declaration, which the check of the columns names
        return Feed(changes={}, undecoded=len(pooled.indices))
    budget = max(FEWEST_FRAMES, MOST_PIXELS // max(1, shape[0] * shape[1]))
    key = dataset.camera_key(camera)
    there = [k for k in pooled.indices if key not in (spans := dataset.entry(k).videos) or spans[key].exists]
    lengths = {k: pooled.lengths[k] for k in there}
    wanted = max(1, min(len(there), int(budget / max(1.0, float(np.mean(list(lengths.values()) or [1]))))))
    changes, undecoded = {}, 0
    for number in (
        [there[k] for k in np.unique(np.linspace(0, len(there) - 1, wanted).astype(int))] if there else []
    ):
        frames = np.empty((min(lengths[number], budget), *shape), dtype=np.uint8)
        try:
            dataset.decode(number, camera, frames)
        except DataError:
            undecoded += 1
            continue
        step = max(1, min(shape[0], shape[1]) // 64)
        small = frames[:, ::step, ::step].astype(np.int16)
        if len(small) > 1:
            changes[number] = np.abs(np.diff(small, axis=0)).mean(axis=(1, 2, 3))
    return Feed(changes=changes, undecoded=undecoded)


def _gap(changes: NDArray[np.float64], lowest: float, highest: float) -> float | None:
    """Return the middle of the widest gap between small and large changes whose upper side lies between two values; None without one."""
    ordered = np.sort(np.maximum(changes, _NOTHING))
    below, above = ordered[:-1], ordered[1:]
    ratios = np.where((above >= lowest) & (above <= highest), above / below, 0.0)
    k = int(np.argmax(ratios)) if len(ratios) else 0
    return float(np.sqrt(below[k] * above[k])) if len(ratios) and ratios[k] >= _APART else None


def _every(changes: NDArray[np.float64], threshold: float) -> int:
    """Return N where a new picture comes regularly every N frames, else 1.

    A picture that looks like the one before counts as two. An episode of few and large changes is also looked
    at by its own measure: after a jump the encoder takes a few frames to settle, which beside other episodes
    looks like motion.
    """
    own = _gap(changes, _LEAST, np.inf)
    return max(_regular(changes > limit) for limit in (threshold, own or threshold))


def _regular(is_new: NDArray[np.bool_]) -> int:
    gaps = np.diff(np.flatnonzero(np.concatenate([[True], is_new])))
    if len(gaps) < _FEWEST_REPEATS:
        return 1
    usual = int(np.median(gaps))
    if usual < 2:
        return 1
    off = np.abs(gaps - np.maximum(1, np.round(gaps / usual)) * usual)
    return usual if np.mean(off <= 0.1 * usual) >= _REGULAR else 1


# --- every picture several times -------------------------------------------------------------------------------------


def _repeated(pooled: Pooled, measured: Mapping[str, Any], clock: Mapping[str, Any]) -> list[DataFinding]:
    repeated = {name: m["every"] for name, m in measured.items() if m["every"] > 1}
    if not repeated:
        return _slow_episodes(measured, pooled.dataset.info.rate_hz)
    every = min(repeated.values())
    declared = pooled.dataset.info.rate_hz
    real = clock.get("measured_hz") if not clock.get("is_positional") else None
    interpolated = _interpolated_by(pooled, every)
    shares = listed([f"{name} {100 * measured[name]['new_share']:.1f} %" for name in repeated])
    numbers = {"every": repeated, "interpolated": interpolated, "declared_hz": declared, "measured_hz": real}
    is_fast = interpolated if real is None else abs(real / (declared * every) - 1.0) < 0.1
    if is_fast and len(repeated) == len(measured):
        longest = max(map(len, pooled.states)) / declared
        how = (
            f"the clock says {real:.1f} Hz"
            if real is not None
            else f"actions are straight lines between every {every}rd step".replace("2rd", "2nd")
        )
        return [
            DataFinding(
                code="rows_faster_than_declared",
                severity=Severity.FAULT,
                sentence=(
                    f"rows were written {every} times faster than the declared {declared:g} fps, at"
                    f" {declared * every:g} rows/s: new images are {shares} of frames and {how}; episodes of"
                    f" {longest / every:.1f} s claim {longest:.1f} s"
                ),
                remedy=(
                    f"declare {declared * every:g} fps, or keep every {every}th row; as it is, a policy moves"
                    f" {every} times too slowly"
                ),
                numbers=numbers
                | {
                    "true_hz": declared * every,
                    "claimed_s": longest,
                    "true_s": longest / every,
                    "factor": every,
                },
            )
        ]
    rates = listed([f"{name} {(real or declared) / n:.3g} Hz" for name, n in repeated.items()])
    doubt = (
        ""
        if real is not None
        else (
            f", or rows were written {every} times too fast and the declared {declared:g} fps is wrong; no"
            " wall clock tells which"
        )
    )
    return [
        DataFinding(
            code="images_repeat",
            severity=Severity.WARNING,
            sentence=(
                f"every image is there {every} times (new images: {shares} of frames): the camera gives"
                f" {rates}{doubt}"
            ),
            remedy=(
                "measure the camera's rate on the robot; run the policy at the rate at which it sees"
                " something new"
            ),
            numbers=numbers,
        )
    ]


def _slow_episodes(measured: Mapping[str, Any], rate_hz: float) -> list[DataFinding]:
    """Find single episodes in which a camera that is fast otherwise gave a new picture now and then only."""
    slow = {
        name: m["every_in_slower_episodes"] for name, m in measured.items() if m["every_in_slower_episodes"]
    }
    if not slow:
        return []
    parts = [
        f"{name} in episode {e} every {n} frames ({rate_hz / n:.2g} Hz)"
        for name, episodes in slow.items()
        for e, n in episodes.items()
    ]
    return [
        DataFinding(
            code="slow_camera",
            severity=Severity.WARNING,
            sentence=(
                f"a new picture comes only now and then: {listed(parts)}; the rows between repeat an old one"
            ),
            remedy=(
                "drop these episodes; look at the camera's bus and exposure time, and stop recording on a"
                " picture that is too old"
            ),
            feature=next(iter(slow)),
            numbers=slow,
        )
    ]


def _interpolated_by(pooled: Pooled, every: int) -> bool:
    """Return whether actions run straight between every n-th step, as a controller's interpolation makes them."""
    bends = np.zeros(every)
    for action in pooled.actions:
        bend = np.abs(np.diff(action, n=2, axis=0)).sum(axis=1)
        bends += [bend[p::every].sum() for p in range(every)]
    knots = int(np.argmax(bends))
    return bool(bends[knots] > 0 and np.delete(bends, knots).max() < _STRAIGHT * bends[knots])


# --- one picture for a while -----------------------------------------------------------------------------------------


def _freezes(pooled: Pooled, feeds: Mapping[str, Feed], measured: dict[str, Any]) -> list[DataFinding]:
    rate = pooled.dataset.info.rate_hz
    states = dict(zip(pooled.indices, pooled.states, strict=True))
    ranges = np.ptp(np.concatenate(pooled.states), axis=0)
    found: dict[str, dict[str, dict[str, float]]] = {}
    for name, feed in feeds.items():
        usual, slower = measured[name]["every"], measured[name]["every_in_slower_episodes"]
        if float(np.median([feed.changes[k].max(initial=0.0) for k in feed.changes])) <= _LEAST:
            continue  # a camera that never shows anything new has not frozen for a while
        for episode in feed.changes:
            news = np.append(np.flatnonzero(feed.is_new(episode)), len(feed.changes[episode]) + 1)
            start, stop = max(pairwise(news), key=lambda run: run[1] - run[0])
            least = max(_FREEZE_S * rate, _FEWEST_REPEATS * slower.get(str(episode), usual))
            travel = np.ptp(states[episode][start:stop], axis=0)
            # a camera that shows one picture throughout is named elsewhere
            is_all = stop - start >= len(feed.changes[episode]) + 1
            if not is_all and stop - start >= least and (travel > _TRAVEL * np.maximum(ranges, 1e-9)).any():
                numbers = {
                    "first_frame": int(start),
                    "frames": int(stop - start),
                    "seconds": float(stop - start) / rate,
                }
                found.setdefault(name, {})[str(episode)] = numbers
    if not found:
        return []
    parts = [
        f"{name} in episode {e} for {v['seconds']:.1f} s from frame {v['first_frame']}"
        for name, episodes in found.items()
        for e, v in episodes.items()
    ]
    return [
        DataFinding(
            code="feed_freezes",
            severity=Severity.WARNING,
            sentence=f"the picture stands still while the robot moves: {listed(parts)}",
            remedy=(
                "drop these episodes or cut them there; a policy learns to act on a picture that says nothing"
            ),
            feature=next(iter(found)),
            numbers=found,
        )
    ]
