"""From a diagnosis to the next batch: a corrected convention, or episodes where the policy needs them, and in what mixture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from simgap.causes.repairs import (
    NOISE_DEG,
    Area,
    Around,
    MedianAround,
    NewEpisodes,
    Sampling,
    Step,
    UndoMultipliers,
)
from simgap.diagnosis import Diagnosis
from simgap.envs.factors import FactorRanges, FactorSpace
from simgap.policies.execution import ExecutorSpec

Range = tuple[float, float]

NEW_SHARE = 0.6
"""Share of targeted episodes in a batch; the rest keeps what was known (half, never all)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DataPlan:
    """What the next turn changes. Exactly one of: nothing, a convention, or a batch of episodes."""

    kind: str
    """``nothing``, ``convention`` or ``episodes``."""
    sentence: str
    ranges: FactorRanges | None = None
    """What the new episodes are sampled from."""
    changes: Mapping[str, Range] = field(default_factory=dict)
    """The factors that differ from the former training set."""
    multipliers: Mapping[str, float] = field(default_factory=dict)
    """Measured multipliers to undo, by dimension."""
    episodes: int = 0
    new_share: float = NEW_SHARE
    noise_deg: float = NOISE_DEG
    """Noise on what the teacher executes in the new episodes."""
    executor: str = ""
    """Executor of the next turn, when it changes."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "kind": self.kind,
            "sentence": self.sentence,
            "ranges": None if self.ranges is None else self.ranges.to_json(),
            "changes": {k: list(v) for k, v in self.changes.items()},
            "multipliers": dict(self.multipliers),
            "episodes": self.episodes,
            "new_share": self.new_share,
            "noise_deg": self.noise_deg,
            "executor": self.executor,
        }


def plan_data(
    diagnosis: Diagnosis, training: FactorRanges, space: FactorSpace, executor: ExecutorSpec, *, episodes: int
) -> DataPlan:
    """Return what the diagnosis asks for.

    Args:
        diagnosis: the broken thing and its numbers.
        training: what the former training set was sampled from.
        space: factors and their bounds.
        executor: the executor in use.
        episodes: size of a targeted batch.
    """
    cause, repair, numbers = diagnosis.cause, diagnosis.cause.repair, diagnosis.parameters
    if isinstance(repair, UndoMultipliers):
        broken: dict[str, float] = dict(numbers[repair.numbers])
        text = ", ".join(f"{n} divided by {m:.3g}" for n, m in broken.items())
        return DataPlan(
            kind="convention",
            sentence=f"No new data: commands are corrected at the robot's boundary ({text}).",
            multipliers=broken,
            executor=str(executor),
        )
    changes = (
        _changes(repair.sampling, numbers[repair.numbers], training, space)
        if isinstance(repair, NewEpisodes)
        else {}
    )
    if not isinstance(repair, NewEpisodes) or not changes:
        return DataPlan(
            kind="nothing", sentence=f"No data would help: {diagnosis.remedy}", executor=str(executor)
        )
    ranges = training.override(changes, f"targeted:{cause}")
    listed = ", ".join(
        f"{n} {a:.3g}..{b:.3g} {space.factors[n].unit}" for n, (a, b) in list(changes.items())[:4]
    )
    more = f" and {len(changes) - 4} more" if len(changes) > 4 else ""
    return DataPlan(
        kind="episodes",
        sentence=(
            f"{episodes} new teacher episodes with {listed}{more}; {NEW_SHARE:.0%} of each batch is drawn"
            " from them."
        ),
        ranges=ranges,
        changes=changes,
        episodes=episodes,
        noise_deg=repair.noise_deg,
        executor=str(executor),
    )


def _changes(
    sampling: Sampling, measured: Any, training: FactorRanges, space: FactorSpace
) -> dict[str, Range]:
    """Return the factors to sample elsewhere; those that the env does not have are left out."""
    match sampling:
        case Around(spread=spread):
            return {n: _around(float(v), spread, n, space) for n, v in measured.items() if n in space.factors}
        case Step(factor=name) if name in space.factors:
            factor = space.factors[name]
            value = min(max(float(measured), factor.low), factor.high)
            return {name: (max(factor.low, value - 1.0), min(factor.high, value + 1.0))}
        case MedianAround(ending=ending, spread=spread):
            ratio = float(np.median(list(measured.values())))
            first = [n for n in space.factors if n.endswith(ending)][:1]
            return {n: _around(ratio, spread, n, space) for n in first}
        case Area(margin=margin):
            return _area(measured, margin, training, space)
    return {}


def _around(value: float, spread: float, name: str, space: FactorSpace) -> Range:
    factor = space.factors[name]
    # A ratio measured beyond the bounds is trained for at the bound.
    value = min(max(value, factor.low), factor.high)
    half = spread * (factor.high - factor.low)
    return max(factor.low, value - half), min(factor.high, value + half)


def _area(
    placements: Sequence[Mapping[str, float]], share: float, training: FactorRanges, space: FactorSpace
) -> dict[str, Range]:
    """Return the placement ranges that must grow to hold what was seen in use."""
    grown: dict[str, Range] = {}
    for name, (low, high) in training.ranges.items():
        seen = [p[name] for p in placements if name in p]
        if not seen or (min(seen) >= low and max(seen) <= high):
            continue
        factor = space.factors[name]
        margin = share * (max(seen) - min(seen))
        grown[name] = (
            max(factor.low, min(low, min(seen) - margin)),
            min(factor.high, max(high, max(seen) + margin)),
        )
    return grown
