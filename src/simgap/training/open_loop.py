"""How far predictions are from recorded actions on held-out episodes: logged, shown, and never used to choose anything.

The error is measured in states a teacher visits. A policy is judged in states it brings about itself, which
only rollouts show.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from simgap.policies.cnn import ChunkNet
from simgap.training.batches import BatchSource
from simgap.training.objectives import chunk_loss, with_noise
from simgap.training.plan import Plan
from simgap.training.spec import TrainSpec

NEVER_SELECTS = "open_loop_never_selects"


def open_loop(
    network: ChunkNet, source: BatchSource, plan: Plan, spec: TrainSpec, names: tuple[str, ...]
) -> tuple[float, dict[str, Any]] | None:
    """Return the loss and the open-loop errors on held-out episodes, None without any.

    Args:
        network: the averaged weights.
        source: of the run.
        plan: says what is held out.
        spec: of the run.
        names: action dimensions.

    Returns:
        The head's own loss, and mean absolute errors in action units for the first entry and over the whole
        chunk.
    """
    device, dtype = next(network.parameters()).device, torch.bfloat16 if spec.bf16 else torch.float32
    loss, frames, entries = 0.0, 0, 0.0
    first, whole = np.zeros(len(names)), np.zeros(len(names))
    half_range = plan.normaliser.action.half_range
    with torch.no_grad():
        for table, rows in enumerate(plan.held_out_rows):
            for start in range(0, len(rows), spec.batch):
                batch = source.all_of(table, rows[start : start + spec.batch])
                batch = with_noise(
                    batch, plan.architecture, spec.flow_time, spec.seed, f"held-out-{table}-{start}"
                )
                size = len(batch.state)
                loss += float(chunk_loss(network, batch, device, dtype, None)) * size
                noise = None if batch.noise is None else torch.from_numpy(batch.noise).to(device)
                images = [torch.from_numpy(i).to(device) for i in batch.images]
                said = network(images, torch.from_numpy(batch.state).to(device), dtype, noise).cpu().numpy()
                error = np.abs(said - batch.target) * half_range * batch.mask[..., None]
                first += error[:, 0].sum(axis=0)
                whole += error.sum(axis=(0, 1))
                frames, entries = frames + size, entries + float(batch.mask.sum())
    if not frames:
        return None
    errors = {
        "first_entry": dict(zip(names, (first / frames).tolist(), strict=True)),
        "chunk": dict(zip(names, (whole / entries).tolist(), strict=True)),
    }
    return loss / frames, {"mean_absolute_error": errors, "frames": frames}
