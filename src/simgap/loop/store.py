"""A run on disk: ``run.json`` names its parts, so that any verb can take it up again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simgap.diagnosis import Diagnosis, TurnEvidence
from simgap.envs.factors import FactorRanges
from simgap.errors import DataError
from simgap.loop.no_run import not_a_run
from simgap.loop.results import Turn, TurnResult, compare
from simgap.loop.spec import TurnSpec
from simgap.provenance import canonical_json, read_json, write_atomic
from simgap.robots.gaps import gap_from_json
from simgap.rollouts.screen import read_screen
from simgap.targeting import DataPlan

SCHEMA = 1
RUN_JSON = "run.json"


def save_run(result: TurnResult) -> Path:
    """Write ``run.json``; numbers stay in the parts it names and are recomputed when read."""
    data = {
        "schema": SCHEMA,
        "spec": result.spec.to_json(),
        "ranges": result.ranges.to_json(),
        "first": _turn(result.first),
        "second": None if result.second is None else _turn(result.second),
        "replays": _path(result.replays),
        "diagnosis": None if result.diagnosis is None else result.diagnosis.to_json(),
        "plan": None if result.plan is None else result.plan.to_json(),
        "seal": result.seal,
        "gap": None if result.gap is None else result.gap.to_json(),
        "duration_s": result.duration_s,
    }
    write_atomic(result.folder / RUN_JSON, canonical_json(data))
    return result.folder / RUN_JSON


def recorded_duration_s(folder: Path) -> float:
    """Return how long a finished run took, 0 without one: calling it again finds everything done and must not make it look fast."""
    path = folder / RUN_JSON
    data = read_json(path) if path.exists() else None
    return float(data["duration_s"]) if isinstance(data, dict) and data.get("schema") == SCHEMA else 0.0


def load_run(folder: Path) -> TurnResult:
    """Read a run back.

    Raises:
        DataError: no run, an unknown version, or a part that is gone.
    """
    path = folder / RUN_JSON
    if not path.exists():
        raise DataError(not_a_run(folder, RUN_JSON))
    data = read_json(path)
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise DataError(f"{path} has schema {data.get('schema') if isinstance(data, dict) else None!r}, expected {SCHEMA}; use the version that wrote it")
    try:
        first, second = _read_turn(data["first"]), None if data["second"] is None else _read_turn(data["second"])
        return TurnResult(
            spec=TurnSpec(**data["spec"]),
            folder=folder,
            ranges=FactorRanges.from_json(data["ranges"]),
            first=first,
            second=second,
            replays=_existing(data["replays"]),
            diagnosis=None if data["diagnosis"] is None else Diagnosis.from_json(data["diagnosis"]),
            plan=None if data["plan"] is None else read_plan(data["plan"]),
            paired=compare(first, second),
            seal=str(data["seal"]),
            gap=None if data["gap"] is None else gap_from_json(data["gap"]),
            duration_s=float(data["duration_s"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path} cannot be read ({error!r}); run the demo again into a new folder") from error


def evidence_of(result: TurnResult) -> TurnEvidence:
    """Return what a diagnosis of the first turn reads.

    Raises:
        DataError: the screen kept the policy from the robot, so there are no trials.
    """
    if result.first.in_use is None or result.first.conditions is None or result.replays is None:
        raise DataError(f"{result.folder} holds no trials: its policy did not pass the screen; train longer and run again")
    return TurnEvidence(
        env=result.spec.env,
        training=result.first.datasets[0],
        training_ranges=result.ranges,
        checkpoint=result.first.checkpoint,
        executor=result.first.executor,
        screen=result.first.screens[0][1],
        in_use=result.first.in_use,
        training_conditions=result.first.conditions,
        replays=result.replays,
        seed=result.spec.seed,
    )


def read_plan(data: Mapping[str, Any]) -> DataPlan:
    """Rebuild a plan from :meth:`~simgap.targeting.DataPlan.to_json`."""
    return DataPlan(
        kind=str(data["kind"]),
        sentence=str(data["sentence"]),
        ranges=None if data["ranges"] is None else FactorRanges.from_json(data["ranges"]),
        changes={str(k): (float(v[0]), float(v[1])) for k, v in data["changes"].items()},
        multipliers={str(k): float(v) for k, v in data["multipliers"].items()},
        episodes=int(data["episodes"]),
        new_share=float(data["new_share"]),
        noise_deg=float(data["noise_deg"]),
        executor=str(data["executor"]),
    )


def _turn(turn: Turn) -> dict[str, Any]:
    return {
        "number": turn.number,
        "datasets": [_path(d) for d in turn.datasets],
        "checkpoint": _path(turn.checkpoint),
        "executor": turn.executor,
        "screens": [[conditions, _path(report.path)] for conditions, report in turn.screens],
        "in_use": _path(turn.in_use),
        "conditions": _path(turn.conditions),
    }


def _read_turn(data: Mapping[str, Any]) -> Turn:
    datasets = tuple(Path(d) for d in data["datasets"])
    checkpoint = _existing(data["checkpoint"])
    assert checkpoint is not None
    return Turn(
        number=int(data["number"]),
        datasets=datasets,
        checkpoint=checkpoint,
        executor=str(data["executor"]),
        screens=tuple((str(c), read_screen(Path(p))) for c, p in data["screens"]),
        in_use=_existing(data["in_use"]),
        conditions=_existing(data["conditions"]),
    )


def _path(path: Path | None) -> str | None:
    return None if path is None else str(path.resolve())


def _existing(text: str | None) -> Path | None:
    if text is None:
        return None
    path = Path(text)
    if not path.exists():
        raise DataError(f"{path}, a part of this run, is gone; run the demo again, it makes what is missing")
    return path
