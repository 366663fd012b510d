"""Fake policy servers: real websockets in threads, with somebody else's bytes and every way of misbehaving."""

from __future__ import annotations

import socket as sockets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import msgpack
import numpy as np
from numpy.typing import NDArray
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

Handler = Callable[[ServerConnection], None]


@contextmanager
def serving(handler: Handler) -> Iterator[str]:
    """Serve on a free port of this machine; yields the url."""

    def quietly(socket: ServerConnection) -> None:
        with suppress(ConnectionClosed):
            handler(socket)

    with serve(quietly, "127.0.0.1", 0, compression=None, max_size=None) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"ws://127.0.0.1:{server.socket.getsockname()[1]}"
        finally:
            server.shutdown()
            thread.join(timeout=5)


@contextmanager
def listening(handler: Callable[[sockets.socket], None]) -> Iterator[str]:
    """Accept plain connections on a free port, each in a thread; yields a url at which no websocket server is."""
    server = sockets.create_server(("127.0.0.1", 0))
    open_ones: list[sockets.socket] = []

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = server.accept()
                open_ones.append(connection)
                threading.Thread(target=quietly, args=(connection,), daemon=True).start()

    def quietly(connection: sockets.socket) -> None:
        with suppress(OSError):
            handler(connection)

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"ws://127.0.0.1:{server.getsockname()[1]}"
    finally:
        for one in (server, *open_ones):
            with suppress(OSError):
                one.shutdown(sockets.SHUT_RDWR)
            one.close()


def dripping(connection: sockets.socket, data: bytes, every_s: float = 0.05) -> None:
    """Send a byte at a time."""
    for k in range(len(data)):
        connection.sendall(data[k : k + 1])
        time.sleep(every_s)


def bytes_array(array: NDArray[Any]) -> dict[bytes, Any]:
    """Write an array as openpi does."""
    return {b"__ndarray__": True, b"data": array.tobytes(), b"dtype": array.dtype.str, b"shape": array.shape}


def text_array(array: NDArray[Any]) -> dict[str, Any]:
    """Write an array as vla-eval does."""
    return {
        "__ndarray__": True,
        "data": array.tobytes(),
        "dtype": array.dtype.str,
        "shape": list(array.shape),
    }


def read(data: bytes | str) -> Any:
    """Read a client's message, arrays of either dialect included."""
    assert isinstance(data, bytes)

    def hook(found: dict[Any, Any]) -> Any:
        for key in (lambda k: k, lambda k: k.encode()):
            if key("__ndarray__") in found:
                return np.frombuffer(found[key("data")], dtype=found[key("dtype")]).reshape(
                    found[key("shape")]
                )
        return found

    return msgpack.unpackb(data, object_hook=hook)


class Openpi:
    """An openpi server: metadata first, then one reply for each observation."""

    def __init__(self, actions: Callable[[Any], Any], metadata: Any = None) -> None:
        self.actions, self.metadata = actions, {"model": "fake"} if metadata is None else metadata
        self.seen: list[Any] = []
        self.connections = 0

    def __call__(self, socket: ServerConnection) -> None:
        self.connections += 1
        socket.send(msgpack.packb(self.metadata))
        for data in socket:
            self.seen.append(read(data))
            answer = self.actions(self.seen[-1])
            if isinstance(answer, np.ndarray):
                answer = {"actions": bytes_array(answer), "server_timing": {"infer_ms": 12.5}}
            if isinstance(answer, dict):
                answer = msgpack.packb(answer)
            if callable(answer):
                answer(socket)
            else:
                socket.send(answer)
