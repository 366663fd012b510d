"""What only some envs can do: asked for by protocol, and refused in one sentence where an env cannot."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from examples.wrapped_envs import slide

from simgap.envs import ENVS, make_env
from simgap.envs.abilities import DrawsLater, Rewinds, ShowsTarget, TrainsProbe, able
from simgap.envs.base import TaskEnv
from simgap.errors import UsageError
from simgap.pixelfloor.gate import gate

ABILITIES = (ShowsTarget, TrainsProbe, Rewinds, DrawsLater)


@pytest.mark.parametrize("name", ENVS)
def test_every_env_of_ours_can_do_all_of_it(name: str) -> None:
    env = make_env(name, render=False)
    assert all(able(env, ability) is env for ability in ABILITIES)


@pytest.mark.parametrize("ability", ABILITIES)
def test_a_wrapped_env_that_cannot_says_what_that_rules_out(ability: type[Any]) -> None:
    env = slide(render=False)
    assert not isinstance(env, ability)
    with pytest.raises(UsageError, match=r"env 'slide' .*; .*"):
        able(env, ability)


def test_what_every_env_has_is_abstract_or_does_something_and_raises_nothing() -> None:
    source = inspect.getsource(TaskEnv)
    assert "raise " not in source


def test_the_gate_knows_nothing_of_an_env_that_does_not_show_its_target_and_hides_no_other_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = {"env": "arm-pick", "generate": {"ranges": {"ranges": {}, "name": "nominal"}}}
    blind = SimpleNamespace(close=lambda: None, name="arm-pick")
    monkeypatch.setattr("simgap.pixelfloor.gate.make_env", lambda *a, **k: blind)
    assert gate(fields, 48, ("front",), tmp_path, threads=1) is None
    monkeypatch.undo()

    def refused(*_: Any) -> None:
        raise UsageError("these ranges are wrong")

    monkeypatch.setattr("simgap.pixelfloor.gate.sample_scenes", refused)
    with pytest.raises(UsageError, match="these ranges are wrong"):
        gate(fields, 48, ("front",), tmp_path, threads=1)
