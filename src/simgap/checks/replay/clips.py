"""Commands that were clipped at a stop during a replay."""

from __future__ import annotations

import numpy as np

from simgap.checks.replay.motions import arm_columns
from simgap.conventions import ActionSpec
from simgap.episodes.reader import Dataset

CLIPPED_SHARE = 0.2
"""Share of commands cut at one value above which it is a stop and not an incident."""


def clips_of(log: Dataset, spec: ActionSpec) -> dict[str, float]:
    """Return where the robot's driver cut commands that the convention allows, dimension -> value it was cut to.

    A driver that clips at another value than the convention's limit has another range or unit; a joint that
    stands at its stop moves too little to fit a multiplier, but the stop itself tells it.
    """
    cuts: dict[str, list[float]] = {}
    rows = 0
    for index in range(log.n_episodes):
        episode = log.episode(index, images=False)
        applied = episode.extras.get("applied_action")
        if applied is None:
            return {}
        rows += len(episode)
        for column in arm_columns(spec):
            command = episode.action[:, column]
            cut = (
                (np.abs(applied[:, column] - command) > 0.5)
                & (command >= spec.low[column])
                & (command <= spec.high[column])
            )
            cuts.setdefault(spec.names[column], []).extend(applied[cut, column].tolist())
    return {
        name: float(np.median(values))
        for name, values in cuts.items()
        if len(values) > CLIPPED_SHARE * rows and np.ptp(values) < 0.5
    }
