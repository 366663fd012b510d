"""A trained network as a policy: uint8 frames and raw encoder readings in, chunks in action units out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from simgap.conventions import ActionSpec, StateSpec
from simgap.errors import ConventionError, UsageError
from simgap.policies.cnn import ChunkNet
from simgap.policies.execution import ExecutorSpec
from simgap.policies.normaliser import Normaliser


@contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """Run a block with a fixed number of torch threads and restore the former number; None changes nothing."""
    before = torch.get_num_threads()
    if count is not None and count != before:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if torch.get_num_threads() != before:
            torch.set_num_threads(before)


class CnnPolicy:
    """Implements :class:`simgap.policies.base.Policy`. Stateless and deterministic."""

    def __init__(
        self,
        *,
        network: ChunkNet,
        normaliser: Normaliser,
        action_spec: ActionSpec,
        state_spec: StateSpec,
        executor: ExecutorSpec,
        provenance: Mapping[str, Any],
        bf16: bool = False,
        threads: int | None = None,
        block: int | None = None,
        domains: tuple[str, ...] = (),
        domain: str = "real",
    ) -> None:
        self.action_spec = action_spec
        self.state_spec = state_spec
        self.cameras = network.spec.cameras
        self.image_size = network.spec.image_size
        self.chunk = network.spec.chunk
        self.normaliser = normaliser
        self.executor = executor
        """Recommended executor; pass another one to a rollout on purpose only."""
        self._network = network.eval().requires_grad_(False)
        self._provenance = dict(provenance)
        self._dtype = torch.bfloat16 if bf16 else torch.float32
        self._threads = threads
        self._block = block
        if domains and domain not in domains:
            raise UsageError(f"the policy was told the domains {list(domains)}, not {domain!r}; name one of them")
        self.domain = domain if domains else None
        """What the policy is told of where it acts; None for one that is not told."""
        self._told = np.array([d == domain for d in domains], dtype=np.float32)

    def predict(self, images: Mapping[str, NDArray[np.uint8]], state: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return ``(B, chunk, A)`` float32 in action-spec units; see the protocol.

        Raises:
            ConventionError: a camera is missing, or a shape or dtype is not what the checkpoint was trained with.
        """
        frames = [self._checked(name, images, len(state)) for name in self.cameras]
        if state.ndim != 2 or state.shape[1] != len(self.state_spec):
            raise ConventionError(f"state has shape {state.shape}, the policy expects (B, {len(self.state_spec)}): {list(self.state_spec.names)}")
        scaled = self.normaliser.state.normalise(state)
        if len(self._told):
            scaled = np.concatenate([scaled, np.repeat(self._told[None], len(scaled), axis=0)], axis=1)
        with torch_threads(self._threads), torch.inference_mode():
            if self._block is None:
                return self.normaliser.action.denormalise(self._forward(frames, scaled))
            blocks = [self._padded(frames, scaled, i, self._block) for i in range(0, len(scaled), self._block)]
        return self.normaliser.action.denormalise(np.concatenate(blocks))

    def stamp_fields(self) -> Mapping[str, Any]:
        """Return weights, normaliser, data, parent, frame size, cameras, chunk and precision."""
        return {
            **self._provenance,
            "normaliser": self.normaliser.hash,
            "cameras": list(self.cameras),
            "image_size": self.image_size,
            "chunk": self.chunk,
            "precision": "bfloat16" if self._dtype is torch.bfloat16 else "float32",
        } | ({} if self.domain is None else {"domain": self.domain})

    def _checked(self, name: str, images: Mapping[str, NDArray[np.uint8]], count: int) -> NDArray[np.uint8]:
        if name not in images:
            raise ConventionError(f"the policy sees cameras {list(self.cameras)}, the observation has {sorted(images)}: {name!r} is missing")
        frames = images[name]
        expected = (count, self.image_size, self.image_size, 3)
        if frames.shape != expected or frames.dtype != np.uint8:
            raise ConventionError(f"frames of {name!r} are {frames.dtype} {frames.shape}, the policy expects uint8 {expected} RGB; resize or convert them")
        return frames

    def _forward(self, frames: list[NDArray[np.uint8]], scaled: NDArray[np.float32]) -> NDArray[np.float32]:
        device = self._network.head.weight.device
        tensors = [torch.from_numpy(np.ascontiguousarray(f)).to(device) for f in frames]
        chunk: NDArray[np.float32] = self._network(tensors, torch.from_numpy(scaled).to(device), self._dtype).cpu().numpy()
        return chunk

    def _padded(self, frames: list[NDArray[np.uint8]], scaled: NDArray[np.float32], start: int, block: int) -> NDArray[np.float32]:
        rows = len(scaled[start : start + block])
        fill = block - rows
        padded = [np.concatenate((f[start : start + block], np.zeros((fill, *f.shape[1:]), np.uint8))) for f in frames]
        states = np.concatenate((scaled[start : start + block], np.zeros((fill, scaled.shape[1]), np.float32)))
        return self._forward(padded, states)[:rows]
