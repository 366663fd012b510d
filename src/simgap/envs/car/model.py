"""The MuJoCo model of the car, a room and three cones, written with ``MjSpec`` from primitives only.

Four wheels on hinges roll on the floor by contact and friction: traction, braking and side grip come from the
engine, not from a formula. The wheels' contact shapes are spheres, one contact point each. Front wheels hang
on steering hinges with position servos; each rear wheel has its own motor, as in kits with two geared motors
side by side.
"""

from __future__ import annotations

import math
from typing import Any

from simgap.envs._mujoco import mujoco
from simgap.envs.car import geometry as g
from simgap.envs.car.factors import CONES
from simgap.envs.car.layout import FLOOR_X, FLOOR_Y
from simgap.envs.engines.mjcf import compile_with_source

TIMESTEP_S = 0.005
SERVO_DAMPING = 0.05
"""Of a steering hinge, N m s/rad: its torque limit over this is the servo's speed, this over its stiffness its lag."""
WHEEL_MASS_KG = 0.035
KNUCKLE_MASS_KG = 0.005
CORNERS_MASS_KG = 4 * WHEEL_MASS_KG + 2 * KNUCKLE_MASS_KG
"""All of the car that is not its chassis."""
ROTOR_INERTIA = 1e-4
"""Motor and gears as felt at a rear wheel, kg m^2."""
TIERS = 6
"""Cylinders of a cone above its foot; two more are bands of tape."""
FOOT_RADIUS_M = 0.065
BODY_RADII_M = (0.052, 0.014)
"""Bottom and top of the tapering part."""
CONE_CONTACT_RADIUS_M = 0.055
ORANGE = (0.95, 0.36, 0.06)
BLUE, WHITE = (0.08, 0.22, 0.90), (0.92, 0.92, 0.92)
BANDS = {"target": (BLUE, WHITE), "distractor1": (WHITE, BLUE), "distractor2": (WHITE, BLUE)}
"""Upper and lower band. From afar, or in few pixels, the cones are alike: the same colours in the same amounts, only their order differs."""
_CAR, _REST = 2, 1
"""Collision bits: the car's parts touch floor and cones, never each other."""
_PATCHES = (
    *(
        (0.9, 0.5, 0.5, 0.22),
        (1.7, -0.6, 0.35, 0.5),
        (2.4, 0.7, 0.6, 0.3),
        (0.4, -0.9, 0.3, 0.35),
        (2.9, -0.4, 0.25, 0.7),
        (-0.8, 0.6, 0.5, 0.3),
    ),
    *(
        (-1.6, -0.7, 0.4, 0.6),
        (1.3, 1.5, 0.7, 0.25),
        (-0.2, 1.7, 0.35, 0.4),
        (0.1, -1.9, 0.8, 0.2),
        (-2.5, 0.9, 0.4, 0.9),
        (2.2, -1.8, 0.5, 0.3),
    ),
)
"""Rectangles of the floor's pattern: centre and half sides, m."""


def build_model(image_size: int, rate_hz: float) -> Any:
    """Return the compiled ``mujoco.MjModel``.

    Args:
        image_size: largest frame that will be rendered, px.
        rate_hz: control rate; the period must be a whole number of time steps.
    """
    substeps = 1.0 / rate_hz / TIMESTEP_S
    if abs(substeps - round(substeps)) > 1e-9:
        raise ValueError(f"control period {1 / rate_hz:g} s is not a whole number of {TIMESTEP_S:g} s steps")
    spec = mujoco.MjSpec()
    spec.option.timestep = TIMESTEP_S
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    spec.option.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
    spec.option.impratio = 10
    # cones that nothing touches cost nothing; the motion is the same
    spec.option.enableflags |= int(mujoco.mjtEnableBit.mjENBL_SLEEP)
    # the last command sent: part of what the driver remembers, and of every copy of the data
    spec.nuserdata = 2
    # near and far planes are multiples of it; its default is the size of the room, and would cut off the cone
    # in front of the lens
    spec.stat.extent = 1.0
    visual = spec.visual
    visual.global_.offwidth = visual.global_.offheight = image_size
    visual.quality.offsamples = 0
    visual.quality.numslices = 14
    # directional light needs no finer triangles; with the defaults a frame costs three times as much
    visual.quality.numstacks, visual.quality.numquads = 2, 1
    visual.map.znear, visual.map.zfar = 0.02, 20.0
    visual.headlight.ambient = [0.45, 0.45, 0.45]
    visual.headlight.diffuse = [0.2, 0.2, 0.2]
    visual.headlight.specular = [0, 0, 0]
    spec.worldbody.add_light(
        name="lamp",
        pos=[1.5, 0, 2.5],
        dir=[-0.2, -0.3, -1.0],
        type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL,
        diffuse=[0.5, 0.5, 0.5],
        specular=[0, 0, 0],
    )
    _add_room(spec)
    _add_car(spec)
    for name in CONES:
        _add_cone(spec, name)
    return compile_with_source(spec)


def _add_room(spec: Any) -> None:
    box = mujoco.mjtGeom.mjGEOM_BOX
    world = spec.worldbody
    world.add_geom(name="floor", type=mujoco.mjtGeom.mjGEOM_PLANE, size=[6, 6, 0.1], rgba=[0.55, 0.55, 0.55, 1], friction=[0.8, 0.005, 0.0001],
                   contype=_REST, conaffinity=_CAR | _REST)  # fmt: skip
    seen: dict[str, Any] = {"contype": 0, "conaffinity": 0}
    pattern = world.add_body(name="floor_pattern", pos=[1.2, 0, 0])
    for x, y, half_x, half_y in _PATCHES:
        pattern.add_geom(
            type=box, size=[half_x, half_y, 0.0005], pos=[x - 1.2, y, 0.0005], rgba=[0.5, 0.5, 0.5, 1], **seen
        )
    (x0, x1), (y0, y1) = FLOOR_X, FLOOR_Y
    margin, half_height = 0.9, 1.6
    length, width = (x1 - x0) / 2 + margin, (y1 - y0) / 2 + margin
    for name, place, size in (
        ("wall_ahead", (x1 + margin, 0.0), (0.02, width)),
        ("wall_behind", (x0 - margin, 0.0), (0.02, width)),
        ("wall_left", ((x0 + x1) / 2, y1 + margin), (length, 0.02)),
        ("wall_right", ((x0 + x1) / 2, y0 - margin), (length, 0.02)),
    ):
        world.add_geom(
            name=name,
            type=box,
            size=[*size, half_height],
            pos=[*place, half_height],
            rgba=[0.75, 0.75, 0.75, 1],
            **seen,
        )


def _add_car(spec: Any) -> None:
    box, cylinder = mujoco.mjtGeom.mjGEOM_BOX, mujoco.mjtGeom.mjGEOM_CYLINDER
    car = spec.worldbody.add_body(name="car")
    car.add_freejoint(name="car")
    solid: dict[str, Any] = {"contype": _CAR, "conaffinity": _REST, "friction": [0.4, 0.005, 0.0001]}
    length = (g.BUMPER_M - g.TAIL_M) / 2
    mass = g.CAR_MASS_KG - CORNERS_MASS_KG
    car.add_geom(
        name="chassis",
        type=box,
        size=[length, 0.055, 0.02],
        pos=[g.BUMPER_M - length, 0, 0.045],
        mass=mass,
        rgba=[0.12, 0.13, 0.16, 1],
        **solid,
    )
    car.add_geom(
        name="bumper",
        type=box,
        size=[0.012, 0.08, 0.015],
        pos=[g.BUMPER_M - 0.012, 0, 0.045],
        mass=0.0,
        rgba=[0.75, 0.70, 0.12, 1],
        **solid,
    )
    pitch = math.radians(g.CAMERA_PITCH_DEG)
    # A camera looks along its -z with x to the right: this turn looks along the car's +x, then down.
    car.add_camera(
        name="onboard",
        pos=[g.CAMERA_X_M, 0, g.CAMERA_Z_M],
        xyaxes=[0, -1, 0, -math.sin(pitch), 0, math.cos(pitch)],
        fovy=g.CAMERA_FOVY_DEG,
    )
    for side, y in (("left", g.TRACK_M / 2), ("right", -g.TRACK_M / 2)):
        rear = car.add_body(name=f"rear_{side}", pos=[0, y, g.WHEEL_RADIUS_M])
        _add_wheel(rear, f"rear_{side}", ROTOR_INERTIA)
        motor = spec.add_actuator(
            name=f"rear_{side}", target=f"rear_{side}", trntype=mujoco.mjtTrn.mjTRN_JOINT
        )
        motor.set_to_velocity(kv=1.0)
    for side, y in (("left", g.TRACK_M / 2), ("right", -g.TRACK_M / 2)):
        knuckle = car.add_body(name=f"knuckle_{side}", pos=[g.WHEELBASE_M, y, g.WHEEL_RADIUS_M])
        knuckle.add_joint(
            name=f"steer_{side}",
            type=mujoco.mjtJoint.mjJNT_HINGE,
            axis=[0, 0, 1],
            armature=1e-4,
            damping=SERVO_DAMPING,
            range=[-55, 55],
            limited=True,
        )
        knuckle.add_geom(
            type=cylinder,
            size=[0.004, 0.012, 0],
            mass=KNUCKLE_MASS_KG,
            contype=0,
            conaffinity=0,
            rgba=[0.3, 0.3, 0.3, 1],
        )
        _add_wheel(knuckle.add_body(name=f"front_{side}"), f"front_{side}", 1e-5)
        servo = spec.add_actuator(
            name=f"steer_{side}",
            target=f"steer_{side}",
            trntype=mujoco.mjtTrn.mjTRN_JOINT,
            forcelimited=True,
            forcerange=[-1, 1],
        )
        servo.set_to_position(kp=1.0)


def _add_wheel(body: Any, name: str, armature: float) -> None:
    radius = g.WHEEL_RADIUS_M
    body.add_joint(name=name, type=mujoco.mjtJoint.mjJNT_HINGE, axis=[0, 1, 0], armature=armature)
    tyre: dict[str, Any] = {
        "contype": _CAR,
        "conaffinity": _REST,
        "friction": [0.8, 0.005, 0.0001],
        "group": 3,
    }
    body.add_geom(
        name=name, type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[radius, 0, 0], mass=WHEEL_MASS_KG, **tyre
    )
    quarter = math.sqrt(0.5)
    body.add_geom(
        type=mujoco.mjtGeom.mjGEOM_CYLINDER,
        size=[radius, 0.013, 0],
        quat=[quarter, quarter, 0, 0],
        mass=0.0,
        contype=0,
        conaffinity=0,
        rgba=[0.06, 0.06, 0.06, 1],
    )


def _add_cone(spec: Any, name: str) -> None:
    cylinder = mujoco.mjtGeom.mjGEOM_CYLINDER
    body = spec.worldbody.add_body(name=name, pos=[1.5, 0, 0])
    body.add_freejoint(name=name)
    # One invisible cylinder is what is touched; sizes of all parts are set with the factors.
    body.add_geom(name=name, type=cylinder, size=[CONE_CONTACT_RADIUS_M, 0.09, 0], pos=[0, 0, 0.09], mass=0.15, friction=[0.8, 0.005, 0.0001], group=3,
                  contype=_REST, conaffinity=_CAR | _REST)  # fmt: skip
    seen: dict[str, Any] = {"type": cylinder, "mass": 0.0, "contype": 0, "conaffinity": 0}
    body.add_geom(
        name=f"{name}_foot", size=[FOOT_RADIUS_M, 0.004, 0], pos=[0, 0, 0.004], rgba=[*ORANGE, 1], **seen
    )
    for tier in range(TIERS):
        body.add_geom(
            name=f"{name}_tier{tier}", size=[0.03, 0.01, 0], pos=[0, 0, 0.1], rgba=[*ORANGE, 1], **seen
        )
    for band, rgb in zip(("upper", "lower"), BANDS[name], strict=True):
        body.add_geom(
            name=f"{name}_{band}_band", size=[0.03, 0.02, 0], pos=[0, 0, 0.1], rgba=[*rgb, 1], **seen
        )
