"""What goes between a MuJoCo model and a Drake context: changed fields at every reset, states both ways at every period."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.envs._mujoco import mujoco
from simgap.envs.engines.drake_plant import Plant, gains, pydrake, set_filters, torque_limit
from simgap.errors import UsageError

_FIXED = (
    *(
        "geom_contype",
        "geom_conaffinity",
        "jnt_range",
        "jnt_stiffness",
        "jnt_pos",
        "jnt_axis",
        "qpos_spring",
        "dof_frictionloss",
        "actuator_gear",
    ),
)
"""Fields that no factor may change while Drake moves the world: a changed one is an error, because Drake would go on with the old value."""
_COPIED = (
    *("body_pos", "body_quat", "body_mass", "body_inertia", "body_ipos", "body_iquat"),
    *("dof_damping", "dof_armature", "geom_pos", "geom_quat", "geom_size", "geom_friction"),
)


class FieldSync:
    """Copies model fields that factors change into Drake: masses, inertias, sizes, frictions, gains, damping, reflected inertia."""

    def __init__(self, model: Any, plant: Plant) -> None:
        """Remember the compiled values."""
        self._plant = plant
        self._compiled = {name: np.array(getattr(model, name)) for name in (*_FIXED, *_COPIED)}
        self._scratch = mujoco.MjData(model)
        mujoco.mj_kinematics(model, self._scratch)
        self._carriers = _carriers(model)
        self._joint_of = np.asarray(model.actuator_trnid[:, 0], dtype=int)
        self._ratio = np.array([servo.ratio for servo in plant.servos])
        self._limit = np.full(model.nu, np.inf)
        self._range = np.where(
            model.actuator_ctrllimited[:, None] != 0, model.actuator_ctrlrange, [[-np.inf, np.inf]]
        )
        self._gain, self._bias = np.zeros(model.nu), np.zeros((model.nu, 3))

    def apply(self, model: Any, root: Any, context: Any) -> None:
        """Copy fields into a context that holds the compiled values.

        Raises:
            UsageError: a field changed that this engine cannot change.
        """
        for name in _FIXED:
            if not np.array_equal(getattr(model, name), self._compiled[name]):
                raise UsageError(
                    f"a factor changed the model's {name}, which engine drake reads once only; use engine"
                    " mujoco for this factor"
                )
        for body in self._changed(model, "body_pos", "body_quat"):
            if body in self._carriers:
                raise UsageError(
                    f"a factor moved body {model.body(body).name!r}, which carries joints; engine drake moves"
                    " free and fixed bodies only"
                )
        for body in self._changed(model, "body_mass", "body_inertia", "body_ipos", "body_iquat"):
            self._plant.bodies[body].SetSpatialInertiaInBodyFrame(context, _inertia(model, body))
        self._apply_joints(model, context)
        self._apply_geoms(model, root)
        self._gain[:] = model.actuator_gainprm[:, 0]
        self._bias[:] = np.where(
            (model.actuator_biastype == mujoco.mjtBias.mjBIAS_AFFINE)[:, None],
            model.actuator_biasprm[:, :3],
            0.0,
        )
        self._limit[:] = [torque_limit(model, index) for index in range(model.nu)]
        for index, servo in enumerate(self._plant.servos):
            servo.actuator.set_controller_gains(gains(model, index, servo.ratio))
            servo.actuator.set_effort_limit(abs(servo.ratio) * float(self._limit[index]))

    def feed_forward(self, command: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return what commands add to the servos' own stiffness and damping: torques at the joints, one a Drake actuator."""
        clipped = np.clip(command, self._range[:, 0], self._range[:, 1])
        force = self._gain * clipped + self._bias[:, 0]
        is_open_loop = ~self._bias[:, 1:].any(axis=1)  # without gains Drake has no limit to clip at
        force = np.where(is_open_loop, np.clip(force, -self._limit, self._limit), force)
        out = np.zeros(self._plant.plant.num_actuators())
        out[: len(force)] = self._ratio * force
        return out

    def torque_at(self, model: Any, data: Any, actuator: int) -> float:
        """Return what a servo would give in the state of the data."""
        joint, ratio, bias = self._joint_of[actuator], self._ratio[actuator], self._bias[actuator]
        length, speed = (
            ratio * data.qpos[model.jnt_qposadr[joint]],
            ratio * data.qvel[model.jnt_dofadr[joint]],
        )
        force = self.feed_forward(data.ctrl)[actuator] / ratio + bias[1] * length + bias[2] * speed
        return float(np.clip(force, -self._limit[actuator], self._limit[actuator]))

    def _changed(self, model: Any, *names: str) -> list[int]:
        """Return the rows in which any of these fields is no longer what was compiled."""
        rows: set[int] = set()
        for name in names:
            now, before = getattr(model, name), self._compiled[name]
            rows |= set(np.flatnonzero((now != before).reshape(len(before), -1).any(axis=1)).tolist())
        return sorted(rows)

    def _apply_joints(self, model: Any, context: Any) -> None:
        for dof in self._changed(model, "dof_damping"):
            self._plant.joints[int(model.dof_jntid[dof])].SetDamping(context, float(model.dof_damping[dof]))
        for dof in self._changed(model, "dof_armature"):
            self._plant.rotors[int(model.dof_jntid[dof])].SetRotorInertia(
                context, float(model.dof_armature[dof])
            )

    def _apply_geoms(self, model: Any, root: Any) -> None:
        geometry, maths, material = (
            pydrake("geometry"),
            pydrake("math"),
            pydrake("multibody.plant").CoulombFriction,
        )
        scene, source = self._plant.scene, self._plant.plant.get_source_id()
        context = scene.GetMyMutableContextFromRoot(root)
        mujoco.mj_kinematics(model, self._scratch)
        moved = {
            body for body in self._changed(model, "body_pos", "body_quat") if model.body_weldid[body] == 0
        }
        reshaped = set(self._changed(model, "geom_size", "geom_pos", "geom_quat"))
        is_changed = False
        for geom, identity in self._plant.geometries.items():
            if geom in reshaped or moved & _ancestors(model, int(model.geom_bodyid[geom])):
                position, rotation = self._pose_in_frame(model, geom)
                pose = maths.RigidTransform(maths.RotationMatrix(rotation), position)
                scene.ChangeShape(context, source, identity, _shape(model, geom), pose)
                is_changed = True
        # a fixed geometry that changes forgets which other fixed ones it overlaps by design, and Drake has no
        # answer to their contact
        if is_changed:
            set_filters(scene.collision_filter_manager(context), model, self._plant.geometries)
        for geom in self._changed(model, "geom_friction"):
            if geom in self._plant.geometries:
                identity, sliding = self._plant.geometries[geom], float(model.geom_friction[geom, 0])
                properties = geometry.ProximityProperties(
                    scene.model_inspector().GetProximityProperties(identity)
                )
                properties.UpdateProperty("material", "coulomb_friction", material(sliding, sliding))
                scene.AssignRole(context, source, identity, properties, geometry.RoleAssign.kReplace)

    def _pose_in_frame(self, model: Any, geom: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return a geom's position and rotation in the body that carries it in Drake: its own, or the ground if it is fixed."""
        if model.body_weldid[model.geom_bodyid[geom]]:
            return np.array(model.geom_pos[geom]), _matrix(model.geom_quat[geom])
        return self._scratch.geom_xpos[geom].copy(), self._scratch.geom_xmat[geom].reshape(3, 3).copy()


def _ancestors(model: Any, body: int) -> set[int]:
    """Return a body and all it hangs on, the world left out."""
    found: set[int] = set()
    while body:
        found.add(body)
        body = int(model.body_parentid[body])
    return found


def _carriers(model: Any) -> set[int]:
    """Return the bodies whose place in their parent matters to a joint: those with hinges or slides, and all that these hang on."""
    found: set[int] = set()
    for joint in range(model.njnt):
        body = int(model.jnt_bodyid[joint])
        found |= _ancestors(model, body) - (
            {body} if model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_FREE else set()
        )
    return found


class StateMap:
    """Maps positions, velocities and generalised forces between the orders of the two engines.

    A free joint is ``[position, quaternion]`` and ``[velocity in the world, turning rate in the body]`` in
    MuJoCo, and ``[quaternion, position]`` and ``[turning rate in the world, velocity in the world]`` in
    Drake. Quaternions are w, x, y, z in both.
    """

    def __init__(self, model: Any, plant: Plant) -> None:
        """Work out which entry of one is which of the other."""
        self._plant = plant.plant
        self._q, self._v = np.zeros(model.nq, dtype=int), np.zeros(model.nv, dtype=int)
        free: list[tuple[int, int]] = []
        for index, joint in enumerate(plant.joints):
            q, v = int(model.jnt_qposadr[index]), int(model.jnt_dofadr[index])
            qd, vd = joint.position_start(), joint.velocity_start()
            if model.jnt_type[index] == mujoco.mjtJoint.mjJNT_FREE:
                self._q[q : q + 7] = [qd + 4, qd + 5, qd + 6, qd, qd + 1, qd + 2, qd + 3]
                self._v[v : v + 6] = [vd + 3, vd + 4, vd + 5, vd, vd + 1, vd + 2]
                free.append((q + 3, v + 3))
            else:
                self._q[q], self._v[v] = qd, vd
        self._free = tuple(free)

    def to_drake(self, data: Any, context: Any) -> None:
        """Copy positions and velocities of the data into a plant's context."""
        velocity = np.array(data.qvel)
        for quaternion, turning in self._free:
            velocity[turning : turning + 3] = _turned(
                data.qpos[quaternion : quaternion + 4], velocity[turning : turning + 3]
            )
        positions, velocities = np.zeros(self._plant.num_positions()), np.zeros(self._plant.num_velocities())
        positions[self._q], velocities[self._v] = data.qpos, velocity
        self._plant.SetPositions(context, positions)
        self._plant.SetVelocities(context, velocities)

    def to_mujoco(self, context: Any, data: Any) -> None:
        """Copy a plant's positions and velocities into the data; quaternions become unit ones, which Drake lets drift by 1e-6."""
        data.qpos[:] = self._plant.GetPositions(context)[self._q]
        data.qvel[:] = self._plant.GetVelocities(context)[self._v]
        for quaternion, turning in self._free:
            mujoco.mju_normalize4(data.qpos[quaternion : quaternion + 4])
            data.qvel[turning : turning + 3] = _turned_back(
                data.qpos[quaternion : quaternion + 4], data.qvel[turning : turning + 3]
            )

    def force_to_mujoco(self, force: NDArray[np.float64], data: Any) -> NDArray[np.float64]:
        """Return generalised forces in MuJoCo's order, ``(nv,)``."""
        out = np.asarray(force)[self._v]
        for quaternion, turning in self._free:
            out[turning : turning + 3] = _turned_back(
                data.qpos[quaternion : quaternion + 4], out[turning : turning + 3]
            )
        return out

    def matrix_to_mujoco(self, matrix: NDArray[np.float64], data: Any) -> NDArray[np.float64]:
        """Return a matrix over velocities, such as the mass matrix, in MuJoCo's order, ``(nv, nv)``."""
        rows = np.array([self.force_to_mujoco(column, data) for column in matrix.T])
        return np.array([self.force_to_mujoco(column, data) for column in rows.T])


def _turned(quaternion: NDArray[np.float64], vector: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a vector of the body in the world, ``(3,)``."""
    out = np.empty(3)
    mujoco.mju_rotVecQuat(out, vector, quaternion)
    return out


def _turned_back(quaternion: NDArray[np.float64], vector: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a vector of the world in the body, ``(3,)``."""
    inverse = np.empty(4)
    mujoco.mju_negQuat(inverse, quaternion)
    return _turned(inverse, vector)


def _matrix(quaternion: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return world from body of a unit quaternion, ``(3, 3)``."""
    out = np.empty(9)
    mujoco.mju_quat2Mat(out, np.ascontiguousarray(quaternion))
    return out.reshape(3, 3)


def _inertia(model: Any, body: int) -> Any:
    """Return the inertia of a MuJoCo body as Drake's, about and in the body frame."""
    tree = pydrake("multibody.tree")
    turn = _matrix(model.body_iquat[body])
    central = turn @ np.diag(model.body_inertia[body]) @ turn.T
    moments = tree.RotationalInertia(*np.diag(central), central[0, 1], central[0, 2], central[1, 2])
    return tree.SpatialInertia.MakeFromCentralInertia(
        float(model.body_mass[body]), np.array(model.body_ipos[body]), moments
    )


def _shape(model: Any, geom: int) -> Any:
    """Return the shape of a MuJoCo geom as Drake's, which counts full lengths where MuJoCo counts half ones."""
    geometry = pydrake("geometry")
    a, b, c = (float(v) for v in model.geom_size[geom])
    kind = mujoco.mjtGeom(int(model.geom_type[geom]))
    shapes: dict[Any, Callable[[], Any]] = {
        mujoco.mjtGeom.mjGEOM_BOX: lambda: geometry.Box(2 * a, 2 * b, 2 * c),
        mujoco.mjtGeom.mjGEOM_SPHERE: lambda: geometry.Sphere(a),
        mujoco.mjtGeom.mjGEOM_CYLINDER: lambda: geometry.Cylinder(a, 2 * b),
        mujoco.mjtGeom.mjGEOM_CAPSULE: lambda: geometry.Capsule(a, 2 * b),
        mujoco.mjtGeom.mjGEOM_ELLIPSOID: lambda: geometry.Ellipsoid(a, b, c),
    }
    if kind not in shapes:
        raise UsageError(
            f"a factor changed the size of geom {geom}, a {kind.name.removeprefix('mjGEOM_').lower()}; engine"
            " drake cannot change that shape"
        )
    return shapes[kind]()
