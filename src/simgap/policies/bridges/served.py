"""The half of a served policy that does not depend on the protocol: what comes in and goes out, checked and translated."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simgap.policies.base import Asked
from simgap.policies.bridges.channel import ChannelSpec
from simgap.policies.bridges.policy_file import Interface
from simgap.policies.bridges.remote import (
    Call,
    CallLog,
    MessageMap,
    Translation,
    checked_actions,
    checked_observation,
    map_hash,
)
from simgap.policies.bridges.wire import plain
from simgap.provenance import content_hash


class Reply(NamedTuple):
    """What came back for one observation."""

    message: Mapping[str, Any]
    round_trip_s: float
    server_s: float | None
    """What the server says its policy took, where it says so."""


class Served(NamedTuple):
    """What is served and how to speak to it: all that a policy file says."""

    interface: Interface
    messages: MessageMap
    spec: ChannelSpec
    weights: str
    """What the server holds, in the owner's words: neither protocol says it."""


class ServedPolicy(ABC):
    """Implements :class:`simgap.policies.base.AskedPolicy`. B observations are B requests, in their order."""

    protocol: str

    def __init__(self, served: Served, *, name: str, calls: CallLog | None = None) -> None:
        """Take what the policy file says; connecting is the protocol's.

        Raises:
            ConventionError: the two conventions cannot be translated.
        """
        interface = served.interface
        self.action_spec, self.state_spec = interface.action_spec, interface.state_spec
        self.cameras, self.image_size, self.chunk = interface.cameras, interface.image_size, interface.chunk
        self.executor, self.envs = interface.executor, interface.envs
        self.calls = calls or CallLog()
        """What every call cost, measured here."""
        self._served, self._name = served, name
        self._translation = Translation.of(interface, server=name)

    @property
    def inpaints(self) -> bool:
        """Whether a chunk can go on from a prefix: neither protocol carries one."""
        return False

    @property
    @abstractmethod
    def metadata(self) -> Mapping[str, Any]:
        """What the server said of itself when the connection was made."""

    @abstractmethod
    def close(self) -> None:
        """Close every connection."""

    @abstractmethod
    def _exchange(self, message: dict[str, Any], asked: Asked) -> Reply:
        """Return the server's answer to one observation."""

    def predict(
        self, images: Mapping[str, NDArray[np.uint8]], state: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Return ``(B, chunk, A)`` float32 in action-spec units; see :meth:`predict_asked`."""
        return self.predict_asked(images, state, [Asked()] * len(state))

    def predict_asked(
        self, images: Mapping[str, NDArray[np.uint8]], state: NDArray[np.float32], asked: Sequence[Asked]
    ) -> NDArray[np.float32]:
        """Return ``(B, chunk, A)`` float32 in action-spec units, one request a row.

        Raises:
            ConventionError: an observation that does not fit, or a chunk of another shape than the policy
                file says.
            DataError: a reply that cannot be read, or holds a number that is not finite.
            TrialFault: the server failed, was lost, or did not answer in time.
        """
        checked_observation(self._served.interface, images, state, asked, server=self._name)
        chunks = [
            self._one({c: images[c][row] for c in self.cameras}, state[row], one)
            for row, one in enumerate(asked)
        ]
        return (
            np.stack(chunks) if chunks else np.zeros((0, self.chunk, len(self.action_spec)), dtype=np.float32)
        )

    def stamp_fields(self) -> dict[str, Any]:
        """Return who serves what from where, and what every number means."""
        interface, messages, spec, weights = self._served
        return {
            "bridge": self.protocol,
            "url": spec.url,
            "weights": weights,
            "server": content_hash(plain(self.metadata)),
            "map": map_hash(interface, messages),
            "cameras": list(interface.cameras),
            "image_size": interface.image_size,
            "chunk": interface.chunk,
            "noise": "drawn by the server",
        }

    def _one(
        self, images: Mapping[str, NDArray[np.uint8]], state: NDArray[np.float32], asked: Asked
    ) -> NDArray[np.float32]:
        messages, interface = self._served.messages, self._served.interface
        reply = self._exchange(messages.message(images, self._translation.to_them(state), asked.goal), asked)
        actions = checked_actions(
            reply.message,
            messages.actions,
            chunk=self.chunk,
            spec=interface.their_action_spec,
            server=self._name,
        )
        self.calls.calls.append(Call(round_trip_s=reply.round_trip_s, server_s=reply.server_s))
        return self._translation.to_us(actions, state)
