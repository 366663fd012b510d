"""A claim reaches hardware by a trial log on a robot that a person stands for, and by nothing else."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from simgap.errors import DataError, SimgapError
from simgap.ledger import Grade, Ledger, attest
from simgap.ledger.rows import row_hash
from simgap.provenance import canonical_json
from simgap.trials.rows import TrialRow
from simgap.types import Outcome
from trial_logs import PERSON, REAL_STAMP, SURROGATE_STAMP, edit_json, outcomes, real_log, restamp, write_log

NOON = datetime(2026, 5, 2, 12, tzinfo=UTC)
TYPED = {
    "successes": 20,
    "n": 20,
    "conditions": "desk, daylight",
    "dates": "2026-05-01",
    "judged_by": "operator",
}
Way = Callable[[Ledger, Path], int]
"""Tries to enter real evidence; returns the row if it could."""


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "ledger.db", clock=lambda: NOON) as opened:
        yield opened


def test_trials_on_hardware_that_somebody_stands_for_reach_hardware(ledger: Ledger, tmp_path: Path) -> None:
    log = real_log(tmp_path / "bench", successes=9, n=10, voids=2)
    row = ledger.append_trials(log, label="bench, May")
    assert {k: row.payload[k] for k in ("successes", "n", "failures", "voids")} == {
        "successes": 9,
        "n": 10,
        "failures": {"dropped": 1},
        "voids": {"camera unplugged": 2},
    }
    assert (row.payload["log_path"], row.payload["name"], row.payload["robot"]["id"]) == (
        "bench",
        "Ada Example",
        "bench arm 2",
    )
    assert ledger.append_claim("it works on the bench", supporting=[row.id]).grade is Grade.HARDWARE
    assert ledger.append("evidence", row.payload, "real", key="again").payload == row.payload
    assert ledger.verify() == 3


def _row(outcome: Outcome, episode: int | None = None) -> TrialRow:
    return TrialRow(
        index=10,
        episode=episode,
        seed=None,
        condition_id="spot 10",
        placements={},
        began="2026-05-01T10:00:00+00:00",
        judge="operator",
        outcome=outcome,
    )


def test_a_trial_that_broke_before_its_first_frame_is_among_the_voids_of_the_row(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = real_log(tmp_path / "bench", successes=9, n=10)
    _row(Outcome.void("the gripper does not open")).write(log)
    row = ledger.append_trials(log)
    assert (row.payload["n"], row.payload["voids"]) == (10, {"the gripper does not open": 1})


def _success_without_an_episode(ledger: Ledger, tmp: Path) -> int:
    log = real_log(tmp / "log", 6, 6)
    _row(Outcome.success()).write(log)
    return ledger.append_trials(log).id


def _typed(**changes: Any) -> Way:
    return lambda ledger, tmp: ledger.append("evidence", TYPED | changes, "real").id


def _stamped(**changes: Any) -> Way:
    """A log that was recorded under a stamp that is not hardware's."""

    def way(ledger: Ledger, tmp: Path) -> int:
        stamp = {k: v for k, v in (REAL_STAMP | changes).items() if v is not None}
        log = write_log(tmp / "log", stamp, outcomes(6, 6))
        attest(log, **PERSON)
        return ledger.append_trials(log).id

    return way


def _attested(**changes: Any) -> Way:
    def way(ledger: Ledger, tmp: Path) -> int:
        log = real_log(tmp / "log", 6, 6)
        edit_json(log / "meta" / "attestation.json", **changes)
        return ledger.append_trials(log).id

    return way


def _restamped(ledger: Ledger, tmp: Path) -> int:
    """A surrogate's log, copied, stamp and fingerprint edited to say hardware."""
    original = write_log(tmp / "original", SURROGATE_STAMP, outcomes(6, 6))
    ledger.append("evidence", {"successes": 6, "n": 6}, "surrogate")
    return ledger.append_trials(restamp(Path(shutil.copytree(original, tmp / "copy")), REAL_STAMP)).id


def _typed_counts(ledger: Ledger, tmp: Path) -> int:
    row = ledger.append_trials(real_log(tmp / "log", 1, 6))
    return ledger.append("evidence", row.payload | {"successes": 6}, "real").id


def _unattested(ledger: Ledger, tmp: Path) -> int:
    return ledger.append_trials(write_log(tmp / "log", REAL_STAMP, outcomes(6, 6))).id


def _borrowed_attestation(ledger: Ledger, tmp: Path) -> int:
    log, other = write_log(tmp / "log", REAL_STAMP, outcomes(6, 6)), real_log(tmp / "other", 3, 6)
    shutil.copy(other / "meta" / "attestation.json", log / "meta")
    return ledger.append_trials(log).id


def _no_folder(ledger: Ledger, tmp: Path) -> int:
    row = ledger.append_trials(real_log(tmp / "log", 6, 6))
    shutil.rmtree(tmp / "log")
    return ledger.append("evidence", row.payload, "real", key="again").id


def _a_dataset(ledger: Ledger, tmp: Path) -> int:
    log = write_log(tmp / "log", REAL_STAMP, outcomes(6, 6), kind="dataset")
    attest(log, **PERSON)
    return ledger.append_trials(log).id


def _all_void(ledger: Ledger, tmp: Path) -> int:
    return ledger.append_trials(real_log(tmp / "log", 0, 0, voids=6)).id


def _foreign(ledger: Ledger, tmp: Path) -> int:
    """A log without our stamp file, which says nothing about a robot but its own word."""
    log = real_log(tmp / "log", 6, 6)
    (log / "meta" / "simgap.json").unlink()
    return ledger.append_trials(log).id


def _edited_outcomes(ledger: Ledger, tmp: Path) -> int:
    log, better = real_log(tmp / "log", 1, 6), real_log(tmp / "better", 6, 6)
    shutil.rmtree(log / "meta" / "episodes")
    shutil.copytree(better / "meta" / "episodes", log / "meta" / "episodes")
    return ledger.append_trials(log).id


WAYS: dict[str, Way] = {
    "text typed in": _typed(),
    "text typed in, with a path": _typed(log_path="bench", log="ef" * 32),
    "blank conditions": _attested(conditions=" \t\u00a0\u200b"),
    "a judge with no name": _attested(name="\u2060 "),
    "a judge who is the simulator": _attested(judged_by="the simulator"),
    "a judge in other letters": _attested(judged_by="Operator"),
    "no date": _attested(date=""),
    "a date to come": _attested(date="2031-01-01"),
    "a date that is none": _attested(date="2026-02-30"),
    "nobody stands for it": _unattested,
    "an attestation of another log": _borrowed_attestation,
    "surrogate, typed": _stamped(robot="surrogate"),
    "surrogate, in capitals and with a blank": _stamped(robot={"kind": "Surrogate ", "id": "1"}),
    "surrogate, with a Cyrillic letter": _stamped(robot={"kind": "ѕurrogate", "id": "1"}),
    "surrogate, nested deeper": _stamped(robot={"kind": {"kind": "rc-car", "is": "surrogate"}, "id": "1"}),
    "a robot of hardware in other letters": _stamped(robot={"kind": "RC-car", "id": "1"}),
    "a robot of hardware in full-width letters": _stamped(robot={"kind": "ｒｃ-ｃａｒ", "id": "1"}),
    "a robot of a name we do not know": _stamped(robot={"kind": "my arm", "id": "1"}),
    "a robot without an id": _stamped(robot={"kind": "rc-car", "id": "  "}),
    "a stamp with a seal": _stamped(seal="cd" * 32),
    "a seal in the plan of the stamp": _stamped(plan={"name": "bench", "seal": "cd" * 32}),
    "a surrogate inside another field": _stamped(policy={"robot": "surrogate"}),
    "a plan that is text": _stamped(plan="surrogate"),
    "a stamp with an engine": _stamped(engine="mujoco"),
    "a simulated clock": _stamped(clock="simulated"),
    "no clock": _stamped(clock=None),
    "no policy": _stamped(policy=None),
    "evidence typed surrogate": _stamped(evidence="surrogate"),
    "evidence typed Real": _stamped(evidence="Real"),
    "a surrogate's log with an edited stamp": _restamped,
    "counts typed beside a log": _typed_counts,
    "a log that is gone": _no_folder,
    "a dataset of demonstrations": _a_dataset,
    "a log of voids": _all_void,
    "a success that no episode shows": _success_without_an_episode,
    "a log without our stamp file": _foreign,
    "a log with other outcomes put in": _edited_outcomes,
}


@pytest.mark.parametrize("way", WAYS)
def test_no_way_leads_to_a_hardware_grade_without_a_log_of_hardware(
    ledger: Ledger, tmp_path: Path, way: str
) -> None:
    with pytest.raises(DataError) as refusal:
        WAYS[way](ledger, tmp_path)
    assert "\n" not in str(refusal.value)
    assert Grade.HARDWARE not in [
        ledger.append_claim("it works", supporting=[row.id]).grade
        for row in ledger.rows("evidence")
        if "name" not in row.payload
    ]


@pytest.mark.parametrize(
    ("successes", "n", "expected"),
    [(0, 6, "contradicted"), (3, 6, "undecided"), (1, 1, "undecided"), (6, 6, "supported on hardware")],
)
def test_failed_trials_on_hardware_support_nothing(
    ledger: Ledger, tmp_path: Path, successes: int, n: int, expected: str
) -> None:
    row = ledger.append_trials(real_log(tmp_path / "bench", successes, n))
    assert ledger.append_claim("it works", supporting=[row.id]).grade == expected


def test_a_grade_falls_when_the_log_is_edited_or_gone_and_comes_back_with_it(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = real_log(tmp_path / "bench", 6, 6)
    row = ledger.append_trials(log)
    ledger.append_claim("it works", supporting=[row.id])
    attestation = log / "meta" / "attestation.json"
    before = attestation.read_text()
    edit_json(attestation, name="Somebody Else")
    claim = ledger.claims()[0]
    assert (claim.grade, claim.uncounted[0][1]) == (
        Grade.NONE,
        "its log bench says something else about name",
    )
    log.rename(tmp_path / "elsewhere")
    assert ledger.claims()[0].grade is Grade.NONE
    (tmp_path / "elsewhere").rename(log)
    attestation.write_text(before)
    assert ledger.claims()[0].grade is Grade.HARDWARE


def test_a_folder_that_moves_with_its_log_keeps_its_grade(tmp_path: Path) -> None:
    home = tmp_path / "here"
    home.mkdir()
    with Ledger(home / "ledger.db", clock=lambda: NOON) as ledger:
        row = ledger.append_trials(real_log(home / "bench", 6, 6))
        ledger.append_claim("it works", supporting=[row.id])
    home.rename(tmp_path / "there")
    with Ledger(tmp_path / "there" / "ledger.db", clock=lambda: NOON) as ledger:
        assert ledger.claims()[0].grade is Grade.HARDWARE


@pytest.mark.parametrize("payload", [TYPED, TYPED | {"log": "ef" * 32, "log_path": "nowhere"}])
def test_a_real_row_written_past_the_program_counts_for_nothing(
    ledger: Ledger, payload: dict[str, Any]
) -> None:
    """By somebody who knows how a hash is made: the chain fits."""
    ledger.append("note", {"n": 1})
    number, previous = ledger.head
    fields = (number + 1, NOON.isoformat(), "evidence", None, canonical_json(payload), "real", previous)
    raw = sqlite3.connect(ledger.path)
    raw.execute("INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*fields, row_hash(*fields)))
    raw.commit()
    raw.close()
    with pytest.raises(SimgapError, match=r"row 2 .*this row lacks"):
        ledger.append_claim("it works", supporting=[2])


def test_a_whole_real_row_written_past_the_program_has_no_log_and_counts_for_nothing(
    ledger: Ledger, tmp_path: Path
) -> None:
    row = ledger.append_trials(real_log(tmp_path / "bench", 6, 6))
    payload = row.payload | {"log_path": "nowhere", "log": "ef" * 32}
    number, previous = ledger.head
    fields = (number + 1, NOON.isoformat(), "evidence", None, canonical_json(payload), "real", previous)
    raw = sqlite3.connect(ledger.path)
    raw.execute("INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*fields, row_hash(*fields)))
    raw.commit()
    raw.close()
    assert ledger.append_claim("it works", supporting=[2]).grade is Grade.NONE


def test_one_log_is_one_kind_of_evidence(ledger: Ledger, tmp_path: Path) -> None:
    log = real_log(tmp_path / "bench")
    fingerprint = json.loads((log / "meta" / "simgap.json").read_text())["fingerprint"]
    ledger.append("evidence", {"successes": 9, "n": 10, "log": fingerprint}, "surrogate")
    with pytest.raises(DataError, match="row 1 and cannot be real"):
        ledger.append_trials(log)
