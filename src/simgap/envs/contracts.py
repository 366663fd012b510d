"""What a simulated env is made of: its world, its judge and its settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from simgap.conventions import ActionSpec, StateSpec
from simgap.envs.contacts import ContactTable
from simgap.envs.engines import Engine
from simgap.envs.factors import FactorRanges, FactorSpace, FactorValues
from simgap.envs.landmarks import Landmark
from simgap.types import Outcome


class World(Protocol):
    """A model, its data and the engine that moves them."""

    model: Any
    data: Any
    engine: Engine
    camera_id: Mapping[str, int]
    landmark_geoms: Sequence[Sequence[int]]
    """Geom ids of each landmark, in the order of :meth:`landmarks`."""
    contact_table: ContactTable
    """What the robot may touch, by name."""

    def apply(self, values: FactorValues) -> None:
        """Set every factor, then put everything at its start."""
        ...

    def encoders(self) -> NDArray[np.float64]:
        """Return noise-free readings in the state convention, ``(S,)``."""
        ...

    def set_encoders(self, state: NDArray[np.float64]) -> None:
        """Put the robot where its encoders would read these values, at rest."""
        ...

    def command(self, action: NDArray[np.float64]) -> None:
        """Send an action to the actuators."""
        ...

    def rest_command(self) -> NDArray[np.float64]:
        """Return the action that holds the start, ``(A,)``: what a delayed robot does before the first command arrives."""
        ...

    def landmarks(self) -> tuple[Landmark, ...]:
        """Return the things of the task, the target first."""
        ...


WorldT_contra = TypeVar("WorldT_contra", bound=World, contravariant=True)


class Judge(Protocol[WorldT_contra]):
    """Watches one episode, step by step, from privileged state."""

    def step(self, world: WorldT_contra) -> Outcome | None:
        """Look at the world after a control step; an outcome ends the episode."""
        ...

    def at_horizon(self, world: WorldT_contra) -> Outcome:
        """Name the failure of an episode that ran out of time."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskSettings:
    """What tells one task from another, before any episode."""

    name: str
    task: str
    action_spec: ActionSpec
    state_spec: StateSpec
    cameras: tuple[str, ...]
    horizon_steps: int
    failure_modes: tuple[str, ...]
    judge: str
    """Name and version of the judge, for stamps."""
    factor_space: FactorSpace
    presets: Mapping[str, FactorRanges]
    placement_factors: tuple[str, ...]
    settle_steps: int
    """Control periods simulated before the first observation, so that things rest and the arm droops as it does."""
    state_bound: float
    """Largest magnitude an encoder can read."""
    instruction: Callable[[FactorValues], str] | None = None
    """The task in words where factors decide what is asked for; ``task`` otherwise."""
    modes: tuple[str, ...] = ()
    """Ways in which the task can be done, for a census; empty where there is one."""
