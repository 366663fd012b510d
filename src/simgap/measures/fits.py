"""Which factor values make the simulator's picture equal the robot's: a small search over rendered stills.

The scene is known: the arm rests at its measured joint angles and the objects lie where the operator measured
them. What is left of the difference between the two pictures is the camera, the light or the colours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import differential_evolution, minimize

from simgap.envs.base import TaskEnv
from simgap.envs.factors import FactorValues


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Still:
    """One picture of a known scene."""

    frame: NDArray[np.uint8]
    """``(H, W, 3)``."""
    state: NDArray[np.float32]
    """Encoder readings, ``(S,)``."""
    placements: Mapping[str, float]
    """Where the objects were measured to lie."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PixelFit:
    """The best values of one group of factors."""

    values: Mapping[str, float]
    residual: float
    """Mean absolute difference to the robot's pictures, in 1/255."""
    evaluations: int


def residual(
    env: TaskEnv, camera: str, stills: Sequence[Still], values: Mapping[str, float], *, cell: int = 1
) -> float:
    """Return the mean absolute difference between robot and rendered pictures, in 1/255.

    Args:
        env: renders; any running episode ends.
        camera: camera name.
        stills: robot pictures of known scenes.
        values: factor values to try, others nominal.
        cell: pictures are averaged over squares of this many pixels first.
    """
    total = 0.0
    for still in stills:
        factors: FactorValues = {**env.factor_space.nominal(), **still.placements, **values}
        rendered = env.render_still(factors, still.state, cameras=(camera,))[camera]
        total += float(np.abs(_averaged(rendered, cell) - _averaged(still.frame, cell)).mean())
    return total / len(stills)


def fit_group(
    env: TaskEnv,
    camera: str,
    stills: Sequence[Still],
    bounds: Mapping[str, tuple[float, float]],
    *,
    rng: np.random.Generator,
    generations: int = 22,
) -> PixelFit:
    """Search one group of factors for the values that explain the pictures best.

    Differential evolution on averaged pictures finds the valley (a camera can be off by a fifth of the frame,
    where no gradient points home), Nelder-Mead on full pictures its floor.
    """
    names = list(bounds)
    low, high = np.array([bounds[n][0] for n in names]), np.array([bounds[n][1] for n in names])
    size = stills[0].frame.shape[0]
    evaluations = 0

    def cost(unit: NDArray[np.float64], cell: int) -> float:
        nonlocal evaluations
        evaluations += 1
        clipped = np.clip(unit, 0.0, 1.0)
        penalty = float(np.abs(unit - clipped).sum()) * 50.0
        return (
            residual(
                env, camera, stills, dict(zip(names, low + clipped * (high - low), strict=True)), cell=cell
            )
            + penalty
        )

    coarse = 4 if size % 4 == 0 else 1
    start = np.array(
        [
            (env.factor_space.factors[n].nominal - a) / (b - a)
            for n, a, b in zip(names, low, high, strict=True)
        ]
    )
    found = differential_evolution(
        cost,
        [(0.0, 1.0)] * len(names),
        args=(coarse,),
        popsize=7,
        maxiter=generations,
        tol=1e-3,
        polish=False,
        rng=rng,
        x0=start,
        mutation=(0.4, 0.9),
    )
    best = found.x
    for cell, calls in ((coarse, 150), (1, 250)):
        simplex = best + np.vstack([np.zeros(len(names)), 0.05 * np.eye(len(names))])
        polished = minimize(
            cost,
            best,
            args=(cell,),
            method="Nelder-Mead",
            options={"maxfev": calls, "initial_simplex": simplex, "xatol": 1e-3, "fatol": 1e-3},
        )
        best = np.clip(polished.x, 0.0, 1.0)
    values = {n: float(v) for n, v in zip(names, low + best * (high - low), strict=True)}
    return PixelFit(values=values, residual=residual(env, camera, stills, values), evaluations=evaluations)


def _averaged(frame: NDArray[np.uint8], cell: int) -> NDArray[np.float32]:
    if cell == 1:
        return frame.astype(np.float32)
    side = frame.shape[0] // cell
    return np.asarray(frame.reshape(side, cell, side, cell, 3).mean(axis=(1, 3), dtype=np.float32))
