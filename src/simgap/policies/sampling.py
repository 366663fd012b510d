"""From a denoiser to a chunk: two-step regression, Euler steps, and inpainting of a chunk whose beginning is already decided."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from simgap.policies.heads import MIP_TIME, FlowTarget

Denoise: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""``(noisy (B, H, A), time (B,)) -> (B, H, A)``; the features of the observation are bound."""

GUIDANCE_LIMIT = 5.0
"""Largest weight of the guidance; without it the first steps would divide by zero (beta of arXiv 2506.07339)."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Inpaint:
    """What a new chunk has to go on from."""

    target: Tensor
    """``(B, H, A)`` normalised: the chunk before, moved to the steps of the new one."""
    weight: Tensor
    """``(B, H, 1)`` how firmly each entry is wanted: 1 frozen, 0 free."""


def prefix_weights(chunk: int, frozen: int, known: int) -> NDArray[np.float32]:
    """Return how firmly each entry of a new chunk should repeat the one before, ``(chunk,)``.

    1 for the entries that will be sent before the new chunk arrives, 0 beyond the end of the old chunk, and
    between them ``w (e^w - 1) / (e - 1)`` of a falling line (real-time chunking, arXiv 2506.07339).

    Args:
        chunk: entries in a chunk.
        frozen: entries that are decided.
        known: entries that the old chunk has.
    """
    line = np.clip((frozen - 1 - np.arange(chunk)) / (known - frozen + 1) + 1.0, 0.0, 1.0)
    weights = line * np.expm1(line) / np.expm1(1.0)
    weights[known:] = 0.0
    return np.asarray(weights, dtype=np.float32)


def two_steps(denoise: Denoise, like: Tensor) -> Tensor:
    """Return the chunk of two-step regression: a first answer from nothing, then the answer to that one."""
    first = denoise(torch.zeros_like(like), like.new_zeros(len(like)))
    return denoise(first, like.new_full((len(like),), MIP_TIME))


def euler(
    denoise: Denoise, noise: Tensor, steps: int, target: FlowTarget, inpaint: Inpaint | None = None
) -> Tensor:
    """Carry noise to a chunk.

    Args:
        denoise: the network.
        noise: ``(B, H, A)`` standard normal.
        steps: Euler steps.
        target: what the network says.
        inpaint: what the chunk has to go on from; its gradient is added to every step.

    Returns:
        ``(B, H, A)`` normalised.
    """
    x = noise
    for k in range(steps):
        t = k / steps
        velocity = (
            (_clean(denoise, x, t, target) - x) / (1.0 - t)
            if inpaint is None
            else _guided(denoise, x, t, target, inpaint)
        )
        x = x + velocity / steps
    return x


def _clean(denoise: Denoise, x: Tensor, t: float, target: FlowTarget) -> Tensor:
    said = denoise(x, x.new_full((len(x),), t))
    return said if target is FlowTarget.ACTION else x + (1.0 - t) * said


def _guided(denoise: Denoise, x: Tensor, t: float, target: FlowTarget, inpaint: Inpaint) -> Tensor:
    with torch.enable_grad():
        x = x.detach().requires_grad_(True)
        clean = _clean(denoise, x, t, target)
        error = ((inpaint.target - clean) * inpaint.weight).detach()
        (pull,) = torch.autograd.grad(clean, x, error)
    strength = GUIDANCE_LIMIT if t == 0.0 else min((t * t + (1.0 - t) ** 2) / (t * (1.0 - t)), GUIDANCE_LIMIT)
    return ((clean - x) / (1.0 - t) + strength * pull).detach()
