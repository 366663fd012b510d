"""Record with lerobot itself, images in videos and as PNG in the Parquet files, and note beside it what went in; run in a lerobot environment.

Usage: write_lerobot.py OUT
"""

import sys
from pathlib import Path

import numpy as np
from lerobot.datasets.lerobot_dataset import LeRobotDataset

LENGTHS = (9, 14, 6, 11)
TASKS = ("pick the red cube", "pick the blue cube", "pick the red cube", "place it")
SIZE = (64, 96)
NAMES = [f"joint_{k}.pos" for k in range(6)]


def write(root: Path, *, use_videos: bool) -> None:
    """Write one dataset of four episodes in one file, and ``<root>.npz``."""
    image = {
        "dtype": "video" if use_videos else "image",
        "shape": (*SIZE, 3),
        "names": ["height", "width", "channels"],
    }
    vector = {"dtype": "float32", "shape": (6,), "names": NAMES}
    features = {
        "action": vector,
        "observation.state": vector,
        "observation.images.front": image,
        "observation.images.wrist": image,
    }
    features["next.success"] = {"dtype": "bool", "shape": (1,), "names": None}
    dataset = LeRobotDataset.create(
        "local/theirs", fps=30, features=features, root=root, robot_type="test", use_videos=use_videos
    )
    rng = np.random.default_rng(3)
    expected: dict[str, np.ndarray] = {
        "lengths": np.array(LENGTHS),
        "tasks": np.array(TASKS),
        "names": np.array(NAMES),
    }
    for episode, (length, task) in enumerate(zip(LENGTHS, TASKS, strict=True)):
        action, state = rng.normal(size=(2, length, 6)).astype(np.float32)
        shade = np.array([[60, 90, 150], [170, 140, 50]]) + rng.integers(-9, 10, (2, 3))
        frames = np.empty((2, length, *SIZE, 3), dtype=np.uint8)
        for k in range(length):
            frames[:, k] = shade[:, None, None]
            frames[:, k, 8:24, 4 * k : 4 * k + 12] = (220, 30, 30)
            dataset.add_frame(
                {
                    "action": action[k],
                    "observation.state": state[k],
                    "observation.images.front": frames[0, k],
                    "observation.images.wrist": frames[1, k],
                    "next.success": np.array([k == length - 1]),
                    "task": task,
                }
            )
        dataset.save_episode()
        expected |= {
            f"{episode}.action": action,
            f"{episode}.state": state,
            f"{episode}.front": frames[0],
            f"{episode}.wrist": frames[1],
        }
    dataset.finalize()
    np.savez(root.with_suffix(".npz"), **expected)


def main(out: str) -> int:
    """Write both and return the exit code."""
    for name, use_videos in (("theirs-video", True), ("theirs-png", False)):
        write(Path(out) / name, use_videos=use_videos)
        sys.stderr.write(f"ok: lerobot wrote {name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
