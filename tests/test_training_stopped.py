"""Trainings that somebody stops: what was done is saved, the sentence says so, and the same command ends with the same bits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from simgap.cli import main
from simgap.compute.interrupts import Stopped
from simgap.training import train
from simgap.training.run import TrainingRun
from test_training import TINY, table, weights_of

HERE = Path(__file__).parent


@pytest.mark.parametrize(("at", "number"), [(1, signal.SIGINT), (7, signal.SIGTERM), (12, signal.SIGINT)])
def test_a_signal_in_the_middle_of_a_step_ends_after_it_and_the_same_request_ends_with_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, number: signal.Signals
) -> None:
    whole = train([table()], None, TINY, tmp_path / "whole")
    advance, handler = TrainingRun.advance, signal.getsignal(number)

    def hit(run: TrainingRun, batch: Any) -> float:
        if run.step + 1 == at:
            os.kill(os.getpid(), number)
        return advance(run, batch)

    monkeypatch.setattr(TrainingRun, "advance", hit)
    with pytest.raises(
        Stopped, match=f"step {at} of 12 is saved, and the same command goes on from there"
    ) as caught:
        train([table()], None, TINY, tmp_path / "cut")
    assert caught.value.exit_code == 128 + number
    assert signal.getsignal(number) is handler
    assert not (tmp_path / "cut/card.json").exists()
    monkeypatch.undo()
    assert weights_of(train([table()], None, TINY, tmp_path / "cut")) == weights_of(whole)
    steps = [
        [json.loads(line)["step"] for line in (tmp_path / name / "train.jsonl").read_text().splitlines()]
        for name in ("cut", "whole")
    ]
    assert steps[0] == steps[1]


def _until(condition: Any, process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 120.0
    while not condition():
        assert time.monotonic() < end
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_control_c_in_train_saves_on_the_way_out_and_the_same_command_goes_on(
    tmp_path: Path, number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "picks"
    assert (
        main(
            [
                "generate",
                "arm-pick",
                "-n",
                "8",
                "--size",
                "48",
                "--workers",
                "0",
                "--out",
                str(data),
                "--quiet",
            ]
        )
        == 0
    )
    steps = [
        "--steps",
        "200",
        "--batch",
        "8",
        "--width",
        "8",
        "--hidden",
        "16",
        "--threads",
        "1",
        "--log-every",
        "2",
    ]
    words = ["train", str(data), *steps, "--checkpoint-every", "1000", "--force"]
    assert main([*words, "--out", str(tmp_path / "whole"), "--quiet"]) == 0
    out = tmp_path / "cut"
    process = subprocess.Popen(
        [sys.executable, "-m", "simgap", *words, "--out", str(out), "--quiet"],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    log = out / "train.jsonl"
    _until(lambda: log.exists() and len(log.read_text().splitlines()) >= 3, process)
    os.killpg(process.pid, number)
    _, error = process.communicate(timeout=120)
    assert process.returncode == 128 + number
    assert len(error.splitlines()) == 1
    assert "of 200 is saved, and the same command goes on from there" in error
    capsys.readouterr()
    assert main([*words, "--out", str(out), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["resumed_from_step"] >= 6
    assert document["weights"] == json.loads((tmp_path / "whole/card.json").read_text())["weights_hash"]


@pytest.mark.slow
def test_a_team_stops_after_the_same_step_and_goes_on(tmp_path: Path) -> None:
    script = tmp_path / "train_it.py"
    script.write_text(f"""
import sys
sys.path.insert(0, {str(HERE)!r})
from dataclasses import replace
from pathlib import Path
from simgap.compute import interrupts
from simgap.training import train
from test_training import TINY, table
interrupts.install([])
try:
    train([table()], None, replace(TINY, steps=int(sys.argv[2]), log_every=1, checkpoint_every_steps=10**6), Path(sys.argv[1]))
except KeyboardInterrupt as stopped:
    print(stopped, flush=True)
    sys.exit(stopped.exit_code)
""")

    def team(name: str) -> subprocess.Popen[str]:
        command = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            "2",
            str(script),
            str(tmp_path / name),
            "150",
        ]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        return subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )

    whole = team("whole")
    assert whole.wait(timeout=200) == 0, whole.communicate()
    cut = team("cut")
    log = tmp_path / "cut/train.jsonl"
    _until(lambda: log.exists() and len(log.read_text().splitlines()) >= 3, cut)
    os.killpg(cut.pid, signal.SIGINT)  # both processes and who started them hear it
    said, _ = cut.communicate(timeout=120)
    assert len({line for line in said.splitlines() if "is saved" in line}) == 1, said
    assert (tmp_path / "cut/resume.pt").exists()
    again = team("cut")
    assert again.wait(timeout=200) == 0, again.communicate()
    assert weights_of(tmp_path / "cut") == weights_of(tmp_path / "whole")
    steps = [json.loads(line)["step"] for line in log.read_text().splitlines()]
    assert steps == list(range(1, 151))
