"""The actions of ``simgap data`` from the command line: what is written, what is printed, which exit code says what."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from format_builders import write_act, write_robomimic, write_tub
from remedies import run as run_words
from simgap.cli import main
from simgap.conventions import Unit
from simgap.episodes.reader import open_dataset
from test_episodes_merge import NAMES, write
from test_episodes_store import tree


def run(capsys: pytest.CaptureFixture[str], *words: str | Path, code: int = 0) -> dict[str, Any]:
    """Run ``simgap data ... --json`` and return its document."""
    assert main(["data", *map(str, words), "--json", "--quiet"]) == code
    document = json.loads(capsys.readouterr().out)
    assert isinstance(document, dict)
    return document


def test_a_map_is_saved_beside_the_data_and_every_action_finds_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_act(tmp_path / "act" / "episode_0.hdf5", compressed=True)
    assert "--rate-hz" in run(capsys, "info", tmp_path / "act", code=3)["error"]
    options = [
        "--rate-hz",
        "50",
        "--is",
        "action:*=rad",
        "--is",
        "state:*=rad,-3.2..3.2",
        "--image",
        "cam_high=bgr",
        "--image",
        "cam_low=rgb",
    ]
    document = run(capsys, "info", tmp_path / "act", *options, "--save-map")
    assert (document["version"], document["rate_hz"], document["notes"]) == ("act hdf5", 50.0, [])
    plain = run(capsys, "info", tmp_path / "act")
    assert {d["unit"] for d in plain["state_spec"]["dimensions"]} == {"rad"}
    assert plain["state_spec"]["dimensions"][3]["high"] == 3.2
    assert plain["fingerprint"] == document["fingerprint"]
    assert run(capsys, "check", tmp_path / "act", code=1)["layout"]["version"] == "act hdf5"
    assert "units_undeclared" not in {
        f["code"] for f in run(capsys, "check", tmp_path / "act", code=1)["findings"]
    }
    run(
        capsys,
        "convert",
        tmp_path / "act",
        "--task",
        "insert",
        "--codec",
        "png",
        "--out",
        tmp_path / "out",
        "--workers",
        "0",
    )
    assert {d.unit for d in open_dataset(tmp_path / "out").spec.action_spec.dimensions} == {Unit.RAD}


def test_colours_that_nobody_looked_at_are_not_made_permanent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_act(tmp_path / "act" / "episode_0.hdf5", compressed=True)
    words = ["convert", tmp_path / "act", "--rate-hz", "50", "--task", "insert", "--out", tmp_path / "out"]
    assert "--image cam_high=rgb" in run(capsys, *words, code=2)["error"]
    assert not (tmp_path / "out").exists()


def test_a_map_may_be_a_file_and_later_words_win(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tub(tmp_path / "t", speed=[0.1 * k for k in range(20)])
    (tmp_path / "m.json").write_text(
        '{"keys": {"cam/image_array": "front", "speed": "state"}, "rate_hz": 15}'
    )
    document = run(
        capsys,
        "info",
        tmp_path / "t",
        "--map",
        tmp_path / "m.json",
        "--map",
        "cam/image_array=nose",
        "--rate-hz",
        "20",
    )
    assert document["cameras"] == {"nose": "cam/image_array"}
    assert [d["name"] for d in document["state_spec"]["dimensions"]] == ["speed"]
    assert document["rate_hz"] == 20.0
    assert "no map to save" in run(capsys, "info", tmp_path / "t", "--save-map", code=2)["error"]
    assert (
        "did you mean 'cam/image_array'"
        in run(capsys, "info", tmp_path / "t", "--map", "cam/image_aray=front", code=2)["error"]
    )


def test_one_command_converts_units_order_names_cameras_and_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write(tmp_path / "a", cameras=("front", "top"))
    source = open_dataset(root)
    names = source.spec.action_spec.names
    words = [
        "--to",
        "[!g]*=rad",
        "--to",
        "action:gripper.pos=opens_low",
        "--rename",
        "wrist_roll.pos=roll.pos",
        "--camera",
        "front=nose",
        "--drop-camera",
        "top",
    ]
    order = [n.replace("wrist_roll", "roll") for n in names[::-1]]
    words += [
        "--order",
        f"action:{','.join(order)}",
        "--resize",
        "8x12",
        "--episodes",
        "2,0-1",
        "--codec",
        "png",
    ]
    before = tree(root)
    document = run(capsys, "convert", root, *words, "--out", tmp_path / "out", "--workers", "0")
    assert tree(root) == before
    out = open_dataset(tmp_path / "out")
    assert document["fingerprint"] == out.fingerprint
    assert (document["episodes"], document["videos"]) == (3, "frames kept exactly")
    assert list(out.spec.action_spec.names) == order
    assert out.frame_shape("nose") == (8, 12, 3)
    np.testing.assert_allclose(
        out.episode(0).action[:, 1], np.radians(source.episode(2).action[:, 4]), rtol=1e-6
    )
    again = run(capsys, "convert", root, *words, "--out", tmp_path / "out", "--workers", "0")
    assert (again["found"], again["fingerprint"]) == (3, document["fingerprint"])


def test_a_calibration_file_turns_the_range_into_degrees(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calibration = {
        n.removesuffix(".pos"): {
            "id": k,
            "drive_mode": 0,
            "homing_offset": 0,
            "range_min": 1024,
            "range_max": 3072,
        }
        for k, n in enumerate(NAMES)
    }
    (tmp_path / "arm.json").write_text(json.dumps(calibration))
    root = write(tmp_path / "a")
    words = [
        "--is",
        "[!g]*=range_100",
        "--calibration",
        tmp_path / "arm.json",
        "--to",
        "[!g]*=deg",
        "--out",
        tmp_path / "out",
        "--workers",
        "0",
    ]
    run(capsys, "convert", root, *words)
    scale = (3072 - 1024) / 4095 * 360 / 200
    np.testing.assert_allclose(
        open_dataset(tmp_path / "out").episode(0).state[:, :5],
        open_dataset(root).episode(0).state[:, :5] * scale,
        rtol=1e-5,
    )


def test_merging_on_the_command_line_tells_the_command_on_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = write(tmp_path / "a"), write(tmp_path / "b", 5, cameras=("fronts",))
    assert main(["data", "merge", str(a), str(b), "--out", str(tmp_path / "out")]) == 3
    said = capsys.readouterr().err.strip()
    assert len(said.splitlines()) == 1
    assert f"simgap data convert {b} --camera fronts=front --out {tmp_path / 'b-converted'}" in said
    document = run(
        capsys, "convert", b, "--camera", "fronts=front", "--out", tmp_path / "b2", "--workers", "0"
    )
    merged = run(capsys, "merge", a, tmp_path / "b2", "--out", tmp_path / "out", "--workers", "0")
    assert (merged["kind"], merged["episodes"], merged["frames"]) == ("data_merge", 6, document["frames"] * 2)


@pytest.mark.parametrize("action", ["info", "check", "stats", "split"])
def test_looking_writes_nothing_into_the_data(
    action: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    write_robomimic(tmp_path / "in" / "demo.hdf5")
    write_tub(tmp_path / "in" / "tub", [(f"s{k}", 4) for k in range(5)])
    root = write(tmp_path / "in" / "ours", n=5)
    before = tree(tmp_path / "in")
    for path in (tmp_path / "in" / "demo.hdf5", tmp_path / "in" / "tub", root):
        assert main(
            ["data", action, str(path), "--quiet", *(["--parts", "a=0.5,b=0.5"] if action == "split" else [])]
        ) in (0, 1)
        assert capsys.readouterr().out
    assert tree(tmp_path / "in") == before


@pytest.mark.slow
def test_data_can_be_trained_on_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("format_builders.HEIGHT", 48)
    monkeypatch.setattr("format_builders.WIDTH", 48)
    write_robomimic(tmp_path / "demo.hdf5", (12, 9))
    write_tub(tmp_path / "tub", [("s", 20)])
    for name in ("demo.hdf5", "tub"):
        small = {
            "--steps": 2,
            "--batch": 4,
            "--chunk": 4,
            "--width": 8,
            "--hidden": 16,
            "--executor": "receding(2)",
            "--out": tmp_path / f"{name}-policy",
        }
        words = [str(tmp_path / name), *(str(word) for pair in small.items() for word in pair)]
        assert main(["train", *words, "--force", "--quiet"]) == 0
    capsys.readouterr()


def test_frames_that_are_not_square_are_refused_by_the_command_that_makes_them_square(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tub(tmp_path / "tub", [("s", 20)])
    asked = ["--steps", "2", "--force", "--quiet", "--out", str(tmp_path / "policy")]
    assert main(["train", str(tmp_path / "tub"), *asked]) == 3
    words = shlex.split(
        capsys.readouterr()
        .err.partition("square frames of one size: simgap ")[2]
        .removesuffix(" (stretches them)\n")
    )
    assert run_words(words) == 0
    height, width = open_dataset(Path(words[-1])).spec.image_size
    assert height == width
