"""The ledger refuses edits, shows tampering, survives kills, and grades claims by where their evidence comes from."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simgap.errors import DataError, SealError, UsageError
from simgap.ledger import GENESIS, Claim, Grade, Ledger, RowKind, grade
from simgap.types import EvidenceKind


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "ledger.sqlite", clock=lambda: datetime(2026, 5, 1, 12, tzinfo=UTC)) as opened:
        yield opened


def test_rows_come_back_in_order_and_chained(ledger: Ledger) -> None:
    first = ledger.append("note", {"b": 1, "a": [None, True, "x"]})
    second = ledger.append(RowKind.EVIDENCE, {"n": 3}, EvidenceKind.SIM)
    assert (first.id, first.previous, second.id, second.previous) == (1, GENESIS, 2, first.hash)
    assert ledger.rows() == (first, second)
    assert ledger.rows("evidence") == (second,)
    assert ledger.head == (2, second.hash)
    assert ledger.verify() == 2
    assert first.payload == {"a": [None, True, "x"], "b": 1}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(), inner, max_size=3)
        | st.dictionaries(st.integers(), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(payload=st.dictionaries(st.text(), JSON, max_size=4))
def test_whatever_is_appended_verifies_and_comes_back(ledger: Ledger, payload: dict[str, Any]) -> None:
    row = ledger.append("note", payload)
    assert ledger.verify() == row.id
    assert ledger.rows()[-1] == row


@pytest.mark.parametrize("key", [5, "", b"k", ["k"]])
def test_a_key_is_text(ledger: Ledger, key: Any) -> None:
    with pytest.raises(UsageError, match="is text"):
        ledger.append("note", {}, key=key)
    with pytest.raises(DataError, match="cannot be used"):
        ledger.append("note", {}, key="\ud800")
    assert ledger.verify() == 0


def test_a_row_in_hand_may_be_changed_and_no_grade_follows(ledger: Ledger) -> None:
    row = ledger.append("evidence", {"successes": 0, "n": 20}, "surrogate")
    ledger.append_claim("it works", supporting=[row.id])
    for held in (row, *ledger.rows()):
        held.payload["successes"] = 20
    assert ledger.claims()[0].grade is Grade.CONTRADICTED


def test_a_ledger_that_was_replaced_while_it_was_open_takes_nothing(ledger: Ledger, tmp_path: Path) -> None:
    ledger.append("note", {"n": 1})
    shutil.copy(ledger.path, tmp_path / "copy")
    (tmp_path / "copy").rename(ledger.path)
    with pytest.raises(DataError, match="moved or replaced while it was open"):
        ledger.append("note", {"n": 2})


def test_an_empty_ledger_verifies(ledger: Ledger) -> None:
    assert ledger.verify() == 0
    assert ledger.head == (0, GENESIS)
    assert ledger.rows() == ()


def test_the_ledger_reopens_and_goes_on(tmp_path: Path) -> None:
    with Ledger(tmp_path / "l.sqlite") as first:
        first.append("note", {"n": 1})
    with Ledger(tmp_path / "l.sqlite") as second:
        second.append("note", {"n": 2})
        assert second.verify() == 2


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE rows SET payload = '{}' WHERE id = 1",
        "DELETE FROM rows WHERE id = 2",
        "DELETE FROM rows",
        (
            "INSERT OR REPLACE INTO rows SELECT 1, time, kind, NULL, '{}', evidence, previous, 'x' FROM rows"
            " WHERE id = 1"
        ),
        (
            "INSERT OR REPLACE INTO rows SELECT 3, time, kind, 'taken', '{}', evidence, (SELECT hash FROM"
            " rows WHERE id = 2), 'x' FROM rows WHERE id = 1"
        ),
        (
            "INSERT INTO rows SELECT 4, time, kind, NULL, '{}', evidence, (SELECT hash FROM rows WHERE id ="
            " 2), 'x' FROM rows WHERE id = 1"
        ),
        "INSERT INTO rows SELECT 3, time, kind, NULL, '{}', evidence, 'other', 'x' FROM rows WHERE id = 1",
    ],
)
def test_sql_that_edits_the_past_is_refused(ledger: Ledger, statement: str) -> None:
    ledger.append("note", {"n": 1}, key="taken")
    ledger.append("note", {"n": 2})
    before = ledger.rows()
    raw = sqlite3.connect(ledger.path)
    with pytest.raises(sqlite3.DatabaseError, match=r"append-only|UNIQUE"):
        raw.execute(statement)
    raw.close()
    assert ledger.rows() == before
    assert ledger.verify() == 2


@pytest.mark.parametrize(
    ("tamper", "row", "why"),
    [
        ("UPDATE rows SET payload = '{\"n\":9}' WHERE id = 2", "row 2", "content does not match"),
        ("UPDATE rows SET evidence = 'real' WHERE id = 2", "row 2", "content does not match"),
        ("UPDATE rows SET time = '2020' WHERE id = 1", "row 1", "content does not match"),
        ("DELETE FROM rows WHERE id = 2", "row 3", "row 2 is missing"),
        ("UPDATE rows SET previous = 'x' WHERE id = 3", "row 3", "hash of the row before"),
    ],
)
def test_an_edit_behind_the_triggers_is_found_and_its_row_named(
    ledger: Ledger, tamper: str, row: str, why: str
) -> None:
    for n in range(3):
        ledger.append("evidence", {"n": n}, "sim")
    raw = sqlite3.connect(ledger.path)
    raw.executescript(f"DROP TRIGGER no_update; DROP TRIGGER no_delete; {tamper};")
    raw.close()
    with pytest.raises(DataError, match=rf"breaks at {row} .*{why}"):
        ledger.verify()


def test_a_cut_end_shows_only_against_a_head_kept_elsewhere(ledger: Ledger) -> None:
    ledger.append("note", {"n": 1})
    ledger.append("note", {"n": 2})
    head = ledger.head
    raw = sqlite3.connect(ledger.path)
    trigger = raw.execute("SELECT sql FROM sqlite_master WHERE name = 'no_delete'").fetchone()[0]
    raw.executescript(f"DROP TRIGGER no_delete; DELETE FROM rows WHERE id = 2; {trigger};")
    raw.close()
    assert ledger.verify() == 1
    with pytest.raises(DataError, match=r"row 2 .*cut or replaced"):
        ledger.verify(head)


def test_an_older_head_still_verifies_after_new_rows(ledger: Ledger) -> None:
    ledger.append("note", {"n": 1})
    head = ledger.head
    ledger.append("note", {"n": 2})
    assert ledger.verify(head) == 2


def test_a_key_makes_an_append_idempotent(ledger: Ledger) -> None:
    first = ledger.append("evidence", {"n": 1, "rate": 0.5}, "sim", key="turn1/screen")
    assert ledger.append("evidence", {"rate": 0.5, "n": 1}, "sim", key="turn1/screen") == first
    assert len(ledger.rows()) == 1


@pytest.mark.parametrize(("payload", "evidence"), [({"n": 2}, "sim"), ({"n": 1}, "surrogate")])
def test_a_key_used_for_other_content_is_an_error(
    ledger: Ledger, payload: dict[str, Any], evidence: str
) -> None:
    ledger.append("evidence", {"n": 1}, "sim", key="k")
    with pytest.raises(DataError, match="used for other content in row 1"):
        ledger.append("evidence", payload, evidence, key="k")


def test_evidence_without_a_type_and_unknown_words_are_refused(ledger: Ledger) -> None:
    with pytest.raises(UsageError, match="where its numbers come from"):
        ledger.append("evidence", {"n": 1})
    with pytest.raises(UsageError, match="did you mean 'evidence'"):
        ledger.append("evidnce", {"n": 1}, "sim")
    with pytest.raises(UsageError, match="did you mean 'surrogate'"):
        ledger.append("evidence", {"n": 1}, "surogate")
    with pytest.raises(DataError, match="NaN"):
        ledger.append("note", {"n": float("nan")})
    assert ledger.rows() == ()


@pytest.mark.parametrize("kind", ["note", "finding", "claim", "commitment", "seal_opened"])
def test_only_evidence_rows_carry_an_evidence_type(ledger: Ledger, kind: str) -> None:
    with pytest.raises(UsageError, match="no evidence"):
        ledger.append(kind, {"text": "it works"}, "real")


@pytest.mark.parametrize(
    "tamper",
    [
        "evidence = 'real'",
        "evidence = 'foo'",
        "payload = '{'",
        "payload = '[1]'",
        "payload = x'ff'",
        "kind = 'foo'",
        "payload = '{\"n\":9}'",
    ],
)
def test_no_grade_rests_on_an_edited_row(ledger: Ledger, tamper: str) -> None:
    row = ledger.append("evidence", {"n": 3, "successes": 3}, "sim", key="k")
    ledger.append_claim("it works", supporting=[row.id])
    raw = sqlite3.connect(ledger.path)
    raw.executescript(f"DROP TRIGGER no_update; UPDATE rows SET {tamper} WHERE id = 1;")
    raw.close()
    for use in (
        ledger.claims,
        ledger.rows,
        lambda: ledger.append_claim("so it does", supporting=[1]),
        lambda: ledger.append("evidence", {}, "sim", key="k"),
    ):
        with pytest.raises(DataError, match=r"breaks at row 1 .*nothing is read from it or added to it"):
            use()
    with pytest.raises(DataError, match="breaks at row 1"):
        ledger.verify()


def test_a_seal_opens_once_and_not_for_an_older_finding(ledger: Ledger) -> None:
    old = ledger.append("finding", {"broken": "plant"})
    commitment = ledger.append("commitment", {"sha256": "ab"})
    with pytest.raises(SealError, match="older than the commitment"):
        ledger.append("seal_opened", {"commitment_row": commitment.id, "finding_row": old.id})
    finding = ledger.append("finding", {"broken": "pixels"})
    opening = {"commitment_row": commitment.id, "finding_row": finding.id}
    assert ledger.append("seal_opened", opening, key="opened") == ledger.append(
        "seal_opened", opening, key="opened"
    )
    with pytest.raises(SealError, match="opened in row 4 already"):
        ledger.append("seal_opened", opening)


def test_what_sqlite_refuses_names_the_file(ledger: Ledger, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be used as a ledger"):
        Ledger(tmp_path)
    raw = sqlite3.connect(ledger.path)
    raw.executescript("DROP TABLE rows")
    raw.close()
    for use in (ledger.rows, ledger.verify, lambda: ledger.append("note", {})):
        with pytest.raises(DataError, match="table rows is missing"):
            use()


def test_a_seal_opens_only_after_commitment_and_finding(ledger: Ledger) -> None:
    commitment = ledger.append("commitment", {"sha256": "ab"})
    with pytest.raises(SealError, match="finding"):
        ledger.append("seal_opened", {"commitment_row": commitment.id, "finding_row": 2})
    finding = ledger.append("finding", {"broken": "plant"})
    with pytest.raises(SealError, match="commitment"):
        ledger.append("seal_opened", {"commitment_row": finding.id, "finding_row": finding.id})
    opened = ledger.append(
        "seal_opened",
        {"commitment_row": commitment.id, "finding_row": finding.id, "held": {"latency_s": 0.12}},
    )
    assert opened.id == 3


@pytest.mark.parametrize(
    ("supporting", "against", "expected"),
    [
        ([], [], "no evidence"),
        (["sim"], [], "simulated only"),
        (["sim", "second_engine"] * 50, [], "simulated only"),
        (["sim", "surrogate"], [], "supported on a surrogate only"),
        (["sim", "surrogate", "real"], [], "supported on hardware"),
        (["surrogate"], ["sim"], "supported on a surrogate only"),
        (["surrogate"], ["real"], "contradicted"),
        (["real"], ["real"], "contradicted"),
        (["sim"], ["sim"], "contradicted"),
        ([], ["sim"], "contradicted"),
    ],
)
def test_grades_follow_from_evidence_types_and_only_real_reaches_hardware(
    supporting: list[str], against: list[str], expected: str
) -> None:
    assert grade([EvidenceKind(k) for k in supporting], [EvidenceKind(k) for k in against]) == expected


def test_claims_take_their_grade_from_the_rows_they_name(ledger: Ledger) -> None:
    sim = ledger.append("evidence", {"successes": 40, "n": 40}, "sim")
    surrogate = ledger.append("evidence", {"successes": 30, "n": 40}, "surrogate")
    assert ledger.append_claim("it works", supporting=[sim.id]).grade is Grade.SIMULATED
    assert (
        ledger.append_claim("it works there too", supporting=[sim.id, surrogate.id], key="c").grade
        is Grade.SURROGATE
    )
    assert (
        ledger.append_claim("it works there too", supporting=[sim.id, surrogate.id], key="c").grade
        is Grade.SURROGATE
    )
    assert [c.text for c in ledger.claims()] == ["it works", "it works there too"]


@pytest.mark.parametrize(
    ("successes", "n", "at_least", "expected"),
    [
        (0, 20, None, "contradicted"),
        (10, 20, None, "undecided"),
        (3, 3, None, "undecided"),  # 29 % to 100 %
        (18, 20, None, "supported on a surrogate only"),
        (18, 20, 0.9, "undecided"),
        (18, 20, 1.0, "contradicted"),
        (400, 400, 0.99, "supported on a surrogate only"),
    ],
)
def test_evidence_supports_a_claim_only_when_its_whole_interval_reaches_the_claimed_rate(
    ledger: Ledger, successes: int, n: int, at_least: float | None, expected: str
) -> None:
    row = ledger.append("evidence", {"successes": successes, "n": n}, "surrogate")
    claim = ledger.append_claim("it works", supporting=[row.id], at_least=at_least)
    assert claim.grade == expected
    assert ledger.claims()[0].at_least == (0.5 if at_least is None else at_least)


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"successes": 3},
        {"successes": 4, "n": 3},
        {"successes": "3", "n": "3"},
        {"successes": 0, "n": 0},
        {"n": 1e9},
    ],
)
def test_evidence_without_counts_says_nothing_about_a_claim(ledger: Ledger, payload: dict[str, Any]) -> None:
    row = ledger.append("evidence", payload, "sim")
    claim = ledger.append_claim("it works", supporting=[row.id])
    assert claim.grade is Grade.NONE
    assert claim.uncounted == [(1, "it holds no counts of trials")]


@pytest.mark.parametrize("at_least", [0.0, -1.0, 1.5, float("nan"), True])
def test_a_claim_needs_a_bar_that_failures_can_miss(ledger: Ledger, at_least: float) -> None:
    ledger.append("evidence", {"successes": 0, "n": 20}, "sim")
    with pytest.raises(UsageError, match="success rate above 0"):
        ledger.append_claim("it works", supporting=[1], at_least=at_least)


@pytest.mark.parametrize("number", [99, 1])
def test_a_claim_cannot_rest_on_a_row_that_is_not_evidence(ledger: Ledger, number: int) -> None:
    ledger.append("note", {"text": "real, believe me"})
    with pytest.raises(UsageError, match="not an evidence row"):
        ledger.append_claim("it works", supporting=[number])
    assert ledger.rows("claim") == ()


def test_a_claim_may_not_use_the_word_it_has_no_right_to() -> None:
    with pytest.raises(UsageError, match="no right"):
        Claim(text="The policy is " + "certi" + "fied for use")


def test_files_that_are_no_ledger_are_refused(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("not a database, and long enough to be looked at " * 20)
    with pytest.raises(DataError, match="cannot be used as a ledger"):
        Ledger(text)
    other = tmp_path / "other.sqlite"
    raw = sqlite3.connect(other)
    raw.execute("CREATE TABLE t (x)")
    raw.close()
    with pytest.raises(DataError, match="not a ledger"):
        Ledger(other)


WRITER = """
import sys
from pathlib import Path
from simgap.ledger import Ledger
ledger = Ledger(Path(sys.argv[1]))
for n in range(int(sys.argv[3])):
    print(ledger.append("evidence", {"writer": sys.argv[2], "n": n}, "sim").id, flush=True)
"""


def _writer(path: Path, name: str, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), name, str(count)], stdout=subprocess.PIPE, text=True
    )


def test_several_processes_append_to_one_chain(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    writers = [_writer(path, str(k), 20) for k in range(3)]
    ids = [int(word) for writer in writers for word in writer.communicate(timeout=60)[0].split()]
    assert sorted(ids) == list(range(1, 61))
    with Ledger(path) as ledger:
        assert ledger.verify() == 60


def test_a_kill_loses_no_row_that_append_returned(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    for name in "ab":
        writer = _writer(path, name, 100_000)
        assert writer.stdout is not None
        told = [int(writer.stdout.readline()) for _ in range(10)]
        os.kill(writer.pid, signal.SIGKILL)
        told += [int(word) for word in writer.communicate(timeout=30)[0].split()]
        with Ledger(path) as ledger:
            assert ledger.verify() >= told[-1]
            ledger.append("note", {"after": name})
