from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from simgap.cli import generate, main
from simgap.ledger import Ledger

SMALL = ["--size", "48", "--workers", "0"]
TRAIN = [
    "--steps",
    "12",
    "--batch",
    "8",
    "--width",
    "8",
    "--hidden",
    "16",
    "--threads",
    "1",
    "--checkpoint-every",
    "4",
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("data") / "picks"
    assert main(["generate", "arm-pick", "-n", "3", *SMALL, "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def checkpoint(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("policies") / "untrained"
    assert main(["train", str(data), *TRAIN, "--out", str(out)]) == 0
    return out


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    """Return a function that runs a command with ``--json`` and returns exit code, document and standard error."""

    def call(*words: str | Path) -> tuple[int, dict[str, Any], str]:
        capsys.readouterr()
        code = main([*map(str, words), "--json"])
        captured = capsys.readouterr()
        return code, json.loads(captured.out), captured.err

    return call


def test_envs_lists_what_there_is(run: Any) -> None:
    code, document, _ = run("envs")
    assert code == 0
    assert "arm-pick" in [env["name"] for env in document["envs"]]


def test_an_env_is_shown_with_every_factor_its_unit_bounds_and_reason(
    run: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    code, document, _ = run("envs", "show", "arm-pick")
    assert code == 0
    assert all(
        f["unit"] and f["reason"] and f["low"] <= f["nominal"] <= f["high"] for f in document["factors"]
    )
    assert document["presets"]["nominal"]["target_x_m"] == [0.15, 0.21]
    assert main(["envs", "show", "arm-pick"]) == 0
    page = capsys.readouterr().out
    assert all(
        word in page for word in ("target_x_m", "shifted:light", "wrong_object", "gripper.pos", "mujoco")
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["envs", "show", "arm-pik"], "did you mean 'arm-pick'?"),
        (["envs", "check", "arm-pick", "--factors", "nominl"], "did you mean 'nominal'?"),
        (["envs", "picture", "arm-pick", "--out", "a.jpg"], "not a .png"),
        (["generate", "arm-pik", "-n", "1"], "did you mean 'arm-pick'?"),
        (["generate", "arm-pick", "-n", "1", "--factors", "shifted:ligt"], "did you mean 'shifted:light'?"),
        (["generate", "arm-pick", "-n", "0"], "not a whole number from 1"),
        (["generate", "arm-pick"], "-n"),
        (["trial"], "CHECKPOINT"),
        (["trial", "x", "--gap", "camera_shif"], "did you mean 'camera_shift'?"),
    ],
)
def test_a_wrong_name_or_number_is_a_wrong_request(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ["train", "absent"],
        ["screen", "absent"],
        ["trial", "absent"],
        ["trial", "--replay", "absent"],
        ["train", "/dev/null"],
    ],
)
def test_a_path_that_holds_nothing_of_use_is_one_line(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 3
    error = capsys.readouterr().err
    assert words[-1] in error
    assert error.count("\n") == 1


def test_the_check_of_an_env_passes_where_the_teacher_solves_everything(run: Any) -> None:
    code, document, _ = run("envs", "check", "arm-pick", "-n", "4", "--workers", "0")
    assert code == 0
    assert document["is_clean"]
    assert document["contract"]["faults"] == []
    assert (document["teacher"]["successes"], document["teacher"]["n"]) == (4, 4)
    assert document["teacher"]["interval"][1] == 1.0


def test_the_check_of_an_env_is_a_finding_where_the_teacher_fails(run: Any) -> None:
    code, document, _ = run("envs", "check", "arm-pick", "-n", "3", "--workers", "0", "--noise-deg", "80")
    assert code == 1
    teacher = document["teacher"]
    assert teacher["successes"] < 3
    assert (
        teacher["successes"] + sum(teacher["failures"].values()) + sum(teacher["abstentions"].values()) == 3
    )


def test_the_picture_of_an_env_has_a_row_a_preset(run: Any, tmp_path: Path) -> None:
    from PIL import Image

    code, document, _ = run(
        "envs", "picture", "arm-pick", "-n", "1", "--size", "32", "--out", tmp_path / "sheet.png"
    )
    assert code == 0
    with Image.open(document["path"]) as image:
        assert image.height > 32 * len(document["rows"])
        assert len(image.convert("RGB").getcolors(1 << 20) or []) > 100


def test_generating_again_makes_nothing_and_says_so(run: Any, data: Path) -> None:
    code, document, progress = run("generate", "arm-pick", "-n", "3", *SMALL, "--out", data)
    assert code == 0
    assert (document["episodes_already_there"], document["attempts"], document["frames_per_s"]) == (
        3,
        0,
        None,
    )
    assert "none is missing" in progress
    assert document["next"] == f"simgap train {data} --keep 6"


def test_generating_something_else_into_the_folder_is_refused(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["generate", "arm-pick", "-n", "3", *SMALL, "--out", str(data), "--noise-deg", "0"]) == 3
    assert (
        "noise_deg is 1.5 on disk and 0.0 now; use the same spec, or another folder (--out)"
        in capsys.readouterr().err
    )


def test_the_default_folder_names_env_preset_number_seed_and_what_is_not_usual(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _, document, _ = run(
        "generate", "arm-pick", "-n", "1", *SMALL, "--factors", "shifted:light", "--seed", "4"
    )
    assert document["path"] == "runs/data/arm-pick-shifted-light-1-s4-48px"


def test_requests_that_make_different_episodes_have_default_folders_of_their_own() -> None:
    def named(*words: str) -> str:
        parser = argparse.ArgumentParser()
        generate.add_arguments(parser)
        return generate.default_name(
            argparse.Namespace(seed=0, **vars(parser.parse_args(["arm-pick", "-n", "5", *words])))
        )

    assert named() == "arm-pick-nominal-5-s0"
    assert named("--size", "48", "--cameras", "front") == "arm-pick-nominal-5-s0-48px-front"
    changes = [
        (),
        ("--size", "48"),
        ("--cameras", "front"),
        ("--cameras", "front,wrist"),
        ("--noise-deg", "0"),
        ("--codec", "png"),
        ("--engine", "drake"),
    ]
    assert len({named(*change) for change in changes}) == len(changes)


def test_training_says_that_the_loss_selects_nothing_and_a_finished_run_is_not_trained_again(
    run: Any, data: Path, checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, document, _ = run("train", data, *TRAIN, "--out", checkpoint)
    assert code == 0
    assert document["was_finished"]
    assert document["observations_per_s"] is None
    assert main(["train", str(data), *TRAIN, "--out", str(checkpoint)]) == 0
    told = capsys.readouterr()
    assert (told.out + told.err).count("nothing is selected by it") == 1
    assert document["mixture"][0]["samples"] == 12 * 8


def test_the_same_request_finds_its_default_folder_again_and_another_gets_another(
    run: Any, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    short = [*TRAIN, "--steps", "2"]
    first, again, other = (run("train", data, *short, "--seed", seed)[1] for seed in ("0", "0", "1"))
    assert (first["path"], first["was_finished"]) == (again["path"], False)
    assert again["was_finished"]
    assert other["path"] != first["path"]


def test_a_fine_tune_knows_its_parent(run: Any, data: Path, checkpoint: Path, tmp_path: Path) -> None:
    parent = json.loads((checkpoint / "card.json").read_text())["weights_hash"]
    code, document, _ = run(
        "train",
        data,
        data,
        "--share",
        "1",
        "3",
        "--from",
        checkpoint,
        *TRAIN,
        "--steps",
        "4",
        "--out",
        tmp_path / "tuned",
    )
    assert code == 0
    assert document["parent"] == parent
    assert [part["share_asked"] for part in document["mixture"]] == [0.25, 0.75]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--share", "0.5", "0.5"], 2, "2 shares for 1 dataset;"),
        (["--cameras", "fron"], 2, "did you mean 'front'?"),
        (["--executor", "latests"], 2, "did you mean 'latest'?"),
        (["--executor", "receding(500)"], 2, "needs 500 entries"),
        (["--shift-px", "48"], 2, "out of sight"),
        (["--steps", "1" + "0" * 30], 2, "more than 10,000,000"),
        (["--device", "abacus"], 3, "cannot use device 'abacus'"),
    ],
)
def test_a_wrong_option_of_training_is_one_line(
    data: Path, words: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", str(data), *words]) == code
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_checkpoint_is_not_written_into_a_dataset(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(p.name for p in data.iterdir() if p.name != "cache")
    assert main(["train", str(data), *TRAIN, "--quiet", "--out", str(data)]) == 2
    assert "is a dataset" in capsys.readouterr().err
    assert sorted(p.name for p in data.iterdir() if p.name != "cache") == before


def test_the_same_episodes_are_not_trained_on_twice_without_a_word(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = Path(shutil.copytree(data, tmp_path / "copy"))
    for twice in (data, copy):
        assert main(["train", str(data), str(twice), "--steps", "2", "--out", str(tmp_path / "policy")]) == 2
        said = capsys.readouterr().err
        assert "same episodes" in said
        assert "--share" in said
        assert len(said.strip().splitlines()) == 1


def test_two_conventions_do_not_mix_and_both_are_named(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "bigger"
    assert (
        main(
            [
                "generate",
                "arm-pick",
                "-n",
                "1",
                "--size",
                "32",
                "--workers",
                "0",
                "--out",
                str(other),
                "--quiet",
            ]
        )
        == 0
    )
    capsys.readouterr()
    assert main(["train", str(data), str(other)]) == 3
    error = capsys.readouterr().err
    assert "front 48x48 px" in error
    assert "front 32x32 px" in error
    assert error.count("\n") == 1


def test_screening_an_untrained_policy_says_broken_and_compares_executors_on_the_same_seeds(
    run: Any, checkpoint: Path, tmp_path: Path
) -> None:
    words = [
        "screen",
        checkpoint,
        "-n",
        "6",
        "--workers",
        "0",
        "--executor",
        "receding(5)",
        "--executor",
        "latest",
        "--executor",
        "latest",
    ]
    code, document, _ = run(*words, "--out", tmp_path)
    assert code == 1
    assert document["evidence"] == "sim"
    assert document["next"] is None  # what is broken is sent to no trial
    assert [(s["executor"], s["verdict"], s["successes"], s["n"]) for s in document["screens"]] == [
        ("receding(5)", "broken", 0, 6),
        ("latest", "broken", 0, 6),
    ]
    (difference,) = document["differences"]
    assert difference["pairs"] == {"both": 0, "only_new": 0, "only_old": 0, "neither": 6, "dropped": 0}
    assert difference["p_value"] == 1.0
    assert "6 of 6 leaves" in document["what_n_cannot_show"]


def test_a_page_of_a_screen_shows_intervals_failures_and_limits(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["screen", str(checkpoint), "-n", "2", "--workers", "0", "--out", str(tmp_path)]) == 1
    page = capsys.readouterr().out
    assert all(
        word in page
        for word in (
            "UNDECIDED",
            "Wilson",
            "Clopper-Pearson",
            "failures:",
            "says nothing about hardware",
            "recommended in the card",
        )
    )


@pytest.mark.parametrize(("content", "message"), [(None, "missing"), (b"x", "not the file of its card")])
def test_damaged_weights_are_told_even_where_the_screen_is_finished(
    checkpoint: Path, tmp_path: Path, content: bytes | None, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["-n", "1", "--workers", "0", "--quiet", "--out", str(tmp_path / "screens")]
    assert main(["screen", str(checkpoint), *words]) == 1
    damaged = Path(shutil.copytree(checkpoint, tmp_path / "damaged"))
    (damaged / "weights.safetensors").unlink()
    if content is not None:
        (damaged / "weights.safetensors").write_bytes(content)
    capsys.readouterr()
    assert main(["screen", str(damaged), *words]) == 3
    assert f"is {message}" in capsys.readouterr().err


def test_a_screen_that_could_not_be_kept_is_not_run(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert (
        main(["screen", str(checkpoint), "-n", "2", "--workers", "0", "--out", str(tmp_path / "file")]) == 3
    )
    error = capsys.readouterr().err
    assert "file exists" in error
    assert "rollouts" not in error


@pytest.mark.parametrize("verb", [["demo"], ["target", "run"]])
@pytest.mark.parametrize("words", [["--workers", "-3"], ["--workers", "x"]])
def test_the_verbs_of_the_loop_take_workers_as_the_others_do(
    verb: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*verb, *words]) == 2
    assert "whole number from 0" in capsys.readouterr().err


def test_report_seeds_are_not_spent_on_a_comparison(
    checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(
            [
                "screen",
                str(checkpoint),
                "--purpose",
                "report",
                "--executor",
                "latest",
                "--executor",
                "whole_chunk",
            ]
        )
        == 2
    )
    assert "report seeds" in capsys.readouterr().err


def test_a_dataset_given_as_a_checkpoint_is_told_apart(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["screen", str(data)]) == 3
    assert f"train on it first: simgap train {data}" in capsys.readouterr().err


def test_trials_are_logged_and_entered_once_as_surrogate_evidence(
    run: Any, checkpoint: Path, tmp_path: Path
) -> None:
    words = [
        "trial",
        checkpoint,
        "-n",
        "2",
        "--gap",
        "random",
        "--robot-seed",
        "3",
        "--workers",
        "0",
        "--out",
        tmp_path,
        "--executor",
        "latest",
    ]
    first, again = run(*words), run(*words)
    assert (first[0], again[0]) == (1, 1)
    assert first[1]["evidence"] == "surrogate"
    assert first[1]["robot"]["is_blind"]
    assert first[1]["n"] + sum(first[1]["voids"].values()) == 2
    assert (first[1]["already_there"], again[1]["already_there"]) == (0, 2)
    assert "none is missing" in again[2]
    with Ledger(tmp_path / "ledger.db") as ledger:
        rows = ledger.rows()
        assert ledger.verify() == 2
    assert [(str(r.kind), r.evidence) for r in rows] == [("commitment", None), ("evidence", "surrogate")]
    assert rows[0].payload["seal_sha256"] == rows[1].payload["seal"] == first[1]["seal"]
    stamp = json.loads((Path(first[1]["path"]) / "meta" / "simgap.json").read_text())["spec"]["stamp"]
    assert (stamp["evidence"], stamp["seal"]) == ("surrogate", first[1]["seal"])


def test_a_replay_without_a_gap_reproduces_what_was_logged(run: Any, data: Path, tmp_path: Path) -> None:
    code, document, _ = run(
        "trial", "--replay", data, "-n", "2", "--gap", "none", "--workers", "0", "--out", tmp_path
    )
    assert (code, document["successes"], document["what"]) == (0, 2, "replays")
    assert not document["robot"]["is_blind"]


def test_a_replay_of_more_episodes_than_there_are_is_a_wrong_request(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trial", "--replay", str(data), "-n", "9"]) == 2
    assert "has 3 episodes, not 9" in capsys.readouterr().err


def test_trials_of_two_executors_are_not_one_set(
    checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trial", str(checkpoint), "--executor", "latest", "--executor", "whole_chunk"]) == 2
    assert "one executor" in capsys.readouterr().err
