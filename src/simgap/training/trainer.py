"""The training loop."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, nullcontext
from pathlib import Path

import numpy as np

from simgap.compute.interrupts import HeldBack, Stopped
from simgap.compute.locks import alone_in
from simgap.episodes.table import FrameTable
from simgap.errors import UsageError
from simgap.policies.checkpoint import CARD, KEPT, read_card, write_checkpoint
from simgap.policies.inference import torch_threads
from simgap.provenance import content_hash
from simgap.training.open_loop import NEVER_SELECTS
from simgap.training.plan import make_card, make_plan
from simgap.training.request import keep_request, request_of, what_differs
from simgap.training.resume import FILE as RESUME_FILE
from simgap.training.resume import append_log, read_resume, trim_log, write_resume
from simgap.training.run import TrainingRun
from simgap.training.spec import TrainProgress, TrainSpec
from simgap.training.team import Team, joined
from simgap.types import EvidenceKind


def train(
    tables: Sequence[FrameTable],
    shares: Sequence[float] | None,
    spec: TrainSpec,
    out: Path,
    progress: Callable[[TrainProgress], None] | None = None,
    *,
    kinds: Sequence[EvidenceKind] | None = None,
    keep: Collection[int] = (),
) -> Path:
    """Train a policy, or fine-tune one, and write its checkpoint.

    The run is a function of tables, shares and spec. Killed at any moment and started again with the same
    arguments it goes on from its last resume point and ends with the same bits; a finished run is returned at
    once. The number of torch threads is set while this runs and restored afterwards.

    Args:
        tables: the mixture's datasets; conventions and frame sizes must agree.
        shares: share of the samples from each table, any positive scale; None means in proportion to their
            frames.
        spec: everything else that decides the weights.
        out: checkpoint folder; also gets ``train.jsonl``.
        progress: called every ``spec.log_every`` steps.
        kinds: where each table comes from; needed for a share of real samples and for a policy that is told
            its domain.
        keep: steps before the last after which a checkpoint is kept beside the final one, in
            :func:`kept_folder`.

    Returns:
        ``out``, a checkpoint folder for :func:`simgap.policies.checkpoint.load_policy`.

    Raises:
        UsageError: no data, wrong shares, a folder that holds another run or one finished without what is to
            be kept.
        ConventionError: tables, or tables and parent, disagree.
        DataError: data far outside a parent's range, or a loss that is not finite.
        BusyError: another process is writing into the folder.
    """
    with joined(spec.device) as team, alone_in(out) if team.leads else nullcontext():
        return _train(tables, shares, spec, out, progress, kinds, frozenset(keep) - {spec.steps}, team)


def _train(
    tables: Sequence[FrameTable],
    shares: Sequence[float] | None,
    spec: TrainSpec,
    out: Path,
    progress: Callable[[TrainProgress], None] | None,
    kinds: Sequence[EvidenceKind] | None,
    keep: frozenset[int],
    team: Team,
) -> Path:
    asked = request_of(tables, shares, spec, kinds, team.size)
    request = content_hash(asked)
    if (out / CARD).is_file():
        if (made_for := read_card(out).training.get("request")) != request:
            raise UsageError(
                f"{out} holds a finished checkpoint of another request"
                f" ({what_differs(out, asked, made_for)}); give another folder, or delete it to start again"
            )
        missing = [step for step in sorted(keep) if not (kept_folder(out, step) / CARD).is_file()]
        if missing:
            raise UsageError(
                f"{out} was finished without keeping step {missing[0]}; train into another folder to keep"
                " checkpoints along the way"
            )
        return out
    plan = make_plan(tables, shares, spec, kinds)
    out.mkdir(parents=True, exist_ok=True)
    with (
        torch_threads(1 if spec.device == "cpu" else spec.threads),
        closing(TrainingRun(tables, plan, spec, team)) as run,
    ):
        state = read_resume(out, request, asked)
        team.wait()  # nobody may write before everybody has read
        past = [
            step
            for step in sorted(keep)
            if state is not None and step <= state.step and not (kept_folder(out, step) / CARD).is_file()
        ]
        if past:
            raise UsageError(
                f"{out} holds an interrupted run that went past step {past[0]} without keeping it; keep what"
                " it kept before, or train elsewhere"
            )
        if team.leads:
            keep_request(out, asked)
            trim_log(out, 0 if state is None else state.step)
        if state is not None:
            run.restore(state)

        def write(folder: Path) -> None:
            held_out = run.held_out()
            record = {
                "request": request,
                "last_loss": run.last_loss,
                "validation_loss_never_selects": None if held_out is None else held_out[0],
            }
            if held_out is not None:
                record[NEVER_SELECTS] = held_out[1]
                append_log(out, {"step": run.step, NEVER_SELECTS: held_out[1]})
            if team.size > 1:
                record["processes"] = team.size
            if run.step < spec.steps:
                record["kept_at_step"] = run.step
            write_checkpoint(folder, make_card(tables, shares, spec, plan, record), run.export())

        with HeldBack() as held:
            for _ in _loop(run, spec, out if team.leads else None, request, progress, keep, held):
                write(kept_folder(out, run.step))
        if team.leads:
            write(out)
            (out / RESUME_FILE).unlink(missing_ok=True)
        team.wait()
    return out


def steps_of(total: int, count: int) -> tuple[int, ...]:
    """Return after which steps checkpoints are kept: evenly spaced, the last at the end.

    Raises:
        UsageError: more checkpoints than steps.
    """
    if count > total:
        raise UsageError(
            f"{count} checkpoints of {total} steps: expected at least one step each; train longer or keep"
            " fewer"
        )
    return tuple(int(s) for s in np.unique(np.linspace(total / count, total, count).round()))


def kept_folder(out: Path, step: int) -> Path:
    """Return where the checkpoint of a step before the last is kept.

    It has the averaged weights of its step, at the learning rate of a longer training: it is what a watcher
    of that training could have taken, not what a shorter training would have made.
    """
    return out / KEPT / f"step-{step}"


def _loop(
    run: TrainingRun,
    spec: TrainSpec,
    out: Path | None,
    request: str,
    progress: Callable[[TrainProgress], None] | None,
    keep: frozenset[int],
    held: HeldBack,
) -> Iterator[int]:
    """Train to the end, and yield every step at which a checkpoint is to be kept, to the process that leads.

    Raises:
        Stopped: Ctrl-C or another signal came; the state after the step that was under way is saved.
    """
    since, began = run.step, time.monotonic()
    while run.step < spec.steps:
        run.losses.append(run.advance(run.draw()))
        if out is not None and run.step in keep:
            run.last_loss = float(np.mean(run.losses))
            yield run.step
        if run.step % spec.log_every == 0 or run.step == spec.steps:
            run.last_loss, run.losses = float(np.mean(run.losses)), []
            now = time.monotonic()
            rate = (run.step - since) / max(now - began, 1e-9)
            report = TrainProgress(
                step=run.step,
                new=run.step - since,
                total=spec.steps,
                loss=run.last_loss,
                learning_rate=spec.learning_rate_at(run.step - 1),
                observations_per_s=rate * spec.batch,
                eta_s=(spec.steps - run.step) / rate,
            )
            since, began = run.step, now
            if out is not None:
                append_log(
                    out,
                    {
                        "step": report.step,
                        "loss": report.loss,
                        "learning_rate": report.learning_rate,
                        "observations_per_s": report.observations_per_s,
                    },
                )
            if out is not None and progress is not None:
                progress(report)
        if (
            out is not None
            and run.step < spec.steps
            and (run.step in keep or run.step % spec.checkpoint_every_steps == 0)
        ):
            # After what is kept and logged: a kill between makes the same checkpoint and the same line again.
            write_resume(out, request, run.state())
        if run.agreed(held.number is not None):
            if out is not None:
                write_resume(out, request, run.state())
            raise Stopped(
                held.number or signal.SIGINT,
                f"step {run.step} of {spec.steps} is saved, and the same command goes on from there",
            )
