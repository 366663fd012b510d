"""Whether a dataset of one of our envs may be trained on at its frame size: the ruler asks, the probe answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from simgap.envs import ENVS, make_env
from simgap.envs.abilities import ShowsTarget, TrainsProbe, able
from simgap.envs.base import TaskEnv
from simgap.envs.factors import FactorRanges
from simgap.episodes.reader import Dataset
from simgap.errors import DataError, UsageError
from simgap.pixelfloor.floor import FloorVerdict, search_floor, work_of
from simgap.pixelfloor.probe import ProbeSpec, sample_scenes
from simgap.pixelfloor.ruler import projected_across_px
from simgap.policies.cnn import LARGEST_PX, SMALLEST_PX
from simgap.provenance import child_rng, content_hash, read_sealed, source_hash, write_sealed

SUSPECT_PX = 8.0
"""Pixels across the target in the best camera from which on nobody has reported a floor: no probe is trained above it."""
RULER_SCENES = 50


@dataclass(frozen=True, kw_only=True, slots=True)
class Gate:
    """What is known of one dataset's frame size."""

    size_px: int
    across_px: float
    """Median pixels across the target in the best camera near it, by the projection formula."""
    verdict: FloorVerdict
    reason: str


def gate(
    fields: dict[str, Any],
    size_px: int,
    cameras: Sequence[str],
    cache: Path,
    *,
    threads: int,
    said: Callable[[str], None] = lambda text: None,
    progress: Callable[[int, int, str], None] | None = None,
) -> Gate | None:
    """Return what is known of a dataset's frame size, or None where it was not made in an env that says where its target is.

    Args:
        fields: of the dataset's stamp.
        size_px: side of its frames.
        cameras: those that will be trained on.
        cache: folder in which the verdict of a probe is kept.
        threads: for the probe.
        said: told before a probe is trained, which takes up to two minutes, and its verdict, also where that
            was kept from before.
        progress: called with (units of work done, all of them, what is done) while a probe is trained.
    """
    name, recipe = fields.get("env"), fields.get("generate")
    if name not in ENVS or not isinstance(recipe, dict) or not SMALLEST_PX <= size_px <= LARGEST_PX:
        return None
    env = make_env(str(name), image_size=size_px)
    try:
        if not isinstance(env, TrainsProbe):
            return None
        ranges = FactorRanges.from_json(recipe["ranges"])
        across = _across_px(env, ranges, size_px, cameras)
        if across >= SUSPECT_PX:
            return Gate(
                size_px=size_px,
                across_px=across,
                verdict=FloorVerdict.PASS,
                reason=f"{across:.1f} px across the target",
            )
        key = content_hash(
            [
                name,
                ranges.to_json(),
                size_px,
                sorted(cameras),
                source_hash("envs", "pixelfloor", "policies", "training"),
            ]
        )
        kept = cache / f"pixels-{key[:20]}.json"
        was_kept = kept.exists()
        if not was_kept:
            said(
                f"{size_px} px frames put {across:.1f} px across the target; training a probe to see whether"
                " that is enough, up to two minutes"
            )
            spec = ProbeSpec(threads=threads)
            told = None if progress is None else lambda what, n: progress(n, work_of(spec), what)
            report = search_floor(env, ranges, (size_px,), cameras=cameras, spec=spec, progress=told).sizes[0]
            write_sealed(kept, {"key": key, "verdict": str(report.verdict), "reason": report.reason})
        found = read_sealed(kept)
        if found["key"] != key:
            raise DataError(f"{kept} is the verdict on other frames; delete it, the probe is trained again")
        said(
            f"{size_px} px frames: {found['verdict']}: {found['reason']}"
            + (" (probed before)" if was_kept else "")
        )
        return Gate(
            size_px=size_px,
            across_px=across,
            verdict=FloorVerdict(found["verdict"]),
            reason=str(found["reason"]),
        )
    finally:
        env.close()


def require_pixels(
    dataset: Dataset,
    *,
    cameras: Sequence[str] | None = None,
    threads: int,
    otherwise: str = "",
    said: Callable[[str], None] = lambda text: None,
    progress: Callable[[int, int, str], None] | None = None,
) -> None:
    """Refuse frames in which the target cannot be placed. Every training passes through here, of the verb and of the loop.

    Args:
        dataset: what will be trained on; verdicts of probes are kept in its cache.
        cameras: those that will be trained on; all by default.
        threads: for the probe.
        otherwise: what else the user can do, at the end of the refusal.
        said: as in :func:`gate`.
        progress: as in :func:`gate`.

    Raises:
        UsageError: below the floor; says by how much and what would do.
    """
    used = tuple(cameras or sorted(dataset.camera_keys))
    size = min((side for camera in used for side in dataset.frame_shape(camera)[:2]), default=0)
    fields, kept = dict(dataset.spec.stamp.fields), dataset.cache_folder
    found = gate(fields, size, used, kept, threads=threads, said=said, progress=progress)
    if found is not None and found.verdict.is_below:
        raise UsageError(
            f"{dataset.root}: frames of {found.size_px} px are below the pixel floor ({found.reason});"
            f" generate larger ones (`simgap pixels {dataset.root}` finds the smallest that pass){otherwise}"
        )


def _across_px(env: TaskEnv, ranges: FactorRanges, size_px: int, cameras: Sequence[str]) -> float:
    scenes = sample_scenes(env, ranges, RULER_SCENES, child_rng(0, "pixel-gate"))["near"]
    across = np.zeros((len(scenes), len(cameras)))
    for row, (values, state) in enumerate(scenes):
        env.render_still(values, state, cameras=())
        shown = able(env, ShowsTarget)
        target = shown.landmarks()[0]
        across[row] = [projected_across_px(target, shown.camera_pose(camera), size_px) for camera in cameras]
    return float(np.median(across, axis=0).max())
