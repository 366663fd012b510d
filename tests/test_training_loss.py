"""The loss of each head is 0 for the perfect answer, and what its formula says for a wrong one; nothing past an episode's end counts."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from torch import Tensor

from simgap.policies.cnn import CnnSpec
from simgap.policies.heads import MIP_TIME, FlowTarget, Head
from simgap.training.batches import Batch
from simgap.training.objectives import chunk_loss

STEPS, SIZE = 3, 2


@dataclass
class Answering:
    """Stands for a network that gives one answer to everything, and keeps what its denoiser was shown."""

    spec: CnnSpec
    answer: Tensor
    grip: Tensor | None = None
    shown: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def __call__(self, images: object, state: Tensor, dtype: torch.dtype) -> Tensor:
        return self.answer

    def features(self, images: object, state: Tensor, dtype: torch.dtype) -> Tensor:
        return state

    def denoiser(self, features: Tensor, noisy: Tensor, time: Tensor) -> Tensor:
        self.shown.append((noisy, time))
        return self.answer

    def gripped(self, features: Tensor, dtype: torch.dtype) -> Tensor | None:
        return self.grip

    def assembled(self, refined: Tensor, gripped: Tensor | None) -> Tensor:
        return refined if gripped is None else torch.cat([refined, gripped], dim=-1)


def spec_of(head: Head, target: FlowTarget = FlowTarget.ACTION, grippers: tuple[int, ...] = ()) -> CnnSpec:
    return CnnSpec(
        cameras=("front",),
        image_size=16,
        state_size=1,
        action_size=SIZE,
        chunk=STEPS,
        head=head,
        flow_target=target,
        grippers=grippers,
    )


def batch_of(target: np.ndarray, mask: np.ndarray, time: float | None = None) -> Batch:
    rng = np.random.default_rng(5)
    return Batch(
        images=(np.zeros((len(target), 16, 16, 3), np.uint8),),
        state=np.zeros((len(target), 1), np.float32),
        target=target.astype(np.float32),
        mask=mask.astype(np.float32),
        noise=None if time is None else rng.standard_normal(target.shape, dtype=np.float32),
        time=None if time is None else np.full(len(target), time, np.float32),
    )


TARGET = np.random.default_rng(2).normal(size=(2, STEPS, SIZE))
ALL, SHORT = np.ones((2, STEPS)), np.array([[1, 1, 1], [1, 0, 0]])


def loss(network: Answering, batch: Batch, weights: list[float] | None = None) -> float:
    told = None if weights is None else torch.tensor(weights)
    return float(chunk_loss(network, batch, torch.device("cpu"), torch.float32, told))  # type: ignore[arg-type]


def answer(off: float | np.ndarray = 0.0) -> Tensor:
    return torch.from_numpy((TARGET + off).astype(np.float32))


def test_every_real_step_counts_alike_and_what_is_past_the_end_not_at_all() -> None:
    off = np.zeros_like(TARGET)
    off[1, 0], off[1, 1:] = 4.0, 1e6  # one real step of four is 4 off; the two behind the end are wild
    network = Answering(spec_of(Head.L1), answer(off))
    assert loss(network, batch_of(TARGET, SHORT)) == pytest.approx(1.0, rel=1e-5)


def test_a_weight_is_the_weight_of_its_dimension() -> None:
    network = Answering(spec_of(Head.L1), answer(np.array([1.0, -1.0])))
    assert loss(network, batch_of(TARGET, ALL), [1.0, 5.0]) == pytest.approx(3.0, rel=1e-5)


@pytest.mark.parametrize(
    ("head", "time", "wrong"),
    [
        (Head.L1, None, 0.5),
        (Head.MIP, MIP_TIME, 0.5 / MIP_TIME + 0.5 / (1.0 - MIP_TIME)),
        (Head.FLOW, 0.25, 0.25),
    ],
)
@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_the_perfect_answer_costs_nothing_and_half_a_unit_off_what_the_formula_says(
    head: Head, time: float | None, wrong: float, side: float
) -> None:
    batch = batch_of(TARGET, SHORT, time)
    assert loss(Answering(spec_of(head), answer()), batch) == pytest.approx(0.0, abs=1e-6)
    assert loss(Answering(spec_of(head), answer(side * 0.5)), batch) == pytest.approx(wrong, rel=1e-5)


def test_a_flow_of_velocities_is_asked_for_the_way_from_noise_to_action() -> None:
    batch = batch_of(TARGET, ALL, 0.25)
    assert batch.noise is not None
    network = Answering(spec_of(Head.FLOW, FlowTarget.VELOCITY), answer(-batch.noise))
    assert loss(network, batch) == pytest.approx(0.0, abs=1e-6)


def test_a_flow_is_shown_more_of_the_action_the_later_it_is() -> None:
    for time in (0.0, 0.75, 1.0):
        network, batch = Answering(spec_of(Head.FLOW), answer()), batch_of(TARGET, ALL, time)
        loss(network, batch)
        [(noisy, at)] = network.shown
        assert batch.noise is not None
        np.testing.assert_allclose(noisy, (1 - time) * batch.noise + time * TARGET, atol=1e-6)
        np.testing.assert_array_equal(at, np.float32(time))


def test_mip_answers_first_from_nothing_and_then_from_a_noisy_action() -> None:
    network, batch = Answering(spec_of(Head.MIP), answer()), batch_of(TARGET, ALL, MIP_TIME)
    loss(network, batch)
    (first, start), (second, at) = network.shown
    assert batch.noise is not None
    assert not first.any()
    assert not start.any()
    np.testing.assert_allclose(second, TARGET + (1.0 - MIP_TIME) * batch.noise, atol=1e-6)
    np.testing.assert_array_equal(at, np.float32(MIP_TIME))


@pytest.mark.parametrize(("head", "time"), [(Head.MIP, MIP_TIME), (Head.FLOW, 0.5)])
def test_a_gripper_with_a_head_of_its_own_is_compared_with_its_own_target(head: Head, time: float) -> None:
    batch = batch_of(TARGET, ALL, time)
    assert batch.noise is not None
    first = Batch(
        images=batch.images,
        state=batch.state,
        target=batch.target,
        mask=batch.mask,
        noise=batch.noise[..., :1],
        time=batch.time,
    )
    spec = spec_of(head, grippers=(1,))
    right = Answering(spec, answer()[..., :1], grip=answer()[..., 1:])
    off = Answering(spec, answer()[..., :1], grip=answer(-0.5)[..., 1:])
    assert loss(right, first) == pytest.approx(0.0, abs=1e-6)
    assert loss(off, first) == pytest.approx(0.25, rel=1e-5)  # |.|, shared with the dimension that is right
