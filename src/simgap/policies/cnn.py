"""A compact convolutional chunk policy: one small encoder a camera, one trunk, and a head that regresses or refines a chunk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import torch
from torch import Tensor, nn

from simgap.errors import DataError, UsageError
from simgap.policies.heads import Denoiser, FlowTarget, Head
from simgap.policies.normaliser import IMAGE_CENTRE
from simgap.policies.sampling import Inpaint, euler, two_steps


class Pool(StrEnum):
    """How a feature map becomes a vector."""

    SPATIAL_SOFTMAX = "spatial_softmax"
    """Where each feature is (and how strong): few parameters, precise localisation."""
    AVERAGE = "average"
    """How strong each feature is, wherever it is: fewest parameters, no localisation of its own."""
    FLATTEN = "flatten"
    """Everything, through one linear layer: more parameters, better for texture and extent."""


SMALLEST_PX, LARGEST_PX = 4, 256
_LARGEST = 16_384
_STEMS = (1, 2, 4, 8)
_LARGEST_MAP = 24
"""Cells a side before pooling; a fine stem gets further strided layers, so that it costs memory at the start only."""


def stem_stride(image_size: int) -> int:
    """Return the stride of the first layer: the map after it has 24 to 40 cells a side, or every pixel of a smaller frame."""
    return 1 if image_size < 48 else 2 if image_size < 80 else 4 if image_size <= 160 else 8


@dataclass(frozen=True, kw_only=True, slots=True)
class CnnSpec:
    """Shape of the network; stored in the checkpoint's card."""

    cameras: tuple[str, ...]
    image_size: int
    """Height and width in pixels, 4 to 256."""
    state_size: int
    action_size: int
    chunk: int
    width: int = 32
    """Channels of the first two layers; the others have twice as many."""
    hidden: int = 256
    """Units of the trunk."""
    pool: Pool = Pool.SPATIAL_SOFTMAX
    head: Head = Head.L1
    stem: int | None = None
    """Stride of the first layer, 1, 2, 4 or 8; None takes it from the frame size. Small things need 1 or 2."""
    grippers: tuple[int, ...] = ()
    """Action dimensions with a linear head of their own, so that no denoising blurs them; empty treats them like the others."""
    denoiser_width: int = 256
    flow_steps: int = 5
    """Euler steps of a flow head."""
    flow_target: FlowTarget = FlowTarget.ACTION

    def __post_init__(self) -> None:
        sizes = {
            n: getattr(self, n)
            for n in ("image_size", "state_size", "action_size", "chunk", "width", "hidden")
        }
        wrong = {
            n: v for n, v in sizes.items() if type(v) is not int or not (n != "state_size") <= v <= _LARGEST
        }
        if wrong:
            raise UsageError(
                f"a CNN policy has whole sizes from 1 (a state may have 0) to {_LARGEST}, got {wrong}"
            )
        if not SMALLEST_PX <= self.image_size <= LARGEST_PX:
            raise UsageError(
                f"image size {self.image_size} px is outside {SMALLEST_PX} to {LARGEST_PX}; resize the frames"
            )
        if not self.cameras:
            raise UsageError(f"a CNN policy needs a camera, got {self}")
        if self.stem is not None and (self.stem not in _STEMS or self.stem > self.image_size):
            raise UsageError(
                f"stem stride {self.stem} is not one of {_STEMS} within {self.image_size} px; leave it out to"
                " take it from the frame size"
            )
        if sorted(set(self.grippers)) != list(self.grippers) or any(
            not 0 <= g < self.action_size for g in self.grippers
        ):
            raise UsageError(
                f"grippers {self.grippers} are not increasing indices of {self.action_size} actions"
            )
        if self.head is not Head.L1 and len(self.grippers) == self.action_size:
            raise UsageError(
                f"a {self.head} head has nothing to refine when all {self.action_size} actions are grippers"
                " with a head of their own; use head l1"
            )
        if not 1 <= self.flow_steps <= 100 or not 8 <= self.denoiser_width <= 4096:
            raise UsageError(
                f"flow steps {self.flow_steps} (1 to 100) or denoiser width {self.denoiser_width} (8 to 4096)"
                " out of range"
            )
        if self.width < 8 or self.width % 8:
            raise UsageError(
                f"width {self.width} must be a multiple of 8 (GroupNorm and the matrix units work in eights)"
            )

    @property
    def stem_stride(self) -> int:
        """Stride of the first layer; see :func:`stem_stride`."""
        return stem_stride(self.image_size) if self.stem is None else self.stem

    @property
    def refined(self) -> tuple[int, ...]:
        """Action dimensions of the main head: all but :attr:`grippers`."""
        return tuple(i for i in range(self.action_size) if i not in self.grippers)

    def build(self) -> ChunkNet:
        """Return a fresh network; its weights come from torch's global generator."""
        return ChunkNet(self)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; what came later and is at its default is left out, so that old hashes stay."""
        whole = asdict(self) | {
            "cameras": list(self.cameras),
            "pool": str(self.pool),
            "head": str(self.head),
            "grippers": list(self.grippers),
        }
        whole["flow_target"] = str(self.flow_target)
        return {k: v for k, v in whole.items() if k not in _LATER or v != _LATER[k]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CnnSpec:
        """Rebuild from :meth:`to_json`.

        Raises:
            DataError: a key is missing or unknown.
        """
        try:
            later = {**_LATER, **{k: v for k, v in data.items() if k in _LATER}}
            read = {**data, "cameras": tuple(data["cameras"]), "pool": Pool(data["pool"]), **later}
            return cls(
                **{
                    **read,
                    "head": Head(read["head"]),
                    "flow_target": FlowTarget(read["flow_target"]),
                    "grippers": tuple(read["grippers"]),
                }
            )
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"stored architecture cannot be read ({error!r}); was it written by another version?"
            ) from error


_LATER: Mapping[str, Any] = {
    "head": "l1",
    "stem": None,
    "grippers": [],
    "denoiser_width": 256,
    "flow_steps": 5,
    "flow_target": "action",
}
"""Fields that the first cards did not have, with what they mean where they are absent."""


class CameraEncoder(nn.Module):
    """One camera: patch stem, three 3x3 convolutions, pooling. ``(B, H, W, 3)`` uint8 -> ``(B, out_features)``.

    Memory traffic, not arithmetic, limits training on a CPU with matrix units, so maps are small early and
    only the middle layers are normalised. A stem whose kernel equals its stride is one matrix product: at 96
    px it costs a third of an overlapping 5x5 layer.
    """

    def __init__(self, spec: CnnSpec) -> None:
        super().__init__()
        width, stride = spec.width, spec.stem_stride
        self.stem = nn.Conv2d(3, width, stride, stride=stride)
        side = (spec.image_size // stride + 1) // 2
        further: list[nn.Module] = []
        while side > _LARGEST_MAP:
            further += _block(2 * width, 2 * width, stride=2)
            side = (side + 1) // 2
        self.layers = nn.Sequential(
            nn.ReLU(inplace=True),
            *_block(width, width, stride=1),
            *_block(width, 2 * width, stride=2),
            *further,
            nn.Conv2d(2 * width, 2 * width, 3, padding=1),
        )
        self.pool: nn.Module
        if spec.pool is Pool.SPATIAL_SOFTMAX:
            self.pool = SpatialSoftmax(side)
            self.out_features = 3 * 2 * width
        elif spec.pool is Pool.AVERAGE:
            self.pool = nn.Sequential(nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
            self.out_features = 2 * width
        else:
            self.pool = nn.Sequential(
                nn.ReLU(),
                nn.Conv2d(2 * width, 16, 1),
                nn.Flatten(),
                nn.Linear(16 * side * side, 128),
                nn.ReLU(),
            )
            self.out_features = 128

    def forward(self, image: Tensor, dtype: torch.dtype) -> Tensor:
        """Encode uint8 frames."""
        # Flipping the top bit subtracts 128: centring while still one byte a value. The scale 1 / 128 goes
        # into the stem's weights, and both are exact in bfloat16. (B, H, W, 3) seen as (B, 3, H, W) already
        # is channels-last.
        centred = (image ^ 128).view(torch.int8).permute(0, 3, 1, 2).to(dtype)
        stem = nn.functional.conv2d(
            centred, self.stem.weight / IMAGE_CENTRE, self.stem.bias, self.stem.stride
        )
        features: Tensor = self.pool(self.layers(stem))
        return features


class SpatialSoftmax(nn.Module):
    """Expected position and strength of each feature: ``(B, C, h, w)`` -> ``(B, 3 C)``; positions in [-1, 1]."""

    grid: Tensor

    def __init__(self, side: int) -> None:
        super().__init__()
        axis = torch.linspace(-1.0, 1.0, side)
        y, x = torch.meshgrid(axis, axis, indexing="ij")
        self.register_buffer("grid", torch.stack((x.flatten(), y.flatten()), dim=1), persistent=False)

    def forward(self, features: Tensor) -> Tensor:
        """Reduce a feature map to coordinates and strengths, in float32."""
        with torch.autocast(features.device.type, enabled=False):
            flat = features.flatten(2).float()
            weights = torch.softmax(flat, dim=-1)
            position = weights @ self.grid
            strength = (weights * flat).sum(-1)
        return torch.cat((position.flatten(1), torch.tanh(strength)), dim=1)


class ChunkNet(nn.Module):
    """Images and normalised state in, normalised chunk out."""

    def __init__(self, spec: CnnSpec) -> None:
        super().__init__()
        self.spec = spec
        encoders = [CameraEncoder(spec) for _ in spec.cameras]
        self.encoders = nn.ModuleList(encoders)
        self.proprioception: nn.Module | None = None  # a car without odometry has a camera and nothing else
        features = sum(e.out_features for e in encoders)
        if spec.state_size:
            self.proprioception = nn.Sequential(
                nn.Linear(spec.state_size, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()
            )
            features += 64
        self.trunk = nn.Sequential(
            nn.Linear(features, spec.hidden),
            nn.LayerNorm(spec.hidden),
            nn.ReLU(),
            nn.Linear(spec.hidden, spec.hidden),
            nn.ReLU(),
        )
        size = len(spec.refined)
        self.head: nn.Linear | None = None
        self.denoiser: Denoiser | None = None
        if spec.head is not Head.L1:
            self.denoiser = Denoiser(spec.hidden, spec.chunk * size, spec.denoiser_width)
        elif size:
            self.head = nn.Linear(spec.hidden, spec.chunk * size)
        self.gripper_head = nn.Linear(spec.hidden, spec.chunk * len(spec.grippers)) if spec.grippers else None
        for parameter in self.parameters():
            if parameter.ndim == 4:
                parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)

    def forward(
        self,
        images: Sequence[Tensor],
        state: Tensor,
        dtype: torch.dtype = torch.float32,
        noise: Tensor | None = None,
        inpaint: Inpaint | None = None,
    ) -> Tensor:
        """Predict chunks; one pass of the encoders whatever the head.

        Args:
            images: per camera, in the order of the spec, ``(B, H, W, 3)`` uint8.
            state: ``(B, S)`` float32, normalised.
            dtype: float32, or bfloat16 to run the convolutions and products in that precision.
            noise: ``(B, chunk, refined)`` where a flow starts; zeros without. Other heads need none.
            inpaint: what a flow has to go on from, in the refined dimensions.

        Returns:
            ``(B, chunk, A)`` float32, normalised.
        """
        features = self.features(images, state, dtype)
        if self.denoiser is None:
            return self.assembled(self.regressed(features, dtype), self.gripped(features, dtype))
        denoiser, size = self.denoiser, (len(state), self.spec.chunk, len(self.spec.refined))
        start = torch.zeros(size, device=state.device) if noise is None else noise

        def denoise(noisy: Tensor, time: Tensor) -> Tensor:
            refined: Tensor = denoiser(features, noisy, time)
            return refined

        refined = (
            two_steps(denoise, start)
            if self.spec.head is Head.MIP
            else euler(denoise, start, self.spec.flow_steps, self.spec.flow_target, inpaint)
        )
        return self.assembled(refined, self.gripped(features, dtype))

    def features(self, images: Sequence[Tensor], state: Tensor, dtype: torch.dtype) -> Tensor:
        """Return what the heads see of an observation, ``(B, hidden)``."""
        with self._precision(state, dtype):
            parts = [encoder(image, dtype) for encoder, image in zip(self.encoders, images, strict=True)]
            if self.proprioception is not None:
                parts.append(self.proprioception(state))
            seen: Tensor = self.trunk(torch.cat([p.float() for p in parts], dim=1))
        return seen

    def regressed(self, features: Tensor, dtype: torch.dtype) -> Tensor | None:
        """Return the linear head's ``(B, chunk, refined)``, None where it has no dimension."""
        return self._linear(self.head, features, dtype)

    def gripped(self, features: Tensor, dtype: torch.dtype) -> Tensor | None:
        """Return the grippers' own ``(B, chunk, grippers)``, None where they have no head of their own."""
        return self._linear(self.gripper_head, features, dtype)

    def assembled(self, refined: Tensor | None, gripped: Tensor | None) -> Tensor:
        """Return ``(B, chunk, A)`` in the order of the action spec."""
        if gripped is None or refined is None:
            return refined if refined is not None else gripped  # type: ignore[return-value]  # one of them is there
        order = torch.tensor([*self.spec.refined, *self.spec.grippers], device=refined.device).argsort()
        return torch.cat([refined, gripped], dim=-1)[..., order]

    def _linear(self, layer: nn.Linear | None, features: Tensor, dtype: torch.dtype) -> Tensor | None:
        if layer is None:
            return None
        with self._precision(features, dtype):
            chunk: Tensor = layer(features)
        return chunk.float().view(len(features), self.spec.chunk, -1)

    @staticmethod
    def _precision(like: Tensor, dtype: torch.dtype) -> torch.autocast:
        return torch.autocast(like.device.type, dtype=torch.bfloat16, enabled=dtype is torch.bfloat16)


def _block(inputs: int, outputs: int, *, stride: int) -> tuple[nn.Module, ...]:
    # GroupNorm, not BatchNorm: no batch statistics to disagree with EMA weights or with a batch of one on the
    # robot.
    return (
        nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1),
        nn.GroupNorm(max(1, outputs // 16), outputs),
        nn.ReLU(inplace=True),
    )
