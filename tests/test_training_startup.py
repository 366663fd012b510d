"""What is wrong at the start is said in one line, with both sides and what to do, and before anything is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simgap.conventions import Unit, VectorSpec
from simgap.episodes.table import FrameTable
from simgap.errors import ConventionError, DataError, SimgapError, UsageError
from simgap.policies.checkpoint import CARD, load_policy, read_card, require_env, require_matches
from simgap.rollouts.engine import RolloutSpec, run_rollouts
from simgap.training import TrainSpec, train
from synthetic import ACTION_SPEC, STATE_SPEC, find_the_square

TINY = TrainSpec(steps=2, batch=8, chunk=4, width=8, hidden=16, threads=1, log_every=1, shift_px=0)


def table(**changes: object) -> FrameTable:
    return replace(find_the_square(np.random.default_rng(0), episodes=4, length=6, image_size=16), **changes)


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train([table(env="arm-pick")], None, TINY, tmp_path_factory.mktemp("startup") / "parent")


def said(kind: type[SimgapError], do: Callable[[], object], *parts: str) -> None:
    with pytest.raises(kind) as caught:
        do()
    text = str(caught.value)
    assert "\n" not in text
    missing = [p for p in parts if p not in text]
    assert not missing, f"{text!r} lacks {missing}"


def in_ticks() -> VectorSpec:
    return VectorSpec(
        dimensions=tuple(
            replace(d, unit=Unit.RAD) if not d.is_gripper else d for d in ACTION_SPEC.dimensions
        ),
        rate_hz=ACTION_SPEC.rate_hz,
    )


def test_a_wrong_camera_name_names_both_lists(parent: Path, tmp_path: Path) -> None:
    renamed = table(images={"top": table().images["front"]})
    said(
        ConventionError,
        lambda: train([renamed], None, replace(TINY, init_from=parent), tmp_path / "a"),
        "['front']",
        "['top']",
        "rename",
    )
    said(
        ConventionError,
        lambda: train([table(), renamed], None, TINY, tmp_path / "b"),
        "front",
        "top",
        "same cameras",
    )
    said(
        ConventionError,
        lambda: require_matches(load_policy(parent), ACTION_SPEC, STATE_SPEC, ("top",), 16),
        "['front']",
        "['top']",
        "rename or retrain",
    )
    assert not list(tmp_path.iterdir())


def test_a_convention_mismatch_names_the_joint_and_both_units(parent: Path, tmp_path: Path) -> None:
    other = table(action_spec=in_ticks())
    for do in (
        lambda: train([other], None, replace(TINY, init_from=parent), tmp_path / "a"),
        lambda: train([table(), other], None, TINY, tmp_path / "b"),
        lambda: require_matches(load_policy(parent), in_ticks(), STATE_SPEC, ("front",), 16),
    ):
        said(ConventionError, do, "x.pos", "deg", "rad", "convert")
    assert not list(tmp_path.iterdir())


def test_a_policy_file_has_no_weights_to_train_on_from(tmp_path: Path) -> None:
    file = tmp_path / "policy.json"
    file.write_text('{"kind": "openpi", "url": "ws://localhost:8000"}')
    said(
        DataError,
        lambda: train([table()], None, replace(TINY, init_from=file), tmp_path / "out"),
        str(file),
        "is a file",
        "folder that `simgap train` wrote",
    )


def edited(parent: Path, out: Path, change: Callable[[dict[str, object]], None]) -> Path:
    out.mkdir()
    for file in parent.iterdir():
        (out / file.name).write_bytes(file.read_bytes())
    card = json.loads((out / CARD).read_text())
    change(card)
    (out / CARD).write_text(json.dumps(card))
    return out


def without_gripper(card: dict[str, object]) -> None:
    from simgap.provenance import content_hash

    normaliser = card["normaliser"]
    assert isinstance(normaliser, dict)
    for key in ("names", "low", "high"):
        normaliser["action"][key] = normaliser["action"][key][:2]
    card["normaliser_hash"] = content_hash(normaliser)


def test_a_missing_normaliser_key_names_the_file_what_is_there_and_what_is_not(
    parent: Path, tmp_path: Path
) -> None:
    short = edited(parent, tmp_path / "short", without_gripper)
    said(
        DataError,
        lambda: load_policy(short),
        str(short / CARD),
        "['x.pos', 'y.pos', 'gripper.pos']",
        "lacks ['gripper.pos']",
        "restore",
    )
    said(
        DataError,
        lambda: train([table()], None, replace(TINY, init_from=short), tmp_path / "a"),
        "lacks ['gripper.pos']",
    )
    gone = edited(parent, tmp_path / "gone", lambda card: card["normaliser"].pop("state"))  # type: ignore[attr-defined]
    said(
        DataError,
        lambda: load_policy(gone),
        str(gone / CARD),
        "['action', 'method']",
        "['action', 'method', 'state']",
    )


def test_data_that_are_not_finite_are_found_before_the_first_step(parent: Path, tmp_path: Path) -> None:
    action = table().action.copy()
    action[13, 1] = np.nan
    for spec in (TINY, replace(TINY, init_from=parent)):
        said(
            DataError,
            lambda spec=spec: train([table(action=action)], None, spec, tmp_path / "a"),
            "1 of 24 rows",
            "'y.pos' of episode 2",
            "repair",
        )
    assert not list(tmp_path.iterdir())


def test_a_loss_that_is_not_finite_blames_the_rate_or_the_data(tmp_path: Path) -> None:
    wild = replace(TINY, steps=12, learning_rate=1e30, clip=1e30, warmup_steps=0)
    said(
        DataError,
        lambda: train([table()], None, wild, tmp_path / "a"),
        "loss is nan at step",
        "learning rate is 1e+30",
        "try a third of the rate",
    )
    assert not (tmp_path / "a" / CARD).exists()


def test_a_checkpoint_of_another_env_is_refused_though_the_conventions_agree(
    parent: Path, tmp_path: Path
) -> None:
    assert read_card(parent).training["envs"] == ["arm-pick"]
    policy = load_policy(parent)
    require_env(policy.envs, "arm-pick")
    said(
        UsageError,
        lambda: require_env(policy.envs, "arm-place"),
        "arm-pick",
        "arm-place",
        "--env arm-pick",
        "or train on episodes of arm-place",
    )
    recorded = train([table()], None, TINY, tmp_path / "recorded")
    require_env(load_policy(recorded).envs, "arm-place")


def test_a_checkpoint_of_another_robot_is_refused_by_rollouts_naming_both(parent: Path) -> None:
    spec = RolloutSpec(env="car-goal", checkpoint=parent, executor="latest", ranges={}, episodes=1)  # type: ignore[arg-type]
    said(ConventionError, lambda: run_rollouts(spec, workers=0), "policy", "env car-goal")


def test_an_executor_that_the_head_cannot_serve_is_refused_before_training(
    parent: Path, tmp_path: Path
) -> None:
    for spec in (TINY, replace(TINY, init_from=parent)):
        asked = replace(spec, executor="real_time(2, delay=1)")
        said(
            UsageError,
            lambda asked=asked: train([table()], None, asked, tmp_path / "a"),
            "real_time(2, delay=1)",
            "kind l1",
            "--head flow",
        )
    assert not list(tmp_path.iterdir())
