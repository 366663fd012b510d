"""Worker processes: errors come back as they were raised, deaths are noticed and named, nobody is left behind."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from simgap.compute.ray import RayRunner, _answers, run_tasks_ray
from simgap.compute.workers import StandingWorkers, run_tasks
from simgap.errors import DataError, MachineError, SimgapError, UsageError


def squares(factor: int) -> Callable[[int], int]:
    return lambda task: factor * task * task


def environment() -> Callable[[int], str]:
    return lambda _: os.environ["OMP_NUM_THREADS"]


def refuses() -> Callable[[int], int]:
    def run(task: int) -> int:
        if task == 2:
            raise DataError("episode 2 is broken; repair it")
        return task

    return run


def refuses_at_setup() -> Callable[[int], int]:
    raise UsageError("unknown env 'x'; known: arm-pick")


def stumbles() -> Callable[[int], int]:
    return lambda task: 1 // (task - task)


def killed(how: int) -> Callable[[int], int]:
    def run(task: int) -> int:
        if task == 1:
            os.kill(os.getpid(), how)
        return task

    return run


def leaves(code: int) -> Callable[[int], int]:
    def run(task: int) -> int:
        os._exit(code)

    return run


def leaves_at(task: int) -> Callable[[int], int]:
    return lambda given: os._exit(0) if given == task else given


def answers_with_what_cannot_travel() -> Callable[[int], object]:
    return lambda task: lambda: task


def sleeps(folder: Path) -> Callable[[int], int]:
    def run(task: int) -> int:
        (folder / str(os.getpid())).touch()
        time.sleep(60)
        return task

    return run


def gather(
    setup: Callable[..., object], args: tuple[object, ...], tasks: list[int], workers: int
) -> list[object]:
    results: list[object] = []
    run_tasks(setup, args, tasks, workers=workers, on_result=results.append)  # type: ignore[arg-type]
    return results


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_every_task_is_done_once_at_any_number_of_workers(workers: int) -> None:
    assert sorted(gather(squares, (3,), list(range(9)), workers)) == [3 * k * k for k in range(9)]  # type: ignore[type-var]


def test_no_tasks_start_no_workers() -> None:
    assert gather(refuses_at_setup, (), [], 2) == []


def test_workers_get_one_arithmetic_thread_and_the_parent_keeps_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert gather(environment, (), [0], 1) == ["1"]
    assert os.environ["OMP_NUM_THREADS"] == "7"


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_in_a_worker_surfaces_as_the_error_it_was(workers: int) -> None:
    with pytest.raises(DataError, match="episode 2 is broken; repair it") as caught:
        gather(refuses, (), [1, 2, 3], workers)
    assert type(caught.value) is DataError


def test_an_error_while_a_worker_starts_surfaces_too() -> None:
    with pytest.raises(UsageError, match="arm-pick"):
        gather(refuses_at_setup, (), [1], 1)


def fills_the_disk() -> Callable[[int], object]:
    def run(task: int) -> object:
        raise OSError(errno.ENOSPC, "No space left on device", "runs/a")

    return run


def test_a_full_disk_in_a_worker_surfaces_as_one() -> None:
    with pytest.raises(OSError, match="No space left") as caught:
        gather(fills_the_disk, (), [1], 1)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, "runs/a")


def test_a_bug_in_a_worker_surfaces_with_its_name_and_its_place() -> None:
    with pytest.raises(RuntimeError, match="ZeroDivisionError") as caught:
        gather(stumbles, (), [1], 1)
    assert not isinstance(caught.value, SimgapError)
    assert "in stumbles" in "".join(caught.value.__notes__) or "lambda" in "".join(caught.value.__notes__)


@pytest.mark.parametrize(("how", "code"), [(signal.SIGKILL, "-9"), (signal.SIGTERM, "-15")])
def test_a_killed_worker_is_one_clear_error_that_names_the_signal(how: int, code: str) -> None:
    with pytest.raises(MachineError, match=f"exit code {code}") as caught:
        gather(killed, (how,), [1, 2, 3], 2)
    assert "\n" not in str(caught.value)
    assert "resumes" in str(caught.value)


@pytest.mark.parametrize("code", [0, 3])
def test_a_worker_that_leaves_without_a_word_is_noticed_whatever_its_exit_code(code: int) -> None:
    with pytest.raises(MachineError, match=f"exit code {code}"):
        gather(leaves, (code,), [1, 2], 1)


def test_one_worker_that_leaves_while_another_waits_is_noticed() -> None:
    with pytest.raises(MachineError, match="exit code 0"):
        gather(leaves_at, (1,), [1, 0, 0, 0], 2)


def test_a_result_that_cannot_be_sent_back_is_an_error_and_no_hang() -> None:
    with pytest.raises(RuntimeError, match="a result of type function cannot be sent back"):
        gather(answers_with_what_cannot_travel, (), [1, 2], 1)


def _gone(pids: list[int], within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        alive = [
            p
            for p in pids
            if Path(f"/proc/{p}").exists()
            and "Z" not in Path(f"/proc/{p}/stat").read_text().rsplit(")", 1)[1].split()[0]
        ]
        if not alive:
            return True
        time.sleep(0.1)
    return False


def _start(code: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n{code}"]
    )


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux's")
def test_workers_die_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    parent = _start(
        "from pathlib import Path; from test_workers import gather, sleeps; gather(sleeps,"
        f" (Path({str(tmp_path)!r}),), [1, 2], 2)"
    )
    deadline = time.monotonic() + 30
    while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    pids = [int(p.name) for p in tmp_path.iterdir()]
    assert len(pids) == 2
    parent.kill()
    parent.wait()
    assert _gone(pids, 10)


def outlives_its_parent(folder: Path) -> None:
    """Be a worker whose parent was killed while the worker was still importing."""
    from simgap.compute import workers

    (folder / "started").write_text(str(os.getpid()))
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(0.02)
    workers._die_with_parent()
    (folder / "survived").touch()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux's")
def test_a_worker_whose_parent_died_while_it_was_starting_dies_too(tmp_path: Path) -> None:
    code = (
        "import multiprocessing, time; from pathlib import Path; from test_workers import"
        " outlives_its_parent\nmultiprocessing.get_context('spawn').Process(target=outlives_its_parent,"
        f" args=(Path({str(tmp_path)!r}),)).start(); time.sleep(60)"
    )
    parent = _start(code)
    deadline = time.monotonic() + 30
    while not (tmp_path / "started").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    parent.kill()
    parent.wait()
    assert _gone([int((tmp_path / "started").read_text())], 10)
    assert not (tmp_path / "survived").exists()


def whoami(count: int) -> Callable[[int], int]:
    return lambda task: os.getpid()


@pytest.mark.parametrize("workers", [0, 2])
def test_standing_workers_serve_the_next_call_for_the_same_state_and_no_other(
    workers: int, tmp_path: Path
) -> None:
    with StandingWorkers() as runner:
        seen: list[list[Any]] = []
        for args in ((1,), (1,), (2,)):
            seen.append([])
            runner(whoami, args, [0] * 8, workers=workers, on_result=seen[-1].append)
            assert len(seen[-1]) == 8
        runner(Leaving, (tmp_path,), [1, 2], workers=workers, on_result=seen[-1].append)
        runner(whoami, (2,), [0], workers=workers, on_result=seen[-1].append)
        assert {p.read_text() for p in tmp_path.iterdir()} == {"left"}, "another state was asked for"
        if workers:
            assert not (set(seen[0]) | set(seen[1])) & set(seen[2][:8])
            assert len(set(seen[0]) | set(seen[1])) <= 2
            assert os.getpid() not in seen[0]
        else:
            assert set(seen[0]) == {os.getpid()}
        with pytest.raises(DataError, match="negative"):
            runner(Leaving, (tmp_path,), [-1], workers=workers, on_result=seen[-1].append)
        again: list[int] = []
        runner(whoami, (1,), [0, 0], workers=workers, on_result=again.append)
        assert len(again) == 2, "after an error others are started"
        pids = set(again)
    assert workers == 0 or _gone(list(pids), 10)


def test_a_standing_worker_killed_between_two_calls_is_one_clear_error() -> None:
    with StandingWorkers() as runner:
        pids: list[int] = []
        runner(whoami, (1,), [0], workers=1, on_result=pids.append)
        os.kill(pids[0], signal.SIGKILL)
        with pytest.raises(MachineError, match="-9"):
            runner(whoami, (1,), [0], workers=1, on_result=pids.append)


class Leaving:
    """Says when it was entered and left."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / str(os.getpid())

    def __enter__(self) -> Leaving:
        self._file.write_text("entered")
        return self

    def __exit__(self, *_: object) -> None:
        self._file.write_text("left")

    def __call__(self, task: int) -> str:
        if task < 0:
            raise DataError("a negative task; give others")
        return self._file.read_text()


@pytest.mark.parametrize("workers", [0, 2])
def test_state_that_can_be_left_is_left_after_the_last_task(workers: int, tmp_path: Path) -> None:
    assert gather(Leaving, (tmp_path,), [1, 2, 3, 4], workers) == ["entered"] * 4  # type: ignore[comparison-overlap]
    assert {p.read_text() for p in tmp_path.iterdir()} == {"left"}


@pytest.mark.parametrize("workers", [0, 1])
def test_state_is_left_after_an_error_too(workers: int, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="negative"):
        gather(Leaving, (tmp_path,), [-1], workers)
    deadline = time.monotonic() + 10
    while [p.read_text() for p in tmp_path.iterdir()] != ["left"] and time.monotonic() < deadline:
        time.sleep(0.02)
    assert [p.read_text() for p in tmp_path.iterdir()] == ["left"]


def test_a_missing_ray_is_an_error_that_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MachineError, match=r"pip install 'simgap\[ray\]'"):
        RayRunner("local")


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Two workers of a Ray cluster on this machine, shared by the tests: starting one takes seconds."""
    ray = pytest.importorskip("ray")
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": paths}},
    )
    yield
    ray.shutdown()


def gather_on_ray(setup: Callable[..., object], args: tuple[object, ...], tasks: list[int]) -> list[object]:
    results: list[object] = []
    run_tasks_ray(setup, args, tasks, workers=2, on_result=results.append, address="local")  # type: ignore[arg-type]
    return results


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_ray_does_every_task_once_and_leaves_its_state(tmp_path: Path) -> None:
    assert sorted(gather_on_ray(squares, (3,), list(range(9)))) == [3 * k * k for k in range(9)]  # type: ignore[type-var]
    assert gather_on_ray(environment, (), [0]) == ["1"]
    assert gather_on_ray(Leaving, (tmp_path,), [1, 2, 3, 4]) == ["entered"] * 4
    assert {p.read_text() for p in tmp_path.iterdir()} == {"left"}
    assert gather_on_ray(refuses_at_setup, (), []) == []


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    ("setup", "args", "error", "words"),
    [
        (refuses, (), DataError, "episode 2 is broken; repair it"),
        (refuses_at_setup, (), UsageError, "arm-pick"),
        (fills_the_disk, (), OSError, "No space left"),
        (stumbles, (), RuntimeError, "ZeroDivisionError"),
        (killed, (signal.SIGKILL,), MachineError, "worker of the Ray cluster died .* resumes"),
        (leaves, (0,), MachineError, "worker of the Ray cluster died .* resumes"),
    ],
)
def test_errors_and_deaths_on_ray_surface_as_they_do_here(
    setup: Callable[..., object], args: tuple[object, ...], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words) as caught:
        gather_on_ray(setup, args, [1, 2, 3])
    assert type(caught.value) is error
    assert "\n" not in str(caught.value)


def test_a_cluster_s_error_that_says_nothing_is_told_by_its_name() -> None:
    class TaskError(Exception):
        cause = KeyError()

    class ActorError(Exception):
        pass

    for raised, said in (
        (TaskError(), r"could not answer \(KeyError\)"),
        (ActorError(), r"died \(ActorError\)"),
    ):

        def get(_: object, raised: Exception = raised) -> None:
            raise raised

        ray = SimpleNamespace(
            get=get, exceptions=SimpleNamespace(RayActorError=ActorError, RayTaskError=TaskError)
        )
        with pytest.raises(MachineError, match=said):
            _answers(ray, [object()])
