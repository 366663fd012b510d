"""Healthy recordings end in exit code 0 and nothing above a note; of the public ones with faults, the known faults are named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from healthy_hosts import HOSTS
from public_sets import KNOWN, Known
from simgap.cli import main

FAST = (
    "SO-101, degrees, positional stamps",
    "one camera",
    "an object in the jaws",
    "ALOHA HDF5, JPEG",
    "tub with pauses, converted",
)


def checked(root: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = main(["data", "check", str(root), "--json", "--quiet"])
    return code, json.loads(capsys.readouterr().out)


def alarms(document: dict[str, Any]) -> list[str]:
    return [
        f"{f['severity']} {f['code']}: {f['sentence']}"
        for f in document.get("findings", ())
        if f["severity"] != "note"
    ]


@pytest.mark.parametrize("name", [n if n in FAST else pytest.param(n, marks=pytest.mark.slow) for n in HOSTS])
def test_a_healthy_recording_is_clean(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, document = checked(HOSTS[name](tmp_path / "d"), capsys)
    assert (code, alarms(document)) == (0, [])


@pytest.mark.parametrize(
    "known",
    [pytest.param(k, id=k.path, marks=() if k.path.startswith("cases") else pytest.mark.slow) for k in KNOWN],
)
def test_a_public_set_is_judged_as_what_it_is(known: Known, capsys: pytest.CaptureFixture[str]) -> None:
    if not known.root.exists():
        pytest.skip(f"{known.root} is not here")
    code, document = checked(known.root, capsys)
    if known.refused:
        assert code == 3
        assert known.refused in document["error"]
    elif known.is_healthy:
        assert (code, alarms(document)) == (0, [])
    else:
        assert code == 1
        assert set(known.faults) <= {f["code"] for f in document["findings"] if f["severity"] != "note"}


def test_the_page_lists_every_healthy_set_and_no_alarm() -> None:
    page = (Path(__file__).parent.parent / "docs" / "studies" / "false-alarms.md").read_text(encoding="utf-8")
    healthy = [*HOSTS, *(k.path for k in KNOWN if k.is_healthy)]
    rows = {
        line.split(" | ")[0].removeprefix("| "): line for line in page.splitlines() if line.startswith("| ")
    }
    assert [n for n in healthy if n not in rows] == [], "make it again: python benchmarks/false_alarms.py"
    assert [n for n in healthy if " | nothing | " not in rows[n]] == []
