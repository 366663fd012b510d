"""A policy that lerobot saved (ACT, diffusion, SmolVLA, pi0 ...), run by a worker in lerobot's own Python, behind our contract.

Who executes is said in the policy file. ``"execution": "ours"``: chunks of ``predict_action_chunk``, and an
executor of ours makes actions of them. ``"execution": "theirs"``: ``select_action`` every control step, with
the queue or the ensembling of the checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.errors import ConventionError, UsageError
from simgap.policies.base import Asked
from simgap.policies.bridges.lerobot_checkpoint import (
    STATE,
    Checkpoint,
    read_checkpoint,
    require_fits,
    require_runs_nothing_named,
    require_same_names,
    require_scaled,
    training_data,
)
from simgap.policies.bridges.lerobot_process import VARIABLE, LerobotWorker, find_python, versions
from simgap.policies.bridges.policy_file import Interface, PolicyFile
from simgap.policies.bridges.remote import Translation, checked_actions, checked_observation
from simgap.policies.execution import ExecutorSpec, Mode
from simgap.provenance import child_rng
from simgap.trust import require_allowed

FIELDS = (
    "checkpoint",
    "execution",
    "images",
    "resize",
    "overrides",
    "prompt_text",
    "dataset",
    "names",
    "python",
    "device",
    "threads",
    "start_timeout_s",
    "reply_timeout_s",
)
"""Fields of a policy file of this kind, beside those of every kind."""
OVERRIDES = ("n_action_steps", "temporal_ensemble_coeff")
_WHO = "the lerobot checkpoint"


@dataclass(frozen=True, kw_only=True, slots=True)
class LerobotSpec:
    """What a policy file of kind ``lerobot`` says beyond the conventions."""

    checkpoint: Path
    theirs: bool
    """Whether lerobot's own queue or ensembling makes the actions."""
    images: tuple[tuple[str, str], ...]
    """Our camera -> lerobot's feature."""
    resize: bool
    """Bring frames to the checkpoint's size, bilinear with antialiasing."""
    overrides: Mapping[str, float | None]
    """Of lerobot's own execution: ``n_action_steps``, ``temporal_ensemble_coeff``."""
    prompt_text: str
    """Instruction in place of the rollout's."""
    dataset: Path | None
    """The training data, to compare names, order and rate with."""
    names: Mapping[str, str]
    """Name in the training data -> name in the convention, where they differ."""
    python: Path | None
    device: str
    threads: int
    start_timeout_s: float
    reply_timeout_s: float

    @classmethod
    def of(cls, file: PolicyFile) -> LerobotSpec:
        """Return what a policy file says.

        Raises:
            UsageError: an unknown field, or one of the wrong kind.
        """
        file.require_known(FIELDS)
        execution = file.text("execution", "")
        if execution not in ("ours", "theirs"):
            raise UsageError(
                f'{file.path}: field "execution" is {execution!r}; expected "ours" (chunks, for an executor'
                ' of simgap) or "theirs" (lerobot\'s own queue)'
            )
        overrides = file.mapping("overrides") if "overrides" in file.data else {}
        for name, value in overrides.items():
            if (
                name not in OVERRIDES
                or isinstance(value, bool)
                or not (value is None or isinstance(value, int | float))
            ):
                raise UsageError(
                    f"{file.path}: overrides has {name!r}: {value!r:.40}; expected a number or null for"
                    f" {' or '.join(OVERRIDES)}"
                )
        if overrides and execution == "ours":
            raise UsageError(
                f"{file.path}: overrides are of lerobot's own execution; with execution ours say the executor"
                " instead"
            )
        for name in ("images", "names"):
            wrong = [
                k
                for k, v in (file.mapping(name) if name in file.data else {}).items()
                if not isinstance(v, str) or not v
            ]
            if wrong:
                raise UsageError(f"{file.path}: {name} has no text for {wrong[0]!r}; expected a name")
        return cls(
            checkpoint=file.local_path("checkpoint"),
            theirs=execution == "theirs",
            images=tuple(file.mapping("images").items()),
            resize=file.flag("resize", False),
            overrides=overrides,
            prompt_text=file.text("prompt_text", ""),
            dataset=file.local_path("dataset") if "dataset" in file.data else None,
            names=dict(file.mapping("names")) if "names" in file.data else {},
            python=_python_of(file) if "python" in file.data else None,
            device=file.text("device", "cpu"),
            threads=file.whole("threads", 1, low=1, high=1024),
            start_timeout_s=file.seconds("start_timeout_s", 300.0),
            reply_timeout_s=file.seconds("reply_timeout_s", 120.0),
        )


def read_interface(file: PolicyFile) -> Interface:
    """Return the conventions of a policy file, checked against the checkpoint's config and, where they are known, its training data.

    Raises:
        UsageError: fields that do not go together.
        ConventionError: the checkpoint reads or says something else.
        DataError: there is no checkpoint.
    """
    spec, checkpoint = _read(file)
    if not spec.theirs and "executor" not in file.data:
        hint = "" if checkpoint.suggested is None else f"; its config asks for {checkpoint.suggested}"
        raise UsageError(
            f'{file.path}: with execution ours the field "executor" says how chunks become actions{hint}'
        )
    interface = file.interface(tuple(camera for camera, _ in spec.images))
    if spec.theirs and (interface.chunk != 1 or interface.executor != ExecutorSpec(mode=Mode.LATEST)):
        raise UsageError(
            f"{file.path}: with execution theirs lerobot makes one action a step; set chunk to 1 and executor"
            " to latest, or leave executor out"
        )
    require_fits(checkpoint, interface, spec.images, resize=spec.resize)
    require_same_names(training_data(checkpoint, spec.dataset), interface, spec.names)
    return interface


def stamp_lerobot(file: PolicyFile) -> dict[str, Any]:
    """Return what decides what the policy does: weights, processors, who executes, versions. Starts a Python, loads nothing."""
    spec, checkpoint = _read(file)
    data = training_data(checkpoint, spec.dataset)
    return {
        **checkpoint.hashes(),
        "data": [] if data.repo is None else [data.repo],
        "policy_type": checkpoint.type,
        "execution": "theirs" if spec.theirs else "ours",
        "overrides": dict(spec.overrides),
        "images": dict(spec.images),
        "resize": spec.resize,
        "prompt_text": spec.prompt_text,
        "names_compared": data.action is not None,
        "device": spec.device,
        **versions(find_python(spec.python)),
    }


def open_lerobot(file: PolicyFile) -> LerobotPolicy:
    """Start a worker and load the checkpoint.

    Raises:
        MachineError: no Python with lerobot, a package that is missing, or a worker that dies.
        DataError: a checkpoint that cannot be loaded, or whose normaliser lacks a feature.
        ConventionError: the two sides do not fit.
        UsageError: a request that the checkpoint cannot meet.
        UntrustedError: the policy file or the checkpoint names what nobody allowed to run.
    """
    interface = read_interface(file)
    spec, checkpoint = _read(file)
    require_runs_nothing_named(checkpoint)
    stamp = stamp_lerobot(file)
    request = {
        "do": "open",
        "checkpoint": str(spec.checkpoint.resolve()),
        "type": checkpoint.type,
        "execution": "theirs" if spec.theirs else "ours",
        "overrides": {name: "null" if value is None else value for name, value in spec.overrides.items()},
        "device": spec.device,
        "threads": spec.threads,
        "resize": {name: list(size) for name, size in checkpoint.cameras.items()} if spec.resize else None,
    }
    worker = LerobotWorker(
        find_python(spec.python),
        request,
        start_timeout_s=spec.start_timeout_s,
        reply_timeout_s=spec.reply_timeout_s,
    )
    try:
        return LerobotPolicy(
            worker=worker, spec=spec, checkpoint=checkpoint, interface=interface, stamp=stamp
        )
    except BaseException:
        worker.close()
        raise


class LerobotPolicy:
    """Implements :class:`simgap.policies.base.WatchingPolicy`. Deterministic: noise is drawn from (seed, step) of each row."""

    goals: tuple[str, ...] = ()

    def __init__(
        self,
        *,
        worker: LerobotWorker,
        spec: LerobotSpec,
        checkpoint: Checkpoint,
        interface: Interface,
        stamp: Mapping[str, Any],
    ) -> None:
        self.action_spec, self.state_spec = interface.action_spec, interface.state_spec
        self.cameras, self.image_size, self.chunk = interface.cameras, interface.image_size, interface.chunk
        self.executor, self.envs = interface.executor, interface.envs
        self.facts = worker.facts
        """What the worker said of the checkpoint."""
        self._worker, self._spec, self._interface, self._checkpoint = worker, spec, interface, checkpoint
        self._stamp = {
            **stamp,
            "cameras": list(self.cameras),
            "image_size": self.image_size,
            "chunk": self.chunk,
        }
        self._translation = Translation.of(interface, server=_WHO)
        require_scaled(checkpoint, self.facts["scalers"])
        self._entries = int(self.facts["entries"])
        if self.chunk > self._entries:
            raise UsageError(
                f"the policy file asks for chunks of {self.chunk}, {_WHO} makes {self._entries} entries;"
                " lower chunk"
            )
        if spec.theirs and (self.facts["is_relative"] or self._translation.start is not None):
            raise UsageError(
                f"{_WHO} counts actions from the state at the start of a chunk, and its own queue keeps no"
                " such state; use execution ours"
            )

    @property
    def inpaints(self) -> bool:
        """Whether a chunk can go on from a prefix: not through this bridge."""
        return False

    @property
    def watches(self) -> bool:
        """Whether the policy reads a window of consecutive control steps."""
        return bool(self.facts["watches"])

    @property
    def is_executor(self) -> bool:
        """Whether lerobot's own queue or ensembling makes the actions."""
        return self._spec.theirs

    def predict(
        self, images: Mapping[str, NDArray[np.uint8]], state: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Return ``(B, chunk, A)`` float32 in action-spec units; see the protocol.

        Raises:
            UsageError: the policy remembers earlier steps, so an observation alone says too little.
        """
        if self.watches or self.is_executor:
            raise UsageError(
                f"{_WHO} remembers earlier steps of an episode, and an observation alone was given; ask it"
                " with seed and step"
            )
        return self.predict_asked(images, state, [Asked()] * len(state))

    def predict_asked(
        self, images: Mapping[str, NDArray[np.uint8]], state: NDArray[np.float32], asked: Sequence[Asked]
    ) -> NDArray[np.float32]:
        """Return ``(B, chunk, A)`` float32 in action-spec units: the first entries of lerobot's chunks, or its action of this step.

        Raises:
            ConventionError: a camera is missing, or a shape or dtype is not what the policy file says.
            UsageError: an instruction or step 0 is missing, or a step was left out.
            DataError: numbers that are not finite.
            MachineError: the worker died, or gave no answer in time.
        """
        answer = self._tell("predict", images, state, asked).get("chunks")
        shape = (len(state), self._entries, len(self._interface.their_action_spec))
        if answer is None or answer.shape != shape:
            raise ConventionError(
                f"{_WHO} answered with shape {None if answer is None else answer.shape}, its config says"
                f" {shape}; check its lerobot version"
            )
        theirs = self._interface.their_action_spec
        chunks = [
            checked_actions({"chunk": row}, ("chunk",), chunk=self.chunk, spec=theirs, server=_WHO)
            for row in answer[:, : self.chunk]
        ]
        return np.stack(
            [self._translation.to_us(chunk, own) for chunk, own in zip(chunks, state, strict=True)]
        )

    def watch(
        self, images: Mapping[str, NDArray[np.uint8]], state: NDArray[np.float32], asked: Sequence[Asked]
    ) -> None:
        """Show a control step at which nothing is asked.

        Raises:
            UsageError: lerobot executes itself, so it has to be asked at every step; or a step was left out.
        """
        if self.is_executor:
            raise UsageError(
                f"{_WHO} executes its own chunks and has to be asked at every step; use executor latest"
            )
        self._tell("watch", images, state, asked)

    def stamp_fields(self) -> Mapping[str, Any]:
        """Return hashes of weights, config and processors, who executes, versions of lerobot and torch, cameras, frame size and chunk."""
        return self._stamp

    def close(self) -> None:
        """End the worker."""
        self._worker.close()

    def _tell(
        self,
        do: str,
        images: Mapping[str, NDArray[np.uint8]],
        state: NDArray[np.float32],
        asked: Sequence[Asked],
    ) -> dict[str, NDArray[Any]]:
        checked_observation(self._interface, images, state, asked, server=_WHO)
        if (self.watches or self.is_executor) and len({a.seed for a in asked}) < len(asked):
            raise UsageError(
                f"two observations of one episode (one seed) at once, and {_WHO} remembers each episode; ask"
                " one step after the other"
            )
        rows = [
            {
                "episode": a.seed,
                "step": a.step,
                "goal": self._goal(a),
                "noise": int(child_rng(a.seed, "noise", a.step).integers(1 << 62)),
            }
            for a in asked
        ]
        arrays: dict[str, NDArray[Any]] = {feature: images[camera] for camera, feature in self._spec.images}
        if self._checkpoint.state is not None:
            arrays[STATE] = np.stack([self._translation.to_them(row) for row in state]).astype(np.float32)
        return self._worker.ask({"do": do, "rows": rows}, arrays)

    def _goal(self, asked: Asked) -> str:
        text = self._spec.prompt_text or asked.goal or ""
        if not text and self.facts["takes_task"]:
            raise UsageError(
                f"{_WHO} reads an instruction and this rollout has none; set prompt_text in the policy file"
            )
        return text


def _python_of(file: PolicyFile) -> Path:
    """Return the interpreter that a policy file names, if it may be started.

    Raises:
        UntrustedError: nobody has allowed it.
    """
    python = file.local_path("python")
    instead = f"leave python out of the file and export {VARIABLE}={python}"
    require_allowed(str(python), what="a program to start (python)", by=file.path, instead=instead)
    return python


def _read(file: PolicyFile) -> tuple[LerobotSpec, Checkpoint]:
    spec = LerobotSpec.of(file)
    return spec, read_checkpoint(spec.checkpoint)
