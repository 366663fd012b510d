"""Do two logs of one motion speak the same convention: labels and predictions, commands and readings, before and after an update.

A wrong convention is the same map on every episode; a weak policy is none. So the map is fitted first, and
only what no map explains is left to be blamed on something else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from simgap import causes
from simgap.checks.data.report import listed
from simgap.conventions import VectorSpec
from simgap.findings import CheckResult, Family, Verdict
from simgap.measures.gripper import GripperAgreement, agreement
from simgap.measures.maps import DimensionFit, Log, fit_map, map_of
from simgap.measures.units import ticks_of_range, unit_pair
from simgap.wording import number_of

SLOPE_TOLERANCE = 0.03
"""Relative deviation of a slope that training noise leaves; a unit or a range is far above."""
OFFSET_TOLERANCE = 0.03
"""Offset in ranges of the dimension that is left alone."""
_TIGHT = 0.9
"""R2 above which a map is believed."""
_FOLLOWS = 0.95
_UNRELATED = 0.5
_FEWEST_EPISODES = 1
NAME = "convention of two logs of one motion"

_WORDS: dict[str, Callable[[DimensionFit], str]] = {
    "steps for positions": lambda f: (
        "steps are given where positions are expected (their running sum follows at r ="
        f" {f.summed_correlation:.3f})"
    ),
    "positions for steps": lambda f: (
        f"positions are given where steps are expected (r = {f.differenced_correlation:.3f} with the sum of"
        " steps)"
    ),
    "order": lambda f: f"it is {f.source} that it follows",
    "sign": lambda f: f"its sign is turned (slope {f.slope:.3f}, offset {f.offset:+.3g})",
    "unit": lambda f: (
        f"{f.slope:.4g} times what is expected, {unit_pair(f.slope or 0.0)} (factor"
        f" {max(abs(f.slope or 0), 1 / abs(f.slope or 1)):.1f})"
    ),
    "scale": lambda f: (
        f"{f.slope:.4g} times what is expected (a -100..100 range of {ticks_of_range(f.slope or 0.0):.0f}"
        " ticks in degrees would be)"
    ),
    "offset": lambda f: f"its zero is {_zero(f):+.3g} off",
    "events": lambda f: "one side holds opening and closing events, the other the state that they lead to",
    "polarity": lambda f: "open and closed are swapped",
}


def check_convention(
    wanted: Sequence[Log],
    found: Sequence[Log],
    spec: VectorSpec,
    *,
    longest_lag: int = 0,
    bounds: tuple[Sequence[float], Sequence[float]] | None = None,
    assumes: tuple[str, ...] = (),
) -> CheckResult:
    """Compare what was meant with what came out, and name the map between them where it is not the identity.

    Args:
        wanted: labels, commands or the older convention by episode, ``(T, A)`` each, in the convention of
            ``spec``.
        found: predictions on the same frames, readings of a replay or the newer convention, ``(T, A)`` each.
        spec: names and grippers of the dimensions.
        longest_lag: frames that ``found`` may be behind, for readings of a plant.
        bounds: lowest and highest value by dimension that the un-normaliser or the training statistics allow;
            what of ``wanted`` and ``found`` lies outside is counted.
        assumes: assumptions of either side.
    """
    base: dict[str, Any] = {"family": Family.REPLAY, "name": NAME, "n": len(wanted), "assumes": assumes}
    if len(wanted) < _FEWEST_EPISODES or sum(len(w) for w in wanted) < 20:
        text = f"{number_of(sum(len(w) for w in wanted), 'frame is', 'frames are')} too few to fit a map; give at least 20."
        return CheckResult(**base, verdict=Verdict.CANNOT_TELL, sentence=text, more_trials=1)
    fits = fit_map(wanted, found, spec.names, longest_lag=longest_lag)
    jaws = _jaws(wanted, found, spec)
    faults = {f.name: _faults(f, jaws.get(f.name)) for f in fits}
    told = [f for f in fits if faults[f.name] or (f.slope is not None and f.r2 >= _TIGHT) or f.name in jaws]
    base["numbers"] = _numbers(wanted, found, spec, fits, faults, jaws, bounds)
    wrong = [f for f in fits if faults[f.name]]
    if wrong:
        worst = max(wrong, key=lambda f: abs(np.log(abs(f.slope))) if f.slope else 0.0)
        return CheckResult(
            **base,
            verdict=Verdict.BROKEN,
            cause=causes.ACTION_CONVENTION,
            sentence=_sentence(wrong, faults),
            statistic=f"slope of {worst.name}",
            value=worst.slope,
            threshold=1.0 + SLOPE_TOLERANCE,
        )
    lost = [f for f in fits if f not in told and f.slope is not None]
    if lost or not told:
        parts = [f"{f.name} (R2 {f.r2:.2f})" for f in lost] or ["no dimension moves"]
        text = (
            f"No convention explains {listed(parts)}: no order, sign, unit, zero or reference makes one"
            " follow the other."
        )
        return CheckResult(**base, verdict=Verdict.CANNOT_TELL, sentence=text)
    deviation = max(abs((f.slope or 1.0) - 1.0) for f in told)
    text = (
        f"{len(told)} of {len(fits)} dimensions move and mean the same on both sides, slopes within"
        f" {deviation:.1%} of 1."
    )
    return CheckResult(
        **base,
        verdict=Verdict.OK,
        sentence=text,
        statistic="largest deviation of a slope from 1",
        value=deviation,
        threshold=SLOPE_TOLERANCE,
    )


def _jaws(wanted: Sequence[Log], found: Sequence[Log], spec: VectorSpec) -> dict[str, GripperAgreement]:
    result = {}
    for k in np.flatnonzero(spec.gripper_mask):
        labels, outputs = (np.concatenate([np.asarray(v)[:, k] for v in side]) for side in (wanted, found))
        if np.ptp(labels) > 0 and np.ptp(outputs) > 0:
            result[spec.names[k]] = agreement(labels, outputs)
    return result


def _faults(f: DimensionFit, jaws: GripperAgreement | None) -> list[str]:
    if jaws is not None and jaws.fault:
        return jaws.fault.split(", ")
    if f.slope is None or f.offset is None:
        return []
    if abs(f.correlation) < _UNRELATED and f.summed_correlation > _FOLLOWS:
        return ["steps for positions"]
    if abs(f.correlation) < _UNRELATED and f.differenced_correlation > _FOLLOWS:
        return ["positions for steps"]
    if f.r2 < _TIGHT:
        return []
    faults = ["order"] * (f.source != f.name)
    if f.slope < 0:
        faults.append("sign")
    if _is_scaled(f):
        faults.append("unit" if unit_pair(f.slope) else "scale")
    if "sign" not in faults and abs(_zero(f)) > OFFSET_TOLERANCE * f.wanted_range * max(1.0, abs(f.slope)):
        faults.append("offset")
    return faults


def _is_scaled(f: DimensionFit) -> bool:
    """Return whether a slope is off by more than noise and by more than a weak policy's.

    Who predicts the mean of what may happen predicts R2 times its spread: a weak policy shrinks, and that is
    no unit.
    """
    tolerance = max(SLOPE_TOLERANCE + 2.0 * (1.0 - f.r2), 3.0 * f.slope_error)
    return f.slope is not None and abs(abs(f.slope) - 1.0) > tolerance


def _zero(f: DimensionFit) -> float:
    """Return by how much the zero is off: the intercept of a scaled dimension, else the median difference, which shrinking does not move."""
    return (f.offset if _is_scaled(f) else f.difference) or 0.0


def _numbers(
    wanted: Sequence[Log],
    found: Sequence[Log],
    spec: VectorSpec,
    fits: Sequence[DimensionFit],
    faults: dict[str, list[str]],
    jaws: dict[str, GripperAgreement],
    bounds: tuple[Sequence[float], Sequence[float]] | None,
) -> dict[str, Any]:
    affine = map_of(fits)
    moving = [k for k, f in enumerate(fits) if f.slope is not None]
    scale = np.maximum([f.wanted_range for f in fits], 1e-12)
    before = _mismatch(wanted, found, scale, moving)
    after = (
        before
        if affine is None
        else _mismatch([affine.apply(w) for w in wanted], found, scale * np.abs(affine.scale), moving)
    )
    lag = max((f.lag_frames for f in fits), default=0)
    numbers: dict[str, Any] = {
        "joints": {f.name: f.to_json() | {"faults": faults[f.name]} for f in fits},
        "map": None if affine is None else affine.to_json(),
        "order": [f.source for f in fits],
        "lag_frames": lag,
        "mismatch": {"before": before, "after_map": None if lag else after},
        "grippers": {n: j.to_json() for n, j in jaws.items()},
        "broken": {},
    }
    if bounds is not None:
        low, high = (np.asarray(b, dtype=np.float64) for b in bounds)
        sides = {"wanted": np.concatenate(wanted), "found": np.concatenate(found)}
        numbers["outside_bounds"] = {
            side: dict(zip(spec.names, ((v < low) | (v > high)).mean(axis=0).tolist(), strict=True))
            for side, v in sides.items()
        }
    return numbers


def _mismatch(wanted: Sequence[Log], found: Sequence[Log], scale: Any, moving: list[int]) -> float:
    """Return the root mean square difference, in ranges of the dimension, over those that move."""
    difference = (np.concatenate(found) - np.concatenate(wanted)) / scale
    return float(np.sqrt(np.mean(difference[:, moving] ** 2))) if moving else 0.0


def _sentence(wrong: Sequence[DimensionFit], faults: dict[str, list[str]]) -> str:
    groups: dict[str, list[str]] = {}
    for f in wrong:
        groups.setdefault("; ".join(_WORDS[k](f) for k in faults[f.name]), []).append(f.name)
    parts = [f"{listed(names, 12)}: {words}" for words, names in groups.items()]
    return f"Another convention, the same on every episode, and no fault of a policy: {'; '.join(parts)}."
