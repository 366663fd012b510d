"""One websocket to a policy server: bounded, timed, and honest about who failed."""

from __future__ import annotations

import hashlib
import ipaddress
import os
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from simgap.compute.child import one_line
from simgap.errors import DataError, MachineError, TrialFault, UsageError
from simgap.policies.bridges.policy_file import PolicyFile
from simgap.trust import require_allowed

FIELDS = (
    "url",
    "connect_timeout_s",
    "reply_timeout_s",
    "largest_reply_bytes",
    "reconnects",
    "api_key_variable",
)
"""Fields of a policy file that this module reads."""
OWN_VARIABLES = "SIMGAP_"
"""What the names of variables begin with that any policy file may have sent to its server."""


_GRACE_S = 0.1
_KEPT_REPLIES = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class ChannelSpec:
    """Where the server is, and how long and how much is accepted from it."""

    url: str
    connect_timeout_s: float = 10.0
    reply_timeout_s: float = 60.0
    """The first prediction of a server that compiles may take minutes: raise it then."""
    largest_reply_bytes: int = 16 << 20
    reconnects: int = 0
    """How often a connection that was lost between two requests may be made anew in the policy's life; 0: never."""
    api_key_variable: str = ""
    """Environment variable with the key that the server asks for (``Authorization: Api-Key ...``); empty for none. The key itself is
    never kept."""

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            _, _ = parts.port, (parts.hostname or "").encode("idna")  # either may be no port or no name
        except ValueError as error:
            raise UsageError(
                f"url {self.url!r:.200} cannot be read ({error}); write it like ws://localhost:8000"
            ) from error
        if parts.scheme not in ("ws", "wss") or not parts.hostname:
            raise UsageError(
                f"url {self.url!r:.200} names no websocket server; write it like ws://localhost:8000"
            )
        if parts.username or parts.password:
            raise UsageError(
                "a url with a user name and password would end up in stamps and reports; leave them out and"
                " tunnel to the server instead"
            )

    @classmethod
    def of(cls, file: PolicyFile) -> ChannelSpec:
        """Return what a policy file says.

        Raises:
            UsageError: a field of the wrong kind.
        """
        return cls(
            url=file.text("url"),
            connect_timeout_s=file.seconds("connect_timeout_s", 10.0),
            reply_timeout_s=file.seconds("reply_timeout_s", 60.0),
            largest_reply_bytes=file.whole("largest_reply_bytes", 16 << 20, low=1024, high=1 << 30),
            reconnects=file.whole("reconnects", 0, high=1000),
            api_key_variable=_key_variable_of(file),
        )


class Channel:
    """A connection. After any fault it is closed: a reply that comes too late must never answer the next question."""

    def __init__(self, spec: ChannelSpec, *, who: str, start: str) -> None:
        """Connect.

        Args:
            spec: where and how.
            who: what the other side is called in messages.
            start: how to start it, for the message when nobody answers.

        Raises:
            MachineError: nobody answers, or the websockets library is missing.
        """
        self.spec, self.who = spec, who
        self._library, self._stack = _websockets(), ExitStack()
        try:
            headers = (
                {"Authorization": f"Api-Key {_key(spec.api_key_variable)}"} if spec.api_key_variable else None
            )
            connecting = self._library.sync.client.connect(
                spec.url,
                compression=None,
                additional_headers=headers,
                max_size=spec.largest_reply_bytes,
                open_timeout=spec.connect_timeout_s,
                close_timeout=1.0,
                ping_interval=None,  # a server that compiles or infers answers no pings
            )
            self._socket: Any = self._stack.enter_context(connecting)
            # of a send, too: a server that stops reading would hold us for ever
            self._socket.socket.settimeout(spec.reply_timeout_s)
        except (OSError, TimeoutError, self._library.exceptions.WebSocketException) as error:
            raise MachineError(
                f"no {who} answers at {spec.url} ({_told(error)}); {start}, or correct url in the policy file"
            ) from error
        self.is_open = True
        self._answered: OrderedDict[bytes, bytes] = OrderedDict()
        """Digest of a reply -> digest of the message it answered, the newest last."""
        self._took_s = 0.0

    @property
    def is_alive(self) -> bool:
        """Whether the connection still stands, as far as can be seen without asking."""
        return self.is_open and self._socket.protocol.state is self._library.protocol.State.OPEN

    def ask(self, message: bytes, clock: Callable[[], float] = time.perf_counter) -> tuple[bytes, float]:
        """Send a request and return the reply and the seconds it took.

        Raises:
            TrialFault: lost connection, no reply in time, or an error that the server sent as text.
            DataError: a reply that is too large.
        """
        self.require_silence()
        began = clock()
        self.send(message)
        reply = self.receive()
        took = clock() - began
        question, answer = (hashlib.blake2b(data, digest_size=16).digest() for data in (message, reply))
        if self._answered.get(answer, question) != question:
            # Another question and the same bytes: an answer given twice, perhaps, and the right one is still
            # to come.
            self.require_silence(max(_GRACE_S, min(2.0 * self._took_s - took, self.spec.reply_timeout_s)))
        self._answered[answer], self._took_s = question, took
        while len(self._answered) > _KEPT_REPLIES:
            self._answered.popitem(last=False)
        return reply, took

    def require_silence(self, wait_s: float = 0.0) -> None:
        """Go on only if nothing came that was not asked for: what the server sent twice, late or by itself answers no next question.

        A ping goes before the look: when its answer is here, so is everything that the server had sent before
        it.

        Args:
            wait_s: how long something may still come.

        Raises:
            TrialFault: something waits, the connection is lost, or the server answers no ping in time.
        """
        try:
            if not self._socket.ping().wait(self.spec.reply_timeout_s):
                self.close()
                raise self._deaf()
            extra = self._socket.recv(timeout=wait_s)
        except TimeoutError:
            return
        except (OSError, self._library.exceptions.ConnectionClosed) as error:
            raise self._lost(error) from error
        self.close()
        if isinstance(extra, str):
            raise self._failed(extra)
        raise TrialFault(
            f"the {self.who} at {self.spec.url} sent {len(extra)} bytes that nobody had asked for; which"
            " reply belongs to which observation cannot be told any more: see whether it answers each"
            " request once"
        )

    def send(self, message: bytes) -> None:
        """Send one message.

        Raises:
            TrialFault: the connection is lost, or the server takes nothing.
        """
        try:
            self._socket.send(message)
        except (OSError, TimeoutError, self._library.exceptions.ConnectionClosed) as error:
            raise self._lost(error) from error

    def receive(self) -> bytes:
        """Return the next message of bytes.

        Raises:
            TrialFault: lost connection, no message in time, or an error that the server sent as text.
            DataError: a message that is too large.
        """
        try:
            reply = self._socket.recv(timeout=self.spec.reply_timeout_s)
        except TimeoutError as error:
            self.close()
            raise TrialFault(
                f"the {self.who} at {self.spec.url} gave no reply within {self.spec.reply_timeout_s:g} s; see"
                " its log, or raise reply_timeout_s"
            ) from error
        except (OSError, self._library.exceptions.ConnectionClosed) as error:
            raise self._lost(error) from error
        if isinstance(reply, str):
            self.close()
            raise self._failed(reply)
        return bytes(reply)

    def close(self) -> None:
        """Close the connection without waiting for the server to agree."""
        if self.is_open:
            self.is_open = False
            self._stack.close()

    def _failed(self, text: str) -> TrialFault:
        return TrialFault(
            f"the {self.who} at {self.spec.url} failed: {last_line(text)}; its whole traceback is in its"
            " own log"
        )

    def _deaf(self) -> TrialFault:
        return TrialFault(
            f"the {self.who} at {self.spec.url} took nothing for {self.spec.reply_timeout_s:g} s; see its"
            " log, or raise reply_timeout_s"
        )

    def _lost(self, error: BaseException) -> Exception:
        self.close()
        sent = getattr(error, "sent", None)
        if isinstance(error.__cause__, TimeoutError):
            return self._deaf()
        if sent is not None and sent.code == 1009:  # RFC 6455: message too big
            limit = self.spec.largest_reply_bytes
            return DataError(
                f"the {self.who} at {self.spec.url} sent a message of more than {limit} bytes; raise"
                " largest_reply_bytes if that is a chunk"
            )
        return TrialFault(
            f"the connection to the {self.who} at {self.spec.url} was lost ({_told(error)}); see its log and"
            " start it again"
        )


def _key_variable_of(file: PolicyFile) -> str:
    """Return the variable whose value is sent to the server. A file may not send any secret of ours to any host it likes.

    Raises:
        UntrustedError: a variable that was not made for simgap, and a server elsewhere.
    """
    variable = file.text("api_key_variable", "")
    if variable and not variable.startswith(OWN_VARIABLES) and not _is_here(file.text("url")):
        instead = f"export the key as {OWN_VARIABLES}KEY and name that"
        require_allowed(
            variable,
            what=f"a secret to send to {file.text('url')} (api_key_variable)",
            by=file.path,
            instead=instead,
        )
    return variable


def _is_here(url: str) -> bool:
    """Return whether a server is on this machine."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name, or no url
        return False


def _key(variable: str) -> str:
    key = os.environ.get(variable, "")
    if not key:
        raise UsageError(
            f"the policy file takes the server's key from ${variable}, which is not set; export it"
        )
    return key


def last_line(text: str) -> str:
    """Return the line of a traceback that says what went wrong, shortened."""
    lines = [line.strip() for line in text[-10_000:].splitlines() if line.strip()]
    return one_line(lines[-1]) if lines else "an empty error message"


def _told(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return one_line(text)[:200]


def _websockets() -> ModuleType:
    try:
        import websockets.exceptions
        import websockets.protocol
        import websockets.sync.client
    except ImportError as error:
        raise MachineError(
            "policy servers are reached by websocket, and websockets is not installed; pip install"
            " 'simgap[vla]'"
        ) from error
    return websockets
