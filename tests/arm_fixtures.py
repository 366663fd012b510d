"""What several test files share: worlds without pictures, a recorded teacher, and a policy that is trained for a moment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.envs.arm.env import ArmEnv
from simgap.envs.arm.factors import ARM_FACTORS, ARM_PRESETS
from simgap.envs.arm.pick import ArmPickEnv
from simgap.envs.base import TaskEnv
from simgap.envs.factors import FactorValues
from simgap.episodes.table import FrameTable
from simgap.provenance import child_rng
from simgap.teachers import Abstain, Teacher, make_teacher
from simgap.teachers.arm_pick import ArmPickTeacher
from simgap.teachers.generation import roll_teacher
from simgap.types import Outcome

SIZE = 48
HOME = np.array([0.0, -45.0, 45.0, 75.0, 0.0, 60.0], dtype=np.float32)


def blind(**kwargs: Any) -> ArmPickEnv:
    """Return an env that draws no pictures: twenty times faster."""
    return ArmPickEnv(image_size=SIZE, render=False, **kwargs)


def condition(seed: int, preset: str = "nominal", **values: float) -> FactorValues:
    return ARM_FACTORS.sample(ARM_PRESETS[preset], child_rng(seed, "factors")) | values


def solve(
    env: ArmPickEnv, values: FactorValues, *, seed: int = 0
) -> tuple[Outcome | None, NDArray[np.float32]]:
    """Run the teacher; return the outcome (None when it abstained) and the actions it sent."""
    teacher = ArmPickTeacher(env)
    env.reset(seed=seed, options={"factors": values})
    actions = []
    while True:
        label = teacher.label()
        if isinstance(label, Abstain):
            return None, np.array(actions, dtype=np.float32).reshape(-1, 6)
        actions.append(label)
        info = env.step(label)[4]
        if "outcome" in info:
            return info["outcome"], np.stack(actions)


def act(
    env: ArmEnv,
    teacher: Teacher,
    values: FactorValues,
    *,
    seed: int = 0,
    until: Callable[[], bool] = lambda: False,
) -> tuple[list[NDArray[np.float32]], dict[str, Any]]:
    """Run any arm teacher until the episode ends or something holds; return what was sent and the last step's info."""
    env.reset(seed=seed, options={"factors": values})
    actions: list[NDArray[np.float32]] = []
    info: dict[str, Any] = {}
    while "outcome" not in info and not until():
        label = teacher.label()
        assert not isinstance(label, Abstain), label
        actions.append(label)
        info = env.step(label)[4]
    return actions, info


def drawn(env: TaskEnv, seed: int, preset: str = "nominal", **values: float) -> FactorValues:
    """Return a condition of any env."""
    return env.factor_space.sample(env.presets[preset], child_rng(seed, "factors")) | values


def play(env: ArmEnv, actions: NDArray[np.float32]) -> tuple[NDArray[np.float32], Outcome | None]:
    """Send actions from the present state; return the readings after each and the outcome if the episode ended."""
    states = []
    for action in actions:
        obs, _, _, _, info = env.step(action)
        states.append(obs["state"])
        if "outcome" in info:
            return np.stack(states), info["outcome"]
    return np.stack(states), None


def wave(steps: int, *, seed: int = 0, amplitude: float = 12.0) -> NDArray[np.float32]:
    """Return commands that swing every joint round home, high above the cubes."""
    rng = np.random.default_rng(seed)
    time = np.arange(steps)[:, None] / 20.0
    swing = amplitude * np.sin(2 * np.pi * rng.uniform(0.4, 0.9, 6) * time + rng.uniform(0, 6, 6))
    swing[:, 1] = np.minimum(swing[:, 1], 0.0)
    return np.asarray(HOME + swing, dtype=np.float32)


def tiny_checkpoint(folder: Path, *, episodes: int = 3, steps: int = 4) -> Path:
    """Train a policy for a moment on a few teacher episodes; it acts, badly."""
    # torch takes seconds to load, and most files here do without
    from simgap.training import TrainSpec, train

    env = ArmPickEnv(image_size=SIZE)
    teacher = make_teacher(env)
    made = [roll_teacher(env, teacher, condition(seed), seed, 1.5).episode for seed in range(episodes)]
    kept = [e for e in made if e is not None]
    table = FrameTable(
        images={c: np.concatenate([e.images[c] for e in kept]) for c in env.cameras},
        state=np.concatenate([e.state for e in kept]),
        action=np.concatenate([e.action for e in kept]),
        episode_start=np.cumsum([0, *(len(e) for e in kept)]).astype(np.int64),
        action_spec=env.action_spec,
        state_spec=env.state_spec,
        fingerprint="0" * 64,
    )
    env.close()
    return train(
        [table], None, TrainSpec(steps=steps, batch=16, chunk=10, width=8, hidden=32, threads=1), folder
    )
