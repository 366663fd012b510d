"""Opening a policy wherever it lives: a checkpoint folder of ours, or a policy file that stands for one elsewhere.

A kind is two functions in a module that is imported when it is asked for: ``open_*(file) -> BridgePolicy`` starts or reaches the
policy, ``stamp_*(file) -> dict`` says what it is without loading weights (it may ask the server). What a policy returns as its
``stamp_fields`` is that stamp, so a screen found again by content is a screen of the same policy.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from simgap.conventions import ActionSpec, StateSpec
from simgap.policies.base import Policy
from simgap.policies.bridges.policy_file import Interface, PolicyFile, is_policy_file, read_policy_file
from simgap.policies.checkpoint import load_policy, read_card
from simgap.policies.execution import ExecutorSpec
from simgap.provenance import content_hash


class Opened(Policy, Protocol):
    """A policy that knows in which envs it may act; empty for any."""

    envs: tuple[str, ...]


class Kind(NamedTuple):
    """Where a kind of policy file is understood."""

    module: str
    opens: str
    """Name of ``(file: PolicyFile) -> Opened``."""
    stamps: str
    """Name of ``(file: PolicyFile) -> Mapping[str, Any]``, cheap beside opening."""
    reads: str
    """Name of ``(file: PolicyFile) -> Interface``, which touches nothing but the file."""


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "openpi": Kind("simgap.policies.bridges.openpi", "open_openpi", "stamp_openpi", "read_interface"),
        "vla-eval": Kind("simgap.policies.bridges.vla_eval", "open_vla_eval", "stamp_vla_eval", "read_interface"),
        "openvla": Kind("simgap.policies.bridges.openvla", "open_openvla", "stamp_openvla", "read_interface"),
        "lerobot": Kind("simgap.policies.bridges.lerobot", "open_lerobot", "stamp_lerobot", "read_interface"),
    }
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    """What a verb needs to know of a policy before it opens it."""

    hash: str
    """Of everything that decides what it does, as far as it can be known from here."""
    action_spec: ActionSpec
    state_spec: StateSpec
    cameras: tuple[str, ...]
    image_size: int
    chunk: int
    executor: ExecutorSpec
    """Recommended; a rollout with another one measures another policy."""
    envs: tuple[str, ...]
    """Envs it learnt from or was declared for; empty for any whose conventions fit."""


def identify(path: Path) -> Identity:
    """Return what a checkpoint folder or a policy file stands for. A file of a server asks the server who it is.

    Raises:
        SimgapError: it cannot be read, or nobody answers; one line that names the file.
    """
    if is_policy_file(path):
        file, kind = _file(path)
        interface: Interface = _call(kind.module, kind.reads)(file)
        return Identity(
            hash=content_hash({"kind": file.kind, **_call(kind.module, kind.stamps)(file), **interface.to_json()}),
            action_spec=interface.action_spec,
            state_spec=interface.state_spec,
            cameras=interface.cameras,
            image_size=interface.image_size,
            chunk=interface.chunk,
            executor=interface.executor,
            envs=interface.envs,
        )
    card = read_card(path)
    return Identity(
        hash=card.hash,
        action_spec=card.action_spec,
        state_spec=card.state_spec,
        cameras=card.architecture.cameras,
        image_size=card.architecture.image_size,
        chunk=card.architecture.chunk,
        executor=card.executor,
        envs=tuple(str(e) for e in card.training.get("envs", ())),
    )


def open_policy(path: Path, *, bf16: bool = False, threads: int | None = None, domain: str = "real") -> Opened:
    """Open the policy of a checkpoint folder or of a policy file.

    Args:
        path: folder that training wrote, or a policy file.
        bf16: of a checkpoint, see :func:`simgap.policies.checkpoint.load_policy`; elsewhere the policy's owner decides.
        threads: of a checkpoint, likewise.
        domain: of a checkpoint, likewise.

    Raises:
        SimgapError: it cannot be opened; one line that says why and what to do.
    """
    if not is_policy_file(path):
        return load_policy(path, bf16=bf16, threads=threads, domain=domain)
    file, kind = _file(path)
    policy: Opened = _call(kind.module, kind.opens)(file)
    return policy


def _file(path: Path) -> tuple[PolicyFile, Kind]:
    file = read_policy_file(path, KINDS)
    return file, KINDS[file.kind]


def _call(module: str, name: str) -> Callable[[PolicyFile], Any]:
    found: Callable[[PolicyFile], Any] = getattr(importlib.import_module(module), name)
    return found
