"""What a newcomer reads in the first hour: next steps that work, and messages that say what, what was expected and what to do."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from format_builders import write_tub
from simgap.checks.data.dataset import check_data
from simgap.cli import main
from simgap.compute.interrupts import Stopped, told
from simgap.errors import did_you_mean


def _error(*words: str | Path, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main([*map(str, words)]) in (2, 3)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


def test_another_family_is_no_near_name() -> None:
    known = ["arm-pass", "arm-pick", "arm-place", "car-goal"]
    assert "did you mean" not in did_you_mean("arm-grab", known)
    assert "did you mean 'arm-pick'?" in did_you_mean("arm-pik", known)
    assert "did you mean 'car-goal'?" in did_you_mean("cargoal", known)


@pytest.mark.parametrize("words", [["generate", "arm-pick"], ["data", "convert", "x"], ["trial"]])
def test_who_stops_a_verb_that_goes_on_is_told_so(words: list[str]) -> None:
    assert "the same command goes on" in told(Stopped(signal.SIGINT), words)
    assert "the same command" not in told(Stopped(signal.SIGINT), ["report", "x"])
    assert str(told(Stopped(signal.SIGINT, "saved"), words)).endswith("saved")


def test_a_folder_without_a_ledger_says_where_one_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = _error("ledger", "show", tmp_path, capsys=capsys)
    assert "holds no ledger" in said
    assert "restore" not in said
    (tmp_path / "trials").mkdir()
    (tmp_path / "trials" / "ledger.db").touch()
    assert f"there is one in {tmp_path / 'trials'}" in _error("ledger", "show", tmp_path, capsys=capsys)


def test_a_policy_is_described_only_where_one_of_lerobot_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "does not exist" in _error("policy", "describe", tmp_path / "absent", capsys=capsys)
    (tmp_path / "card.json").write_text("{}")
    said = _error("policy", "describe", tmp_path, capsys=capsys)
    assert f"needs no policy file: simgap screen {tmp_path}" in said


def test_out_of_policy_describe_is_where_the_file_goes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "ends in .json" in _error("policy", "describe", tmp_path, "--out", "a.txt", capsys=capsys)
    both = ["--write", "a.json", "--out", "b.json"]
    assert "give one of them" in _error("policy", "describe", tmp_path, *both, capsys=capsys)


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("card.json", "is a checkpoint"),
        ("screen.json", "is a screen"),
        ("resume.pt", "has not finished"),
        ("trials.json", "holds the trials of"),
    ],
)
def test_a_folder_of_ours_is_not_read_as_somebody_elses(
    file: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "runs" / "one").mkdir(parents=True)
    (tmp_path / "runs" / "one" / file).write_text(json.dumps({}))
    assert says in _error("data", "check", tmp_path / "runs" / "one", capsys=capsys)
    said = _error("data", "check", tmp_path / "runs", capsys=capsys)
    assert "holds 1 folder that simgap wrote" in said
    assert says in said


def test_what_a_tub_cannot_say_is_asked_for_by_what_it_is(tmp_path: Path) -> None:
    write_tub(tmp_path / "t", step_ms=3)
    remedies = [f.remedy for f in check_data(tmp_path / "t").findings if f.code == "assumed_by_reader"]
    assert len(set(remedies)) == len(remedies) > 1
    assert any("--rate-hz 20 --save-map" in r for r in remedies)


def test_cameras_are_named_apart_or_with_commas(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["-n", "1", "--size", "48", "--workers", "0", "--quiet", "--json"]
    for k, names in enumerate((["front,wrist"], ["front", "wrist"], ["front,", "wrist"])):
        capsys.readouterr()
        code = main(["generate", "arm-pick", *small, "--out", str(tmp_path / f"{k}"), "--cameras", *names])
        assert code == (2 if k == 2 else 0)
        if code == 0:
            assert json.loads(capsys.readouterr().out)["cameras"] == ["front", "wrist"]
    for names in (["front,fron"], ["front", "fron"]):
        said = _error("train", tmp_path / "0", "--force", "--cameras", *names, capsys=capsys)
        assert "has no camera 'fron'" in said


def test_info_prints_words_and_no_dicts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tub(tmp_path / "t")
    assert main(["data", "info", str(tmp_path / "t")]) == 0
    page = capsys.readouterr().out
    assert not set("{}[]'") & set(page)
    assert "is ours" in page


def test_a_training_folder_of_another_request_names_what_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["--size", "48", "--workers", "0", "--quiet"]
    assert main(["generate", "arm-pick", "-n", "2", *small, "--out", str(tmp_path / "d")]) == 0
    tiny = ["--batch", "4", "--width", "8", "--hidden", "16", "--threads", "1", "--force"]
    words = ["train", str(tmp_path / "d"), *tiny, "--out", str(tmp_path / "p")]
    assert main([*words, "--steps", "3", "--quiet"]) == 0
    said = _error(*words, "--steps", "2", "--quiet", capsys=capsys)
    assert "(steps is 3 there and 2 now)" in said
    from simgap.training.request import keep_request, what_differs

    (tmp_path / "old").mkdir()
    assert what_differs(tmp_path / "old", {"spec": {}, "data": []}, "x") == "another spec or other data"
    keep_request(tmp_path / "old", {"spec": {"steps": 3}, "data": ["a"]})
    assert what_differs(tmp_path / "old", {"spec": {}, "data": []}, "x") == "another spec or other data"


def test_the_steps_of_a_training_are_counted_from_its_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from types import SimpleNamespace

    from simgap.cli._reporter import ConsoleReporter
    from simgap.compute.cache import StageCache
    from simgap.loop import stages

    def trained(*given: Any) -> None:
        for step in (50, 100, 120):
            given[-1](SimpleNamespace(step=step, total=120, loss=0.5, observations_per_s=10.0))

    monkeypatch.setattr(stages, "train", trained)
    monkeypatch.setattr(stages, "open_dataset", lambda _: SimpleNamespace(fingerprint="f"))
    monkeypatch.setattr(stages, "load_frames", lambda _: None)
    monkeypatch.setattr(stages, "require_pixels", lambda *_, **__: None)
    spec: Any = SimpleNamespace(executor="latest")
    made = stages.Stages(spec, None, StageCache(tmp_path), tmp_path, ConsoleReporter(False), 0)  # type: ignore[arg-type]
    made.checkpoint("policy", [tmp_path], None, 120)
    said = capsys.readouterr().err
    assert "policy: steps 120/120" in said
    assert "policy: 120 steps" in said


def test_a_joint_s_plot_has_numbers_on_both_axes() -> None:
    from simgap.report.model import JointTrace
    from simgap.report.words import heights, moments

    trace = JointTrace(
        name="elbow",
        unit="deg",
        label="x",
        times_s=(1.0, 2.0, 3.0),
        commanded=(0.0, 10.0, 4.0),
        measured=(0.0, 8.0, 4.0),
    )
    assert heights(trace) == ["10 deg", "5 deg", "0 deg"]
    assert moments(trace) == ["0 s", "1 s", "2 s"]
