"""Puts factor values into the arm's MuJoCo model: poses, looks, cameras and plant."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from simgap.conventions import SO101_JOINTS
from simgap.envs._mujoco import mujoco
from simgap.envs.arm import geometry as g
from simgap.envs.arm.factors import hue_rgb, layout
from simgap.envs.arm.model import CUBES, KP, KV
from simgap.envs.factors import FactorValues

_CUBE_RGB = {"target": (0.85, 0.12, 0.10), "distractor1": (0.12, 0.30, 0.85), "distractor2": (0.90, 0.75, 0.10)}
_COLD = np.array([0.80, 0.95, 1.20])
_WARM = np.array([1.20, 0.95, 0.70])


class ArmWorld:
    """One model and its data, with the ids that tasks and teachers read."""

    def __init__(self, model: Any) -> None:
        """Wrap a model of :func:`~simgap.envs.arm.model.build_model`."""
        self.model = model
        self.data = mujoco.MjData(model)
        self.offset_deg = np.zeros(6)
        """Encoder reading minus true joint angle, deg; zero for the gripper."""
        self.cube_body = [model.body(name).id for name in CUBES]
        self.cube_geom = [model.geom(name).id for name in CUBES]
        self.cube_qpos = [int(model.joint(name).qposadr[0]) for name in CUBES]
        self.cube_half = [0.012] * len(CUBES)
        self.fixed_jaw = model.geom("fixed_jaw").id
        self.moving_jaw = model.geom("moving_jaw").id
        self.grasp_site = model.site("grasp").id
        self.table = model.geom("table").id
        self.camera_id = {name: model.camera(name).id for name in ("front", "wrist")}
        self._camera_home = {name: (model.cam_pos[i].copy(), model.cam_quat[i].copy(), float(model.cam_fovy[i])) for name, i in self.camera_id.items()}
        self._headlight = (np.array(model.vis.headlight.ambient), np.array(model.vis.headlight.diffuse))
        self._lamp = model.light_diffuse[0].copy()

    def apply(self, values: FactorValues) -> None:
        """Set every factor, then put arm and cubes at their start."""
        self._apply_looks(values)
        for name in self.camera_id:
            self._apply_camera(name, values)
        self._apply_plant(values)
        mujoco.mj_resetData(self.model, self.data)
        self.set_encoders(np.array([*g.HOME_DEG, g.HOME_GRIPPER]) + self.offset_deg)
        for start, pose in zip(self.cube_qpos, layout(values), strict=True):
            self.data.qpos[start : start + 3] = pose.x, pose.y, pose.half
            self.data.qpos[start + 3 : start + 7] = math.cos(pose.yaw / 2), 0, 0, math.sin(pose.yaw / 2)
        mujoco.mj_forward(self.model, self.data)

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

    def cube_position(self, cube: int) -> np.ndarray[Any, Any]:
        """Return the centre of a cube, ``(3,)`` m."""
        return np.asarray(self.data.xpos[self.cube_body[cube]])

    def grasp_point(self) -> np.ndarray[Any, Any]:
        """Return the middle between the jaws at the grasp depth, ``(3,)`` m."""
        site = self.grasp_site
        return np.asarray(self.data.site_xpos[site] + self.data.site_xmat[site].reshape(3, 3)[:, 0] * 0.011)

    def jaw_contacts(self, cube: int) -> tuple[bool, bool]:
        """Return whether the fixed and the moving jaw touch a cube."""
        geom = self.cube_geom[cube]
        pairs = self.data.contact.geom
        touching = pairs[(pairs == geom).any(axis=1)]
        return bool((touching == self.fixed_jaw).any()), bool((touching == self.moving_jaw).any())

    def _apply_looks(self, values: FactorValues) -> None:
        model = self.model
        for index, name in enumerate(CUBES):
            shift = values["target_hue_deg"] if name == "target" else values["distractor_hue_deg"]
            model.geom_rgba[self.cube_geom[index], :3] = hue_rgb(_CUBE_RGB[name], shift)
        model.geom_rgba[self.table, :3] = values["table_grey"]
        warmth = values["light_warmth"]
        tint = 1.0 + (_WARM - 1.0) * max(warmth, 0.0) + (_COLD - 1.0) * max(-warmth, 0.0)
        gain = values["light_intensity"] * tint
        model.vis.headlight.ambient[:] = self._headlight[0] * gain
        model.vis.headlight.diffuse[:] = self._headlight[1] * gain
        model.light_diffuse[0] = self._lamp * gain
        azimuth = math.radians(values["light_azimuth_deg"])
        direction = np.array([-0.36 * math.cos(azimuth), -0.36 * math.sin(azimuth), -1.0])
        model.light_dir[0] = direction / np.linalg.norm(direction)

    def _apply_camera(self, name: str, values: FactorValues) -> None:
        index = self.camera_id[name]
        position, quat, fovy = self._camera_home[name]
        self.model.cam_pos[index] = position + [values[f"{name}_camera_d{axis}_m"] for axis in "xyz"]
        turned = quat.copy()
        for axis, part in (((1, 0, 0), "pitch"), ((0, 1, 0), "yaw"), ((0, 0, 1), "roll")):
            step = np.empty(4)
            mujoco.mju_axisAngle2Quat(step, np.array(axis, dtype=float), math.radians(values[f"{name}_camera_{part}_deg"]))
            product = np.empty(4)
            mujoco.mju_mulQuat(product, turned, step)
            turned = product
        self.model.cam_quat[index] = turned
        self.model.cam_fovy[index] = fovy + values[f"{name}_camera_fovy_deg"]

    def _apply_plant(self, values: FactorValues) -> None:
        model = self.model
        for index, name in enumerate(CUBES):
            half = values[f"{name}_size_m"] / 2
            geom, body, mass = self.cube_geom[index], self.cube_body[index], values["cube_mass_kg"]
            self.cube_half[index] = half
            model.geom_size[geom] = half
            model.geom_rbound[geom] = half * math.sqrt(3)
            model.geom_aabb[geom, 3:] = half
            model.body_mass[body] = mass
            model.body_inertia[body] = mass * (2 * half) ** 2 / 6
            model.geom_friction[geom, 0] = values["friction"]
        for jaw in (self.fixed_jaw, self.moving_jaw):
            model.geom_friction[jaw, 0] = values["friction"]
        gain = values["actuator_gain"]
        model.actuator_gainprm[:, 0] = KP * gain
        model.actuator_biasprm[:, 1] = -KP * gain
        model.actuator_biasprm[:, 2] = -KV
        self.offset_deg[:5] = [values[f"{joint}_zero_offset_deg"] for joint in SO101_JOINTS[:5]]
