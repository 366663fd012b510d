"""Lamps, colours and camera mounts: the factors of looks that every world has."""

from __future__ import annotations

import colorsys
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.envs._mujoco import mujoco
from simgap.envs.factors import FactorValues

_COLD = np.array([0.80, 0.95, 1.20])
_WARM = np.array([1.20, 0.95, 0.70])


def hue_rgb(rgb: tuple[float, float, float], shift_deg: float) -> NDArray[np.float64]:
    """Return a colour with its hue turned by ``shift_deg``."""
    hue, saturation, value = colorsys.rgb_to_hsv(*rgb)
    return np.array(colorsys.hsv_to_rgb((hue + shift_deg / 360.0) % 1.0, saturation, value))


class Lamps:
    """The headlight and one directional lamp of a model, moved by ``light_intensity``, ``light_warmth`` and ``light_azimuth_deg``."""

    def __init__(self, model: Any) -> None:
        """Remember the nominal light of a model whose light 0 is the lamp."""
        self._model = model
        self._headlight = (np.array(model.vis.headlight.ambient), np.array(model.vis.headlight.diffuse))
        self._lamp = model.light_diffuse[0].copy()

    def apply(self, values: FactorValues) -> None:
        """Set the light."""
        warmth = values["light_warmth"]
        tint = 1.0 + (_WARM - 1.0) * max(warmth, 0.0) + (_COLD - 1.0) * max(-warmth, 0.0)
        gain = values["light_intensity"] * tint
        self._model.vis.headlight.ambient[:] = self._headlight[0] * gain
        self._model.vis.headlight.diffuse[:] = self._headlight[1] * gain
        self._model.light_diffuse[0] = self._lamp * gain
        azimuth = math.radians(values["light_azimuth_deg"])
        direction = np.array([-0.36 * math.cos(azimuth), -0.36 * math.sin(azimuth), -1.0])
        self._model.light_dir[0] = direction / np.linalg.norm(direction)


class CameraMount:
    """One camera of a model, moved by its factors ``<name>_camera_dx_m`` ... ``<name>_camera_fovy_deg``."""

    def __init__(self, model: Any, name: str) -> None:
        """Remember where the camera is mounted."""
        self._model, self._name, self.id = model, name, int(model.camera(name).id)
        self._home = (
            model.cam_pos[self.id].copy(),
            model.cam_quat[self.id].copy(),
            float(model.cam_fovy[self.id]),
        )

    def apply(self, values: FactorValues) -> None:
        """Move and turn the camera, about its own right, up and backward axes in that order."""
        position, quat, fovy = self._home
        self._model.cam_pos[self.id] = position + [values[f"{self._name}_camera_d{axis}_m"] for axis in "xyz"]
        turned = quat.copy()
        for axis, part in (((1, 0, 0), "pitch"), ((0, 1, 0), "yaw"), ((0, 0, 1), "roll")):
            step, product = np.empty(4), np.empty(4)
            mujoco.mju_axisAngle2Quat(
                step, np.array(axis, dtype=float), math.radians(values[f"{self._name}_camera_{part}_deg"])
            )
            mujoco.mju_mulQuat(product, turned, step)
            turned = product
        self._model.cam_quat[self.id] = turned
        self._model.cam_fovy[self.id] = fovy + values[f"{self._name}_camera_fovy_deg"]
