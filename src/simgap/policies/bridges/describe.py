"""The policy file of a folder that lerobot saved: what its config says, and all that it cannot say, at once.

A checkpoint of lerobot knows its cameras, the widths of state and action, its chunk and its normalisation. It
does not know what its numbers mean: names, units and rate are those of the data it was trained on, which a
policy file has to state.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simgap.conventions import ActionSpec, StateSpec, VectorSpec
from simgap.errors import UsageError
from simgap.policies.bridges.lerobot_checkpoint import (
    IMAGES,
    WEIGHTS,
    Checkpoint,
    read_checkpoint,
    training_data,
)
from simgap.policies.bridges.lerobot_process import MAKE, VARIABLE
from simgap.policies.bridges.lerobot_worker import PURE_CHUNKS
from simgap.policies.execution import ExecutorSpec, Mode
from simgap.provenance import read_json

_POINTER = b"version https://git-lfs"
_LARGEST_SIDE = 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class Given:
    """What the user adds to what the checkpoint says."""

    env: str | None = None
    """Env whose conventions and cameras the policy speaks."""
    env_cameras: tuple[str, ...] = ()
    env_action: ActionSpec | None = None
    env_state: StateSpec | None = None
    dataset: Path | None = None
    """The training data; names, order and rate are compared with it whenever the file is read."""
    data_action: ActionSpec | None = None
    data_state: StateSpec | None = None
    action_spec: Path | None = None
    state_spec: Path | None = None
    rate_hz: float | None = None
    cameras: Mapping[str, str] = field(default_factory=dict)
    """Our name of a camera -> theirs, without ``observation.images.``."""
    execution: str | None = None
    executor: str | None = None
    image_size: int | None = None
    resize: bool = False
    python: Path | None = None
    prompt_text: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Description:
    """A policy file, and what stands in the way of using it."""

    fields: Mapping[str, Any]
    """Of the file, as far as they are known."""
    missing: tuple[str, ...]
    """What has to be said before there can be a file, each with its flag."""
    notes: tuple[str, ...]
    """What keeps a written file from running."""
    assumed: tuple[str, ...]
    """What the file says and nothing in the folder shows."""
    checkpoint: Checkpoint

    def require_whole(self) -> None:
        """Raise unless the file can be written.

        Raises:
            UsageError: all that is missing, in one line.
        """
        if self.missing:
            things = "; ".join(f"({i}) {text}" for i, text in enumerate(self.missing, start=1))
            raise UsageError(
                f"{self.checkpoint.path} does not say everything that a policy file needs; missing: {things}"
            )


def describe(folder: Path, given: Given) -> Description:
    """Return the policy file of a checkpoint folder of lerobot.

    Raises:
        DataError: no such folder, or a config that cannot be read.
        UsageError: something given does not go with the checkpoint.
    """
    checkpoint = read_checkpoint(folder)
    missing: list[str] = []
    fields: dict[str, Any] = {"schema": 1, "kind": "lerobot", "checkpoint": str(folder.resolve())}
    if given.env is not None:
        fields["env"] = given.env
    fields["images"] = _images(checkpoint, given, missing)
    fields |= _size(checkpoint, given, missing)
    fields |= _execution(checkpoint, given)
    fields |= _conventions(checkpoint, given, missing)
    for name, value in (("dataset", given.dataset), ("python", given.python)):
        if value is not None:
            fields[name] = str(value.expanduser().absolute())
    if given.prompt_text:
        fields["prompt_text"] = given.prompt_text
    return Description(
        fields=fields,
        missing=tuple(missing),
        notes=_notes(checkpoint, given),
        assumed=_assumed(checkpoint, given),
        checkpoint=checkpoint,
    )


def _images(checkpoint: Checkpoint, given: Given, missing: list[str]) -> dict[str, str]:
    """Return our camera -> their feature: as said, else by the same name."""
    theirs = {feature.removeprefix(IMAGES): feature for feature in checkpoint.cameras}
    found = {}
    for ours, their in given.cameras.items():
        if their.removeprefix(IMAGES) not in theirs:
            raise UsageError(
                f"--camera {ours}={their}: the checkpoint sees {', '.join(theirs) or 'no camera'}"
            )
        found[ours] = theirs[their.removeprefix(IMAGES)]
    rest = [name for name, feature in theirs.items() if feature not in found.values()]
    same = {name: theirs[name] for name in rest if given.env is None or name in given.env_cameras}
    unmapped = [name for name in rest if name not in same]
    if unmapped:
        free = [c for c in given.env_cameras if c not in {**found, **same}]
        flags = " ".join(
            f"--camera {ours}={their}"
            for ours, their in zip([*free, *["OURS"] * len(unmapped)], unmapped, strict=False)
        )
        missing.append(
            f"which cameras of env {given.env} ({', '.join(given.env_cameras)}) {' and '.join(unmapped)} are:"
            f" {flags}"
        )
    if not theirs:
        missing.append(
            "a camera: this checkpoint sees none, and a policy that is run here needs at least one"
        )
    return {**found, **same}


def _size(checkpoint: Checkpoint, given: Given, missing: list[str]) -> dict[str, Any]:
    """Return the side of our frames: that of the checkpoint's, or where those are not squares of one size what was accepted."""
    shapes = set(checkpoint.cameras.values())
    only = next(iter(shapes)) if len(shapes) == 1 else None
    if only is not None and only[0] == only[1] and given.image_size in (None, only[0]):
        return {"image_size": only[0]}
    seen = ", ".join(
        f"{name.removeprefix(IMAGES)} {width}x{height}"
        for name, (height, width) in checkpoint.cameras.items()
    )
    if shapes and not given.resize:
        missing.append(
            f"how frames of {seen} px come about: frames here are square and of one size, so --resize would"
            " stretch them to what the checkpoint takes (it then sees other pictures than it was trained"
            " on); or train on square frames"
        )
    shorter = min((min(shape) for shape in shapes), default=0)
    size = given.image_size or min(shorter, _LARGEST_SIDE)
    return {"image_size": size, **({"resize": True} if given.resize else {})}


def _execution(checkpoint: Checkpoint, given: Given) -> dict[str, Any]:
    """Return who makes actions of chunks, and how: what the config asks for unless something else is said."""
    execution = given.execution or ("ours" if checkpoint.type in PURE_CHUNKS else "theirs")
    if execution == "theirs":
        return {"execution": "theirs", "chunk": 1}
    config = checkpoint.config
    entries = config.get("chunk_size")
    if checkpoint.type == "diffusion":
        parts = [config.get("horizon"), config.get("n_obs_steps", 1)]
        entries = parts[0] - parts[1] + 1 if all(isinstance(p, int) for p in parts) else None
    chunk = entries if isinstance(entries, int) and entries > 0 else 1
    usual = checkpoint.suggested or ExecutorSpec(mode=Mode.WHOLE_CHUNK if chunk > 1 else Mode.LATEST)
    return {"execution": "ours", "chunk": chunk, "executor": given.executor or str(usual)}


def _conventions(checkpoint: Checkpoint, given: Given, missing: list[str]) -> dict[str, Any]:
    """Return what the numbers mean where the env does not say it; or what is missing for it."""
    fields: dict[str, Any] = {}
    data = training_data(checkpoint, given.dataset)
    sides: tuple[
        tuple[str, int | None, Path | None, VectorSpec | None, VectorSpec | None, tuple[str, ...] | None], ...
    ] = (
        (
            "action_spec",
            checkpoint.action,
            given.action_spec,
            given.data_action,
            given.env_action,
            data.action,
        ),
        ("state_spec", checkpoint.state, given.state_spec, given.data_state, given.env_state, data.state),
    )
    unsaid = []
    for name, width, file, of_data, of_env, names in sides:
        spec = (
            _stated(name, file, given.rate_hz)
            if file is not None
            else of_data.to_json()
            if of_data is not None
            else None
        )
        if spec is not None:
            fields[name] = spec
        elif width is not None and of_env is not None and len(of_env) != width:
            what = name.removesuffix("_spec")
            raise UsageError(
                f"the checkpoint's {what} has {width} numbers, that of env {given.env} has {len(of_env)}:"
                " this policy was not trained for that env; name another with --env, or say what its numbers"
                f" mean with --{what}-spec FILE"
            )
        elif of_env is None:
            unsaid.append(
                f"{width or 0} numbers of {name.removesuffix('_spec')}"
                + (f" ({', '.join(names)})" if names else "")
            )
    if unsaid:
        rate = "" if data.rate_hz is None else f" (the training data have {data.rate_hz:g} Hz)"
        missing.append(
            f"names, units and limits of the {' and '.join(unsaid)}, and the rate{rate}: --env NAME of an env"
            " with the same ones, or --dataset FOLDER with the data it was trained on, or --action-spec FILE"
            " --state-spec FILE [--rate-hz X]"
        )
    return fields


def _stated(name: str, file: Path, rate_hz: float | None) -> dict[str, Any]:
    data = read_json(file, unique_keys=True)
    if isinstance(data, dict) and name in data:
        data = data[name]  # a policy file, or another file of specs
    if not isinstance(data, dict) or not isinstance(data.get("dimensions"), list):
        raise UsageError(
            f"{file} does not hold a convention; expected {{"
            + '"rate_hz": 30, "dimensions": [{"name": "shoulder_pan.pos", "unit": "deg", "low": -110, "high":'
            " 110}, ...]}"
        )
    return {**data, **({} if rate_hz is None else {"rate_hz": rate_hz})}


def _notes(checkpoint: Checkpoint, given: Given) -> tuple[str, ...]:
    """Return what keeps the checkpoint from running, as far as it is seen without lerobot."""
    pointers = sorted(f.name for f in checkpoint.path.glob("*.safetensors") if _is_pointer(f))
    found = (
        [
            f"{', '.join(pointers)} {'are Git LFS pointers' if len(pointers) > 1 else 'is a Git LFS pointer'}"
            " instead of the content: git lfs pull"
        ]
        if pointers
        else []
    )
    if checkpoint.others:
        found.append(
            f"it also reads {', '.join(checkpoint.others)}, which no camera or encoder gives: such a policy"
            " cannot be run here"
        )
    for name in ("policy_preprocessor.json", "policy_postprocessor.json"):
        if not (checkpoint.path / name).is_file():
            found.append(
                f"{name} is missing, which holds the normalisation: copy the whole folder pretrained_model"
            )
    if given.python is None and not os.environ.get(VARIABLE):
        found.append(
            f"no Python with lerobot is named: --python PATH, or export {VARIABLE}=PATH; to make one: {MAKE}"
        )
    if checkpoint.config.get("use_peft") is True:
        found.append("it is an adapter, not a policy: merge it into its base and save that")
    return tuple(found)


def _assumed(checkpoint: Checkpoint, given: Given) -> tuple[str, ...]:
    """Return what is taken from an env because the folder does not say it."""
    if (
        given.env is None
        or given.env_action is None
        or given.dataset is not None
        or given.action_spec is not None
    ):
        return ()
    known = training_data(checkpoint, None)
    says = (
        "the folder does not say so"
        if known.rate_hz is None
        else f"its training data have {known.rate_hz:g} Hz"
    )
    units = ", ".join(dict.fromkeys(str(d.unit) for d in given.env_action.dimensions))
    return (
        (
            f"its actions are those of env {given.env}, in its order, in {units}, at"
            f" {given.env_action.rate_hz:g} Hz: {says}; compare with --dataset FOLDER"
        ),
    )


def _is_pointer(file: Path) -> bool:
    if not file.is_file():
        return False
    with file.open("rb") as handle:
        return handle.read(len(_POINTER)) == _POINTER


def is_lerobot_folder(folder: Path) -> bool:
    """Return whether a folder looks like a checkpoint of lerobot, or holds one in ``pretrained_model``."""
    return any(
        (f / "config.json").is_file() and (f / WEIGHTS).is_file()
        for f in (folder, folder / "pretrained_model")
    )


def needs_a_policy_file(folder: Path) -> str:
    """Return one line for a checkpoint folder of lerobot that was given in the place of a checkpoint of ours."""
    where = folder if (folder / "config.json").is_file() else folder / "pretrained_model"
    file = f"{folder.resolve().name}.json"
    command = shlex.join(["simgap", "policy", "describe", str(where), "--write", file])
    return (
        f"{folder} is a LeRobot checkpoint, which runs by a policy file: write one with `{command}`, then"
        f" give {file} here"
    )
