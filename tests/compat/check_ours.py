"""Read with our own reader what lerobot wrote, and what it made of our datasets; compare values, order, tasks and frames.

Usage: check_ours.py WORK, a folder that holds theirs-video, theirs-png and edited/<codec>
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
from make_dataset import expect

from simgap.checks.data.dataset import check_data
from simgap.episodes.edit.convert import Target, convert_dataset
from simgap.episodes.edit.merge import merge_datasets
from simgap.episodes.edit.restat import compare, dataset_statistics, stored_statistics
from simgap.episodes.edit.transform import Plan
from simgap.episodes.frames import load_frames
from simgap.episodes.reader import Dataset, open_dataset

VIDEO_TOLERANCE = 6.0
"""Mean difference of 255 that lerobot's default AV1 compression may make to flat colours with a moving block."""


def check_theirs(root: Path, *, is_exact: bool) -> None:
    """Compare what we read with what was handed to lerobot, and check and convert it."""
    expected = np.load(root.with_suffix(".npz"))
    dataset = open_dataset(root)
    started = time.perf_counter()
    table = load_frames(dataset)
    seconds = time.perf_counter() - started
    assert dataset.n_episodes == len(expected["lengths"])
    assert len({e.data for e in dataset.entries}) == 1, "lerobot puts several episodes into one file"
    assert list(dataset.spec.action_spec.names) == list(expected["names"])
    worst = 0.0
    for entry in dataset.entries:
        k = entry.index
        rows = slice(*table.episode_start[k : k + 2])
        assert entry.tasks == (str(expected["tasks"][k]),), (entry.tasks, expected["tasks"][k])
        episode = dataset.episode(k)
        np.testing.assert_array_equal(episode.action, expected[f"{k}.action"])
        np.testing.assert_array_equal(episode.state, expected[f"{k}.state"])
        assert episode.extras["next.success"].tolist() == [False] * (entry.length - 1) + [True]
        for camera in ("front", "wrist"):
            np.testing.assert_array_equal(episode.images[camera], table.images[camera][rows])
            worst = max(
                worst, float(np.abs(episode.images[camera].astype(float) - expected[f"{k}.{camera}"]).mean())
            )
    assert worst == 0.0 if is_exact else worst < VIDEO_TOLERANCE, (
        f"frames differ by {worst:.2f} of 255 on average"
    )
    faults = {f.code for f in check_data(dataset).findings if f.severity == "fault"}
    assert faults <= {"stored_quantiles_wrong"}, faults  # lerobot 0.6.1 averages quantiles of episodes
    exact, notes = dataset_statistics(dataset)
    wrong = compare(dataset, stored_statistics(dataset) or {}, exact)
    assert not notes
    assert not [
        d
        for d in wrong
        if d.statistic in ("mean", "std", "min", "max") and d.feature in ("action", "observation.state")
    ], wrong[:3]
    out = root.with_name(f"{root.name}-ours")
    convert_dataset(dataset, out, Target(codec="png"))
    again = open_dataset(out)
    for k in range(dataset.n_episodes):
        np.testing.assert_array_equal(again.episode(k).images["wrist"], dataset.episode(k).images["wrist"])
        assert again.entry(k).tasks == dataset.entry(k).tasks
    quantiles = sum(d.statistic.startswith("q") for d in wrong)
    say = (
        f"{dataset.n_episodes} episodes of one file, mean frame difference {worst:.2f}/255, {seconds:.2f} s"
        f" to decode, {quantiles} stored quantiles wrong"
    )
    sys.stderr.write(f"ok: we read {root.name}: {say}\n")


def check_edited(edited: Path, source: Path) -> None:
    """Compare lerobot's edits with the episodes of ours they were made of."""
    ours = open_dataset(source)
    for name, episodes in (
        ("deleted", (0, 2)),
        ("parts/a", (0, 2)),
        ("parts/b", (1,)),
        ("merged", (0, 2, 1)),
    ):
        dataset = open_dataset(edited / name)
        assert [e.length for e in dataset.entries] == [ours.entry(k).length for k in episodes], name
        worst = max(_difference(dataset, place, ours, k) for place, k in enumerate(episodes))
        assert worst < VIDEO_TOLERANCE if ours.spec.has_videos else worst == 0.0, (
            f"{name}: frames differ by {worst:.2f}"
        )
        sys.stderr.write(
            f"ok: we read {edited.name}/{name} as lerobot left it, mean frame difference {worst:.3f}/255\n"
        )


def _difference(dataset: Dataset, place: int, ours: Dataset, index: int) -> float:
    a, b = dataset.episode(place), ours.episode(index)
    np.testing.assert_array_equal(a.action, b.action)
    np.testing.assert_array_equal(a.state, b.state)
    np.testing.assert_array_equal(a.extras.get("executed", 0), b.extras.get("executed", 0))
    assert dataset.entry(place).tasks == ours.entry(index).tasks
    np.testing.assert_array_equal(a.time_s, b.time_s)
    return max(float(np.abs(a.images[c].astype(float) - b.images[c]).mean()) for c in ours.spec.cameras)


def merge_theirs(work: Path) -> None:
    """Merge two recordings of lerobot's, whose units are stated now, into ``both``, and note what lerobot should read of it."""
    parts = []
    for name in ("theirs-video", "theirs-png"):
        out = work / f"{name}-stated"
        convert_dataset(
            open_dataset(work / name), out, Target(codec="h264", plan=Plan(states={"*": {"unit": "deg"}}))
        )
        parts.append(open_dataset(out))
    merge_datasets(parts, work / "both")
    expect(work / "both", work / "both.npz")
    sys.stderr.write("ok: two recordings of lerobot's merged by us\n")


def main(work: Path) -> int:
    """Check everything and return the exit code."""
    check_theirs(work / "theirs-video", is_exact=False)
    check_theirs(work / "theirs-png", is_exact=True)
    for edited in sorted((work / "edited").iterdir()):
        check_edited(edited, work / edited.name)
    merge_theirs(work)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
