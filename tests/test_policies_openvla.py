"""OpenVLA-style policies: tokens, statistics, what contradicts them, and the real loaders on a model made in the test."""

from __future__ import annotations

import importlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from arm_fixtures import SIZE, blind
from simgap import causes
from simgap.causes import Cause
from simgap.checks.deployment.action_statistics import check_action_statistics
from simgap.cli import main
from simgap.conventions import Dimension, Reference, Unit, VectorSpec, convert
from simgap.errors import ConventionError, DataError, MachineError, SimgapError, UntrustedError, UsageError
from simgap.findings import Verdict
from simgap.policies.base import Asked, AskedPolicy
from simgap.policies.bridges import KIND_NAMES, openvla_load
from simgap.policies.bridges.open import KINDS, open_policy, read_any_card
from simgap.policies.bridges.openvla import CROPPED_AREA, OpenvlaPolicy, binarised, shown
from simgap.policies.bridges.openvla_statistics import ActionStatistics, doubts, read_action_statistics
from simgap.policies.bridges.openvla_tokens import ActionTokens
from simgap.trust import Trust, granted
from test_data_check_layouts import real
from vla_fixtures import PROMPT, VOCABULARY, saved, saved_adapter, tiny_model

pytest.importorskip(
    "transformers", reason="the loader is tested with the real transformers: pip install 'simgap[vla]'"
)
pytest.importorskip("peft", reason="adapters are tested with the real PEFT: pip install 'simgap[vla]'")

ENV = blind()
WIDTH = len(ENV.action_spec)
ACTIONS = hnp.arrays(np.float64, hnp.array_shapes(max_dims=2, max_side=8), elements=st.floats(-3.0, 3.0))


# -- tokens


@given(ACTIONS, st.integers(256, 200_000))
def test_an_action_comes_back_from_its_token_within_half_an_interval(actions: Any, vocabulary: int) -> None:
    tokens = ActionTokens(vocabulary=vocabulary)
    ids = tokens.encode(actions)
    assert tokens.are_actions(ids).all()
    assert np.abs(tokens.decode(ids) - np.clip(actions, -1.0, 1.0)).max(initial=0.0) <= 1.0 / 255.0 + 1e-12


@given(ACTIONS)
def test_tokens_of_what_tokens_mean_are_the_same_tokens_but_for_the_one_beyond_the_last_edge(
    actions: Any,
) -> None:
    tokens = ActionTokens(vocabulary=32_000)
    ids = tokens.encode(actions)
    np.testing.assert_array_equal(tokens.encode(tokens.decode(ids)), np.maximum(ids, 32_000 - 255))


@given(st.floats(-1.0, 1.0), st.floats(-1.0, 1.0))
def test_a_larger_action_never_has_a_larger_token(a: float, b: float) -> None:
    tokens = ActionTokens(vocabulary=32_000)
    low, high = tokens.encode(sorted((a, b)))
    assert high <= low


def test_the_ends_are_the_tokens_that_the_reference_uses() -> None:
    tokens = ActionTokens(vocabulary=32_000)
    np.testing.assert_array_equal(tokens.encode([-1.0, 1.0, -9.0, 9.0]), [31_999, 31_744, 31_999, 31_744])
    np.testing.assert_allclose(
        tokens.decode([31_999, 31_745, 31_744]), [-1.0 + 1 / 255, 1.0 - 1 / 255, 1.0 - 1 / 255]
    )
    # other words: the nearest end, as there
    np.testing.assert_allclose(tokens.decode([0, 40_000]), [1.0 - 1 / 255, -1.0 + 1 / 255])
    assert not tokens.are_actions([0, 31_743, 32_000]).any()


def test_a_vocabulary_without_room_for_the_tokens_is_refused() -> None:
    with pytest.raises(UsageError, match="do not fit a vocabulary of 255"):
        ActionTokens(vocabulary=255)


# -- statistics


def statistics(low: Any, high: Any, mask: Any, key: str = "mine") -> ActionStatistics:
    return ActionStatistics(
        unnorm_key=key,
        low=np.array(low, dtype=float),
        high=np.array(high, dtype=float),
        mask=np.array(mask, dtype=bool),
    )


@given(st.data())
def test_unnormalising_undoes_normalising_and_leaves_what_the_mask_leaves(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 8))
    low = data.draw(hnp.arrays(np.float64, size, elements=st.floats(-100.0, 100.0)))
    width = data.draw(hnp.arrays(np.float64, size, elements=st.floats(0.01, 100.0)))
    mask = data.draw(hnp.arrays(np.bool_, size))
    of = statistics(low, low + width, mask)
    actions = data.draw(hnp.arrays(np.float64, (3, size), elements=st.floats(-100.0, 100.0)))
    np.testing.assert_allclose(of.unnormalise(of.normalise(actions)), actions, atol=1e-9)
    np.testing.assert_array_equal(of.unnormalise(actions)[:, ~mask], actions[:, ~mask])
    np.testing.assert_allclose(of.unnormalise(np.full(size, -1.0))[mask], of.low[mask])
    np.testing.assert_allclose(of.unnormalise(np.full(size, 1.0))[mask], of.high[mask])


def stored(folder: Path, name: str = "dataset_statistics.json", **sets: Any) -> Path:
    path = folder / name
    path.write_text(json.dumps({k: {"action": v} for k, v in sets.items()}))
    return path


GOOD = {"q01": [0.0, -1.0], "q99": [1.0, 1.0], "mask": [True, False]}


def test_one_data_set_needs_no_key_several_need_one_and_a_wrong_one_is_answered_with_the_nearest(
    tmp_path: Path,
) -> None:
    assert (
        read_action_statistics(stored(tmp_path, libero_spatial_no_noops=GOOD), None).unnorm_key
        == "libero_spatial_no_noops"
    )
    several = stored(tmp_path, libero_spatial_no_noops=GOOD, bridge_orig=GOOD)
    with pytest.raises(UsageError, match=r"2 data sets.*name the one.*bridge_orig, libero_spatial_no_noops"):
        read_action_statistics(several, None)
    with pytest.raises(UsageError, match="did you mean 'libero_spatial_no_noops'"):
        read_action_statistics(several, "libero_spatial")
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"model_type": "openvla", "norm_stats": {"bridge_orig": {"action": GOOD}}}))
    assert read_action_statistics(config, "bridge_orig").mask.tolist() == [True, False]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"q99": [1.0]}, "2 numbers of q01, 1 of q99 and 2 of mask"),
        ({"mask": [True]}, "2 of q99 and 1 of mask"),
        ({"q01": [2.0, 0.0]}, "q01 2 above q99 1 for dimension 0"),
        ({"q01": [float("nan"), 0.0]}, "not finite"),
        ({"q01": None, "min": [0.0, 0.0], "max": [1.0, 1.0]}, "min and max are no stand-in"),
    ],
)
def test_statistics_that_cannot_scale_anything_are_refused(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    path = stored(tmp_path, mine={k: v for k, v in {**GOOD, **changes}.items() if v is not None})
    with pytest.raises(DataError, match=words):
        read_action_statistics(path, None)
    assert check_action_statistics(path, None, ENV.action_spec).verdict is Verdict.BROKEN


def seven(low: float = -0.1, high: float = 0.1) -> VectorSpec:
    """Return the convention of end-effector differences with a gripper of 0 closed, 1 open."""
    pose = [
        Dimension(
            name=n, unit=Unit.METRE if n in "xyz" else Unit.RAD, low=low, high=high, reference=Reference.DELTA
        )
        for n in ("x", "y", "z", "ax", "ay", "az")
    ]
    return VectorSpec(
        dimensions=(*pose, Dimension(name="gripper", unit=Unit.FRACTION, low=0.0, high=1.0, is_gripper=True)),
        rate_hz=5.0,
    )


HEALTHY = statistics([-0.03] * 6 + [0.0], [0.03] * 6 + [1.0], [True] * 6 + [False])


@pytest.mark.parametrize(
    ("change", "code", "verdict", "cause"),
    [
        ({}, None, Verdict.OK, causes.NONE),
        (
            {"low": HEALTHY.low[:6], "high": HEALTHY.high[:6], "mask": HEALTHY.mask[:6]},
            "width",
            Verdict.BROKEN,
            causes.ACTION_CONVENTION,
        ),
        (
            {"high": np.where(np.arange(7) == 3, -0.03, HEALTHY.high)},
            "constant",
            Verdict.BROKEN,
            causes.JOINT_DEAD,
        ),
        ({"mask": np.ones(7, dtype=bool)}, "scaled_gripper", Verdict.CANNOT_TELL, causes.NONE),
        (
            {"low": HEALTHY.low * 57.3, "high": HEALTHY.high * 57.3},
            "beyond_limits",
            Verdict.BROKEN,
            causes.ACTION_SCALE,
        ),
    ],
)
def test_each_planted_fault_of_statistics_gets_its_own_verdict_and_the_healthy_ones_none(
    tmp_path: Path, change: dict[str, Any], code: str | None, verdict: Verdict, cause: Cause
) -> None:
    planted = replace(HEALTHY, **change)
    path = stored(
        tmp_path,
        mine={"q01": planted.low.tolist(), "q99": planted.high.tolist(), "mask": planted.mask.tolist()},
    )
    result = check_action_statistics(path, "mine", seven())
    assert (result.verdict, result.cause) == (verdict, cause), result.sentence
    assert code is None or code in result.numbers["codes"]
    assert result.assumes


def test_a_joint_in_degrees_that_the_mask_leaves_unscaled_could_move_one_degree(tmp_path: Path) -> None:
    low, high = ENV.action_spec.low.astype(float), ENV.action_spec.high.astype(float)
    found = doubts(statistics(low, high, [True, False, True, True, True, True]), ENV.action_spec)
    assert [(d.code, d.is_certain) for d in found] == [("unscaled", True), ("scaled_gripper", False)]
    assert "shoulder_lift" in found[0].sentence


def test_every_kind_of_policy_file_can_be_checked_and_opened() -> None:
    assert tuple(KINDS) == KIND_NAMES
    for kind in KINDS.values():
        module = importlib.import_module(f"simgap.policies.bridges.{kind.module}")
        assert all(callable(getattr(module, name)) for name in (kind.opens, kind.stamps, kind.reads))


def test_a_missing_key_is_a_broken_check_and_names_the_nearest(tmp_path: Path) -> None:
    result = check_action_statistics(stored(tmp_path, bridge_orig=GOOD), "bridge", seven())
    assert (result.verdict, result.cause) == (Verdict.BROKEN, causes.ACTION_SCALE)
    assert "bridge_orig" in result.sentence


def test_the_published_sets_with_constant_dimensions_under_a_true_mask_are_found_and_no_others() -> None:
    path = real("stats_openvla_oxe_nora") / "norm_stats.json"
    dead = {
        "austin_buds_dataset_converted_externally_to_rlds": [3, 4, 5],
        "austin_sailor_dataset_converted_externally_to_rlds": [3, 4],
        "austin_sirius_dataset_converted_externally_to_rlds": [3, 4],
        "berkeley_cable_routing": [3, 4],
        "berkeley_fanuc_manipulation": [4],
        "cmu_stretch": [1, 3, 4, 5],
        "jaco_play": [3, 4, 5],
        "kuka": [3, 4],
    }
    wide = seven(-1e9, 1e9)
    found = {}
    for key in json.loads(path.read_text()):
        of = read_action_statistics(path, key)
        assert len(of.low) == 7
        names = [d.sentence.split("'")[1] for d in doubts(of, wide) if d.code == "constant"]
        if names:
            found[key] = [wide.names.index(n) for n in names]
    assert found == dead


# -- gripper


def test_the_gripper_of_libero_is_a_conversion_and_not_a_sign() -> None:
    rlds = Dimension(name="gripper", unit=Unit.FRACTION, low=0.0, high=1.0, is_gripper=True)
    libero = Dimension(
        name="gripper", unit=Unit.NORMALISED, low=-1.0, high=1.0, is_gripper=True, opens_high=False
    )
    closed_to_open = np.array([[0.0], [0.5], [1.0]])
    of, to = (VectorSpec(dimensions=(d,), rate_hz=20.0) for d in (rlds, libero))
    np.testing.assert_allclose(convert(closed_to_open, of, to), [[1.0], [0.0], [-1.0]])
    np.testing.assert_allclose(convert(binarised(np.array([[0.2], [0.8]]), of), of, to), [[1.0], [-1.0]])
    with pytest.raises(ConventionError, match="unit fraction"):
        binarised(np.zeros((1, WIDTH)), ENV.action_spec)


# -- the policy file before anything is loaded


@pytest.mark.parametrize(
    ("changes", "planted", "code", "severity"),
    [
        ({}, {}, "statistics_scaled_gripper", "note"),
        ({"accept_doubts": []}, {}, "statistics_scaled_gripper", "warning"),
        ({"unnorm_key": "mien"}, {}, "statistics_unusable", "fault"),
        ({}, {"mask": [False] + [True] * (WIDTH - 1)}, "statistics_unscaled", "fault"),
        ({}, {"q99": ENV.action_spec.low.tolist()}, "statistics_constant", "fault"),
    ],
)
def test_the_check_of_a_policy_file_says_what_opening_it_would(
    tmp_path: Path,
    changes: dict[str, Any],
    planted: dict[str, Any],
    code: str,
    severity: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("simgap.policies.bridges.openvla.load", lambda _: pytest.fail("loaded"))
    path = written(tmp_path, "not/here", **changes)
    if planted:
        sets = json.loads((tmp_path / "dataset_statistics.json").read_text())
        stored(tmp_path, **{k: v["action"] | planted for k, v in sets.items()})
    exit_code = main(["data", "check", str(path), "--json"])
    found = {f["code"]: f["severity"] for f in json.loads(capsys.readouterr().out)["findings"]}
    assert found[code] == severity, found
    assert exit_code == (1 if {"fault", "warning"} & set(found.values()) else 0)


# -- frames


def test_the_middle_of_a_frame_is_nine_tenths_of_its_area() -> None:
    ramp = np.repeat(np.linspace(0, 255, 100)[None, :, None], 100, axis=0).repeat(3, axis=2).astype(np.uint8)
    plain, cropped = (
        np.asarray(shown(ramp, center_crop=False)),
        np.asarray(shown(ramp, center_crop=True)).astype(float),
    )
    np.testing.assert_array_equal(plain, ramp)
    assert cropped.shape == ramp.shape
    slope = (cropped[50, 90, 0] - cropped[50, 10, 0]) / (float(ramp[50, 90, 0]) - float(ramp[50, 10, 0]))
    assert slope == pytest.approx(CROPPED_AREA**0.5, abs=0.02)
    assert cropped[50, 50, 0] == pytest.approx(float(ramp[50, 50, 0]), abs=2.0)


# -- the real loaders


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("vla") / "base")


@pytest.fixture(scope="module")
def adapter(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved_adapter(base, tmp_path_factory.mktemp("vla") / "adapter")


def written(folder: Path, model: Path | str, **changes: Any) -> Path:
    """Write a policy file for arm-pick with statistics of its whole range."""
    low, high = ENV.action_spec.low.tolist(), ENV.action_spec.high.tolist()
    stored(
        folder,
        mine={"q01": low, "q99": high, "mask": [True] * WIDTH},
        other={"q01": low, "q99": high, "mask": [True] * WIDTH},
    )
    fields: dict[str, Any] = {
        "kind": "openvla",
        "model": str(model),
        "env": "arm-pick",
        "camera": "front",
        "image_size": SIZE,
        "chunk": 1,
        "statistics": "dataset_statistics.json",
        "unnorm_key": "mine",
        "prompt": PROMPT,
        "accept_doubts": ["scaled_gripper"],
    }
    path = folder / "policy.json"
    path.write_text(json.dumps({k: v for k, v in {**fields, **changes}.items() if v is not ...}))
    return path


def opened(folder: Path, model: Path, **changes: Any) -> OpenvlaPolicy:
    policy = open_policy(written(folder, model, **changes))
    assert isinstance(policy, OpenvlaPolicy)
    return policy


def frames(count: int) -> tuple[dict[str, Any], Any, list[Asked]]:
    rng = np.random.default_rng(3)
    images = {"front": rng.integers(0, 255, (count, SIZE, SIZE, 3), dtype=np.uint8)}
    return (
        images,
        np.zeros((count, WIDTH), dtype=np.float32),
        [Asked(goal="Pick the cube", step=i) for i in range(count)],
    )


def greedy(model: Any, processor: Any, frame: Any, task: str) -> list[int]:
    """Write tokens one by one with whole forward passes: what generation has to come to, by another way."""
    import torch
    from PIL import Image

    inputs = processor(
        text=PROMPT.replace("{task}", task), images=Image.fromarray(frame), return_tensors="pt"
    )
    ids, new = inputs["input_ids"], []
    with torch.no_grad():
        for _ in range(WIDTH):
            logits = model(
                input_ids=ids, pixel_values=inputs["pixel_values"], attention_mask=torch.ones_like(ids)
            ).logits[0, -1]
            new.append(int(logits.argmax()))
            ids = torch.cat([ids, torch.tensor([[new[-1]]])], dim=1)
    return new


def test_an_action_is_the_unnormalised_reading_of_the_tokens_that_the_model_writes(
    tmp_path: Path, base: Path
) -> None:
    policy = opened(tmp_path, base)
    assert isinstance(policy, AskedPolicy)
    images, state, asked = frames(3)
    chunks = policy.predict_asked(images, state, asked)
    assert chunks.shape == (3, 1, WIDTH)
    assert chunks.dtype == np.float32
    model, processor = openvla_load.load(openvla_load.LoadSpec(model=base))
    of = read_action_statistics(tmp_path / "dataset_statistics.json", "mine")
    for row in range(3):
        ids = greedy(model, processor, images["front"][row], "pick the cube")
        normalised = np.array([-1.0 + (2 * (VOCABULARY - i) - 1) / 255.0 for i in ids])
        np.testing.assert_allclose(
            chunks[row, 0], of.low + 0.5 * (normalised + 1.0) * (of.high - of.low), rtol=1e-5
        )
    assert len({tuple(c[0]) for c in chunks}) > 1  # what is seen matters
    np.testing.assert_array_equal(policy.predict_asked(images, state, asked), chunks)
    with pytest.raises(UsageError, match="prompt_text"):
        policy.predict(images, state)


def test_an_adapter_is_merged_into_the_weights_and_changes_the_policy(
    tmp_path: Path, base: Path, adapter: Path
) -> None:
    import torch
    from peft import PeftModel

    merged, processor = openvla_load.load(openvla_load.LoadSpec(model=base, adapter=adapter))
    assert not any("lora" in name for name, _ in merged.named_parameters())
    beside = PeftModel.from_pretrained(
        openvla_load.load(openvla_load.LoadSpec(model=base))[0], adapter
    ).eval()
    images, state, asked = frames(1)
    from PIL import Image

    inputs = processor(
        text=PROMPT.replace("{task}", "pick the cube"),
        images=Image.fromarray(images["front"][0]),
        return_tensors="pt",
    )
    with torch.no_grad():
        torch.testing.assert_close(merged(**inputs).logits, beside(**inputs).logits, rtol=1e-4, atol=1e-4)
    with_it = opened(tmp_path, base, adapter=str(adapter))
    without = opened(tmp_path, base)
    assert not np.array_equal(
        with_it.predict_asked(images, state, asked), without.predict_asked(images, state, asked)
    )
    assert with_it.stamp_fields()["weights"] != without.stamp_fields()["weights"]


def test_the_identity_holds_weights_adapter_statistics_and_prompt_and_is_known_without_loading(
    tmp_path: Path, base: Path, adapter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(_: Any) -> Any:
        raise AssertionError("loaded")

    monkeypatch.setattr("simgap.policies.bridges.openvla.load", never)
    variants: list[dict[str, Any]] = [
        {},
        {"adapter": str(adapter)},
        {"unnorm_key": "other"},
        {"prompt": PROMPT + " "},
        {"center_crop": True},
        {"dtype": "bfloat16"},
    ]
    hashes = [read_any_card(written(tmp_path, base, **v)).hash for v in variants]
    assert len(set(hashes)) == len(variants)
    assert read_any_card(written(tmp_path, base)).hash == hashes[0]
    assert read_any_card(written(tmp_path, base)).architecture.chunk == 1


def test_words_that_are_no_actions_are_refused_and_read_as_an_end_only_where_asked(tmp_path: Path) -> None:
    talker = saved(tmp_path / "talker", speaks_actions=False)
    images, state, asked = frames(1)
    with pytest.raises(DataError, match=r"which is no action \(those are 64 to 319\)"):
        opened(tmp_path, talker).predict_asked(images, state, asked)
    chunk = opened(tmp_path, talker, read_any_token=True).predict_asked(images, state, asked)[0, 0]
    low, high = ENV.action_spec.low, ENV.action_spec.high
    np.testing.assert_allclose(chunk, high - (high - low) / 510.0, rtol=1e-5)


def test_a_model_that_stops_early_makes_no_action_of_the_words_before(tmp_path: Path, base: Path) -> None:
    images, state, asked = frames(1)
    policy = opened(tmp_path, base)
    model, processor = openvla_load.load(openvla_load.LoadSpec(model=base))
    policy._model.generation_config.eos_token_id = greedy(
        model, processor, images["front"][0], "pick the cube"
    )[1]
    with pytest.raises(DataError, match="tokens where 6 make an action"):
        policy.predict_asked(images, state, asked)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"model": "openvla/openvla-7b"}, UsageError, "nothing is downloaded"),
        ({"adapter": "nowhere"}, UsageError, "nothing is downloaded"),
        ({"unnorm_key": ...}, UsageError, "2 data sets"),
        ({"unnorm_key": "mien"}, UsageError, "did you mean 'mine'"),
        ({"accept_doubts": []}, ConventionError, "scaled like a joint.*accept_doubts"),
        ({"chunk": 2}, UsageError, "one action at a time"),
        ({"camera": "frnt"}, UsageError, "did you mean 'front'"),
        ({"prompt": "drive"}, UsageError, r"no \{task\}"),
        ({"dtype": "float31"}, UsageError, "did you mean 'float32'"),
        ({"vocabulary": 12}, UsageError, "whole number from 256"),
        ({"temperature": 1}, UsageError, "unknown field 'temperature'"),
        (
            {"env": ..., "action_spec": seven().to_json(), "state_spec": ENV.state_spec.to_json()},
            ConventionError,
            "6 action dimensions, the convention names 7",
        ),
    ],
)
def test_what_can_be_wrong_without_the_weights_is_said_before_they_are_loaded(
    tmp_path: Path,
    base: Path,
    changes: dict[str, Any],
    error: type[SimgapError],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("simgap.policies.bridges.openvla.load", lambda _: pytest.fail("loaded"))
    with pytest.raises(error, match=words) as caught:
        open_policy(written(tmp_path, **{"model": str(base), **changes}))
    assert "\n" not in str(caught.value)


def test_tokens_counted_from_another_vocabulary_than_the_tokenizers_are_refused_unless_said(
    tmp_path: Path, base: Path
) -> None:
    copy = shutil.copytree(base, tmp_path / "copy")
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"pad_to_multiple_of": 1}))
    with pytest.raises(ConventionError, match=r"counted down from 319.*320 words.*off by 1 of 255"):
        opened(tmp_path, copy)
    images, state, asked = frames(1)
    said = opened(tmp_path, copy, vocabulary=VOCABULARY).predict_asked(images, state, asked)
    np.testing.assert_array_equal(said, opened(tmp_path, base).predict_asked(images, state, asked))


def test_a_checkpoints_own_code_runs_only_where_that_was_asked_for(
    tmp_path: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    copy = shutil.copytree(base, tmp_path / "own")
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(
        json.dumps(config | {"auto_map": {"AutoModelForVision2Seq": "modeling_own.OwnForActions"}})
    )
    marker = tmp_path / "ran"
    (copy / "modeling_own.py").write_text(
        "from pathlib import Path\n\nfrom transformers import"
        f" LlavaForConditionalGeneration\n\nPath({str(marker)!r}).touch()\n\n\nOwnForActions ="
        " LlavaForConditionalGeneration\n"
    )
    with pytest.raises(UsageError, match="read that code, then set trust_remote_code"):
        opened(tmp_path, copy)
    assert not marker.exists()
    with pytest.raises(UntrustedError, match="trust_remote_code"):
        opened(tmp_path, copy, trust_remote_code=True)
    assert not marker.exists()
    with granted(Trust(any_code=True)):
        policy = opened(tmp_path, copy, trust_remote_code=True)
    assert marker.exists()
    images, state, asked = frames(1)
    np.testing.assert_array_equal(
        policy.predict_asked(images, state, asked), opened(tmp_path, base).predict_asked(images, state, asked)
    )
    (copy / "modeling_own.py").write_text("import timm_that_nobody_has\n")
    with granted(Trust(any_code=True)), pytest.raises(MachineError, match="timm_that_nobody_has"):
        opened(tmp_path, copy, trust_remote_code=True)


def test_weights_that_the_library_would_make_up_are_an_error(tmp_path: Path, base: Path) -> None:
    from safetensors.torch import load_file, save_file

    torn = shutil.copytree(base, tmp_path / "torn")
    weights = load_file(torn / "model.safetensors")
    gone = next(k for k in sorted(weights) if k.endswith("q_proj.weight"))
    save_file(
        {k: v for k, v in weights.items() if k != gone}, torn / "model.safetensors", metadata={"format": "pt"}
    )
    with pytest.raises(DataError, match=r"lacks 1 weights of its model.*would make them up"):
        opened(tmp_path, torn)


def test_weights_in_a_pickle_are_not_opened(tmp_path: Path, base: Path, adapter: Path) -> None:
    import torch

    pickled = shutil.copytree(base, tmp_path / "pickled")
    torch.save(tiny_model().state_dict(), pickled / "pytorch_model.bin")
    (pickled / "model.safetensors").unlink()
    with pytest.raises(DataError, match="pickles"):
        opened(tmp_path, pickled)
    other = shutil.copytree(adapter, tmp_path / "other")
    (other / "adapter_model.safetensors").rename(other / "adapter_model.bin")
    with pytest.raises(DataError, match=r"has no adapter_model\.safetensors"):
        opened(tmp_path, base, adapter=str(other))


def test_an_adapter_for_another_model_is_refused_where_peft_only_warns(
    tmp_path: Path, base: Path, adapter: Path
) -> None:
    from safetensors.torch import load_file, save_file

    other = shutil.copytree(adapter, tmp_path / "other")
    weights = load_file(other / "adapter_model.safetensors")
    save_file(
        {k.replace("layers.0", "layers.7"): v for k, v in weights.items()},
        other / "adapter_model.safetensors",
    )
    with (
        pytest.raises(DataError, match="give the model it was trained on"),
        pytest.warns(UserWarning, match="missing adapter keys"),
    ):
        opened(tmp_path, base, adapter=str(other))


def test_a_library_that_is_not_installed_is_named_with_its_pip_line(
    tmp_path: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(openvla_load.importlib, "import_module", absent)
    with pytest.raises(
        MachineError, match=r"transformers, which is not installed; pip install 'simgap\[vla\]'"
    ):
        openvla_load.load(openvla_load.LoadSpec(model=base))


@pytest.mark.slow
def test_such_a_policy_is_screened_by_its_policy_file(
    tmp_path: Path, base: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = written(tmp_path, base, executor="latest")
    code = main(
        ["screen", str(policy), "-n", "1", "--json", "--workers", "0", "--out", str(tmp_path / "screens")]
    )
    document = json.loads(capsys.readouterr().out)
    assert code == 1
    assert document["policy"] == read_any_card(policy).hash
    assert (
        document["screens"][0]["successes"],
        document["screens"][0]["n"],
        document["screens"][0]["verdict"],
    ) == (0, 1, "undecided")
