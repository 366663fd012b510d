"""Selection: the race ends the same however it was run, the winner is scored on seeds that did not choose it, and only once."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arm_fixtures import tiny_checkpoint
from simgap.cli import main
from simgap.envs.arm.factors import ARM_PRESETS
from simgap.errors import DataError, UsageError
from simgap.policies.checkpoint import CARD, KEPT
from simgap.provenance import read_json, read_sealed, write_atomic
from simgap.rollouts import engine, kept
from simgap.rollouts import screen as screen_module
from simgap.rollouts import select as select_module
from simgap.rollouts.race_plot import draw_race
from simgap.rollouts.record import RolloutRecord
from simgap.rollouts.select import (
    Selection,
    SelectSpec,
    candidates_of,
    replay_race,
    report_winner,
    run_race,
    to_json,
)
from simgap.rollouts.spent import require_not_spent
from simgap.seeds import Purpose, seed_of
from simgap.types import Outcome

RATES = {"step-2": 0.1, "step-10": 0.5, "step-20": 0.95, "step-100": 0.6}


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four checkpoints that differ in their cards alone; what they do is planted by name."""
    root = tmp_path_factory.mktemp("runs")
    tiny = tiny_checkpoint(root / "tiny")
    for name in RATES:
        folder = Path(shutil.copytree(tiny, root / "run" / name))
        card = read_json(folder / CARD)
        card["training"]["note"] = name
        write_atomic(folder / CARD, json.dumps(card))
    return root / "run"


def outcome_of(name: str, seed: int, rates: dict[str, float]) -> Outcome:
    return (
        Outcome.success()
        if np.random.default_rng([seed, hash_of(name)]).random() < rates[name]
        else Outcome.failure("timeout")
    )


def hash_of(name: str) -> int:
    return int.from_bytes(name.encode()[:6], "little")


def record(seed: int, outcome: Outcome) -> RolloutRecord:
    empty = np.zeros((2, 6), dtype=np.float32)
    film = {"front": np.zeros((1, 2, 2, 3), dtype=np.uint8)}
    return RolloutRecord(
        seed=seed,
        outcome=outcome,
        factors={},
        state=empty,
        action=empty,
        age=empty[:, 0],
        film=film,
        film_steps=(0,),
    )


class Planted:
    """Stands in for the workers: lands groups in any order, may die, and counts what was run."""

    def __init__(self, rates: dict[str, float]) -> None:
        self.rates, self.ran, self.dies_after = rates, list[tuple[str, str, int]](), -1
        self.shuffle: Callable[[Sequence[Any]], list[Any]] = list

    def __call__(
        self,
        setup: Any,
        setup_args: Any,
        tasks: Sequence[Any],
        *,
        workers: int,
        on_result: Callable[[Any], None],
    ) -> None:
        arms = setup_args[0]
        for task in self.shuffle(tasks):
            if self.dies_after == 0:
                raise KeyboardInterrupt
            self.dies_after -= 1
            arm = arms[task.arm]
            name = arm.spec.checkpoint.name
            self.ran.append((name, str(arm.spec.purpose), task.group))
            on_result((task, [record(s, outcome_of(name, s, self.rates)) for s in arm.group(task.group)]))


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Planted:
    runner = Planted(dict(RATES))
    stand_in(monkeypatch, runner)
    return runner


def stand_in(patch: pytest.MonkeyPatch, runner: Any) -> None:
    """Put a runner in place of those of races and of reports."""
    patch.setattr(kept, "run_tasks", runner)
    patch.setattr(select_module, "StandingWorkers", lambda: contextlib.nullcontext(runner))


def spec_of(folder: Path, **changes: Any) -> SelectSpec:
    whole = SelectSpec(
        candidates=candidates_of([folder]), env="arm-pick", ranges=ARM_PRESETS["nominal"], cap=192, report=64
    )
    return dataclasses.replace(whole, **changes)


def select(spec: SelectSpec, out: Path) -> Selection:
    return report_winner(spec, run_race(spec, out, workers=0), out, workers=0)


def test_the_best_wins_losers_run_fewer_seeds_and_the_report_has_fresh_ones(
    run_folder: Path, planted: Planted, tmp_path: Path
) -> None:
    spec = spec_of(run_folder)
    assert [c.name for c in spec.candidates] == list(RATES), "checkpoints go by their numbers"
    found = select(spec, tmp_path)
    raced = found.raced
    assert raced.winner == "step-20"
    assert len(raced.outcomes["step-2"]) < len(raced.outcomes["step-20"])
    assert raced.trials <= spec.most < spec.full
    assert not set(found.report.outcomes) & set(raced.outcomes["step-20"])
    assert found.report.counts.n == 64
    assert found.curse.point == pytest.approx(
        raced.selected.successes / raced.selected.n - found.report.counts.successes / 64
    )
    document = to_json(spec, found)
    assert document == read_sealed(found.folder / "selection.json") | {
        "winner_path": spec.candidates[2].path,
        "path": found.folder,
    } | {"entrants": document["entrants"]}
    assert draw_race(found).read_bytes().startswith(b"\x89PNG")


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_race_ends_the_same_in_any_order_of_work_and_after_any_kill(
    data: st.DataObject, run_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    spec, runner = spec_of(run_folder, cap=96), Planted(dict(RATES))
    with pytest.MonkeyPatch.context() as patch:
        stand_in(patch, runner)
        alone = run_race(spec, tmp_path_factory.mktemp("alone"), workers=0)
        ran_alone, runner.ran = set(runner.ran), []
        out = tmp_path_factory.mktemp("again")
        runner.shuffle = lambda tasks: data.draw(st.permutations(list(tasks)))
        for dies_after in (data.draw(st.integers(0, 12)), data.draw(st.integers(0, 12)), -1):
            runner.dies_after = dies_after
            try:
                again = run_race(spec, out, workers=3)
            except KeyboardInterrupt:
                continue
    assert again.standing == alone.standing
    assert again.outcomes == alone.outcomes
    assert set(runner.ran) == ran_alone
    assert len(runner.ran) == len(ran_alone), "a group that was kept was run again"


def test_another_race_of_the_same_policies_finds_the_groups_of_the_first(
    run_folder: Path, planted: Planted, tmp_path: Path
) -> None:
    run_race(spec_of(run_folder, cap=64), tmp_path, workers=0)
    before = len(planted.ran)
    longer = run_race(spec_of(run_folder, cap=128), tmp_path, workers=0)
    assert len(planted.ran) == len(set(planted.ran))
    assert len(planted.ran) > before or longer.standing.winner is not None


@pytest.mark.parametrize("rates", [(0.1, 0.5, 0.95, 0.6), (0.7, 0.7, 0.7, 0.7), (0.0, 1.0, 0.9, 0.2)])
def test_a_race_replayed_from_full_outcomes_takes_the_same_winner_after_the_same_rollouts(
    rates: tuple[float, ...], run_folder: Path, planted: Planted, tmp_path: Path
) -> None:
    planted.rates = dict(zip(RATES, rates, strict=True))
    spec = spec_of(run_folder)
    raced = run_race(spec, tmp_path, workers=0)
    seeds = [seed_of(Purpose.SELECT, 0, i) for i in range(192)]
    full = [{s: outcome_of(c.path.name, s, planted.rates) for s in seeds} for c in spec.candidates]
    winner, cost = replay_race(full)
    assert (spec.candidates[winner].name, cost) == (raced.winner, raced.trials)


def test_report_seeds_that_one_winner_spent_are_refused_to_the_next(
    run_folder: Path, planted: Planted, tmp_path: Path
) -> None:
    first = select(spec_of(run_folder), tmp_path)
    assert select(spec_of(run_folder), tmp_path).report.outcomes == first.report.outcomes, (
        "the same selection again is nothing new"
    )
    others = spec_of(run_folder)
    others = dataclasses.replace(
        others, candidates=tuple(c for c in others.candidates if c.name != "step-20")
    )
    with pytest.raises(UsageError, match="--report-seed"):
        select(others, tmp_path)
    assert select(dataclasses.replace(others, report_seed=1), tmp_path).raced.winner in (
        "step-10",
        "step-100",
    )


def test_a_report_on_seeds_of_the_race_is_refused(run_folder: Path, planted: Planted, tmp_path: Path) -> None:
    spec = spec_of(run_folder)
    raced = run_race(spec, tmp_path, workers=0)
    fresh = report_winner(spec, raced, tmp_path, workers=0)
    leaked = {**raced.outcomes[raced.winner], next(iter(fresh.report.outcomes)): Outcome.success()}
    planted_leak = dataclasses.replace(raced, outcomes={**raced.outcomes, raced.winner: leaked})
    with pytest.raises(DataError, match="were in the race and in the report"):
        report_winner(spec, planted_leak, tmp_path, workers=0)


def test_equal_policies_stay_in_and_the_winner_s_curse_is_shown(
    run_folder: Path, planted: Planted, tmp_path: Path
) -> None:
    planted.rates = dict.fromkeys(RATES, 0.7)
    curses, expected = [], []
    for seed in range(8):
        spec = spec_of(run_folder, cap=32, report=320, seed=seed, report_seed=seed)
        found = select(spec, tmp_path)
        assert len(found.raced.alike) >= 2
        assert found.curse.point is not None
        curses.append(found.curse.point)
        if found.expected is not None and found.expected.point is not None:
            expected.append(found.expected.point)
    assert np.mean(curses) > 0.03, "the best of four at n = 32 looks better than it is"
    assert 0.03 < np.mean(expected) < 0.12


def test_one_checkpoint_none_or_the_same_twice_is_refused(run_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="simgap screen"):
        candidates_of([run_folder / "step-2"])
    with pytest.raises(DataError, match="no checkpoint"):
        candidates_of([tmp_path])
    with pytest.raises(UsageError, match="same policy"):
        candidates_of([run_folder, run_folder / "step-2"])
    two = candidates_of([run_folder / "step-2", run_folder / "step-10"], "whole_chunk")
    assert [c.executor for c in two] == ["whole_chunk", "whole_chunk"]


def test_a_training_that_kept_checkpoints_stands_for_them_and_its_end(
    run_folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(run_folder / "step-10", tmp_path / "run")
    shutil.copytree(run_folder / "step-2", tmp_path / "run" / KEPT / "step-2")
    assert [c.path for c in candidates_of([tmp_path / "run"])] == [
        tmp_path / "run" / KEPT / "step-2",
        tmp_path / "run",
    ]


def test_a_checkpoint_of_another_training_among_the_kept_is_refused(run_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(run_folder / "step-10", tmp_path / "run")
    foreign = Path(shutil.copytree(run_folder / "step-2", tmp_path / "run" / KEPT / "step-2"))
    card = read_json(foreign / CARD)
    card["training"]["request"] = "of another spec"
    write_atomic(foreign / CARD, json.dumps(card))
    with pytest.raises(DataError, match="step-2 is of another training"):
        candidates_of([tmp_path / "run"])


def test_the_verb_tells_both_rates_and_refuses_to_call_untrained_policies_worthy(
    run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(engine, "GROUP", 2)
    words = [
        "select",
        str(run_folder / "step-2"),
        str(run_folder / "step-10"),
        "--env",
        "arm-pick",
        "-n",
        "2",
        "--report-n",
        "2",
    ]
    words += ["--executor", "latest", "--workers", "0", "--quiet", "--out", str(tmp_path)]
    assert main([*words, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["select"]["n"] == document["report"]["n"] == 2
    assert document["report"]["verdict"] != "worth hardware time"
    assert Path(document["plot"]).is_file()
    assert main(words) == 1
    page = capsys.readouterr().out
    winner = [
        "screen",
        document["winner_path"],
        "--env",
        "arm-pick",
        "-n",
        "2",
        "--executor",
        "latest",
        "--workers",
        "0",
        "--out",
        str(tmp_path),
    ]
    assert main([*winner, "--quiet"]) == 1
    assert "these seeds chose this policy" in capsys.readouterr().out
    others = [words[0], str(run_folder / "step-20"), str(run_folder / "step-100"), *words[3:]]
    stand_in(monkeypatch, None)  # refused before the first rollout
    assert main(others) == 2
    assert "--report-seed" in capsys.readouterr().err
    assert all(
        word in page
        for word in ("SELECTED", "not to be reported", "on fresh seeds", "winner's curse", "race.png")
    )


class Breaking(Planted):
    """Rollouts of some checkpoints break."""

    def __init__(self, rates: dict[str, float], voids: dict[str, float]) -> None:
        super().__init__(rates)
        self.voids = voids

    def __call__(
        self,
        setup: Any,
        setup_args: Any,
        tasks: Sequence[Any],
        *,
        workers: int,
        on_result: Callable[[Any], None],
    ) -> None:
        def broken(result: Any) -> None:
            task, records = result
            share = self.voids.get(setup_args[0][task.arm].spec.checkpoint.name, 0.0)
            is_void = [np.random.default_rng([r.seed, 7]).random() < share for r in records]
            on_result(
                (
                    task,
                    [
                        dataclasses.replace(r, outcome=Outcome.void("diverged")) if v else r
                        for r, v in zip(records, is_void, strict=True)
                    ],
                )
            )

        super().__call__(setup, setup_args, tasks, workers=workers, on_result=broken)


def page_of(
    run_folder: Path,
    out: Path,
    runner: Planted,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> str:
    stand_in(monkeypatch, runner)
    monkeypatch.setattr(screen_module, "write_videos", lambda *_: None)
    main(
        [
            "select",
            str(run_folder),
            "--env",
            "arm-pick",
            "--report-n",
            "2",
            "--workers",
            "0",
            "--quiet",
            "--out",
            str(out),
        ]
    )
    return capsys.readouterr().out


def test_voids_are_shown_and_a_checkpoint_set_aside_has_run_those_as_well(
    run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = page_of(
        run_folder, tmp_path, Breaking(dict.fromkeys(RATES, 0.7), {"step-2": 0.9}), monkeypatch, capsys
    )
    (row,) = [line for line in page.splitlines() if " step-2: " in line]
    found = re.search(r"step-2: \d+/(\d+) .*, (\d+) void, (?:set aside after (\d+) seeds|in|out)", row)
    assert found is not None, row
    counted, voids = int(found[1]), int(found[2])
    assert voids > counted
    assert (counted + voids) % 32 == 0
    assert found[3] is None or int(found[3]) == counted + voids
    assert "voids fell unevenly" in page
    assert "step-2" in page.split("voids fell unevenly")[1].splitlines()[0]


def test_a_checkpoint_that_is_out_is_not_said_to_be_worse_than_one_that_shares_its_letter(
    run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = page_of(run_folder, tmp_path, Planted(dict(RATES)), monkeypatch, capsys)
    (row,) = [line for line in page.splitlines() if " step-2: " in line]
    assert "out, shown not to be best" in row
    assert "step-20 is better" not in row


def test_a_race_in_which_all_rollouts_are_void_has_no_winner_and_spends_no_report_seeds(
    run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, Breaking(dict(RATES), dict.fromkeys(RATES, 1.0)))
    with pytest.raises(DataError, match=r"all void.*simgap screen"):
        select(spec_of(run_folder, cap=32), tmp_path)
    assert not (tmp_path / "spent-seeds").exists()


def test_report_seeds_spent_under_another_number_or_executor_are_refused_before_the_race(
    run_folder: Path, planted: Planted, tmp_path: Path
) -> None:
    spec = spec_of(run_folder, cap=32)
    select(spec, tmp_path)
    hashes = {c.card.hash: c.executor for c in spec.candidates}
    report = spec.rollouts(spec.candidates[0], Purpose.REPORT)
    require_not_spent(tmp_path, report, hashes)
    with pytest.raises(UsageError, match=r"episodes 64, .* 65.*--report-seed"):
        require_not_spent(tmp_path, dataclasses.replace(report, episodes=65), hashes)
    with pytest.raises(UsageError, match="--report-seed"):
        require_not_spent(tmp_path, report, dict.fromkeys(hashes, "latest"))
    (record,) = (tmp_path / "spent-seeds").iterdir()
    write_atomic(record, "x")
    with pytest.raises(DataError, match="another --report-seed"):
        require_not_spent(tmp_path, report, hashes)


def test_a_budget_that_the_first_look_exceeds_is_said_before_it_is_run(
    run_folder: Path,
    planted: Planted,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(screen_module, "write_videos", lambda *_: None)
    words = [
        "select",
        str(run_folder),
        "--env",
        "arm-pick",
        "--report-n",
        "2",
        "--workers",
        "0",
        "--out",
        str(tmp_path),
        "-n",
        "64",
    ]
    main([*words, "--budget", "0.1"])
    assert (
        "a budget of 0.1 would be 25 rollouts, and everybody runs the first 32 seeds: 128"
        in capsys.readouterr().err
    )
    main([*words, "--budget", "0.5"])
    assert "a budget of" not in capsys.readouterr().err
