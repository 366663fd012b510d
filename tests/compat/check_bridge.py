"""Run policies that lerobot saved through our bridge and compare every number with what lerobot did with them itself.

Usage: check_bridge.py observations WORK, then (after build_policies.py) check_bridge.py check WORK
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from simgap.envs import make_env
from simgap.episodes.reader import open_dataset
from simgap.errors import DataError, MachineError, SimgapError
from simgap.policies.base import Asked
from simgap.policies.bridges.lerobot import LerobotPolicy
from simgap.policies.bridges.open import open_policy
from simgap.policies.execution import parse_executor
from simgap.provenance import child_rng

SEEDS = (11, 22)
STEPS = 30
PYTHON = Path(".venv-compat/bin/python").absolute()
os.environ["SIMGAP_LEROBOT_PYTHON"] = str(PYTHON)  # a policy file may not name a program by itself


def observations(work: Path) -> None:
    """Write the first steps of two generated episodes, and the seed of the noise that our bridge would give each step."""
    dataset = open_dataset(work / "generated")
    episodes = [dataset.episode(i) for i in range(len(SEEDS))]
    noise = [[int(child_rng(seed, "noise", t).integers(1 << 62)) for t in range(STEPS)] for seed in SEEDS]
    cameras = {c: np.stack([e.images[c][:STEPS] for e in episodes]) for c in ("front", "wrist")}
    np.savez(
        work / "observations.npz",
        state=np.stack([e.state[:STEPS] for e in episodes]),
        noise=np.array(noise),
        **cameras,
    )


def policy_file(work: Path, name: str, **fields: object) -> Path:
    size = np.load(work / "observations.npz")["front"].shape[2]
    common = {
        "kind": "lerobot",
        "checkpoint": str(work / "policies" / name),
        "env": "arm-pick",
        "image_size": size,
    }
    images = {c: f"observation.images.{c}" for c in ("front", "wrist")}
    out = work / f"{name}-{fields['execution']}.json"
    out.write_text(json.dumps({**common, "images": images, **fields}))
    return out


def opened(work: Path, name: str, **fields: object) -> LerobotPolicy:
    policy = open_policy(policy_file(work, name, **fields))
    assert isinstance(policy, LerobotPolicy)
    return policy


def interleaved(policy: LerobotPolicy, work: Path, *, asks_every: int = 1) -> np.ndarray:
    """Return chunks of both episodes asked side by side, ``(2, steps, chunk, A)``; the second starts three steps later and both go on to its end."""
    seen = np.load(work / "observations.npz")
    found = np.full((len(SEEDS), STEPS, policy.chunk, len(policy.action_spec)), np.nan, dtype=np.float32)
    for tick in range(STEPS + 3):
        rows = [(e, tick - 3 * e) for e in range(len(SEEDS)) if 0 <= tick - 3 * e < STEPS]
        for asking in (True, False):
            here = [(e, t) for e, t in rows if (t % asks_every == 0) is asking]
            if not here:
                continue
            images = {c: np.stack([seen[c][e, t] for e, t in here]) for c in policy.cameras}
            state, asked = (
                np.stack([seen["state"][e, t] for e, t in here]),
                [Asked(seed=SEEDS[e], step=t, goal="pick up the red cube") for e, t in here],
            )
            if not asking:
                policy.watch(images, state, asked)
                continue
            for (e, t), chunk in zip(here, policy.predict_asked(images, state, asked), strict=True):
                found[e, t] = chunk
    return found


def compare(work: Path, name: str, chunk: int) -> None:
    """Compare actions and, unless ``chunk`` is 0, chunks of one policy with lerobot's own."""
    expected = np.load(work / "policies" / f"{name}.npz")
    scale = max(1.0, float(np.abs(expected["chunks"]).max()))
    theirs = opened(work, name, execution="theirs", chunk=1)
    again = float(np.abs(interleaved(theirs, work)[:, :, 0] - expected["actions"]).max()) / scale
    assert again < 1e-6, f"{name}: with its own executor actions differ by {again:.2g} of the largest value"
    theirs.close()
    told(
        f"{name}: actions of its own executor in two interleaved episodes differ from lerobot's by"
        f" {again:.1g} of the largest value"
    )
    if not chunk:
        return
    ours = opened(work, name, execution="ours", chunk=chunk, executor="latest")
    every = 5 if ours.watches else 1
    worst = (
        float(np.nanmax(np.abs(interleaved(ours, work, asks_every=every) - expected["chunks"][:, :, :chunk])))
        / scale
    )
    assert worst < 1e-6, f"{name}: chunks differ by {worst:.2g} of the largest value"
    if ours.watches:
        refusal = raised(lambda: gap(ours, work), SimgapError)
        assert "step 5 after step 0" in refusal, refusal
    ours.close()
    told(
        f"{name}: chunks, asked every {every} steps and shown the others, differ from lerobot's by"
        f" {worst:.1g} of the largest value"
    )


def gap(policy: LerobotPolicy, work: Path) -> None:
    """Ask at step 0 and then at step 5, with nothing shown between."""
    seen = np.load(work / "observations.npz")
    for t in (0, 5):
        policy.predict_asked(
            {c: seen[c][:1, t] for c in policy.cameras},
            seen["state"][:1, t],
            [Asked(seed=1, step=t, goal="pick")],
        )


def compare_ensembling(work: Path) -> None:
    """Our ``ensemble`` on ACT's chunks against ACT's own: the same but for the gripper, which ours never averages."""
    expected, spec = (
        np.load(work / "policies" / "ensemble.npz"),
        make_env("arm-pick", image_size=96, render=False).action_spec,
    )
    grip, worst, apart = spec.gripper_mask, 0.0, 0.0
    for chunks, actions in zip(expected["chunks"], expected["actions"], strict=True):
        executor = parse_executor("ensemble(0.1)").build(spec, chunks.shape[1])
        executor.reset(0)
        for t, chunk in enumerate(chunks):
            executor.submit(chunk, t)
            sent = executor.act(t).action
            worst = max(
                worst, float(np.abs(sent - actions[t])[~grip].max() / max(1.0, float(np.abs(actions).max())))
            )
            apart = max(apart, float(np.abs(sent - actions[t])[grip].max()))
            np.testing.assert_array_equal(sent[grip], chunk[0, grip])
            if t > 8:
                reach = np.exp(-0.1 * np.arange(8)) / np.exp(-0.1 * np.arange(8)).sum()
                np.testing.assert_allclose(
                    actions[t, grip],
                    reach @ chunks[np.arange(t - 7, t + 1), np.arange(7, -1, -1)][:, grip],
                    rtol=1e-4,
                )
    assert worst < 1e-5, worst
    told(
        f"ACT's ensembling and ours agree to {worst:.1g} on its chunks but for the gripper, which ACT"
        f" averages and ours does not (up to {apart:.2g} apart here)"
    )


def refused(work: Path) -> None:
    """What cannot work is refused in one line that names the cause."""
    cases: dict[str, tuple[type[SimgapError], str]] = {
        "unscaled": (DataError, "'observation.state' scaled by MEAN_STD"),
        "smolvla": (MachineError, "lerobot[smolvla]"),
    }
    smolvla = work / "policies" / "smolvla"
    smolvla.mkdir()
    act = work / "policies" / "act"
    config = json.loads((act / "config.json").read_text())
    kept = {k: config[k] for k in ("input_features", "output_features", "device", "push_to_hub")}
    (smolvla / "config.json").write_text(json.dumps({"type": "smolvla", **kept}))
    (smolvla / "model.safetensors").write_bytes((act / "model.safetensors").read_bytes())
    for name, (kind, words) in cases.items():
        refusal = raised(
            lambda name=name: opened(work, name, execution="ours", chunk=8, executor="latest"), kind
        )
        assert words in refusal, refusal
        assert "\n" not in refusal, refusal
        told(f"refused: {refusal}")


def screened(work: Path) -> None:
    """Two rollouts from the command line, every step shown and every eighth asked, end with a verdict that two rollouts can carry."""
    file = policy_file(work, "diffusion", execution="ours", chunk=8, executor="receding(8)")
    command = [
        ".venv/bin/simgap",
        "screen",
        str(file),
        "-n",
        "2",
        "--workers",
        "1",
        "--out",
        str(work / "screens"),
        "--json",
        "--quiet",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, (done.returncode, done.stderr[-2000:])
    found = json.loads(done.stdout)["screens"][0]
    assert found["n"] == 2, found
    assert found["verdict"] in ("broken", "undecided"), found
    told(
        f"simgap screen {file.name}: {found['successes']} of {found['n']}, {found['verdict']}, interval"
        f" {found['clopper_pearson']}"
    )


def raised(act: Callable[[], object], kind: type[SimgapError]) -> str:
    """Return the message of the error that ``act`` has to end with."""
    try:
        act()
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__} came")


def told(text: str) -> None:
    sys.stderr.write(f"ok: {text}\n")


if __name__ == "__main__":
    folder = Path(sys.argv[2])
    if sys.argv[1] == "observations":
        observations(folder)
    else:
        started = time.perf_counter()
        compare(folder, "act", 8)
        compare(folder, "ensemble", 0)  # the chunks of the same network are compared above
        compare(folder, "diffusion", 15)
        compare_ensembling(folder)
        refused(folder)
        screened(folder)
        told(f"the bridge took {time.perf_counter() - started:.0f} s")
