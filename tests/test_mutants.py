"""The known-bads: each changes one thing, by degrees, leaves what it was given alone, and is named by its check."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simgap import causes
from simgap.checks.data.dataset import check_data
from simgap.checks.data.report import Severity
from simgap.checks.registry import all_checks
from simgap.cli import main
from simgap.cli.mutants import markdown
from simgap.envs import make_env
from simgap.episodes.write.store import EpisodeWriter
from simgap.mutants import gaps, recordings
from simgap.mutants.base import Seam
from simgap.mutants.registry import all_mutants, find_mutant
from simgap.policies.execution import parse_executor
from simgap.types import Episode, Outcome
from test_data_check_planted import clean
from test_episodes_store import make_spec

DOCS = Path(__file__).parent.parent / "docs" / "mutants.md"
SPEC = make_spec(("front",))


@pytest.fixture(scope="module")
def healthy() -> list[Episode]:
    """Eight episodes of a made-up arm with a camera in which something moves as the arm does."""
    made = clean(lag=2, episodes=8, length=120)
    out = []
    for k, (action, state, time_s) in enumerate(zip(made.actions, made.states, made.times, strict=True)):
        noise = np.random.default_rng(k).integers(0, 12, (len(action), 24, 24, 3))
        frames = (110 + noise).astype(np.uint8)
        columns = np.clip((state[:, 0] + 60) / 120 * 20, 0, 20).astype(int)
        for row, column in enumerate(columns):
            frames[row, 6:18, column : column + 4] = (220, 40, 40)
        out.append(
            Episode(
                images={"front": frames},
                state=state.astype(np.float32),
                action=action.astype(np.float32),
                time_s=time_s,
                outcome=Outcome.success(),
                task="pick",
                seed=k,
            )
        )
    return out


def codes(episodes: list[Episode], root: Path) -> set[str]:
    """Return what the data check says above a note."""
    size = episodes[0].images["front"].shape[1:3]
    spec = make_spec(("front",), image_size=size)
    writer = EpisodeWriter(root, spec)
    for k, episode in enumerate(episodes):
        writer.write(k, episode)
    writer.finish()
    return {f.code for f in check_data(root).findings if f.severity is not Severity.NOTE}


def same(a: Episode, b: Episode) -> bool:
    return all(np.array_equal(getattr(a, n), getattr(b, n)) for n in ("action", "state", "time_s")) and all(
        np.array_equal(a.images[c], b.images[c]) for c in a.images
    )


FAST = ("sign_of_action", "zero_of_state", "joints_swapped", "clock_gap")


@pytest.mark.parametrize(
    "mutant",
    [pytest.param(m, marks=[] if m.id in FAST else pytest.mark.slow, id=m.id) for m in recordings.MUTANTS],
)
def test_a_recording_with_a_planted_fault_is_named_by_its_code(
    mutant: recordings.RecordingMutant, healthy: list[Episode], tmp_path: Path
) -> None:
    found = codes(mutant.apply(healthy, 1.0, np.random.default_rng(3)), tmp_path / "bad")
    assert found & set(mutant.codes), f"said {sorted(found)}"


def test_the_healthy_recording_has_no_finding_above_a_note(healthy: list[Episode], tmp_path: Path) -> None:
    assert codes(healthy, tmp_path / "clean") == set()


@pytest.mark.parametrize("mutant", recordings.MUTANTS, ids=lambda m: m.id)
def test_strength_nothing_changes_nothing_and_the_recording_given_is_left_alone(
    mutant: recordings.RecordingMutant, healthy: list[Episode]
) -> None:
    before = [e.action.copy() for e in healthy]
    assert all(map(same, mutant.apply(healthy, 0.0, np.random.default_rng(0)), healthy))
    changed = mutant.apply(healthy, 1.0, np.random.default_rng(0))
    assert all(map(np.array_equal, before, (e.action for e in healthy)))
    assert len(changed) == len(healthy)
    assert not all(len(a) == len(b) and same(a, b) for a, b in zip(changed, healthy, strict=True))
    again = mutant.apply(healthy, 1.0, np.random.default_rng(0))
    assert all(map(same, changed, again))
    with pytest.raises(ValueError, match="expected 0"):
        mutant.apply(healthy, 1.5, np.random.default_rng(0))


def test_every_mutant_names_a_cause_of_the_table_and_a_check_that_can_name_it() -> None:
    checks = {check.id: check for check in all_checks()}
    for mutant in all_mutants():
        assert causes.TABLE[mutant.expected.id] is mutant.expected
        assert mutant.expected in checks[mutant.found_by].can_name
        assert mutant.family is checks[mutant.found_by].family


def test_every_seam_and_every_kind_of_gap_has_a_mutant() -> None:
    assert {m.seam for m in all_mutants()} == set(Seam)
    assert {m.expected.id for m in gaps.MUTANTS} == set(gaps.GAPS) - {"none"}
    assert len(all_mutants()) >= 30


@pytest.mark.parametrize("mutant", gaps.MUTANTS, ids=lambda m: m.id)
def test_a_gap_grows_from_nothing_to_the_one_that_a_seed_draws(mutant: gaps.GapMutant) -> None:
    env = make_env("arm-pick", render=False)
    nothing, half, whole = (mutant.apply(env, s, np.random.default_rng(5)) for s in (0.0, 0.5, 1.0))
    assert whole.to_json() == mutant.kind.draw(np.random.default_rng(5), env).to_json()
    assert nothing.multiplier == 1.0
    assert {n: env.factor_space.factors[n].nominal for n in nothing.factors} == dict(nothing.factors)
    assert half.kind is whole.kind is mutant.expected
    if whole.multiplier != 1.0:
        assert half.multiplier == pytest.approx((1.0 + whole.multiplier) / 2)


def test_an_executor_mutant_is_the_bug_or_the_executor_itself() -> None:
    mutant: Any = find_mutant("first_entry_only", all_mutants())
    action_spec = make_env("arm-pick", render=False).action_spec
    target = (parse_executor("receding(3)"), action_spec, 5)
    chunk = np.arange(30, dtype=np.float32).reshape(5, 6)
    sent = []
    for strength in (0.0, 1.0):
        executor = mutant.apply(target, strength, np.random.default_rng(0))
        executor.reset(0)
        executor.submit(chunk, 0)
        sent.append([executor.act(step).action[0] for step in (0, 1)])
    assert sent == [[0.0, 6.0], [0.0, 0.0]]


def test_the_table_in_the_documentation_is_the_one_that_the_command_prints() -> None:
    assert markdown(all_mutants()) in DOCS.read_text()


OWN = """
from dataclasses import dataclass

from simgap import causes
from simgap.mutants.base import Seam, Strength


@dataclass(frozen=True, kw_only=True)
class Hot:
    id: str = "motor_hot"
    what: str = "a motor weakens as it warms up"
    family: object = causes.PLANT_GAIN.family
    seam: Seam = Seam.ROBOT
    strength: Strength = Strength(full=40.0, unit="K")
    breaks: str = "servos stay as stiff as they are"
    expected: causes.Cause = causes.PLANT_GAIN
    found_by: str = "delay_and_stiffness"

    def apply(self, target, strength, rng):
        return target
"""


def test_a_mutant_of_ones_own_is_seen_in_the_list_its_json_and_the_table_of_the_docs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own_mutant.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    named = ["--mutant", "own_mutant:Hot"]
    assert main(["mutants", "list", *named]) == 0
    assert "motor_hot" in capsys.readouterr().out
    assert main(["mutants", "show", "motor_hot", *named, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["full"] == 40.0
    assert main(["mutants", "list", *named, "--markdown"]) == 0
    assert "| robot | `motor_hot` |" in capsys.readouterr().out
    assert main(["mutants", "show", "motor_hot"]) == 2
    assert "unknown mutant 'motor_hot'" in capsys.readouterr().err
