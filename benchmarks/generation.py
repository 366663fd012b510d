"""Teacher episodes a second on one core, against the least that any generator of these frames must do.

The limit is MuJoCo alone: the same actions from the same conditions, stepped, drawn and read back, nothing recorded. Ours is
the whole of ``generate``: teacher, noise, judge, video encoding, parquet, fsync, statistics. The two alternate in one run on
one core, so that a busy machine slows both; the CPU times are steadier where others use the core too.

    python benchmarks/generation.py
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from simgap.machine import apply_environment, worker_environment

apply_environment(worker_environment(threads=1))  # before numpy or a GL driver is loaded

import numpy as np  # noqa: E402

from simgap.envs._mujoco import mujoco  # noqa: E402
from simgap.envs.arm.factors import ARM_PRESETS  # noqa: E402
from simgap.envs.arm.model import TIMESTEP_S  # noqa: E402
from simgap.envs.arm.pick import RATE_HZ, SETTLE_STEPS, ArmPickEnv  # noqa: E402
from simgap.episodes.reader import open_dataset  # noqa: E402
from simgap.generation import GenerateSpec, generate  # noqa: E402
from simgap.types import Episode  # noqa: E402

SUBSTEPS = round(1.0 / RATE_HZ / TIMESTEP_S)


def main() -> None:
    """Print the limit, our rate and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=24, help="episodes a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--image-size", type=int, default=96)
    parser.add_argument("--codec", choices=["h264", "png"], default="h264")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    raw = _Raw(options.image_size)
    _round(raw, options, episodes=1, seed=-1)  # warm-up: lazy imports, drivers, codecs
    rounds = [_round(raw, options, episodes=options.episodes, seed=seed) for seed in range(options.rounds)]
    print(f"one core, {options.image_size} px, 2 cameras, {options.codec}, {options.rounds} rounds of {options.episodes} episodes; medians")
    for clock, name in enumerate(("wall", "CPU")):
        limit, ours = (np.array([r[clock][side] for r in rounds]) for side in (0, 1))
        alone, whole = (options.episodes / float(np.median(seconds)) for seconds in (limit, ours))
        print(f"{name:4s} time: MuJoCo alone {alone:6.1f} episodes/s   generate {whole:6.1f} episodes/s   ratio {np.median(limit / ours):.2f}")


def _round(raw: _Raw, options: argparse.Namespace, *, episodes: int, seed: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return (limit, ours) in wall seconds and in CPU seconds."""
    spec = GenerateSpec(env="arm-pick", episodes=episodes, ranges=ARM_PRESETS["nominal"], image_size=options.image_size, seed=seed, codec=options.codec)
    with tempfile.TemporaryDirectory() as folder:
        wall, cpu = time.monotonic(), time.process_time()
        report = generate(spec, Path(folder) / "data", workers=0)
        ours = time.monotonic() - wall, time.process_time() - cpu
        data = open_dataset(report.root)
        made = [data.episode(i, images=False) for i in range(episodes)]
    wall, cpu = time.monotonic(), time.process_time()
    for episode in made:
        raw.play(episode)
    limit = time.monotonic() - wall, time.process_time() - cpu
    return (limit[0], ours[0]), (limit[1], ours[1])


class _Raw:
    """MuJoCo's own calls, nothing else."""

    def __init__(self, size: int) -> None:
        self._world = ArmPickEnv(image_size=size, render=False).world
        model = self._world.model
        self._gl = mujoco.GLContext(size, size)
        self._gl.make_current()
        self._context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_50)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._context)
        self._scene = mujoco.MjvScene(model, maxgeom=200)
        self._scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = 0
        self._scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = 0
        self._option, self._camera, self._rect = mujoco.MjvOption(), mujoco.MjvCamera(), mujoco.MjrRect(0, 0, size, size)
        self._camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
        self._frame = np.empty((size, size, 3), np.uint8)

    def play(self, episode: Episode) -> None:
        """Step and draw one episode."""
        self._gl.make_current()
        world = self._world
        model, data = world.model, world.data
        world.apply(dict(episode.factors))
        for _ in range(SETTLE_STEPS * SUBSTEPS):
            mujoco.mj_step(model, data)
        actions: Any = episode.extras["executed_action"]
        for action in actions:
            for camera in world.camera_id.values():
                self._camera.fixedcamid = camera
                mujoco.mjv_updateScene(model, data, self._option, None, self._camera, mujoco.mjtCatBit.mjCAT_ALL, self._scene)
                mujoco.mjr_render(self._rect, self._scene, self._context)
                mujoco.mjr_readPixels(self._frame, None, self._rect, self._context)
            world.command(action)
            for _ in range(SUBSTEPS):
                mujoco.mj_step(model, data)


if __name__ == "__main__":
    main()
