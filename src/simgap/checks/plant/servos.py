"""Plant: delay and stiffness of the robot against the simulator, from the same replays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from simgap import causes
from simgap.checks.replay.motions import response_of
from simgap.conventions import ActionSpec
from simgap.findings import CheckResult, Family, Verdict
from simgap.measures.response import Motion

DELAY_LIMIT_STEPS = 2
"""Further control steps between command and motion that count as a broken plant; one is within jitter."""
STIFFNESS_LIMIT = 0.3
"""Relative change of the share of the distance a servo closes in one step."""


def check_plant(
    robot: Sequence[Motion], simulator: Sequence[Motion], spec: ActionSpec, *, assumes: tuple[str, ...] = ()
) -> CheckResult:
    """Compare command delay and servo stiffness; the delay is fitted over all joints together.

    Args:
        robot: replays on the robot.
        simulator: the same actions as logged in the simulator.
        spec: the action convention, whose rate turns steps into seconds.
        assumes: assumptions of the simulator's side.
    """
    name = "delay and stiffness from the replays"
    if len(robot) < 3:
        text = f"{len(robot)} usable replays; at least 3 are needed."
        return CheckResult(
            family=Family.PLANT,
            name=name,
            verdict=Verdict.CANNOT_TELL,
            sentence=text,
            more_trials=3 - len(robot),
            n=len(robot),
            assumes=assumes,
        )
    ours, theirs = response_of(robot, spec), response_of(simulator, spec)
    extra = ours.delay_steps - theirs.delay_steps
    ratios = {
        a.name: a.stiffness / b.stiffness
        for a, b in zip(ours.joints, theirs.joints, strict=True)
        if a.stiffness and b.stiffness
    }
    if not ratios:
        text = "No joint moved enough in the replays to tell its delay or stiffness."
        return CheckResult(
            family=Family.PLANT,
            name=name,
            verdict=Verdict.CANNOT_TELL,
            sentence=text,
            n=len(robot),
            assumes=assumes,
        )
    stiffness = float(np.median(list(ratios.values())))
    numbers = {"extra_delay_steps": extra, "extra_delay_s": extra / spec.rate_hz, "stiffness_ratios": ratios}
    base: dict[str, Any] = {
        "family": Family.PLANT,
        "name": name,
        "statistic": "further delay between command and motion",
        "value": float(extra),
        "threshold": float(DELAY_LIMIT_STEPS),
        "unit": "control steps",
        "n": len(robot),
        "numbers": numbers,
        "assumes": assumes,
    }
    if extra >= DELAY_LIMIT_STEPS:
        text = (
            f"Commands take effect {extra} control steps ({1000 * extra / spec.rate_hz:.0f} ms) later than in"
            " the simulator, on all joints alike."
        )
        return CheckResult(**base, verdict=Verdict.BROKEN, sentence=text, cause=causes.ACTION_LATENCY)
    if abs(stiffness - 1.0) > STIFFNESS_LIMIT:
        text = (
            f"The servos close {stiffness:.2f} times the distance per step that the simulator's do (median of"
            f" {len(ratios)} joints): gains or load differ."
        )
        return CheckResult(**base, verdict=Verdict.BROKEN, sentence=text, cause=causes.PLANT_GAIN)
    when = (
        "with the simulator's delay"
        if extra == 0
        else (
            f"{abs(extra)} control step{'s' if abs(extra) > 1 else ''} {'later' if extra > 0 else 'sooner'}"
            " than in it"
        )
    )
    text = f"Commands take effect {when}, and the servos are {stiffness:.2f} times as stiff."
    return CheckResult(**base, verdict=Verdict.OK, sentence=text)
