"""``simgap data compare``: the map between two recordings is found again, and none where there is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simgap.cli import main
from simgap.episodes.reader import open_dataset
from simgap.measures.rotation import turn
from test_data_check_planted import clean, write


def run(capsys: pytest.CaptureFixture[str], *words: str | Path, code: int) -> dict[str, Any]:
    assert main(["data", "compare", *map(str, words), "--json"]) == code
    document = json.loads(capsys.readouterr().out)
    assert isinstance(document, dict)
    return document


def test_a_swapped_turned_and_scaled_recording_is_given_its_map(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = clean(), clean()

    def update(action: Any, state: Any) -> None:
        action[:, [0, 1]] = action[:, [1, 0]]
        action[:, 2] *= -1.0
        action[:, 3] *= 1.5
        action[:, 4] += 20.0

    one, two = write(tmp_path / "before", before), write(tmp_path / "after", after.each(update))
    assert run(capsys, one, one, code=0)["checks"][0]["verdict"] == "ok"
    found = run(capsys, one, two, code=1)["checks"][0]
    names = open_dataset(one).spec.action_spec.names
    faults = [found["numbers"]["joints"][n]["faults"] for n in names]
    assert faults[:5] == [["order"], ["order"], ["sign"], ["scale"], ["offset"]]
    assert found["numbers"]["map"][names[3]]["scale"] == pytest.approx(1.5, rel=0.01)
    assert (found["cause"], found["numbers"]["map"][names[0]]["source"]) == ("action_convention", names[1])
    assert main(["data", "compare", str(one), str(two)]) == 1
    assert f"{names[2]} = -1 * {names[2]}" in capsys.readouterr().out


def test_commands_are_compared_with_readings_and_episodes_of_other_length_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, part = write(tmp_path / "whole", clean()), write(tmp_path / "part", clean(episodes=3))
    found = run(capsys, whole, part, "--found", "state", "--longest-lag", "8", code=0)
    assert found["checks"][0]["numbers"]["lag_frames"] == 3
    assert (found["episodes"], found["episodes_left_out"]) == (3, [3])
    short = write(tmp_path / "short", clean(length=100))
    assert main(["data", "compare", str(whole), str(short)]) == 3
    assert "share no episode" in capsys.readouterr().err


def test_the_rotation_form_of_the_actions_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sent, done, rng = clean(), clean(), np.random.default_rng(0)
    for a, b in zip(sent.actions, done.actions, strict=True):
        a[:, :3] = b[:, :3] = rng.normal(0, 0.3, (len(a), 3))
        b[:, :3] = turn(a[:, :3], "XYZ").as_rotvec()
    one, two = write(tmp_path / "sent", sent), write(tmp_path / "done", done)
    names = ",".join(open_dataset(one).spec.action_spec.names[:3])
    wrong = run(capsys, one, two, "--rotation", names, code=1)["checks"][1]
    assert wrong["verdict"] == "broken"
    assert wrong["numbers"]["best"] in {"XYZ", "zyx"}  # two names of one thing
    right = run(capsys, one, two, "--rotation", names, "--form", "XYZ", code=0)["checks"]
    assert [c["verdict"] for c in right][1] == "ok"
    assert "three dimensions" in run(capsys, one, two, "--rotation", "a,b", code=2)["error"]
