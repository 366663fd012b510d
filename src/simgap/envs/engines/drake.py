"""The second engine: Drake moves the world, by its own contact, solver and integrator, and MuJoCo only draws it.

Two engines that agree are better evidence than one, as far as they share no mistake: the dynamics, the
contact model, the friction solver, the integrator and the time step are Drake's. What they share is the model
file and the renderer.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simgap.envs._mujoco import mujoco
from simgap.envs.engines.drake_plant import CONTACT, STEPS, Plant, build_plant, complaints, pydrake
from simgap.envs.engines.drake_sleep import CHECK_S, Sleep
from simgap.envs.engines.drake_sync import FieldSync, StateMap
from simgap.errors import UsageError
from simgap.provenance import library_version


class DrakeSnapshot(NamedTuple):
    """Where Drake and the data stood."""

    steps: int
    context: Any
    data: Any
    sleep: Any


class DrakeEngine:
    """Moves a MuJoCo model's data by Drake; see :class:`~simgap.envs.engines.base.Engine`."""

    def __init__(self, model: Any, data: Any, timestep_s: float | None = None, *, sleep: bool = True) -> None:
        """Parse the model and build the plant, about 20 ms.

        Args:
            model: a ``mujoco.MjModel`` that carries its MJCF; its fields are read again at every
                :meth:`reset`.
            data: the ``mujoco.MjData`` that states and commands are taken from and written to.
            timestep_s: step of Drake's solver, s; twice MuJoCo's by default.
            sleep: whether free bodies at rest are left out of the solver until something comes near.

        Raises:
            MachineError: no pydrake.
            UsageError: the model has something that this engine does not take over.
        """
        self._model, self._data = model, data
        self._timestep_s = timestep_s = (
            STEPS * float(model.opt.timestep) if timestep_s is None else timestep_s
        )
        self._plant: Plant = build_plant(model, timestep_s)
        with complaints():  # that a half space touches no deformable body, of which there is none
            self._pristine = self._plant.diagram.CreateDefaultContext()
        self._plant.ground.Lock(self._plant.plant.GetMyMutableContextFromRoot(self._pristine))
        self._simulator = pydrake("systems.analysis").Simulator(self._plant.diagram, self._pristine.Clone())
        self._root = self._simulator.get_mutable_context()
        self._context = self._plant.plant.GetMyMutableContextFromRoot(self._root)
        self._fields = FieldSync(model, self._plant)
        self._states = StateMap(model, self._plant)
        self._sleep = Sleep(model, self._plant) if sleep else None
        self._look_steps = max(1, round(CHECK_S / timestep_s))
        self._geom_of = {geometry: geom for geom, geometry in self._plant.geometries.items()}
        self._steps = 0
        self._contacts: list[tuple[int, int]] | None = None
        self.stamp = f"drake {library_version('drake')} {CONTACT} sap, hydroelastic {timestep_s}s"

    def reset(self) -> None:
        """Take over fields and state into a context as new, so that an episode knows nothing of the one before."""
        self._root.SetTimeStateAndParametersFrom(self._pristine)
        self._fields.apply(self._model, self._root, self._context)
        self._states.to_drake(self._data, self._context)
        servos = 2 * self._plant.plant.num_actuators()
        self._plant.plant.get_desired_state_input_port(self._plant.instance).FixValue(
            self._context, np.zeros(servos)
        )
        self._steps = 0
        if self._sleep is not None:
            self._sleep.reset()
        self._simulator.Initialize()
        self._write_back()

    def advance(self, seconds: float) -> None:
        """Step without returning to Python in between.

        Raises:
            UsageError: the time is not a whole number of Drake's steps.
        """
        steps = round(seconds / self._timestep_s)
        if abs(steps * self._timestep_s - seconds) > 1e-9:
            raise UsageError(f"{seconds:g} s is not a whole number of Drake's {self._timestep_s:g} s steps")
        self._plant.plant.get_actuation_input_port().FixValue(
            self._context, self._fields.feed_forward(self._data.ctrl)
        )
        goal = self._steps + steps
        while self._steps < goal:
            look = (
                (self._steps // self._look_steps + 1) * self._look_steps if self._sleep is not None else goal
            )
            self._steps = min(goal, look)
            # Half a step short of the next one: whether a step that falls on the boundary is taken would be a
            # matter of rounding.
            self._simulator.AdvanceTo((self._steps - 0.5) * self._timestep_s)
            self._write_back()
            if self._sleep is not None and self._steps == look:
                self._sleep.look(self._data, self._root, self._context, self.contacts())
                self._contacts = None

    def contacts(self) -> list[tuple[int, int]]:
        """Return the pairs of geoms in contact, found once a look."""
        if self._contacts is None:
            self._contacts = self._find_contacts() + ([] if self._sleep is None else self._sleep.contacts())
        return self._contacts

    def touching(self, geom: int) -> NDArray[np.int32]:
        """Return the ids of geoms in contact with one geom."""
        others = [b if a == geom else a for a, b in self.contacts() if geom in (a, b)]
        return np.array(sorted(set(others)), dtype=np.int32)

    def servo_torque(self, actuator: int) -> float:
        """Return the torque an actuator gave in the last step, N m; before the first, what it would give at the start."""
        servo = self._plant.servos[actuator]
        if self._steps:
            return (
                float(self._plant.plant.get_net_actuation_output_port().Eval(self._context)[actuator])
                / servo.ratio
            )
        return self._fields.torque_at(self._model, self._data, actuator)

    def bias_torque(self) -> NDArray[np.float64]:
        """Return gravity, Coriolis and centrifugal torques by Drake's own dynamics, in MuJoCo's order."""
        plant = self._plant.plant
        return self._states.force_to_mujoco(
            plant.CalcBiasTerm(self._context) - plant.CalcGravityGeneralizedForces(self._context), self._data
        )

    def body_positions(self) -> NDArray[np.float64]:
        """Return where Drake's own kinematics puts the origin of every body, ``(nbody, 3)`` m, in MuJoCo's order."""
        return np.array([body.EvalPoseInWorld(self._context).translation() for body in self._plant.bodies])

    def mass_matrix(self) -> NDArray[np.float64]:
        """Return Drake's own mass matrix with reflected inertias, ``(nv, nv)``, in MuJoCo's order."""
        return self._states.matrix_to_mujoco(self._plant.plant.CalcMassMatrix(self._context), self._data)

    def snapshot(self) -> DrakeSnapshot:
        """Return a copy of Drake's context and of the data; gains and torque limits stay those of the episode."""
        copied = mujoco.MjData(self._model)
        mujoco.mj_copyData(copied, self._model, self._data)
        return DrakeSnapshot(
            self._steps, self._root.Clone(), copied, None if self._sleep is None else self._sleep.snapshot()
        )

    def restore(self, snapshot: DrakeSnapshot) -> None:
        """Go back to a snapshot of this episode."""
        self._steps = snapshot.steps
        if self._sleep is not None:
            self._sleep.restore(snapshot.sleep)
        self._root.SetTimeStateAndParametersFrom(snapshot.context)
        self._simulator.Initialize()
        self._contacts = None
        mujoco.mj_copyData(self._data, self._model, snapshot.data)

    def _find_contacts(self) -> list[tuple[int, int]]:
        if not self._steps:
            query = self._plant.plant.get_geometry_query_input_port().Eval(self._context)
            return [
                (self._geom_of[p.id_A], self._geom_of[p.id_B]) for p in query.ComputePointPairPenetration()
            ]
        results = self._plant.plant.get_contact_results_output_port().Eval(self._context)
        surfaces = [
            results.hydroelastic_contact_info(i).contact_surface()
            for i in range(results.num_hydroelastic_contacts())
        ]
        points = [
            results.point_pair_contact_info(i).point_pair() for i in range(results.num_point_pair_contacts())
        ]
        pairs = [(s.id_M(), s.id_N()) for s in surfaces] + [(p.id_A, p.id_B) for p in points]
        return [(self._geom_of[a], self._geom_of[b]) for a, b in pairs]

    def _write_back(self) -> None:
        """Put Drake's state into the data and bring every pose up to date; no dynamics of MuJoCo's are run."""
        self._contacts = None
        self._states.to_mujoco(self._context, self._data)
        self._data.time = self._steps * self._timestep_s
        mujoco.mj_kinematics(self._model, self._data)
        mujoco.mj_camlight(self._model, self._data)
