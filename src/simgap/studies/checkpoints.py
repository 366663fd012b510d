"""A training whose checkpoints along the way are kept, each with what held-out episodes say of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from simgap.episodes.table import FrameTable
from simgap.errors import UsageError
from simgap.training import TrainSpec, train
from simgap.training.plan import Plan, make_plan
from simgap.training.trainer import kept_folder, steps_of

__all__ = ["steps_of", "train_keeping"]


def train_keeping(
    tables: Sequence[FrameTable],
    spec: TrainSpec,
    at: Sequence[int],
    out: Path,
    progress: Callable[[int], None] | None = None,
) -> tuple[list[Path], Plan]:
    """Train, and keep a checkpoint after each of some steps; killed and started again it goes on and ends with the same bits.

    Args:
        tables: the data, mixed in proportion to their frames.
        spec: of the whole training; a share of episodes has to be held out.
        at: steps, the last is the training's.
        out: folder of the training.
        progress: called with the number of steps that are new.

    Returns:
        The checkpoints in the order of their steps, and the plan, which says what was held out.

    Raises:
        UsageError: nothing is held out.
    """
    plan = make_plan(tables, None, spec)
    if not any(len(r) for r in plan.held_out_rows):
        raise UsageError(
            "no episode is held out, so there is no validation loss to study; give a validation share and"
            " more episodes"
        )
    train(tables, None, spec, out, None if progress is None else lambda now: progress(now.new), keep=at[:-1])
    return [*(kept_folder(out, step) for step in at[:-1]), out], plan
