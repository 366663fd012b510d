"""A policy behind openpi's websocket server (``scripts/serve_policy.py``).

The protocol, as read in Physical-Intelligence/openpi, ``src/openpi/serving/websocket_policy_server.py`` and
``packages/openpi-client/src/openpi_client/websocket_client_policy.py``:

* after the handshake the server sends one message of metadata, a map that may be empty;
* a request is one observation, a map of the keys that the served policy's transforms read, such as ``observation/image``,
  ``observation/state`` and ``prompt`` for LIBERO (``src/openpi/policies/libero_policy.py``);
* the reply is a map with ``actions`` of shape (horizon, width) and ``server_timing`` with ``infer_ms``;
* an error is the traceback in a text frame, after which the server closes with code 1011;
* ``GET /healthz`` answers on the same port.

There is no message that starts an episode, and none that seeds: a policy that samples (pi0, pi0.5) draws its
noise in the server, so a rollout cannot be repeated to the bit. The protocol does not say either which
weights are served; the policy file has to.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from simgap.errors import DataError, TrialFault
from simgap.policies.base import Asked
from simgap.policies.bridges import channel, remote
from simgap.policies.bridges.channel import Channel, ChannelSpec
from simgap.policies.bridges.policy_file import Interface, PolicyFile
from simgap.policies.bridges.remote import CallLog, read_map
from simgap.policies.bridges.served import Reply, Served, ServedPolicy
from simgap.policies.bridges.wire import Dialect, pack, plain, unpack

WHO = "openpi server"
START = "start it (uv run scripts/serve_policy.py policy:checkpoint --policy.config=... --policy.dir=...)"
FIELDS = (*channel.FIELDS, *remote.FIELDS)
_METADATA_BYTES = 1 << 20


class OpenpiPolicy(ServedPolicy):
    """A policy behind one connection; every request stands for itself."""

    protocol = "openpi"

    def __init__(self, served: Served, *, calls: CallLog | None = None) -> None:
        """Connect.

        Raises:
            MachineError: nobody answers.
            DataError: the server does not begin with metadata.
            ConventionError: the conventions cannot be translated.
        """
        super().__init__(served, name=f"the {WHO} at {served.spec.url}", calls=calls)
        self._reconnects_left = served.spec.reconnects
        self._channel, self._metadata = connect(served.spec)

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The server's first message."""
        return self._metadata

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def _exchange(self, message: dict[str, Any], asked: Asked) -> Reply:
        """Ask over a connection that may have been lost since the last request; a request that was sent is never sent again."""
        if not self._channel.is_alive:
            self._reconnect()
        data, seconds = self._channel.ask(pack(message, Dialect.OPENPI), self.calls.clock)
        reply = unpack(data, who=self._name)
        if not isinstance(reply, dict):
            raise DataError(f"{self._name} sent a {type(reply).__name__}; expected a map with the actions")
        return Reply(message=reply, round_trip_s=seconds, server_s=_infer_s(reply))

    def _reconnect(self) -> None:
        if self._reconnects_left < 1:
            raise TrialFault(
                f"{self._name} closed the connection; start it again, or allow reconnects in the policy file"
            )
        self._reconnects_left -= 1
        self._channel, metadata = connect(self._served.spec)
        if plain(metadata) != plain(self._metadata):
            self._channel.close()
            raise TrialFault(
                f"{self._name} came back with other metadata: it serves another policy now; screen that one"
                " by itself"
            )


def connect(spec: ChannelSpec) -> tuple[Channel, Mapping[str, Any]]:
    """Connect and return the connection and the server's metadata.

    Raises:
        MachineError: nobody answers.
        DataError: the first message is no metadata.
        TrialFault: no first message in time.
    """
    made = Channel(spec, who=WHO, start=START)
    try:
        told = made.receive()
        if len(told) > _METADATA_BYTES:
            raise DataError(
                f"the {WHO} at {spec.url} began with {len(told)} bytes; expected metadata of at most"
                f" {_METADATA_BYTES}"
            )
        metadata = unpack(told, who=f"the {WHO} at {spec.url}")
        if not isinstance(metadata, dict):
            raise DataError(
                f"the {WHO} at {spec.url} began with a {type(metadata).__name__}, not with a map of metadata;"
                " is another server at that port?"
            )
    except BaseException:
        made.close()
        raise
    return made, metadata


def read_interface(file: PolicyFile) -> Interface:
    """Return the conventions of a policy file of this kind.

    Raises:
        UsageError: a field is missing, unknown or of the wrong kind.
    """
    file.require_known(FIELDS)
    return file.interface(read_map(file).cameras)


def open_openpi(file: PolicyFile) -> OpenpiPolicy:
    """Return the policy of a policy file, connected.

    Raises:
        SimgapError: the file, the conventions or the server; one line that says which.
    """
    return OpenpiPolicy(
        Served(
            interface=read_interface(file),
            messages=read_map(file),
            spec=ChannelSpec.of(file),
            weights=file.text("weights"),
        )
    )


def stamp_openpi(file: PolicyFile) -> dict[str, Any]:
    """Return the stamp of a policy file's policy; asks the server who it is.

    Raises:
        SimgapError: as :func:`open_openpi`.
    """
    policy = open_openpi(file)
    policy.close()
    return policy.stamp_fields()


def _infer_s(reply: Mapping[str, Any]) -> float | None:
    """Return the seconds that the server says its policy took, where it says so in a sane way."""
    timing = reply.get("server_timing")
    milliseconds = timing.get("infer_ms") if isinstance(timing, Mapping) else None
    if (
        isinstance(milliseconds, bool)
        or not isinstance(milliseconds, int | float)
        or not 0 <= milliseconds < math.inf
    ):
        return None
    return float(milliseconds) / 1000.0
