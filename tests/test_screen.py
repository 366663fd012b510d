"""The screen that may stop early: its error rates, its memory, and what report seeds may be spent on."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from arm_fixtures import tiny_checkpoint
from simgap.cli import main
from simgap.envs.arm.factors import ARM_PRESETS
from simgap.errors import DataError, UsageError
from simgap.provenance import read_json, write_atomic
from simgap.rollouts import engine, kept
from simgap.rollouts.engine import RolloutSpec
from simgap.rollouts.kept import run_kept
from simgap.rollouts.record import RolloutRecord
from simgap.rollouts.screen import BROKEN_BELOW, GROUPS, WORTHY_ABOVE, plan_of, screen
from simgap.rollouts.spent import claim
from simgap.rollouts.traces import read_records, write_records
from simgap.seeds import Purpose, seed_of
from simgap.statistics import ScreenVerdict, beta_mixture, run_screen, screen_verdict
from simgap.types import Outcome

CAP = 100


def record(seed: int, outcome: Outcome, *, steps: int = 3) -> RolloutRecord:
    rng = np.random.default_rng(seed)
    return RolloutRecord(
        seed=seed,
        outcome=outcome,
        factors={"x": float(seed % 7)},
        state=rng.normal(size=(steps, 6)).astype(np.float32),
        action=rng.normal(size=(steps, 6)).astype(np.float32),
        age=np.arange(steps, dtype=np.float32),
        film={"front": rng.integers(0, 255, (2, 4, 4, 3), dtype=np.uint8)},
        film_steps=(0, steps - 1),
        disagreement=np.full(steps, np.nan, dtype=np.float32),
        mode="left" if seed % 2 else "",
    )


def spec(checkpoint: Path = Path("nowhere"), **changes: Any) -> RolloutSpec:
    whole = RolloutSpec(
        env="arm-pick", checkpoint=checkpoint, executor="latest", ranges=ARM_PRESETS["nominal"], episodes=CAP
    )
    return dataclasses.replace(whole, **changes)


# -- error rates, by simulation


def courses(
    rate: float, runs: int, *, low: np.ndarray, high: np.ndarray, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (verdict -1, 0, 1; successes; rollouts) at the stop of many simulated screens by tables of bounds."""
    k = np.cumsum(np.random.default_rng(seed).random((runs, len(low))) < rate, axis=1)
    says = np.where(k <= low, -1, np.where(k >= high, 1, 0))
    stop = np.where((says != 0).any(axis=1), (says != 0).argmax(axis=1), len(low) - 1)
    rows = np.arange(runs)
    return says[rows, stop], k[rows, stop], stop + 1


def bounds() -> tuple[np.ndarray, np.ndarray]:
    plan = plan_of(CAP)
    return np.array(plan.broken_at), np.array(plan.worthy_at)


def peeking_bounds() -> tuple[np.ndarray, np.ndarray]:
    """The fixed-n rule asked after every rollout: a planted mistake."""
    n, k = np.arange(1, CAP + 1)[:, None], np.arange(CAP + 1)[None, :]
    # the exact interval lies wholly below the bar
    low = (binom.cdf(k, n, BROKEN_BELOW) < 0.025).sum(axis=1) - 1
    high = (binom.sf(k - 1, n, WORTHY_ABOVE) >= 0.025).sum(axis=1)
    for count, successes in ((10, 1), (10, 2), (60, 50), (60, 49)):
        verdict = screen_verdict(successes, count, broken_below=BROKEN_BELOW, worthy_above=WORTHY_ABOVE)
        assert (verdict is ScreenVerdict.BROKEN, verdict is ScreenVerdict.WORTH_HARDWARE_TIME) == (
            successes <= low[count - 1],
            successes >= high[count - 1],
        )
    return low, high


def wrong_rates(tables: tuple[np.ndarray, np.ndarray]) -> tuple[float, float]:
    """Return the chance of a wrong `broken` at the lowest rate that is not, and of a wrong `worth hardware time` just below its bar."""
    at_low, _, _ = courses(BROKEN_BELOW, 20_000, low=tables[0], high=tables[1], seed=1)
    at_high, _, _ = courses(WORTHY_ABOVE, 20_000, low=tables[0], high=tables[1], seed=2)
    return float((at_low == -1).mean()), float((at_high == 1).mean())


MOST = 0.025 + 3 * np.sqrt(0.025 * 0.975 / 20_000)


def test_a_screen_that_stops_early_is_wrong_no_more_often_than_it_says() -> None:
    assert max(wrong_rates(bounds())) <= MOST


def test_the_error_test_catches_the_fixed_rule_asked_after_every_rollout() -> None:
    assert min(wrong_rates(peeking_bounds())) > 1.5 * MOST


@pytest.mark.parametrize("rate", [0.05, 0.5, 0.8, 0.99])
def test_its_interval_covers_wherever_it_stopped(rate: float) -> None:
    _, k, n = courses(rate, 4000, low=bounds()[0], high=bounds()[1], seed=3)
    ends = {pair: beta_mixture(*pair) for pair in set(zip(k.tolist(), n.tolist(), strict=True))}
    covered = [(e := ends[pair]).low <= rate <= e.high for pair in zip(k.tolist(), n.tolist(), strict=True)]  # type: ignore[operator]
    assert np.mean(covered) >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / 4000)


@pytest.mark.parametrize(("rate", "verdict", "most"), [(0.1, -1, 15), (0.99, 1, 25)])
def test_a_clear_case_is_decided_early_and_nearly_always(rate: float, verdict: int, most: int) -> None:
    says, _, n = courses(rate, 4000, low=bounds()[0], high=bounds()[1], seed=4)
    assert (says == verdict).mean() > 0.99
    assert n.mean() < most


# -- group by group: any order, any kill


def fake_runner(
    outcome_of: Callable[[int], Outcome], order: Sequence[int], dies_after: int | None, ran: list[int]
) -> Any:
    """Return a task runner that lands groups in another order, as several workers do, and may die."""

    def run(
        setup: Any, setup_args: Any, tasks: Sequence[Any], *, workers: int, on_result: Callable[[Any], None]
    ) -> None:
        (arm,) = setup_args[0]
        for count, task in enumerate(sorted(tasks, key=lambda t: order[t.group % len(order)])):
            if dies_after is not None and count >= dies_after:
                raise KeyboardInterrupt
            ran.append(task.group)
            on_result((task, [record(s, outcome_of(s)) for s in arm.group(task.group)]))

    return run


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), rate=st.sampled_from([0.0, 0.45, 0.8, 1.0]))
def test_a_screen_says_the_same_in_any_order_of_work_and_after_any_kill(
    data: st.DataObject, rate: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    def outcome_of(seed: int) -> Outcome:
        return (
            Outcome.success() if np.random.default_rng(seed).random() < rate else Outcome.failure("timeout")
        )

    plan, asked = plan_of(64), spec(episodes=64)
    alone = run_screen(plan, (outcome_of(seed_of(Purpose.SELECT, 0, i)) for i in range(64)))
    folder, ran = tmp_path_factory.mktemp("kept"), list[int]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "GROUP", 8)
        for dies_after in (data.draw(st.integers(0, 8)), data.draw(st.integers(0, 8)), None):
            order = data.draw(st.permutations(range(8)))
            patch.setattr(kept, "run_tasks", fake_runner(outcome_of, order, dies_after, ran))
            try:
                records = run_kept(
                    asked,
                    folder,
                    policy="p",
                    workers=2,
                    enough=lambda rows: run_screen(plan, (r.outcome for r in rows)).finished,
                )
            except KeyboardInterrupt:
                continue
    found = run_screen(plan, (r.outcome for r in records))
    assert (found.verdict, found.rollouts, found.rate) == (alone.verdict, alone.rollouts, alone.rate)
    assert len(records) - found.rollouts < 8
    assert len(ran) == len(set(ran)), "a group that was kept was run again"


def test_records_come_back_as_they_were_with_and_without_films(tmp_path: Path) -> None:
    made = [record(s, Outcome.success() if s % 2 else Outcome.failure("missed")) for s in (5, 3, 2**61)]
    for films in (True, False):
        write_records(tmp_path / "g.npz", made, films=films)
        back = read_records(tmp_path / "g.npz")
        assert [r.trace_hash for r in back] == [r.trace_hash for r in made]
        assert [(r.seed, r.mode, r.factors, r.outcome) for r in back] == [
            (r.seed, r.mode, r.factors, r.outcome) for r in made
        ]
        assert all(set(r.film) == ({"front"} if films else set()) for r in back)
        assert back[0].disagreement is not None
        assert back[0].n_averaged is None


@pytest.mark.parametrize("damage", ["cut", "text", "changed"])
def test_a_damaged_or_changed_group_is_refused_with_the_remedy(damage: str, tmp_path: Path) -> None:
    file = tmp_path / "g.npz"
    write_records(file, [record(1, Outcome.success())])
    whole = file.read_bytes()
    if damage == "changed":
        other = record(1, Outcome.success(), steps=4)
        with np.load(file) as archive:
            arrays = {k: archive[k] for k in archive.files} | {"1/action": other.action}
        np.savez(file, **arrays)
    else:
        file.write_bytes(whole[: len(whole) // 2] if damage == "cut" else b"no archive")
    with pytest.raises(DataError, match="only these rollouts are repeated"):
        read_records(file)


# -- a process that is really killed


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_checkpoint(tmp_path_factory.mktemp("tiny") / "policy")


@pytest.mark.slow
def test_a_screen_killed_with_nine_goes_on_from_its_groups_and_ends_with_the_same_bytes(
    checkpoint: Path, tmp_path: Path
) -> None:
    small = spec(checkpoint, episodes=3)
    code = (
        "import sys\nfrom pathlib import Path\nfrom simgap.rollouts import engine\nfrom"
        " simgap.rollouts.engine import RolloutSpec\nfrom simgap.rollouts.screen import screen\nfrom"
        " simgap.envs.arm.factors import ARM_PRESETS\nengine.GROUP = 1\nscreen(RolloutSpec(env='arm-pick',"
        f" checkpoint=Path({str(checkpoint)!r}), executor='latest', ranges=ARM_PRESETS['nominal'],"
        f" episodes=3), Path({str(tmp_path / 'killed')!r}), workers=0)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], env=dict(os.environ))
    while process.poll() is None and not list(tmp_path.glob(f"killed/*/{GROUPS}/*.npz")):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "GROUP", 1)
        again, whole = (screen(small, tmp_path / name, workers=0) for name in ("killed", "whole"))
    names = ("screen.json", "traces.npz")
    assert [(again.path / n).read_bytes() for n in names] == [(whole.path / n).read_bytes() for n in names]
    assert not (again.path / GROUPS).exists()


# -- report seeds


def test_report_seeds_are_spent_on_one_policy_one_executor_and_one_number_of_rollouts(tmp_path: Path) -> None:
    report = spec(purpose=Purpose.REPORT)
    assert claim(tmp_path, report, "a" * 64, "fixed n") == claim(tmp_path, report, "a" * 64, "fixed n")
    for changed, policy in (
        (report, "b" * 64),
        (dataclasses.replace(report, executor="ensemble(0.1)"), "a" * 64),
        (dataclasses.replace(report, episodes=400), "a" * 64),
    ):
        with pytest.raises(UsageError, match="another --seed"):
            claim(tmp_path, changed, policy, "fixed n")
    assert claim(tmp_path, dataclasses.replace(report, seed=1), "b" * 64, "fixed n") is not None
    assert claim(tmp_path, dataclasses.replace(report, engine="drake"), "a" * 64, "fixed n") is not None
    assert claim(tmp_path, spec(), "b" * 64, "fixed n") is None


def test_a_record_of_spent_seeds_that_cannot_be_read_spends_them(tmp_path: Path) -> None:
    path = claim(tmp_path, spec(purpose=Purpose.REPORT), "a" * 64, "fixed n")
    assert path is not None
    write_atomic(path, "[]")
    with pytest.raises(DataError, match="another --seed"):
        claim(tmp_path, spec(purpose=Purpose.REPORT), "a" * 64, "fixed n")


# -- the verb


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*words: str | Path) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        code = main([*map(str, words), "--json", "--quiet"])
        return code, json.loads(capsys.readouterr().out)

    return call


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_checkpoint(tmp_path_factory.mktemp("tiny") / "other", steps=6)


def test_an_untrained_policy_is_broken_after_a_few_rollouts(
    run: Any, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "GROUP", 4)
    code, document = run(
        "screen",
        checkpoint,
        "--env",
        "arm-pick",
        "--sequential",
        "-n",
        "24",
        "--workers",
        "0",
        "--executor",
        "latest",
        "--out",
        tmp_path,
    )
    (shown,) = document["screens"]
    assert (code, shown["verdict"], shown["stopped_early"], shown["cap"]) == (1, "broken", True, 24)
    assert shown["rollouts"] == shown["n"] < 12
    assert "anytime" in shown
    assert "clopper_pearson" not in shown


def test_traces_that_are_gone_are_made_again_as_the_message_says(
    run: Any, checkpoint: Path, tmp_path: Path
) -> None:
    words = [
        "screen",
        checkpoint,
        "--env",
        "arm-pick",
        "-n",
        "2",
        "--workers",
        "0",
        "--executor",
        "latest",
        "--out",
        tmp_path,
        "--purpose",
        "report",
    ]
    _, first = run(*words)
    traces = Path(first["screens"][0]["path"]) / "traces.npz"
    whole = traces.read_bytes()
    traces.write_bytes(whole[:100])
    code, told = run(*words, "--motion", "2")
    assert code == 3
    assert "delete it and run again" in told["error"]
    traces.unlink()
    _, again = run(*words, "--motion", "2")
    assert again["screens"][0]["successes"] == first["screens"][0]["successes"]
    assert traces.read_bytes() == whole


@pytest.mark.parametrize(
    ("field", "value", "code", "message"),
    [("envs", ["arm-place"], 2, "--env arm-place"), ("cameras", ["front", "top"], 3, "['top']")],
)
def test_a_second_policy_that_cannot_act_here_is_refused_before_the_first_has_run(
    run: Any, checkpoint: Path, tmp_path: Path, field: str, value: list[str], code: int, message: str
) -> None:
    wrong = Path(shutil.copytree(checkpoint, tmp_path / "wrong"))
    card = read_json(wrong / "card.json")
    card["training" if field == "envs" else "architecture"][field] = value
    write_atomic(wrong / "card.json", json.dumps(card))
    for words in (["screen", checkpoint, wrong], ["select", checkpoint, wrong, "--report-n", "2"]):
        found, document = run(
            *words,
            "--env",
            "arm-pick",
            "-n",
            "2",
            "--workers",
            "0",
            "--executor",
            "latest",
            "--out",
            tmp_path / "out",
        )
        assert found == code
        assert message in document["error"]
        assert not (tmp_path / "out").exists()


def test_two_policies_are_compared_on_the_same_seeds(
    run: Any, checkpoint: Path, other: Path, tmp_path: Path
) -> None:
    code, document = run(
        "screen",
        checkpoint,
        other,
        "--env",
        "arm-pick",
        "-n",
        "2",
        "--workers",
        "0",
        "--executor",
        "latest",
        "--motion",
        "2",
        "--out",
        tmp_path,
    )
    assert code == 1
    assert [m["verdict"] for s in document["screens"] for m in s["motion"]] == ["cannot tell", "cannot tell"]
    assert [s["checkpoint"] for s in document["screens"]] == [str(checkpoint), str(other)]
    (difference,) = document["differences"]
    assert (difference["new"], difference["old"], difference["test"]) == (
        str(other),
        str(checkpoint),
        "exact McNemar",
    )
    assert sum(difference["pairs"].values()) == 2


def test_a_policy_against_itself_an_early_stop_in_a_comparison_and_a_second_report_are_refused(
    run: Any, checkpoint: Path, other: Path, tmp_path: Path
) -> None:
    where = ["--env", "arm-pick", "--workers", "0", "--out", tmp_path, "--executor", "latest", "-n", "1"]
    for words, message in (
        ([checkpoint, checkpoint], "twice"),
        ([checkpoint, other, "--sequential"], "simgap select"),
        ([checkpoint, other, "--purpose", "report"], "report seeds"),
        ([checkpoint, other, "--executor", "whole_chunk"], "several executors"),
    ):
        code, document = run("screen", *words, *where)
        assert code == 2
        assert message in document["error"]
    assert run("screen", checkpoint, "--purpose", "report", *where)[0] == 1
    code, document = run("screen", other, "--purpose", "report", *where)
    assert code == 2
    assert "spent on policy" in document["error"]
