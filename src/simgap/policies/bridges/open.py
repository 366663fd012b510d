"""Opening a policy wherever it lives: a checkpoint folder of ours, or a policy file that stands for one elsewhere.

A kind is two functions in a module that is imported when it is asked for: ``open_*(file) -> BridgePolicy``
starts or reaches the policy, ``stamp_*(file) -> dict`` says what it is without loading weights (it may ask
the server). What a policy returns as its ``stamp_fields`` is that stamp, so a screen found again by content
is a screen of the same policy.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeAlias

from simgap.conventions import ActionSpec, StateSpec
from simgap.policies.base import Policy
from simgap.policies.bridges.policy_file import Interface, PolicyFile, is_policy_file, read_policy_file
from simgap.policies.checkpoint import Card, TiedPolicy, load_policy, read_card
from simgap.policies.execution import ExecutorSpec
from simgap.provenance import content_hash


class Opened(Policy, TiedPolicy, Protocol):
    """A policy that knows in which envs it may act."""


class Kind(NamedTuple):
    """Where a kind of policy file is understood."""

    module: str
    """Of this package."""
    opens: str
    """Name of ``(file: PolicyFile) -> Opened``."""
    stamps: str
    """Name of ``(file: PolicyFile) -> Mapping[str, Any]``, cheap beside opening."""
    reads: str
    """Name of ``(file: PolicyFile) -> Interface``, which touches nothing but the file."""


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "openpi": Kind("openpi", "open_openpi", "stamp_openpi", "read_interface"),
        "vla-eval": Kind("vla_eval", "open_vla_eval", "stamp_vla_eval", "read_interface"),
        "openvla": Kind("openvla", "open_openvla", "stamp_openvla", "read_interface"),
        "lerobot": Kind("lerobot", "open_lerobot", "stamp_lerobot", "read_interface"),
    }
)


class Shape(NamedTuple):
    """Of a served policy, what rollouts need of an architecture."""

    cameras: tuple[str, ...]
    image_size: int
    chunk: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ServedCard:
    """What a policy file says of its policy, under the names of a checkpoint's card."""

    hash: str
    """Of everything that decides what the policy does, as far as that can be known from here."""
    action_spec: ActionSpec
    state_spec: StateSpec
    architecture: Shape
    executor: ExecutorSpec
    """Recommended; a rollout with another one measures another policy."""
    training: Mapping[str, Any]
    """``envs``: those the policy was declared for, if any."""


AnyCard: TypeAlias = Card | ServedCard


def read_any_card(path: Path) -> AnyCard:
    """Return the card of a checkpoint folder or of a policy file. For a file of a server, the server is asked who it is.

    Raises:
        SimgapError: it cannot be read, or nobody answers; one line that names the file.
    """
    if not is_policy_file(path):
        return read_card(path)
    file, kind = _file(path)
    interface = interface_of(file)
    return ServedCard(
        hash=content_hash(
            {"kind": file.kind, **_call(kind.module, kind.stamps)(file), **interface.to_json()}
        ),
        action_spec=interface.action_spec,
        state_spec=interface.state_spec,
        architecture=Shape(cameras=interface.cameras, image_size=interface.image_size, chunk=interface.chunk),
        executor=interface.executor,
        training={"envs": list(interface.envs)},
    )


def interface_of(file: PolicyFile) -> Interface:
    """Return the conventions that a policy file states, touching nothing but the file.

    Raises:
        SimgapError: a field is missing, unknown or of the wrong kind.
    """
    kind = KINDS[file.kind]
    interface: Interface = _call(kind.module, kind.reads)(file)
    return interface


def open_policy(
    path: Path, *, bf16: bool = False, threads: int | None = None, domain: str = "real"
) -> Opened:
    """Open the policy of a checkpoint folder or of a policy file.

    Args:
        path: folder that training wrote, or a policy file.
        bf16: of a checkpoint, see :func:`simgap.policies.checkpoint.load_policy`; elsewhere the policy's
            owner decides.
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
    found: Callable[[PolicyFile], Any] = getattr(
        importlib.import_module(f"simgap.policies.bridges.{module}"), name
    )
    return found
