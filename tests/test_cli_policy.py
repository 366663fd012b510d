"""``simgap policy describe``: the policy file of a LeRobot folder, all that is missing at once, and what leads there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lerobot_fixtures import save_checkpoint
from simgap.cli import main
from simgap.cli._policies import env_of
from simgap.conventions import ActionSpec, Dimension, StateSpec, Unit
from simgap.errors import ConventionError, UsageError
from simgap.policies.bridges.open import KINDS, ServedCard, Shape, interface_of
from simgap.policies.bridges.policy_file import read_policy_file
from simgap.policies.execution import ExecutorSpec, Mode
from simgap.trust import stored_files

REAL = Path(__file__).parent.parent.parent / "shared" / "data" / "policy_act_so101_robopour"


@pytest.fixture(autouse=True)
def _own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("SIMGAP_LEROBOT_PYTHON", "/usr/bin/python3")
    monkeypatch.chdir(tmp_path)


def saved(
    folder: Path,
    *,
    size: tuple[int, int] = (48, 48),
    cameras: tuple[str, ...] = ("front", "wrist"),
    **config: Any,
) -> Path:
    """Save an ACT-like checkpoint for arm-pick's six joints."""
    path = save_checkpoint(
        folder / "saved", width=6, cameras=cameras, chunk_size=10, n_action_steps=5, **config
    )
    data = json.loads((path / "config.json").read_text())
    for name, feature in data["input_features"].items():
        feature["shape"] = [3, *size] if "images" in name else feature["shape"]
    data["normalization_mapping"] = {"STATE": "MEAN_STD", "ACTION": "MIN_MAX"}
    (path / "config.json").write_text(json.dumps(data))
    return path


def described(*words: str | Path) -> int:
    return main(["policy", "describe", *map(str, words)])


def test_the_file_that_is_written_is_one_that_our_reader_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, file = saved(tmp_path), tmp_path / "act.json"
    assert described(folder, "--env", "arm-pick", "--write", file, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["missing"] == document["notes"] == []
    assert "arm-pick" in document["assumed"][0]
    interface = interface_of(read_policy_file(file, KINDS))
    assert (interface.image_size, interface.chunk, interface.envs) == (48, 10, ("arm-pick",))
    assert interface.cameras == ("front", "wrist")
    assert interface.executor == ExecutorSpec(mode=Mode.RECEDING, replan_steps=5), "what the config asks for"
    assert stored_files() == (), "it names nothing to run"


def test_everything_that_is_missing_is_said_at_once_with_the_flags_that_say_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SIMGAP_LEROBOT_PYTHON")
    folder = saved(tmp_path, size=(48, 64))
    assert described(folder) == 1
    page = capsys.readouterr().out
    assert page.count("missing: ") == 2
    assert all(
        flag in page
        for flag in (
            "--resize",
            "--env",
            "--dataset",
            "--action-spec",
            "--state-spec",
            "--rate-hz",
            "--python",
        )
    )
    assert described(folder, "--write", "act.json") == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "(1)" in said
    assert "(2)" in said
    assert not Path("act.json").exists()


def test_frames_that_are_not_square_are_refused_in_a_sentence_or_stretched_where_that_was_accepted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = saved(tmp_path, size=(48, 64))
    assert described(folder, "--env", "arm-pick", "--write", "act.json") == 2
    said = capsys.readouterr().err
    assert "front 64x48" in said
    assert "square" in said
    assert described(folder, "--env", "arm-pick", "--resize", "--write", "act.json") == 0
    written = json.loads(Path("act.json").read_text())
    assert (written["image_size"], written["resize"]) == (48, True)


def test_cameras_of_other_names_are_mapped_by_flags_that_the_message_spells_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = saved(tmp_path, cameras=("top", "wrist"))
    assert described(folder, "--env", "arm-pick", "--write", "act.json") == 2
    assert "--camera front=top" in capsys.readouterr().err
    assert described(folder, "--env", "arm-pick", "--camera", "front=top", "--write", "act.json") == 0
    assert json.loads(Path("act.json").read_text())["images"] == {
        "front": "observation.images.top",
        "wrist": "observation.images.wrist",
    }
    assert described(folder, "--env", "arm-pick", "--camera", "front=left") == 2


def test_conventions_can_be_stated_without_an_env(tmp_path: Path) -> None:
    spec = ActionSpec(
        dimensions=tuple(Dimension(name=f"j{i}.pos", unit=Unit.DEG, low=-90, high=90) for i in range(6)),
        rate_hz=10,
    )
    Path("arm.json").write_text(json.dumps({"action_spec": spec.to_json(), "state_spec": spec.to_json()}))
    command = (
        saved(tmp_path),
        "--action-spec",
        "arm.json",
        "--state-spec",
        "arm.json",
        "--rate-hz",
        "30",
        "--write",
        "act.json",
    )
    assert described(*command) == 0
    interface = interface_of(read_policy_file(tmp_path / "act.json", KINDS))
    assert interface.action_spec.rate_hz == interface.state_spec.rate_hz == 30
    assert interface.envs == ()


def test_a_python_that_the_command_names_makes_the_written_file_trusted_until_it_is_edited(
    tmp_path: Path,
) -> None:
    file = tmp_path / "act.json"
    assert (
        described(saved(tmp_path), "--env", "arm-pick", "--python", "/usr/bin/python3", "--write", file) == 0
    )
    assert interface_of(read_policy_file(file, KINDS)).chunk == 10
    file.write_text(file.read_text().replace("python3", "python4"))
    with pytest.raises(UsageError, match="names a program to start"):
        interface_of(read_policy_file(file, KINDS))


def test_an_env_with_other_joints_is_refused_before_a_file_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert described(saved(tmp_path), "--env", "car-goal", "--write", "act.json") == 2
    said = capsys.readouterr().err
    assert "not trained for that env" in said
    assert "shoulder" not in said


@pytest.mark.parametrize(
    "verb", [("screen",), ("trial",), ("select",), ("study", "execution"), ("report",)], ids=" ".join
)
def test_a_lerobot_folder_in_the_place_of_a_checkpoint_leads_to_its_policy_file(
    verb: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = saved(tmp_path)
    assert main([*verb, str(folder)]) == 3
    said = capsys.readouterr().err
    assert f"simgap policy describe {folder}" in said
    assert said.count("\n") == 1


def test_a_real_folder_is_described_with_its_pointers(capsys: pytest.CaptureFixture[str]) -> None:
    if not REAL.exists():
        pytest.skip(f"{REAL} is not here")
    command = (
        REAL,
        "--env",
        "arm-pick",
        "--camera",
        "front=top",
        "--resize",
        "--write",
        "act.json",
        "--json",
    )
    assert described(*command) == 1
    document = json.loads(capsys.readouterr().out)
    assert "Git LFS" in document["notes"][0]
    assert (document["state"], document["action"], document["policy_type"]) == (6, 6, "act")
    assert interface_of(read_policy_file(Path("act.json"), KINDS)).chunk == 100


def _card(*names: str, envs: tuple[str, ...] = ()) -> ServedCard:
    dimensions = tuple(Dimension(name=n, unit=Unit.DEG, low=-1, high=1) for n in names)
    return ServedCard(
        hash="0" * 64,
        action_spec=ActionSpec(dimensions=dimensions, rate_hz=20),
        state_spec=StateSpec(dimensions=dimensions, rate_hz=20),
        architecture=Shape(cameras=("front",), image_size=48, chunk=1),
        executor=ExecutorSpec(mode=Mode.LATEST),
        training={"envs": list(envs)},
    )


def test_an_env_and_a_policy_that_do_not_belong_together_are_told_in_a_sentence_without_joints() -> None:
    with pytest.raises(ConventionError) as found:
        env_of(_card("left.pos", "right.pos", envs=("arm-pick",)), "car-goal")
    assert "do not belong together" in str(found.value)
    assert "--env arm-pick" in str(found.value)
    assert ".pos" not in str(found.value)
    with pytest.raises(UsageError, match="belongs to none of simgap's own envs") as found_none:
        env_of(_card("left.pos", "right.pos"), None)
    assert ".pos" not in str(found_none.value)
