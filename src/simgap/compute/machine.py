"""What this machine can do: cores, worker environments, and whether offscreen rendering works.

Importing this module imports neither numpy, torch nor MuJoCo, because it has to speak before they read the
environment.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simgap.compute.child import Finished, ask_program, one_line, signal_name
from simgap.errors import MachineError, UsageError

DEBIAN_PACKAGES = ("libegl1", "libegl-mesa0", "libgl1-mesa-dri", "libopengl0")
"""What MuJoCo's offscreen EGL needs on Debian and Ubuntu without a GPU driver."""

_LIBRARIES = {"libEGL.so.1": "libegl1", "libEGL_mesa.so.0": "libegl-mesa0", "libOpenGL.so.0": "libopengl0"}
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")

_PROBE = """
import ctypes, json, sys
def answer(**found):
    print(json.dumps(found))
    sys.exit(0)
missing = []
for library in sys.argv[1:]:
    try:
        ctypes.CDLL(library)
    except OSError:
        missing.append(library)
try:
    import mujoco
    context = mujoco.GLContext(16, 16)
    context.make_current()
    from OpenGL import GL
    renderer = GL.glGetString(GL.GL_RENDERER)
    context.free()
    if not renderer:
        raise RuntimeError("a context was made but no driver answers")
except Exception as error:
    answer(error=f"{type(error).__name__}: {error}", missing=missing)
answer(renderer=renderer.decode(), missing=missing)
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Offscreen:
    """A rendering set-up that was tried and works."""

    backend: str
    """MuJoCo's name of it: ``egl``, ``osmesa`` or ``glfw``."""
    renderer: str
    """What the driver calls itself, for example ``llvmpipe (LLVM 15.0.6, 256 bits)``."""

    @property
    def is_software(self) -> bool:
        """True when no GPU draws: one process a core is then the fast way."""
        return any(word in self.renderer.lower() for word in ("llvmpipe", "softpipe", "swrast"))


def worker_environment(threads: int = 1) -> dict[str, str]:
    """Return the variables of a worker process that may use ``threads`` threads for arithmetic.

    They are read when numpy, torch or a GL driver is first loaded, so they belong in the environment a
    process is started with. Mesa's software renderer draws in the worker's own thread (``LP_NUM_THREADS=0``):
    with one worker a core that is the fastest, and every worker then costs exactly one core.

    Args:
        threads: at least 1.

    Raises:
        UsageError: fewer than one thread.
    """
    if threads < 1:
        raise UsageError(f"a worker with {threads} threads cannot compute; give at least 1")
    return {name: str(threads) for name in _THREAD_VARIABLES} | rendering_environment()


def child_environment(threads: int = 1) -> dict[str, str]:
    """Return the variables of a Python that we start: a worker's, and Python's safe path.

    Without it a Python that is started with ``-c`` or ``-m`` looks into the current folder first, and a
    ``numpy.py`` in somebody's dataset would be run.
    """
    return worker_environment(threads) | {"PYTHONSAFEPATH": "1"}


def rendering_environment() -> dict[str, str]:
    """Return the variables that make MuJoCo draw offscreen; a value the user has set is kept."""
    wanted = {"LP_NUM_THREADS": "0"}
    if sys.platform.startswith("linux"):
        wanted["MUJOCO_GL"] = "egl"
    return {name: os.environ.get(name, value) for name, value in wanted.items()}


def arithmetic_environment() -> dict[str, str]:
    """Return the variables of a process that trains: threads that wait for each other sleep instead of spinning.

    On a machine with anything else to do, spinning threads take the cores from the thread they wait for.
    """
    return {"OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE")}


def apply_environment(variables: Mapping[str, str]) -> None:
    """Set variables in this process where the user has set none; only libraries not yet loaded will see them."""
    for name, value in variables.items():
        os.environ.setdefault(name, value)


def usable_cores() -> int:
    """Return the physical cores this process may use: hyper-threads counted once, CPU affinity and container quota respected."""
    allowed = os.sched_getaffinity(0) if sys.platform.startswith("linux") else set(range(os.cpu_count() or 1))
    cores = physical_cores(allowed, Path("/sys/devices/system/cpu"))
    quota = container_quota(Path("/sys/fs/cgroup"))
    return max(1, cores if quota is None else min(cores, int(quota)))


def physical_cores(logical: set[int], root: Path) -> int:
    """Count the physical cores behind logical CPUs from the kernel's topology files; a CPU without one counts as a core."""
    cores: set[str] = set()
    for cpu in logical:
        file = root / f"cpu{cpu}" / "topology" / "thread_siblings_list"
        try:
            cores.add(file.read_text().strip())
        except OSError:
            cores.add(f"cpu{cpu}")
    return len(cores)


def container_quota(root: Path) -> float | None:
    """Return the CPUs a container may use at once, from cgroup version 2 or 1, or None without a limit."""
    try:
        quota, period = (root / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota = (root / "cpu" / "cpu.cfs_quota_us").read_text().strip()
            period = (root / "cpu" / "cpu.cfs_period_us").read_text().strip()
        except OSError:
            return None
    if quota in {"max", "-1"}:
        return None
    return int(quota) / int(period)


@functools.cache
def load_compiler_before_gl() -> Path | None:
    """Load triton's compiler library, where torch came with one, before this process opens its first GL or Vulkan driver.

    Mesa's software drivers load LLVM and show its symbols to every library that is loaded later. Triton
    carries another LLVM, and torch loads triton when the first optimiser is made: it would then call into
    Mesa's and crash the process. In the other order each keeps its own. It costs 60 ms once per process,
    nothing without triton. Whatever opens a driver calls this first.

    Returns:
        The library that was loaded; None where torch has no triton.

    Raises:
        MachineError: triton is there but its library cannot be loaded.
    """
    library = _triton_library()
    if library is None:
        return None
    try:
        ctypes.CDLL(str(library), mode=os.RTLD_LOCAL | os.RTLD_LAZY)
    except OSError as error:
        raise MachineError(
            f"triton's {library} cannot be loaded ({error}); install torch again, or: pip uninstall triton"
        ) from error
    return library


def require_compiler_before_gl() -> None:
    """Refuse to go on where torch would load triton after another library opened a Mesa driver: the process would crash.

    Raises:
        MachineError: says what to do.
    """
    library = _triton_library()
    if library is None:
        return
    loaded = _loaded_libraries()
    if "libLLVM" in loaded and str(library.resolve()) not in loaded:
        raise MachineError(
            "a GL driver was opened in this process before torch's compiler (triton) was loaded, and loading"
            " it now would crash; call simgap.compute.machine.load_compiler_before_gl() before the first"
            " renderer, or train in a process that draws nothing"
        )


def _loaded_libraries() -> str:
    """Return the files this process has mapped, as Linux lists them; empty elsewhere, where Mesa is not what draws."""
    maps = Path("/proc/self/maps")
    return maps.read_text(errors="replace") if maps.exists() else ""


def _triton_library() -> Path | None:
    """Return triton's compiler library, None where there is none; triton itself is not imported."""
    found = importlib.util.find_spec("triton")
    for folder in () if found is None else found.submodule_search_locations or ():
        if (library := Path(folder) / "_C" / "libtriton.so").is_file():
            return library
    return None


@functools.cache
def require_offscreen(timeout_s: float = 60.0) -> Offscreen:
    """Return the working offscreen renderer, tried once a process in a process of its own.

    A broken GL stack may crash rather than raise, and a context in the parent would be inherited by forked
    workers; so the trial runs elsewhere. It costs about a second.

    Raises:
        MachineError: rendering does not work; the message names the packages to install.
    """
    environment = os.environ | rendering_environment()
    backend = environment.get("MUJOCO_GL", "default")
    command = [sys.executable, "-P", "-c", _PROBE, *(_LIBRARIES if backend == "egl" else ())]
    try:
        done = ask_program(command, env=environment, timeout_s=timeout_s)
    except TimeoutError as error:
        raise MachineError(_complaint(backend, f"no answer within {timeout_s:g} s", [])) from error
    except (OSError, OverflowError) as error:
        raise MachineError(_complaint(backend, f"it cannot be tried: {one_line(str(error))}", [])) from error
    if done.code != 0 or not done.out.strip():
        raise MachineError(_complaint(backend, _ending(done), []))
    answer = _probed(done.out.splitlines()[-1])
    if answer is None:
        raise MachineError(
            _complaint(backend, f"the trial said {one_line(done.out.splitlines()[-1])[:80]!r}", [])
        )
    if "error" in answer:
        raise MachineError(_complaint(backend, one_line(answer["error"]), answer["missing"]))
    return Offscreen(backend=backend, renderer=answer["renderer"])


def _probed(line: str) -> dict[str, Any] | None:
    """Return what the trial found; None where a library printed over it."""
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError):
        return None
    told = isinstance(answer, dict) and isinstance(answer.get("error", answer.get("renderer")), str)
    missing = answer.get("missing") if isinstance(answer, dict) else None
    if (
        not told
        or not isinstance(missing, list)
        or not all(isinstance(m, str) and m in _LIBRARIES for m in missing)
    ):
        return None
    return dict(answer)


def _ending(done: Finished) -> str:
    if done.code < 0:
        return f"the trial was killed by {signal_name(-done.code)}"
    return f"the trial ended with code {done.code}: {done.words or 'no output'}"


def _complaint(backend: str, reason: str, missing: list[str]) -> str:
    if reason.startswith("ModuleNotFoundError"):
        return f"MuJoCo cannot be imported ({reason}); install it: pip install 'mujoco>=4,<5'"
    text = f"offscreen rendering does not work with MUJOCO_GL={backend} ({reason})"
    if backend != "egl":
        return f"{text}; unset MUJOCO_GL to use EGL, the backend that needs no display"
    if missing:
        text += f"; missing {', '.join(missing)} of {', '.join(_LIBRARIES[name] for name in missing)}"
    return f"{text}; on Debian or Ubuntu: apt-get install {' '.join(DEBIAN_PACKAGES)}"
