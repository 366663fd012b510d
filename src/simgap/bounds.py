"""How much of somebody else's file is believed: every bound of every reader in one place, asked before anything is decoded.

A file says how large it is three times: its size on disk, what it declares, and what comes out when it is
decoded. All three are bounded here, the third before it is decoded. The figures leave room for what robots
record, and keep one reader below 2 GB of memory; what is larger is refused with a sentence, never cut.
"""

from __future__ import annotations

import errno
import io
import json
import os
import re
import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from simgap.errors import DataError

JSON_BYTES = 32 << 20
"""One JSON document: parsed, its smallest values take some forty times their text."""
TEXT_BYTES = 64 << 20
"""A text file held whole, such as a table of trials."""
LINES_BYTES = 1 << 30
"""A file of JSON lines, read line by line."""
LINE_CHARACTERS = 8 << 20
"""One line of it: the statistics of an episode with many features take a few hundred KB."""
JSON_DEPTH = 64
"""Objects and lists inside each other; the deepest known file (OpenVLA's statistics, LeRobot's train_config) has eight."""
EPISODES = 200_000
"""Episodes of one dataset: the largest public ones list 95,000 in one folder."""
RECORDS = 250_000
"""Records of one tub: three and a half hours of driving at 20 Hz."""
TABLE_ROWS = 500_000
"""Rows of a table of text: a quarter of an hour of an actuator log at 500 Hz."""
TRIAL_ROWS = 100_000
"""Rows of a table of trials or rates, each looked at many times."""
TABLE_COLUMNS = 4096
"""Columns of a table of text."""
TABLE_CELLS = 4_000_000
"""Cells of a table of text, which take some 60 bytes each."""
ROWS = 5_000_000
"""Rows of one Parquet file: two days at 30 Hz; LeRobot closes its files at 100 MB."""
COLUMNS = 10_000
"""Columns of one Parquet file; an index of episodes has some hundred."""
COLUMN_CHUNKS = 2_000_000
"""Row groups times columns of one Parquet file, which its footer describes one by one."""
FOOTER_BYTES = 128 << 20
"""The description at the end of a Parquet file."""
DECODED_BYTES = 512 << 20
"""Numbers of one Parquet file or HDF5 table, decoded; LeRobot closes its files at 100 MB."""
DATASET_BYTES = 1 << 30
"""Numbers of a whole dataset that a check holds at the same time: ten million frames of two arms."""
WIDTH = 4096
"""Numbers of one frame of one feature; wider ones are simulator states or point clouds."""
PIXELS = 8192 * 8192
"""Pixels of one picture or video frame; no robot camera comes near."""
SIDE = 8192
"""Longest side of one, in pixels."""
LONGEST = 1 << 28
"""Numbers of one frame of one feature, pictures among them."""
EPISODE_FRAMES_BYTES = 2 << 40
"""Decoded frames of one camera that may go to the cache on disk."""
HDF5_OBJECTS = 2_000_000
"""Groups, tables and links of one HDF5 file."""
SAFETENSORS_BYTES = 64 << 30
"""A file of weights, which is mapped and not copied."""

MALFORMED = (KeyError, TypeError, ValueError, IndexError, AttributeError, ArithmeticError, RecursionError)
"""What our own code raises where it takes values of another kind than it expects out of a parsed file; for :func:`parsing`."""
DAMAGED = (*MALFORMED, OSError, EOFError, RuntimeError, SyntaxError, AssertionError, zipfile.BadZipFile)
"""What decoders of other projects raise on damaged bytes, as found by giving them damaged bytes."""

_LONG_NUMBER = re.compile(r"\d{19}")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_MOST_INTEGER = 2**63


@contextmanager
def parsing(what: Path | str, expected: str) -> Iterator[None]:
    """Tell in one line that what a file says cannot be turned into what it should be; for code that takes parsed values apart.

    Args:
        what: the file, with the place in it.
        expected: what it should hold and what to do.

    Raises:
        DataError: names the file and the cause.
    """
    try:
        yield
    except MALFORMED as error:
        raise DataError(f"{what} cannot be read ({said(error)}); {expected}") from error


def said(error: BaseException) -> str:
    """Return what an exception says, in one short line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:160] if text else type(error).__name__


def printable(text: str) -> str:
    """Return a text that any encoder takes: bytes of names that are no UTF-8 are shown as escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def require_regular(path: Path, limit_bytes: int) -> int:
    """Return the size of a regular file that may be read; for libraries that open it themselves.

    Raises:
        DataError: missing, a folder, pipe, socket or device, unreadable, or too large; names it.
    """
    with open_regular(path) as stream:
        size = os.fstat(stream.fileno()).st_size
    if size > limit_bytes:
        raise DataError(
            f"{path} has {size} bytes, more than the {limit_bytes} that are read here; split it, or check"
            " what it is"
        )
    return size


def open_regular(path: Path) -> io.BufferedReader:
    """Open a regular file for reading; a pipe, socket or device is refused before it is opened for good, for it might never end.

    Raises:
        DataError: missing, something else than a file, or unreadable; names it.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        raise DataError(_cannot_open(path, error)) from error
    except ValueError as error:
        raise DataError(f"{str(path)!r:.80} is no path ({error}); correct it") from error
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        raise DataError(f"{path} is {_kind(mode)}; expected a regular file")
    return os.fdopen(handle, "rb")


def read_bytes(path: Path, limit_bytes: int = TEXT_BYTES) -> bytes:
    """Return the content of a regular file of bounded size.

    Raises:
        DataError: as :func:`require_regular`.
    """
    with open_regular(path) as stream:
        data = stream.read(limit_bytes + 1)
    if len(data) > limit_bytes:
        raise DataError(
            f"{path} has more than the {limit_bytes} bytes that are read here; split it, or check what it is"
        )
    return data


def read_text(path: Path, limit_bytes: int = TEXT_BYTES) -> str:
    """Return the content of a text file of bounded size, a mark of byte order left out.

    Raises:
        DataError: as :func:`read_bytes`, or no UTF-8.
    """
    try:
        return read_bytes(path, limit_bytes).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is no UTF-8 text ({error.reason} at byte {error.start}); save it as UTF-8"
        ) from error


def parse_json(text: str, where: Path | str, *, unique_keys: bool = False, finite: bool = False) -> Any:
    """Parse JSON whose depth, whole numbers and text are such that all of our code can take them.

    Args:
        text: the document.
        where: for messages.
        unique_keys: True refuses an object that says one key twice, of which a reader sees the last alone:
            for what people write.
        finite: True refuses NaN and infinity, which are no JSON though others write them; nothing of ours
            does.

    Raises:
        DataError: no JSON, too deep, a whole number beyond 64 bits, or text that is half of a character.
    """

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        told: dict[str, Any] = {}
        for key, value in found:
            if key in told:
                raise DataError(
                    f"{where} says {key!r:.60} twice in one object, and only one can be meant; delete the"
                    " other"
                )
            told[key] = value
        return told

    def integer(digits: str) -> int:
        if len(digits) > 20 or not -_MOST_INTEGER <= int(digits) < _MOST_INTEGER:
            raise DataError(
                f"{where} holds the number {digits[:20]}... of {len(digits)} digits, which does not fit 64"
                " bits; correct it"
            )
        return int(digits)

    try:
        has_long = _LONG_NUMBER.search(text) is not None
        value = json.loads(
            text, object_pairs_hook=pairs if unique_keys else None, parse_int=integer if has_long else None
        )
    except (ValueError, RecursionError) as error:  # no JSON, or thousands of brackets
        raise DataError(f"{where} is not JSON ({said(error)}); restore it") from error
    _require_shallow(value, where)
    if finite:
        try:
            json.dumps(value, allow_nan=False)
        except ValueError as error:
            raise DataError(
                f"{where} holds NaN or infinity where a number is expected; correct or restore it"
            ) from error
    if _SURROGATE.search(text):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise DataError(
                f"{where} holds half of a character (\\ud800 to \\udfff alone), which no text has; correct it"
            ) from error
    return value


def json_lines(path: Path, most_lines: int) -> Iterator[tuple[int, Any]]:
    """Yield ``(line number, value)`` of a bounded file of JSON lines; empty lines are passed over.

    Raises:
        DataError: no regular file, too large, too many lines, or no JSON lines; names the line.
    """
    require_regular(path, LINES_BYTES)
    with open_regular(path) as stream:
        if sum(block.count(b"\n") for block in iter(lambda: stream.read(1 << 20), b"")) > most_lines:
            raise DataError(
                f"{path} has more than {most_lines} lines, more than is read here; split the data"
            )
    number = 0
    try:
        with io.TextIOWrapper(open_regular(path), encoding="utf-8-sig") as handle:
            while line := handle.readline(LINE_CHARACTERS + 1):
                number += 1
                if len(line) > LINE_CHARACTERS:
                    raise DataError(
                        f"{path} has a line {number} of more than {LINE_CHARACTERS} characters, more than is"
                        " read here; split the data"
                    )
                if line.strip():
                    yield number, parse_json(line, f"{path} line {number}")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} line {number + 1} is no UTF-8 text ({error.reason}); repair it") from error


def require_zip(path: Path, unpacked_bytes: int, remedy: str, *, is_stored: bool = False) -> None:
    """Raise unless a zip archive says that it unpacks to a bounded size; readers stop at what it says.

    Args:
        path: the archive.
        unpacked_bytes: of all entries together.
        remedy: what to do about a damaged one.
        is_stored: True refuses compressed entries, which whoever writes this kind of archive never makes.

    Raises:
        DataError: no archive, too large, or compressed.
    """
    require_regular(path, unpacked_bytes)
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    except DAMAGED as error:
        raise DataError(
            f"{path} cannot be read as an archive ({type(error).__name__}), it is damaged; {remedy}"
        ) from error
    size = sum(entry.file_size for entry in entries)
    if size > unpacked_bytes:
        raise DataError(
            f"{path} unpacks to {size} bytes, more than the {unpacked_bytes} it may take; {remedy}"
        )
    if is_stored and any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
        raise DataError(f"{path} has compressed entries, which nothing of ours writes; {remedy}")


def _require_shallow(value: Any, where: Path | str) -> None:
    level = [value]
    for _ in range(JSON_DEPTH):
        level = [
            inner
            for v in level
            if isinstance(v, (dict, list))
            for inner in (v.values() if isinstance(v, dict) else v)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return
    raise DataError(
        f"{where} nests more than {JSON_DEPTH} objects and lists in each other; nothing that is read here"
        " does, check what it is"
    )


def _cannot_open(path: Path, error: OSError) -> str:
    reasons = {
        errno.ENOENT: "is missing; check the path, or download it again",
        errno.ENOTDIR: "is missing: part of its path is a file; check the path",
        errno.EACCES: "may not be read (permission denied); change its permissions",
        errno.EPERM: "may not be read (permission denied); change its permissions",
        errno.ELOOP: "is a link that leads in a circle; restore the file",
        errno.ENXIO: "is a socket or device; expected a regular file",
        errno.ENAMETOOLONG: "has a name that is too long; correct it",
    }
    return (
        f"{path}"
        f" {reasons.get(error.errno or 0, f'cannot be opened ({(error.strerror or said(error)).lower()})')}"
    )


def _kind(mode: int) -> str:
    kinds = (
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a device"),
        (stat.S_ISBLK, "a device"),
    )
    return next((word for test, word in kinds if test(mode)), "no file")
