"""Heads that refine a chunk from noise: what they are called, and the small network that does it."""

from __future__ import annotations

import math
from enum import StrEnum

import torch
from torch import Tensor, nn

MIP_TIME = 0.9
"""t* of two-step regression: how much of the chunk the second pass is shown; the rest is noise."""
_TIME_FEATURES = 32


class Head(StrEnum):
    """How features become a chunk."""

    L1 = "l1"
    """One linear layer, trained by absolute error: the median of what was shown. One evaluation."""
    MIP = "mip"
    """Two regressions, the second refines the first (minimal iterative policy). Two evaluations, deterministic."""
    FLOW = "flow"
    """Flow matching: noise carried to a chunk in a few Euler steps. Can commit to one of several ways, and can be inpainted."""


class FlowTime(StrEnum):
    """Where on the way from noise (0) to action (1) flow matching is trained."""

    BETA = "beta"
    """``1 - Beta(1.5, 1)``: more of the noisy end, where the decisions fall."""
    UNIFORM = "uniform"


class FlowTarget(StrEnum):
    """What the network of a flow head says; both describe the same flow."""

    ACTION = "action"
    """The chunk itself: bounded, near a low-dimensional set, and the last Euler step lands on it."""
    VELOCITY = "velocity"
    """Chunk minus noise."""


class Denoiser(nn.Module):
    """``(features, noisy chunk, time) -> chunk or velocity``: residual layers, always in float32.

    It is a third of a million weights, so bfloat16 would save nothing, and its rounding would be integrated.
    """

    frequencies: Tensor

    def __init__(self, features: int, size: int, width: int) -> None:
        super().__init__()
        self.register_buffer(
            "frequencies",
            torch.exp(torch.linspace(0.0, math.log(100.0), _TIME_FEATURES // 2)),
            persistent=False,
        )
        self.enter = nn.Linear(features + size + _TIME_FEATURES, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(width),
                nn.Linear(width, width),
                nn.GELU(approximate="tanh"),
                nn.Linear(width, width),
            )
            for _ in range(2)
        )
        self.leave = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, size))

    def forward(self, features: Tensor, noisy: Tensor, time: Tensor) -> Tensor:
        """Denoise.

        Args:
            features: ``(B, F)``.
            noisy: ``(B, chunk, A)`` normalised.
            time: ``(B,)`` in [0, 1], 0 is noise.

        Returns:
            ``(B, chunk, A)`` float32.
        """
        with torch.autocast(features.device.type, enabled=False):
            angle = time.float()[:, None] * self.frequencies
            hidden = self.enter(
                torch.cat([features.float(), noisy.float().flatten(1), angle.sin(), angle.cos()], dim=1)
            )
            for block in self.blocks:
                hidden = hidden + block(hidden)
            chunk: Tensor = self.leave(hidden)
        return chunk.view_as(noisy)
