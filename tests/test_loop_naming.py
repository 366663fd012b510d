"""The report's first sentence names the joint, camera or factor with its number, and the remedy is the correction itself."""

from __future__ import annotations

from typing import Any

import pytest

from simgap import causes
from simgap.causes import Cause
from simgap.diagnosis import Diagnosis
from simgap.envs.arm.factors import ARM_FACTORS, ARM_PRESETS
from simgap.findings import CheckResult, Family, Verdict
from simgap.loop.naming import broken_words, corrections, needs_data
from simgap.loop.reporting import among_others
from simgap.report.model import JointTrace
from simgap.report.plots import trace_svg
from simgap.report.words import shared_by


def found(cause: Cause, **numbers: Any) -> Diagnosis:
    return Diagnosis(
        cause=cause, family=None, sentence="", checks=(), remedy=cause.remedy, parameters=numbers
    )


def words(cause: Cause, **numbers: Any) -> str | None:
    return broken_words(
        found(cause, **numbers), training=ARM_PRESETS["nominal"], space=ARM_FACTORS, rate_hz=20.0
    )


@pytest.mark.parametrize(
    ("cause", "numbers", "said"),
    [
        (
            causes.ACTION_SCALE,
            {"broken": {"elbow_flex.pos": 1.45}},
            "elbow_flex moves 1.45 times what it is told",
        ),
        (
            causes.ACTION_SIGN,
            {"broken": {"wrist_flex.pos": -1.0}},
            "wrist_flex moves the opposite way of what it is told",
        ),
        (
            causes.ACTION_SIGN,
            {"broken": {"wrist_flex.pos": -0.6}},
            "wrist_flex moves the opposite way of what it is told, 0.60 times as far",
        ),
        (
            causes.CAMERA_SHIFT,
            {"fitted": {"front_camera_dx_m": 0.03, "front_camera_dy_m": -0.04, "front_camera_yaw_deg": 5.0}},
            "the front camera has moved by 50 mm and turned by 5.0 deg",
        ),
        (
            causes.ACTION_LATENCY,
            {"extra_delay_steps": 7},
            "commands take effect 7 control steps (350 ms) later than in training",
        ),
        (
            causes.PLANT_GAIN,
            {"stiffness_ratios": {"a": 0.7, "b": 0.8}},
            "the servos are 0.75 times as stiff as in training",
        ),
        (
            causes.NARROW_DATA,
            {"in_use_placements": [{"target_y_m": 0.11}, {"target_y_m": -0.02}]},
            "target_y_m is -0.02 to 0.11 in use, -0.07 to 0.07 in the training set",
        ),
    ],
)
def test_the_broken_thing_is_named_with_its_number(cause: Cause, numbers: dict[str, Any], said: str) -> None:
    assert words(cause, **numbers) == said


def test_light_names_what_lies_farthest_from_training_first() -> None:
    said = words(
        causes.LIGHT_COLOUR, fitted={"light_intensity": 0.98, "table_grey": 0.3, "light_warmth": 0.9}
    )
    assert said is not None
    assert said.index("light_warmth 0.9") < said.index("table_grey 0.3") < said.index("light_intensity 0.98")


@pytest.mark.parametrize("cause", [c for c in causes.TABLE.values() if c is not causes.UNKNOWN])
def test_without_its_numbers_every_cause_still_has_a_name(cause: Cause) -> None:
    assert words(cause) == cause.words


def test_what_cannot_be_told_has_no_name() -> None:
    assert words(causes.UNKNOWN) is None


def test_a_convention_is_corrected_by_hand_and_asks_for_no_data() -> None:
    scaled = found(causes.ACTION_SCALE, broken={"elbow_flex.pos": 1.45})
    assert corrections(scaled) == [("what is sent to elbow_flex.pos", "command", "command / 1.45")]
    assert corrections(found(causes.ACTION_SIGN, broken={"wrist_flex.pos": -1.0}))[0][2] == "command / (-1)"
    assert not needs_data(scaled)
    assert corrections(found(causes.ACTION_LATENCY, extra_delay_steps=3)) == []
    assert needs_data(found(causes.ACTION_LATENCY, extra_delay_steps=3))


def check(family: Family, verdict: Verdict, cause: Cause = causes.NONE) -> CheckResult:
    return CheckResult(family=family, name=str(family), verdict=verdict, sentence="", cause=cause)


def test_of_several_broken_checks_it_is_said_which_may_follow_from_which() -> None:
    first = check(Family.REPLAY, Verdict.BROKEN, causes.ACTION_SCALE)
    later = check(Family.PLANT, Verdict.BROKEN, causes.PLANT_GAIN)
    fine = check(Family.PIXELS, Verdict.OK)
    told = Diagnosis(
        cause=causes.ACTION_SCALE, family=Family.REPLAY, sentence="", checks=(fine, first, later), remedy=""
    )
    assert "This is the diagnosis" in among_others(first, [first, later], told)
    assert "plant" in among_others(first, [first, later], told)
    assert "May follow from the diagnosis (replay)" in among_others(later, [first, later], told)
    assert among_others(fine, [first, later], told) == ""
    assert among_others(first, [first], told) == ""


def test_a_joints_trace_draws_both_lines_within_its_box() -> None:
    trace = JointTrace(
        name="elbow",
        unit="deg",
        label="replay 1",
        times_s=[0.0, 0.5, 1.0],
        commanded=[0, 10, 20],
        measured=[0, 14.5, 29],
    )
    svg = trace_svg(trace)
    assert svg.count("<polyline") == 2
    numbers = [
        float(part)
        for line in svg.split('points="')[1:]
        for pair in line.split('"')[0].split()
        for part in pair.split(",")
    ]
    assert min(numbers) == 0.0
    assert max(numbers) == 120.0
    assert "0 to 29 deg" in svg


def test_assumptions_that_several_checks_share_are_said_once() -> None:
    from simgap.report.model import CheckResult as Shown
    from simgap.report.model import CheckVerdict

    rows = [
        Shown(family="data", name=n, verdict=CheckVerdict.OK, sentence="", shared_assumptions=a)
        for n, a in (("a", ["x"]), ("b", ["x"]), ("c", []))
    ]
    assert [(names) for _, names in shared_by(rows)] == [["a", "b"], ["c"]]
