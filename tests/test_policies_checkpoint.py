"""Normaliser, network and checkpoint: round trips, refusals, batches."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from simgap.conventions import VectorSpec
from simgap.errors import ConventionError, DataError, UsageError
from simgap.policies import parse_executor
from simgap.policies.checkpoint import Card, load_policy, read_card, require_matches, write_checkpoint
from simgap.policies.cnn import CnnSpec, Pool
from simgap.policies.normaliser import Normaliser, RangeMethod, RangeNormaliser, fit_range
from synthetic import ACTION_SPEC, STATE_SPEC


def make_card() -> Card:
    low, high = tuple(ACTION_SPEC.low.tolist()), tuple(ACTION_SPEC.high.tolist())
    scale = RangeNormaliser(names=ACTION_SPEC.names, low=low, high=high)
    return Card(
        action_spec=ACTION_SPEC,
        state_spec=STATE_SPEC,
        architecture=CnnSpec(
            cameras=("front", "wrist"),
            image_size=48,
            state_size=3,
            action_size=3,
            chunk=4,
            width=8,
            hidden=32,
        ),
        normaliser=Normaliser(state=scale, action=scale, method=RangeMethod.MIN_MAX),
        data=("f" * 64,),
        executor=parse_executor("receding(4)"),
    )


def make_checkpoint(path: Path) -> Card:
    card = make_card()
    torch.manual_seed(0)
    return write_checkpoint(path, card, card.architecture.build().state_dict())


def make_batch(count: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    rng = np.random.default_rng(0)
    images = {c: rng.integers(0, 256, (count, 48, 48, 3), dtype=np.uint8) for c in ("front", "wrist")}
    return images, rng.uniform(-50, 50, (count, 3)).astype(np.float32)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-1e4, 1e4, width=32), min_size=2, max_size=20))
def test_normaliser_inverts_itself_and_maps_data_into_the_unit_range(values: list[float]) -> None:
    rows = np.array([values, values, values], dtype=np.float32).T
    fitted = fit_range([rows], ACTION_SPEC)
    scaled = fitted.normalise(rows)
    assert np.abs(scaled).max() <= 1.0 + 1e-6
    np.testing.assert_allclose(fitted.denormalise(scaled), rows, atol=2e-3)


def test_a_dimension_that_does_not_move_is_scaled_by_its_limits_not_by_its_noise() -> None:
    rng = np.random.default_rng(0)
    rows = np.stack(
        (rng.uniform(-50, 50, 100), 30.0 + rng.normal(0, 0.001, 100), np.full(100, 7.0)), axis=1
    ).astype(np.float32)
    fitted = fit_range([rows], ACTION_SPEC)
    assert fitted.high[1] - fitted.low[1] == pytest.approx(180.0)
    assert np.abs(fitted.normalise(rows)[:, 1:]).max() < 1e-3
    np.testing.assert_allclose(fitted.denormalise(np.zeros(3))[1:], [30.0, 7.0], atol=0.01)


def test_quantile_ranges_ignore_an_outlier_and_do_not_clip_it() -> None:
    rows = np.tile(np.linspace(-1, 1, 1000, dtype=np.float32)[:, None], (1, 3))
    rows[0] = 1000.0
    fitted = fit_range([rows], ACTION_SPEC, RangeMethod.QUANTILE)
    assert fitted.high[0] < 1.1
    assert fitted.normalise(rows)[0, 0] > 500


def test_normalisers_that_cannot_be_fitted_or_read_are_refused() -> None:
    with pytest.raises(DataError, match="NaN"):
        fit_range([np.full((3, 3), np.nan, np.float32)], ACTION_SPEC)
    with pytest.raises(DataError, match="0 rows"):
        fit_range([], ACTION_SPEC)
    data = make_card().normaliser.to_json()
    assert Normaliser.from_json(data) == make_card().normaliser
    with pytest.raises(DataError, match="extra"):
        Normaliser.from_json(data | {"extra": 1})
    with pytest.raises(DataError, match="below"):
        RangeNormaliser(names=("a",), low=(1.0,), high=(1.0,))


@pytest.mark.parametrize("size", [48, 64, 84, 96, 128, 200, 224, 256])
@pytest.mark.parametrize("pool", list(Pool))
def test_networks_take_any_frame_size(size: int, pool: Pool) -> None:
    network = CnnSpec(
        cameras=("front", "wrist"), image_size=size, state_size=6, action_size=6, chunk=10, pool=pool
    ).build()
    images = [torch.zeros(2, size, size, 3, dtype=torch.uint8)] * 2
    for dtype in (torch.float32, torch.bfloat16):
        assert network(images, torch.zeros(2, 6), dtype).shape == (2, 10, 6)
    assert 0.1e6 < sum(p.numel() for p in network.parameters()) < 1.5e6


def test_networks_outside_their_range_are_refused() -> None:
    for change in (
        {"image_size": 3},
        {"width": 12},
        {"cameras": ()},
        {"chunk": 0},
        {"stem": 3},
        {"grippers": (3,)},
        {"flow_steps": 0},
    ):
        with pytest.raises(UsageError):
            replace(make_card().architecture, **change)


def test_a_checkpoint_predicts_in_action_units_and_the_same_twice(tmp_path: Path) -> None:
    written = make_checkpoint(tmp_path / "a")
    assert read_card(tmp_path / "a") == written
    policy = load_policy(tmp_path / "a")
    images, state = make_batch(5)
    chunk = policy.predict(images, state)
    assert chunk.shape == (5, 4, 3)
    assert chunk.dtype == np.float32
    np.testing.assert_array_equal(chunk, policy.predict(images, state))
    np.testing.assert_array_equal(chunk, load_policy(tmp_path / "a").predict(images, state))
    assert np.abs(chunk - load_policy(tmp_path / "a", bf16=True).predict(images, state)).max() < 5.0
    assert policy.stamp_fields()["weights"] == written.weights_hash


def test_blocks_make_a_row_independent_of_its_companions(tmp_path: Path) -> None:
    make_checkpoint(tmp_path)
    policy = load_policy(tmp_path, block=4, threads=1)
    images, state = make_batch(10)
    together = policy.predict(images, state)
    for i in range(10):
        alone = policy.predict({c: v[i : i + 1] for c, v in images.items()}, state[i : i + 1])
        np.testing.assert_array_equal(alone[0], together[i])


def test_prediction_restores_the_number_of_threads(tmp_path: Path) -> None:
    make_checkpoint(tmp_path)
    before = torch.get_num_threads()
    load_policy(tmp_path, threads=before + 1).predict(*make_batch(1))
    assert torch.get_num_threads() == before


def test_damaged_checkpoints_are_refused_in_one_clear_line(tmp_path: Path) -> None:
    def fresh(name: str) -> Path:
        make_checkpoint(tmp_path / name)
        return tmp_path / name

    def edited(name: str, **changes: object) -> Path:
        path = fresh(name)
        (path / "card.json").write_text(json.dumps(json.loads((path / "card.json").read_text()) | changes))
        return path

    no_weights = fresh("no_weights")
    (no_weights / "weights.safetensors").unlink()
    flipped = fresh("flipped")
    data = bytearray((flipped / "weights.safetensors").read_bytes())
    data[-1] ^= 1
    (flipped / "weights.safetensors").write_bytes(data)
    garbled = fresh("garbled")
    (garbled / "card.json").write_text("{")
    card = make_card().to_json()
    normaliser = card["normaliser"]
    normaliser["state"]["low"][0] = -91.0
    cases = {
        tmp_path / "nowhere": "is missing",
        no_weights: "weights.safetensors is missing",
        flipped: "has hash",
        garbled: "is not JSON",
        edited("schema", schema=99): "schema 99",
        edited("field", data=None): "lacks or garbles",
        edited("architecture", architecture={"cameras": []}): "architecture cannot be read",
        edited("executor", executor="receding(x)"): "executor",
        edited("training", training=7): "lacks or garbles",
        edited("no_envs", training={"envs": None}): "envs",
        edited("envs", training={"envs": 5}): "envs",
        edited("letters", training={"envs": "arm-pick"}): "envs",
        edited("huge", architecture=card["architecture"] | {"hidden": 10**9}): "whole sizes",
        edited("fraction", architecture=card["architecture"] | {"chunk": 2.5}): "whole sizes",
        edited("normaliser", normaliser=normaliser): "does not match its hash",
        edited("wider", architecture=card["architecture"] | {"hidden": 64}): "does not fit the architecture",
    }
    for path, message in cases.items():
        with pytest.raises(DataError, match=message) as caught:
            load_policy(path)
        assert "\n" not in str(caught.value)


def test_a_policy_that_does_not_fit_its_env_is_refused_naming_both(tmp_path: Path) -> None:
    make_checkpoint(tmp_path)
    policy = load_policy(tmp_path)
    require_matches(policy, ACTION_SPEC, STATE_SPEC, ("front", "wrist", "side"), 48)
    slower = VectorSpec(dimensions=ACTION_SPEC.dimensions, rate_hz=10.0)
    with pytest.raises(ConventionError, match=r"policy 20\.0 Hz, env 10\.0 Hz"):
        require_matches(policy, slower, STATE_SPEC, ("front", "wrist"), 48)
    with pytest.raises(ConventionError, match=r"\['wrist'\] missing"):
        require_matches(policy, ACTION_SPEC, STATE_SPEC, ("front",), 48)
    with pytest.raises(ConventionError, match=r"48 px.*64 px"):
        require_matches(policy, ACTION_SPEC, STATE_SPEC, ("front", "wrist"), 64)


def test_observations_of_another_shape_are_refused(tmp_path: Path) -> None:
    make_checkpoint(tmp_path)
    policy = load_policy(tmp_path)
    images, state = make_batch(2)
    with pytest.raises(ConventionError, match="'wrist' is missing"):
        policy.predict({"front": images["front"]}, state)
    with pytest.raises(ConventionError, match="uint8"):
        policy.predict(images | {"front": images["front"].astype(np.float32)}, state)
    with pytest.raises(ConventionError, match="state has shape"):
        policy.predict(images, state[:, :2])


def test_importing_policies_does_not_import_torch() -> None:
    import subprocess
    import sys

    code = "import sys, simgap.policies, simgap.policies.probe; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
