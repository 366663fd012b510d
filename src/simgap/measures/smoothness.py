"""Does a policy move as its teacher does? Freezes, jumps where chunks meet, jerk and detours, all beside the teacher's own traces.

A number alone says nothing here: a teacher that waits for a gripper freezes too. A measure speaks only if the
policy's episodes rank worse than the teacher's, its median lies beyond nearly all of them, *and* the
difference is one that could be felt. Only successful episodes are compared where there are enough, and none
beyond the teacher's longest: a failed episode stands still until the horizon, and every measure would only
repeat that it failed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import mannwhitneyu

from simgap import causes
from simgap.causes import Cause
from simgap.conventions import VectorSpec
from simgap.errors import UsageError
from simgap.findings import CheckResult, Family, Verdict
from simgap.measures.motion import (
    Array,
    disagreement_by_age,
    freeze_share,
    log_dimensionless_jerk,
    longest_freeze_s,
    path_ratio,
    seam_jump,
    seams,
    sparc,
    speed,
)
from simgap.rollouts.record import RolloutRecord
from simgap.statistics import holm

__all__ = [
    "MEASURES",
    "Ruler",
    "Trace",
    "check_smoothness",
    "disagreement_by_age",
    "measure",
    "ruler_of",
    "trace_of",
]

STILL = 0.05
"""Share of the teacher's median speed below which something stands still."""
EXTREME = 0.95
"""The policy's median must lie beyond this share of the teacher's episodes."""
SIGNIFICANT = 0.01
FEWEST = 8
"""Episodes of each below which nothing is said."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Trace:
    """One episode's motion in units of the convention's limits."""

    position: Array
    """``(T, D)`` encoder readings over their ranges."""
    rate_hz: float
    action: Array
    """``(T, A)`` what was sent, over its ranges."""
    age: Array | None = None
    """``(T,)`` steps between each action and its observation; None for a teacher."""
    disagreement: Array | None = None
    """``(T,)`` between averaged predictions, NaN where fewer than two."""
    is_success: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class _Measure:
    what: str
    worse: int
    """1: larger is worse; -1: smaller is."""
    least: float
    """A smaller difference of the medians is no finding, however sure: nobody would feel it. A judgement, not a measurement."""
    cause: Cause
    reading: str


MEASURES: Mapping[str, _Measure] = {
    "freeze_share": _Measure(
        what="share of time standing still",
        worse=1,
        least=0.05,
        cause=causes.POLICY,
        reading="it stands still where the teacher moves",
    ),
    "longest_freeze_s": _Measure(
        what="longest stand, s", worse=1, least=0.2, cause=causes.POLICY, reading="it gets stuck"
    ),
    "seam_jump": _Measure(
        what="step where chunks meet over step within",
        worse=1,
        least=0.5,
        cause=causes.EXECUTION,
        reading="it jumps where chunks meet",
    ),
    "sparc": _Measure(
        what="spectral arc length",
        worse=-1,
        least=0.15,
        cause=causes.POLICY,
        reading="its motion is broken into pieces",
    ),
    "log_dimensionless_jerk": _Measure(
        what="log dimensionless jerk", worse=-1, least=0.5, cause=causes.POLICY, reading="it jitters"
    ),
    "path_ratio": _Measure(
        what="way over distance", worse=1, least=0.1, cause=causes.POLICY, reading="it takes detours"
    ),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Ruler:
    """What the teacher's traces say about how to measure."""

    still: float
    """Speed below which something stands still."""
    longest: int
    """Samples of the teacher's longest episode; later ones are not looked at."""


def trace_of(record: RolloutRecord, state_spec: VectorSpec, action_spec: VectorSpec) -> Trace:
    """Return a rollout's motion; grippers are left out, whose closing is no motion of the arm."""

    def scaled(rows: Any, spec: VectorSpec) -> Array:
        low, high = (
            np.array([getattr(d, end) for d in spec.dimensions], dtype=np.float64) for end in ("low", "high")
        )
        width = np.where(high > low, high - low, 1.0)
        kept = np.array([not d.is_gripper for d in spec.dimensions])
        values: Array = ((np.asarray(rows, dtype=np.float64) - low) / width)[:, kept]
        return values

    return Trace(
        position=scaled(record.state, state_spec),
        rate_hz=action_spec.rate_hz,
        action=scaled(record.action, action_spec),
        age=np.asarray(record.age, dtype=np.float64),
        disagreement=(
            None if record.disagreement is None else np.asarray(record.disagreement, dtype=np.float64)
        ),
        is_success=record.outcome.is_success,
    )


def ruler_of(teacher: Sequence[Trace]) -> Ruler:
    """Return how to measure, from the teacher's traces.

    Raises:
        UsageError: no trace, or a teacher that never moves.
    """
    speeds = np.concatenate([speed(t.position, t.rate_hz) for t in teacher]) if teacher else np.zeros(0)
    moving = speeds[speeds > 0]
    if len(moving) == 0:
        raise UsageError("the teacher's traces hold no motion: there is nothing to compare a policy's with")
    return Ruler(still=STILL * float(np.median(moving)), longest=max(len(t.position) for t in teacher))


def measure(trace: Trace, ruler: Ruler, every: int | None = None) -> dict[str, float | None]:
    """Return every measure of :data:`MEASURES`, None where one is undefined.

    Args:
        trace: one episode.
        ruler: from the teacher.
        every: for a trace without chunks: look for jumps at every so many steps, so that it can be compared
            with one that has them.
    """
    position, action = trace.position[: ruler.longest], trace.action[: ruler.longest]
    speeds = speed(position, trace.rate_hz)
    at = None
    if trace.age is not None:
        at = seams(trace.age[: ruler.longest])
    elif every is not None:
        at = (np.arange(len(action)) % every == 0) & (np.arange(len(action)) > 0)
    return {
        "freeze_share": freeze_share(speeds, ruler.still),
        "longest_freeze_s": longest_freeze_s(speeds, ruler.still, trace.rate_hz),
        "seam_jump": None if at is None else seam_jump(action, at),
        "sparc": sparc(speeds, trace.rate_hz),
        "log_dimensionless_jerk": log_dimensionless_jerk(speeds, trace.rate_hz),
        "path_ratio": path_ratio(position),
    }


def check_smoothness(policy: Sequence[Trace], teacher: Sequence[Trace]) -> CheckResult:
    """Compare a policy's motion with its teacher's, measure by measure, all together at 1 %.

    Args:
        policy: rollouts; the successful ones are used where there are at least :data:`FEWEST`.
        teacher: its episodes of the same task and conditions.
    """
    done = [t for t in policy if t.is_success]
    used = done if len(done) >= FEWEST else list(policy)
    fields: dict[str, Any] = {
        "name": "smoothness beside the teacher",
        "n": len(used),
        "statistic": "Mann-Whitney ranks, Holm over measures",
    }
    if min(len(used), len(teacher)) < FEWEST:
        text = (
            f"{len(used)} episodes of the policy and {len(teacher)} of the teacher; {FEWEST} of each are"
            " needed."
        )
        return CheckResult(
            family=Family.POLICY,
            verdict=Verdict.CANNOT_TELL,
            sentence=text,
            more_trials=max(0, FEWEST - len(used)),
            **fields,
        )
    ruler = ruler_of(teacher)
    ours = [measure(t, ruler) for t in used]
    theirs = [measure(t, ruler, _spacing(used)) for t in teacher]
    numbers: dict[str, Any] = {
        "successful_only": used is done,
        "still": ruler.still,
        "disagreement": _disagreement(used),
    }
    tested: list[tuple[str, float]] = []
    for name, kind in MEASURES.items():
        mine, reference = (
            np.array([v for row in rows if (v := row[name]) is not None]) for rows in (ours, theirs)
        )
        if min(len(mine), len(reference)) < FEWEST:
            continue
        p = float(mannwhitneyu(mine, reference, alternative="greater" if kind.worse > 0 else "less").pvalue)
        bound = float(np.quantile(reference, EXTREME if kind.worse > 0 else 1 - EXTREME))
        numbers[name] = {
            "policy": float(np.median(mine)),
            "teacher": float(np.median(reference)),
            "bound": bound,
            "n": len(mine),
        }
        tested.append((name, p))
    found = []
    for (name, _), adjusted in zip(tested, holm([p for _, p in tested]), strict=True):
        row = numbers[name]
        row["p"] = adjusted
        kind = MEASURES[name]
        is_beyond = (
            kind.worse * (row["policy"] - row["bound"]) > 0
            and kind.worse * (row["policy"] - row["teacher"]) >= kind.least
        )
        if adjusted < SIGNIFICANT and is_beyond:
            found.append(name)
    if not found:
        return CheckResult(
            family=Family.POLICY,
            verdict=Verdict.OK,
            sentence=_told(tested, numbers),
            numbers=numbers,
            **fields,
        )
    return _rougher(found, numbers, fields)


def _rougher(found: list[str], numbers: dict[str, Any], fields: dict[str, Any]) -> CheckResult:
    """Return the result where some measures lie beyond the teacher's."""
    parts = [
        f"{MEASURES[n].reading} ({MEASURES[n].what} {numbers[n]['policy']:.3g}, teacher"
        f" {numbers[n]['teacher']:.3g})"
        for n in found
    ]
    is_seam = found == ["seam_jump"] or (
        "seam_jump" in found and not {"freeze_share", "longest_freeze_s"} & set(found)
    )
    cause, family = (causes.EXECUTION, Family.EXECUTION) if is_seam else (causes.POLICY, Family.POLICY)
    numbers["found"] = found
    return CheckResult(
        family=family,
        verdict=Verdict.BROKEN,
        cause=cause,
        sentence=f"{'; '.join(parts)}.",
        numbers=numbers,
        **fields,
    )


def _told(tested: Sequence[tuple[str, float]], numbers: Mapping[str, Any]) -> str:
    shown = [
        f"{MEASURES[n].what} {numbers[n]['policy']:.3g} (teacher {numbers[n]['teacher']:.3g})"
        for n, _ in tested
    ]
    return f"It moves as its teacher does: {', '.join(shown)}."


def _spacing(traces: Sequence[Trace]) -> int | None:
    """Return the usual number of steps between two chunks, None where there are no chunks."""
    gaps = [np.diff(np.flatnonzero(seams(t.age))) for t in traces if t.age is not None]
    every = np.concatenate(gaps) if gaps else np.zeros(0)
    return int(np.median(every)) if len(every) and np.median(every) >= 2 else None


def _disagreement(traces: Sequence[Trace]) -> float | None:
    """Return the median disagreement of averaged predictions, as a share of the limits; None where none were averaged."""
    values = np.concatenate([t.disagreement for t in traces if t.disagreement is not None] or [np.zeros(0)])
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else None
