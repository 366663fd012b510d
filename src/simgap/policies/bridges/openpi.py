"""A policy behind openpi's websocket server (``scripts/serve_policy.py``).

The protocol, as read in Physical-Intelligence/openpi, ``src/openpi/serving/websocket_policy_server.py`` and
``packages/openpi-client/src/openpi_client/websocket_client_policy.py``:

* after the handshake the server sends one message of metadata, a map that may be empty;
* a request is one observation, a map of the keys that the served policy's transforms read, such as ``observation/image``,
  ``observation/state`` and ``prompt`` for LIBERO (``src/openpi/policies/libero_policy.py``);
* the reply is a map with ``actions`` of shape (horizon, width) and ``server_timing`` with ``infer_ms``;
* an error is the traceback in a text frame, after which the server closes with code 1011;
* ``GET /healthz`` answers on the same port.

There is no message that starts an episode, and none that seeds: a policy that samples (pi0, pi0.5) draws its noise in the server, so
a rollout cannot be repeated to the bit. The protocol does not say either which weights are served; the policy file has to.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.errors import DataError, TrialFault
from simgap.policies.base import Asked
from simgap.policies.bridges import channel, remote
from simgap.policies.bridges.channel import Channel, ChannelSpec
from simgap.policies.bridges.policy_file import Interface, PolicyFile
from simgap.policies.bridges.remote import Call, CallLog, MessageMap, Translation, checked_actions, checked_observation
from simgap.policies.bridges.wire import Dialect, pack, plain, unpack
from simgap.provenance import content_hash

WHO = "openpi server"
START = "start it (uv run scripts/serve_policy.py policy:checkpoint --policy.config=... --policy.dir=...)"
FIELDS = (*channel.FIELDS, *remote.FIELDS)


class OpenpiPolicy:
    """Implements :class:`simgap.policies.base.AskedPolicy`. B observations are B requests, in their order."""

    inpaints = False

    def __init__(self, *, interface: Interface, messages: MessageMap, spec: ChannelSpec, weights: str, calls: CallLog | None = None) -> None:
        """Connect.

        Args:
            interface: conventions of both sides.
            messages: what goes where.
            spec: where the server is.
            weights: what the server holds, in the owner's words.
            calls: where the cost of every call is kept.

        Raises:
            MachineError: nobody answers.
            ConventionError: the conventions cannot be translated.
        """
        self.action_spec, self.state_spec = interface.action_spec, interface.state_spec
        self.cameras, self.image_size, self.chunk = interface.cameras, interface.image_size, interface.chunk
        self.executor, self.envs = interface.executor, interface.envs
        self.calls = calls or CallLog()
        self._interface, self._messages, self._weights = interface, messages, weights
        self._name = f"the {WHO} at {spec.url}"
        self._translation = Translation.of(interface, server=self._name)
        self._reconnects_left = spec.reconnects
        self._channel, self.metadata = connect(spec)

    def predict(self, images: Mapping[str, NDArray[np.uint8]], state: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return ``(B, chunk, A)`` float32 in action-spec units; see :meth:`predict_asked`."""
        return self.predict_asked(images, state, [Asked()] * len(state))

    def predict_asked(self, images: Mapping[str, NDArray[np.uint8]], state: NDArray[np.float32], asked: Sequence[Asked]) -> NDArray[np.float32]:
        """Return ``(B, chunk, A)`` float32, one request a row.

        Raises:
            ConventionError: an observation that does not fit, or a chunk of another shape than the policy file says.
            DataError: a reply that cannot be read, or holds no finite numbers.
            TrialFault: the server failed, was lost, or did not answer in time.
        """
        checked_observation(self._interface, images, state, asked, server=self._name)
        chunks = [self._one({c: images[c][row] for c in self.cameras}, state[row], one) for row, one in enumerate(asked)]
        return np.stack(chunks) if chunks else np.zeros((0, self.chunk, len(self.action_spec)), dtype=np.float32)

    def stamp_fields(self) -> Mapping[str, Any]:
        """Return who serves what from where, and what every number means."""
        return stamp(self._channel.spec, self._weights, self.metadata, self._interface, self._messages)

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def _one(self, images: Mapping[str, NDArray[np.uint8]], state: NDArray[np.float32], asked: Asked) -> NDArray[np.float32]:
        message = pack(self._messages.message(images, self._translation.to_them(state), asked.goal), Dialect.OPENPI)
        data, seconds = self._ask(message)
        reply = unpack(data, who=self._name)
        actions = checked_actions(reply, self._messages.actions, chunk=self.chunk, spec=self._interface.their_action_spec, server=self._name)
        self.calls.calls.append(Call(round_trip_s=seconds, server_s=_infer_s(reply)))
        return self._translation.to_us(actions, state)

    def _ask(self, message: bytes) -> tuple[bytes, float]:
        """Ask over a connection that may have been lost since the last request; a request that was sent is never sent again."""
        if not self._channel.is_alive:
            if self._reconnects_left < 1:
                raise TrialFault(f"{self._name} closed the connection; start it again, or allow reconnects in the policy file")
            self._reconnects_left -= 1
            self._channel, metadata = connect(self._channel.spec)
            if plain(metadata) != plain(self.metadata):
                raise TrialFault(f"{self._name} came back with other metadata: it serves another policy now; screen that one by itself")
        return self._channel.ask(message, self.calls.clock)


def connect(spec: ChannelSpec) -> tuple[Channel, Mapping[str, Any]]:
    """Connect and return the connection and the server's metadata.

    Raises:
        MachineError: nobody answers.
        DataError: the first message is no metadata.
        TrialFault: no first message in time.
    """
    made = Channel(spec, who=WHO, start=START)
    try:
        metadata = unpack(made.receive(), who=f"the {WHO} at {spec.url}")
        if not isinstance(metadata, dict):
            raise DataError(f"the {WHO} at {spec.url} began with a {type(metadata).__name__}, not with a map of metadata; is another server at that port?")
    except BaseException:
        made.close()
        raise
    return made, metadata


def stamp(spec: ChannelSpec, weights: str, metadata: Mapping[str, Any], interface: Interface, messages: MessageMap) -> dict[str, Any]:
    """Return the stamp of a served policy."""
    return {
        "bridge": "openpi",
        "url": spec.url,
        "weights": hashlib.sha256(weights.encode()).hexdigest(),
        "weights_said": weights,
        "server": content_hash(plain(metadata)),
        "map": remote.map_hash(interface, messages),
        "cameras": list(interface.cameras),
        "image_size": interface.image_size,
        "chunk": interface.chunk,
        "noise": "drawn by the server",
    }


def read_interface(file: PolicyFile) -> Interface:
    """Return the conventions of a policy file of this kind.

    Raises:
        UsageError: a field is missing, unknown or of the wrong kind.
    """
    file.require_known(FIELDS)
    return file.interface(remote.read_map(file).cameras)


def open_openpi(file: PolicyFile) -> OpenpiPolicy:
    """Return the policy of a policy file, connected.

    Raises:
        SimgapError: the file, the conventions or the server; one line that says which.
    """
    return OpenpiPolicy(interface=read_interface(file), messages=remote.read_map(file), spec=ChannelSpec.of(file), weights=file.text("weights"))


def stamp_openpi(file: PolicyFile) -> dict[str, Any]:
    """Return the stamp of a policy file's policy; asks the server who it is.

    Raises:
        SimgapError: as :func:`open_openpi`.
    """
    policy = open_openpi(file)
    policy.close()
    return dict(policy.stamp_fields())


def _infer_s(reply: Any) -> float | None:
    """Return the seconds that the server says its policy took, where it says so in a sane way."""
    timing = reply.get("server_timing")
    milliseconds = timing.get("infer_ms") if isinstance(timing, Mapping) else None
    return float(milliseconds) / 1000.0 if isinstance(milliseconds, int | float) and np.isfinite(milliseconds) else None
