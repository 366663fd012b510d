"""A run as its ledger tells it. What a run says comes from here and from the logs that the ledger counted, never from ``run.json``.

``run.json`` says where the parts lie. Each part is held against what was recorded of it: trial logs by their
fingerprint under their own label, screens by counts and stamp, policies and training sets by the hashes in
those stamps. A part that is missing, exchanged or edited is an error, and so is a copy in ``run.json`` that
says something else than the ledger.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simgap.diagnosis import Diagnosis
from simgap.envs import make_env
from simgap.envs.factors import FactorRanges
from simgap.episodes.reader import open_dataset
from simgap.errors import DataError
from simgap.ledger import Row
from simgap.ledger.heads import LEDGER_FILE
from simgap.loop.shapes import diagnosis_from, require_factors, spec_from
from simgap.loop.spec import TurnSpec
from simgap.mutants.gaps import Gap, gap_from_json
from simgap.policies.checkpoint import read_card
from simgap.provenance import canonical_json
from simgap.rollouts.screen import ScreenReport
from simgap.targeting import DataPlan

if TYPE_CHECKING:
    from simgap.loop.results import Turn, TurnResult

FIRST_SCREENS = (("training conditions", "screen/turn 1"),)
SECOND_SCREENS = (
    ("targeted conditions", "screen/turn 2, targeted conditions"),
    ("first training conditions", "screen/turn 2, first training conditions"),
)
"""Conditions in words, and the key of the ledger row, for the screens of each turn."""
_SAID_OF_SCREENS = ("verdict", "successes", "n", "failures", "voids", "stamp")
_AGAIN = "restore it, or run the demo again into a new folder"


@dataclass(frozen=True, kw_only=True, slots=True)
class Recorded:
    """What the ledger of a run holds, by what it is."""

    spec: TurnSpec
    ranges: FactorRanges
    seal: str
    diagnosis: Diagnosis | None
    plan: DataPlan | None
    gap: Gap | None
    duration_s: float
    """From the first row to the last; a run that was interrupted waits in between."""
    keys: frozenset[str]

    @property
    def has_second_turn(self) -> bool:
        """Return whether anything of a second turn was counted."""
        return any(key.startswith(("screen/turn 2", "trials/turn 2")) for key in self.keys)


def read_recorded(folder: Path, rows: Sequence[Row]) -> Recorded:
    """Read a run from the rows of its ledger.

    Raises:
        DataError: the rows are not those of a run.
    """
    by_key = {row.key: row.payload for row in rows if row.key is not None}
    if "seal" not in by_key:
        raise DataError(
            f"the ledger of {folder} holds no commitment of a run; restore it, or run the demo again into a"
            " new folder"
        )
    try:
        begun = by_key["seal"]
        spec = spec_from(begun["spec"])
        diagnosis = diagnosis_from(by_key["diagnosis"]) if "diagnosis" in by_key else None
        plan = read_plan(by_key["plan"]) if "plan" in by_key else None
        require_factors(
            make_env(spec.env, render=False, by=folder / LEDGER_FILE).factor_space, diagnosis, plan
        )
        return Recorded(
            spec=spec,
            ranges=FactorRanges.from_json(begun["ranges"]),
            seal=str(begun["seal_sha256"]),
            diagnosis=diagnosis,
            plan=plan,
            gap=gap_from_json(by_key["opened"]["gap"]) if "opened" in by_key else None,
            duration_s=(
                datetime.fromisoformat(rows[-1].time) - datetime.fromisoformat(rows[0].time)
            ).total_seconds(),
            keys=frozenset(by_key),
        )
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, AssertionError) as error:
        raise DataError(
            f"the ledger of {folder} holds rows that this version does not read ({error!r:.120}); run the"
            " demo again into a new folder"
        ) from error


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


def require_copies(run_file: Path, data: Mapping[str, Any], recorded: Recorded) -> None:
    """Refuse a ``run.json`` whose copies say something else than the ledger.

    Raises:
        DataError: names what differs.
    """
    for name, what, kept in (
        ("spec", "spec", recorded.spec),
        ("ranges", "ranges", recorded.ranges),
        ("diagnosis", "diagnosis", recorded.diagnosis),
        ("plan", "data plan", recorded.plan),
        ("gap", "opened gap", recorded.gap),
    ):
        if canonical_json(data[name]) != canonical_json(None if kept is None else kept.to_json()):
            raise DataError(f"{run_file}: its {what} is not the one in its ledger; {_AGAIN}")
    if data["seal"] != recorded.seal:
        raise DataError(f"{run_file}: its seal is not the one in its ledger; {_AGAIN}")
    if (data["second"] is not None) != recorded.has_second_turn:
        raise DataError(f"{run_file}: its second turn is not the one in its ledger; {_AGAIN}")


def require_recorded(result: TurnResult, rows: Sequence[Row]) -> None:
    """Refuse a run whose parts are not those that its ledger counted: trial logs, screens, policies, training sets.

    Raises:
        DataError: names the part.
    """
    recorded = {row.key: row.payload for row in rows}
    for turn, screens in _turns(result):
        for path, key in (
            (turn.in_use, f"trials/turn {turn.number}, in use"),
            (turn.conditions, f"trials/turn {turn.number}, training conditions"),
        ):
            _require_log(result.folder, path, key, recorded)
        _require_screens(result.folder, turn, screens, recorded)
        _require_policy(result.folder, turn)
    _require_log(result.folder, result.replays, "trials/replay", recorded)


def _turns(result: TurnResult) -> Iterator[tuple[Turn, tuple[tuple[str, str], ...]]]:
    """Yield the turns with the rows that their screens must be; a turn that keeps its policy keeps its screens."""
    yield result.first, FIRST_SCREENS
    if result.second is not None:
        yield (
            result.second,
            FIRST_SCREENS if result.second.checkpoint == result.first.checkpoint else SECOND_SCREENS,
        )


def _require_log(
    folder: Path, path: Path | None, key: str, recorded: Mapping[str | None, Mapping[str, Any]]
) -> None:
    counted = recorded.get(key)
    if path is None and counted is None:
        return
    if path is None:
        raise DataError(f"{folder}: the ledger counted {key!r}, and run.json names no log of it; {_AGAIN}")
    if counted is None or open_dataset(path).fingerprint != counted.get("log"):
        raise DataError(f"{path} is not the log that the ledger of {folder} counted as {key!r}; {_AGAIN}")


def _require_screens(
    folder: Path,
    turn: Turn,
    expected: tuple[tuple[str, str], ...],
    recorded: Mapping[str | None, Mapping[str, Any]],
) -> None:
    if [conditions for conditions, _ in turn.screens] != [conditions for conditions, _ in expected]:
        raise DataError(
            f"{folder}: run.json names other screens of turn {turn.number} than the ledger counted; {_AGAIN}"
        )
    for (_, report), (_, key) in zip(turn.screens, expected, strict=True):
        if not _is_said(_gist(report), recorded.get(key, {})):
            raise DataError(
                f"{report.path} is not the screen that the ledger of {folder} counted as {key!r}; {_AGAIN}"
            )


def _gist(report: ScreenReport) -> dict[str, Any]:
    said = report.to_json()
    return {name: said[name] for name in _SAID_OF_SCREENS}


def _require_policy(folder: Path, turn: Turn) -> None:
    """Hold checkpoint, executor and training sets against the stamps of what was counted."""
    card = read_card(turn.checkpoint)
    stamps = [report.stamp.fields for _, report in turn.screens]
    stamps += [
        open_dataset(log).spec.stamp.fields for log in (turn.in_use, turn.conditions) if log is not None
    ]
    if any(stamp.get("policy") != card.hash for stamp in stamps):
        raise DataError(
            f"{turn.checkpoint} is not the policy that turn {turn.number} of {folder} tested; {_AGAIN}"
        )
    tried = stamps[len(turn.screens) :] or stamps
    if any(stamp.get("executor") != turn.executor for stamp in tried):
        raise DataError(
            f"{folder}: run.json names the executor {turn.executor!r:.40}, turn {turn.number} was run with"
            f" another; {_AGAIN}"
        )
    if tuple(open_dataset(data).fingerprint for data in turn.datasets) != card.data:
        raise DataError(
            f"{folder}: run.json names other training sets of turn {turn.number} than its policy was trained"
            f" on; {_AGAIN}"
        )


def _is_said(said: Any, recorded: Any) -> bool:
    """Return whether every value said is recorded; what is recorded beyond that does not matter."""
    if isinstance(said, Mapping):
        return isinstance(recorded, Mapping) and all(
            k in recorded and _is_said(v, recorded[k]) for k, v in said.items()
        )
    if isinstance(said, (list, tuple)):
        return (
            isinstance(recorded, list) and len(said) == len(recorded) and all(map(_is_said, said, recorded))
        )
    return bool(canonical_json(said) == canonical_json(recorded))
