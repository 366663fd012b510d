"""What happens inside an episode and from one episode to the next: lost borders, slipped joints, conventions that change on the way."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from simgap.checks.data.motion.joints import check_motion
from simgap.checks.data.pooled import Pooled, pool
from simgap.checks.data.report import DataFinding, Severity
from simgap.checks.data.values.starts import check_starts
from simgap.episodes.reader import open_dataset
from simgap.measures.change_points import find_changes

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from planted_faults import as_deltas, changed, lagged, swapped
from planted_hosts import Arm, made_up, pooled_from

CASES = Path(__file__).parents[2] / "shared" / "cases"
Array = NDArray[np.float64]


@pytest.fixture(scope="module")
def arm(tmp_path_factory: pytest.TempPathFactory) -> Pooled:
    """Twelve episodes of one task, the pose alike in all."""
    return pooled_from(made_up(Arm(varied=0.2, seconds=6.0), 5), tmp_path_factory.mktemp("arm") / "d")


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Pooled:
    """Three episodes at 10 Hz of two arms, one wrist of which hardly moves."""
    plan = Arm(
        episodes=3, rate_hz=10.0, lag_frames=1.5, sides=("left_", "right_"), still_joint=4, seconds=12.0
    )
    return pooled_from(made_up(plan, 6), tmp_path_factory.mktemp("few") / "d")


def found(pooled: Pooled) -> dict[str, DataFinding]:
    return {f.code: f for f in check_motion(pooled)[1]}


def loud(pooled: Pooled) -> set[str]:
    return {code for code, f in found(pooled).items() if f.severity is not Severity.NOTE}


def as_one(pooled: Pooled, lengths: Iterator[int]) -> tuple[Pooled, list[int]]:
    """Store all episodes, cut to drawn lengths, as one; return the frames of the lost borders."""
    cut = [{k: v[:n] for k, v in e.items()} for e, n in zip(pooled.episodes, lengths, strict=False)]
    whole = {k: np.concatenate([e[k] for e in cut]) for k in cut[0]}
    frames = np.cumsum([len(e[pooled.dataset.action_key]) for e in cut])
    return (
        replace(
            pooled,
            episodes=(whole,),
            indices=pooled.indices[:1],
            lengths={pooled.indices[0]: int(frames[-1])},
        ),
        frames[:-1].tolist(),
    )


def test_healthy_arms_have_no_finding_above_a_note(arm: Pooled, few: Pooled) -> None:
    assert loud(arm) == set()
    assert loud(few) == set()


@pytest.mark.parametrize("host", ["arm", "few"])
def test_several_recordings_in_one_episode_are_cut_at_their_frames_and_keep_their_lag(
    host: str, request: pytest.FixtureRequest
) -> None:
    pooled = request.getfixturevalue(host)
    rng = np.random.default_rng(1)
    shortest = min(pooled.lengths.values())
    whole, frames = as_one(pooled, (int(n) for n in rng.integers(shortest // 2, (2 * shortest) // 3, 99)))
    findings = found(whole)
    assert findings["lost_borders"].numbers["frames"] == {"0": frames}
    assert str(frames[0]) in findings["lost_borders"].sentence
    plain = {n: t["lag_frames"] for n, t in check_motion(pooled)[0].items() if t["r2"] and t["r2"] > 0.99}
    now = {n: t["lag_frames"] for n, t in check_motion(whole)[0].items()}
    assert all(abs(now[n] - lag) <= 1 for n, lag in plain.items())
    assert {"saturation", "long_lag"} & set(findings) == set()


def test_the_case_of_several_episodes_in_one_names_nineteen_borders() -> None:
    folder = CASES / "several_episodes_in_one"
    if not folder.is_dir():
        pytest.skip(f"{folder} is not here; the same fault is planted above")
    findings = found(pool(open_dataset(folder)))
    assert findings["lost_borders"].numbers["frames"] == {"0": [57 * k for k in range(1, 20)]}
    assert "every 57 frames" in findings["lost_borders"].sentence
    assert {"saturation", "long_lag"} & set(findings) == set()


def test_a_joint_that_slips_inside_an_episode_is_named_with_frame_and_size(arm: Pooled) -> None:
    frame = 100

    def slip(episode: int, values: Array) -> Array:
        return values + np.where((np.arange(len(values)) >= frame) & (episode == 3), 20.0, 0.0)

    pooled = changed(arm, "state", "wrist_roll.pos", slip)
    rests = np.abs(np.diff(arm.states[3][frame - 4 : frame + 4, 4])).max() < 1.0
    if rests:
        assert found(pooled)["joint_slips"].numbers["wrist_roll.pos"]["3"][str(frame)] == pytest.approx(
            20.0, abs=1.5
        )


@pytest.mark.parametrize("side", ["action", "state", "both"])
@pytest.mark.parametrize("first", [3, 6])
def test_a_zero_that_moves_by_ten_degrees_is_named_with_its_episode(
    side: str, first: int, arm: Pooled
) -> None:
    pooled = changed(arm, side, "elbow_flex.pos", lambda e, v: v + (10.0 if e >= first else 0.0))
    finding = found(pooled)["recalibrated_midway"]
    assert finding.severity is not Severity.NOTE
    assert finding.joints == ("elbow_flex.pos",)
    numbers = finding.numbers["elbow_flex.pos"]
    assert numbers["episode_low"] <= first <= numbers["episode_high"]
    assert abs(numbers["size"]) == pytest.approx(10.0, abs=1.5)
    assert "static_offset" not in found(pooled)


def test_a_zero_of_few_episodes_is_told_on_one_side(few: Pooled) -> None:
    pooled = changed(few, "state", "left_shoulder_pan.pos", lambda e, v: v + (10.0 if e >= 1 else 0.0))
    assert found(pooled)["recalibrated_midway"].joints == ("left_shoulder_pan.pos",)


CHANGES: dict[str, Callable[[Pooled], Pooled]] = {
    "pairing_changes": lambda p: changed(p, "state", "shoulder_lift.pos", lambda e, v: -v if e >= 5 else v),
    "range_changes": lambda p: changed(
        p, "both", "shoulder_lift.pos", lambda e, v: v * np.pi / 180 if e >= 5 else v
    ),
}


@pytest.mark.parametrize("code", CHANGES)
def test_a_sign_or_a_unit_that_changes_on_the_way_is_named_with_its_episode(code: str, arm: Pooled) -> None:
    finding = found(CHANGES[code](arm))[code]
    assert finding.joints == ("shoulder_lift.pos",)
    assert finding.numbers["shoulder_lift.pos"]["episode"] == 5
    assert "from episode 5 on" in finding.sentence


@pytest.mark.parametrize("rows", [1, 3])
def test_rows_that_are_lost_on_one_side_are_named_where_the_pairing_shifts(rows: int, arm: Pooled) -> None:
    key = arm.dataset.state_key
    episodes = [dict(e) for e in arm.episodes]
    for k in range(7, len(episodes)):
        start = 40 if k == 7 else 0
        state = episodes[k][key]
        late = np.concatenate(
            [state[:start], np.repeat(state[start : start + 1], rows, axis=0), state[start:-rows]]
        )
        episodes[k][key] = late
    finding = found(replace(arm, episodes=tuple(episodes)))["pairing_shifts"]
    assert finding.severity is Severity.FAULT
    assert finding.numbers["frames_after"] - finding.numbers["frames_before"] == pytest.approx(rows, abs=0.4)
    assert finding.numbers["episode"] in (7, 8)


def test_a_joint_that_hardly_moves_has_no_lag_and_limbs_have_one_with_an_interval(few: Pooled) -> None:
    finding = found(few)["lag"]
    groups = finding.numbers["groups"]
    assert {"left arm", "right arm"} <= set(groups)
    for g in groups.values():
        assert "left_wrist_roll.pos" not in g["joints"]
        assert g["low"] <= g["frames"] <= g["high"]
    assert "95 % interval" in finding.sentence


@pytest.mark.parametrize("frames", [1, 2, 5])
def test_a_lag_lies_in_its_interval(frames: int, arm: Pooled) -> None:
    plain = found(arm)["lag"].numbers["groups"]["arm"]
    groups = next(f for c, f in found(lagged(arm, frames)).items() if c in ("lag", "long_lag")).numbers[
        "groups"
    ]["arm"]
    assert groups["low"] - 0.3 <= plain["frames"] + frames <= groups["high"] + 0.3


@pytest.mark.parametrize("kind", ["step", "distance"])
def test_differences_under_the_name_of_positions_are_a_warning(kind: str, arm: Pooled) -> None:
    names = ("shoulder_pan.pos", "elbow_flex.pos")
    finding = found(as_deltas(arm, names, kind))["actions_are_differences"]
    assert finding.severity is Severity.WARNING
    assert set(finding.joints) == set(names)
    assert "sign_flip" not in found(as_deltas(arm, names, kind))


@pytest.mark.parametrize("side", ["action", "state"])
def test_jaws_whose_polarity_is_turned_are_told_from_a_sign(side: str, arm: Pooled) -> None:
    finding = found(changed(arm, side, "gripper.pos", lambda _, v: 100.0 - v))["gripper_polarity"]
    assert finding.severity is Severity.FAULT


def test_swapped_columns_are_named_both(arm: Pooled) -> None:
    assert set(
        found(swapped(arm, "state", "shoulder_pan.pos", "wrist_flex.pos"))["columns_swapped"].joints
    ) == {"shoulder_pan.pos", "wrist_flex.pos"}


def test_episodes_that_begin_where_the_one_before_ended_are_named_and_a_common_start_is_not(
    arm: Pooled,
) -> None:
    assert check_starts(arm) == []
    pieces = [
        {k: v[len(v) * i // 3 : len(v) * (i + 1) // 3] for k, v in e.items()}
        for e in arm.episodes[:3]
        for i in range(3)
    ]
    chained = replace(arm, episodes=tuple(pieces), indices=tuple(range(len(pieces))))
    assert [f.code for f in check_starts(chained)] == ["chained_starts"]


def _alarms(length: int, tries: int, kind: str) -> int:
    rng = np.random.default_rng(length)
    alarms = 0
    for _ in range(tries):
        draw = rng.normal if kind == "normal" else rng.standard_cauchy
        series = {f"j{k}": np.asarray(draw(size=length)) for k in range(6)}
        alarms += bool(find_changes(series, dict.fromkeys(series, 1.0), rng))
    return alarms


@pytest.mark.slow
def test_series_without_a_change_are_called_changed_once_in_a_hundred() -> None:
    assert _alarms(14, 60, "normal") <= 3
    assert _alarms(4, 60, "normal") <= 6


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["normal", "cauchy"])
def test_false_alarms_keep_their_level_over_all_joints(kind: str) -> None:
    assert _alarms(20, 600, kind) <= 15
    assert _alarms(12, 600, kind) <= 15
