"""Public reports of policies blamed for a convention, each rebuilt small: the check says what was wrong, numbers included.

Every planted fault has a clean control beside it, on which the same check stays silent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from simgap import causes
from simgap.checks.data.dataset import DataReport, Severity, check_data
from simgap.checks.replay import open_loop as replay
from simgap.checks.replay.convention import check_convention
from simgap.checks.replay.open_loop import check_replay
from simgap.conventions import SO101_JOINTS, CalibratedRange, Conversion, Dimension, Unit, VectorSpec
from simgap.episodes.formats.layout import data_path
from simgap.errors import DataError, UsageError
from simgap.findings import CheckResult, Verdict
from simgap.measures.gripper import agreement
from simgap.measures.rotation import check_rotation, turn
from simgap.provenance import canonical_json
from test_data_check_planted import Recording, clean, edit_json, edit_table, write

Array = NDArray[np.float64]
NAMES = tuple(f"{j}.pos" for j in SO101_JOINTS)


@pytest.fixture(autouse=True)
def _few_bootstraps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "BOOTSTRAPS", 8)


def spec_of(names: tuple[str, ...] = NAMES, unit: Unit = Unit.DEG, span: float = 180.0) -> VectorSpec:
    """Return a convention: one unit for the arm, percent for what is called a gripper."""
    dimensions = [
        Dimension(name=n, unit=unit, low=-span, high=span) if "gripper" not in n else GRIPPER for n in names
    ]
    return VectorSpec(dimensions=tuple(dimensions), rate_hz=20.0)


GRIPPER = Dimension(name="gripper.pos", unit=Unit.PERCENT, low=0.0, high=100.0, is_gripper=True)
SPEC = spec_of()


def motions(
    width: int = 6, episodes: int = 4, length: int = 150, seed: int = 0, still: float = 0.0
) -> list[Array]:
    """Return smooth positions of joints, with pauses in a share of the frames; the last of six is a gripper of 0 to 100."""
    rng = np.random.default_rng(seed)
    result = []
    for _ in range(episodes):
        pauses = rng.random((12, 1)) < still
        knots = np.cumsum(np.where(pauses, 0.0, rng.uniform(-25, 25, (12, width))), axis=0) + rng.uniform(
            -20, 20, width
        )
        path = np.stack(
            [np.interp(np.linspace(0, 11, length), np.arange(12), knots[:, k]) for k in range(width)], axis=1
        )
        if width == 6:
            path[:, 5] = np.clip(path[:, 5] + 50, 0, 100)
        result.append(path)
    return result


def moved(episodes: list[Array], change: Callable[[Array], Array], noise: float = 0.0) -> list[Array]:
    rng = np.random.default_rng(9)
    return [change(e.copy()) + rng.normal(0, noise, e.shape) for e in episodes]


def late(episodes: list[Array], frames: int) -> list[Array]:
    return [
        np.concatenate([e[:1].repeat(frames, axis=0), e[: len(e) - frames]]) if frames else e.copy()
        for e in episodes
    ]


def recorded(actions: list[Array], states: list[Array]) -> Recording:
    return Recording(
        actions=actions,
        states=states,
        times=[np.arange(len(a)) / 20.0 + 1e-3 * np.sin(np.arange(len(a))) for a in actions],
    )


def checked(
    root: Path, actions: list[Array], states: list[Array], names: tuple[str, ...] = NAMES, **changes: Any
) -> DataReport:
    """Return the data check of a recording with joints of these names."""
    recording = recorded(actions, states)
    spec = spec_of(names, span=1e4)
    recording.spec_changes = {"action_spec": spec, "state_spec": spec} | changes
    return check_data(write(root / "d", recording, is_ours=False))


def joint(result: CheckResult, name: str) -> dict[str, Any]:
    found: dict[str, Any] = result.numbers["joints"][name]
    return found


def faults(result: CheckResult) -> dict[str, list[str]]:
    return {n: j["faults"] for n, j in result.numbers["joints"].items() if j["faults"]}


def test_two_logs_that_mean_the_same_are_not_accused() -> None:
    labels = motions()
    for outputs in (labels, moved(labels, lambda v: v, noise=1.0), moved(labels, lambda v: 1.01 * v + 0.3)):
        result = check_convention(labels, outputs, SPEC)
        assert (result.verdict, result.cause, faults(result)) == (Verdict.OK, causes.NONE, {})
    canonical_json(result.to_json())


def test_a_policy_that_learnt_nothing_is_no_convention() -> None:
    labels = motions()
    rng = np.random.default_rng(4)
    result = check_convention(labels, [rng.normal(0, 10, v.shape) for v in labels], SPEC)
    assert result.verdict is Verdict.CANNOT_TELL
    assert "No convention explains" in result.sentence


LOGS: dict[str, tuple[Any, Any, str]] = {
    "another number of episodes": (motions(), motions()[:2], "4 episodes were wanted and 2 found"),
    "other lengths": (motions(), [v[:-1] for v in motions()], r"\(150, 6\) and found as \(149, 6\)"),
    "another width": ([v[:, :5] for v in motions()], [v[:, :5] for v in motions()], r"expected \(T, 6\)"),
    "not a number": (motions(), [np.where(v > 1e9, v, np.nan) for v in motions()], "NaN"),
}


@pytest.mark.parametrize("case", LOGS)
def test_logs_that_do_not_belong_together_are_refused_in_one_line(case: str) -> None:
    wanted, found, words = LOGS[case]
    with pytest.raises(DataError, match=words) as error:
        check_convention(wanted, found, SPEC)
    assert "\n" not in str(error.value)


def test_too_little_motion_says_so() -> None:
    still = [np.ones((50, 6))]
    assert "no dimension moves" in check_convention(still, still, SPEC).sentence
    assert check_convention([np.ones((5, 6))], [np.ones((5, 6))], SPEC).verdict is Verdict.CANNOT_TELL
    assert (
        check_convention(motions(length=40), late(motions(length=40), 3), SPEC, longest_lag=500).numbers[
            "lag_frames"
        ]
        == 3
    )


def test_turns_of_unknown_form_or_shape_are_refused() -> None:
    with pytest.raises(DataError, match=r"expected \(N, 3\)"):
        check_rotation(np.zeros((4, 3)), np.zeros((5, 3)))
    with pytest.raises(UsageError, match=r"known: .*rotvec"):
        check_rotation(np.zeros((4, 3)), np.zeros((4, 3)), declared="quat")


@pytest.mark.parametrize("r2", [0.99, 0.96, 0.92])
def test_a_policy_that_shrinks_towards_the_mean_is_not_accused_of_a_unit(r2: float) -> None:
    labels = motions(episodes=12)
    pooled = np.concatenate(labels)
    rng = np.random.default_rng(6)
    noise = np.sqrt(r2 - r2**2) * pooled.std(axis=0)
    outputs = [
        pooled.mean(axis=0) + r2 * (v - pooled.mean(axis=0)) + rng.normal(0, 1, v.shape) * noise
        for v in labels
    ]
    result = check_convention(labels, outputs, SPEC)
    assert (result.cause, faults(result)) == (causes.NONE, {})


# --- units: public report: huggingface/lerobot#1259, openvinotoolkit/physicalai#288 ------------------------------------


def _radians(v: Array) -> Array:
    v[:, :5] = np.deg2rad(v[:, :5])
    return v


def test_radians_for_degrees_fail_the_arm_with_57_3_and_pass_the_gripper(tmp_path: Path) -> None:
    labels = motions()
    result = check_convention(labels, moved(labels, _radians), SPEC)
    assert (result.verdict, result.cause) == (Verdict.BROKEN, causes.ACTION_CONVENTION)
    assert faults(result) == {n: ["unit"] for n in NAMES[:5]}
    for name in NAMES[:5]:
        assert 1 / joint(result, name)["slope"] == pytest.approx(57.2958, rel=1e-3)
    assert joint(result, "gripper.pos")["slope"] == pytest.approx(1.0)
    assert "radians for degrees (factor 57.3)" in result.sentence
    assert result.numbers["mismatch"]["after_map"] < 1e-9 < result.numbers["mismatch"]["before"]


def test_statistics_in_radians_beside_actions_in_degrees_are_found_in_the_dataset(tmp_path: Path) -> None:
    root = write(tmp_path / "d", clean())
    assert "stored_statistics_wrong" not in check_data(root).codes()

    def to_radians(stats: dict[str, Any]) -> None:
        for values in (v for k, v in stats["action"].items() if k != "count"):
            values[:5] = [float(np.deg2rad(v)) for v in values[:5]]

    edit_json(root / "meta" / "stats.json", to_radians)
    finding = next(f for f in check_data(root).findings if f.code == "stored_statistics_wrong")
    assert set(finding.joints) == set(NAMES[:5])


def test_a_calibrated_range_of_2400_ticks_is_a_slope_of_1_055_on_that_joint_only() -> None:
    labels = motions()
    ends = {k: CalibratedRange(low=800, high=3200) if k == 2 else None for k in range(6)}
    assert CalibratedRange(low=1024, high=3072).degrees_per_percent == pytest.approx(0.9)

    def in_degrees(v: Array) -> Array:
        v[:, 2] *= ends[2].degrees_per_percent if ends[2] else 1.0  # type: ignore[operator]
        return v

    result = check_convention(labels, moved(labels, in_degrees), SPEC)
    assert faults(result) == {"elbow_flex.pos": ["scale"]}
    assert joint(result, "elbow_flex.pos")["slope"] == pytest.approx(1.055, abs=5e-4)
    assert "2400 ticks" in result.sentence


def driven(
    multipliers: Array, offset: Array | None = None, order: list[int] | None = None, seed: int = 1
) -> tuple[list[Any], list[Any]]:
    """Return replays on a robot of first-order servos, and on a simulator that does as it is told."""
    robot, simulator = [], []
    for k, command in enumerate(motions(episodes=5, length=90, seed=seed)):
        logs = []
        for m, c, p in (
            (multipliers, offset if offset is not None else np.zeros(6), order or list(range(6))),
            (np.ones(6), np.zeros(6), list(range(6))),
        ):
            goal = command[:, p] * m + c
            state = np.empty_like(goal)
            state[0] = goal[0]
            for t in range(len(goal) - 1):
                state[t + 1] = state[t] + 0.4 * (goal[t] - state[t])
            logs.append(
                (
                    command.astype(np.float32),
                    (state + np.random.default_rng(k).normal(0, 0.02 * np.abs(m), state.shape)).astype(
                        np.float32
                    ),
                )
            )
        robot.append(logs[0])
        simulator.append(logs[1])
    return robot, simulator


def replayed(robot: list[Any], simulator: list[Any], spec: VectorSpec = SPEC) -> CheckResult:
    return check_replay(robot, simulator, spec, rng=np.random.default_rng(0))


def test_a_replay_read_in_radians_is_a_wrong_unit_and_no_dead_joint() -> None:
    factor = np.array([np.pi / 180] * 5 + [1.0])
    result = replayed(*driven(factor))
    assert (result.verdict, result.cause) == (Verdict.BROKEN, causes.ACTION_SCALE)
    assert {n for n, m in result.numbers["multipliers"].items() if abs(1 / m - 57.3) < 3} == set(NAMES[:5])
    assert len(result.numbers["also_off"]) == 4
    assert "radians for degrees" in result.sentence
    assert replayed(*driven(np.ones(6))).verdict is Verdict.OK


def test_a_replay_whose_commands_are_radians_can_be_told_too() -> None:
    robot, simulator = (
        [(np.deg2rad(a), np.deg2rad(s)) for a, s in side] for side in driven(np.array([1, -1, 1, 1, 1, 1.0]))
    )
    result = replayed(robot, simulator, spec_of(unit=Unit.RAD, span=np.pi))
    assert (result.cause, list(result.numbers["broken"])) == (causes.ACTION_SIGN, ["shoulder_lift.pos"])


# --- zeros and signs: public report: huggingface/lerobot PR#1207, TheRobotStudio/SO-ARM100#94, strands-labs/robots PR#737 --


def test_a_driver_update_that_moved_zeros_and_turned_a_joint_is_returned_as_six_lines() -> None:
    old = motions()
    new = moved(old, lambda v: v * [1, -1, 1, 1, 1, 1] + [0, 90, -90, 0, 0, 0])
    result = check_convention(old, new, SPEC)
    pairs = [(joint(result, n)["slope"], joint(result, n)["offset"]) for n in NAMES]
    np.testing.assert_allclose(pairs, [(1, 0), (-1, 90), (1, -90), (1, 0), (1, 0), (1, 0)], atol=1e-9)
    assert faults(result) == {"shoulder_lift.pos": ["sign"], "elbow_flex.pos": ["offset"]}
    offered = result.numbers["map"]
    assert offered["shoulder_lift.pos"] == {
        "source": "shoulder_lift.pos",
        "scale": pytest.approx(-1),
        "offset": pytest.approx(90),
    }
    assert result.numbers["mismatch"]["after_map"] < 1e-9, "the map offered has been tried"
    declared = [
        replace(d, sign=-1 if k == 1 else 1, zero=90.0 if k in (1, 2) else 0.0)
        for k, d in enumerate(SPEC.dimensions)
    ]
    np.testing.assert_allclose(
        Conversion.between(SPEC, VectorSpec(dimensions=tuple(declared), rate_hz=20.0)).apply(old[0]),
        new[0],
        atol=1e-9,
    )


def test_degrees_from_the_middle_of_the_range_are_offsets_and_a_share_out_of_range() -> None:
    offsets = np.array([12.0, -31.0, 44.0, 8.0, -3.0, 0.0])
    states = motions()
    low, high = np.concatenate(states).min(axis=0), np.concatenate(states).max(axis=0)
    result = check_convention(
        states, moved(states, lambda v: v + offsets, noise=0.2), SPEC, bounds=(low.tolist(), high.tolist())
    )
    for name, offset in zip(NAMES, offsets, strict=True):
        assert joint(result, name)["offset"] == pytest.approx(offset, abs=0.5)
    assert set(faults(result)) == {
        "shoulder_pan.pos",
        "shoulder_lift.pos",
        "elbow_flex.pos",
        "wrist_flex.pos",
    } | set(faults(result)) - {"gripper.pos"}
    outside = result.numbers["outside_bounds"]
    assert outside["found"]["elbow_flex.pos"] > 0.2 > outside["found"]["wrist_roll.pos"]
    assert max(outside["wanted"].values()) == 0.0


def test_a_zero_that_moved_on_the_robot_is_found_by_a_replay() -> None:
    result = replayed(*driven(np.ones(6), offset=np.array([0, 0, 44.0, 0, 0, 0])))
    assert (result.verdict, result.cause) == (Verdict.BROKEN, causes.ACTION_CONVENTION)
    assert result.numbers["offsets"]["elbow_flex.pos"] == pytest.approx(44.0, abs=0.5)
    assert "elbow_flex.pos" in result.sentence


# --- grippers: public report: openvla/openvla#303, #21 ----------------------------------------------------------------


def _events() -> tuple[Array, Array]:
    label = np.zeros(115)
    for start, value in ((34, 1), (45, -1), (67, 1), (107, -1)):
        label[start : start + 6] = value
    held = np.zeros(115)
    held[34:45] = held[67:107] = 1.0
    return label, np.append(held[1:], held[-1])


def test_gripper_events_compared_with_a_held_state_are_a_convention_and_no_bad_policy() -> None:
    label, predicted = _events()
    found = agreement(label, predicted)
    assert [round(100 * v) for v in (found.plain, found.latched or 0, found.turned)] == [66, 97, 3]
    spec = spec_of(("x.pos", "gripper.pos"))
    path = motions(width=2, episodes=1, length=115)[0][:, 0]
    result = check_convention([np.stack([path, label], axis=1)], [np.stack([path, predicted], axis=1)], spec)
    assert (result.verdict, result.cause, faults(result)) == (
        Verdict.BROKEN,
        causes.ACTION_CONVENTION,
        {"gripper.pos": ["events"]},
    )
    assert "no fault of a policy" in result.sentence


@pytest.mark.parametrize(
    ("change", "fault"), [(lambda p: p, ""), (lambda p: 1 - p, "polarity"), (lambda p: 100 * p, "")]
)
def test_a_held_gripper_state_is_compared_as_it_is(change: Callable[[Array], Array], fault: str) -> None:
    held = np.append(_events()[1][:1], _events()[1][:-1])
    assert agreement(held, change(_events()[1])).fault == fault


def test_events_under_the_other_polarity_are_both() -> None:
    label, predicted = _events()
    assert agreement(label, 1.0 - predicted).fault == "events, polarity"


def test_labels_beyond_the_bounds_of_the_unnormaliser_are_counted() -> None:
    labels = motions(width=2)
    pooled = np.concatenate(labels)
    high = np.quantile(pooled, [0.904, 1.0], axis=0)[[0, 1], [0, 1]]
    result = check_convention(
        labels, labels, spec_of(("yaw", "z")), bounds=(pooled.min(axis=0).tolist(), high.tolist())
    )
    assert result.numbers["outside_bounds"]["wanted"]["yaw"] == pytest.approx(0.096, abs=0.01)
    assert result.numbers["outside_bounds"]["wanted"]["z"] == 0.0


# --- rotation: public report: mani-skill/ManiSkill#1138 ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("vector", "error_deg"), [((0.3, 0.3, 0.3), 4.57), ((0.05, 0.05, 0.05), 0.12), ((0.0, 0.0, 0.3), 0.0)]
)
def test_a_rotation_vector_read_as_euler_angles_is_off_by_what_geometry_says(
    vector: tuple[float, ...], error_deg: float
) -> None:
    sent = (
        np.tile(vector, (30, 1)) * np.where(np.arange(30) % 2, -1, 1)[:, None]
        if error_deg == 0.0
        else np.tile(vector, (30, 1))
    )
    result = check_rotation(sent, turn(sent, "xyz").as_rotvec())
    assert result.numbers["error_deg"]["rotvec"] == pytest.approx(error_deg, abs=0.005)
    assert result.verdict is (Verdict.CANNOT_TELL if error_deg == 0.0 else Verdict.BROKEN)


def test_the_error_of_a_mixed_up_rotation_grows_with_the_turn_and_its_cause_is_named() -> None:
    rng = np.random.default_rng(0)
    sent = rng.normal(0, 0.15, (200, 3))
    sent[::4, :2] = 0.0
    result = check_rotation(sent, turn(sent, "xyz").as_rotvec())
    assert (result.verdict, result.cause, result.numbers["best"]) == (
        Verdict.BROKEN,
        causes.ACTION_CONVENTION,
        "xyz",
    )
    assert result.numbers["grows_with_turn"] > 0.5
    assert result.numbers["error_about_one_axis_deg"] == pytest.approx(0.0, abs=1e-6)
    assert check_rotation(sent, turn(sent, "rotvec").as_rotvec()).verdict is Verdict.OK
    assert check_rotation(sent, turn(sent, "xyz").as_rotvec(), declared="xyz").verdict is Verdict.OK
    astray = check_rotation(sent, turn(2.0 * sent, "rotvec").as_rotvec())
    assert astray.verdict is Verdict.CANNOT_TELL
    canonical_json(result.to_json())


# --- delta for absolute: public report: simchowitzlabpublic/much-ado-about-noising#18 ----------------------------------


def test_steps_given_where_positions_are_expected_are_said_to_be_steps() -> None:
    paths = motions(length=151)
    labels, steps = [p[1:] for p in paths], [np.diff(p, axis=0) for p in paths]
    result = check_convention(labels, steps, SPEC)
    assert (result.verdict, result.cause) == (Verdict.BROKEN, causes.ACTION_CONVENTION)
    for name in NAMES[:5]:
        assert joint(result, name)["faults"] == ["steps for positions"]
        assert joint(result, name)["summed_correlation"] > 0.99
        assert abs(joint(result, name)["correlation"]) < 0.5
    back = check_convention(steps, labels, SPEC)
    assert joint(back, NAMES[0])["faults"] == ["positions for steps"]
    assert check_convention(steps, steps, SPEC).verdict is Verdict.OK


# --- order: public report: isaac-sim/IsaacLab#386, #2437 ---------------------------------------------------------------

LEGS, KINDS = ("FL", "FR", "RL", "RR"), ("hip", "thigh", "calf")
BY_LEG = tuple(f"{leg}_{kind}" for leg in LEGS for kind in KINDS)
BY_KIND = tuple(f"{leg}_{kind}" for kind in KINDS for leg in LEGS)


def test_joints_sorted_by_kind_for_joints_sorted_by_leg_are_returned_as_the_permutation() -> None:
    spec = spec_of(BY_LEG)
    sent = motions(width=12, episodes=6)
    order = [BY_LEG.index(n) for n in BY_KIND]
    result = check_convention(
        sent, late(moved(sent, lambda v: v[:, order], noise=0.2), 3), spec, longest_lag=6
    )
    assert (result.verdict, result.cause) == (Verdict.BROKEN, causes.ACTION_CONVENTION)
    assert result.numbers["order"] == list(BY_KIND)
    assert [joint(result, n)["slope"] for n in BY_LEG] == pytest.approx([1.0] * 12, abs=0.02)
    assert result.numbers["lag_frames"] == 3
    assert check_convention(sent, late(sent, 3), spec, longest_lag=6).verdict is Verdict.OK


def test_signs_are_told_together_with_the_order() -> None:
    sent = motions()
    result = check_convention(
        sent, moved(sent, lambda v: v[:, [1, 0, 2, 3, 4, 5]] * [1, -1, 1, 1, 1, 1]), SPEC
    )
    assert faults(result) == {"shoulder_pan.pos": ["order"], "shoulder_lift.pos": ["order", "sign"]}


def test_a_replay_with_joints_in_another_order_names_the_order() -> None:
    result = replayed(*driven(np.ones(6), order=[0, 2, 3, 1, 4, 5]))
    assert (result.verdict, result.cause) == (Verdict.BROKEN, causes.ACTION_CONVENTION)
    assert result.numbers["order"] == [
        "shoulder_pan.pos",
        "elbow_flex.pos",
        "wrist_flex.pos",
        "shoulder_lift.pos",
        "wrist_roll.pos",
    ]


# --- what the recorder wrote: public reports: huggingface/lerobot#4679, datawhalechina/every-embodied#105 ---------------

BASE = ("base_x.vel", "base_y.vel", "arm_0.pos", "arm_1.pos", "arm_2.pos", "gripper.pos")


def _clipped_base() -> tuple[list[Array], list[Array], list[Array]]:
    """Return requests of 2 m/s on 40 % of the frames, what a limit of 0.5 lets through, and the state that integrates it."""
    requests, sent, states = [], [], []
    for k, path in enumerate(motions(episodes=4, length=150)):
        request = path.copy()
        request[:, :2] = 0.3 * np.sin(np.arange(150)[:, None] / 9 + np.arange(2) + k)
        request[np.arange(150) % 10 < 4, 0] = 2.0
        executed = request.copy()
        executed[:, 0] = np.clip(executed[:, 0], -0.5, 0.5)
        state = np.concatenate([path[:1].repeat(3, axis=0), path[:-3]])
        state[:, :2] = np.concatenate([np.zeros((1, 2)), np.cumsum(executed[:-1, :2], axis=0) / 20.0])
        requests.append(request)
        sent.append(executed)
        states.append(state)
    return requests, sent, states


def _base_report(root: Path, *, with_sent: bool, is_clean: bool = False) -> DataReport:
    requests, sent, states = _clipped_base()
    action = spec_of(BASE, span=1e4)
    state = spec_of(tuple(n.replace(".vel", ".pos") for n in BASE), span=1e4)
    recording = recorded(sent if is_clean else requests, states)
    recording.spec_changes = {"action_spec": action, "state_spec": state}
    path = write(root / "d", recording, is_ours=False)
    if with_sent:
        for k, values in enumerate(sent):
            column = pa.FixedSizeListArray.from_arrays(pa.array(values.astype(np.float32).reshape(-1)), 6)
            edit_table(path / data_path(k), lambda t, column=column: t.append_column("sent_action", column))
    return check_data(path)


@pytest.mark.parametrize("with_sent", [True, False])
def test_requests_that_a_limit_cut_are_counted_per_joint(tmp_path: Path, with_sent: bool) -> None:
    report = _base_report(tmp_path, with_sent=with_sent)
    finding = next(f for f in report.findings if f.code == "requested_not_sent")
    assert (finding.severity, finding.joints) == (Severity.WARNING, ("base_x.vel",))
    numbers = finding.numbers["base_x.vel"]
    assert numbers["share"] == pytest.approx(0.40, abs=0.01)
    assert numbers["slope_on_clipped"] == pytest.approx(0.25, abs=0.005)
    assert numbers["limit"] == pytest.approx(0.5, abs=0.01)
    assert "40 %" in finding.sentence
    assert "both" in finding.remedy


@pytest.mark.parametrize("with_sent", [True, False])
def test_requests_that_were_all_executed_are_no_finding(tmp_path: Path, with_sent: bool) -> None:
    assert "requested_not_sent" not in _base_report(tmp_path, with_sent=with_sent, is_clean=True).codes()


def test_an_action_that_is_the_state_is_a_fault_and_one_four_frames_ahead_is_a_lag_of_four(
    tmp_path: Path,
) -> None:
    path = motions()
    copy = checked(tmp_path / "copy", path, [p.copy() for p in path])
    finding = next(f for f in copy.findings if f.code == "state_equals_action")
    assert (finding.severity, finding.numbers["lag_frames"], len(finding.joints)) == (Severity.FAULT, 0, 6)
    healthy = checked(tmp_path / "healthy", path, late(path, 4))
    assert {j["lag_frames"] for j in healthy.measurements["joints"].values()} == {4}
    assert not {f.code for f in healthy.findings if f.severity is Severity.FAULT}


def test_an_action_that_is_the_state_up_to_rounding_is_still_the_state(tmp_path: Path) -> None:
    path = motions()
    assert "state_equals_action" in checked(tmp_path, path, [p * (1 + 1e-7) for p in path]).codes()


# --- leader and follower: public report: huggingface/lerobot#3758 -----------------------------------------------------


def test_a_leader_calibrated_17_degrees_off_shows_on_still_frames_and_a_lag_alone_does_not(
    tmp_path: Path,
) -> None:
    path = motions(still=0.45, length=240)
    states = [p + np.random.default_rng(3).normal(0, 0.05, p.shape) for p in late(path, 4)]
    off = checked(tmp_path / "off", moved(path, lambda v: v + np.array([0, 17.0, 0, 0, 0, 0])), states)
    finding = next(f for f in off.findings if f.code == "static_offset")
    assert finding.joints == ("shoulder_lift.pos",)
    still = {n: j["offset_still"] for n, j in off.measurements["joints"].items()}
    assert still["shoulder_lift.pos"]["action_minus_state"] == pytest.approx(17.0, abs=0.5)
    assert all(abs(v["action_minus_state"]) < 1.0 for n, v in still.items() if n != "shoulder_lift.pos")
    assert min(v["frames"] for v in still.values()) > 100
    lag_only = checked(tmp_path / "lag", path, states)
    assert "static_offset" not in lag_only.codes()


# --- limits: public report: OpenRAL/openral PR#67 ---------------------------------------------------------------------


def _jaw_report(root: Path, low: float, high: float) -> DataReport:
    path = moved(motions(), lambda v: v)
    for p in path:
        p[:, 5] = np.clip(np.interp(np.arange(150), [0, 40, 60, 100, 120, 149], [0, 0, 1, 1, 0, 0]), 0, 1)
    jaw = replace(GRIPPER, unit=Unit.RAD, low=low, high=high)
    spec = VectorSpec(dimensions=(*SPEC.dimensions[:5], jaw), rate_hz=20.0)
    recording = recorded(path, late(path, 3))
    recording.spec_changes = {"action_spec": spec, "state_spec": spec}
    return check_data(write(root / "d", recording))


def test_a_limit_in_radians_on_a_channel_of_0_to_1_never_acts_and_is_reported_before_any_motion(
    tmp_path: Path,
) -> None:
    report = _jaw_report(tmp_path / "wrong", -0.1745, 1.7453)
    finding = next(f for f in report.findings if f.code == "limits_inert")
    assert finding.joints == ("gripper.pos",)
    numbers = finding.numbers["gripper.pos"]
    assert (numbers["declared"], numbers["channel"]) == ([-0.1745, 1.7453], [0.0, 1.0])
    assert numbers["declared"][0] <= 1.6 <= numbers["declared"][1], "the declared guard lets 1.6 through"
    assert not numbers["channel"][0] <= 1.6 <= numbers["channel"][1], "the channel's own range does not"
    assert "limits_inert" not in _jaw_report(tmp_path / "right", 0.0, 1.0).codes()
    assert "limits_inert" not in check_data(write(tmp_path / "clean", clean())).codes()


# --- lag by joint: measured on a public dual-arm set ------------------------------------------------------------------


def test_an_arm_0_9_s_late_beside_a_hand_that_echoes_is_told_joint_by_joint(tmp_path: Path) -> None:
    names = tuple(f"arm.joint_{k}.pos" for k in range(7)) + tuple(f"hand.joint_{k}.pos" for k in range(7))
    actions = motions(width=14, episodes=5, length=260, seed=5)
    for action in actions:
        action[:, 7:] *= 6.0  # the hand's counts are larger than the arm's degrees
    states = [
        np.concatenate([a[:, :7], b[:, 7:]], axis=1)
        for a, b in zip(late(actions, 27), late(actions, 1), strict=True)
    ]
    states = [
        s
        + np.concatenate(
            [np.random.default_rng(2).normal(0, 0.05, (len(s), 7)), np.zeros((len(s), 7))], axis=1
        )
        for s in states
    ]
    report = checked(tmp_path, actions, states, names)
    lags = [j["lag_frames"] for j in report.measurements["joints"].values()]
    assert lags == [27] * 7 + [1] * 7
    assert [round(j["velocity_lag_frames"]) for j in list(report.measurements["joints"].values())[:7]] == [
        27
    ] * 7
    echo = next(f for f in report.findings if f.code == "state_echoes_action")
    assert (echo.severity, set(echo.joints)) == (Severity.WARNING, set(names[7:]))
    long = next(f for f in report.findings if f.code == "long_lag")
    assert (long.severity, set(long.joints)) == (Severity.WARNING, set(names[:7]))
    assert "27 steps" in long.remedy
    pooled = [
        float(np.mean([np.abs(s[k:] - a[: len(a) - k]).mean() for a, s in zip(actions, states, strict=True)]))
        for k in range(40)
    ]
    assert int(np.argmin(pooled)) == 1, "one lag for all joints answers with the hand's"
