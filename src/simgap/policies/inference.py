"""A trained network as a policy: uint8 frames and raw encoder readings in, chunks in action units out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from simgap.conventions import ActionSpec, StateSpec
from simgap.errors import ConventionError, UsageError, did_you_mean
from simgap.policies.base import Asked, Prefix
from simgap.policies.cnn import ChunkNet
from simgap.policies.execution import ExecutorSpec
from simgap.policies.heads import Head
from simgap.policies.normaliser import Normaliser
from simgap.policies.sampling import Inpaint, prefix_weights
from simgap.provenance import child_rng


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
    """Implements :class:`simgap.policies.base.AskedPolicy`. Stateless, and deterministic in what it is given: noise comes from (seed, step)."""

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
        goals: tuple[str, ...] = (),
        goal: str | None = None,
        envs: tuple[str, ...] = (),
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
            raise UsageError(
                f"the policy was told the domains {list(domains)}, not {domain!r}; name one of them"
            )
        self.domain = domain if domains else None
        """What the policy is told of where it acts; None for one that is not told."""
        self._told = np.array([d == domain for d in domains], dtype=np.float32)
        self.goals = goals
        """Tasks that the policy can be told to do; empty for one that is not told."""
        self._goal = goal
        self.envs = envs
        """Envs whose episodes the policy learnt from; empty where its data name none."""
        if goal is not None and goals:
            self._one_hot(goal)

    @property
    def inpaints(self) -> bool:
        """Whether a chunk can go on from the one before: only a flow can be steered on its way."""
        return self._network.spec.head is Head.FLOW

    def predict(
        self, images: Mapping[str, NDArray[np.uint8]], state: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Return ``(B, chunk, A)`` float32 in action-spec units; see the protocol. A flow starts every row at the same noise.

        Raises:
            ConventionError: a camera is missing, or a shape or dtype is not what the checkpoint was trained
                with.
        """
        return self.predict_asked(images, state, [Asked()] * len(state))

    def predict_asked(
        self, images: Mapping[str, NDArray[np.uint8]], state: NDArray[np.float32], asked: Sequence[Asked]
    ) -> NDArray[np.float32]:
        """Return ``(B, chunk, A)`` float32 in action-spec units, with noise, goal and prefix of each row.

        Raises:
            ConventionError: as :meth:`predict`.
            UsageError: a goal that is missing or unknown, or a prefix for a head that cannot go on from one.
        """
        frames = [self._checked(name, images, len(state)) for name in self.cameras]
        if state.ndim != 2 or state.shape[1] != len(self.state_spec):
            raise ConventionError(
                f"state has shape {state.shape}, the policy expects (B, {len(self.state_spec)}):"
                f" {list(self.state_spec.names)}"
            )
        if len(asked) != len(state):
            raise UsageError(f"{len(asked)} requests for {len(state)} observations; one each is needed")
        if not self.inpaints and any(a.prefix is not None for a in asked):
            head = self._network.spec.head
            raise UsageError(
                f"the executor wants chunks that go on from the one before, and a {head} head cannot; use"
                " receding(k, delay=d), or train a flow head"
            )
        scaled = self.normaliser.state.normalise(state)
        if len(self._told):
            scaled = np.concatenate([scaled, np.repeat(self._told[None], len(scaled), axis=0)], axis=1)
        if self.goals:
            scaled = np.concatenate(
                [scaled, np.stack([self._one_hot(self._goal if a.goal is None else a.goal) for a in asked])],
                axis=1,
            )
        # A guided flow needs gradients of its input, which inference mode forbids for good.
        with torch_threads(self._threads), torch.no_grad() if self.inpaints else torch.inference_mode():
            if self._block is None:
                return self._kept(
                    self.normaliser.action.denormalise(self._forward(frames, scaled, asked)), asked
                )
            blocks = [
                self._padded(frames, scaled, asked, i, self._block)
                for i in range(0, len(scaled), self._block)
            ]
        return self._kept(self.normaliser.action.denormalise(np.concatenate(blocks)), asked)

    def stamp_fields(self) -> Mapping[str, Any]:
        """Return weights, normaliser, data, parent, frame size, cameras, chunk and precision."""
        return {
            **self._provenance,
            "normaliser": self.normaliser.hash,
            "cameras": list(self.cameras),
            "image_size": self.image_size,
            "chunk": self.chunk,
            "precision": "bfloat16" if self._dtype is torch.bfloat16 else "float32",
            **({} if self.domain is None else {"domain": self.domain}),
            **({"goals": list(self.goals)} if self.goals else {}),
        }

    def _checked(self, name: str, images: Mapping[str, NDArray[np.uint8]], count: int) -> NDArray[np.uint8]:
        if name not in images:
            raise ConventionError(
                f"the policy sees cameras {list(self.cameras)}, the observation has {sorted(images)}:"
                f" {name!r} is missing"
            )
        frames = images[name]
        expected = (count, self.image_size, self.image_size, 3)
        if frames.shape != expected or frames.dtype != np.uint8:
            raise ConventionError(
                f"frames of {name!r} are {frames.dtype} {frames.shape}, the policy expects uint8 {expected}"
                " RGB; resize or convert them"
            )
        return frames

    def _one_hot(self, goal: str | None) -> NDArray[np.float32]:
        if goal is None:
            raise UsageError(
                f"the policy was trained on {len(self.goals)} goals and is not told which one to do; name one"
                f" of: {', '.join(self.goals)}"
            )
        if goal not in self.goals:
            raise UsageError(f"the policy knows no goal {goal!r}; {did_you_mean(goal, self.goals)}")
        return np.array([g == goal for g in self.goals], dtype=np.float32)

    def _forward(
        self, frames: list[NDArray[np.uint8]], scaled: NDArray[np.float32], asked: Sequence[Asked]
    ) -> NDArray[np.float32]:
        spec, device = self._network.spec, next(self._network.parameters()).device
        tensors = [torch.from_numpy(np.ascontiguousarray(f)).to(device) for f in frames]
        noise, inpaint = None, None
        if spec.head is Head.FLOW:
            shape = (spec.chunk, len(spec.refined))
            drawn = np.stack(
                [child_rng(a.seed, "noise", a.step).standard_normal(shape, dtype=np.float32) for a in asked]
            )
            noise, inpaint = (
                torch.from_numpy(drawn).to(device),
                self._inpaint([a.prefix for a in asked], device),
            )
        chunk: NDArray[np.float32] = (
            self._network(tensors, torch.from_numpy(scaled).to(device), self._dtype, noise, inpaint)
            .cpu()
            .numpy()
        )
        return chunk

    def _inpaint(self, prefixes: Sequence[Prefix | None], device: torch.device) -> Inpaint | None:
        if all(p is None for p in prefixes):
            return None
        chunk, refined = self.chunk, list(self._network.spec.refined)
        target = np.zeros((len(prefixes), chunk, len(refined)), dtype=np.float32)
        weight = np.zeros((len(prefixes), chunk, 1), dtype=np.float32)
        for row, prefix in enumerate(prefixes):
            if prefix is not None:
                target[row, : prefix.known] = self.normaliser.action.normalise(
                    prefix.actions[: prefix.known]
                )[:, refined]
                weight[row, :, 0] = prefix_weights(chunk, prefix.frozen, prefix.known)
        return Inpaint(target=torch.from_numpy(target).to(device), weight=torch.from_numpy(weight).to(device))

    @staticmethod
    def _kept(chunks: NDArray[np.float32], asked: Sequence[Asked]) -> NDArray[np.float32]:
        """Return chunks that begin with what was already decided, to the bit: those entries are sent whatever comes."""
        for chunk, one in zip(chunks, asked, strict=True):
            if one.prefix is not None:
                chunk[: one.prefix.frozen] = one.prefix.actions[: one.prefix.frozen]
        return chunks

    def _padded(
        self,
        frames: list[NDArray[np.uint8]],
        scaled: NDArray[np.float32],
        asked: Sequence[Asked],
        start: int,
        block: int,
    ) -> NDArray[np.float32]:
        rows = len(scaled[start : start + block])
        fill = block - rows
        padded = [
            np.concatenate((f[start : start + block], np.zeros((fill, *f.shape[1:]), np.uint8)))
            for f in frames
        ]
        states = np.concatenate(
            (scaled[start : start + block], np.zeros((fill, scaled.shape[1]), np.float32))
        )
        return self._forward(padded, states, [*asked[start : start + block], *[Asked()] * fill])[:rows]
