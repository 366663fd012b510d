"""Every command that a data verb prints works in the situation that prints it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from format_builders import write_act, write_robomimic, write_tub
from remedies import printed_commands, run, run_printed, thinned
from simgap.checks.data.dataset import Severity, check_data
from simgap.cli import main
from simgap.episodes.edit.convert import Target, convert_dataset
from simgap.episodes.formats.keymap import KeyMap
from simgap.episodes.formats.layout import data_path
from simgap.episodes.reader import open_dataset
from test_data_check_planted import clean, edit_json, write
from test_pains_data_format import arm


def test_commands_are_found_in_sentences() -> None:
    text = (
        "look (or =x); say it once: simgap data info 'a b' --is '*=deg; no' --save-map (or =rad); then"
        " `simgap trial` and simgap data check x."
    )
    assert printed_commands(text) == [
        ["data", "info", "a b", "--is", "*=deg; no", "--save-map"],
        ["data", "check", "x"],
    ]


# --- what check prints ---------------------------------------------------------------------------------------------------


def _foreign(root: Path) -> Path:
    return write(root, clean(), is_ours=False)


def _renamed(root: Path) -> Path:
    _foreign(root)
    edit_json(
        root / "meta" / "info.json",
        lambda info: info["features"]["action"].update(names=[f"leader_{k}" for k in "abcdef"]),
    )
    edit_json(
        root / "meta" / "info.json",
        lambda info: info["features"]["observation.state"].update(names=[f"follower_{k}" for k in "abcdef"]),
    )
    return root


def _strangers(root: Path) -> Path:
    _foreign(root)
    edit_json(
        root / "meta" / "info.json",
        lambda info: info["features"]["action"].update(names=[f"u{k}" for k in range(6)]),
    )
    return root


def _stamped(root: Path, stamps: Callable[[np.ndarray, int], np.ndarray]) -> Path:
    _foreign(root)
    for k in range(4):
        path = root / data_path(k)
        table = pq.read_table(path).drop_columns(["time_s"])
        values = stamps(np.arange(140) / 20.0, k)
        pq.write_table(
            table.set_column(
                table.column_names.index("timestamp"), "timestamp", pa.array(values.astype(np.float32))
            ),
            path,
        )
    return root


def _tub(root: Path, **options: float) -> Path:
    write_tub(root, **options)  # type: ignore[arg-type]
    return root


def _damaged(root: Path) -> Path:
    write_act(root / "episode_0.hdf5", compressed=True)
    write_act(root / "episode_1.hdf5", 1, compressed=True)
    with h5py.File(root / "episode_1.hdf5", "r+") as file:
        table = file["observations/images/cam_low"]
        table[4, 40:] = np.zeros(table.shape[1] - 40, dtype=np.uint8)
    keymap = {"rate_hz": 50, "images": {"cam_low": "rgb", "cam_high": "rgb"}}
    (root / "simgap-map.json").write_text(json.dumps(keymap))
    return root


def _openpi(root: Path) -> Path:
    _foreign(root)
    info = root / "meta" / "info.json"
    info.write_text(
        info.read_text().replace('"observation.state"', '"state"').replace('"action"', '"actions"')
    )
    for k in range(4):
        table = pq.read_table(root / data_path(k))
        pq.write_table(
            table.rename_columns(
                [{"observation.state": "state", "action": "actions"}.get(n, n) for n in table.column_names]
            ),
            root / data_path(k),
        )
    return root


def _robomimic(root: Path) -> Path:
    root.mkdir()
    write_robomimic(root / "a.hdf5", controller={"type": "JOINT_POSITION", "input_min": -2, "input_max": 2})
    return root / "a.hdf5"


CHECKED: dict[str, tuple[Callable[[Path], Path], str]] = {
    "units of an arm": (_foreign, "unit_mode_undecidable"),
    "leader and follower": (_renamed, "paired_by_joint"),
    "names that share nothing": (_strangers, "unmatched_dimensions"),
    "float32 dates": (lambda root: _stamped(root, lambda t, k: 1.7e9 + 60 * k + t), "clock_lost_in_float32"),
    "a clock that stands still": (lambda root: _stamped(root, lambda t, k: 0 * t + 3), "clock_stands_still"),
    "steps for times": (lambda root: _stamped(root, lambda t, k: 0 * t + 0.05), "clock_holds_steps"),
    "milliseconds": (lambda root: _stamped(root, lambda t, k: 1e3 * t), "clock_unit"),
    "whole seconds": (lambda root: _stamped(root, lambda t, k: np.floor(t)), "clock_too_coarse"),
    "a clock that runs on": (lambda root: _stamped(root, lambda t, k: t + 7 * k), "clock_runs_on"),
    "a tub stamped when written": (lambda root: _tub(root, step_ms=3), "rate_mismatch"),
    "damaged pictures": (_damaged, "damaged_pictures"),
    "openpi's keys": (_openpi, "nonstandard_keys"),
    "robomimic without units": (_robomimic, "units_undeclared"),
}


@pytest.mark.parametrize(
    "name", thinned(CHECKED, ("units of an arm", "float32 dates", "a tub stamped when written"))
)
def test_a_command_that_the_check_prints_works_and_its_finding_is_gone(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    build, code = CHECKED[name]
    root = build(tmp_path / "d")
    finding = next(f for f in check_data(root).findings if f.code == code)
    commands = printed_commands(finding.remedy)
    assert commands, finding.remedy
    assert run_printed(finding.remedy) == [0] * len(commands), finding.remedy
    made = [Path(words[words.index("--out") + 1]) for words in commands if "--out" in words]
    assert code not in check_data(made[0] if made else root).codes()


# --- what refusals print -------------------------------------------------------------------------------------------------


def _refusal(*words: str | Path, capsys: pytest.CaptureFixture[str]) -> str:
    code = main([*map(str, words), "--quiet"])
    said = capsys.readouterr().err
    assert code in (2, 3), said
    return said


def merged_at_last(paths: list[Path], out: Path, capsys: pytest.CaptureFixture[str], *options: str) -> int:
    """Merge; where that is refused, do what the refusal says and try again. Returns how often that was."""
    for attempt in range(9):
        if (
            main(
                ["data", "merge", *map(str, paths), *options, "--out", str(out), "--workers", "0", "--quiet"]
            )
            == 0
        ):
            return attempt
        said = capsys.readouterr().err
        commands = printed_commands(said)
        assert commands, said
        for words in commands:
            assert run(words) == 0, words
            if "--out" in words:
                paths = [Path(words[words.index("--out") + 1]) if str(p) == words[2] else p for p in paths]
        capsys.readouterr()
    raise AssertionError(f"{paths} were never merged")


def _radians(root: Path) -> Path:
    recording = clean(episodes=3)
    recording.each(lambda a, s: (a.__imul__(np.pi / 180), s.__imul__(np.pi / 180)))
    write(root.with_name("raw"), recording, is_ours=False)
    keymap = KeyMap(dimensions={"*": {"unit": "rad"}})
    return convert_dataset(open_dataset(root.with_name("raw"), keymap), root, Target()).root


def _misspelt(root: Path) -> Path:
    recording = clean(episodes=3)
    write(root, recording, is_ours=False)
    for key in ("action", "observation.state"):
        edit_json(
            root / "meta" / "info.json",
            lambda info, key=key: info["features"][key]["names"].__setitem__(2, "elbow_flx.pos"),
        )
    return root


def _unknown_too(root: Path) -> Path:
    write(root.with_name("raw"), clean(episodes=3), is_ours=False)
    return convert_dataset(open_dataset(root.with_name("raw")), root, Target()).root


def _unit(unit: str) -> Callable[[Path], Path]:
    def make(root: Path) -> Path:
        _foreign(root.with_name(root.name + "-raw"))
        keymap = KeyMap(dimensions={"*": {"unit": unit}})
        return convert_dataset(open_dataset(root.with_name(root.name + "-raw"), keymap), root, Target()).root

    return make


def _sessions(seed: int) -> Callable[[Path], Path]:
    def make(root: Path) -> Path:
        write_tub(root, [("s0", 12 + seed)])
        return root

    return make


def _act(seed: int) -> Callable[[Path], Path]:
    def make(root: Path) -> Path:
        write_act(root / "episode_0.hdf5", seed, compressed=True)
        return root

    return make


def _other(root: Path) -> Path:
    recording = clean(episodes=3)
    return write(root, recording, is_ours=False)


MERGED: dict[str, tuple[Callable[[Path], Path], Callable[[Path], Path]]] = {
    "two tubs": (_sessions(0), _sessions(5)),
    "degrees and radians": (_unit("deg"), _radians),
    "no units at all": (_foreign, _other),
    "no units in two of ours": (_unit("unknown"), _unknown_too),
    "a unit and none": (_unit("deg"), _other),
    "a misspelt name": (_unit("deg"), _misspelt),
    "two of ACT without rate, colours and units": (_act(0), _act(4)),
}


@pytest.mark.parametrize("name", thinned(MERGED, ("two tubs", "a unit and none")))
def test_what_a_refused_merge_prints_leads_to_a_merge(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = MERGED[name]
    attempts = merged_at_last([one(tmp_path / "a"), other(tmp_path / "b")], tmp_path / "m", capsys)
    assert attempts >= 1


def test_merge_takes_the_task_it_asks_for(tmp_path: Path) -> None:
    paths = [_sessions(0)(tmp_path / "a"), _sessions(5)(tmp_path / "b")]
    assert (
        main(
            [
                "data",
                "merge",
                *map(str, paths),
                "--task",
                "drive",
                "--out",
                str(tmp_path / "m"),
                "--workers",
                "0",
                "--quiet",
            ]
        )
        == 0
    )
    assert {e.tasks for e in open_dataset(tmp_path / "m").entries} == {("drive",)}


@pytest.mark.slow
@pytest.mark.parametrize(
    "verb", [["convert"], ["split", "--datasets", "--parts", "train=0.5,val=0.5"], ["stats", "--write"]]
)
def test_what_a_verb_refuses_of_a_tub_it_says_how_to_do(
    verb: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tub(tmp_path / "t")
    said = _refusal(
        "data",
        *verb,
        tmp_path / "t",
        *(["--out", tmp_path / "o"] if verb[0] != "stats" else []),
        capsys=capsys,
    )
    assert run_printed(said) == [0]


@pytest.mark.slow
def test_cameras_of_different_sizes_are_told_with_the_command_that_resizes_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_act(tmp_path / "a" / "episode_0.hdf5")
    with h5py.File(tmp_path / "a" / "episode_0.hdf5", "r+") as file:
        frames = file["observations/images/cam_low"][:, :8, :12]
        del file["observations/images/cam_low"]
        file["observations/images/cam_low"] = frames
    said = _refusal(
        "data",
        "convert",
        tmp_path / "a",
        "--rate-hz",
        "50",
        "--task",
        "x",
        "--out",
        tmp_path / "o",
        capsys=capsys,
    )
    assert run_printed(said) == [0]


@pytest.mark.slow
def test_two_steering_keys_are_settled_by_the_printed_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tub(tmp_path / "t", inputs=("user/angle", "user/steering", "user/throttle"))
    assert run_printed(_refusal("data", "check", tmp_path / "t", capsys=capsys)) == [0]
    assert main(["data", "check", str(tmp_path / "t"), "--quiet"]) == 0


# --- rows that stand elsewhere, a state that was asked for ------------------------------------------------------------------


def test_rows_whose_file_is_not_there_are_looked_for_in_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = arm(6, 50).write(tmp_path / "d")
    episodes = next((root / "meta" / "episodes").glob("chunk-*/file-*.parquet"))
    table = pq.read_table(episodes)
    column = [0, 0, 0, 1, 1, 1]
    pq.write_table(
        table.set_column(table.column_names.index("data/file_index"), "data/file_index", pa.array(column)),
        episodes,
    )
    files = sorted((root / "data").rglob("*.parquet"))
    assert len(files) == 1
    report = check_data(root)
    finding = next(f for f in report.findings if f.code == "rows_elsewhere")
    assert set(finding.numbers) == {"3", "4", "5"}
    assert finding.severity is Severity.FAULT
    assert "download the" not in finding.remedy
    out = convert_dataset(open_dataset(root), tmp_path / "out", Target(task="pick")).root
    assert open_dataset(out).n_episodes == 6
    shutil.rmtree(root / "data")
    assert "download" in _refusal("data", "check", root, capsys=capsys)


def test_a_state_that_a_conversion_was_asked_for_is_no_fault_of_its_copy(tmp_path: Path) -> None:
    write_tub(tmp_path / "t", [("s0", 60), ("s1", 40)])
    words = [
        "data",
        "convert",
        str(tmp_path / "t"),
        "--state",
        "previous-action",
        "--task",
        "drive",
        "--out",
        str(tmp_path / "o"),
        "--workers",
        "0",
    ]
    assert main([*words, "--quiet"]) == 0
    report = check_data(tmp_path / "o")
    assert report.is_clean, [f.sentence for f in report.findings]
    assert "state_is_previous_action" in report.codes()
