"""Joints that something holds up are under load, whichever joint it is; a stop, a frozen encoder and a gain stay what they are."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from simgap.checks.data.motion.joints import check_motion
from simgap.checks.data.pooled import Pooled
from simgap.checks.data.report import DataFinding, Severity

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from planted_faults import changed, lagged
from planted_hosts import Arm, made_up, pooled_from

Array = NDArray[np.float64]
ARM = ("shoulder_lift.pos", "elbow_flex.pos", "wrist_flex.pos")


@pytest.fixture(scope="module")
def arm(tmp_path_factory: pytest.TempPathFactory) -> Pooled:
    return pooled_from(
        made_up(Arm(holds=False, episodes=6, seconds=7.0), 7), tmp_path_factory.mktemp("arm") / "d"
    )


def found(pooled: Pooled) -> dict[str, DataFinding]:
    return {f.code: f for f in check_motion(pooled)[1]}


def loud(pooled: Pooled) -> set[str]:
    return {f.code for f in check_motion(pooled)[1] if f.severity is not Severity.NOTE}


def loaded(pooled: Pooled) -> set[str]:
    return {j for f in check_motion(pooled)[1] if f.code == "load" for j in f.joints}


def met(
    pooled: Pooled,
    joints: tuple[str, ...],
    *,
    gives: float = 0.0,
    noise: float = 0.0,
    seed: int = 1,
    share: float = 1.0,
) -> Pooled:
    """Return a recording in which each joint meets something from a moment of each episode on, and leaves it as its command does.

    Args:
        pooled: the recording.
        joints: what meets it.
        gives: how far it yields, of what the command asks.
        noise: of the encoder while it presses, in ranges of the joint.
        seed: of moments and places.
        share: of the episodes.
    """
    rng = np.random.default_rng(seed)
    columns = {j.name: j.state for j in pooled.joints}
    episodes = []
    for e in pooled.episodes:
        state = np.array(e[pooled.dataset.state_key], dtype=np.float64)
        begin = int(rng.uniform(0.1, 0.5) * len(state))
        touches = rng.random() < share
        for name in joints if touches else ():
            x = state[:, columns[name]]
            side = 1.0 if rng.random() < 0.5 else -1.0
            over = np.maximum(side * (x - np.quantile(x[begin:], 0.5 + 0.2 * side)), 0.0)
            over[: begin + int(np.argmax(over[begin:] == 0.0))] = 0.0
            x -= side * (1.0 - gives) * over
            x += np.where(over > 0, rng.normal(0, noise, len(x)) * np.ptp(x), 0.0)
        episodes.append({**e, pooled.dataset.state_key: state})
    return replace(pooled, episodes=tuple(episodes))


WAYS: dict[str, dict[str, float]] = {"rigid": {}, "soft": {"gives": 0.25}, "noisy": {"noise": 0.01}}


@pytest.mark.parametrize("kind", WAYS.values(), ids=WAYS)
def test_an_arm_that_presses_on_something_is_under_load_and_nothing_else(
    kind: dict[str, float], arm: Pooled
) -> None:
    blocked = met(arm, ARM, **kind)
    assert loaded(blocked) == set(ARM)
    assert loud(blocked) == set()


@pytest.mark.slow
@pytest.mark.parametrize("share", [1.0, 0.6])
@pytest.mark.parametrize("kind", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("joints", [ARM[1:2], ARM], ids=["one joint", "several joints"])
def test_an_arm_that_meets_something_is_under_load_and_nothing_else(
    kind: dict[str, float], joints: tuple[str, ...], share: float, arm: Pooled
) -> None:
    blocked = met(arm, joints, share=share, **kind)
    assert loaded(blocked) == set(joints)
    assert loud(blocked) == set()


def test_what_blocks_one_joint_does_not_change_the_lag_of_the_arm(arm: Pooled) -> None:
    lags = [found(p)["lag"].numbers["groups"]["arm"]["frames"] for p in (arm, met(arm, ARM[:2]))]
    assert abs(lags[0] - lags[1]) < 0.5


def test_a_sentence_about_a_load_contradicts_no_other_about_the_joint(arm: Pooled) -> None:
    about = [f for f in check_motion(met(arm, ARM[1:2]))[1] if ARM[1] in f.joints and f.code != "lag"]
    assert [f.code for f in about] == ["load"]
    assert "something is in its way" in about[0].sentence
    assert about[0].numbers["gap"] > 3 * about[0].numbers["gap_free"]


def test_a_joint_that_always_stops_at_one_end_of_its_travel_has_a_stop_and_no_load(arm: Pooled) -> None:
    stopped = changed(arm, "state", ARM[1], lambda _, v: np.minimum(v, 30.0))
    assert ARM[1] not in loaded(stopped)
    assert "saturation" in loud(stopped)


def test_an_arm_that_lies_on_a_table_in_several_joints_at_once_is_under_load_though_it_never_goes_beyond(
    arm: Pooled,
) -> None:
    def pressed(v: Array, late: int, table: float, floor: float) -> Array:
        phase = np.clip((np.arange(len(v)) - late - 0.4 * len(v)) / (0.3 * len(v)), 0.0, 1.0)
        down = np.sin(np.pi * phase) ** 2
        return np.maximum((1.0 - down) * v + down * (table - 30.0), floor)

    lying = arm
    for name in ARM[:2]:
        j = next(j for j in arm.joints if j.name == name)
        table = min(float(s[:, j.state].min()) for s in arm.states)
        lying = changed(lying, "action", name, lambda _, v, low=table: pressed(v, 0, low, low - 90.0))
        lying = changed(lying, "state", name, lambda _, v, low=table: pressed(v, 4, low, low))
    assert loaded(lying) == set(ARM[:2])
    assert loud(lying) == set()


def test_an_encoder_that_freezes_and_leaps_is_no_load(arm: Pooled) -> None:
    def frozen(_: int, v: Array) -> Array:
        v[80:150] = v[80]
        return v

    broken = changed(arm, "state", ARM[2], frozen)
    assert ARM[2] not in loaded(broken)


@pytest.mark.parametrize("scale", [0.6, 1.6])
def test_a_gain_is_no_load(scale: float, arm: Pooled) -> None:
    assert ARM[0] not in loaded(changed(arm, "state", ARM[0], lambda _, v: scale * v))


@pytest.mark.parametrize(
    ("frames", "code", "severity"),
    [(0, "lag", Severity.NOTE), (1, "lag", Severity.NOTE), (2, "long_lag", Severity.WARNING)],
)
def test_two_frames_more_than_any_so101_shows_are_a_warning(
    frames: int, code: str, severity: Severity, arm: Pooled
) -> None:
    late = lagged(arm, frames) if frames else arm
    assert found(late)[code].severity is severity


def test_an_arm_of_another_kind_may_be_later_than_an_so101(arm: Pooled) -> None:
    names = tuple(n.replace("shoulder_pan", "joint_1") for n in arm.action_names)
    joints = tuple(replace(j, name=j.name.replace("shoulder_pan", "joint_1")) for j in arm.joints)
    other = replace(lagged(arm, 2), action_names=names, state_names=names, joints=joints)
    assert "long_lag" not in found(other)
