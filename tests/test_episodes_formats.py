"""Other people's formats come in through the one door: LeRobot v2.0, donkeycar tubs, keys nobody standardised; and what is no dataset says what it is."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from format_builders import HEIGHT, WIDTH, write_tub
from simgap.checks.data.dataset import check_data, describe_data
from simgap.conventions import Unit
from simgap.episodes.formats.keymap import KeyMap, keymap_path, parse_pairs, read_keymap
from simgap.episodes.formats.layout import KEYMAP_JSON
from simgap.episodes.frames import load_frames
from simgap.episodes.reader import open_dataset
from simgap.episodes.write.store import EpisodeWriter
from simgap.errors import DataError, UsageError
from test_data_check_layouts import write_21
from test_episodes_store import make_episode, make_spec

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


def real(name: str) -> Path:
    if not (SHARED / name).is_dir():
        pytest.skip(f"the recordings are not here: {SHARED / name} is missing")
    return SHARED / name


# --- LeRobot v2.0 ----------------------------------------------------------------------------------------------------


def test_version_two_zero_is_read_like_two_one(tmp_path: Path) -> None:
    older, newer = write_21(tmp_path / "old", codebase_version="v2.0"), write_21(tmp_path / "new")
    a, b = open_dataset(older), open_dataset(newer)
    assert (a.info.version, a.n_episodes, a.n_frames) == ("v2.0", b.n_episodes, b.n_frames)
    for k in range(a.n_episodes):
        np.testing.assert_array_equal(a.episode(k).action, b.episode(k).action)
        np.testing.assert_array_equal(a.episode(k).state, b.episode(k).state)
    assert check_data(older).codes() == check_data(newer).codes(), (
        "neither has statistics here, and both say so"
    )
    assert "missing_statistics" in check_data(older).codes()


# --- donkeycar -------------------------------------------------------------------------------------------------------


def test_sessions_are_episodes_and_a_deleted_stretch_ends_one(tmp_path: Path) -> None:
    numbers, frames = write_tub(tmp_path / "t", [("a", 12), ("b", 8)], deleted=[4, 5])
    dataset = open_dataset(tmp_path / "t")
    rows = [range(4), range(6, 12), range(12, 20)]
    assert [e.length for e in dataset.entries] == [len(r) for r in rows]
    assert [e.extra["session"] for e in dataset.entries] == ["a", "a", "b"]
    assert dataset.spec.action_spec.names == ("steering.pos", "throttle.vel")
    assert {d.unit for d in dataset.spec.action_spec.dimensions} == {Unit.NORMALISED}
    for k, wanted in enumerate(rows):
        episode = dataset.episode(k)
        np.testing.assert_allclose(episode.action, numbers[wanted], rtol=1e-6)
        np.testing.assert_allclose(episode.time_s, 0.05 * np.arange(len(wanted)), atol=1e-9)
        assert episode.state.shape == (
            len(wanted),
            0,
        ), "a tub measures nothing of the car, and nothing is made up"
        assert np.abs(episode.images["cam"].astype(int) - frames[wanted]).max() <= 3, "red stays red"
    assert dataset.info.rate_hz == 20.0


def test_the_frames_of_a_tub_are_decoded_once(tmp_path: Path) -> None:
    write_tub(tmp_path / "t")
    first = load_frames(tmp_path / "t")
    again = load_frames(tmp_path / "t", progress=lambda done, total: pytest.fail("decoded twice"))
    assert isinstance(again.images["cam"], np.memmap)
    np.testing.assert_array_equal(first.images["cam"], again.images["cam"])
    assert first.images["cam"].shape == (20, HEIGHT, WIDTH, 3)


def test_a_deleted_record_and_a_changed_image_make_another_fingerprint(tmp_path: Path) -> None:
    write_tub(tmp_path / "t")
    before = open_dataset(tmp_path / "t").fingerprint
    load_frames(tmp_path / "t")
    assert open_dataset(tmp_path / "t").fingerprint == before, "the cache is no content"
    manifest = tmp_path / "t" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"deleted_indexes": []', '"deleted_indexes": [3]'))
    shorter = open_dataset(tmp_path / "t").fingerprint
    image = tmp_path / "t" / "images" / "0_cam_image_array_.jpg"
    image.write_bytes(image.read_bytes() + b"\0")
    assert len({before, shorter, open_dataset(tmp_path / "t").fingerprint}) == 3


def test_telemetry_becomes_the_state_only_when_the_map_says_so(tmp_path: Path) -> None:
    speed = [0.1 * k for k in range(20)]
    write_tub(tmp_path / "t", speed=speed)
    assert "speed" in open_dataset(tmp_path / "t").episode(0).extras
    dataset = open_dataset(
        tmp_path / "t", KeyMap(keys=(("speed", "state"),), dimensions={"speed": {"unit": "m/s"}})
    )
    np.testing.assert_allclose(dataset.episode(0).state[:, 0], speed[:12], rtol=1e-6)
    assert not dataset.episode(0).extras
    assert dataset.spec.state_spec.dimensions[0].unit == "m/s"


def test_two_steering_keys_are_not_chosen_between(tmp_path: Path) -> None:
    write_tub(tmp_path / "t", inputs=("user/angle", "user/steering", "user/throttle"))
    with pytest.raises(
        UsageError,
        match=(
            r"user/angle \(varies.*user/steering \(varies.*--map user/\w+=action --map user/throttle=action"
        ),
    ):
        open_dataset(tmp_path / "t")
    dataset = open_dataset(
        tmp_path / "t", KeyMap(keys=(("user/steering", "action"), ("user/throttle", "action")))
    )
    write_tub(tmp_path / "u", inputs=("user/steering", "user/throttle"), **{"user/angle": [0.0] * 20})
    with pytest.raises(
        UsageError, match=r"user/angle \(constant\).*--map user/steering=action --map user/throttle=action"
    ):
        open_dataset(tmp_path / "u")
    assert dataset.spec.action_spec.names == ("steering.pos", "throttle.vel")
    assert "user/angle" in dataset.episode(0).extras


TUB_FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "no image": (
        lambda r: (r / "images" / "2_cam_image_array_.jpg").unlink(),
        "2_cam_image_array_.jpg is missing",
    ),
    "broken image": (lambda r: (r / "images" / "2_cam_image_array_.jpg").write_bytes(b"x" * 40), "no image"),
    "image elsewhere": (
        lambda r: _replace(r / "catalog_0.catalog", '"2_cam', '"../../2_cam'),
        "expected a file name",
    ),
    "catalog elsewhere": (
        lambda r: _replace(r / "manifest.json", '"catalog_0', '"../catalog_0'),
        "leaves the dataset folder",
    ),
    "catalog gone": (lambda r: (r / "catalog_1.catalog").unlink(), "catalog_1.catalog is missing"),
    "line cut": (
        lambda r: (r / "catalog_0.catalog").write_text((r / "catalog_0.catalog").read_text()[:-30]),
        "line 9",
    ),
    "no number": (
        lambda r: _replace(r / "catalog_0.catalog", '"user/angle": ', '"user/angle": "left", "x": '),
        "no number for 'user/angle'",
    ),
    "manifest cut": (lambda r: (r / "manifest.json").write_text("[]\n[]\n"), "no manifest of a tub"),
    "all deleted": (
        lambda r: _replace(
            r / "manifest.json", '"deleted_indexes": []', f'"deleted_indexes": {list(range(20))}'
        ),
        "no record",
    ),
}


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize("fault", TUB_FAULTS)
def test_a_damaged_tub_is_one_line_that_names_the_file(fault: str, tmp_path: Path) -> None:
    write_tub(tmp_path / "t")
    plant, words = TUB_FAULTS[fault]
    plant(tmp_path / "t")
    with pytest.raises(DataError, match=re.escape(words)) as error:
        open_dataset(tmp_path / "t").episode(0)
    assert "\n" not in str(error.value)


def test_stamps_of_a_conversion_are_told_from_those_of_a_drive(tmp_path: Path) -> None:
    write_tub(tmp_path / "t", step_ms=3)
    dataset = open_dataset(tmp_path / "t")
    assert dataset.info.rate_hz == 20.0
    assert any("stamped when the tub was written" in note for note in dataset.notes)
    assert {"rate_mismatch", "assumed_by_reader"} <= check_data(dataset).codes()
    assert "rate_mismatch" not in check_data(_driven(tmp_path / "u")).codes()


def _driven(root: Path) -> Path:
    write_tub(root)
    return root


@settings(max_examples=15)
@given(lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4), data=st.data())
def test_no_episode_of_a_tub_jumps_over_a_record(
    lengths: list[int], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    total = sum(lengths)
    deleted = data.draw(st.lists(st.integers(0, total - 1), unique=True, max_size=total - 1))
    root = tmp_path_factory.mktemp("tubs") / "t"
    numbers, _ = write_tub(root, [(f"s{k}", n) for k, n in enumerate(lengths)], deleted=deleted)
    dataset = open_dataset(root)
    kept = [k for k in range(total) if k not in deleted]
    read = [dataset.episode(e.index, images=False) for e in dataset.entries]
    np.testing.assert_allclose(np.concatenate([e.action for e in read]), numbers[kept], rtol=1e-6)
    for entry, episode in zip(dataset.entries, read, strict=True):
        assert entry.extra["last_record"] - entry.extra["first_record"] + 1 == entry.length
        np.testing.assert_allclose(np.diff(episode.time_s), 0.05, atol=1e-9)


# --- keys ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """A LeRobot dataset of two cameras whose keys are not LeRobot's."""
    writer = EpisodeWriter(tmp_path / "d", make_spec(("left", "right"), "png"))
    for k in range(2):
        writer.write(k, make_episode(k, cameras=("left", "right")))
    writer.finish()
    root = tmp_path / "d"
    (root / "meta" / "simgap.json").unlink()
    renames = {
        "action": "cmd",
        "observation.state": "joints",
        "observation.images.left": "rgb_l",
        "observation.images.right": "rgb_r",
    }
    info = json.loads((root / "meta" / "info.json").read_text())
    info["features"] = {renames.get(k, k): v for k, v in info["features"].items()}
    (root / "meta" / "info.json").write_text(json.dumps(info))
    for path in (root / "data").rglob("*.parquet"):
        table = pq.read_table(path)
        pq.write_table(table.rename_columns([renames.get(n, n) for n in table.column_names]), path)
    return root


MAP = KeyMap(
    keys=(("cmd", "action"), ("joints", "observation.state"), ("rgb_l", "front"), ("rgb_r", "ignore"))
)


def test_a_map_says_what_odd_keys_are(odd: Path) -> None:
    dataset = open_dataset(odd, MAP)
    wanted = make_episode(1, cameras=("left", "right"))
    episode = dataset.episode(1)
    np.testing.assert_array_equal(episode.action, wanted.action)
    np.testing.assert_array_equal(episode.state, wanted.state)
    assert list(episode.images) == ["front"]
    np.testing.assert_array_equal(episode.images["front"], wanted.images["left"])
    np.testing.assert_array_equal(load_frames(odd, keymap=MAP).images["front"][12:], wanted.images["left"])
    assert (
        dataset.fingerprint != open_dataset(odd, MAP.merged(KeyMap(keys=(("rgb_r", "wrist"),)))).fingerprint
    )


def test_a_map_beside_the_data_is_found_and_overruled(odd: Path) -> None:
    (odd / KEYMAP_JSON).write_text(json.dumps(MAP.to_json()))
    assert list(open_dataset(odd).camera_keys) == ["front"]
    assert list(open_dataset(odd, KeyMap(keys=(("rgb_l", "top"),))).camera_keys) == ["top"]
    assert "extra_files" not in check_data(odd).codes()
    assert describe_data(odd)["cameras"] == {"front": "rgb_l"}
    assert read_keymap(keymap_path(odd)) == MAP


REFUSED: dict[str, tuple[KeyMap, str]] = {
    "nothing said": (KeyMap(), r'none of the features .*"cmd".*--map KEY=action'),
    "no such key": (KeyMap(keys=(("cmdd", "action"),)), "no key 'cmdd'.*did you mean 'cmd'"),
    "no state": (KeyMap(keys=(("cmd", "action"),)), "--map none=state"),
    "state and none": (
        KeyMap(keys=(("cmd", "action"), ("joints", "state"), ("none", "state"))),
        "keep one of the two",
    ),
    "two of one name": (
        KeyMap(keys=(*MAP.keys[:2], ("rgb_l", "front"), ("rgb_r", "front"))),
        "would both be camera 'front'",
    ),
    "a default name": (KeyMap(keys=(*MAP.keys[:2], ("rgb_l", "rgb_r"))), "would both be camera 'rgb_r'"),
    "numbers as camera": (
        KeyMap(keys=(*MAP.keys[:2], ("age_s", "side"))),
        "'side' would be a camera.*float64",
    ),
    "camera as numbers": (KeyMap(keys=(("rgb_l", "action"), ("joints", "state"))), "'rgb_l' is image"),
    "two clocks": (
        KeyMap(keys=(*MAP.keys[:2], ("age_s", "time"), ("time_s", "time"))),
        "one key can be the time",
    ),
    "no such dimension": (
        MAP.merged(KeyMap(dimensions={"state:elbow_flex": {"unit": "deg"}})),
        "'state:elbow_flex' means no dimension; did you mean 'elbow_flex.pos'",
    ),
    "no such vector": (MAP.merged(KeyMap(dimensions={"actions:*": {"unit": "deg"}})), "write action:"),
    "no such unit": (MAP.merged(KeyMap(dimensions={"*": {"unit": "degrees"}})), "units are deg, rad"),
    "too few names": (MAP.merged(KeyMap(names={"action": ("a", "b")})), "2 action names were given for 6"),
    "no such camera": (
        MAP.merged(KeyMap(images={"fornt": ("bgr",)})),
        "no camera 'fornt'; did you mean 'front'",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_open_question_is_asked_and_not_guessed(case: str, odd: Path) -> None:
    keymap, words = REFUSED[case]
    with pytest.raises((UsageError, DataError), match=words):
        open_dataset(odd, keymap)


def test_units_names_and_colours_can_be_stated(odd: Path) -> None:
    stated = KeyMap(
        names={"action": ("a", "b", "c", "d", "e", "gripper")},
        dimensions={"*": {"unit": "rad"}, "action:gripper": {"unit": "percent", "low": 0, "high": 100}},
        images={"front": ("bgr", "rotate_180")},
    )
    dataset = open_dataset(odd, MAP.merged(stated))
    units = [d.unit for d in dataset.spec.action_spec.dimensions]
    assert units == [Unit.RAD] * 5 + [Unit.PERCENT]
    assert dataset.spec.action_spec.dimensions[5].is_gripper
    assert {d.unit for d in dataset.spec.state_spec.dimensions} == {Unit.RAD}
    plain = open_dataset(odd, MAP).episode(0).images["front"]
    np.testing.assert_array_equal(dataset.episode(0).images["front"], plain[:, ::-1, ::-1, ::-1])


def test_several_keys_make_one_vector(odd: Path) -> None:
    dataset = open_dataset(odd, MAP.merged(KeyMap(keys=(("age_s", "state"), ("is_clipped", "state")))))
    episode, wanted = dataset.episode(0), make_episode(0, cameras=("left", "right"))
    assert dataset.spec.state_spec.names[-2:] == ("age_s", "is_clipped")
    np.testing.assert_array_equal(episode.state[:, :6], wanted.state)
    np.testing.assert_allclose(episode.state[:, 6], wanted.extras["age_s"], rtol=1e-6)
    assert set(episode.extras) == {"executed"}
    assert "missing_columns" not in check_data(dataset).codes()


def test_names_and_units_may_change_without_decoding_again(odd: Path) -> None:
    before = load_frames(odd, keymap=MAP)
    renamed = MAP.merged(KeyMap(keys=(("rgb_l", "top"),), dimensions={"*": {"unit": "rad"}}))
    after = load_frames(odd, keymap=renamed, progress=lambda done, total: pytest.fail("decoded twice"))
    np.testing.assert_array_equal(after.images["top"], before.images["front"])
    assert after.fingerprint != before.fingerprint, "another meaning is another dataset"
    turned = load_frames(odd, keymap=MAP.merged(KeyMap(images={"front": ("bgr",)})))
    np.testing.assert_array_equal(turned.images["front"], before.images["front"][..., ::-1])


def test_a_rate_that_contradicts_the_file_is_refused(odd: Path) -> None:
    assert open_dataset(odd, MAP.merged(KeyMap(rate_hz=20))).info.rate_hz == 20.0
    with pytest.raises(UsageError, match="declares 20 fps"):
        open_dataset(odd, MAP.merged(KeyMap(rate_hz=18.5)))


def test_ours_is_not_overruled_by_a_map(tmp_path: Path) -> None:
    writer = EpisodeWriter(tmp_path / "d", make_spec())
    writer.write(0, make_episode(0))
    writer.finish()
    with pytest.raises(UsageError, match="states its own convention"):
        open_dataset(tmp_path / "d", KeyMap(rate_hz=30))


def test_a_map_file_with_a_typing_error_says_what_it_means(tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    path.write_text('{"kyes": {}}')
    with pytest.raises(UsageError, match="'kyes'; did you mean 'keys'"):
        read_keymap(path)
    path.write_text('{"keys": {"a": "b"}, "images": {"b": "grb"}}')
    with pytest.raises(UsageError, match="did you mean 'rgb'"):
        read_keymap(path)
    with pytest.raises(UsageError, match="not KEY=VALUE"):
        parse_pairs(["front"], what="--map", example="image=front")


_WORDS = st.text(
    st.characters(codec="utf-8", exclude_characters="=:", exclude_categories=("Cs",)), min_size=1, max_size=8
)


@given(
    keys=st.dictionaries(_WORDS, _WORDS, max_size=4),
    rate=st.none() | st.floats(0.1, 1000),
    task=st.text(max_size=5),
    names=st.dictionaries(
        st.sampled_from(["action", "state"]), st.lists(_WORDS, min_size=1, max_size=3, unique=True).map(tuple)
    ),
    images=st.dictionaries(
        _WORDS,
        st.lists(st.sampled_from(["bgr", "rotate_180"]), min_size=1, max_size=2).map(tuple),
        max_size=2,
    ),
)
def test_a_map_survives_its_file(
    keys: dict[str, str],
    rate: float | None,
    task: str,
    names: dict[str, tuple[str, ...]],
    images: dict[str, tuple[str, ...]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    keymap = KeyMap(
        keys=tuple(keys.items()),
        rate_hz=rate,
        task=task,
        names=names,
        images=images,
        dimensions={"*": {"unit": "deg"}},
    )
    path = tmp_path_factory.mktemp("maps") / "m.json"
    path.write_text(json.dumps(keymap.to_json()))
    assert read_keymap(path) == keymap


# --- what is no dataset ----------------------------------------------------------------------------------------------


def _touch(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("{}" if name.endswith(".json") else "a,b\n1,2\n")


OTHERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "nothing": (lambda r: None, "it is empty"),
    "a policy": (lambda r: _touch(r, "config.json", "model.safetensors"), "trained policy"),
    "our checkpoint": (lambda r: _touch(r, "card.json", "weights.safetensors"), "simgap screen"),
    "statistics": (
        lambda r: (r / "norm_stats.json").write_text('{"norm_stats": {"state": {"mean": [0], "std": [1]}}}'),
        "statistics of data",
    ),
    "actuator logs": (lambda r: _touch(r, "m/control.csv", "m/state_motor.csv"), "1 actuator logs"),
    "trials": (lambda r: _touch(r, "trials.csv"), "tables of trials or results"),
    "zarr": (lambda r: _touch(r, ".zgroup", "data"), "Zarr store"),
    "rlds": (lambda r: _touch(r, "dataset_info.json", "x.tfrecord-00000-of-00001"), "RLDS"),
    "a bag": (lambda r: _touch(r, "drive.mcap"), "ROS bag"),
    "an old tub": (lambda r: _touch(r, "meta.json", "record_1.json"), "version 1"),
    "half a dataset": (lambda r: _touch(r, "data/x.parquet", "videos/x.mp4"), "no meta/info.json"),
    "one level up": (lambda r: write_tub(r / "inner"), "give .*inner"),
    "pictures": (lambda r: _touch(r, "1.png"), "holds no episodes"),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_what_is_no_dataset_says_what_it_is(kind: str, tmp_path: Path) -> None:
    build, words = OTHERS[kind]
    build(tmp_path)
    with pytest.raises(DataError, match=words) as error:
        open_dataset(tmp_path)
    assert "\n" not in str(error.value)


def test_a_file_is_told_from_a_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        open_dataset(tmp_path / "x")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="give the folder"):
        open_dataset(tmp_path / "a.parquet")


def test_every_real_folder_opens_or_says_in_one_line_where_it_belongs() -> None:
    if not SHARED.is_dir():
        pytest.skip(f"the recordings are not here: {SHARED} is missing")
    opened, refused = {}, {}
    for folder in sorted(p for p in SHARED.iterdir() if p.is_dir()):
        try:
            opened[folder.name] = open_dataset(folder).info.version
        except DataError as error:
            refused[folder.name] = str(error)
    assert set(opened) == {
        "lerobot_dualarm_hands_open50_v30",
        "lerobot_so101_bimanual_cloth_v21",
        "lerobot_so101_record_test_v30",
    }
    for name, line in refused.items():
        assert "\n" not in line
        assert re.search(r"simgap data check|git lfs pull|give .*tub", line), name


@pytest.mark.slow
def test_the_real_tub_opens_whole() -> None:
    dataset = open_dataset(real("donkeycar_tub_official_test") / "tub")
    assert (dataset.n_episodes, dataset.n_frames, dataset.frame_shape("cam")) == (1, 1000, (120, 160, 3))
    episode = dataset.episode(0, images=False)
    assert episode.action[:, 0].min() == pytest.approx(-0.857, abs=1e-3)
    assert episode.action[:, 1].max() == pytest.approx(0.804, abs=1e-3)
    frames = np.empty((3, 120, 160, 3), dtype=np.uint8)
    dataset.decode(0, "cam", frames, start=400)
    assert frames[:, 60:].mean() > 20
    assert "rate_mismatch" in check_data(dataset).codes(), "1000 records in 3 s are no drive"
