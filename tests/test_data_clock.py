"""What the data check says of recorded clocks: rates, pauses and gaps of healthy ones, and every way in which stamps are no time."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from format_builders import write_tub
from remedies import thinned
from simgap.checks.data.clock.facts import rate_groups, running
from simgap.checks.data.dataset import DataFinding, DataReport, Severity, check_data
from simgap.episodes.formats.layout import data_path
from simgap.episodes.reader import open_dataset
from test_data_check_planted import clean, write

CASES = Path(__file__).parent.parent.parent / "shared" / "cases"
Stamps = NDArray[np.float64]
LENGTH = 140


def case(name: str) -> Path:
    if not (CASES / name).exists():
        pytest.skip(f"{CASES / name} is not here")
    return CASES / name


def stamped(
    root: Path, stamps: Callable[[int, Stamps], NDArray[np.generic]], *, episodes: int = 4
) -> DataReport:
    """Check a LeRobot dataset of somebody else whose ``timestamp`` is what ``stamps`` makes of the episode number and k/20."""
    recording = clean(episodes=episodes)
    write(root, recording, is_ours=False)
    for k in range(episodes):
        path = root / data_path(k)
        table = pq.read_table(path).drop_columns(["time_s"])
        values = stamps(k, np.arange(LENGTH) / 20.0)
        kind = {"f4": pa.float32(), "f8": pa.float64(), "i8": pa.int64()}[values.dtype.str[1:]]
        pq.write_table(
            table.set_column(table.column_names.index("timestamp"), "timestamp", pa.array(values, kind)), path
        )
    info = root / "meta" / "info.json"
    info.write_text(info.read_text().replace('"time_s"', '"unused"'))
    return check_data(root)


def found(report: DataReport, code: str) -> DataFinding:
    return next(f for f in report.findings if f.code == code)


def clock_codes(report: DataReport) -> set[str]:
    """Return codes above a note that speak of time."""
    words = ("clock", "rate", "stamp", "pause")
    return {
        f.code for f in report.findings if f.severity is not Severity.NOTE and any(w in f.code for w in words)
    }


# --- healthy clocks ----------------------------------------------------------------------------------------------------

rng = np.random.default_rng(3)
JITTER = np.cumsum(np.abs(1 + 0.15 * rng.standard_normal((8, LENGTH))), axis=1) / 20.0
HEALTHY: dict[str, Callable[[int, Stamps], NDArray[np.generic]]] = {
    "positional": lambda k, t: t.astype(np.float32),
    "real, jitter of 15 %": lambda k, t: JITTER[k] - JITTER[k][0],
    "milliseconds rounded": lambda k, t: np.round(t * 1.003, 3),
    "ticks of 1/64 s": lambda k, t: np.floor(t * 64) / 64,
    "one hiccup of 0.2 s": lambda k, t: t * 1.001 + 0.2 * ((np.arange(LENGTH) >= 60) & (k == 1)),
    "2.7 % slow, as a busy loop is": lambda k, t: t / 0.973,
}


@pytest.mark.parametrize("name", thinned(HEALTHY, ("positional", "real, jitter of 15 %")))
def test_a_healthy_clock_is_no_finding_above_a_note(name: str, tmp_path: Path) -> None:
    report = stamped(tmp_path / "d", HEALTHY[name])
    assert clock_codes(report) == set(), [f.sentence for f in report.findings]


def test_a_tub_with_pauses_runs_at_the_rate_of_its_loop() -> None:
    report = check_data(case("tub_with_pauses"))
    assert report.is_clean
    assert report.measurements["clock"]["measured_hz"] == pytest.approx(20.0, rel=0.02)
    pauses = found(report, "recording_pauses").numbers
    assert (pauses["count"], pauses["total_s"], pauses["longest_s"]) == (
        5,
        pytest.approx(20.25, abs=0.1),
        pytest.approx(4.05, abs=0.01),
    )
    assert "rate_mismatch" not in report.codes()


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(11, 40), min_size=2, max_size=5),
    pause=st.floats(1.5, 500.0),
    step=st.sampled_from([0.02, 1 / 30, 0.05, 0.1]),
)
def test_pauses_never_change_the_rate(lengths: list[int], pause: float, step: float) -> None:
    steps = np.concatenate([np.r_[np.full(n - 1, step), pause] for n in lengths])[:-1]
    clock = np.concatenate([[0.0], np.cumsum(steps)])
    said = running(clock)
    assert said.step_s == pytest.approx(step, rel=1e-6)
    assert len(said.pauses) == len(lengths) - 1
    assert (said.missing, said.change) == (0, None)


def restamped(root: Path, change: Callable[[dict[str, float]], float]) -> Path:
    """Write a tub of 30 records, 50 ms apart, whose stamps are what ``change`` makes of each record."""
    write_tub(root, [("s0", 30)])
    for catalog in root.glob("*.catalog"):
        rows = [json.loads(line) for line in catalog.read_text().splitlines()]
        catalog.write_text("".join(json.dumps(row | {"_timestamp_ms": change(row)}) + "\n" for row in rows))
    return root


def test_an_episode_of_a_tub_ends_where_the_recording_paused(tmp_path: Path) -> None:
    dataset = open_dataset(
        restamped(tmp_path / "t", lambda row: row["_timestamp_ms"] + 7000 * (row["_index"] >= 12))
    )
    assert [e.length for e in dataset.entries] == [12, 18]
    assert dataset.entry(1).extra["pause_before_s"] == pytest.approx(7.05)


def test_a_tub_whose_clock_was_set_back_by_an_hour_says_so(tmp_path: Path) -> None:
    report = check_data(
        restamped(tmp_path / "t", lambda row: row["_timestamp_ms"] - 3_600_000 * (row["_index"] >= 12))
    )
    assert "1 h: a change of time zone" in found(report, "clock_set_back").sentence
    assert clock_codes(report) == set()


def test_a_tub_stamped_in_seconds_is_read_as_that(tmp_path: Path) -> None:
    dataset = open_dataset(restamped(tmp_path / "t", lambda row: row["_timestamp_ms"] / 1e3))
    assert dataset.info.rate_hz == 20.0
    assert any("holds seconds" in note for note in dataset.notes)


# --- stamps that are no time -------------------------------------------------------------------------------------------


def test_epoch_seconds_in_float32_are_named_as_that(tmp_path: Path) -> None:
    report = stamped(tmp_path / "d", lambda k, t: (1_700_000_000 + 60 * k + t).astype(np.float32))
    finding = found(report, "clock_lost_in_float32")
    assert finding.severity is Severity.FAULT
    assert "128" in finding.sentence
    assert "--clock positional" in finding.remedy
    assert clock_codes(report) <= {"clock_lost_in_float32", "clock_runs_on"}


@pytest.mark.slow
def test_the_time_since_a_machine_was_started_is_blurred_by_float32_too(tmp_path: Path) -> None:
    report = stamped(
        tmp_path / "d",
        lambda k, t: (300_000 + 60 * k + t + 1e-3 * np.sin(np.arange(len(t)))).astype(np.float32),
    )
    assert found(report, "clock_lost_in_float32").severity is Severity.FAULT
    assert clock_codes(report) <= {"clock_lost_in_float32", "clock_runs_on"}


@pytest.mark.parametrize(
    ("unit", "factor"),
    thinned([("milliseconds", 1e3), ("microseconds", 1e6), ("nanoseconds", 1e9)], [("milliseconds", 1e3)]),
)
def test_stamps_in_another_unit_are_named_and_measured_in_seconds(
    unit: str, factor: float, tmp_path: Path
) -> None:
    report = stamped(tmp_path / "d", lambda k, t: np.round(1.02 * t * factor).astype(np.int64))
    assert found(report, "clock_unit").numbers["unit"] == unit
    assert report.measurements["clock"]["measured_hz"] == pytest.approx(20 / 1.02, rel=0.01)


@pytest.mark.slow
def test_frames_counted_in_the_place_of_time_are_named(tmp_path: Path) -> None:
    report = stamped(tmp_path / "d", lambda k, t: np.arange(len(t), dtype=np.float32))
    assert found(report, "clock_unit").numbers["unit"] == "frames"


@pytest.mark.parametrize("constant", thinned([True, False], [True]))
def test_steps_in_the_place_of_time_are_named(constant: bool, tmp_path: Path) -> None:
    noise = 0.0 if constant else 0.004
    report = stamped(
        tmp_path / "d", lambda k, t: 0.05 + noise * np.random.default_rng(k).standard_normal(len(t))
    )
    assert "clock_holds_steps" in report.codes()


@pytest.mark.slow
def test_a_clock_that_stands_still_is_named(tmp_path: Path) -> None:
    assert "clock_stands_still" in stamped(tmp_path / "d", lambda k, t: np.full(len(t), 12.5)).codes()


@pytest.mark.slow
def test_a_clock_of_whole_seconds_is_named(tmp_path: Path) -> None:
    assert (
        found(stamped(tmp_path / "d", lambda k, t: np.floor(t)), "clock_too_coarse").severity
        is Severity.WARNING
    )


def test_a_change_of_the_time_zone_is_named(tmp_path: Path) -> None:
    report = stamped(
        tmp_path / "d",
        lambda k, t: t + 1e-3 * np.sin(np.arange(len(t))) - 3600.0 * ((np.arange(len(t)) >= 70) & (k == 2)),
    )
    assert "1 h: a change of time zone" in found(report, "clock_not_increasing").sentence
    assert "rate_mismatch" not in report.codes()


def test_a_recording_appended_without_a_border_is_named(tmp_path: Path) -> None:
    report = stamped(tmp_path / "d", lambda k, t: np.where(np.arange(len(t)) < 90, t, t - t[90]))
    finding = found(report, "clock_not_increasing")
    assert "starts again at 0: another recording was appended" in finding.sentence
    assert finding.numbers["first_bad_frame"]["0"] == 90


@pytest.mark.slow
def test_one_stamp_repeated_is_named_with_its_frame(tmp_path: Path) -> None:
    def stamps(k: int, t: Stamps) -> Stamps:
        t = t * 1.001
        t[31] = t[30] if k == 0 else t[31]
        return t

    assert found(stamped(tmp_path / "d", stamps), "clock_not_increasing").numbers["first_bad_frame"] == {
        "0": 31
    }


@pytest.mark.slow
def test_stamps_that_run_on_over_episodes_are_named_and_the_printed_command_mends_them(
    tmp_path: Path,
) -> None:
    report = stamped(tmp_path / "d", lambda k, t: 7.0 * k + 1.001 * t)
    assert found(report, "clock_runs_on").numbers["3"] == pytest.approx(21.0)
    assert report.measurements["clock"]["measured_hz"] == pytest.approx(20.0, rel=0.01)


# --- rates, gaps, bursts ---------------------------------------------------------------------------------------------


def test_sessions_of_two_rates_are_told_by_episode(tmp_path: Path) -> None:
    report = stamped(tmp_path / "d", lambda k, t: t * (1.002 if k < 2 else 2.004))
    finding = found(report, "rates_differ")
    assert finding.severity is Severity.FAULT
    assert list(finding.numbers.values()) == [[0, 1], [2, 3]]
    assert "rate_mismatch" not in report.codes()


def test_a_rate_that_changes_within_an_episode_is_told_with_its_frame(tmp_path: Path) -> None:
    def stamps(k: int, t: Stamps) -> Stamps:
        steps = np.where(np.arange(len(t)) < 72, 0.0501, 0.1002)
        return np.cumsum(steps) - steps[0]

    finding = found(stamped(tmp_path / "d", stamps), "rate_changes")
    assert finding.numbers["0"]["frame"] == pytest.approx(72, abs=30)


@pytest.mark.slow
def test_many_missing_frames_are_a_warning_with_their_share_and_the_rate_stays(tmp_path: Path) -> None:
    def stamps(k: int, t: Stamps) -> Stamps:
        lost = np.random.default_rng(k).random(len(t)) < 0.15
        return np.cumsum(np.where(lost, 0.1502, 0.0501)) - 0.05

    report = stamped(tmp_path / "d", stamps)
    finding = found(report, "clock_gaps")
    assert finding.severity is Severity.WARNING
    assert finding.numbers["share"] == pytest.approx(0.23, abs=0.05)
    assert report.measurements["clock"]["measured_hz"] == pytest.approx(20.0, rel=0.01)


@pytest.mark.parametrize("kept", [0.5, 0.7, 0.9])
def test_frames_left_out_at_random_are_missing_from_the_declared_loop(kept: float) -> None:
    there = np.random.default_rng(5).random(600) < kept
    said = running((np.arange(600) / 30)[there], 30.0)
    assert said.step_s == pytest.approx(1 / 30, rel=1e-3)
    assert said.missing == pytest.approx(int((~there).sum()), abs=4)
    assert not said.in_bursts


def test_frames_in_bursts_keep_the_rate_of_their_source(tmp_path: Path) -> None:
    report = stamped(
        tmp_path / "d", lambda k, t: 0.2 * (np.arange(len(t)) // 4) + 0.002 * (np.arange(len(t)) % 4)
    )
    assert "clock_bursts" in report.codes()
    assert report.measurements["clock"]["measured_hz"] == pytest.approx(20.0, rel=0.03)
    assert "rate_mismatch" not in clock_codes(report)


@pytest.mark.slow
def test_steps_that_scatter_widely_are_a_note_with_their_size(tmp_path: Path) -> None:
    steps = 0.05 * np.random.default_rng(4).uniform(0.45, 1.55, (4, LENGTH))
    finding = found(stamped(tmp_path / "d", lambda k, t: np.cumsum(steps[k]) - steps[k][0]), "clock_jitter")
    assert finding.severity is Severity.NOTE
    assert finding.numbers["jitter_ms"] == pytest.approx(15.9, rel=0.15)


def test_a_pause_within_an_episode_is_a_warning_and_no_change_of_rate(tmp_path: Path) -> None:
    report = stamped(tmp_path / "d", lambda k, t: 1.001 * t + 6.0 * ((np.arange(len(t)) >= 50) & (k == 1)))
    assert found(report, "recording_pauses").severity is Severity.WARNING
    assert "episode 1 before frame 50" in found(report, "recording_pauses").sentence
    assert clock_codes(report) == {"recording_pauses"}


@settings(max_examples=30, deadline=None)
@given(rates=st.lists(st.sampled_from([10.0, 20.0, 30.0]), min_size=1, max_size=8))
def test_groups_of_rates_are_the_rates_that_were_there(rates: Sequence[float]) -> None:
    clocks = {k: running(np.arange(40) / rate + 1e-4 * np.sin(np.arange(40))) for k, rate in enumerate(rates)}
    groups = {round(1 / step): episodes for step, episodes in rate_groups(clocks)}
    assert groups == {round(r): [k for k, other in enumerate(rates) if other == r] for r in set(rates)}
