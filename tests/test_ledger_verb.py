"""`simgap ledger`: what was done to a ledger is found and said; rows come out as they are; readers refuse a broken one."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simgap.cli import main
from simgap.errors import DataError
from simgap.ledger import GENESIS, Ledger, Row
from simgap.ledger.rows import row_hash
from simgap.provenance import canonical_json

Tamper = Callable[[Path], Any]
TRIGGERS = ("no_update", "no_delete", "in_order")


def write_ledger(path: Path, successes: int = 9) -> str:
    """Write the ledger of a small run and return its head."""
    minutes = count()
    with Ledger(
        path, clock=lambda: datetime(2026, 5, 1, 12, tzinfo=UTC) + timedelta(minutes=next(minutes))
    ) as ledger:
        commitment = ledger.append("commitment", {"seal_sha256": "ab" * 32}, key="seal")
        sim = ledger.append(
            "evidence", {"label": "turn 1", "successes": successes, "n": 10}, "sim", key="screen/turn 1"
        )
        ledger.append(
            "evidence",
            {"label": "turn 1, in use", "successes": 2, "n": 10, "log": "cd" * 32},
            "surrogate",
            key="trials",
        )
        finding = ledger.append("finding", {"cause": "action_sign"}, key="diagnosis")
        ledger.append(
            "seal_opened", {"commitment_row": commitment.id, "finding_row": finding.id}, key="opened"
        )
        ledger.append_claim("it works in sim", supporting=[sim.id], key="claim")
        return ledger.head_text


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    head = write_ledger(folder / "ledger.db")
    (folder / "run.json").write_text(json.dumps({"schema": 1, "ledger_head": head}))
    (folder / "report.html").write_text(
        f'<!doctype html><head><meta name="simgap-ledger-head" content="{head}"></head>'
    )
    return folder


@pytest.fixture
def run_folder(finished: Path, tmp_path: Path) -> Path:
    """A folder as a run leaves it: the ledger, and its head in run.json and in the page."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


def verify(place: Path, *words: str) -> int:
    return main(["ledger", "verify", str(place), *words])


@pytest.mark.parametrize("which", ["", "ledger.db"])
def test_a_whole_ledger_is_whole(run_folder: Path, which: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(run_folder / which) == 0
    said = capsys.readouterr().out
    assert "is whole: 6 rows" in said
    assert "ends at the head kept in run.json, report.html" in said


def _opened(folder: Path) -> sqlite3.Connection:
    raw = sqlite3.connect(folder / "ledger.db")
    raw.execute("PRAGMA synchronous = OFF")
    return raw


def sql(*statements: str) -> Tamper:
    """Run statements with the triggers out of the way, and put these back as they were."""

    def tamper(folder: Path) -> None:
        raw = _opened(folder)
        triggers = [row[0] for row in raw.execute("SELECT sql FROM sqlite_master WHERE type = 'trigger'")]
        for name in TRIGGERS:
            raw.execute(f"DROP TRIGGER {name}")
        for statement in (*statements, *triggers):
            raw.execute(statement)
        raw.commit()
        raw.close()

    return tamper


def bare(*statements: str) -> Tamper:
    """Run statements as they are."""

    def tamper(folder: Path) -> None:
        raw = _opened(folder)
        for statement in statements:
            raw.execute(statement)
        raw.commit()
        raw.close()

    return tamper


def rehashed(change: Callable[[list[Any]], None], *, of: int) -> Tamper:
    """Change the fields of a row and compute every hash from it on again: the chain fits."""

    def tamper(folder: Path) -> None:
        raw = _opened(folder)
        rows = [list(row) for row in raw.execute("SELECT * FROM rows ORDER BY id")]
        raw.close()
        change(rows[of - 1])
        previous, statements = GENESIS, ["DELETE FROM rows"]
        for row in rows:
            row[6] = previous
            row[7] = previous = row_hash(*row[:7])
            values = ", ".join(
                "NULL" if v is None else str(v) if isinstance(v, int) else "'" + v.replace("'", "''") + "'"
                for v in row
            )
            statements.append(f"INSERT INTO rows VALUES ({values})")
        sql(*statements)(folder)

    return tamper


def forged(
    kind: str, payload: dict[str, Any], evidence: str | None = None, *, at: str = "2026-05-01T13:00:00+00:00"
) -> Tamper:
    """Add a row that fits the chain."""

    def tamper(folder: Path) -> None:
        raw = _opened(folder)
        number, previous = raw.execute("SELECT id, hash FROM rows ORDER BY id DESC LIMIT 1").fetchone()
        fields = (number + 1, at, kind, None, canonical_json(payload), evidence, previous)
        raw.execute("INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*fields, row_hash(*fields)))
        raw.commit()
        raw.close()

    return tamper


def put(index: int, value: Any) -> Callable[[list[Any]], None]:
    return lambda row: row.__setitem__(index, value)


def _other_ledger(folder: Path) -> None:
    write_ledger(folder / "other" / "ledger.db", successes=3)
    shutil.copy(folder / "other" / "ledger.db", folder / "ledger.db")


def _another_file(folder: Path) -> None:
    (folder / "ledger.db").unlink()
    bare("CREATE TABLE t (x)")(folder)


def _cut_bytes(folder: Path) -> None:
    path = folder / "ledger.db"
    path.write_bytes(path.read_bytes()[:-4096])


def _grown_bytes(folder: Path) -> None:
    with (folder / "ledger.db").open("ab") as handle:
        handle.write(b"kept for later" * 100)


def _page_swapped(folder: Path) -> None:
    path = folder / "ledger.db"
    data = bytearray(path.read_bytes())
    where = data.index(b'"successes":2')
    data[where : where + 13] = b'"successes":9'
    path.write_bytes(data)


def _edited_header(offset: int) -> Tamper:
    def tamper(folder: Path) -> None:
        path = folder / "ledger.db"
        data = bytearray(path.read_bytes())
        data[offset] ^= 1
        path.write_bytes(data)

    return tamper


def _writable_schema(statement: str) -> Tamper:
    return bare("PRAGMA writable_schema = ON", statement)


def _run_edited(folder: Path) -> None:
    (folder / "run.json").write_text(json.dumps({"schema": 1, "ledger_head": "6:" + "ab" * 32}))


def _page_edited(folder: Path) -> None:
    (folder / "report.html").write_text(f'<meta name="simgap-ledger-head" content="5:{"0" * 64}">')


def _older_run(folder: Path) -> None:
    with Ledger(folder / "ledger.db") as ledger:
        ledger.append("note", {"label": "one more"})


TAMPERS: dict[str, tuple[Tamper, str]] = {
    "payload edited": (
        sql("UPDATE rows SET payload = replace(payload, '9', '10') WHERE id = 2"),
        "breaks at row 2 (evidence)",
    ),
    "payload edited in the bytes": (_page_swapped, "breaks at row 3 (evidence)"),
    "time edited": (
        sql("UPDATE rows SET time = '2026-04-01T12:00:00+00:00' WHERE id = 4"),
        "breaks at row 4 (finding)",
    ),
    "evidence type edited": (sql("UPDATE rows SET evidence = 'real' WHERE id = 3"), "breaks at row 3"),
    "key edited": (sql("UPDATE rows SET key = 'other' WHERE id = 2"), "breaks at row 2"),
    "kind edited": (sql("UPDATE rows SET kind = 'note' WHERE id = 4"), "breaks at row 4 (note)"),
    "hash edited": (sql("UPDATE rows SET hash = 'x' WHERE id = 2"), "breaks at row 2"),
    "row deleted": (sql("DELETE FROM rows WHERE id = 3"), "row 3 is missing"),
    "first row deleted": (sql("DELETE FROM rows WHERE id = 1"), "row 1 is missing"),
    "all rows deleted": (sql("DELETE FROM rows"), "is not in the ledger, which has 0 rows"),
    "rows reordered": (
        sql(*(f"UPDATE rows SET id = {new} WHERE id = {old}" for old, new in ((2, 99), (3, 2), (99, 3)))),
        "breaks at row 2",
    ),
    "row inserted between": (
        sql(
            "UPDATE rows SET id = id + 10 WHERE id > 2",
            "INSERT INTO rows SELECT 3, time, kind, 'x', payload, evidence, 'y', 'z' FROM rows WHERE id = 2",
        ),
        "breaks at row 3",
    ),
    "row inserted on a wrong hash": (
        sql(
            "INSERT INTO rows VALUES (7, '2026-05-01T13:00:00+00:00', 'note', NULL, '{}', NULL,"
            f" '{'1' * 64}', 'h')"
        ),
        "breaks at row 7",
    ),
    "bytes where text was": (
        sql("UPDATE rows SET payload = CAST(payload AS BLOB) WHERE id = 2"),
        "breaks at row 2",
    ),
    "bytes in the hash": (sql("UPDATE rows SET previous = x'ff' WHERE id = 2"), "breaks at row 2"),
    "text that is no UTF-8": (
        sql("UPDATE rows SET payload = CAST(x'ff7b7d' AS TEXT) WHERE id = 2"),
        "SQLite cannot read it",
    ),
    "trigger dropped": (bare("DROP TRIGGER no_update"), "the trigger no_update is missing"),
    "trigger changed": (
        bare("DROP TRIGGER no_delete", "CREATE TRIGGER no_delete BEFORE DELETE ON rows BEGIN SELECT 1; END"),
        "the trigger no_delete was changed",
    ),
    "trigger added": (
        bare("CREATE TRIGGER more AFTER INSERT ON rows BEGIN SELECT 1; END"),
        "the trigger 'more' was added",
    ),
    "view added": (bare("CREATE VIEW good AS SELECT * FROM rows WHERE id < 3"), "the view 'good' was added"),
    "table added": (bare("CREATE TABLE more (x)"), "the table 'more' was added"),
    "index added": (bare("CREATE INDEX by_time ON rows (time)"), "the index 'by_time' was added"),
    "statistics added": (bare("ANALYZE"), "the table 'sqlite_stat1' was added"),
    "column added": (bare("ALTER TABLE rows ADD COLUMN more TEXT"), "the table rows was changed"),
    "table behind a view": (
        bare(
            *(f"DROP TRIGGER {name}" for name in TRIGGERS),
            "ALTER TABLE rows RENAME TO kept",
            "CREATE VIEW rows AS SELECT * FROM kept",
        ),
        "the table rows is missing",
    ),
    "endless view": (
        bare(
            "DROP TABLE rows",
            "CREATE VIEW rows AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x"
            " FROM n",
        ),
        "the table rows is missing",
    ),
    "schema text edited": (
        _writable_schema(
            "UPDATE sqlite_master SET sql = replace(sql, 'TEXT NOT NULL', 'TEXT') WHERE name = 'rows'"
        ),
        "the table rows was changed",
    ),
    "user_version": (bare("PRAGMA user_version = 2"), "schema 2"),
    "application_id": (bare("PRAGMA application_id = 7"), "not a ledger"),
    "header of another file": (_edited_header(0), "no SQLite file"),
    "write-ahead log": (bare("PRAGMA journal_mode = WAL"), "write-ahead log"),
    "a -wal file beside it": (
        lambda folder: (folder / "ledger.db-wal").write_bytes(b"x" * 4152),
        "lies beside the ledger",
    ),
    "a -shm file beside it": (
        lambda folder: (folder / "ledger.db-shm").write_bytes(b"x"),
        "lies beside the ledger",
    ),
    "file cut in its bytes": (_cut_bytes, "malformed"),
    "bytes added to the file": (_grown_bytes, "it was cut, or something was added"),
    "end cut": (sql("DELETE FROM rows WHERE id > 4"), "its end was cut or replaced"),
    "last row cut": (sql("DELETE FROM rows WHERE id = 6"), "its end was cut or replaced"),
    "chain rewritten": (
        rehashed(put(4, '{"label":"turn 1","n":10,"successes":10}'), of=2),
        "cut or replaced, or it is another ledger",
    ),
    "chain rewritten with another time": (
        rehashed(put(1, "2026-04-01T12:00:00+00:00"), of=1),
        "cut or replaced",
    ),
    "ledger of another run": (_other_ledger, "or it is another ledger"),
    "another program's file": (_another_file, "not a ledger"),
    "row forged after the head": (
        forged("evidence", {"label": "more", "successes": 10, "n": 10}, "surrogate"),
        "1 row stands after the head",
    ),
    "row added after the head": (_older_run, "7 (note)"),
    "a kind we do not know": (forged("verdict", {"text": "all is well"}), "unknown kind 'verdict'"),
    "a type we do not know": (forged("evidence", {"n": 3}, "hardware"), "unknown type 'hardware'"),
    "a type on a note": (forged("note", {"n": 3}, "real"), "is no evidence"),
    "evidence without a type": (forged("evidence", {"n": 3}), "where its numbers come from"),
    "real evidence typed in": (
        forged("evidence", {"successes": 9, "n": 10, "judged_by": "operator"}, "real"),
        "lacks conditions",
    ),
    "a time that is none": (forged("note", {}, at="yesterday"), "not a UTC time"),
    "a payload that is a list": (rehashed(put(4, "[1]"), of=4), "not a JSON object"),
    "a payload that is NaN": (rehashed(put(4, '{"n":NaN}'), of=2), "not a JSON object"),
    "a payload that is deep": (rehashed(put(4, "[" * 100_000), of=2), "not a JSON object"),
    "a seal opened twice": (
        forged("seal_opened", {"commitment_row": 1, "finding_row": 4}),
        "opened in row 5 already",
    ),
    "a seal opened on nothing": (
        forged("seal_opened", {"commitment_row": {}, "finding_row": [4]}),
        "names none",
    ),
    "one log as two kinds": (forged("evidence", {"log": "cd" * 32}, "sim"), "cannot be sim as well"),
    "a claim on nothing": (forged("claim", {"text": "it works", "supporting": [77]}), "not an evidence row"),
    "a claim without words": (forged("claim", {"supporting": "all"}), "is a sentence"),
    "a claim with a forbidden word": (forged("claim", {"text": "Certi" + "fied"}), "no right to"),
    "head in run.json edited": (_run_edited, "run.json: row 6"),
    "head in the page edited": (_page_edited, "report.html: row 5"),
}


@pytest.mark.parametrize("what", TAMPERS)
def test_what_was_done_to_a_ledger_is_found_by_the_verb(
    run_folder: Path, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tamper, said = TAMPERS[what]
    tamper(run_folder)
    code = verify(run_folder)
    out = capsys.readouterr()
    assert code in (1, 3)
    assert said in (out.out if code == 1 else out.err)
    if code == 3:
        assert out.err.count("\n") == 1
        assert "defect" not in out.err


@pytest.mark.parametrize("what", [name for name, (_, said) in TAMPERS.items() if "head" not in name])
def test_nothing_is_added_to_a_ledger_that_was_changed(run_folder: Path, what: str) -> None:
    TAMPERS[what][0](run_folder)

    def add() -> None:
        with Ledger(run_folder / "ledger.db") as ledger:
            ledger.require_kept(run_folder)
            ledger.append("note", {"label": "all is well"})

    with pytest.raises(DataError) as refusal:
        add()
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("action", ["show", "export", "verify"])
@pytest.mark.parametrize("what", ["payload edited", "end cut", "another program's file"])
def test_every_reader_of_a_changed_ledger_ends_in_one_line(
    run_folder: Path, what: str, action: str, capsys: pytest.CaptureFixture[str]
) -> None:
    TAMPERS[what][0](run_folder)
    code = main(["ledger", action, str(run_folder)])
    assert code == (3 if action != "verify" or what == "another program's file" else 1)
    if code == 3:
        assert capsys.readouterr().err.count("\n") == 1


def test_a_head_given_by_hand_shows_what_no_file_in_the_folder_can(
    run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All three are written again: ledger, run.json and page agree, and only what was printed before does not."""
    with Ledger(run_folder / "ledger.db") as ledger:
        head, digits = ledger.head_text, ledger.head[1][:12]
    assert verify(run_folder, "--head", head) == verify(run_folder, "--head", digits) == 0
    (run_folder / "ledger.db").unlink()
    new = write_ledger(run_folder / "ledger.db", successes=10)
    (run_folder / "run.json").write_text(json.dumps({"schema": 1, "ledger_head": new}))
    (run_folder / "report.html").unlink()
    assert verify(run_folder) == 0
    assert verify(run_folder, "--head", head) == 1
    assert verify(run_folder, "--head", digits, "--grown") == 1
    assert "--head: the row with hash" in capsys.readouterr().out


def test_rows_after_a_head_are_a_finding_unless_they_are_expected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head = write_ledger(tmp_path / "ledger.db")
    assert verify(tmp_path) == 0
    assert "no head is kept beside it" in capsys.readouterr().out
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.append("note", {"label": "one more"})
    assert verify(tmp_path, "--head", head) == 1
    assert "1 row stands after the head" in capsys.readouterr().out
    assert verify(tmp_path, "--head", head, "--grown") == 0


@pytest.mark.parametrize(
    ("words", "code"), [(("--head", "soon"), 2), (("--head", "12:abc"), 2), (("--grown",), 2)]
)
def test_a_head_that_is_none_is_a_wrong_request(run_folder: Path, words: tuple[str, ...], code: int) -> None:
    assert verify(run_folder, *words) == code


def test_a_place_without_a_ledger_is_said_and_stays_without(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").touch()
    for place in (tmp_path, tmp_path / "nothing", tmp_path / "pipe", tmp_path / "empty"):
        for action in ("verify", "show", "export"):
            assert main(["ledger", action, str(place)]) == 3
            assert capsys.readouterr().err.count("\n") == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["empty", "pipe"]


def test_verify_answers_programs_too(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ledger", "verify", str(run_folder), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["is_whole"], document["rows"], document["faults"]) == (True, 6, [])
    assert document["heads"] == {"run.json": document["head"], "report.html": document["head"]}


def test_show_lists_rows_and_what_claims_rest_on(
    run_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    assert main(["ledger", "show", str(run_folder)]) == 0
    said = capsys.readouterr().out
    assert "turn 1, in use: 2 of 10" in said
    assert "simulated only (claimed: at least 0.5 of trials; for it: row 2)" in said


@pytest.mark.parametrize(
    ("kind", "payload", "evidence"),
    [
        ("evidence", {}, "sim"),
        ("evidence", {"label": None, "successes": "x", "n": []}, "surrogate"),
        ("evidence", {"label": {"a": 1}, "successes": 5, "n": 3}, "sim"),
        ("commitment", {}, None),
        ("commitment", {"seal_sha256": 7}, None),
        ("finding", {"cause": ["x"]}, None),
        ("finding", {}, None),
        ("note", {"label": 10**400}, None),
        ("note", {"text": "\x1b[31m[red]\u202e"}, None),
    ],
)
def test_rows_that_lack_what_they_should_hold_are_listed_all_the_same(
    tmp_path: Path,
    kind: str,
    payload: dict[str, Any],
    evidence: str | None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.append(kind, payload, evidence)
    for words in (["show"], ["show", "--json"], ["export"], ["export", "--format", "csv"], ["verify"]):
        assert main(["ledger", words[0], str(tmp_path), *words[1:]]) == 0
    assert "\x1b" not in capsys.readouterr().out.replace("\\u001b", "")


def test_what_is_exported_can_be_hashed_again_by_anybody(
    run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ledger", "export", str(run_folder), "--quiet"]) == 0
    previous = GENESIS
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for row in lines:
        payload = json.dumps(row["payload"], sort_keys=True, separators=(",", ":"))
        text = json.dumps(
            [row["id"], row["time"], row["kind"], row["key"], payload, row["evidence"], previous],
            separators=(",", ":"),
        )
        previous = hashlib.sha256(text.encode()).hexdigest()
        assert row["hash"] == previous
    assert len(lines) == 6


def test_an_export_holds_the_same_rows_in_every_form(
    run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Ledger(run_folder / "ledger.db", create=False) as ledger:
        rows: tuple[Row, ...] = ledger.rows()
    assert main(["ledger", "export", str(run_folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == [
        json.loads(canonical_json(row.to_json())) for row in rows
    ]
    assert (
        main(["ledger", "export", str(run_folder), "--format", "csv", "--out", str(tmp_path / "rows.csv")])
        == 0
    )
    table = list(csv.DictReader(io.StringIO((tmp_path / "rows.csv").read_text())))
    assert [(int(r["id"]), r["hash"], json.loads(r["payload"])) for r in table] == [
        (r.id, r.hash, r.payload) for r in rows
    ]


@pytest.mark.parametrize("seed", range(6))
def test_no_damage_to_the_bytes_passes_for_other_rows_or_ends_in_anything_but_one_line(
    finished: Path, tmp_path: Path, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """What lies in unused bytes changes nothing; all else is found."""
    rng = np.random.default_rng(seed)
    with Ledger(finished / "ledger.db", create=False) as ledger:
        rows = ledger.rows()
    for attempt in range(8):
        data = bytearray((finished / "ledger.db").read_bytes())
        start, length = int(rng.integers(len(data))), int(rng.choice([1, 1, 8, 300, 5000]))
        if attempt % 4 == 0:
            del data[start : start + length]
        elif attempt % 4 == 1:
            data[start:start] = rng.bytes(length)
        else:
            start = start if attempt % 4 == 2 else start % 100  # the header
            data[start : start + length] = rng.bytes(len(data[start : start + length]))
        path = tmp_path / f"{attempt}.db"
        path.write_bytes(data)
        code = verify(path)
        error = capsys.readouterr().err
        assert code in (0, 1, 3)
        assert "defect" not in error
        assert error.count("\n") == (1 if code == 3 else 0)
        if code == 0:
            with Ledger(path, create=False) as ledger:
                assert ledger.rows() == rows
