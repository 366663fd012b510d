"""From a cause to a plan: one kind each, within bounds, around what was measured, and nothing where no data would help."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simgap import causes
from simgap.causes import Cause
from simgap.checks.pixels.pose_and_light import LIGHT_FACTORS, light_factors
from simgap.conventions import SO101_JOINTS
from simgap.diagnosis import Diagnosis
from simgap.envs import ENVS, make_env
from simgap.envs.arm.factors import ARM_FACTORS, ARM_PRESETS, PLACEMENT_FACTORS
from simgap.loop.recorded import read_plan
from simgap.mutants.gaps import draw_gap
from simgap.policies.execution import parse_executor
from simgap.provenance import canonical_json, child_rng
from simgap.robots.convention import CommandMap
from simgap.targeting import DataPlan, plan_data

NOMINAL = ARM_PRESETS["nominal"]
EXECUTOR = parse_executor("receding(5)")
ARM = make_env("arm-pick", image_size=32, render=False)
POSE = [n for n in ARM_FACTORS.factors if n.startswith("front_camera_") and "fovy" not in n]


def planned(cause: Cause, **numbers: Any) -> DataPlan:
    found = Diagnosis(
        cause=cause, family=None, sentence="", checks=(), remedy=cause.remedy, parameters=numbers
    )
    return plan_data(found, NOMINAL, ARM_FACTORS, EXECUTOR, episodes=50)


def nominal_of(names: Mapping[str, Any] | tuple[str, ...] | list[str]) -> dict[str, float]:
    return {n: ARM_FACTORS.factors[n].nominal for n in names}


NUMBERS: dict[Cause, tuple[str, dict[str, Any]]] = {
    causes.NONE: ("nothing", {}),
    causes.EVALUATION: ("nothing", {"problems": ["x"]}),
    causes.DATA: ("nothing", {"faults": ["x"]}),
    causes.CAMERA_SHIFT: ("episodes", {"fitted": nominal_of(POSE)}),
    causes.LIGHT_COLOUR: ("episodes", {"fitted": nominal_of(LIGHT_FACTORS)}),
    causes.PIXELS_OTHER: ("nothing", {"fitted": {}}),
    causes.ACTION_SIGN: ("convention", {"broken": {"elbow_flex.pos": -1.01}}),
    causes.ACTION_SCALE: ("convention", {"broken": {"elbow_flex.pos": 0.6}}),
    causes.ACTION_CONVENTION: ("nothing", {"broken": {}}),
    causes.JOINT_DEAD: ("nothing", {"broken": {}}),
    causes.EXECUTION: ("nothing", {"episodes_with_wrong_ages": 3}),
    causes.ACTION_LATENCY: ("episodes", {"extra_delay_steps": 7}),
    causes.PLANT_GAIN: ("episodes", {"stiffness_ratios": {"a": 0.6, "b": 0.7}}),
    causes.NARROW_DATA: ("episodes", {"in_use_placements": [{"target_x_m": 0.14, "target_y_m": 0.11}]}),
    causes.POLICY: ("nothing", {}),
    causes.UNKNOWN: ("nothing", {}),
}


@pytest.mark.parametrize("cause", list(causes.TABLE.values()))
def test_every_cause_gives_exactly_one_kind_of_plan(cause: Cause) -> None:
    kind, numbers = NUMBERS[cause]
    plan = planned(cause, **numbers)
    assert plan.kind == kind
    assert bool(plan.changes) == (plan.ranges is not None) == (plan.episodes > 0) == (kind == "episodes")
    assert bool(plan.multipliers) == (kind == "convention")
    assert plan.executor == "receding(5)"
    assert read_plan(json.loads(canonical_json(plan.to_json()))) == plan


def test_a_measured_multiplier_is_undone_and_needs_no_data() -> None:
    plan = planned(causes.ACTION_SIGN, broken={"elbow_flex.pos": -1.0})
    from simgap.envs.arm.geometry import action_spec

    command = CommandMap.correcting(action_spec(20.0), plan.multipliers)
    action = np.array([10.0, -20.0, 30.0, 40.0, 5.0, 50.0], np.float32)
    moved = command.apply(action) * np.array([1, 1, -1, 1, 1, 1], np.float32)
    assert np.allclose(moved, action)


def _valid(plan: DataPlan) -> None:
    assert plan.ranges is not None
    for name, (low, high) in plan.ranges.ranges.items():
        factor = ARM_FACTORS.factors[name]
        assert factor.low <= low <= high <= factor.high, name
    ARM_FACTORS.sample(plan.ranges, child_rng(0, "test"))
    assert set(plan.ranges.ranges) == set(NOMINAL.ranges) | set(plan.changes)
    assert all(plan.ranges.ranges[n] == NOMINAL.ranges[n] for n in NOMINAL.ranges if n not in plan.changes)


shares = st.floats(0.0, 1.0)


@pytest.mark.parametrize(
    ("cause", "names"), [(causes.CAMERA_SHIFT, POSE), (causes.LIGHT_COLOUR, list(LIGHT_FACTORS))]
)
@given(data=st.data())
def test_fitted_values_are_surrounded_within_their_bounds(
    cause: Cause, names: list[str], data: st.DataObject
) -> None:
    factors = [ARM_FACTORS.factors[n] for n in names]
    fitted = {f.name: f.low + data.draw(shares) * (f.high - f.low) for f in factors}
    plan = planned(cause, fitted=fitted)
    _valid(plan)
    for name, (low, high) in plan.changes.items():
        assert low - 1e-12 <= fitted[name] <= high + 1e-12
        assert low < high


@given(st.integers(-3, 30))
def test_a_measured_delay_is_surrounded_within_its_bounds(delay: int) -> None:
    plan = planned(causes.ACTION_LATENCY, extra_delay_steps=delay)
    _valid(plan)
    low, high = plan.changes["action_latency_steps"]
    assert low == int(low)
    assert high == int(high)
    if 0 <= delay <= 10:
        assert low <= delay <= high


@given(st.lists(st.floats(0.01, 20.0), min_size=1, max_size=5))
def test_a_measured_stiffness_gives_a_range_within_bounds_whatever_it_is(ratios: list[float]) -> None:
    plan = planned(causes.PLANT_GAIN, stiffness_ratios=dict(zip("abcde", ratios, strict=False)))
    _valid(plan)
    low, high = plan.changes["actuator_gain"]
    assert low < high


def _inside(name: str, share: float) -> float:
    factor = ARM_FACTORS.factors[name]
    return factor.low + share * (factor.high - factor.low)


placements = st.lists(
    st.fixed_dictionaries({n: shares.map(lambda s, n=n: _inside(n, s)) for n in PLACEMENT_FACTORS}),
    min_size=1,
    max_size=12,
)


@given(placements)
def test_the_area_of_new_episodes_holds_every_placement_seen_in_use_and_the_old_area(
    seen: list[dict[str, float]],
) -> None:
    plan = planned(causes.NARROW_DATA, in_use_placements=seen)
    ranges = NOMINAL if plan.ranges is None else plan.ranges
    for name, (low, high) in ranges.ranges.items():
        assert all(low <= p[name] <= high for p in seen), name
        assert low <= NOMINAL.ranges[name][0]
        assert high >= NOMINAL.ranges[name][1]
    if plan.kind == "episodes":
        _valid(plan)
    else:
        assert all(NOMINAL.ranges[n][0] <= p[n] <= NOMINAL.ranges[n][1] for p in seen for n in NOMINAL.ranges)


def test_the_area_grows_only_where_placements_lie_outside() -> None:
    plan = planned(
        causes.NARROW_DATA,
        in_use_placements=[
            {"target_x_m": 0.16, "target_y_m": 0.11},
            {"target_x_m": 0.2, "target_y_m": -0.02},
        ],
    )
    assert set(plan.changes) == {"target_y_m"}
    low, high = plan.changes["target_y_m"]
    assert low == -0.07
    assert 0.11 < high < 0.13


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", [causes.CAMERA_SHIFT, causes.LIGHT_COLOUR, causes.ACTION_LATENCY])
def test_a_perfect_measurement_of_any_gap_that_can_be_drawn_is_covered_by_its_plan(
    kind: Cause, seed: int
) -> None:
    gap = draw_gap(seed, kind, ARM)
    names = (
        LIGHT_FACTORS
        if kind is causes.LIGHT_COLOUR
        else [
            n
            for n in ARM_FACTORS.factors
            if n.split("_camera_")[0] in str(list(gap.factors)) and "_camera_" in n
        ]
    )
    measured = {**nominal_of(list(names)), **gap.factors}
    numbers: dict[str, Any] = {"fitted": measured}
    if kind is causes.ACTION_LATENCY:
        numbers = {"extra_delay_steps": int(gap.factors["action_latency_steps"])}
    plan = planned(kind, **numbers)
    assert all(plan.changes[n][0] <= v <= plan.changes[n][1] for n, v in gap.factors.items())


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", [causes.ACTION_SIGN, causes.ACTION_SCALE])
def test_every_convention_gap_that_can_be_drawn_can_be_undone(kind: Cause, seed: int) -> None:
    gap = draw_gap(seed, kind, ARM)
    assert gap.joint in SO101_JOINTS
    plan = planned(kind, broken={f"{gap.joint}.pos": gap.multiplier})
    assert plan.multipliers == {f"{gap.joint}.pos": gap.multiplier}


@pytest.mark.parametrize("env", sorted(ENVS))
@pytest.mark.parametrize("cause", list(NUMBERS))
def test_every_cause_has_a_plan_on_every_env_and_names_only_its_factors(env: str, cause: Cause) -> None:
    made = make_env(env, image_size=32, render=False)
    numbers = NUMBERS[cause][1]
    if cause is causes.LIGHT_COLOUR:
        numbers = {"fitted": {n: made.factor_space.factors[n].nominal for n in light_factors(made)}}
        assert "light_intensity" in numbers["fitted"]
    found = Diagnosis(
        cause=cause, family=None, sentence="", checks=(), remedy=cause.remedy, parameters=numbers
    )
    plan = plan_data(found, made.presets["nominal"], made.factor_space, EXECUTOR, episodes=50)
    assert set(plan.changes) <= set(made.factor_space.factors)
    if cause in (causes.LIGHT_COLOUR, causes.PLANT_GAIN, causes.ACTION_LATENCY):
        assert plan.kind == "episodes"
