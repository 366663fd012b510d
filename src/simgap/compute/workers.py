"""Worker processes: one task queue, one result queue, one line when a worker dies."""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import pickle
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Protocol, Self, TypeVar

from simgap.compute.machine import child_environment
from simgap.errors import MachineError, SimgapError
from simgap.trust import Trust, current, granted

Task = TypeVar("Task")
Result = TypeVar("Result")

_POLL_S = 0.5


class TaskRunner(Protocol):
    """Runs tasks somewhere: :func:`run_tasks` here, :class:`~simgap.compute.ray.RayRunner` on a cluster."""

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
        setup: a picklable function that builds a worker's state once (env, GL context, policy) and returns
            what runs a task. Where that is a context manager, it is entered before the first task and left
            after the last.
        setup_args: its arguments, picklable.
        tasks: what to do; picklable.
        workers: number of processes; 0 runs everything in this process.
        on_result: called in this process for each result.

    Raises:
        SimgapError, OSError, MemoryError: what a worker raised, as it raised it.
        MachineError: a worker was killed or crashed; names how.
    """
    with StandingWorkers() as runner:
        runner(setup, setup_args, tasks, workers=workers, on_result=on_result)


class StandingWorkers:
    """A :class:`TaskRunner` whose workers stay for the next call: to start one takes seconds of imports, a GL context and a policy.

    They stay as long as calls ask for the same state; another setup, an error or the end of the ``with``
    block ends them.
    """

    def __init__(self) -> None:
        """Start nobody yet."""
        self._made_for: tuple[Any, ...] | None = None
        self._processes: list[Any] = []
        self._todo: Any = None
        self._done: Any = None
        self._here = ExitStack()
        self._run: Callable[[Any], Any] | None = None

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Let workers leave their state; after an error they are ended."""
        self.close(at_once=kind is not None)

    def __call__(
        self,
        setup: Callable[..., Callable[[Task], Result]],
        setup_args: Sequence[Any],
        tasks: Sequence[Task],
        *,
        workers: int,
        on_result: Callable[[Result], None],
    ) -> None:
        """Run every task; see :func:`run_tasks`. At most as many workers are started as the first call has tasks."""
        if not tasks:
            return
        wanted = (setup, tuple(setup_args), workers, current())
        try:
            if self._made_for != wanted:
                self.close()
                self._start(setup, tuple(setup_args), min(workers, len(tasks)))
                self._made_for = wanted
            if self._run is not None:
                for task in tasks:
                    on_result(self._run(task))
                return
            for task in tasks:
                self._todo.put(task)
            for result in _collect(self._done, self._processes, len(tasks)):
                on_result(result)
        except BaseException:
            self.close(at_once=True)
            raise

    def close(self, *, at_once: bool = False) -> None:
        """End all workers: by a word and ten seconds, or at once, which loses what they are doing."""
        self._made_for = self._run = None
        try:
            if not at_once:
                for _ in self._processes:
                    self._todo.put(None)
                for process in self._processes:
                    process.join(timeout=10)
            self._here.close()
        finally:
            for process in self._processes:
                if process.is_alive():
                    process.terminate()
                    process.join()
            if self._todo is not None:
                self._todo.cancel_join_thread()
            self._processes, self._todo, self._done = [], None, None

    def _start(self, setup: Callable[..., Any], setup_args: tuple[Any, ...], count: int) -> None:
        if count == 0:
            self._run = self._here.enter_context(set_up(setup, setup_args))
            return
        context = multiprocessing.get_context("spawn")
        self._todo, self._done = context.Queue(), context.Queue()
        with _environment(child_environment()), _interrupt_held_back():
            for _ in range(count):
                process = context.Process(
                    target=_work, args=(setup, setup_args, current(), self._todo, self._done), daemon=True
                )
                process.start()
                self._processes.append(process)


@contextmanager
def set_up(
    setup: Callable[..., Callable[[Task], Result]], setup_args: Sequence[Any]
) -> Iterator[Callable[[Task], Result]]:
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
            # with code 0 as well: a library called exit, nobody was told to leave
            dead = [p for p in processes if p.exitcode is not None]
            if dead and done.empty():
                raise MachineError(
                    f"a worker process died with exit code {dead[0].exitcode} (negative: a signal; -9:"
                    " killed, by hand or for lack of memory); run the same command again, it resumes"
                ) from None
            continue
        if kind == "error":
            error, text = value
            error.add_note(text)
            raise error
        received += 1
        yield pickle.loads(value)


def _die_with_parent() -> None:
    """Ask Linux to kill this worker when its parent dies, so that a killed run leaves nobody writing beside its successor."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    parent = multiprocessing.parent_process()
    # it died while this worker was starting, before it could be asked for
    if parent is not None and os.getppid() != parent.pid:
        os._exit(1)


def _work(
    setup: Callable[..., Callable[[Any], Any]],
    setup_args: tuple[Any, ...],
    trust: Trust,
    todo: Any,
    done: Any,
) -> None:
    _die_with_parent()
    try:
        with granted(trust), set_up(setup, setup_args) as run:
            # what a worker has loaded stays; to look through it again and again costs a few percent
            gc.freeze()
            while (task := todo.get()) is not None:
                done.put(("result", _packed(run(task))))
    except KeyboardInterrupt:
        return
    except Exception as error:
        done.put(("error", travelling(error)))


def _packed(result: Any) -> bytes:
    """Return a result ready to be sent: a queue would pickle it in a thread of its own, where an error is printed and the result lost.

    Raises:
        TypeError: it cannot be pickled.
    """
    try:
        return pickle.dumps(result, protocol=pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise TypeError(
            f"a result of type {type(result).__name__} cannot be sent back from a worker process: {error}"
        ) from error


def travelling(error: Exception) -> tuple[Exception, str]:
    """Return an error as another process can raise it, and where it came from: foreign exceptions may not survive pickling, their text does."""
    text = traceback.format_exc()
    if isinstance(error, SimgapError):
        return error, "in a worker process"
    if isinstance(error, MemoryError):
        return MemoryError(str(error)), text
    if isinstance(error, OSError):
        name = None if error.filename is None else str(error.filename)
        return (
            OSError(error.errno, error.strerror, name) if error.errno is not None else OSError(str(error))
        ), text
    return RuntimeError(f"{type(error).__name__}: {error}"), text


@contextmanager
def _interrupt_held_back() -> Iterator[None]:
    """Start workers that never hear Ctrl-C: each would print a traceback of its own. This process hears it once all are started, and ends them."""
    heard: list[int] = []
    is_main = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, lambda number, _: heard.append(number)) if is_main else None
    # inherited by what is started; other threads here still get the signal
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
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
