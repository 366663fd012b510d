"""What is no dataset of episodes: statistics files, actuator logs, policies, trial logs and paired rates, made up and real."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy
from numpy.typing import NDArray
from safetensors.numpy import save_file

from simgap.artefacts.read import FolderKind, check_foreign, recognise
from simgap.checks.data.dataset import DataReport, Severity, check_data
from simgap.checks.data.statistics.rules import judge
from simgap.cli import main
from simgap.episodes.statistics.exact import exact_statistics
from simgap.episodes.statistics.files import StatisticsBlock, read_statistics
from simgap.errors import DataError
from test_data_check_layouts import real

JOINTS = ("pan", "lift", "elbow")
Array = NDArray[np.float64]


def checked(path: Path) -> DataReport:
    report = check_foreign(path)
    assert report is not None
    return report


def codes(report: DataReport, *severities: Severity) -> set[str]:
    return {f.code for f in report.findings if f.severity in (severities or tuple(Severity))}


def numbers_of(report: DataReport, code: str) -> Mapping[str, Any]:
    return next(f.numbers for f in report.findings if f.code == code)


# --- statistics ------------------------------------------------------------------------------------------------------


def statistics(rng: np.random.Generator, dimensions: int = 8) -> dict[str, Any]:
    values = exact_statistics(rng.normal(0.0, 0.4, (4000, dimensions)))
    return {k: values[k] for k in ("min", "max", "mean", "std", "q01", "q99")}


def stored(tmp_path: Path, change: Callable[[dict[str, Any]], object] = lambda _: None) -> Path:
    rng = np.random.default_rng(3)
    document = {"norm_stats": {"state": statistics(rng), "actions": statistics(rng)}}
    change(document["norm_stats"])
    (tmp_path / "norm_stats.json").write_text(json.dumps(document))
    return tmp_path


def put(statistic: str, at: int, value: float) -> Callable[[dict[str, Any]], object]:
    return lambda d: d["actions"][statistic].__setitem__(at, value)


def each(at: slice, **values: float) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        for statistic, numbers in document["actions"].items():
            numbers[at] = [values.get(statistic, 0.0)] * len(numbers[at])

    return change


def _pollute(document: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    state = rng.normal(rng.uniform(-1, 1, 8), 0.1, (4000, 8))
    target = np.where(rng.random((4000, 1)) < 0.4, 0.0, state + rng.normal(0, 0.01, state.shape))
    for key, values in (("state", state), ("actions", target - state)):
        document[key] = {k: v for k, v in exact_statistics(values).items() if k in document[key]}


def _grippers(document: dict[str, Any]) -> None:
    for group, high in (("one", 1.0), ("two", 0.08)):
        block = statistics(np.random.default_rng(1), 7)
        document[group] = {"action": block | {"mask": [True] * 6 + [False]}}
        for statistic, value in {
            "min": 0.0,
            "q01": 0.0,
            "max": high,
            "q99": high,
            "mean": high / 2,
            "std": high / 2,
        }.items():
            block[statistic][6] = value


def _units(document: dict[str, Any]) -> None:
    for group, scale in (("metres", 1.0), ("micrometres", 1e6)):
        block = statistics(np.random.default_rng(1), 6)
        document[group] = {"action": {k: [scale * v for v in values] for k, values in block.items()}}


def _gripper_still(document: dict[str, Any]) -> None:
    _grippers(document)
    for values in document["one"]["action"].values():
        values[6] = False if values[6] is False else 0.0


def _index(document: dict[str, Any]) -> None:
    document["index"] = {
        "min": [0],
        "max": [20813],
        "q01": [10197.0],
        "q99": [10616.0],
        "mean": [10406.5],
        "std": [6008.0],
    }


STATISTICS: dict[str, Callable[[dict[str, Any]], object]] = {
    "statistics_of_different_length": lambda d: d["actions"]["std"].pop(),
    "statistics_not_recorded": each(slice(None)),
    "statistics_incomplete": lambda d: (d["state"].pop("mean"), d["state"].pop("std")),
    "contradictory_statistics": put("q01", 2, 5.0),
    "impossible_std": put("std", 1, 0.001),
    "constant_dimensions": each(slice(2, 3), min=0.3, max=0.3, mean=0.3, q01=0.3, q99=0.3),
    "constant_gripper": _gripper_still,
    "padded_dimensions": each(slice(5, None)),
    "nearly_constant_dimensions": each(
        slice(3, 4), min=0.99, max=1.0, mean=0.995, std=0.001, q01=0.992, q99=0.999
    ),
    "outliers": put("max", 0, 400.0),
    "wrapped_angle": each(slice(4, 5), min=-3.1416, max=3.1416, mean=0.1, std=3.05, q01=-3.1416, q99=3.1403),
    "whole_turn_steps": put("max", 3, 2 * np.pi),
    "quantiles_are_episode_means": _index,
    "relative_targets_polluted": _pollute,
    "gripper_ranges_differ": _grippers,
    "units_differ_between_sets": _units,
}


@pytest.mark.parametrize("code", STATISTICS)
def test_a_fault_in_statistics_is_found_and_honest_ones_are_clean(code: str, tmp_path: Path) -> None:
    (tmp_path / "clean").mkdir()
    clean = checked(stored(tmp_path / "clean"))
    assert clean.is_clean
    assert codes(clean) == {"dimensions_unnamed"}
    (tmp_path / "faulty").mkdir()
    assert code in codes(checked(stored(tmp_path / "faulty", STATISTICS[code])))


@given(
    st_numpy.arrays(
        np.float64, st.tuples(st.integers(2, 60), st.integers(1, 4)), elements=st.floats(-1e6, 1e6, width=32)
    )
)
def test_statistics_of_any_data_contradict_nothing(values: Array) -> None:
    names = ("min", "max", "mean", "std", "q01", "q10", "q50", "q90", "q99")
    exact = {k: np.asarray(v, dtype=np.float64) for k, v in exact_statistics(values).items() if k in names}
    _, findings = judge([StatisticsBlock(file="f", group="", key="state", values=exact)])
    assert not {f.code for f in findings} & {"contradictory_statistics", "impossible_std"}


@pytest.mark.parametrize(
    "text", ["[1, 2", "[]", '{"a": {"mean": "x", "std": [1]}}', '{"mean": [1, 2], "std": []}']
)
def test_json_without_statistics_is_refused_in_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(DataError) as refused:
        check_foreign(tmp_path)
    assert "\n" not in str(refused.value)


# --- actuator logs ---------------------------------------------------------------------------------------------------


def actuator_log(
    folder: Path,
    change: Callable[[Array], Array] = lambda s: s,
    *,
    lag: int = 5,
    tick: float = 2 * np.pi / 4096,
    clock: float = 1e6,
) -> None:
    """Write one motion of three joints at 50 Hz; the state is ``lag`` samples late and quantised."""
    folder.mkdir(parents=True)
    n, rng = 700, np.random.default_rng(len(folder.name))
    knots = rng.uniform(-0.7, 0.7, (9, 3))
    command = np.stack([np.interp(np.linspace(0, 8, n), np.arange(9), knots[:, k]) for k in range(3)], axis=1)
    command[300:360] = command[300]
    late = np.concatenate([command[:1].repeat(lag, axis=0), command[:-lag]])
    state = np.round(change(late) / tick) * tick
    times = np.arange(n) * 0.02 * clock
    for name, kind, values in (("control", "CONTROL", command), ("state_motor", "STATE_MOTOR", state)):
        with (folder / f"{name}.csv").open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(["type", "timestamp", "positions"])
            writer.writerows(
                [[kind, t, str(list(map(float, v)))] for t, v in zip(times, values, strict=True)]
            )
    (folder / "joint_list.txt").write_text("\n".join(JOINTS))


def test_an_actuator_log_gives_rate_units_and_lag_and_no_fault(tmp_path: Path) -> None:
    for motion in ("swing", "wave"):
        actuator_log(tmp_path / motion)
    report = checked(tmp_path)
    assert report.is_clean
    assert report.measurements["clock"]["measured_hz"] == pytest.approx(50.0)
    assert report.measurements["clock"]["time_unit"] == "us"
    assert report.measurements["units"]["position"]["unit"] == "rad"
    for joint in report.measurements["motions"]["swing"]["joints"].values():
        assert joint["lag_samples"] == 5
        assert joint["lag_ms"] == {"above": pytest.approx(80.0), "up_to": pytest.approx(100.0)}
        assert joint["scale"] == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize(("clock", "unit"), [(1.0, "s"), (1e3, "ms"), (1e6, "us"), (1e9, "ns")])
def test_the_unit_of_time_is_the_only_one_that_gives_a_control_rate(
    clock: float, unit: str, tmp_path: Path
) -> None:
    actuator_log(tmp_path / "swing", clock=clock)
    assert checked(tmp_path).measurements["clock"] == {
        "measured_hz": pytest.approx(50.0),
        "period_ms": pytest.approx(20.0),
        "time_unit": unit,
    }


def test_a_turned_joint_and_degrees_are_faults_and_gravity_is_none(tmp_path: Path) -> None:
    actuator_log(tmp_path / "turned" / "swing", lambda s: s * np.array([1.0, -1.0, 1.0]))
    assert codes(checked(tmp_path / "turned"), Severity.FAULT) == {"sign_flip"}
    actuator_log(tmp_path / "degrees" / "swing", np.rad2deg, tick=360 / 4096)
    report = checked(tmp_path / "degrees")
    assert codes(report, Severity.FAULT) == {"unit_mismatch"}
    assert report.measurements["units"]["position"]["unit"] == "deg"
    for motion, gain in (("swing", 0.7), ("wave", 0.95)):
        scale = np.array([1.0, 1.0, gain])
        actuator_log(tmp_path / "heavy" / motion, lambda s: s * scale + np.array([0.0, 0.0, 0.06]))  # noqa: B023
    heavy = checked(tmp_path / "heavy")
    assert heavy.is_clean
    assert next(f for f in heavy.findings if f.code == "load").joints == ("elbow",)


def test_two_units_of_time_in_one_folder_are_a_fault(tmp_path: Path) -> None:
    actuator_log(tmp_path / "real", clock=1e6)
    actuator_log(tmp_path / "sim", clock=1.0)
    assert codes(checked(tmp_path), Severity.FAULT) == {"time_units_differ"}


@pytest.mark.parametrize("cell", ["[1, 2]", "nothing", "[" * 5000, ""])
def test_a_garbled_list_names_file_and_row(cell: str, tmp_path: Path) -> None:
    actuator_log(tmp_path / "swing")
    file = tmp_path / "swing" / "control.csv"
    lines = file.read_text().splitlines()
    lines[4] = f'CONTROL,60000,"{cell}"'
    file.write_text("\n".join(lines))
    with pytest.raises(DataError, match=r"control\.csv"):
        check_foreign(tmp_path)


# --- policy folders --------------------------------------------------------------------------------------------------


def policy_folder(root: Path, change: Callable[[dict[str, Any]], object] = lambda _: None) -> Path:
    """Write a LeRobot policy folder: config, both processors and their statistics; ``change`` may edit the parts."""
    root.mkdir()
    features = {
        "observation.state": {"type": "STATE", "shape": [3]},
        "action": {"type": "ACTION", "shape": [3]},
    }
    modes = {"STATE": "MEAN_STD", "ACTION": "MEAN_STD", "VISUAL": "MEAN_STD"}
    rng = np.random.default_rng(1)
    state = {
        f"{key}.{s}": v
        for key in features
        for s, v in (("mean", rng.normal(size=3)), ("std", rng.uniform(0.5, 1.0, 3)))
    }
    action_only = {"action": features["action"]}
    down = {
        "registry_name": "normalizer_processor",
        "config": {"features": features, "norm_map": dict(modes), "eps": 1e-8},
        "state_file": "pre.safetensors",
    }
    up = {
        "registry_name": "unnormalizer_processor",
        "config": {"features": action_only, "norm_map": dict(modes)},
        "state_file": "post.safetensors",
    }
    config = {
        "type": "act",
        "input_features": {"observation.state": features["observation.state"]},
        "output_features": action_only,
    }
    parts: dict[str, Any] = {
        "config": config | {"normalization_mapping": dict(modes), "repo_id": "a/b"},
        "pre": [down],
        "post": [up],
        "pre_state": dict(state),
        "post_state": {k: v for k, v in state.items() if k.startswith("action")},
        "train": {"dataset": {"repo_id": "a/b"}, "policy": {"normalization_mapping": dict(modes)}},
    }
    change(parts)
    (root / "config.json").write_text(json.dumps(parts["config"]))
    (root / "train_config.json").write_text(json.dumps(parts["train"]))
    for side in ("pre", "post"):
        (root / f"policy_{side}processor.json").write_text(json.dumps({"steps": parts[side]}))
        if parts[f"{side}_state"] is not None:
            save_file(
                {k: np.asarray(v, dtype=np.float32) for k, v in parts[f"{side}_state"].items()},
                root / f"{side}.safetensors",
            )
    (root / "model.safetensors").write_bytes(b"weights are not looked into")
    return root


def _other_names(parts: dict[str, Any]) -> None:
    for side in ("pre_state", "post_state"):
        parts[side] = {f"so100.buffer.{k}": v for k, v in parts[side].items()}


POLICIES: dict[str, Callable[[dict[str, Any]], object]] = {
    "normalisation_inert": _other_names,
    "normalised_twice": lambda p: p["pre"].append(p["pre"][0]),
    "scaling_differs": lambda p: p["post_state"].update({"action.std": np.array([9.0, 9.0, 9.0])}),
    "scaling_modes_differ": (
        lambda p: p["train"]["policy"]["normalization_mapping"].update({"ACTION": "MIN_MAX"})
    ),
    "scaling_mode_unknown": lambda p: p["config"]["normalization_mapping"].update({"ACTION": "SOMETHING"}),
    "policy_files_missing": lambda p: p.update({"pre_state": None}),
    "constant_dimensions": (
        lambda p: p["pre_state"].update({"observation.state.std": np.array([0.5, 0.0, 0.5])})
    ),
    "names_differ": lambda p: p["config"].update({"repo_id": "c/d"}),
}


@pytest.mark.parametrize("code", POLICIES)
def test_a_fault_in_a_policy_folder_is_found_and_an_honest_one_has_none(code: str, tmp_path: Path) -> None:
    clean = checked(policy_folder(tmp_path / "clean"))
    assert codes(clean) == {"units_not_recorded", "statistics_incomplete", "dimensions_unnamed"}
    assert code in codes(checked(policy_folder(tmp_path / "faulty", POLICIES[code])))


def test_inert_keys_are_named_with_the_statistics_that_are_there(tmp_path: Path) -> None:
    report = checked(policy_folder(tmp_path / "p", _other_names))
    finding = next(f for f in report.findings if f.code == "normalisation_inert")
    assert "inert for observation.state, action" in finding.sentence
    assert "so100.buffer.action" in finding.sentence


# --- trial logs ------------------------------------------------------------------------------------------------------


def table(path: Path, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([header, *rows])
    return path


def test_trials_are_counted_by_arm_with_their_interval_and_voids_apart(tmp_path: Path) -> None:
    rows = [[k, "a" if k % 2 else "b", int(k < 12), "" if k < 12 else "drop"] for k in range(20)] + [
        [20, "a", "", "INFRA"]
    ]
    table(tmp_path / "trials.csv", ("trial", "policy", "success", "failure_mode"), rows)
    report = checked(tmp_path)
    assert report.is_clean
    arm = report.measurements["arms"]["a"]
    assert (arm["success"], arm["n"], arm["void"], arm["failure_modes"]) == (6, 10, 1, {"drop": 4})
    assert arm["interval"] == [pytest.approx(0.3127, abs=1e-3), pytest.approx(0.8318, abs=1e-3)]
    assert codes(report) == {"void_trials"}


TRIALS: dict[str, tuple[tuple[str, ...], list[list[Any]]]] = {
    "outcomes_blank": (("trial", "policy", "success"), [[k, "a", ""] for k in range(6)]),
    "outcomes_missing": (("trial", "policy", "success"), [[k, "a", 1 if k else ""] for k in range(6)]),
    "failure_code_on_success": (
        ("trial", "success", "failure_mode"),
        [[k, 1, "E4" if k == 2 else ""] for k in range(6)],
    ),
    "failure_without_code": (
        ("trial", "success", "failure_mode"),
        [[k, k % 2, "E4" if k == 2 else ""] for k in range(6)],
    ),
    "outcome_contradicted": (
        ("trial", "success", "placed"),
        [[k, k % 2, "yes" if k % 2 and k != 3 else "no"] for k in range(12)],
    ),
    "trial_is_no_key": (("trial", "success"), [[1, k % 2] for k in range(6)]),
    "trials_capped": (
        ("trial", "success", "n_frames"),
        [[k, k % 2, 1794 if k in (0, 2, 4) else 500 + k] for k in range(10)],
    ),
    "label_noise": (("trial", "success", "failure_mode"), [[k, 0, "slip (probably)"] for k in range(4)]),
    "units_in_text": (
        ("trial", "success", "grasp"),
        [[k, k % 2, f"2.{k} s (lift +41.2, 4.1° high)"] for k in range(4)],
    ),
    "second_scoring_missing": (
        ("trial", "stage_live", "stage_video", "mechanism"),
        [[k, "S" if k else "R", "", "—" if k else "NG"] for k in range(4)],
    ),
    "aggregate_only": (("condition", "trials", "successes"), [["a", 50, 45], ["b", 50, 40]]),
    "total_row": (
        ("condition", "trials", "successes"),
        [["a", 50, 45], ["b", 50, 40], ["everything", 100, 85]],
    ),
    "no_outcome_per_trial": (("episode_id", "policy"), [[k, "a"] for k in range(5)]),
    "arm_confounded_with_date": (
        ("episode_id", "policy", "utc_date"),
        [[k, "a" if k < 9 else "b", f"2026-03-{k // 3 + 1:02d}"] for k in range(18)],
    ),
    "two_clocks": (
        ("episode_id", "policy", "created_ns", "first_ns"),
        [[k, "a", 1774342697081461155 + k, 161315531767930 + k] for k in range(5)],
    ),
    "clock_regimes": (
        ("episode_id", "policy", "offset_ns"),
        [[k, "a", 1e18 + k + 1e15 * (k > 2)] for k in range(6)],
    ),
    "literal_markers": (
        ("episode_id", "policy", "device"),
        [[k, "a", "<missing>" if k else "string:cuda"] for k in range(5)],
    ),
}


@pytest.mark.parametrize("code", TRIALS)
def test_a_fault_in_a_trial_log_is_found(code: str, tmp_path: Path) -> None:
    table(tmp_path / "trials.csv", *TRIALS[code])
    assert code in codes(checked(tmp_path))


def test_a_sum_row_is_not_counted_and_a_blank_outcome_is_no_failure(tmp_path: Path) -> None:
    table(tmp_path / "a.csv", *TRIALS["total_row"])
    table(tmp_path / "b.csv", *TRIALS["outcomes_blank"])
    report = checked(tmp_path)
    assert report.measurements["tables"]["a.csv"]["total"]["n"] == 100
    assert report.measurements["arms"] == {}


@pytest.mark.parametrize("text", ["a,b\n1,2,3\n", "", "a\xff".encode("latin-1").decode("latin-1")])
def test_a_table_that_is_none_is_refused_in_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(text, encoding="latin-1")
    with pytest.raises(DataError, match=r"t\.csv|known") as refused:
        check_foreign(tmp_path)
    assert "\n" not in str(refused.value)


# --- paired rates ----------------------------------------------------------------------------------------------------


def test_paired_rates_are_correlated_again_and_a_wrong_printed_one_is_named(tmp_path: Path) -> None:
    rows = [
        ["push", p, r, s] for p, r, s in (("a", 0.1, 0.2), ("b", 0.4, 0.5), ("c", 0.5, 0.4), ("d", 0.9, 0.8))
    ]
    path = table(tmp_path / "pairs.csv", ("task", "policy", "real_success", "sim_success"), rows)
    report = checked(tmp_path)
    group = report.measurements["tables"]["pairs.csv"]["groups"]["push"]
    assert group["pearson_r"] == pytest.approx(np.corrcoef([0.1, 0.4, 0.5, 0.9], [0.2, 0.5, 0.4, 0.8])[0, 1])
    assert group["mmrv"]["real gap, >"] == pytest.approx(0.05)
    assert report.is_clean
    for printed, wrong in (("0.958", False), ("0.500", True)):
        path.write_text(
            f"# Push n=4 computed 1 printed {printed}\n"
            + path.read_text().split("\n", path.read_text().startswith("#"))[-1]
        )
        assert ("printed_correlation_differs" in codes(checked(tmp_path))) is wrong


def test_percent_and_fractions_are_told_apart(tmp_path: Path) -> None:
    for name, scale in (("a.csv", 1.0), ("b.csv", 100.0)):
        table(
            tmp_path / name,
            ("task", "real_success", "sim_success"),
            [["t", scale * v, scale * v] for v in (0.1, 0.5, 0.9)],
        )
    report = checked(tmp_path)
    assert "scales_differ" in codes(report)
    assert {d["scale"] for d in report.measurements["tables"].values()} == {"percent", "fraction"}


# --- which kind, and the command line --------------------------------------------------------------------------------


def test_what_is_a_dataset_or_is_not_there_is_left_to_the_data_check(tmp_path: Path) -> None:
    (tmp_path / "set" / "meta").mkdir(parents=True)
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "demo.hdf5").write_bytes(b"")
    (tmp_path / "demo" / "config.json").write_text("{}")
    for path in (tmp_path / "set", tmp_path / "demo", tmp_path / "absent"):
        assert recognise(path) is FolderKind.EPISODES
        assert check_foreign(path) is None


def test_a_folder_of_something_else_is_refused_with_what_is_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table(tmp_path / "shopping.csv", ("item", "price"), [["milk", 2]])
    assert main(["data", "check", str(tmp_path)]) == 3
    error = capsys.readouterr().err
    assert "control.csv" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("kind", ["statistics", "actuators", "policy", "trials", "pairs"])
def test_the_command_shows_every_kind_and_prints_one_document(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "x"
    if kind == "statistics":
        root.mkdir()
        stored(root)
    elif kind == "actuators":
        actuator_log(root / "swing")
    elif kind == "policy":
        policy_folder(root)
    elif kind == "trials":
        table(root / "t.csv", ("trial", "policy", "success"), [[k, "a", k % 2] for k in range(6)])
    else:
        table(root / "p.csv", ("task", "real_success", "sim_success"), [["t", v, v] for v in (0.1, 0.5, 0.9)])
    code = main(["data", "check", str(root), "--json"])
    document = json.loads(capsys.readouterr().out)
    assert document["kind"] == "data_check"
    assert code == (0 if document["is_clean"] else 1)
    assert main(["data", "check", str(root)]) == code
    assert main(["data", "info", str(root), "--json"]) == 0
    assert document["layout"]["what"] in capsys.readouterr().out


# --- real ones: every fact of the notes beside them ------------------------------------------------------------------


def test_published_pairs_are_recomputed() -> None:
    report = checked(real("pairs_sim_real_published"))
    tables = report.measurements["tables"]
    assert report.counts == {"tables": 7, "pairs": 219}
    groups = tables["source-real2sim-eval-fig9-200ep.csv"]["groups"]
    assert {g: round(v["pearson_r"], 3) for g, v in groups.items()} == {
        "toy_packing": 0.897,
        "rope_routing": 0.918,
        "t_block_pushing": 0.95,
    }
    assert [round(v["mmrv"]["sim gap, >"], 4) for v in groups.values()] == [0.105, 0.1535, 0.0697]
    assert [round(v["mmrv"]["real gap, <"], 4) for v in groups.values()] == [0.1324, 0.1241, 0.075]
    assert tables["source-real2sim-eval-fig9-200ep.csv"]["counts"]["real"]["n"] == [16, 20, 27]
    assert tables["source-real2sim-eval-fig9-200ep.csv"]["counts"]["sim"]["n"] == [200]
    assert {n: t["scale"] for n, t in tables.items() if t.get("scale") == "percent"}.keys() == {
        "source-colosseum-v2.csv",
        "source-molmospaces.csv",
        "source-real2sim-eval-fig3-checkpoints.csv",
    }
    assert min(t["comment_lines"] for t in tables.values()) >= 10
    assert set(numbers_of(report, "printed_correlation_differs")) == {
        "Collect Toy",
        "Handover Block",
        "Strike Block",
    }
    assert all(
        g["spearman_rho"] == pytest.approx(g["printed_rho"])
        for g in tables["source-recipe-rankings.csv"]["groups"].values()
    )


def test_a_policy_whose_statistics_are_pointers_is_described_and_does_not_pass() -> None:
    report = checked(real("policy_act_so101_robopour"))
    assert {"statistics_file_is_lfs_pointer", "weights_are_lfs_pointer"} <= codes(report, Severity.FAULT)
    assert {"units_not_recorded", "names_differ"} <= codes(report)
    layout = report.layout
    assert (
        layout["policy"],
        layout["chunk_size"],
        layout["features"]["action"],
        layout["features"]["observation.state"],
    ) == ("act", 100, [6], [6])
    assert layout["cameras"] == {
        "observation.images.top": [3, 720, 1280],
        "observation.images.wrist": [3, 1080, 1920],
    }
    assert set(layout["normalization_mapping"].values()) == {"MEAN_STD"}
    steps = {(s["pipeline"], s["step"]): s for s in report.measurements["processors"] if s["is_normaliser"]}
    assert (
        steps["policy_preprocessor", 3]["state_file"]
        == "policy_preprocessor_step_3_normalizer_processor.safetensors"
    )
    assert (
        steps["policy_postprocessor", 0]["state_file"]
        == "policy_postprocessor_step_0_unnormalizer_processor.safetensors"
    )
    assert {f["bytes"] for f in report.measurements["state_files"].values()} == {129}
    assert report.measurements["weights"]["bytes"] == 134
    training = report.measurements["training"]
    assert (training["dataset"], training["policy"], training["license"]) == (
        "ganatrask/rec2",
        "ganatrask/act_rec_1",
        None,
    )


def _noted_fits() -> list[tuple[str, str, float, float, float, float, float]]:
    """Return motion, joint, lag ms, scale, offset, R2 and rmse of the table in the notes, joints that moved only."""
    rows = []
    for line in (real("sage_so101_actuator_logs") / "SOURCE.md").read_text().splitlines():
        cells = [c.strip() for c in line.strip("|").split("|")]
        if len(cells) == 7 and cells[2].isdigit():
            r2, rmse = (float(part.split()[-1]) for part in cells[6].split(","))
            rows.append((cells[0], cells[1], float(cells[2]), float(cells[3]), float(cells[4]), r2, rmse))
    return rows


def test_every_fit_of_a_real_arm_is_found_as_its_notes_have_it() -> None:
    motions = checked(real("sage_so101_actuator_logs")).measurements["motions"]
    rows = _noted_fits()
    assert len(rows) == 30
    for motion, name, lag, scale, offset, r2, rmse in rows:
        joint = motions[motion]["joints"][name]
        # on a slow motion neighbouring lags fit alike
        sample = joint["lag_ms"]["up_to"] - joint["lag_ms"]["above"]
        assert joint["lag_ms"]["above"] - sample < lag <= joint["lag_ms"]["up_to"], (motion, name)
        assert (joint["scale"], joint["offset"]) == (
            pytest.approx(scale, abs=5e-4),
            pytest.approx(offset, abs=5e-4),
        ), (motion, name)
        assert (joint["r2"], joint["rmse"]) == (pytest.approx(r2, abs=1e-4), pytest.approx(rmse, abs=1e-4)), (
            motion,
            name,
        )
        assert joint["lag_is_resolved"] == (lag < 385)


def test_a_real_arms_units_rate_load_and_stiction_are_found_and_called_no_fault() -> None:
    report = checked(real("sage_so101_actuator_logs"))
    assert report.is_clean
    measured = report.measurements
    assert measured["clock"]["period_ms"] == pytest.approx(20.06, abs=0.005)
    assert measured["clock"]["time_unit"] == "us"
    assert (measured["units"]["position"]["unit"], measured["units"]["position"]["encoder_bits"]) == (
        "rad",
        12,
    )
    assert measured["units"]["encoder_step"]["Elbow"] == pytest.approx(0.00153, abs=1e-5)
    assert report.layout["joints"] == ["Rotation", "Pitch", "Elbow", "Wrist_Pitch", "Wrist_Roll", "Jaw"]
    assert len(report.layout["motions"]) == 8
    fast = measured["motions"]["fast_transitions"]
    assert fast["other_steps"]["torques"] == pytest.approx(0.0228, abs=1e-4)
    assert fast["start_command"]["Jaw"] == 0.5
    assert fast["clocks_are_identical"]
    assert [e["event"] for e in fast["events"]] == ["CONTROL_MODE_ENABLE", "MOTION_START", "DISABLE"]
    joints = measured["joints"]
    assert next(f for f in report.findings if f.code == "load").joints == ("Pitch", "Elbow")
    assert 0.03 < joints["Elbow"]["bias"]["mean"] < 0.08
    assert (joints["Elbow"]["scale"]["min"], joints["Jaw"]["scale"]["min"]) == (
        pytest.approx(0.6166, abs=1e-3),
        pytest.approx(0.9625, abs=1e-3),
    )
    assert joints["Jaw"]["lag_ms_up_to"]["max"] < 120
    assert measured["motions"]["slow_precision"]["joints"]["Jaw"]["state_range"] == 0.0
    assert {"stiction", "dead_band", "lag_not_identifiable", "command_and_state_share_stamps"} <= codes(
        report
    )
    assert not codes(report) & {"unit_mismatch", "sign_flip", "static_offset"}


def test_quantile_only_normalisers_are_described() -> None:
    report = checked(real("stats_cosmos_action_normalizers"))
    assert report.layout["dialect"] == "quantiles"
    assert len(report.layout["files"]) == 7
    blocks = report.measurements["statistics"]
    assert {b["dimensions"] for b in blocks.values()} == {10, 20}
    assert {b["layout"]["arms"] for b in blocks.values()} == {1, 2}
    assert all(b["statistics"] == ["q01", "q99"] for b in blocks.values())
    assert len(numbers_of(report, "statistics_incomplete")["blocks"]) == 7
    gains = numbers_of(report, "nearly_constant_dimensions")["gain"]
    assert {tuple(v) for v in gains.values()} == {(3, 7), (3, 7, 13, 17)}
    assert blocks["umi_lerobot_stats.json"]["gripper"][0]["high"] == pytest.approx(0.0967, abs=1e-4)
    assert blocks["droid_lerobot_stats.json"]["gain_if_not_applied"][0] == pytest.approx(69.6, abs=0.1)


def test_a_polluted_humanoid_normaliser_is_a_fault_with_its_numbers() -> None:
    report = checked(real("stats_openpi_humanoid"))
    blocks = report.measurements["statistics"]
    assert (report.layout["dialect"], blocks["state"]["dimensions"], blocks["actions"]["dimensions"]) == (
        "openpi",
        32,
        24,
    )
    assert blocks["state"]["constant"] == list(range(24, 32))
    assert (blocks["state"]["trailing_zeros"], blocks["actions"]["trailing_zeros"]) == (8, 0)
    assert blocks["state"]["std_min"] == {"dimension": 24, "value": 0.0}
    assert blocks["actions"]["std_min"] == {"dimension": 1, "value": pytest.approx(0.06994, abs=1e-5)}
    assert numbers_of(report, "padded_dimensions")["padding"] == {"state": {"dimensions": 32, "padding": 8}}
    polluted = numbers_of(report, "relative_targets_polluted")
    assert (polluted["slope"], polluted["correlation"]) == (
        pytest.approx(-0.50, abs=0.005),
        pytest.approx(-0.9996, abs=1e-4),
    )
    assert 1.0 <= polluted["std_over_mixture"]["min"] < polluted["std_over_mixture"]["max"] < 1.35
    noted = [
        1.38,
        1.38,
        5.18,
        11.02,
        0.89,
        1.76,
        1.37,
        6.85,
        2.82,
        1.15,
        1.7,
        5.45,
        1.11,
        1.31,
        7.44,
        1.19,
        1.3,
        7.39,
        1.29,
        1.32,
        7.64,
        1.36,
        1.23,
        7.48,
    ]
    assert blocks["actions"]["std_over_state"] == pytest.approx(noted, abs=0.006)
    assert "dimensions_unnamed" in codes(report)


def test_statistics_of_28_sets_are_described_as_their_notes_have_it() -> None:
    report = checked(real("stats_openvla_oxe_nora"))
    assert (report.layout["dialect"], report.counts["groups"], report.counts["blocks"]) == ("openvla", 28, 56)
    blocks = report.measurements["statistics"]
    constant = {
        n.split("/")[0]: v for n, v in numbers_of(report, "constant_dimensions")["dimensions"].items()
    }
    noted = {
        "austin_buds": [3, 4, 5],
        "austin_sailor": [3, 4],
        "austin_sirius": [3, 4],
        "berkeley_cable_routing": [3, 4],
        "berkeley_fanuc": [4],
    }
    noted |= {"cmu_stretch": [1, 3, 4, 5], "jaco_play": [3, 4, 5], "kuka": [3, 4]}
    assert {n: next(v for k, v in constant.items() if k.startswith(n)) for n in noted} == noted
    assert len(constant) == len(noted)
    assert [round(r) for r in blocks["dobbe/action"]["max_over_q99"][:3]] == [3801, 1044, 671]
    assert blocks["fractal20220817_data/action"]["max_over_q99"][1] == pytest.approx(148, abs=1)
    assert [round(r) for r in blocks["bridge_orig/action"]["max_over_q99"][3:6]] == [38, 24, 31]
    assert set(numbers_of(report, "constant_gripper")["dimensions"]) == {
        "berkeley_cable_routing/action",
        "toto/action",
    }
    assert len(numbers_of(report, "statistics_not_recorded")["blocks"]) == 28
    assert numbers_of(report, "whole_turn_steps")["dimensions"]["bridge_orig/action"] == [5]
    assert "units_differ_between_sets" in codes(report)
    assert blocks["bridge_orig/action"]["not_normalised"] == [6]
    gripper = blocks["bridge_orig/action"]["gripper"][0]
    assert (gripper["low"], gripper["high"], gripper["is_binary"]) == (0.0, 1.0, True)
    assert report.measurements["groups"]["bridge_orig"]["num_trajectories"] == 60064
    assert sum(name.startswith("libero") for name in report.measurements["groups"]) == 3


def test_aggregated_trials_are_not_summed_twice_and_a_template_is_missing() -> None:
    report = checked(real("trials_battery_picker_aggregate"))
    results = report.measurements["tables"]["results/trials.csv"]
    assert (results["total"]["success"], results["total"]["n"], results["sum_with_total_rows"]) == (
        172,
        200,
        400,
    )
    assert results["total_rows"] == ["Overall"]
    assert len(results["conditions"]) == 4
    assert results["stored_rate"]["decimals"] == 2
    template = report.measurements["tables"]["first_commit_template/results/trials.csv"]
    assert (template["kind"], template["outcomes"]) == ("template", {"missing": 15})
    assert {"aggregate_only", "total_row", "outcomes_blank"} <= codes(report)


def test_rollouts_without_outcomes_give_their_clocks_and_their_confounding() -> None:
    report = checked(real("trials_phail_rollout_metadata"))
    tables = report.measurements["tables"]
    fields, regimes = (
        tables["projection-h194-phail-server-fields.csv"],
        tables["projection-h206-phail-clock-offset-regimes.csv"],
    )
    assert fields["arms"] == {"groot": 164, "smolvla": 116, "openpi": 163, "act": 151}
    assert sum(fields["arms"].values()) == 594
    assert fields["markers"].keys() == {"<missing>", "string:"}
    assert regimes["clocks"] == {"created_ts_ns": "unix", "first_timestamp_ns": "monotonic"}
    assert [r["n"] for r in regimes["clock_regimes"]] == [250, 344]
    start = tables["projection-h202-phail-initial-joint-state.csv"]["initial_state"]
    assert (len(start["joints"]), start["n"], start["unit"]) == (7, 594, "rad")
    days = fields["dates"]["by_day"]
    assert {a for d, c in days.items() if d <= "2026-03-17" for a in c} == {"act", "openpi"}
    assert {d for d, c in days.items() if "smolvla" in c} <= {f"2026-03-{k}" for k in range(19, 30)}
    assert min(d for d, c in days.items() if "groot" in c) == "2026-03-20"
    assert not any("act" in c for d, c in days.items() if d >= "2026-04-03")
    assert {
        "arm_confounded_with_date",
        "two_clocks",
        "clock_regimes",
        "literal_markers",
        "paths_not_here",
        "no_outcome_per_trial",
    } <= codes(report)


def test_two_methods_and_their_strata_are_counted_with_the_inconsistencies_of_their_log() -> None:
    report = checked(real("trials_so101_pipeline_vs_act"))
    arms, tables = report.measurements["arms"], report.measurements["tables"]
    assert arms["hsv"]["success"] + arms["hf"]["success"] == 56
    assert arms["hsv"]["n"] + arms["hf"]["n"] == 78
    campaigns = {n.split("_")[-1][:6]: t for n, t in tables.items() if "imitation" in n}
    assert [campaigns[k]["outcomes"].get("success", 0) for k in ("180418", "184044", "190220", "113734")] == [
        6,
        9,
        6,
        0,
    ]
    assert arms["colab_model_lowres"]["failure_modes"]["I7"] == 5
    hz = [campaigns[k]["numbers"]["loop_hz_moyen"] for k in campaigns]
    assert (min(v[0] for v in hz), max(v[1] for v in hz)) == (21.9, 25.0)
    assert tables["saisie_pipeline/campagne_donnees.csv"]["strata"]["position"]["hf / proche"]["n"] == 13
    assert next(f for f in report.findings if f.code == "outcome_contradicted").numbers["failures"] == {
        "success": 22,
        "depose_boite": 23,
    }
    on_success = {
        f.sentence.split(":")[0].split("_")[-1]: f.numbers["codes"]
        for f in report.findings
        if f.code == "failure_code_on_success"
    }
    assert on_success == {"184044.csv": ["I8", "I8"], "donnees.csv": ["E4"]}
    bare = {
        f.sentence.split(":")[0].split("_")[-1]: f.numbers["n"]
        for f in report.findings
        if f.code == "failure_without_code"
    }
    assert bare == {"190220.csv": 1, "donnees.csv": 2}
    assert "trial_is_no_key" in codes(report)
    assert next(f for f in report.findings if f.code == "trials_capped").numbers["limit"] == 1794
    assert not campaigns["180418"]["is_ascii"]


def test_a_paired_trial_log_gives_counts_modes_voids_and_what_was_never_scored() -> None:
    report = checked(real("trials_so101_tube_insertion_v2"))
    arms = report.measurements["arms"]
    assert [(a["success"], a["n"], a["void"]) for a in arms.values()] == [(6, 20, 0), (5, 20, 1)]
    assert arms["ACT-A"]["failure_modes"] == {"NG": 6, "PECK": 1, "SLIP": 5, "JAM": 2}
    assert arms["ACT-B"]["failure_modes"] == {"NG": 12, "PECK": 1, "SLIP": 1, "undecided": 1}
    trials = report.measurements["tables"]["trials_v2.csv"]
    assert (trials["success_stage"], len(trials["blocks"])) == ("S", 8)
    assert all(len(set(order)) == 1 for order in trials["blocks"].values())
    assert numbers_of(report, "void_trials")["trials"] == ["29"]
    assert numbers_of(report, "second_scoring_missing")["columns"] == ["stage_video_final"]
    assert numbers_of(report, "units_in_text")["units"] == ["s", "°"]
    beside = report.measurements["files_beside"]["elbow_tracking.json"]
    assert (beside["bare_nan"], beside["verdict"], beside["units"]) == (12, "FAULT", ["deg"])
    assert {"json_with_nan", "label_noise", "reported_fault"} <= codes(report)


@pytest.mark.slow
def test_a_tub_of_a_real_car_gives_its_shares_and_says_that_its_clock_is_none() -> None:
    report = check_data(real("donkeycar_tub_official_test") / "tub")
    assert (report.layout["version"], report.counts["frames_found"], report.layout["sessions"]) == (
        "tub v2",
        1000,
        ["none"],
    )
    clock = report.measurements["clock"]["step_ms"]
    assert [round(clock[k]) for k in ("median", "min", "max")] == [3, 2, 21]
    action = report.measurements["statistics"]["action"]
    assert (action["min"][0], action["max"][0]) == (pytest.approx(-0.857, abs=1e-3), 1.0)
    assert (action["min"][1], action["max"][1]) == (
        pytest.approx(0.416, abs=1e-3),
        pytest.approx(0.804, abs=1e-3),
    )
    steering = report.measurements["values"]["exactly"]["steering.pos"]
    assert (steering["zero"], steering["at_most"]) == (0.2, 0.002)
    said = " ".join(f.sentence for f in report.findings if f.code == "assumed_by_reader")
    assert all(
        words in said
        for words in ("stamped when the tub was written", "manifest declares timestamp", "no measured state")
    )
    assert "rate_mismatch" in codes(report)


def test_published_statistics_of_datasets_show_their_faults_without_the_data() -> None:
    blocks = read_statistics(real("lerobot_dualarm_hands_open50_v30") / "meta" / "stats.json")
    _, findings = judge(blocks)
    assert {"impossible_std", "quantiles_are_episode_means", "constant_dimensions"} <= {
        f.code for f in findings
    }
