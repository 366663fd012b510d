"""Studies: planted proxies, selectors and bugs are told as they are; a killed study goes on and writes the same page."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arm_fixtures import tiny_checkpoint
from simgap.cli import main
from simgap.conventions import ActionSpec, Dimension, Unit
from simgap.envs.arm.factors import ARM_PRESETS
from simgap.episodes.table import FrameTable
from simgap.errors import UsageError
from simgap.policies.checkpoint import read_card
from simgap.policies.execution import parse_executor
from simgap.rollouts import engine
from simgap.rollouts.record import RolloutRecord
from simgap.rollouts.select import replay_race
from simgap.studies import execution
from simgap.studies.checkpoints import steps_of, train_keeping
from simgap.studies.execution import (
    AVERAGED_DELTAS,
    Cell,
    ExecutionStudy,
    MeanOfDeltas,
    cells_of,
    rows_of,
    run_execution,
)
from simgap.studies.proxies import ProxyScores, critical_rows, held_out_episodes, score
from simgap.studies.resampled import last_largest, resampled
from simgap.studies.selection import Scored, analyse
from simgap.training.spec import TrainSpec
from simgap.types import Outcome
from synthetic import find_the_square

# -- selection, on planted numbers


def outcomes(rate: float, count: int, seed: int, first: int = 0) -> dict[int, Outcome]:
    wins = np.random.default_rng(seed).permutation(np.arange(count) < round(rate * count))
    return {first + i: Outcome.success() if w else Outcome.failure("timeout") for i, w in enumerate(wins)}


RATES = (0.1, 0.3, 0.5, 0.95, 0.7, 0.6)


def checkpoints(loss: Sequence[float], critical: Sequence[float]) -> list[Scored]:
    return [
        Scored(
            step=100 * (i + 1),
            proxies=ProxyScores(validation_loss=loss[i], critical_error=critical[i], chunk_consistency=1.0),
            select=outcomes(rate, 192, i),
            truth=outcomes(rate, 200, 50 + i, first=10_000),
        )
        for i, rate in enumerate(RATES)
    ]


def test_each_selector_is_judged_by_seeds_that_it_never_saw_and_ordered_as_planted() -> None:
    result = analyse(checkpoints(loss=[-r for r in RATES], critical=list(RATES)))
    by_name = {s.name: s for s in result.selectors}
    wrong, right, silent = (by_name[n] for n in ("validation_loss", "critical_error", "chunk_consistency"))
    assert (wrong.spearman, right.spearman, silent.spearman) == (
        pytest.approx(-1.0),
        pytest.approx(1.0),
        None,
    )
    assert wrong.regret == pytest.approx(0.85)
    assert (right.regret, right.mmrv) == (0.0, 0.0)
    assert wrong.mmrv is not None
    assert wrong.mmrv > 0.3
    assert by_name["last"].regret == pytest.approx(0.35)
    assert result.mean_regret == pytest.approx(0.95 - np.mean(RATES))


def test_the_race_takes_the_same_checkpoint_as_full_evaluation_for_half_the_rollouts() -> None:
    by_name = {s.name: s for s in analyse(checkpoints(list(RATES), list(RATES))).selectors}
    assert by_name["race"].regret == by_name["full_evaluation"].regret == 0.0
    assert by_name["full_evaluation"].rollouts == 192 * len(RATES)
    assert by_name["race"].rollouts <= 0.5 * by_name["full_evaluation"].rollouts


def test_a_race_of_equal_checkpoints_keeps_its_budget_and_takes_the_one_trained_longest() -> None:
    same = [outcomes(0.8, 96, 3)] * 4
    winner, cost = replay_race(same)
    assert winner == 3
    assert cost <= 0.5 * 4 * 96
    assert replay_race(same, share=1.0) == (3, 4 * 96)


def test_redrawn_seeds_say_what_each_closed_loop_selector_loses_and_costs() -> None:
    rates = (0.5, 0.9, 0.9, 0.2)
    select = [outcomes(rate, 96, 20 + i) for i, rate in enumerate(rates)]
    found = {s.name: s for s in resampled(select, rates, np.random.default_rng(0), draws=20)}
    assert (found["full_evaluation"].share, found["full_evaluation"].against_full) == (1.0, 0.0)
    assert found["race"].share <= 0.5
    assert found["race"].share <= found["race_without_budget"].share < 1.0
    assert found["half_the_seeds"].share == 0.5
    assert all(0.0 <= s.regret < 0.05 and s.low <= s.against_full <= s.high for s in found.values())
    with pytest.raises(UsageError, match="same select seeds"):
        resampled([select[0], outcomes(0.5, 95, 1)], rates[:2], np.random.default_rng(0))


def test_equal_values_go_to_the_one_trained_longest() -> None:
    assert last_largest([1.0, 3.0, 3.0, 2.0]) == 2


# -- proxies


def table(episodes: int = 4, steps: int = 30) -> FrameTable:
    """A straight motion whose gripper closes in the middle of each episode."""
    dims = (
        Dimension(name="x", unit=Unit.UNKNOWN, low=-5, high=5),
        Dimension(name="grip", unit=Unit.UNKNOWN, low=0, high=1, is_gripper=True),
    )
    one = np.stack([np.linspace(-1, 1, steps), np.where(np.arange(steps) < steps // 2, 1.0, 0.0)], axis=1)
    action = np.tile(one, (episodes, 1)).astype(np.float32)
    spec = ActionSpec(rate_hz=20.0, dimensions=dims)
    time = np.tile(np.arange(steps, dtype=np.float32), episodes)
    images = {"front": np.zeros((len(action), 4, 4, 3), dtype=np.uint8)}
    starts = np.arange(0, len(action) + 1, steps)
    return FrameTable(
        images=images,
        state=np.stack([time, time], axis=1),
        action=action,
        episode_start=starts,
        action_spec=spec,
        state_spec=spec,
        fingerprint="0" * 64,
    )


class Oracle:
    """Knows the labels by the time in its state; may be late or inconsistent."""

    cameras, image_size, chunk = ("front",), 4, 5

    def __init__(self, labels: np.ndarray, *, late: int = 0, drift: float = 0.0) -> None:
        self.labels, self.late, self.drift = labels, late, drift

    def predict(self, images: Any, state: np.ndarray) -> np.ndarray:
        at = np.clip(
            state[:, 0].astype(int)[:, None] + np.arange(self.chunk) - self.late, 0, len(self.labels) - 1
        )
        return (self.labels[at] + self.drift * np.arange(self.chunk)[None, :, None]).astype(np.float32)


def test_critical_steps_are_those_around_the_gripper_or_the_end() -> None:
    frames = table()
    critical = critical_rows(frames.action[:30], frames.action_spec.gripper_mask)
    assert critical[9:21].all()
    assert critical.sum() == 12
    still = critical_rows(frames.action[:30, :1], np.array([False]))
    assert still[-10:].all()
    assert still.sum() == 10


def test_proxies_rank_a_perfect_a_late_and_an_inconsistent_policy_as_planted() -> None:
    frames = table()
    held = held_out_episodes(frames, np.arange(60, 120))
    assert [(e.start, e.stop) for e in held] == [(60, 90), (90, 120)]
    labels = frames.action[:30]
    perfect, late, drifting = (
        score(p, frames, held, loss=0.5, sent=3)
        for p in (Oracle(labels), Oracle(labels, late=2), Oracle(labels, drift=0.1))
    )  # type: ignore[arg-type]
    assert perfect.critical_error == pytest.approx(0.0)
    assert perfect.validation_loss == -0.5
    assert late.critical_error < -0.05
    assert late.chunk_consistency == pytest.approx(perfect.chunk_consistency, abs=0.02)
    assert drifting.chunk_consistency < perfect.chunk_consistency - 0.1


# -- checkpoints along the way


def test_checkpoints_are_evenly_spaced_and_more_than_steps_are_refused() -> None:
    assert steps_of(4000, 4) == (1000, 2000, 3000, 4000)
    with pytest.raises(UsageError, match="keep fewer"):
        steps_of(3, 5)


@pytest.mark.slow
def test_a_training_killed_between_checkpoints_keeps_and_ends_with_the_same_bits(tmp_path: Path) -> None:
    frames = find_the_square(np.random.default_rng(0), episodes=6, length=12, image_size=16)
    spec = TrainSpec(
        steps=6, batch=4, chunk=4, width=8, hidden=8, threads=1, validation_share=0.4, log_every=1
    )
    whole, _ = train_keeping([frames], spec, (2, 4, 6), tmp_path / "whole")
    count = 0

    def dies(n: int) -> None:
        nonlocal count
        count += n
        if count == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_keeping([frames], spec, (2, 4, 6), tmp_path / "killed", dies)
    seen: list[int] = []
    again, _ = train_keeping([frames], spec, (2, 4, 6), tmp_path / "killed", seen.append)
    assert sum(seen) == 2
    assert [read_card(p).hash for p in again] == [read_card(p).hash for p in whole]
    assert len({read_card(p).weights_hash for p in whole}) == 3
    assert all(read_card(p).training["validation_loss_never_selects"] > 0 for p in whole)


# -- execution


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_checkpoint(tmp_path_factory.mktemp("tiny") / "policy")


def study(checkpoint: Path, **changes: Any) -> ExecutionStudy:
    return ExecutionStudy(
        **(
            {"checkpoint": checkpoint, "env": "arm-pick", "ranges": ARM_PRESETS["nominal"], "starts": 2}
            | changes
        )
    )


def test_cells_cross_modes_latencies_leads_and_the_bugs_that_can_be_made(checkpoint: Path) -> None:
    cells = cells_of(study(checkpoint), read_card(checkpoint))
    assert len(set(cells)) == len(cells)
    assert Cell(executor="receding(5)", latency=4, lead=4) in cells
    assert Cell(executor="ensemble(0.1)", latency=2, bug="reversed_weights") in cells
    assert all(c.lead == 0 for c in cells if c.bug)
    assert {c.executor for c in cells if c.bug == AVERAGED_DELTAS} == {"ensemble(0.1)"}
    assert not any(c.executor == "latest" for c in cells if c.bug)
    with pytest.raises(UsageError, match="known:"):
        cells_of(study(checkpoint, bugs=("reversed",)), read_card(checkpoint))


def test_an_executor_with_a_lead_of_its_own_is_refused_rather_than_run_without_it(checkpoint: Path) -> None:
    with pytest.raises(UsageError, match=r"receding.*lead=2.*--latencies"):
        cells_of(study(checkpoint, executors=("latest", "receding(5, lead=2)")), read_card(checkpoint))


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


def test_a_planted_bug_costs_what_was_planted_and_a_harmless_one_nothing() -> None:
    correct, harmful, harmless = (
        Cell(executor="ensemble(0.1)", latency=0, bug=b) for b in ("", "first_entry_only", "reversed_weights")
    )
    ran = {correct: [record(s, s % 10 > 0) for s in range(100)]}
    ran[harmful] = [record(s, s % 10 > 4) for s in range(100)]
    ran[harmless] = [record(s, s % 10 > 0) for s in range(100)]
    rows = {r.cell: r for r in rows_of(ran)}
    assert rows[correct].difference is None
    assert rows[harmful].against == correct
    assert rows[harmful].difference is not None
    assert rows[harmful].difference.difference.point == pytest.approx(-0.4)
    assert rows[harmful].p_adjusted is not None
    assert rows[harmful].p_adjusted < 1e-6
    assert rows[harmless].p_adjusted == 1.0


def test_averaged_deltas_go_on_with_an_offset_that_averaged_targets_have_forgotten() -> None:
    dims = (Dimension(name="x", unit=Unit.UNKNOWN, low=-10, high=10),)
    action_spec, spec = ActionSpec(rate_hz=20.0, dimensions=dims), parse_executor("ensemble(0.1)")
    right, wrong = spec.build(action_spec, 5), MeanOfDeltas(spec, action_spec, 5)
    sent: dict[str, list[float]] = {"right": [], "wrong": []}
    for name, executor in (("right", right), ("wrong", wrong)):
        executor.reset(1)
        for step in range(20):
            offset = 1.0 if step == 0 else 0.0  # the first prediction alone is off by one
            executor.submit((0.1 * (step + np.arange(5)) + offset)[:, None].astype(np.float32), step)
            sent[name].append(float(executor.act(step).action[0]))
    true = 0.1 * np.arange(20)
    assert np.abs(np.array(sent["right"]) - true)[8:].max() < 1e-5
    left = np.abs(np.array(sent["wrong"]) - true)
    assert left[8] > 0.1
    assert (np.diff(left[5:]) < 0).all()


def test_a_bug_of_the_second_episode_is_seen_because_there_is_one(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = study(checkpoint, executors=("receding(7)",), latencies=(0,), bugs=("queue_never_reset",))
    rows: dict[str, list[RolloutRecord]] = {}

    def keep(records: dict[Cell, list[RolloutRecord]]) -> list[Any]:
        rows.update({c.bug: list(r) for c, r in records.items()})
        return rows_of(records)

    monkeypatch.setattr(execution, "rows_of", keep)
    run_execution(asked, tmp_path, workers=0)
    first = {bug: [r.action[0] for r in ran] for bug, ran in rows.items()}
    assert [r.seed for r in rows[""]] == [r.seed for r in rows["queue_never_reset"]]
    assert [r.factors for r in rows[""]] == [r.factors for r in rows["queue_never_reset"]]
    assert any(not np.array_equal(a, b) for a, b in zip(first[""], first["queue_never_reset"], strict=True))


@pytest.mark.slow
def test_the_execution_study_writes_its_page_and_finds_its_rollouts_again(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "study",
        "execution",
        str(checkpoint),
        "--env",
        "arm-pick",
        "-n",
        "1",
        "--latencies",
        "0",
        "2",
        "--executors",
        "latest",
        "ensemble(0.1)",
    ]
    words += ["--bugs", "reversed_weights", "--workers", "0", "--quiet", "--out", str(tmp_path), "--json"]
    monkeypatch.setattr(execution, "source_hash", lambda *_: "0" * 64)
    assert main(words) == 0
    document = json.loads(capsys.readouterr().out)
    page = Path(document["page"]).read_text()
    assert document["rows"] == 8
    assert document["command"] in page
    assert all(
        word in page for word in ("reversed_weights", "lead=2", "What this does not show", "execution.png")
    )
    assert Path(document["picture"]).read_bytes().startswith(b"\x89PNG")
    monkeypatch.setattr(execution, "roll_cell", None)  # nothing may be rolled again
    assert main(words) == 0
    assert Path(document["page"]).read_text() == page


@pytest.mark.slow
def test_the_selection_study_trains_runs_and_writes_its_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(engine, "GROUP", 2)
    data = tmp_path / "data"
    assert (
        main(
            [
                "generate",
                "arm-pick",
                "-n",
                "4",
                "--size",
                "48",
                "--workers",
                "0",
                "--quiet",
                "--out",
                str(data),
            ]
        )
        == 0
    )
    words = [
        "study",
        "selection",
        str(data),
        "--trainings",
        "1",
        "--checkpoints",
        "3",
        "--steps",
        "3",
        "--batch",
        "8",
        "--width",
        "8",
        "--threads",
        "1",
    ]
    words += [
        "--validation-share",
        "0.4",
        "--select-n",
        "2",
        "-n",
        "2",
        "--workers",
        "0",
        "--quiet",
        "--out",
        str(tmp_path / "study"),
        "--json",
    ]
    capsys.readouterr()
    assert main(words) == 0
    document = json.loads(capsys.readouterr().out)
    page = Path(document["page"]).read_text()
    assert document["command"] in page
    assert all(word in page for word in ("lowest validation loss", "race", "Spearman", "at random", "step 3"))
    numbers = json.loads(Path(document["numbers"]).read_text())
    assert numbers[0]["steps"] == [1, 2, 3]
    assert {s["name"] for s in numbers[0]["selectors"]} >= {
        "validation_loss",
        "critical_error",
        "chunk_consistency",
        "race",
        "full_evaluation",
    }


@pytest.mark.slow
def test_the_progress_of_a_study_that_goes_on_ends_where_it_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(engine, "GROUP", 2)
    told: list[int] = []

    @contextlib.contextmanager
    def counting(total: int, *_: object) -> Iterator[Callable[..., None]]:
        told[:] = [total]
        yield lambda n, *_: told.append(n)

    monkeypatch.setattr("simgap.cli.study.progress", counting)
    data = tmp_path / "data"
    assert (
        main(
            [
                "generate",
                "arm-pick",
                "-n",
                "4",
                "--size",
                "48",
                "--workers",
                "0",
                "--quiet",
                "--out",
                str(data),
            ]
        )
        == 0
    )
    words = [
        "study",
        "selection",
        str(data),
        "--trainings",
        "1",
        "--checkpoints",
        "3",
        "--steps",
        "3",
        "--batch",
        "8",
        "--width",
        "8",
        "--threads",
        "1",
    ]
    words += [
        "--validation-share",
        "0.4",
        "--select-n",
        "2",
        "-n",
        "2",
        "--workers",
        "0",
        "--quiet",
        "--out",
        str(tmp_path / "study"),
    ]
    for _ in range(2):
        assert main(words) == 0
        assert sum(told[1:]) == told[0]
    capsys.readouterr()
