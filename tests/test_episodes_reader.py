"""Reading distrusts: every lie on disk is one clear error, and what is not ours has unknown units."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simgap.conventions import Unit
from simgap.episodes import frame_cache, frames
from simgap.episodes.formats.layout import data_path, episodes_path, expand, inside, video_path
from simgap.episodes.frames import CACHE, concatenate, load_frames
from simgap.episodes.reader import open_dataset
from simgap.episodes.statistics.exact import exact_statistics, image_histogram, image_statistics
from simgap.episodes.write.store import EpisodeWriter
from simgap.errors import ConventionError, DataError, MachineError
from simgap.provenance import file_hash, write_sealed
from test_episodes_store import make_episode, make_spec

VIDEO = "observation.images.front"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    writer = EpisodeWriter(tmp_path / "d", make_spec())
    for k in range(3):
        writer.write(k, make_episode(k, 6 + 3 * k))
    writer.finish()
    return tmp_path / "d"


def edit_info(root: Path, **changes: object) -> None:
    path = root / "meta" / "info.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


LIES: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty parquet": (lambda r: (r / data_path(1)).write_bytes(b""), "empty \\(0 bytes\\)"),
    "truncated parquet": (lambda r: _truncate(r / data_path(1)), "no readable Parquet"),
    "truncated index": (lambda r: _truncate(r / episodes_path(1)), "no readable Parquet"),
    "data gone": (lambda r: (r / data_path(1)).unlink(), "is missing"),
    "pointer": (
        lambda r: (r / data_path(1)).write_text(
            "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
        ),
        "Git LFS",
    ),
    "video pointer": (
        lambda r: (r / video_path(1, VIDEO)).write_text("version https://git-lfs.github.com/spec/v1\n"),
        "Git LFS",
    ),
    "path up": (
        lambda r: edit_info(r, data_path="../{chunk_index}/{file_index}.parquet"),
        "leaves the dataset folder",
    ),
    "absolute path": (
        lambda r: edit_info(r, data_path="/etc/{chunk_index}{file_index}"),
        "leaves the dataset folder",
    ),
    "format attack": (lambda r: edit_info(r, data_path="{chunk_index.__class__}"), "cannot be read"),
    "format bomb": (lambda r: edit_info(r, data_path="{chunk_index:0999999999d}"), "cannot be read"),
    "unknown version": (lambda r: edit_info(r, codebase_version="v9.9"), "codebase_version 'v9.9'"),
    "no rate": (lambda r: edit_info(r, fps=0), "fps 0"),
    "not json": (lambda r: (r / "meta" / "info.json").write_text("{"), "not JSON"),
    "unfinished": (lambda r: (r / "meta" / "info.json").unlink(), "unfinished"),
    "endless rate": (
        lambda r: (r / "meta" / "info.json").write_text(
            (r / "meta" / "info.json").read_text().replace('"total_frames": ', '"total_frames": 1e999, "x": ')
        ),
        "cannot be read",
    ),
    "a loop of links": (lambda r: _loop(r / data_path(1)), "leads nowhere|is missing"),
    "a path with NUL": (
        lambda r: edit_info(r, data_path="data/\0{chunk_index}{file_index}"),
        "leads nowhere",
    ),
    "no features": (lambda r: edit_info(r, features={}), "none of the features"),
}


def _read_all(root: Path) -> None:
    dataset = open_dataset(root)
    for k in range(dataset.n_episodes):
        dataset.episode(k)


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_on_disk_is_one_clear_line(root: Path, lie: str) -> None:
    plant, words = LIES[lie]
    plant(root)
    with pytest.raises(DataError, match=words) as error:
        _read_all(root)
    assert "\n" not in str(error.value)


def test_a_truncated_video_is_an_error_and_never_a_shorter_episode(root: Path) -> None:
    path = root / video_path(2, VIDEO)
    _truncate(path)
    with pytest.raises(DataError, match=path.name):
        open_dataset(root).episode(2)
    assert len(open_dataset(root).episode(2, images=False)) == 12


def test_a_link_out_of_the_folder_is_refused_but_not_into_a_hub_cache(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    home = tmp_path / "d"
    home.mkdir()
    (home / "data").symlink_to(tmp_path / "secret")
    with pytest.raises(DataError, match="leaves"):
        inside(home, "data")
    snapshot = tmp_path / "hub" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (tmp_path / "hub" / "blobs").mkdir()
    (tmp_path / "hub" / "blobs" / "f00").write_text("x")
    (snapshot / "data").symlink_to("../../blobs/f00")
    assert inside(snapshot, "data").read_text() == "x"


def test_templates_fill_known_fields_only() -> None:
    assert expand("a/{chunk_index:03d}/{video_key}", {"chunk_index": 7, "video_key": "cam"}) == "a/007/cam"
    with pytest.raises(DataError, match="asks for 'episode'"):
        expand("{episode}", {"chunk_index": 7})


def test_content_that_changed_after_finishing_is_noticed(root: Path) -> None:
    assert len(open_dataset(root).fingerprint) == 64
    table = pq.read_table(root / data_path(0))
    pq.write_table(table, root / data_path(0), compression="none")
    with pytest.raises(DataError, match="changed since it was finished"):
        _ = open_dataset(root).fingerprint


def test_what_is_not_ours_has_unknown_units(root: Path) -> None:
    (root / "meta" / "simgap.json").unlink()
    dataset = open_dataset(root)
    assert not dataset.is_ours
    assert {d.unit for d in dataset.spec.action_spec.dimensions} == {Unit.UNKNOWN}
    assert [d.name for d in dataset.spec.action_spec.dimensions if d.is_gripper] == ["gripper.pos"]
    assert dataset.spec.from_json(json.loads(json.dumps(dataset.spec.to_json()))) == dataset.spec
    assert load_frames(root).images["front"].shape == (6 + 9 + 12, 16, 24, 3)


def test_episodes_that_share_files_are_told_apart(root: Path) -> None:
    wanted = [open_dataset(root).episode(k, images=False) for k in range(3)]
    data = pa.concat_tables([pq.read_table(root / data_path(k)) for k in range(3)])
    rows = pa.concat_tables([pq.read_table(root / episodes_path(k)) for k in range(3)])
    rows = rows.set_column(rows.column_names.index("data/file_index"), "data/file_index", pa.array([0, 0, 0]))
    for k in (1, 2):
        (root / data_path(k)).unlink()
        (root / episodes_path(k)).unlink()
    pq.write_table(data, root / data_path(0), row_group_size=7)
    pq.write_table(rows, root / episodes_path(0))
    (root / "meta" / "simgap.json").unlink()
    dataset = open_dataset(root)
    for k in range(3):
        np.testing.assert_array_equal(dataset.episode(k).action, wanted[k].action)


def test_images_of_episodes_that_share_a_file_are_read_by_row_group(tmp_path: Path) -> None:
    writer = EpisodeWriter(tmp_path / "d", make_spec(codec="png"))
    for k in range(3):
        writer.write(k, make_episode(k, 6 + 3 * k))
    writer.finish()
    root = tmp_path / "d"
    wanted = [open_dataset(root).episode(k) for k in range(3)]
    data = pa.concat_tables([pq.read_table(root / data_path(k)) for k in (2, 0, 1)])
    rows = pa.concat_tables([pq.read_table(root / episodes_path(k)) for k in range(3)])
    rows = rows.set_column(rows.column_names.index("data/file_index"), "data/file_index", pa.array([0, 0, 0]))
    for k in (1, 2):
        (root / data_path(k)).unlink()
        (root / episodes_path(k)).unlink()
    pq.write_table(data, root / data_path(0), row_group_size=5)
    pq.write_table(rows, root / episodes_path(0))
    (root / "meta" / "simgap.json").unlink()
    dataset = open_dataset(root)
    for k in range(3):
        np.testing.assert_array_equal(dataset.episode(k).images["front"], wanted[k].images["front"])
    images = load_frames(root).images["front"]
    np.testing.assert_array_equal(images, np.concatenate([w.images["front"] for w in wanted]))


def test_frames_are_decoded_once_and_mapped_afterwards(root: Path) -> None:
    calls: list[tuple[int, int]] = []
    first = load_frames(root, progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (3, 3)
    assert first.n_episodes == 3
    dataset = open_dataset(root)
    for k in range(3):
        a, b = first.episode_start[k : k + 2]
        np.testing.assert_array_equal(first.images["front"][a:b], dataset.episode(k).images["front"])
        np.testing.assert_array_equal(first.action[a:b], dataset.episode(k).action)
    again = load_frames(root, progress=lambda done, total: pytest.fail("decoded twice"))
    assert isinstance(again.images["front"], np.memmap)
    np.testing.assert_array_equal(again.images["front"], first.images["front"])
    assert again.fingerprint == dataset.fingerprint


def test_a_spoiled_cache_is_made_again_and_an_old_one_removed(root: Path) -> None:
    load_frames(root)
    cached = next((root / CACHE).rglob("*.npy"))
    cached.write_bytes(b"half")
    assert load_frames(root).images["front"].shape == (27, 16, 24, 3)
    writer = EpisodeWriter(root, make_spec())
    writer.write(3, make_episode(3))
    writer.finish()
    assert len(load_frames(root)) == 27 + 12
    assert len(list((root / CACHE).iterdir())) == 1


def test_overwritten_pixels_of_a_cache_are_found_and_decoded_again(root: Path) -> None:
    honest = np.array(load_frames(root).images["front"])
    cached = next((root / CACHE).rglob("front.npy"))
    times = cached.stat()
    with cached.open("r+b") as stream:
        stream.seek(-100, 2)
        stream.write(b"\x77" * 100)
    os.utime(cached, ns=(times.st_atime_ns, times.st_mtime_ns))  # as somebody would who does not want it seen
    told: list[str] = []
    again = load_frames(root, said=told.append)
    np.testing.assert_array_equal(again.images["front"], honest)
    assert len(told) == 1
    assert "front.npy" in told[0]


def test_a_seal_that_was_rewritten_without_its_hash_is_not_believed(root: Path) -> None:
    honest = np.array(load_frames(root).images["front"])
    cached = next((root / CACHE).rglob("front.npy"))
    seal = next((root / CACHE).rglob("*.seal.json"))
    np.save(cached, np.zeros_like(honest))
    about = cached.stat()
    state = [about.st_size, about.st_ino, about.st_mtime_ns, about.st_ctime_ns]
    seal.write_text(json.dumps(json.loads(seal.read_text()) | {"state": state}))
    np.testing.assert_array_equal(load_frames(root).images["front"], honest)


def test_a_cache_that_came_with_a_dataset_from_elsewhere_is_not_believed_whatever_its_seal_says(
    root: Path, tmp_path: Path
) -> None:
    """Other pixels, and a seal that fits them where they were made: only a file that was decoded here has this inode and time."""
    honest = np.array(load_frames(root).images["front"])
    cached = next((root / CACHE).rglob("front.npy"))
    np.save(cached, np.zeros_like(honest))
    about = cached.stat()
    state = [about.st_size, about.st_ino, about.st_mtime_ns, about.st_ctime_ns]
    write_sealed(next((root / CACHE).rglob("*.seal.json")), {"state": state, "sha256": file_hash(cached)})
    assert not load_frames(root).images["front"].any(), "whoever forges it on this very disk is believed"
    shutil.copytree(root, tmp_path / "copy")
    told: list[str] = []
    np.testing.assert_array_equal(load_frames(tmp_path / "copy", said=told.append).images["front"], honest)
    assert "was not decoded here" in told[0]


def test_a_cache_that_leads_somewhere_else_is_neither_written_nor_cleared_and_a_pipe_in_it_is_not_waited_for(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "mine"))
    (tmp_path / "home" / "frames-of-my-holiday").mkdir(parents=True)
    (root / CACHE).symlink_to(tmp_path / "home")
    honest = load_frames(root).images["front"]
    assert [p.name for p in (tmp_path / "home").iterdir()] == ["frames-of-my-holiday"]
    cached = next((tmp_path / "mine").rglob("front.npy"))
    (root / CACHE).unlink()
    place = root / CACHE / cached.parent.name
    place.mkdir(parents=True)
    os.mkfifo(place / "front.npy")
    np.testing.assert_array_equal(load_frames(root).images["front"], honest)
    cached.unlink()
    (place / "front.npy").unlink()
    place.rmdir()
    place.symlink_to(tmp_path / "home")
    np.testing.assert_array_equal(load_frames(root).images["front"], honest)
    assert [p.name for p in (tmp_path / "home").iterdir()] == ["frames-of-my-holiday"]


@pytest.mark.parametrize("how", [os.link, os.symlink])
def test_finishing_numbers_no_file_that_is_somebody_elses_too(
    root: Path, tmp_path: Path, how: Callable[[Path, Path], None]
) -> None:
    """A copy by hard links, or a file that leads to another dataset: what is written in place would change that one."""
    other = tmp_path / "other"
    writer = EpisodeWriter(other, make_spec())
    writer.write(1, make_episode(1))
    own, theirs = (f / "data/chunk-000/file-001.parquet" for f in (other, root))
    before = theirs.read_bytes()
    own.unlink()
    how(theirs, own)
    row = other / "meta/episodes/chunk-000/file-001.parquet"
    row.unlink()
    how(root / "meta/episodes/chunk-000/file-001.parquet", row)
    writer.write(0, make_episode(3))
    writer.finish()
    assert theirs.read_bytes() == before
    assert own.read_bytes() != before
    assert open_dataset(root).fingerprint
    assert open_dataset(other).n_episodes == 2


def test_a_folder_that_cannot_be_written_caches_with_the_user(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "mine"))
    (root / CACHE).write_text("no folder can be made here, whoever asks")
    first = load_frames(root)
    assert isinstance(first.images["front"], np.memmap)
    assert list((tmp_path / "mine").rglob("front.npy"))
    again = load_frames(root, progress=lambda done, total: pytest.fail("decoded twice"))
    np.testing.assert_array_equal(again.images["front"], first.images["front"])


def test_where_no_cache_can_be_written_frames_stay_in_memory_if_they_fit(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "mine"))
    (root / CACHE).write_text("")
    images = load_frames(root).images["front"]
    assert not isinstance(images, np.memmap)
    np.testing.assert_array_equal(images[:6], open_dataset(root).episode(0).images["front"])
    monkeypatch.setattr(frame_cache, "_MOST_IN_MEMORY", 0.0)
    with pytest.raises(MachineError, match="XDG_CACHE_HOME"):
        load_frames(root)


@pytest.mark.parametrize("codec", ["h264", "png"])
@pytest.mark.parametrize("in_flight", [1, 5 * 16 * 24 * 3, 1 << 28])
def test_long_episodes_are_decoded_in_blocks_and_short_ones_ahead(
    codec: str, in_flight: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = EpisodeWriter(tmp_path / "d", make_spec(codec=codec))
    for k in range(3):
        writer.write(k, make_episode(k, 23 + k))
    writer.finish()
    wanted = np.concatenate([open_dataset(tmp_path / "d").episode(k).images["front"] for k in range(3)])
    monkeypatch.setattr(frames, "IN_FLIGHT_BYTES", in_flight)
    calls: list[tuple[int, int]] = []
    table = load_frames(tmp_path / "d", progress=lambda done, total: calls.append((done, total)))
    np.testing.assert_array_equal(table.images["front"], wanted)
    assert calls == [(1, 3), (2, 3), (3, 3)]


@settings(max_examples=20)
@given(start=st.integers(0, 44), count=st.integers(1, 45), codec=st.sampled_from(["h264", "png"]))
def test_frames_can_be_decoded_from_anywhere(
    start: int, count: int, codec: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = tmp_path_factory.getbasetemp() / f"anywhere-{codec}"
    if not home.exists():
        writer = EpisodeWriter(home, make_spec(codec=codec))
        writer.write(0, make_episode(0, 45))
        writer.finish()
    dataset = open_dataset(home)
    whole = dataset.episode(0).images["front"]
    part = np.empty((min(count, 45 - start), 16, 24, 3), dtype=np.uint8)
    dataset.decode(0, "front", part, start=start)
    np.testing.assert_array_equal(part, whole[start : start + len(part)])


def test_cameras_can_be_chosen_and_unknown_ones_are_named(root: Path) -> None:
    assert load_frames(root, cameras=()).images == {}
    with pytest.raises(DataError, match="side"):
        load_frames(root, cameras=("side",))


def test_tables_join_only_under_one_convention(root: Path, tmp_path: Path) -> None:
    table = load_frames(root)
    both = concatenate([table, table])
    assert len(both) == 2 * len(table)
    assert both.n_episodes == 6
    np.testing.assert_array_equal(both.episode_start[3:], table.episode_start + len(table))
    assert both.fingerprint != table.fingerprint == concatenate([table]).fingerprint
    (root / "meta" / "simgap.json").unlink()
    with pytest.raises(ConventionError, match="convert explicitly"):
        concatenate([table, load_frames(root)])


def test_statistics_of_nothing_are_a_count_alone() -> None:
    assert exact_statistics(np.zeros((0, 3))) == {"count": [0]}
    assert image_statistics(np.zeros((3, 256), np.int64), 0) == {"count": [0]}


def test_statistics_of_images_equal_those_of_the_pixels() -> None:
    frames = np.random.default_rng(0).integers(0, 256, (3, 5, 7, 3)).astype(np.uint8)
    seen = image_statistics(image_histogram(frames), 3)
    wanted = exact_statistics(frames.reshape(-1, 3) / 255.0)
    for name in ("min", "max", "mean", "std", "q01", "q10", "q50", "q90", "q99"):
        np.testing.assert_allclose(np.reshape(seen[name], -1), wanted[name], rtol=1e-12)


@pytest.mark.parametrize("codec", ["h264", "av1"])
def test_videos_can_be_joined_by_other_tools_as_the_container_demands(codec: str, tmp_path: Path) -> None:
    import av

    writer = EpisodeWriter(tmp_path / "d", make_spec(codec=codec, image_size=(64, 96)))
    for k in range(2):
        shade = np.random.default_rng(k).integers(0, 255, (12, 8, 12, 3), dtype=np.uint8)
        writer.write(k, make_episode(k, images={"front": shade.repeat(8, axis=1).repeat(8, axis=2)}))
    writer.finish()
    paths = [tmp_path / "d" / video_path(k, VIDEO) for k in range(2)]
    if codec == "h264":
        for path in paths:
            with av.open(str(path)) as container:
                first = bytes(next(container.demux(video=0)))
            assert int.from_bytes(first[:4], "big") + 4 <= len(first) < 1 << 24, (
                "a NAL unit in MP4 begins with its length"
            )
            assert first[:4] != b"\0\0\0\1"
    listed = tmp_path / "list.ffconcat"
    listed.write_text("ffconcat version 1.0\n" + "".join(f"file '{path}'\n" for path in paths))
    with av.open(str(listed), format="concat", options={"safe": "0"}) as container:
        assert sum(1 for packet in container.demux() if packet.size) == 24


def test_an_episode_whose_vectors_have_another_width_than_the_dataset_is_named(root: Path) -> None:
    (root / "meta" / "simgap.json").unlink()
    file = root / data_path(1)
    table = pq.read_table(file)
    at = table.column_names.index("observation.state")
    narrow = pa.array(
        [row[:1] for row in table["observation.state"].to_pylist()], type=pa.list_(pa.float32())
    )
    pq.write_table(table.set_column(at, "observation.state", narrow), file)
    dataset = open_dataset(root)
    assert len(dataset.episode(0).state)
    with pytest.raises(DataError, match=r"states of 1 numbers in episode 1, the dataset says"):
        dataset.episode(1)


def test_a_recorded_camera_that_info_json_does_not_list_is_named(root: Path) -> None:
    file = root / "meta" / "info.json"
    info = json.loads(file.read_text())
    info["features"]["observation.images.front"]["dtype"] = None
    file.write_text(json.dumps(info))
    with pytest.raises(DataError, match="no pictures or videos of camera 'front'"):
        load_frames(root)
