"""The other end of :mod:`simgap.policies.bridges.lerobot_worker`: a process in lerobot's own environment, bounded, timed and never outlived."""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from numpy.typing import NDArray

from simgap.errors import ConventionError, DataError, MachineError, SimgapError, UsageError
from simgap.machine import worker_environment
from simgap.policies.bridges import lerobot_worker
from simgap.policies.bridges.lerobot_worker import PREFIX, FrameError, lengths, pack, unpack

VARIABLE = "SIMGAP_LEROBOT_PYTHON"
DEFAULT = Path(".venv-compat/bin/python")
TESTED = "0.6.1"
WORKER = Path(lerobot_worker.__file__)
MAKE = f"python3.12 -m venv .venv-compat && .venv-compat/bin/pip install 'lerobot[dataset,diffusion]=={TESTED}'"
EXTRAS: Mapping[str, str] = {
    "diffusion": "diffusion",
    "smolvla": "smolvla",
    "pi0": "pi",
    "pi05": "pi",
    "pi0_fast": "pi",
    "multi_task_dit": "multi-task-dit",
    "groot": "groot",
}
"""lerobot's extra with the packages of a policy type; types that are not listed need none, or name theirs."""
_LOG_BYTES = 16 << 20
_POLL_S = 0.2
_REFUSED: Mapping[str, type[SimgapError]] = {"data": DataError, "usage": UsageError, "machine": MachineError, "convention": ConventionError}


def find_python(named: Path | None) -> Path:
    """Return the Python that has lerobot: the one named, the one in ``SIMGAP_LEROBOT_PYTHON``, or that of ``.venv-compat`` here.

    Raises:
        MachineError: it is not there; names how to make one.
    """
    variable = os.environ.get(VARIABLE)
    python = named or (Path(variable) if variable else DEFAULT)
    found = shutil.which(str(python))
    if found is None:
        where = "python of the policy file" if named else VARIABLE if variable else "the default"
        raise MachineError(f"no Python with lerobot at {python} ({where}); make one: {MAKE}; or name another in {VARIABLE}")
    return Path(found).absolute()  # not resolved: a link into a virtual environment is what makes it one


def versions(python: Path) -> dict[str, str]:
    """Return the versions of lerobot and torch that a Python has, without importing them.

    Raises:
        MachineError: it cannot be started, or has no lerobot.
    """
    question = "from importlib.metadata import version; print(version('lerobot'), version('torch'))"
    try:
        done = subprocess.run([str(python), "-P", "-c", question], env=_environment(1), capture_output=True, text=True, timeout=60.0, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MachineError(f"{python} cannot be started ({error}); name a Python with lerobot, or make one: {MAKE}") from error
    words = done.stdout.split()
    if done.returncode != 0 or len(words) != 2:
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()] or ["it said nothing"]
        raise MachineError(f"{python} has no lerobot ({said[-1]:.200}); make an environment that has: {MAKE}")
    return {"lerobot": words[0], "torch": words[1]}


class LerobotWorker:
    """A running worker. After any fault it is ended: an answer that comes too late must never meet the next question."""

    def __init__(
        self,
        python: Path,
        request: Mapping[str, Any],
        *,
        start_timeout_s: float = 300.0,
        reply_timeout_s: float = 120.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start it and load the checkpoint.

        Args:
            python: of the environment with lerobot.
            request: what to load, see :class:`simgap.policies.bridges.lerobot_worker.Server`.
            start_timeout_s: for imports and weights; minutes for a large model on a slow disk.
            reply_timeout_s: for one prediction.
            clock: monotonic, in seconds.

        Raises:
            MachineError: it cannot be started, dies, or lacks a package; names the remedy.
            SimgapError: the checkpoint cannot be used.
        """
        self._python, self._type, self._clock, self._reply_timeout_s = python, _type_of(request), clock, reply_timeout_s
        self._log: IO[bytes] = tempfile.TemporaryFile(mode="a+b")  # noqa: SIM115  closed when the process has ended
        # The kernel ends a child with the thread that started it; a thread that comes and goes must not take the policy along.
        parent = os.getpid() if threading.current_thread() is threading.main_thread() else 0
        try:
            self._process = subprocess.Popen(
                [str(python), "-P", str(WORKER), str(parent)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                bufsize=0,
                env=_environment(int(request["threads"])),
            )
        except OSError as error:
            self._log.close()
            raise MachineError(f"{python} cannot be started ({error.strerror}); name a Python with lerobot, or make one: {MAKE}") from error
        self._end = weakref.finalize(self, _end, self._process, self._log)
        for pipe in (self._process.stdin, self._process.stdout):
            os.set_blocking(_number(pipe), False)
        self.facts, _ = self._ask(request, {}, start_timeout_s)

    def ask(self, request: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Send a request and return the arrays of the answer.

        Raises:
            MachineError: the worker died, gave no answer in time, or raised.
            SimgapError: it refused.
        """
        return self._ask(request, arrays, self._reply_timeout_s)[1]

    def close(self) -> None:
        """End the process."""
        self._end()

    def _ask(self, request: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], timeout_s: float) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        if not self._end.alive:
            raise MachineError("the lerobot worker has ended, closed or after a fault; open the policy again")
        deadline = self._clock() + timeout_s
        try:
            message = b"".join(pack(request, arrays))
        except FrameError as error:
            raise UsageError(str(error)) from error
        try:
            self._write(message, deadline)
            text, payload = lengths(self._read(PREFIX.size, deadline))
            answer, out = unpack(self._read(text, deadline), self._read(payload, deadline))
        except TimeoutError as error:
            self.close()
            raise MachineError(
                f"the lerobot worker gave no answer within {timeout_s:g} s; raise start_timeout_s or reply_timeout_s, or give it a GPU"
            ) from error
        except FrameError as error:
            self.close()
            raise DataError(f"the lerobot worker does not speak this protocol: {error}; use the worker that came with this version") from error
        except (BrokenPipeError, EOFError) as error:
            raise MachineError(self._death()) from error
        except KeyboardInterrupt:
            self.close()  # half a message is under way
            raise
        if os.fstat(self._log.fileno()).st_size > _LOG_BYTES:
            self._log.truncate(0)
        if "refused" in answer:
            raise _REFUSED.get(str(answer["refused"]), DataError)(str(answer["text"]))
        if "raised" in answer:
            self.close()
            raise self._raised(str(answer["raised"]), " ".join(str(answer["text"]).split()), str(answer.get("trace", "")))
        return answer, out

    def _write(self, data: bytes, deadline: float) -> None:
        number, left = _number(self._process.stdin), memoryview(data)
        with selectors.DefaultSelector() as selector:
            selector.register(number, selectors.EVENT_WRITE)
            while left:
                self._wait(selector, deadline)
                try:
                    left = left[os.write(number, left) :]
                except BlockingIOError:
                    continue

    def _read(self, count: int, deadline: float) -> bytes:
        number, parts, left = _number(self._process.stdout), list[bytes](), count
        with selectors.DefaultSelector() as selector:
            selector.register(number, selectors.EVENT_READ)
            while left:
                self._wait(selector, deadline)
                try:
                    part = os.read(number, min(left, 1 << 20))
                except BlockingIOError:
                    continue
                if not part:
                    raise EOFError
                parts.append(part)
                left -= len(part)
        return b"".join(parts)

    def _wait(self, selector: selectors.BaseSelector, deadline: float) -> None:
        while self._clock() <= deadline:
            if selector.select(_POLL_S):
                return
        raise TimeoutError

    def _death(self) -> str:
        """End the worker and return how it had died, with its last words."""
        try:
            code: int | str = self._process.wait(timeout=5.0)
        except subprocess.TimeoutExpired:
            code = "none: it closed its pipe"
        lines = _tail(self._log).splitlines()
        self.close()
        if isinstance(code, int) and code < 0:
            how = f"was killed by {signal.Signals(-code).name} (SIGKILL: by hand or for lack of memory)"
        else:
            said = [line.strip() for line in lines if line.strip()]
            how = f"ended with code {code}: {said[-1]:.300}" if said else f"ended with code {code} and said nothing"
        return f"the lerobot worker {how}; run the same command again, or look at {self._python}"

    def _raised(self, kind: str, text: str, trace: str) -> SimgapError:
        error: SimgapError
        if kind == "ModuleNotFoundError" and any(f"'{name}'" in text for name in ("lerobot", "torch")):
            error = MachineError(f"{self._python} has no lerobot ({text}); make an environment that has: {MAKE}")
        elif kind in ("ImportError", "ModuleNotFoundError"):
            extra, text = EXTRAS.get(self._type), text.partition(". Install it with")[0]
            remedy = f"{self._python} -m pip install 'lerobot[{extra}]=={TESTED}'" if extra else "install it there"
            error = MachineError(f"policy type {self._type!r} needs a package that {self._python} lacks ({text:.300}); {remedy}")
        elif kind == "FileNotFoundError":
            error = DataError(f"lerobot misses a file of the checkpoint ({text:.300}); copy the whole folder pretrained_model, its processors included")
        else:
            error = DataError(
                f"lerobot could not run the checkpoint ({kind}: {text:.400}); see the note of this error for where, and whether lerobot is {TESTED}"
            )
        error.add_note(trace)
        return error


def _environment(threads: int) -> dict[str, str]:
    """Return the worker's variables: lerobot's own Python path, no downloads unless asked for, as many threads as given."""
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "VIRTUAL_ENV")}
    defaults = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    return {**defaults, **kept, **worker_environment(threads), "PYTHONUNBUFFERED": "1"}


def _type_of(request: Mapping[str, Any]) -> str:
    return str(request.get("type", "?"))


def _number(pipe: IO[bytes] | None) -> int:
    assert pipe is not None  # both were asked for
    return pipe.fileno()


def _tail(log: IO[bytes], size: int = 8192) -> str:
    log.seek(max(0, log.seek(0, os.SEEK_END) - size))
    return log.read().decode(errors="replace")


def _end(process: subprocess.Popen[bytes], log: IO[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    log.close()
