"""One training run: network, averaged weights, optimiser and data, advanced a step at a time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from simgap.compute.machine import require_compiler_before_gl
from simgap.episodes.table import FrameTable
from simgap.errors import DataError, UsageError
from simgap.policies.checkpoint import load_weights
from simgap.policies.cnn import ChunkNet
from simgap.provenance import child_rng
from simgap.training.adapters import adapt, merged
from simgap.training.batches import Batch, BatchSource, split
from simgap.training.objectives import chunk_loss, with_noise
from simgap.training.open_loop import open_loop
from simgap.training.plan import Plan
from simgap.training.resume import ResumeState
from simgap.training.spec import TrainSpec
from simgap.training.team import Team

_WIDE = 100.0
"""Normalised data beyond this, not the learning rate, are blamed first for a loss that is not finite."""


class TrainingRun:
    """Network, averaged weights, optimiser and data of one run."""

    def __init__(
        self, tables: Sequence[FrameTable], plan: Plan, spec: TrainSpec, team: Team | None = None
    ) -> None:
        self._spec = spec
        self._plan = plan
        self._team = team or Team()
        self._names = tables[0].action_spec.names
        self._device = (
            torch.device(spec.device)
            if self._team.device_index is None
            else torch.device("cuda", self._team.device_index)
        )
        self._dtype = torch.bfloat16 if spec.bf16 else torch.float32
        self.network = _initial_network(plan, spec).to(self._device)
        self.averaged = {k: v.detach().clone() for k, v in self.network.state_dict().items()}
        learnt = [p for p in self.network.parameters() if p.requires_grad]
        require_compiler_before_gl()  # the first optimiser makes torch load its compiler
        self._optimiser = torch.optim.AdamW(
            learnt, lr=spec.learning_rate, weight_decay=spec.weight_decay, fused=True
        )
        a = plan.architecture
        self._source = BatchSource(
            tables,
            plan.training_rows,
            cameras=a.cameras,
            normaliser=plan.normaliser,
            chunk=a.chunk,
            counts=plan.counts,
            domains=plan.domains,
            goals=plan.goal_columns,
        )
        grips = torch.from_numpy(tables[0].action_spec.gripper_mask).to(self._device)
        self._weights = None if spec.gripper_weight == 1.0 else torch.where(grips, spec.gripper_weight, 1.0)
        self._shards = spec.threads if self._device.type == "cpu" else 1
        if spec.batch < self._shards * self._team.size:
            parts = f"{self._shards} threads x {self._team.size} processes"
            raise UsageError(
                f"a batch of {spec.batch} cannot be shared by {parts}; every one needs a sample: raise"
                " --batch or lower --threads"
            )
        self._replicas = [self.network, *(_twin(self.network, plan, spec) for _ in range(self._shards - 1))]
        # A thread's own intra-operator threads are set in that thread: each shard runs on exactly one core.
        self._pool = (
            ThreadPoolExecutor(self._shards, initializer=torch.set_num_threads, initargs=(1,))
            if self._shards > 1
            else None
        )
        self.step = 0
        self.last_loss = math.nan
        self.losses: list[float] = []
        """Of the steps since the last line of the log."""

    def close(self) -> None:
        """End the shards' threads."""
        if self._pool is not None:
            self._pool.shutdown()

    def draw(self) -> Batch:
        """Return the batch of the next step."""
        batch = self._source.draw(self._spec, self.step)
        return with_noise(batch, self._plan.architecture, self._spec.flow_time, self._spec.seed, self.step)

    def advance(self, batch: Batch) -> float:
        """Do one optimiser step on the batch of :meth:`draw` and return its loss.

        Raises:
            DataError: the loss is not finite.
        """
        for group in self._optimiser.param_groups:
            group["lr"] = self._spec.learning_rate_at(self.step)
        self._optimiser.zero_grad(set_to_none=True)
        value = self._gradient(batch)
        if not math.isfinite(value):
            largest = max(float(np.abs(a).max(initial=0.0)) for a in (batch.state, batch.target))
            raise DataError(
                f"loss is {value} at step {self.step}, where normalised data reach {largest:.3g} and the"
                f" learning rate is {self._spec.learning_rate};"
                f" {'look at the data, which should reach about 1' if not largest < _WIDE else 'try a third of the rate'};"
                " nothing was saved from this step"
            )
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), self._spec.clip)
        self._optimiser.step()
        current = self.network.state_dict()
        torch._foreach_lerp_(
            list(self.averaged.values()),
            [current[k] for k in self.averaged],
            1.0 - self._spec.ema_at(self.step),
        )
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
            losses=list(self.losses),
        )

    def restore(self, state: ResumeState) -> None:
        """Go back to a saved state."""
        self.network.load_state_dict(state.weights)
        for name, value in state.averaged.items():
            self.averaged[name].copy_(value)
        self._optimiser.load_state_dict(state.optimiser)
        self.step, self.last_loss, self.losses = state.step, state.last_loss, list(state.losses)

    def agreed(self, told: bool) -> bool:
        """Return whether anybody in the team was told to stop: then all stop after the same step."""
        return self._team.total(float(told), self._device) > 0

    def held_out(self) -> tuple[float, dict[str, Any]] | None:
        """Return the averaged weights' loss and open-loop errors on held-out episodes, None without any.

        They say how well the data are fitted, not how often the task succeeds; nothing may be selected by
        them.
        """
        if not any(len(r) for r in self._plan.held_out_rows):
            return None
        network = self._like().to(self._device)
        network.load_state_dict(self.averaged)
        return open_loop(network, self._source, self._plan, self._spec, self._names)

    def export(self) -> Mapping[str, Tensor]:
        """Return the averaged weights as the plain architecture has them: adapters merged."""
        return merged(self._plan.architecture, self._like().to(self._device), self._spec, self.averaged)

    def _like(self) -> ChunkNet:
        with torch.random.fork_rng(devices=[]):
            network = self._plan.architecture.build()
            adapt(network, self._spec)
        return network

    def _gradient(self, batch: Batch) -> float:
        """Leave the batch's gradient in the network and return its loss.

        On a CPU the batch is cut into shards, one a thread, each through a twin of the network with gradients
        of its own; they are summed in order, so the result does not depend on which thread was first. Threads
        inside an operator would wait for each other hundreds of times a step; shards wait once.
        """
        own = batch if self._team.size == 1 else split(batch, self._team.size)[self._team.rank]
        total = float(batch.mask.sum())
        if self._pool is None:
            if self._team.size == 1:
                loss = self._loss(self.network, batch)
                loss.backward()  # type: ignore[no-untyped-call]
                return float(loss.detach())
            value = self._shard(self.network, own, total)
        else:
            jobs = [
                self._pool.submit(self._shard, replica, part, total)
                for replica, part in zip(self._replicas, split(own, self._shards), strict=True)
            ]
            value = sum(job.result() for job in jobs)
            for twin in self._replicas[1:]:
                torch._foreach_add_(_gradients(self.network), _gradients(twin))
                twin.zero_grad(set_to_none=True)
        self._team.add_up(_gradients(self.network))
        return self._team.total(value, self._device)

    def _shard(self, network: ChunkNet, batch: Batch, total: float) -> float:
        share = float(batch.mask.sum()) / total
        loss = self._loss(network, batch) * share
        loss.backward()  # type: ignore[no-untyped-call]
        return float(loss.detach())

    def _loss(self, network: ChunkNet, batch: Batch) -> Tensor:
        return chunk_loss(network, batch, self._device, self._dtype, self._weights)


def _gradients(network: ChunkNet) -> list[Tensor]:
    return [p.grad for p in network.parameters() if p.grad is not None]


def _twin(network: ChunkNet, plan: Plan, spec: TrainSpec) -> ChunkNet:
    """Return a network that shares every weight's memory with ``network`` and has gradients of its own."""
    with torch.random.fork_rng(devices=[]):
        twin = plan.architecture.build()
        adapt(twin, spec)
    for own, shared in zip(twin.parameters(), network.parameters(), strict=True):
        own.data = shared.data
    return twin


def _initial_network(plan: Plan, spec: TrainSpec) -> ChunkNet:
    # Layers draw their weights from torch's global generator; fork it, so that nobody else's numbers shift.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(child_rng(spec.seed, "weights").integers(2**63)))
        network = plan.architecture.build()
        if spec.init_from is not None and plan.parent is not None:
            load_weights(network, spec.init_from, plan.parent)
        adapt(network, spec)
    return network
