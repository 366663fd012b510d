"""A policy asked on recordings: on those it was trained on, and on live ones; no robot moves and no simulator is needed.

On training frames predictions have to follow the labels in convention and spread, and have to depend on each
camera. On live frames each camera has to be in its slot, lie as in training and be alive; a policy that follows
on training frames and is flat on live ones sees other pictures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from simgap import causes
from simgap.causes import Family
from simgap.checks.deployment.preflight import check_alive, check_crop, check_orientation, check_slots
from simgap.checks.deployment.visible import check_light
from simgap.checks.policy.behaviour import BLIND, check_collapse, check_frames, image_sensitivity
from simgap.checks.replay.convention import check_convention
from simgap.episodes.reader import Dataset
from simgap.errors import DataError, UsageError
from simgap.findings import CheckResult, Verdict
from simgap.policies.base import Asked, Policy, WatchingPolicy, ask

EPISODES = 8
"""Episodes of a recording that are looked at, spread over it."""
ROWS = 24
"""Frames of each, spread over it."""

Frames = NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Looked:
    """Frames of a recording, and what a policy says on them, by episode."""

    images: Mapping[str, Frames]
    """Camera -> ``(N, H, W, 3)``."""
    firsts: Mapping[str, Frames]
    """The first frame of each episode: the robot is where episodes begin, so only the scene differs."""
    state: NDArray[np.float32]
    labels: tuple[NDArray[np.float32], ...]
    """``(T, A)`` of each episode."""
    said: tuple[NDArray[np.float32], ...]
    """First entry of each chunk, ``(T, A)`` of each episode."""

    @property
    def all_labels(self) -> NDArray[np.float32]:
        """Return ``(N, A)``."""
        return np.concatenate(self.labels)

    @property
    def all_said(self) -> NDArray[np.float32]:
        """Return ``(N, A)``."""
        return np.concatenate(self.said)


def look(policy: Policy, data: Dataset) -> Looked:
    """Ask a policy on frames spread over a recording.

    Raises:
        UsageError: the policy has to see every step, which a sample of frames cannot give.
        DataError: the recording is empty.
    """
    if isinstance(policy, WatchingPolicy) and policy.watches:
        raise UsageError(
            "this policy has to see every step of an episode and cannot be asked on single frames; screen it"
            " instead"
        )
    if not data.n_episodes:
        raise DataError(f"{data.root} holds no episodes")
    chosen = np.unique(np.linspace(0, data.n_episodes - 1, EPISODES).round().astype(int))
    images: dict[str, list[Frames]] = {camera: [] for camera in policy.cameras}
    firsts: dict[str, list[Frames]] = {camera: [] for camera in policy.cameras}
    states, labels, said = [], [], []
    for index in chosen:
        episode = data.episode(int(index))
        rows = np.unique(np.linspace(0, len(episode) - 1, ROWS).round().astype(int))
        seen = {camera: episode.images[camera][rows] for camera in policy.cameras}
        asked = [Asked(seed=int(index), step=int(row), goal=episode.task) for row in rows]
        chunks = ask(policy, seen, episode.state[rows], asked)
        for camera, frames in seen.items():
            images[camera].append(frames)
            firsts[camera].append(frames[:1])
        states.append(episode.state[rows])
        labels.append(episode.action[rows])
        said.append(np.asarray(chunks[:, 0], dtype=np.float32))
    return Looked(
        images={camera: np.concatenate(parts) for camera, parts in images.items()},
        firsts={camera: np.concatenate(parts) for camera, parts in firsts.items()},
        state=np.concatenate(states),
        labels=tuple(labels),
        said=tuple(said),
    )


def check_on_training(policy: Policy, looked: Looked, rng: np.random.Generator) -> list[CheckResult]:
    """Hold predictions on training frames against the labels: convention, spread, and whether each camera matters.

    Args:
        policy: what was asked.
        looked: what it said on its training set.
        rng: draws the noise that stands in for a camera.
    """
    spec = policy.action_spec
    convention = check_convention(looked.labels, looked.said, spec)
    return [
        replace(convention, name="convention of the predictions, on training frames"),
        check_collapse(looked.all_said, looked.all_labels, spec.names),
        _sight(policy, looked, rng),
    ]


def _sight(policy: Policy, looked: Looked, rng: np.random.Generator) -> CheckResult:
    moved = image_sensitivity(policy, looked.images, looked.state, looked.all_labels, rng)
    blind = [camera for camera, share in moved.items() if share < BLIND]
    told = ", ".join(f"{camera} {share:.0%}" for camera, share in moved.items())
    text = f"Noise in place of a camera moves the actions by this share of their spread: {told}."
    if len(blind) == len(moved):
        text += " It does not look at any camera."
    elif blind:
        text += f" It does not look at {', '.join(blind)}."
    is_blind = bool(moved) and len(blind) == len(moved)
    return CheckResult(
        family=Family.POLICY,
        name="does it look",
        verdict=Verdict.BROKEN if is_blind else Verdict.OK,
        cause=causes.POLICY if is_blind else causes.NONE,
        sentence=text,
        statistic="smallest share of the actions' spread",
        value=min(moved.values(), default=None),
        threshold=BLIND,
        n=len(looked.state),
        numbers={"moved": moved},
    )


def check_on_live(training: Looked, live: Looked) -> list[CheckResult]:
    """Hold live pictures, where episodes begin, and what the policy says on all of them against its training frames."""
    found = [check_alive(frames, camera=camera) for camera, frames in live.images.items()]
    if len(live.firsts) > 1:
        found.append(check_slots(live.firsts, training.firsts))
    for camera, frames in live.firsts.items():
        then = training.firsts[camera]
        found += [
            check_orientation(frames, then, camera=camera),
            check_crop(frames, then, camera=camera),
            check_light(frames, then, camera=camera),
        ]
    found.append(check_frames(training.all_said, live.all_said, training.all_labels, live.all_labels))
    return [replace(result, family=Family.DEPLOYMENT) for result in found]
