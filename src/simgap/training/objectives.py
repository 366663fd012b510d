"""What each head is trained to do, masked past the end of an episode."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from simgap.policies.cnn import ChunkNet, CnnSpec
from simgap.policies.heads import MIP_TIME, FlowTarget, FlowTime, Head
from simgap.provenance import child_rng
from simgap.training.batches import Batch


def with_noise(batch: Batch, shape: CnnSpec, flow_time: FlowTime, seed: int, step: int | str) -> Batch:
    """Return a batch with the noise and times its head is trained on: a function of (seed, step), so that a resumed run draws the same.

    A head that does not denoise gets its batch back.
    """
    if shape.head is Head.L1:
        return batch
    rng = child_rng(seed, "head", step)
    noise = rng.standard_normal((len(batch.state), shape.chunk, len(shape.refined)), dtype=np.float32)
    size = len(batch.state)
    if shape.head is Head.MIP:
        return replace(batch, noise=noise, time=np.full(size, MIP_TIME, dtype=np.float32))
    time = rng.random(size) if flow_time is FlowTime.UNIFORM else 1.0 - rng.beta(1.5, 1.0, size)
    # Beside 1 nothing is left to say, and a velocity there would be noise over almost nothing.
    return replace(batch, noise=noise, time=np.minimum(time, 0.999).astype(np.float32))


def chunk_loss(
    network: ChunkNet, batch: Batch, device: torch.device, dtype: torch.dtype, weights: Tensor | None
) -> Tensor:
    """Return the loss of a batch, averaged over what is not masked.

    L1: ``|f - a|``. MIP: ``|f(0; 0) - a| / t* + |f(a + (1 - t*) noise; t*) - a| / (1 - t*)``. Flow: the
    squared error of the chunk (or velocity) at ``(1 - t) noise + t a``. Grippers with a head of their own:
    ``|f - a|`` whatever the others have.

    Args:
        network: of any head.
        batch: with noise where the head needs it.
        device: where the network is.
        dtype: precision of the convolutions.
        weights: ``(A,)`` of the dimensions; None weighs all alike.
    """
    images = [torch.from_numpy(i).to(device, non_blocking=True) for i in batch.images]
    state, target, mask = (
        torch.from_numpy(a).to(device, non_blocking=True) for a in (batch.state, batch.target, batch.mask)
    )
    if batch.noise is None or batch.time is None:
        error = (network(images, state, dtype) - target).abs()
    else:
        noise, time = (torch.from_numpy(a).to(device, non_blocking=True) for a in (batch.noise, batch.time))
        features = network.features(images, state, dtype)
        refined = _refined_error(
            network, features, target[..., list(network.spec.refined)], mask, noise, time
        )
        grip = network.gripped(features, dtype)
        error = network.assembled(
            refined, None if grip is None else (grip - target[..., list(network.spec.grippers)]).abs()
        )
    if weights is not None:
        error = error * weights
    by_step = error.mean(-1)
    loss: Tensor = (by_step * mask).sum() / mask.sum()
    return loss


def _refined_error(
    network: ChunkNet, features: Tensor, action: Tensor, mask: Tensor, noise: Tensor, time: Tensor
) -> Tensor:
    assert network.denoiser is not None  # a batch has noise for a head that denoises only
    # Past the end there is no action to show: the middle of the range, which the loss does not look at.
    shown = action * mask[..., None]
    if network.spec.head is Head.MIP:
        first = network.denoiser(features, torch.zeros_like(noise), torch.zeros_like(time))
        second = network.denoiser(features, shown + (1.0 - MIP_TIME) * noise, time)
        error: Tensor = (first - action).abs() / MIP_TIME + (second - action).abs() / (1.0 - MIP_TIME)
        return error
    at = time[:, None, None]
    said = network.denoiser(features, (1.0 - at) * noise + at * shown, time)
    wanted = action if network.spec.flow_target is FlowTarget.ACTION else action - noise
    squared: Tensor = (said - wanted) ** 2
    return squared
