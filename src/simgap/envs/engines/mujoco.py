"""The default engine: MuJoCo itself."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.envs._mujoco import mujoco

_INTEGRATORS = {0: "Euler", 1: "RK4", 2: "implicit", 3: "implicitfast"}


class MujocoEngine:
    """Steps the very data it is given; see :class:`~simgap.envs.engines.base.Engine`."""

    def __init__(self, model: Any, data: Any) -> None:
        self._model, self._data = model, data
        self._scratch = mujoco.MjData(model)
        self._timestep_s = float(model.opt.timestep)
        self.stamp = (
            f"mujoco {mujoco.__version__} {_INTEGRATORS[int(model.opt.integrator)]} {self._timestep_s}s"
        )

    def reset(self) -> None:
        """Take over changed masses and sizes, then bring poses up to date.

        A free body's row of the mass matrix is a constant of the model, as are contact weights and bounding
        boxes. With an old row a heavier cube falls faster than g and flies off when it is pressed. 8 us.
        """
        mujoco.mj_setConst(self._model, self._scratch)
        mujoco.mj_forward(self._model, self._data)

    def advance(self, seconds: float) -> None:
        """Step without returning to Python in between."""
        mujoco.mj_step(self._model, self._data, nstep=round(seconds / self._timestep_s))

    def contacts(self) -> list[tuple[int, int]]:
        """Return the pairs of geoms in contact."""
        return [(a, b) for a, b in self._data.contact.geom.tolist()]

    def touching(self, geom: int) -> NDArray[np.int32]:
        """Return the ids of geoms in contact with one geom."""
        pairs = self._data.contact.geom.tolist()  # a dozen: sooner looked through here than in numpy
        return np.array([b if a == geom else a for a, b in pairs if geom in (a, b)], dtype=np.int32)

    def servo_torque(self, actuator: int) -> float:
        """Return the torque an actuator gives now, N m."""
        return float(self._data.actuator_force[actuator])

    def bias_torque(self) -> NDArray[np.float64]:
        """Return MuJoCo's ``qfrc_bias``."""
        return np.asarray(self._data.qfrc_bias)

    def snapshot(self) -> Any:
        """Return a whole copy of the data: poses lag the state by one step after ``mj_step``, and must go on doing so."""
        copied = mujoco.MjData(self._model)
        mujoco.mj_copyData(copied, self._model, self._data)
        return copied

    def restore(self, snapshot: Any) -> None:
        """Copy a snapshot back."""
        mujoco.mj_copyData(self._data, self._model, snapshot)
