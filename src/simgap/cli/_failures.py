"""How an exception leaves the program: one line, one exit code, and with ``--json`` one document."""

from __future__ import annotations

import errno
import io
import os
import platform
import re
import signal
import sys
import tempfile
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from simgap import __version__
from simgap.cli._output import foreign, json_text
from simgap.compute.interrupts import Stopped, told
from simgap.errors import SimgapError

COULD_NOT = 3
PIPE_CLOSED = 141
_OUT_OF_MEMORY = re.compile(r"can't allocate memory|out of memory", re.IGNORECASE)
"""How torch says it: with a RuntimeError."""
_LONGEST = 4000
"""Characters of a message; what is quoted out of a file may be of any length."""
_DECODERS = ("pyarrow", "PIL", "av", "h5py", "safetensors", "safetensors_rust", "zipfile", "zlib")
"""Packages whose exceptions say that a file is damaged, whoever let them pass."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """What is told about an exception."""

    kind: str
    """Name of the exception's class."""
    message: str
    """One line: what was wrong, what was expected, what to do."""
    exit_code: int
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What is known all the same."""

    def to_json(self) -> dict[str, Any]:
        """Return the document of ``--json``: it has ``error`` where a success has none."""
        told = {"error": self.message, "kind": self.kind, "exit": self.exit_code}
        return told | {"facts": dict(self.facts)} if self.facts else told


def describe(error: BaseException, argv: list[str]) -> Failure:
    """Turn an exception into what the user is told; an unexpected one has its traceback saved."""
    kind = type(error).__name__
    if isinstance(error, SimgapError):
        return Failure(kind=kind, message=_one_line(str(error)), exit_code=error.exit_code, facts=error.facts)
    if isinstance(error, KeyboardInterrupt):
        stopped = error if isinstance(error, Stopped) else Stopped(signal.SIGINT)
        return Failure(
            kind=KeyboardInterrupt.__name__, message=told(stopped, argv), exit_code=stopped.exit_code
        )
    if isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and _OUT_OF_MEMORY.search(str(error))
    ):
        return Failure(
            kind=kind,
            message="out of memory; use fewer workers, smaller images or a smaller batch",
            exit_code=COULD_NOT,
        )
    if isinstance(error, OSError) and error.errno is not None:
        return Failure(kind=kind, message=_one_line(_os_error(error)), exit_code=COULD_NOT)
    cause = _one_line(f"{kind}: {error}")
    if type(error).__module__.partition(".")[0] in _DECODERS:
        return Failure(
            kind=kind,
            message=(
                f"a file cannot be decoded ({cause}): it is damaged, copy it again; --debug shows which it is"
            ),
            exit_code=COULD_NOT,
        )
    return Failure(
        kind=kind,
        message=f"a defect of simgap ({cause}); {_save_traceback(error, argv)}",
        exit_code=COULD_NOT,
    )


def tell(failure: Failure, *, as_json: bool) -> None:
    """Write the failure: one line on standard error and, for a program that reads us, one document on standard output."""
    print(f"simgap: {failure.message}", file=sys.stderr)
    if as_json:
        print(json_text(failure.to_json()))


def tolerate_any_text() -> None:
    """Let output show what UTF-8 cannot hold (names of files and robots that somebody else wrote) instead of failing on it.

    A stream that this program was started without leads nowhere, rather than into the next file that is
    opened.
    """
    for handle in (0, 1, 2):
        try:
            os.fstat(handle)
        except OSError:
            # takes the lowest free number, which is this one
            os.open(os.devnull, os.O_RDONLY if handle == 0 else os.O_WRONLY)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # started with the stream closed
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115, it stays open as long as the process
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def drop_stdout() -> None:
    """Point standard output at nothing after its reader has gone, so that the flush at exit stays silent."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def _os_error(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename is not None else ""
    remedies = {
        errno.ENOSPC: "; free some space or choose another --out",
        errno.EDQUOT: "; free some space or choose another --out",
        errno.EACCES: "; choose another path or change its permissions",
        errno.EPERM: "; choose another path or change its permissions",
        errno.EROFS: "; choose another --out",
        errno.ENOENT: "; check the path",
        errno.EFBIG: "; raise the limit (ulimit -f) or choose another --out",
        errno.EEXIST: "; expected a folder or nothing there: choose another --out",
        errno.ENOTDIR: "; part of the path is a file: check the path",
    }
    return f"{where}{(error.strerror or str(error)).lower()}{remedies.get(error.errno or 0, '')}"


def _save_traceback(error: BaseException, argv: list[str]) -> str:
    header = (
        f"simgap {__version__}, Python {platform.python_version()}, {platform.platform()}\ncommand: simgap"
        f" {' '.join(argv)}\n\n"
    )
    text = header + "".join(traceback.format_exception(error))
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="simgap-", suffix=".log", delete=False, encoding="utf-8"
        ) as file:
            file.write(text)
    except OSError:
        return "the traceback could not be saved, run again with --debug to see it"
    return f"please report it with {file.name}, where the traceback is"


def _one_line(text: str) -> str:
    """Return one line that moves no cursor, whatever a file or folder of somebody else is called."""
    line = foreign(" ".join(text.split()))
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 500]} [...] {line[-400:]}"
