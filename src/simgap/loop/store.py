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
from simgap.loop.recorded import Recorded, read_recorded, require_copies, require_recorded
from simgap.loop.results import Turn, TurnResult, asked_of, overall, turn_evidence
from simgap.provenance import canonical_json, read_json, write_atomic
from simgap.rollouts.screen import read_screen

SCHEMA = 2
"""1 had exactly two turns, and named every part by its absolute path."""
RUN_JSON = "run.json"


def save_run(result: TurnResult) -> Path:
    """Write ``run.json``: where the parts lie, copies of what the ledger says for whoever reads it, and the ledger's head."""
    data = {
        "schema": SCHEMA,
        "spec": result.spec.to_json(),
        "ranges": result.ranges.to_json(),
        "turns": [_turn(turn, result.folder) for turn in result.turns],
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
        told = data.get("schema") if isinstance(data, dict) else None
        raise DataError(
            f"{path} has schema {told!r}, expected {SCHEMA}; read it with the version that wrote it, or"
            " run the demo again into a new folder"
        )
    with Ledger.of_run(folder) as ledger:
        rows, head = ledger.rows(), ledger.head_text
    recorded = read_recorded(folder, rows)
    try:
        require_copies(path, data, recorded)
        turns = tuple(_read_turn(turn, k, recorded, folder) for k, turn in enumerate(data["turns"], start=1))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(
            f"{path} cannot be read ({error!r:.120}); run the demo again into a new folder"
        ) from error
    result = TurnResult(
        spec=recorded.spec,
        folder=folder,
        ranges=recorded.ranges,
        turns=turns,
        paired=overall(turns),
        seal=recorded.seal,
        gap=recorded.gap,
        duration_s=recorded.duration_s,
        ledger_head=head,
    )
    require_recorded(result, rows)
    return result


def evidence_of(result: TurnResult, number: int | None = None) -> Evidence:
    """Return what a diagnosis of a turn reads.

    Args:
        result: the run.
        number: of the turn; the newest that was diagnosed by default.

    Raises:
        DataError: the screen kept the policy from the robot, so there are no trials; or the turn was tried in use
            only, as the last one is.
        UsageError: there is no such turn.
    """
    turn = result.turn(number)
    if turn.in_use is None:
        raise DataError(
            f"{result.folder} holds no trials: its policy did not pass the screen; train longer and run again"
        )
    if turn.conditions is None or turn.replays is None:
        raise DataError(
            f"turn {turn.number} of {result.folder} was tried in use only, to be compared with the turns before;"
            f" diagnose one of these, or run with `--turns {turn.number + 1}` into a new folder"
        )
    asked = asked_of(result.ranges, result.turns[: turn.number - 1])
    return turn_evidence(turn, result.spec, asked.ranges)


def _turn(turn: Turn, folder: Path) -> dict[str, Any]:
    return {
        "number": turn.number,
        "datasets": [_path(d, folder) for d in turn.datasets],
        "checkpoint": _path(turn.checkpoint, folder),
        "executor": turn.executor,
        "screens": [[conditions, _path(report.path, folder)] for conditions, report in turn.screens],
        "in_use": _path(turn.in_use, folder),
        "conditions": _path(turn.conditions, folder),
        "replays": _path(turn.replays, folder),
        "diagnosis": None if turn.diagnosis is None else turn.diagnosis.to_json(),
        "plan": None if turn.plan is None else turn.plan.to_json(),
    }


def _read_turn(data: Mapping[str, Any], number: int, recorded: Recorded, folder: Path) -> Turn:
    def part(text: Any, what: str) -> Path:
        return _existing(text, f"{what} of turn {number}", folder)

    def log(name: str, what: str) -> Path | None:
        return None if data[name] is None else part(data[name], what)

    return Turn(
        number=number,
        datasets=tuple(part(d, "a training set") for d in data["datasets"]),
        checkpoint=part(data["checkpoint"], "the policy"),
        executor=str(data["executor"]),
        screens=tuple((str(c), read_screen(part(p, "a screen"))) for c, p in data["screens"]),
        in_use=log("in_use", "the trials in use"),
        conditions=log("conditions", "the trials under training conditions"),
        replays=log("replays", "the replays"),
        diagnosis=recorded.diagnoses.get(number),
        plan=recorded.plans.get(number),
    )


def _path(path: Path | None, folder: Path) -> str | None:
    """Return a part's path: relative to the run where it lies in it, so that the run can be moved; else absolute."""
    if path is None:
        return None
    part, run = path.resolve(), folder.resolve()
    return part.relative_to(run).as_posix() if part.is_relative_to(run) else str(part)


def _existing(text: Any, what: str, folder: Path) -> Path:
    path = folder / Path(text)  # an absolute path stays what it is
    if not path.exists():
        where = "in this folder" if not Path(text).is_absolute() else "where the run left it"
        raise DataError(
            f"{path}, {what}, is gone: it does not lie {where} any more; bring it back there, or run the demo"
            " again, which makes what is missing (with --cache inside --out a run carries all its parts along)"
        )
    return path
