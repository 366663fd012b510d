"""Velocity actions are compared with the change of the state; places in millimetres are lengths and no device counts."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from healthy_hosts import ARMS, HOSTS
from simgap.checks.data.dataset import DataReport, Severity, check_data
from simgap.conventions import Conversion, Dimension, Unit, VectorSpec
from simgap.episodes.formats.keymap import KeyMap
from simgap.errors import ConventionError
from simgap.measures.units import is_cartesian

Array = NDArray[np.float64]
BY_NAME = ARMS["velocities by name"]
HURT = "joint_3"


def changed(root: Path, change: Callable[[Array, Array], None], *, declared: bool) -> DataReport:
    """Write velocities by name, or as their owner declares them, with something else in them, and check them."""

    def both(action: Array, state: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        action, state = BY_NAME.change(action, state, rng)
        change(action, state)
        return action, state

    names = [(*n[:-1], "gripper") for n in (BY_NAME.names, BY_NAME.state_names or ())]
    plain = tuple(n.removesuffix(".vel") for n in names[0])
    replace(BY_NAME, change=both, **({"names": plain, "state_names": plain} if declared else {})).write(root)
    if declared:
        said = KeyMap(dimensions={"action:joint_*": {"unit": "rad/s"}, "state:joint_*": {"unit": "rad"}})
        (root / "simgap-map.json").write_text(json.dumps(said.to_json()))
    return check_data(root)


def loud(report: DataReport) -> dict[str, tuple[str, ...]]:
    return {
        f.code: tuple(j.removesuffix(".vel") for j in f.joints)
        for f in report.findings
        if f.severity is not Severity.NOTE
    }


@pytest.mark.parametrize(
    "name",
    [
        "velocities by name",
        "velocities that their owner declares",
        "poses in millimetres",
        "poses in whole millimetres",
    ],
)
def test_velocities_and_millimetres_are_no_fault(name: str, tmp_path: Path) -> None:
    assert loud(check_data(HOSTS[name](tmp_path / "d"))) == {}


def _scaled(factor: float) -> Callable[[Array, Array], None]:
    return lambda a, s: a.__setitem__((slice(None), 2), factor * a[:, 2])


@pytest.mark.parametrize("declared", [False, True], ids=["by name", "declared"])
@pytest.mark.parametrize(
    ("factor", "code", "words"),
    [
        (-1.0, "sign_flip", "sign is flipped"),
        (57.3, "unit_mismatch", "radians for degrees"),
        (1 / 30, "unit_mismatch", "steps per frame"),
    ],
)
def test_a_wrong_sign_or_unit_of_a_velocity_is_a_fault_of_its_joint(
    declared: bool, factor: float, code: str, words: str, tmp_path: Path
) -> None:
    report = changed(tmp_path / "d", _scaled(factor), declared=declared)
    assert loud(report) == {code: (HURT,)}
    assert words in next(f.sentence for f in report.findings if f.code == code)


def test_a_gain_of_a_velocity_is_judged_where_units_are_stated(tmp_path: Path) -> None:
    assert loud(changed(tmp_path / "a", _scaled(2.5), declared=True)) == {"scale_mismatch": (HURT,)}
    assert loud(changed(tmp_path / "b", _scaled(2.5), declared=False)) == {}


def test_a_late_state_and_an_early_one_are_named_with_their_frames(tmp_path: Path) -> None:
    def late(frames: int) -> Callable[[Array, Array], None]:
        return lambda a, s: (
            s.__setitem__(slice(None), np.roll(s, frames, axis=0))
            if frames > 0
            else a.__setitem__(slice(None), np.roll(a, -frames, axis=0))
        )

    report = changed(tmp_path / "late", late(12), declared=True)
    assert "long_lag" in loud(report)
    assert "state_leads_action" in loud(changed(tmp_path / "early", late(-10), declared=True))


def test_positions_called_velocities_are_named_and_velocities_called_positions_too(tmp_path: Path) -> None:
    def positions(a: Array, s: Array) -> None:
        a[:, :-1] = np.roll(s[:, :-1], -2, axis=0) + 1e-4

    assert "actions_are_positions" in loud(changed(tmp_path / "p", positions, declared=True))
    same = tuple(n.replace(".vel", ".pos") for n in BY_NAME.names)
    replace(BY_NAME, names=same, state_names=same).write(tmp_path / "v")
    report = check_data(tmp_path / "v")
    finding = next(f for f in report.findings if f.code == "actions_are_differences")
    assert finding.severity is Severity.WARNING
    assert "velocities in the unit of the state per second" in finding.sentence
    assert "action:*=rad/s" in finding.remedy


def test_a_place_in_millimetres_is_read_as_a_length(tmp_path: Path) -> None:
    for k, name in enumerate(("poses in millimetres", "poses in whole millimetres")):
        report = check_data(HOSTS[name](tmp_path / str(k)))
        said = next(f for f in report.findings if f.code == "units_undeclared").numbers["candidates"]
        assert said["x, y, z" if k == 0 else "tcp"] == ["mm"]
        assert "device counts" not in json.dumps(report.to_json())
        assert not {"servo_ticks", "wraps"} & report.codes()


def test_metres_for_millimetres_on_one_axis_are_named(tmp_path: Path) -> None:
    def metres(action: Array, state: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        action[:, 1] *= 0.001
        return action, state

    replace(ARMS["poses in millimetres"], change=metres).write(tmp_path / "d")
    finding = next(f for f in check_data(tmp_path / "d").findings if f.code == "unit_mismatch")
    assert finding.joints == ("y",)
    assert "millimetres for metres" in finding.sentence


@pytest.mark.parametrize(
    "name", ["x", "ee.pos_z", "tcp_y", "obs/robot0_eef_pos[2]", "left_ee.x", "position_x", "target.z.pos"]
)
def test_a_place_is_told_by_its_name(name: str) -> None:
    assert is_cartesian(name)


@pytest.mark.parametrize(
    "name",
    ["shoulder_pan.pos", "joint_1", "roll", "rx", "quat_x", "imu_accel_x", "motor_y", "knee_pos[1]", "max"],
)
def test_an_angle_is_no_place(name: str) -> None:
    assert not is_cartesian(name)


@pytest.mark.parametrize(
    ("given", "wanted", "factor"), [("mm", "m", 1e-3), ("rad/s", "deg/s", 180 / np.pi), ("m/s", "mm/s", 1e3)]
)
def test_lengths_and_velocities_convert_and_come_back(given: str, wanted: str, factor: float) -> None:
    def spec(unit: str) -> VectorSpec:
        return VectorSpec(
            dimensions=(Dimension(name="x", unit=Unit(unit), low=-9.0, high=9.0),), rate_hz=10.0
        )

    there = Conversion.between(spec(given), spec(wanted))
    values = np.array([[1.0], [-2.5]])
    np.testing.assert_allclose(there.apply(values), factor * values)
    np.testing.assert_allclose(there.inverse().apply(there.apply(values)), values)
    other: Any = spec("deg") if wanted != "deg/s" else spec("m/s")
    with pytest.raises(ConventionError, match="check the units of both"):
        Conversion.between(spec(given), other)
