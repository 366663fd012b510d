"""Statistics by kind: bands, tails, rotations, relative twice, statistics by episode; a fault is named, what is healthy stays silent."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from simgap.artefacts.read import check_foreign
from simgap.checks.data.dataset import DataReport, Severity, check_data
from simgap.checks.data.statistics.forms import bounded_rows
from simgap.checks.data.statistics.rules import judge
from simgap.checks.data.statistics.tails import band_excess, tail_rms
from simgap.cli import main
from simgap.episodes.reader import open_dataset
from simgap.episodes.statistics.exact import exact_statistics
from simgap.episodes.statistics.files import StatisticsBlock
from test_data_check_layouts import write_21
from test_data_check_planted import clean, write

CASES = Path(__file__).parents[2] / "shared" / "cases"
Array = NDArray[np.float64]
NAMES = ("min", "max", "mean", "std", "q01", "q99")


def case(name: str) -> DataReport:
    if not (CASES / name).exists():
        pytest.skip(f"NOT RUN: {CASES / name} is not there")
    report = check_foreign(CASES / name)
    assert report is not None
    return report


def block(values: Array, key: str = "actions", **more: Any) -> StatisticsBlock:
    exact = exact_statistics(values)
    return StatisticsBlock(
        file="f.json",
        group="",
        key=key,
        values={k: np.asarray(exact[k]) for k in NAMES},
        count=len(values),
        **more,
    )


def loud(*blocks: StatisticsBlock) -> set[str]:
    return {f.code for f in judge(blocks)[1] if f.severity is not Severity.NOTE}


def said(code: str, *blocks: StatisticsBlock) -> Any:
    return next(f for f in judge(blocks)[1] if f.code == code)


def test_a_band_left_of_zero_is_healthy() -> None:
    assert case("stats_band_left_of_zero.json").is_clean


def test_a_standard_deviation_that_no_band_gives_names_the_dimension_and_where_the_rest_lies() -> None:
    report = case("stats_heavy_tail_no_minmax.json")
    assert {f.code for f in report.findings if f.severity is not Severity.NOTE} == {"heavy_tail"}
    tail = report.findings[0].numbers["tails"]["actions"]
    assert list(tail) == [1]
    assert tail[1]["rms_outside"] == pytest.approx(((0.09**2 - 0.98 * 0.055**2) / 0.02) ** 0.5)
    assert "0.507" in report.findings[0].sentence


@pytest.mark.parametrize("draw", ["normal", "laplace", "uniform", "exponential", "standard_t"])
@pytest.mark.parametrize("shift", [-40.0, 0.0, 0.9])
def test_honest_distributions_have_neither_outliers_nor_tails_wherever_they_lie(
    draw: str, shift: float
) -> None:
    rng = np.random.default_rng(1)
    values = getattr(rng, draw)(*((5,) if draw == "standard_t" else ()), size=(50_000, 3)) + shift
    assert not loud(block(values)) & {"outliers", "heavy_tail", "impossible_std", "contradictory_statistics"}


@pytest.mark.parametrize("shift", [-40.0, 0.0, 1e4])
def test_a_broken_frame_is_an_outlier_wherever_the_band_lies(shift: float) -> None:
    values = np.random.default_rng(2).normal(size=(20_000, 3)) + shift
    values[7, 1] += 200.0
    found = said("outliers", block(values)).numbers["band_widths"]["actions"]
    assert list(found) == [1]


def test_the_tail_bound_never_exceeds_what_is_there() -> None:
    rng = np.random.default_rng(3)
    for share, size in ((0.004, 30.0), (0.009, 8.0), (0.0005, 400.0)):
        values = rng.normal(0, 0.02, (40_000, 1))
        far = rng.random(40_000) < share
        values[far] += size * rng.choice([-1.0, 1.0], (int(far.sum()), 1))
        b = block(values)
        outside = (values < b.values["q01"]) | (values > b.values["q99"])
        true = float(np.sqrt(((values[outside] - values.mean()) ** 2).mean()))
        assert 0.5 * true < tail_rms(b)[0] <= 1.001 * true
        assert band_excess(b)[0] > 5


def rotations(n: int, largest: float) -> tuple[Array, Array]:
    """Return the first two rows of rotation matrices and their quaternions."""
    from scipy.spatial.transform import Rotation

    turns = Rotation.from_rotvec(np.random.default_rng(4).normal(0, largest, (n, 3)))
    return turns.as_matrix()[:, :2].reshape(n, 6), turns.as_quat()


@pytest.mark.parametrize("largest", [0.02, 0.5])
def test_rows_of_rotations_are_recognised_by_their_length_and_are_no_outliers(largest: float) -> None:
    rng = np.random.default_rng(5)
    six, four = rotations(20_000, largest)
    six[0], four[0] = [-1, 0, 0, 0, -1, 0], [1, 0, 0, 0]
    angle = rng.uniform(-0.3, 0.3, 20_000)
    values = np.column_stack([rng.normal(0, 0.3, (20_000, 3)), six, four, np.sin(angle), np.cos(angle)])
    b = block(values)
    assert bounded_rows(b) == set(range(3, 15))
    assert loud(b) == set()


def test_three_joints_are_no_rotation() -> None:
    assert bounded_rows(block(np.random.default_rng(6).normal(0, 0.4, (5000, 7)))) == set()


def state_and(change: Callable[[Array, Array], Array]) -> tuple[StatisticsBlock, StatisticsBlock]:
    """Return statistics of a state and of actions made from it and its targets."""
    rng = np.random.default_rng(7)
    state = (
        np.array([0.4, -1.2, 0.9, 1.5, -0.8, 0.3]) + np.cumsum(rng.normal(0, 0.02, (6000, 6)), axis=0) % 0.9
    )
    return block(state, "state"), block(change(state, state + rng.normal(0.01, 0.02, state.shape)))


def test_the_state_subtracted_twice_is_named_as_that_and_not_as_six_signs() -> None:
    blocks = state_and(lambda s, target: (target - s) - s)
    assert loud(*blocks) == {"deltas_taken_twice"}
    for healthy in (lambda s, target: target, lambda s, target: target - s):
        assert loud(*state_and(healthy)) == set()


def test_rows_tell_a_state_subtracted_twice_from_inverted_signs(tmp_path: Path) -> None:
    changes: dict[str, Callable[[Array, Array], Array]] = {
        "twice": lambda a, s: (a - s) - s,
        "sign": lambda a, s: -a,
        "once": lambda a, s: a - s,
    }
    said = {}
    for name, change in changes.items():
        recording = clean()
        recording = replace(
            recording,
            actions=[change(a, s) for a, s in zip(recording.actions, recording.states, strict=True)],
        )
        said[name] = {
            f.code
            for f in check_data(write(tmp_path / name, recording, is_ours=False)).findings
            if f.severity is Severity.FAULT
        }
    assert said == {"twice": {"deltas_taken_twice"}, "sign": {"sign_flip", "gripper_polarity"}, "once": set()}


def test_differences_beside_absolute_dimensions_are_noted() -> None:
    blocks = state_and(lambda s, target: np.column_stack([(target - s)[:, :5], target[:, 5:]]))
    assert said("mixed_references", *blocks).numbers["dimensions"]["actions"] == {
        "absolute": [5],
        "relative": [0, 1, 2, 3, 4],
    }
    assert loud(*blocks) == set()


def test_a_joint_that_sits_at_its_limit_is_noted_and_no_fault() -> None:
    values = np.minimum(np.random.default_rng(8).normal(1.2, 0.3, (5000, 3)), np.pi / 2)
    assert said("at_a_limit", block(values)).numbers["limits"]["actions"] == dict.fromkeys(range(3), "pi/2")
    assert loud(block(values)) == set()


def test_padding_to_a_models_width_is_no_fault() -> None:
    values = np.random.default_rng(9).normal(size=(4000, 32))
    values[:, 14:] = 0.0
    assert loud(block(values, "state"), block(values)) == set()
    assert said("padded_dimensions", block(values)).numbers["padding"]["actions"] == {
        "dimensions": 32,
        "padding": 18,
    }


def test_a_dimension_that_moves_in_few_frames_breaks_one_normaliser_and_not_the_others() -> None:
    values = np.random.default_rng(10).normal(size=(5000, 3))
    values[:, 1] = 0.0
    values[:20, 1] = 0.5
    numbers = said("constant_dimensions", block(values)).numbers
    assert numbers["by_normaliser"]["actions"] == {"QUANTILES": [1], "MIN_MAX": [], "MEAN_STD": []}
    assert numbers["move_in_few_frames"] == {"actions": [1]}


@pytest.mark.parametrize(
    ("statistic", "value", "code"),
    [
        ("std", 0.0, "contradictory_statistics"),
        ("std", 3.0, "impossible_std"),
        ("mean", 9.0, "contradictory_statistics"),
        ("q99", -0.9, "contradictory_statistics"),
        ("max", 3.4e38, "overflowed_statistics"),
        ("max", float("nan"), "contradictory_statistics"),
        ("std", float("inf"), "contradictory_statistics"),
    ],
)
def test_numbers_that_no_data_have_are_a_fault(statistic: str, value: float, code: str) -> None:
    b = block(np.random.default_rng(11).normal(0, 0.4, (4000, 5)))
    b.values[statistic][2] = value
    assert code in loud(b)


def test_without_a_mean_half_the_range_still_bounds_the_spread() -> None:
    values = {k: np.full(3, v) for k, v in (("min", -1.0), ("max", 1.0), ("std", 1.4))}
    assert "impossible_std" in loud(StatisticsBlock(file="f", group="", key="state", values=values))


def test_a_gripper_commanded_in_other_units_than_it_is_measured_in_is_noted_once() -> None:
    rng = np.random.default_rng(12)
    arm = rng.normal(0, 0.1, (4000, 6))
    opened = (rng.random((4000, 1)) < 0.4).astype(float)
    mask = np.array([True] * 6 + [False])
    action, state = (
        block(np.column_stack([arm, opened]), mask=mask),
        block(np.column_stack([arm, 0.08 * opened]), "state", mask=mask),
    )
    assert said("gripper_units_differ", action, state).numbers == {"action": 1.0, "state": 0.08}
    assert "gripper_ranges_differ" not in {f.code for f in judge((action, state))[1]}


# --- statistics by episode (v2.1) --------------------------------------------------------------------------------------


def with_episode_statistics(
    root: Path, change: Callable[[list[dict[str, Any]]], object] = lambda _: None
) -> Path:
    write_21(root)
    dataset = open_dataset(root)
    lines = [
        {
            "episode_index": e.index,
            "stats": {k: exact_statistics(v) for k, v in dataset.columns(e.index).items()},
        }
        for e in dataset.entries
    ]
    for line in lines:
        line["stats"] = {
            f: {k: v for k, v in s.items() if k in ("min", "max", "mean", "std", "count")}
            for f, s in line["stats"].items()
        }
    change(lines)
    (root / "meta" / "episodes_stats.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return root


def image(std: float, *, flat: bool = False) -> dict[str, Any]:
    values = {"min": 0.0, "max": 1.0, "mean": 0.4, "std": std}
    return {k: [v] * 3 if flat else [[[v]]] * 3 for k, v in values.items()} | {"count": [80]}


BY_EPISODE: dict[str, Callable[[list[dict[str, Any]]], object]] = {
    "episode_statistics_wrong": lambda lines: lines[1]["stats"]["action"]["mean"].__setitem__(2, 77.0),
    "episode_statistics_counts": lambda lines: lines[2]["stats"]["action"].__setitem__("count", [3]),
    "episode_statistics_lines": lambda lines: lines.pop(),
    "image_std_zero": lambda lines: [
        line["stats"].update({"observation.images.top": image(0.0)}) for line in lines
    ],
    "image_statistics_shape": lambda lines: [
        line["stats"].update({"observation.images.top": image(0.2, flat=True)}) for line in lines
    ],
    "contradictory_statistics": lambda lines: lines[0]["stats"]["action"]["min"].__setitem__(0, 1e4),
    "episode_statistics_unreadable": lambda lines: lines.append({"episode": 3}),
}


@pytest.mark.parametrize("code", BY_EPISODE)
def test_statistics_by_episode_are_read_and_a_fault_in_them_is_named(code: str, tmp_path: Path) -> None:
    assert code in {
        f.code
        for f in check_data(with_episode_statistics(tmp_path / "d", BY_EPISODE[code])).findings
        if f.severity is not Severity.NOTE
    }


def test_right_statistics_by_episode_say_nothing_and_the_whole_is_compared(tmp_path: Path) -> None:
    root = with_episode_statistics(tmp_path / "d")
    known = check_data(root).codes()
    assert not {c for c in known if "statistics" in c}
    whole = {
        k: exact_statistics(np.concatenate([open_dataset(root).columns(e)[k] for e in range(4)]))
        for k in ("action", "observation.state")
    }
    (root / "meta" / "stats.json").write_text(json.dumps(whole))
    assert check_data(root).codes() == known
    whole["action"]["max"][1] += 50.0
    (root / "meta" / "stats.json").write_text(json.dumps(whole))
    assert {"episode_statistics_against_stats", "stored_statistics_wrong"} <= check_data(root).codes()


def test_the_printed_remedy_writes_statistics_by_episode_that_are_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = with_episode_statistics(
        tmp_path / "d", lambda lines: (BY_EPISODE["episode_statistics_wrong"](lines), lines.pop())
    )
    remedy = next(f.remedy for f in check_data(root).findings if f.code == "episode_statistics_wrong")
    assert main(["data", "stats", str(root)]) == 1
    assert main(remedy.partition("simgap ")[2].split()) == 0
    assert not {c for c in check_data(root).codes() if c.startswith("episode_statistics")}
    assert main(["data", "stats", str(root)]) == 0
    capsys.readouterr()


def test_a_file_of_statistics_by_episode_alone_is_checked_too(tmp_path: Path) -> None:
    root = with_episode_statistics(tmp_path / "d", BY_EPISODE["contradictory_statistics"])
    (tmp_path / "alone").mkdir()
    (root / "meta" / "episodes_stats.jsonl").rename(tmp_path / "alone" / "episodes_stats.jsonl")
    report = check_foreign(tmp_path / "alone")
    assert report is not None
    assert "contradictory_statistics" in report.codes()
    assert report.layout["what"] == "statistics"
