"""simgap gets a robot policy from simulation to reality, and says honestly which thing is broken on the way.

The names below are what the five commands of the README are made of, for a script or a notebook. Each is
imported when it is first used: ``import simgap`` itself loads nothing heavy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simgap.envs import make_env
    from simgap.episodes.frames import load_frames
    from simgap.episodes.reader import open_dataset
    from simgap.policies.bridges.open import open_policy
    from simgap.rollouts.engine import RolloutSpec
    from simgap.rollouts.screen import screen
    from simgap.rollouts.select import SelectSpec, candidates_of, report_winner, run_race
    from simgap.teachers.generation import GenerateSpec, generate
    from simgap.training.spec import TrainSpec
    from simgap.training.trainer import train

__version__ = "0.1.0"

_HOMES = {
    "GenerateSpec": "simgap.teachers.generation",
    "RolloutSpec": "simgap.rollouts.engine",
    "SelectSpec": "simgap.rollouts.select",
    "TrainSpec": "simgap.training.spec",
    "candidates_of": "simgap.rollouts.select",
    "generate": "simgap.teachers.generation",
    "load_frames": "simgap.episodes.frames",
    "make_env": "simgap.envs",
    "open_dataset": "simgap.episodes.reader",
    "open_policy": "simgap.policies.bridges.open",
    "report_winner": "simgap.rollouts.select",
    "run_race": "simgap.rollouts.select",
    "screen": "simgap.rollouts.screen",
    "train": "simgap.training.trainer",
}
"""Where each public name is defined."""

__all__ = [
    "GenerateSpec",
    "RolloutSpec",
    "SelectSpec",
    "TrainSpec",
    "__version__",
    "candidates_of",
    "generate",
    "load_frames",
    "make_env",
    "open_dataset",
    "open_policy",
    "report_winner",
    "run_race",
    "screen",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'simgap' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
