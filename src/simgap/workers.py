"""Worker processes: one task queue, one result queue, one line when a worker dies."""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Protocol, TypeVar

from simgap.errors import MachineError, SimgapError
from simgap.machine import worker_environment

Task = TypeVar("Task")
Result = TypeVar("Result")

_POLL_S = 0.5


class TaskRunner(Protocol):
    """Runs tasks somewhere: :func:`run_tasks` here, :class:`~simgap.ray_driver.RayRunner` on a cluster."""

    def __call__(
        self,
        setup: Callable[..., Callable[[Task], Result]],
        setup_args: Sequence[Any],
        tasks: Sequence[Task],
        *,
        workers: int,
        on_result: Callable[[Result], None],
    ) -> None:
        """See :func:`run_tasks`."""
        ...


def run_tasks(
    setup: Callable[..., Callable[[Task], Result]],
    setup_args: Sequence[Any],
    tasks: Sequence[Task],
    *,
    workers: int,
    on_result: Callable[[Result], None],
) -> None:
    """Run every task on worker processes and hand results back as they come, in any order.

    Args:
        setup: a picklable function that builds a worker's state once (env, GL context, policy) and returns what runs a task. Where
            that is a context manager, it is entered before the first task and left after the last.
        setup_args: its arguments, picklable.
        tasks: what to do; picklable.
        workers: number of processes; 0 runs everything in this process.
        on_result: called in this process for each result.

    Raises:
        SimgapError, OSError, MemoryError: what a worker raised, as it raised it.
        MachineError: a worker was killed or crashed; names how.
    """
    if not tasks:
        return
    if workers == 0:
        with set_up(setup, setup_args) as run:
            for task in tasks:
                on_result(run(task))
        return
    context = multiprocessing.get_context("spawn")
    todo: Any = context.Queue()
    done: Any = context.Queue()
    for task in tasks:
        todo.put(task)
    count = min(workers, len(tasks))
    for _ in range(count):
        todo.put(None)
    processes = [context.Process(target=_work, args=(setup, tuple(setup_args), todo, done), daemon=True) for _ in range(count)]
    try:
        with _environment(worker_environment(1)), _interrupt_held_back():
            for process in processes:
                process.start()
        for result in _collect(done, processes, len(tasks)):
            on_result(result)
        for process in processes:
            process.join(timeout=10)
    finally:
        for process in processes:
            if process.is_alive():
                process.terminate()
                process.join()
        todo.cancel_join_thread()


@contextmanager
def set_up(setup: Callable[..., Callable[[Task], Result]], setup_args: Sequence[Any]) -> Iterator[Callable[[Task], Result]]:
    """Build a worker's state, and leave it at the end where it can be left."""
    with ExitStack() as stack:
        run = setup(*setup_args)
        if isinstance(run, AbstractContextManager):
            stack.enter_context(run)
        yield run


def _collect(done: Any, processes: Sequence[Any], expected: int) -> Iterator[Any]:
    received = 0
    while received < expected:
        try:
            kind, value = done.get(timeout=_POLL_S)
        except queue.Empty:
            dead = [p for p in processes if p.exitcode not in (None, 0)]
            # All may have left with code 0 and results missing: a library called exit, or a result could not be pickled.
            dead = dead or [p for p in processes if all(q.exitcode is not None for q in processes)]
            if dead and done.empty():
                raise MachineError(
                    f"a worker process died with exit code {dead[0].exitcode} (negative: a signal; -9: killed, by hand or for lack of memory); "
                    "run the same command again, it resumes"
                ) from None
            continue
        if kind == "error":
            error, text = value
            error.add_note(text)
            raise error
        received += 1
        yield value


def _die_with_parent() -> None:
    """Ask Linux to kill this worker when its parent dies, so that a killed run leaves nobody writing beside its successor."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    parent = multiprocessing.parent_process()
    if parent is not None and os.getppid() != parent.pid:  # it died while this worker was starting, before it could be asked for
        os._exit(1)


def _work(setup: Callable[..., Callable[[Any], Any]], setup_args: tuple[Any, ...], todo: Any, done: Any) -> None:
    _die_with_parent()
    try:
        with set_up(setup, setup_args) as run:
            gc.freeze()  # what a worker has loaded stays; to look through it again and again costs a few percent
            while (task := todo.get()) is not None:
                done.put(("result", run(task)))
    except KeyboardInterrupt:
        return
    except Exception as error:
        done.put(("error", travelling(error)))


def travelling(error: Exception) -> tuple[Exception, str]:
    """Return an error as another process can raise it, and where it came from: foreign exceptions may not survive pickling, their text does."""
    text = traceback.format_exc()
    if isinstance(error, SimgapError):
        return error, "in a worker process"
    if isinstance(error, MemoryError):
        return MemoryError(str(error)), text
    if isinstance(error, OSError):
        name = None if error.filename is None else str(error.filename)
        return OSError(error.errno, error.strerror, name) if error.errno is not None else OSError(str(error)), text
    return RuntimeError(f"{type(error).__name__}: {error}"), text


@contextmanager
def _interrupt_held_back() -> Iterator[None]:
    """Start workers that never hear Ctrl-C: each would print a traceback of its own. This process hears it once all are started, and ends them."""
    heard: list[int] = []
    is_main = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, lambda number, _: heard.append(number)) if is_main else None
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # inherited by what is started; other threads here still get the signal
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if is_main:
            signal.signal(signal.SIGINT, handler or signal.SIG_DFL)
    if heard:
        signal.raise_signal(signal.SIGINT)


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
