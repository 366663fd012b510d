"""What a log says of each trial beside its episode: condition, time, judge; a trial that broke before its first action has no more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simgap.errors import DataError
from simgap.provenance import read_sealed, write_sealed
from simgap.types import Outcome, OutcomeKind

ROWS = Path("meta") / "trials"


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialRow:
    """One trial that has ended."""

    index: int
    """Its place in the plan."""
    episode: int | None
    """Its place in the log; None where it broke before the first action."""
    seed: int | None
    condition_id: str | None
    placements: Mapping[str, float]
    began: str
    """UTC, ISO 8601."""
    judge: str
    outcome: Outcome

    def write(self, log: Path) -> None:
        """Write it into a log, over what stood there."""
        place = log / ROWS / f"{self.index:06d}.json"
        place.parent.mkdir(parents=True, exist_ok=True)
        write_sealed(place, self._document())

    def _document(self) -> dict[str, Any]:
        outcome = {
            "kind": str(self.outcome.kind),
            "detail": self.outcome.detail,
            "reason": self.outcome.reason,
        }
        return {
            "index": self.index,
            "episode": self.episode,
            "seed": self.seed,
            "condition_id": self.condition_id,
            "placements": dict(self.placements),
            "began": self.began,
            "judge": self.judge,
            "outcome": outcome,
        }


def read_rows(log: Path) -> dict[int, TrialRow]:
    """Return the rows of a log by the place of their trial in the plan; a log of an earlier version has none.

    Raises:
        DataError: one was changed since it was written, or is none.
    """
    rows = [_read(path) for path in sorted((log / ROWS).glob("*.json"))]
    return {row.index: row for row in rows}


def set_aside(log: Path) -> list[Outcome]:
    """Return the outcomes of the trials that broke before their first action: voids that no episode tells of."""
    return [row.outcome for row in read_rows(log).values() if row.episode is None]


def _read(path: Path) -> TrialRow:
    said = read_sealed(path, remedy="delete it, and the trial is run again")
    try:
        outcome = said.pop("outcome")
        ended = Outcome(OutcomeKind(outcome["kind"]), str(outcome["detail"]), str(outcome["reason"]))
        row = TrialRow(**said, outcome=ended)
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{path} is no row of a trial ({error}); delete it, and the trial is run again"
        ) from error
    if row.episode is None and not row.outcome.is_void:
        raise DataError(
            f"{path} says {row.outcome} of a trial without an episode; a trial that nobody can see is void"
        )
    return row
