"""A stand-in for lerobot, so that the worker itself can be tested without it, and the folders that lerobot would have saved.

The stand-in's policies answer with what they saw: a chunk is the state, ``step`` more at each entry, and
``look`` times the mean of the images; diffusion adds half of the oldest state of its window, and noise. It
prints where lerobot prints.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

STATISTICS = tuple(
    f"{name}.{s}"
    for name in ("observation.images.top", "observation.images.side", "observation.state", "action")
    for s in ("mean", "std", "min", "max")
)

_CONFIGS = """
import json
from pathlib import Path
from types import SimpleNamespace

class PreTrainedConfig:
    @staticmethod
    def from_pretrained(path, cli_overrides, local_files_only):
        config = SimpleNamespace(n_obs_steps=1, use_peft=False, temporal_ensemble_coeff=None, step=0.0, look=0.0, noise=0.0)
        vars(config).update(json.loads((Path(path) / "config.json").read_text()))
        for text in cli_overrides:
            name, value = text.removeprefix("--").split("=")
            setattr(config, name, value if name == "device" else json.loads(value))
        for features in (config.input_features, config.output_features):
            for name, f in features.items():
                features[name] = SimpleNamespace(type=SimpleNamespace(value=f["type"]), shape=tuple(f["shape"]))
        return config
"""

_FACTORY = """
import json, os
from collections import deque
from pathlib import Path
from types import SimpleNamespace
import torch

class Ensembler:
    def reset(self):
        self.seen = []
    def update(self, chunk):
        self.seen.append(chunk[:, 0])
        return torch.stack(self.seen).mean(0)

class Policy:
    def __init__(self, config):
        self.config = config
        if config.temporal_ensemble_coeff is not None:
            self.temporal_ensembler = Ensembler()
        self.core = SimpleNamespace(calls=0)
        self.reset()

    @classmethod
    def from_pretrained(cls, path, config, strict):
        print("Loading weights from local directory")
        return cls(config)

    def eval(self):
        return self

    def reset(self):
        if self.config.temporal_ensemble_coeff is not None:
            self.temporal_ensembler.reset()
        self._queue = deque(maxlen=self.config.n_action_steps)
        self._states = deque(maxlen=self.config.n_obs_steps)
        self.core.calls = 0

    def predict_action_chunk(self, batch):
        os.write(1, b"a library prints here\\n")
        state = batch["observation.state"]
        if self.config.type == "diffusion":
            assert state.ndim == 3 and state.shape[1] == self.config.n_obs_steps, state.shape
            state = state[:, -1] + 0.5 * state[:, 0]
        images = [batch[name] for name, f in sorted(self.config.input_features.items()) if f.type.value == "VISUAL"]
        for (name, f), image in zip(sorted(self.config.input_features.items()), images):
            assert tuple(image.shape[-3:]) == f.shape, (name, image.shape)
        look = self.config.look * torch.tensor([float(i.mean()) for i in images] + [0.0] * (state.shape[1] - len(images)))
        entries = self.config.n_action_steps if self.config.type == "diffusion" else self.config.chunk_size
        chunk = torch.stack([state + look + self.config.step * h for h in range(entries)], dim=1)
        return chunk + self.config.noise * torch.randn(chunk.shape)

    def select_action(self, batch):
        self.core.calls += 1
        self._states.extend([batch["observation.state"]] * (1 if self._states else self.config.n_obs_steps))
        window = dict(batch)
        if self.config.type == "diffusion":
            for name in list(self.config.input_features):
                window[name] = torch.stack([batch[name]] * self.config.n_obs_steps, dim=1)
            window["observation.state"] = torch.stack(list(self._states), dim=1)
        if self.config.temporal_ensemble_coeff is not None:
            return self.temporal_ensembler.update(self.predict_action_chunk(window))
        if self.config.type == "odd":
            return batch["observation.state"] * 0 + self.core.calls
        if not self._queue:
            self._queue.extend(self.predict_action_chunk(window)[:, : self.config.n_action_steps].transpose(0, 1))
        return self._queue.popleft()

def get_policy_class(name):
    return Policy

class _Step:
    def __init__(self, data):
        self.data = data
        self.enabled = data.get("relative", False)
        self.features = {n: SimpleNamespace(type=SimpleNamespace(value=t)) for n, t in data["features"].items()}
        self.norm_map = _Modes(data["modes"])
    def state_dict(self):
        return {n: 0 for n in self.data["statistics"]}

class _Modes:
    def __init__(self, modes):
        self.modes = modes
    def items(self):
        return [(SimpleNamespace(value=k), SimpleNamespace(value=v)) for k, v in self.modes.items()]

class NormalizerProcessorStep(_Step): pass
class UnnormalizerProcessorStep(_Step): pass
class TokenizerProcessorStep(_Step): pass
class RelativeActionsProcessorStep(_Step): pass

class Pipeline:
    def __init__(self, file, given):
        self.steps = [globals()[s["name"]](s) for s in json.loads(file.read_text())]
        self.given = given
    def reset(self):
        pass
    def __call__(self, value):
        if self.given:
            value = {**value, "action": None}
            if any(isinstance(s, TokenizerProcessorStep) for s in self.steps):
                value["observation.state"] = value["observation.state"] + float(len(value["task"][0]))
        return value

def make_pre_post_processors(config, path, preprocessor_overrides):
    return [Pipeline(Path(path) / f"policy_{p}processor.json", p == "pre") for p in ("pre", "post")]
"""


_WORKER = """
import json, os, sys, time
import numpy as np
from simgap.policies.bridges.lerobot_worker import die_with, messages, pack, private_pipe

facts = json.loads(sys.argv[1])
if "-c" in sys.argv:
    print("0.6.1 2.11.0")
    sys.exit()
die_with(int(sys.argv[-1]))
source, sink = private_pipe()
errors = {
    "package": {"raised": "ImportError", "text": "'transformers' is required but not installed"},
    "file": {"raised": "FileNotFoundError", "text": "policy_preprocessor.json not found"},
    "refuses": {"refused": "usage", "text": "no such thing"},
    "raises": {"raised": "RuntimeError", "text": "the weights are\\nof another shape", "trace": "here"},
}
opened = False
for request, arrays in messages(source):
    print("a library prints here")
    fault = facts["later"] if opened else facts["fault"]
    answer, out = errors.get(fault, {} if opened else facts), {}
    if fault == "dies":
        os.write(2, b"Fatal: out of memory\\n")
        os._exit(7)
    if fault == "sleeps":
        time.sleep(60)
    if opened:
        out = {"chunks": np.full((len(request["rows"]), 4, facts["width"]), float(facts["value"]), np.float32)}
    message = b"".join(pack({**answer, "id": request["id"]}, out))
    for k in range(len(message) if fault == "trickles" else 0):
        sink.write(message[k : k + 1])
        sink.flush()
        time.sleep(0.05)
    sink.write(message)
    sink.flush()
    opened = True
"""


def fake_worker(folder: Path, saved: Path, **facts: Any) -> Path:
    """Return a program that answers as a worker that has loaded ``saved``, without torch; ``fault`` at once or ``later`` makes it fail."""
    scalers = [
        {"side": side, **json.loads((saved / f"policy_{p}processor.json").read_text())[-1]}
        for side, p in (("in", "pre"), ("out", "post"))
    ]
    plain = {
        "entries": 4,
        "watches": False,
        "takes_task": False,
        "is_relative": False,
        "fault": "",
        "later": "",
        "width": 2,
        "value": "0",
    }
    (folder / "worker.py").write_text(_WORKER)
    (folder / "facts.json").write_text(json.dumps({**plain, "scalers": scalers, **facts}))
    return program(
        folder / "python",
        f'exec {sys.executable} {folder / "worker.py"} "$(cat {folder / "facts.json"})" "$@"',
    )


def fake_python(folder: Path, *, has_lerobot: bool = True) -> Path:
    """Return a program that is this interpreter with the stand-in for lerobot on its path."""
    site = folder / "site"
    for package, text in (
        {"lerobot": "", "lerobot/configs": _CONFIGS, "lerobot/policies": "", "lerobot/utils": ""}.items()
        if has_lerobot
        else ()
    ):
        (site / package).mkdir(parents=True)
        (site / package / "__init__.py").write_text(text)
    if has_lerobot:
        (site / "lerobot" / "policies" / "factory.py").write_text(_FACTORY)
        (site / "lerobot" / "utils" / "import_utils.py").write_text(
            "def register_third_party_plugins():\n    pass\n"
        )
        (site / "lerobot-0.6.1.dist-info").mkdir()
        (site / "lerobot-0.6.1.dist-info" / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: lerobot\nVersion: 0.6.1\n"
        )
    return program(folder / "python", f'PYTHONPATH={site} exec {sys.executable} "$@"')


def program(path: Path, line: str) -> Path:
    """Write a shell program of one line."""
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
    return path


def save_checkpoint(
    folder: Path,
    *,
    width: int = 2,
    size: int = 16,
    cameras: tuple[str, ...] = ("top",),
    without: tuple[str, ...] = (),
    steps: tuple[str, ...] = (),
    **config: Any,
) -> Path:
    """Write what lerobot would have saved: ``config`` into ``config.json``, ``without`` are features without statistics, ``steps`` further processors."""
    folder.mkdir(parents=True, exist_ok=True)
    images = {f"observation.images.{c}": {"type": "VISUAL", "shape": [3, size, size]} for c in cameras}
    inputs = {**images, "observation.state": {"type": "STATE", "shape": [width]}}
    settings = {
        "type": "act",
        "input_features": inputs,
        "output_features": {"action": {"type": "ACTION", "shape": [width]}},
        "chunk_size": 4,
        "horizon": 8,
        "n_action_steps": 2,
        **config,
    }
    (folder / "config.json").write_text(json.dumps(settings))
    (folder / "model.safetensors").write_bytes(b"weights")
    known = [s for s in STATISTICS if s.rpartition(".")[0] not in without]
    features = {**{n: f["type"] for n, f in inputs.items()}, "action": "ACTION"}
    scaler = {
        "features": features,
        "modes": {"VISUAL": "MEAN_STD", "STATE": "MEAN_STD", "ACTION": "MIN_MAX"},
        "statistics": known,
    }
    more = [{"name": s, "relative": True, "features": {}, "modes": {}, "statistics": []} for s in steps]
    (folder / "policy_preprocessor.json").write_text(
        json.dumps([*more, {"name": "NormalizerProcessorStep", **scaler}])
    )
    (folder / "policy_postprocessor.json").write_text(
        json.dumps([{"name": "UnnormalizerProcessorStep", **scaler}])
    )
    return folder


def write_file(
    folder: Path, checkpoint: Path, python: Path, name: str = "policy.json", **fields: Any
) -> Path:
    """Write a policy file for the car: chunks of 4 for an executor of ours, unless ``fields`` say otherwise; None leaves a field out."""
    settings: dict[str, Any] = {
        "kind": "lerobot",
        "checkpoint": str(checkpoint),
        "python": str(python),
        "env": "car-goal",
        "image_size": 16,
        "chunk": 4,
        "execution": "ours",
        "executor": "receding(2)",
        "images": {"onboard": "observation.images.top"},
        **fields,
    }
    file = folder / name
    file.write_text(json.dumps({k: v for k, v in settings.items() if v is not None}))
    return file
