"""Teacher episodes a second on one core, against the least that any generator of these frames must do.

The limit is MuJoCo alone: the same actions from the same conditions, stepped, drawn and read back, nothing
recorded. Ours is the whole of ``generate``: teacher, noise, judge, attempts thrown away, video encoding,
parquet, syncs, statistics, fingerprint. They alternate in one run on one core, so that a busy machine slows
both; CPU times are steadier where others use the core too.

The last lines say what randomising costs: frames a second under a preset against ``nominal``, in short turns.
``wide`` also moves the plant, which makes episodes longer and the teacher fail more often; ``looks`` is
``nominal`` with the lamps, colours, cameras and sensor noise of ``wide`` alone.

    python benchmarks/generation.py
"""

from __future__ import annotations

import argparse
import gc
import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from simgap.compute.machine import apply_environment, worker_environment

apply_environment(worker_environment(threads=1))  # before numpy or a GL driver is loaded

import numpy as np  # noqa: E402

from simgap.envs._mujoco import mujoco  # noqa: E402
from simgap.envs.arm.factors import ARM_PRESETS  # noqa: E402
from simgap.envs.arm.model import TIMESTEP_S  # noqa: E402
from simgap.envs.arm.pick import RATE_HZ, SETTLE_STEPS, ArmPickEnv  # noqa: E402
from simgap.envs.factors import FactorRanges  # noqa: E402
from simgap.episodes.reader import open_dataset  # noqa: E402
from simgap.episodes.write.encoders import CODECS  # noqa: E402
from simgap.teachers import make_teacher  # noqa: E402
from simgap.teachers.generation import (  # noqa: E402
    BATCH,
    GenerateSpec,
    _Maker,
    dataset_spec,
    generate,
    recorded_env,
)
from simgap.types import Episode  # noqa: E402

BATCHES = 12
"""Of each preset, for what it costs."""
SUBSTEPS = round(1.0 / RATE_HZ / TIMESTEP_S)


class Cost(NamedTuple):
    """Seconds of one piece of work."""

    wall: float
    cpu: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    """One preset, generated and played raw."""

    limit: Cost
    ours: Cost
    frames: int
    attempts: int


def main() -> None:
    """Print the limit, our rate, their ratio, and what looks cost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--episodes",
        type=int,
        default=256,
        help="episodes a round; opening env, GL context and folder counts as ours",
    )
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--image-size", type=int, default=128)
    parser.add_argument("--codec", choices=CODECS, default="h264")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    raw = _Raw(options.image_size)
    spec = GenerateSpec(
        env="arm-pick",
        episodes=options.episodes,
        ranges=ARM_PRESETS["nominal"],
        image_size=options.image_size,
        codec=options.codec,
    )
    ranges = {"nominal": ARM_PRESETS["nominal"], "looks": _looks(), "wide": ARM_PRESETS["wide"]}
    _round(raw, replace(spec, episodes=1, seed=-1))  # warm-up: lazy imports, drivers, codecs
    gc.freeze()  # as a worker does
    rounds: dict[str, list[Round]] = {name: [] for name in ranges}
    for seed in range(options.rounds):
        for name, r in ranges.items():
            rounds[name].append(_round(raw, replace(spec, ranges=r, seed=seed)))
    print(
        f"one core, {options.image_size} px, 2 cameras, {options.codec}, {options.rounds} rounds of"
        f" {options.episodes} episodes; medians"
    )
    for clock in ("wall", "cpu"):
        for name, made in rounds.items():
            limit, ours = (
                np.array([getattr(getattr(r, side), clock) for r in made]) for side in ("limit", "ours")
            )
            alone, whole = (options.episodes / float(np.median(seconds)) for seconds in (limit, ours))
            ratio = float(np.median(limit / ours))
            print(
                f"{clock:4s} {name:8s} MuJoCo alone {alone:5.1f} episodes/s   generate {whole:5.1f}"
                f" episodes/s   ratio {ratio:.2f}"
            )
    for name, cost in _costs(spec, {name: ranges[name] for name in ("looks", "wide")}).items():
        print(
            f"cpu  {name:8s} randomising costs {cost:.1%} of nominal's frames/s, {BATCHES} batches of {BATCH}"
            " episodes in turns"
        )
    for name, made in rounds.items():
        episodes, attempts, frames = (
            len(made) * options.episodes,
            sum(r.attempts for r in made),
            sum(r.frames for r in made),
        )
        print(
            f"     {name:8s} {frames / episodes:.1f} frames an episode, {attempts / episodes:.2f} attempts an"
            " episode"
        )


def _costs(spec: GenerateSpec, others: Mapping[str, FactorRanges]) -> dict[str, float]:
    """Return what presets cost of the frames a second of ``nominal``, workers taking turns batch by batch: rounds of minutes drift apart by more."""
    with tempfile.TemporaryDirectory() as folder:
        makers: dict[str, _Maker] = {}
        for name, ranges in {"nominal": spec.ranges, **others}.items():
            own = replace(spec, ranges=ranges, episodes=BATCH * (BATCHES + 1))
            env = recorded_env(own, render=False)
            makers[name] = _Maker(own, Path(folder) / name, dataset_spec(own, env, make_teacher(env)))
        rates: dict[str, list[float]] = {name: [] for name in makers}
        for batch in range(BATCHES + 1):  # the first warms up
            for name, maker in makers.items():
                began = time.process_time()
                made = maker(range(BATCH * batch, BATCH * (batch + 1)))
                rates[name].append(sum(m.frames for m in made) / (time.process_time() - began))
    return {name: 1 - float(np.median(np.divide(rates[name][1:], rates["nominal"][1:]))) for name in others}


def _looks() -> FactorRanges:
    wide, nominal = ARM_PRESETS["wide"].ranges, ARM_PRESETS["nominal"]
    words = ("light", "hue", "grey", "camera", "image_noise")
    return nominal.override(
        {name: span for name, span in wide.items() if any(word in name for word in words)}, "looks"
    )


def _round(raw: _Raw, spec: GenerateSpec) -> Round:
    with tempfile.TemporaryDirectory() as folder:
        wall, cpu = time.monotonic(), time.process_time()
        report = generate(spec, Path(folder) / "data", workers=0)
        ours = Cost(time.monotonic() - wall, time.process_time() - cpu)
        data = open_dataset(report.root)
        made = [data.episode(i, images=False) for i in range(spec.episodes)]
    wall, cpu = time.monotonic(), time.process_time()
    for episode in made:
        raw.play(episode)
    limit = Cost(time.monotonic() - wall, time.process_time() - cpu)
    return Round(limit=limit, ours=ours, frames=sum(map(len, made)), attempts=report.attempts)


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
        self._option, self._camera, self._rect = (
            mujoco.MjvOption(),
            mujoco.MjvCamera(),
            mujoco.MjrRect(0, 0, size, size),
        )
        self._camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
        self._frame = np.empty((size, size, 3), np.uint8)

    def play(self, episode: Episode) -> None:
        """Step and draw one episode."""
        self._gl.make_current()
        world = self._world
        model, data = world.model, world.data
        world.apply(dict(episode.factors))
        mujoco.mj_step(model, data, nstep=SETTLE_STEPS * SUBSTEPS)
        actions: Any = episode.extras["executed_action"]
        for action in actions:
            for camera in world.camera_id.values():
                self._camera.fixedcamid = camera
                mujoco.mjv_updateScene(
                    model, data, self._option, None, self._camera, mujoco.mjtCatBit.mjCAT_ALL, self._scene
                )
                mujoco.mjr_render(self._rect, self._scene, self._context)
                mujoco.mjr_readPixels(self._frame, None, self._rect, self._context)
            world.command(action)
            mujoco.mj_step(model, data, nstep=SUBSTEPS)


if __name__ == "__main__":
    main()
