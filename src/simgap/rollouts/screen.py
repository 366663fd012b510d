"""The screen: sim rollouts over fresh seeds, one interval, one of three verdicts. It kills what is broken; it proves nothing else."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from simgap.compute.locks import alone_in
from simgap.compute.workers import TaskRunner
from simgap.envs import make_env
from simgap.errors import DataError, UsageError
from simgap.policies.bridges.open import read_any_card
from simgap.provenance import (
    Stamp,
    canonical_json,
    content_hash,
    file_hash,
    read_json,
    source_hash,
    write_atomic,
)
from simgap.rollouts.engine import RolloutSpec
from simgap.rollouts.kept import run_kept
from simgap.rollouts.record import RolloutRecord, outcome_from_json
from simgap.rollouts.spent import claim
from simgap.rollouts.timing import write_timing
from simgap.rollouts.traces import read_rows, write_records
from simgap.rollouts.videos import write_videos
from simgap.seeds import Purpose
from simgap.statistics import (
    Estimate,
    ScreenPlan,
    ScreenVerdict,
    Tally,
    beta_mixture,
    capped_screen,
    clopper_pearson,
    run_screen,
    screen_verdict,
    tally,
    wilson,
)
from simgap.types import EvidenceKind, Outcome

BROKEN_BELOW = 0.5
"""A policy whose whole interval lies below this in its own simulator is broken."""
WORTHY_ABOVE = 0.7
"""A policy whose whole interval lies above this is worth hardware time."""
FIXED, CAPPED = "fixed n", "stops when decided"
"""How the number of rollouts is decided: before the first, or by a plan with a cap."""
GROUPS, TRACES, VIDEOS = "groups", "traces.npz", "failures"
DEFAULT_ENGINE = "mujoco"
"""What teachers' data are made on unless another engine is asked for."""
WRAPPED = "wrapped "
"""How the engine of a wrapped env begins in its stamp."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScreenReport:
    """What a screen found. Evidence of kind ``sim``, or ``second_engine`` from another engine than the one policies learn on, whatever the numbers."""

    verdict: ScreenVerdict
    counts: Tally
    rate: Estimate
    """To show: Wilson, or of a screen that may stop early an interval that holds at every look."""
    exact: Estimate
    """To decide: Clopper-Pearson, on which the verdict rests; of a screen that may stop early the same as ``rate``, and its plan decides."""
    outcomes: Mapping[int, Outcome]
    """Seed -> outcome, in the order of the seeds; of a screen that stopped early up to the rollout that decided."""
    cap: int
    """Rollouts at most."""
    plan: str
    """What decided when to stop; empty for a fixed n."""
    stamp: Stamp
    path: Path
    """Folder with ``screen.json``, ``films.npz``, ``traces.npz`` and, where there are any, videos in ``failures``."""

    @property
    def evidence(self) -> EvidenceKind:
        """What kind of evidence this is, by the engine in its stamp; a wrapped env has its own engine alone, on which its policies learnt."""
        is_own = str(self.stamp.fields.get("engine", DEFAULT_ENGINE)).startswith((DEFAULT_ENGINE, WRAPPED))
        return EvidenceKind.SIM if is_own else EvidenceKind.SECOND_ENGINE

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "evidence": str(self.evidence),
            "verdict": str(self.verdict),
            "bars": {"broken_below": BROKEN_BELOW, "worthy_above": WORTHY_ABOVE},
            "successes": self.counts.successes,
            "n": self.counts.n,
            "failures": dict(self.counts.failures),
            "voids": dict(self.counts.voids),
            "cap": self.cap,
            "rollouts": len(self.outcomes),
            "stopped_early": bool(self.plan) and len(self.outcomes) < self.cap,
            "plan": self.plan,
            **self._intervals(),
            "confidence": self.rate.confidence,
            "stamp": self.stamp.to_json(),
            "path": str(self.path),
        }

    def _intervals(self) -> dict[str, list[float | None]]:
        if self.plan:
            return {"anytime": [self.rate.low, self.rate.high]}
        return {
            "wilson": [self.rate.low, self.rate.high],
            "clopper_pearson": [self.exact.low, self.exact.high],
        }


def screen(
    spec: RolloutSpec,
    out: Path,
    *,
    workers: int,
    sequential: bool = False,
    progress: Callable[[int, int], None] | None = None,
    runner: TaskRunner | None = None,
) -> ScreenReport:
    """Screen a policy, or read back the finished screen of the same policy, executor, ranges and seeds.

    Killed at any moment and started again it goes on from the groups of rollouts that are kept; the result is
    the same at any number of workers.

    Args:
        spec: what to run; the seeds must be of another purpose than those of training. Report seeds are spent
            on this policy.
        out: folder of screens; finished ones are found again by content.
        workers: processes; 0 runs in this one.
        sequential: stop as soon as the verdict is decided; ``spec.episodes`` is then the cap.
        progress: called with (episodes done, total).
        runner: who runs the groups: worker processes of this machine, or those of a cluster.

    Raises:
        UsageError: seeds of another purpose, or report seeds that are spent on something else.
    """
    if spec.purpose not in (Purpose.SELECT, Purpose.REPORT):
        raise UsageError(
            f"a screen on seeds of purpose {spec.purpose!r} would test what was trained on; use select or"
            " report seeds"
        )
    card = read_any_card(spec.checkpoint)
    stopping = CAPPED if sequential else FIXED
    made_by = make_env(
        spec.env,
        image_size=card.architecture.image_size,
        render=False,
        engine=spec.engine,
        renderer=spec.renderer,
    ).stamp_fields()
    source = source_hash("envs", "rollouts", "policies", "statistics")[:16]
    identity = {**spec.to_json(), **made_by, "policy": card.hash, "source": source, "stopping": stopping}
    folder = out / content_hash(identity)[:16]
    claim(out, spec, card.hash, stopping)
    # damaged traces are to be deleted, and then have to come again
    if not all((folder / name).exists() for name in ("screen.json", TRACES)):
        plan = plan_of(spec.episodes) if sequential else None

        def decided(records: Sequence[RolloutRecord]) -> bool:
            return plan is not None and run_screen(plan, (r.outcome for r in records)).finished

        with alone_in(folder):
            records = run_kept(
                spec,
                folder / GROUPS,
                policy=card.hash,
                workers=workers,
                enough=decided if sequential else None,
                progress=progress,
                runner=runner,
            )
            used = len(records) if plan is None else run_screen(plan, (r.outcome for r in records)).rollouts
            _write(folder, Stamp(kind="rollouts", fields=identity), records[:used], float(made_by["rate_hz"]))
            # all of it is in the finished screen, but for films nobody asks for
            shutil.rmtree(folder / GROUPS, ignore_errors=True)
    elif progress:
        progress(spec.episodes, spec.episodes)
    return read_screen(folder)


def plan_of(cap: int) -> ScreenPlan:
    """Return when a screen of at most this many rollouts stops, for the bars of every screen."""
    return capped_screen(cap, broken_below=BROKEN_BELOW, worthy_above=WORTHY_ABOVE)


def read_screen(folder: Path) -> ScreenReport:
    """Read a finished screen; every number is recomputed from its outcomes, and they are held against its traces.

    Raises:
        DataError: no screen, one that cannot be read, or one that says something else than its traces.
    """
    data = read_json(folder / "screen.json")
    try:
        _require_traces(folder, data)
        stamp = Stamp(
            kind=data["stamp"]["kind"], fields={k: v for k, v in data["stamp"].items() if k != "kind"}
        )
        outcomes = {int(row["seed"]): outcome_from_json(row) for row in data["rollouts"]}
        cap, is_fixed = (
            int(stamp.fields.get("episodes", len(outcomes))),
            stamp.fields.get("stopping", FIXED) == FIXED,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(
            f"{folder / 'screen.json'} cannot be read ({error!r}); delete the folder and screen again"
        ) from error
    return _report(folder, stamp, outcomes, cap, None if is_fixed else plan_of(cap))


def _require_traces(folder: Path, data: Mapping[str, Any]) -> None:
    """Hold the summary against the traces that it summarises: rows, stamp, and the hash of their file.

    Raises:
        DataError: they differ; says in what.
    """
    traces, remedy = folder / TRACES, f"one of them was changed; delete {folder} and screen again"
    told = data["traces"]  # absent in a summary of an older version, which is not read
    if not traces.is_file():
        raise DataError(
            f"{traces} is missing, and {folder / 'screen.json'} is not believed without it; screen again,"
            " only the rollouts are repeated"
        )
    of, rows = read_rows(traces)
    if rows != data["rollouts"]:
        said = {row["seed"]: row for row in data["rollouts"]}
        seed = next(
            (row["seed"] for row in rows if said.get(row["seed"]) != row), "of a rollout that has no trace"
        )
        raise DataError(
            f"{folder / 'screen.json'} says something else of seed {seed} than {traces}: {remedy}"
        )
    if of != data["stamp"]:
        raise DataError(f"{folder / 'screen.json'} is stamped otherwise than {traces}: {remedy}")
    if file_hash(traces) != told:
        raise DataError(f"{traces} is not the file that {folder / 'screen.json'} was written with: {remedy}")


def _report(
    folder: Path, stamp: Stamp, outcomes: Mapping[int, Outcome], cap: int, plan: ScreenPlan | None
) -> ScreenReport:
    counts = tally(outcomes.values())
    if plan is None:
        verdict = screen_verdict(
            counts.successes, counts.n, broken_below=BROKEN_BELOW, worthy_above=WORTHY_ABOVE
        )
        rate, exact = counts.estimate(wilson), counts.estimate(clopper_pearson)
    else:
        verdict = run_screen(plan, outcomes.values()).verdict
        rate = exact = beta_mixture(counts.successes, counts.n, plan.confidence)
    return ScreenReport(
        verdict=verdict,
        counts=counts,
        rate=rate,
        exact=exact,
        outcomes=outcomes,
        cap=cap,
        plan="" if plan is None else plan.method,
        stamp=stamp,
        path=folder,
    )


def _write(folder: Path, stamp: Stamp, records: Sequence[RolloutRecord], rate_hz: float) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    shown = _worth_showing(records)
    arrays: dict[str, Any] = {}
    for record in shown:
        film, steps = record.strip()
        arrays |= {f"{record.seed}/{camera}": frames for camera, frames in film.items()}
        arrays[f"{record.seed}/steps"] = np.array(steps)
    write_videos(folder / VIDEOS, shown, rate_hz)
    films = io.BytesIO()
    np.savez_compressed(films, **arrays)
    write_atomic(folder / "films.npz", films.getvalue())
    write_records(folder / TRACES, records, films=False, about=stamp.to_json())
    write_timing(folder, records)
    summary = {
        "stamp": stamp.to_json(),
        "traces": file_hash(folder / TRACES),
        "rollouts": [r.to_json() for r in records],
    }
    write_atomic(folder / "screen.json", canonical_json(summary))


def _worth_showing(records: Iterable[RolloutRecord]) -> list[RolloutRecord]:
    """Return one success and up to two failures of each mode, those that were filmed whole before others."""
    shown: list[RolloutRecord] = []
    seen: dict[str, int] = {}
    for record in sorted(records, key=lambda r: not r.is_filmed_whole):
        key = str(record.outcome)
        if seen.get(key, 0) < (1 if record.outcome.is_success else 2):
            seen[key] = seen.get(key, 0) + 1
            shown.append(record)
    return shown
