"""The probe: a small network that has to say where the target is, from frames of one size; what it cannot see no policy will.

It is the encoder a policy would get, trained on stills whose target the simulator knows (or an operator has
measured), and scored on scenes it was not trained on. Robot poses tell nothing about the target, so that only
pixels can; a blind probe that gets encoders and no frames is scored beside it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from simgap.conventions import ActionSpec, Dimension, StateSpec, Unit
from simgap.envs.abilities import TrainsProbe, able
from simgap.envs.base import TaskEnv
from simgap.envs.factors import FactorRanges, FactorValues
from simgap.episodes.table import FrameTable
from simgap.errors import DataError
from simgap.policies.checkpoint import load_policy
from simgap.provenance import content_hash
from simgap.statistics import Estimate, wilson
from simgap.training import TrainSpec, train

Scene: TypeAlias = tuple[FactorValues, NDArray[np.float32] | None]
"""Factor values, and encoder readings or None for the start."""
PHASES = ("start", "near")
"""Where an episode begins, and beside the target but not straight at it."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ProbeSet:
    """Labelled stills of one frame size."""

    images: Mapping[str, NDArray[np.uint8]]
    """Camera -> ``(N, size, size, 3)``."""
    state: NDArray[np.float32]
    """``(N, S)``, state units."""
    target_m: NDArray[np.float32]
    """``(N, 2)`` where the target lies, as the env says a policy has to know it."""
    others_m: NDArray[np.float32]
    """``(N, K, 2)`` what it could be mistaken for; K may be 0."""
    phase: NDArray[np.str_]
    """``(N,)`` one of the phases."""

    def __len__(self) -> int:
        return len(self.state)

    def rows(self, chosen: NDArray[np.intp]) -> ProbeSet:
        """Return some rows."""
        return ProbeSet(
            images={k: v[chosen] for k, v in self.images.items()},
            state=self.state[chosen],
            target_m=self.target_m[chosen],
            others_m=self.others_m[chosen],
            phase=self.phase[chosen],
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeSpec:
    """How long the probe trains; enough for its error to settle, at most two minutes on two cores."""

    scenes: int = 2000
    """Scenes of each phase."""
    held_out_share: float = 0.15
    steps: int = 1000
    batch: int = 64
    learning_rate: float = 2e-3
    width: int = 32
    hidden: int = 128
    threads: int = 2
    seed: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseError:
    """Held-out error in one phase."""

    phase: str
    n: int
    median_mm: float
    median_interval_mm: tuple[float, float] | None
    """95 %, from order statistics: no distribution is assumed. None of fewer than six scenes."""
    p90_mm: float
    placed: Estimate
    """Scenes whose error is at most the task's tolerance; Wilson."""
    told_apart: Estimate
    """Scenes in which the guess lies nearer the target than anything it could be mistaken for; Wilson."""
    blind_median_mm: float
    """Median error of guessing from the encoders alone."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


def sample_scenes(
    env: TaskEnv, ranges: FactorRanges, count: int, rng: np.random.Generator
) -> dict[str, list[Scene]]:
    """Draw scenes of both phases.

    Raises:
        DataError: these ranges allow no near pose in 20 draws each.
    """
    scenes: dict[str, list[Scene]] = {phase: [] for phase in PHASES}
    probed = able(env, TrainsProbe)
    for _ in range(count):
        scenes["start"].append((env.factor_space.sample(ranges, rng), None))
    for _ in range(20 * count):
        if len(scenes["near"]) == count:
            break
        near = probed.near_target(env.factor_space.sample(ranges, rng), rng)
        if near is not None:
            scenes["near"].append(near)
    if len(scenes["near"]) < count:
        raise DataError(
            f"only {len(scenes['near'])} of {20 * count} draws from {ranges.name!r} gave a pose near the"
            " target; narrow the ranges"
        )
    return scenes


def draw_sets(
    env: TaskEnv,
    scenes: Mapping[str, Sequence[Scene]],
    sizes: Sequence[int],
    cameras: Sequence[str],
    rng: np.random.Generator,
    progress: Callable[[int], None] | None = None,
) -> dict[int, ProbeSet]:
    """Render every scene at every size; sensor noise is drawn where the factors say so."""
    probed, total = able(env, TrainsProbe), sum(len(s) for s in scenes.values())
    images = {size: {c: np.empty((total, size, size, 3), np.uint8) for c in cameras} for size in sizes}
    state = np.empty((total, len(env.state_spec)), np.float32)
    target, others, phases = [], [], []
    row = 0
    for phase, poses in scenes.items():
        for values, readings in poses:
            env.render_still(values, readings, cameras=())
            landmarks = probed.landmarks()
            target.append(probed.target_offset(landmarks[0].position_m))
            others.append([probed.target_offset(m.position_m) for m in landmarks if m.role == "distractor"])
            phases.append(phase)
            state[row] = probed.rest_readings(values) if readings is None else readings
            sigma = values.get("image_noise", 0.0)
            for size in sizes:
                frames = probed.frames_at(size)
                for camera in cameras:
                    noisy = (
                        frames[camera]
                        if sigma <= 0
                        else np.clip(frames[camera] + rng.normal(0.0, sigma, frames[camera].shape), 0, 255)
                    )
                    images[size][camera][row] = noisy
            row += 1
            if progress:
                progress(1)
    common = {
        "state": state,
        "target_m": np.array(target, np.float32),
        "others_m": np.array(others, np.float32).reshape(total, -1, 2),
        "phase": np.array(phases),
    }
    return {size: ProbeSet(images=images[size], **common) for size in sizes}


def train_probe(
    data: ProbeSet, spec: ProbeSpec, progress: Callable[[int], None] | None = None
) -> Callable[[ProbeSet], NDArray[np.float32]]:
    """Train on labelled stills; return what predicts target offsets, ``(N, 2)`` m, for others.

    The trainer of policies does it: a probe is a policy whose action is to point at the target, one step
    ahead. ``progress`` is called with the training steps done since the last call.
    """
    recipe = TrainSpec(
        steps=spec.steps,
        batch=min(spec.batch, len(data)),
        learning_rate=spec.learning_rate,
        chunk=1,
        width=spec.width,
        hidden=spec.hidden,
        shift_px=0,  # a shifted frame would show the target elsewhere than its label says
        seed=spec.seed,
        threads=spec.threads,
        executor="latest",
        checkpoint_every_steps=10**9,
    )
    with tempfile.TemporaryDirectory() as folder:
        train(
            [_as_table(data)],
            None,
            recipe,
            Path(folder) / "probe",
            progress=None if progress is None else lambda now: progress(now.new),
        )
        policy = load_policy(Path(folder) / "probe")

    def predict(asked: ProbeSet) -> NDArray[np.float32]:
        parts = [
            policy.predict(
                {k: v[i : i + 256] for k, v in asked.images.items()}, np.asarray(asked.state[i : i + 256])
            )[:, 0]
            for i in range(0, len(asked), 256)
        ]
        return np.concatenate(parts)

    return predict


def _as_table(data: ProbeSet) -> FrameTable:
    """Return the stills as episodes of one frame, with the target's place as the action."""
    reach = float(np.abs(data.target_m).max()) + 1e-3
    target = ActionSpec(
        dimensions=tuple(
            Dimension(name=f"target.{axis}", unit=Unit.METRE, low=-reach, high=reach) for axis in "xy"
        ),
        rate_hz=1.0,
    )
    extent = float(np.abs(data.state).max()) + 1.0
    names = tuple(
        Dimension(name=f"encoder{k}", unit=Unit.UNKNOWN, low=-extent, high=extent)
        for k in range(data.state.shape[1])
    )
    return FrameTable(
        images=data.images,
        state=data.state,
        action=data.target_m,
        episode_start=np.arange(len(data) + 1, dtype=np.int64),
        action_spec=target,
        state_spec=StateSpec(dimensions=names, rate_hz=1.0),
        fingerprint=content_hash([len(data), data.target_m.tobytes().hex()[:4096]]),
    )


def held_out_errors(
    predicted_m: NDArray[np.float32], truth: ProbeSet, blind_m: NDArray[np.float32], tolerance_m: float
) -> list[PhaseError]:
    """Score predictions by phase."""
    found = []
    for phase in dict.fromkeys(truth.phase.tolist()):
        rows = truth.phase == phase
        error = np.linalg.norm(predicted_m[rows] - truth.target_m[rows], axis=1)
        to_others = np.linalg.norm(predicted_m[rows][:, None] - truth.others_m[rows], axis=2)
        apart = error < to_others.min(axis=1, initial=np.inf)
        blind = np.linalg.norm(blind_m[rows] - truth.target_m[rows], axis=1)
        found.append(
            PhaseError(
                phase=str(phase),
                n=len(error),
                median_mm=1000 * float(np.median(error)),
                median_interval_mm=_median_interval(1000 * error),
                p90_mm=1000 * float(np.percentile(error, 90)),
                placed=wilson(int((error <= tolerance_m).sum()), len(error)),
                told_apart=wilson(int(apart.sum()), len(error)),
                blind_median_mm=1000 * float(np.median(blind)),
            )
        )
    return found


def _median_interval(values: NDArray[np.floating[Any]]) -> tuple[float, float] | None:
    """Return the 95 % interval of a median: the order statistics between which it lies by the binomial law; None of fewer than six values.

    Of five values even the whole range holds the median in 94 % of cases only.
    """
    ordered = np.sort(values)
    below = int(binom.ppf(0.025, len(ordered), 0.5))
    return (float(ordered[below - 1]), float(ordered[len(ordered) - below])) if below >= 1 else None


def blind_guess(train: ProbeSet, asked: ProbeSet) -> NDArray[np.float32]:
    """Return the best quadratic guess from encoders alone, ``(N, 2)`` m."""

    def features(data: ProbeSet) -> NDArray[np.float64]:
        scaled = (data.state - train.state.mean(axis=0)) / (train.state.std(axis=0) + 1e-3)
        pairs = scaled[:, :, None] * scaled[:, None, :]
        upper = np.triu_indices(scaled.shape[1])
        return np.column_stack([np.ones(len(data)), scaled, pairs[:, upper[0], upper[1]]])

    solution, *_ = np.linalg.lstsq(features(train), train.target_m.astype(np.float64), rcond=None)
    return np.asarray(features(asked) @ solution, dtype=np.float32)
