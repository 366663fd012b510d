"""The training loop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from simgap.episodes.table import FrameTable
from simgap.errors import DataError, UsageError
from simgap.policies.checkpoint import CARD, load_weights, read_card, write_checkpoint
from simgap.policies.cnn import ChunkNet
from simgap.policies.inference import torch_threads
from simgap.provenance import child_rng, content_hash
from simgap.training.batches import Batch, BatchSource
from simgap.training.plan import Plan, make_card, make_plan
from simgap.training.resume import FILE as RESUME_FILE
from simgap.training.resume import ResumeState, append_log, read_resume, trim_log, write_resume
from simgap.training.spec import TrainProgress, TrainSpec


def train(
    tables: Sequence[FrameTable],
    shares: Sequence[float] | None,
    spec: TrainSpec,
    out: Path,
    progress: Callable[[TrainProgress], None] | None = None,
) -> Path:
    """Train a policy, or fine-tune one, and write its checkpoint.

    The run is a function of tables, shares and spec. Killed at any moment and started again with the same arguments it goes
    on from its last resume point and ends with the same bits; a finished run is returned at once. The number of torch
    threads is the spec's while this runs and restored afterwards.

    Args:
        tables: the mixture's datasets; conventions and frame sizes must agree.
        shares: share of the samples from each table, any positive scale; None means in proportion to their frames.
        spec: everything else that decides the weights.
        out: checkpoint folder; also gets ``train.jsonl``.
        progress: called every ``spec.log_every`` steps.

    Returns:
        ``out``, a checkpoint folder for :func:`simgap.policies.checkpoint.load_policy`.

    Raises:
        UsageError: no data, wrong shares, or a folder that holds another run.
        ConventionError: tables, or tables and parent, disagree.
        DataError: data far outside a parent's range, or a loss that is not finite.
    """
    request = _request(tables, shares, spec)
    if (out / CARD).is_file():
        if read_card(out).training.get("request") != request:
            raise UsageError(f"{out} holds a finished checkpoint of another spec or other data; give another folder, or delete it to start again")
        return out
    plan = make_plan(tables, shares, spec)
    out.mkdir(parents=True, exist_ok=True)
    with torch_threads(spec.threads):
        run = _Run(tables, plan, spec)
        state = read_resume(out, request)
        trim_log(out, 0 if state is None else state.step)
        if state is not None:
            run.restore(state)
        _loop(run, spec, out, request, progress)
        record = {"request": request, "last_loss": run.last_loss, "validation_loss_never_selects": run.validation_loss()}
        write_checkpoint(out, make_card(tables, shares, spec, plan, record), run.averaged)
    (out / RESUME_FILE).unlink(missing_ok=True)
    return out


def _request(tables: Sequence[FrameTable], shares: Sequence[float] | None, spec: TrainSpec) -> str:
    parent = None if spec.init_from is None else read_card(spec.init_from).weights_hash
    # The parent counts by its weights, not its path; how often a run logs or saves does not change what it learns.
    asked = {k: v for k, v in spec.to_json().items() if k not in ("log_every", "checkpoint_every_steps")} | {"init_from": parent}
    return content_hash({"spec": asked, "data": [t.fingerprint for t in tables], "shares": None if shares is None else [float(s) for s in shares]})


def _initial_network(plan: Plan, spec: TrainSpec) -> ChunkNet:
    # Layers draw their weights from torch's global generator; fork it, so that nobody else's numbers shift.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(child_rng(spec.seed, "weights").integers(2**63)))
        network = plan.architecture.build()
    if spec.init_from is not None and plan.parent is not None:
        load_weights(network, spec.init_from, plan.parent)
    return network


class _Run:
    """Network, averaged weights, optimiser and data of one run."""

    def __init__(self, tables: Sequence[FrameTable], plan: Plan, spec: TrainSpec) -> None:
        self._spec = spec
        self._plan = plan
        self._device = torch.device(spec.device)
        self._dtype = torch.bfloat16 if spec.bf16 else torch.float32
        self.network = _initial_network(plan, spec).to(self._device)
        self.averaged = {k: v.detach().clone() for k, v in self.network.state_dict().items()}
        self._optimiser = torch.optim.AdamW(self.network.parameters(), lr=spec.learning_rate, weight_decay=spec.weight_decay, fused=True)
        a = plan.architecture
        self._source = BatchSource(tables, plan.training_rows, cameras=a.cameras, normaliser=plan.normaliser, chunk=a.chunk, counts=plan.counts)
        self.step = 0
        self.last_loss = math.nan

    def advance(self) -> float:
        """Do one step and return its loss."""
        for group in self._optimiser.param_groups:
            group["lr"] = self._spec.learning_rate_at(self.step)
        loss = self._loss(self.network, self._source.draw(self._spec, self.step))
        value = float(loss.detach())
        if not math.isfinite(value):
            raise DataError(
                f"loss is {value} at step {self.step}; likely causes: a learning rate of {self._spec.learning_rate} is too high (try a third), "
                "or values in the data that the normaliser never saw; nothing was saved from this step"
            )
        self._optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), self._spec.clip)
        self._optimiser.step()
        current = self.network.state_dict()
        torch._foreach_lerp_(list(self.averaged.values()), [current[k] for k in self.averaged], 1.0 - self._spec.ema_at(self.step))
        self.step += 1
        return value

    def state(self) -> ResumeState:
        """Return what the next step depends on."""
        return ResumeState(
            step=self.step,
            weights=self.network.state_dict(),
            averaged=self.averaged,
            optimiser=self._optimiser.state_dict(),
            last_loss=self.last_loss,
        )

    def restore(self, state: ResumeState) -> None:
        """Go back to a saved state."""
        self.network.load_state_dict(state.weights)
        for name, value in state.averaged.items():
            self.averaged[name].copy_(value)
        self._optimiser.load_state_dict(state.optimiser)
        self.step, self.last_loss = state.step, state.last_loss

    def validation_loss(self) -> float | None:
        """Return the averaged weights' loss on held-out episodes, None without any.

        It says how well the data are fitted, not how often the task succeeds; nothing may be selected by it.
        """
        total, frames = 0.0, 0
        if not any(len(r) for r in self._plan.held_out_rows):
            return None
        network = self._plan.architecture.build().to(self._device)
        network.load_state_dict(self.averaged)
        with torch.no_grad():
            for table, rows in enumerate(self._plan.held_out_rows):
                for start in range(0, len(rows), self._spec.batch):
                    part = rows[start : start + self._spec.batch]
                    total += float(self._loss(network, self._source.all_of(table, part))) * len(part)
                    frames += len(part)
        return total / frames

    def _loss(self, network: ChunkNet, batch: Batch) -> Tensor:
        images = [torch.from_numpy(i).to(self._device, non_blocking=True) for i in batch.images]
        state, target, mask = (torch.from_numpy(a).to(self._device, non_blocking=True) for a in (batch.state, batch.target, batch.mask))
        error = (network(images, state, self._dtype) - target).abs().mean(-1)
        loss: Tensor = (error * mask).sum() / mask.sum()
        return loss


def _loop(run: _Run, spec: TrainSpec, out: Path, request: str, progress: Callable[[TrainProgress], None] | None) -> None:
    since, losses, began = run.step, [], time.monotonic()
    while run.step < spec.steps:
        losses.append(run.advance())
        if run.step % spec.checkpoint_every_steps == 0 and run.step < spec.steps:
            write_resume(out, request, run.state())
        if run.step % spec.log_every and run.step < spec.steps:
            continue
        now = time.monotonic()
        rate = (run.step - since) / max(now - began, 1e-9)
        run.last_loss = float(np.mean(losses))
        report = TrainProgress(
            step=run.step,
            total=spec.steps,
            loss=run.last_loss,
            learning_rate=spec.learning_rate_at(run.step - 1),
            observations_per_s=rate * spec.batch,
            eta_s=(spec.steps - run.step) / rate,
        )
        since, losses, began = run.step, [], now
        append_log(out, {"step": report.step, "loss": report.loss, "learning_rate": report.learning_rate, "observations_per_s": report.observations_per_s})
        if progress is not None:
            progress(report)
