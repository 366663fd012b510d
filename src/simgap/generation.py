"""Teacher episodes in bulk: every core, constant memory, resumable, one verified episode a file."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.envs import make_env
from simgap.envs.base import ObsDict, TaskEnv
from simgap.envs.factors import FactorRanges, FactorValues
from simgap.episodes.spec import Codec, DatasetSpec
from simgap.episodes.store import EpisodeWriter
from simgap.errors import DataError
from simgap.provenance import Stamp, child_rng, source_hash
from simgap.seeds import Purpose, seed_of
from simgap.teachers import Abstain, Teacher, make_teacher
from simgap.types import Episode, Outcome
from simgap.workers import run_tasks

MAX_ATTEMPTS = 20
"""Fresh initial conditions tried for one episode before the ranges are called unsolvable."""
USUAL_NOISE_DEG = 1.5
"""The noise at which an env's own ``dart_noise`` is used as it is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerateSpec:
    """What to generate; the same spec makes the same bytes."""

    env: str
    episodes: int
    ranges: FactorRanges
    image_size: int = 96
    seed: int = 0
    purpose: Purpose = Purpose.TRAIN
    noise_deg: float = USUAL_NOISE_DEG
    """DART: standard deviation of the noise added to what is *executed*; the label stays clean (Laskey et al., arXiv 1703.09327).

    In degrees of the arm's joints; an env with other actions gets the same share of its own ``dart_noise``.
    """
    codec: Codec = "h264"

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "env": self.env,
            "episodes": self.episodes,
            "ranges": self.ranges.to_json(),
            "image_size": self.image_size,
            "seed": self.seed,
            "purpose": str(self.purpose),
            "noise_deg": self.noise_deg,
            "codec": self.codec,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Rollout:
    """A teacher's attempt."""

    episode: Episode | None
    """None when the teacher abstained, at the start or on the way."""
    abstained: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerateReport:
    """What became of a generation run."""

    root: Path
    episodes: int
    attempts: int
    """Attempts of this call; more than the episodes it wrote when the teacher failed or abstained."""
    rejected: Mapping[str, int] = field(default_factory=dict)
    """Reason -> attempts thrown away in this call."""


def roll_teacher(env: TaskEnv, teacher: Teacher, values: FactorValues, seed: int, noise_deg: float) -> Rollout:
    """Run a teacher through one episode and record it.

    ``action`` holds the clean label, ``extras["executed_action"]`` what was sent with noise on it. Where the env can draw a
    moment that has passed, frames are drawn after a success, so that attempts that are thrown away cost no rendering. The
    episode of a failure has no images.
    """
    draws_later = env.renders and env.look() is not None
    renders, env.renders = env.renders, env.renders and not draws_later
    try:
        attempt = _attempt(env, teacher, values, seed, noise_deg)
    finally:
        env.renders = renders
    if attempt.outcome is None:
        return Rollout(episode=None, abstained=attempt.abstained)
    images: dict[str, NDArray[np.uint8]] = {}
    if attempt.outcome.is_success:
        images = _drawn(env, attempt.looks) if draws_later else {c: np.stack([o[c] for o in attempt.seen]) for c in env.cameras}
    episode = Episode(
        images=images,
        state=np.stack([o["state"] for o in attempt.seen]),
        action=np.stack(attempt.labels),
        time_s=np.arange(len(attempt.labels)) / env.action_spec.rate_hz,
        outcome=attempt.outcome,
        task=env.task,
        seed=seed,
        factors=values,
        extras={"executed_action": np.stack(attempt.executed)},
    )
    return Rollout(episode=episode)


@dataclass(slots=True)
class _Attempt:
    """What a teacher did, frame by frame."""

    seen: list[ObsDict] = field(default_factory=list)
    looks: list[Any] = field(default_factory=list)
    labels: list[NDArray[np.float32]] = field(default_factory=list)
    executed: list[NDArray[np.float32]] = field(default_factory=list)
    outcome: Outcome | None = None
    abstained: str = ""


def _attempt(env: TaskEnv, teacher: Teacher, values: FactorValues, seed: int, noise_deg: float) -> _Attempt:
    rng = child_rng(seed, "dart")
    spread = env.dart_noise * (noise_deg / USUAL_NOISE_DEG)
    disturbance = np.zeros(len(env.action_spec))
    attempt = _Attempt()
    obs, _ = env.reset(seed=seed, options={"factors": values})
    while attempt.outcome is None:
        label = teacher.label()
        if isinstance(label, Abstain):
            attempt.abstained = label.reason
            break
        # An Ornstein-Uhlenbeck walk: white noise would be filtered out by the servos.
        disturbance = 0.7 * disturbance + spread * rng.normal(size=len(spread)) * math.sqrt(1 - 0.7**2)
        executed = np.clip(label + disturbance, env.action_spec.low, env.action_spec.high).astype(np.float32)
        attempt.seen.append(obs)
        attempt.looks.append(env.look())
        attempt.labels.append(label)
        attempt.executed.append(executed)
        obs, _, _, _, info = env.step(executed)
        attempt.outcome = info.get("outcome")
    return attempt


def _drawn(env: TaskEnv, looks: Sequence[Any]) -> dict[str, NDArray[np.uint8]]:
    """Return the frames of an episode that is over, ``(T, H, W, 3)`` by camera."""
    images = {camera: np.empty((len(looks), env.image_size, env.image_size, 3), dtype=np.uint8) for camera in env.cameras}
    for k, look in enumerate(looks):
        env.draw(look, {camera: frames[k] for camera, frames in images.items()})
    return images


def dataset_spec(spec: GenerateSpec, env: TaskEnv, teacher: Teacher) -> DatasetSpec:
    """Return the store's spec of a generation run, stamped with everything that made it."""
    fields = {
        **env.stamp_fields(),
        "teacher": teacher.name,
        "factors": spec.ranges.name,
        "generate": spec.to_json(),
        "source": source_hash("envs", "teachers", "generation")[:16],
    }
    return DatasetSpec(
        name=f"{spec.env}-{spec.ranges.name}".replace(":", "-"),
        action_spec=env.action_spec,
        state_spec=env.state_spec,
        cameras=env.cameras,
        image_size=(spec.image_size, spec.image_size),
        rate_hz=env.action_spec.rate_hz,
        stamp=Stamp(kind="dataset", fields=fields),
        task_default=env.task,
        codec=spec.codec,
    )


def generate(spec: GenerateSpec, out: Path, *, workers: int, progress: Callable[[int, int], None] | None = None) -> GenerateReport:
    """Generate episodes into a dataset folder; after a kill, the same call makes what is missing.

    Only episodes in which the teacher succeeded are kept: the label is verified by the rollout it came from.

    Args:
        spec: what to make.
        out: dataset folder, new or of the same spec.
        workers: processes; 0 runs in this one.
        progress: called with (episodes on disk, total).

    Raises:
        DataError: the folder holds another dataset, or the teacher cannot solve an initial condition of these ranges.
    """
    if spec.episodes < 1:
        raise DataError(f"cannot generate {spec.episodes} episodes; ask for at least one")
    env = make_env(spec.env, image_size=spec.image_size, render=False)
    writer = EpisodeWriter(out, dataset_spec(spec, env, make_teacher(env)))
    done = writer.done()
    missing = [i for i in range(spec.episodes) if i not in done]
    tally = {"ready": spec.episodes - len(missing), "attempts": 0}
    rejected: dict[str, int] = {}

    def landed(result: list[str]) -> None:
        tally["ready"] += 1
        tally["attempts"] += 1 + len(result)
        for reason in result:
            rejected[reason] = rejected.get(reason, 0) + 1
        if progress:
            progress(tally["ready"], spec.episodes)

    if progress:
        progress(tally["ready"], spec.episodes)
    run_tasks(_setup, (spec, out), missing, workers=workers, on_result=landed)
    writer.finish()
    return GenerateReport(root=out, episodes=spec.episodes, attempts=tally["attempts"], rejected=rejected)


def _setup(spec: GenerateSpec, out: Path) -> Callable[[int], list[str]]:
    env = make_env(spec.env, image_size=spec.image_size)
    teacher = make_teacher(env)
    writer = EpisodeWriter(out, dataset_spec(spec, env, teacher))

    def make(index: int) -> list[str]:
        rejected: list[str] = []
        for attempt in range(MAX_ATTEMPTS):
            seed = seed_of(spec.purpose, spec.seed, index * MAX_ATTEMPTS + attempt)
            values = env.factor_space.sample(spec.ranges, child_rng(seed, "factors"))
            rollout = roll_teacher(env, teacher, values, seed, spec.noise_deg)
            if rollout.episode is not None and rollout.episode.outcome.is_success:
                writer.write(index, rollout.episode)
                return rejected
            rejected.append(f"abstained: {rollout.abstained}" if rollout.episode is None else rollout.episode.outcome.detail)
        reasons = ", ".join(sorted(set(rejected)))
        raise DataError(f"the teacher of {spec.env} failed {MAX_ATTEMPTS} conditions in a row under {spec.ranges.name!r} ({reasons}); narrow the ranges")

    return make
