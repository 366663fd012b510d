"""The screen: sim rollouts over fresh seeds, one interval, one of three verdicts. It kills what is broken; it proves nothing else."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from simgap.envs import make_env
from simgap.errors import DataError, UsageError
from simgap.policies.checkpoint import read_card
from simgap.provenance import Stamp, canonical_json, content_hash, read_json, source_hash, write_atomic
from simgap.rollouts.engine import RolloutSpec, run_rollouts
from simgap.rollouts.record import RolloutRecord, outcome_from_json
from simgap.seeds import Purpose
from simgap.statistics import Estimate, ScreenVerdict, Tally, clopper_pearson, screen_verdict, tally, wilson
from simgap.types import EvidenceKind, Outcome

BROKEN_BELOW = 0.5
"""A policy whose whole interval lies below this in its own simulator is broken."""
WORTHY_ABOVE = 0.7
"""A policy whose whole interval lies above this is worth hardware time."""
DEFAULT_ENGINE = "mujoco"
"""What teachers' data are made on unless another engine is asked for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScreenReport:
    """What a screen found. Evidence of kind ``sim``, or ``second_engine`` from another engine than the one policies learn on, whatever the numbers."""

    verdict: ScreenVerdict
    counts: Tally
    rate: Estimate
    """Wilson interval."""
    exact: Estimate
    """Clopper-Pearson interval, on which the verdict rests."""
    outcomes: Mapping[int, Outcome]
    """Seed -> outcome."""
    stamp: Stamp
    path: Path
    """Folder with ``screen.json`` and ``films.npz``."""

    @property
    def evidence(self) -> EvidenceKind:
        """What kind of evidence this is, by the engine in its stamp."""
        return EvidenceKind.SIM if str(self.stamp.fields.get("engine", DEFAULT_ENGINE)).startswith(DEFAULT_ENGINE) else EvidenceKind.SECOND_ENGINE

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "evidence": str(self.evidence),
            "verdict": str(self.verdict),
            "successes": self.counts.successes,
            "n": self.counts.n,
            "failures": dict(self.counts.failures),
            "voids": dict(self.counts.voids),
            "wilson": [self.rate.low, self.rate.high],
            "clopper_pearson": [self.exact.low, self.exact.high],
            "confidence": self.rate.confidence,
            "stamp": self.stamp.to_json(),
            "path": str(self.path),
        }


def screen(spec: RolloutSpec, out: Path, *, workers: int, progress: Callable[[int, int], None] | None = None) -> ScreenReport:
    """Screen a policy, or read back the finished screen of the same policy, executor, ranges and seeds.

    Args:
        spec: what to run; the seeds must be of another purpose than those of training.
        out: folder for this screen; finished screens are found again by content.
        workers: processes; 0 runs in this one.
        progress: called with (episodes done, total).
    """
    if spec.purpose not in (Purpose.SELECT, Purpose.REPORT):
        raise UsageError(f"a screen on seeds of purpose {spec.purpose!r} would test what was trained on; use select or report seeds")
    card = read_card(spec.checkpoint)
    size = card.architecture.image_size
    made_by = make_env(spec.env, image_size=size, render=False, engine=spec.engine, renderer=spec.renderer).stamp_fields()
    identity = {**spec.to_json(), **made_by, "policy": card.hash, "source": source_hash("envs", "rollouts", "policies")[:16]}
    stamp = Stamp(kind="rollouts", fields=identity)
    folder = out / content_hash(identity)[:16]
    if not (folder / "screen.json").exists():
        records = run_rollouts(spec, workers=workers, progress=progress)
        _write(folder, stamp, records)
    elif progress:
        progress(spec.episodes, spec.episodes)
    return read_screen(folder)


def read_screen(folder: Path) -> ScreenReport:
    """Read a finished screen; every number is recomputed from its outcomes.

    Raises:
        DataError: no screen, or one that cannot be read.
    """
    data = read_json(folder / "screen.json")
    try:
        stamp = Stamp(kind=data["stamp"]["kind"], fields={k: v for k, v in data["stamp"].items() if k != "kind"})
        outcomes = {int(row["seed"]): outcome_from_json(row) for row in data["rollouts"]}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{folder / 'screen.json'} cannot be read ({error!r}); delete the folder and screen again") from error
    counts = tally(outcomes.values())
    return ScreenReport(
        verdict=screen_verdict(counts.successes, counts.n, broken_below=BROKEN_BELOW, worthy_above=WORTHY_ABOVE),
        counts=counts,
        rate=counts.estimate(wilson),
        exact=counts.estimate(clopper_pearson),
        outcomes=outcomes,
        stamp=stamp,
        path=folder,
    )


def _write(folder: Path, stamp: Stamp, records: list[RolloutRecord]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    shown = _worth_showing(records)
    arrays: dict[str, Any] = {f"{r.seed}/{camera}": frames for r in shown for camera, frames in r.film.items()}
    arrays |= {f"{r.seed}/steps": np.array(r.film_steps) for r in shown}
    films = io.BytesIO()
    np.savez_compressed(films, **arrays)
    write_atomic(folder / "films.npz", films.getvalue())
    write_atomic(folder / "screen.json", canonical_json({"stamp": stamp.to_json(), "rollouts": [r.to_json() for r in records]}))


def _worth_showing(records: list[RolloutRecord]) -> list[RolloutRecord]:
    """Return one success and up to two failures of each mode."""
    shown: list[RolloutRecord] = []
    seen: dict[str, int] = {}
    for record in records:
        key = str(record.outcome)
        if seen.get(key, 0) < (1 if record.outcome.is_success else 2):
            seen[key] = seen.get(key, 0) + 1
            shown.append(record)
    return shown
