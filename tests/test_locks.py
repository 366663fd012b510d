"""Two writers on one folder: the second leaves with a sentence that names the first, and a killed holder frees it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from simgap.cli import main
from simgap.compute.locks import alone_in
from simgap.errors import BusyError
from simgap.training import train
from test_training import TINY, table

HOLD = """
import sys, time
from pathlib import Path
from simgap.compute.locks import alone_in
with alone_in(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_another_process_is_named_and_kill_9_frees_what_it_held(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    for _ in range(2):
        with (
            pytest.raises(
                BusyError, match=rf"process {holder.pid} is writing into .*data; wait for it to end"
            ),
            alone_in(folder),
        ):
            pass
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    holder.stdout.close()
    with alone_in(folder):
        assert folder.is_dir()


def test_a_folder_that_was_made_and_stayed_empty_is_taken_away_and_any_other_stays(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), alone_in(tmp_path / "new"):
        _ = 1 / 0
    assert not (tmp_path / "new").exists()
    (tmp_path / "old").mkdir()
    with alone_in(tmp_path / "old"), alone_in(tmp_path / "full"):
        (tmp_path / "full/file").write_text("x")
    assert (tmp_path / "old").is_dir()
    assert (tmp_path / "full/file").is_file()


def _refused(capsys: pytest.CaptureFixture[str], folder: Path, *words: str) -> None:
    with alone_in(folder):
        assert main([*words, "--quiet"]) == 3
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1, error
    assert f"process {os.getpid()} is writing into {folder}" in error


def test_generate_convert_and_merge_leave_a_folder_that_another_writes_into(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["generate", "arm-pick", "-n", "4", "--size", "48", "--workers", "0", "--out"]
    _refused(capsys, tmp_path / "d", *words, str(tmp_path / "d"))
    for name, seed in (("a", "1"), ("b", "2")):
        assert main([*words, str(tmp_path / name), "--seed", seed, "--quiet"]) == 0
    capsys.readouterr()
    _refused(
        capsys,
        tmp_path / "c",
        "data",
        "convert",
        str(tmp_path / "a"),
        "--out",
        str(tmp_path / "c"),
        "--workers",
        "0",
    )
    _refused(
        capsys,
        tmp_path / "m",
        "data",
        "merge",
        str(tmp_path / "a"),
        str(tmp_path / "b"),
        "--out",
        str(tmp_path / "m"),
        "--workers",
        "0",
    )


def test_a_training_leaves_a_folder_that_another_trains_into(tmp_path: Path) -> None:
    with alone_in(tmp_path / "policy"), pytest.raises(BusyError, match="is writing into"):
        train([table()], None, TINY, tmp_path / "policy")
    train([table()], None, TINY, tmp_path / "policy")


@pytest.mark.slow
def test_two_real_generations_into_one_folder_end_with_one_dataset(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "simgap",
        "generate",
        "arm-pick",
        "-n",
        "12",
        "--size",
        "48",
        "--workers",
        "1",
        "--out",
        str(tmp_path / "d"),
        "--quiet",
    ]
    both = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)
    ]
    said = [p.communicate(timeout=120) for p in both]
    assert sorted(p.returncode for p in both) == [0, 3], said
    assert main(["data", "check", str(tmp_path / "d"), "--quiet"]) == 0
