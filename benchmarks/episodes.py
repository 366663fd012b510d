"""Measure the episode store on this machine: encode, write, finish, first and later loads; with ``--formats`` reading, converting and merging.

Usage: python benchmarks/episodes.py [--formats] [--episodes N] [--frames T] [--size PX]
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simgap.conventions import SO101_JOINTS, Dimension, Unit, VectorSpec
from simgap.episodes.frames import load_frames
from simgap.episodes.write.encoders import Encoding, VideoEncoder
from simgap.episodes.write.store import DatasetSpec, EpisodeWriter
from simgap.provenance import Stamp
from simgap.types import Episode, Outcome

RATE_HZ = 20.0


def scene(rng: np.random.Generator, frames: int, size: int) -> NDArray[np.uint8]:
    """Return frames of a table with moving blocks and sensor noise, ``(T, size, size, 3)`` uint8."""
    background = np.linspace(60, 200, size)[:, None, None] * np.ones((1, size, 3)) + rng.normal(
        0, 2, (size, size, 3)
    )
    video = np.repeat(background[None], frames, axis=0)
    block = max(2, size // 8)
    for k in range(frames):
        for colour in ((200, 40, 40), (40, 60, 200), (90, 90, 90)):
            x, y = (
                int((size - block) * (0.5 + 0.5 * np.sin(k / 9 + sum(colour) + phase)))
                for phase in (0.0, 1.3)
            )
            video[k, y : y + block, x : x + block] = colour
    return np.clip(video, 0, 255).astype(np.uint8)


def measured(work: Callable[[], object]) -> tuple[float, float]:
    """Return processor and wall seconds of one call."""
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return time.process_time() - cpu, time.perf_counter() - wall


def main() -> None:
    """Run and print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--frames", type=int, default=60)
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument(
        "--formats", action="store_true", help="measure other formats, conversion and merging instead"
    )
    args = parser.parse_args()
    if args.formats:
        formats(args.episodes, args.frames)
        return
    rng = np.random.default_rng(0)
    dimensions = tuple(Dimension(name=f"{j}.pos", unit=Unit.DEG, low=-180, high=180) for j in SO101_JOINTS)
    vector = VectorSpec(dimensions=dimensions, rate_hz=RATE_HZ)
    spec = DatasetSpec(
        name="benchmark",
        action_spec=vector,
        state_spec=vector,
        cameras=("front", "wrist"),
        image_size=(args.size, args.size),
        rate_hz=RATE_HZ,
        stamp=Stamp(kind="dataset"),
        task_default="move",
    )
    videos = [scene(rng, args.frames, args.size) for _ in range(4)]
    images = 2 * args.episodes * args.frames
    result: dict[str, float] = {"episodes": args.episodes, "images": images, "size_px": args.size}
    encoder = VideoEncoder("h264", Encoding(), RATE_HZ)
    cpu, _ = measured(lambda: [encoder.encode(v) for v in videos * 3])
    result["encode_images_per_cpu_s"] = 12 * args.frames / cpu
    error = 0.0
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "d"
        writer = EpisodeWriter(root, spec)

        def write() -> None:
            for k in range(args.episodes):
                writer.write(k, episode(videos, k))

        cpu, wall = measured(write)
        result |= {"write_images_per_cpu_s": images / cpu, "write_images_per_s": images / wall}
        cpu, wall = measured(writer.finish)
        result |= {"finish_cpu_s": cpu, "finish_s": wall}
        size = sum(p.stat().st_size for p in root.rglob("*.mp4"))
        result["bytes_per_image"] = size / images
        cpu, wall = measured(lambda: load_frames(root))
        result |= {
            "first_load_images_per_cpu_s": images / cpu,
            "first_load_images_per_s": images / wall,
            "first_load_s": wall,
        }
        cpu, wall = measured(lambda: load_frames(root))
        result["later_load_s"] = wall
        table = load_frames(root)
        error = float(np.abs(table.images["front"][: args.frames].astype(float) - videos[0]).mean())
    result["mean_abs_error_of_255"] = error
    print(json.dumps({k: round(v, 3) for k, v in result.items()}, indent=2))


def formats(episodes: int, frames: int) -> None:
    """Measure each format: opening, the first load (decoding into the cache) and later ones, conversion, and merging two copies."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
    import format_builders
    from simgap.episodes.edit.convert import Target, convert_dataset
    from simgap.episodes.edit.merge import merge_datasets
    from simgap.episodes.formats.keymap import KeyMap
    from simgap.episodes.reader import Dataset, open_dataset

    format_builders.HEIGHT, format_builders.WIDTH = 120, 160
    result: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        format_builders.write_tub(
            work / "tub", [(f"s{k}", frames) for k in range(episodes)], per_catalog=1000
        )
        for name, compressed in (("act_raw", False), ("act_jpeg", True)):
            for k in range(episodes):
                format_builders.write_act(
                    work / name / f"episode_{k}.hdf5",
                    seed=k,
                    length=frames,
                    compressed=compressed,
                    cameras=("front",),
                )
        format_builders.write_robomimic(work / "robomimic", [frames] * episodes)
        maps = {"tub": KeyMap(task="drive"), "robomimic": KeyMap(dimensions={"state:*": {"unit": "m"}})}
        images = KeyMap(
            rate_hz=50, task="insert", images={"front": ("rgb",)}, dimensions={"*": {"unit": "rad"}}
        )
        for name in ("tub", "act_raw", "act_jpeg", "robomimic"):
            total, opened = episodes * frames, list[Dataset]()
            keymap = maps.get(name, images)
            _, wall = measured(lambda: opened.append(open_dataset(work / name, keymap)))  # noqa: B023
            row = {"open_s": wall}
            before = peak_mib()
            cpu, wall = measured(lambda: load_frames(opened[0]))  # noqa: B023
            row |= {
                "first_load_frames_per_cpu_s": total / cpu,
                "first_load_s": wall,
                "first_load_peak_mib": peak_mib() - before,
            }
            row["later_load_s"] = measured(lambda: load_frames(opened[0]))[1]  # noqa: B023
            cpu, wall = measured(lambda: convert_dataset(opened[0], work / f"{name}-a", Target(codec="h264")))  # noqa: B023
            row |= {"convert_frames_per_cpu_s": total / cpu, "convert_s": wall}
            convert_dataset(
                opened[0], work / f"{name}-b", Target(codec="h264", episodes=tuple(reversed(range(episodes))))
            )
            pair = [open_dataset(work / f"{name}-{side}") for side in "ab"]
            cpu, wall = measured(lambda: merge_datasets(pair, work / f"{name}-m"))  # noqa: B023
            result[name] = row | {"merge_frames_per_cpu_s": 2 * total / cpu, "merge_s": wall}
    document = {"episodes": episodes, "frames_an_episode": frames, "size_px": "120x160", **result}
    print(json.dumps(document, indent=2, default=str))


def peak_mib() -> float:
    """Return the largest resident size of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def episode(videos: list[NDArray[np.uint8]], k: int) -> Episode:
    """Return one made-up episode."""
    frames = videos[k % len(videos)]
    values = np.random.default_rng(k).normal(size=(2, len(frames), 6)).astype(np.float32)
    return Episode(
        images={"front": frames, "wrist": videos[(k + 1) % len(videos)]},
        action=values[0],
        state=values[1],
        time_s=np.arange(len(frames)) / RATE_HZ,
        outcome=Outcome.success(),
        task="",
        seed=k,
    )


if __name__ == "__main__":
    main()
