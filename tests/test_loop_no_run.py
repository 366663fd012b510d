"""A folder that is no run is called what it is, with the verb that reads it; never is the demo sent into somebody's data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from arm_fixtures import tiny_checkpoint
from simgap.cli import main

VERBS = ("diagnose", "target", "report")


def made(tmp_path: Path, *files: str, text: str = "{}") -> Path:
    folder = tmp_path / "things"
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text)
    return folder


def refusal(verb: str, path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main([verb, str(path)]) == 3
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "diagnose, target and report read a run of `simgap demo`" in error
    assert f"demo --out {path}" not in error
    return error


@pytest.mark.parametrize("verb", VERBS)
def test_a_checkpoint_is_told_from_a_run(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tiny_checkpoint(tmp_path / "policy")
    assert f"is a checkpoint: `simgap screen {path}`" in refusal(verb, path, capsys)


@pytest.mark.parametrize("verb", VERBS)
def test_a_dataset_and_trials_are_told_from_a_run_and_from_each_other(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for kind, words in (
        ("dataset", "is a dataset: `simgap data info"),
        ("trials", "is a set of trials: the same `simgap trial` command"),
    ):
        path = made(tmp_path / kind, "meta/simgap.json", text=json.dumps({"spec": {"stamp": {"kind": kind}}}))
        assert words in refusal(verb, path, capsys)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (("screen.json", "traces.npz"), "is a screen: the same `simgap screen` command"),
        (("resume.pt",), "is a training that has not finished"),
        (("selection.json", "race.png"), "is a race of checkpoints: the same `simgap select` command"),
        (("selection.json",), "is a study: the same `simgap study selection` command"),
        (("execution.json",), "is a study: the same `simgap study execution` command"),
        (("spec.json", "ledger.db"), "is a run that has not finished: the same `simgap demo` command"),
        (("one/run.json",), "holds a run, but is none: give "),
        (("meta/info.json",), "is a dataset"),
        (("notes.txt",), "is no finished run (no run.json)"),
    ],
)
def test_whatever_a_folder_is_it_is_called_so(
    files: tuple[str, ...], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert words in refusal("diagnose", made(tmp_path, *files), capsys)


def test_a_path_that_does_not_exist_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "does not exist" in refusal("report", tmp_path / "nowhere", capsys)


def test_a_damaged_stamp_leaves_a_dataset_a_dataset(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "is a dataset" in refusal("target", made(tmp_path, "meta/simgap.json", text="{"), capsys)
