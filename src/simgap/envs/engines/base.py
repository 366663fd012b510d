"""The contract of an engine: it moves a world whose poses, looks and commands live in a MuJoCo model and its data.

``MjData`` is the common tongue: cameras render from it, teachers and judges read poses from it. An engine
takes the state and the commands from there, moves the state by its own contact, solver and integrator, and
writes it back with all poses up to date. What only a solver knows (contacts, torques) is asked of the engine,
never of ``MjData``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray


class Engine(Protocol):
    """Moves one model and its data."""

    stamp: str
    """Name, version, solver or integrator and time step, for provenance."""

    def reset(self) -> None:
        """Take over model fields (masses, frictions, gains, sizes) and state after factors were put in; poses are current afterwards."""
        ...

    def advance(self, seconds: float) -> None:
        """Move by a time, a whole number of time steps, under the commands in ``data.ctrl``."""
        ...

    def contacts(self) -> list[tuple[int, int]]:
        """Return the pairs of geoms in contact; a pair that touches in several points may be there more than once."""
        ...

    def touching(self, geom: int) -> NDArray[np.int32]:
        """Return the ids of geoms in contact with one geom."""
        ...

    def servo_torque(self, actuator: int) -> float:
        """Return the torque an actuator gives now, N m (or N), in MuJoCo's sense."""
        ...

    def bias_torque(self) -> NDArray[np.float64]:
        """Return gravity, Coriolis and centrifugal torques of every degree of freedom, ``(nv,)`` N m, in MuJoCo's order."""
        ...

    def snapshot(self) -> Any:
        """Return everything that is needed to go on exactly from here."""
        ...

    def restore(self, snapshot: Any) -> None:
        """Go back to a snapshot of this engine."""
        ...


EngineMaker: TypeAlias = Callable[[Any, Any], Engine]
"""``(MjModel, MjData) -> Engine``."""
