"""A made-up dataset for tests and benchmarks: find the coloured square. It needs no simulator and is learnt in seconds."""

from __future__ import annotations

import numpy as np

from simgap.conventions import ActionSpec, Dimension, StateSpec, Unit
from simgap.episodes.table import FrameTable
from simgap.provenance import content_hash

ACTION_SPEC = ActionSpec(
    rate_hz=20.0,
    dimensions=(
        Dimension(name="x.pos", unit=Unit.DEG, low=-90.0, high=90.0),
        Dimension(name="y.pos", unit=Unit.DEG, low=-90.0, high=90.0),
        Dimension(name="gripper.pos", unit=Unit.PERCENT, low=0.0, high=100.0, is_gripper=True),
    ),
)
STATE_SPEC: StateSpec = ACTION_SPEC


def find_the_square(
    rng: np.random.Generator,
    *,
    episodes: int = 40,
    length: int = 20,
    image_size: int = 64,
    cameras: tuple[str, ...] = ("front",),
) -> FrameTable:
    """Return episodes in which a hand moves in a straight line to a red square that only the images show.

    The first camera sees the square among grey clutter, further cameras see noise. Square, clutter and start
    are random; the action at a frame is the position of the hand at the next one, the gripper closes over the
    last quarter.

    Args:
        rng: generator.
        episodes: number of episodes.
        length: frames in each.
        image_size: pixels.
        cameras: names.
    """
    side = max(4, image_size // 12)
    images = {c: np.empty((episodes * length, image_size, image_size, 3), dtype=np.uint8) for c in cameras}
    states, actions = [], []
    progress = np.arange(length + 1)[:, None] / length
    for episode in range(episodes):
        rows = slice(episode * length, (episode + 1) * length)
        for frames in images.values():
            frames[rows] = 90 + rng.integers(0, 40, size=(1, image_size, image_size, 1), dtype=np.uint8)
        row, column = rng.integers(side, image_size - 2 * side, size=2)
        images[cameras[0]][rows, row : row + side, column : column + side] = (210, 40, 30)
        goal = (np.array([column, row]) + side / 2) / image_size * 120.0 - 60.0
        path = (1.0 - progress) * rng.uniform(-60.0, 60.0, size=2) + progress * goal
        gripper = np.where(progress > 0.75, 5.0, 90.0)
        whole = np.concatenate((path, gripper), axis=1).astype(np.float32)
        states.append(whole[:-1])
        actions.append(whole[1:])
    return FrameTable(
        images=images,
        state=np.concatenate(states),
        action=np.concatenate(actions),
        episode_start=np.arange(episodes + 1, dtype=np.int64) * length,
        action_spec=ACTION_SPEC,
        state_spec=STATE_SPEC,
        fingerprint=content_hash(
            [
                episodes,
                length,
                image_size,
                list(cameras),
                float(np.concatenate(actions).sum(dtype=np.float64)),
            ]
        ),
    )
