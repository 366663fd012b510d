"""The store: what goes in comes out, nothing half written is ever seen, and any kill leaves a dataset that resumes."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simgap.conventions import SO101_JOINTS, Dimension, Unit, VectorSpec
from simgap.episodes.formats.layout import data_path, episodes_path, video_path
from simgap.episodes.formats.video import iterate_frames
from simgap.episodes.reader import open_dataset
from simgap.episodes.statistics.exact import exact_statistics
from simgap.episodes.write import finish, store, unsynced
from simgap.episodes.write.encoders import ENCODINGS, Encoding, VideoEncoder
from simgap.episodes.write.files import commit, commit_new, sweep, temporary_name
from simgap.episodes.write.store import DatasetSpec, EpisodeWriter
from simgap.episodes.write.tables import set_leading
from simgap.errors import ConventionError, DataError
from simgap.provenance import Stamp
from simgap.types import Episode, Outcome

RATE_HZ = 20.0


def make_spec(cameras: tuple[str, ...] = ("front",), codec: str = "h264", **changes: Any) -> DatasetSpec:
    dimensions = tuple(
        Dimension(name=f"{j}.pos", unit=Unit.DEG, low=-180.0, high=180.0, is_gripper=j == "gripper")
        for j in SO101_JOINTS
    )
    vector = VectorSpec(dimensions=dimensions, rate_hz=RATE_HZ)
    fields: dict[str, Any] = {
        "name": "test",
        "action_spec": vector,
        "state_spec": vector,
        "cameras": cameras,
        "image_size": (16, 24),
        "rate_hz": RATE_HZ,
        "stamp": Stamp(kind="dataset", fields={"engine": "test", "horizon_steps": 40}),
        "task_default": "pick",
        "codec": codec,
    }
    return DatasetSpec(**(fields | changes))


def make_episode(
    seed: int, length: int = 12, cameras: tuple[str, ...] = ("front",), **changes: Any
) -> Episode:
    rng = np.random.default_rng(seed)
    action, state = rng.normal(size=(2, length, 6)).astype(np.float32)
    images = {
        c: np.repeat(rng.integers(0, 255, (length, 1, 1, 3), dtype=np.uint8), 16, axis=1).repeat(24, axis=2)
        for c in cameras
    }
    fields: dict[str, Any] = {
        "images": images,
        "state": state,
        "action": action,
        "time_s": np.arange(length) / RATE_HZ + rng.uniform(0, 0.01, length),
        "outcome": Outcome.success(),
        "task": f"task {seed % 2}",
        "seed": seed,
        "factors": {"mass_kg": float(rng.uniform())},
        "extras": {
            "executed": action * np.float32(0.5),
            "age_s": rng.uniform(size=length),
            "is_clipped": rng.uniform(size=length) < 0.5,
        },
    }
    return Episode(**(fields | changes))


def tree(root: Path) -> dict[str, bytes]:
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


@pytest.mark.parametrize("codec", ["h264", "av1", "png"])
def test_an_episode_comes_back_as_it_went_in(tmp_path: Path, codec: str) -> None:
    cameras = ("front", "wrist")
    writer = EpisodeWriter(tmp_path / "d", make_spec(cameras, codec))
    outcomes = [Outcome.success(), Outcome.failure("dropped"), Outcome.void("camera unplugged")]
    episodes = [make_episode(k, 5 + k, cameras, outcome=o) for k, o in enumerate(outcomes)]
    for k, episode in enumerate(episodes):
        writer.write(k, episode)
    writer.finish()
    dataset = open_dataset(tmp_path / "d")
    assert dataset.n_episodes == 3
    assert dataset.spec == writer.spec
    for k, wanted in enumerate(episodes):
        got = dataset.episode(k)
        np.testing.assert_array_equal(got.action, wanted.action)
        np.testing.assert_array_equal(got.state, wanted.state)
        np.testing.assert_array_equal(got.time_s, wanted.time_s)
        assert (got.outcome, got.task, got.seed, got.factors) == (
            wanted.outcome,
            wanted.task,
            wanted.seed,
            wanted.factors,
        )
        assert got.extras.keys() == wanted.extras.keys()
        for name, values in wanted.extras.items():
            np.testing.assert_array_equal(got.extras[name], values)
        for camera in cameras:
            difference = np.abs(got.images[camera].astype(int) - wanted.images[camera].astype(int))
            assert difference.max() <= (0 if codec == "png" else 12)


@settings(max_examples=12)
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=4), order=st.randoms(use_true_random=False))
def test_the_order_of_writing_does_not_change_a_byte(
    lengths: list[int], order: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("order")
    episodes = [make_episode(k, n, ()) for k, n in enumerate(lengths)]
    shuffled = list(range(len(episodes)))
    order.shuffle(shuffled)
    prints = []
    for name, indices in (("a", list(range(len(episodes)))), ("b", shuffled)):
        writer = EpisodeWriter(root / name, make_spec(()))
        for k in indices:
            writer.write(k, episodes[k])
        prints.append(writer.finish())
    assert prints[0] == prints[1]
    assert tree(root / "a") == tree(root / "b")


def test_rows_are_numbered_over_all_files_in_order_of_path(tmp_path: Path) -> None:
    writer = EpisodeWriter(tmp_path, make_spec())
    for k in (1, 0, 2):
        writer.write(k, make_episode(k, 4 + k))
    writer.finish()
    files = sorted((tmp_path / "data").rglob("*.parquet"))
    index = np.concatenate([pq.read_table(f)["index"].to_numpy() for f in files])
    np.testing.assert_array_equal(index, np.arange(4 + 5 + 6))
    rows = [pq.read_table(tmp_path / episodes_path(k)).to_pylist()[0] for k in range(3)]
    assert [(r["dataset_from_index"], r["dataset_to_index"]) for r in rows] == [(0, 4), (4, 9), (9, 15)]
    tasks = pq.read_table(tmp_path / "meta" / "tasks.parquet")
    assert json.loads(tasks.schema.metadata[b"pandas"])["index_columns"] == ["task"]
    assert tasks["task"].to_pylist() == ["task 0", "task 1"]
    assert pq.read_table(tmp_path / data_path(1))["task_index"].to_pylist() == [1] * 5


def test_finishing_twice_changes_nothing_and_more_episodes_may_follow(tmp_path: Path) -> None:
    writer = EpisodeWriter(tmp_path, make_spec())
    writer.write(0, make_episode(0))
    first = writer.finish()
    before = tree(tmp_path)
    assert EpisodeWriter(tmp_path, make_spec()).finish() == first
    assert tree(tmp_path) == before
    again = EpisodeWriter(tmp_path, make_spec())
    assert again.done() == {0}
    again.write(1, make_episode(1))
    with pytest.raises(DataError, match="unfinished"):
        open_dataset(tmp_path)
    assert again.finish() != first
    assert open_dataset(tmp_path).n_episodes == 2


def test_an_old_info_file_that_comes_back_after_a_crash_does_not_make_a_dataset_finished(
    tmp_path: Path,
) -> None:
    writer = EpisodeWriter(tmp_path, make_spec(()))
    assert not writer.is_finished()
    writer.write(0, make_episode(0, 5, ()))
    writer.finish()
    assert EpisodeWriter(tmp_path, make_spec(())).is_finished()
    old = (tmp_path / "meta/info.json").read_bytes()
    writer.write(1, make_episode(1, 5, ()))
    assert not writer.is_finished()
    (tmp_path / "meta/info.json").write_bytes(old)
    assert not writer.is_finished()
    writer.finish()
    assert writer.is_finished()


def test_episode_one_thousand_opens_the_second_chunk() -> None:
    assert data_path(999) == "data/chunk-000/file-999.parquet"
    assert data_path(1000) == "data/chunk-001/file-000.parquet"
    assert (
        video_path(2001, "observation.images.front")
        == "videos/observation.images.front/chunk-002/file-001.mp4"
    )


def test_another_spec_or_stamp_is_refused_by_name(tmp_path: Path) -> None:
    EpisodeWriter(tmp_path, make_spec())
    vector = replace(make_spec().action_spec, rate_hz=10.0)
    slower = make_spec(rate_hz=10.0, action_spec=vector, state_spec=vector)
    with pytest.raises(DataError, match=r"rate_hz is 20\.0 on disk and 10\.0 now"):
        EpisodeWriter(tmp_path, slower)
    with pytest.raises(DataError, match=r"stamp\.engine"):
        EpisodeWriter(
            tmp_path, make_spec(stamp=Stamp(kind="dataset", fields={"engine": "other", "horizon_steps": 40}))
        )


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(DataError, match="not empty"):
        EpisodeWriter(tmp_path, make_spec())
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"action": np.zeros((12, 5), np.float32)}, "expected \\(T, 6\\)"),
        ({"images": {"side": np.zeros((12, 16, 24, 3), np.uint8)}}, "cameras"),
        ({"images": {"front": np.zeros((12, 24, 16, 3), np.uint8)}}, "expected uint8"),
        ({"time_s": np.zeros(12)}, "increase"),
        ({"extras": {"index": np.zeros(12)}}, "reserved"),
        ({"extras": {"note": np.array(["x"] * 12)}}, "dtype"),
        ({"seed": 2**70}, "64 bits"),
    ],
)
def test_an_episode_that_does_not_fit_the_spec_is_refused(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    writer = EpisodeWriter(tmp_path, make_spec())
    with pytest.raises(DataError, match=words):
        writer.write(0, replace(make_episode(0), **changes))
    assert writer.done() == set()


def test_a_spec_must_agree_with_itself() -> None:
    with pytest.raises(ConventionError, match="Hz"):
        make_spec(rate_hz=30.0)


def test_odd_images_and_strange_cameras_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="even"):
        EpisodeWriter(tmp_path, make_spec(image_size=(15, 24)))
    with pytest.raises(DataError, match="camera names"):
        EpisodeWriter(tmp_path, make_spec(("a/b",)))
    assert list(tmp_path.iterdir()) == []


def test_an_index_is_written_once(tmp_path: Path) -> None:
    writer = EpisodeWriter(tmp_path, make_spec())
    writer.write(0, make_episode(0))
    with pytest.raises(DataError, match="already"):
        writer.write(0, make_episode(1))


def test_a_gap_or_nothing_at_all_cannot_be_finished(tmp_path: Path) -> None:
    writer = EpisodeWriter(tmp_path, make_spec())
    with pytest.raises(DataError, match="no complete episode"):
        writer.finish()
    writer.write(2, make_episode(2))
    with pytest.raises(DataError, match=r"lacks episodes \[0, 1\]"):
        writer.finish()


def test_episodes_need_the_same_extras(tmp_path: Path) -> None:
    writer = EpisodeWriter(tmp_path, make_spec())
    writer.write(0, make_episode(0))
    writer.write(1, make_episode(1, extras={"other": np.zeros(12)}))
    with pytest.raises(DataError, match="of episode 1 differ"):
        writer.finish()


def test_an_episode_without_its_video_or_row_does_not_count(tmp_path: Path) -> None:
    writer = EpisodeWriter(tmp_path, make_spec())
    for k in range(3):
        writer.write(k, make_episode(k))
    (tmp_path / video_path(0, "observation.images.front")).unlink()
    (tmp_path / episodes_path(1)).unlink()
    assert writer.done() == {2}


def _work(root: Path, indices: list[int]) -> None:
    writer = EpisodeWriter(root, make_spec())
    for k in indices:
        writer.write(k, make_episode(k, 3 + k))


def test_several_processes_write_one_dataset(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_work, args=(tmp_path / "p", list(range(w, 8, 2)))) for w in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    _work(tmp_path / "s", list(range(8)))
    assert (
        EpisodeWriter(tmp_path / "p", make_spec()).finish()
        == EpisodeWriter(tmp_path / "s", make_spec()).finish()
    )


def test_a_folder_claimed_by_another_worker_in_the_same_moment_is_no_stranger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = store._holds_something

    def late(root: Path) -> bool:
        monkeypatch.setattr(store, "_holds_something", real)
        EpisodeWriter(root, make_spec()).write(0, make_episode(0))
        return real(root)

    monkeypatch.setattr(store, "_holds_something", late)
    assert EpisodeWriter(tmp_path, make_spec()).done() == {0}


KILLED = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_episodes_store import EpisodeWriter, make_episode, make_spec
writer = EpisodeWriter(Path(sys.argv[1]), make_spec())
print("ready", flush=True)
for k in range(10_000):
    if k not in writer.done():
        writer.write(k, make_episode(k, 40))
"""


def test_a_kill_at_any_moment_loses_at_most_the_episode_in_flight(tmp_path: Path) -> None:
    script = [sys.executable, "-c", KILLED, str(tmp_path), str(Path(__file__).parent)]
    counts = []
    for delay_s in (0.05, 0.11):
        process = subprocess.Popen(script, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(delay_s)
        process.send_signal(signal.SIGKILL)
        process.wait(20)
        process.stdout.close()
        done = EpisodeWriter(tmp_path, make_spec()).done()
        assert done == set(range(len(done)))
        assert not list(tmp_path.rglob(".*.tmp"))
        counts.append(len(done))
    assert counts[1] >= counts[0]
    writer = EpisodeWriter(tmp_path, make_spec())
    for k in range(counts[1] + 1):
        if k not in writer.done():
            writer.write(k, make_episode(k, 40))
    writer.finish()
    dataset = open_dataset(tmp_path)
    assert dataset.n_episodes == counts[1] + 1
    for k in range(dataset.n_episodes):
        np.testing.assert_array_equal(dataset.episode(k).action, make_episode(k, 40).action)


def test_a_half_written_file_is_ignored_and_swept_when_its_writer_is_dead(tmp_path: Path) -> None:
    writer = EpisodeWriter(tmp_path, make_spec())
    writer.write(0, make_episode(0))
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    target = tmp_path / data_path(1)
    mine = temporary_name(target)
    theirs = mine.with_name(mine.name.replace(f".{os.getpid()}.", f".{dead.pid}."))
    for path in (mine, theirs):
        path.write_bytes(b"PAR1 half")
    assert writer.done() == {0}
    assert EpisodeWriter(tmp_path, make_spec()).done() == {0}
    assert mine.exists()
    assert not theirs.exists()
    writer.finish()
    assert open_dataset(tmp_path).n_episodes == 1


def test_a_failed_write_leaves_the_old_file_and_no_temporary(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    commit(path, b"old")
    with pytest.raises(TypeError):
        commit(path, "not bytes")  # type: ignore[arg-type]
    assert path.read_bytes() == b"old"
    assert not commit_new(path, b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["a.bin"]
    assert sweep(tmp_path) == []


def test_stored_statistics_are_those_of_the_pooled_frames(tmp_path: Path) -> None:
    writer = EpisodeWriter(tmp_path, make_spec(codec="png"))
    episodes = [make_episode(k, 5 + 20 * k) for k in range(3)]
    for k, episode in enumerate(episodes):
        writer.write(k, episode)
    writer.finish()
    stats = json.loads((tmp_path / "meta" / "stats.json").read_text())
    action = np.concatenate([e.action for e in episodes]).astype(np.float64)
    for name, q in (("q01", 0.01), ("q50", 0.5), ("q99", 0.99)):
        np.testing.assert_allclose(stats["action"][name], np.quantile(action, q, axis=0))
    np.testing.assert_allclose(stats["action"]["std"], action.std(axis=0))
    pixels = np.concatenate([e.images["front"] for e in episodes]).reshape(-1, 3) / 255.0
    images = stats["observation.images.front"]
    for name, wanted in (
        ("mean", pixels.mean(0)),
        ("std", pixels.std(0)),
        ("min", pixels.min(0)),
        ("q10", np.quantile(pixels, 0.1, axis=0)),
    ):
        np.testing.assert_allclose(np.array(images[name]).reshape(-1), wanted, rtol=1e-9)
    assert images["count"] == [5 + 25 + 45]


def test_a_late_seek_finds_the_frames_of_every_codec(tmp_path: Path) -> None:
    for codec in ("h264", "av1"):
        writer = EpisodeWriter(tmp_path / codec, make_spec(codec=codec))
        episode = make_episode(3, 60)
        writer.write(0, episode)
        writer.finish()
        seen = list(iterate_frames(tmp_path / codec / video_path(0, "observation.images.front"), 2.2))
        assert 2.2 - 0.5 - 1e-6 <= seen[0][0] <= 2.2 + 1e-6
        for time_s, image in seen:
            wanted = episode.images["front"][round(time_s * RATE_HZ)]
            assert np.abs(image.astype(int) - wanted.astype(int)).max() <= 12


def test_a_codec_has_its_encoding_and_the_info_names_both(tmp_path: Path) -> None:
    for codec in ("h264", "av1"):
        writer = EpisodeWriter(tmp_path / codec, make_spec(codec=codec))
        assert writer.spec.encoding == ENCODINGS[codec]
        writer.write(0, make_episode(0))
        writer.finish()
        info = json.loads((tmp_path / codec / "meta/info.json").read_text())["features"][
            "observation.images.front"
        ]["info"]
        assert info["video.codec"] == codec
        assert info["video.preset"] == ENCODINGS[codec].preset
    with pytest.raises(DataError, match="unknown codec 'hevc'; known: h264, av1, png"):
        make_spec(codec="hevc")
    with pytest.raises(DataError, match="either qp or crf"):
        Encoding(qp=10, crf=10)


@pytest.mark.parametrize(
    "encoding", [Encoding(), Encoding(crf=20), Encoding(qp=30, preset="veryfast", keyframe_every=4)]
)
def test_a_spec_reads_back_with_its_encoding(encoding: Encoding) -> None:
    spec = make_spec(encoding=encoding)
    assert DatasetSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec


def test_a_video_does_not_depend_on_those_encoded_before() -> None:
    """An encoder kept open alternates an id over key frames: odd numbers of them must not show in the next video."""
    rng = np.random.default_rng(0)
    videos = [rng.integers(0, 256, (n, 32, 48, 3), dtype=np.uint8) for n in (1, 11, 10, 25, 7)]
    fresh = [VideoEncoder("h264", Encoding(), RATE_HZ).encode(v) for v in videos]
    kept = VideoEncoder("h264", Encoding(), RATE_HZ)
    for order in ((0, 1, 2, 3, 4), (4, 4, 0, 0, 3), (2, 1, 3, 0, 4)):
        assert [kept.encode(videos[k]) == fresh[k] for k in order] == [True] * len(order)
    other = kept.encode(videos[0][:, :16])
    assert other == VideoEncoder("h264", Encoding(), RATE_HZ).encode(videos[0][:, :16])
    assert kept.encode(videos[3]) == fresh[3]


def test_group_commits_write_the_same_bytes_and_leave_no_mark(tmp_path: Path) -> None:
    for name, every in (("one", 1), ("many", 3)):
        writer = EpisodeWriter(tmp_path / name, make_spec(), sync_every=every)
        for k in range(5):
            writer.write(k, make_episode(k))
            assert writer.done() == set(range(k + 1))
        assert len(list((tmp_path / name).rglob(".unsynced.*"))) == (name == "many")
        writer.finish()
        assert not list((tmp_path / name).rglob(".*"))
    assert tree(tmp_path / "one") == tree(tmp_path / "many")


GROUPED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_episodes_store import EpisodeWriter, make_episode, make_spec
writer = EpisodeWriter(Path(sys.argv[1]), make_spec(), sync_every=100)
for k in range(4):
    writer.write(k, make_episode(k))
os.kill(os.getpid(), signal.SIGKILL)
"""


def killed_in_a_group(root: Path) -> Path:
    subprocess.run([sys.executable, "-c", GROUPED, str(root), str(Path(__file__).parent)], check=False)
    (mark,) = (root / "meta").glob(".unsynced.*")
    return mark


def test_a_kill_in_a_group_loses_no_episode(tmp_path: Path) -> None:
    killed_in_a_group(tmp_path)
    writer = EpisodeWriter(tmp_path, make_spec())
    assert writer.done() == {0, 1, 2, 3}
    assert not list(tmp_path.rglob(".unsynced.*"))
    writer.finish()
    assert open_dataset(tmp_path).n_episodes == 4


SPOILS = [lambda data: b"", lambda data: data[: len(data) // 2], lambda data: data[:-200] + bytes(200)]
PLACES = [data_path, episodes_path, lambda k: video_path(k, "observation.images.front")]


@pytest.mark.parametrize(
    ("spoil", "place"),
    [
        pytest.param(s, p, marks=() if i == j else pytest.mark.slow)
        for i, s in enumerate(SPOILS)
        for j, p in enumerate(PLACES)
    ],
)
def test_after_a_crash_of_the_machine_spoiled_episodes_are_written_again(
    tmp_path: Path, spoil: Any, place: Any
) -> None:
    root = tmp_path / "killed"
    mark = killed_in_a_group(root)
    _, _, host, _, pid, end = mark.name.split(".")
    mark.rename(mark.with_name(f".unsynced.{host}.an-earlier-boot.{pid}.{end}"))
    victim = root / place(2)
    victim.write_bytes(spoil(victim.read_bytes()))
    writer = EpisodeWriter(root, make_spec())
    assert writer.done() == {0, 1, 3}
    assert not list(tmp_path.rglob(".unsynced.*"))
    writer.write(2, make_episode(2))
    fingerprint = writer.finish()
    for k in range(4):
        np.testing.assert_array_equal(open_dataset(root).episode(k).action, make_episode(k).action)
    straight = EpisodeWriter(tmp_path / "straight", make_spec())
    for k in range(4):
        straight.write(k, make_episode(k))
    assert straight.finish() == fingerprint


def test_the_mark_of_a_living_writer_or_of_another_machine_is_left_alone(tmp_path: Path) -> None:
    writer = EpisodeWriter(tmp_path, make_spec(), sync_every=100)
    writer.write(0, make_episode(0))
    (mine,) = (tmp_path / "meta").glob(".unsynced.*")
    far = mine.with_name(".unsynced.elsewhere.some-boot.1.00000000")
    far.touch()
    EpisodeWriter(tmp_path, make_spec())
    assert mine.exists()
    assert far.exists()
    os.utime(far, (0, 0))
    assert unsynced.doubt(tmp_path / "meta")[0] is unsynced.Doubt.CRASHED
    EpisodeWriter(tmp_path, make_spec())
    assert mine.exists()
    assert not far.exists()


def test_a_group_is_synced_when_it_is_full_or_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(unsynced, "sync_filesystem", synced.append)
    now = [0.0]
    group = unsynced.Group(tmp_path, 3, 10.0, clock=lambda: now[0])
    counts = []
    for seconds in (0.0, 1.0, 2.0, 3.0, 14.0, 15.0):
        now[0] = seconds
        group.begin()
        assert list(tmp_path.glob(".unsynced.*"))
        group.end()
        counts.append(len(synced))
    assert counts == [0, 0, 1, 1, 2, 2]
    group.settle()
    group.settle()
    assert len(synced) == 3
    assert not list(tmp_path.iterdir())


def test_numbers_are_overwritten_only_where_they_lie_as_we_left_them(tmp_path: Path) -> None:
    writer = EpisodeWriter(tmp_path, make_spec(()))
    writer.write(0, make_episode(0, 9, ()))
    path = tmp_path / data_path(0)
    before = pq.read_table(path)
    set_leading(path, {"index": np.arange(100, 109), "task_index": np.full(9, 7)})
    after = pq.read_table(path)
    assert after["index"].to_pylist() == list(range(100, 109))
    assert after["task_index"].to_pylist() == [7] * 9
    assert after.drop_columns(["index", "task_index"]).equals(before.drop_columns(["index", "task_index"]))
    pq.write_table(before, path)  # as another program would write it: compressed, with dictionaries
    with pytest.raises(DataError, match="does not begin with plain columns index, task_index"):
        set_leading(path, {"index": np.arange(9), "task_index": np.zeros(9, int)})
    assert pq.read_table(path).equals(before)


@settings(max_examples=8)
@given(lengths=st.lists(st.integers(1, 5), min_size=1, max_size=6), at_once=st.integers(1, 3))
def test_stored_statistics_do_not_depend_on_how_many_episodes_are_in_memory(
    lengths: list[int], at_once: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("pooled")
    episodes = [make_episode(k, n, ()) for k, n in enumerate(lengths)]
    writer = EpisodeWriter(root, make_spec(()))
    for k, episode in enumerate(episodes):
        writer.write(k, episode)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finish, "_BATCH", at_once)
        writer.finish()
    stats = json.loads((root / "meta" / "stats.json").read_text())
    n = sum(lengths)
    wanted = {
        "action": np.concatenate([e.action for e in episodes]),
        "age_s": np.concatenate([e.extras["age_s"] for e in episodes])[:, None],
        "is_clipped": np.concatenate([e.extras["is_clipped"] for e in episodes])[:, None],
        "index": np.arange(n)[:, None],
        "episode_index": np.repeat(np.arange(len(lengths)), lengths)[:, None],
    }
    for name, rows in wanted.items():
        found = exact_statistics(rows)
        for key, values in found.items():
            np.testing.assert_allclose(stats[name][key], values, rtol=1e-12, err_msg=f"{name} {key}")
