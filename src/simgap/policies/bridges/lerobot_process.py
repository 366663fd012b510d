"""The other end of :mod:`simgap.policies.bridges.lerobot_worker`: a process in lerobot's own environment, bounded, timed and never outlived."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from simgap.compute.child import Child, UnaskedError, ask_program, one_line, parent_to_die_with
from simgap.compute.machine import worker_environment
from simgap.errors import ConventionError, DataError, MachineError, SimgapError, UsageError
from simgap.policies.bridges import lerobot_worker
from simgap.policies.bridges.lerobot_worker import PREFIX, FrameError, lengths, pack, unpack
from simgap.trust import require_allowed

VARIABLE = "SIMGAP_LEROBOT_PYTHON"
DEFAULT = Path(".venv-compat/bin/python")
TESTED = "0.6.1"
WORKER = Path(lerobot_worker.__file__)
MAKE = (
    f"python3.12 -m venv .venv-compat && .venv-compat/bin/pip install 'lerobot[dataset,diffusion]=={TESTED}'"
)
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
_MOST_ENTRIES = 100_000
_REFUSED: Mapping[str, type[SimgapError]] = {
    "data": DataError,
    "usage": UsageError,
    "machine": MachineError,
    "convention": ConventionError,
}


def find_python(named: Path | None) -> Path:
    """Return the Python that has lerobot: the one named, the one in ``SIMGAP_LEROBOT_PYTHON``, or that of ``.venv-compat`` here.

    Raises:
        MachineError: it is not there; names how to make one.
        UntrustedError: it only lies in the current folder, which may be anybody's.
    """
    variable = os.environ.get(VARIABLE)
    python = named or (Path(variable) if variable else DEFAULT)
    found = shutil.which(str(python))
    if found is not None and not named and not variable:
        instead = f"export {VARIABLE}={Path(found).absolute()}"
        require_allowed(
            str(DEFAULT), what="a program to start", by=f"the current folder ({Path.cwd()})", instead=instead
        )
    if found is None:
        where = "python of the policy file" if named else VARIABLE if variable else "the default"
        raise MachineError(
            f"no Python with lerobot at {python} ({where}); make one: {MAKE}; or name another in {VARIABLE}"
        )
    return Path(found).absolute()  # not resolved: a link into a virtual environment is what makes it one


def versions(python: Path) -> dict[str, str]:
    """Return the versions of lerobot and torch that a Python has, without importing them.

    Raises:
        MachineError: it cannot be started, or has no lerobot.
    """
    question = "from importlib.metadata import version; print(version('lerobot'), version('torch'))"
    try:
        done = ask_program([str(python), "-P", "-c", question], env=_environment(1), timeout_s=60.0)
    except (OSError, TimeoutError, OverflowError) as error:
        why = one_line(str(error)) or "it does not end"
        raise MachineError(
            f"{python} cannot be asked ({why}); name a Python with lerobot, or make one: {MAKE}"
        ) from error
    words = done.out.split()
    if done.code != 0 or len(words) != 2:
        raise MachineError(
            f"{python} has no lerobot ({done.words or 'it said nothing':.200}); make an environment that has:"
            f" {MAKE}"
        )
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
        self._python, self._type, self._clock, self._reply_timeout_s = (
            python,
            _type_of(request),
            clock,
            reply_timeout_s,
        )
        self._questions = 0
        command = [str(python), "-P", str(WORKER), str(parent_to_die_with())]
        try:
            self._child = Child(command, env=_environment(int(request["threads"])), clock=clock)
        except OSError as error:
            raise MachineError(
                f"{python} cannot be started ({error.strerror}); name a Python with lerobot, or make one:"
                f" {MAKE}"
            ) from error
        self.facts = _checked_facts(self._ask(request, {}, start_timeout_s)[0])

    def ask(self, request: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Send a request and return the arrays of the answer.

        Raises:
            MachineError: the worker died, gave no answer in time, or raised.
            SimgapError: it refused.
        """
        return self._ask(request, arrays, self._reply_timeout_s)[1]

    def close(self) -> None:
        """End the process."""
        self._child.close()

    def _ask(
        self, request: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], timeout_s: float
    ) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        if not self._child.is_open:
            raise MachineError("the lerobot worker has ended, closed or after a fault; open the policy again")
        self._questions += 1
        deadline = self._clock() + timeout_s
        try:
            message = b"".join(pack({**request, "id": self._questions}, arrays))
        except FrameError as error:
            raise UsageError(str(error)) from error
        try:
            answer, out = self._exchanged(message, deadline)
        except TimeoutError as error:
            self.close()
            raise MachineError(
                f"the lerobot worker gave no answer within {timeout_s:g} s; raise start_timeout_s or"
                " reply_timeout_s, or give it a GPU"
            ) from error
        except FrameError as error:
            self.close()
            raise DataError(
                f"the lerobot worker does not speak this protocol: {error}; use the worker that came with"
                " this version"
            ) from error
        except (BrokenPipeError, EOFError) as error:
            raise MachineError(self._death()) from error
        except BaseException:
            self.close()  # half a message is under way
            raise
        if "refused" in answer:
            raise _REFUSED.get(str(answer["refused"]), DataError)(
                one_line(str(answer.get("text", "it did not say why")))
            )
        if "raised" in answer:
            self.close()
            raise self._raised(
                str(answer["raised"]),
                one_line(str(answer.get("text", ""))),
                str(answer.get("trace", ""))[:8000],
            )
        return answer, out

    def _exchanged(self, message: bytes, deadline: float) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the answer to a message, and no other answer.

        Raises:
            FrameError: what came is no answer to it.
            TimeoutError, EOFError, BrokenPipeError: nothing came.
        """
        try:
            self._child.require_silence()
        except UnaskedError as error:
            raise FrameError("it spoke when nothing was asked") from error
        self._child.write(message, deadline)
        text, payload = lengths(self._child.read(PREFIX.size, deadline))
        answer, out = unpack(self._child.read(text, deadline), self._child.read(payload, deadline))
        if answer.pop("id", None) != self._questions:
            raise FrameError("it answered another question than the one that was asked")
        return answer, out

    def _death(self) -> str:
        """End the worker and return how it had died, with its last words; the same again helps only where somebody else ended it."""
        ending = self._child.ending()
        again = (
            "run the same command again"
            if ending.is_from_outside
            else "the same command would end the same way until that is mended"
        )
        return f"the lerobot worker {ending}; {again}, or look at {self._python}"

    def _raised(self, kind: str, text: str, trace: str) -> SimgapError:
        error: SimgapError
        if kind == "ModuleNotFoundError" and any(f"'{name}'" in text for name in ("lerobot", "torch")):
            error = MachineError(
                f"{self._python} has no lerobot ({text}); make an environment that has: {MAKE}"
            )
        elif kind in ("ImportError", "ModuleNotFoundError"):
            extra, text = EXTRAS.get(self._type), text.partition(". Install it with")[0]
            remedy = (
                f"{self._python} -m pip install 'lerobot[{extra}]=={TESTED}'" if extra else "install it there"
            )
            error = MachineError(
                f"policy type {self._type!r} needs a package that {self._python} lacks ({text:.300});"
                f" {remedy}"
            )
        elif kind == "FileNotFoundError":
            error = DataError(
                f"lerobot misses a file of the checkpoint ({text:.300}); copy the whole folder"
                " pretrained_model, its processors included"
            )
        else:
            error = DataError(
                f"lerobot could not run the checkpoint ({kind}: {text:.400}); see the note of this error for"
                f" where, and whether lerobot is {TESTED}"
            )
        error.add_note(trace)
        return error


def _environment(threads: int) -> dict[str, str]:
    """Return the worker's variables: lerobot's own Python path, no downloads unless asked for, as many threads as given."""
    kept = {
        k: v
        for k, v in os.environ.items()
        if k not in ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "VIRTUAL_ENV")
    }
    defaults = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    return {**defaults, **kept, **worker_environment(threads), "PYTHONUNBUFFERED": "1"}


def _type_of(request: Mapping[str, Any]) -> str:
    return str(request.get("type", "?"))


def _checked_facts(facts: dict[str, Any]) -> dict[str, Any]:
    """Return what a worker says of its checkpoint, where it is what a worker says.

    Raises:
        DataError: it is not.
    """
    entries, scalers = facts.get("entries"), facts.get("scalers")
    is_whole = type(entries) is int and 0 < entries <= _MOST_ENTRIES
    if not is_whole or any(
        not isinstance(facts.get(name), bool) for name in ("watches", "takes_task", "is_relative")
    ):
        raise DataError(
            f"the lerobot worker says {facts!s:.120} of its checkpoint; use the worker that came with this"
            " version"
        )
    for scaler in scalers if isinstance(scalers, list) else [None]:
        texts = [scaler.get(name) for name in ("features", "modes")] if isinstance(scaler, dict) else [None]
        listed = scaler.get("statistics") if isinstance(scaler, dict) else None
        is_told = all(isinstance(t, dict) and all(isinstance(v, str) for v in t.values()) for t in texts)
        if not is_told or not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
            raise DataError(
                f"the lerobot worker says {scaler!s:.120} of a normaliser; use the worker that came with this"
                " version"
            )
    return facts
