"""Kinds of recordings that were misread once: names of whole vectors, parked arms, bases that start at once, odd episodes, scales that change."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from format_builders import CONTROLLER, write_robomimic
from healthy_hosts import BASE, HOSTS, TWO_ARMS, Arm, parked
from remedies import run_printed, thinned
from simgap.checks.data.dataset import check_data
from simgap.checks.data.motion.joints import check_motion
from simgap.checks.data.pooled import pool
from simgap.checks.data.report import DataFinding, Severity
from simgap.cli import main
from simgap.episodes.reader import open_dataset

Array = NDArray[np.float64]
WRIST, ELBOW = 4, 2


def found(root: Path) -> dict[str, DataFinding]:
    return {f.code: f for f in check_motion(pool(open_dataset(root)))[1] if f.severity is not Severity.NOTE}


def by_episode(change: Callable[[int, Array], Array], side: int = 1, **fields: object) -> Arm:
    """Return an arm whose state (or action, ``side`` 0) is changed by the number of the episode."""
    place = iter(range(1000))

    def changed(action: Array, state: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        both = [action, state]
        both[side] = change(next(place), both[side].copy())
        return both[0], both[1]

    return replace(BASE, lengths=(240, 210, 260, 225, 250, 235, 245, 230), change=changed, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name", ["one name for a whole vector", "an arm that stays parked", "a mobile base that starts at once"]
)
def test_healthy_shapes_stay_clean(name: str, tmp_path: Path) -> None:
    report = check_data(open_dataset(HOSTS[name](tmp_path / "d")))
    assert [f.sentence for f in report.findings if f.severity is not Severity.NOTE] == []


def test_a_wrong_count_of_names_is_still_a_fault(tmp_path: Path) -> None:
    root = BASE.write(tmp_path / "d")
    info = json.loads((root / "meta/info.json").read_text())
    info["features"]["action"]["names"] = info["features"]["action"]["names"][:4]
    (root / "meta/info.json").write_text(json.dumps(info))
    assert "dimension_count_mismatch" in {f.code for f in check_data(open_dataset(root)).findings}


@pytest.mark.parametrize("travel", [3.0, 40.0])
def test_a_command_that_never_changes_while_its_joint_moves_is_still_a_warning(
    travel: float, tmp_path: Path
) -> None:
    def sensor_only(action: Array, state: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        action, state = parked(action, state, rng)
        state[:, 1] += travel * np.sin(np.arange(len(state)) / 20)
        return action, state

    arm = replace(BASE, names=TWO_ARMS, low=BASE.low * 2, high=BASE.high * 2, change=sensor_only)
    (dead,) = [
        f for f in check_data(open_dataset(arm.write(tmp_path / "d"))).findings if f.code == "dead_dimensions"
    ]
    assert dead.severity is Severity.WARNING
    assert dead.numbers["moves_in_the_other"] == ["left_shoulder_lift.pos"]


@pytest.mark.parametrize(
    ("first", "factor"), thinned(product((2, 4, 6), (4096 / 360, 1.45, np.pi / 180, 1 / 1.6)), [(4, 1.45)])
)
def test_a_scale_that_changes_about_a_fixed_zero_is_named_with_its_episode(
    first: int, factor: float, tmp_path: Path
) -> None:
    def scaled(k: int, v: Array) -> Array:
        v[:, WRIST] *= factor if k >= first else 1.0
        return v

    named = found(by_episode(scaled).write(tmp_path / "d"))
    assert set(named) <= {"scale_changes", "recalibrated_midway"}
    numbers = named["scale_changes"].numbers["wrist_roll.pos"]
    assert numbers["episode"] == first
    assert numbers["factor"] == pytest.approx(factor, rel=0.1)


ODD: dict[str, Callable[[Array], Array]] = {
    "sign": lambda v: -v,
    "radians": lambda v: v * np.pi / 180,
    "ticks": lambda v: v * 4096 / 360 + 2048,
    "zero": lambda v: v + 17.0,
    "another joint": lambda v: v[::-1].copy(),
}


@pytest.mark.parametrize(
    ("kind", "where", "side"),
    thinned(product(ODD, (0, 3, 7), (0, 1)), [("sign", 7, 1), ("zero", 0, 0), ("radians", 3, 1)]),
)
def test_one_episode_whose_convention_is_another_is_named(
    kind: str, where: int, side: int, tmp_path: Path
) -> None:
    def odd(k: int, v: Array) -> Array:
        v[:, ELBOW] = ODD[kind](v[:, ELBOW]) if k == where else v[:, ELBOW]
        return v

    finding = found(by_episode(odd, side).write(tmp_path / "d"))["odd_episodes"]
    assert finding.joints == ("elbow_flex.pos",)
    assert list(finding.numbers["elbow_flex.pos"]) == [str(where)]


def test_an_input_range_stated_by_dimension_is_held_by_dimension(tmp_path: Path) -> None:
    settings = CONTROLLER | {
        "input_max": [1, 1, 1, 0.5, 0.5, 0.5],
        "input_min": [-1, -1, -1, -0.5, -0.5, -0.5],
    }
    write_robomimic(tmp_path / "a.hdf5", (60, 50), controller=settings)
    (beyond,) = [f for f in check_data(tmp_path / "a.hdf5").findings if f.code == "actions_beyond_controller"]
    assert len(beyond.joints) == 3
    assert beyond.numbers["input_range"] == [-0.5, 0.5]
    assert beyond.numbers["factor"] == pytest.approx(2.0, rel=0.1)


@pytest.mark.slow
def test_channels_of_a_tub_that_are_not_minus_one_to_one_are_named_before_and_after_convert(
    tmp_path: Path,
) -> None:
    root = HOSTS["tub with pauses"](tmp_path / "d")
    for catalog in root.glob("*.catalog"):
        rows = [json.loads(line) for line in catalog.read_text().splitlines()]
        catalog.write_text(
            "".join(json.dumps(r | {"user/throttle": 1500.0 + r["_index"]}) + "\n" for r in rows)
        )
    before = {f.code: f.severity for f in check_data(root).findings}
    assert (
        main(
            [
                "data",
                "convert",
                str(root),
                "--out",
                str(tmp_path / "c"),
                "--task",
                "drive",
                "--workers",
                "0",
                "--quiet",
            ]
        )
        == 0
    )
    after = {f.code: f.severity for f in check_data(tmp_path / "c").findings}
    assert before["outside_limits"] is not Severity.NOTE
    assert after["outside_limits"] is before["outside_limits"]


def converted(root: Path, out: Path) -> dict[str, Severity]:
    assert (
        main(
            ["data", "convert", str(root), "--out", str(out), "--task", "do it", "--workers", "0", "--quiet"]
        )
        == 0
    )
    return {f.code: f.severity for f in check_data(out).findings if f.severity is not Severity.NOTE}


CLEAN = (
    "one name for a whole vector",
    "tub whose driver only goes forward",
    "a composite controller",
    "ALOHA HDF5, raw frames",
)


@pytest.mark.parametrize("name", thinned(CLEAN, CLEAN[:1]))
def test_what_is_clean_is_clean_after_convert(name: str, tmp_path: Path) -> None:
    assert converted(HOSTS[name](tmp_path / "d"), tmp_path / "c") == {}


@pytest.mark.slow
def test_short_drives_of_a_tub_keep_their_severity_in_its_copy(tmp_path: Path) -> None:
    from format_builders import write_tub

    write_tub(tmp_path / "d", (("a", 60), ("b", 70), ("c", 8), ("d", 65)))
    assert "short_episodes" not in converted(tmp_path / "d", tmp_path / "c")
    assert "short_episodes" in check_data(tmp_path / "c").codes()


@pytest.mark.parametrize(
    ("gain", "side"), thinned(product((1.45, 1.25, 0.75), (0, 1)), [(1.45, 1), (0.75, 0)])
)
def test_a_gain_about_any_pose_is_a_scale_and_no_zero(gain: float, side: int, tmp_path: Path) -> None:
    def about_the_middle(k: int, v: Array) -> Array:
        v[:, ELBOW] = 47 + gain * (v[:, ELBOW] - 47)
        return v

    named = found(by_episode(about_the_middle, side).write(tmp_path / "d"))
    assert set(named) == {"scale_mismatch"}
    assert named["scale_mismatch"].joints == ("elbow_flex.pos",)


def test_what_is_said_of_a_state_at_its_stop_does_not_contradict_itself(tmp_path: Path) -> None:
    def clipped(k: int, v: Array) -> Array:
        v[:, ELBOW] = np.minimum(1.3 * v[:, ELBOW], 1.0)
        return v

    low, high = tuple(np.radians(BASE.low)), tuple(np.radians(BASE.high))
    (at,) = [
        f
        for code, f in found(
            by_episode(clipped, low=low, high=high, step=0.0015).write(tmp_path / "d")
        ).items()
        if code == "saturation"
    ]
    assert "stays near 1 in" in at.sentence
    assert "goes on to" not in at.sentence


POSE = ("x", "y", "z", "qw", "qx", "qy", "qz", "gripper")
ARM7 = (*(f"joint_velocity_{k}" for k in range(7)), "gripper_position")
STATED: dict[str, tuple[tuple[str, ...], tuple[str, ...] | None, dict[str, str]]] = {
    "a pose": (
        POSE,
        None,
        {"x": "m", "z": "m", "qw": "normalised", "qz": "normalised", "gripper": "normalised"},
    ),
    "speeds of joints": (
        ARM7,
        (*(f"joint_{k}" for k in range(7)), "gripper_position"),
        {"joint_3": "rad", "gripper_position": "normalised"},
    ),
}


@pytest.mark.parametrize("name", thinned(STATED, ("a pose",)))
def test_the_units_that_are_offered_fit_every_dimension(name: str, tmp_path: Path) -> None:
    action, state, expected = STATED[name]
    low, high = ((0.3, -0.2, 0.05, -0.9, -0.3, -0.3, -0.3, 0.0), (0.6, 0.2, 0.4, 0.9, 0.3, 0.3, 0.3, 1.0))
    if state is not None:
        low, high = (-1.2,) * 7 + (0.0,), (1.2,) * 7 + (1.0,)
    root = replace(BASE, names=action, state_names=state, low=low, high=high, step=1e-4).write(tmp_path / "d")
    (asked,) = [f for f in check_data(root).findings if f.code == "units_undeclared"]
    assert run_printed(asked.remedy) == [0]
    dataset = open_dataset(root)
    units = {
        d.name: str(d.unit)
        for spec in (dataset.spec.action_spec, dataset.spec.state_spec)
        for d in spec.dimensions
    }
    assert {n: units[n] for n in expected} == expected
    assert not any(n.startswith("joint_velocity") and u == "rad" for n, u in units.items())
    assert "units_undeclared" not in check_data(root).codes()


@pytest.mark.slow
def test_what_is_offered_for_vectors_without_names_can_be_given(tmp_path: Path) -> None:
    def scaled(action: Array, state: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        return action[:, :4], state / 500

    root = replace(BASE, names=("action",), state_names=("state",), change=scaled).write(tmp_path / "d")
    (asked,) = [f for f in check_data(root).findings if f.code == "units_undeclared"]
    assert run_printed(asked.remedy) == [0]
    assert "units_undeclared" not in check_data(root).codes()


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings", [[CONTROLLER, CONTROLLER], {"type": "BASIC", "body_parts": {"right": CONTROLLER}}]
)
def test_actions_beyond_their_controller_are_a_fault_in_the_copy_too(
    settings: object, tmp_path: Path
) -> None:
    write_robomimic(tmp_path / "a.hdf5", (60, 50), controller=settings, cameras=())  # type: ignore[arg-type]
    with h5py.File(tmp_path / "a.hdf5", "r+") as file:
        for demo in file["data"].values():
            demo["actions"][:, 1] *= 6
    assert "actions_beyond_controller" in check_data(tmp_path / "a.hdf5").codes()
    assert converted(tmp_path / "a.hdf5", tmp_path / "c")["outside_limits"] is Severity.FAULT


@pytest.mark.slow
def test_statistics_that_only_further_columns_lack_are_no_wrong_ones(tmp_path: Path) -> None:
    root = BASE.write(tmp_path / "d")
    file = next((root / "data").rglob("*.parquet"))
    table = pq.read_table(file)
    pq.write_table(table.append_column("is_intervention", pa.array([False] * table.num_rows)), file)
    info = json.loads((root / "meta/info.json").read_text())
    info["features"]["is_intervention"] = {"dtype": "bool", "shape": [1], "names": None}
    (root / "meta/info.json").write_text(json.dumps(info))
    assert main(["data", "stats", str(root), "--quiet"]) == 0
    stored = json.loads((root / "meta/stats.json").read_text())
    stored["action"]["mean"][0] += 20
    (root / "meta/stats.json").write_text(json.dumps(stored))
    assert main(["data", "stats", str(root), "--quiet"]) == 1
