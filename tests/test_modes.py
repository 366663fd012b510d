"""Modes: averaged, forgotten and kept ways are told apart; a teacher with one way flags nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simgap import causes
from simgap.errors import UsageError
from simgap.findings import Verdict
from simgap.measures.modes import PHASES, Ways, axis_of, blend_index, census, check_modes, phases

KNOWN = ("left", "right")


def way(side: float, rng: np.random.Generator, *, noise: float = 0.02) -> np.ndarray:
    """A path past a post at the origin, bulging to one side (-1 left, 1 right, 0 into it)."""
    x = np.linspace(-1, 1, int(rng.integers(30, 60)))
    bulge = side * np.exp(-((x / 0.4) ** 2)) * rng.uniform(0.8, 1.2)
    return np.stack([x, bulge + noise * rng.standard_normal(len(x)).cumsum() / np.sqrt(len(x))], axis=1)


def ways(
    sides: list[float], seed: int, *, freeze_s: float = 0.1
) -> tuple[list[np.ndarray], list[str], np.ndarray]:
    rng = np.random.default_rng(seed)
    paths = [way(s, rng) for s in sides]
    return (
        paths,
        ["left" if s < -0.5 else "right" if s > 0.5 else "" for s in sides],
        freeze_s * rng.uniform(0.5, 1.5, len(sides)),
    )


TEACHER_PATHS, TEACHER_TAKEN, TEACHER_FREEZE = ways([-1.0, 1.0] * 20, 1)
AXIS = axis_of(TEACHER_PATHS, TEACHER_TAKEN)


def seen(sides: list[float], seed: int, successes: int, *, freeze_s: float = 0.1) -> Ways:
    paths, taken, freeze = ways(sides, seed, freeze_s=freeze_s)
    return Ways(
        taken=taken,
        along=np.array([AXIS.project(p) for p in paths]),
        longest_freeze_s=freeze,
        successes=successes,
    )


TEACHER = seen([-1.0, 1.0] * 20, 1, 40)


def check(policy: Ways, teacher: Ways = TEACHER, seed: int = 0):  # type: ignore[no-untyped-def]
    return check_modes(policy, teacher, KNOWN, np.random.default_rng(seed))


def test_the_axis_separates_the_teacher_s_ways_where_they_differ_most() -> None:
    left = [AXIS.project(p) for p, t in zip(TEACHER_PATHS, TEACHER_TAKEN, strict=True) if t == "left"]
    right = [AXIS.project(p) for p, t in zip(TEACHER_PATHS, TEACHER_TAKEN, strict=True) if t == "right"]
    assert max(left) < -0.5 < 0.5 < min(right)
    assert np.mean(left) == pytest.approx(-1.0, abs=0.05)
    assert PHASES // 4 < AXIS.phase < 3 * PHASES // 4


@given(st.integers(1, 5), st.integers(0, 100))
def test_pauses_and_haste_do_not_move_a_trace_along_the_axis(repeat: int, seed: int) -> None:
    path = way(1.0, np.random.default_rng(seed))
    paused = np.repeat(path, np.where(np.arange(len(path)) == len(path) // 3, 5 * repeat, repeat), axis=0)
    assert np.allclose(phases(path), phases(paused), atol=1e-9)
    assert AXIS.project(paused) == pytest.approx(AXIS.project(path))


def test_a_policy_that_keeps_both_ways_is_quiet_nearly_always() -> None:
    rng = np.random.default_rng(5)
    quiet = [
        check(seen(rng.choice([-1.0, 1.0], 40).tolist(), 100 + k, 38)).verdict is Verdict.OK
        for k in range(12)
    ]
    assert sum(quiet) >= 11


def test_averaged_ways_are_found_and_called_so() -> None:
    rng = np.random.default_rng(6)
    found = check(seen(rng.normal(0, 0.15, 40).tolist(), 7, 3))
    assert (found.verdict, found.cause) == (Verdict.BROKEN, causes.POLICY)
    assert "blend" in found.numbers["signs"]
    assert "averages" in found.sentence
    assert found.numbers["blend_index"]["policy"] > 0.9


def test_one_way_only_is_found_although_it_always_succeeds_and_success_is_told_apart() -> None:
    found = check(seen([-1.0] * 40, 8, 40))
    assert found.verdict is Verdict.BROKEN
    assert set(found.numbers["signs"]) == {"entropy", "one mode"}
    assert "always goes left" in found.sentence
    assert "success 40 of 40" in found.sentence


def test_long_stands_are_one_sign_and_one_sign_is_no_verdict() -> None:
    found = check(seen([-1.0, 1.0] * 20, 9, 30, freeze_s=2.0))
    assert found.numbers["signs"] == ["freeze"]
    assert found.verdict is Verdict.OK


def test_a_teacher_with_one_way_flags_nothing_in_nearly_all_runs() -> None:
    quiet = []
    for k in range(12):
        teacher = seen([1.0] * 40, 200 + k, 40)
        quiet.append(check(seen([1.0] * 40, 300 + k, 39), teacher, k).verdict is Verdict.OK)
    assert sum(quiet) >= 11


def test_few_rollouts_cannot_tell() -> None:
    few = check(seen([-1.0] * 12, 1, 12))
    assert (few.verdict, few.more_trials) == (Verdict.CANNOT_TELL, 8)


def test_a_census_counts_known_ways_alone() -> None:
    counts, entropy = census(["left", "", "right", "left"], KNOWN, np.random.default_rng(0))
    assert counts == {"left": 2, "right": 1}
    assert entropy.point is not None
    assert 0.8 < entropy.point < 1.0
    with pytest.raises(UsageError, match="over"):
        census(["over"], KNOWN, np.random.default_rng(0))
    assert blend_index(np.zeros(0)) is None
    assert blend_index(np.array([-1.0, 0.1, 0.6, 0.49])) == 0.5


def test_ways_that_are_one_or_do_not_differ_have_no_axis() -> None:
    with pytest.raises(UsageError, match="two ways"):
        axis_of(TEACHER_PATHS, ["left"] * 40)
    with pytest.raises(UsageError, match="do not differ"):
        axis_of([TEACHER_PATHS[0]] * 4, ["left", "right"] * 2)
