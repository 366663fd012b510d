"""Batches from frames in memory: exact mixture, random shift, targets masked past the end of an episode.

Every batch is a function of (seed, step) alone. No sampler state exists, so a resumed run draws what the
uninterrupted run would have drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simgap.episodes.table import FrameTable
from simgap.policies.normaliser import Normaliser
from simgap.provenance import child_rng
from simgap.training.spec import TrainSpec


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Batch:
    """One step's samples."""

    images: tuple[NDArray[np.uint8], ...]
    """Per camera ``(B, H, W, 3)``."""
    state: NDArray[np.float32]
    """``(B, S)`` normalised; the domain and the goal follow for a policy that is told them."""
    target: NDArray[np.float32]
    """``(B, chunk, A)`` normalised."""
    mask: NDArray[np.float32]
    """``(B, chunk)``, 0 past the end of the episode."""
    noise: NDArray[np.float32] | None = None
    """``(B, chunk, refined)`` for a head that denoises."""
    time: NDArray[np.float32] | None = None
    """``(B,)`` how far each sample is on its way from noise to action."""


def quotas(shares: Sequence[float], batch: int, steps: int) -> NDArray[np.int64]:
    """Return how many samples each table gives to each batch, ``(steps, T)``.

    See :func:`diffuse`.
    """
    return diffuse(shares, np.full(steps, batch, dtype=np.int64))


def diffuse(shares: Sequence[float] | NDArray[np.float64], totals: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many samples each table gives to batches of given sizes, ``(steps, T)``; every row sums to its size.

    Every batch gives the whole part of what each table is owed, and the rest to the tables owed most, so the
    running counts follow the shares to within a sample or two at every step, and a table with a share of 0
    gives nothing.
    """
    share = np.asarray(shares, dtype=np.float64)
    share = share / share.sum()
    table = np.zeros((len(totals), len(share)), dtype=np.int64)
    drawn = np.zeros(len(share), dtype=np.int64)
    for step, (batch, total) in enumerate(zip(totals.tolist(), np.cumsum(totals).tolist(), strict=True)):
        owed = share * total - drawn
        whole = np.maximum(np.floor(owed), 0).astype(np.int64)
        while whole.sum() > batch:
            whole[np.argmax(whole)] -= 1
        rest = batch - int(whole.sum())
        whole[np.argsort(-(owed - whole), kind="stable")[:rest]] += 1
        table[step] = whole
        drawn += whole
    return table


class BatchSource:
    """Draws batches from one or more tables."""

    def __init__(
        self,
        tables: Sequence[FrameTable],
        rows: Sequence[NDArray[np.int64]],
        *,
        cameras: Sequence[str],
        normaliser: Normaliser,
        chunk: int,
        counts: NDArray[np.int64],
        domains: NDArray[np.float32] | None = None,
        goals: Sequence[NDArray[np.float32]] | None = None,
    ) -> None:
        """Prepare normalised columns; frames stay where they are.

        Args:
            tables: the data.
            rows: per table, the rows that may be drawn.
            cameras: order of the cameras.
            normaliser: of the policy.
            chunk: future steps in a target.
            counts: samples of each table in each batch, ``(steps, T)``.
            domains: ``(T, 2)`` inputs that tell where a table's samples come from; None for a policy that is
                not told.
            goals: per table ``(N, G)`` inputs that tell what is to be done; None for a policy that is not
                told.
        """
        self._counts = counts
        self._domains, self._goals = domains, goals
        self._before = np.cumsum(counts, axis=0) - counts
        self._rows = [np.asarray(r) for r in rows]
        self._frames = [[t.images[c] for c in cameras] for t in tables]
        self._state = [normaliser.state.normalise(t.state) for t in tables]
        self._action = [normaliser.action.normalise(t.action) for t in tables]
        self._last = [_last_row(t) for t in tables]
        self._ahead = np.arange(chunk)

    def draw(self, spec: TrainSpec, step: int) -> Batch:
        """Return the batch of a step: without replacement within a pass over a table, augmented as the spec says."""
        chosen = [self._chosen(i, spec.seed, step) for i in range(len(self._rows))]
        rng = child_rng(spec.seed, "augment", step)
        size = len(self._frames[0])
        shifts = rng.integers(-spec.shift_px, spec.shift_px + 1, size=(size, spec.batch, 2))
        state = np.concatenate([s[r] for s, r in zip(self._state, chosen, strict=True)])
        if spec.proprioception_noise:
            state += rng.normal(0.0, spec.proprioception_noise, state.shape).astype(np.float32)
        if spec.proprioception_dropout:
            state[rng.random(len(state)) < spec.proprioception_dropout] = 0.0
        return self._assemble(chosen, self._told(state, chosen), shifts if spec.shift_px else None)

    def all_of(self, table: int, rows: NDArray[np.int64]) -> Batch:
        """Return given rows of a table without augmentation."""
        chosen = [rows if i == table else np.empty(0, np.int64) for i in range(len(self._rows))]
        return self._assemble(chosen, self._told(self._state[table][rows], chosen), None)

    def _told(self, state: NDArray[np.float32], chosen: Sequence[NDArray[np.int64]]) -> NDArray[np.float32]:
        """Return states with domain and goal of each sample beside them; neither noise nor dropout touches those."""
        if self._domains is not None:
            state = np.concatenate(
                [state, np.repeat(self._domains, [len(rows) for rows in chosen], axis=0)], axis=1
            )
        if self._goals is not None:
            state = np.concatenate(
                [state, np.concatenate([g[rows] for g, rows in zip(self._goals, chosen, strict=True)])],
                axis=1,
            )
        return state

    def _chosen(self, table: int, seed: int, step: int) -> NDArray[np.int64]:
        rows, count = self._rows[table], int(self._counts[step, table])
        first = int(self._before[step, table])
        places = np.arange(first, first + count)
        picked = np.empty(count, dtype=np.int64)
        for epoch in np.unique(places // max(1, len(rows))):
            order = child_rng(seed, "order", table, int(epoch)).permutation(len(rows))
            inside = places // len(rows) == epoch
            picked[inside] = rows[order[places[inside] % len(rows)]]
        return picked

    def _assemble(
        self,
        chosen: Sequence[NDArray[np.int64]],
        state: NDArray[np.float32],
        shifts: NDArray[np.int64] | None,
    ) -> Batch:
        images = []
        for camera in range(len(self._frames[0])):
            parts, start = [], 0
            for frames, rows in zip(self._frames, chosen, strict=True):
                shift = None if shifts is None else shifts[camera, start : start + len(rows)]
                parts.append(frames[camera][rows] if shift is None else shifted(frames[camera], rows, shift))
                start += len(rows)
            images.append(parts[0] if len(parts) == 1 else np.concatenate(parts))
        targets, masks = [], []
        for action, last, rows in zip(self._action, self._last, chosen, strict=True):
            ahead = rows[:, None] + self._ahead
            masks.append(ahead <= last[rows][:, None])
            targets.append(action[np.minimum(ahead, last[rows][:, None])])
        return Batch(
            images=tuple(images),
            state=state,
            target=np.concatenate(targets),
            mask=np.concatenate(masks).astype(np.float32),
        )


def shifted(
    frames: NDArray[np.uint8], rows: NDArray[np.int64], shifts: NDArray[np.int64]
) -> NDArray[np.uint8]:
    """Gather frames, each moved by its own (dy, dx) with its edge repeated.

    A loop of block copies on purpose: ten times faster than one indexed gather, because whole image rows are
    copied.

    Args:
        frames: ``(N, H, W, 3)`` uint8.
        rows: ``(B,)`` frames to take.
        shifts: ``(B, 2)`` pixels down and right in the source that land at the origin.

    Returns:
        ``(B, H, W, 3)`` uint8.
    """
    height, width = frames.shape[1:3]
    out = np.empty((len(rows), *frames.shape[1:]), dtype=np.uint8)
    for target, row, (dy, dx) in zip(out, rows.tolist(), shifts.tolist(), strict=True):
        top, bottom, left, right = max(0, -dy), height - max(0, dy), max(0, -dx), width - max(0, dx)
        target[top:bottom, left:right] = frames[row, top + dy : bottom + dy, left + dx : right + dx]
        if left:
            target[top:bottom, :left] = target[top:bottom, left : left + 1]
        if right < width:
            target[top:bottom, right:] = target[top:bottom, right - 1 : right]
        if top:
            target[:top] = target[top]
        if bottom < height:
            target[bottom:] = target[bottom - 1]
    return out


def _last_row(table: FrameTable) -> NDArray[np.int64]:
    lengths = np.diff(table.episode_start)
    return np.repeat(table.episode_start[1:] - 1, lengths)


def split(batch: Batch, shards: int) -> list[Batch]:
    """Deal a batch out to shards like cards, so that each gets its share of every table."""
    return [
        Batch(
            images=tuple(i[s::shards] for i in batch.images),
            state=batch.state[s::shards],
            target=batch.target[s::shards],
            mask=batch.mask[s::shards],
            noise=None if batch.noise is None else batch.noise[s::shards],
            time=None if batch.time is None else batch.time[s::shards],
        )
        for s in range(shards)
    ]
