"""Policy servers that say anything at all, twice, late or never: one line of ours in time, and no action of another observation."""

from __future__ import annotations

import itertools
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from websockets.frames import Frame, Opcode

from policy_servers import Openpi, bytes_array, dripping, listening, serving
from simgap.errors import MachineError, SimgapError, TrialFault
from test_policies_openpi import CHUNK, hold, observations, opened
from test_policies_vla_eval import Server
from test_policies_vla_eval import opened as opened_vla_eval

TIMEOUT_S = 0.4
GOOD = {"actions": bytes_array(np.zeros((CHUNK, 6)))}
PACKED: bytes = msgpack.packb(GOOD)


def array(**fields: Any) -> dict[bytes, Any]:
    """Return a good chunk as openpi writes it, with these fields instead."""
    return {**GOOD["actions"], **{k.encode(): v for k, v in fields.items()}}


def deep(levels: int, kind: type = list) -> bytes:
    return (b"\x91" if kind is list else b"\x81\xa1x") * levels + b"\xc0"


def raw(*frames: bytes) -> Callable[[Any], None]:
    """Send bytes below the websocket."""

    def send(socket: Any) -> None:
        for frame in frames:
            socket.socket.sendall(frame)

    return send


def frame(data: bytes, opcode: Opcode = Opcode.BINARY, *, fin: bool = True) -> bytes:
    return Frame(opcode, data, fin=fin).serialize(mask=False)


def slowly(data: bytes) -> Callable[[Any], None]:
    return lambda socket: dripping(socket.socket, data)


def late(socket: Any) -> None:
    time.sleep(2 * TIMEOUT_S)
    socket.send(PACKED)


def after(seconds: float, answer: Callable[[Any], None] | bytes) -> Callable[[Any], None]:
    def send(socket: Any) -> None:
        time.sleep(seconds)
        socket.send(answer) if isinstance(answer, bytes) else answer(socket)

    return send


REPLIES: dict[str, Any] = {
    "garbage": np.random.default_rng(0).bytes(4096),
    "an empty message": b"",
    "half a message": PACKED[: len(PACKED) // 2],
    "a message and more": PACKED + b"\x00",
    "two messages in one": PACKED * 2,
    "a text": "all is well",
    "a text of a megabyte": "x" * (1 << 20),
    "a text that is not UTF-8": raw(frame(b"\xff\xfe\xfd", Opcode.TEXT)),
    "nil": b"\xc0",
    "a number": b"\x07",
    "a list": msgpack.packb([GOOD]),
    "an empty map": {},
    "a map with keys that are maps": b"\x81\x80\xc0",
    "a map with keys that are numbers": {1: 2},
    "actions in another entry": {"action": GOOD["actions"]},
    "nil as actions": {"actions": None},
    "actions that are a map": {"actions": {"x": 1}},
    "actions that are text": {"actions": "left"},
    "actions of bytes": {"actions": b"\x00" * 192},
    "actions of ragged lists": {"actions": [[0.0] * 6] * 3 + [[0.0] * 5]},
    "actions of lists of text": {"actions": [["a"] * 6] * CHUNK},
    "actions of truths": {"actions": np.zeros((CHUNK, 6), bool).tolist()},
    "a chunk of another length": np.zeros((CHUNK + 1, 6)),
    "a chunk of another width": np.zeros((CHUNK, 7)),
    "a chunk with a batch": np.zeros((1, CHUNK, 6)),
    "an empty chunk": np.zeros((0, 6)),
    "a scalar": np.zeros(()),
    "NaN": np.full((CHUNK, 6), np.nan),
    "infinity": np.full((CHUNK, 6), -np.inf),
    "numbers beyond float32": np.full((CHUNK, 6), 1e39),
    "complex numbers": np.zeros((CHUNK, 6), complex),
    "an array of objects": {"actions": array(dtype="|O")},
    "an array of structures": {"actions": array(dtype="f8,f8")},
    "a dtype that is a number": {"actions": array(dtype=8)},
    "a dtype that is a megabyte": {"actions": array(dtype="f" * (1 << 20))},
    "a shape beyond all bytes": {"actions": array(shape=[1 << 30, 1 << 30])},
    "a negative shape": {"actions": array(shape=[-4, -6])},
    "a shape that is a text": {"actions": array(shape="4,6")},
    "a shape of a thousand sides": {"actions": array(shape=[1] * 1000)},
    "data that is a list": {"actions": array(data=[0.0] * 24)},
    "an encoded image": {"actions": {"__image__": True, "data": b"x"}},
    "an extension type": msgpack.packb(msgpack.ExtType(1, b"x")),
    "a time stamp": msgpack.packb(msgpack.Timestamp(0)),
    "lists a thousand deep": deep(1000),
    "lists a million deep": deep(1_000_000),
    "maps forty deep": deep(40, dict),
    "a million empty lists": b"\xdd" + struct.pack(">I", 1_000_000) + b"\x90" * 1_000_000,
    "a list that declares four billion": b"\xdd\xff\xff\xff\xff" + b"\xc0" * 100,
    "a text that declares four billion": b"\xdb\xff\xff\xff\xff" + b"x" * 100,
    "bytes that declare four billion": b"\xc6\xff\xff\xff\xff" + b"x" * 100,
    "more bytes than are read": b"\x00" * (17 << 20),
    "nothing": lambda _: None,
    "too late": late,
    "one byte a while": slowly(frame(PACKED)),
    "fragments without end": slowly(frame(b"x", fin=False) + frame(b"x", Opcode.CONT, fin=False) * 1000),
    "a frame cut short, then the end": lambda s: (raw(frame(PACKED)[:-50])(s), s.socket.shutdown(2)),
    "half a frame, then silence": raw(frame(PACKED)[:-50]),
    "a frame of reserved bits": raw(b"\xf2" + frame(PACKED)[1:]),
    "a frame of an unknown kind": raw(b"\x8f\x00"),
    "a masked frame": lambda s: raw(Frame(Opcode.BINARY, PACKED).serialize(mask=True))(s),
    "a continuation of nothing": raw(frame(PACKED, Opcode.CONT)),
    "a ping of a megabyte": raw(b"\x89\x7f" + struct.pack(">Q", 1 << 20) + b"x" * (1 << 20)),
    "pings and nothing else": lambda s: [raw(frame(b"x", Opcode.PING))(s) for _ in range(1000)],
    "HTTP inside": raw(b"HTTP/1.1 302 Found\r\nLocation: ws://127.0.0.1:1/\r\n\r\n"),
    "an orderly close": lambda s: s.close(1000),
    "a close with a code that there is not": raw(b"\x88\x02\xff\xff"),
    "a close with a long reason": lambda s: s.close(1011, "x" * 100),
}


SLOW = {
    *(
        "too late",
        "one byte a while",
        "fragments without end",
        "half a frame, then silence",
        "pings and nothing else",
        "HTTP inside",
    ),
    *(
        "a million empty lists",
        "more bytes than are read",
        "lists a million deep",
        "a text of a megabyte",
        "a ping of a megabyte",
    ),
    *(
        "a dtype that is a megabyte",
        "a continuation of nothing",
        "a masked frame",
        "a header of a megabyte",
        "headers without end",
    ),
    *("says nothing", "garbage", "a page without end", "an error"),
}


def cases(table: dict[str, Any]) -> list[Any]:
    return [
        pytest.param(value, id=name, marks=pytest.mark.slow if name in SLOW else ())
        for name, value in table.items()
    ]


def one_line_of(error: BaseException, url: str) -> str:
    text = str(error)
    assert "\n" not in text
    assert len(text) < 900, text
    assert url in text
    return text


@pytest.mark.parametrize("answer", cases(REPLIES))
def test_whatever_a_server_replies_ends_in_one_line_of_ours_in_time(answer: Any, tmp_path: Path) -> None:
    with serving(Openpi(lambda _: answer)) as url:
        policy = opened(tmp_path, url, reply_timeout_s=TIMEOUT_S)
        began = time.monotonic()
        with pytest.raises(SimgapError) as caught:
            policy.predict_asked(*observations())
        policy.close()
        assert time.monotonic() - began < TIMEOUT_S + 4.0
    one_line_of(caught.value, url)


ACTION = {"actions": np.zeros((3, 6)).tolist()}
VLA_EVAL: dict[str, Callable[[int], bytes]] = {
    "no message": lambda _: msgpack.packb([1]),
    "a kind that is a list": lambda seq: msgpack.packb({"type": ["action"], "payload": ACTION, "seq": seq}),
    "a kind that is an array": lambda seq: msgpack.packb({"type": array(), "payload": ACTION, "seq": seq}),
    "an unknown kind": lambda seq: Server.packed("dance", ACTION, seq),
    "a payload that is a list": lambda seq: Server.packed("action", [1], seq),
    "an array in a payload's place": lambda seq: Server.packed("action", array(), seq),
    "a number that is an array": lambda seq: msgpack.packb(
        {"type": "action", "payload": ACTION, "seq": array()}
    ),
    "a number that is true": lambda _: msgpack.packb({"type": "action", "payload": ACTION, "seq": True}),
    "no number": lambda _: msgpack.packb({"type": "action", "payload": ACTION}),
    "the number before": lambda seq: Server.packed("action", ACTION, seq - 1),
    "a greeting": lambda seq: Server.packed("hello", {}, seq),
    "an error of a megabyte": lambda seq: Server.packed("error", {"error": "x" * (1 << 20)}, seq),
    "an error that is an array": lambda seq: Server.packed("error", {"error": array()}, seq),
    "an end of its own": lambda seq: Server.packed("action", {**ACTION, "terminate_episode": True}, seq),
}


@pytest.mark.parametrize("answer", cases(VLA_EVAL))
def test_whatever_a_model_server_answers_ends_in_one_line_of_ours(
    answer: Callable[[int], bytes], tmp_path: Path
) -> None:
    with serving(Server(lambda *_: answer)) as url:
        policy = opened_vla_eval(tmp_path, url, reply_timeout_s=TIMEOUT_S)
        with pytest.raises(SimgapError) as caught:
            policy.predict_asked(*vla_observations(0))
        policy.close()
    one_line_of(caught.value, url)


@pytest.mark.parametrize(
    "greeting",
    [
        {"protocol_version": array()},
        {"protocol_version": True},
        {"protocol_version": "1"},
        {"action_spec": array()},
        {"action_spec": {"x": array()}},
        {"action_spec": {"x": {"dims": array(), "format": []}}},
        {"observation_spec": {"x": {"dims": 10**18, "format": "raw"}}},
        {"model_server": "x" * (2 << 20)},
    ],
)
def test_a_greeting_of_nonsense_is_refused_in_one_line(greeting: dict[str, Any], tmp_path: Path) -> None:
    with serving(Server(greeting=greeting)) as url:
        with pytest.raises(SimgapError) as caught:
            opened_vla_eval(tmp_path, url)
        one_line_of(caught.value, url)


# -- who answers twice


def asked(policy: Any, k: int) -> Any:
    images, state, who = observations()
    return policy.predict_asked(images, state + k, who)[0]


TWICE: dict[str, Callable[[Callable[[bytes], None], bytes], None]] = {
    "at once": lambda send, data: (send(data), send(data)),
    "a little later": lambda send, data: (send(data), threading.Timer(0.02, send, (data,)).start()),
    "much later": lambda send, data: (send(data), threading.Timer(0.15, send, (data,)).start()),
}


@pytest.mark.parametrize("inference_s", [0.0, pytest.param(0.08, marks=pytest.mark.slow)])
@pytest.mark.parametrize("again", TWICE.values(), ids=TWICE)
def test_a_server_that_answers_twice_never_gives_an_observation_the_action_of_another(
    again: Callable[[Callable[[bytes], None], bytes], None], inference_s: float, tmp_path: Path
) -> None:
    def answer(seen: Any) -> Callable[[Any], None]:
        time.sleep(inference_s)
        data = msgpack.packb({"actions": bytes_array(hold(seen))})

        def send(socket: Any, data: bytes) -> None:
            with suppress(Exception):  # the client has gone
                socket.send(data)

        return lambda socket: again(lambda d: send(socket, d), data)

    with serving(Openpi(answer)) as url:
        policy = opened(tmp_path, url)
        base = observations()[1][0]
        caught = None
        end = time.monotonic() + 10.0
        for k in itertools.count():
            try:
                chunk = asked(policy, k)
            except TrialFault as fault:
                caught = fault
                break
            np.testing.assert_allclose(chunk, np.repeat((base + k)[None], CHUNK, axis=0), rtol=1e-6)
            assert time.monotonic() < end
        assert "nobody had asked for" in one_line_of(caught, url)
        with pytest.raises(TrialFault, match="allow reconnects"):
            asked(policy, 0)


def test_two_rows_of_one_batch_are_kept_apart_from_a_server_that_answers_twice(tmp_path: Path) -> None:
    def answer(seen: Any) -> Callable[[Any], None]:
        data = msgpack.packb({"actions": bytes_array(hold(seen))})
        return lambda socket: (socket.send(data), socket.send(data))

    with serving(Openpi(answer)) as url:
        policy = opened(tmp_path, url)
        with pytest.raises(TrialFault, match="nobody had asked for"):
            policy.predict_asked(*observations(2))


def test_a_message_that_nobody_asked_for_is_refused_before_the_next_request_leaves(tmp_path: Path) -> None:
    server = Openpi(hold)

    def unasked(socket: Any) -> None:
        send = socket.send
        send(msgpack.packb(server.metadata))
        send(PACKED)  # before any request
        for _ in socket:
            server.seen.append(1)

    with serving(unasked) as url:
        policy = opened(tmp_path, url)
        with pytest.raises(TrialFault, match="nobody had asked for"):
            policy.predict_asked(*observations())
    assert not server.seen


def test_a_model_server_that_answers_twice_never_gives_an_observation_the_action_of_another(
    tmp_path: Path,
) -> None:
    def twice(payload: Any, step: int) -> Any:
        actions = {"actions": np.repeat(np.asarray(payload["states"])[None] + step, 3, axis=0).tolist()}

        def both(seq: int) -> bytes:
            queued.append(Server.packed("action", actions, seq))
            return queued[-1]

        return both

    queued: list[bytes] = []

    def handler(socket: Any) -> None:
        sent = socket.send

        def doubled(data: bytes) -> None:
            sent(data)
            if queued:
                sent(queued.pop())

        socket.send = doubled
        Server(twice)(socket)

    with serving(handler) as url:
        policy = opened_vla_eval(tmp_path, url)
        first = policy.predict_asked(*vla_observations(0))[0]
        with pytest.raises(TrialFault, match="nobody had asked for"):
            policy.predict_asked(*vla_observations(1))
    np.testing.assert_allclose(first, vla_observations(0)[1].repeat(3, axis=0), rtol=1e-5)


def vla_observations(step: int) -> Any:
    from simgap.policies.base import Asked
    from test_policies_vla_eval import IMAGES, STATE

    return IMAGES, STATE, [Asked(seed=1, step=step, goal="pick")]


def test_the_same_answer_to_another_observation_is_no_fault_of_a_policy_that_holds_still(
    tmp_path: Path,
) -> None:
    with serving(Openpi(lambda _: GOOD)) as url:
        policy = opened(tmp_path, url)
        for k in range(3):
            assert not asked(policy, k).any()


def test_a_connection_that_rests_for_longer_than_a_reply_may_take_goes_on(tmp_path: Path) -> None:
    with serving(Openpi(hold)) as url:
        policy = opened(tmp_path, url, reply_timeout_s=0.2)
        asked(policy, 0)
        time.sleep(0.5)
        asked(policy, 1)


# -- who is no policy server at all


def reading(answer: Callable[[Any], None] | bytes) -> Callable[[Any], None]:
    def handler(connection: Any) -> None:
        connection.recv(4096)
        if callable(answer):
            answer(connection)
        else:
            connection.sendall(answer)
        time.sleep(5.0)

    return handler


HANDSHAKES: dict[str, Callable[[Any], None]] = {
    "closes at once": lambda c: c.close(),
    "says nothing": lambda c: time.sleep(5.0),
    "garbage": reading(b"\x00\xff" * 5000),
    "one byte a while": reading(
        lambda c: dripping(c, b"HTTP/1.1 101 Switching Protocols\r\n" + b"X: y\r\n" * 1000)
    ),
    "headers without end": reading(b"HTTP/1.1 101 Switching Protocols\r\n" + b"X: y\r\n" * 100_000),
    "a header of a megabyte": reading(
        b"HTTP/1.1 101 Switching Protocols\r\nX: " + b"y" * (1 << 20) + b"\r\n\r\n"
    ),
    "a redirect": reading(b"HTTP/1.1 302 Found\r\nLocation: ws://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"),
    "a page": reading(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"),
    "a page without end": reading(
        lambda c: [c.sendall(b"HTTP/1.1 200 OK\r\n\r\n"), [c.sendall(b"x" * 65536) for _ in range(10_000)]]
    ),
    "an error": reading(b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n"),
    "another key": reading(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection:"
        b" Upgrade\r\nSec-WebSocket-Accept: AAAA\r\n\r\n"
    ),
}


@pytest.mark.parametrize("handler", cases(HANDSHAKES))
def test_whatever_answers_the_handshake_is_one_line_in_time(
    handler: Callable[[Any], None], tmp_path: Path
) -> None:
    with listening(handler) as url:
        began = time.monotonic()
        with pytest.raises(MachineError, match="no openpi server answers") as caught:
            opened(tmp_path, url, connect_timeout_s=0.5, reply_timeout_s=0.5)
        assert time.monotonic() - began < 4.0
        one_line_of(caught.value, url)


@pytest.mark.parametrize(
    "metadata",
    [
        b"",
        b"\xc1",
        deep(1000),
        "text",
        b"\xa0",
        b"\x81\xa1x" + b"\xc6" + struct.pack(">I", 2 << 20) + b"x" * (2 << 20),
    ],
)
def test_a_first_message_that_is_no_metadata_is_one_line(metadata: bytes | str, tmp_path: Path) -> None:
    with serving(lambda socket: socket.send(metadata)) as url:
        with pytest.raises(SimgapError) as caught:
            opened(tmp_path, url, reply_timeout_s=TIMEOUT_S)
        one_line_of(caught.value, url)
