"""The tasks of :mod:`simgap.compute.workers` on a Ray cluster: the same contract, another machine room."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import logging
import os
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from simgap.compute.machine import child_environment
from simgap.compute.workers import set_up, travelling
from simgap.errors import MachineError, UsageError
from simgap.trust import Trust, current, granted

Task = TypeVar("Task")
Result = TypeVar("Result")

LOCAL = "local"
"""Address that starts a cluster on this machine and ends it afterwards."""
_AHEAD = 2
"""Tasks an actor has at a time: it starts the next while the last result travels."""
_ANSWER_S = 5.0
_CLIENT_PORT = 10001
_SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
"""What every HTTP/2 connection begins with, on both sides; Ray speaks gRPC, which is HTTP/2."""
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _SETTINGS


class RayRunner:
    """A :class:`~simgap.compute.workers.TaskRunner` that hands tasks to actors of a Ray cluster."""

    def __init__(self, address: str, workers: int | None = None) -> None:
        """Take the cluster, and see whether anybody answers there; nothing is connected yet.

        Args:
            address: ``local``, ``auto``, ``host:port`` or ``ray://host:port``. Its machines share the
                filesystem of this one.
            workers: actors; one a CPU of the cluster by default.

        Raises:
            MachineError: Ray is not installed, or nobody answers.
        """
        if importlib.util.find_spec("ray") is None:
            raise MachineError(
                "Ray is not installed; pip install 'simgap[ray]', or leave out --ray to use the cores of this"
                " machine"
            )
        require_answer(address)
        self._address, self._workers = address, workers

    def __call__(
        self,
        setup: Callable[..., Callable[[Task], Result]],
        setup_args: Sequence[Any],
        tasks: Sequence[Task],
        *,
        workers: int,
        on_result: Callable[[Result], None],
    ) -> None:
        """Run every task on the cluster; see :func:`~simgap.compute.workers.run_tasks`.

        ``workers`` counts only where the cluster is local and none were asked for; 0 is taken as 1.
        """
        run_tasks_ray(
            setup,
            setup_args,
            tasks,
            workers=self._workers,
            on_result=on_result,
            address=self._address,
            local_cores=workers,
        )


def run_tasks_ray(
    setup: Callable[..., Callable[[Task], Result]],
    setup_args: Sequence[Any],
    tasks: Sequence[Task],
    *,
    workers: int | None,
    on_result: Callable[[Result], None],
    address: str,
    local_cores: int = 1,
) -> None:
    """Run every task on actors of a Ray cluster and hand results back as they come, in any order.

    Args:
        setup: as for :func:`~simgap.compute.workers.run_tasks`.
        setup_args: its arguments.
        tasks: what to do.
        workers: number of actors; one a CPU of the cluster if None.
        on_result: called in this process for each result.
        address: see :class:`RayRunner`.
        local_cores: CPUs of a cluster that is started here when ``workers`` is None.

    Raises:
        SimgapError, OSError, MemoryError: what an actor raised, as it raised it.
        MachineError: the cluster cannot be reached, or an actor died.
    """
    if not tasks:
        return
    require_answer(address)
    ray: Any = importlib.import_module("ray")
    variables = child_environment()
    if address == LOCAL:
        # what is imported here is imported there
        variables["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
    with _cluster(ray, address, max(workers or local_cores, 1)):
        count = workers or int(ray.cluster_resources().get("CPU", 1))
        remote = ray.remote(num_cpus=1, max_restarts=0, runtime_env={"env_vars": variables})(_Actor)
        actors = [remote.remote(setup, tuple(setup_args), current()) for _ in range(min(count, len(tasks)))]
        try:
            for result in _results(ray, actors, tasks):
                on_result(result)
            for kind, value in _answers(ray, [actor.leave.remote() for actor in actors]):
                _raise_if_error(kind, value)
        finally:
            for actor in actors:
                ray.kill(actor)


def _results(ray: Any, actors: Sequence[Any], tasks: Sequence[Any]) -> Iterator[Any]:
    waiting = iter(tasks)
    running: dict[Any, Any] = {}

    def feed(actor: Any) -> None:
        for task in waiting:
            running[actor.run.remote(task)] = actor
            return

    for _ in range(_AHEAD):
        for actor in actors:
            feed(actor)
    while running:
        ready, _ = ray.wait(list(running), num_returns=1)
        for reference in ready:
            actor = running.pop(reference)
            feed(actor)
            for kind, value in _answers(ray, [reference]):
                _raise_if_error(kind, value)
                yield value


def _answers(ray: Any, references: Sequence[Any]) -> list[tuple[str, Any]]:
    try:
        found: list[tuple[str, Any]] = ray.get(list(references))
    except ray.exceptions.RayActorError as error:
        raise MachineError(
            f"a worker of the Ray cluster died ({_first_line(error)}); run the same command again, it resumes"
        ) from error
    except ray.exceptions.RayTaskError as error:  # a result that could not be sent back
        raise MachineError(
            f"a worker of the Ray cluster could not answer ({_first_line(error.cause)})"
        ) from error
    return found


def _first_line(error: BaseException) -> str:
    """Return the first line of what an error says, or its name where it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _raise_if_error(kind: str, value: Any) -> None:
    if kind == "error":
        error, text = value
        error.add_note(text)
        raise error


class _Actor:
    """One worker: its state is built with the first task, so that an error of building it travels like any other."""

    def __init__(
        self, setup: Callable[..., Callable[[Any], Any]], setup_args: tuple[Any, ...], trust: Trust
    ) -> None:
        self._setup, self._setup_args, self._trust = setup, setup_args, trust
        self._stack = ExitStack()
        self._run: Callable[[Any], Any] | None = None

    def run(self, task: Any) -> tuple[str, Any]:
        try:
            with granted(self._trust):
                if self._run is None:
                    self._run = self._stack.enter_context(set_up(self._setup, self._setup_args))
                    gc.freeze()
                return "result", self._run(task)
        except Exception as error:
            return "error", travelling(error)

    def leave(self) -> tuple[str, Any]:
        try:
            self._stack.close()
            return "result", None
        except Exception as error:
            return "error", travelling(error)


def require_answer(address: str) -> None:
    """Say at once that nobody answers: Ray itself would try for more than a minute, and then end the process.

    Raises:
        MachineError: nothing listens at the address, or something that is no Ray.
    """
    where = _current() if address == "auto" else address
    if where == LOCAL or not where:  # a cluster of our own; or none is known here, which Ray says at once
        return
    is_client = where.startswith("ray://")
    try:
        parts = urlsplit(where if is_client else f"ray://{where}")
        host, port = parts.hostname, parts.port or (_CLIENT_PORT if is_client else None)
    except ValueError:
        host, port = None, None
    if not host or port is None:
        raise UsageError(
            f"--ray {address!r:.80} is no address; give local, auto, host:port or ray://host:port"
        )
    try:
        with socket.create_connection((host, port), timeout=_ANSWER_S) as connection:
            connection.settimeout(_ANSWER_S)
            if os.environ.get("RAY_USE_TLS", "0") in ("", "0"):
                connection.sendall(_HELLO)
                if (
                    len(told := connection.recv(len(_SETTINGS), socket.MSG_WAITALL)) < len(_SETTINGS)
                    or told[3] != _SETTINGS[3]
                ):
                    raise ConnectionError("something else than Ray answers")
    except (OSError, UnicodeError) as error:
        told_by = f"{where}, the address of this machine's last cluster" if address == "auto" else where
        raise MachineError(
            f"no Ray cluster answers at {told_by} ({_first_line(error)}); start one with `ray start --head`,"
            " or use --ray local"
        ) from error


def _current() -> str:
    """Return the address that Ray would take for ``auto``: the user's, or that of the cluster that was started last here; empty for none."""
    file = Path(os.environ.get("RAY_TMPDIR", "/tmp")) / "ray" / "ray_current_cluster"
    try:
        return os.environ.get("RAY_ADDRESS", "") or file.read_text().strip()
    except (OSError, UnicodeError):
        return ""


@contextmanager
def _native_silence() -> Iterator[None]:
    """Keep off standard error what Ray's own library writes past Python: a line a second while nobody answers."""
    sys.stderr.flush()
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


@contextmanager
def _cluster(ray: Any, address: str, cores: int) -> Iterator[None]:
    """Connect to a cluster, or start one; one that this process is connected to already is used and left as it is."""
    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    here: dict[str, Any] = (
        {"num_cpus": cores, "include_dashboard": False} if address == LOCAL else {"address": address}
    )
    try:
        with _native_silence() if address != LOCAL else nullcontext():
            ray.init(**here, logging_level=logging.ERROR, log_to_driver=False)
    except (
        ConnectionError,
        ValueError,
        RuntimeError,
        OSError,
        SystemExit,
    ) as error:  # it ends the process where a cluster is half dead
        raise MachineError(
            f"the Ray cluster at {address!r} cannot be reached ({_first_line(error)}); start one with `ray"
            " start --head`, or use --ray local"
        ) from error
    try:
        yield
    finally:
        ray.shutdown()
