"""Ctrl-C, a terminated job and a closed terminal: one exception, one line, wherever the program is.

An exception raised from a signal is safe almost everywhere. It is not while a module is being imported
(libraries turn it into errors of their own, or are left half made) and not in a destructor (Python prints it
and goes on): there the program leaves at once, with the same line and the same exit code. Nothing is lost by
that: files are written whole or not at all, and worker processes die with their parent.

This module imports next to nothing, because it is the first that runs.
"""

from __future__ import annotations

import os
import signal
import sys
import time

TYPE_CHECKING = False  # that of typing, which takes its time to import
if TYPE_CHECKING:
    from types import FrameType, TracebackType
    from typing import Any, NoReturn

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SAID = "what was finished is on disk"
_GO_ON = (
    ["generate"],
    ["screen"],
    ["select"],
    ["trial"],
    ["demo"],
    ["study"],
    ["data", "convert"],
    ["data", "merge"],
)
"""Verbs that make what is missing when they are called again."""
_WORDS = {
    signal.SIGINT: "interrupted",
    signal.SIGTERM: "terminated",
    signal.SIGHUP: "the terminal was closed",
}
_IMPORTING = frozenset({"<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>"})
_SAME_S = 0.5
"""A second signal so soon is the first, sent to a process and to its group."""
_PATIENCE_S = 2.0
"""After which another signal is not noted any more but obeyed."""


class Stopped(KeyboardInterrupt):
    """A signal asked this program to end."""

    def __init__(self, number: int, what_now: str = SAID) -> None:
        super().__init__(number)
        self.number, self.what_now = number, what_now

    @property
    def exit_code(self) -> int:
        """What a shell says of a program that this signal ended."""
        return 128 + self.number

    def __str__(self) -> str:
        return f"{_WORDS.get(signal.Signals(self.number), 'interrupted')}; {self.what_now}"


def told(stopped: Stopped, words: list[str]) -> str:
    """Return what is said of a command that was stopped; where the same command goes on with what is missing, that too."""
    goes_on = stopped.what_now == SAID and (words[:1] in _GO_ON or words[:2] in _GO_ON)
    return f"{stopped}; the same command goes on with what is missing" if goes_on else str(stopped)


def install(words: list[str]) -> None:
    """Take the signals over for the whole program; what the user has set to be ignored (``nohup``) stays ignored.

    Args:
        words: of the command line; with ``--json`` among them, leaving at once prints a document too.
    """
    first: list[float] = []

    def heard(number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if first and now - first[0] < _SAME_S:
            return
        if first or _is_importing(frame):
            _leave(number, words)
        first.append(now)
        raise Stopped(number)

    def unraisable(told: Any) -> None:
        if isinstance(told.exc_value, Stopped):
            _leave(told.exc_value.number, words)
        sys.__unraisablehook__(told)

    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, heard)
    sys.unraisablehook = unraisable


def leaving(code: int) -> None:
    """Say that all is done but to leave: a signal from now on leaves at once, with the exit code that is decided."""
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: os._exit(code))


class HeldBack:
    """Lets what must not be torn apart go on: inside ``with`` a signal is noted, and ended by where that may be.

    Outside the main thread, and for signals that are ignored, nothing changes.
    """

    def __init__(self) -> None:
        """Note nothing yet."""
        self.number: int | None = None
        """The signal that came, None so far."""
        self._since = 0.0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> HeldBack:
        """Begin to note."""
        try:
            for number in SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._hear)
        except ValueError:  # only the main thread has signals
            return self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Give the signals back to who had them."""
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _hear(self, number: int, _: FrameType | None) -> None:
        now = time.monotonic()
        if self.number is None:
            self.number, self._since = number, now
        elif now - self._since >= _PATIENCE_S:
            raise Stopped(number)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename in _IMPORTING:
            return True
        frame = frame.f_back
    return False


def _leave(number: int, words: list[str]) -> NoReturn:
    text = told(Stopped(number), words)
    document = (
        f'{{"error": "{text}", "kind": "KeyboardInterrupt", "exit": {128 + number}}}\n'
        if "--json" in words
        else ""
    )
    for handle, said in ((2, f"simgap: {text}\n"), (1, document)):
        try:
            os.write(handle, said.encode())
        except OSError:  # closed, or nobody reads
            continue
    os._exit(128 + number)
