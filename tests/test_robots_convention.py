"""The command map: correcting undoes what a robot does to a command."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simgap.envs.arm.geometry import action_spec
from simgap.errors import ConventionError
from simgap.robots.convention import CommandMap

SPEC = action_spec(20.0)
multipliers = st.one_of(st.floats(0.1, 3.0), st.floats(-3.0, -0.1))
shares = st.lists(st.floats(0.0, 1.0), min_size=6, max_size=6)


@given(st.dictionaries(st.sampled_from(SPEC.names), multipliers), shares)
def test_correcting_undoes_the_multiplier_for_every_motion_within_the_limits(
    measured: dict[str, float], where: list[float]
) -> None:
    action = (SPEC.low + np.array(where, dtype=np.float32) * (SPEC.high - SPEC.low)).astype(np.float32)
    sent = CommandMap.correcting(SPEC, measured).apply(action)
    factor = np.array([measured.get(n, 1.0) for n in SPEC.names])
    np.testing.assert_allclose(sent * factor, action, rtol=1e-5, atol=1e-4)
    assert sent.dtype == np.float32


@given(shares)
def test_the_identity_changes_nothing(where: list[float]) -> None:
    action = (SPEC.low + np.array(where, dtype=np.float32) * (SPEC.high - SPEC.low)).astype(np.float32)
    identity = CommandMap.identity(SPEC)
    assert np.array_equal(identity.apply(action), np.clip(action, SPEC.low, SPEC.high))
    assert identity.is_identity
    assert identity.to_json() == {}


def test_only_what_was_measured_is_written_down() -> None:
    found = CommandMap.correcting(SPEC, {"elbow_flex.pos": -1.0})
    assert found.to_json() == {"elbow_flex.pos": -1.0}
    assert not found.is_identity


def test_an_unknown_joint_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConventionError, match=r"elbow\.pos.*elbow_flex\.pos"):
        CommandMap.correcting(SPEC, {"elbow.pos": 2.0})


@pytest.mark.parametrize("value", [0.0, 0.01, -0.049, np.nan, np.inf, -np.inf])
def test_a_multiplier_that_cannot_be_undone_is_refused(value: float) -> None:
    with pytest.raises(ConventionError, match="cannot be undone"):
        CommandMap.correcting(SPEC, {"elbow_flex.pos": value})
