"""A run on disk: ``run.json`` names its parts, so that any verb can take it up again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simgap.errors import DataError
from simgap.evidence import Evidence
from simgap.ledger import Ledger
from simgap.ledger.heads import HEAD_FIELD
from simgap.loop.no_run import not_a_run
from simgap.loop.recorded import read_recorded, require_copies, require_recorded
from simgap.loop.results import Turn, TurnResult, compare, turn_evidence
from simgap.provenance import canonical_json, read_json, write_atomic
from simgap.rollouts.screen import read_screen

SCHEMA = 1
RUN_JSON = "run.json"


def save_run(result: TurnResult) -> Path:
    """Write ``run.json``: where the parts lie, copies of what the ledger says for whoever reads it, and the ledger's head."""
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
        HEAD_FIELD: result.ledger_head,
    }
    write_atomic(result.folder / RUN_JSON, canonical_json(data))
    return result.folder / RUN_JSON


def load_run(folder: Path) -> TurnResult:
    """Read a run back: where its parts lie from ``run.json``, what it says from its ledger and the parts.

    Raises:
        DataError: no run, an unknown version, a broken ledger, or a part that is gone or is not the one that
            was counted.
    """
    path = folder / RUN_JSON
    if not path.exists():
        raise DataError(not_a_run(folder, RUN_JSON))
    data = read_json(path)
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise DataError(
            f"{path} has schema {data.get('schema') if isinstance(data, dict) else None!r}, expected"
            f" {SCHEMA}; use the version that wrote it"
        )
    with Ledger.of_run(folder) as ledger:
        rows, head = ledger.rows(), ledger.head_text
    recorded = read_recorded(folder, rows)
    try:
        require_copies(path, data, recorded)
        first, second = (
            _read_turn(data["first"], 1),
            None if data["second"] is None else _read_turn(data["second"], 2),
        )
        replays = _existing(data["replays"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(
            f"{path} cannot be read ({error!r:.120}); run the demo again into a new folder"
        ) from error
    result = TurnResult(
        spec=recorded.spec,
        folder=folder,
        ranges=recorded.ranges,
        first=first,
        second=second,
        replays=replays,
        diagnosis=recorded.diagnosis,
        plan=recorded.plan,
        paired=compare(first, second),
        seal=recorded.seal,
        gap=recorded.gap,
        duration_s=recorded.duration_s,
        ledger_head=head,
    )
    require_recorded(result, rows)
    return result


def evidence_of(result: TurnResult) -> Evidence:
    """Return what a diagnosis of the first turn reads.

    Raises:
        DataError: the screen kept the policy from the robot, so there are no trials.
    """
    if result.first.in_use is None or result.first.conditions is None or result.replays is None:
        raise DataError(
            f"{result.folder} holds no trials: its policy did not pass the screen; train longer and run again"
        )
    return turn_evidence(result.first, result.spec, result.ranges, result.replays)


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


def _read_turn(data: Mapping[str, Any], number: int) -> Turn:
    datasets = tuple(Path(d) for d in data["datasets"])
    checkpoint = _existing(data["checkpoint"])
    assert checkpoint is not None
    return Turn(
        number=number,
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
