"""The statistics that turn OpenVLA's normalised actions into a robot's: which set, which dimensions, and what cannot be right.

``dataset_statistics.json`` beside a fine-tuned checkpoint, and ``norm_stats`` in the ``config.json`` of a
released one, hold for every data set ``action: {q01, q99, mask, ...}``. As read in
``prismatic/extern/hf/modeling_prismatic.py`` (openvla/openvla)::

    action = 0.5 * (normalised + 1) * (q99 - q01) + q01     where mask (all, if the set has none)
    action = normalised                                     elsewhere

The gripper is the dimension that is not scaled: the data loader has already made it 0 closed, 1 open for
every data set (``experiments/robot/robot_utils.py``). LIBERO wants -1 open, +1 closed, so its evaluation
turns it around; here that is a conversion between two conventions (``fraction`` that opens high to
``normalised`` that opens low), never a sign in a loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simgap.conventions import NATURAL_RANGE, ActionSpec, Dimension, Reference
from simgap.episodes.statistics.files import StatisticsBlock, read_statistics
from simgap.errors import DataError, UsageError, did_you_mean
from simgap.provenance import content_hash

KEY = "action"
FAR = 0.5
"""Statistics that end this share of a dimension's range beyond its limits are of another robot or unit."""
_TINY = 1e-9


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ActionStatistics:
    """Of one data set."""

    unnorm_key: str
    low: NDArray[np.float64]
    """q01, ``(A,)``."""
    high: NDArray[np.float64]
    """q99, ``(A,)``."""
    mask: NDArray[np.bool_]
    """Which dimensions are scaled, ``(A,)``."""

    def unnormalise(self, normalised: ArrayLike) -> NDArray[np.float64]:
        """Return actions of normalised ones, ``(..., A)``."""
        values = np.asarray(normalised, dtype=np.float64)
        return np.where(self.mask, 0.5 * (values + 1.0) * (self.high - self.low) + self.low, values)

    def normalise(self, actions: ArrayLike) -> NDArray[np.float64]:
        """Return normalised actions, ``(..., A)``, not clipped; a dimension without a range becomes 0."""
        values = np.asarray(actions, dtype=np.float64)
        width = np.where(self.high > self.low, self.high - self.low, 1.0)
        return np.where(
            self.mask, np.where(self.high > self.low, 2.0 * (values - self.low) / width - 1.0, 0.0), values
        )

    @property
    def hash(self) -> str:
        """Content hash of the numbers."""
        return content_hash([self.unnorm_key, self.low.tolist(), self.high.tolist(), self.mask.tolist()])


@dataclass(frozen=True, kw_only=True, slots=True)
class Doubt:
    """Something about statistics and a convention that do not go together."""

    code: str
    sentence: str
    is_certain: bool
    """False where the numbers allow an innocent reading, and somebody has to look."""


def read_action_statistics(path: Path, unnorm_key: str | None) -> ActionStatistics:
    """Return the statistics of one data set.

    Args:
        path: ``dataset_statistics.json``, or a ``config.json`` with ``norm_stats``.
        unnorm_key: which data set; None is allowed where the file has only one.

    Raises:
        UsageError: the key is missing from the file, or there are several and none was named.
        DataError: no statistics of actions, or numbers that cannot scale anything.
    """
    blocks = {b.group: b for b in read_statistics(path) if b.key == KEY}
    if not blocks:
        raise DataError(
            f"{path} holds no statistics of actions; expected data set -> action -> q01, q99 and mask"
        )
    if unnorm_key is None and len(blocks) > 1:
        raise UsageError(
            f"{path} has statistics of {len(blocks)} data sets, and any of them 'runs'; name the one the"
            f" policy was trained on: {did_you_mean('', blocks)}"
        )
    key = next(iter(blocks)) if unnorm_key is None else unnorm_key
    if key not in blocks:
        raise UsageError(f"{path} has no statistics of {key!r}; {did_you_mean(key, blocks)}")
    return _usable(path, blocks[key])


def doubts(statistics: ActionStatistics, spec: ActionSpec) -> tuple[Doubt, ...]:
    """Return everything in which statistics and the convention of the actions contradict each other, in the order of dimensions.

    Args:
        statistics: of the data set a policy is un-normalised with.
        spec: what its actions are said to mean.
    """
    if len(statistics.low) != len(spec):
        told = (
            f"{statistics.unnorm_key!r} has statistics of {len(statistics.low)} action dimensions, the"
            f" convention names {len(spec)}: {list(spec.names)}"
        )
        return (
            Doubt(
                code="width",
                sentence=f"{told}; another robot's data set, or another convention",
                is_certain=True,
            ),
        )
    found: list[Doubt] = []
    rules: tuple[_Rule, ...] = (_constant, _scaled_gripper, _unscaled_joint, _beyond_limits)
    for k, dimension in enumerate(spec.dimensions):
        found += [
            doubt
            for rule in rules
            if (
                doubt := rule(
                    dimension, float(statistics.low[k]), float(statistics.high[k]), bool(statistics.mask[k])
                )
            )
        ]
    return tuple(found)


_Rule = Callable[[Dimension, float, float, bool], Doubt | None]


def _constant(d: Dimension, low: float, high: float, scaled: bool) -> Doubt | None:
    """A range of zero un-normalises everything to one value."""
    if not scaled or high > low or d.high <= d.low:
        return None
    return Doubt(
        code="constant",
        sentence=f"{d.name!r} is {low:g} whatever the policy says: q01 = q99, and the mask scales it",
        is_certain=True,
    )


def _scaled_gripper(d: Dimension, low: float, high: float, scaled: bool) -> Doubt | None:
    if not (d.is_gripper and scaled):
        return None
    told = (
        f"the gripper {d.name!r} is scaled like a joint (mask true, {low:g} to {high:g}), which OpenVLA's own"
        " training never does"
    )
    return Doubt(code="scaled_gripper", sentence=f"{told}; right only if this one's did", is_certain=False)


def _unscaled_joint(d: Dimension, low: float, high: float, scaled: bool) -> Doubt | None:
    """Without scaling, tokens reach -1 to 1 of the unit and no further."""
    if scaled or (d.low >= -1.0 - _TINY and d.high <= 1.0 + _TINY):
        return None
    told = (
        f"{d.name!r} is not scaled (mask false), so it can only be -1 to 1 {d.unit} of {d.low:g} to"
        f" {d.high:g}"
    )
    return Doubt(code="unscaled", sentence=told, is_certain=True)


def _beyond_limits(d: Dimension, low: float, high: float, scaled: bool) -> Doubt | None:
    """Quantiles of recorded actions lie within what the robot can be told, or the numbers are another robot's or unit's."""
    ends = (d.low, d.high) if d.reference is Reference.ABSOLUTE else (-(d.high - d.low), d.high - d.low)
    if not scaled and d.unit in NATURAL_RANGE:
        ends = NATURAL_RANGE[d.unit]
    slack = FAR * (ends[1] - ends[0])
    if not np.isfinite(slack) or (low >= ends[0] - slack and high <= ends[1] + slack):
        return None
    told = (
        f"{d.name!r} ran from {low:g} to {high:g} in the data, and {ends[0]:g} to {ends[1]:g} {d.unit} is"
        " what it can be told"
    )
    return Doubt(
        code="beyond_limits", sentence=f"{told}: another robot's statistics, or another unit", is_certain=True
    )


def _usable(path: Path, block: StatisticsBlock) -> ActionStatistics:
    """Return a block as statistics.

    Raises:
        DataError: a quantile is missing, lengths differ, a number is not finite, or a range is upside down.
    """
    where = f"{path}: {block.name!r}"
    low, high = block.get("q01"), block.get("q99")
    if low is None or high is None:
        raise DataError(
            f"{where} has no q01 and q99 (it has {sorted(block.values)}); OpenVLA scales by quantiles, and"
            " min and max are no stand-in"
        )
    mask = np.ones(len(low), dtype=bool) if block.mask is None else block.mask
    if not len(low) == len(high) == len(mask):
        raise DataError(
            f"{where} has {len(low)} numbers of q01, {len(high)} of q99 and {len(mask)} of mask; one each a"
            " dimension was expected: compute them again"
        )
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise DataError(
            f"{where} holds quantiles that are not finite; compute them again from frames without NaN"
        )
    upside_down = np.flatnonzero(mask & (low > high))
    if len(upside_down):
        k = int(upside_down[0])
        raise DataError(
            f"{where} has q01 {low[k]:g} above q99 {high[k]:g} for dimension {k}: the sign of that joint"
            " would turn around; compute them again"
        )
    return ActionStatistics(unnorm_key=block.group, low=low, high=high, mask=mask)
