"""One episode whose convention is another than that of all the rest: a sign, a unit, a zero or a joint that is off in it alone.

A change that lasts is searched in :mod:`simgap.checks.data.motion.changes`; a lone episode, also the first or
the last, is no change of level and is compared with the others here. What an object in the hand or a task
does to one episode stays below the limits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simgap.checks.data.report import DataFinding, Severity, listed

Array = NDArray[np.float64]
_FEWEST = 4
"""Episodes below which nobody is the odd one."""
_SHARE = 0.25
"""Share of the episodes that may be odd ones."""
_FOLLOWS, _LOST = 0.9, 0.5
"""Correlation with the command of the other episodes at least, and of an odd one at most."""
_MOVES = 0.3
"""Share of the usual range that an episode covers at least before its correlation says anything."""
_FACTOR = 1.3
"""Least factor between the scale of an odd episode and that of the rest."""
_OFFSET, _OUT = 0.1, 8.0
"""Least distance of its zero, in ranges that the joint covers within an episode, and in spreads within and between the others."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OfEpisodes:
    """What each episode says of one joint, ``(E,)`` each; NaN where it says nothing."""

    follows: Array
    """Correlation with the command."""
    slopes: Array
    """State by command."""
    distance: Array
    """State minus what the command leads to."""
    ranges: Array
    """Of the command and of the state, each by its median; the larger share."""
    noise: float
    within: float
    sag: float
    """How far off its command what it carries may hold it."""


def odd_episodes(joint: OfEpisodes) -> dict[int, str]:
    """Return the places of odd episodes of one joint, and in words what is odd."""
    n = len(joint.follows)
    known = np.isfinite(joint.follows)
    if n < _FEWEST or known.sum() < _FEWEST:
        return {}
    usual = float(np.median(joint.follows[known]))
    odd: dict[int, str] = {}
    lost = known & (joint.follows * np.sign(usual) < _LOST) & (joint.ranges > _MOVES)
    if abs(usual) >= _FOLLOWS and float(np.quantile(np.abs(joint.follows[known & ~lost]), 0.1)) >= _FOLLOWS:
        odd |= {
            int(k): f"correlates at {joint.follows[k]:+.2f} with its command and at {usual:+.2f} in the rest"
            for k in np.flatnonzero(lost)
        }
    odd |= {k: text for k, text in {**_zeros(joint, odd), **_scales(joint, odd)}.items() if k not in odd}
    return odd if len(odd) <= max(1, int(_SHARE * n)) else {}


def _scales(joint: OfEpisodes, odd: Mapping[int, str]) -> dict[int, str]:
    believed = np.abs(joint.follows) > 0.95
    believed[list(odd)] = False
    if believed.sum() < _FEWEST:
        return {}
    logs = np.log(np.abs(np.where(believed, joint.slopes, 1.0)))
    usual = float(np.median(logs[believed]))
    off = believed & (np.abs(logs - usual) > max(np.log(_FACTOR), _OUT * _spread(logs[believed])))
    return {
        int(k): f"moves {np.exp(logs[k] - usual):.3g} times as far for its command as in the rest"
        for k in np.flatnonzero(off)
    }


def _zeros(joint: OfEpisodes, odd: Mapping[int, str]) -> dict[int, str]:
    believed = (np.abs(joint.follows) > 0.95) & np.isfinite(joint.distance)
    believed[list(odd)] = False
    if believed.sum() < _FEWEST:
        return {}
    values = joint.distance[believed]
    usual = float(np.median(values))
    least = max(joint.sag, _OFFSET * joint.within, _OUT * joint.noise, _OUT * _spread(values))
    off = believed & (np.abs(joint.distance - usual) > least)
    return {
        int(k): f"lies {joint.distance[k] - usual:+.3g} further off its command than in the rest"
        for k in np.flatnonzero(off)
    }


def _spread(values: Array) -> float:
    return 1.4826 * float(np.median(np.abs(values - np.median(values))))


def odd_findings(found: Mapping[str, Mapping[int, str]], episodes: Sequence[int]) -> list[DataFinding]:
    """Name the odd episodes of all joints."""
    if not found:
        return []
    parts = [
        f"{name} in episode {episodes[k]} {text}"
        for name, places in found.items()
        for k, text in places.items()
    ]
    numbers = sorted({episodes[k] for places in found.values() for k in places})
    which = f"episode{'s' if len(numbers) > 1 else ''} {listed([str(k) for k in numbers])}"
    return [
        DataFinding(
            code="odd_episodes",
            severity=Severity.WARNING,
            sentence=f"{which} {'do' if len(numbers) > 1 else 'does'} not fit the rest: {listed(parts)}",
            remedy=(
                f"look at {which} (another calibration, drive mode or arm, or a column that is not its own),"
                " and leave out what cannot be repaired"
            ),
            joints=tuple(found),
            numbers={
                name: {str(episodes[k]): text for k, text in places.items()} for name, places in found.items()
            },
        )
    ]
