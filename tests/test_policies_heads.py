"""Heads, pools, goals and inpainting of small policies: what they compute, what they refuse, what they leave alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from simgap.errors import DataError, UsageError
from simgap.policies.base import Asked, AskedPolicy, Prefix, ask
from simgap.policies.checkpoint import load_policy, read_card, write_checkpoint
from simgap.policies.cnn import CnnSpec, Pool
from simgap.policies.heads import FlowTarget, Head
from simgap.policies.inference import CnnPolicy
from simgap.policies.probe import AgeProbe
from simgap.policies.sampling import Inpaint, euler, prefix_weights, two_steps
from test_policies_checkpoint import make_card

TINY = CnnSpec(
    cameras=("front",),
    image_size=12,
    state_size=3,
    action_size=3,
    chunk=6,
    width=8,
    hidden=32,
    denoiser_width=32,
)


def policy(path: Path, spec: CnnSpec, goals: tuple[str, ...] = (), **options: object) -> CnnPolicy:
    torch.manual_seed(0)
    write_checkpoint(path, replace(make_card(), architecture=spec, goals=goals), spec.build().state_dict())
    return load_policy(path, **options)  # type: ignore[arg-type]


def batch(count: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    rng = np.random.default_rng(0)
    return {"front": rng.integers(0, 256, (count, 12, 12, 3), dtype=np.uint8)}, rng.uniform(
        -50, 50, (count, 3)
    ).astype(np.float32)


@pytest.mark.parametrize("head", list(Head))
@pytest.mark.parametrize("pool", list(Pool))
@pytest.mark.parametrize("grippers", [(), (2,), (0,)])
def test_every_head_pool_and_gripper_makes_the_round_trip(
    tmp_path: Path, head: Head, pool: Pool, grippers: tuple[int, ...]
) -> None:
    spec = replace(TINY, head=head, pool=pool, grippers=grippers, stem=2)
    loaded = policy(tmp_path, spec)
    assert read_card(tmp_path).architecture == spec
    chunk = loaded.predict(*batch(4))
    assert chunk.shape == (4, 6, 3)
    assert np.isfinite(chunk).all()
    np.testing.assert_array_equal(chunk, loaded.predict(*batch(4)))
    assert loaded.inpaints == (head is Head.FLOW)
    assert isinstance(loaded, AskedPolicy)


@pytest.mark.parametrize("head", list(Head))
def test_heads_stay_small_on_real_frames(head: Head) -> None:
    network = CnnSpec(
        cameras=("front", "wrist"), image_size=96, state_size=6, action_size=6, chunk=16, head=head
    ).build()
    assert 0.1e6 < sum(p.numel() for p in network.parameters()) < 1.5e6


@pytest.mark.parametrize("stem", [1, 2, 4, 8])
@pytest.mark.parametrize("size", [16, 48, 96, 160])
def test_a_finer_stem_ends_in_a_map_of_bounded_size(stem: int, size: int) -> None:
    spec = CnnSpec(
        cameras=("front",), image_size=size, state_size=0, action_size=2, chunk=2, stem=stem, width=8
    )
    network = spec.build()
    seen = network.encoders[0].layers(torch.zeros(1, 8, -(-size // stem), -(-size // stem)))  # type: ignore[union-attr, operator]
    assert seen.shape[-1] <= 24
    assert network([torch.zeros(1, size, size, 3, dtype=torch.uint8)], torch.zeros(1, 0)).shape == (1, 2, 2)
    with pytest.raises(UsageError, match="stem stride"):
        replace(spec, stem=3)


def test_cards_from_before_there_were_heads_read_and_hash_as_they_did() -> None:
    plain = TINY.to_json() | {"denoiser_width": 256}
    old = CnnSpec(
        cameras=("front",), image_size=12, state_size=3, action_size=3, chunk=6, width=8, hidden=32
    ).to_json()
    assert set(old) == {
        "cameras",
        "image_size",
        "state_size",
        "action_size",
        "chunk",
        "width",
        "hidden",
        "pool",
    }
    assert CnnSpec.from_json(old).head is Head.L1
    with pytest.raises(DataError, match="architecture cannot be read"):
        CnnSpec.from_json(plain | {"head": "diffusion"})


def test_one_pass_of_the_encoders_serves_a_whole_flow() -> None:
    network = replace(TINY, head=Head.FLOW, flow_steps=7).build()
    passes = {"encoder": 0, "denoiser": 0}
    network.encoders[0].register_forward_hook(lambda *_: passes.update(encoder=passes["encoder"] + 1))
    assert network.denoiser is not None
    network.denoiser.register_forward_hook(lambda *_: passes.update(denoiser=passes["denoiser"] + 1))
    network([torch.zeros(2, 12, 12, 3, dtype=torch.uint8)], torch.zeros(2, 3))
    assert passes == {"encoder": 1, "denoiser": 7}


def test_two_steps_show_the_second_pass_what_the_first_one_said() -> None:
    seen: list[tuple[float, float]] = []

    def denoise(noisy: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        seen.append((float(noisy.mean()), float(time[0])))
        return noisy + 2.0

    out = two_steps(denoise, torch.ones(3, 4, 2))
    assert seen == [(0.0, 0.0), (2.0, pytest.approx(0.9))]
    assert float(out.mean()) == 4.0


@pytest.mark.parametrize("steps", [1, 2, 5, 10])
def test_both_targets_describe_the_same_flow_and_land_on_the_data_when_there_is_one_answer(
    steps: int,
) -> None:
    noise, answer = (
        torch.randn(4, 3, 2, generator=torch.Generator().manual_seed(0)),
        torch.linspace(-1, 1, 24).view(4, 3, 2),
    )
    by_action = euler(lambda x, t: answer, noise, steps, FlowTarget.ACTION)
    by_velocity = euler(
        lambda x, t: (answer - x) / (1.0 - t[:, None, None]), noise, steps, FlowTarget.VELOCITY
    )
    torch.testing.assert_close(by_action, answer)
    torch.testing.assert_close(by_velocity, answer)


def test_a_flow_reproduces_a_gaussian_whose_flow_is_known() -> None:
    """For data N(m, s^2) the exact E[a | x_t] is linear; many Euler steps have to bring N(0, 1) there."""
    mean, std = 0.5, 0.2

    def denoise(x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        t = time[:, None, None]
        gain = t * std**2 / ((1 - t) ** 2 + t**2 * std**2)
        return mean + gain * (x - t * mean)

    x = euler(
        denoise, torch.randn(4000, 1, 1, generator=torch.Generator().manual_seed(1)), 100, FlowTarget.ACTION
    )
    assert float(x.mean()) == pytest.approx(mean, abs=0.02)
    assert float(x.std()) == pytest.approx(std, rel=0.06)


def test_noise_comes_from_the_episode_and_the_step_alone(tmp_path: Path) -> None:
    flow = policy(tmp_path, replace(TINY, head=Head.FLOW), block=4)
    images, state = batch(6)
    asked = [Asked(seed=7 + i // 2, step=i % 2) for i in range(6)]
    together = flow.predict_asked(images, state, asked)
    for i in (0, 3, 5):
        alone = flow.predict_asked(
            {c: v[i : i + 1] for c, v in images.items()}, state[i : i + 1], asked[i : i + 1]
        )
        np.testing.assert_array_equal(alone[0], together[i])
    same = {c: np.repeat(v[:1], 3, axis=0) for c, v in images.items()}
    a, b, c = flow.predict_asked(
        same,
        np.repeat(state[:1], 3, axis=0),
        [Asked(seed=1, step=0), Asked(seed=2, step=0), Asked(seed=1, step=1)],
    )
    assert not np.array_equal(a, b)
    assert not np.array_equal(a, c)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 20), st.data())
def test_prefix_weights_fall_from_one_to_nothing(chunk: int, data: st.DataObject) -> None:
    known = data.draw(st.integers(0, chunk))
    frozen = data.draw(st.integers(0, known))
    weights = prefix_weights(chunk, frozen, known)
    assert (weights[:frozen] == 1.0).all()
    assert (weights[known:] == 0.0).all()
    assert (np.diff(weights) <= 1e-7).all()
    assert ((weights[frozen:known] > 0) & (weights[frozen:known] < 1)).all()


def test_guidance_draws_what_is_wanted_and_leaves_the_rest() -> None:
    """On a flow whose entries do not depend on each other, only weighted entries may move."""
    noise = torch.randn(1, 6, 1, generator=torch.Generator().manual_seed(3))
    weight = torch.tensor([1.0, 1.0, 0.5, 0.0, 0.0, 0.0]).view(1, 6, 1)

    def denoise(x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        return 0.9 * x

    free = euler(denoise, noise, 5, FlowTarget.ACTION)
    led = euler(
        denoise, noise, 5, FlowTarget.ACTION, Inpaint(target=torch.full((1, 6, 1), 2.0), weight=weight)
    )
    torch.testing.assert_close(led[:, 3:], free[:, 3:])
    assert ((led - 2.0).abs()[:, :2] < 0.5 * (free - 2.0).abs()[:, :2]).all()
    assert (led - 2.0).abs()[0, 2] < (free - 2.0).abs()[0, 2]


def test_a_chunk_begins_with_what_is_frozen_to_the_bit_and_only_rows_with_a_prefix_are_led(
    tmp_path: Path,
) -> None:
    flow = policy(tmp_path, replace(TINY, head=Head.FLOW, grippers=(2,)))
    images, state = batch(2)
    old = np.tile(np.array([40.0, -30.0, 55.0], np.float32), (6, 1))
    prefix = Prefix(actions=old, frozen=2, known=5)
    free = flow.predict_asked(images, state, [Asked(seed=1), Asked(seed=1)])
    led = flow.predict_asked(images, state, [Asked(seed=1, prefix=prefix), Asked(seed=1)])
    np.testing.assert_array_equal(led[0, :2], old[:2])
    np.testing.assert_allclose(led[1], free[1], atol=1e-4)
    assert np.abs(led[0, 2, :2] - free[0, 2, :2]).max() > 0.1


@pytest.mark.parametrize("head", [Head.L1, Head.MIP])
def test_a_prefix_for_a_head_that_cannot_use_it_is_refused(tmp_path: Path, head: Head) -> None:
    prefix = Prefix(actions=np.zeros((6, 3), np.float32), frozen=1, known=2)
    with pytest.raises(UsageError, match=f"a {head} head cannot"):
        policy(tmp_path, replace(TINY, head=head)).predict_asked(*batch(1), [Asked(prefix=prefix)])
    with pytest.raises(UsageError, match="this policy cannot"):
        ask(AgeProbe(6), {}, np.zeros((1, 2), np.float32), [Asked(prefix=prefix)])
    assert ask(AgeProbe(6), {}, np.zeros((1, 2), np.float32), [Asked(goal="anything")]).shape == (1, 6, 4)


def test_a_policy_with_goals_does_what_it_is_told_and_refuses_what_it_is_not(tmp_path: Path) -> None:
    goals = ("put the blue cube away", "put the red cube away")
    told = policy(tmp_path, replace(TINY, state_size=5), goals)
    images, state = batch(2)
    red, blue = (told.predict_asked(images, state, [Asked(goal=g)] * 2) for g in reversed(goals))
    assert not np.array_equal(red, blue)
    np.testing.assert_array_equal(load_policy(tmp_path, goal=goals[1]).predict(images, state), red)
    with pytest.raises(UsageError, match="trained on 2 goals and is not told which"):
        told.predict(images, state)
    for wrong in (
        lambda: told.predict_asked(images, state, [Asked(goal="put the red cup away")] * 2),
        lambda: load_policy(tmp_path, goal="put the red cup away"),
    ):
        with pytest.raises(
            UsageError, match=r"no goal 'put the red cup away'; did you mean 'put the red cube away'"
        ) as caught:
            wrong()
        assert "\n" not in str(caught.value)
    assert told.stamp_fields()["goals"] == list(goals)


def test_shapes_that_make_no_sense_are_refused() -> None:
    for change in (
        {"grippers": (2, 1)},
        {"grippers": (0, 1, 2), "head": Head.FLOW},
        {"denoiser_width": 1},
        {"stem": 8, "image_size": 4},
    ):
        with pytest.raises(UsageError):
            replace(TINY, **change)
    assert replace(TINY, grippers=(0, 1, 2)).build()(
        [torch.zeros(1, 12, 12, 3, dtype=torch.uint8)], torch.zeros(1, 3)
    ).shape == (1, 6, 3)
