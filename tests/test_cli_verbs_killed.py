"""Commands that are killed in the middle: the same command goes on, nothing is lost but what was in flight, nobody is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simgap.cli import main

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")

_SCRIPT = "import sys; from simgap.cli import main; sys.exit(main())"
STOPPED = "simgap: interrupted; what was finished is on disk; the same command goes on with what is missing\n"
_PATIENCE_S = 120.0


def _start(*words: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _SCRIPT, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _wait_for(condition: Callable[[], Any], what: str, process: subprocess.Popen[str] | None = None) -> None:
    end = time.monotonic() + _PATIENCE_S
    while not condition():
        assert time.monotonic() < end, f"{what} did not happen"
        assert process is None or process.poll() is None, (
            f"the command ended before {what}: {process and process.communicate()}"
        )
        time.sleep(0.005)


def _alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rsplit(")", 1)[1].split()[0] not in "ZX"


def _family(root: int) -> set[int]:
    """Return all living descendants of a process."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
    found, frontier = set(), {root}
    while frontier:
        frontier = {pid for pid, parent in parents.items() if parent in frontier} - found
        found |= frontier
    return {pid for pid in found if _alive(pid)}


def _workers(root: int) -> set[int]:
    found = set()
    for pid in _family(root):
        try:
            if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.add(pid)
        except OSError:
            continue
    return found


def _kill(process: subprocess.Popen[str]) -> None:
    """Kill the command itself, as the kernel does when memory is short, and wait until none of its processes is left."""
    family = _family(process.pid)
    assert process.poll() is None, process.communicate()
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    _wait_for(lambda: not any(_alive(pid) for pid in family), "the end of every worker and robot process")
    process.communicate()


def _episodes(root: Path) -> set[Path]:
    return set((root / "meta" / "episodes").glob("chunk-*/file-*.parquet"))


def _finish(*words: str | Path) -> tuple[int, dict[str, Any], str]:
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, *map(str, words), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, json.loads(done.stdout), done.stderr


GENERATE = ["generate", "arm-pick", "-n", "8", "--size", "48"]
TRAIN = [
    "--steps",
    "24",
    "--batch",
    "8",
    "--width",
    "8",
    "--hidden",
    "16",
    "--threads",
    "1",
    "--checkpoint-every",
    "4",
    "--log-every",
    "2",
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight episodes that nobody interrupted."""
    out = tmp_path_factory.mktemp("data") / "picks"
    assert main([*GENERATE, "--workers", "0", "--out", str(out), "--quiet"]) == 0
    return out


@pytest.fixture(scope="module")
def checkpoint(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training run that nobody interrupted."""
    out = tmp_path_factory.mktemp("policies") / "untrained"
    assert main(["train", str(data), *TRAIN, "--out", str(out), "--quiet"]) == 0
    return out


def _recorded(root: Path) -> str:
    return str(json.loads((root / "meta" / "simgap.json").read_text())["fingerprint"])


@pytest.mark.slow
def test_killed_generation_goes_on_and_ends_with_the_same_bytes(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for attempt in range(5):  # on a busy machine all eight may be there before the signal is
        out = tmp_path / f"picks{attempt}"
        process = _start(*GENERATE, "--workers", "2", "--out", out)
        _wait_for(lambda out=out: len(_episodes(out)) >= 2, "the second episode", process)
        _kill(process)
        if (kept := len(_episodes(out))) < 8:
            break
    videos = {path: path.stat().st_mtime_ns for path in out.rglob("*.mp4") if not path.name.startswith(".")}
    assert 2 <= kept < 8
    assert main(["train", str(out)]) == 3
    assert str(out) in capsys.readouterr().err  # an unfinished dataset is not read as a whole one
    code, document, progress = _finish(*GENERATE, "--workers", "2", "--out", out)
    assert (code, document["episodes"], document["episodes_already_there"]) == (0, 8, kept)
    assert f"{kept} of 8 episodes are in {out} already; making the other {8 - kept}" in progress
    assert document["fingerprint"] == _recorded(data)
    untouched = sum(path.stat().st_mtime_ns == then for path, then in videos.items())
    assert untouched >= 2 * kept, "finished episodes were made again"
    assert not list(out.rglob("*.tmp"))


@pytest.mark.slow
def test_killed_training_goes_on_and_ends_with_the_same_bits(
    data: Path, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "policy"
    process = _start("train", data, *TRAIN, "--out", out)
    _wait_for((out / "resume.pt").is_file, "a resume point", process)
    _kill(process)
    assert not (out / "card.json").exists()
    assert main(["screen", str(out)]) == 3
    assert "unfinished training run" in capsys.readouterr().err
    code, document, progress = _finish("train", data, *TRAIN, "--out", out)
    assert code == 0
    assert document["resumed_from_step"] >= 4
    assert f"going on from step {document['resumed_from_step']} of 24" in progress
    assert document["weights"] == json.loads((checkpoint / "card.json").read_text())["weights_hash"]
    steps = [json.loads(line)["step"] for line in (out / "train.jsonl").read_text().splitlines()]
    assert steps == list(range(2, 25, 2))


@pytest.mark.slow
def test_killed_trials_go_on_and_end_with_the_same_bytes(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["trial", checkpoint, "-n", "3", "--gap", "none", "--executor", "whole_chunk"]
    assert main([*map(str, words), "--workers", "0", "--out", str(tmp_path / "whole"), "--json"]) == 1
    whole = json.loads(capsys.readouterr().out)
    log = tmp_path / "killed" / Path(whole["path"]).name
    process = _start(*words, "--workers", "1", "--out", tmp_path / "killed")
    _wait_for(lambda: _episodes(log), "the first trial", process)
    _kill(process)
    kept = len(_episodes(log))
    code, document, progress = _finish(*words, "--workers", "1", "--out", tmp_path / "killed")
    assert (code, document["already_there"]) == (1, kept)
    assert f"{kept} of 3 trials are in {log} already" in progress
    assert {k: document[k] for k in ("log", "n", "failures", "voids", "seal", "trials", "ledger_row")} == {
        k: whole[k] for k in ("log", "n", "failures", "voids", "seal", "trials", "ledger_row")
    }


def test_workers_killed_with_their_parent_while_they_start_do_not_live_on(tmp_path: Path) -> None:
    process = _start(*GENERATE, "--workers", "2", "--out", tmp_path / "picks")
    _wait_for(lambda: _workers(process.pid), "the start of a worker", process)
    _kill(process)
    assert not _episodes(tmp_path / "picks")


@pytest.mark.parametrize("moment", ["while workers start", "while they work"])
def test_control_c_is_one_line_and_leaves_nobody(tmp_path: Path, moment: str) -> None:
    out = tmp_path / "picks"
    process = _start(*GENERATE, "--workers", "2", "--out", out, "--quiet")
    _wait_for(
        lambda: _workers(process.pid) if moment == "while workers start" else _episodes(out), moment, process
    )
    family = _family(process.pid)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: everybody in the foreground hears it
    _, error = process.communicate(timeout=_PATIENCE_S)
    assert (process.returncode, error) == (130, STOPPED)
    _wait_for(lambda: not any(_alive(pid) for pid in family), "the end of every process")


@pytest.mark.slow
def test_control_c_during_trials_ends_the_robot_too(checkpoint: Path, tmp_path: Path) -> None:
    process = _start(
        "trial", checkpoint, "-n", "4", "--gap", "none", "--workers", "0", "--out", tmp_path, "--quiet"
    )
    _wait_for(lambda: list(tmp_path.glob("*/meta/episodes/*/*.parquet")), "the first trial", process)
    family = _family(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    _, error = process.communicate(timeout=_PATIENCE_S)
    assert (process.returncode, error) == (130, STOPPED)
    _wait_for(lambda: not any(_alive(pid) for pid in family), "the end of the robot process")
