"""Has a policy kept its teacher's ways of doing a task apart, averaged them, or forgotten all but one?

The census is told apart from the success rate: a policy that always takes one way can succeed always, one
that averages two ways drives into what lies between them. Everything is measured beside the teacher, on an
axis fitted to its own traces.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import binomtest

from simgap import causes
from simgap.errors import UsageError
from simgap.findings import CheckResult, Family, Verdict
from simgap.measures.motion import Array
from simgap.statistics import Quantity, class_entropy, dip_test, wilson

PHASES = 40
"""Points along the way at which traces are compared, evenly spaced by distance, so that haste and pauses do not matter."""
BETWEEN = 0.5
"""Nearer to the middle than this share of half the gap counts as between two ways."""
BLENDED = 0.3
EVEN = 0.5
"""Entropy below this share of the teacher's counts as lost ways."""
SIGNIFICANT = 0.05
STUCK = 0.01
FEWEST = 20
"""Rollouts below which nothing is said: a dip test of fewer has no power."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ModeAxis:
    """The direction in which two ways of a teacher differ, at the phase at which they differ most."""

    phase: int
    direction: Array
    """``(D,)``, of length 1."""
    middle: Array
    """``(D,)`` halfway between the two ways."""
    half_gap: float

    def project(self, position: Array) -> float:
        """Return where a trace ``(T, D)`` lies: -1 on the first way, 1 on the second, 0 between."""
        return float((phases(position)[self.phase] - self.middle) @ self.direction) / self.half_gap


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Ways:
    """What is known of a set of rollouts."""

    taken: Sequence[str]
    """Way of each rollout, empty where none was taken."""
    along: Array
    """``(N,)`` from :meth:`ModeAxis.project`."""
    longest_freeze_s: Array
    """``(N,)``; empty where it was not measured."""
    successes: int


def phases(position: Array) -> Array:
    """Return a trace at :data:`PHASES` points evenly spaced by distance, ``(PHASES, D)``; one that never moves repeats its place."""
    steps = np.linalg.norm(np.diff(position, axis=0), axis=1)
    way = np.concatenate(([0.0], np.cumsum(steps)))
    if way[-1] <= 0:
        return np.repeat(position[:1], PHASES, axis=0).astype(np.float64)
    at = np.linspace(0, way[-1], PHASES)
    return np.stack([np.interp(at, way, position[:, d]) for d in range(position.shape[1])], axis=1)


def axis_of(positions: Sequence[Array], taken: Sequence[str]) -> ModeAxis:
    """Fit the axis of two ways to a teacher's traces.

    Args:
        positions: ``(T, D)`` each, in comparable units.
        taken: way of each, two names in all.

    Raises:
        UsageError: not two ways with two traces each, or ways that do not differ.
    """
    names = [name for name, n in Counter(taken).most_common() if name and n > 1]
    if len(names) < 2:
        raise UsageError(
            f"ways {dict(Counter(taken))}: expected at least two ways with two traces each; record more of"
            " the teacher"
        )
    rows = np.stack([phases(p) for p in positions])
    kept = sorted(names[:2])
    first, second = (rows[[t == name for t in taken]] for name in kept)
    gap = second.mean(axis=0) - first.mean(axis=0)
    size = np.linalg.norm(gap, axis=1)
    unit = gap / np.where(size > 0, size, 1.0)[:, None]
    spread = np.sqrt(
        sum(np.einsum("npd,pd->np", side - side.mean(axis=0), unit).var(axis=0) for side in (first, second))
        / 2
    )
    phase = int(np.argmax(size / (spread + 1e-3 * size.max() + 1e-12)))
    if size[phase] <= 0:
        raise UsageError(
            f"the ways {kept[0]!r} and {kept[1]!r} do not differ in these traces; give positions that show"
            " them"
        )
    middle = (first.mean(axis=0)[phase] + second.mean(axis=0)[phase]) / 2
    return ModeAxis(phase=phase, direction=unit[phase], middle=middle, half_gap=float(size[phase]) / 2)


def census(
    taken: Sequence[str], known: Sequence[str], rng: np.random.Generator
) -> tuple[dict[str, int], Quantity]:
    """Count ways, and say how evenly the known ones are used: 0 one only, 1 all alike.

    Raises:
        UsageError: a way nobody knows.
    """
    counts = Counter(t for t in taken if t)
    strange = sorted(set(counts) - set(known))
    if strange:
        raise UsageError(f"ways {strange} are none of {list(known)}; give the env's own list of modes")
    return {name: counts[name] for name in known}, class_entropy(
        [counts[name] for name in known], len(known), rng=rng
    )


def blend_index(along: Array) -> float | None:
    """Return the share of rollouts that pass between two ways; None without a rollout."""
    return float((np.abs(along) < BETWEEN).mean()) if len(along) else None


def check_modes(policy: Ways, teacher: Ways, known: Sequence[str], rng: np.random.Generator) -> CheckResult:
    """Say whether a policy lost or averaged its teacher's ways. Two signs of four are needed, each beyond its noise.

    Signs: entropy of the ways below half the teacher's; more than .3 of rollouts between two ways; two modes
    not shown where the teacher's are (Hartigan's dip); stands longer than nearly all of the teacher's. A
    teacher with one way has nothing to lose.

    Args:
        policy: its rollouts of one context.
        teacher: its episodes of the same context.
        known: the env's modes.
        rng: of the dip tests and intervals.
    """
    fields: dict[str, Any] = {
        "family": Family.POLICY,
        "name": "ways of doing the task",
        "n": len(policy.taken),
        "statistic": "two signs of four",
    }
    if min(len(policy.along), len(teacher.along)) < FEWEST:
        text = (
            f"{len(policy.along)} rollouts of the policy and {len(teacher.along)} of the teacher; {FEWEST} of"
            " each are needed."
        )
        return CheckResult(
            **fields,
            verdict=Verdict.CANNOT_TELL,
            sentence=text,
            more_trials=max(0, FEWEST - len(policy.along)),
        )
    (ours, mine), (theirs, reference) = (census(w.taken, known, rng) for w in (policy, teacher))
    dips = {
        name: dip_test(w.along, rng=rng, draws=500).test.p_value
        for name, w in (("policy", policy), ("teacher", teacher))
    }
    numbers: dict[str, Any] = {
        "census": {"policy": ours, "teacher": theirs},
        "entropy": {"policy": mine.point, "teacher": reference.point},
        "blend_index": {"policy": blend_index(policy.along), "teacher": blend_index(teacher.along)},
        "dip_p": dips,
        "success": [policy.successes, len(policy.taken)],
    }
    if dips["teacher"] is None or dips["teacher"] >= SIGNIFICANT:
        text = "The teacher itself shows one way here; there is nothing to keep apart."
        return CheckResult(**fields, verdict=Verdict.OK, sentence=text, numbers=numbers)
    signs = _signs(policy, teacher, mine, reference, numbers)
    numbers["signs"] = signs
    success = f"success {policy.successes} of {len(policy.taken)}, told apart from it"
    if len(signs) < 2:
        text = f"It keeps the teacher's ways ({_counted(ours)}; teacher {_counted(theirs)}); {success}."
        return CheckResult(**fields, verdict=Verdict.OK, sentence=text, numbers=numbers)
    how = (
        "it averages them"
        if "blend" in signs
        else (
            f"it always goes {max(ours, key=lambda k: ours[k])}"
            if "entropy" in signs
            else "it does not commit to one"
        )
    )
    text = (
        f"The teacher has several ways ({_counted(theirs)}) and the policy lost them: {how}"
        f" ({_counted(ours)}; signs: {', '.join(signs)}); {success}."
    )
    return CheckResult(**fields, verdict=Verdict.BROKEN, cause=causes.POLICY, sentence=text, numbers=numbers)


def _signs(
    policy: Ways, teacher: Ways, mine: Quantity, reference: Quantity, numbers: Mapping[str, Any]
) -> list[str]:
    signs = []
    # The upper end: a few rollouts of one way by chance are no lost way. With no way taken at all there is no
    # census, and the blend speaks.
    if mine.high is not None and reference.point is not None and mine.high < EVEN * reference.point:
        signs.append("entropy")
    between = wilson(int((np.abs(policy.along) < BETWEEN).sum()), len(policy.along))
    own = blend_index(teacher.along) or 0.0
    if (
        between.point is not None
        and between.low is not None
        and between.point > BLENDED
        and between.low > own
    ):
        signs.append("blend")
    p = numbers["dip_p"]["policy"]
    if p is not None and p >= SIGNIFICANT:
        signs.append("one mode")
    if len(policy.longest_freeze_s) and len(teacher.longest_freeze_s):
        bound = float(np.quantile(teacher.longest_freeze_s, 0.99))
        beyond = int((policy.longest_freeze_s > bound).sum())
        if (
            beyond
            and binomtest(beyond, len(policy.longest_freeze_s), 0.05, alternative="greater").pvalue < STUCK
        ):
            signs.append("freeze")
    return signs


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{n} {name}" for name, n in counts.items())
