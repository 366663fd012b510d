"""The teacher's map: every rollout is counted once in its cell, and a planted teacher's hole shows where it is."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from simgap.envs.arm.factors import ARM_FACTORS, ARM_PRESETS
from simgap.envs.arm.pass_factors import PASS_FACTORS, PASS_PRESETS
from simgap.errors import UsageError
from simgap.provenance import child_rng
from simgap.teachers import Abstain
from simgap.teachers import map as module
from simgap.teachers.arm_pick import ArmPickTeacher
from simgap.teachers.map import Axis, TeacherMap, teacher_map

NOMINAL = ARM_PRESETS["nominal"]


def small(**kwargs: Any) -> TeacherMap:
    return teacher_map(
        "arm-pick", NOMINAL, "target_x_m", "target_y_m", **{"cells": 2, "per_cell": 2, **kwargs}
    )


def test_every_rollout_is_counted_once_in_its_cell() -> None:
    seen: list[tuple[int, int]] = []
    found = small(progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert np.array_equal(
        np.sum([np.array(grid) for grid in found.counts.values()], axis=0), np.full((2, 2), 2)
    )
    assert found.total("success") == found.rollouts == 8
    assert found.x.edges == pytest.approx((0.12, 0.185, 0.25))
    assert (found.teacher, found.engine, found.per_cell) == ("arm-pick waypoints/2", "mujoco", 2)


def test_a_map_is_plain_json_and_the_same_with_and_without_worker_processes() -> None:
    alone, together = small(), small(workers=2)
    assert json.dumps(alone.to_json(), allow_nan=False) == json.dumps(together.to_json(), allow_nan=False)
    document = alone.to_json()
    assert document["totals"] == {"success": 8}
    assert document["ranges"] == NOMINAL.to_json()


class _Holed(ArmPickTeacher):
    """A planted fault: it has no plan for cubes on the left, and never closes on those far out."""

    def label(self):  # type: ignore[no-untyped-def]
        x, y = (self._arm.env.factors[f"target_{axis}_m"] for axis in "xy")
        if y > 0:
            return Abstain(f"{y:.3f} m is left of the middle")
        label = super().label()
        return label if isinstance(label, Abstain) or x < 0.2 else np.append(label[:5], np.float32(60.0))


def test_a_planted_teachers_holes_show_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "make_teacher", _Holed)
    found = small(x_range=(0.15, 0.22), y_range=(-0.06, 0.06), cells=4, per_cell=1, engine="mujoco")
    abstained, missed, solved = (
        np.array(found.counts[region]) for region in ("abstained", "missed_grasp", "success")
    )
    assert abstained[2:].all()
    assert not abstained[:2].any()
    assert missed[:2, 3].all()
    assert solved[:2, :2].all()
    assert found.reasons == {"the teacher abstained: # m is left of the middle": 8}


def test_a_factor_of_whole_numbers_has_a_cell_a_value() -> None:
    found = teacher_map(
        "arm-pass",
        PASS_PRESETS["nominal"],
        "demonstrated_side",
        "action_latency_steps",
        y_range=(0, 2),
        per_cell=1,
    )
    assert (found.x.cells, found.y.cells) == (2, 3)
    assert found.y.edges == (-0.5, 0.5, 1.5, 2.5)
    assert found.total("success") == 6
    assert PASS_FACTORS.factors["demonstrated_side"].integer


def test_draws_of_a_cell_stay_inside_it() -> None:
    axis = Axis(factor="target_x_m", unit="m", edges=(0.1, 0.15, 0.2))
    assert all(0.15 <= axis.draw(1, child_rng(i, "cell")) <= 0.2 for i in range(50))
    whole = Axis(factor="n", unit="1", edges=(-0.5, 0.5, 1.5), is_integer=True)
    assert {whole.draw(1, child_rng(i, "cell")) for i in range(5)} == {1.0}


@pytest.mark.parametrize(
    ("x", "y", "more", "says"),
    [
        ("target_x", "target_y_m", {}, "target_x_m"),
        ("target_x_m", "target_x_m", {}, "two different factors"),
        ("target_x_m", "target_y_m", {"x_range": (0.1, 0.2)}, r"within 0\.12\.\.0\.25"),
        ("target_x_m", "target_y_m", {"x_range": (0.2, 0.2)}, "low end first"),
        ("target_x_m", "target_y_m", {"x_range": (float("nan"), 0.2)}, "low end first"),
        ("target_x_m", "action_latency_steps", {"y_range": (0.2, 0.8)}, "no whole number"),
        ("target_x_m", "target_y_m", {"cells": 0}, "at least one cell"),
        ("target_x_m", "target_y_m", {"cells": 1000}, "more than 10,000"),
    ],
)
def test_a_map_that_cannot_be_is_refused_with_what_to_do(
    x: str, y: str, more: dict[str, Any], says: str
) -> None:
    assert "target_x_m" in ARM_FACTORS.factors
    with pytest.raises(UsageError, match=says):
        teacher_map("arm-pick", NOMINAL, x, y, **more)
