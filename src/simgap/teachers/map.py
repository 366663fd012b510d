"""Where a teacher solves its task, where it fails and where it abstains: counts over a grid of two factors."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from simgap.compute.workers import run_tasks
from simgap.envs import make_env
from simgap.envs.base import TaskEnv
from simgap.envs.factors import Factor, FactorRanges
from simgap.errors import UsageError, did_you_mean
from simgap.provenance import child_rng
from simgap.seeds import Purpose, seed_of
from simgap.teachers import make_teacher
from simgap.teachers.verify import roll_out
from simgap.types import OutcomeKind

SUCCESS, ABSTAINED = "success", "abstained"
"""Regions beside the env's failure modes."""
MOST_CELLS = 10_000

Grid = tuple[tuple[int, ...], ...]
"""Counts, ``[y][x]``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """One factor cut into cells."""

    factor: str
    unit: str
    edges: tuple[float, ...]
    """Borders of the cells, rising, one more than cells; a whole-number factor has a cell a value, from half below to half above."""
    is_integer: bool = False

    @property
    def cells(self) -> int:
        """Number of cells."""
        return len(self.edges) - 1

    def draw(self, cell: int, rng: np.random.Generator) -> float:
        """Return a value of a cell, uniform."""
        low, high = self.edges[cell], self.edges[cell + 1]
        share = float(rng.random())
        return (low + high) / 2 if self.is_integer else low + share * (high - low)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "factor": self.factor,
            "unit": self.unit,
            "edges": list(self.edges),
            "is_integer": self.is_integer,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class TeacherMap:
    """What became of a teacher's rollouts, cell by cell."""

    env: str
    engine: str
    teacher: str
    ranges: FactorRanges
    """What the other factors were drawn from."""
    x: Axis
    y: Axis
    per_cell: int
    seed: int
    counts: Mapping[str, Grid]
    """Region (``success``, a failure mode, ``abstained``) -> rollouts of each cell; every cell sums to ``per_cell``."""
    reasons: Mapping[str, int]
    """Reason of an abstention, numbers replaced by ``#``, -> rollouts."""

    @property
    def rollouts(self) -> int:
        """Number of rollouts."""
        return self.per_cell * self.x.cells * self.y.cells

    def total(self, region: str) -> int:
        """Return the rollouts of a region over all cells."""
        return sum(sum(row) for row in self.counts.get(region, ()))

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "env": self.env,
            "engine": self.engine,
            "teacher": self.teacher,
            "ranges": self.ranges.to_json(),
            "x": self.x.to_json(),
            "y": self.y.to_json(),
            "per_cell": self.per_cell,
            "seed": self.seed,
            "counts": {region: [list(row) for row in grid] for region, grid in self.counts.items()},
            "totals": {region: self.total(region) for region in self.counts},
            "reasons": dict(self.reasons),
            "rollouts": self.rollouts,
        }


class _Cell(NamedTuple):
    x: int
    y: int
    seeds: tuple[int, ...]


class _Seen(NamedTuple):
    x: int
    y: int
    regions: dict[str, int]
    reasons: dict[str, int]


def teacher_map(
    env_name: str,
    ranges: FactorRanges,
    x_factor: str,
    y_factor: str,
    *,
    x_range: tuple[float, float] | None = None,
    y_range: tuple[float, float] | None = None,
    cells: int = 12,
    per_cell: int = 5,
    seed: int = 0,
    engine: str = "mujoco",
    workers: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> TeacherMap:
    """Roll a teacher out over a grid of two factors, the others drawn from ``ranges``, without noise and without pictures.

    Args:
        env_name: the env.
        ranges: what all other factors are drawn from.
        x_factor: factor along x.
        y_factor: factor along y.
        x_range: its range, in its unit; its hard bounds by default, so that the map shows where the teacher
            ends and not where the data do.
        y_range: likewise.
        cells: cells along each axis; a whole-number factor has one a value instead.
        per_cell: rollouts of each cell.
        seed: root of the initial conditions.
        engine: what moves the world.
        workers: processes; 0 runs in this one.
        progress: called with (cells done, cells).

    Raises:
        UsageError: an unknown env or factor, the same factor twice, an empty range or one outside the hard
            bounds, too many cells.
    """
    env = make_env(env_name, render=False, engine=engine)
    if x_factor == y_factor:
        raise UsageError(f"a map needs two different factors, got {x_factor!r} twice")
    if cells < 1 or per_cell < 1:
        raise UsageError(
            f"a map needs at least one cell an axis and one rollout a cell, got {cells} and {per_cell}"
        )
    x, y = _axis(env, x_factor, x_range, cells), _axis(env, y_factor, y_range, cells)
    total = x.cells * y.cells
    if total > MOST_CELLS:
        raise UsageError(f"{x.cells} x {y.cells} cells are more than {MOST_CELLS:,}; ask for fewer")
    tasks = [
        _Cell(
            ix,
            iy,
            tuple(seed_of(Purpose.TRAIN, seed, (iy * x.cells + ix) * per_cell + k) for k in range(per_cell)),
        )
        for iy in range(y.cells)
        for ix in range(x.cells)
    ]
    seen: list[_Seen] = []

    def landed(result: _Seen) -> None:
        seen.append(result)
        if progress:
            progress(len(seen), total)

    run_tasks(_setup, (env_name, engine, ranges, x, y), tasks, workers=workers, on_result=landed)
    reasons = sum((Counter(s.reasons) for s in seen), Counter[str]())
    return TeacherMap(
        env=env_name,
        engine=engine,
        teacher=make_teacher(env).name,
        ranges=ranges,
        x=x,
        y=y,
        per_cell=per_cell,
        seed=seed,
        counts=_grids((SUCCESS, *env.failure_modes, ABSTAINED), seen, x.cells, y.cells),
        reasons=dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))),
    )


def _grids(regions: tuple[str, ...], seen: list[_Seen], columns: int, rows: int) -> dict[str, Grid]:
    """Return the grid of every region that occurred, in the order of ``regions``."""
    grids = {region: np.zeros((rows, columns), dtype=int) for region in regions}
    for cell in seen:
        for region, count in cell.regions.items():
            grids[region][cell.y, cell.x] = count
    return {
        region: tuple(tuple(int(n) for n in row) for row in grid)
        for region, grid in grids.items()
        if grid.any()
    }


def _axis(env: TaskEnv, name: str, wanted: tuple[float, float] | None, cells: int) -> Axis:
    factors = env.factor_space.factors
    if name not in factors:
        raise UsageError(f"{env.name} has no factor {name!r}; {did_you_mean(name, factors)}")
    factor: Factor = factors[name]
    low, high = (factor.low, factor.high) if wanted is None else wanted
    if not factor.low <= low <= high <= factor.high or (low == high and not factor.integer):
        raise UsageError(
            f"range {low:g}..{high:g} of factor {name} must lie within {factor.low:g}..{factor.high:g}"
            f" {factor.unit}, low end first"
        )
    if factor.integer:
        values = range(int(np.ceil(low)), int(np.floor(high)) + 1)
        if not values:
            raise UsageError(
                f"range {low:g}..{high:g} of factor {name} holds no whole number of {factor.unit}"
            )
        return Axis(
            factor=name,
            unit=factor.unit,
            edges=(*(v - 0.5 for v in values), values[-1] + 0.5),
            is_integer=True,
        )
    return Axis(
        factor=name, unit=factor.unit, edges=tuple(float(v) for v in np.linspace(low, high, cells + 1))
    )


def _setup(env_name: str, engine: str, ranges: FactorRanges, x: Axis, y: Axis) -> Callable[[_Cell], _Seen]:
    env = make_env(env_name, image_size=16, render=False, engine=engine)
    teacher = make_teacher(env)

    def play(cell: _Cell) -> _Seen:
        regions, reasons = Counter[str](), Counter[str]()
        for seed in cell.seeds:
            values = env.factor_space.sample(ranges, child_rng(seed, "factors"))
            rng = child_rng(seed, "cell")
            values |= {x.factor: x.draw(cell.x, rng), y.factor: y.draw(cell.y, rng)}
            env.reset(seed=seed, options={"factors": values})
            outcome = roll_out(env, teacher)
            if outcome.kind is OutcomeKind.VOID:
                reasons[re.sub(r"-?\d+(\.\d+)?", "#", outcome.detail)] += 1
                regions[ABSTAINED] += 1
            else:
                regions[outcome.detail or SUCCESS] += 1
        return _Seen(cell.x, cell.y, dict(regions), dict(reasons))

    return play


__all__ = ["ABSTAINED", "SUCCESS", "Axis", "TeacherMap", "teacher_map"]
