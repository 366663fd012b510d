"""Zeros and polarities where little moves: jaws of 0 to 1 beside degrees, jaws that rest about the middle, joints that are parked."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from simgap.checks.data.motion.joints import check_motion
from simgap.checks.data.pooled import Pooled
from simgap.checks.data.report import Severity

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from planted_faults import changed
from planted_hosts import Arm, made_up, pooled_from

Array = NDArray[np.float64]


@pytest.fixture(scope="module")
def arm(tmp_path_factory: pytest.TempPathFactory) -> Pooled:
    """Six episodes whose jaws go from 0 to 1 and whose wrist hardly turns."""
    plan = Arm(episodes=6, seconds=7.0, gripper_top=1.0, still_joint=4)
    return pooled_from(made_up(plan, 8), tmp_path_factory.mktemp("arm") / "d")


def loud(pooled: Pooled) -> dict[str, tuple[str, ...]]:
    return {f.code: f.joints for f in check_motion(pooled)[1] if f.severity is not Severity.NOTE}


@pytest.mark.parametrize("side", ["action", "state"])
def test_the_polarity_of_jaws_from_0_to_1_beside_degrees_is_told(side: str, arm: Pooled) -> None:
    assert loud(arm) == {}
    assert loud(changed(arm, side, "gripper.pos", lambda _, v: 1.0 - v)) == {
        "gripper_polarity": ("gripper.pos",)
    }


def test_the_polarity_of_jaws_that_rest_about_the_middle_is_told(arm: Pooled) -> None:
    waves = [0.5 + 0.1 * np.sin(np.arange(len(a)) / 15.0) for a in arm.actions]
    moved = changed(arm, "action", "gripper.pos", lambda k, _: waves[k])
    moved = changed(moved, "state", "gripper.pos", lambda k, _: np.roll(waves[k], 3))
    assert loud(moved) == {}
    assert loud(changed(moved, "state", "gripper.pos", lambda _, v: 1.0 - v)) == {
        "gripper_polarity": ("gripper.pos",)
    }


@pytest.mark.parametrize("degrees", [17.0, -30.0])
@pytest.mark.parametrize("side", ["action", "state"])
def test_a_zero_that_is_off_shows_on_a_joint_that_hardly_moves(
    side: str, degrees: float, arm: Pooled
) -> None:
    assert loud(changed(arm, side, "wrist_roll.pos", lambda _, v: v + degrees)) == {
        "static_offset": ("wrist_roll.pos",)
    }


def test_a_parked_joint_that_sags_is_no_wrong_zero(arm: Pooled) -> None:
    assert loud(changed(arm, "state", "wrist_roll.pos", lambda _, v: v - 6.0)) == {}


def test_one_episode_that_carries_more_sags_more_and_is_not_odd(arm: Pooled) -> None:
    assert loud(changed(arm, "state", "elbow_flex.pos", lambda k, v: v - (4.0 if k == 3 else 0.0))) == {}
