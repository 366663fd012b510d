"""Teacher episodes in bulk: every core, constant memory, resumable, one verified episode a file."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simgap.compute.locks import alone_in
from simgap.compute.workers import TaskRunner, run_tasks
from simgap.envs import make_env
from simgap.envs.abilities import DrawsLater, able
from simgap.envs.base import ObsDict, TaskEnv
from simgap.envs.factors import FactorRanges, FactorValues
from simgap.episodes.reader import open_dataset
from simgap.episodes.spec import Codec, DatasetSpec
from simgap.episodes.write.store import EpisodeWriter, Prepared, release_claim
from simgap.errors import DataError, UsageError, did_you_mean
from simgap.provenance import Stamp, child_rng, source_hash
from simgap.seeds import Purpose, seed_of
from simgap.teachers import Abstain, Teacher, make_teacher
from simgap.types import Episode, Outcome

MAX_ATTEMPTS = 20
"""Fresh initial conditions tried for one episode before the ranges are called unsolvable."""
SYNC_EVERY = 64
"""Episodes of a worker for one sync: a power cut loses at most these."""
BATCH = 8
"""Episodes that a worker writes at once: a kill loses at most these. In a row their tables cost half, for rendering drives that code out of the caches."""
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
    cameras: tuple[str, ...] = ()
    """Cameras to record; all of the env by default."""
    engine: str = "mujoco"
    """What moves the world."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"episodes": self.episodes, **self.recipe()}

    def recipe(self) -> dict[str, Any]:
        """Return what makes each episode what it is: all but their number, so that a dataset can be extended."""
        return {
            "env": self.env,
            "ranges": self.ranges.to_json(),
            "image_size": self.image_size,
            "seed": self.seed,
            "purpose": str(self.purpose),
            "noise_deg": self.noise_deg,
            "codec": self.codec,
            "cameras": list(self.cameras),
            "engine": self.engine,
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
    """Episodes in the folder, those that were there before included."""
    frames: int
    """Frames in the folder."""
    frames_made: int
    """Frames of the episodes that this call wrote."""
    fingerprint: str
    attempts: int
    """Attempts of this call; more than the episodes it wrote when the teacher failed or abstained."""
    rejected: Mapping[str, int] = field(default_factory=dict)
    """Reason -> attempts thrown away in this call."""


def roll_teacher(
    env: TaskEnv, teacher: Teacher, values: FactorValues, seed: int, noise_deg: float
) -> Rollout:
    """Run a teacher through one episode and record it.

    ``action`` holds the clean label, ``extras["executed_action"]`` what was sent with noise on it. Where the
    env can draw a moment that has passed, frames are drawn after a success, so that attempts that are thrown
    away cost no rendering. The episode of a failure has no images.
    """
    draws_later = env.renders and isinstance(env, DrawsLater)
    shown = env.renders, env.cameras
    if draws_later:
        env.renders, env.cameras = False, ()  # nothing is looked at on the way
    try:
        attempt = _attempt(env, teacher, values, seed, noise_deg)
    finally:
        env.renders, env.cameras = shown
    if attempt.outcome is None:
        return Rollout(episode=None, abstained=attempt.abstained)
    images: dict[str, NDArray[np.uint8]] = {}
    if attempt.outcome.is_success:
        images = (
            _drawn(env, attempt.looks)
            if draws_later
            else {c: np.stack([o[c] for o in attempt.seen]) for c in env.cameras}
        )
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
    low, high = env.action_spec.low, env.action_spec.high
    disturbance = np.zeros(len(low))
    attempt, later = _Attempt(), env if isinstance(env, DrawsLater) else None
    obs, _ = env.reset(seed=seed, options={"factors": values})
    while attempt.outcome is None:
        label = teacher.label()
        if isinstance(label, Abstain):
            attempt.abstained = label.reason
            break
        # An Ornstein-Uhlenbeck walk: white noise would be filtered out by the servos.
        disturbance = 0.7 * disturbance + spread * rng.normal(size=len(spread)) * math.sqrt(1 - 0.7**2)
        executed = np.minimum(np.maximum(label + disturbance, low), high).astype(np.float32)
        attempt.seen.append(obs)
        attempt.looks.append(None if later is None else later.look())
        attempt.labels.append(label)
        attempt.executed.append(executed)
        obs, _, _, _, info = env.step(executed)
        attempt.outcome = info.get("outcome")
    return attempt


def _drawn(env: TaskEnv, looks: Sequence[Any]) -> dict[str, NDArray[np.uint8]]:
    """Return the frames of an episode that is over, ``(T, H, W, 3)`` by camera."""
    size = env.image_size
    # bottom row first, as renderers read
    images = {
        camera: np.empty((len(looks), size, size, 3), dtype=np.uint8)[:, ::-1] for camera in env.cameras
    }
    able(env, DrawsLater).draw(looks, images)
    return images


def dataset_spec(spec: GenerateSpec, env: TaskEnv, teacher: Teacher) -> DatasetSpec:
    """Return the store's spec of a generation run, stamped with everything that made it."""
    fields = {
        **env.stamp_fields(),
        "teacher": teacher.name,
        "factors": spec.ranges.name,
        "generate": spec.recipe(),
        "source": source_hash("envs", "teachers")[:16],
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


def generate(
    spec: GenerateSpec,
    out: Path,
    *,
    workers: int,
    progress: Callable[[int, int], None] | None = None,
    runner: TaskRunner = run_tasks,
) -> GenerateReport:
    """Generate episodes into a dataset folder; after a kill, the same call makes what is missing, and with more episodes it adds them.

    Only episodes in which the teacher succeeded are kept: the label is verified by the rollout it came from.

    Args:
        spec: what to make.
        out: dataset folder, new or of the same spec with any number of episodes.
        workers: processes; 0 runs in this one.
        progress: called with (episodes on disk, total).
        runner: who runs the tasks: worker processes of this machine, or those of a cluster.

    Raises:
        DataError: the folder holds another dataset, or the teacher cannot solve an initial condition of these
            ranges.
        UsageError: an env or camera that is not there.
        BusyError: another process is writing into the folder.
    """
    if spec.episodes < 1:
        raise DataError(f"cannot generate {spec.episodes} episodes; ask for at least one")
    with alone_in(out):
        release_claim(out)
        return _generate(spec, out, workers, progress, runner)


def _generate(
    spec: GenerateSpec,
    out: Path,
    workers: int,
    progress: Callable[[int, int], None] | None,
    runner: TaskRunner,
) -> GenerateReport:
    env = recorded_env(spec, render=False)
    stored = dataset_spec(spec, env, make_teacher(env))
    writer = EpisodeWriter(out, stored)
    done = writer.done()
    missing = [i for i in range(spec.episodes) if i not in done]
    total = len(done) + len(missing)
    tally = {"ready": len(done), "attempts": 0, "frames": 0}
    rejected: dict[str, int] = {}

    def landed(batch: list[Made]) -> None:
        for made in batch:
            tally["ready"] += 1
            tally["attempts"] += 1 + len(made.rejected)
            tally["frames"] += made.frames
            for reason in made.rejected:
                rejected[reason] = rejected.get(reason, 0) + 1
        if progress:
            progress(tally["ready"], total)

    if progress:
        progress(tally["ready"], total)
    # a few for each worker, so that all end at about the same time
    size = min(BATCH, math.ceil(len(missing) / (4 * max(1, workers))))
    batches = [missing[k : k + size] for k in range(0, len(missing), size)] if missing else []
    runner(_Maker, (spec, out.resolve(), stored), batches, workers=workers, on_result=landed)
    fingerprint = writer.finish()  # of a finished one: held against its bytes
    dataset = open_dataset(out)
    return GenerateReport(
        root=out,
        episodes=dataset.n_episodes,
        frames=dataset.n_frames,
        frames_made=tally["frames"],
        fingerprint=fingerprint,
        attempts=tally["attempts"],
        rejected=rejected,
    )


def recorded_env(spec: GenerateSpec, *, render: bool) -> TaskEnv:
    """Return the env of a spec with the cameras it records.

    Raises:
        UsageError: unknown env, engine or camera, or a camera named twice.
        MachineError: the engine is not installed.
    """
    env = make_env(spec.env, image_size=spec.image_size, render=render, engine=spec.engine)
    for camera in spec.cameras:
        if camera not in env.cameras:
            raise UsageError(f"{spec.env} has no camera {camera!r}; {did_you_mean(camera, env.cameras)}")
    if len(set(spec.cameras)) != len(spec.cameras):
        raise UsageError(f"cameras {', '.join(spec.cameras)}: one is named twice; name each once")
    if spec.cameras:
        env.cameras = tuple(camera for camera in env.cameras if camera in spec.cameras)
    return env


class Made(NamedTuple):
    """One episode that was written."""

    frames: int
    rejected: list[str]
    """Why the attempts before it were thrown away."""


class _Maker:
    """Makes episodes in a worker: one env, one GL context, one writer for all of them."""

    def __init__(self, spec: GenerateSpec, out: Path, stored: DatasetSpec) -> None:
        self._spec = spec
        self._env = recorded_env(spec, render=True)
        self._teacher = make_teacher(self._env)
        self._writer = EpisodeWriter(out, stored, sync_every=SYNC_EVERY)

    def __enter__(self) -> _Maker:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.flush()
        self._env.close()

    def __call__(self, indices: Sequence[int]) -> list[Made]:
        """Make and write episodes; those made before one that cannot be made are kept."""
        done: list[Made] = []
        ready: list[Prepared] = []
        try:
            for index in indices:
                made, episode = self._make(index)
                ready.append(self._writer.prepare(index, episode))
                done.append(made)
        finally:
            self._writer.commit(ready)
        return done

    def _make(self, index: int) -> tuple[Made, Episode]:
        spec, env = self._spec, self._env
        rejected: list[str] = []
        for attempt in range(MAX_ATTEMPTS):
            seed = seed_of(spec.purpose, spec.seed, index * MAX_ATTEMPTS + attempt)
            values = env.factor_space.sample(spec.ranges, child_rng(seed, "factors"))
            rollout = roll_teacher(env, self._teacher, values, seed, spec.noise_deg)
            if rollout.episode is not None and rollout.episode.outcome.is_success:
                return Made(len(rollout.episode), rejected), rollout.episode
            rejected.append(
                f"abstained: {rollout.abstained}"
                if rollout.episode is None
                else rollout.episode.outcome.detail
            )
        reasons = ", ".join(sorted(set(rejected)))
        raise DataError(
            f"the teacher of {spec.env} failed {MAX_ATTEMPTS} conditions in a row under {spec.ranges.name!r}"
            f" ({reasons}); narrow the ranges"
        )
