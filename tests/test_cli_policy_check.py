"""`simgap policy check`: what is wrong with a policy's inputs and outputs shows before anything moves."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from simgap.cli import main
from simgap.episodes.frames import load_frames
from simgap.episodes.reader import open_dataset
from simgap.episodes.write.store import EpisodeWriter
from simgap.training.spec import TrainSpec
from simgap.training.trainer import train

Change = Callable[[NDArray[np.uint8]], NDArray[np.uint8]]


def record(env: str, count: int, out: Path) -> None:
    words = ["generate", env, "-n", str(count), "--size", "48", "--workers", "0", "--out", str(out)]
    assert main([*words, "--quiet", "--json"]) == 0


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("check") / "data"
    record("arm-pick", 10, folder)
    return folder


@pytest.fixture(scope="module")
def policy(data: Path) -> Path:
    folder = data.parent / "policy"
    train([load_frames(data)], None, TrainSpec(steps=60, batch=32, width=8), folder)
    return folder


def copy(
    data: Path, out: Path, change: Callable[[dict[str, NDArray[np.uint8]]], dict[str, NDArray[np.uint8]]]
) -> Path:
    source = open_dataset(data)
    writer = EpisodeWriter(out, source.spec)
    for k in range(source.n_episodes):
        episode = source.episode(k)
        writer.write(k, replace(episode, images=change(dict(episode.images))))
    writer.finish()
    return out


def asked(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, list[str]]:
    """Return the exit code, and the sentences of what is broken."""
    code = main(["policy", "check", *map(str, words), "--json", "--quiet"])
    checks = json.loads(capsys.readouterr().out)["checks"]
    return code, [c["sentence"] for c in checks if c["verdict"] == "broken"]


@pytest.mark.slow
def test_on_its_own_data_nothing_of_the_cameras_is_broken(
    policy: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, broken = asked(capsys, policy, "--data", data, "--live", data)
    assert not any("picture" in said or "frames" in said for said in broken)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param(lambda i: {"front": i["wrist"], "wrist": i["front"]}, "front shows wrist"),
        (lambda i: {**i, "front": np.ascontiguousarray(i["front"][:, ::-1])}, "front picture is mirrored"),
        pytest.param(
            lambda i: {**i, "wrist": np.full_like(i["wrist"], 90)},
            "wrist frames are flat",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            lambda i: {**i, "front": (i["front"] * 0.4).astype(np.uint8)},
            "front picture is",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["exchanged", "upside down", "one colour", "dark"],
)
def test_a_camera_that_is_not_as_in_training_is_named_before_anything_moves(
    change: Callable[[dict[str, NDArray[np.uint8]]], dict[str, NDArray[np.uint8]]],
    said: str,
    policy: Path,
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    live = copy(data, tmp_path / "live", change)
    code, broken = asked(capsys, policy, "--data", data, "--live", live)
    assert code == 1
    assert said in " ".join(broken)


@pytest.mark.slow
def test_a_recording_in_another_convention_is_refused_in_one_line(
    policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record("car-goal", 2, tmp_path / "car")
    assert main(["policy", "check", str(policy), "--data", str(tmp_path / "car"), "--quiet"]) == 3
    assert "policy" in capsys.readouterr().err


def test_a_policy_that_is_not_there_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["policy", "check", str(tmp_path / "none"), "--data", str(tmp_path / "data"), "--quiet"]
    assert main(words) == 3
    assert capsys.readouterr().err.count("\n") == 1
