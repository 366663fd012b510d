"""Looks before this one: seeds that chose a policy do not judge it, and reports on several fresh seeds count together."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from arm_fixtures import tiny_checkpoint
from simgap.cli import main
from simgap.envs.arm.factors import ARM_PRESETS
from simgap.policies.checkpoint import read_card
from simgap.provenance import Stamp, write_sealed
from simgap.rollouts import looks
from simgap.rollouts.engine import RolloutSpec
from simgap.rollouts.looks import chosen_here, pooled_reports, unread_looks
from simgap.rollouts.screen import BROKEN_BELOW, WORTHY_ABOVE, screen
from simgap.seeds import Purpose
from simgap.statistics import ScreenVerdict, Tally


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> RolloutSpec:
    checkpoint = tiny_checkpoint(tmp_path_factory.mktemp("tiny") / "policy")
    return RolloutSpec(
        env="arm-pick",
        checkpoint=checkpoint,
        executor="whole_chunk",
        ranges=ARM_PRESETS["nominal"],
        episodes=2,
    )


def test_a_race_that_chose_a_policy_on_these_seeds_is_found_and_no_other(
    spec: RolloutSpec, tmp_path: Path
) -> None:
    folder = tmp_path / "select-0123"
    folder.mkdir()
    race = {
        "env": "arm-pick",
        "winner": "b",
        "entrants": [{"name": "a", "policy": "1"}, {"name": "b", "policy": "2"}],
        "select": {"seed": 0},
        "ranges": spec.ranges.to_json(),
    }
    write_sealed(folder / "selection.json", race)
    assert chosen_here(tmp_path, spec, "2") == folder
    assert chosen_here(tmp_path, spec, "1") is None
    assert chosen_here(tmp_path, dataclasses.replace(spec, seed=1), "2") is None
    assert chosen_here(tmp_path, dataclasses.replace(spec, ranges=ARM_PRESETS["wide"]), "2") is None
    assert chosen_here(tmp_path, dataclasses.replace(spec, purpose=Purpose.REPORT), "2") is None
    assert unread_looks(tmp_path, spec, "2") == ()
    for edited in (json.dumps({**race, "winner": "a"}), "[]"):
        (folder / "selection.json").write_text(edited)
        assert chosen_here(tmp_path, spec, "2") is None
        assert "may be a race that chose this policy" in unread_looks(tmp_path, spec, "2")[0]


@pytest.mark.slow
def test_reports_on_other_fresh_seeds_are_counted_together_and_the_screen_says_so(
    spec: RolloutSpec, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = (dataclasses.replace(spec, purpose=Purpose.REPORT, seed=seed) for seed in (0, 1))
    alone = screen(first, tmp_path, workers=0)
    assert pooled_reports(tmp_path, alone) is None
    both = screen(second, tmp_path, workers=0)
    pooled = pooled_reports(tmp_path, both)
    assert pooled is not None
    assert (pooled.seeds, pooled.rate.n, pooled.rate.anytime) == ((0, 1), 4, True)
    assert pooled.rate.successes == alone.counts.successes + both.counts.successes
    words = [
        "screen",
        str(spec.checkpoint),
        "--env",
        "arm-pick",
        "-n",
        "2",
        "--executor",
        "whole_chunk",
        "--purpose",
        "report",
        "--seed",
        "1",
    ]
    words += ["--workers", "0", "--out", str(tmp_path)]
    assert main([*words, "--quiet"]) == 1
    said = capsys.readouterr().out
    assert "look 2 at fresh seeds (--seed 0, 1)" in said
    assert "finished before and read back" in said
    assert "broken: all of the interval below 50 %" in said
    assert read_card(spec.checkpoint).hash == both.stamp.fields["policy"]
    summary = alone.path / "screen.json"
    kept = summary.read_text()
    for damage in (
        lambda: summary.write_text(kept.replace('"failure"', '"success"')),
        lambda: summary.write_text("{"),
        summary.unlink,
    ):
        damage()
        assert main([*words, "--json", "--quiet"]) == 1
        (shown,) = json.loads(capsys.readouterr().out)["screens"]
        assert shown["pooled"] is None
        assert any("--seed 0" in text or str(alone.path) in text for text in shown["unread_looks"])
    main([*words, "--quiet"])
    assert "note: --seed 0 was spent on a report of this policy" in capsys.readouterr().out


@pytest.mark.slow
def test_adding_reports_until_one_pleases_keeps_the_error_of_a_single_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A policy exactly at a bar, ten reports of 50: how often is any pooled verdict wrong?"""
    rng, runs, most = np.random.default_rng(7), 300, 10
    for rate, wrong in (
        (BROKEN_BELOW, ScreenVerdict.BROKEN),
        (WORTHY_ABOVE, ScreenVerdict.WORTH_HARDWARE_TIME),
    ):
        reports = rng.binomial(50, rate, size=(runs, most))
        pooled = [
            [_pooled_after(row[: i + 1], monkeypatch) for i in range(1, most)] for row in reports.tolist()
        ]
        assert np.mean([wrong in row for row in pooled]) <= 0.025 + 2 * 0.009


def _pooled_after(successes: list[int], monkeypatch: pytest.MonkeyPatch) -> ScreenVerdict:
    stamp = Stamp(kind="rollouts", fields={"purpose": "report", "seed": 0})
    reports = [
        SimpleNamespace(stamp=stamp, counts=Tally(successes=k, failures={"missed": 50 - k}))
        for k in successes
    ]
    monkeypatch.setattr(looks, "_reports_like", lambda root, report: enumerate(reports[1:], start=1))
    found = looks.pooled_reports(Path(), reports[0])  # type: ignore[arg-type]
    assert found is not None
    return found.verdict
