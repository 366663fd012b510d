"""``simgap study`` prints what it found, not only where it wrote it."""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from arm_fixtures import tiny_checkpoint
from simgap.cli import main
from simgap.cli._study_show import execution_document, selection_document, show_execution, show_selection
from simgap.rollouts.record import RolloutRecord
from simgap.studies.execution import Cell, rows_of
from simgap.studies.selection import SelectorResult, TrainingResult
from simgap.types import Outcome


def record(seed: int, won: bool) -> RolloutRecord:
    empty = np.zeros((2, 1), dtype=np.float32)
    outcome = Outcome.success() if won else Outcome.failure("timeout")
    return RolloutRecord(
        seed=seed,
        outcome=outcome,
        factors={},
        state=empty,
        action=empty,
        age=empty[:, 0],
        film={},
        film_steps=(),
    )


def shown(draw: Any, document: dict[str, Any]) -> str:
    page = Console(file=io.StringIO(), width=140)
    draw(page, document)
    assert isinstance(page.file, io.StringIO)
    return page.file.getvalue()


def test_the_execution_study_shows_correct_executors_by_latency_and_the_largest_losses_with_their_interval() -> (
    None
):
    correct, late = (Cell(executor="ensemble(0.1)", latency=latency) for latency in (0, 2))
    led, worse, bad = (
        dataclasses.replace(late, lead=2),
        dataclasses.replace(correct, bug="stale_index"),
        dataclasses.replace(correct, bug="first_entry_only"),
    )
    lost = {correct: 1, late: 3, led: 2, bad: 5, worse: 7}
    rows = rows_of({cell: [record(s, s % 10 >= n) for s in range(100)] for cell, n in lost.items()})
    document = execution_document(rows)
    assert [b["bug"] for b in document["bugs"]] == ["stale_index", "first_entry_only"]
    difference = next(r.difference for r in rows if r.cell == worse)
    assert difference is not None
    assert (document["bugs"][0]["difference"]["low"], document["bugs"][0]["difference"]["high"]) == (
        difference.difference.low,
        difference.difference.high,
    )
    lines = shown(show_execution, document).splitlines()
    own, lead = (
        next(line for line in lines if line.startswith(start))
        for start in ("ensemble(0.1)  ", "ensemble(0.1), lead = latency")
    )
    assert own.index("90 of 100") < own.index("70 of 100")
    assert "80 of 100" in lead
    loss = next(line for line in lines if line.startswith("stale_index"))
    low, high = (
        f"{100 * float(end or 0):+.1f}" for end in (difference.difference.low, difference.difference.high)
    )
    assert f"30 of 100 (22-40 %)  -60.0 ({low} to {high})" in loss


def test_bugs_that_could_lose_nothing_are_not_called_harmless() -> None:
    correct = Cell(executor="ensemble(0.1)", latency=0)
    rows = rows_of(
        {
            cell: [record(s, won=False) for s in range(4)]
            for cell in (correct, dataclasses.replace(correct, bug="stale_index"))
        }
    )
    assert "nothing could be lost" in shown(show_execution, execution_document(rows))


def test_the_selection_study_shows_selectors_with_mean_regret_and_rollouts() -> None:
    def result(seed: int, regret: float) -> TrainingResult:
        both = (("validation_loss", regret, 0), ("race", 0.0, 100))
        own = tuple(
            SelectorResult(name=n, step=1, regret=lost, rollouts=cost, spearman=None, pearson=None, mmrv=None)
            for n, lost, cost in both
        )
        return TrainingResult(seed=seed, steps=(1,), rates=(0.5,), selectors=own, mean_regret=0.2)

    document = selection_document([result(0, 0.1), result(1, 0.04)])
    assert [
        (s["selector"], round(s["mean_regret"], 9), s["mean_rollouts"]) for s in document["selectors"]
    ] == [
        ("race", 0.0, 100.0),
        ("validation_loss", 0.07, 0.0),
        ("random", 0.2, 0.0),
    ]
    page = shown(show_selection, document)
    assert page.index("race") < page.index("lowest validation loss") < page.index("at random")
    assert "7.0" in page


def test_bugs_none_means_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "study",
        "execution",
        str(tiny_checkpoint(tmp_path / "policy")),
        "--env",
        "arm-pick",
        "-n",
        "1",
        "--latencies",
        "0",
        "--executors",
        "ensemble(0.1)",
    ]
    words += ["--workers", "0", "--quiet", "--out", str(tmp_path / "study"), "--json", "--bugs", "none"]
    assert main(words) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["rows"], len(document["correct"]), document["bugs"]) == (1, 1, [])
    assert document["command"].endswith("--bugs none")
    assert main([*words, "stale_index"]) == 2
    assert "stands alone" in capsys.readouterr().err
