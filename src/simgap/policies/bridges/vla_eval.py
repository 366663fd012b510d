"""A policy behind a model server of vla-eval (allenai/vla-evaluation-harness, 0.8).

The protocol, as read in ``vla_eval/model_servers/{serve,predict,openvla}.py``, ``vla_eval/connection.py``,
``vla_eval/protocol/{messages,numpy_codec}.py`` and ``vla_eval/runners/sync_runner.py``, and tried against
that server (``tests/compat/check_served.py``):

* every frame is msgpack of ``type``, ``payload``, ``seq`` and ``timestamp``;
* the client says ``hello`` and the server answers with ``hello``: ``harness_version``, ``protocol_version`` (1), ``model_server`` and,
  where the model declares them, ``action_spec``, ``observation_spec`` and ``observation_params``. A server
  that names another version of the protocol is refused; one that names none, as early ones did, is not;
* ``episode_start`` (``{"task": {...}}``) and ``episode_end`` have no answer; an error of the start comes as the answer to the next
  observation;
* an ``observation`` is answered by an ``action`` with the same ``seq`` or by an ``error`` that leaves the connection open;
* a server with ``chunk_size`` set keeps chunks to itself and hands out one action for each observation: it is its own executor. Without
  it the whole array of the model comes. Either way state belongs to a connection, so every episode here has
  its own.

The harness compares declared specs and only logs what differs. Here a difference stops the run.
"""

from __future__ import annotations

import itertools
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.errors import ConventionError, DataError, TrialFault
from simgap.policies.base import Asked
from simgap.policies.bridges import channel, remote
from simgap.policies.bridges.channel import Channel, ChannelSpec, last_line
from simgap.policies.bridges.policy_file import Interface, PolicyFile
from simgap.policies.bridges.remote import CallLog, read_map
from simgap.policies.bridges.served import Reply, Served, ServedPolicy
from simgap.policies.bridges.vla_eval_specs import require_declared
from simgap.policies.bridges.wire import Dialect, pack, plain, unpack
from simgap.provenance import library_version

WHO = "vla-eval model server"
START = "start it (vla-eval serve --config ...)"
PROTOCOL_VERSION = 1
FIELDS = (*channel.FIELDS, *remote.FIELDS, "sessions", "components")
_GREETING_BYTES = 1 << 20
_TYPES = ("hello", "observation", "action", "episode_start", "episode_end", "error")


class Session:
    """One connection, which is one episode at a time on the server's side."""

    def __init__(self, spec: ChannelSpec) -> None:
        """Connect and exchange greetings.

        Raises:
            MachineError: nobody answers.
            DataError: the answer is no greeting.
            ConventionError: another version of the protocol.
        """
        self._name = f"the {WHO} at {spec.url}"
        self._channel = Channel(spec, who=WHO, start=START)
        self._seq = 0
        self.step = -1
        """Step of the last observation of the running episode."""
        self.is_used = False
        try:
            seq = self._send(
                "hello",
                {
                    "harness_version": f"simgap {library_version('simgap')}",
                    "protocol_version": PROTOCOL_VERSION,
                },
            )
            told = self._channel.receive()
            if len(told) > _GREETING_BYTES:
                raise DataError(
                    f"{self._name} greets with {len(told)} bytes; at most {_GREETING_BYTES} expected"
                )
            self.greeting = self._payload("hello", told, seq)
            version = self.greeting.get("protocol_version", PROTOCOL_VERSION)
            if type(version) is not int or version != PROTOCOL_VERSION:
                raise ConventionError(
                    f"{self._name} speaks protocol version {_glimpse(version)}, this one is"
                    f" {PROTOCOL_VERSION}; use a server of vla-eval 0.8"
                )
        except BaseException:
            self.close()
            raise

    @property
    def is_alive(self) -> bool:
        """Whether the connection still stands."""
        return self._channel.is_alive

    def start(self, task: str | None) -> None:
        """Tell the server that an episode begins, and that the one before it, if any, is over."""
        if self.is_used:
            self._send("episode_end", {})
        self._send("episode_start", {"task": {} if task is None else {"name": task}})
        self.is_used, self.step = True, -1

    def ask(self, message: dict[str, Any], log: CallLog) -> Reply:
        """Return the answer to an observation.

        Raises:
            TrialFault: an error of the server, a lost connection, or no answer in time.
            DataError: no message, or the answer to another question.
        """
        self._channel.require_silence()
        began = log.clock()
        seq = self._send("observation", message)
        data = self._channel.receive()
        seconds = log.clock() - began
        try:
            payload = self._payload("action", data, seq)
        except BaseException:
            self.close()  # an error may be of the start, and the answer to the observation still to come
            raise
        if payload.get("terminate_episode") is True:
            raise DataError(
                f"{self._name} ends the episode by itself, and here only the judge does; serve a policy that"
                " goes on acting"
            )
        return Reply(message=payload, round_trip_s=seconds, server_s=None)

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def _send(self, kind: str, payload: Mapping[str, Any]) -> int:
        self._seq += 1
        self._channel.send(
            pack(
                {"type": kind, "payload": payload, "seq": self._seq, "timestamp": time.time()},
                Dialect.VLA_EVAL,
            )
        )
        return self._seq

    def _payload(self, wanted: str, data: bytes, seq: int) -> dict[str, Any]:
        message = unpack(data, who=self._name)
        kind, payload = (
            (message.get("type"), message.get("payload")) if isinstance(message, dict) else (None, None)
        )
        if not isinstance(kind, str) or kind not in _TYPES or not isinstance(payload, dict):
            raise DataError(
                f"{self._name} sent {_glimpse(message)}, which is no message of the protocol; is another"
                " server at that port?"
            )
        if kind == "error":
            raise TrialFault(
                f"{self._name} failed: {last_line(str(payload.get('error', 'it did not say why'))[:10_000])};"
                " its traceback is in its own log"
            )
        if kind != wanted:
            raise DataError(
                f"{self._name} sent {kind!r} where {wanted!r} was to come; is its version that of the"
                " protocol?"
            )
        answered = message.get("seq")
        if type(answered) is not int or answered != seq:
            raise DataError(
                f"{self._name} answered question {_glimpse(answered)} when {seq} was asked; an action of"
                " another moment must not be sent"
            )
        return payload


class VlaEvalPolicy(ServedPolicy):
    """A policy with a connection for every running episode, told apart by the episode's seed; step 0 begins an episode.

    Plain :meth:`predict`, which names no episode, begins one for every row.
    """

    protocol = "vla-eval"

    def __init__(
        self,
        served: Served,
        *,
        sessions: int = 16,
        components: Sequence[str] = (),
        calls: CallLog | None = None,
    ) -> None:
        """Connect, and compare what the server declares with the policy file.

        Args:
            served: what the policy file says.
            sessions: episodes that may run at the same time.
            components: order in which the server's declared components make up an action; empty for the order
                declared.
            calls: where the cost of every call is kept.

        Raises:
            MachineError: nobody answers.
            ConventionError: the server declares something else than the file says, or the conventions cannot
                be translated.
        """
        super().__init__(served, name=f"the {WHO} at {served.spec.url}", calls=calls)
        self._most, self._reconnects_left = sessions, served.spec.reconnects
        self._first: Session | None = Session(served.spec)
        self._metadata = self._first.greeting
        self._sessions: OrderedDict[int, Session] = OrderedDict()
        try:
            require_declared(self._metadata, served, components, server=self._name)
        except ConventionError:
            self._first.close()
            raise

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The server's greeting."""
        return self._metadata

    @property
    def watches(self) -> bool:
        """Whether every control step has to be asked: a server that hands out one action at a time counts them."""
        return self.chunk == 1

    @property
    def is_executor(self) -> bool:
        """Whether the server may execute chunks of its own, which is so where it hands out one action at a time."""
        return self.chunk == 1

    def watch(
        self, images: Mapping[str, NDArray[np.uint8]], state: NDArray[np.float32], asked: Sequence[Asked]
    ) -> None:
        """Show a step at which nothing is asked: the protocol knows no such thing, so it is asked and the answer dropped."""
        self.predict_asked(images, state, asked)

    def close(self) -> None:
        """Close every connection."""
        for session in (*self._sessions.values(), *([] if self._first is None else [self._first])):
            session.close()

    def _exchange(self, message: dict[str, Any], asked: Asked) -> Reply:
        session = self._begun(asked) if asked.step == 0 else self._running(asked)
        session.step = asked.step
        self._sessions.move_to_end(asked.seed)
        return session.ask(message, self.calls)

    def _begun(self, asked: Asked) -> Session:
        """Return the connection of a new episode: its own, a fresh one, or that of the episode longest silent."""
        session = self._sessions.pop(asked.seed, None) or self._first
        self._first = None
        if session is None:
            session = (
                self._connected()
                if len(self._sessions) < self._most
                else self._sessions.popitem(last=False)[1]
            )
        if not session.is_alive:
            if self._reconnects_left < 1:
                raise TrialFault(
                    f"{self._name} closed a connection; start it again, or allow reconnects in the policy"
                    " file"
                )
            self._reconnects_left -= 1
            session = self._connected()
        session.start(asked.goal)
        self._sessions[asked.seed] = session
        return session

    def _running(self, asked: Asked) -> Session:
        session = self._sessions.get(asked.seed)
        if session is None or not session.is_alive:
            raise TrialFault(
                f"{self._name} has no connection for episode {asked.seed} at step {asked.step}: it was lost,"
                f" or more than {self._most} episodes run at once; begin the episode anew, or raise sessions"
                " in the policy file"
            )
        gap = asked.step - session.step
        if gap < 1 or (self.watches and gap != 1):
            raise TrialFault(
                f"{self._name} saw step {session.step} of episode {asked.seed} and is asked for step"
                f" {asked.step}; it has to see every one, in order"
            )
        return session

    def _connected(self) -> Session:
        session = Session(self._served.spec)
        if plain(session.greeting) != plain(self._metadata):
            session.close()
            raise TrialFault(
                f"{self._name} greets otherwise than before: it serves another policy now; screen that one by"
                " itself"
            )
        return session


def _glimpse(value: object) -> str:
    """Return the beginning of a foreign value, without writing out all of it."""
    if isinstance(value, dict):
        return f"a map of {', '.join(repr(k)[:20] for k in itertools.islice(value, 5)) or 'nothing'}"
    return (
        repr(value)[:40]
        if isinstance(value, bool | int | float | str | None)
        else f"a {type(value).__name__}"
    )


def read_interface(file: PolicyFile) -> Interface:
    """Return the conventions of a policy file of this kind.

    Raises:
        UsageError: a field is missing, unknown or of the wrong kind.
    """
    file.require_known(FIELDS)
    return file.interface(read_map(file).cameras)


def open_vla_eval(file: PolicyFile) -> VlaEvalPolicy:
    """Return the policy of a policy file, connected.

    Raises:
        SimgapError: the file, the conventions or the server; one line that says which.
    """
    served = Served(
        interface=read_interface(file),
        messages=read_map(file),
        spec=ChannelSpec.of(file),
        weights=file.text("weights"),
    )
    return VlaEvalPolicy(
        served, sessions=file.whole("sessions", 16, low=1, high=256), components=file.names("components")
    )


def stamp_vla_eval(file: PolicyFile) -> dict[str, Any]:
    """Return the stamp of a policy file's policy; asks the server who it is.

    Raises:
        SimgapError: as :func:`open_vla_eval`.
    """
    policy = open_vla_eval(file)
    policy.close()
    return policy.stamp_fields()
