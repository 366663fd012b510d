"""The actions of ``simgap envs`` that look at factors and teachers, or add an env."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from simgap.cli import main
from simgap.statistics import wilson

ROOT = Path(__file__).parent.parent


def document(capsys: pytest.CaptureFixture[str], *argv: str, code: int = 0) -> dict[str, Any]:
    assert main([*argv, "--json", "--quiet"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_sweep_moves_one_factor_and_tells_success_at_each_value(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "gain.png"
    found = document(
        capsys, "envs", "sweep", "arm-pick", "light_intensity", "--points", "3", "-n", "2", "--out", str(out)
    )
    assert [p["value"] for p in found["points"]] == pytest.approx([0.25, 1.025, 1.8])
    assert all(p["n"] == 2 and p["low"] == wilson(p["successes"], 2).low for p in found["points"])
    assert np.asarray(Image.open(out)).std() > 10


def test_a_whole_number_factor_is_swept_over_whole_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "latency.png")
    found = document(
        capsys,
        "envs",
        "sweep",
        "arm-pick",
        "action_latency_steps",
        "--high",
        "2",
        "--points",
        "9",
        "-n",
        "1",
        "--out",
        out,
    )
    assert [p["value"] for p in found["points"]] == [0.0, 1.0, 2.0]


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("sweep", "arm-pick", "gravity"), "no factor 'gravity'"),
        (("sweep", "arm-pick", "friction", "--low", "0.1"), "must lie within"),
        (("sweep", "arm-pick", "friction", "--out", "x.jpg"), "not a .png"),
        (("teacher-map", "arm-pick", "--x", "gravity"), "no factor 'gravity'"),
        (("teacher-map", "arm-pick", "--x", "friction", "--y", "friction"), "two different"),
        (("add", "no_such_module:make"), "cannot be imported"),
        (("remove", "nothing"), "no env called 'nothing'"),
    ],
)
def test_a_wrong_request_is_one_line(
    argv: tuple[str, ...],
    says: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert main(["envs", *argv, "--quiet"]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1
    assert says in said[0]


def test_a_teacher_map_counts_every_rollout_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "map.png"
    found = document(
        capsys,
        "envs",
        "teacher-map",
        "arm-pick",
        "--cells",
        "2",
        "-n",
        "1",
        "--workers",
        "0",
        "--out",
        str(out),
    )
    assert sum(found["totals"].values()) == found["rollouts"] == 4
    assert (found["x"]["factor"], found["y"]["factor"]) == ("target_x_m", "target_y_m")
    assert np.asarray(Image.open(out)).std() > 10


def test_an_added_env_without_a_teacher_is_checked_for_its_contract(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("gym_pusht")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(ROOT)
    assert document(capsys, "envs", "add", "examples.wrapped_envs:pusht")["name"] == "pusht"
    assert "pusht" in [e["name"] for e in document(capsys, "envs")["envs"]]
    found = document(capsys, "envs", "check", "pusht")
    assert found["teacher"] is None
    assert found["contract"]["faults"] == []
    assert document(capsys, "envs", "remove", "pusht")["removed"] == "pusht"
