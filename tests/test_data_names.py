"""Names, units, dead dimensions and controllers: what is a question or a note, and what is wrong; and that nothing is left out unsaid."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import pytest

from format_builders import CONTROLLER, write_act, write_robomimic, write_tub
from remedies import thinned
from simgap.checks.data.dataset import DataFinding, DataReport, Severity, check_data
from simgap.checks.data.values.units import limb_of
from simgap.cli import main
from simgap.conventions import Unit
from simgap.episodes.edit.convert import Target, convert_dataset
from simgap.episodes.edit.merge import merge_datasets
from simgap.episodes.formats.keymap import KeyMap
from simgap.episodes.reader import open_dataset, outcome_word
from test_data_check_planted import clean, edit_json, write
from test_data_clock import case


def found(report: DataReport, code: str) -> DataFinding:
    return next(f for f in report.findings if f.code == code)


def above_note(report: DataReport) -> set[str]:
    return {f.code for f in report.findings if f.severity is not Severity.NOTE}


def renamed_root(root: Path, action: Sequence[str], state: Sequence[str]) -> Path:
    write(root, clean(), is_ours=False)
    edit_json(
        root / "meta" / "info.json",
        lambda i: (
            i["features"]["action"].update(names=list(action)),
            i["features"]["observation.state"].update(names=list(state)),
        ),
    )
    return root


JOINTS = ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper")


# --- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "state"),
    thinned(
        [
            ("leader_{}", "follower_{}"),
            ("action.{}.pos", "state.{}.pos"),
            ("master/{}", "puppet/{}"),
            ("{}_cmd", "{}_measured"),
            ("{}.pos", "main_{}"),
        ],
        [("leader_{}", "follower_{}")],
    ),
)
def test_leader_and_follower_of_one_joint_are_compared_and_the_offered_renames_work(
    action: str, state: str, tmp_path: Path
) -> None:
    root = renamed_root(tmp_path / "d", [action.format(j) for j in JOINTS], [state.format(j) for j in JOINTS])
    report = check_data(root)
    assert len(report.measurements["joints"]) == 6
    assert all(j["lag_frames"] == 3 for j in report.measurements["joints"].values())
    offer = found(report, "paired_by_joint")
    assert offer.severity is Severity.NOTE
    command = offer.remedy[offer.remedy.index("simgap data") :]
    assert main([*shlex.split(command)[1:], "--json", "--quiet"]) == 0
    after = check_data(root)
    assert "paired_by_joint" not in after.codes()
    assert set(after.measurements["joints"]) == set(JOINTS)


def test_renames_work_in_check_and_in_convert(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = renamed_root(tmp_path / "d", [f"a{k}" for k in range(6)], JOINTS)
    assert "state:shoulder_pan=a0" in found(check_data(root), "unmatched_dimensions").remedy
    options = [w for k, j in enumerate(JOINTS) for w in ("--rename", f"action:a{k}={j}")]
    main(["data", "check", str(root), *options, "--json", "--quiet"])
    assert set(json.loads(capsys.readouterr().out)["measurements"]["joints"]) == set(JOINTS)
    assert (
        main(
            [
                "data",
                "convert",
                str(root),
                *options,
                "--out",
                str(tmp_path / "out"),
                "--workers",
                "0",
                "--quiet",
            ]
        )
        == 0
    )
    assert open_dataset(tmp_path / "out").spec.action_spec.names == JOINTS
    assert main(["data", "check", str(root), "--rename", "elbow_flx=x", "--quiet"]) == 2
    assert "did you mean 'elbow_flex'" in capsys.readouterr().err


def test_one_misspelt_name_among_others_is_a_warning_that_offers_its_rename(tmp_path: Path) -> None:
    finding = found(
        check_data(
            renamed_root(tmp_path / "d", JOINTS, ("shoulder_pan", "shoulder_lift", "elbow_flx", *JOINTS[3:]))
        ),
        "unmatched_dimensions",
    )
    assert finding.severity is Severity.WARNING
    assert "--rename state:elbow_flx=elbow_flex" in finding.remedy


def test_a_vector_with_further_dimensions_has_no_other_order(tmp_path: Path) -> None:
    names = ("elbow_flex", *(f"other_{k}" for k in range(5)))
    assert "order_differs" not in check_data(renamed_root(tmp_path / "one", JOINTS, names)).codes()
    assert (
        "order_differs"
        not in check_data(renamed_root(tmp_path / "shifted", JOINTS, ("speed", *JOINTS[:5]))).codes()
    )
    assert (
        "order_differs"
        in check_data(renamed_root(tmp_path / "swapped", JOINTS, (JOINTS[1], JOINTS[0], *JOINTS[2:]))).codes()
    )


def test_missing_names_are_a_note_and_never_cut() -> None:
    assert [
        limb_of(n)
        for n in (
            "actions[0]",
            "obs/robot0_eef_pos[2]",
            "end_position[1]",
            "left.joint_1.pos",
            "right_hand.joint_10.pos",
            "joint_3",
            "j1",
        )
    ] == [
        "actions",
        "obs/robot0_eef_pos",
        "end_position",
        "left",
        "right_hand",
        "joint",
        "j",
    ]
    report = check_data(case("robomimic_action_range") / "actions_in_range.hdf5")
    assert report.is_clean
    assert not any("[ " in f.sentence for f in report.findings)
    assert set(found(report, "units_undeclared").numbers["candidates"]) == {"actions", "obs/robot0_eef_pos"}


# --- units and dead dimensions: asked once, never exit 1 -------------------------------------------------------------------


def test_the_healthy_arm_has_nothing_above_a_note_and_its_question_is_asked_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = Path(shutil.copytree(case("healthy_so101"), tmp_path / "d", copy_function=shutil.copyfile))
    root.chmod(0o755)
    report = check_data(root)
    assert above_note(report) == set()
    assert main(["data", "check", str(root), "--quiet"]) == 0
    remedy = found(report, "unit_mode_undecidable").remedy
    command = remedy[remedy.index("simgap data") : remedy.index(" (or")]
    assert main([*shlex.split(command)[1:], "--quiet"]) == 0
    capsys.readouterr()
    assert not check_data(root).codes() & {"unit_mode_undecidable", "units_undeclared"}
    assert {d.unit for d in open_dataset(root).spec.action_spec.dimensions} == {Unit.DEG, Unit.PERCENT}


def test_padding_and_joints_nobody_used_are_notes_and_a_sensor_that_does_not_answer_is_a_warning(
    tmp_path: Path,
) -> None:
    padded, dumb = clean(), clean()
    padded.each(
        lambda a, s: (a.__setitem__((slice(None), [4, 5]), 0.0), s.__setitem__((slice(None), [4, 5]), 0.0))
    )
    report = check_data(write(tmp_path / "padded", padded))
    assert report.is_clean
    assert len(found(report, "dead_dimensions").numbers["padding"]) == 2
    dumb.each(lambda a, s: s.__setitem__((slice(None), 2), 7.0))
    assert found(check_data(write(tmp_path / "dumb", dumb)), "dead_dimensions").severity is Severity.WARNING


# --- robomimic's controllers ---------------------------------------------------------------------------------------------

OLD = CONTROLLER
PARTS: dict[str, Any] = {
    "right": OLD | {"gripper": {"type": "GRIP"}},
    "base": {"type": "JOINT_VELOCITY", "interpolation": "null"},
}
LAYOUTS: dict[str, Any] = {
    "one": OLD,
    "a list per robot": [OLD, OLD],
    "composite": {"type": "BASIC", "body_parts": PARTS},
    "composite with arms": {"type": "BASIC", "body_parts": {"arms": PARTS}},
    "per dimension": OLD | {"input_min": [-1] * 6, "input_max": [1] * 6},
    "as text": json.dumps(OLD),
}


def _scaled(path: Path, factor: float) -> Path:
    with h5py.File(path, "r+") as file:
        for demo in file["data"].values():
            demo["actions"][:, :6] *= factor
    return path


@pytest.mark.parametrize("layout", thinned(LAYOUTS, ("one", "composite with arms")))
def test_actions_beyond_the_controllers_input_are_a_fault_in_every_layout_of_its_settings(
    layout: str, tmp_path: Path
) -> None:
    write_robomimic(tmp_path / "a.hdf5", controller=LAYOUTS[layout])
    assert "actions_beyond_controller" not in check_data(tmp_path / "a.hdf5").codes()
    finding = found(check_data(_scaled(tmp_path / "a.hdf5", 3.0)), "actions_beyond_controller")
    assert finding.severity is Severity.FAULT
    assert finding.numbers["input_range"] == [-1.0, 1.0]


@pytest.mark.parametrize("how", [{"control_delta": False}, {"input_type": "absolute"}])
def test_absolute_poses_are_not_held_to_the_input_range_of_differences(
    how: dict[str, Any], tmp_path: Path
) -> None:
    write_robomimic(tmp_path / "a.hdf5", controller=CONTROLLER | how)
    assert "actions_beyond_controller" not in check_data(_scaled(tmp_path / "a.hdf5", 3.0)).codes()


def test_the_two_action_ranges_of_the_cases_are_told_apart() -> None:
    folder = case("robomimic_action_range")
    assert check_data(folder / "actions_in_range.hdf5").is_clean
    finding = found(check_data(folder / "actions_beyond_one.hdf5"), "actions_beyond_controller")
    assert finding.numbers["actions"] == [-7.5, 7.5]


# --- nothing is left out unsaid ------------------------------------------------------------------------------------------


def test_every_input_of_a_tub_is_read_or_named(tmp_path: Path) -> None:
    write_tub(
        tmp_path / "t",
        **{"imu/acl_x": [0.1 * k for k in range(20)], "imu/gyr": [[k, 2.0 * k, 1.0] for k in range(20)]},
    )
    manifest = tmp_path / "t" / "manifest.json"
    lines = manifest.read_text().splitlines()
    keys, kinds = json.loads(lines[0]), json.loads(lines[1])
    kinds[keys.index("imu/gyr")] = "vector"
    manifest.write_text(
        "\n".join([json.dumps([*keys, "lidar"]), json.dumps([*kinds, "nparray"]), *lines[2:]]) + "\n"
    )
    for catalog in (tmp_path / "t").glob("*.catalog"):
        rows = [json.loads(line) for line in catalog.read_text().splitlines()]
        catalog.write_text("".join(json.dumps({**row, "lidar": "x.npy"}) + "\n" for row in rows))
    dataset = open_dataset(tmp_path / "t")
    assert dataset.columns(0)["imu/gyr"].shape == (12, 3)
    assert any("'lidar' of type nparray is not read" in note for note in dataset.notes)
    out = convert_dataset(dataset, tmp_path / "out", Target(task="drive"))
    assert {"imu.acl_x", "imu.gyr"} <= set(open_dataset(out.root).columns(0))


def test_a_tub_without_records_has_nothing_to_download(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "check", str(case("tub_empty")), "--quiet"]) == 3
    error = capsys.readouterr().err
    assert "holds no record yet" in error
    assert "copy or download" not in error


def test_a_calibration_is_kept_beside_what_is_said_of_a_dimension_by_its_exact_name(tmp_path: Path) -> None:
    write(tmp_path / "d", clean(), is_ours=False)
    names = open_dataset(tmp_path / "d").spec.action_spec.names
    motors = {
        n.removesuffix(".pos"): {
            "id": 1,
            "drive_mode": 0,
            "homing_offset": 0,
            "range_min": 1024,
            "range_max": 3072,
        }
        for n in names
    }
    (tmp_path / "arm.json").write_text(json.dumps(motors))
    words = [
        "data",
        "convert",
        str(tmp_path / "d"),
        "--is",
        f"{names[0]}=range_100",
        "--calibration",
        str(tmp_path / "arm.json"),
    ]
    assert (
        main([*words, "--to", f"{names[0]}=deg", "--out", str(tmp_path / "out"), "--workers", "0", "--quiet"])
        == 0
    )
    before, after = (open_dataset(tmp_path / n).episode(0, images=False).action[:, 0] for n in ("d", "out"))
    assert after == pytest.approx(0.9 * before, rel=1e-3)


def test_outcomes_that_nobody_recorded_stay_so_through_conversion_and_merge(tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 5)):
        write_act(tmp_path / name / "episode_0.hdf5", seed, cameras=())
    keymap = KeyMap(rate_hz=50.0, dimensions={"*": {"unit": "rad"}})
    made = [
        convert_dataset(open_dataset(tmp_path / n, keymap), tmp_path / f"{n}1", Target(task="insert")).root
        for n in ("a", "b")
    ]
    again = convert_dataset(open_dataset(made[0]), tmp_path / "a2", Target()).root
    merged = merge_datasets([open_dataset(again), open_dataset(made[1])], tmp_path / "m").root
    for root in (*made, again, merged):
        dataset = open_dataset(root)
        assert {outcome_word(e) for e in dataset.entries} == {"not recorded"}
        assert not dataset.episode(0, images=False).outcome.is_recorded
