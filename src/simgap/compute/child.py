"""Another program: started, asked and ended. Every wait has an end, what it says is bounded, and nothing of it stays behind.

A child has a process group of its own, so Ctrl-C in a terminal reaches its driver only, and what it started
ends with it. What it writes to standard error is kept as its last words, never more than a few kilobytes of
them.
"""

from __future__ import annotations

import ctypes
import os
import re
import selectors
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO, NamedTuple

_POLL_S = 0.2
_PART_BYTES = 1 << 20
_WORDS_BYTES = 8192
_FREE_BYTES = 1 << 20
"""Of standard error that are read as fast as they come; what says more is slowed."""
_SLOWED_S = 0.01
_LINE = 300
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
OUTSIDE_SIGNALS = frozenset({"SIGKILL", "SIGTERM", "SIGHUP", "SIGINT"})
"""Signals that somebody else sends; the others are a program's own faults, which come again."""


class UnaskedError(Exception):
    """The child spoke although nothing had been asked: its next words could be taken for another answer."""


class Child:
    """A running program with pipes to it. Not for two threads at a time."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start it.

        Args:
            command: program and arguments.
            env: its environment; this process's by default.
            clock: monotonic, in seconds; deadlines are counted in it.

        Raises:
            OSError: it cannot be started.
        """
        self._clock = clock
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            list(command),
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            bufsize=0,
            env=None if env is None else dict(env),
            process_group=0,
        )
        self._words = _LastWords(_opened(self._process.stderr))
        self._end = weakref.finalize(self, _end, self._process)
        for stream in (self._process.stdin, self._process.stdout):
            os.set_blocking(_opened(stream).fileno(), False)

    @property
    def pid(self) -> int:
        """Number of the process, and of its group."""
        return self._process.pid

    @property
    def is_open(self) -> bool:
        """Whether it has not been closed here; it may have ended by itself."""
        return self._end.alive

    def write(self, data: bytes, deadline: float) -> None:
        """Send bytes.

        Raises:
            TimeoutError: it does not take them in time.
            BrokenPipeError: it has closed its input.
        """
        number, left = _opened(self._process.stdin).fileno(), memoryview(data)
        with selectors.DefaultSelector() as selector:
            selector.register(number, selectors.EVENT_WRITE)
            while left:
                self._wait(selector, deadline)
                try:
                    left = left[os.write(number, left) :]
                except BlockingIOError:
                    continue

    def read(self, count: int, deadline: float) -> bytes:
        """Return exactly so many bytes; the caller has bounded the number.

        Raises:
            TimeoutError: they do not come in time.
            EOFError: its output ended before.
        """
        parts: list[bytes] = []
        while count:
            part = self._read_some(count, deadline)
            if not part:
                raise EOFError
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def require_silence(self) -> None:
        """Go on only if nothing waits to be read.

        Raises:
            UnaskedError: something does.
            EOFError: its output has ended.
        """
        number = _opened(self._process.stdout).fileno()
        with selectors.DefaultSelector() as selector:
            selector.register(number, selectors.EVENT_READ)
            if not selector.select(0):
                return
        if os.read(number, 1):
            raise UnaskedError
        raise EOFError

    def read_all(self, limit: int, deadline: float) -> bytes:
        """Return what it says until it ends or closes its output.

        Raises:
            TimeoutError: it goes on for too long.
            OverflowError: it says more than the limit.
        """
        parts: list[bytes] = []
        left = limit
        while part := self._read_some(left + 1, deadline, until_ended=True):
            parts.append(part)
            left -= len(part)
            if left < 0:
                raise OverflowError(f"more than {limit} bytes")
        return b"".join(parts)

    def close_input(self) -> None:
        """Let it read an end."""
        _opened(self._process.stdin).close()

    def wait(self, seconds: float) -> int | None:
        """Return its exit code, negative for a signal, or None if it runs on for so long."""
        end = self._clock() + seconds
        while (code := _code_of(self._process)) is None and self._clock() < end:
            time.sleep(0.005)
        return code

    def close(self) -> None:
        """Kill it and what it started, at once."""
        self._end()
        self._words.join()

    def errors(self) -> str:
        """Return the end of what it wrote to standard error."""
        return self._words.text()

    def ending(self, patience_s: float = 2.0) -> Ending:
        """End it, and return how it had ended by itself."""
        code = self.wait(patience_s)
        self._words.join()
        words = _last_line(self.errors())
        self.close()
        return Ending(code=code, words=words)

    def _read_some(self, most: int, deadline: float, *, until_ended: bool = False) -> bytes:
        number = _opened(self._process.stdout).fileno()
        with selectors.DefaultSelector() as selector:
            selector.register(number, selectors.EVENT_READ)
            while True:
                if not self._wait(selector, deadline, until_ended=until_ended):
                    return b""
                try:
                    return os.read(number, min(most, _PART_BYTES))
                except BlockingIOError:
                    continue

    def _wait(self, selector: selectors.BaseSelector, deadline: float, *, until_ended: bool = False) -> bool:
        """Return True once the pipe is ready, False where the child has ended and nothing is left in it."""
        while self._clock() <= deadline:
            has_ended = until_ended and _code_of(self._process) is not None
            if selector.select(0 if has_ended else _POLL_S):
                return True
            if has_ended:  # a process that it left behind may hold the pipe open for ever
                return False
        raise TimeoutError


class Ending(NamedTuple):
    """How a child ended by itself."""

    code: int | None
    """Exit code, negative for a signal; None if it had closed its pipe and ran on."""
    words: str
    """Its last line on standard error."""

    @property
    def is_from_outside(self) -> bool:
        """Whether somebody killed it, so that the same again may do better."""
        return self.code is not None and self.code < 0 and signal_name(-self.code) in OUTSIDE_SIGNALS

    def __str__(self) -> str:
        words = f": {self.words}" if self.words else ""
        if self.code is None:
            return f"closed its pipe and ran on{words}"
        if self.code < 0:
            name = signal_name(-self.code)
            by = " (by hand or for lack of memory)" if name == "SIGKILL" else ""
            return f"was killed by {name}{by}{words}"
        return f"ended with code {self.code}{words or ' and said nothing'}"


class Finished(NamedTuple):
    """What a program said and how it ended."""

    code: int
    out: str
    errors: str
    """The end of what it wrote to standard error."""

    @property
    def words(self) -> str:
        """Its last line on standard error, shortened."""
        return _last_line(self.errors)


def ask_program(
    command: Sequence[str], *, env: Mapping[str, str] | None = None, timeout_s: float, limit: int = 1 << 16
) -> Finished:
    """Run a program without input and return what it said; nothing of it runs on afterwards.

    Raises:
        OSError: it cannot be started.
        TimeoutError: it does not end in time.
        OverflowError: it says more than ``limit`` bytes.
    """
    child = Child(command, env=env)
    try:
        child.close_input()
        deadline = time.monotonic() + timeout_s
        out = child.read_all(limit, deadline).decode(errors="replace")
        code = child.wait(max(0.0, deadline - time.monotonic()))
        if code is None:
            raise TimeoutError
        child.close()
        return Finished(code, out, child.errors())
    finally:
        child.close()


def die_with(parent: int) -> None:
    """Ask Linux to kill this process when the thread that started it ends, even while it hangs; 0 asks for nothing."""
    if parent and sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        if os.getppid() != parent:  # it died before it could be asked for
            os._exit(1)


def parent_to_die_with() -> int:
    """Return what a child of this thread gives to :func:`die_with`: a thread that comes and goes takes nobody along."""
    return os.getpid() if threading.current_thread() is threading.main_thread() else 0


def one_line(text: str) -> str:
    """Return a foreign text as one line that moves no cursor, shortened."""
    return _CONTROL.sub("?", " ".join(text.split()))[:_LINE]


def signal_name(number: int) -> str:
    """Return the name of a signal, or its number where it has none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _last_line(text: str) -> str:
    return next((line for line in map(one_line, reversed(text.splitlines())) if line), "")


class _LastWords:
    """Reads standard error to its end, in a thread of its own, and keeps the last of it."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._kept, self._lock = stream, bytearray(), threading.Lock()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def text(self) -> str:
        with self._lock:
            return self._kept.decode(errors="replace")

    def join(self) -> None:
        """Wait a moment for the end; a process that was left behind may hold the pipe open."""
        self._thread.join(timeout=1.0)

    def _read(self) -> None:
        total = 0
        with self._stream:
            while part := os.read(self._stream.fileno(), 1 << 16):
                with self._lock:
                    self._kept += part
                    del self._kept[:-_WORDS_BYTES]
                total += len(part)
                if total > _FREE_BYTES:
                    time.sleep(_SLOWED_S)


def _opened(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None  # all three were asked for
    return pipe


def _code_of(process: subprocess.Popen[bytes]) -> int | None:
    """Return the exit code of a process without taking leave of it: its number still names its group and nobody else."""
    if process.returncode is not None:
        return process.returncode
    try:
        found = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return process.poll()
    if found is None:
        return None
    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):  # all of it has ended, or what is left is not ours
            process.kill()
        # the kernel may hold on to it, as to one that waits for a dead disk
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=10.0)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
