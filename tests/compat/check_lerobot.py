"""Load a dataset with lerobot itself and compare lengths, values, images, tasks and per-episode columns; run in a lerobot environment.

Usage: check_lerobot.py WORK NAME ..., each a dataset ``WORK/NAME`` beside what should be in it,
``WORK/NAME.npz``
"""

import sys
from pathlib import Path

import numpy as np
from lerobot.datasets.lerobot_dataset import LeRobotDataset

IMAGE_TOLERANCE = 2  # of 255: another build of the colour conversion may round differently


def check(root: Path) -> None:
    """Compare one dataset."""
    expected = np.load(root.with_name(f"{root.name}.npz"))
    lengths, tasks = expected["lengths"], expected["tasks"]
    dataset = LeRobotDataset("local/compat", root=root, video_backend="pyav")
    assert dataset.num_episodes == len(lengths), (dataset.num_episodes, len(lengths))
    assert dataset.num_frames == int(lengths.sum()) == len(dataset)
    assert [int(x) for x in dataset.meta.episodes["length"]] == [int(x) for x in lengths]
    worst = 0
    for episode, (start, length) in enumerate(zip(np.cumsum([0, *lengths[:-1]]), lengths, strict=True)):
        for k in range(int(length)):
            item = dataset[int(start) + k]
            assert item["task"] == str(tasks[episode]), (item["task"], tasks[episode])
            assert [int(item[key]) for key in ("episode_index", "frame_index", "index")] == [
                episode,
                k,
                int(start) + k,
            ]
            for key in (*expected["vectors"], "time_s", *expected["extras"]):
                seen, wanted = np.asarray(item[key]).reshape(-1), expected[f"{episode}.{key}"][k].reshape(-1)
                np.testing.assert_array_equal(seen, wanted.astype(seen.dtype))
            for key in expected["cameras"]:
                pixels = np.rint(np.moveaxis(np.asarray(item[key]), 0, -1) * 255.0).astype(int)
                worst = max(worst, int(np.abs(pixels - expected[f"{episode}.{key}"][k].astype(int)).max()))
    assert worst <= IMAGE_TOLERANCE, f"images differ by up to {worst}/255"
    # an outcome that nobody recorded is empty, which is not a void trial
    assert [o or "" for o in dataset.meta.episodes["outcome"]] == list(expected["outcomes"])
    assert list(dataset.meta.episodes["success"]) == [
        {"success": True, "failure": False}.get(str(o)) for o in expected["outcomes"]
    ]
    stats = dataset.meta.stats["action"]
    actions = np.concatenate([expected[f"{e}.action"] for e in range(len(lengths))]).astype(np.float64)
    np.testing.assert_allclose(stats["q01"], np.quantile(actions, 0.01, axis=0), rtol=1e-6)
    np.testing.assert_allclose(stats["std"], actions.std(axis=0), rtol=1e-6)
    window = LeRobotDataset(
        "local/compat",
        root=root,
        delta_timestamps={"action": [k / dataset.fps for k in range(4)]},
        video_backend="pyav",
    )
    assert tuple(window[0]["action"].shape) == (4, actions.shape[1])
    assert bool(window[int(lengths[0]) - 1]["action_is_pad"][1])
    assert set(dataset.meta.tasks.index) == set(map(str, tasks)), list(dataset.meta.tasks.index)
    sys.stderr.write(
        f"ok: lerobot loads {root.name}: {len(lengths)} episodes, {int(lengths.sum())} frames, largest image"
        f" difference {worst}/255\n"
    )


if __name__ == "__main__":
    for name in sys.argv[2:]:
        check(Path(sys.argv[1]) / name)
