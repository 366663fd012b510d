"""The data check on the older layout, from the command line, and on recordings of real robots."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from simgap.checks.data.dataset import DataReport, check_data
from simgap.cli import main
from simgap.conventions import Unit
from simgap.episodes.formats.layout import DATA_PATH_21, data_path
from simgap.episodes.reader import open_dataset
from simgap.errors import DataError
from test_data_check_planted import clean, write
from test_episodes_store import make_spec

NAMES = list(make_spec().action_spec.names)


def write_21(root: Path, **info: Any) -> Path:
    """Write a v2.1 dataset by hand, as other people's scripts do."""
    recording = clean()
    (root / "meta").mkdir(parents=True)
    (root / "data" / "chunk-000").mkdir(parents=True)
    lengths, rows = [len(a) for a in recording.actions], 0
    for k, (action, state) in enumerate(zip(recording.actions, recording.states, strict=True)):
        n = len(action)
        table = pa.table(
            {
                "action": pa.array(action.astype(np.float32).tolist(), pa.list_(pa.float32())),
                "observation.state": pa.array(state.astype(np.float32).tolist(), pa.list_(pa.float32())),
                "timestamp": pa.array((np.arange(n) / 20).astype(np.float32)),
                "frame_index": pa.array(range(n), pa.int64()),
                "episode_index": pa.array([k] * n, pa.int64()),
                "index": pa.array(range(rows, rows + n), pa.int64()),
                "task_index": pa.array([0] * n, pa.int64()),
            }
        )
        pq.write_table(table, root / "data" / "chunk-000" / f"episode_{k:06d}.parquet")
        rows += n
    vector = {"dtype": "float32", "shape": [6], "names": {"motors": NAMES}}
    scalar = {
        "timestamp": "float32",
        "frame_index": "int64",
        "episode_index": "int64",
        "index": "int64",
        "task_index": "int64",
    }
    features = {"action": vector, "observation.state": vector} | {
        k: {"dtype": d, "shape": [1], "names": None} for k, d in scalar.items()
    }
    document = {
        "codebase_version": "v2.1",
        "fps": 20,
        "total_episodes": 4,
        "total_frames": rows,
        "chunks_size": 1000,
        "robot_type": "so101",
    }
    document |= {"data_path": DATA_PATH_21, "features": features}
    (root / "meta" / "info.json").write_text(json.dumps(document | info))
    lines = [json.dumps({"episode_index": k, "tasks": ["fold"], "length": n}) for k, n in enumerate(lengths)]
    (root / "meta" / "episodes.jsonl").write_text("\n".join(lines) + "\n")
    (root / "meta" / "tasks.jsonl").write_text(json.dumps({"task_index": 0, "task": "fold"}) + "\n")
    return root


def test_the_older_layout_is_read_like_the_newer(tmp_path: Path) -> None:
    dataset = open_dataset(write_21(tmp_path / "d"))
    assert (dataset.n_episodes, dataset.info.version) == (4, "v2.1")
    assert dataset.spec.action_spec.names == tuple(NAMES)
    assert {d.unit for d in dataset.spec.state_spec.dimensions} == {Unit.UNKNOWN}
    np.testing.assert_array_equal(dataset.episode(2).action, clean().actions[2].astype(np.float32))
    report = check_data(tmp_path / "d")
    assert report.codes() == {"lag", "positional_timestamps", "unit_mode_undecidable", "missing_statistics"}


def test_a_foreign_path_template_is_followed_and_reported(tmp_path: Path) -> None:
    report = check_data(
        write_21(tmp_path / "d", data_path=DATA_PATH_21.replace("episode_chunk", "chunk_index"))
    )
    assert "path_template" in report.codes()


def test_a_broken_line_of_the_older_index_is_named(tmp_path: Path) -> None:
    root = write_21(tmp_path / "d")
    (root / "meta" / "episodes.jsonl").write_text('{"episode_index": 0}\n')
    with pytest.raises(DataError, match=r"episodes\.jsonl"):
        open_dataset(root)


# --- the command line ------------------------------------------------------------------------------------------------


def test_the_command_prints_one_document_and_says_by_its_exit_code_what_it_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write(tmp_path / "d", clean())
    assert main(["data", "check", str(root), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["is_clean"]
    (root / "meta" / "simgap.json").unlink()
    (root / "meta" / "tasks.parquet").unlink()
    assert main(["data", "check", str(root), "--out", str(tmp_path / "report.json")]) == 1
    assert "unit_mode_undecidable" in capsys.readouterr().out
    assert not json.loads((tmp_path / "report.json").read_text())["is_clean"]
    assert main(["data", "info", str(root)]) == 0
    assert "fingerprint" in capsys.readouterr().out
    assert main(["data", "check"]) == 2


@pytest.mark.parametrize("case", ["missing", "empty", "truncated", "pointer", "version"])
def test_what_cannot_be_read_is_one_line_and_exit_code_three(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "d"
    if case != "missing":
        write(root, clean())
    file = root / data_path(1)
    if case == "empty":
        file.write_bytes(b"")
    elif case == "truncated":
        file.write_bytes(file.read_bytes()[:500])
    elif case == "pointer":
        file.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 1\n")
    elif case == "version":
        info = root / "meta" / "info.json"
        info.write_text(info.read_text().replace('"v3.0"', '"v7"'))
    before = sorted(tmp_path.rglob("*"))
    assert main(["data", "check", str(root)]) == 3
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.strip().splitlines()) == 1
    assert "Traceback" not in captured.err
    assert sorted(tmp_path.rglob("*")) == before


# --- recordings of real robots ---------------------------------------------------------------------------------------


def real(name: str) -> Path:
    folder = Path(os.environ.get("SIMGAP_REAL_DATA", Path(__file__).parents[2] / "shared" / "data")) / name
    if not folder.is_dir():
        pytest.skip(f"{folder} is not here; set SIMGAP_REAL_DATA to the folder of real recordings")
    return folder


def finding(report: DataReport, code: str, feature: str | None = None) -> Any:
    return next(f for f in report.findings if f.code == code and feature in (None, f.feature))


def test_a_teleoperated_arm_is_described_as_its_recorder_found_it() -> None:
    report = check_data(real("lerobot_so101_record_test_v30"))
    joints = report.measurements["joints"]
    assert [j["lag_frames"] for j in joints.values()] == [4, 4, 5, 5, 4, 4]
    assert joints["elbow_flex.pos"]["lag_ms"] == pytest.approx(166.7, abs=0.1)
    assert joints["elbow_flex.pos"]["scale"] == pytest.approx(0.9308, abs=1e-3)
    assert joints["gripper.pos"]["scale"] == pytest.approx(0.909, abs=1e-3)
    wrong = finding(report, "stored_quantiles_wrong", "action").numbers["deviations"]
    elbow = next(d for d in wrong if d["joint"] == "elbow_flex.pos" and d["statistic"] == "q01")
    assert abs(elbow["difference"]) == pytest.approx(12.9, abs=0.2)
    assert finding(report, "saturation").joints == ("elbow_flex.pos",)
    assert finding(report, "load").joints == ("gripper.pos",)
    assert {
        "missing_videos",
        "positional_timestamps",
        "unit_mode_undecidable",
        "repeated_frames",
    } <= report.codes()
    assert not report.codes() & {
        "unit_mismatch",
        "scale_mismatch",
        "sign_flip",
        "static_offset",
        "stored_statistics_wrong",
    }


@pytest.mark.slow
def test_a_dual_arm_with_an_echoing_hand_is_described() -> None:
    report = check_data(real("lerobot_dualarm_hands_open50_v30"))
    joints = report.measurements["joints"]
    assert [joints[f"right.joint_{k}.pos"]["lag_frames"] for k in range(1, 8)] == [27, 26, 28, 27, 26, 27, 27]
    assert set(finding(report, "state_echoes_action").joints) == {
        f"right_hand.joint_{k}.pos" for k in (1, 2, 3, 4, 6, 7, 9, 10)
    }
    assert finding(report, "saturation").joints == ("right.joint_2.pos",)
    assert finding(report, "static_offset").joints == ("right.joint_6.pos",)
    assert len(finding(report, "dead_dimensions", "state").joints) == 12
    std = next(
        d
        for d in finding(report, "stored_statistics_wrong", "actions").numbers["deviations"]
        if d["joint"] == "left.joint_5.pos"
    )
    assert std["stored"] / std["exact"] == pytest.approx(8.0, abs=0.1)
    assert {
        "long_lag",
        "misplaced_videos",
        "missing_videos",
        "nonstandard_keys",
        "stored_quantiles_wrong",
    } <= report.codes()


@pytest.mark.slow
def test_hand_guided_arms_in_servo_ticks_are_described() -> None:
    report = check_data(real("lerobot_so101_bimanual_cloth_v21"))
    assert report.measurements["clock"]["measured_hz"] == pytest.approx(18.49, abs=0.01)
    assert "cam0 in episode 0" in finding(report, "black_video").sentence
    assert finding(report, "stray_file").feature == "data/chunk-000/episode_000026"
    wanted = {
        "rate_mismatch",
        "action_is_next_state",
        "servo_ticks",
        "placeholder_image_statistics",
        "path_template",
        "missing_columns",
    }
    wanted |= {
        "undeclared_columns",
        "dtype_mismatch",
        "image_shape_order",
        "undeclared_index_features",
        "missing_videos",
        "stray_file",
    }
    assert wanted <= report.codes()


def test_a_checkout_of_pointers_is_refused_as_such() -> None:
    with pytest.raises(DataError, match="Git LFS"):
        check_data(real("lerobot_franka_lfs_pointers_v21"))


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"a":' * 50_000 + "1" + "}" * 50_000,
        '{"codebase_version": "v3.0", "total_frames": ' + "9" * 6000 + "}",
        "\udcff",
    ],
    ids=["brackets", "braces", "digits", "bytes"],
)
def test_json_that_no_parser_survives_is_one_line(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "meta").mkdir()
    (tmp_path / "meta" / "info.json").write_bytes(text.encode(errors="surrogateescape"))
    assert main(["data", "check", str(tmp_path)]) == 3
    error = capsys.readouterr().err
    assert re.search("info.json (is not JSON|holds the number 9+... of 6000 digits|is no UTF-8 text)", error)
    assert error.count("\n") == 1
