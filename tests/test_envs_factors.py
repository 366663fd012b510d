"""Factors: common random numbers, bounds that name themselves, presets inside them, and cubes that never overlap."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simgap.envs.arm.factors import (
    ARM_FACTORS,
    ARM_PRESETS,
    MIN_GAP,
    PLACEMENT_FACTORS,
    TABLE_X,
    TABLE_Y,
    layout,
)
from simgap.envs.factors import Factor, FactorRanges, FactorSpace
from simgap.errors import UsageError
from simgap.provenance import child_rng

NAMES = list(ARM_FACTORS.factors)
subsets = st.lists(st.sampled_from(NAMES), unique=True, max_size=12)
any_values = st.fixed_dictionaries(
    {
        n: st.floats(f.low, f.high)
        for n, f in ARM_FACTORS.factors.items()
        if n in PLACEMENT_FACTORS or n.endswith("_size_m")
    }
)


def full(names: list[str]) -> FactorRanges:
    return FactorRanges({n: (ARM_FACTORS.factors[n].low, ARM_FACTORS.factors[n].high) for n in names})


def leaves_the_others_where_they_were(
    space: FactorSpace, seed: int, base: list[str], added: list[str]
) -> None:
    before = space.sample(full(base), child_rng(seed, "factors"))
    after = space.sample(full(base + added), child_rng(seed, "factors"))
    assert {n: v for n, v in after.items() if n not in added} == {
        n: v for n, v in before.items() if n not in added
    }


@given(st.integers(0, 2**62), subsets, subsets)
def test_a_factor_sampled_in_addition_leaves_the_others_of_the_seed_where_they_were(
    seed: int, base: list[str], added: list[str]
) -> None:
    leaves_the_others_where_they_were(ARM_FACTORS, seed, base, added)


class _DrawsOnlyWhatItNeeds(FactorSpace):
    """A planted fault: no number is drawn for a factor that stays at its nominal value."""

    def sample(self, ranges: FactorRanges, rng: np.random.Generator) -> dict[str, float]:
        return self.nominal() | {
            n: float(rng.uniform(*ranges.ranges[n])) for n in self.factors if n in ranges.ranges
        }


def test_the_common_numbers_test_catches_a_planted_sampler_that_saves_draws() -> None:
    planted = _DrawsOnlyWhatItNeeds(ARM_FACTORS.factors.values())
    with pytest.raises(AssertionError):
        leaves_the_others_where_they_were(planted, 0, ["friction"], ["target_x_m"])


@given(st.integers(0, 2**62), st.sampled_from(sorted(ARM_PRESETS)))
def test_every_preset_samples_complete_values_inside_the_bounds(seed: int, preset: str) -> None:
    values = ARM_FACTORS.sample(ARM_PRESETS[preset], child_rng(seed, "factors"))
    assert list(values) == NAMES
    assert ARM_FACTORS.complete(values) == values
    inside = ARM_PRESETS[preset].ranges
    assert all(low <= values[n] <= high for n, (low, high) in inside.items())
    assert all(values[n] == ARM_FACTORS.factors[n].nominal for n in NAMES if n not in inside)


def test_a_shifted_preset_differs_from_nominal_in_its_own_factors_only() -> None:
    nominal = ARM_PRESETS["nominal"].ranges
    for name, preset in ARM_PRESETS.items():
        moved = {n for n in preset.ranges if preset.ranges[n] != nominal.get(n)}
        assert moved or name == "nominal"
        assert set(nominal) <= set(preset.ranges)
    touched = [
        {n for n in p.ranges if p.ranges[n] != nominal.get(n)}
        for k, p in ARM_PRESETS.items()
        if k.startswith("shifted:")
    ]
    assert len(set().union(*touched)) == sum(map(len, touched))


@given(st.integers(0, 2**62))
def test_an_integer_factor_reaches_both_ends_of_its_range_and_nothing_between_integers(seed: int) -> None:
    value = ARM_FACTORS.sample(
        FactorRanges({"action_latency_steps": (1.0, 3.0)}), child_rng(seed, "factors")
    )["action_latency_steps"]
    assert value in (1.0, 2.0, 3.0)


def test_integers_of_a_range_are_equally_likely() -> None:
    ranges = FactorRanges({"action_latency_steps": (0.0, 3.0)})
    drawn = [ARM_FACTORS.sample(ranges, np.random.default_rng(s))["action_latency_steps"] for s in range(800)]
    assert min(drawn.count(float(v)) for v in range(4)) > 150


@pytest.mark.parametrize("value", [0.39, 1.61, math.nan, math.inf])
def test_a_value_outside_its_bounds_is_refused_with_both_bounds_and_the_unit(value: float) -> None:
    with pytest.raises(UsageError, match=r"friction = .* 0\.4\.\.1\.6"):
        ARM_FACTORS.complete({"friction": value})


@pytest.mark.parametrize("bounds", [(0.3, 1.0), (1.0, 1.7), (1.2, 0.8)])
def test_a_range_outside_the_bounds_or_the_wrong_way_round_is_refused_with_its_numbers(
    bounds: tuple[float, float],
) -> None:
    with pytest.raises(UsageError, match=rf"{bounds[0]:g}\.\.{bounds[1]:g} .* 0\.4\.\.1\.6"):
        ARM_FACTORS.sample(FactorRanges({"friction": bounds}), np.random.default_rng(0))


def test_an_unknown_factor_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="did you mean 'friction'"):
        ARM_FACTORS.complete({"frictoin": 1.0})
    with pytest.raises(UsageError, match="unknown factor"):
        ARM_FACTORS.sample(FactorRanges({"gravity": (0.0, 1.0)}), np.random.default_rng(0))


def test_every_factor_has_a_nominal_value_in_its_bounds_a_unit_and_a_reason() -> None:
    for factor in ARM_FACTORS.factors.values():
        assert factor.low <= factor.nominal <= factor.high
        assert factor.low < factor.high
        assert factor.unit
        assert len(factor.reason) > 8


def test_ranges_survive_json() -> None:
    for preset in ARM_PRESETS.values():
        assert FactorRanges.from_json(preset.to_json()) == FactorRanges(dict(preset.ranges), preset.name)


def test_ranges_are_replaced_under_a_new_name_and_the_old_ones_stay() -> None:
    base = FactorRanges({"friction": (0.9, 1.1)}, "base")
    other = base.override({"friction": (0.5, 0.6)}, "slippery")
    assert (base.ranges["friction"], other.ranges["friction"], other.name) == (
        (0.9, 1.1),
        (0.5, 0.6),
        "slippery",
    )


@settings(max_examples=300)
@given(any_values)
def test_cubes_lie_on_the_table_and_never_overlap_whatever_the_factors(values: dict[str, float]) -> None:
    poses = layout(ARM_FACTORS.nominal() | values)
    for pose in poses:
        assert TABLE_X[0] <= pose.x <= TABLE_X[1]
        assert TABLE_Y[0] <= pose.y <= TABLE_Y[1]
    for i, a in enumerate(poses):
        for b in poses[:i]:
            distance = math.hypot(a.x - b.x, a.y - b.y)
            assert distance >= MIN_GAP
            assert distance > (a.half + b.half) * math.sqrt(2)


@given(any_values)
def test_the_target_lies_exactly_where_its_factors_say(values: dict[str, float]) -> None:
    values = ARM_FACTORS.nominal() | values
    target = layout(values)[0]
    assert (target.x, target.y, target.half * 2) == (
        values["target_x_m"],
        values["target_y_m"],
        values["target_size_m"],
    )


def test_a_factor_space_keeps_the_order_of_its_factors() -> None:
    factors = [Factor(name=n, unit="1", nominal=0.0, low=0.0, high=1.0, reason="a test") for n in "cab"]
    assert list(FactorSpace(factors).nominal()) == ["c", "a", "b"]
