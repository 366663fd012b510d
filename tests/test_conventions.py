"""Conventions: every conversion can be undone, two in a row are one, and what would lose or guess something is refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from simgap.conventions import (
    ActionSpec,
    AffineMap,
    CalibratedRange,
    Conversion,
    Dimension,
    Reference,
    Unit,
    VectorSpec,
    convert,
    reexpressed,
    require_same,
)
from simgap.errors import ConventionError
from simgap.provenance import canonical_json

ANGLES = (Unit.DEG, Unit.RAD, Unit.TICKS, Unit.RANGE_100, Unit.NORMALISED, Unit.PERCENT, Unit.FRACTION)
LENGTHS = (Unit.METRE, Unit.RANGE_100, Unit.PERCENT, Unit.FRACTION, Unit.NORMALISED)


def dimension(name: str = "joint", unit: Unit = Unit.DEG, **changes: Any) -> Dimension:
    return Dimension(**({"name": name, "unit": unit, "low": -100.0, "high": 100.0} | changes))


def vector(*dimensions: Dimension, rate_hz: float = 20.0) -> VectorSpec:
    return VectorSpec(dimensions=dimensions, rate_hz=rate_hz)


SERVO = CalibratedRange(low=812.0, high=3190.0)
JAW = CalibratedRange(low=0.05, high=1.2, unit=Unit.RAD)
RAIL = CalibratedRange(low=-0.02, high=0.31, unit=Unit.METRE)


@st.composite
def conventions_of(draw: st.DrawFn, kinds: list[str]) -> VectorSpec:
    """Draw a convention for dimensions whose calibration is fixed: any unit, direction, zero, polarity, reference and order."""
    found = []
    for k, kind in enumerate(kinds):
        units = (
            [u for u in ANGLES if u is not Unit.TICKS]
            if kind == "jaw"
            else list(LENGTHS if kind == "rail" else ANGLES)
        )
        changes: dict[str, Any] = {
            "is_gripper": kind == "jaw",
            "opens_high": kind != "jaw" or draw(st.booleans()),
        }
        changes |= {
            "sign": draw(st.sampled_from([1, -1])),
            "zero": draw(st.floats(-50, 50)),
            "reference": draw(st.sampled_from(list(Reference))),
        }
        calibrated = {"jaw": JAW, "rail": RAIL}.get(kind, SERVO)
        found.append(dimension(f"{kind}{k}", draw(st.sampled_from(units)), calibrated=calibrated, **changes))
    return vector(*draw(st.permutations(found)))


@st.composite
def three_conventions(
    draw: st.DrawFn,
) -> tuple[VectorSpec, VectorSpec, VectorSpec, NDArray[np.float64], NDArray[np.float64]]:
    kinds = draw(st.lists(st.sampled_from(["arm", "jaw", "rail"]), min_size=1, max_size=4))
    a, b, c = (draw(conventions_of(kinds)) for _ in range(3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return a, b, c, rng.normal(0, 40, (draw(st.integers(1, 9)), len(kinds))), rng.normal(0, 40, len(kinds))


def close(ours: NDArray[np.float64], theirs: NDArray[np.float64], like: float) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=0.0, atol=2e-13 * like)


def size(*conversions: Conversion) -> float:
    """Return the largest number that meets a rounding error on the way."""
    return max(
        1e3 * (1 + abs(s)) * (1 + abs(1 / s)) + abs(o) * (1 + abs(1 / s))
        for c in conversions
        for s, o in zip(c.map.scale, c.map.offset, strict=True)
    )


@given(three_conventions())
def test_a_conversion_and_back_gives_the_same_numbers(drawn: tuple[Any, ...]) -> None:
    a, b, _, values, state = drawn
    there = Conversion.between(a, b)
    back = there.inverse()
    again = back.apply(there.apply(values, state), there.apply_to_state(state))
    close(again, values, size(there, back))
    close(convert(convert(values, a, b, state), b, a, there.apply_to_state(state)), values, size(there, back))


@given(three_conventions())
def test_two_conversions_in_a_row_are_one(drawn: tuple[Any, ...]) -> None:
    a, b, c, values, state = drawn
    one, two, direct = Conversion.between(a, b), Conversion.between(b, c), Conversion.between(a, c)
    stepwise = two.apply(one.apply(values, state), one.apply_to_state(state))
    like = size(one, two) * size(direct)
    close(stepwise, direct.apply(values, state), like)
    close(one.then(two).apply(values, state), direct.apply(values, state), like)


@given(three_conventions())
def test_a_conversion_to_the_same_convention_changes_no_bit(drawn: tuple[Any, ...]) -> None:
    a, _, _, values, _ = drawn
    plain = vector(*(replace(d, zero=0.0, sign=1) for d in a.dimensions))
    assert not Conversion.between(plain, plain).needs_state
    np.testing.assert_array_equal(convert(values, plain, plain), values)


@given(three_conventions(), st.integers(2, 5))
def test_a_batch_of_chunks_is_converted_chunk_by_chunk(drawn: tuple[Any, ...], batch: int) -> None:
    a, b, _, values, state = drawn
    chunks = np.stack([values + k for k in range(batch)])
    states = np.stack([state - k for k in range(batch)])
    together = convert(chunks, a, b, states)
    np.testing.assert_array_equal(
        together, np.stack([convert(v, a, b, s) for v, s in zip(chunks, states, strict=True)])
    )


@given(three_conventions())
def test_limits_follow_a_change_of_unit(drawn: tuple[Any, ...]) -> None:
    a, b, _, _, _ = drawn
    for d in a.dimensions:
        other = replace(b.dimensions[b.names.index(d.name)], reference=d.reference)
        moved = reexpressed(d, **{k: getattr(other, k) for k in ("unit", "sign", "zero", "opens_high")})
        assert moved.low < moved.high
        back = reexpressed(moved, **{k: getattr(d, k) for k in ("unit", "sign", "zero", "opens_high")})
        assert back.low == pytest.approx(d.low, abs=1e-6)
        assert back.high == pytest.approx(d.high, abs=1e-6)


# --- what the numbers are --------------------------------------------------------------------------------------------

PAIRS: list[tuple[Dimension, Dimension, float, float]] = [
    (dimension(), dimension(unit=Unit.RAD), 180.0, math.pi),
    (
        dimension(unit=Unit.RANGE_100, calibrated=CalibratedRange(low=1024, high=3072)),
        dimension(),
        100.0,
        90.0,
    ),
    (
        dimension(unit=Unit.RANGE_100, calibrated=CalibratedRange(low=800, high=3200)),
        dimension(),
        -1.0,
        -1.0546875,
    ),
    (
        dimension(unit=Unit.TICKS, calibrated=CalibratedRange(low=1024, high=3072)),
        dimension(unit=Unit.RAD),
        3072.0,
        math.pi / 2,
    ),
    (
        dimension(unit=Unit.TICKS, calibrated=SERVO),
        dimension(unit=Unit.RANGE_100, calibrated=SERVO),
        812.0,
        -100.0,
    ),
    (dimension(unit=Unit.NORMALISED), dimension(unit=Unit.RANGE_100), -0.25, -25.0),
    (dimension(unit=Unit.NORMALISED), dimension(unit=Unit.FRACTION), 0.0, 0.5),
    (
        dimension(unit=Unit.PERCENT, is_gripper=True),
        dimension(unit=Unit.FRACTION, is_gripper=True),
        30.0,
        0.3,
    ),
    (
        dimension(unit=Unit.PERCENT, is_gripper=True),
        dimension(unit=Unit.PERCENT, is_gripper=True, opens_high=False),
        30.0,
        70.0,
    ),
    (
        dimension(unit=Unit.PERCENT, is_gripper=True, calibrated=JAW),
        dimension(unit=Unit.RAD, is_gripper=True),
        100.0,
        1.2,
    ),
    (
        dimension(unit=Unit.RAD, is_gripper=True, calibrated=JAW),
        dimension(unit=Unit.RAD, is_gripper=True, calibrated=JAW, opens_high=False),
        0.05,
        1.2,
    ),
    (dimension(), dimension(sign=-1, zero=90.0), 20.0, 70.0),
]


@pytest.mark.parametrize(("given_as", "wanted", "value", "expected"), PAIRS)
def test_a_value_has_the_number_that_its_unit_says(
    given_as: Dimension, wanted: Dimension, value: float, expected: float
) -> None:
    assert convert([value], vector(given_as), vector(wanted))[0] == pytest.approx(expected, rel=1e-12)


def test_a_calibration_file_gives_lerobots_own_numbers() -> None:
    entry = {"id": 2, "drive_mode": 0, "homing_offset": -1347, "range_min": 875, "range_max": 3185}
    ends = CalibratedRange.from_lerobot(entry)
    ticks = 2900.0
    expected = {
        Unit.RANGE_100: (ticks - 875) / (3185 - 875) * 200 - 100,
        Unit.DEG: (ticks - (875 + 3185) / 2) * 360 / 4095,
    }
    for unit, value in expected.items():
        assert convert(
            [ticks],
            vector(dimension(unit=Unit.TICKS, calibrated=ends)),
            vector(dimension(unit=unit, calibrated=ends)),
        )[0] == pytest.approx(value)
    turned = CalibratedRange.from_lerobot(entry | {"drive_mode": 1})
    got = convert(
        [ticks],
        vector(dimension(unit=Unit.TICKS, calibrated=turned)),
        vector(dimension(unit=Unit.RANGE_100, calibrated=turned)),
    )
    assert got[0] == pytest.approx(-expected[Unit.RANGE_100])
    with pytest.raises(ConventionError, match="range_min"):
        CalibratedRange.from_lerobot({"range_min": 3})


def test_a_degree_of_a_calibrated_range_is_what_its_width_says() -> None:
    assert CalibratedRange(low=1024, high=3072).degrees_per_percent == pytest.approx(0.9)
    assert CalibratedRange(low=800, high=3200).degrees_per_percent == pytest.approx(1.0547, abs=1e-4)
    assert RAIL.degrees_per_percent is None


def test_differences_are_counted_as_their_names_say() -> None:
    absolute, step, chunk = (vector(dimension("a", reference=r), dimension("b", Unit.RAD)) for r in Reference)
    poses, state = np.array([[12.0, 1.0], [15.0, 2.0], [14.0, 3.0]]), np.array([10.0, 9.0])
    np.testing.assert_array_equal(convert(poses, absolute, step, state), [[2, 1], [3, 2], [-1, 3]])
    np.testing.assert_array_equal(convert(poses, absolute, chunk, state), [[2, 1], [5, 2], [4, 3]])
    np.testing.assert_array_equal(convert([[2, 1], [3, 2], [-1, 3]], step, chunk), [[2, 1], [5, 2], [4, 3]])
    np.testing.assert_array_equal(convert([[2, 1], [5, 2], [4, 3]], chunk, absolute, state), poses)
    each = np.array([[10.0, 0.0], [12.0, 0.0], [15.0, 0.0]])
    np.testing.assert_array_equal(convert(poses, absolute, chunk, each), [[2, 1], [3, 2], [-1, 3]])


def test_differences_have_no_zero() -> None:
    old = vector(dimension(reference=Reference.DELTA))
    new = vector(dimension(unit=Unit.RAD, reference=Reference.DELTA, zero=1.0, sign=-1))
    assert convert([[90.0]], old, new)[0, 0] == pytest.approx(-math.pi / 2)


def test_a_driver_that_moved_two_zeros_and_turned_a_joint_is_six_lines() -> None:
    names = [f"joint_{k}" for k in range(6)]
    old = vector(*(dimension(n) for n in names))
    new = vector(
        *(
            dimension(n, sign=-1 if k == 1 else 1, zero=90.0 if k in (1, 2) else 0.0)
            for k, n in enumerate(names)
        )
    )
    conversion = Conversion.between(old, new)
    x = np.random.default_rng(3).normal(0, 30, (50, 6))
    expected = x * [1, -1, 1, 1, 1, 1] + [0, 90, -90, 0, 0, 0]
    np.testing.assert_allclose(conversion.apply(x), expected, atol=1e-12)
    assert conversion.map.scale == (1.0, -1.0, 1.0, 1.0, 1.0, 1.0)
    assert conversion.map.offset == (0.0, 90.0, -90.0, 0.0, 0.0, 0.0)


# --- what is refused -------------------------------------------------------------------------------------------------

ARM, GRIPPER = dimension("arm.pos"), dimension("gripper.pos", Unit.PERCENT, is_gripper=True)
LOSSY: dict[str, tuple[VectorSpec, VectorSpec, str]] = {
    "unit nobody stated": (
        vector(dimension(unit=Unit.UNKNOWN)),
        vector(dimension()),
        "unknown, absolute.*deg, absolute.*state it in the spec",
    ),
    "even to itself": (
        vector(dimension(unit=Unit.UNKNOWN)),
        vector(dimension(unit=Unit.UNKNOWN)),
        "nobody said",
    ),
    "a dimension dropped": (
        vector(ARM, GRIPPER),
        vector(ARM),
        r"\['arm.pos', 'gripper.pos'\] to \['arm.pos'\].*select",
    ),
    "a dimension invented": (vector(ARM), vector(ARM, GRIPPER), "keeps every dimension once"),
    "a dimension twice": (vector(ARM, ARM), vector(ARM, ARM), "keeps every dimension once"),
    "another rate": (vector(ARM), vector(ARM, rate_hz=30.0), "20 Hz to 30 Hz.*resample"),
    "another frame": (
        vector(dimension(unit=Unit.METRE, frame="base")),
        vector(dimension(unit=Unit.METRE, frame="tool")),
        "'base'.*'tool'.*pose",
    ),
    "length for angle": (
        vector(dimension(unit=Unit.METRE)),
        vector(dimension()),
        "length is no angle.*check the units",
    ),
    "a range nobody measured": (
        vector(dimension(unit=Unit.RANGE_100)),
        vector(dimension()),
        r"range_100.*deg.*state calibrated=",
    ),
    "ticks without a middle": (
        vector(dimension(unit=Unit.TICKS)),
        vector(dimension(unit=Unit.RAD)),
        "state calibrated=",
    ),
    "two ranges, one unknown": (
        vector(dimension(unit=Unit.RANGE_100, calibrated=SERVO)),
        vector(dimension(unit=Unit.NORMALISED)),
        "state calibrated=",
    ),
    "polarity without a range": (
        vector(dimension(unit=Unit.RAD, is_gripper=True)),
        vector(dimension(unit=Unit.RAD, is_gripper=True, opens_high=False)),
        "closed at the low end.*open at the low end.*swapped",
    ),
    "gripper for joint": (
        vector(dimension(is_gripper=True)),
        vector(dimension()),
        "only one of them is a gripper",
    ),
}


@pytest.mark.parametrize("case", LOSSY)
def test_what_would_be_lost_or_guessed_is_refused_with_both_sides_and_a_remedy(case: str) -> None:
    a, b, words = LOSSY[case]
    with pytest.raises(ConventionError, match=words) as error:
        Conversion.between(a, b)
    assert "\n" not in str(error.value)


def test_positions_and_differences_meet_only_with_a_state_of_the_right_shape() -> None:
    a, b = vector(ARM), vector(replace(ARM, reference=Reference.DELTA))
    with pytest.raises(ConventionError, match=r"\['arm.pos'\] from delta to absolute needs the state"):
        convert(np.zeros((4, 1)), b, a)
    with pytest.raises(ConventionError, match=r"\(4, 1\).*expected \(1,\)"):
        convert(np.zeros((4, 1)), b, a, np.zeros((4, 1)))
    with pytest.raises(ConventionError, match=r"shape \(4, 2\)"):
        convert(np.zeros((4, 2)), b, a, np.zeros(1))
    with pytest.raises(ConventionError, match="shape"):
        convert(1.0, a, a)


def test_limits_of_a_position_are_not_made_into_limits_of_a_step() -> None:
    with pytest.raises(ConventionError, match="state the limits"):
        reexpressed(ARM, reference=Reference.DELTA)


BROKEN: dict[str, dict[str, Any]] = {
    "sign": {"sign": 0},
    "zero": {"zero": float("nan")},
    "opens": {"opens_high": False},
    "ticks": {"unit": Unit.TICKS, "calibrated": JAW},
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_dimension_that_contradicts_itself_is_refused(case: str) -> None:
    with pytest.raises(ConventionError, match="joint"):
        dimension(**BROKEN[case])


@pytest.mark.parametrize(
    "ends",
    [
        {"low": 5.0, "high": 5.0},
        {"low": 0.0, "high": float("inf")},
        {"low": 0.0, "high": 1.0, "unit": Unit.PERCENT},
    ],
)
def test_a_range_without_width_is_refused(ends: dict[str, Any]) -> None:
    with pytest.raises(ConventionError, match="calibrated range"):
        CalibratedRange(**ends)


# --- maps ------------------------------------------------------------------------------------------------------------

maps = st.integers(1, 6).flatmap(
    lambda n: st.tuples(
        st.permutations(range(n)),
        st.lists(st.floats(0.01, 100) | st.floats(-100, -0.01), min_size=n, max_size=n),
        st.lists(st.floats(-100, 100), min_size=n, max_size=n),
    )
)


def as_map(drawn: tuple[Any, ...], source: str, target: str) -> AffineMap:
    order, scale, offset = drawn
    sides = [tuple(f"{side}{k}" for k in range(len(order))) for side in (source, target)]
    return AffineMap(
        source=sides[0], order=tuple(order), scale=tuple(scale), offset=tuple(offset), target=sides[1]
    )


@given(maps, st.integers(0, 2**32))
def test_a_map_and_its_inverse_are_nothing(drawn: tuple[Any, ...], seed: int) -> None:
    there = as_map(drawn, "a", "b")
    values = np.random.default_rng(seed).normal(0, 10, (5, len(there.order)))
    np.testing.assert_allclose(there.inverse().apply(there.apply(values)), values, rtol=1e-9, atol=1e-9)
    round_trip = there.then(there.inverse())
    np.testing.assert_allclose(round_trip.scale, 1.0, rtol=1e-12)
    assert (round_trip.order, round_trip.source, round_trip.target) == (
        tuple(range(len(there.order))),
        there.source,
        there.source,
    )


def test_a_map_that_cannot_be_undone_or_does_not_fit_is_refused() -> None:
    with pytest.raises(ConventionError, match="exactly once"):
        AffineMap(source=("a", "b"), order=(0, 0), scale=(1.0, 1.0), offset=(0.0, 0.0), target=("a", "b"))
    with pytest.raises(ConventionError, match="cannot be undone"):
        AffineMap(source=("a",), order=(0,), scale=(0.0,), offset=(0.0,), target=("a",))
    one = AffineMap(source=("a",), order=(0,), scale=(2.0,), offset=(1.0,), target=("b",))
    with pytest.raises(ConventionError, match="cannot be followed"):
        one.then(one)
    assert one.to_json() == {"b": {"source": "a", "scale": 2.0, "offset": 1.0}}


def test_conversions_that_do_not_meet_are_not_joined() -> None:
    a, b = vector(ARM), vector(replace(ARM, reference=Reference.DELTA))
    with pytest.raises(ConventionError, match=r"to \(delta\) cannot be followed by one from \(absolute\)"):
        Conversion.between(a, b).then(Conversion.between(a, a))


# --- on disk ---------------------------------------------------------------------------------------------------------

FIRST_VERSION = {
    "rate_hz": 20.0,
    "dimensions": [
        {
            "name": "arm.pos",
            "unit": "deg",
            "low": -100.0,
            "high": 100.0,
            "reference": "absolute",
            "is_gripper": False,
        },
        {
            "name": "gripper.pos",
            "unit": "percent",
            "low": -100.0,
            "high": 100.0,
            "reference": "absolute",
            "is_gripper": True,
        },
    ],
}


def test_a_convention_stored_by_the_first_version_is_read_and_written_unchanged() -> None:
    spec = VectorSpec.from_json(json.loads(json.dumps(FIRST_VERSION)))
    assert spec == vector(ARM, GRIPPER)
    assert spec.to_json() == FIRST_VERSION
    bare = {"rate_hz": 20.0, "dimensions": [{"name": "a", "unit": "deg", "low": 0, "high": 1}]}
    assert VectorSpec.from_json(bare).dimensions[0].reference is Reference.ABSOLUTE


@given(three_conventions())
def test_a_convention_comes_back_from_json_as_it_was(drawn: tuple[Any, ...]) -> None:
    spec = vector(*(replace(d, frame="tool") for d in drawn[0].dimensions))
    assert VectorSpec.from_json(json.loads(canonical_json(spec.to_json()))) == spec


@pytest.mark.parametrize(
    "change",
    [
        {"unit": "furlong"},
        {"calibrated": {"low": 1}},
        {"calibrated": 3},
        {"sign": 2},
        {"name": None, "low": "x"},
    ],
)
def test_a_stored_convention_that_cannot_be_read_is_one_line(change: dict[str, Any]) -> None:
    data = json.loads(json.dumps(FIRST_VERSION))
    data["dimensions"][0] |= change
    with pytest.raises(ConventionError) as error:
        VectorSpec.from_json(data)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "change",
    [
        {"sign": -1},
        {"zero": 3.0},
        {"frame": "tool"},
        {"calibrated": SERVO},
        {"reference": Reference.CHUNK_DELTA},
    ],
)
def test_conventions_that_differ_in_any_field_are_not_mixed(change: dict[str, Any]) -> None:
    with pytest.raises(ConventionError, match="convert explicitly"):
        require_same(
            vector(ARM), vector(replace(ARM, **change)), what="actions", ours_name="a", theirs_name="b"
        )


def test_two_dimensions_that_differ_are_told_by_what_differs_and_nothing_else() -> None:
    ours = Dimension(name="elbow", unit=Unit.DEG, low=-90, high=90)
    theirs = replace(ours, unit=Unit.RAD, calibrated=CalibratedRange(low=-100.0, high=95.0, unit=Unit.DEG))
    specs = [ActionSpec(rate_hz=20.0, dimensions=(d,)) for d in (ours, theirs)]
    with pytest.raises(ConventionError) as caught:
        require_same(*specs, what="actions", ours_name="policy", theirs_name="data")
    assert (
        str(caught.value)
        == "actions 'elbow' differs: policy says unit deg, calibrated None, data says unit rad, calibrated"
        " -100..95 deg; convert explicitly"
    )
