"""A checkpoint folder: weights, and a card that says what they mean and where they come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save

from simgap.bounds import DAMAGED, SAFETENSORS_BYTES, parsing, require_regular, said
from simgap.conventions import ActionSpec, StateSpec, VectorSpec, require_same
from simgap.errors import ConventionError, DataError, UsageError
from simgap.policies.base import Policy
from simgap.policies.cnn import ChunkNet, CnnSpec
from simgap.policies.execution import ExecutorSpec, parse_executor
from simgap.policies.inference import CnnPolicy
from simgap.policies.normaliser import Normaliser
from simgap.provenance import canonical_json, content_hash, file_hash, read_json, write_atomic

CARD = "card.json"
WEIGHTS = "weights.safetensors"
KEPT = "kept"
"""Folder of checkpoints along the way of a training, inside that of the final one."""
SCHEMA = 1


class TiedPolicy(Protocol):
    """A policy that may be tied to the envs it learnt from or was declared for; empty for any."""

    envs: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Card:
    """What a checkpoint is: conventions, shape, normaliser, data, training, parent."""

    action_spec: ActionSpec
    state_spec: StateSpec
    architecture: CnnSpec
    normaliser: Normaliser
    data: tuple[str, ...]
    """Fingerprints of the datasets, in mixture order."""
    executor: ExecutorSpec
    """Recommended; a rollout with another one measures another policy."""
    training: Mapping[str, Any] = field(default_factory=dict)
    """Spec, seeds, mixture asked and drawn, losses."""
    parent: str | None = None
    """Weights hash of the checkpoint this one was fine-tuned from."""
    weights_hash: str = ""
    domains: tuple[str, ...] = ()
    """Names of the inputs that tell where a sample comes from; empty for a policy that is not told."""
    goals: tuple[str, ...] = ()
    """Names of the inputs that tell what is to be done; empty for a policy that is not told."""

    def __post_init__(self) -> None:
        for what, fitted, spec in (
            ("state", self.normaliser.state, self.state_spec),
            ("action", self.normaliser.action, self.action_spec),
        ):
            if fitted.names != spec.names:
                missing = [n for n in spec.names if n not in fitted.names]
                told = (
                    f"lacks {missing}"
                    if missing
                    else f"has {list(fitted.names)} in another order or beside them"
                )
                raise DataError(
                    f"the {what} convention of the card has {list(spec.names)} and its normaliser {told}:"
                    " numbers would get another joint's scale; restore the checkpoint, or retrain"
                )

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "schema": SCHEMA,
            "action_spec": self.action_spec.to_json(),
            "state_spec": self.state_spec.to_json(),
            "architecture": self.architecture.to_json(),
            "normaliser": self.normaliser.to_json(),
            "normaliser_hash": self.normaliser.hash,
            "data": list(self.data),
            "executor": str(self.executor),
            "training": dict(self.training),
            "parent": self.parent,
            "weights_hash": self.weights_hash,
            **({"domains": list(self.domains)} if self.domains else {}),
            **({"goals": list(self.goals)} if self.goals else {}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Card:
        """Rebuild from :meth:`to_json`.

        Raises:
            DataError: unknown schema, a missing field, or a normaliser that does not match its hash.
        """
        if data.get("schema") != SCHEMA:
            raise DataError(
                f"card has schema {data.get('schema')!r}, this version reads {SCHEMA}; use the simgap version"
                " that wrote it or retrain"
            )
        try:
            card = cls(
                action_spec=VectorSpec.from_json(data["action_spec"]),
                state_spec=VectorSpec.from_json(data["state_spec"]),
                architecture=CnnSpec.from_json(data["architecture"]),
                normaliser=Normaliser.from_json(data["normaliser"]),
                data=tuple(data["data"]),
                executor=parse_executor(data["executor"]),
                training=dict(data["training"]),
                parent=data["parent"],
                weights_hash=str(data["weights_hash"]),
                domains=tuple(str(d) for d in data.get("domains", ())),
                goals=tuple(str(g) for g in data.get("goals", ())),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"card lacks or garbles a field ({error!r}); restore the checkpoint or retrain"
            ) from error
        envs = card.training.get("envs", [])
        if not isinstance(envs, list) or not all(isinstance(e, str) for e in envs):
            raise DataError(
                f"card says envs {envs!r:.60} in its training, expected a list of names; restore the"
                " checkpoint or retrain"
            )
        if card.normaliser.hash != data["normaliser_hash"]:
            raise DataError(
                "the normaliser in the card does not match its hash: the card was edited; restore the"
                " checkpoint or retrain"
            )
        return card

    @property
    def hash(self) -> str:
        """Content hash of the whole card, weights included through their hash."""
        return content_hash(self.to_json())

    def tested_hash(self, executor: ExecutorSpec) -> str:
        """Return the hash of what a rollout tests: these weights under that executor, which need not be the recommended one."""
        return content_hash([self.hash, str(executor)])


def write_checkpoint(path: Path, card: Card, weights: Mapping[str, torch.Tensor]) -> Card:
    """Write weights, then the card; a folder without a card is no checkpoint, so a kill leaves none that is half written.

    Returns:
        The card with the weights hash filled in.
    """
    (path / CARD).unlink(missing_ok=True)
    write_atomic(path / WEIGHTS, save({k: v.detach().cpu().contiguous() for k, v in weights.items()}))
    finished = _with_weights_hash(card, file_hash(path / WEIGHTS))
    write_atomic(path / CARD, canonical_json(finished.to_json()))
    return finished


def read_card(path: Path) -> Card:
    """Read the card of a checkpoint folder.

    Raises:
        DataError: missing, corrupt, or of an unknown schema; one line that names the file.
    """
    file = path / CARD
    if path.is_file():
        raise DataError(
            f"{path} is a file, and a checkpoint is the folder that `simgap train` wrote; give the folder: a"
            " policy elsewhere has no weights here"
        )
    data = read_json(file)
    if not isinstance(data, dict):
        raise DataError(
            f"{file} holds a {type(data).__name__}, not a card; restore the checkpoint or retrain"
        )
    try:
        with parsing(file, "expected the card of a checkpoint; restore it or retrain"):
            return Card.from_json(data)
    except (DataError, ConventionError, UsageError) as error:
        raise DataError(f"{file}: {error}") from error


def load_policy(
    path: Path,
    *,
    bf16: bool = False,
    threads: int | None = None,
    block: int | None = None,
    device: str = "cpu",
    domain: str = "real",
    goal: str | None = None,
) -> CnnPolicy:
    """Load a policy for inference.

    Args:
        path: checkpoint folder.
        bf16: run the network in bfloat16 instead of float32.
        threads: torch threads during a prediction; restored afterwards. None leaves torch alone.
        block: predict in blocks of exactly this many rows, padded, so that a row's result does not depend on
            how many others came with it. None predicts a batch as it comes (differences of about 1e-6 between
            batch sizes).
        device: torch device.
        domain: what a policy that was told where its samples come from is told now; a simulator says
            ``"sim"``. Others ignore it.
        goal: what a policy with goals does where nobody says it with the observation. Others ignore it.

    Raises:
        DataError: a file is missing, corrupt, of an unknown schema, or the weights are not the ones of the
            card.
    """
    card = read_card(path)
    require_declared(path, card)
    network = card.architecture.build()
    load_weights(network, path, card)
    return CnnPolicy(
        network=network.to(device),
        normaliser=card.normaliser,
        action_spec=card.action_spec,
        state_spec=card.state_spec,
        executor=card.executor,
        provenance={"weights": card.weights_hash, "data": list(card.data), "parent": card.parent},
        domains=card.domains,
        domain=domain,
        goals=card.goals,
        goal=goal,
        envs=tuple(str(e) for e in card.training.get("envs", ())),
        bf16=bf16,
        threads=threads,
        block=block,
    )


def require_declared(path: Path, card: Card) -> None:
    """Raise unless the weights are as large as the network that the card declares, before that network is made.

    Raises:
        DataError: names both sizes.
    """
    file = path / WEIGHTS
    if not file.is_file():
        raise DataError(f"{file} is missing; restore the checkpoint or retrain")
    with torch.device("meta"):
        declared = sum(v.numel() for v in card.architecture.build().state_dict().values())
    size = require_regular(file, SAFETENSORS_BYTES)
    if declared > size:  # two bytes a number, at least
        raise DataError(
            f"{file} has {size} bytes, its card declares a network of {declared} numbers: the card was"
            " edited; restore or retrain"
        )


def load_weights(network: ChunkNet, path: Path, card: Card) -> None:
    """Load a checkpoint's weights into a network of its architecture.

    Raises:
        DataError: the file is missing, damaged, or not the one of the card.
    """
    file = path / WEIGHTS
    if not file.is_file():
        raise DataError(f"{file} is missing; restore the checkpoint or retrain")
    found = file_hash(file)
    if found != card.weights_hash:
        raise DataError(
            f"{file} has hash {found[:12]}, its card says {card.weights_hash[:12]}: files of two checkpoints,"
            " or damage; restore or retrain"
        )
    try:
        network.load_state_dict(load_file(file))
    except (SafetensorError, *DAMAGED) as error:
        raise DataError(
            f"{file} does not fit the architecture of its card ({said(error)}); restore or retrain"
        ) from error


def require_matches(
    policy: Policy,
    action_spec: ActionSpec,
    state_spec: StateSpec,
    cameras: Sequence[str],
    image_size: int,
    *,
    other: str = "env",
) -> None:
    """Raise unless a policy fits the thing it is about to drive.

    Raises:
        ConventionError: names the first difference and both sides.
    """
    require_same(policy.action_spec, action_spec, what="actions", ours_name="policy", theirs_name=other)
    require_same(policy.state_spec, state_spec, what="states", ours_name="policy", theirs_name=other)
    require_cameras(policy.cameras, cameras, other=other)
    if policy.image_size != image_size:
        raise ConventionError(
            f"the policy sees {policy.image_size} px frames, the {other} gives {image_size} px; render at the"
            " policy's size or retrain"
        )


def require_cameras(seen: Sequence[str], there: Sequence[str], *, other: str = "env") -> None:
    """Raise unless everything that a policy sees is there.

    Raises:
        ConventionError: names both sides.
    """
    if missing := [c for c in seen if c not in there]:
        raise ConventionError(
            f"the policy sees cameras {list(seen)}, the {other} has {list(there)}: {missing} missing; rename"
            " or retrain"
        )


def require_env(envs: Sequence[str], env: str) -> None:
    """Raise where a policy learnt from other envs only than the one it is about to act in, which may have the very same conventions.

    A policy that learnt from recorded data names no env and may act anywhere its convention allows.

    Raises:
        UsageError: names both.
    """
    if envs and env not in envs:
        raise UsageError(
            f"the checkpoint learnt from episodes of env {', '.join(envs)} and is about to act in env {env}; "
            f"use it with --env {envs[0]}, or train on episodes of {env}"
        )


def _with_weights_hash(card: Card, weights_hash: str) -> Card:
    return Card.from_json(card.to_json() | {"weights_hash": weights_hash})
