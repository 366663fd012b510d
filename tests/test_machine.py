from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from simgap.compute import machine
from simgap.compute.child import Finished
from simgap.errors import MachineError, UsageError


@pytest.fixture(autouse=True)
def _fresh_probe() -> Iterator[None]:
    machine.require_offscreen.cache_clear()
    yield
    machine.require_offscreen.cache_clear()


def _answers(
    monkeypatch: pytest.MonkeyPatch, *, stdout: str = "", stderr: str = "", code: int = 0
) -> list[list[str]]:
    """Replace the trial process by one with this ending; return the list its command lines go to."""
    calls: list[list[str]] = []

    def run(command: list[str], **_: object) -> Finished:
        calls.append(command)
        return Finished(code, stdout, stderr)

    monkeypatch.setattr(machine, "ask_program", run)
    return calls


def test_importing_machine_loads_no_heavy_library() -> None:
    script = (
        "import sys, simgap.compute.machine; print([m for m in ('numpy', 'torch', 'mujoco', 'OpenGL') if m in"
        " sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_worker_gets_its_threads_and_draws_offscreen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.delenv("LP_NUM_THREADS", raising=False)
    environment = machine.worker_environment(threads=2)
    assert (
        environment["OMP_NUM_THREADS"]
        == environment["OPENBLAS_NUM_THREADS"]
        == environment["MKL_NUM_THREADS"]
        == "2"
    )
    assert environment["LP_NUM_THREADS"] == "0"
    assert environment["MUJOCO_GL"] == "egl"


def test_a_renderer_the_user_chose_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    assert machine.worker_environment()["MUJOCO_GL"] == "osmesa"


def test_a_worker_without_threads_is_refused() -> None:
    with pytest.raises(UsageError, match="at least 1"):
        machine.worker_environment(threads=0)


def test_applying_an_environment_never_overrides_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMGAP_A", "mine")
    monkeypatch.setenv("SIMGAP_B", "to be removed again")
    monkeypatch.delenv("SIMGAP_B")
    machine.apply_environment({"SIMGAP_A": "theirs", "SIMGAP_B": "theirs"})
    assert (machine.os.environ["SIMGAP_A"], machine.os.environ["SIMGAP_B"]) == ("mine", "theirs")


def test_hyper_threads_count_as_one_core(tmp_path: Path) -> None:
    for cpu, siblings in enumerate(["0,2", "1,3", "0,2", "1,3"]):
        folder = tmp_path / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(siblings + "\n")
    assert machine.physical_cores({0, 1, 2, 3}, tmp_path) == 2
    assert machine.physical_cores({0, 2}, tmp_path) == 1
    assert machine.physical_cores({7, 8}, tmp_path) == 2


@pytest.mark.parametrize(("text", "quota"), [("max 100000", None), ("150000 100000", 1.5), ("garbage", None)])
def test_a_container_quota_is_read(tmp_path: Path, text: str, quota: float | None) -> None:
    (tmp_path / "cpu.max").write_text(text)
    assert machine.container_quota(tmp_path) == quota


def test_an_old_container_quota_is_read(tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("200000\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert machine.container_quota(tmp_path) == 2.0


def test_there_is_always_a_usable_core(monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine.usable_cores() >= 1
    monkeypatch.setattr(machine, "container_quota", lambda _: 0.5)
    assert machine.usable_cores() == 1


def test_offscreen_rendering_works_here_and_is_tried_once() -> None:
    found = machine.require_offscreen()
    assert found.renderer
    assert machine.require_offscreen() is found


def test_a_missing_library_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUJOCO_GL", "egl")
    _answers(
        monkeypatch, stdout='{"error": "AttributeError: no eglQueryString", "missing": ["libEGL.so.1"]}\n'
    )
    with pytest.raises(
        MachineError, match=r"missing libEGL\.so\.1 of libegl1; on Debian or Ubuntu: apt-get install libegl1"
    ):
        machine.require_offscreen()


def test_a_crashing_driver_is_an_error_and_not_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    _answers(monkeypatch, code=-11)
    with pytest.raises(MachineError, match="killed by SIGSEGV"):
        machine.require_offscreen()


def test_a_failed_trial_is_tried_again_after_a_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = _answers(monkeypatch, code=1, stderr="Traceback\nImportError: no driver\n")
    for _ in range(2):
        with pytest.raises(MachineError, match="no driver"):
            machine.require_offscreen()
    assert len(calls) == 2


def test_a_hanging_driver_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object, **__: object) -> None:
        raise TimeoutError

    monkeypatch.setattr(machine, "ask_program", run)
    with pytest.raises(MachineError, match="no answer within 60 s"):
        machine.require_offscreen()


def test_another_backend_is_blamed_on_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUJOCO_GL", "nonsense")
    with pytest.raises(MachineError, match="unset MUJOCO_GL"):
        machine.require_offscreen()


def test_a_missing_mujoco_is_told_with_the_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    _answers(monkeypatch, stdout='{"error": "ModuleNotFoundError: No module named mujoco", "missing": []}\n')
    with pytest.raises(MachineError, match="pip install"):
        machine.require_offscreen()


@pytest.mark.parametrize(
    ("renderer", "software"),
    [("llvmpipe (LLVM 15.0.6, 256 bits)", True), ("NVIDIA H100 PCIe/PCIe/SSE2", False)],
)
def test_a_software_renderer_is_known_by_its_name(renderer: str, software: bool) -> None:
    assert machine.Offscreen(backend="egl", renderer=renderer).is_software is software


@pytest.mark.parametrize(
    "said",
    [
        "drawn by hand",
        "[]",
        '{"renderer": 3, "missing": []}',
        '{"renderer": "x"}',
        '{"error": "x", "missing": ["libc"]}',
        "[" * 9999,
    ],
)
def test_a_trial_that_says_anything_else_is_told_in_a_line(
    said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _answers(monkeypatch, stdout=said + "\n")
    with pytest.raises(MachineError, match="the trial said") as caught:
        machine.require_offscreen()
    assert "\n" not in str(caught.value)


@pytest.fixture
def _fresh_compiler() -> Iterator[None]:
    machine.load_compiler_before_gl.cache_clear()
    yield
    machine.load_compiler_before_gl.cache_clear()


def _with_triton(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
    """Put a triton with a compiler library where Python finds it first."""
    library = folder / "triton" / "_C" / "libtriton.so"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"")
    (folder / "triton" / "__init__.py").write_text("raise SystemExit('triton itself is not to be imported')")
    monkeypatch.syspath_prepend(str(folder))
    return library


@pytest.mark.usefixtures("_fresh_compiler")
@pytest.mark.parametrize("opens", ["frames", "wrapped env"])
def test_torchs_compiler_is_loaded_before_a_gl_driver_is_opened(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, opens: str
) -> None:
    from simgap.envs import rendering, wrap

    library, order = _with_triton(monkeypatch, tmp_path), []
    monkeypatch.setattr(machine.ctypes, "CDLL", lambda name, mode: order.append(name))

    def driver(*_: object) -> None:
        order.append("driver")
        raise RuntimeError("far enough")

    if opens == "frames":
        monkeypatch.setattr(rendering.mujoco, "GLContext", driver)
        with pytest.raises(MachineError, match="far enough"):
            rendering.FrameRenderer(None, 32)
    else:
        with pytest.raises(RuntimeError, match="far enough"):
            wrap.WrappedEnv(driver, None)  # type: ignore[arg-type]
    assert order == [str(library), "driver"]


@pytest.mark.usefixtures("_fresh_compiler")
def test_without_triton_nothing_is_loaded_and_training_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.importlib.util, "find_spec", lambda name: None)
    assert machine.load_compiler_before_gl() is None
    machine.require_compiler_before_gl()


@pytest.mark.usefixtures("_fresh_compiler")
def test_a_compiler_that_does_not_load_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    library = _with_triton(monkeypatch, tmp_path)
    with pytest.raises(MachineError, match="install torch again") as said:
        machine.load_compiler_before_gl()
    assert str(library) in str(said.value)


@pytest.mark.parametrize(
    ("loaded", "refused"),
    [("libLLVM-15.so.1", True), ("libc.so.6", False), ("libLLVM-15.so.1 and the compiler", False)],
)
def test_training_after_a_foreign_renderer_is_refused_instead_of_crashing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, loaded: str, refused: bool
) -> None:
    library = _with_triton(monkeypatch, tmp_path)
    monkeypatch.setattr(machine, "_loaded_libraries", lambda: loaded.replace("the compiler", str(library)))
    if refused:
        with pytest.raises(MachineError, match="before the first renderer"):
            machine.require_compiler_before_gl()
    else:
        machine.require_compiler_before_gl()
