"""Pixels: does the robot show the policy the pictures it was trained on, and if not, is it the order of pixels, the camera or the light?

Each camera's first frames of some trials are compared with the simulator's rendering of the same scene: the
arm at the measured joint angles, the objects where the operator measured them. Two groups of factors are then
fitted apart, the camera's pose and the light and colours; the group that explains the difference is the
cause.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap import causes
from simgap.causes import Cause
from simgap.compute.workers import run_tasks
from simgap.envs import make_env
from simgap.envs.base import TaskEnv
from simgap.episodes.reader import Dataset
from simgap.findings import CheckResult, Family, Verdict
from simgap.measures.fits import PixelFit, Still, fit_group, residual
from simgap.provenance import child_rng

LIMIT = 6.0
"""Mean absolute difference, in 1/255, that sensor noise, compression and everyday tolerances stay under."""
EXPLAINED = 0.5
"""A group explains the difference when it takes away this share of what lies above the floor."""
FLOOR = 2.5
"""What sensor noise and video compression leave of a perfect fit, in 1/255."""
STILLS = 4
"""Scenes compared; each adds render time to every step of the search."""

REARRANGED = 0.8
"""A frame that is mirrored, turned or of exchanged channels explains the difference when putting it right takes away this share."""
LEAST_GAIN = 1.0
"""And at least this much of it, in 1/255."""
REARRANGEMENTS: Mapping[str, Callable[[NDArray[np.uint8]], NDArray[np.uint8]]] = MappingProxyType(
    {
        "mirrored left to right": lambda frame: frame[:, ::-1],
        "upside down": lambda frame: frame[::-1],
        "turned by 180 degrees": lambda frame: frame[::-1, ::-1],
        "with red and blue exchanged": lambda frame: frame[..., ::-1],
    }
)

LIGHT_FACTORS = (
    "light_intensity",
    "light_warmth",
    "light_azimuth_deg",
    "table_grey",
    "target_hue_deg",
    "distractor_hue_deg",
)


def light_factors(env: TaskEnv) -> tuple[str, ...]:
    """Return the factors of an env that are light or colour: those of the arm's table first, then whatever else has a grey or a hue."""
    known = env.factor_space.factors
    others = (n for n in known if n.endswith(("_grey", "_hue_deg")) and n not in LIGHT_FACTORS)
    return (*(n for n in LIGHT_FACTORS if n in known), *others)


@dataclass(frozen=True, kw_only=True, slots=True)
class CameraComparison:
    """One camera against the simulator."""

    camera: str
    difference: float
    """At nominal factors, 1/255."""
    light: PixelFit | None = None
    pose: PixelFit | None = None
    rearranged: str = ""
    """One of :data:`REARRANGEMENTS` that explains the difference, alone or with the one fit that is there then: of the picture put right."""

    @property
    def differs(self) -> bool:
        """True when the pictures are not the same."""
        return self.difference > LIMIT or bool(self.rearranged)

    def explained(self, fit: PixelFit | None) -> float:
        """Return which share of the difference above the floor a fit takes away."""
        return 0.0 if fit is None else _explained(self.difference, fit.residual)


def _explained(difference: float, left: float) -> float:
    return (
        0.0 if difference <= FLOOR else float(np.clip((difference - left) / (difference - FLOOR), 0.0, 1.0))
    )


def _put_right(stills: Sequence[Still], words: str) -> list[Still]:
    undo = REARRANGEMENTS[words]
    return [replace(s, frame=np.ascontiguousarray(undo(s.frame))) for s in stills]


def rearrangement(env: TaskEnv, camera: str, stills: Sequence[Still], difference: float) -> str:
    """Return the one of :data:`REARRANGEMENTS` that these pictures suffer from, or an empty text.

    It may differ by less than :data:`LIMIT`: a grey table with exchanged channels, or a scene of two like
    halves in a mirror, hardly does. What matters is that putting it right takes nearly all of the difference
    away, which no other lamp or pose allows.
    """
    left = {words: residual(env, camera, _put_right(stills, words), {}) for words in REARRANGEMENTS}
    best = min(left, key=lambda words: left[words])
    return best if _takes_away(difference, left[best]) else ""


def _takes_away(difference: float, left: float) -> bool:
    return difference - left >= LEAST_GAIN and _explained(difference, left) >= REARRANGED


def pose_factors(env: TaskEnv, camera: str) -> list[str]:
    """Return the factors that move one camera, without its lens."""
    return [
        name
        for name in env.factor_space.factors
        if name.startswith(f"{camera}_camera_") and "fovy" not in name
    ]


def first_frames(log: Dataset, camera: str, count: int = STILLS) -> list[Still]:
    """Return the first frame of the first trials of a log, with what was measured."""
    stills = []
    for index in range(min(count, log.n_episodes)):
        episode = log.episode(index, images=False)
        frames: NDArray[np.uint8] = np.empty((len(episode), *log.frame_shape(camera)), np.uint8)
        log.decode(index, camera, frames)
        stills.append(Still(frame=frames[0].copy(), state=episode.state[0], placements=episode.factors))
    return stills


_Search = tuple[str, str, int, str]
"""Camera, group of factors, start, and the one of :data:`REARRANGEMENTS` that is put right first, or an empty text."""


def compare_cameras(
    env: TaskEnv, stills: Mapping[str, Sequence[Still]], seed: int, workers: int
) -> list[CameraComparison]:
    """Compare every camera and, for those that differ, fit both groups of causes apart."""
    differences = {camera: residual(env, camera, pictures, {}) for camera, pictures in stills.items()}
    fits: dict[_Search, PixelFit] = {}

    def search(tasks: Sequence[_Search]) -> None:
        run_tasks(
            _setup_search,
            (env.name, env.image_size, stills, seed),
            tasks,
            workers=workers,
            on_result=lambda result: fits.update([result]),
        )

    different = [camera for camera, value in differences.items() if value > LIMIT]
    rearranged = {
        c: words
        for c, pictures in stills.items()
        if (words := rearrangement(env, c, pictures, differences[c]))
    }
    different = [camera for camera in different if camera not in rearranged]
    search([(camera, group, 0, "") for camera in different for group in ("pose", "light")])
    # A pose search can end in a side valley; where a pose explains more than light, a second start is worth
    # its seconds.
    search(
        [
            (c, "pose", 1, "")
            for c in different
            if fits[c, "pose", 0, ""].residual < fits[c, "light", 0, ""].residual
        ]
    )
    # A fit that is about to be believed and yet leaves something may be one of a mirrored picture, and then
    # says the opposite of what is so.
    believed = {
        c: min((end for end in fits if end[0] == c), key=lambda end: fits[end].residual) for c in different
    }
    left = {c: fits[end].residual for c, end in believed.items()}
    doubtful = [
        c
        for c in different
        if left[c] - FLOOR >= LEAST_GAIN and _explained(differences[c], left[c]) >= EXPLAINED
    ]
    search([(c, believed[c][1], 0, words) for c in doubtful for words in REARRANGEMENTS])
    rivals = [
        min((end for end in fits if end[0] == c and end[3]), key=lambda end: fits[end].residual)
        for c in doubtful
    ]
    search(
        [
            (c, group, 1, words)
            for c, group, _, words in rivals
            if group == "pose" and not _takes_away(left[c], fits[c, group, 0, words].residual)
        ]
    )
    return [
        _compared(camera, difference, fits, left, rearranged.get(camera, ""))
        for camera, difference in differences.items()
    ]


def _compared(
    camera: str,
    difference: float,
    fits: Mapping[_Search, PixelFit],
    left: Mapping[str, float],
    rearranged: str,
) -> CameraComparison:
    """Return what the best fits of one camera leave of its difference."""
    ends = {end: fit for end, fit in fits.items() if end[0] == camera}
    best = min(ends, key=lambda end: ends[end].residual, default=(camera, "", 0, ""))
    group, words = best[1], best[3]
    if words and _takes_away(left[camera], ends[best].residual):
        return CameraComparison(camera=camera, difference=difference, rearranged=words, **{group: ends[best]})
    pose = min(
        (fit for end, fit in ends.items() if end[1] == "pose" and not end[3]),
        key=lambda fit: fit.residual,
        default=None,
    )
    light = ends.get((camera, "light", 0, ""))
    return CameraComparison(
        camera=camera,
        difference=difference,
        light=light,
        pose=pose,
        rearranged=rearranged,
    )


def _setup_search(
    env_name: str, image_size: int, stills: Mapping[str, Sequence[Still]], seed: int
) -> Callable[[_Search], tuple[_Search, PixelFit]]:
    env = make_env(env_name, image_size=image_size)
    space = env.factor_space.factors

    def search(task: _Search) -> tuple[_Search, PixelFit]:
        camera, group, start, words = task
        names = light_factors(env) if group == "light" else tuple(pose_factors(env, camera))
        bounds = {n: (space[n].low, space[n].high) for n in names}
        rng = child_rng(seed, group, camera, start, *([words] if words else []))
        pictures = _put_right(stills[camera], words) if words else stills[camera]
        return task, fit_group(
            env, camera, pictures, bounds, rng=rng, generations=30 if group == "pose" else 22
        )

    return search


def check_pixels(
    env: TaskEnv,
    stills: Mapping[str, Sequence[Still]],
    *,
    assumes: tuple[str, ...] = (),
    seed: int = 0,
    workers: int = 0,
) -> CheckResult:
    """Compare every camera and name what changed.

    Args:
        env: renders the simulator's side, at the size of the stills.
        stills: camera -> robot pictures of known scenes.
        assumes: assumptions of the simulator's side.
        seed: of the searches.
        workers: processes for the searches; 0 runs them in this one.
    """
    if not stills or not all(stills.values()):
        return CheckResult(
            family=Family.PIXELS,
            name="pictures",
            verdict=Verdict.NOT_RUN,
            sentence="No trial left a frame to compare.",
            assumes=assumes,
        )
    compared = compare_cameras(env, stills, seed, workers)
    worst = max(compared, key=lambda c: c.difference)
    numbers: dict[str, Any] = {c.camera: _numbers(c) for c in compared}
    base: dict[str, Any] = {
        "family": Family.PIXELS,
        "name": "pictures against the simulator's",
        "statistic": f"mean difference of the {worst.camera} picture",
        "value": worst.difference,
        "threshold": LIMIT,
        "unit": "1/255",
        "n": len(next(iter(stills.values()))),
        "assumes": assumes,
    }
    different = [c for c in compared if c.differs]
    if not different:
        sentence = (
            f"The robot's pictures are the training pictures to within {worst.difference:.1f}/255"
            f" ({worst.camera}; up to {LIMIT:g} is noise and tolerance)."
        )
        return CheckResult(**base, verdict=Verdict.OK, sentence=sentence, numbers=numbers)
    light, pose = (
        float(np.mean([c.explained(f) for c, f in pairs]))
        for pairs in ([(c, c.light) for c in different], [(c, c.pose) for c in different])
    )
    cause, sentence, fitted = _decide(different, light, pose, _light_of_all(env, different, stills))
    numbers["fitted"] = fitted
    numbers["explained"] = {"light and colour": light, "camera pose": pose}
    return CheckResult(**base, verdict=Verdict.BROKEN, sentence=sentence, cause=cause, numbers=numbers)


def _light_of_all(
    env: TaskEnv, different: Sequence[CameraComparison], stills: Mapping[str, Sequence[Still]]
) -> dict[str, float]:
    """Return the one fit that leaves least in all pictures together.

    There is one light for all cameras. A mean of two fits would lie in no valley of either: an azimuth of 170
    and one of -170 deg are neighbours, and one camera may see little of what another shows clearly.
    """
    best: tuple[float, dict[str, float]] | None = None
    for fit in (c.light for c in different):
        if fit is not None:
            left = sum(residual(env, c.camera, stills[c.camera], fit.values) for c in different)
            best = (left, dict(fit.values)) if best is None or left < best[0] else best
    return {} if best is None else best[1]


def _decide(
    different: Sequence[CameraComparison], light: float, pose: float, light_values: dict[str, float]
) -> tuple[Cause, str, dict[str, float]]:
    if any(c.rearranged for c in different):
        said = " and ".join(f"{c.camera} picture is {c.rearranged}" for c in different if c.rearranged)
        beside = {
            "other light" if c.light else "another camera pose"
            for c in different
            if c.rearranged and (c.light or c.pose)
        }
        but, then = (f" under {' and '.join(sorted(beside))}", ", then check again") if beside else ("", "")
        return (
            causes.PIXELS_OTHER,
            f"The {said}: put right, it is the simulator's{but}. Undo that where frames are read{then}.",
            {},
        )
    names = " and ".join(c.camera for c in different)
    before = ", ".join(f"{c.difference:.1f}" for c in different)
    if max(light, pose) < EXPLAINED:
        text = (
            f"The {names} pictures differ by {before}/255; neither another camera pose ({pose:.0%}) nor other"
            f" light ({light:.0%}) explains it."
        )
        return causes.PIXELS_OTHER, text, {}
    if pose > light:
        fitted = {n: v for c in different if c.pose for n, v in c.pose.values.items()}
        after = ", ".join(f"{c.pose.residual:.1f}" for c in different if c.pose)
        text = (
            f"The {names} camera has moved: its pictures differ by {before}/255; another pose brings that to"
            f" {after} "
        )
        text += f"({pose:.0%} explained), other light explains {light:.0%}."
        return causes.CAMERA_SHIFT, text, fitted
    fits = [c.light for c in different if c.light]
    after = ", ".join(f"{f.residual:.1f}" for f in fits)
    text = (
        f"Light or colours have changed: the {names} pictures differ by {before}/255; other light brings that"
        f" to {after} "
    )
    text += f"({light:.0%} explained), another camera pose explains {pose:.0%}."
    return causes.LIGHT_COLOUR, text, light_values


def _numbers(comparison: CameraComparison) -> dict[str, Any]:
    found: dict[str, Any] = {"difference": comparison.difference}
    if comparison.rearranged:
        found["rearranged"] = comparison.rearranged
    for name, fit in (("light", comparison.light), ("pose", comparison.pose)):
        if fit is not None:
            found[name] = {
                "residual": fit.residual,
                "values": dict(fit.values),
                "evaluations": fit.evaluations,
            }
    return found
