"""Edit a dataset of ours with lerobot's own tools: delete an episode, split it, merge the parts again; run in a lerobot environment.

Usage: edit_lerobot.py WORK NAME ..., writes ``WORK/edited/NAME``
"""

import sys
from pathlib import Path

from lerobot.datasets.dataset_tools import delete_episodes, merge_datasets, split_dataset
from lerobot.datasets.lerobot_dataset import LeRobotDataset


def edit(root: Path, folder: Path) -> None:
    """Write ``deleted`` (episode 1 gone), ``parts/{a,b}`` (0 and 2; 1) and ``merged`` (0, 2, 1)."""
    dataset = LeRobotDataset("local/compat", root=root, video_backend="pyav")
    deleted = delete_episodes(dataset, [1], output_dir=folder / "deleted", repo_id="local/deleted")
    assert deleted.num_episodes == dataset.num_episodes - 1
    parts = split_dataset(dataset, {"a": [0, 2], "b": [1]}, output_dir=folder / "parts")
    merged = merge_datasets([parts["a"], parts["b"]], "local/merged", output_dir=folder / "merged")
    assert merged.num_frames == dataset.num_frames
    sys.stderr.write(f"ok: lerobot deletes from, splits and merges {root.name}\n")


if __name__ == "__main__":
    work = Path(sys.argv[1])
    for name in sys.argv[2:]:
        edit(work / name, work / "edited" / name)
