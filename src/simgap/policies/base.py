"""The contract of a policy: observations in, chunks of future actions out, convention included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from simgap.conventions import ActionSpec, StateSpec
from simgap.errors import UsageError


class Policy(Protocol):
    """Maps a batch of observations to a batch of action chunks. Stateless: memory belongs to the executor."""

    action_spec: ActionSpec
    state_spec: StateSpec
    cameras: tuple[str, ...]
    image_size: int
    chunk: int
    """Number of future control steps in a chunk; entry 0 is for the step of the observation."""

    def predict(
        self, images: Mapping[str, NDArray[np.uint8]], state: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Return chunks in action-spec units.

        Args:
            images: camera -> ``(B, H, W, 3)`` uint8.
            state: ``(B, S)`` float32 in state-spec units.

        Returns:
            ``(B, chunk, A)`` float32, already denormalised.
        """
        ...

    def stamp_fields(self) -> Mapping[str, Any]:
        """Return weights hash, normaliser hash, data fingerprint and the like, for provenance stamps."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Prefix:
    """What is already decided of the chunk that is asked for: the rest of the chunk before, moved to the new chunk's steps."""

    actions: NDArray[np.float32]
    """``(chunk, A)`` in action-spec units; rows from ``known`` on mean nothing."""
    frozen: int
    """Entries that will be sent before the new chunk arrives."""
    known: int
    """Entries that the chunk before still has."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Asked:
    """What comes with one observation besides pixels and encoders."""

    seed: int = 0
    """Of the episode. A policy that needs noise draws it from (seed, step) alone, so outcomes do not depend on who else is asked."""
    step: int = 0
    goal: str | None = None
    """The task in words, for a policy that was trained on several."""
    prefix: Prefix | None = None


@runtime_checkable
class AskedPolicy(Policy, Protocol):
    """A policy that takes more than the observation."""

    @property
    def inpaints(self) -> bool:
        """Whether a chunk can go on from a :class:`Prefix`."""
        ...

    def predict_asked(
        self, images: Mapping[str, NDArray[np.uint8]], state: NDArray[np.float32], asked: Sequence[Asked]
    ) -> NDArray[np.float32]:
        """Return chunks like :meth:`Policy.predict`, with one ``Asked`` for each row."""
        ...


@runtime_checkable
class WatchingPolicy(AskedPolicy, Protocol):
    """A policy whose answers rest on earlier control steps of the episode too; it keeps them apart by ``Asked.seed`` and refuses a gap."""

    @property
    def watches(self) -> bool:
        """Whether it has to see every control step: by being asked, or by :meth:`watch` at the steps at which nothing is asked."""
        ...

    @property
    def is_executor(self) -> bool:
        """Whether a chunk is the one action to send now, because the policy brings an executor of its own."""
        ...

    def watch(
        self, images: Mapping[str, NDArray[np.uint8]], state: NDArray[np.float32], asked: Sequence[Asked]
    ) -> None:
        """Show a step at which nothing is asked, with the arguments of :meth:`AskedPolicy.predict_asked`."""
        ...


def ask(
    policy: Policy,
    images: Mapping[str, NDArray[np.uint8]],
    state: NDArray[np.float32],
    asked: Sequence[Asked],
) -> NDArray[np.float32]:
    """Return chunks from any policy; one that takes only observations is given only those.

    Raises:
        UsageError: a prefix for a policy that cannot go on from one.
    """
    if isinstance(policy, AskedPolicy):
        return policy.predict_asked(images, state, asked)
    if any(a.prefix is not None for a in asked):
        raise UsageError(
            "the executor wants chunks that go on from the one before, and this policy cannot; use"
            " receding(k, delay=d), or train a flow head"
        )
    return policy.predict(images, state)
