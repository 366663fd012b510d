"""The wire between driver and robot process: what is sent arrives, what is malformed or too large is refused."""

from __future__ import annotations

import contextlib
import io
import json
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from simgap.errors import TrialFault
from simgap.robots.wire import LIMIT_BYTES, receive, send

any_array = st.one_of(
    arrays(np.uint8, array_shapes(max_dims=3, max_side=6, min_side=0)),
    arrays(np.float32, array_shapes(max_dims=2, max_side=6), elements=st.floats(width=32, allow_nan=False)),
    arrays(np.float64, (), elements=st.floats(allow_nan=False)),
)


@settings(max_examples=40)
@given(
    st.dictionaries(
        st.text(max_size=8).filter(lambda k: k != "arrays"),
        st.one_of(st.integers(), st.text(), st.booleans()),
    ),
    st.dictionaries(st.text(max_size=5), any_array, max_size=4),
)
def test_what_is_sent_arrives(header: dict[str, object], parts: dict[str, np.ndarray]) -> None:
    stream = io.BytesIO()
    send(stream, header, parts)
    send(stream, {"next": True})
    stream.seek(0)
    got, arrived = receive(stream)
    assert got == header
    assert set(arrived) == set(parts)
    assert all(
        arrived[k].dtype == parts[k].dtype
        and np.array_equal(arrived[k], parts[k])
        and arrived[k].flags.writeable
        for k in parts
    )
    assert receive(stream) == ({"next": True}, {})


def message(text: bytes, body: bytes = b"") -> io.BytesIO:
    return io.BytesIO(struct.pack("<II", len(text), len(body)) + text + body)


def described(*parts: object) -> bytes:
    return json.dumps({"arrays": parts}).encode()


@pytest.mark.parametrize(("text", "body"), [(LIMIT_BYTES, 1), (1, LIMIT_BYTES), (2**32 - 1, 2**32 - 1)])
def test_a_message_that_says_it_is_too_large_is_refused_before_it_is_read(text: int, body: int) -> None:
    stream = io.BytesIO(struct.pack("<II", text, body) + b"x" * 100)
    with pytest.raises(TrialFault, match=f"{text + body} bytes, at most {LIMIT_BYTES}"):
        receive(stream)
    assert stream.tell() == 8


@pytest.mark.parametrize(
    "stream",
    [
        message(b"not json"),
        message(b"\xff\xfe"),
        message(b"[1, 2]"),
        message(b"{}"),
        message(b'{"arrays": 3}'),
        message(b'{"arrays": [["a", "uint8"]]}'),
        message(described(["a", "object", [1]]), b"x" * 8),
        message(described(["a", "uint8", ["three"]]), b"xyz"),
        message(described(["a", "uint8", [4]]), b"xyz"),
        message(described(["a", "uint8", [-3]]), b"xyz"),
        message(described(["a", "uint8", [2]]), b"xyz"),
        message(described(["a", "uint8", [2**40, 2**40]]), b"xyz"),
        message(described(["a", "float32", [1], ["b"]]), b"1234"),
    ],
)
def test_a_malformed_message_is_a_fault_of_the_trial(stream: io.BytesIO) -> None:
    with pytest.raises(TrialFault, match="robot message"):
        receive(stream)


@given(st.binary(max_size=60))
def test_no_bytes_from_outside_raise_anything_but_a_fault_or_the_end(noise: bytes) -> None:
    for stream in (io.BytesIO(noise), message(noise), message(b'{"arrays": [["a", "uint8", [3]]]}', noise)):
        with contextlib.suppress(TrialFault, EOFError):
            receive(stream)


@pytest.mark.parametrize("cut", [0, 3, 8, 12])
def test_a_connection_that_breaks_is_the_end(cut: int) -> None:
    stream = io.BytesIO()
    send(stream, {"verb": "observe"}, {"a": np.zeros(3, np.uint8)})
    with pytest.raises(EOFError):
        receive(io.BytesIO(stream.getvalue()[:cut]))


def test_nan_in_a_header_is_refused_at_the_sender() -> None:
    with pytest.raises(ValueError, match="JSON"):
        send(io.BytesIO(), {"time_s": float("nan")})
