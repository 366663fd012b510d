"""What the car's test files share: worlds without pictures, conditions, and a way to drive."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.envs.car.factors import CAR_FACTORS, CAR_PRESETS
from simgap.envs.car.goal import CarGoalEnv
from simgap.envs.factors import FactorValues
from simgap.provenance import child_rng
from simgap.teachers import Abstain
from simgap.teachers.car_goal import CarGoalTeacher
from simgap.types import Outcome

SIZE = 48


def blind(**kwargs: Any) -> CarGoalEnv:
    """Return an env that draws no pictures."""
    return CarGoalEnv(image_size=SIZE, render=False, **kwargs)


def condition(seed: int, preset: str = "nominal", **values: float) -> FactorValues:
    return CAR_FACTORS.sample(CAR_PRESETS[preset], child_rng(seed, "factors")) | values


def straight(**values: float) -> FactorValues:
    """Return a world with the target 1.6 m straight ahead."""
    return CAR_FACTORS.nominal() | values


def commands(steering: float, throttle: float, steps: int) -> NDArray[np.float32]:
    return np.tile(np.array([steering, throttle], dtype=np.float32), (steps, 1))


def play(env: CarGoalEnv, actions: NDArray[np.float32]) -> tuple[NDArray[np.float64], Outcome | None]:
    """Send commands from the present state; return pose and speed after each, ``(T, 4)``, and the outcome if the episode ended."""
    rows = []
    for action in actions:
        info = env.step(action)[4]
        rows.append([*env.world.car_pose(), env.world.speed()])
        if "outcome" in info:
            return np.array(rows), info["outcome"]
    return np.array(rows), None


def drive(actions: NDArray[np.float32], **values: float) -> NDArray[np.float64]:
    """Return poses and speeds of a car that is sent commands in a straight world, ``(T, 4)``: x, y, yaw, speed."""
    env = blind()
    env.reset(seed=0, options={"factors": straight(**values)})
    return play(env, actions)[0]


def solve(
    env: CarGoalEnv,
    values: FactorValues,
    *,
    seed: int = 0,
    noise: float = 0.0,
    teacher: CarGoalTeacher | None = None,
) -> tuple[Outcome | None, NDArray[np.float32]]:
    """Run a teacher; return the outcome (None when it abstained) and the commands it sent.

    Args:
        env: the world.
        values: its factors.
        seed: of the reset and the noise.
        noise: share of the env's own DART noise on what is executed.
        teacher: another one than the env's own.
    """
    teacher = teacher or CarGoalTeacher(env)
    env.reset(seed=seed, options={"factors": values})
    rng, disturbance, actions = child_rng(seed, "dart"), np.zeros(2), []
    while True:
        label = teacher.label()
        if isinstance(label, Abstain):
            return None, np.array(actions, dtype=np.float32).reshape(-1, 2)
        disturbance = 0.7 * disturbance + noise * env.dart_noise * rng.normal(size=2) * np.sqrt(1 - 0.7**2)
        actions.append(np.clip(label + disturbance, -1.0, 1.0).astype(np.float32))
        info = env.step(actions[-1])[4]
        if "outcome" in info:
            return info["outcome"], np.stack(actions)
