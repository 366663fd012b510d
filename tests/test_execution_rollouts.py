"""Policies with noise, goals and prefixes in rollouts: the same bytes at any number of workers, refusals before anything moves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from simgap.conventions import ActionSpec, StateSpec
from simgap.envs import make_env
from simgap.errors import UsageError
from simgap.policies import parse_executor
from simgap.policies.checkpoint import Card, write_checkpoint
from simgap.policies.cnn import CnnSpec
from simgap.policies.heads import Head
from simgap.policies.normaliser import Normaliser, RangeMethod, RangeNormaliser
from simgap.rollouts import engine
from simgap.rollouts.engine import RolloutSpec, run_rollouts

PX = 16


def _scale(spec: ActionSpec | StateSpec) -> RangeNormaliser:
    return RangeNormaliser(names=spec.names, low=tuple(spec.low.tolist()), high=tuple(spec.high.tolist()))


def untrained(path: Path, env: str, head: Head, goals: tuple[str, ...] = ()) -> Path:
    world = make_env(env, image_size=PX, render=False)
    spec = CnnSpec(
        cameras=("front",),
        image_size=PX,
        state_size=len(world.state_spec) + len(goals),
        action_size=len(world.action_spec),
        chunk=10,
        width=8,
        hidden=16,
        denoiser_width=16,
        head=head,
        grippers=(5,),
    )
    card = Card(
        action_spec=world.action_spec,
        state_spec=world.state_spec,
        architecture=spec,
        normaliser=Normaliser(
            state=_scale(world.state_spec), action=_scale(world.action_spec), method=RangeMethod.MIN_MAX
        ),
        data=("f" * 64,),
        executor=parse_executor("receding(4)"),
        goals=goals,
    )
    torch.manual_seed(0)
    write_checkpoint(path, card, spec.build().state_dict())
    return path


@pytest.fixture(scope="module")
def flow(tmp_path_factory: pytest.TempPathFactory) -> RolloutSpec:
    checkpoint = untrained(tmp_path_factory.mktemp("flow") / "policy", "arm-pick", Head.FLOW)
    nominal = make_env("arm-pick", image_size=PX, render=False).presets["nominal"]
    return RolloutSpec(
        env="arm-pick",
        checkpoint=checkpoint,
        executor="real_time(5, delay=2)",
        ranges=nominal,
        episodes=3,
        seed=1,
    )


@pytest.mark.slow
def test_a_flow_that_goes_on_from_prefixes_gives_the_same_bytes_at_any_number_of_workers(
    flow: RolloutSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "GROUP", 2)
    alone, two = (run_rollouts(flow, workers=n) for n in (0, 2))
    assert [r.trace_hash for r in alone] == [r.trace_hash for r in two]
    assert len({r.action.tobytes() for r in alone}) == 3
    record = alone[0]
    assert record.n_averaged is not None
    assert record.disagreement is not None
    assert (record.n_averaged == 1).all()
    assert np.isnan(record.disagreement).all()
    assert record.age[:14].tolist() == [0, 1, 2, 3, 4, 5, 6, 2, 3, 4, 5, 6, 2, 3]


def test_going_on_from_the_chunk_before_is_another_policy_than_replacing_it(flow: RolloutSpec) -> None:
    led, replaced = (
        run_rollouts(replace(flow, executor=e, episodes=1), workers=0)[0]
        for e in ("real_time(5, delay=2)", "receding(5, delay=2)")
    )
    assert led.age[:12].tolist() == replaced.age[:12].tolist()
    np.testing.assert_array_equal(led.action[:7], replaced.action[:7])
    assert not np.array_equal(led.action[7:12], replaced.action[7:12])


def test_the_records_of_an_ensemble_say_how_many_were_averaged_and_how_far_apart(flow: RolloutSpec) -> None:
    (record,) = run_rollouts(replace(flow, executor="ensemble(0.1)", episodes=1), workers=0)
    assert record.n_averaged is not None
    assert record.disagreement is not None
    assert record.n_averaged[:12].tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10, 10]
    assert np.isnan(record.disagreement[0])
    assert (record.disagreement[1:] > 0).all()


def test_a_head_that_cannot_go_on_from_a_chunk_is_refused_before_anything_moves(
    tmp_path: Path, flow: RolloutSpec
) -> None:
    with pytest.raises(UsageError, match=r"only a flow head can; use receding\(5, delay=2\)"):
        run_rollouts(replace(flow, checkpoint=untrained(tmp_path / "l1", "arm-pick", Head.L1)), workers=0)


def test_a_policy_with_goals_is_told_what_each_episode_asks_for(tmp_path: Path) -> None:
    goals = ("put the blue cube into the blue bin", "put the red cube into the red bin")
    told = untrained(tmp_path / "told", "arm-place", Head.L1, goals)
    ranges = make_env("arm-place", image_size=PX, render=False).presets["nominal"]
    spec = RolloutSpec(env="arm-place", checkpoint=told, executor="receding(10)", ranges=ranges, episodes=1)
    red, blue = (
        run_rollouts(replace(spec, ranges=ranges.override({"named": (n, n)}, "one")), workers=0)[0]
        for n in (0.0, 1.0)
    )
    assert red.factors["named"] == 0.0
    assert blue.factors["named"] == 1.0
    other = untrained(
        tmp_path / "other", "arm-place", Head.L1, (goals[0], "put the red cup into the red bin")
    )
    with pytest.raises(
        UsageError, match=r"no goal 'put the red cube into the red bin'; did you mean 'put the red cup"
    ):
        run_rollouts(
            replace(spec, checkpoint=other, ranges=ranges.override({"named": (0.0, 0.0)}, "one")), workers=0
        )
