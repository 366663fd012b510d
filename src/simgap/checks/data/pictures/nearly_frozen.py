"""Does a camera show one picture for a while, but for the noise of sensor and codec, although the robot moves.

The views are averaged over some 16 rows of square cells, which leaves little of such noise. Two views are one
picture where no cell differs by more than a few levels and than the cells do among each other: a moving thing
stands out of the rest, noise does not. What a camera should have seen is asked of the same camera: whenever
else the same joints moved no further than during the still stretch, its picture changed. A camera that never
shows anything has no such witness; it is named where the joints cover much of their range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simgap.checks.data.pooled import Pooled
from simgap.checks.data.report import DataFinding, Severity, listed
from simgap.measures.glimpses import Glimpse

Array = NDArray[np.float64]

_NOISE = 6.0
"""Difference of a cell, of 255, that coarse codecs alone make; x264 at crf 32 makes 4, at 38 up to 6."""
_WIDTHS = 6.0
"""Robust deviations of all cells' differences that a cell has to exceed to stand out."""
_LOUD = 2.5
"""Robust deviation of the cells' differences above which a picture as a whole is another one."""
_LIGHT = 1.0
"""Common difference of all cells that a frozen picture does not make."""
_LEAST_S = 1.0
_TRAVELS = 0.1
"""Least motion of a joint during a stretch, in shares of the range it covers in the whole recording."""
_FAR = 0.3
"""The same where nothing tells what the camera should have seen."""
_RESTS = 0.03
_IDLE = 0.1
"""A joint that covers less than this share of what most others cover is parked."""
_WITNESSES = 5
_SURE = 0.6
"""Share of the other times in other episodes, with no more motion than this, at which the picture changed."""
_MOST = 0.5
"""Least share of an episode: shorter, a robot may be out of the view for as long (2 s, 15 %, in a real set of two arms)."""
_WHOLE = 0.8
"""Share of an episode that counts as all of it."""
_MOST_VIEWS = 30
_BLACK, _FLAT = 8.0, 2.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Stretch:
    """A while in which a camera shows one picture."""

    look: Glimpse
    first: int
    last: int
    travel: Array
    """Motion of each joint, in shares of its range."""
    joint: int
    """The one that moved most."""
    amount: float
    """By how much, in its unit."""
    share: float
    """Of the episode."""

    @property
    def seconds(self) -> float:
        """How long it lasts at least."""
        return float(self.look.times_s[self.last] - self.look.times_s[self.first])


class Witnesses(NamedTuple):
    """Pairs of views of one camera."""

    episodes: NDArray[np.int64]
    travels: Array
    """How far each joint moved between them, in shares of its range, ``(N, D)``."""
    changed: NDArray[np.bool_]
    """Whether the second is another picture."""


def check_nearly_frozen(pooled: Pooled, looks: Sequence[Glimpse], named: frozenset[str]) -> list[DataFinding]:
    """Return the stretches in which a picture rests and the robot does not.

    Args:
        pooled: the dataset.
        looks: what was seen.
        named: cameras in episodes, as :attr:`Glimpse.where` has them, that were found frozen to the pixel.
    """
    states = {number: pooled.moving_part(k) for k, number in enumerate(pooled.indices)}
    ranges = _ranges(states)
    by_camera: dict[str, list[Glimpse]] = {}
    for look in looks:
        if look.episode in states and len(look.cells) > 1 and look.mean >= _BLACK and look.spread >= _FLAT:
            by_camera.setdefault(look.camera, []).append(look)
    found: list[Stretch] = []
    for views in by_camera.values():
        if np.isfinite(ranges).any():
            found += _of_camera(views, states, ranges, pooled.dataset.info.rate_hz, named)
    return _finding(pooled, found, len(looks))


def _ranges(states: Mapping[int, Array]) -> Array:
    """Return the range of each joint over the recording, infinite for those that are parked."""
    reach = np.ptp(np.concatenate(list(states.values())), axis=0)
    typical = float(np.quantile(reach, 0.75)) if len(reach) else 0.0
    return np.where((reach > 0) & (reach >= _IDLE * typical), reach, np.inf)


def _of_camera(
    views: Sequence[Glimpse],
    states: Mapping[int, Array],
    ranges: Array,
    rate_hz: float,
    named: frozenset[str],
) -> list[Stretch]:
    stretches: list[Stretch] = []
    for look in views:
        rows = _rows(look, states, rate_hz)
        stretches += [
            _stretch(look, first, last, states[look.episode], rows, ranges)
            for first, last in still_runs(look.cells)
        ]
    whole = {s.look.episode for s in stretches if s.share >= _WHOLE}
    wanted = [
        s
        for s in stretches
        if s.share >= _MOST
        and s.seconds >= _LEAST_S
        and s.travel[s.joint] >= _TRAVELS
        and s.look.where not in named
    ]
    if not wanted:
        return []
    awake = [v for v in views if v.episode not in whole and v.where not in named]
    if not awake:
        return [s for s in wanted if s.travel[s.joint] >= _FAR]
    witnesses = _witnesses(awake, states, ranges, rate_hz)
    return [s for s in wanted if _is_told(s, witnesses)]


def _rows(look: Glimpse, states: Mapping[int, Array], rate_hz: float) -> NDArray[np.int64]:
    return np.clip(np.round(look.times_s * rate_hz).astype(np.int64), 0, len(states[look.episode]) - 1)


def _witnesses(
    views: Sequence[Glimpse], states: Mapping[int, Array], ranges: Array, rate_hz: float
) -> Witnesses:
    episodes, travels, changed = [], [], []
    for look in [
        views[k] for k in np.unique(np.linspace(0, len(views) - 1, min(_MOST_VIEWS, len(views))).astype(int))
    ]:
        rows, state = _rows(look, states, rate_hz), states[look.episode]
        for apart in (1, 2, 4, 8, 16):
            for k in range(0, len(rows) - apart, apart):
                episodes.append(look.episode)
                travels.append(np.ptp(state[rows[k] : rows[k + apart] + 1], axis=0) / ranges)
                changed.append(not is_one_picture(look.cells[k], look.cells[k + apart]))
    moved = np.array(travels).reshape(len(travels), len(ranges))
    return Witnesses(np.array(episodes, dtype=int), moved, np.array(changed, dtype=bool))


def _is_told(stretch: Stretch, seen: Witnesses) -> bool:
    """Return whether the picture changed in other episodes when joints moved, and none of them further than here."""
    alike = (seen.travels <= stretch.travel + _RESTS).all(axis=1) & (
        seen.travels.max(axis=1, initial=0.0) >= _TRAVELS
    )
    alike &= seen.episodes != stretch.look.episode
    return int(alike.sum()) >= _WITNESSES and float(seen.changed[alike].mean()) >= _SURE


def still_runs(grid: NDArray[np.float32]) -> list[tuple[int, int]]:
    """Return first and last view of each run that shows what its first view shows."""
    runs, first = [], 0
    for k in range(1, len(grid) + 1):
        if k == len(grid) or not is_one_picture(grid[first], grid[k]):
            if k - 1 > first:
                runs.append((first, k - 1))
            first = k
    return runs


def is_one_picture(a: NDArray[np.float32], b: NDArray[np.float32]) -> bool:
    """Return whether two grids of cells differ by noise only."""
    off = (b - a).astype(np.float64)
    middle = float(np.median(off))
    spread = 1.4826 * float(np.median(np.abs(off - middle)))
    return (
        abs(middle) <= _LIGHT
        and spread <= _LOUD
        and float(np.sort(np.abs(off), axis=None)[-2:][0]) <= max(_NOISE, _WIDTHS * spread)
    )


def _stretch(
    look: Glimpse, first: int, last: int, state: Array, rows: NDArray[np.int64], ranges: Array
) -> Stretch:
    span = np.ptp(state[rows[first] : rows[last] + 1], axis=0)
    travel = span / ranges
    joint = int(np.argmax(travel))
    return Stretch(
        look=look, first=first, last=last, travel=travel, joint=joint, amount=float(span[joint]),
        share=float((rows[last] - rows[first] + 1) / len(state)) if len(state) else 0.0,
    )  # fmt: skip


def _finding(pooled: Pooled, found: Sequence[Stretch], looks: int) -> list[DataFinding]:
    if not found:
        return []
    names = pooled.state_names or pooled.action_names
    parts = [
        f"{_where(s)} ({100 * s.share:.0f} % of it; {names[s.joint]} moves {s.amount:.3g})"
        for s in sorted(found, key=lambda s: -s.seconds)
    ]
    segments: dict[str, list[dict[str, Any]]] = {}
    for s in found:
        numbers = {
            "from_s": float(s.look.times_s[s.first]),
            "to_s": float(s.look.times_s[s.last]),
            "share": s.share,
            "joint": names[s.joint],
            "moves": s.amount,
        }
        segments.setdefault(s.look.where, []).append(numbers)
    return [
        DataFinding(
            code="nearly_frozen",
            severity=Severity.WARNING,
            sentence=(
                f"{len(segments)} of {looks} videos looked at show one picture, but for noise, while the"
                f" robot moves: {listed(parts)}"
            ),
            remedy=(
                "look at them; cut these stretches out or drop the episodes: a frozen picture teaches the"
                " policy to ignore the camera, and so does a camera that sees nothing of the task"
            ),
            feature=found[0].look.camera,
            numbers={"segments": segments},
        )
    ]


def _where(s: Stretch) -> str:
    return f"{s.look.where} from {s.look.times_s[s.first]:.1f} to {s.look.times_s[s.last]:.1f} s"
