"""Real evidence: a trial log on disk that proves what it is, and a person who stands for it. Nothing of it is typed in.

A log counts as trials on hardware when all of this holds, and for no other reason:

* it is a finished dataset of ours, whose bytes match its fingerprint;
* its stamp is of kind ``trials``, has ``evidence: real``, names a robot by a kind of the closed list :data:`ROBOTS` and an id,
  and has no field beyond :data:`STAMP_FIELDS`: nothing of a simulator, a seal or another log;
* every episode was recorded under that very stamp: its hash stands in each episode's file;
* ``meta/attestation.json`` names who judged the outcomes (operator or external judge), with name, date, conditions and a sentence,
  for this fingerprint.

Counts are read from the outcomes in the log. Whoever records invented episodes under such a stamp is not
found out by any of this.
"""

from __future__ import annotations

import datetime
import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simgap.errors import DataError
from simgap.ledger.claims import counts_of
from simgap.provenance import canonical_json, read_json, write_atomic
from simgap.types import EvidenceKind, Json, OutcomeKind

if TYPE_CHECKING:
    from simgap.episodes.reader import Dataset

ROBOTS = frozenset(
    {
        "rc-car",
        "lerobot:so100_follower",
        "lerobot:so101_follower",
        "lerobot:bi_so100_follower",
        "lerobot:koch_follower",
        "lerobot:lekiwi",
    }
)
"""Kinds of robot that are hardware, letter by letter. A driver adds its kind here."""
STAMP_FIELDS = frozenset(
    {
        "evidence",
        "robot",
        "env",
        "horizon_steps",
        "rate_hz",
        "image_size",
        "clock",
        "policy",
        "executor",
        "replay_of",
        "plan",
    }
)
"""What the stamp of a real log may hold; ``engine``, ``renderer``, a simulated ``judge`` or ``seal`` is not among it."""
PLAN_FIELDS = frozenset({"name", "conditions", "commands"})
"""What the plan in such a stamp may hold."""
CLOCKS = ("robot", "host")
JUDGES = ("operator", "external judge")
ATTESTATION = "meta/attestation.json"
_SCHEMA = 1
_PERSON = ("judged_by", "name", "date", "conditions", "sentence")
_FIELDS = frozenset({"log", "log_path", "robot", "tested", "successes", "n", "failures", "voids", *_PERSON})
_OPTIONAL = frozenset({"label"})
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_LONGEST = 2000
_LOG = "real evidence is a trial log on hardware that an operator or an external judge stands for; this row"


def attest(
    log: Path,
    *,
    judged_by: str,
    name: str,
    date: str,
    conditions: str,
    sentence: str,
    today: datetime.date | None = None,
) -> Path:
    """Write down who stands for the outcomes of a finished trial log, bound to its fingerprint.

    Args:
        log: folder of the trial log.
        judged_by: ``operator`` or ``external judge``.
        name: of that person or body.
        date: last day of the trials, ``YYYY-MM-DD``.
        conditions: under which the trials were run.
        sentence: what the person confirms.
        today: the latest day that is no error.

    Raises:
        DataError: a field says nothing, or the log cannot be read.
    """
    from simgap.episodes.reader import open_dataset

    said = {
        "judged_by": judged_by,
        "name": name,
        "date": date,
        "conditions": conditions,
        "sentence": sentence,
    }
    problem = next(_personal_faults(said, today), "")
    if problem:
        raise DataError(f"an attestation of {log} {problem}")
    path = log / ATTESTATION
    write_atomic(
        path,
        json.dumps(
            {"schema": _SCHEMA, "log": open_dataset(log).fingerprint, **said}, indent=2, ensure_ascii=False
        )
        + "\n",
    )
    return path


def read_real_log(log: Path, today: datetime.date | None = None) -> Json:
    """Return what a log proves, as the fields of its ledger row without the path.

    Raises:
        DataError: says why it is no log of trials on hardware.
    """
    # pyarrow and scipy, which a ledger without real rows does not need
    from simgap.episodes.reader import open_dataset, outcome_of
    from simgap.statistics import tally
    from simgap.trials.rows import set_aside

    dataset = open_dataset(log)
    if not dataset.is_ours:
        raise DataError(
            f"{log} is no trial log of simgap (no meta/simgap.json): nothing in it says on which robot it was"
            " recorded"
        )
    fingerprint = dataset.fingerprint
    _require_hardware(log, dataset)
    _require_one_stamp(log, dataset)
    person = _attestation(log, fingerprint, today)
    unjudged = [e.index for e in dataset.entries if e.extra.get("outcome") not in tuple(OutcomeKind)]
    if unjudged:
        raise DataError(
            f"{log} holds episodes without an outcome ({unjudged[:5]}); every trial is a success, a failure"
            " or a void"
        )
    counts = tally([*(outcome_of(entry) for entry in dataset.entries), *set_aside(log)])
    if counts.n < 1:
        raise DataError(
            f"{log} holds no trial that counts ({sum(counts.voids.values())} voids); run at least one"
        )
    fields = dataset.spec.stamp.fields
    return {
        "log": fingerprint,
        "robot": dict(fields["robot"]),
        "tested": {name: fields[name] for name in ("policy", "executor", "replay_of") if name in fields},
        "successes": counts.successes,
        "n": counts.n,
        "failures": dict(counts.failures),
        "voids": dict(counts.voids),
        **person,
    }


def require_real_row(payload: Mapping[str, Any]) -> None:
    """Refuse a real row that has not the form of one; whether its log bears it out is for :func:`why_unproved`.

    Raises:
        DataError: names what is missing or wrong.
    """
    problem = next(_row_faults(payload), "")
    if problem:
        raise DataError(f"{_LOG} {problem}")


def why_unproved(payload: Mapping[str, Any], home: Path, today: datetime.date | None = None) -> str:
    """Return why the log that a real row names does not bear it out, now; empty when it does.

    Args:
        payload: of the row.
        home: folder of the ledger, from which a relative path of the log counts.
        today: the latest day that is no error.
    """
    try:
        require_real_row(payload)
        found = read_real_log(home / payload["log_path"], today)
    except (DataError, OSError) as error:
        return f"its log does not bear it out: {error}"
    differ = [name for name, value in found.items() if canonical_json(payload[name]) != canonical_json(value)]
    return f"its log {payload['log_path']} says something else about {', '.join(differ)}" if differ else ""


def log_path(log: Path, home: Path) -> str:
    """Return the path of a log as a ledger keeps it: relative where the log lies beside the ledger, so that both can move."""
    full, root = log.resolve(), home.resolve()
    return full.relative_to(root).as_posix() if full.is_relative_to(root) else str(full)


def _require_hardware(log: Path, dataset: Dataset) -> None:
    from simgap.episodes.write.tables import TRIALS

    stamp = dataset.spec.stamp
    fields = stamp.fields
    plan = fields.get("plan", {})
    foreign = sorted(set(fields) - STAMP_FIELDS)
    foreign += (
        sorted(f"plan.{name}" for name in set(plan) - PLAN_FIELDS)
        if isinstance(plan, Mapping)
        else ["a plan without fields"]
    )
    foreign += sorted(
        name
        for name, value in fields.items()
        if isinstance(value, (Mapping, list)) and name not in ("robot", "plan")
    )
    if stamp.kind != TRIALS or fields.get("evidence") != str(EvidenceKind.REAL):
        raise DataError(
            f"{log} is stamped as {stamp.kind} with evidence {fields.get('evidence')!r:.40}, not as trials"
            " with real evidence"
        )
    if foreign:
        raise DataError(
            f"{log} has a stamp with {', '.join(foreign)[:120]}, which a log of trials on hardware does not"
            " have"
        )
    if fields.get("clock") not in CLOCKS:
        raise DataError(
            f"{log} has the clock {fields.get('clock')!r:.40} in its stamp, expected one of"
            f" {', '.join(CLOCKS)}"
        )
    tested = ("replay_of",) if "replay_of" in fields else ("policy", "executor")
    if not all(_says_something(fields.get(name), letters=1) for name in tested):
        raise DataError(
            f"{log} does not say in its stamp what was tested; expected policy and executor, or replay_of"
        )
    problem = next(_robot_faults(fields.get("robot")), "")
    if problem:
        raise DataError(f"{log} is stamped with a robot that {problem}")


def _robot_faults(robot: Any) -> Iterator[str]:
    if not isinstance(robot, Mapping) or set(robot) != {"kind", "id"}:
        yield f"is not written as kind and id ({robot!r:.60})"
    elif not isinstance(robot["kind"], str) or robot["kind"] not in ROBOTS:
        yield f"is of kind {robot['kind']!r:.60}; known kinds of hardware: {', '.join(sorted(ROBOTS))}"
    elif not _says_something(robot["id"], letters=1):
        yield f"has the id {robot['id']!r:.60}; say which one it is"


def _require_one_stamp(log: Path, dataset: Dataset) -> None:
    """Hold each episode's file against the stamp: a log that was given another stamp has files of the first one."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from simgap.episodes.formats.layout import data_path
    from simgap.episodes.write.tables import STAMP

    expected = dataset.spec.stamp.hash.encode()
    for entry in dataset.entries:
        path = log / data_path(entry.index)
        try:
            found = (pq.read_metadata(path).metadata or {}).get(STAMP)
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"{path} cannot be read ({error}); restore the log") from error
        if found != expected:
            said = "no stamp" if found is None else "another stamp"
            raise DataError(
                f"{path} was recorded under {said} than that of its log: the log was put together or stamped"
                " afterwards"
            )


def _attestation(log: Path, fingerprint: str, today: datetime.date | None) -> Json:
    path = log / ATTESTATION
    if not path.exists():
        raise DataError(f"{log} has no {ATTESTATION}: nobody stands for its outcomes with name and date")
    said = read_json(path, limit_bytes=1 << 20, unique_keys=True)
    if not isinstance(said, dict) or set(said) != {"schema", "log", *_PERSON} or said["schema"] != _SCHEMA:
        raise DataError(f"{path} is no attestation; expected schema {_SCHEMA}, log, {', '.join(_PERSON)}")
    if said["log"] != fingerprint:
        raise DataError(
            f"{path} is about another log ({said['log']!r:.20}), this one has fingerprint {fingerprint[:12]}"
        )
    problem = next(_personal_faults(said, today), "")
    if problem:
        raise DataError(f"{path} {problem}")
    return {name: said[name] for name in _PERSON}


def _row_faults(payload: Mapping[str, Any]) -> Iterator[str]:
    missing, foreign = sorted(_FIELDS - set(payload)), sorted(set(payload) - _FIELDS - _OPTIONAL)
    if missing:
        yield f"lacks {', '.join(missing)}; Ledger.append_trials reads them from the log"
        return
    if foreign:
        yield f"has fields that no log gives ({', '.join(map(str, foreign))[:120]})"
    for name in ("log", "log_path"):
        if not _says_something(payload[name], letters=1):
            yield (
                f"has {name} = {payload[name]!r:.60}, expected the"
                f" {'fingerprint' if name == 'log' else 'path'} of its log"
            )
    for problem in _robot_faults(payload["robot"]):
        yield f"names a robot that {problem}"
    if counts_of(payload) is None:
        yield (
            f"has {payload['successes']!r:.40} of {payload['n']!r:.40}, expected whole numbers with at least"
            " one trial"
        )
    yield from _personal_faults(payload, None)


def _personal_faults(said: Mapping[str, Any], today: datetime.date | None) -> Iterator[str]:
    if said["judged_by"] not in JUDGES:
        yield f"has judged_by = {said['judged_by']!r:.60}, expected one of {', '.join(JUDGES)}"
    for name in ("name", "conditions", "sentence"):
        if not _says_something(said[name], letters=2):
            yield f"has {name} = {said[name]!r:.60}, which says nothing"
    day = _day(said["date"])
    if day is None:
        yield f"has date = {said['date']!r:.60}, expected YYYY-MM-DD"
    elif today is not None and day > today + datetime.timedelta(
        days=1
    ):  # a day of grace: somebody is east of here
        yield f"has date = {said['date']}, which is still to come"


def _day(text: Any) -> datetime.date | None:
    if not isinstance(text, str) or not _DAY.fullmatch(text):
        return None
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        return None


def _says_something(text: Any, *, letters: int) -> bool:
    """Return whether a text holds letters or digits: blanks and invisible characters say nothing."""
    return (
        isinstance(text, str)
        and len(text) <= _LONGEST
        and sum(unicodedata.category(c)[0] in "LN" for c in text) >= letters
    )
