"""A Drake plant of a MuJoCo model: Drake's own parser reads the same MJCF, and what that parser drops is set here.

Set here: servos with gains and torque limits, reflected inertia, collision filters, and the stiffness of
contact, which has no common unit between the two. Everything else (inertias, frames, joints, limits, damping,
friction) is Drake's own reading.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.envs._mujoco import mujoco
from simgap.envs.engines.mjcf import NamedMjcf, named_mjcf
from simgap.errors import MachineError, UsageError

STEPS = 2
"""Drake's step over MuJoCo's: its solver is implicit and slower by step, and a control period stays a whole number of them."""
POINT_STIFFNESS_N_PER_M = 2e4
"""Of a contact in one point: a wheel that carries 3 N sinks in by 0.15 mm."""
MODULUS_PA = 5e5
"""Hydroelastic modulus of loose things, soft rubber's: 7 N on a 4 cm2 pad press a cube in by 0.4 mm, as in MuJoCo.

Of 80 cubes dropped from 8 cm, 5 at 1 MPa and 50 s/m never came to rest, and most at 5 MPa and 10 s/m: they
rocked by a milliradian from step to step for ever. None does at these values.
"""
DISSIPATION_S_PER_M = 100.0
"""Hunt and Crossley dissipation: no bounce at the speeds of these tasks."""
CONTACT = "lagged"
"""Drake's approximation of contact: a convex problem in which Coulomb's bound takes the normal force of the step before."""
_PLANE = int(mujoco.mjtGeom.mjGEOM_PLANE)
_FLAT_FACED = (int(mujoco.mjtGeom.mjGEOM_BOX), int(mujoco.mjtGeom.mjGEOM_CYLINDER))


@dataclass(frozen=True, slots=True, eq=False)
class Servo:
    """One actuator: ``torque = ratio x clip(gain x command + offset - stiffness x ratio x q - damping x ratio x q', +-limit)``."""

    actuator: Any
    """Drake's ``JointActuator``."""
    ratio: float
    """MuJoCo's gear."""


@dataclass(frozen=True, slots=True, eq=False)
class Plant:
    """A finalised plant in its diagram, and what ties it to MuJoCo's ids."""

    diagram: Any
    plant: Any
    scene: Any
    instance: Any
    """Model instance that holds everything that was parsed."""
    joints: tuple[Any, ...]
    """Drake's joint of every MuJoCo joint id."""
    bodies: tuple[Any, ...]
    """Drake's body of every MuJoCo body id."""
    geometries: dict[int, Any]
    """MuJoCo geom id -> Drake's geometry id, of everything that can collide."""
    servos: tuple[Servo, ...]
    """In the order of MuJoCo's actuators, which is also that of Drake's."""
    ground: Any
    """The locked joint of the body that carries every fixed shape."""
    rotors: dict[int, Any]
    """MuJoCo joint id -> Drake's actuator that carries the joint's reflected inertia."""


def pydrake(part: str) -> Any:
    """Import ``pydrake.<part>``.

    Raises:
        MachineError: pydrake is not installed; names the extra.
    """
    try:
        return import_module(f"pydrake.{part}")
    except ModuleNotFoundError as error:
        raise MachineError(
            "engine drake needs pydrake, which is not installed: pip install 'simgap[drake]'"
        ) from error


def build_plant(model: Any, timestep_s: float) -> Plant:
    """Return the plant of a model at its compiled values.

    Args:
        model: a ``mujoco.MjModel`` that carries its MJCF.
        timestep_s: step of Drake's solver, s.

    Raises:
        MachineError: no pydrake.
        UsageError: the model uses something that this engine does not take over; names it.
    """
    multibody = pydrake("multibody.plant")
    _refuse_what_is_lost(model)
    named = named_mjcf(model)
    builder = pydrake("systems.framework").DiagramBuilder()
    plant, scene = multibody.AddMultibodyPlantSceneGraph(builder, timestep_s)
    plant.set_discrete_contact_approximation(multibody.DiscreteContactApproximation.kLagged)
    plant.set_contact_model(multibody.ContactModel.kHydroelasticWithFallback)
    plant.set_adjacent_bodies_collision_filters(False)  # the filters of MuJoCo are set below, pair by pair
    plant.mutable_gravity_field().set_gravity_vector(np.array(model.opt.gravity))
    instance = _parse(plant, named.xml)
    is_free = model.jnt_type == mujoco.mjtJoint.mjJNT_FREE
    hinges = {
        i: plant.GetJointByName(name, instance) for i, name in enumerate(named.joints) if not is_free[i]
    }
    servos = tuple(_add_servo(plant, model, i, hinges) for i in range(model.nu))
    rotors = _add_rotors(plant, model, hinges, servos)
    ground = _add_ground(plant, scene, model, _collision_shapes(scene, named), instance)
    plant.Finalize()  # free joints come into being here, called like their bodies
    joints = tuple(
        hinges[i] if i in hinges else plant.GetJointByName(named.bodies[model.jnt_bodyid[i]], instance)
        for i in range(model.njnt)
    )
    bodies = (plant.world_body(), *(plant.GetBodyByName(name, instance) for name in named.bodies[1:]))
    geometries = _collision_shapes(scene, named)
    _drop_what_is_only_seen(plant, scene, geometries)
    _set_contact(plant, scene, model, geometries)
    set_filters(scene.collision_filter_manager(), model, geometries)
    return Plant(builder.Build(), plant, scene, instance, joints, bodies, geometries, servos, ground, rotors)


def _refuse_what_is_lost(model: Any) -> None:
    """Name the first thing in a model that would behave otherwise without a word."""
    servos = model.actuator_trntype != mujoco.mjtTrn.mjTRN_JOINT
    losses = {
        "joints with dry friction (frictionloss)": bool(np.any(model.dof_frictionloss)),
        "free joints with an armature": bool(
            np.any(model.dof_armature[model.jnt_type[model.dof_jntid] == mujoco.mjtJoint.mjJNT_FREE])
        ),
        "ball joints": bool(np.any(model.jnt_type == mujoco.mjtJoint.mjJNT_BALL)),
        "contact pairs of their own": model.npair > 0,
        "gravity compensation": bool(np.any(model.body_gravcomp)),
        "wind, density or viscosity": bool(
            np.any(model.opt.wind) or model.opt.density or model.opt.viscosity
        ),
        "actuators on something else than one joint": bool(np.any(servos)),
        "actuators with dynamics of their own": bool(np.any(model.actuator_dyntype)),
        "actuators with a gain that depends on the state": bool(np.any(model.actuator_gaintype)),
        "actuators with another force limit each way": any(
            limited and -low != high
            for limited, (low, high) in zip(
                model.actuator_forcelimited, model.actuator_forcerange, strict=True
            )
        ),
    }
    for what, is_there in losses.items():
        if is_there:
            raise UsageError(
                f"the model has {what}, which engine drake does not take over; use engine mujoco for this env"
            )


def _parse(plant: Any, xml: str) -> Any:
    """Parse, and treat whatever the parser says it ignores as an error."""
    with complaints() as heard:
        instances = pydrake("multibody.parsing").Parser(plant).AddModelsFromString(xml, "xml")
    if heard:
        raise UsageError(
            f"Drake's MJCF parser would lose part of the model: {heard[0]}; use engine mujoco for this env"
        )
    return instances[0]


@contextmanager
def complaints() -> Iterator[list[str]]:
    """Collect what Drake logs instead of printing it."""
    heard: list[str] = []

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append(record.getMessage())

    logger, handler = logging.getLogger("drake"), Collect(level=logging.WARNING)
    before = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield heard
    finally:
        logger.removeHandler(handler)
        logger.propagate = before


def _add_servo(plant: Any, model: Any, index: int, joints: dict[int, Any]) -> Servo:
    ratio = float(model.actuator_gear[index, 0])
    actuator = plant.AddJointActuator(
        f"servo_{index}", joints[int(model.actuator_trnid[index, 0])], abs(ratio) * torque_limit(model, index)
    )
    actuator.set_controller_gains(gains(model, index, ratio))
    return Servo(actuator, ratio)


def torque_limit(model: Any, index: int) -> float:
    """Return the largest torque of a MuJoCo actuator before its gear, N m; infinite if it has no limit."""
    return float(model.actuator_forcerange[index, 1]) if model.actuator_forcelimited[index] else np.inf


def gains(model: Any, index: int, ratio: float) -> Any:
    """Return the stiffness and damping that a MuJoCo actuator puts on its joint, as Drake's gains."""
    stiffness, damping = (
        -float(model.actuator_biasprm[index, k])
        * (model.actuator_biastype[index] == mujoco.mjtBias.mjBIAS_AFFINE)
        for k in (1, 2)
    )
    if stiffness < 0 or damping < 0:
        raise UsageError(
            f"actuator {index} pushes away from its target (stiffness {stiffness:g}, damping {damping:g}),"
            " which engine drake refuses"
        )
    return pydrake("multibody.tree").PdControllerGains(p=ratio**2 * stiffness, d=ratio**2 * damping)


def _add_rotors(plant: Any, model: Any, joints: dict[int, Any], servos: tuple[Servo, ...]) -> dict[int, Any]:
    """Give every hinge and slide its reflected inertia; one without a servo gets an actuator that never gets a command."""
    rotors = {int(model.actuator_trnid[index, 0]): servo.actuator for index, servo in enumerate(servos)}
    for index, joint in joints.items():
        if index not in rotors:
            rotors[index] = plant.AddJointActuator(f"rotor_{index}", joint)
        rotors[index].set_default_gear_ratio(1.0)
        rotors[index].set_default_rotor_inertia(float(model.dof_armature[model.jnt_dofadr[index]]))
    return rotors


def _collision_shapes(scene: Any, named: NamedMjcf) -> dict[int, Any]:
    """Return Drake's geometry of every MuJoCo geom that can collide, by geom id."""
    inspector = scene.model_inspector()
    index = {name: i for i, name in enumerate(named.geoms)}
    found = {
        index[inspector.GetName(g).rsplit("::", 1)[-1]]: g
        for g in inspector.GetAllGeometryIds(pydrake("geometry").Role.kProximity)
    }
    return dict(sorted(found.items()))


def _add_ground(plant: Any, scene: Any, model: Any, shapes: dict[int, Any], instance: Any) -> Any:
    """Hang every fixed shape on one body whose only joint is locked, and return the joint.

    Drake can lock bodies at rest, which saves most of the time, but crashes when a body touches a shape of
    the world itself while any joint is locked (RobotLocomotion/drake issue 24773).
    """
    geometry, maths, tree = pydrake("geometry"), pydrake("math"), pydrake("multibody.tree")
    body = plant.AddRigidBody("ground_", instance, tree.SpatialInertia.SolidBoxWithMass(1.0, 1.0, 1.0, 1.0))
    joint = plant.AddJoint(
        tree.PrismaticJoint("ground_", plant.world_frame(), body.body_frame(), [0.0, 0.0, 1.0])
    )
    data, inspector = mujoco.MjData(model), scene.model_inspector()
    mujoco.mj_kinematics(model, data)
    for geom in [g for g in shapes if model.body_weldid[model.geom_bodyid[g]] == 0]:
        name = inspector.GetName(shapes[geom]).rsplit("::", 1)[-1]
        shape, properties = (
            inspector.GetShape(shapes[geom]).Clone(),
            geometry.ProximityProperties(inspector.GetProximityProperties(shapes[geom])),
        )
        pose = maths.RigidTransform(
            maths.RotationMatrix(data.geom_xmat[geom].reshape(3, 3)), data.geom_xpos[geom].copy()
        )
        scene.RemoveRole(plant.get_source_id(), shapes[geom], geometry.Role.kProximity)
        plant.RegisterCollisionGeometry(body, pose, shape, name, properties)
    return joint


def _drop_what_is_only_seen(plant: Any, scene: Any, geometries: dict[int, Any]) -> None:
    """Remove shapes that cannot collide: MuJoCo draws, and Drake would go on moving them."""
    keep = set(geometries.values())
    for geometry in scene.model_inspector().GetAllGeometryIds():
        if geometry not in keep:
            scene.RemoveGeometry(plant.get_source_id(), geometry)


def _set_contact(plant: Any, scene: Any, model: Any, geometries: dict[int, Any]) -> None:
    """Let shapes with flat faces meet in patches (hydroelastic), round ones in points, where a mesh would make a wheel a polygon.

    Loose things give way; robots and what is fixed do not, which leaves a third of the polygons between a jaw
    and a cube. Two rigid shapes touch in a point.
    """
    geometry = pydrake("geometry")
    inspector = scene.model_inspector()
    for geom, identity in geometries.items():
        properties = geometry.ProximityProperties(inspector.GetProximityProperties(identity))
        geometry.AddContactMaterial(
            dissipation=DISSIPATION_S_PER_M, point_stiffness=POINT_STIFFNESS_N_PER_M, properties=properties
        )
        kind, edge = int(model.geom_type[geom]), 0.5 * float(model.geom_rbound[geom]) or 1.0
        if kind in _FLAT_FACED and is_loose(model, int(model.geom_bodyid[geom])):
            geometry.AddCompliantHydroelasticProperties(edge, MODULUS_PA, properties)
        elif kind in (_PLANE, *_FLAT_FACED):
            geometry.AddRigidHydroelasticProperties(edge, properties)
        scene.AssignRole(plant.get_source_id(), identity, properties, geometry.RoleAssign.kReplace)


def is_loose(model: Any, body: int) -> bool:
    """Return whether a body hangs on nothing and carries no other body that moves against it: a cube, not a car."""
    joint = int(model.body_jntadr[body])
    if joint < 0 or model.jnt_type[joint] != mujoco.mjtJoint.mjJNT_FREE:
        return False
    tree = model.body_rootid == model.body_rootid[body]
    return int(model.body_dofnum[tree].sum()) == 6


def set_filters(manager: Any, model: Any, geometries: dict[int, Any]) -> None:
    """Declare to a collision filter manager which geometries never touch."""
    geometry = pydrake("geometry")
    declaration = geometry.CollisionFilterDeclaration()
    pairs = colliding(model)
    for geom, identity in geometries.items():
        apart = [other for index, other in geometries.items() if index > geom and not pairs[geom, index]]
        if apart:
            declaration.ExcludeBetween(geometry.GeometrySet(identity), geometry.GeometrySet(apart))
    manager.Apply(declaration)


def colliding(model: Any) -> NDArray[np.bool_]:
    """Return which pairs of geoms MuJoCo lets collide, ``(ngeom, ngeom)``: by their bits, not within a body nor with its parent."""
    bits = (model.geom_contype[:, None] & model.geom_conaffinity[None, :]) != 0
    weld = model.body_weldid[model.geom_bodyid]
    parent = model.body_weldid[model.body_parentid[weld]]
    same = weld[:, None] == weld[None, :]
    moving = (weld[:, None] != 0) & (weld[None, :] != 0)
    related = (weld[:, None] == parent[None, :]) | (parent[:, None] == weld[None, :])
    if model.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_FILTERPARENT:
        related = np.zeros_like(related)
    excluded = np.zeros_like(same)
    body = model.geom_bodyid
    for signature in model.exclude_signature:
        first, second = int(signature) >> 16, int(signature) & 0xFFFF
        excluded |= (body[:, None] == first) & (body[None, :] == second) | (body[:, None] == second) & (
            body[None, :] == first
        )
    return np.asarray((bits | bits.T) & ~same & ~(related & moving) & ~excluded)
