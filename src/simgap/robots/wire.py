"""Messages between a robot process and its driver: a JSON header and raw arrays, length-prefixed and bounded."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from simgap.errors import TrialFault

LIMIT_BYTES = 64 << 20
_DTYPES = {"uint8", "float32", "float64"}


def send(stream: BinaryIO, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]] | None = None) -> None:
    """Write one message and flush it."""
    parts = {name: np.asarray(a, order="C") for name, a in (arrays or {}).items()}
    described = {**header, "arrays": [[n, str(a.dtype), list(a.shape)] for n, a in parts.items()]}
    text = json.dumps(described, allow_nan=False).encode()
    body = b"".join(a.tobytes() for a in parts.values())
    stream.write(struct.pack("<II", len(text), len(body)) + text + body)
    stream.flush()


def receive(stream: BinaryIO) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read one message.

    Raises:
        EOFError: the other side is gone.
        TrialFault: the message is malformed or too large.
    """
    head = _exactly(stream, 8)
    text_size, body_size = struct.unpack("<II", head)
    if text_size + body_size > LIMIT_BYTES:
        raise TrialFault(f"robot message of {text_size + body_size} bytes, at most {LIMIT_BYTES} expected")
    text, body = _exactly(stream, text_size), _exactly(stream, body_size)
    try:
        header = json.loads(text)
        described = [(str(name), str(dtype), [int(side) for side in shape]) for name, dtype, shape in header.pop("arrays")]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise TrialFault(f"robot message cannot be read ({error!r}); driver and robot process are of two versions, or the connection is damaged") from error
    return header, _arrays(described, body)


def _arrays(described: Sequence[tuple[str, str, Sequence[int]]], body: bytes) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {}
    at = 0
    for name, dtype, shape in described:
        if dtype not in _DTYPES:
            raise TrialFault(f"robot message holds an array of {dtype!r}, expected one of {sorted(_DTYPES)}")
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if min(shape, default=0) < 0 or at + size > len(body):
            raise TrialFault(f"robot message describes {name!r} as {dtype} {list(shape)}, which its {len(body)} bytes do not hold")
        arrays[name] = np.frombuffer(body[at : at + size], dtype=dtype).reshape(shape).copy()  # writable, as torch wants it
        at += size
    if at != len(body):
        raise TrialFault(f"robot message has {len(body)} bytes of arrays and describes {at}")
    return arrays


def _exactly(stream: BinaryIO, count: int) -> bytes:
    data = stream.read(count)
    if len(data) != count:
        raise EOFError("the robot process closed the connection")
    return data
