"""A training whose checkpoints along the way are kept, each with what held-out episodes say of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from simgap.episodes.table import FrameTable
from simgap.errors import UsageError
from simgap.policies.checkpoint import CARD, write_checkpoint
from simgap.policies.inference import torch_threads
from simgap.provenance import content_hash
from simgap.training.plan import Plan, make_card, make_plan
from simgap.training.resume import read_resume, write_resume
from simgap.training.run import TrainingRun
from simgap.training.spec import TrainSpec


def steps_of(total: int, count: int) -> tuple[int, ...]:
    """Return after which steps checkpoints are kept: evenly spaced, the last at the end.

    Raises:
        UsageError: more checkpoints than steps.
    """
    steps = tuple(int(s) for s in np.unique(np.linspace(total / count, total, count).round()))
    if len(steps) < count or steps[0] < 1:
        raise UsageError(f"{count} checkpoints of {total} steps: expected at least one step each; train longer or keep fewer")
    return steps


def train_keeping(
    tables: Sequence[FrameTable], spec: TrainSpec, at: Sequence[int], out: Path, progress: Callable[[int], None] | None = None
) -> tuple[list[Path], Plan]:
    """Train, and keep a checkpoint after each of some steps; killed and started again it goes on and ends with the same bits.

    A checkpoint along the way has the averaged weights of its step, at the learning rate of a longer training: it is what a watcher of
    that training could have taken, not what a shorter training would have made.

    Args:
        tables: the data, mixed in proportion to their frames.
        spec: of the whole training; a share of episodes has to be held out.
        at: steps, the last is the training's.
        out: folder; checkpoints are ``step-N`` below it.
        progress: called with 1 after each step.

    Returns:
        The checkpoints in the order of their steps, and the plan, which says what was held out.

    Raises:
        UsageError: nothing is held out.
    """
    plan = make_plan(tables, None, spec)
    if not any(len(r) for r in plan.held_out_rows):
        raise UsageError("no episode is held out, so there is no validation loss to study; give a validation share and more episodes")
    folders = {step: out / f"step-{step}" for step in at}
    if all((f / CARD).is_file() for f in folders.values()):
        return list(folders.values()), plan
    out.mkdir(parents=True, exist_ok=True)
    request = content_hash({"spec": spec.to_json(), "data": [t.fingerprint for t in tables], "at": list(at)})
    with torch_threads(1 if spec.device == "cpu" else spec.threads), closing(TrainingRun(tables, plan, spec)) as run:
        if (state := read_resume(out, request)) is not None:
            run.restore(state)
        while run.step < at[-1]:
            run.last_loss = run.advance(run.draw())
            if run.step in folders:
                held_out = run.held_out()
                record = {"step": run.step, "last_loss": run.last_loss, "validation_loss_never_selects": None if held_out is None else held_out[0]}
                write_checkpoint(folders[run.step], make_card(tables, None, spec, plan, record), run.export())
                write_resume(out, request, run.state())  # after the checkpoint: a kill between the two makes the same checkpoint again
            if progress:
                progress(1)
    return list(folders.values()), plan
