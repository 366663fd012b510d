"""Public reports of wrong normalisation, rebuilt small: the verdict and the numbers each of them must get, and a control that stays quiet.

Each test names its report (NS-01 ...) of the collection it was taken from.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from simgap.artefacts.read import check_foreign
from simgap.checks.data.dataset import DataReport, check_data
from simgap.checks.data.statistics.bounds import std_floor
from simgap.checks.data.statistics.rules import judge
from simgap.conventions import Dimension, Unit, VectorSpec
from simgap.episodes.statistics.exact import exact_statistics
from simgap.episodes.statistics.files import StatisticsBlock
from simgap.findings import Verdict
from simgap.measures.scaling import (
    check_departures,
    check_inert,
    check_key,
    check_round_trip,
    check_same_scaling,
    check_targets,
    circular_std,
    inert_features,
    same_rules,
)
from simgap.policies.normaliser import RangeNormaliser, fit_range
from test_data_check_planted import Recording, clean, edit_json, write
from test_data_foreign import _other_names, policy_folder

Array = NDArray[np.float64]


def spec(names: tuple[str, ...]) -> VectorSpec:
    return VectorSpec(
        rate_hz=20.0,
        dimensions=tuple(Dimension(name=n, unit=Unit.UNKNOWN, low=-1.0, high=1.0) for n in names),
    )


def found(report: DataReport, code: str) -> Any:
    return next(f for f in report.findings if f.code == code)


def named(count: int) -> tuple[str, ...]:
    return tuple(f"d{k}" for k in range(count))


# --- NS-01: quantiles averaged over episodes -------------------------------------------------------------------------


def fifty_episodes() -> Recording:
    rng = np.random.default_rng(0)
    values = [rng.normal(mu, 0.05, (400, 6)) for mu in np.linspace(-1.0, 1.0, 50)]
    return Recording(actions=values, states=[v.copy() for v in values], times=[np.arange(400) / 20.0] * 50)


def _average(root: Path, values: list[Array]) -> None:
    def plant(stats: dict[str, Any]) -> None:
        for name, q in (("q01", 0.01), ("q99", 0.99)):
            stats["action"][name] = np.mean([np.quantile(v, q, axis=0) for v in values], axis=0).tolist()

    edit_json(root / "meta" / "stats.json", plant)


@pytest.mark.slow
def test_ns01_averaged_quantiles_are_a_fault_with_their_coverage_and_the_modes_they_spoil(
    tmp_path: Path,
) -> None:
    recording = fifty_episodes()
    root = write(tmp_path / "d", recording)
    control = check_data(root)
    assert "stored_quantiles_wrong" not in control.codes()
    assert control.measurements["statistics"]["action"]["outside_stored_quantiles"][
        "gripper.pos"
    ] == pytest.approx(0.02, abs=1e-3)
    _average(root, recording.actions)
    finding = found(check_data(root), "stored_quantiles_wrong")
    numbers = finding.numbers
    by = {(d["joint"], d["statistic"]): d for d in numbers["deviations"]}
    low, high = by["shoulder_pan.pos", "q01"], by["shoulder_pan.pos", "q99"]
    assert (low["stored"], high["stored"]) == (
        pytest.approx(-0.114, abs=0.005),
        pytest.approx(0.113, abs=0.005),
    )
    assert (low["exact"], high["exact"]) == (pytest.approx(-1.017, abs=0.01), pytest.approx(1.018, abs=0.01))
    assert numbers["outside"] == pytest.approx([0.889] * 6, abs=0.01)
    assert max(numbers["largest_scaled"]) == pytest.approx(10.0, abs=0.6)
    assert numbers["is_mean_of_episode_quantiles"]
    assert (numbers["affected"], numbers["not_affected"]) == (
        ["QUANTILES", "QUANTILE10"],
        ["MEAN_STD", "MIN_MAX"],
    )


def test_ns01_the_column_that_counts_rows_gives_the_average_away_without_the_data() -> None:
    index = {"min": [0.0], "max": [20813.0], "q01": [10197.0], "q99": [10616.0]}
    _, findings = judge(
        [
            StatisticsBlock(
                file="stats.json", group="", key="index", values={k: np.array(v) for k, v in index.items()}
            )
        ]
    )
    assert [f.code for f in findings if f.severity == "fault"] == ["quantiles_are_episode_means"]
    honest = exact_statistics(np.arange(20814.0))
    _, none = judge(
        [
            StatisticsBlock(
                file="stats.json", group="", key="index", values={k: np.array(honest[k]) for k in index}
            )
        ]
    )
    assert not none


# --- NS-02: image standard deviations that uint8 arithmetic made ------------------------------------------------------


def noise_images(tmp_path: Path) -> Path:
    recording = clean(episodes=2, length=30)
    rng = np.random.default_rng(4)
    recording.cameras = {"front": [rng.integers(0, 256, (30, 16, 24, 3), dtype=np.uint8) for _ in range(2)]}
    recording.spec_changes = {"codec": "png"}
    return write(tmp_path / "d", recording)


def test_ns02_an_image_std_below_what_its_quantiles_imply_is_a_fault_and_the_true_one_is_told(
    tmp_path: Path,
) -> None:
    root = noise_images(tmp_path)
    assert not check_data(root).codes() & {"impossible_std", "stored_image_std_wrong", "image_std_zero"}
    pixels = np.random.default_rng(1).integers(0, 256, 40_000, dtype=np.uint8)
    overflowed = float((pixels * pixels).mean() - pixels.mean() ** 2)
    assert overflowed == pytest.approx(-16_400, abs=400)
    std = float(np.sqrt(max(0.0, overflowed))) + 0.006
    edit_json(
        root / "meta" / "stats.json", lambda s: s["observation.images.front"].update({"std": [[[std]]] * 3})
    )
    report = check_data(root)
    spread = found(report, "stored_image_std_wrong").numbers["front"]
    assert spread["frames_std"] == pytest.approx([0.289] * 3, abs=0.005)
    assert spread["stored_std"] == pytest.approx([0.006] * 3)
    bound = found(report, "impossible_std").numbers["impossible"]["observation.images.front"][0]["at_least"]
    assert bound == pytest.approx(0.0693, abs=0.002)


def test_ns02_the_bound_is_the_one_of_the_report() -> None:
    mean, low, high = (np.array([v]) for v in (0.5, 0.1, 0.9))
    assert std_floor(mean, low, high)[0] == pytest.approx(np.sqrt(0.01 * 0.4**2 + 0.01 * 0.4**2))


# --- NS-03: constant dimensions ---------------------------------------------------------------------------------------


def test_ns03_constant_dimensions_map_to_zero_both_ways_and_their_departure_is_flagged() -> None:
    names = named(7)
    rows = np.random.default_rng(0).uniform(-0.5, 0.5, (400, 7)).astype(np.float32)
    rows[:, 4:] = 0.0
    fitted = fit_range([rows], spec(names))
    assert fitted.still == ("d4", "d5", "d6")
    live = rows[:1].copy()
    live[0, 5] = 1e-3
    blown_up = (live[0, 5] - rows[:, 5].mean()) / (rows[:, 5].std() + 1e-8)
    assert blown_up == pytest.approx(1e5)
    assert fitted.normalise(live)[0, 5] == 0.0
    assert np.array_equal(fitted.denormalise(np.full((1, 7), 0.7, np.float32))[0, 4:], [0.0, 0.0, 0.0])
    assert fitted.departures(live) == {}
    assert fitted.departures(live + np.float32(0.01)) == pytest.approx(
        {"d4": 0.01, "d5": 0.011, "d6": 0.01}, rel=1e-3
    )
    result = check_departures(dict.fromkeys(fitted.still, 0.0), names, live, np.full(7, 1e-4))
    assert (result.verdict, result.numbers["departure"]) == (Verdict.BROKEN, {"d5": pytest.approx(1e-3)})
    assert (
        check_departures(dict.fromkeys(fitted.still, 0.0), names, rows, np.full(7, 1e-4)).verdict
        is Verdict.OK
    )


def test_ns03_a_moving_dimension_is_never_masked_and_a_dead_sensor_stays_nan() -> None:
    rows = np.random.default_rng(0).uniform(-0.5, 0.5, (400, 3)).astype(np.float32)
    assert fit_range([rows], spec(named(3))).still == ()
    rows[:, 1] = 0.25
    fitted = fit_range([rows], spec(named(3)))
    assert fitted == RangeNormaliser.from_json(json.loads(json.dumps(fitted.to_json())))
    assert fitted.denormalise(fitted.normalise(rows)) == pytest.approx(rows, abs=1e-6)
    assert np.isnan(fitted.normalise(np.array([0.0, np.nan, 0.0]))[1])


def test_ns03_the_data_check_and_the_check_of_statistics_list_constant_dimensions(tmp_path: Path) -> None:
    recording = clean()
    for table in (*recording.actions, *recording.states):
        table[:, 3:5] = 1.0
    assert found(check_data(write(tmp_path / "d", recording)), "dead_dimensions").joints == (
        "wrist_flex.pos",
        "wrist_roll.pos",
    )
    values = np.random.default_rng(0).normal(size=(100, 7))
    values[:, 4:6] = 0.5
    exact = {k: np.array(v) for k, v in exact_statistics(values).items() if k != "count"}
    _, findings = judge([StatisticsBlock(file="s", group="", key="action", values=exact)])
    assert next(f for f in findings if f.code == "constant_dimensions").numbers["dimensions"] == {
        "action": [4, 5]
    }


# --- NS-04: training guards a zero range, run time divides by it ------------------------------------------------------


def _min_max(low: Array, high: Array, *, is_guarded: bool) -> Any:
    width = high - low
    return lambda x: 2.0 * (x - low) / np.where(width > 0, width, 1.0 if is_guarded else 0.0) - 1.0


def test_ns04_two_scalers_that_differ_on_a_constant_dimension_are_broken_and_the_dimension_is_named() -> None:
    rows = np.random.default_rng(0).uniform(-1.0, 1.0, (50, 3))
    rows[:, 2] = 0.4
    low, high = rows.min(axis=0), rows.max(axis=0)
    train, run = _min_max(low, high, is_guarded=True), _min_max(low, high, is_guarded=False)
    result = check_same_scaling(train, run, named(3), rows)
    assert result.verdict is Verdict.BROKEN
    assert result.numbers == {"difference": {"d2": None}, "not_finite": ["d2"]}
    assert "NaN" in result.sentence
    assert check_same_scaling(train, train, named(3), rows).verdict is Verdict.OK


# --- NS-05: statistics under other names ------------------------------------------------------------------------------


def test_ns05_statistics_under_other_names_make_normalisation_inert_and_are_named(tmp_path: Path) -> None:
    report = check_foreign(policy_folder(tmp_path / "p", _other_names))
    assert report is not None
    assert "is inert for observation.state, action" in found(report, "normalisation_inert").sentence
    control = check_foreign(policy_folder(tmp_path / "q"))
    assert control is not None
    assert "normalisation_inert" not in control.codes()
    features: dict[str, str | None] = {"action": "ACTION", "observation.state": "STATE"}
    modes = {"ACTION": "MEAN_STD", "STATE": "MEAN_STD"}
    assert set(inert_features(features, modes, {"so100.buffer.action": {"mean", "std"}})) == {
        "action",
        "observation.state",
    }
    assert not inert_features(features, modes, {k: {"mean", "std"} for k in features})
    assert not inert_features(features, {"ACTION": "IDENTITY", "STATE": "IDENTITY"}, {})


def test_ns05_a_scaler_that_returns_its_input_is_inert_by_test() -> None:
    probe = np.full((4, 3), 30.0) + np.arange(4)[:, None]
    partly = check_inert(lambda x: np.column_stack([x[:, 0], (x[:, 1:] - 30.0) / 10.0]), named(3), probe)
    assert (partly.verdict, partly.numbers["unchanged"]) == (Verdict.BROKEN, ["d0"])
    assert check_inert(lambda x: (x - 30.0) / 10.0, named(3), probe).verdict is Verdict.OK


# --- NS-06: an angle at the seam --------------------------------------------------------------------------------------


def roll(rng: np.random.Generator, n: int) -> Array:
    return rng.choice([-1.0, 1.0], n) * (np.pi - np.abs(rng.normal(0.0, 0.05, n)))


def test_ns06_an_angle_at_the_seam_has_a_large_std_and_a_small_circular_one(tmp_path: Path) -> None:
    angle = roll(np.random.default_rng(2), 20_000)
    assert angle.std() == pytest.approx(3.10, abs=0.02)
    assert circular_std(angle, 2 * np.pi) == pytest.approx(0.05, abs=0.002)
    steps = np.abs(np.diff(angle))
    assert (steps > 6.0).mean() == pytest.approx(0.5, abs=0.02)
    values = {k: np.array(v) for k, v in exact_statistics(angle).items() if k != "count"}
    _, findings = judge([StatisticsBlock(file="s", group="", key="state", values=values)])
    assert next(f for f in findings if f.code == "wrapped_angle").severity == "fault"
    recording = clean()
    rng = np.random.default_rng(3)
    for table in (*recording.actions, *recording.states):
        table[:, 4] = roll(rng, len(table))
    numbers = found(check_data(write(tmp_path / "d", recording, is_ours=False)), "angle_wraps").numbers[
        "wrist_roll.pos (observation.state)"
    ]
    assert (numbers["std"], numbers["circular_std"]) == (
        pytest.approx(3.10, abs=0.03),
        pytest.approx(0.05, abs=0.01),
    )
    assert numbers["share"] == pytest.approx(0.5, abs=0.06)


def test_ns06_a_joint_that_really_turns_far_is_none() -> None:
    swing = 3.1 * np.sin(np.linspace(0.0, 20.0, 4000))
    values = {k: np.array(v) for k, v in exact_statistics(swing).items() if k != "count"}
    _, findings = judge([StatisticsBlock(file="s", group="", key="state", values=values)])
    assert "wrapped_angle" not in {f.code for f in findings}


def test_ns06_a_gripper_whose_numbers_happen_to_be_those_of_a_turn_is_none() -> None:
    values = {
        "q01": np.full(2, -np.pi),
        "q99": np.full(2, np.pi),
        "std": np.full(2, 3.0),
        "min": np.full(2, -2 * np.pi),
        "max": np.full(2, 2 * np.pi),
    }
    _, findings = judge(
        [StatisticsBlock(file="s", group="", key="action", values=values, mask=np.array([True, False]))]
    )
    told = {
        f.code: f.numbers["dimensions"] for f in findings if f.code in ("wrapped_angle", "whole_turn_steps")
    }
    assert told == {
        "wrapped_angle": {next(iter(told["wrapped_angle"])): [0]},
        "whole_turn_steps": {next(iter(told["whole_turn_steps"])): [0]},
    }


# --- NS-07: scaled by its own chunk -----------------------------------------------------------------------------------


def test_ns07_a_chunk_scaled_by_its_own_extremes_has_no_inverse() -> None:
    chunk = np.linspace(2.0, 4.0, 11)[:, None]

    def own(x: Array) -> Array:
        return np.asarray(2.0 * (x - x.min(axis=0)) / np.ptp(x, axis=0) - 1.0)

    result = check_round_trip(own, lambda y: y, named(1), chunk)
    assert result.verdict is Verdict.BROKEN
    assert "no inverse" in result.sentence
    assert result.value == pytest.approx(3.0)
    stored = fit_range([chunk.astype(np.float32)], spec(named(1)))
    assert check_round_trip(stored.normalise, stored.denormalise, named(1), chunk).verdict is Verdict.OK


# --- NS-08: statistics older than the numbering of the rows -----------------------------------------------------------


def test_ns08_statistics_of_a_merged_set_that_number_fewer_tasks_and_episodes_are_stale(
    tmp_path: Path,
) -> None:
    root = write(tmp_path / "d", clean(episodes=5, length=30))
    bookkeeping = {
        "episode_index": {"min": [0], "max": [4]},
        "task_index": {"min": [0], "max": [0]},
    }
    edit_json(root / "meta" / "stats.json", lambda s: s.update(bookkeeping))
    assert "stale_numbering" not in check_data(root).codes()
    edit_json(root / "meta" / "stats.json", lambda s: s["episode_index"].update({"max": [2]}))
    assert found(check_data(root), "stale_numbering").numbers == {
        "max of episode_index": {"stored": 2.0, "rows": 4.0}
    }


# --- NS-09: another data set's statistics -----------------------------------------------------------------------------


def _ranges() -> dict[str, tuple[Array, Array]]:
    hand = (np.array([0.0]), np.array([0.0]))  # the gripper is not scaled
    reach = {"mine": 0.02, "bridge": 0.05, "kuka": 0.2}
    return {
        k: (np.concatenate([np.full(3, -r), hand[0]]), np.concatenate([np.full(3, r), hand[1]]))
        for k, r in reach.items()
    }


def test_ns09_the_wrong_key_shows_as_slopes_and_the_right_one_is_named() -> None:
    rng = np.random.default_rng(0)
    labels = np.column_stack([rng.uniform(-0.02, 0.02, (300, 3)), rng.integers(0, 2, 300)])
    normalised = np.column_stack([labels[:, :3] / 0.02 + rng.normal(0, 0.01, (300, 3)), labels[:, 3]])
    names = ("x", "y", "z", "gripper")
    wrong = check_key(normalised, labels, _ranges(), "bridge", names)
    assert (wrong.verdict, wrong.numbers["best"]) == (Verdict.BROKEN, "mine")
    slopes = wrong.numbers["slopes"]["bridge"]
    assert [slopes[n] for n in names] == pytest.approx([2.5, 2.5, 2.5, 1.0], abs=0.02)
    right = check_key(normalised, labels, _ranges(), "mine", names)
    assert right.verdict is Verdict.OK
    others = {k: v for k, v in _ranges().items() if k != "mine"}
    assert check_key(normalised, labels, others, "bridge", names).verdict is Verdict.CANNOT_TELL


# --- NS-10: a false alarm to be told from a real fault ----------------------------------------------------------------


def test_ns10_statistics_of_deltas_pass_and_statistics_of_the_recorded_column_fail() -> None:
    rng = np.random.default_rng(0)
    absolute, deltas = rng.normal(1.5, 0.5, (5000, 2)), rng.normal(0.0, 0.02, (5000, 2))
    ours = check_targets(np.zeros(2), np.full(2, 0.02), absolute, deltas, named(2))
    assert ours.verdict is Verdict.OK
    theirs = check_targets(np.full(2, 1.5), np.full(2, 0.5), absolute, deltas, named(2))
    assert theirs.verdict is Verdict.BROKEN
    assert theirs.numbers["normalised_mean"] == pytest.approx([-3.0, -3.0], abs=0.02)
    assert theirs.numbers["normalised_std"] == pytest.approx([0.04, 0.04], abs=0.002)
    assert (
        check_targets(np.full(2, 7.0), np.full(2, 3.0), absolute, deltas, named(2)).verdict
        is Verdict.CANNOT_TELL
    )


# --- NS-11: small variance around a large mean ------------------------------------------------------------------------


def test_ns11_small_variance_around_a_large_mean_is_kept_and_a_lost_one_is_reported(tmp_path: Path) -> None:
    column = np.array([10000.0, 10001.0, 10002.0], dtype=np.float32)
    cancelled = float((column * column).mean(dtype=np.float32) - column.mean(dtype=np.float32) ** 2)
    assert max(0.0, cancelled) ** 0.5 != pytest.approx(0.8165, abs=0.05)
    assert exact_statistics(column)["std"][0] == pytest.approx(0.8165, abs=1e-4)
    root = write(tmp_path / "d", clean())
    edit_json(root / "meta" / "stats.json", lambda s: s["action"]["std"].__setitem__(2, 0.0))
    assert found(check_data(root), "stored_statistics_wrong").joints == ("elbow_flex.pos",)


# --- CT-02: one source scaled by another rule -------------------------------------------------------------------------


def test_ct02_a_source_without_quantiles_is_named_and_its_shrinking_told() -> None:
    rng = np.random.default_rng(0)
    one, two = rng.normal(0.0, 1.0, 20_000), rng.normal(0.0, 1.0, 20_000)
    two[7] = 250.0
    stored = {"a": {"q01", "q99", "min", "max"}, "b": {"min", "max"}}
    assert same_rules(stored, "QUANTILES") == {"b": ["q01", "q99"]}
    assert same_rules(stored, "MIN_MAX") == {}
    scaled = [
        2 * (v - low) / (high - low) - 1
        for v, (low, high) in ((one, np.quantile(one, (0.01, 0.99))), (two, (two.min(), two.max())))
    ]
    assert np.delete(scaled[1], 7).std() / scaled[0].std() < 0.03
