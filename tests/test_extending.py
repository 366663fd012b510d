"""docs/extending.md: each block is a file of under forty lines that does what the commands under it say."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simgap.cli import main
from simgap.mutants.registry import all_mutants, find_mutant
from test_episodes_store import make_episode

PAGE = Path(__file__).parent.parent / "docs" / "extending.md"
BLOCKS = dict(re.findall(r"```python (\w+\.py)\n(.*?)```", PAGE.read_text(), re.DOTALL))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with every block as a file, and a user who has allowed nothing yet."""
    for name, text in BLOCKS.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    before, loaded = list(sys.path), set(sys.modules)
    yield tmp_path
    sys.path[:] = before
    for name in set(sys.modules) - loaded:
        if name.startswith("my_"):
            del sys.modules[name]


def ran(*words: str) -> int:
    return main([*words, "--quiet"])


@pytest.mark.parametrize("name", BLOCKS)
def test_every_block_is_a_file_of_under_forty_lines(name: str) -> None:
    assert 5 < len(BLOCKS[name].splitlines()) < 40
    assert f"`{name}`" in PAGE.read_text()


def test_the_page_shows_each_thing_that_can_be_added() -> None:
    assert {"my_env.py", "my_check.py", "my_policy.py", "my_robot.py"} <= set(BLOCKS)


def test_an_env_of_ones_own_is_added_and_keeps_the_contract(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ran("envs", "add", "my_env:make") == 0
    assert ran("envs", "check", "my-dot") == 0
    assert "my-dot" in capsys.readouterr().out


def test_a_check_of_ones_own_keeps_the_contract_and_is_listed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ran("checks", "check", "my_check:LoopRate") == 0
    assert ran("checks", "list", "--check", "my_check:LoopRate", "--json") == 0
    out = capsys.readouterr().out
    listed = json.loads(out[out.index('{\n  "checks"') :])["checks"]
    assert [c["id"] for row in listed if row["id"] == "loop_rate" for c in row["can_name"]] == [
        "loop_too_slow"
    ]


def test_a_mutant_of_ones_own_is_shown_and_does_what_it_says(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ran("mutants", "show", "gripper_sticks", "--mutant", "my_mutant:StickyGripper") == 0
    assert "training_set" in capsys.readouterr().out
    mutant = find_mutant("gripper_sticks", all_mutants(["my_mutant:StickyGripper"], folder))
    bad = mutant.apply([make_episode(0, 6)], 0.5, np.random.default_rng(0))[0]
    assert len(set(bad.state[3:, -1].tolist())) == 1


@pytest.fixture
def served(folder: Path) -> Iterator[Path]:
    """The policy, running in a process of its own."""
    process = subprocess.Popen([sys.executable, "my_policy.py", "0"], cwd=folder, env=dict(os.environ))
    try:
        until = time.monotonic() + 30
        while not (folder / "my_policy.json").exists() and time.monotonic() < until:
            assert process.poll() is None
            time.sleep(0.05)
        yield folder / "my_policy.json"
    finally:
        process.kill()
        process.wait()


def test_a_policy_of_ones_own_is_a_file_that_the_checks_read(served: Path) -> None:
    assert ran("data", "check", str(served)) == 0


@pytest.mark.slow
def test_a_policy_of_ones_own_is_screened(served: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = ran("screen", str(served), "-n", "4", "--workers", "0", "--json")
    report = json.loads(capsys.readouterr().out)
    assert code == 1
    assert report["screens"][0]["successes"] == 0


def robot_report(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert ran("robots", "check", "my_robot:Servo", "--json", *words) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert report["is_kept"]
    assert len(report["clauses"]) == 13
    return report


def test_a_robot_of_ones_own_keeps_what_can_be_seen_without_moving_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert robot_report(capsys)["not_asked"] == 6


@pytest.mark.slow
def test_a_robot_of_ones_own_keeps_the_whole_contract(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert robot_report(capsys, "--may-move")["not_asked"] == 0
