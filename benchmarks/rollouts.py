"""Rollouts a second on one core, against the least that these rollouts cost, and against the loop that one would write first.

*Limit*: the same actions from the same conditions as ours took; MuJoCo's own step, render and read-back for
exactly the frames the policy was shown, and one forward pass of the bare network for each batch it was asked.
Nothing is judged, executed, normalised or kept. *Plain loop*: ``gymnasium.vector.SyncVectorEnv`` over envs
that draw every step with ``mujoco.Renderer`` as it comes, and a policy that is asked one observation at a
time and plays its chunk from a queue. It gets some of the same conditions and as many steps, and its time is
scaled up: it is slow.

All three run in this process, on one core and one torch thread, and take turns; CPU times are steadier where
others use the machine.

    python benchmarks/rollouts.py --checkpoint runs/headline/arm-pick-nominal-s0-500x9000/training
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from simgap.compute.machine import apply_environment, worker_environment

apply_environment(worker_environment(threads=1))  # before numpy, torch or a GL driver is loaded

import gymnasium  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402

from simgap.envs import make_env  # noqa: E402
from simgap.envs._mujoco import mujoco  # noqa: E402
from simgap.envs.simulated import SimulatedEnv  # noqa: E402
from simgap.policies.checkpoint import load_policy  # noqa: E402
from simgap.policies.inference import CnnPolicy  # noqa: E402
from simgap.provenance import child_rng  # noqa: E402
from simgap.rollouts.engine import GROUP, run_group  # noqa: E402
from simgap.rollouts.record import RolloutRecord  # noqa: E402
from simgap.seeds import Purpose, seed_of  # noqa: E402


def main() -> None:
    """Print the three rates and their ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--env", default="arm-pick")
    parser.add_argument("--factors", default="nominal")
    parser.add_argument(
        "--checkpoint", type=Path, required=True, help="a trained policy: one that fails runs to the horizon"
    )
    parser.add_argument(
        "--replan", type=int, default=5, help="steps of a chunk that are executed: executor receding(k)"
    )
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    policy = load_policy(options.checkpoint, bf16=True, threads=1, domain="sim")
    first = make_env(options.env, image_size=policy.image_size)
    assert isinstance(first, SimulatedEnv)
    envs = [first, *(first.sibling() for _ in range(GROUP - 1))]
    raw, plain = _Raw(options.env, policy), _Plain(options.env, policy, options.replan)
    times: dict[str, list[float]] = {"limit": [], "ours": [], "plain": []}
    steps = 0
    for turn in range(-1, options.rounds):  # the first one warms up
        seeds = [seed_of(Purpose.SELECT, turn, i) for i in range(GROUP)]
        conditions = [
            first.factor_space.sample(first.presets[options.factors], child_rng(seed, "factors"))
            for seed in seeds
        ]
        records: list[RolloutRecord] = []
        spent = {
            "ours": _cpu(
                lambda: records.extend(  # noqa: B023
                    run_group(policy, envs, seeds, conditions, f"receding({options.replan})")  # noqa: B023
                )
            ),
            "limit": _cpu(lambda: raw.play(records, options.replan)),  # noqa: B023
            "plain": _cpu(lambda: plain.play(records[: _Plain.ENVS])) * GROUP / _Plain.ENVS,  # noqa: B023
        }
        if turn >= 0:
            steps += sum(r.steps for r in records)
            for name, seconds in spent.items():
                times[name].append(seconds)
    count = options.rounds * GROUP
    print(
        f"{options.env} {options.factors}, {policy.image_size} px, {len(policy.cameras)} cameras, {GROUP}"
        f" envs, receding({options.replan}), one core"
    )
    for name, each in times.items():
        print(f"{name:6s} {count / sum(each):6.1f} rollouts/CPU-s   {steps / sum(each):7.0f} steps/CPU-s")
    print(f"ours to the limit      {np.median(np.divide(times['limit'], times['ours'])):.2f}")
    print(f"ours to the plain loop {np.median(np.divide(times['plain'], times['ours'])):.1f} times as fast")


def _cpu(work: Callable[[], Any]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


class _Raw:
    """MuJoCo's own calls and the bare network."""

    def __init__(self, name: str, policy: CnnPolicy) -> None:
        self._worlds: list[Any] = []
        for _ in range(GROUP):
            env = make_env(name, image_size=policy.image_size, render=False)
            assert isinstance(env, SimulatedEnv)
            self._worlds.append(env.world)
            self._settle, self._rate = env.settings.settle_steps, env.action_spec.rate_hz
        size, model = policy.image_size, self._worlds[0].model
        self._policy, self._network = policy, policy._network
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
        self._frames = {camera: np.empty((GROUP, size, size, 3), np.uint8) for camera in policy.cameras}

    def play(self, records: Sequence[RolloutRecord], replan: int) -> None:
        """Step, draw and predict what these records took."""
        self._gl.make_current()
        substeps = round(1.0 / self._rate / self._worlds[0].model.opt.timestep)
        for world, record in zip(self._worlds, records, strict=True):
            world.apply(dict(record.factors))
            if self._settle:
                mujoco.mj_step(world.model, world.data, nstep=self._settle * substeps)
        for step in range(max(r.steps for r in records)):
            active = [k for k, r in enumerate(records) if step < r.steps]
            if step % replan == 0:
                for row, k in enumerate(active):
                    self._draw(self._worlds[k], row)
                tensors = [
                    torch.from_numpy(self._frames[camera][: len(active)]) for camera in self._policy.cameras
                ]
                with torch.inference_mode():
                    self._network(
                        tensors,
                        torch.zeros(len(active), records[0].state.shape[1]),
                        torch.bfloat16,
                        None,
                        None,
                    )
            for k in active:
                world = self._worlds[k]
                world.command(records[k].action[step])
                mujoco.mj_step(world.model, world.data, nstep=substeps)

    def _draw(self, world: Any, row: int) -> None:
        for camera in self._policy.cameras:
            self._camera.fixedcamid = world.camera_id[camera]
            mujoco.mjv_updateScene(
                world.model,
                world.data,
                self._option,
                None,
                self._camera,
                mujoco.mjtCatBit.mjCAT_ALL,
                self._scene,
            )
            mujoco.mjr_render(self._rect, self._scene, self._context)
            mujoco.mjr_readPixels(self._frames[camera][row], None, self._rect, self._context)


class _PlainEnv(gymnasium.Env[Any, Any]):
    """The env that one writes first: step, then draw with MuJoCo's renderer as it comes."""

    def __init__(self, name: str, cameras: Sequence[str], size: int) -> None:
        env = make_env(name, image_size=size, render=False)
        assert isinstance(env, SimulatedEnv)
        self._world, self._cameras = env.world, cameras
        self._substeps = round(1.0 / env.action_spec.rate_hz / self._world.model.opt.timestep)
        self._settle = env.settings.settle_steps
        self._renderer = mujoco.Renderer(self._world.model, size, size)
        frame = gymnasium.spaces.Box(0, 255, (size, size, 3), np.uint8)
        state = gymnasium.spaces.Box(-np.inf, np.inf, (len(env.state_spec),), np.float32)
        self.observation_space = gymnasium.spaces.Dict({**dict.fromkeys(cameras, frame), "state": state})
        self.action_space = env.action_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Start from the factors in the options."""
        super().reset(seed=seed)
        self._world.apply(dict((options or {})["factors"]))
        if self._settle:
            mujoco.mj_step(self._world.model, self._world.data, nstep=self._settle * self._substeps)
        return self._observe(), {}

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Move one control period."""
        self._world.command(action)
        mujoco.mj_step(self._world.model, self._world.data, nstep=self._substeps)
        return self._observe(), 0.0, False, False, {}

    def _observe(self) -> dict[str, Any]:
        seen: dict[str, Any] = {"state": self._world.encoders().astype(np.float32)}
        for camera in self._cameras:
            self._renderer.update_scene(self._world.data, camera=camera)
            seen[camera] = self._renderer.render()
        return seen


class _Plain:
    """A few envs at a time: every one opens a GL context of its own, as such envs do."""

    ENVS = 4

    def __init__(self, name: str, policy: CnnPolicy, replan: int) -> None:
        self._policy, self._replan = policy, replan
        self._envs = [_PlainEnv(name, policy.cameras, policy.image_size) for _ in range(self.ENVS)]

    def play(self, records: Sequence[RolloutRecord]) -> None:
        """Run as many steps from the same conditions, in the manner of a first script."""
        vector = gymnasium.vector.SyncVectorEnv([lambda env=env: env for env in self._envs])  # type: ignore[misc]
        for env, record in zip(self._envs, records, strict=True):
            env.reset(options={"factors": dict(record.factors)})
        queues: list[list[Any]] = [[] for _ in records]
        seen = [env._observe() for env in self._envs]
        for _ in range(round(sum(r.steps for r in records) / len(records))):
            for row, queue in enumerate(queues):
                if not queue:
                    images = {camera: seen[row][camera][None] for camera in self._policy.cameras}
                    queue.extend(self._policy.predict(images, seen[row]["state"][None])[0][: self._replan])
            obs, *_ = vector.step(np.stack([queue.pop(0) for queue in queues]))
            seen = [{name: values[row] for name, values in obs.items()} for row in range(len(records))]


if __name__ == "__main__":
    main()
