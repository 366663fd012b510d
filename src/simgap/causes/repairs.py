"""What the next turn changes for a cause: nothing, a correction of commands, or episodes sampled elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

POSE_SPREAD = 0.08
"""Half-width of the randomisation around a fitted camera pose, as a share of the factor's bounds: the fit has side valleys."""
LIGHT_SPREAD = 0.08
"""The same for light and colours."""
PLACEMENT_MARGIN = 0.05
"""Share by which the area seen in use is widened."""
NOISE_DEG = 1.5
LATE_NOISE_DEG = 0.5
"""Under delay a teacher answers a disturbance late: with 1.5 deg it solves a quarter of the conditions at 6 steps, with 0.5 deg all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NoRepair:
    """No data and no correction of ours would help."""


@dataclass(frozen=True, kw_only=True, slots=True)
class UndoMultipliers:
    """Commands are divided by measured multipliers at the robot's boundary; no data."""

    numbers: str
    """The check's number: dimension -> multiplier."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Around:
    """Sample each fitted factor around its fit."""

    spread: float
    """Half-width, as a share of the factor's bounds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """Sample one factor one step either side of what was measured."""

    factor: str


@dataclass(frozen=True, kw_only=True, slots=True)
class MedianAround:
    """Sample the first factor with an ending around the median of what was measured joint by joint."""

    ending: str
    spread: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Area:
    """Widen the placements to where objects were seen in use."""

    margin: float


Sampling: TypeAlias = Around | Step | MedianAround | Area


@dataclass(frozen=True, kw_only=True, slots=True)
class NewEpisodes:
    """Teacher episodes under other factors."""

    numbers: str
    """The check's number that says which."""
    sampling: Sampling
    why: str
    """Why the range is what it is, in words."""
    noise_deg: float = NOISE_DEG
    """Noise on what the teacher executes."""


Repair: TypeAlias = NoRepair | UndoMultipliers | NewEpisodes
