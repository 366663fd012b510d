"""Conformance of a second engine: what is measured before any policy runs on it, against the first engine and against theory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from simgap.envs import ENGINES, make_env
from simgap.envs.engines.conformance.base import Measure, Probe, Row, Verdict, judge, measure
from simgap.envs.engines.differences import Difference, declared_differences
from simgap.envs.simulated import SimulatedEnv
from simgap.errors import UsageError

REFERENCE = "mujoco"


@dataclass(frozen=True, kw_only=True, slots=True)
class Conformance:
    """All rows of one env on one engine."""

    env: str
    engine: str
    """Stamp of the engine under test."""
    reference: str
    """Stamp of the engine it is compared with."""
    rows: tuple[Row, ...]
    differences: tuple[Difference, ...]
    """Declared ones, those of kind included that no row measures."""

    @property
    def findings(self) -> tuple[Row, ...]:
        """Rows that differ without a declaration, and declarations whose difference is gone."""
        return tuple(row for row in self.rows if row.is_finding)


def measures_of(env: SimulatedEnv[Any], *, render: bool = True) -> tuple[Measure[Any], ...]:
    """Return what is measured on an env: the bench, what every env has, what its robot has, and its cameras."""
    from simgap.envs.arm.world import ArmWorld
    from simgap.envs.car.world import CarWorld
    from simgap.envs.engines.conformance.arm import ARM
    from simgap.envs.engines.conformance.bench import BENCH
    from simgap.envs.engines.conformance.car import CAR
    from simgap.envs.engines.conformance.common import COMMON
    from simgap.envs.engines.conformance.optics import optics

    own: tuple[Measure[Any], ...] = ()
    if isinstance(env.world, ArmWorld) and env.world.scene.cubes:
        own = ARM
    elif isinstance(env.world, CarWorld):
        own = CAR
    return (*BENCH, *COMMON, *own, *(optics(Probe(env, ENGINES[REFERENCE]())) if render else ()))


def conformance(
    name: str, engine: str = "drake", *, render: bool = True, on_row: Callable[[Row], None] | None = None
) -> Conformance:
    """Measure an env on two engines.

    Args:
        name: the env.
        engine: the engine under test.
        render: whether to look through the cameras too, which needs an offscreen driver.
        on_row: told of every row as it is done.

    Raises:
        UsageError: unknown env or engine, or the reference itself.
        MachineError: the engine is not installed.
    """
    if engine == REFERENCE:
        raise UsageError(
            f"engine {REFERENCE} is what others are compared with; choose one of"
            f" {', '.join(sorted(set(ENGINES) - {REFERENCE}))}"
        )
    reference, other = (_probe(name, which) for which in (REFERENCE, engine))
    declared = declared_differences(name)
    rows: list[Row] = []
    for m in measures_of(reference.env, render=render):
        rows += measure([m], reference, other, declared)
        if on_row is not None:
            on_row(rows[-1])
    for probe in (reference, other):
        probe.env.close()
    stamps = [str(probe.env.stamp_fields()["engine"]) for probe in (other, reference)]
    return Conformance(
        env=name, engine=stamps[0], reference=stamps[1], rows=tuple(rows), differences=declared
    )


def _probe(name: str, engine: str) -> Probe[Any]:
    env = make_env(name, image_size=64, engine=engine)
    if not isinstance(env, SimulatedEnv):
        raise UsageError(f"env {name!r} brings its own simulator; there is nothing to compare")
    env.renders = False  # frames are drawn by the measures that look at them
    return Probe(env, ENGINES[engine]())


__all__ = [
    "REFERENCE",
    "Conformance",
    "Measure",
    "Probe",
    "Row",
    "Verdict",
    "conformance",
    "judge",
    "measure",
    "measures_of",
]
