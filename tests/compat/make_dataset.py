"""Write a small dataset in each codec, convert two foreign ones, and note beside each, and beside ``generated``, what a reader should get."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from simgap.conventions import SO101_JOINTS, Dimension, Unit, VectorSpec
from simgap.episodes.edit.convert import Target, convert_dataset
from simgap.episodes.edit.transform import Plan
from simgap.episodes.formats.keymap import KeyMap
from simgap.episodes.formats.video import CODECS, Codec
from simgap.episodes.reader import open_dataset
from simgap.episodes.write.store import DatasetSpec, EpisodeWriter
from simgap.provenance import Stamp
from simgap.types import Episode, Outcome

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from format_builders import write_act, write_tub

RATE_HZ = 20.0
LENGTHS = (23, 41, 17)
TASKS = ("pick the red cube", "pick the blue cube", "pick the red cube")


def make(root: Path, codec: Codec) -> None:
    """Write ``<root>/<codec>`` and ``<root>/<codec>.npz``."""
    dimensions = tuple(
        Dimension(name=f"{j}.pos", unit=Unit.DEG, low=-180.0, high=180.0, is_gripper=j == "gripper")
        for j in SO101_JOINTS
    )
    vector = VectorSpec(dimensions=dimensions, rate_hz=RATE_HZ)
    spec = DatasetSpec(
        name="compat",
        action_spec=vector,
        state_spec=vector,
        cameras=("front", "wrist"),
        image_size=(96, 96),
        rate_hz=RATE_HZ,
        stamp=Stamp(kind="dataset", fields={"engine": "compat"}),
        codec=codec,
    )
    writer = EpisodeWriter(root / codec, spec)
    rng = np.random.default_rng(7)
    for index in (2, 0, 1):  # out of order, as parallel workers write
        writer.write(index, _episode(index, rng))
    writer.finish()
    expect(root / codec, root / f"{codec}.npz")


def expect(dataset_path: Path, out: Path) -> None:
    """Write what a reader should get from a dataset: lengths, tasks, outcomes, values, images."""
    dataset = open_dataset(dataset_path)
    episodes = [dataset.episode(i) for i in range(dataset.n_episodes)]
    expected: dict[str, np.ndarray] = {
        "lengths": np.array([len(e) for e in episodes]),
        "tasks": np.array([e.task for e in episodes]),
        "outcomes": np.array([str(e.outcome.kind) if e.outcome.is_recorded else "" for e in episodes]),
        "extras": np.array(sorted(episodes[0].extras)),
        "vectors": np.array(["action", "observation.state"] if len(dataset.spec.state_spec) else ["action"]),
        "cameras": np.array([f"observation.images.{camera}" for camera in dataset.spec.cameras]),
    }
    for index, episode in enumerate(episodes):
        expected[f"{index}.action"], expected[f"{index}.observation.state"], expected[f"{index}.time_s"] = (
            episode.action,
            episode.state,
            episode.time_s,
        )
        expected |= {f"{index}.{name}": column for name, column in episode.extras.items()}
        expected |= {
            f"{index}.observation.images.{camera}": frames for camera, frames in episode.images.items()
        }
    np.savez(out, **expected)


def _episode(index: int, rng: np.random.Generator) -> Episode:
    length = LENGTHS[index]
    images = {}
    for camera in ("front", "wrist"):
        frames = np.full((length, 96, 96, 3), rng.integers(40, 200, 3), dtype=np.uint8)
        for k in range(length):
            frames[k, 20 + k : 36 + k, 30:60] = (200, 20 + 3 * k, 40)
        images[camera] = frames
    time_s = np.arange(length) / RATE_HZ + rng.uniform(0, 0.004, length)
    action, state = rng.normal(size=(2, length, 6)).astype(np.float32)
    outcome = Outcome.success() if index != 1 else Outcome.failure("dropped")
    return Episode(
        images=images,
        state=state,
        action=action,
        time_s=time_s,
        outcome=outcome,
        task=TASKS[index],
        seed=100 + index,
        factors={"mass_kg": 0.1 * index},
        extras={"executed": action * np.float32(0.5)},
    )


def convert_foreign(root: Path) -> None:
    """Write ``tub``, without a state, ``car``, with the last command as state, and ``hdf5`` from a donkeycar tub and from compressed ACT files."""
    write_tub(root / "raw" / "tub", deleted=[4])
    for k in range(2):
        write_act(root / "raw" / "act" / f"episode_{k}.hdf5", seed=k, length=11, compressed=True)
    tub = open_dataset(root / "raw" / "tub", KeyMap(keys=(("cam/image_array", "front"),)))
    for name, made_up in (("tub", False), ("car", True)):  # lerobot's own policies need some state
        convert_dataset(
            tub, root / name, Target(task="drive", image_size=(32, 48), state_from_action=made_up)
        )
    images = {"cam_high": ("rgb",), "cam_low": ("rgb",)}
    act = open_dataset(root / "raw" / "act", KeyMap(rate_hz=50, images=images))
    convert_dataset(
        act,
        root / "hdf5",
        Target(task="insert", image_size=(32, 48), plan=Plan(states={"*": {"unit": "rad"}})),
    )


if __name__ == "__main__":
    target = Path(sys.argv[1])
    for codec in CODECS:
        make(target, codec)
    convert_foreign(target)
    for name in ("generated", "tub", "car", "hdf5"):
        expect(target / name, target / f"{name}.npz")
