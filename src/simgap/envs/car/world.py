"""Puts factor values into the car's MuJoCo model: poses, looks, camera and plant; reads poses and distances back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simgap.envs._mujoco import mujoco
from simgap.envs.car import geometry as g
from simgap.envs.car.factors import CONES
from simgap.envs.car.layout import Spot, layout
from simgap.envs.car.model import (
    BANDS,
    BODY_RADII_M,
    CONE_CONTACT_RADIUS_M,
    CORNERS_MASS_KG,
    FOOT_RADIUS_M,
    ORANGE,
    SERVO_DAMPING,
    TIERS,
)
from simgap.envs.contacts import ContactTable
from simgap.envs.engines import Engine
from simgap.envs.engines.base import EngineMaker
from simgap.envs.factors import FactorValues
from simgap.envs.landmarks import Landmark, cone_corners
from simgap.envs.looks import CameraMount, Lamps, hue_rgb

FOOT_HALF_M = 0.004
BANDS_MEET_AT = 0.5
"""Where the upper band ends and the lower one begins, share of the cone's height."""


class CarPose(NamedTuple):
    """Where the car is: rear axle on the floor, m, and heading, rad."""

    x: float
    y: float
    yaw: float

    def local(self, spot: Spot) -> Spot:
        """Return a point of the floor in the car's frame, m: x ahead, y left."""
        dx, dy = spot.x - self.x, spot.y - self.y
        return Spot(
            dx * math.cos(self.yaw) + dy * math.sin(self.yaw),
            -dx * math.sin(self.yaw) + dy * math.cos(self.yaw),
        )


class CarWorld:
    """One model and its data, with what tasks and teachers read."""

    def __init__(self, model: Any, engine: EngineMaker, *, wheel_speed: bool = False) -> None:
        """Wrap a model of :func:`~simgap.envs.car.model.build_model`.

        Args:
            model: the compiled model.
            engine: what moves it.
            wheel_speed: whether the car measures its rear wheels' speed.
        """
        self.model, self._wheel_speed = model, wheel_speed
        self.data = mujoco.MjData(model)
        self.engine: Engine = engine(self.model, self.data)
        self.cone_geom = [int(model.geom(name).id) for name in CONES]
        self._cone_body = [int(model.body(name).id) for name in CONES]
        self._cone_qpos = [int(model.joint(name).qposadr[0]) for name in CONES]
        self._foot = [int(model.geom(f"{name}_foot").id) for name in CONES]
        self._tiers = [[int(model.geom(f"{name}_tier{tier}").id) for tier in range(TIERS)] for name in CONES]
        self._bands = [
            [int(model.geom(f"{name}_{band}_band").id) for band in ("upper", "lower")] for name in CONES
        ]
        rest = [
            [foot, *tiers, lower]
            for foot, tiers, (_, lower) in zip(self._foot, self._tiers, self._bands, strict=True)
        ]
        self.landmark_geoms: Sequence[Sequence[int]] = [*([upper] for upper, _ in self._bands), *rest]
        self._cone_height = 0.18
        self._car_body = int(model.body("car").id)
        self._car_qpos = int(model.joint("car").qposadr[0])
        self._car_dof = int(model.joint("car").dofadr[0])
        wheels = [f"{end}_{side}" for end in ("rear", "front") for side in ("left", "right")]
        self._wheel_geom = [int(model.geom(name).id) for name in wheels]
        self._wheel_dof = [int(model.joint(name).dofadr[0]) for name in wheels]
        self._steer_qpos = [int(model.joint(f"steer_{side}").qposadr[0]) for side in ("left", "right")]
        self._motors = [int(model.actuator(f"rear_{side}").id) for side in ("left", "right")]
        self._servos = [int(model.actuator(f"steer_{side}").id) for side in ("left", "right")]
        parts = {
            self._car_body,
            *(int(b) for b in range(model.nbody) if int(model.body_rootid[b]) == self._car_body),
        }
        self.car_geoms = frozenset(
            geom for geom in range(model.ngeom) if int(model.geom_bodyid[geom]) in parts
        )
        self._floor = int(model.geom("floor").id)
        self._pattern_body = int(model.body("floor_pattern").id)
        self._pattern = [
            geom for geom in range(model.ngeom) if int(model.geom_bodyid[geom]) == self._pattern_body
        ]
        self._walls = [int(model.geom(f"wall_{side}").id) for side in ("ahead", "behind", "left", "right")]
        self.contact_table = ContactTable(
            {"car": self.car_geoms}, {name: [geom] for name, geom in zip(CONES, self.cone_geom, strict=True)}
        )
        self._lamps, self._camera = Lamps(model), CameraMount(model, "onboard")
        self.camera_id: Mapping[str, int] = {"onboard": self._camera.id}
        self._nominal_mass = (
            float(model.body_mass[self._car_body]),
            model.body_inertia[self._car_body].copy(),
        )
        self._gain = self._steering_gain = 1.0
        self._offset = self._dead_zone = 0.0

    def apply(self, values: FactorValues) -> None:
        """Set every factor, then put car and cones at their start, at rest."""
        self._apply_looks(values)
        self._apply_cones(values)
        self._apply_plant(values)
        mujoco.mj_resetData(self.model, self.data)
        yaw, start = math.radians(values["car_yaw_deg"]), self._car_qpos
        self.data.qpos[start : start + 3] = values["car_x_m"], values["car_y_m"], 0.0
        self.data.qpos[start + 3 : start + 7] = math.cos(yaw / 2), 0, 0, math.sin(yaw / 2)
        for at, spot in zip(self._cone_qpos, layout(values), strict=True):
            self.data.qpos[at : at + 7] = spot.x, spot.y, 0, 1, 0, 0, 0
        self.set_encoders(np.zeros(len(self.encoders())))
        self.engine.reset()

    def encoders(self) -> NDArray[np.float64]:
        """Return the last command sent, and the rear wheels' speed in m/s on a car that measures it."""
        sent = self.data.userdata[:2]
        if not self._wheel_speed:
            return np.array(sent)
        return np.array([*sent, g.WHEEL_RADIUS_M * float(self.data.qvel[self._wheel_dof[:2]].mean())])

    def set_encoders(self, state: NDArray[np.float64]) -> None:
        """Make ``state`` the last command sent, with the front wheels where it turns them and the car at rest."""
        self.note_sent(state[:2])
        self.command(state[:2])
        self.data.ctrl[self._motors] = 0.0
        self.data.qpos[self._steer_qpos] = self.data.ctrl[self._servos]

    def note_sent(self, action: NDArray[np.float64]) -> None:
        """Remember a command that the driver sent; under latency the car gets it later."""
        self.data.userdata[:2] = action

    def command(self, action: NDArray[np.float64]) -> None:
        """Turn a command into wheel angles for the servos and a no-load speed for the motors.

        Motors: ``u = gain |throttle| - dead zone`` of full voltage is left to turn the wheels; a wheel that
        turns faster than ``u`` asks for is braked by its own motor, as with a bridge that shorts it.
        """
        angle = -float(action[0]) * math.radians(g.STEERING_LIMIT_DEG) * self._steering_gain - self._offset
        self.data.ctrl[self._servos] = g.ackermann(angle)
        pull = max(self._gain * abs(float(action[1])) - self._dead_zone, 0.0) / (1.0 - self._dead_zone)
        self.data.ctrl[self._motors] = (
            math.copysign(pull, float(action[1])) * g.TOP_SPEED_MPS / g.WHEEL_RADIUS_M
        )

    def rest_command(self) -> NDArray[np.float64]:
        """Return straight wheels and no throttle, ``(2,)``."""
        return np.zeros(2)

    def car_pose(self) -> CarPose:
        """Return where the car is."""
        x, y, _ = self.data.xpos[self._car_body]
        ahead = self.data.xmat[self._car_body].reshape(3, 3)[:, 0]
        return CarPose(float(x), float(y), math.atan2(ahead[1], ahead[0]))

    def speed(self) -> float:
        """Return the rear axle's speed along the car's heading, m/s."""
        pose, velocity = self.car_pose(), self.data.qvel[self._car_dof : self._car_dof + 2]
        return float(velocity[0] * math.cos(pose.yaw) + velocity[1] * math.sin(pose.yaw))

    def cone_spot(self, cone: int) -> Spot:
        """Return where a cone's foot is, m."""
        x, y, _ = self.data.xpos[self._cone_body[cone]]
        return Spot(float(x), float(y))

    def cone_tilt(self, cone: int) -> float:
        """Return the angle between a cone's axis and the vertical, rad."""
        return math.acos(min(1.0, max(-1.0, float(self.data.xmat[self._cone_body[cone]][8]))))

    def gap(self, cone: int) -> float:
        """Return the distance from the middle of the bumper to a cone's axis, m."""
        pose = self.car_pose()
        bumper = Spot(pose.x + g.BUMPER_M * math.cos(pose.yaw), pose.y + g.BUMPER_M * math.sin(pose.yaw))
        return math.dist(bumper, self.cone_spot(cone))

    def touched(self, cone: int) -> bool:
        """Return whether the car touches a cone now."""
        return not self.car_geoms.isdisjoint(int(geom) for geom in self.engine.touching(self.cone_geom[cone]))

    def landmarks(self) -> tuple[Landmark, ...]:
        """Return the upper bands, which tell the cones apart, the target's first, then the rest of each cone."""
        found = []
        for index, name in enumerate(CONES):
            upper = self._bands[index][0]
            radius, half = self.model.geom_size[upper, :2]
            corners = cone_corners(radius, 2 * half, top_radius_m=radius)
            corners[:, 2] += self.model.geom_pos[upper, 2] - half
            found.append(
                self._landmark(index, f"{name}_band", "target" if index == 0 else "distractor", corners)
            )
        for index, name in enumerate(CONES):
            found.append(
                self._landmark(
                    index,
                    name,
                    "obstacle",
                    cone_corners(FOOT_RADIUS_M, self._cone_height, top_radius_m=BODY_RADII_M[1]),
                )
            )
        return tuple(found)

    def _landmark(self, cone: int, name: str, role: str, corners_m: NDArray[np.float64]) -> Landmark:
        body = self._cone_body[cone]
        return Landmark(
            name=name,
            role=role,
            position_m=self.data.xpos[body].copy(),
            rotation=self.data.xmat[body].reshape(3, 3).copy(),
            corners_m=corners_m,
        )

    def _apply_looks(self, values: FactorValues) -> None:
        model, grey = self.model, values["floor_grey"]
        self._lamps.apply(values)
        self._camera.apply(values)
        model.geom_rgba[self._floor, :3] = grey
        for index, geom in enumerate(self._pattern):
            model.geom_rgba[geom, :3] = min(1.0, grey * (1.0 + values["floor_contrast"] * (-1.0) ** index))
        turn = math.radians(values["floor_turn_deg"])
        model.body_quat[self._pattern_body] = math.cos(turn / 2), 0, 0, math.sin(turn / 2)
        model.geom_rgba[self._walls, :3] = values["wall_grey"]
        for index, name in enumerate(CONES):
            model.geom_rgba[[self._foot[index], *self._tiers[index]], :3] = hue_rgb(
                ORANGE, values["cone_hue_deg"]
            )
            shift = values["target_hue_deg"] if name == "target" else values["distractor_hue_deg"]
            for geom, rgb in zip(self._bands[index], BANDS[name], strict=True):
                model.geom_rgba[geom, :3] = hue_rgb(rgb, shift)

    def _apply_cones(self, values: FactorValues) -> None:
        height, band = values["cone_height_m"], values["band_height_m"]
        self._cone_height = height
        bottom, top = BODY_RADII_M
        tier_half = (height - 2 * FOOT_HALF_M) / TIERS / 2
        for index in range(len(CONES)):
            for tier, geom in enumerate(self._tiers[index]):
                self._resize(
                    geom,
                    bottom + (top - bottom) * (tier + 0.5) / TIERS,
                    tier_half,
                    2 * FOOT_HALF_M + (2 * tier + 1) * tier_half,
                )
            for geom, foot in zip(
                self._bands[index], (BANDS_MEET_AT * height, BANDS_MEET_AT * height - band), strict=True
            ):
                self._resize(geom, bottom + (top - bottom) * foot / height + 0.004, band / 2, foot + band / 2)
            self._resize(self.cone_geom[index], CONE_CONTACT_RADIUS_M, height / 2, height / 2)
            body, mass = self._cone_body[index], values["cone_mass_kg"]
            self.model.body_mass[body] = mass
            self.model.body_ipos[body] = 0.0, 0.0, height / 3
            side = mass * (CONE_CONTACT_RADIUS_M**2 / 4 + height**2 / 18)
            self.model.body_inertia[body] = side, side, mass * CONE_CONTACT_RADIUS_M**2 / 2
            self.model.geom_friction[self.cone_geom[index], 0] = values["friction"]

    def _resize(self, geom: int, radius: float, half: float, z: float) -> None:
        model = self.model
        model.geom_size[geom, :2] = radius, half
        model.geom_pos[geom] = 0.0, 0.0, z
        model.geom_rbound[geom] = math.hypot(radius, half)
        model.geom_aabb[geom, 3:] = radius, radius, half

    def _apply_plant(self, values: FactorValues) -> None:
        model, radius = self.model, g.WHEEL_RADIUS_M
        model.geom_friction[[self._floor, *self._wheel_geom], 0] = values["friction"]
        mass, inertia = self._nominal_mass
        chassis = values["car_mass_kg"] - CORNERS_MASS_KG
        model.body_mass[self._car_body] = chassis
        model.body_inertia[self._car_body] = inertia * chassis / mass
        model.dof_damping[self._wheel_dof] = values["drag"] * radius**2 / 4
        # A motor's back EMF brakes its wheel; this much makes a car of nominal mass reach 63 % of its speed
        # in one lag.
        stiffness = g.CAR_MASS_KG * radius**2 / values["motor_lag_s"] / len(self._motors)
        model.actuator_gainprm[self._motors, 0] = stiffness
        model.actuator_biasprm[self._motors, 2] = -stiffness
        kp = SERVO_DAMPING / values["steering_lag_s"]
        torque = SERVO_DAMPING * math.radians(values["steering_rate_deg_s"])
        model.actuator_gainprm[self._servos, 0] = kp
        model.actuator_biasprm[self._servos, 1] = -kp
        model.actuator_forcerange[self._servos] = -torque, torque
        self._gain, self._dead_zone = values["motor_gain"], values["throttle_dead_zone"]
        self._steering_gain, self._offset = (
            values["steering_gain"],
            math.radians(values["steering_offset_deg"]),
        )
