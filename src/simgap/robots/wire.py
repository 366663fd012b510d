"""Messages between a robot process and its driver: a JSON header and raw arrays, length-prefixed and bounded.

Lengths, dtypes and shapes are checked before anything of that size is made. What is in a message is checked
by :mod:`simgap.robots.readings`.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, NoReturn

import numpy as np
from numpy.typing import NDArray

from simgap.errors import TrialFault

LIMIT_BYTES = 64 << 20
HEADER_BYTES = 1 << 20
"""Of the text of a message: parsed, JSON takes many times its length."""
PREFIX = struct.Struct("<II")
_DTYPES = {"uint8", "float32", "float64"}
_MOST_ARRAYS = 64
_MOST_SIDES = 8


def pack(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]] | None = None) -> bytes:
    """Return one message.

    Raises:
        ValueError: a number in the header that JSON does not know.
    """
    parts = {name: np.asarray(a, order="C") for name, a in (arrays or {}).items()}
    described = {**header, "arrays": [[n, str(a.dtype), list(a.shape)] for n, a in parts.items()]}
    text = json.dumps(described, allow_nan=False).encode()
    body = b"".join(a.tobytes() for a in parts.values())
    return PREFIX.pack(len(text), len(body)) + text + body


def lengths(prefix: bytes) -> tuple[int, int]:
    """Return how many bytes of text and of arrays follow a prefix.

    Raises:
        TrialFault: more than is read.
    """
    text, body = PREFIX.unpack(prefix)
    if text + body > LIMIT_BYTES:
        raise TrialFault(f"robot message of {text + body} bytes, at most {LIMIT_BYTES} expected")
    if text > HEADER_BYTES:
        raise TrialFault(f"robot message with a header of {text} bytes, at most {HEADER_BYTES} expected")
    return text, body


def unpack(text: bytes, body: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the header and the arrays of a message.

    Raises:
        TrialFault: it is malformed.
    """
    try:
        header = json.loads(text, parse_constant=_no_number)
        described = [
            (_text(name), _text(dtype), _shape(shape)) for name, dtype, shape in header.pop("arrays")
        ]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise TrialFault(
            f"robot message cannot be read ({_told(error)}); driver and robot process are of two versions, or"
            " the connection is damaged"
        ) from error
    if len(described) > _MOST_ARRAYS or len({name for name, _, _ in described}) < len(described):
        raise TrialFault(
            f"robot message names {len(described)} arrays, at most {_MOST_ARRAYS} of different names expected"
        )
    return header, _arrays(described, body)


def send(
    stream: BinaryIO, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]] | None = None
) -> None:
    """Write one message and flush it."""
    stream.write(pack(header, arrays))
    stream.flush()


def receive(stream: BinaryIO) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read one message and wait for it as long as it takes.

    Raises:
        EOFError: the other side is gone.
        TrialFault: the message is malformed or too large.
    """
    text, body = lengths(_exactly(stream, PREFIX.size))
    return unpack(_exactly(stream, text), _exactly(stream, body))


def _arrays(described: Sequence[tuple[str, str, Sequence[int]]], body: bytes) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {}
    at = 0
    for name, dtype, shape in described:
        if dtype not in _DTYPES:
            raise TrialFault(
                f"robot message holds an array of {dtype!r:.40}, expected one of {sorted(_DTYPES)}"
            )
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if any(not 0 <= side <= LIMIT_BYTES for side in shape) or at + size > len(body):
            raise TrialFault(
                f"robot message describes {name!r:.40} as {dtype} {list(shape)!s:.80}, which its {len(body)}"
                " bytes do not hold"
            )
        held = np.frombuffer(body[at : at + size], dtype=dtype)
        arrays[name] = held.reshape(shape).copy()  # writable, as torch wants it
        at += size
    if at != len(body):
        raise TrialFault(f"robot message has {len(body)} bytes of arrays and describes {at}")
    return arrays


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} where a name was expected")
    return value


def _shape(value: Any) -> tuple[int, ...]:
    if (
        not isinstance(value, list)
        or len(value) > _MOST_SIDES
        or not all(type(side) is int for side in value)
    ):
        raise TypeError(f"{value!r:.40} where up to {_MOST_SIDES} whole numbers were expected")
    return tuple(value)


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number of JSON")


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:120]


def _exactly(stream: BinaryIO, count: int) -> bytes:
    data = stream.read(count)
    if len(data) != count:
        raise EOFError("the robot process closed the connection")
    return data
