"""The pixel floor: the smallest frame size at which the target can be placed and told apart. The probe decides, the ruler explains."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.envs.abilities import TrainsProbe, able
from simgap.envs.base import TaskEnv
from simgap.envs.factors import FactorRanges
from simgap.errors import UsageError
from simgap.pixelfloor.probe import (
    PHASES,
    PhaseError,
    ProbeSet,
    ProbeSpec,
    Scene,
    blind_guess,
    draw_sets,
    held_out_errors,
    sample_scenes,
    train_probe,
)
from simgap.pixelfloor.ruler import Ruler, measure
from simgap.policies.cnn import LARGEST_PX, SMALLEST_PX
from simgap.provenance import child_rng

NEEDED_SHARE = 0.95
"""Share of held-out scenes in which the target must be placed within the task's tolerance and told from every distractor."""
HOPELESS_SHARE = 0.25
"""Where no more than this share can be placed or told apart, the task is out of reach; between the two the floor is a slope."""
RULER_SCENES = 100


class FloorVerdict(StrEnum):
    """Whether frames of one size carry what the task needs."""

    PASS = "pass"
    CANNOT_TELL = "cannot tell"
    """The interval holds the needed share."""
    MARGINAL = "marginal"
    """Fewer scenes than needed can be placed, but some: a policy would succeed about as often, and no training mends it."""
    FAIL = "fail"

    @property
    def is_below(self) -> bool:
        """True when frames carry too little for the task."""
        return self in (FloorVerdict.MARGINAL, FloorVerdict.FAIL)


@dataclass(frozen=True, kw_only=True, slots=True)
class SizeReport:
    """Ruler and probe of one frame size."""

    size_px: int
    verdict: FloorVerdict
    reason: str
    errors: tuple[PhaseError, ...]
    rulers: tuple[Ruler, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "size_px": self.size_px,
            "verdict": str(self.verdict),
            "reason": self.reason,
            "probe": [e.to_json() for e in self.errors],
            "ruler": [r.to_json() for r in self.rulers],
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class FloorReport:
    """What :func:`search_floor` found."""

    env: str
    factors: str
    cameras: tuple[str, ...]
    tolerance_mm: float
    sizes: tuple[SizeReport, ...]
    assumes: tuple[str, ...] = field(default=())

    @property
    def smallest_px(self) -> int | None:
        """The smallest size that passes and above which no measured size fails; None when there is none."""
        found = None
        for report in sorted(self.sizes, key=lambda r: -r.size_px):
            if report.verdict is not FloorVerdict.PASS:
                break
            found = report.size_px
        return found

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "env": self.env,
            "factors": self.factors,
            "cameras": list(self.cameras),
            "tolerance_mm": self.tolerance_mm,
            "needed_share": NEEDED_SHARE,
            "smallest_px": self.smallest_px,
            "sizes": [s.to_json() for s in self.sizes],
            "assumes": list(self.assumes),
        }


def require_sizes(sizes: Sequence[int]) -> tuple[int, ...]:
    """Return sizes without repeats, smallest first.

    Raises:
        UsageError: one is outside what an encoder takes.
    """
    wrong = [s for s in sizes if not SMALLEST_PX <= s <= LARGEST_PX]
    if wrong or not sizes:
        raise UsageError(f"frame sizes {wrong or 'none'}: give sides from {SMALLEST_PX} to {LARGEST_PX} px")
    return tuple(sorted(set(sizes)))


def search_floor(
    env: TaskEnv,
    ranges: FactorRanges,
    sizes: Sequence[int],
    *,
    until_pass: bool = False,
    cameras: Sequence[str] | None = None,
    spec: ProbeSpec | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> FloorReport:
    """Measure an env at several frame sizes, the smallest first.

    Args:
        env: an env that says where its target is; its running episode ends.
        ranges: how scenes vary.
        sizes: sides of a frame, px.
        until_pass: stop after the first size that passes.
        cameras: names; all of the env's by default.
        spec: the probe's training.
        progress: called with what was done and how many units of it.

    Raises:
        UsageError: a size no encoder takes, or an env that does not say where its target is.
    """
    spec = spec or ProbeSpec()
    names = tuple(env.cameras if cameras is None else cameras)
    rng = child_rng(spec.seed, "pixel-floor")
    scenes = sample_scenes(env, ranges, spec.scenes, rng)
    reports: list[SizeReport] = []
    for size in require_sizes(sizes):
        reports.append(_one_size(env, scenes, size, names, spec, progress))
        if until_pass and reports[-1].verdict is FloorVerdict.PASS:
            break
    return FloorReport(
        env=env.name,
        factors=ranges.name,
        cameras=names,
        tolerance_mm=1000 * able(env, TrainsProbe).position_tolerance_m,
        sizes=tuple(reports),
        assumes=tuple(
            f"{k}={v}" for k, v in env.stamp_fields().items() if k in ("engine", "renderer", "env")
        ),
    )


def work_of(spec: ProbeSpec) -> int:
    """Return how many units one size's progress counts: scenes drawn and training steps."""
    return len(PHASES) * spec.scenes + spec.steps


def _one_size(
    env: TaskEnv,
    scenes: Mapping[str, Sequence[Scene]],
    size: int,
    cameras: Sequence[str],
    spec: ProbeSpec,
    progress: Callable[[str, int], None] | None,
) -> SizeReport:
    rulers = measure(env, {phase: poses[:RULER_SCENES] for phase, poses in scenes.items()}, cameras, (size,))
    noise, tolerance_m = (
        child_rng(spec.seed, "pixel-noise", size),
        able(env, TrainsProbe).position_tolerance_m,
    )
    data = draw_sets(
        env,
        scenes,
        (size,),
        cameras,
        noise,
        progress=None if progress is None else lambda n: progress(f"{size} px", n),
    )[size]
    errors = probe_errors(
        data,
        spec,
        tolerance_m,
        None if progress is None else lambda n: progress(f"{size} px, probe", n),
    )
    verdict, reason = judge(errors, tolerance_m)
    if progress:
        progress(f"{size} px: {verdict}", 0)
    return SizeReport(
        size_px=size, verdict=verdict, reason=reason, errors=tuple(errors), rulers=tuple(rulers)
    )


def probe_errors(
    data: ProbeSet, spec: ProbeSpec, tolerance_m: float, progress: Callable[[int], None] | None = None
) -> list[PhaseError]:
    """Train a probe on most of the stills and score it on the rest, by phase; ``progress`` is told of training steps done."""
    train, held_out = split_rows(len(data), spec.held_out_share, child_rng(spec.seed, "held-out"))
    seen, unseen = data.rows(train), data.rows(held_out)
    predict = train_probe(seen, spec, progress)
    return held_out_errors(predict(unseen), unseen, blind_guess(seen, unseen), tolerance_m)


def split_rows(
    count: int, share: float, rng: np.random.Generator
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return disjoint rows to train on and to score."""
    order = rng.permutation(count)
    held = max(1, round(share * count))
    return order[held:], order[:held]


def judge(errors: Sequence[PhaseError], tolerance_m: float) -> tuple[FloorVerdict, str]:
    """Pass where intervals of both shares lie above :data:`NEEDED_SHARE` in every phase; marginal where one lies below, fail where one is hopeless.

    Far from the target an error of a few tolerances is mended on the way, as long as the right object is
    approached; near it none is.
    """
    doubt = ""
    worst_share: tuple[float, str] | None = None
    for e in errors:
        asked = [("told from every distractor", e.told_apart)]
        if e.phase != "start" or len(errors) == 1:
            asked.append((f"placed within {1000 * tolerance_m:g} mm", e.placed))
        for what, share in asked:
            said = f"{e.phase}: {what} in {share}; {NEEDED_SHARE:.0%} needed"
            if share.low is None or share.high is None or share.low <= NEEDED_SHARE <= share.high:
                doubt = doubt or said
            elif share.high < NEEDED_SHARE and (worst_share is None or share.high < worst_share[0]):
                worst_share = (share.high, said)
    if worst_share is not None:
        return (FloorVerdict.FAIL if worst_share[0] < HOPELESS_SHARE else FloorVerdict.MARGINAL), worst_share[
            1
        ]
    if doubt:
        return FloorVerdict.CANNOT_TELL, doubt
    worst = max(errors, key=lambda e: e.p90_mm)
    return (
        FloorVerdict.PASS,
        (
            f"placed and told apart in every phase; largest 90th percentile of the error {worst.p90_mm:.1f}"
            f" mm ({worst.phase})"
        ),
    )


__all__ = [
    "FloorReport",
    "FloorVerdict",
    "Scene",
    "SizeReport",
    "judge",
    "probe_errors",
    "require_sizes",
    "search_floor",
    "work_of",
]
