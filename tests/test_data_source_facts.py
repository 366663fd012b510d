"""What people wrote down about real recordings comes out of `simgap data check --json`: format, rate, lag and units, number by number."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest

from simgap.checks.data.dataset import check_data
from simgap.cli import main
from simgap.provenance import canonical_json
from test_data_check_layouts import real

ARM, HANDS, CLOTH, POINTERS = (
    "lerobot_so101_record_test_v30",
    "lerobot_dualarm_hands_open50_v30",
    "lerobot_so101_bimanual_cloth_v21",
    "lerobot_franka_lfs_pointers_v21",
)


@functools.cache
def document(name: str) -> dict[str, Any]:
    """Return the document that ``--json`` prints of a recording."""
    told: dict[str, Any] = json.loads(canonical_json(check_data(real(name)).to_json()))
    return told


def step(value: Any, key: str) -> Any:
    """Return what lies under a key, at a position, or as the first finding of a code."""
    if isinstance(value, list):
        return value[int(key)] if key.isdigit() else next(f for f in value if f["code"] == key)
    return value[key]


JOINT = "measurements/joints"
FACTS: list[tuple[str, str, Any]] = [
    # a teleoperated SO-101
    (ARM, "layout/version", "v3.0"),
    (ARM, "layout/robot_type", "so101_follower"),
    (ARM, "layout/rate_hz", 30.0),
    (ARM, "counts/episodes_with_frames", 4),
    (ARM, "counts/frames_found", 1492),
    (ARM, "counts/video_files_found", 0),
    (ARM, "measurements/layout/data_files", 1),
    (ARM, "measurements/layout/splits", {"train": "0:4"}),
    (ARM, "measurements/layout/index_is_contiguous", True),
    (
        ARM,
        "measurements/layout/columns",
        ["action", "episode_index", "frame_index", "index", "observation.state", "task_index", "timestamp"],
    ),
    (ARM, "measurements/layout/length", {"min": 372, "median": 373.0, "max": 374}),
    (ARM, "measurements/clock/is_positional", True),
    (ARM, "measurements/clock/measured_hz", None),
    (ARM, "measurements/clock/stamped_hz", 30.0),
    (ARM, "measurements/clock/step_ms/std", 2.94e-4),
    (ARM, "measurements/values/repeated_frames/state", 0.369),
    (ARM, "measurements/values/repeated_frames/action", 0.335),
    (ARM, "measurements/statistics/action/max/2", 100.0),
    (ARM, "measurements/statistics/action/min/1", -99.101),
    (ARM, "measurements/statistics/observation.state/max/2", 99.546),
    (ARM, "measurements/statistics/observation.state/max/5", 39.151),
    (ARM, "measurements/relation/largest_action_minus_next_state", 41.976608),
    (ARM, "measurements/relation/share_of_frames_equal_to_next_state", 0.0),
    (ARM, f"{JOINT}/elbow_flex.pos/lag_frames", 5),
    (ARM, f"{JOINT}/elbow_flex.pos/lag_ms", 166.67),
    (ARM, f"{JOINT}/elbow_flex.pos/scale", 0.9308),
    (ARM, f"{JOINT}/elbow_flex.pos/offset", 5.701),
    (ARM, f"{JOINT}/elbow_flex.pos/r2", 0.99706),
    (ARM, f"{JOINT}/elbow_flex.pos/rmse", 1.757),
    (ARM, f"{JOINT}/elbow_flex.pos/bias", 1.493),
    (ARM, f"{JOINT}/shoulder_lift.pos/bias", 1.241),
    (ARM, f"{JOINT}/gripper.pos/scale", 0.909),
    (ARM, "findings/unit_mode_undecidable/numbers/candidates", ["deg", "range_100"]),
    (ARM, "findings/saturation/numbers/limit", 100.0),
    (ARM, "findings/load/joints", ["gripper.pos"]),
    (ARM, "findings/positional_timestamps/numbers/declared_hz", 30.0),
    # two arms with hands
    (HANDS, "layout/robot_type", "lingzu_highcam_pi05"),
    (HANDS, "layout/action_key", "actions"),
    (HANDS, "layout/state_key", "state"),
    (HANDS, "counts/frames_found", 20814),
    (HANDS, "counts/episodes_with_frames", 50),
    (HANDS, "counts/video_files_declared", 50),
    (HANDS, "counts/video_files_found", 2),
    (HANDS, "measurements/layout/data_files", 50),
    (HANDS, "measurements/layout/length", {"min": 296, "median": 405.5, "max": 582}),
    (HANDS, "measurements/clock/step_ms/std", 3.32e-4),
    (HANDS, "measurements/values/repeated_frames/state", 0.002215),
    (HANDS, "measurements/relation/largest_action_minus_next_state", 103.0643184),
    (HANDS, "measurements/relation/largest_action_minus_state", 196.0),
    (HANDS, "measurements/statistics/state/min/11", -174.241),
    (HANDS, "measurements/statistics/state/max/24", 250.0),
    (HANDS, f"{JOINT}/right.joint_1.pos/lag_frames", 27),
    (HANDS, f"{JOINT}/right.joint_1.pos/bias", -2.201),
    (HANDS, f"{JOINT}/right.joint_2.pos/bias", -8.845),
    (HANDS, f"{JOINT}/right.joint_2.pos/scale", 0.3029),
    (HANDS, f"{JOINT}/right.joint_3.pos/lag_ms", 933.3),
    (HANDS, f"{JOINT}/right.joint_6.pos/bias", 4.587),
    (HANDS, f"{JOINT}/left.joint_1.pos/lag_frames", 24),
    (HANDS, f"{JOINT}/right_hand.joint_1.pos/relation", "echo_next"),
    (HANDS, f"{JOINT}/right_hand.joint_1.pos/lag_frames", 1),
    (HANDS, f"{JOINT}/left_hand.joint_1.pos/relation", "constant"),
    (HANDS, "findings/units_undeclared/numbers/candidates/right_hand", ["device counts"]),
    (HANDS, "findings/units_undeclared/numbers/candidates/right", ["deg"]),
    (HANDS, "findings/nonstandard_keys/numbers/renames/actions", "action"),
    (HANDS, "findings/misplaced_videos/numbers/image/misplaced", 2),
    (HANDS, "findings/missing_videos/numbers/image/missing", 48),
    # hand-guided arms in servo ticks
    (CLOTH, "layout/version", "v2.1"),
    (CLOTH, "layout/rate_hz", 20.0),
    (CLOTH, "counts/frames_found", 5541),
    (CLOTH, "counts/videos_declared", 50),
    (CLOTH, "counts/video_files_found", 5),
    (CLOTH, "measurements/layout/chunks_size", 25),
    (CLOTH, "measurements/layout/index_is_contiguous", None),
    (CLOTH, "measurements/layout/length", {"min": 186, "median": 213.0, "max": 348}),
    (CLOTH, "measurements/clock/measured_hz", 18.49),
    (CLOTH, "measurements/clock/is_positional", False),
    (CLOTH, "measurements/clock/step_ms/mean", 54.09),
    (CLOTH, "measurements/clock/step_ms/median", 55.0),
    (CLOTH, "measurements/clock/step_ms/std", 1.45),
    (CLOTH, "measurements/clock/step_ms/min", 50.0),
    (CLOTH, "measurements/clock/step_ms/max", 66.6),
    (CLOTH, "measurements/values/repeated_frames/state", 0.03463),
    (CLOTH, "measurements/values/repeated_frames/action", 0.03662),
    (CLOTH, "measurements/relation/share_of_frames_equal_to_next_state", 1.0),
    (CLOTH, "measurements/relation/share_of_frames_equal_to_state", 0.03462654),
    (CLOTH, "measurements/relation/largest_action_minus_state", 126.0),
    (CLOTH, "measurements/statistics/action/max/4", 3590.0),
    (CLOTH, "measurements/layout/beside/calibrations/calibration~arm1.json/shoulder_pan/range_min", 737),
    (CLOTH, "measurements/layout/beside/rates/recorder_metadata~episode_000066.json/actual_hz", 4.9),
    (CLOTH, "findings/action_is_next_state/numbers/lag_frames", 1),
    (CLOTH, "findings/servo_ticks/numbers/ticks_per_rad", 651.9),
    (CLOTH, "findings/undeclared_columns/numbers/columns", ["next.done"]),
    (CLOTH, "findings/missing_columns/numbers/columns", ["index", "task_index"]),
    (CLOTH, "findings/dtype_mismatch/numbers/action", {"declared": "float32", "stored": "float64"}),
    (CLOTH, "findings/image_shape_order/numbers/observation.images.cam0", [3, 224, 224]),
    (CLOTH, "findings/stray_file/feature", "data~chunk-000~episode_000026"),
]
"""Recording, place in the document, and the number as it was written down; ``~`` stands for a slash within a key or value."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "path", "expected"), FACTS, ids=[f"{n.split('_')[1]} {p}" for n, p, _ in FACTS]
)
def test_a_fact_that_was_written_down_is_in_the_document(name: str, path: str, expected: Any) -> None:
    value: Any = document(name)
    for key in path.split("/"):
        value = step(value, key.replace("~", "/"))
    if isinstance(expected, float):
        assert value == pytest.approx(expected, rel=6e-3, abs=1e-9)
    else:
        assert value == (expected.replace("~", "/") if isinstance(expected, str) else expected)


def test_the_lag_of_every_joint_is_that_of_the_table() -> None:
    lags = {
        name: [j["lag_frames"] for n, j in document(name)["measurements"]["joints"].items()]
        for name in (ARM, CLOTH)
    }
    assert lags[CLOTH] == [1] * 12
    joints = document(ARM)["measurements"]["joints"]
    wanted = {
        "shoulder_pan": 4,
        "shoulder_lift": 4,
        "elbow_flex": 5,
        "wrist_flex": 5,
        "wrist_roll": 4,
        "gripper": 4,
    }
    assert {n: joints[f"{n}.pos"]["lag_frames"] for n in wanted} == wanted
    fast = {n: round(joints[f"{n}.pos"]["velocity_lag_frames"]) for n in wanted}
    assert set(fast.values()) <= {3, 4}, "by velocity, which no offset moves, it is three to four frames"


def test_a_camera_that_gave_a_picture_a_second_is_found_in_a_real_recording() -> None:
    finding = next(f for f in document(CLOTH)["findings"] if f["code"] == "slow_camera")
    assert finding["numbers"] == {"cam1": {"0": 19}}
    assert any(
        f["code"] == "black_video" and "cam0 in episode 0" in f["sentence"]
        for f in document(CLOTH)["findings"]
    )


def test_a_checkout_of_pointers_fails_and_says_what_its_meta_files_say(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["data", "check", str(real(POINTERS)), "--json"]) == 3
    told = json.loads(capsys.readouterr().out)
    facts = told["facts"]
    assert "Git LFS" in told["error"]
    assert (facts["version"], facts["rate_hz"], facts["robot_type"], facts["frames_declared"]) == (
        "v2.1",
        30.0,
        "franka_fer",
        151,
    )
    assert (facts["files"]["videos"]["pointers"], facts["files"]["videos"]["pointer_bytes"]) == (
        2,
        [131, 132],
    )
    assert facts["files"]["data"]["missing_files"] == ["data/chunk-000/episode_000000.parquet"]
    assert (
        facts["dimensions"]["action"],
        facts["dimensions"]["state"],
        len(facts["dimensions"]["shared"]),
    ) == (7, 14, 7)
    assert facts["dimensions"]["only_in_state"] == [f"joint_{k}.vel" for k in range(7)]
    assert (facts["stored_ranges"]["state_is_inside"], facts["stored_ranges"]["of"]) == (
        6,
        7,
    ), "joint_1 looks out by 0.002 rad"


def test_meta_files_that_say_nothing_add_nothing_to_the_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "meta").mkdir()
    (tmp_path / "meta" / "info.json").write_text("{}")
    assert main(["data", "check", str(tmp_path), "--json"]) == 3
    assert "facts" not in json.loads(capsys.readouterr().out)
