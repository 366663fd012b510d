"""Msgpack with arrays, as policy servers speak it: what we send, and what we are willing to read.

Two dialects write an array as a map of marker, raw bytes, dtype and shape. openpi's keys are bytes
(``packages/openpi-client/src/openpi_client/msgpack_numpy.py`` in Physical-Intelligence/openpi), vla-eval's
are text (``src/vla_eval/protocol/numpy_codec.py`` in allenai/vla-evaluation-harness). Both refuse object
arrays, which would be pickles; so does this reader, which takes either dialect and believes no length, dtype
or shape before it has checked it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from enum import Enum
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.errors import DataError, MachineError

NUMBERS = "biuf"
"""Kinds of dtype that are numbers; objects, structures, text and complex numbers are refused."""
_MOST_SIDES = 8
_MOST_LEVELS = 32
"""Of maps and lists in each other; a message of actions has three or four, and hashing one of hundreds takes the stack."""
_MOST_CONTAINERS = 100_000
"""Each costs some hundred bytes of memory, and one byte of a message can be one."""
_MOST_DIMENSION_BYTES = 8
_MARKS, _ONES, _IMAGES = (
    ("__ndarray__", b"__ndarray__"),
    ("__npgeneric__", b"__npgeneric__"),
    ("__image__", b"__image__"),
)


class Dialect(Enum):
    """How the keys of an array are written."""

    OPENPI = "bytes"
    VLA_EVAL = "text"


def pack(value: Any, dialect: Dialect) -> bytes:
    """Return the bytes of a message of plain values and arrays of numbers.

    Raises:
        DataError: an array of something else than numbers.
        MachineError: msgpack is not installed.
    """
    packed: bytes = _msgpack().packb(_plain_arrays(value, dialect), use_bin_type=True)
    return packed


def unpack(data: bytes, *, who: str) -> Any:
    """Return a message with its arrays, which are copies.

    Args:
        data: one whole message; its size was bounded when it was received.
        who: the sender, for messages.

    Raises:
        DataError: no msgpack, an extension type, or an array that is not what it says.
    """
    msgpack = _msgpack()

    def refuse_extension(code: int, _: bytes) -> Any:
        raise DataError(
            f"{who} sent a msgpack extension of type {code}; expected plain values and arrays; use a server"
            " of the protocol's own version"
        )

    count = itertools.count(1)

    def counted(found: Any) -> Any:
        if next(count) > _MOST_CONTAINERS:
            raise DataError(
                f"{who} sent a message of more than {_MOST_CONTAINERS} maps and lists; is it a policy server"
                " of this protocol?"
            )
        return _opened(found, who) if isinstance(found, dict) else found

    size = max(len(data), 1)  # no container can hold more entries than the message has bytes
    try:
        message = msgpack.unpackb(
            data,
            raw=False,
            strict_map_key=True,
            object_hook=counted,
            list_hook=counted,
            ext_hook=refuse_extension,
            max_str_len=size,
            max_bin_len=size,
            max_array_len=size,
            max_map_len=size,
            max_ext_len=size,
        )
    except (ValueError, TypeError, msgpack.exceptions.UnpackException, RecursionError) as error:
        told = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(
            f"{who} sent {len(data)} bytes that are no msgpack message ({told:.120}); is it a policy server"
            " of this protocol?"
        ) from error
    level = [message]
    for _ in range(_MOST_LEVELS):
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
    if level:
        raise DataError(
            f"{who} sent a message nested more than {_MOST_LEVELS} levels deep; is it a policy server of this"
            " protocol?"
        )
    return message


def plain(value: Any) -> Any:
    """Return a message as JSON values, for hashing: arrays as lists, bytes as hexadecimal, keys as text, non-finite numbers as words."""
    if isinstance(value, Mapping):
        return {k.decode("latin-1") if isinstance(k, bytes) else str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def put(message: dict[str, Any], where: tuple[str, ...], value: Any) -> None:
    """Set an entry of a message at a path of keys, making the maps on the way."""
    for key in where[:-1]:
        message = message.setdefault(key, {})
    message[where[-1]] = value


def _plain_arrays(value: Any, dialect: Dialect) -> Any:
    if isinstance(value, Mapping):
        return {k: _plain_arrays(v, dialect) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain_arrays(v, dialect) for v in value]
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in NUMBERS:
            raise DataError(f"an array of {value.dtype} cannot be sent; expected numbers")
        fields = {
            "__ndarray__": True,
            "data": np.ascontiguousarray(value).tobytes(),
            "dtype": value.dtype.str,
            "shape": list(value.shape),
        }
        return {k.encode(): v for k, v in fields.items()} if dialect is Dialect.OPENPI else fields
    return value.item() if isinstance(value, np.generic) else value


def _opened(found: dict[Any, Any], who: str) -> Any:
    """Return a map, or the array or number that it describes."""
    if any(mark in found for mark in _IMAGES):
        raise DataError(f"{who} sent an encoded image; expected actions and plain values")
    if any(mark in found for mark in _MARKS):
        return _array(found, who)
    if any(mark in found for mark in _ONES):
        dtype, value = _dtype(_entry(found, "dtype"), who), _entry(found, "data")
        if not isinstance(value, bool | int | float):
            raise DataError(f"{who} sent a scalar of {dtype} that is {value!r:.60}; expected a number")
        return dtype.type(value)
    return found


def _array(found: dict[Any, Any], who: str) -> NDArray[Any]:
    dtype, data, shape = _dtype(_entry(found, "dtype"), who), _entry(found, "data"), _entry(found, "shape")
    sides: list[Any] = list(shape) if isinstance(shape, list | tuple) else [None]
    if len(sides) > _MOST_SIDES or not all(
        isinstance(s, int) and not isinstance(s, bool) and 0 <= s < 1 << 31 for s in sides
    ):
        raise DataError(
            f"{who} sent an array of shape {shape!r:.80}; expected up to {_MOST_SIDES} whole numbers"
        )
    if not isinstance(data, bytes) or len(data) != math.prod(sides) * dtype.itemsize:
        held = len(data) if isinstance(data, bytes) else f"a {type(data).__name__} instead of"
        raise DataError(
            f"{who} sent an array of {dtype} {list(sides)} with {held} bytes, which is not"
            f" {math.prod(sides) * dtype.itemsize}"
        )
    return np.frombuffer(data, dtype=dtype).reshape(sides).astype(dtype.newbyteorder("="))


def _dtype(text: Any, who: str) -> np.dtype[Any]:
    """Return a dtype of numbers; its name is read, never a pickle, a structure or a Python object."""
    name = text.decode("latin-1") if isinstance(text, bytes) else text
    if isinstance(name, str) and len(name) <= 16:
        try:
            dtype = np.dtype(name)
        except (TypeError, ValueError):
            dtype = None
        if dtype is not None and dtype.kind in NUMBERS and dtype.itemsize <= _MOST_DIMENSION_BYTES:
            return dtype
    raise DataError(
        f"{who} sent an array of dtype {name!r:.60}; only numbers are read, never objects, which would be"
        " pickles"
    )


def _entry(found: dict[Any, Any], name: str) -> Any:
    return found.get(name, found.get(name.encode()))


def _msgpack() -> ModuleType:
    try:
        import msgpack
    except ImportError as error:
        raise MachineError(
            "policy servers speak msgpack, which is not installed; pip install 'simgap[vla]'"
        ) from error
    return msgpack  # type: ignore[no-any-return]
