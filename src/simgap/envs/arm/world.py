"""Puts factor values into the arm's MuJoCo model: poses, looks, cameras and plant."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from simgap.conventions import SO101_JOINTS
from simgap.envs._mujoco import mujoco
from simgap.envs.arm import geometry as g
from simgap.envs.arm.model import KP, KV
from simgap.envs.arm.scene import ArmScene
from simgap.envs.contacts import ContactTable
from simgap.envs.engines import Engine
from simgap.envs.engines.base import EngineMaker
from simgap.envs.factors import FactorValues
from simgap.envs.landmarks import Landmark, box_corners, cone_corners
from simgap.envs.looks import CameraMount, Lamps, hue_rgb


class ArmWorld:
    """One model and its data, with the ids that tasks and teachers read."""

    def __init__(self, model: Any, scene: ArmScene, engine: EngineMaker) -> None:
        """Wrap a model of :func:`~simgap.envs.arm.model.build_model` for the same scene."""
        self.model, self.scene = model, scene
        self.data = mujoco.MjData(model)
        self.engine: Engine = engine(self.model, self.data)
        self.offset_deg = np.zeros(6)
        """Encoder reading minus true joint angle, deg; zero for the gripper."""
        self.cube_body = [model.body(cube.name).id for cube in scene.cubes]
        self.cube_geom = [model.geom(cube.name).id for cube in scene.cubes]
        self.cube_qpos = [int(model.joint(cube.name).qposadr[0]) for cube in scene.cubes]
        self.cube_half = [0.012] * len(scene.cubes)
        self.fixture_body = {name: int(model.body(name).id) for name, _ in scene.fixtures}
        self.fixture_geoms = {name: geoms_of(model, body) for name, body in self.fixture_body.items()}
        self.landmark_geoms: Sequence[Sequence[int]] = [[geom] for geom in self.cube_geom] + [
            self.fixture_geoms[name] for name, _ in scene.fixtures
        ]
        self.fixed_jaw = model.geom("fixed_jaw").id
        self.moving_jaw = model.geom("moving_jaw").id
        self.grasp_site = model.site("grasp").id
        self.table = model.geom("table").id
        jaws = {"fixed_jaw": [self.fixed_jaw], "moving_jaw": [self.moving_jaw]}
        rest = set(geoms_under(model, int(model.body("base").id))) - {self.fixed_jaw, self.moving_jaw}
        cubes = {cube.name: [geom] for cube, geom in zip(scene.cubes, self.cube_geom, strict=True)}
        self.contact_table = ContactTable(
            {**jaws, "arm": rest}, {**cubes, **self.fixture_geoms, "table": [self.table]}
        )
        self._lamps = Lamps(model)
        self._mounts = [CameraMount(model, name) for name in ("front", "wrist")]
        self.camera_id: Mapping[str, int] = {
            name: mount.id for name, mount in zip(("front", "wrist"), self._mounts, strict=True)
        }

    def apply(self, values: FactorValues) -> None:
        """Set every factor, then put arm and cubes at their start."""
        self._apply_looks(values)
        for mount in self._mounts:
            mount.apply(values)
        self._apply_plant(values)
        mujoco.mj_resetData(self.model, self.data)
        self.set_encoders(self.rest_command())
        for start, pose in zip(self.cube_qpos, self.scene.layout(values), strict=True):
            self.data.qpos[start : start + 3] = pose.x, pose.y, pose.half
            self.data.qpos[start + 3 : start + 7] = math.cos(pose.yaw / 2), 0, 0, math.sin(pose.yaw / 2)
        self.scene.apply(self, values)
        self.engine.reset()

    def set_encoders(self, encoder: np.ndarray[Any, Any]) -> None:
        """Put the joints where the encoders would read these values, at rest, and command them to stay."""
        true = np.asarray(encoder, dtype=np.float64) - self.offset_deg
        self.data.qpos[:5] = np.radians(true[:5])
        self.data.qpos[5] = g.jaw_rad(float(true[5]))
        self.data.ctrl[:6] = self.data.qpos[:6]

    def encoders(self) -> np.ndarray[Any, Any]:
        """Return noise-free encoder readings, ``(6,)``: deg, gripper percent."""
        out = np.empty(6)
        out[:5] = np.degrees(self.data.qpos[:5]) + self.offset_deg[:5]
        out[5] = g.gripper_percent(float(self.data.qpos[5]))
        return out

    def command(self, action: np.ndarray[Any, Any]) -> None:
        """Set the servo targets from an action in encoder units."""
        self.data.ctrl[:5] = np.radians(action[:5] - self.offset_deg[:5])
        self.data.ctrl[5] = g.jaw_rad(float(action[5]))

    def rest_command(self) -> np.ndarray[Any, Any]:
        """Return the action that holds the start pose, ``(6,)`` encoder units."""
        return np.array([*g.HOME_DEG, g.HOME_GRIPPER]) + self.offset_deg

    def cube_position(self, cube: int) -> np.ndarray[Any, Any]:
        """Return the centre of a cube, ``(3,)`` m."""
        return np.asarray(self.data.xpos[self.cube_body[cube]])

    def grasp_point(self) -> np.ndarray[Any, Any]:
        """Return the middle between the jaws at the grasp depth, ``(3,)`` m."""
        site = self.grasp_site
        return np.asarray(self.data.site_xpos[site] + self.data.site_xmat[site].reshape(3, 3)[:, 0] * 0.011)

    def fixture_position(self, name: str) -> np.ndarray[Any, Any]:
        """Return where a fixture's frame is, ``(3,)`` m."""
        return np.asarray(self.data.xpos[self.fixture_body[name]])

    def place_fixture(self, name: str, x_m: float, y_m: float) -> None:
        """Move a fixture on the table; to be called while factors are applied."""
        self.model.body_pos[self.fixture_body[name], :2] = x_m, y_m

    def is_touched(self, name: str) -> bool:
        """Return whether anything touches a fixture."""
        return any(self.engine.touching(geom).size for geom in self.fixture_geoms[name])

    def jaw_contacts(self, cube: int) -> tuple[bool, bool]:
        """Return whether the fixed and the moving jaw touch a cube."""
        touching = self.engine.touching(self.cube_geom[cube])
        return bool((touching == self.fixed_jaw).any()), bool((touching == self.moving_jaw).any())

    def gripper_torque(self) -> float:
        """Return the torque of the gripper's servo, N m; below zero it closes."""
        return self.engine.servo_torque(5)

    def gravity_torque(self) -> np.ndarray[Any, Any]:
        """Return what gravity and motion ask of the five arm servos, ``(5,)`` N m."""
        return np.asarray(self.engine.bias_torque()[:5])

    def landmarks(self) -> tuple[Landmark, ...]:
        """Return the cubes, the target first, then the task's fixtures."""
        found = [
            _landmark(self.data, cube.name, cube.role, body, box_corners((half, half, half)))
            for cube, body, half in zip(self.scene.cubes, self.cube_body, self.cube_half, strict=True)
        ]
        for name, role in self.scene.fixtures:
            found.append(
                _landmark(
                    self.data,
                    name,
                    role,
                    self.fixture_body[name],
                    _corners_of(self.model, self.fixture_geoms[name]),
                )
            )
        return tuple(found)

    def _apply_looks(self, values: FactorValues) -> None:
        model = self.model
        for cube, geom in zip(self.scene.cubes, self.cube_geom, strict=True):
            model.geom_rgba[geom, :3] = hue_rgb(cube.rgb, values[cube.hue_factor])
        model.geom_rgba[self.table, :3] = values["table_grey"]
        self._lamps.apply(values)

    def _apply_plant(self, values: FactorValues) -> None:
        model = self.model
        for index, cube in enumerate(self.scene.cubes):
            half = values[f"{cube.name}_size_m"] / 2
            geom, body, mass = self.cube_geom[index], self.cube_body[index], values[cube.mass_factor]
            self.cube_half[index] = half
            model.geom_size[geom] = half
            model.geom_rbound[geom] = half * math.sqrt(3)
            model.geom_aabb[geom, 3:] = half
            model.body_mass[body] = mass
            model.body_inertia[body] = mass * (2 * half) ** 2 / 6
            model.geom_friction[geom, 0] = values["friction"]
        if self.scene.cubes:
            for jaw in (self.fixed_jaw, self.moving_jaw):
                model.geom_friction[jaw, 0] = values["friction"]
        gain = values["actuator_gain"]
        model.actuator_gainprm[:, 0] = KP * gain
        model.actuator_biasprm[:, 1] = -KP * gain
        model.actuator_biasprm[:, 2] = -KV
        self.offset_deg[:5] = [values[f"{joint}_zero_offset_deg"] for joint in SO101_JOINTS[:5]]


def geoms_under(model: Any, root: int) -> list[int]:
    """Return the ids of the geoms of a body and of all that hang on it."""
    bodies = {root}
    for body in range(root + 1, int(model.nbody)):  # parents come before their children
        if int(model.body_parentid[body]) in bodies:
            bodies.add(body)
    return [geom for body in sorted(bodies) for geom in geoms_of(model, body)]


def geoms_of(model: Any, body: int) -> list[int]:
    """Return the ids of a body's geoms."""
    first = int(model.body_geomadr[body])
    return list(range(first, first + int(model.body_geomnum[body])))


def _corners_of(model: Any, geoms: Sequence[int]) -> np.ndarray[Any, Any]:
    """Return points in a body's frame whose convex hull is that of its boxes and cylinders, ``(K, 3)`` m."""
    parts = []
    for geom in geoms:
        size = model.geom_size[geom]
        if model.geom_type[geom] == mujoco.mjtGeom.mjGEOM_CYLINDER:
            points = cone_corners(float(size[0]), 2 * float(size[1]), top_radius_m=float(size[0])) - [
                0.0,
                0.0,
                float(size[1]),
            ]
        else:
            points = box_corners(tuple(size))
        matrix = np.empty(9)
        mujoco.mju_quat2Mat(matrix, model.geom_quat[geom])
        parts.append(model.geom_pos[geom] + points @ matrix.reshape(3, 3).T)
    return np.concatenate(parts)


def _landmark(data: Any, name: str, role: str, body: int, corners_m: np.ndarray[Any, Any]) -> Landmark:
    return Landmark(
        name=name,
        role=role,
        position_m=data.xpos[body].copy(),
        rotation=data.xmat[body].reshape(3, 3).copy(),
        corners_m=corners_m,
    )
