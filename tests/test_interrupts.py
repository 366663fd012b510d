"""Ctrl-C, a terminated job, a closed terminal, a reader that leaves: one line and one exit code, wherever the program is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from simgap.compute.interrupts import HeldBack, Stopped

SIMGAP = f"{sys.executable} -m simgap"


def program(folder: Path, body: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a program that listens as simgap does; ``hit(n)`` sends it a signal."""
    (folder / "begun.py").write_text(
        "import os, signal, sys, time\nfrom simgap.compute import interrupts\nfrom simgap.cli import _fail\n"
        "hit = lambda n: os.kill(os.getpid(), n)\ninterrupts.install(sys.argv[1:])\n"
    )
    (folder / "slow.py").write_text(
        "from begun import *\ntry:\n    hit(signal.SIGINT)\n    time.sleep(5)\nexcept KeyboardInterrupt:\n   "
        " raise ImportError\n"
    )
    (folder / "main.py").write_text(
        f"from begun import *\nfrom begun import _fail\ntry:\n{body}\nexcept (Exception, KeyboardInterrupt)"
        " as error:\n    sys.exit(_fail(error, sys.argv[1:]))\n"
    )
    return subprocess.run(
        [sys.executable, str(folder / "main.py"), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_control_c_while_something_is_imported_leaves_with_one_line_and_no_error_of_the_library(
    tmp_path: Path,
) -> None:
    done = program(tmp_path, "    import slow", "--json")
    assert (done.returncode, done.stderr) == (130, "simgap: interrupted; what was finished is on disk\n")
    assert json.loads(done.stdout) == {
        "error": "interrupted; what was finished is on disk",
        "kind": "KeyboardInterrupt",
        "exit": 130,
    }


def test_control_c_in_a_destructor_is_not_lost(tmp_path: Path) -> None:
    done = program(
        tmp_path,
        "    class A:\n        def __del__(self):\n            hit(signal.SIGINT); time.sleep(0)\n    a ="
        " A(); del a\n    time.sleep(5)",
    )
    assert (done.returncode, done.stderr) == (130, "simgap: interrupted; what was finished is on disk\n")


@pytest.mark.parametrize(
    ("name", "code", "words"), [("SIGTERM", 143, "terminated"), ("SIGHUP", 129, "the terminal was closed")]
)
def test_a_terminated_program_cleans_up_as_an_interrupted_one_does(
    name: str, code: int, words: str, tmp_path: Path
) -> None:
    done = program(
        tmp_path,
        f"    try:\n        hit(signal.{name}); time.sleep(5)\n    finally:\n        print('cleaned up')",
    )
    assert (done.returncode, done.stdout, done.stderr) == (
        code,
        "cleaned up\n",
        f"simgap: {words}; what was finished is on disk\n",
    )


def test_a_second_control_c_leaves_at_once_and_one_that_comes_with_the_first_does_not(tmp_path: Path) -> None:
    body = (
        "    try:\n        hit(signal.SIGINT)\n    finally:\n        hit(signal.SIGINT); print('cleaned up',"
        " flush=True)\n        time.sleep({})\n        hit(signal.SIGINT); print('too late')"
    )
    assert program(tmp_path, body.format(0.0)).stdout == "cleaned up\ntoo late\n"
    done = program(tmp_path, body.format(0.7))
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (130, "cleaned up\n", 1)


def test_a_signal_that_is_held_back_is_noted_and_a_later_one_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with HeldBack() as held:
        assert held.number is None
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        assert held.number == signal.SIGTERM
        now = time.monotonic()
        monkeypatch.setattr(time, "monotonic", lambda: now + 3.0)
        with pytest.raises(Stopped):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) is before


VERBS = [
    ["envs"],
    ["generate", "arm-pick", "-n", "9"],
    ["pixels", "arm-pick"],
    ["data", "check", "x"],
    ["train", "x"],
    ["screen", "x"],
    ["demo", "--quick"],
]


@pytest.mark.slow
@pytest.mark.parametrize("words", VERBS, ids=lambda w: w[0])
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_first_second_of_any_verb_is_at_most_one_line(
    words: list[str], signum: signal.Signals, tmp_path: Path
) -> None:
    for k in range(6):
        process = subprocess.Popen(
            [sys.executable, "-m", "simgap", *words],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        end = time.monotonic() + 30.0
        while b"simgap" not in Path(f"/proc/{process.pid}/cmdline").read_bytes() or not _listens(
            process.pid, signum
        ):
            assert time.monotonic() < end
            if process.poll() is not None:
                break
            time.sleep(0.001)
        time.sleep(0.15 * k)
        os.killpg(process.pid, signum)
        _, error = process.communicate(timeout=60)
        assert len(error.replace("\r", "").strip().splitlines()) <= 1 + (
            "interrupted" in error or "terminated" in error
        ), error
        assert "Traceback" not in error
        assert process.returncode in (0, 1, 2, 3, 128 + signum)


def _listens(pid: int, signum: int) -> bool:
    """Whether a process has set a handler of its own; before that, Python itself is starting."""
    try:
        caught = next(
            line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt")
        )
    except (OSError, StopIteration):
        return False
    return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1) and signum > 0


@pytest.mark.parametrize(
    ("line", "codes", "lines"),
    [
        (f"{SIMGAP} envs >/dev/full", {3}, 1),
        (f"{SIMGAP} envs <&- >&-", {0}, 0),
        pytest.param(f"{SIMGAP} envs | true", {0, 141}, 0, marks=pytest.mark.slow),
        pytest.param(f"{SIMGAP} envs | head -c 1 >/dev/null", {0, 141}, 0, marks=pytest.mark.slow),
        pytest.param(f"{SIMGAP} envs --json >/dev/full", {3}, 1, marks=pytest.mark.slow),
        pytest.param(f"{SIMGAP} data check nowhere --json >/dev/full", {3, 2}, 1, marks=pytest.mark.slow),
        pytest.param(f"{SIMGAP} data check nowhere 2>/dev/full", {3, 2}, 0, marks=pytest.mark.slow),
        pytest.param(f"{SIMGAP} data check nowhere 2>&-", {3, 2}, 0, marks=pytest.mark.slow),
        pytest.param(f"{SIMGAP} data check nowhere --json <&- >&- 2>&-", {3, 2}, 0, marks=pytest.mark.slow),
        pytest.param(f"{SIMGAP} envs --help | true", {0, 141}, 0, marks=pytest.mark.slow),
        pytest.param(f"{SIMGAP} --version >/dev/full", {3}, 1, marks=pytest.mark.slow),
        pytest.param(
            f"{SIMGAP} generate arm-pick -n 1 --size 48 --workers 0 --out g 2>&1 | true",
            {0, 141},
            0,
            marks=pytest.mark.slow,
        ),
    ],
)
def test_output_that_leads_nowhere_is_one_line_at_most(
    line: str, codes: set[int], lines: int, tmp_path: Path
) -> None:
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode in codes, done.stderr
    assert len(done.stderr.splitlines()) <= lines, done.stderr


@pytest.mark.parametrize(
    "start",
    [
        "from simgap.__main__ import main; main",
        "import runpy; sys.argv[0] = 'simgap'; lambda: runpy.run_module('simgap', run_name='__main__')",
    ],
)
def test_both_ways_to_start_the_program_listen_before_the_command_line_is_imported(
    start: str, tmp_path: Path
) -> None:
    """A command line that, while it is imported, gets Ctrl-C and makes an error of its own of it."""
    body = (
        "import sys, os, signal, time, types, importlib\nimport simgap\nsys.argv = ['simgap',"
        f" 'envs']\nsimgap.__path__.insert(0, {str(tmp_path)!r})\n"
    )
    (tmp_path / "cli.py").write_text(
        "import os, signal, time\ntry:\n    os.kill(os.getpid(), signal.SIGINT)\n    time.sleep(5)\nexcept"
        " KeyboardInterrupt:\n    raise ImportError\n"
    )
    first, _, call = start.rpartition("; ")
    script = f"{body}{first}\n({call})()\n"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (130, "simgap: interrupted; what was finished is on disk\n")
