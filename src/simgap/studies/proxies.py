"""What might stand in for closed loop: numbers of a checkpoint from held-out episodes alone. Higher is better in all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simgap.episodes.table import FrameTable
from simgap.measures.motion import disagreement_by_age
from simgap.policies.base import Policy

PROXIES = ("validation_loss", "critical_error", "chunk_consistency")
BEFORE_AFTER = 6
"""Control steps around a change of the gripper that count as critical."""
_BATCH = 128


@dataclass(frozen=True, kw_only=True, slots=True)
class ProxyScores:
    """Scores of one checkpoint, signs turned so that higher is better."""

    validation_loss: float
    """Minus the head's own loss, as training logs it."""
    critical_error: float
    """Minus the error of the entries that would be sent, where the gripper is about to change, over the spread of the labels."""
    chunk_consistency: float
    """Minus how far predictions of one step drift as they age, over the spread of the labels."""


def critical_rows(action: NDArray[np.float32], grips: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which steps of an episode decide it, ``(T,)``: those around a change of a gripper; without one the last third.

    Args:
        action: ``(T, A)`` labels.
        grips: ``(A,)`` which dimensions are grippers.
    """
    steps = len(action)
    critical = np.zeros(steps, dtype=bool)
    if grips.any():
        moved = action[:, grips]
        width = np.maximum(moved.max(axis=0) - moved.min(axis=0), 1e-9)
        for t in np.flatnonzero((np.abs(np.diff(moved, axis=0)) > 0.1 * width).any(axis=1)):
            critical[max(0, t + 1 - BEFORE_AFTER) : t + 1 + BEFORE_AFTER] = True
    if not critical.any():
        critical[-max(1, steps // 3) :] = True
    return critical


def held_out_episodes(table: FrameTable, rows: NDArray[np.int64]) -> list[slice]:
    """Return the episodes whose frames are held out."""
    held = np.zeros(len(table), dtype=bool)
    held[rows] = True
    bounds = [
        (int(a), int(b)) for a, b in zip(table.episode_start[:-1], table.episode_start[1:], strict=True)
    ]
    return [slice(a, b) for a, b in bounds if b > a and held[a:b].any()]


def chunks_of(policy: Policy, table: FrameTable, episode: slice) -> NDArray[np.float32]:
    """Return what a policy predicts at every frame of an episode, ``(T, H, A)``."""
    parts = []
    for start in range(episode.start, episode.stop, _BATCH):
        here = slice(start, min(start + _BATCH, episode.stop))
        # Copies: frames may be mapped from a file that must not be written to.
        parts.append(
            policy.predict(
                {c: np.array(table.images[c][here]) for c in policy.cameras}, np.array(table.state[here])
            )
        )
    return np.concatenate(parts)


def score(
    policy: Policy, table: FrameTable, episodes: Sequence[slice], *, loss: float, sent: int
) -> ProxyScores:
    """Score a checkpoint on held-out episodes.

    Args:
        policy: the checkpoint.
        table: the data.
        episodes: held out.
        loss: its validation loss.
        sent: entries of a chunk that are sent before the next: only their errors are ever felt.
    """
    spread = np.maximum(np.concatenate([table.action[e] for e in episodes]).std(axis=0), 1e-6)
    errors, drifts = [], []
    for episode in episodes:
        labels, chunks = table.action[episode], chunks_of(policy, table, episode)
        horizon = min(sent, chunks.shape[1])
        for t in np.flatnonzero(critical_rows(labels, table.action_spec.gripper_mask)):
            last = min(horizon, len(labels) - t)
            errors.append(np.mean(np.abs(chunks[t, :last] - labels[t : t + last]) / spread))
        by_age = disagreement_by_age(
            chunks.astype(np.float64), np.arange(len(labels)), spread.astype(np.float64)
        )
        drifts.append(
            float(np.nanmean(by_age[1:])) if len(by_age) > 1 and np.isfinite(by_age[1:]).any() else 0.0
        )
    return ProxyScores(
        validation_loss=-loss,
        critical_error=-float(np.mean(errors)),
        chunk_consistency=-float(np.mean(drifts)),
    )
