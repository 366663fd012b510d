"""How each joint responds to its command: multiplier, delay and stiffness, fitted from logged motion.

A position servo driven at a fixed rate moves, to first order, by ``s[t+1] - s[t] = k (m a[t-d] + c - s[t])``:
it closes a share k of the distance to m times the command of d steps ago. For each delay d this is linear
least squares in ``(k m, k, k c)``; the delay with the smallest residual over all joints wins. Contacts and
limits break the model, so the worst rows are trimmed. The same fit on the simulator's own log of the same
commands is the reference, so that what the first-order model gets wrong is wrong on both sides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Limits = tuple[NDArray[np.float32], NDArray[np.float32]]
"""Lower and upper limits of every dimension, ``(A,)`` each."""
Motion = tuple[NDArray[np.float32], NDArray[np.float32]]
"""Commands ``(T, A)`` and encoder readings ``(T, A)`` of one episode."""

MAX_DELAY = 12
MIN_ROWS = 10
"""Rows an episode must leave to the fit after the longest delay."""
TRIM = 0.1
"""Share of rows with the largest residuals that is left out of the second fit."""
MIN_EXCITATION = 1.5
"""Standard deviation of a joint's command over the log, in degrees, under which its response cannot be told."""
MIN_COMMAND = 5.0
"""Commands smaller than this, in degrees, say little about a ratio."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JointResponse:
    """One joint's fitted response."""

    name: str
    multiplier: float | None
    """m; None when the joint hardly moved."""
    stiffness: float | None
    """k, share of the distance closed in one step."""
    offset: float | None
    """c, in the joint's unit."""
    residual: float
    """Root mean square of the fit's residual a step, in the joint's unit."""
    excitation: float
    """Standard deviation of the command."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Response:
    """All joints of one robot under one log."""

    delay_steps: int
    joints: tuple[JointResponse, ...]
    episodes: int

    def multiplier(self, name: str) -> float | None:
        """Return a joint's multiplier by name."""
        return next(j.multiplier for j in self.joints if j.name == name)


def fit_response(
    motions: Sequence[Motion], names: Sequence[str], limits: Limits, per_degree: Sequence[float] | None = None
) -> Response:
    """Fit the response of every joint.

    Args:
        motions: episodes of commands and readings.
        names: dimension names, in vector order.
        limits: lower and upper limits; rows where the reading stands at one are left out.
        per_degree: how much of each dimension's unit is as much motion as a degree, for the least motion that
            counts; 1 by default.

    Returns:
        The response with the delay that fits all joints best together; ``episodes`` counts those that were
        long enough to be used.
    """
    # An episode too short to show the longest delay would hide it in the others; it is used only where there
    # is nothing longer.
    motions = [m for m in motions if len(m[0]) >= MAX_DELAY + MIN_ROWS] or motions
    longest = max(0, min(MAX_DELAY, min(len(a) for a, _ in motions) - MIN_ROWS))
    scales = [1.0] * len(names) if per_degree is None else per_degree
    scores = [
        sum(_relative_cost(motions, j, d, limits, scales[j]) for j in range(len(names)))
        for d in range(longest + 1)
    ]
    delay = int(np.argmin(scores))
    joints = tuple(
        _fit_joint(motions, j, name, delay, limits, MIN_EXCITATION * scales[j])
        for j, name in enumerate(names)
    )
    return Response(delay_steps=delay, joints=joints, episodes=len(motions))


def _relative_cost(
    motions: Sequence[Motion], joint: int, delay: int, limits: Limits, per_degree: float
) -> float:
    design, step = _rows(motions, joint, delay, limits)
    spread = float(np.var(step))
    if len(step) < 12 or spread < 1e-4 * per_degree**2:
        return 0.0
    _, residual = _solve(design, step)
    return float(np.log(np.mean(residual**2) / spread + 1e-6))


def _fit_joint(
    motions: Sequence[Motion], joint: int, name: str, delay: int, limits: Limits, least: float
) -> JointResponse:
    design, step = _rows(motions, joint, delay, limits)
    excitation = float(np.std(np.concatenate([a[:, joint] for a, _ in motions])))
    if len(step) < 12 or excitation < least:
        return JointResponse(
            name=name, multiplier=None, stiffness=None, offset=None, residual=0.0, excitation=excitation
        )
    solution, residual = _solve(design, step)
    stiffness = -float(solution[1])
    usable = stiffness > 0.02
    return JointResponse(
        name=name,
        multiplier=float(solution[0]) / stiffness if usable else None,
        stiffness=stiffness if usable else None,
        offset=float(solution[2]) / stiffness if usable else None,
        residual=float(np.sqrt(np.mean(residual**2))),
        excitation=excitation,
    )


def _rows(
    motions: Sequence[Motion], joint: int, delay: int, limits: Limits
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    designs, steps = [], []
    low, high = float(limits[0][joint]), float(limits[1][joint])
    margin = 0.02 * (high - low)
    for actions, states in motions:
        # Every delay is scored on the same rows, or long delays would win by dropping the hard start.
        start = min(MAX_DELAY, max(0, len(actions) - MIN_ROWS))
        now, after = states[start:-1, joint].astype(np.float64), states[start + 1 :, joint].astype(np.float64)
        command = actions[start - delay : len(actions) - 1 - delay, joint].astype(np.float64)
        free = (now > low + margin) & (now < high - margin)
        designs.append(np.stack([command, now, np.ones_like(now)], axis=1)[free])
        steps.append((after - now)[free])
    return np.concatenate(designs), np.concatenate(steps)


def _solve(
    design: NDArray[np.float64], step: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    solution = np.linalg.lstsq(design, step, rcond=None)[0]
    residual = np.abs(step - design @ solution)
    keep = residual <= np.quantile(residual, 1.0 - TRIM)
    solution = np.linalg.lstsq(design[keep], step[keep], rcond=None)[0]
    return solution, (step - design @ solution)[keep]


def multiplier_at(
    motions: Sequence[Motion],
    joint: int,
    reference: JointResponse,
    *,
    delay_steps: int,
    limits: Limits,
    per_degree: float = 1.0,
) -> float | None:
    """Return a joint's multiplier when its stiffness and offset are known, for example the simulator's.

    With k and c known, ``s[t] + (s[t+1] - s[t]) / k - c`` is m times the command, row by row. Rows that head
    for a stop can then be left out, which the free fit cannot do, and the median over rows shrugs off
    contacts. None with fewer than 30 rows left, or without a reference.

    Args:
        motions: episodes of commands and readings.
        joint: column.
        reference: the joint's response elsewhere.
        delay_steps: d of the fit.
        limits: lower and upper limits of every column.
        per_degree: how much of the joint's unit is as much motion as a degree.
    """
    if reference.stiffness is None or reference.offset is None:
        return None
    low, high = float(limits[0][joint]), float(limits[1][joint])
    margin = 0.03 * (high - low)
    ratios = []
    for actions, states in motions:
        now, after = (
            states[delay_steps:-1, joint].astype(np.float64),
            states[delay_steps + 1 :, joint].astype(np.float64),
        )
        command = actions[: len(actions) - 1 - delay_steps, joint].astype(np.float64)
        target = now + (after - now) / reference.stiffness
        free = (
            (target > low + margin)
            & (target < high - margin)
            & (now > low + margin)
            & (now < high - margin)
            & (np.abs(command) > MIN_COMMAND * per_degree)
        )
        ratios.append((target[free] - reference.offset) / command[free])
    pooled = np.concatenate(ratios)
    return float(np.median(pooled)) if len(pooled) >= 30 else None
