"""Nothing of a dataset stays behind without a count: episodes listed with no frames, rows that no listed episode claims."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from simgap.checks.data.dataset import check_data
from simgap.cli import main
from simgap.episodes.formats.left_out import left_out
from simgap.episodes.reader import open_dataset
from test_pains_data_format import arm

Rows = Callable[[list[dict[str, Any]]], object]
INDEX = "meta/episodes/chunk-000/file-000.parquet"


def length(value: int) -> Rows:
    return lambda rows: rows[1].__setitem__("length", value)


def said(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, dict[str, Any], str]:
    code = main([*map(str, words), "--json", "--quiet"])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else {}, err


@pytest.mark.parametrize("value", [0, -5])
@pytest.mark.parametrize("verb", ["convert", "split", "merge"])
def test_an_episode_listed_without_frames_is_counted_and_the_exit_code_says_so(
    verb: str, value: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, other = arm(3, 40, rows=length(value)).write(tmp_path / "d"), arm(2, 50).write(tmp_path / "other")
    write = ["--out", tmp_path / "out", "--workers", "0"]
    words = {
        "convert": [root, *write],
        "merge": [root, other, *write],
        "split": [root, "--parts", "a=0.5,b=0.5"],
    }[verb]
    code, document, err = said(capsys, "data", verb, *words)
    if verb == "merge" and code == 3:
        assert "no stated unit" in err
        return
    assert code == 1
    assert document["left_out"] == [{"episodes": {"1": value}, "rows": {"1": 40}}]
    assert any(f"episode 1 with length {value}" in note for note in document["notes"])
    assert any("40 of episode 1" in note for note in document["notes"])


def test_choosing_episodes_is_no_loss(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = arm(3, 40, rows=length(0)).write(tmp_path / "d")
    code, document, _ = said(
        capsys, "data", "convert", root, "--episodes", "0,2", "--out", tmp_path / "out", "--workers", "0"
    )
    assert (code, document["episodes"], document["left_out"]) == (0, 2, [])


def test_the_check_names_both_as_faults(tmp_path: Path) -> None:
    root = arm(3, 40, rows=length(-5)).write(tmp_path / "d")
    found = {f.code: f for f in check_data(root).findings}
    assert found["episodes_without_frames"].numbers == {"1": -5}
    assert found["rows_without_episode"].numbers == {"1": 40}


def test_rows_of_an_episode_that_the_index_does_not_list_are_found_though_all_counts_agree(
    tmp_path: Path,
) -> None:
    root = arm(3, 40).write(tmp_path / "d")
    pq.write_table(pq.read_table(root / INDEX).slice(0, 2), root / INDEX)
    info = json.loads((root / "meta/info.json").read_text())
    (root / "meta/info.json").write_text(json.dumps(info | {"total_episodes": 2, "total_frames": 80}))
    lost = left_out(open_dataset(root))
    assert (dict(lost.episodes), dict(lost.rows)) == ({}, {2: 40})
    assert "rows_without_episode" in {f.code for f in check_data(root).findings}


def test_a_whole_dataset_leaves_nothing_behind(tmp_path: Path) -> None:
    assert not left_out(open_dataset(arm(3, 40).write(tmp_path / "d")))


@pytest.mark.parametrize("claim", [(50, 10), (0, 999), (None, None), (30, 70)])
def test_rows_claimed_backwards_twice_or_not_at_all_are_a_fault(
    claim: tuple[int | None, int | None], tmp_path: Path
) -> None:
    def change(rows: list[dict[str, Any]]) -> None:
        rows[1] |= {"dataset_from_index": claim[0], "dataset_to_index": claim[1]}

    report = check_data(arm(3, 40, rows=change).write(tmp_path / "d"))
    assert next(f for f in report.findings if f.code == "boundaries_wrong").numbers["episodes"] == [1]


def test_a_split_writes_nothing_unless_it_is_told_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = arm(4, 40).write(tmp_path / "d")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    assert main(["data", "split", str(root), "--parts", "a=0.5,b=0.5"]) == 0
    assert "nothing was written" in capsys.readouterr().out
    assert not list((tmp_path / "empty").iterdir())
    assert main(["data", "split", str(root), "--parts", "a=0.5,b=0.5", "--datasets"]) == 2
    assert "--out" in capsys.readouterr().err
