"""What a conformance test is: one number measured on two engines, and what theory says where it says something."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

from simgap.envs.contracts import World
from simgap.envs.engines.base import EngineMaker
from simgap.envs.engines.differences import Difference
from simgap.envs.factors import FactorValues
from simgap.envs.simulated import SimulatedEnv

WorldT = TypeVar("WorldT", bound=World)


class Verdict(StrEnum):
    """What one row says."""

    AGREES = "agrees"
    """Within the tolerance of the reference engine, and of theory where there is one."""
    DECLARED = "declared"
    """Outside, by no more than a declared difference allows."""
    DIFFERS = "differs"
    """Outside, and nobody said so: a finding."""
    STALE = "stale"
    """A declared difference that is no longer there: a finding too, for a table of excuses must not outlive its reasons."""


@dataclass(slots=True)
class Probe(Generic[WorldT]):
    """One env on one engine, to be measured before any policy runs in it."""

    env: SimulatedEnv[WorldT]
    maker: EngineMaker

    @property
    def world(self) -> WorldT:
        """The env's world."""
        return self.env.world

    def start(self, **factors: float) -> WorldT:
        """Start an episode of nominal factors but these, and return its world."""
        values: FactorValues = dict(factors)
        self.env.reset(seed=0, options={"factors": values})
        return self.env.world


@dataclass(frozen=True, kw_only=True, slots=True)
class Measure(Generic[WorldT]):
    """One number."""

    name: str
    unit: str
    what: str
    """What is done and read, in a clause."""
    value: Callable[[Probe[WorldT]], float]
    tolerance: float
    """Largest difference that counts as agreement, in the unit: of two integrators and contact models, not of two roundings."""
    theory: Callable[[Probe[WorldT]], float] | None = None
    """The value from a formula, with the numbers of the env's model; evaluated on the reference engine's env."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """A measure on both engines."""

    name: str
    unit: str
    what: str
    reference: float
    value: float
    theory: float | None
    tolerance: float
    verdict: Verdict
    note: str = ""
    """The declared difference, where there is one."""

    @property
    def is_finding(self) -> bool:
        """True if somebody has to look at it."""
        return self.verdict in (Verdict.DIFFERS, Verdict.STALE)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; a number that is none is null."""
        plain = {
            k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in asdict(self).items()
        }
        return plain | {"verdict": str(self.verdict)}


def judge(
    name: str,
    reference: float,
    value: float,
    theory: float | None,
    tolerance: float,
    declared: Sequence[Difference],
) -> tuple[Verdict, str]:
    """Return the verdict on one number, and the declared difference it rests on.

    A value that is no number agrees with nothing.
    """
    gaps = [abs(value - reference)] + ([] if theory is None else [abs(value - theory)])
    mine = next((d for d in declared if d.measure == name), None)
    is_within = all(gap <= tolerance for gap in gaps)  # False for nan
    if mine is None:
        return (Verdict.AGREES if is_within else Verdict.DIFFERS), ""
    if is_within:
        return Verdict.STALE, mine.name
    return (Verdict.DECLARED if all(gap <= mine.size for gap in gaps) else Verdict.DIFFERS), mine.name


def measure(
    measures: Sequence[Measure[WorldT]],
    reference: Probe[WorldT],
    other: Probe[WorldT],
    declared: Sequence[Difference],
) -> list[Row]:
    """Measure everything on both engines."""
    rows = []
    for m in measures:
        theory = None if m.theory is None else m.theory(reference)
        ours, theirs = m.value(reference), m.value(other)
        verdict, note = judge(m.name, ours, theirs, theory, m.tolerance, declared)
        rows.append(
            Row(
                name=m.name,
                unit=m.unit,
                what=m.what,
                reference=ours,
                value=theirs,
                theory=theory,
                tolerance=m.tolerance,
                verdict=verdict,
                note=note,
            )
        )
    return rows
