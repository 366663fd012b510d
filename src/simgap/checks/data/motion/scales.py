"""Do action and state of a joint mean the same: signs, polarity of jaws, units, gains and zeros.

Judged where the fit is tight; under saturation or load by the other frames only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from simgap.checks.data.motion.tracking import Tracking, is_idle
from simgap.checks.data.pooled import Pooled, is_gripper_name
from simgap.checks.data.report import DataFinding, Severity, listed
from simgap.conventions import Unit
from simgap.measures.units import PER_DEGREE, is_cartesian, unit_pair

PLAUSIBLE = (0.67, 1.5)
_CLOSE, _SURE = (0.85, 1.18), 0.97
"""The same of a joint that follows its command closely: those of healthy arms lie within 8 % of 1. And how close that is."""
"""Scales between these can be gain, sag or calibration; beyond them something else is wrong."""
_TIGHT = 0.9
_TURNS = -0.7
"""Correlation within episodes below which a joint moves against its command, whatever bends the fit."""
_AGAINST = -0.95
"""The same of jaws that are seldom fully open or closed."""
_TURNED = 0.85
"""Share of frames in which jaws are open where they are told to be closed, from which on their polarity is turned."""
_VELOCITY = re.compile(r"(?:^|[._])vel(?:ocity)?$")
_OFFSET = 0.05
"""Offset at rest, in ranges of the action, that sag and play stay under."""
SAG_DEG = 5.0
"""The same in degrees, where the unit is known or shows: joints under gravity stand a few degrees off, however little they move."""
_PARKED_DEG = 12.0
"""The same of joints that hardly move, whose scale nobody sees."""
_STEADY = 0.2
_LARGEST_RAD = 6.6
_ANGLES = (Unit.DEG, Unit.RAD, Unit.TICKS, Unit.RANGE_100)


def check_scales(pooled: Pooled, alive: Sequence[Tracking]) -> list[DataFinding]:
    """Return the findings on signs, units and zeros of joints that are measured and follow something."""
    found = _conventions(alive)
    named = {n for f in found for n in f.joints}  # a zero means nothing where the scale is another one
    return [*found, *_offsets(pooled, [t for t in alive if t.name not in named])]


def _conventions(alive: Sequence[Tracking]) -> list[DataFinding]:
    found = []
    for t in alive:
        sign = _turned(t, alive)
        is_affected = bool(t.saturation or t.load)
        judged = t.unaffected if is_affected else t.whole
        is_tight = (
            ((judged.r2 if is_affected else t.r2) or 0.0) >= _TIGHT
            and judged.scale is not None
            and not is_idle(t, list(alive))
        )
        scale = judged.scale if is_affected or t.moving.scale is None else t.moving.scale
        if sign is not None:
            text, code = sign
        elif not is_tight or scale is None or scale < 0:
            continue
        elif factor := unit_pair(scale, is_length=is_cartesian(t.name)):
            text, code = (
                f"the state of {t.name} is {scale:.4g} times its action, as {factor}",
                "unit_mismatch",
            )
        elif _is_off(t, scale, (judged.r2 if is_affected else t.r2) or 0.0, is_affected=is_affected):
            text = (
                f"the state of {t.name} is {scale:.3g} times its action (R2 {judged.r2:.3f}): gain, unit or"
                " calibration differ"
            )
            code = "scale_mismatch"
        else:
            continue
        found.append(
            DataFinding(
                code=code,
                severity=Severity.WARNING if code == "scale_mismatch" else Severity.FAULT,
                sentence=text,
                remedy="convert action and state to one convention before training",
                joints=(t.name,),
                numbers={
                    "scale": t.whole.scale,
                    "scale_moving": t.moving.scale,
                    "scale_still": t.still.scale,
                    "r2": judged.r2,
                    "correlation": t.turns,
                },
            )
        )
    return found


def _is_off(t: Tracking, scale: float, r2: float, *, is_affected: bool) -> bool:
    """Return whether a scale is no plausible one: far from 1, or clearly beside it where the joint follows closely and nothing holds it."""
    is_sure = r2 >= _SURE and not t.load and not is_gripper_name(t.name)
    low, high = _CLOSE if is_sure else PLAUSIBLE
    return (is_sure or not is_affected) and not low < scale < high


def _turned(t: Tracking, alive: Sequence[Tracking]) -> tuple[str, str] | None:
    """Return what is said of a joint that moves against its command, and the code; None where it does not."""
    # jaws of 0..1 are small beside degrees
    if t.turns is None or t.turns > _TURNS or (t.jaws is None and is_idle(t, list(alive))):
        return None
    if t.jaws is None:
        return (
            (
                f"the state of {t.name} moves against its action (correlation {t.turns:.3f} within episodes):"
                " a sign is flipped"
            ),
            "sign_flip",
        )
    if t.jaws.turned < _TURNED:  # jaws that rest about the middle are neither open nor closed
        against = f"{t.name} closes where its action opens it (correlation {t.turns:.3f} within episodes)"
        return (against, "gripper_polarity") if t.turns <= _AGAINST else None
    return (
        (
            f"{t.name} is open in {100 * t.jaws.turned:.0f} % of the frames in which its action says closed,"
            " and the other way round"
        ),
        "gripper_polarity",
    )


def degree_of(pooled: Pooled, name: str) -> float | None:
    """Return how much of a joint's unit is one degree: as declared, or as the numbers of its arm show; None where neither says."""
    declared = {
        d.name: d
        for d in (*pooled.dataset.spec.state_spec.dimensions, *pooled.dataset.spec.action_spec.dimensions)
    }.get(name)
    if declared is not None and declared.unit is not Unit.UNKNOWN:
        return PER_DEGREE[declared.unit] if declared.unit in _ANGLES else None
    arms = [j for j in pooled.joints if not j.is_gripper and not is_cartesian(j.name)]
    if name not in {j.name for j in arms}:
        return None
    largest = max(float(np.abs(s[:, [j.state for j in arms]]).max()) for s in pooled.states)
    if largest <= _LARGEST_RAD:
        return PER_DEGREE[Unit.RAD]
    return PER_DEGREE[Unit.TICKS] if largest > 720.0 else PER_DEGREE[Unit.DEG]


def _stands_off(t: Tracking, degree: float | None) -> bool:
    """Return whether a joint that follows its command rests farther off it than sag and play explain."""
    scale, bias = t.whole.scale, abs(t.bias_still or 0.0)
    least = max(_OFFSET * t.action_range, SAG_DEG * (degree or 0.0))
    return scale is not None and PLAUSIBLE[0] < scale < PLAUSIBLE[1] and (t.r2 or 0.0) >= 0.7 and bias > least


def _parked_off(t: Tracking, degree: float | None) -> bool:
    """Return whether a joint that hardly moves stands off its command all the time: only in degrees, and by more than a heavy arm sags."""
    bias, always = t.bias_still or 0.0, t.bias or 0.0
    steady = abs(always - bias) <= _STEADY * abs(bias) and (t.rmse or 0.0) <= _STEADY * abs(bias)
    return degree is not None and steady and abs(bias) > _PARKED_DEG * degree


def _offsets(pooled: Pooled, alive: Sequence[Tracking]) -> list[DataFinding]:
    bad = {}
    for t in alive:
        # a speed at rest is friction, and has no zero to recalibrate
        if t.bias_still is None or t.load or _VELOCITY.search(t.name):
            continue
        degree = degree_of(pooled, t.name)
        if _parked_off(t, degree) if is_idle(t, list(alive)) else _stands_off(t, degree):
            bad[t.name] = t
    if not bad:
        return []
    parts = [f"{n} {t.bias_still:+.3g} (median of {t.still_frames} still frames)" for n, t in bad.items()]
    return [
        DataFinding(
            code="static_offset",
            severity=Severity.WARNING,
            sentence=f"at rest the state stands off its command: {listed(parts)}",
            remedy=(
                "recalibrate the zero of these joints, of leader and follower alike, or add the sag to the"
                " simulator"
            ),
            joints=tuple(bad),
            numbers={
                n: {
                    "bias_still": t.bias_still,
                    "frames": t.still_frames,
                    "action_range": t.action_range,
                    "saturation": dict(t.saturation),
                }
                for n, t in bad.items()
            },
        )
    ]
