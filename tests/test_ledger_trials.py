"""The ledger of a folder of trials: it grows with every set, and its head is kept beside it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from simgap.cli import main
from simgap.ledger import Ledger
from simgap.ledger.heads import TRIALS_FILE, keep_head
from simgap.robots.refs import SurrogateRef
from test_ledger_verb import sql
from test_loop import LocalSurrogate


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("data") / "picks"
    assert (
        main(
            [
                "generate",
                "arm-pick",
                "-n",
                "1",
                "--size",
                "48",
                "--workers",
                "0",
                "--out",
                str(out),
                "--quiet",
            ]
        )
        == 0
    )
    return out


def replay(data: Path, root: Path, *words: str) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SurrogateRef, "open", lambda spec: LocalSurrogate(spec))
        return main(
            [
                "trial",
                "--replay",
                str(data),
                "-n",
                "1",
                "--gap",
                "none",
                "--workers",
                "0",
                "--out",
                str(root),
                *words,
            ]
        )


@pytest.fixture(scope="module")
def tried(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tried")
    assert replay(data, root, "--quiet") in (0, 1)
    return root


def test_the_head_of_a_folder_of_trials_is_kept_printed_and_verified(
    tried: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = Path(shutil.copytree(tried, tmp_path / "trials"))
    with Ledger(root / "ledger.db") as ledger:
        head = ledger.head_text
    assert json.loads((root / TRIALS_FILE).read_text()) == {"ledger_head": head, "adding": []}
    assert main(["ledger", "verify", str(root)]) == 0
    assert f"ends at the head kept in {TRIALS_FILE}" in capsys.readouterr().out
    assert replay(data, root, "--robot-seed", "1") in (0, 1)
    assert f"kept in {root / TRIALS_FILE}" in capsys.readouterr().out.replace("\n", " ").replace("  ", " ")
    assert main(["ledger", "verify", str(root), "--head", head, "--grown"]) == 0


@pytest.mark.parametrize("number", [1, 2])
def test_a_ledger_of_trials_whose_end_was_cut_is_found_by_verify_and_takes_no_more_trials(
    tried: Path, data: Path, tmp_path: Path, number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    root = Path(shutil.copytree(tried, tmp_path / "trials"))
    sql(f"DELETE FROM rows WHERE id >= {number}")(root)
    assert main(["ledger", "verify", str(root)]) == 1
    assert f"{TRIALS_FILE}: row 2" in capsys.readouterr().out
    assert replay(data, root, "--robot-seed", "1") == 3
    error = capsys.readouterr().err
    assert "its end was cut or replaced" in error
    (root / "ledger.db").unlink()
    assert replay(data, root, "--robot-seed", "1", "--quiet") == 3
    assert not (root / "ledger.db").exists()


def test_a_row_after_the_kept_head_is_a_fault_unless_a_set_of_trials_was_killed_while_it_added(
    tried: Path, data: Path, tmp_path: Path
) -> None:
    root = Path(shutil.copytree(tried, tmp_path / "trials"))
    with Ledger(root / "ledger.db") as ledger:
        head = ledger.head_text
        ledger.append("note", {"label": "all is well"})
    assert main(["ledger", "verify", str(root)]) == 1
    assert replay(data, root) == 3
    keep_head(root, head, who="a set that was killed", is_adding=True)
    assert main(["ledger", "verify", str(root)]) == 0
    assert replay(data, root) in (0, 1)


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[]",
        '{"ledger_head": 3, "adding": []}',
        '{"ledger_head": "2:ab", "adding": []}',
        "no JSON",
        '{"adding": [1]}',
    ],
)
def test_a_kept_head_that_is_damaged_ends_in_one_line(
    tried: Path, data: Path, tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    root = Path(shutil.copytree(tried, tmp_path / "trials"))
    (root / TRIALS_FILE).write_text(text)
    assert main(["ledger", "verify", str(root)]) == 3
    assert capsys.readouterr().err.count("\n") == 1
    assert replay(data, root, "--quiet") == 3
    assert capsys.readouterr().err.count("\n") == 1
