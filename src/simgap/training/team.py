"""Several processes train one policy: ``torchrun`` starts them, each takes its part of every batch, gradients are summed."""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class Team:
    """Who takes part. Alone, everything here does nothing."""

    rank: int = 0
    size: int = 1
    device_index: int | None = None
    """Which of a machine's accelerators this process uses."""

    @property
    def leads(self) -> bool:
        """Whether this process writes files and says something."""
        return self.rank == 0

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by their sums over all processes, in one exchange."""
        if self.size == 1 or not tensors:
            return
        flat = torch.cat([t.reshape(-1) for t in tensors])
        dist.all_reduce(flat)
        start = 0
        for tensor in tensors:
            tensor.copy_(flat[start : start + tensor.numel()].view(tensor.shape))
            start += tensor.numel()

    def total(self, value: float, device: torch.device) -> float:
        """Return the sum of a number over all processes."""
        if self.size == 1:
            return value
        both = torch.tensor([value], dtype=torch.float64, device=device)
        dist.all_reduce(both)
        return float(both)

    def wait(self) -> None:
        """Return when every process has come here."""
        if self.size > 1:
            dist.barrier()


def rank_here() -> int:
    """Return this process's rank by the environment that ``torchrun`` sets, 0 without."""
    return int(os.environ.get("RANK", "0"))


def processes_here() -> int:
    """Return how many processes ``torchrun`` started, 1 without."""
    return int(os.environ.get("WORLD_SIZE", "1"))


@contextmanager
def joined(device: str) -> Iterator[Team]:
    """Join the processes that ``torchrun`` started with this one; a process on its own is a team of one."""
    size = processes_here()
    if size == 1:
        yield Team()
        return
    is_cuda = torch.device(device).type == "cuda"
    index = int(os.environ.get("LOCAL_RANK", "0")) if is_cuda else None
    if index is not None:
        torch.cuda.set_device(index)
    if not dist.is_initialized():  # one meeting place serves every run of a process
        dist.init_process_group("nccl" if is_cuda else "gloo")
        atexit.register(dist.destroy_process_group)
    yield Team(rank=dist.get_rank(), size=dist.get_world_size(), device_index=index)
