"""Public reports of datasets that looked fine and trained badly, each rebuilt small: the check names the fault, numbers included.

Every planted fault has a clean control beside it, on which the same check stays silent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from simgap.checks.data.dataset import DataReport, Severity, check_data
from simgap.checks.data.report import DataFinding
from simgap.episodes.formats.layout import DATA_PATH_30, VIDEO_PATH_30
from simgap.episodes.formats.video import Encoding, VideoEncoder, decode_span
from simgap.episodes.reader import open_dataset
from simgap.errors import DataError
from simgap.provenance import canonical_json
from test_pains_action_conventions import NAMES, late, motions

Array = NDArray[np.float64]
Images = NDArray[np.uint8]
COLOURS = np.array(
    [[200, 80, 80], [60, 180, 60], [120, 100, 190], [190, 170, 60], [70, 150, 150], [110, 110, 110]],
    dtype=np.uint8,
)


@dataclass(kw_only=True)
class Built:
    """A v3.0 dataset as LeRobot writes one: several episodes a file; every field can be falsified before it is written."""

    actions: list[Array]
    states: list[Array]
    rate_hz: float = 30.0
    data_files: list[int] = field(default_factory=list)
    """File of each episode's rows; all in file 0 by default."""
    claimed_files: Mapping[int, int] = field(default_factory=dict)
    """Episodes whose row names another data file than the one they lie in."""
    cameras: Mapping[str, list[Images]] = field(default_factory=dict)
    """Camera -> frames of each episode, encoded one after the other."""
    video_files: Mapping[str, list[int]] = field(default_factory=dict)
    """Camera -> file of each episode's frames; all in file 0 by default."""
    rows: Callable[[list[dict[str, Any]]], object] = lambda rows: None
    """Changes the episode index before it is written."""
    times: list[Array] | None = None
    """The ``timestamp`` of each episode; positional by default."""

    def write(self, root: Path) -> Path:
        """Write the dataset and return its folder."""
        lengths = [len(a) for a in self.actions]
        files = self.data_files or [0] * len(lengths)
        starts = np.concatenate([[0], np.cumsum(lengths)])
        rows = [self._row(k, n, int(starts[k]), files[k]) for k, n in enumerate(lengths)]
        for name, frames in self.cameras.items():
            self._videos(root, name, frames, rows)
        self.rows(rows)
        for file in sorted(set(files)):
            inside = [k for k, f in enumerate(files) if f == file]
            _save(
                pa.concat_tables([self._frames(k, lengths[k], int(starts[k])) for k in inside]),
                root / _data(file),
            )
        _save(pa.Table.from_pylist(rows), root / "meta/episodes/chunk-000/file-000.parquet")
        _save(pa.table({"task_index": [0], "task": ["pick"]}), root / "meta/tasks.parquet")
        (root / "meta/info.json").write_text(json.dumps(self._info(int(starts[-1]))))
        (root / "meta/stats.json").write_text(json.dumps(self._statistics()))
        return root

    def _row(self, k: int, length: int, start: int, file: int) -> dict[str, Any]:
        place = {"data/chunk_index": 0, "data/file_index": self.claimed_files.get(k, file)}
        return {
            "episode_index": k,
            "tasks": ["pick"],
            "length": length,
            "dataset_from_index": start,
            "dataset_to_index": start + length,
        } | place

    def _frames(self, k: int, length: int, start: int) -> pa.Table:
        times = np.arange(length) / self.rate_hz if self.times is None else self.times[k]
        scalars = {
            "frame_index": np.arange(length),
            "episode_index": np.full(length, k),
            "index": start + np.arange(length),
            "task_index": np.zeros(length, int),
        }
        vectors = {"action": self.actions[k], "observation.state": self.states[k]}
        columns = {
            n: pa.FixedSizeListArray.from_arrays(pa.array(v.astype(np.float32).reshape(-1)), v.shape[1])
            for n, v in vectors.items()
        }
        return pa.table(
            columns
            | {"timestamp": pa.array(times.astype(np.float32))}
            | {n: pa.array(v) for n, v in scalars.items()}
        )

    def _videos(self, root: Path, name: str, frames: list[Images], rows: list[dict[str, Any]]) -> None:
        key = f"observation.images.{name}"
        files = self.video_files.get(name, [0] * len(frames))
        encoder = VideoEncoder("h264", Encoding(crf=10, keyframe_every=10), self.rate_hz)
        for file in sorted(set(files)):
            inside = [k for k, f in enumerate(files) if f == file]
            path = root / VIDEO_PATH_30.format(video_key=key, chunk_index=0, file_index=file)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encoder.encode(np.concatenate([frames[k] for k in inside])))
            ends = np.concatenate([[0], np.cumsum([len(frames[k]) for k in inside])]) / self.rate_hz
            for k, a, b in zip(inside, ends[:-1], ends[1:], strict=True):
                place = {
                    "chunk_index": 0,
                    "file_index": file,
                    "from_timestamp": float(a),
                    "to_timestamp": float(b),
                }
                rows[k].update({f"videos/{key}/{n}": v for n, v in place.items()})

    def _info(self, frames: int) -> dict[str, Any]:
        scalars = {
            "timestamp": "float32",
            "frame_index": "int64",
            "episode_index": "int64",
            "index": "int64",
            "task_index": "int64",
        }
        features: dict[str, Any] = {n: {"dtype": d, "shape": [1], "names": None} for n, d in scalars.items()}
        features |= {
            n: {"dtype": "float32", "shape": [len(NAMES)], "names": list(NAMES)}
            for n in ("action", "observation.state")
        }
        for name, images in self.cameras.items():
            features[f"observation.images.{name}"] = {
                "dtype": "video",
                "shape": list(images[0].shape[1:]),
                "names": ["height", "width", "channels"],
            }
        described = {
            "codebase_version": "v3.0",
            "fps": self.rate_hz,
            "total_episodes": len(self.actions),
            "total_frames": frames,
            "chunks_size": 1000,
        }
        described |= {
            "robot_type": "so101",
            "features": features,
            "data_path": DATA_PATH_30,
            "video_path": VIDEO_PATH_30,
        }
        return described | {"splits": {"train": f"0:{len(self.actions)}"}}

    def _statistics(self) -> dict[str, Any]:
        result = {}
        for name, values in (("action", self.actions), ("observation.state", self.states)):
            pooled = np.concatenate(values).astype(np.float32).astype(np.float64)
            result[name] = {
                "mean": pooled.mean(0).tolist(),
                "std": pooled.std(0).tolist(),
                "min": pooled.min(0).tolist(),
                "max": pooled.max(0).tolist(),
            }
        return result


def _data(file: int) -> str:
    return DATA_PATH_30.format(chunk_index=0, file_index=file)


def _save(table: pa.Table, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)


def arm(episodes: int, length: int, **changes: Any) -> Built:
    """Return a healthy recording: a state that follows four frames behind its action."""
    actions = motions(episodes=episodes, length=length, seed=1)
    noise = np.random.default_rng(7)
    states = [s + noise.normal(0, 0.05, s.shape) for s in late(actions, 4)]
    return Built(actions=actions, states=states, **changes)


def scene(state: Array, colour: Images, *, size: int = 32) -> Images:
    """Return pictures of a colour, with stripes that each move with a joint."""
    frames = np.tile(colour, (len(state), size, size, 1)).astype(np.float64)
    across = np.arange(4, size)
    for joint in range(5):
        rows = slice(4 + joint * (size - 4) // 5, 4 + (joint + 1) * (size - 4) // 5)
        waves = 40 * np.sin(2 * np.pi * (across / 14 + state[:, joint, None] / 40))
        frames[:, rows, 4:] += waves[:, None, :, None]
    return np.clip(np.round(frames), 0, 255).astype(np.uint8)


def scenes(built: Built, **changes: Any) -> list[Images]:
    return [scene(s, COLOURS[k % len(COLOURS)], **changes) for k, s in enumerate(built.states)]


def found(report: DataReport, code: str) -> DataFinding:
    canonical_json(report.to_json())
    assert code in report.codes(), [f.sentence for f in report.findings]
    return next(f for f in report.findings if f.code == code)


NEW = {
    "rows_elsewhere",
    "boundaries_wrong",
    "video_frames_mismatch",
    "video_spans_overlap",
    "video_times_accumulated",
    "timestamps_overrun",
    "rows_faster_than_declared",
    "images_repeat",
    "feed_freezes",
    "slow_camera",
}


def test_a_recording_as_lerobot_writes_it_has_no_fault(tmp_path: Path) -> None:
    built = arm(6, 50, data_files=[0, 0, 0, 1, 1, 1])
    built.cameras = {"front": scenes(built), "wrist": scenes(built)}
    built.video_files = {"front": [0, 0, 0, 1, 1, 1]}
    report = check_data(built.write(tmp_path / "d"))
    assert not report.codes() & NEW
    assert {f.code for f in report.findings if f.severity is Severity.FAULT} == set()
    layout = report.measurements["layout"]
    assert (layout["data_files"], layout["index_is_contiguous"], layout["length"]) == (
        2,
        True,
        {"min": 50, "median": 50, "max": 50},
    )
    assert layout["videos"] == {"files_counted": 3, "files": 3}
    assert report.measurements["clock"]["images"]["front"]["every"] == 1


# --- the wrong data file: public report: huggingface/lerobot#2401 ------------------------------------------------------


def test_an_episode_whose_row_names_the_file_before_is_sent_to_its_own(tmp_path: Path) -> None:
    root = arm(6, 50, data_files=[0, 0, 0, 1, 1, 1], claimed_files={3: 0}).write(tmp_path / "d")
    finding = found(check_data(root), "rows_elsewhere")
    assert finding.severity is Severity.FAULT
    assert list(finding.numbers) == ["3"]
    numbers = finding.numbers["3"]
    assert (numbers["rows_missing"], numbers["declared_file"], numbers["right_file"]) == (
        50,
        _data(0),
        _data(1),
    )
    with pytest.raises(DataError, match=r"0 frames of episode 3, its index row says 50"):
        open_dataset(root).episode(3)


# --- permuted boundaries: public report: huggingface/lerobot#1919 -------------------------------------------------------


def _permuted(rows: list[dict[str, Any]]) -> None:
    claims = [(r["dataset_from_index"], r["dataset_to_index"]) for r in rows]
    for k, row in enumerate(rows):
        row["dataset_from_index"], row["dataset_to_index"] = claims[(k + 3) % len(rows)]


def test_permuted_boundaries_turn_every_chunk_into_padding(tmp_path: Path) -> None:
    finding = found(check_data(arm(10, 100, rows=_permuted).write(tmp_path / "d")), "boundaries_wrong")
    assert (finding.severity, len(finding.numbers["episodes"]), finding.numbers["horizon"]) == (
        Severity.FAULT,
        10,
        16,
    )
    assert finding.numbers["padded_share"] == 1.0
    assert finding.numbers["padded_share_true"] == pytest.approx(120 / 1600)
    assert "100.0 %" in finding.sentence
    assert "7.5 %" in finding.sentence


# --- borders off by one: public report: unitreerobotics/unitree_lerobot#41 ----------------------------------------------


def _shifted_by_one(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        row["dataset_from_index"] += 1
        row["dataset_to_index"] += 1


def test_borders_off_by_one_row_are_a_wrong_table_and_no_bad_timestamps(tmp_path: Path) -> None:
    report = check_data(arm(6, 800, rows=_shifted_by_one).write(tmp_path / "d"))
    finding = found(report, "boundaries_wrong")
    assert finding.numbers["border_jumps_s"] == pytest.approx([-26.63] * 5, abs=0.01)
    assert finding.numbers["real_gaps"] == 0
    assert not report.codes() & {"clock_gaps", "clock_not_increasing", "rate_mismatch"}


# --- the file of the data for that of a camera: public report: starVLA/starVLA#279, PR#285 ------------------------------


def _two_cameras() -> Built:
    built = arm(4, 40)
    built.cameras = {"a": scenes(built), "b": scenes(built)}
    built.video_files = {"a": [0, 0, 1, 1]}
    return built


def _colours(read: Callable[[int, str], Images]) -> dict[str, list[int]]:
    """Return the episode that the colour of each camera's first frame belongs to."""
    seen = {c: [read(k, c)[0, 0].astype(int) for k in range(4)] for c in ("a", "b")}
    return {
        c: [int(np.argmin(np.abs(COLOURS[:4].astype(int) - p).sum(axis=1))) for p in pixels]
        for c, pixels in seen.items()
    }


def test_pictures_belong_to_their_rows_and_a_reader_by_data_file_would_show_others(tmp_path: Path) -> None:
    dataset = open_dataset(_two_cameras().write(tmp_path / "d"))
    ours = _colours(lambda k, camera: dataset.episode(k).images[camera][0])
    assert ours == {"a": [0, 1, 2, 3], "b": [0, 1, 2, 3]}

    def naive(k: int, camera: str) -> Images:
        key = f"observation.images.{camera}"
        first = open_dataset(tmp_path / "d").entry(0).videos[key].path
        out = np.empty((1, 32, 32, 3), dtype=np.uint8)
        decode_span(first, dataset.entry(k).videos[key].start_s, 30.0, out)
        return out[0]

    wrong = {c: [k for k, e in enumerate(episodes) if e != k] for c, episodes in _colours(naive).items()}
    assert wrong == {"a": [2, 3], "b": []}
    note = found(check_data(tmp_path / "d"), "video_files_of_their_own")
    assert (note.severity, note.numbers["episodes"]) == (Severity.NOTE, {"observation.images.a": wrong["a"]})


def test_an_index_written_with_the_files_of_the_data_shows_pictures_of_other_episodes(tmp_path: Path) -> None:
    built = _two_cameras()

    def by_data_file(rows: list[dict[str, Any]]) -> None:
        for row in rows:
            row["videos/observation.images.a/file_index"] = row["data/file_index"]

    built.rows = by_data_file
    finding = found(check_data(built.write(tmp_path / "d")), "video_spans_overlap")
    assert finding.severity is Severity.FAULT
    assert (finding.feature, finding.numbers["episodes"]) == ("observation.images.a", [2, 3])
    assert finding.numbers["unclaimed_files"] == ["videos/observation.images.a/chunk-000/file-001.mp4"]
    assert _colours(lambda k, camera: open_dataset(tmp_path / "d").episode(k).images[camera][0])["a"] == [
        0,
        1,
        0,
        1,
    ]
    assert "video_spans_overlap" not in check_data(_two_cameras().write(tmp_path / "clean")).codes()


# --- frames of a discarded take: public report: huggingface/lerobot#4109 ------------------------------------------------


@pytest.mark.parametrize(("place", "offset"), [("front", 30), ("end", 0)])
def test_frames_of_a_discarded_take_shift_every_image_against_its_state(
    tmp_path: Path, place: str, offset: int
) -> None:
    built = arm(1, 60)
    take, discarded = scene(built.states[0], COLOURS[0]), scene(built.states[0][:30], COLOURS[2])
    built.cameras = {"front": [np.concatenate([discarded, take] if place == "front" else [take, discarded])]}
    finding = found(check_data(built.write(tmp_path / "d")), "video_frames_mismatch")
    assert finding.severity is Severity.FAULT
    numbers = finding.numbers["episodes"]["0"]
    assert (numbers["surplus"], numbers["where"], numbers["image_state_offset_frames"]) == (30, place, offset)
    assert ("every image is 30 frames off its state" in finding.sentence) == (place == "front")


def test_an_index_that_stores_when_the_last_frame_begins_is_no_missing_frame(tmp_path: Path) -> None:
    built = arm(3, 40)
    built.cameras = {"front": scenes(built)}

    def last_begins(rows: list[dict[str, Any]]) -> None:
        for row in rows:
            row["videos/observation.images.front/to_timestamp"] -= 1 / 30

    built.rows = last_begins
    assert "video_frames_mismatch" not in check_data(built.write(tmp_path / "d")).codes()


def test_a_surplus_inside_a_file_of_several_episodes_is_given_to_its_episode(tmp_path: Path) -> None:
    built = arm(3, 40)
    frames = scenes(built)
    frames[1] = np.concatenate([scene(built.states[0][:12], COLOURS[4]), frames[1]])
    built.cameras = {"front": frames}
    numbers = found(check_data(built.write(tmp_path / "d")), "video_frames_mismatch").numbers["episodes"]
    assert {k: (v["surplus"], v["where"]) for k, v in numbers.items()} == {"1": (12, "front")}


# --- offsets accumulated over a merge: public report: huggingface/lerobot#2627 ------------------------------------------


def test_times_that_count_over_all_files_are_named_with_their_constant(tmp_path: Path) -> None:
    built = arm(10, 100, rate_hz=10.0)
    built.cameras, built.video_files = {"front": scenes(built)}, {"front": [0] * 5 + [1] * 5}

    def accumulate(rows: list[dict[str, Any]]) -> None:
        for row in rows[5:]:
            for end in ("from", "to"):
                row[f"videos/observation.images.front/{end}_timestamp"] += 50.0

    assert "video_times_accumulated" not in check_data(built.write(tmp_path / "clean")).codes()
    built.rows = accumulate
    report = check_data(built.write(tmp_path / "d"))
    offsets = found(report, "video_times_accumulated").numbers["offset_s"]
    assert offsets == {str(k): pytest.approx(50.0) for k in range(5, 10)}
    assert "video_too_short" in report.codes()


# --- true clocks: public report: huggingface/lerobot#3513 ---------------------------------------------------------------


def test_real_timestamps_are_accepted_with_their_jitter_and_frames_are_never_asked_for_beyond_the_last(
    tmp_path: Path,
) -> None:
    built = arm(1, 300)
    rng = np.random.default_rng(0)
    times = np.arange(300) / 29.2 + np.clip(rng.normal(0, 0.004, 300), -0.012, 0.012)
    built.times = [times - times[0]]
    built.cameras = {"front": scenes(built)}
    report = check_data(built.write(tmp_path / "d"))
    assert {f.code for f in report.findings if f.severity is Severity.FAULT} == set()
    note = found(report, "timestamps_overrun")
    assert note.numbers["0"] == {"asked_for": pytest.approx(307, abs=1), "frames": 300}
    step = report.measurements["clock"]["step_ms"]
    assert step["mean"] == pytest.approx(1000 / 29.2, rel=2e-3)
    assert 4.0 < step["std"] < 7.5
    assert step["max"] > step["mean"] + 2 * step["std"]
    assert len(open_dataset(tmp_path / "d").episode(0).images["front"]) == 300


# --- durations and frozen feeds: public report: jashshah999/lerobot-doctor#7 --------------------------------------------


def _ten_short_episodes(*, extra: int, frozen: bool) -> Built:
    built = arm(10, 33, rate_hz=5.0)
    frames = scenes(built, size=48)
    if frozen:
        frames[4][12:22] = frames[4][12]
    built.video_files = {"front": list(range(10))}
    built.cameras = {"front": [np.concatenate([f, f[-1:]]) if k < extra else f for k, f in enumerate(frames)]}
    return built


def test_videos_a_frame_too_long_are_counted_by_episode_with_their_ratio(tmp_path: Path) -> None:
    finding = found(
        check_data(_ten_short_episodes(extra=8, frozen=False).write(tmp_path / "d")), "video_frames_mismatch"
    )
    ratios = {k: v["ratio"] for k, v in finding.numbers["episodes"].items()}
    assert ratios == {str(k): pytest.approx(34 / 33) for k in range(8)}
    assert finding.severity is Severity.WARNING
    assert "x1.03" in finding.sentence


def test_a_feed_that_stands_still_while_the_robot_moves_is_named_with_its_length(tmp_path: Path) -> None:
    finding = found(
        check_data(_ten_short_episodes(extra=0, frozen=True).write(tmp_path / "d")), "feed_freezes"
    )
    assert finding.numbers == {
        "front": {"4": {"first_frame": 12, "frames": 10, "seconds": pytest.approx(2.0)}}
    }
    assert (
        "feed_freezes"
        not in check_data(_ten_short_episodes(extra=0, frozen=False).write(tmp_path / "clean")).codes()
    )


def test_a_robot_that_pauses_before_a_camera_is_no_frozen_feed(tmp_path: Path) -> None:
    built = _ten_short_episodes(extra=0, frozen=True)
    built.states[4][12:22] = built.states[4][12]
    built.actions[4][12:22] = built.actions[4][12]
    assert "feed_freezes" not in check_data(built.write(tmp_path / "d")).codes()


def test_one_episode_whose_camera_gave_a_picture_a_second_is_named(tmp_path: Path) -> None:
    built = arm(5, 200, rate_hz=20.0)
    frames = scenes(built)
    frames[3] = frames[3][::19].repeat(19, axis=0)[:200]
    built.cameras = {"front": frames}
    report = check_data(built.write(tmp_path / "d"))
    assert found(report, "slow_camera").numbers == {"front": {"3": 19}}
    assert not report.codes() & {"images_repeat", "feed_freezes"}


# --- every tick of an interpolation recorded: public report: huggingface/lerobot#4099 -----------------------------------


def _interpolated(every: int, *, straight: bool = True, length: int = 270) -> Built:
    """Return 3 s of motion recorded on every tick of a controller that interpolates ``every`` times between policy steps."""
    built = arm(2, length)
    # of the commands: the arm itself waits for four frames
    pictures = [scene(a, COLOURS[k]) for k, a in enumerate(built.actions)]
    knots = [a[::every] for a in built.actions]
    if straight:
        built.actions = [
            np.stack(
                [np.interp(np.arange(length), np.arange(len(k)) * every, k[:, j]) for j in range(6)], axis=1
            )
            for k in knots
        ]
    else:
        bumps = np.random.default_rng(1)
        built.actions = [a + bumps.normal(0, 1.0, a.shape) for a in built.actions]
    built.cameras = {"front": [f[::every].repeat(every, axis=0)[:length] for f in pictures]}
    return built


def test_rows_of_every_interpolated_tick_are_three_times_too_many(tmp_path: Path) -> None:
    report = check_data(_interpolated(3).write(tmp_path / "d"))
    finding = found(report, "rows_faster_than_declared")
    assert finding.severity is Severity.FAULT
    numbers = finding.numbers
    assert (numbers["factor"], numbers["true_hz"], numbers["claimed_s"], numbers["true_s"]) == (
        3,
        90.0,
        9.0,
        3.0,
    )
    assert report.measurements["clock"]["images"]["front"]["new_share"] == pytest.approx(1 / 3, abs=0.005)
    assert "new images are front 33." in finding.sentence


def test_a_wall_clock_tells_fast_rows_from_a_slow_camera(tmp_path: Path) -> None:
    built = _interpolated(3, straight=False)
    built.times = [np.arange(270) / 90.0 + 1e-3 * np.sin(np.arange(270)) for _ in range(2)]
    fast = check_data(built.write(tmp_path / "fast"))
    assert found(fast, "rows_faster_than_declared").numbers["true_hz"] == 90.0
    assert found(fast, "rate_mismatch").numbers["measured_hz"] == pytest.approx(90.0, rel=0.01)
    built.times = [np.arange(270) / 30.0 + 1e-3 * np.sin(np.arange(270)) for _ in range(2)]
    slow = check_data(built.write(tmp_path / "slow"))
    assert "10 Hz" in found(slow, "images_repeat").sentence
    assert "rows_faster_than_declared" not in slow.codes()


def test_without_a_clock_repeated_images_are_either_and_said_to_be(tmp_path: Path) -> None:
    report = check_data(_interpolated(3, straight=False).write(tmp_path / "d"))
    finding = found(report, "images_repeat")
    assert finding.severity is Severity.WARNING
    assert "no wall clock tells which" in finding.sentence
    assert "rows_faster_than_declared" not in report.codes()
    assert not check_data(_interpolated(1).write(tmp_path / "clean")).codes() & {
        "images_repeat",
        "rows_faster_than_declared",
    }
