"""The contract of an env: a gymnasium env with cameras, encoders, a convention, factors and a judge."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import gymnasium
import numpy as np
from numpy.typing import NDArray

from simgap.conventions import ActionSpec, StateSpec
from simgap.envs.factors import FactorRanges, FactorSpace, FactorValues

ObsDict: TypeAlias = dict[str, NDArray[Any]]
"""Camera name -> ``(H, W, 3)`` uint8 RGB, and ``"state"`` -> ``(S,)`` float32."""


class TaskEnv(gymnasium.Env[ObsDict, NDArray[np.float32]]):
    """A task in a simulator.

    ``reset(seed=..., options={"factors": values})`` puts the world in exactly those factor values; without
    the option it samples from ``ranges`` with the seed. ``info["factors"]`` holds what was used. When an
    episode ends, ``info["outcome"]`` of the last ``step`` holds an :class:`~simgap.types.Outcome`; before, it
    is absent. What only some envs can do is in :mod:`simgap.envs.abilities`. Nothing privileged is ever in the observation; a teacher reads the env itself.
    """

    name: str
    task: str
    """The instruction in words."""
    action_spec: ActionSpec
    state_spec: StateSpec
    cameras: tuple[str, ...]
    image_size: int
    horizon_steps: int
    """Control steps after which an unfinished episode is a failure."""
    failure_modes: tuple[str, ...]
    factor_space: FactorSpace
    presets: Mapping[str, FactorRanges]
    ranges: FactorRanges
    placement_factors: tuple[str, ...] = ()
    """Factors an operator sets up and can measure on the table or floor; the others are the world's own."""
    modes: tuple[str, ...] = ()
    """Ways in which the task can be done; where there are several, ``info["mode"]`` of the last step says which was taken, or is empty."""
    contact_names: tuple[str, ...] = ()
    """What :meth:`contacts` tells, in its order; empty where an env cannot tell."""
    renders: bool = True
    """False leaves frames black; may be switched between steps."""

    @property
    @abstractmethod
    def factors(self) -> FactorValues:
        """Factor values of the running episode; privileged."""

    @property
    def dart_noise(self) -> NDArray[np.float64]:
        """Standard deviation of the noise that a teacher's executed actions usually get, ``(A,)`` in action units; 0 for grippers."""
        return np.where(self.action_spec.gripper_mask, 0.0, 1.5)

    @abstractmethod
    def stamp_fields(self) -> dict[str, Any]:
        """Return engine, renderer, env, judge, horizon and rate, for provenance stamps."""

    @abstractmethod
    def sibling(self) -> TaskEnv:
        """Return another env of the same settings that shares this one's GL context."""

    @abstractmethod
    def render_still(
        self,
        factors: FactorValues,
        state: NDArray[np.float32] | None = None,
        cameras: Sequence[str] | None = None,
    ) -> dict[str, NDArray[np.uint8]]:
        """Return what some cameras (all by default) would see at rest in these factor values, with encoders at ``state`` (home by default)."""

    def contacts(self) -> NDArray[np.bool_]:
        """Return what the robot touches now, one truth value for each of :attr:`contact_names`; privileged."""
        return np.zeros(0, dtype=np.bool_)
