from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.table import Table

from simgap.cli._output import Meter, _lines, duration, emit, progress, say
from simgap.wording import number_of


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def _args(**given: bool) -> argparse.Namespace:
    return argparse.Namespace(**{"json": False, "quiet": False, **given})


def test_json_is_one_document_of_plain_values(capsys: pytest.CaptureFixture[str]) -> None:
    emit(
        _args(json=True),
        {"n": np.int64(3), "rates": np.array([0.5, 1.0]), "path": Path("a/b"), "rate": None},
        lambda console: console.print("no"),
    )
    assert json.loads(capsys.readouterr().out) == {"n": 3, "rates": [0.5, 1.0], "path": "a/b", "rate": None}


def test_an_undefined_number_never_becomes_json(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        emit(_args(json=True), {"rate": math.nan}, lambda console: None)
    assert capsys.readouterr().out == ""


def test_people_get_what_the_verb_draws(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("env", "failure modes")
    table.add_row(
        "arm_pick", ", ".join(["missed the cube", "dropped it", "timed out", "knocked over the bin"])
    )
    emit(_args(), {}, lambda console: console.print(table))
    assert "missed the cube, dropped it, timed out, knocked over the bin" in capsys.readouterr().out


def test_quiet_silences_what_is_said_on_the_way(capsys: pytest.CaptureFixture[str]) -> None:
    say(_args(), "loading")
    say(_args(quiet=True), "loading again")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "loading\n")


def test_a_meter_tells_rate_and_time_left() -> None:
    clock = Clock()
    meter = Meter(total=100, label="episodes", clock=clock)
    assert meter.line() == "episodes 0/100 (0%)"
    clock.now += 10
    meter.add(20, "seed 19")
    assert meter.line() == "episodes 20/100 (20%), 2/s, 40 s left, seed 19"
    meter.add(80)
    assert meter.line() == "episodes 100/100 (100%), 10/s, seed 19"


def test_a_meter_without_a_total_promises_nothing() -> None:
    clock = Clock()
    meter = Meter(total=None, label="frames", clock=clock)
    clock.now += 2
    meter.add(5)
    assert meter.line() == "frames 5, 2.5/s"


def test_plain_progress_speaks_now_and_then_and_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with _lines(Meter(total=6, label="trials", clock=clock), interval_s=10) as advance:
        for _ in range(6):
            clock.now += 4
            advance(1)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "trials 3/6 (50%), 0.25/s, 12 s left",
        "trials 6/6 (100%), 0.25/s, took 24 s",
    ]


def test_progress_that_breaks_still_says_how_far_it_came(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError), progress(10, "trials") as advance:  # noqa: PT012
        advance(4)
        raise RuntimeError
    assert capsys.readouterr().err.startswith("trials 4/10 (40%)")


def test_quiet_progress_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    with progress(2, "trials", quiet=True) as advance:
        advance(2)
    captured = capsys.readouterr()
    assert captured.out + captured.err == ""


def test_a_bar_on_a_terminal_leaves_standard_output_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress(4, "episodes") as advance:
        advance(3, "a [note] in brackets")
        print("the document")
        advance()
    captured = capsys.readouterr()
    assert captured.out == "the document\n"
    assert "episodes" in captured.err
    assert "4/4" in captured.err


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.4, "59 s"), (125, "2 min 05 s"), (7325, "2 h 02 min")]
)
def test_a_duration_is_told_in_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


HOSTILE = "[/nothing] [red]x[/red] :car: \x1b[2J\x1b]0;title\x07 \x9b31m \u202egnp.exe \x7f"


def test_no_text_of_a_file_commands_the_terminal_or_is_read_as_markup(
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = Table("name")
    table.add_row(HOSTILE)
    emit(_args(), {}, lambda console: (console.print(HOSTILE), console.print(table)))  # type: ignore[func-returns-value, return-value]
    say(_args(), HOSTILE)
    with progress(1, "episodes") as advance:
        advance(1, HOSTILE)
    told = capsys.readouterr()
    for text in (told.out, told.err):
        assert text.count("[/nothing] [red]x[/red] :car: ?[2J") >= 2
        assert not set("\x1b\x07\x9b\u202e\x7f") & set(text)
    emit(_args(json=True), {HOSTILE: HOSTILE}, lambda console: None)
    out = capsys.readouterr().out
    assert json.loads(out) == {HOSTILE: HOSTILE}
    assert not set("\x1b\x07\x9b\u202e\x7f") & set(out)


def test_a_rate_is_told_without_powers_of_ten() -> None:
    clock = Clock()
    meter = Meter(total=100_000, label="steps", clock=clock)
    clock.now += 10
    meter.add(13_900)
    assert ", 1,390/s, " in meter.line()
    slow = Meter(total=None, label="rows", clock=clock)
    clock.now += 36_000
    slow.add(1)
    assert slow.line() == "rows 1, 0.1/h"


def test_a_printed_command_is_one_line_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    command = "simgap data convert " + " ".join(f"--drop action:joint_{k}.pos" for k in range(20))
    emit(_args(), {}, lambda console: console.print(f"        -> {command}; then look again"))
    assert f"-> {command}; then" in capsys.readouterr().out


@pytest.mark.parametrize(("count", "said"), [(0, "0 episodes"), (1, "1 episode"), (2, "2 episodes")])
def test_one_thing_is_no_plural(count: int, said: str) -> None:
    assert number_of(count, "episode") == said


def test_an_irregular_plural_is_given() -> None:
    assert (number_of(1, "dry run"), number_of(2, "entry", "entries")) == ("1 dry run", "2 entries")
