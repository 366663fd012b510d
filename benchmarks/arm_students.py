"""Can a memoryless student learn what the arm's teachers do, and what does averaging cost where there are two ways?

The student is a small network that sees numbers instead of pictures (encoders, where things are), so that
what it cannot learn is the teacher's fault and not the eyes'. It predicts chunks of ten actions and is run by
four executors. A policy of an L1 loss learns the median, one of an L2 loss the mean of the demonstrations.

    python benchmarks/arm_students.py arm-place --seconds 120
    python benchmarks/arm_students.py arm-pass --loss l2 --seconds 60
"""

from __future__ import annotations

import argparse
import math
import time
from collections import Counter
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from simgap.envs import make_env
from simgap.envs.arm.env import ArmEnv
from simgap.provenance import child_rng
from simgap.seeds import Purpose, seed_of
from simgap.teachers import Abstain, Teacher, make_teacher
from simgap.teachers.generation import roll_teacher

CHUNK = 10
WIDTH = 256

Predict = Callable[[NDArray[np.float32]], NDArray[np.float64]]
"""Features -> ``(CHUNK, 6)`` actions."""


def features(env: ArmEnv, state: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return what pictures and encoders would show: joints, and where cube and fixtures are, all of order one."""
    world = env.world
    parts = [state[:5] / 45.0, state[5:] / 50.0 - 1.0]
    if world.cube_body:
        axes = world.data.xmat[world.cube_body[0]].reshape(3, 3)
        flat = int(np.argmin(np.abs(axes[2])))
        yaw = math.atan2(axes[1, flat], axes[0, flat])
        parts += [
            (world.cube_position(0) - [0.18, 0.0, 0.03]) / 0.05,
            np.array([math.sin(4 * yaw), math.cos(4 * yaw)]),
        ]
    parts += [(world.fixture_position(name)[:2] - [0.1, 0.0]) / 0.1 for name in world.fixture_body]
    return np.concatenate(parts).astype(np.float32)


class _Notes:
    """A teacher that writes down the features of every state it labels."""

    def __init__(self, env: ArmEnv) -> None:
        self.name, self._env, self._teacher = "notes", env, make_teacher(env)
        self.rows: list[NDArray[np.float32]] = []

    def label(self) -> NDArray[np.float32] | Abstain:
        self.rows.append(features(self._env, self._env.world.encoders().astype(np.float32)))
        return self._teacher.label()


def demonstrate(env: ArmEnv, episodes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return features ``(N, F)`` and chunks of clean labels ``(N, CHUNK, 6)`` of successful episodes under the usual DART noise."""
    xs, ys = [], []
    for index in range(episodes):
        notes = _Notes(env)
        teacher: Teacher = notes
        seed = seed_of(Purpose.TRAIN, 0, index)
        values = env.factor_space.sample(env.presets["nominal"], child_rng(seed, "factors"))
        episode = roll_teacher(env, teacher, values, seed, 1.5).episode
        if episode is None or not episode.outcome.is_success:
            continue
        last = len(episode) - 1
        xs += notes.rows
        ys += [episode.action[np.minimum(np.arange(k, k + CHUNK), last)] for k in range(len(episode))]
    return torch.from_numpy(np.array(xs)), torch.from_numpy(np.array(ys))


def fit(x: torch.Tensor, y: torch.Tensor, loss: str, seconds: float) -> Predict:
    """Train for a time with a cosine schedule; the exponential average of the weights acts."""
    mean, scale = y[:, 0].mean(0), y[:, 0].std(0) + 1e-3
    target = ((y - mean) / scale).flatten(1)
    layers: list[torch.nn.Module] = [torch.nn.Linear(x.shape[1], WIDTH), torch.nn.GELU()]
    for _ in range(2):
        layers += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU()]
    net = torch.nn.Sequential(*layers, torch.nn.Linear(WIDTH, CHUNK * 6))
    average = torch.optim.swa_utils.AveragedModel(net, avg_fn=lambda old, new, _: old.lerp(new, 0.005))
    optimiser = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=1e-4)
    began = time.monotonic()
    while (share := (time.monotonic() - began) / seconds) < 1.0:
        optimiser.param_groups[0]["lr"] = 1e-3 * (1 + math.cos(math.pi * share))
        rows = torch.randint(0, len(x), (256,))
        error = net(x[rows] + 0.01 * torch.randn(256, x.shape[1])) - target[rows]
        optimiser.zero_grad()
        (error.abs() if loss == "l1" else error.square()).mean().backward()
        optimiser.step()
        average.update_parameters(net)

    def predict(row: NDArray[np.float32]) -> NDArray[np.float64]:
        with torch.no_grad():
            chunk = average(torch.from_numpy(row)[None]).reshape(CHUNK, 6) * scale + mean
        return np.asarray(chunk.double())

    return predict


def run(env: ArmEnv, predict: Predict, executor: str, seed: int) -> str:
    """Return outcome and way of one episode."""
    values = env.factor_space.sample(env.presets["nominal"], child_rng(seed, "factors"))
    obs, _ = env.reset(seed=seed % 2**32, options={"factors": values})
    queue: list[NDArray[np.float64]] = []
    chunks: list[NDArray[np.float64]] = []
    while True:
        if executor == "ensemble":
            chunks = [*chunks, predict(features(env, obs["state"]))][-CHUNK:]
            action = np.mean([chunk[len(chunks) - 1 - k] for k, chunk in enumerate(chunks)], axis=0)
        else:
            if not queue:
                queue = list(
                    predict(features(env, obs["state"]))[
                        : {"latest": 1, "receding": 5, "chunk": CHUNK}[executor]
                    ]
                )
            action = queue.pop(0)
        obs, _, _, _, info = env.step(
            np.clip(action, env.action_spec.low, env.action_spec.high).astype(np.float32)
        )
        if "outcome" in info:
            return " ".join(filter(None, (str(info["outcome"]), info.get("mode", ""))))


def main() -> None:
    """Print what became of the student under each executor."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("env", choices=("arm-pick", "arm-place", "arm-pass"))
    parser.add_argument("--loss", choices=("l1", "l2"), default="l1")
    parser.add_argument("--episodes", type=int, default=400)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("-n", type=int, default=60, help="episodes of each executor")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    env = make_env(args.env, image_size=16, render=False)
    assert isinstance(env, ArmEnv)
    x, y = demonstrate(env, args.episodes)
    predict = fit(x, y, args.loss, args.seconds)
    for executor in ("latest", "receding", "chunk", "ensemble"):
        seen = Counter(
            run(env, predict, executor, seed_of(Purpose.SELECT, 0, index)) for index in range(args.n)
        )
        print(
            f"{args.env} {args.loss} {executor}: "
            + ", ".join(f"{n} {what}" for what, n in seen.most_common())
        )


if __name__ == "__main__":
    main()
