"""The conformance of the second engine, and planted faults of an engine that it has to find."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from simgap.cli import main
from simgap.envs import ENGINES, make_env
from simgap.envs.engines.conformance import Probe, Verdict, conformance, judge, measure, measures_of
from simgap.envs.engines.differences import DECLARED, Difference, declared_differences
from simgap.envs.engines.mujoco import MujocoEngine
from simgap.errors import UsageError

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("pydrake") is None,
    reason="pydrake is not installed: pip install 'simgap[drake]'",
)

Fault = Callable[[Any], None]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["arm-pick", "car-goal"])
def test_drake_agrees_or_differs_as_declared(name: str) -> None:
    result = conformance(name, render=name == "car-goal")
    assert [(row.name, row.reference, row.value, row.theory) for row in result.findings] == []
    declared = {d.measure for d in declared_differences(name) if d.measure}
    # none untested, none excused in silence
    assert {row.name for row in result.rows if row.verdict is Verdict.DECLARED} == declared
    assert sum(row.theory is not None for row in result.rows) > 0.7 * len(result.rows)
    assert result.engine.startswith("drake")
    assert result.reference.startswith("mujoco")


def _swap_joints(engine: Any) -> None:
    for order in (engine._states._q, engine._states._v):
        order[[1, 2]] = order[[2, 1]]


def _flip_sign(engine: Any) -> None:
    sent = engine._fields.feed_forward
    engine._fields.feed_forward = lambda command: sent(np.concatenate([[-command[0]], command[1:]]))


def _after_fields(change: Callable[[Any, Any], None]) -> Fault:
    """Return a fault that sets something of Drake's wrong after every reset."""

    def plant(engine: Any) -> None:
        right = engine._fields.apply

        def apply(model: Any, root: Any, context: Any) -> None:
            right(model, root, context)
            change(engine, context)

        engine._fields.apply = apply

    return plant


def _halve_gains(engine: Any, _: Any) -> None:
    from pydrake.multibody.tree import PdControllerGains

    for servo in engine._plant.servos:
        gains = servo.actuator.get_controller_gains()
        servo.actuator.set_controller_gains(PdControllerGains(p=gains.p / 2, d=gains.d))
    engine._fields._gain /= 2


def _forget_rotors(engine: Any, context: Any) -> None:
    for rotor in engine._plant.rotors.values():
        rotor.SetRotorInertia(context, 0.0)


def _forget_limits(engine: Any, _: Any) -> None:
    for servo in engine._plant.servos:
        servo.actuator.set_effort_limit(math.inf)


def _double_mass(engine: Any, context: Any) -> None:
    from pydrake.multibody.tree import SpatialInertia

    body = engine._plant.plant.GetBodyByName("upper_arm")
    inertia = body.CalcSpatialInertiaInBodyFrame(context)
    body.SetSpatialInertiaInBodyFrame(
        context, SpatialInertia(2 * inertia.get_mass(), inertia.get_com(), inertia.get_unit_inertia())
    )


def _open_joints(engine: Any) -> None:
    for joint in engine._plant.joints[:6]:
        joint.set_position_limits([-10.0], [10.0])


def _slippery(engine: Any) -> None:
    right = engine._fields._apply_geoms

    def apply(model: Any, root: Any) -> None:
        model.geom_friction[:, 0] *= 0.8
        right(model, root)
        model.geom_friction[:, 0] /= 0.8

    engine._fields._apply_geoms = apply


FAULTS: dict[str, tuple[Fault, Sequence[str]]] = {
    "two joints swapped": (_swap_joints, ["order and sign: shoulder_lift", "order and sign: elbow_flex"]),
    "one joint's sign flipped": (_flip_sign, ["order and sign: shoulder_pan"]),
    "gains halved": (_after_fields(_halve_gains), ["droop: elbow_flex", "step: shoulder_pan"]),
    "reflected inertia forgotten": (
        _after_fields(_forget_rotors),
        ["inertia: mass matrix", "pendulum: hand"],
    ),
    "torque limits forgotten": (_after_fields(_forget_limits), ["grip: torque"]),
    "a link of twice the mass": (
        _after_fields(_double_mass),
        ["gravity torque: shoulder_lift", "inertia: mass matrix"],
    ),
    "joint limits forgotten": (_open_joints, ["limit: shoulder_pan", "limit: wrist_roll"]),
    "friction a fifth too low": (_slippery, ["slide: cube"]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_conformance_finds_a_planted_fault(fault: str) -> None:
    plant, names = FAULTS[fault]
    reference = Probe(make_env("arm-pick", image_size=16, render=False), MujocoEngine)
    other = Probe(make_env("arm-pick", image_size=16, render=False, engine="drake"), ENGINES["drake"]())
    chosen = [m for m in measures_of(reference.env, render=False) if m.name in names]
    assert len(chosen) == len(names)
    plant(other.env.world.engine)
    assert [row.verdict for row in measure(chosen, reference, other, ())] == [Verdict.DIFFERS] * len(names)


def test_conformance_finds_a_camera_whose_formula_is_off() -> None:
    probe = Probe(make_env("arm-pick", image_size=64), MujocoEngine)
    m = next(m for m in measures_of(probe.env) if m.name == "projection: front")
    assert m.value(probe) <= m.tolerance
    true = probe.env.camera_pose
    probe.env.camera_pose = lambda camera: replace(true(camera), fovy_deg=true(camera).fovy_deg + 3.0)  # type: ignore[method-assign]
    assert m.value(probe) > m.tolerance
    probe.env.close()


EXCUSE = Difference(name="known", envs=("arm-pick",), mujoco="a", drake="b", measure="x", size=0.5)


@pytest.mark.parametrize(
    ("reference", "value", "theory", "declared", "verdict"),
    [
        (1.0, 1.05, None, (), Verdict.AGREES),
        (1.0, 1.2, None, (), Verdict.DIFFERS),
        (1.0, 1.05, 1.3, (), Verdict.DIFFERS),
        (1.0, 1.4, 1.3, (EXCUSE,), Verdict.DECLARED),
        (1.0, 1.6, None, (EXCUSE,), Verdict.DIFFERS),
        (1.0, 1.4, 2.0, (EXCUSE,), Verdict.DIFFERS),
        (1.0, 1.05, None, (EXCUSE,), Verdict.STALE),
        (1.0, math.nan, None, (), Verdict.DIFFERS),
        (1.0, math.nan, None, (EXCUSE,), Verdict.DIFFERS),
        (1.0, 1.2, None, (replace(EXCUSE, measure="y"),), Verdict.DIFFERS),
    ],
)
def test_a_number_agrees_is_declared_or_is_a_finding(
    reference: float, value: float, theory: float | None, declared: tuple[Difference, ...], verdict: Verdict
) -> None:
    assert judge("x", reference, value, theory, 0.1, declared)[0] is verdict


def test_every_declared_difference_says_where_how_and_to_what_it_matters() -> None:
    assert len({d.name for d in DECLARED}) == len(DECLARED)
    for d in DECLARED:
        assert d.envs
        assert d.mujoco
        assert d.drake
        assert d.matters
        assert (d.size > 0) == bool(d.measure)
    assert {d.name for d in declared_differences("car-goal")} < {d.name for d in declared_differences()}


def test_the_reference_is_not_compared_with_itself() -> None:
    with pytest.raises(UsageError, match="what others are compared with"):
        conformance("arm-pick", "mujoco")


@pytest.mark.slow
def test_the_command_prints_the_table_and_json_alike(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import json

    import simgap.envs.engines.conformance as module

    bench = [
        m
        for m in measures_of(make_env("car-goal", image_size=16, render=False), render=False)
        if m.name.startswith("bench")
    ]
    monkeypatch.setattr(module, "measures_of", lambda env, render: bench)
    assert main(["envs", "conformance", "car-goal", "--blind", "--json", "--quiet"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in document["rows"]] == [m.name for m in bench]
    assert {row["verdict"] for row in document["rows"]} == {"agrees", "declared"}
    assert "softness of contact" in {d["name"] for d in document["declared_differences"]}
    assert main(["envs", "conformance", "car-goal", "--blind", "--quiet"]) == 0
    assert "bench: pendulum period" in capsys.readouterr().out
    monkeypatch.setattr("simgap.envs.engines.conformance.declared_differences", lambda env: ())
    assert main(["envs", "conformance", "car-goal", "--blind", "--quiet"]) == 1
    assert "finding: bench: sliding down a slope" in capsys.readouterr().out
