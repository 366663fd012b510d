"""What the robot touches: named as the world has it, on both engines, and kept in traces; wall times stand apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from arm_fixtures import act, blind, condition, tiny_checkpoint
from simgap.envs import make_env
from simgap.envs.arm.factors import ARM_PRESETS
from simgap.envs.base import TaskEnv
from simgap.envs.contacts import ContactTable
from simgap.errors import DataError
from simgap.provenance import write_atomic
from simgap.rollouts.engine import RolloutSpec, run_rollouts
from simgap.rollouts.timing import TIMING, in_words, read_timing, summarise, write_timing
from simgap.rollouts.traces import read_records, write_records
from simgap.teachers import make_teacher


def touched(env: TaskEnv) -> set[str]:
    return {name for name, is_touching in zip(env.contact_names, env.contacts(), strict=True) if is_touching}


def test_a_table_names_pairs_either_way_round_and_passes_over_what_is_nobodys() -> None:
    table = ContactTable({"jaw": [3], "arm": [1, 2]}, {"cube": [7], "bin": [8, 9]})
    assert table.names == ("jaw on cube", "jaw on bin", "arm on cube", "arm on bin")
    assert table.read([(7, 3), (2, 9), (7, 8), (0, 1)]).tolist() == [True, False, False, True]
    assert not table.read([]).any()


def test_a_teacher_that_lifts_the_cube_holds_it_between_both_jaws_and_touches_nothing_else() -> None:
    env = blind()
    _, info = act(env, make_teacher(env), condition(3), seed=3)
    assert info["is_success"]
    assert touched(env) == {"fixed_jaw on target", "moving_jaw on target"}
    env.reset(seed=3, options={"factors": condition(3)})
    assert touched(env) == set(), "cubes on the table are not the robot's contacts"


def test_an_arm_driven_into_the_table_touches_it() -> None:
    env = blind()
    env.reset(seed=0, options={"factors": condition(0)})
    for _ in range(30):
        env.step(np.array([60.0, 60.0, 20.0, 40.0, 0.0, 10.0], dtype=np.float32))
    assert any(name.endswith("on table") for name in touched(env))


def test_a_car_touches_the_cone_it_stands_at() -> None:
    env = make_env("car-goal", render=False)
    teacher = make_teacher(env)
    values = env.factor_space.sample(env.presets["nominal"], np.random.default_rng(0))
    env.reset(seed=0, options={"factors": values})
    assert touched(env) == set(), "its wheels on the floor do not count"
    info: dict[str, object] = {}
    for _ in range(env.horizon_steps):
        label = teacher.label()
        assert isinstance(label, np.ndarray)
        info = env.step(label)[4]
        if "outcome" in info:
            break
    for _ in range(40):
        env.world.command(np.array([0.0, 0.6]))  # type: ignore[attr-defined]
        env.world.engine.advance(0.05)  # type: ignore[attr-defined]
        if touched(env):
            break
    assert "car on target" in touched(env)


def test_drake_names_the_same_contacts_of_a_grasp() -> None:
    pytest.importorskip("pydrake", reason="the second engine is not installed")
    env = make_env("arm-pick", render=False, engine="drake")
    _, info = act(env, make_teacher(env), condition(3), seed=3)  # type: ignore[arg-type]
    assert info["is_success"]
    assert touched(env) == {"fixed_jaw on target", "moving_jaw on target"}


def test_traces_keep_contacts_and_no_wall_time(tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint(tmp_path / "tiny")
    spec = RolloutSpec(
        env="arm-pick",
        checkpoint=checkpoint,
        executor="receding(5)",
        ranges=ARM_PRESETS["nominal"],
        episodes=2,
        seed=1,
    )
    records = run_rollouts(spec, workers=0)
    for record in records:
        assert record.contacts is not None
        assert record.step_s is not None
        assert record.contacts.shape == (record.steps, len(record.contact_names))
        assert len(record.step_s) == record.steps
        assert not record.contacts[0].any()
    assert sum(len(r.forwards) for r in records if r.forwards is not None) == -(
        -max(r.steps for r in records) // 5
    ), "a batch counts once"
    write_records(tmp_path / "group.npz", records)
    back = read_records(tmp_path / "group.npz")
    for record, again in zip(records, back, strict=True):
        assert again.contact_names == record.contact_names
        assert again.contacts is not None
        assert again.contacts.tolist() == record.contacts.tolist()
        assert again.step_s is None
        assert again.forwards is None
    other = replace(records[0], step_s=None, forwards=None)
    write_records(tmp_path / "other.npz", [other, records[1]])
    assert (tmp_path / "other.npz").read_bytes() == (tmp_path / "group.npz").read_bytes()
    assert summarise(back) is None


def test_timing_is_summarised_beside_a_screen_and_said_in_words(tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint(tmp_path / "tiny")
    spec = RolloutSpec(
        env="arm-pick", checkpoint=checkpoint, executor="latest", ranges=ARM_PRESETS["nominal"], episodes=1
    )
    (record,) = run_rollouts(spec, workers=0)
    forwards = np.array([[0.002, 0.010, 4], [0.002, 0.030, 2]], dtype=np.float32)
    planted = replace(record, forwards=forwards, step_s=np.full(10, 0.001, dtype=np.float32))
    write_timing(tmp_path, [planted])
    timing = read_timing(tmp_path)
    assert timing is not None
    assert timing["forward_s"]["n"] == 2
    assert timing["forward_s"]["median"] == pytest.approx(0.02)
    assert timing["step_s"]["n"] == 10
    assert timing["observations"]["most"] == 4
    assert "median 20.0 ms" in in_words(timing, 20.0)
    assert "batch of 4" in in_words(timing, 20.0)
    assert "control period is 50 ms" in in_words(timing, 20.0)
    assert read_timing(tmp_path / "nowhere") is None


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[1]",
        '"a"',
        '{"forward_s": 5}',
        '{"forward_s": {"p95": 1}}',
        '{"step_s": {"median": "x", "p95": 1}}',
        '{"draw_s": {"median": NaN, "p95": 1}}',
        "null",
    ],
)
def test_a_damaged_timing_is_named_with_the_remedy_and_is_no_defect(text: str, tmp_path: Path) -> None:
    write_atomic(tmp_path / TIMING, text)
    with pytest.raises(DataError, match=f"{TIMING}.*delete it"):
        read_timing(tmp_path)
