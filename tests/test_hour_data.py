"""What a newcomer's data verbs say in the first hour: repairs that keep the command they repair, and folders that stay free."""

from __future__ import annotations

from pathlib import Path

import pytest

from format_builders import write_tub
from remedies import printed_commands, run
from simgap.cli import main
from simgap.episodes.edit.missing_videos import spans
from simgap.episodes.reader import open_dataset
from test_data_check_planted import clean, write


def _said(*words: str | Path, capsys: pytest.CaptureFixture[str], code: int = 3) -> str:
    capsys.readouterr()
    assert main([*map(str, words), "--quiet"]) == code
    return capsys.readouterr().err


def test_a_repair_keeps_the_options_of_the_command_it_repairs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tub(tmp_path / "t")
    words = ["data", "convert", tmp_path / "t", "--out", tmp_path / "mine", "--codec", "png"]
    [command] = printed_commands(_said(*words, capsys=capsys))
    assert command[: len(words)] == [str(w) for w in words]
    assert command[len(words)] == "--task"
    assert run(command) == 0
    assert open_dataset(tmp_path / "mine").spec.codec == "png"


@pytest.mark.parametrize(
    "verb", [["convert", "{t}"], ["split", "{t}", "--datasets", "--parts", "train=0.5,val=0.5"]]
)
def test_the_words_of_the_example_are_no_task(
    verb: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tub(tmp_path / "t")
    words = [w.format(t=tmp_path / "t") for w in verb]
    said = _said(
        "data", *words, "--task", "describe the task here", "--out", tmp_path / "o", capsys=capsys, code=2
    )
    assert "write in its place what the robot does" in said
    assert not (tmp_path / "o" / "meta").exists()


def _with_videos(root: Path) -> Path:
    words = ["generate", "arm-pick", "-n", "3", "--size", "48", "--workers", "0", "--out", str(root)]
    assert main([*words, "--quiet"]) == 0
    (root / "meta" / "simgap.json").unlink()  # others' data have none
    return root


def test_missing_videos_are_said_before_anything_is_written_with_what_goes_without_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = _with_videos(tmp_path / "d")
    videos = sorted((root / "videos").rglob("*.mp4"))
    videos[1].unlink()
    words = ["data", "convert", root, "--out", tmp_path / "o"]
    said = _said(*words, capsys=capsys)
    assert "1 video is missing" in said
    assert videos[1].name in said
    assert not (tmp_path / "o").exists()
    [command] = printed_commands(said)
    assert command[-2:] == ["--episodes", "0,2"]
    assert run(command) == 0
    for video in videos[:3]:
        video.unlink(missing_ok=True)
    [command] = printed_commands(_said(*words[:-1], tmp_path / "p", capsys=capsys))
    assert command[-2] == "--drop-camera"
    assert run(command) == 0


def test_a_folder_in_which_nothing_was_done_takes_the_corrected_command(tmp_path: Path) -> None:
    root = write(tmp_path / "d", clean(episodes=3), is_ours=False)
    out = tmp_path / "o"
    claim = out / "meta" / "simgap.json"
    assert main(["data", "convert", str(root), "--out", str(out), "--workers", "0", "--quiet"]) == 0
    kept = claim.read_text()
    for path in sorted(out.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    claim.parent.mkdir()
    claim.write_text(kept)  # what a run leaves that is killed before its first episode
    words = ["data", "convert", str(root), "--out", str(out), "--workers", "0", "--quiet", "--resize", "8x8"]
    assert main(words) == 0


def test_a_folder_of_another_env_says_so_and_prints_no_tables_of_joints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["-n", "1", "--size", "48", "--workers", "0", "--out", tmp_path / "d"]
    assert main(["generate", "arm-pick", *map(str, small), "--quiet"]) == 0
    said = _said("generate", "car-goal", *small, capsys=capsys)
    assert "holds episodes of arm-pick, and this would add episodes of car-goal" in said
    assert "{" not in said
    assert len(said) < 300


def test_episodes_are_written_as_the_option_takes_them() -> None:
    assert (spans([5, 0, 1, 2]), spans([3])) == ("0-2,5", "3")
