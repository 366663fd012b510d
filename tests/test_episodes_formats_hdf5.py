"""HDF5 episodes of ACT and robomimic: values, colours, order, rate, and files that are damaged or reach outside."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from format_builders import CONTROLLER, write_act, write_robomimic
from simgap.checks.data.dataset import check_data
from simgap.conventions import Reference, Unit
from simgap.episodes.formats.keymap import KeyMap
from simgap.episodes.frames import load_frames
from simgap.episodes.reader import open_dataset
from simgap.errors import DataError, MachineError

h5py = pytest.importorskip("h5py", reason="h5py is not installed: pip install 'simgap[hdf5]'")
ALOHA = KeyMap(rate_hz=50.0)


@pytest.mark.parametrize("compressed", [False, True])
def test_act_files_are_episodes_in_the_order_of_their_numbers(compressed: bool, tmp_path: Path) -> None:
    made = {
        k: write_act(tmp_path / f"episode_{k}.hdf5", seed=k, length=5 + k, compressed=compressed)
        for k in (10, 9, 2)
    }
    dataset = open_dataset(tmp_path, ALOHA)
    assert [e.data.name for e in dataset.entries] == ["episode_2.hdf5", "episode_9.hdf5", "episode_10.hdf5"]
    assert dataset.spec.cameras == ("cam_high", "cam_low")
    for index, k in enumerate((2, 9, 10)):
        episode = dataset.episode(index)
        np.testing.assert_array_equal(episode.action, made[k]["action"])
        np.testing.assert_array_equal(episode.state, made[k]["qpos"])
        np.testing.assert_array_equal(episode.extras["observations/qvel"], made[k]["qvel"])
        for camera, frames in made[k]["images"].items():
            assert np.abs(episode.images[camera].astype(int) - frames).max() <= (3 if compressed else 0)
    assert any("colour order" in note for note in dataset.notes) == compressed


def test_compressed_frames_of_a_recorder_that_swapped_colours_are_turned_back(tmp_path: Path) -> None:
    made = write_act(tmp_path / "episode_0.hdf5", compressed=True)
    dataset = open_dataset(tmp_path, ALOHA.merged(KeyMap(images={"cam_high": ("bgr",), "cam_low": ("rgb",)})))
    assert not dataset.notes, "what was stated needs no note"
    episode = dataset.episode(0)
    assert np.abs(episode.images["cam_high"].astype(int) - made["images"]["cam_high"][..., ::-1]).max() <= 3
    assert np.abs(episode.images["cam_low"].astype(int) - made["images"]["cam_low"]).max() <= 3


def test_a_file_that_states_no_rate_is_asked_for_it(tmp_path: Path) -> None:
    write_act(tmp_path / "episode_0.hdf5")
    with pytest.raises(DataError, match="--rate-hz"):
        open_dataset(tmp_path)
    with h5py.File(tmp_path / "episode_0.hdf5", "a") as file:
        file.attrs["fps"] = 30
    assert open_dataset(tmp_path).info.rate_hz == 30.0


def test_robomimic_demonstrations_keep_number_subset_task_and_stated_convention(tmp_path: Path) -> None:
    made = write_robomimic(tmp_path / "demo.hdf5")
    dataset = open_dataset(tmp_path / "demo.hdf5")
    assert dataset.info.rate_hz == 20.0
    assert [e.extra["group"] for e in dataset.entries] == [f"demo.hdf5:data/demo_{k}" for k in (9, 10, 11)]
    assert [e.extra["masks"] for e in dataset.entries] == ["train", "train", "valid"]
    for index, demo in enumerate(made):
        episode = dataset.episode(index)
        np.testing.assert_array_equal(episode.action, demo["actions"].astype(np.float32))
        state = np.concatenate([demo["eef_pos"], demo["eef_quat"], demo["gripper_qpos"]], axis=1)
        np.testing.assert_array_equal(episode.state, state.astype(np.float32))
        np.testing.assert_array_equal(episode.images["agentview"], demo["images"]["agentview"])
        assert episode.task == "Lift"
    first, last = dataset.spec.action_spec.dimensions[0], dataset.spec.action_spec.dimensions[-1]
    assert (first.unit, first.reference) == (Unit.NORMALISED, Reference.DELTA)
    assert (last.is_gripper, last.opens_high, last.reference) == (True, False, Reference.ABSOLUTE)
    assert "next_obs/robot0_eef_pos" not in dataset.columns(0)


def test_a_controller_that_is_not_understood_leaves_the_units_unknown(tmp_path: Path) -> None:
    write_robomimic(tmp_path / "a.hdf5", controller=CONTROLLER | {"type": "JOINT_VELOCITY"})
    assert {d.unit for d in open_dataset(tmp_path / "a.hdf5").spec.action_spec.dimensions} == {Unit.UNKNOWN}


def test_the_frame_cache_and_the_checks_work_on_files(tmp_path: Path) -> None:
    made = write_robomimic(tmp_path / "demo.hdf5")
    table = load_frames(tmp_path / "demo.hdf5")
    np.testing.assert_array_equal(
        table.images["agentview"], np.concatenate([d["images"]["agentview"] for d in made])
    )
    load_frames(tmp_path / "demo.hdf5", progress=lambda done, total: pytest.fail("decoded twice"))
    fingerprint = open_dataset(tmp_path / "demo.hdf5").fingerprint
    with h5py.File(tmp_path / "demo.hdf5", "a") as file:
        file["data/demo_9/actions"][0, 0] = 0.25
    assert open_dataset(tmp_path / "demo.hdf5").fingerprint != fingerprint
    assert check_data(tmp_path / "demo.hdf5").counts["frames_found"] == 23


def test_a_state_is_built_from_the_keys_the_map_names(tmp_path: Path) -> None:
    made = write_robomimic(tmp_path / "demo.hdf5")
    keys = (
        ("obs/robot0_gripper_qpos", "state"),
        ("obs/robot0_eef_pos", "state"),
        ("obs/agentview_image", "front"),
    )
    dataset = open_dataset(tmp_path / "demo.hdf5", KeyMap(keys=keys))
    np.testing.assert_array_equal(
        dataset.episode(0).state,
        np.concatenate([made[0]["gripper_qpos"], made[0]["eef_pos"]], axis=1).astype(np.float32),
    )
    assert dataset.spec.state_spec.names[:3] == (
        "robot0_gripper_qpos_0",
        "robot0_gripper_qpos_1",
        "robot0_eef_pos_0",
    )
    assert dataset.spec.cameras == ("front",)


def test_a_layout_of_ones_own_is_read_by_a_map(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arms, images = (
        rng.normal(size=(2, 3, 8, 7)).astype(np.float32),
        rng.integers(0, 255, (3, 8, 16, 24, 3), dtype=np.uint8),
    )
    for k in range(3):
        with h5py.File(tmp_path / f"take{k}.h5", "w") as file:
            file["qaction/left"], file["qpos/left"] = arms[0, k], arms[1, k]
            file["sensors/eye"] = np.moveaxis(images[k], -1, 1)  # channel first
            file["sensors/depth"] = np.zeros((8, 16, 24), np.uint16)
    with pytest.raises(DataError, match="--map KEY=action"):
        open_dataset(tmp_path)
    dataset = open_dataset(
        tmp_path,
        KeyMap(
            keys=(("qaction/left", "action"), ("qpos/left", "state"), ("sensors/eye", "front")), rate_hz=15
        ),
    )
    assert (dataset.info.version, dataset.n_episodes, dataset.spec.cameras) == ("mapped hdf5", 3, ("front",))
    for k in range(3):
        episode = dataset.episode(k)
        np.testing.assert_array_equal(episode.action, arms[0, k])
        np.testing.assert_array_equal(episode.state, arms[1, k])
        np.testing.assert_array_equal(episode.images["front"], images[k])
    assert any("sensors/depth" in note for note in dataset.notes)


def _edit(change: Callable[[h5py.File], object]) -> Callable[[Path], None]:
    def plant(root: Path) -> None:
        with h5py.File(root / "episode_0.hdf5", "a") as file:
            change(file)

    return plant


def _shorter(file: h5py.File) -> None:
    values = file["observations/images/cam_low"][:4]
    del file["observations/images/cam_low"]
    file["observations/images/cam_low"] = values


def _smaller(file: h5py.File) -> None:
    del file["observations/images/cam_low"]
    file["observations/images/cam_low"] = np.zeros((9, 8, 8, 3), np.uint8)


def _external(file: h5py.File) -> None:
    file["observations/secret"] = h5py.ExternalLink("/etc/passwd", "/")


def _virtual(file: h5py.File) -> None:
    layout = h5py.VirtualLayout(shape=(9,), dtype=np.float32)
    layout[:] = h5py.VirtualSource("other.hdf5", "x", shape=(9,))
    file.create_virtual_dataset("observations/virtual", layout)


FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "truncated": (
        lambda r: (r / "episode_0.hdf5").write_bytes((r / "episode_0.hdf5").read_bytes()[:2000]),
        "cannot be read as HDF5",
    ),
    "empty": (lambda r: (r / "episode_0.hdf5").write_bytes(b""), "0 bytes"),
    "a pointer": (
        lambda r: (r / "episode_0.hdf5").write_text("version https://git-lfs.github.com/spec/v1\n"),
        "Git LFS",
    ),
    "another layout": (_edit(lambda f: f.move("action", "act")), "expected action and observations"),
    "no frames": (
        _edit(lambda f: (f.__delitem__("action"), f.create_dataset("action", data=np.zeros((0, 14))))),
        "no frames",
    ),
    "fewer frames": (_edit(_shorter), "ends after 4 of 9 frames"),
    "a link outside": (_edit(_external), "link into another file"),
    "values outside": (_edit(_virtual), "lie in other files"),
    "mixed": (lambda r: write_robomimic(r / "z.hdf5"), "mixes episode_0.hdf5"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_damaged_file_is_one_line_that_names_it(fault: str, tmp_path: Path) -> None:
    write_act(tmp_path / "episode_0.hdf5")
    plant, words = FAULTS[fault]
    plant(tmp_path)
    with pytest.raises(DataError, match=re.escape(words)) as error:
        open_dataset(tmp_path, ALOHA).episode(0)
    assert "\n" not in str(error.value)


def test_episodes_that_differ_from_the_first_are_named(tmp_path: Path) -> None:
    write_act(tmp_path / "episode_0.hdf5")
    write_act(tmp_path / "episode_1.hdf5")
    with h5py.File(tmp_path / "episode_1.hdf5", "a") as file:
        _smaller(file)
        del file["observations/qvel"]
    dataset = open_dataset(tmp_path, ALOHA)
    with pytest.raises(DataError, match="has no 'observations/qvel' in episode 1"):
        dataset.columns(1)
    with pytest.raises(DataError, match="8x8, the dataset has 24x16"):
        dataset.decode(1, "cam_low", np.empty((9, 16, 24, 3), np.uint8))


def test_without_h5py_the_message_has_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_act(tmp_path / "episode_0.hdf5")
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(MachineError, match=re.escape("pip install 'simgap[hdf5]'")):
        open_dataset(tmp_path)
