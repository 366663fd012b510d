"""Replays as motions: command and state of each joint, and how the arm responds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from simgap.conventions import ActionSpec
from simgap.episodes.reader import Dataset
from simgap.errors import DataError
from simgap.measures.response import Motion, Response, fit_response
from simgap.measures.units import PER_DEGREE


def usable_replays(log: Dataset) -> list[int]:
    """Return the replays that prove something, by index: neither void nor too short to fit."""
    episodes = ((i, log.episode(i, images=False)) for i in range(log.n_episodes))
    return [i for i, episode in episodes if len(episode) > 12 and not episode.outcome.is_void]


def motions_of(log: Dataset, indices: Sequence[int] | None = None) -> list[Motion]:
    """Return what was commanded and what the encoders read, per episode of a log.

    Where the log's plan corrected commands between the policy's convention and the driver's, what is returned is
    what was asked for, so that it is the robot with its correction that is judged.

    Args:
        log: replays, or the episodes that were replayed.
        indices: which; both sides of a comparison have to take the same. All usable ones by default.
    """
    found = []
    undone = _corrected(log)
    for index in usable_replays(log) if indices is None else indices:
        episode = log.episode(index, images=False)
        command = episode.extras.get("executed_action", episode.action)
        found.append((np.asarray(command * undone, dtype=np.float32), episode.state))
    return found


def _corrected(log: Dataset) -> NDArray[np.float32]:
    """Return by what the commands of a trial log were divided before they were sent, by dimension; 1 where by nothing."""
    plan = log.spec.stamp.fields.get("plan")
    commands = plan.get("commands") if isinstance(plan, Mapping) else None
    if not commands:
        return np.ones(1, dtype=np.float32)
    names = log.spec.action_spec.names
    divided = [commands.get(n, 1.0) for n in names] if isinstance(commands, Mapping) else [None]
    if not all(isinstance(d, int | float) and math.isfinite(d) and d for d in divided):
        raise DataError(
            f"{log.root}: the stamp says by what commands were divided, and {commands!r:.80} are no numbers;"
            " restore the log"
        )
    return np.array(divided, dtype=np.float32)


def arm_columns(spec: ActionSpec) -> list[int]:
    """Return the dimensions a response is fitted for: grippers close on things, so their reading says little."""
    return [i for i, dimension in enumerate(spec.dimensions) if not dimension.is_gripper]


def response_of(motions: Sequence[Motion], spec: ActionSpec) -> Response:
    """Fit the response of every dimension but the grippers."""
    columns = arm_columns(spec)
    cut = [(a[:, columns], s[:, columns]) for a, s in motions]
    return fit_response(
        cut,
        [spec.names[i] for i in columns],
        (spec.low[columns], spec.high[columns]),
        [PER_DEGREE[spec.dimensions[i].unit] for i in columns],
    )
