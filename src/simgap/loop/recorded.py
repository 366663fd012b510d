"""A run as its ledger tells it. What a run says comes from here and from the logs that the ledger counted, never from ``run.json``.

``run.json`` says where the parts lie. Each part is held against what was recorded of it: trial logs by their
fingerprint under their own label, screens by counts and stamp, policies and training sets by the hashes in
those stamps. A part that is missing, exchanged or edited is an error, and so is a copy in ``run.json`` that
says something else than the ledger.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from simgap.diagnosis import Diagnosis
from simgap.envs import make_env
from simgap.envs.factors import FactorRanges
from simgap.episodes.reader import open_dataset
from simgap.errors import DataError
from simgap.ledger import Row
from simgap.ledger.heads import LEDGER_FILE
from simgap.loop.record import CONDITIONS, IN_USE, REPLAYS, screen_key, trials_key
from simgap.loop.results import Turn, TurnResult
from simgap.loop.shapes import diagnosis_from, require_factors, spec_from
from simgap.loop.spec import TurnSpec
from simgap.mutants.gaps import Gap, gap_from_json
from simgap.policies.checkpoint import read_card
from simgap.provenance import canonical_json
from simgap.rollouts.screen import ScreenReport
from simgap.targeting import DataPlan
from simgap.wording import number_of

FIRST_SCREENS = ("training conditions",)
LATER_SCREENS = ("targeted conditions", "first training conditions")
"""Conditions in words of the screens of turn 1, and of a later turn that trains."""
_COUNTED = re.compile(r"turn/([1-9][0-9]{0,5})/(screen|trials|diagnosis|plan|comparison|claim)")
_SAID_OF_SCREENS = ("verdict", "successes", "n", "failures", "voids", "stamp")
_AGAIN = "restore it, or run the demo again into a new folder"


@dataclass(frozen=True, kw_only=True, slots=True)
class Recorded:
    """What the ledger of a run holds, by what it is."""

    spec: TurnSpec
    ranges: FactorRanges
    seal: str
    diagnoses: Mapping[int, Diagnosis]
    """By turn."""
    plans: Mapping[int, DataPlan]
    gap: Gap | None
    duration_s: float
    """From the first row to the last; a run that was interrupted waits in between."""
    last: int
    """Number of the newest turn of which anything was counted; a turn that keeps its policy counts its trials."""


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
        last = _last_turn(by_key, spec)
        diagnoses = {
            k: diagnosis_from(by_key[key])
            for k in range(1, last + 1)
            if (key := f"turn/{k}/diagnosis") in by_key
        }
        plans = {k: read_plan(by_key[key]) for k in range(1, last + 1) if (key := f"turn/{k}/plan") in by_key}
        space = make_env(spec.env, render=False, by=folder / LEDGER_FILE).factor_space
        for k in range(1, last + 1):
            require_factors(space, diagnoses.get(k), plans.get(k))
        return Recorded(
            spec=spec,
            ranges=FactorRanges.from_json(begun["ranges"]),
            seal=str(begun["seal_sha256"]),
            diagnoses=diagnoses,
            plans=plans,
            gap=gap_from_json(by_key["opened"]["gap"]) if "opened" in by_key else None,
            duration_s=(
                datetime.fromisoformat(rows[-1].time) - datetime.fromisoformat(rows[0].time)
            ).total_seconds(),
            last=last,
        )
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, AssertionError) as error:
        raise DataError(
            f"the ledger of {folder} holds rows that this version does not read ({error!r:.120}); run the"
            " demo again into a new folder"
        ) from error


def _last_turn(by_key: Mapping[str, Any], spec: TurnSpec) -> int:
    """Return the number of the newest turn that was counted.

    Raises:
        ValueError: the turns are not those from 1 on, or more than were asked for.
    """
    numbers = {int(found[1]) for key in by_key if (found := _COUNTED.match(key))}
    if numbers != set(range(1, len(numbers) + 1)) or len(numbers) > spec.turns:
        raise ValueError(f"it counted turns {sorted(numbers)} of {spec.turns}")
    return len(numbers)


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
    turns = data["turns"]
    if len(turns) != max(1, recorded.last):
        raise DataError(
            f"{run_file}: it has {number_of(len(turns), 'turn')}, its ledger counted {recorded.last}; {_AGAIN}"
        )
    copies: list[tuple[str, Any, Any]] = [
        ("spec", data["spec"], recorded.spec),
        ("ranges", data["ranges"], recorded.ranges),
        ("opened gap", data["gap"], recorded.gap),
    ]
    for k, turn in enumerate(turns, start=1):
        copies.append((f"turn {k} diagnosis", turn["diagnosis"], recorded.diagnoses.get(k)))
        copies.append((f"turn {k} data plan", turn["plan"], recorded.plans.get(k)))
    for what, said, kept in copies:
        if canonical_json(said) != canonical_json(None if kept is None else kept.to_json()):
            raise DataError(f"{run_file}: its {what} is not the one in its ledger; {_AGAIN}")
    if data["seal"] != recorded.seal:
        raise DataError(f"{run_file}: its seal is not the one in its ledger; {_AGAIN}")


def require_recorded(result: TurnResult, rows: Sequence[Row]) -> None:
    """Refuse a run whose parts are not those that its ledger counted: trial logs, screens, policies, training sets.

    Raises:
        DataError: names the part.
    """
    recorded = {row.key: row.payload for row in rows}
    for turn, screens in _turns(result):
        for path, what in ((turn.in_use, IN_USE), (turn.conditions, CONDITIONS), (turn.replays, REPLAYS)):
            _require_log(result.folder, path, trials_key(turn.number, what), recorded)
        _require_screens(result.folder, turn, screens, recorded)
        _require_policy(result.folder, turn)


def _turns(result: TurnResult) -> Iterator[tuple[Turn, tuple[tuple[str, str], ...]]]:
    """Yield the turns with the rows that their screens must be; a turn that keeps its policy keeps its screens."""
    screens: tuple[tuple[str, str], ...] = ()
    checkpoint: Path | None = None
    for turn in result.turns:
        if turn.checkpoint != checkpoint:
            conditions = FIRST_SCREENS if checkpoint is None else LATER_SCREENS
            screens = tuple((c, screen_key(turn.number, c)) for c in conditions)
        checkpoint = turn.checkpoint
        yield turn, screens


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
