"""Two turns end to end on a tiny scale: the order in the ledger, the seal, taking a run up again, and the page."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from canary import MAKER, Canary
from simgap import causes
from simgap.causes import Cause
from simgap.cli import main
from simgap.diagnosis import Diagnosis, decide, diagnose
from simgap.envs import make_env
from simgap.envs.factors import FactorRanges
from simgap.episodes.fingerprint import content_fingerprint
from simgap.episodes.reader import open_dataset
from simgap.errors import DataError, UsageError
from simgap.findings import CheckResult, Family, Verdict
from simgap.ledger import Ledger, Row, RowKind
from simgap.loop import TurnResult, TurnSpec, run_turns
from simgap.loop.crank import set_aside
from simgap.loop.recorded import require_recorded
from simgap.loop.reporting import report_model
from simgap.loop.results import Asked, compare
from simgap.loop.spec import Progress, SilentReporter
from simgap.loop.store import evidence_of, load_run
from simgap.loop.turn import exit_code
from simgap.loop.words import verdict_sentence
from simgap.mutants.gaps import Gap, draw_gap, seal_of
from simgap.policies.checkpoint import read_card
from simgap.provenance import canonical_json, content_hash, file_hash
from simgap.report import write_report
from simgap.report.render import render_report
from simgap.robots.base import AppliedAction, InitialCondition, RobotObservation
from simgap.robots.refs import SurrogateRef
from simgap.robots.surrogate_process import SurrogateWorld
from simgap.rollouts.screen import screen
from simgap.rollouts.traces import read_records, read_rows, write_records
from simgap.statistics import ScreenVerdict, paired_difference
from simgap.targeting import DataPlan
from simgap.trials.batch import read_results
from simgap.types import EvidenceKind, Outcome

SPEC = TurnSpec(
    seed=3,
    gap="action_sign",
    image_size=48,
    episodes=4,
    train_steps=2,
    screen_episodes=4,
    in_use_trials=2,
    condition_trials=1,
    replays=3,
    target_episodes=2,
    target_steps=2,
)
"""A policy trained for two steps fails every rollout; 0 of 4 is undecided, so it is tried all the same."""


class LocalSurrogate:
    """The surrogate's world without its process, which takes seconds to start."""

    evidence, is_live, judge = EvidenceKind.SURROGATE, False, "simulator"

    def __init__(self, spec: SurrogateRef) -> None:
        self.image_size = spec.image_size
        self._world = SurrogateWorld(spec.env, spec.image_size, spec.seed, spec.gap)
        env = self._world.env
        self.action_spec, self.state_spec, self.cameras = env.action_spec, env.state_spec, env.cameras
        self.seal = seal_of(self._world.gap, spec.seed)
        MADE.append(self)

    def reset(self, condition: InitialCondition) -> InitialCondition:
        return InitialCondition(
            seed=condition.seed, placements=self._world.reset(condition.draws, dict(condition.placements))
        )

    def observe(self) -> RobotObservation:
        header, arrays = self._world.observe()
        images = {c: arrays[c] for c in self.cameras}
        return RobotObservation(
            images=images, state=arrays["state"], time_s=header["time_s"], frame_age_s=header["frame_age_s"]
        )

    def act(self, action: NDArray[np.float32]) -> AppliedAction:
        answer = self._world.act(action)
        return AppliedAction(
            action=np.asarray(answer["applied"], np.float32),
            clipped=answer["clipped"],
            time_s=answer["time_s"],
        )

    def verdict(self) -> Outcome | None:
        found: Outcome | None = self._world.outcome
        return found

    def open_seal(self, diagnosis_hash: str) -> Gap:
        OPENED.append(diagnosis_hash)
        return self._world.gap

    def stamp_fields(self) -> dict[str, Any]:
        return {**self._world.env.stamp_fields(), "robot": "surrogate", "seal": self.seal}

    def stop(self) -> None:
        pass

    def close(self) -> None:
        self._world.env.close()


MADE: list[LocalSurrogate] = []
OPENED: list[str] = []
"""Hashes that seals were opened with, in this process."""


class StopAt(SilentReporter):
    """Is killed when a stage begins."""

    def __init__(self, label: str) -> None:
        self.label = label

    def stage(self, label: str, unit: str) -> AbstractContextManager[Progress]:
        if label == self.label:
            raise KeyboardInterrupt(label)
        return super().stage(label, unit)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SurrogateRef, "open", lambda spec: LocalSurrogate(spec))
        patch.setattr("simgap.checks.replay.open_loop.BOOTSTRAPS", 8)
        yield tmp_path_factory.mktemp("cache")
    for made in MADE:  # workers leave theirs to the end of their process
        made.close()


@pytest.fixture(scope="module")
def result(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> TurnResult:
    return run_turns(SPEC, tmp_path_factory.mktemp("run"), cache, SilentReporter(), workers=0)


def rows_of(folder: Path) -> tuple[Row, ...]:
    with Ledger(folder / "ledger.db") as ledger:
        assert ledger.verify() == len(ledger.rows())
        return ledger.rows()


def same(one: Diagnosis | None, other: Diagnosis | None) -> bool:
    """Return whether two diagnoses say the same on disk; tuples come back as lists."""
    assert one is not None
    assert other is not None
    return canonical_json(one.to_json()) == canonical_json(other.to_json())


def files_of(*folders: Path) -> dict[str, str]:
    """Return every file but the ledger's own with its content."""
    found = {}
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and "ledger.db" not in path.name and path.name != "run.json":
                found[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def test_the_sign_is_diagnosed_from_replays_before_the_seal_is_opened_and_they_agree(
    result: TurnResult,
) -> None:
    assert result.diagnosis is not None
    assert result.gap is not None
    assert (result.diagnosis.cause, result.gap.kind) == (causes.ACTION_SIGN, causes.ACTION_SIGN)
    assert list(result.diagnosis.parameters["broken"]) == [f"{result.gap.joint}.pos"]
    assert result.diagnosis_agrees is True
    assert result.gap == draw_gap(SPEC.seed, causes.ACTION_SIGN, make_env(SPEC.env, render=False))
    assert result.seal == seal_of(result.gap, SPEC.seed)


def test_the_ledger_holds_commitment_finding_and_opening_in_that_order_and_its_chain_is_whole(
    result: TurnResult,
) -> None:
    rows = rows_of(result.folder)
    at = {row.key: row.id for row in rows}
    order = [
        "seal",
        "turn/1/screen/training conditions",
        "turn/1/trials/in use",
        "turn/1/trials/training conditions",
        "turn/1/trials/replays",
        "turn/1/diagnosis",
        "turn/1/plan",
        "turn/2/trials/in use",
    ]
    order += ["turn/2/trials/in use", "turn/2/comparison with turn 1", "opened", "turn/1/claim/sim"]
    assert [at[k] for k in order] == sorted(at[k] for k in order)
    by_key = {row.key: row for row in rows}
    assert by_key["opened"].payload["commitment_row"] == by_key["seal"].id
    assert by_key["opened"].payload["finding_row"] == by_key["turn/1/diagnosis"].id
    assert OPENED[0] == by_key["turn/1/diagnosis"].hash, (
        "the seal opens against the finding that is already in the ledger"
    )
    assert rows[0].kind is RowKind.COMMITMENT
    assert {row.evidence for row in rows if row.kind is RowKind.EVIDENCE} == {
        EvidenceKind.SIM,
        EvidenceKind.SURROGATE,
    }


def test_a_convention_plan_makes_no_data_and_tries_the_same_policy_on_the_same_conditions(
    result: TurnResult,
) -> None:
    assert result.turns[0].plan is not None
    assert result.paired is not None
    assert result.turns[0].plan.kind == "convention"
    assert (result.turns[1].checkpoint, result.turns[1].datasets) == (
        result.turns[0].checkpoint,
        result.turns[0].datasets,
    )
    assert [r.seed for r in result.turns[1].results] == [r.seed for r in result.turns[0].results]
    assert result.paired.counts.n + result.paired.counts.dropped == SPEC.in_use_trials
    assert result.turns[1].in_use is not None
    stamp = open_dataset(result.turns[1].in_use).spec.stamp.fields
    assert stamp["plan"]["commands"] == result.turns[0].plan.multipliers


def test_the_seeds_of_training_screen_trials_and_conditions_are_disjoint(result: TurnResult) -> None:
    assert result.turns[0].in_use is not None
    assert result.turns[0].conditions is not None
    training = open_dataset(result.turns[0].datasets[0])
    sets = [
        {training.episode(i, images=False).seed for i in range(SPEC.episodes)},
        set(result.turns[0].screens[0][1].outcomes),
        {r.seed for r in read_results(open_dataset(result.turns[0].in_use))},
        {r.seed for r in read_results(open_dataset(result.turns[0].conditions))},
    ]
    assert [len(s) for s in sets] == [
        SPEC.episodes,
        SPEC.screen_episodes,
        SPEC.in_use_trials,
        SPEC.condition_trials,
    ]
    assert len(set.union(*sets)) == sum(map(len, sets))
    assert result.turns[0].replays is not None
    assert {r.seed for r in read_results(open_dataset(result.turns[0].replays))} < sets[0], (
        "a replay starts where its episode started"
    )


def test_a_run_called_again_gives_the_same_results_and_writes_no_row_and_no_file(
    result: TurnResult, cache: Path
) -> None:
    rows, files = rows_of(result.folder), files_of(result.folder, cache)
    again = run_turns(SPEC, result.folder, cache, SilentReporter(), workers=0)
    assert rows_of(result.folder) == rows
    assert files_of(result.folder, cache) == files
    assert same(again.diagnosis, result.diagnosis)
    assert (again.turns[0].plan, again.paired, again.gap, again.seal) == (
        result.turns[0].plan,
        result.paired,
        result.gap,
        result.seal,
    )
    assert (again.turns[0].results, again.turns[1].results) == (
        result.turns[0].results,
        result.turns[1].results,
    )


@pytest.mark.parametrize("label", ["diagnose", "trials in use, again"])
def test_a_run_that_is_killed_goes_on_to_the_same_rows_and_never_shows_the_seal_before_its_finding(
    result: TurnResult, cache: Path, tmp_path: Path, label: str
) -> None:
    OPENED.clear()
    with pytest.raises(KeyboardInterrupt):
        run_turns(SPEC, tmp_path, cache, StopAt(label), workers=0)
    assert OPENED == []
    assert not [r for r in rows_of(tmp_path) if r.kind is RowKind.SEAL_OPENED]
    again = run_turns(SPEC, tmp_path, cache, SilentReporter(), workers=0)
    assert [(r.kind, r.key, r.payload) for r in rows_of(tmp_path)] == [
        (r.kind, r.key, r.payload) for r in rows_of(result.folder)
    ]
    assert same(again.diagnosis, result.diagnosis)


def test_a_folder_of_another_spec_is_refused_before_anything_is_touched(
    result: TurnResult, cache: Path
) -> None:
    before = files_of(result.folder)
    with pytest.raises(DataError, match=r"another spec.*seed.*give another --out"):
        run_turns(dataclasses.replace(SPEC, seed=4), result.folder, cache, SilentReporter(), workers=0)
    assert files_of(result.folder) == before


def test_a_run_is_read_back_as_it_was_saved(result: TurnResult) -> None:
    read = load_run(result.folder)
    for field in dataclasses.fields(TurnResult):
        if field.name not in ("turns", "ranges"):
            assert getattr(read, field.name) == getattr(result, field.name), field.name
    assert same(read.diagnosis, result.diagnosis)
    assert read.ranges.to_json() == result.ranges.to_json()
    assert (read.turns[0].results, read.turns[1].results) == (
        result.turns[0].results,
        result.turns[1].results,
    )
    assert compare(read.turns[0], read.turns[1]) == result.paired


def test_a_saved_run_can_be_diagnosed_again_to_the_same_words(result: TurnResult) -> None:
    assert same(diagnose(evidence_of(load_run(result.folder))), result.diagnosis)


def test_a_folder_without_a_run_and_an_unknown_schema_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no finished run"):
        load_run(tmp_path)
    (tmp_path / "run.json").write_text('{"schema": 99}')
    with pytest.raises(DataError, match=r"schema 99, expected 2.*run the demo again"):
        load_run(tmp_path)
    (tmp_path / "run.json").write_text('{"schema": 2}')
    with pytest.raises(DataError, match=r"ledger.db is missing"):
        load_run(tmp_path)
    assert not (tmp_path / "ledger.db").exists()


def test_the_report_renders_under_the_surrogate_banner(result: TurnResult, tmp_path: Path) -> None:
    model = report_model(load_run(result.folder), "simgap demo --seed 3")
    page = write_report(model, tmp_path / "report.html").read_text()
    assert "Surrogate evidence" in page
    assert "Nothing here is evidence about a real robot" in page
    assert model.seal is not None
    assert model.seal.agrees is True
    assert [entry.kind for entry in model.seal.order] == ["commitment", "finding", "seal_opened"]
    assert f"0 of {SPEC.screen_episodes} in sim" in model.verdict
    assert model.diagnosis is not None
    assert any("renderer=" in c for check in model.diagnosis.checks for c in check.shared_assumptions)


VERBS = ("report", "diagnose", "target")
"""They read a run in one way; each edit is tried on one of them."""
EDITS: dict[str, Callable[[dict[str, Any]], object]] = {
    "diagnosis is not the one": lambda run: run["turns"][0]["diagnosis"].update(cause="camera_shift"),
    "diagnosis is not": lambda run: run["turns"][0]["diagnosis"]["checks"][0].update(verdict="broken"),
    "diagnosis is": lambda run: run["turns"][0].update(diagnosis=None),
    "opened gap is not the one": lambda run: run["gap"].update(kind="none"),
    "opened gap is not": lambda run: run.update(gap=None),
    "data plan is not the one": lambda run: run["turns"][0]["plan"].update(sentence="all is well"),
    "data plan is not": lambda run: run["turns"][0].update(plan=None),
    "seal is not the one": lambda run: run.update(seal="0" * 64),
    "spec is not the one": lambda run: run["spec"].update(seed=4),
    "ranges is not the one": lambda run: run["ranges"].update(name="easy"),
    "it has 1 turn, its ledger counted 2": lambda run: run["turns"].pop(),
    "is not the log": lambda run: run["turns"][0].update(in_use=run["turns"][0]["conditions"]),
    "not the log that": lambda run: run["turns"][1].update(in_use=run["turns"][0]["in_use"]),
    "the log that the ledger": lambda run: run["turns"][0].update(replays=run["turns"][0]["in_use"]),
    "names no log of it": lambda run: run["turns"][0].update(conditions=None),
    "names no log": lambda run: run["turns"][0].update(replays=None),
    "other screens of turn 1": lambda run: run["turns"][0]["screens"][0].__setitem__(0, "everything at once"),
    "other screens of turn 2": lambda run: run["turns"][1].update(screens=[]),
    "names the executor 'latest'": lambda run: run["turns"][0].update(executor="latest"),
    "other training sets of turn 1": lambda run: run["turns"][0].update(datasets=[]),
    "run.json keeps another head": lambda run: run.update(ledger_head="3:" + "ab" * 32),
    "holds no ledger_head": lambda run: run.pop("ledger_head"),
    "no head of a ledger": lambda run: run.update(ledger_head=[3]),
    "cannot be read": lambda run: run["turns"][1].pop("checkpoint"),
    "cannot be": lambda run: run["turns"].__setitem__(1, 7),
    "can": lambda run: run.pop("turns"),
}
"""What is said -> an edit of run.json that would change the page."""


@pytest.mark.parametrize("said", EDITS)
def test_no_verb_reads_a_run_whose_run_json_says_other_things_than_its_ledger(
    result: TurnResult, tmp_path: Path, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = json.loads((result.folder / "run.json").read_text())
    EDITS[said](run)
    (tmp_path / "run.json").write_text(json.dumps(run))
    shutil.copy(result.folder / "ledger.db", tmp_path)
    (tmp_path / "turn").symlink_to(result.folder / "turn")
    assert main([VERBS[list(EDITS).index(said) % 3], str(tmp_path)]) == 3
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not (tmp_path / "report.html").exists()


FORGERIES: dict[str, tuple[str, Callable[[dict[str, Any]], object]]] = {
    "no spec": ("seal", lambda row: row.pop("spec")),
    "spec of another kind": ("seal", lambda row: row.update(spec=[1])),
    "spec with an env that is a number": ("seal", lambda row: row["spec"].update(env=3)),
    "spec with an image of -6": ("seal", lambda row: row["spec"].update(image_size=-6)),
    "spec with a field too many": ("seal", lambda row: row["spec"].update(more=1)),
    "ranges of text": ("seal", lambda row: row["ranges"].update(ranges="wide")),
    "seal of a number": ("seal", lambda row: row.update(seal_sha256=5)),
    "no sentence": ("turn/1/diagnosis", lambda row: row.pop("sentence")),
    "a sentence that is a list": ("turn/1/diagnosis", lambda row: row.update(sentence=["a"])),
    "an unknown cause": ("turn/1/diagnosis", lambda row: row.update(cause="magic")),
    "a cause that is a list": ("turn/1/diagnosis", lambda row: row.update(cause=[])),
    "no parameters": ("turn/1/diagnosis", lambda row: row.update(parameters={})),
    "parameters that are a list": ("turn/1/diagnosis", lambda row: row.update(parameters=[])),
    "parameters that are text": ("turn/1/diagnosis", lambda row: row["parameters"].update(broken="elbow")),
    "numbers that are text": (
        "turn/1/diagnosis",
        lambda row: row["parameters"].update(fitted={"light": "much"}),
    ),
    "factors that no env has": (
        "turn/1/diagnosis",
        lambda row: row["parameters"].update(fitted={"magic": 1.0}),
    ),
    "checks that are a number": ("turn/1/diagnosis", lambda row: row.update(checks=7)),
    "a check that is a number": ("turn/1/diagnosis", lambda row: row["checks"].append(7)),
    "a check of text values": (
        "turn/1/diagnosis",
        lambda row: row["checks"][0].update(value="much", threshold=[]),
    ),
    "a check with a field too many": ("turn/1/diagnosis", lambda row: row["checks"][0].update(more=1)),
    "a check without a verdict": ("turn/1/diagnosis", lambda row: row["checks"][0].pop("verdict")),
    "a plan of nothing": ("turn/1/plan", lambda row: row.clear()),
    "a plan of unknown factors": ("turn/1/plan", lambda row: row.update(changes={"magic": [0, 1]})),
    "a plan of half a range": ("turn/1/plan", lambda row: row.update(changes={"light_intensity": [0]})),
    "a screen without a label": ("turn/1/screen/training conditions", lambda row: row.clear()),
    "trials without a log": ("turn/1/trials/in use", lambda row: row.pop("log")),
    "trials of an odd log": ("turn/1/trials/in use", lambda row: row.update(log={"a": 1})),
}
"""What -> the row of the ledger, and what it says instead; all files of the folder agree."""


def forge(result: TurnResult, folder: Path, key: str, change: Callable[[dict[str, Any]], object]) -> None:
    """Write a run of which one row says something else, and all files agree."""
    (folder / "turn").symlink_to(result.folder / "turn")
    run = json.loads((result.folder / "run.json").read_text())
    with Ledger(folder / "ledger.db") as ledger:
        for row in rows_of(result.folder):
            payload = json.loads(canonical_json(row.payload))
            if row.key == key:
                change(payload)
                copy = key.removeprefix("turn/1/")
                run["turns"][0] |= {copy: payload} if copy in ("diagnosis", "plan") else {}
            if row.kind is not RowKind.SEAL_OPENED:  # it would no longer fit its commitment
                ledger.append(row.kind, payload, row.evidence, key=row.key)
        run |= {"ledger_head": ledger.head_text, "gap": None}
    (folder / "run.json").write_text(json.dumps(run))


def _restamped(folder: Path, **fields: Any) -> None:
    """Give a dataset of ours another stamp, and the fingerprint that fits it: as whoever can write the folder would."""
    file = folder / "meta" / "simgap.json"
    told = json.loads(file.read_text())
    told["spec"]["stamp"] |= fields
    told["fingerprint"] = content_fingerprint(folder, told["spec"])
    file.write_text(json.dumps(told))


def attacked(result: TurnResult, folder: Path, *, where: str) -> None:
    """Write a whole run, of which one kind of part names the canary as its env and every hash that speaks of it was computed again."""
    run = json.loads((result.folder / "run.json").read_text())
    prints: dict[str, str] = {}

    def copied(path: str) -> Path:
        there = folder / content_hash(path)[:8]
        return there if there.exists() else Path(shutil.copytree(result.folder / path, there))

    for turn in run["turns"]:
        for k, data in enumerate(turn["datasets"]):
            turn["datasets"][k] = str(copied(data))
        turn["checkpoint"] = str(copied(turn["checkpoint"]))
        turn["screens"] = [[c, str(copied(p))] for c, p in turn["screens"]]
        for name in ("in_use", "conditions", "replays"):
            turn[name] = turn[name] and str(copied(turn[name]))
    parts = {
        Path(p)
        for t in run["turns"]
        for p in (
            *t["datasets"],
            t["checkpoint"],
            t["in_use"],
            t["conditions"],
            t["replays"],
            *(s[1] for s in t["screens"]),
        )
        if p
    }
    for data in (p for p in parts if (p / "meta" / "simgap.json").is_file()):
        before = open_dataset(data).fingerprint
        is_log = open_dataset(data).spec.stamp.kind == "trials"
        if (where == "logs" and is_log) or (where == "datasets" and not is_log):
            _restamped(
                data, env=MAKER, generate={"env": MAKER, "ranges": run["ranges"]}, teacher=MAKER, robot=MAKER
            )
        prints[before] = open_dataset(data).fingerprint
    for checkpoint in (p for p in parts if (p / "card.json").is_file()):
        card = json.loads((checkpoint / "card.json").read_text())
        before = read_card(checkpoint).hash
        card["data"] = [prints.get(d, d) for d in card["data"]]
        card["training"] |= {"envs": [MAKER], "env": MAKER} if where == "cards" else {}
        (checkpoint / "card.json").write_text(json.dumps(card))
        prints[before] = read_card(checkpoint).hash
    for log in (p for p in parts if (p / "meta" / "simgap.json").is_file()):
        stamp = open_dataset(log).spec.stamp.fields
        known = {k: prints[str(v)] for k, v in stamp.items() if str(v) in prints and prints[str(v)] != v}
        if known:
            before = open_dataset(log).fingerprint
            _restamped(log, **known)
            prints |= {
                k: open_dataset(log).fingerprint
                for k in (before, *(o for o, n in prints.items() if n == before))
            }
    for folder_of_screen in (p for p in parts if (p / "screen.json").is_file()):
        about, _ = read_rows(folder_of_screen / "traces.npz")
        about |= {"policy": prints[about["policy"]]} | (
            {"env": MAKER, "engine": MAKER} if where == "screens" else {}
        )
        records = read_records(folder_of_screen / "traces.npz")
        write_records(folder_of_screen / "traces.npz", records, films=False, about=about)
        summary = {
            "stamp": about,
            "traces": file_hash(folder_of_screen / "traces.npz"),
            "rollouts": [r.to_json() for r in records],
        }
        (folder_of_screen / "screen.json").write_text(canonical_json(summary))
    _entered(result, folder, run, prints, where)


def _entered(
    result: TurnResult, folder: Path, run: dict[str, Any], prints: dict[str, str], where: str
) -> None:
    """Write the ledger that such a run would have, and its run.json."""

    def renamed(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: renamed(v) for k, v in value.items()}
        return (
            [renamed(v) for v in value]
            if isinstance(value, list)
            else prints.get(value, value)
            if isinstance(value, str)
            else value
        )

    with Ledger(folder / "ledger.db") as ledger:
        for row in rows_of(result.folder):
            payload = renamed(json.loads(canonical_json(row.payload)))
            if where == "ledger" and row.key == "seal":
                payload["spec"]["env"] = MAKER
                run["spec"] = payload["spec"]
            if where == "screens" and "stamp" in payload:
                payload["stamp"] |= {"env": MAKER, "engine": MAKER}
            what = (row.key or "").removeprefix("turn/1/")
            if where == "plan" and what in ("plan", "diagnosis"):
                payload = everywhere_in(payload, what)
                told = run["turns"][0]
                told[what] = {k: payload[k] for k in told[what]}
            if row.kind is not RowKind.SEAL_OPENED:
                ledger.append(row.kind, payload, row.evidence, key=row.key)
        run |= {"ledger_head": ledger.head_text, "gap": None}
    (folder / "run.json").write_text(json.dumps(run))


def everywhere_in(payload: dict[str, Any], key: str) -> dict[str, Any]:
    """Put the canary into every sentence of a plan or diagnosis; words that are looked up stay."""
    return payload | (
        {"sentence": MAKER, "remedy": MAKER, "next_command": MAKER}
        if key == "diagnosis"
        else {"sentence": MAKER}
    )


@pytest.mark.parametrize(
    "where",
    [
        "ledger",
        *(
            pytest.param(w, marks=pytest.mark.slow)
            for w in ("nowhere", "datasets", "logs", "cards", "screens", "plan")
        ),
    ],
)
def test_no_verb_runs_code_that_any_part_of_a_whole_run_names(
    result: TurnResult,
    tmp_path: Path,
    where: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Every hash fits, so that what stands behind the checks of the run is reached: without the canary the verbs do their work."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    canary = Canary(tmp_path / "canary")
    monkeypatch.chdir(canary.folder)
    monkeypatch.syspath_prepend(str(canary.folder))
    attacked(result, tmp_path / "run", where=where)
    for verb in VERBS:
        code = main([verb, str(tmp_path / "run"), *(["--workers", "0"] if verb == "target" else [])])
        said = capsys.readouterr().err
        assert not canary.sang
        assert "defect" not in said
        assert code in ((2,) if where == "ledger" else (0, 1, 3)), (verb, said)
        assert where == "ledger" or code in (0, 1), (verb, said)
    if where == "ledger":
        main(["report", str(tmp_path / "run"), "--allow-code"])
        assert canary.sang


@pytest.mark.parametrize("what", FORGERIES)
def test_a_run_folder_that_says_odd_things_everywhere_ends_in_one_line(
    result: TurnResult, tmp_path: Path, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    forge(result, tmp_path, *FORGERIES[what])
    assert main([VERBS[list(FORGERIES).index(what) % 3], str(tmp_path)]) == 3
    error = capsys.readouterr().err
    assert "defect" not in error
    assert error.count("\n") == 1
    assert main(["ledger", "show", str(tmp_path)]) == 0


def test_what_run_json_adds_beside_is_in_no_page(result: TurnResult, tmp_path: Path) -> None:
    run = json.loads((result.folder / "run.json").read_text())
    run |= {
        "duration_s": 1.0,
        "rates": [{"successes": 100, "n": 100}],
        "verdict": "all is well",
        "folder": "/elsewhere",
    }
    run["turns"][0] |= {"number": 7, "results": [1, 1], "successes": 2}
    (tmp_path / "run.json").write_text(json.dumps(run))
    shutil.copy(result.folder / "ledger.db", tmp_path)
    (tmp_path / "turn").symlink_to(result.folder / "turn")
    pages = [
        render_report(dataclasses.replace(report_model(load_run(f), "simgap report"), date=""))
        for f in (result.folder, tmp_path)
    ]
    assert pages[0].replace(str(result.folder), str(tmp_path)) == pages[1]


def test_a_finished_run_goes_on_only_from_the_ledger_that_it_ended_with(
    result: TurnResult, cache: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(result.folder, tmp_path / "run"))
    with Ledger(folder / "ledger.db") as ledger:
        ledger.append("note", {"label": "all is well"})
    before = rows_of(folder)
    with pytest.raises(DataError, match=r"run.json keeps another head: 1 row stands after"):
        run_turns(SPEC, folder, cache, SilentReporter(), workers=0)
    assert rows_of(folder) == before
    (folder / "ledger.db").unlink()
    with pytest.raises(DataError, match=r"ledger.db is missing"):
        run_turns(SPEC, folder, cache, SilentReporter(), workers=0)
    assert not (folder / "ledger.db").exists()


def test_the_head_of_a_run_is_in_run_json_and_on_its_page_and_verifies(
    result: TurnResult, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(result.folder, tmp_path / "run"))
    write_report(report_model(load_run(folder), "simgap report"), folder / "report.html")
    assert result.ledger_head in (folder / "report.html").read_text()
    assert main(["ledger", "verify", str(folder), "--head", result.ledger_head]) == 0
    with Ledger(folder / "ledger.db") as ledger:
        ledger.append("note", {"label": "all is well"})
    (folder / "run.json").unlink()
    assert main(["ledger", "verify", str(folder)]) == 1, "the page still keeps it"


def test_no_page_is_written_of_trials_and_screens_that_the_ledger_did_not_count(result: TurnResult) -> None:
    rows = rows_of(result.folder)
    require_recorded(result, rows)
    for missing, said in (
        ("turn/1/trials/training conditions", "is not the log"),
        ("turn/1/screen/training conditions", "is not the screen"),
    ):
        with pytest.raises(DataError, match=said):
            require_recorded(result, [r for r in rows if r.key != missing])


def test_an_undefined_comparison_is_not_reported_as_zero_points(result: TurnResult) -> None:
    nothing = dataclasses.replace(result, paired=paired_difference(0, 0, 0, 0, dropped=2))
    sentence = verdict_sentence(nothing)
    assert "points" not in sentence
    assert "no pair of trials counts" in sentence
    assert nothing.is_better is None


def test_a_second_turn_is_better_only_where_the_exact_test_shows_it(result: TurnResult) -> None:
    said = [
        verdict_sentence(dataclasses.replace(result, paired=paired_difference(10, *cells, 4)))
        for cells in ((1, 0), (12, 0), (0, 12))
    ]
    assert ["not shown to be better" in s for s in said] == [True, False, False]
    assert ["Turn 2 is better" in s for s in said] == [False, True, False]
    assert "Turn 2 is worse" in said[2]


def with_cause(result: TurnResult, cause: Cause) -> TurnResult:
    """Return a run whose first diagnosis names another cause."""
    assert result.diagnosis is not None
    told = dataclasses.replace(result.diagnosis, cause=cause)
    first = dataclasses.replace(result.turns[0], diagnosis=told)
    return dataclasses.replace(result, turns=(first, *result.turns[1:]))


def test_the_exit_code_is_zero_only_when_the_diagnosis_agrees_and_the_second_turn_helped(
    result: TurnResult,
) -> None:
    assert result.is_better is False
    assert exit_code(result) == 1
    helped = dataclasses.replace(result, paired=paired_difference(3, 6, 0, 0))
    assert exit_code(helped) == 0
    assert result.diagnosis is not None
    missed = with_cause(helped, causes.PLANT_GAIN)
    assert exit_code(missed) == 1
    assert exit_code(dataclasses.replace(helped, paired=None)) == 1, (
        "a second turn that failed its own screen"
    )
    nothing = with_cause(result, causes.NONE)
    assert (
        exit_code(
            dataclasses.replace(nothing, gap=Gap(kind=causes.NONE), turns=nothing.turns[:1], paired=None)
        )
        == 0
    )


def test_a_policy_that_the_screen_finds_broken_is_not_tried_and_its_seal_stays_closed(
    cache: Path, result: TurnResult, tmp_path: Path
) -> None:
    OPENED.clear()
    run = run_turns(
        dataclasses.replace(SPEC, screen_episodes=8), tmp_path / "run", cache, SilentReporter(), workers=0
    )
    assert run.turns[0].screens[0][1].verdict is ScreenVerdict.BROKEN
    assert (
        run.turns[0].in_use,
        run.turns[0].conditions,
        run.turns[0].replays,
        run.diagnosis,
        run.turns[0].plan,
        run.gap,
    ) == (None,) * 6
    assert len(run.turns) == 1
    assert exit_code(run) == 1
    assert OPENED == []
    assert not (run.folder / "turn").exists()
    assert [r.kind for r in rows_of(run.folder)] == [RowKind.COMMITMENT, RowKind.EVIDENCE]
    assert "found the policy broken" in verdict_sentence(run)
    assert "not tried on the robot" in verdict_sentence(run)
    with pytest.raises(DataError, match="did not pass the screen"):
        evidence_of(load_run(run.folder))
    page = write_report(
        report_model(load_run(run.folder), "simgap demo"), tmp_path / "report.html"
    ).read_text()
    assert "Surrogate evidence" not in page, "nothing was tried on a surrogate"


@pytest.mark.slow
def test_a_plan_of_episodes_trains_on_and_a_second_policy_that_fails_its_screen_is_not_tried(
    cache: Path, result: TurnResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[FactorRanges] = []

    def short(spec: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(spec.ranges)
        return screen(dataclasses.replace(spec, episodes=min(6, spec.episodes)), *args, **kwargs)

    monkeypatch.setattr("simgap.loop.stages.screen", short)
    # later, and the teacher solves one in ten
    late = Gap(kind=causes.ACTION_LATENCY, factors={"action_latency_steps": 2.0})
    monkeypatch.setattr("simgap.robots.surrogate_process.draw_gap", lambda seed, kind, env: late)
    run = run_turns(
        dataclasses.replace(SPEC, gap="action_latency", seed=5), tmp_path, cache, SilentReporter(), workers=0
    )
    assert run.diagnosis is not None
    assert run.turns[0].plan is not None
    assert (run.diagnosis.cause, run.diagnosis_agrees) == (causes.ACTION_LATENCY, True)
    assert run.diagnosis.parameters["extra_delay_steps"] == 2
    assert run.turns[0].plan.kind == "episodes"
    assert len(run.turns[1].datasets) == 2
    assert run.turns[1].checkpoint != run.turns[0].checkpoint
    assert [r.name for r in seen] == ["nominal", "targeted:action_latency", "nominal"]
    assert (run.turns[1].in_use, run.paired, run.is_better) == (None, None, None)
    assert "did not pass its own screen" in verdict_sentence(run)
    targeted = open_dataset(run.turns[1].datasets[1])
    low, high = run.turns[0].plan.changes["action_latency_steps"]
    assert all(
        low <= targeted.episode(i, images=False).factors["action_latency_steps"] <= high for i in range(2)
    )
    assert "opened" in [r.key for r in rows_of(tmp_path)]


@pytest.mark.slow
def test_the_whole_run_on_the_sealed_process_gives_the_same_diagnosis(tmp_path: Path) -> None:
    run = run_turns(SPEC, tmp_path / "run", tmp_path / "cache", SilentReporter(), workers=2)
    assert run.diagnosis is not None
    assert run.diagnosis.cause is causes.ACTION_SIGN
    assert run.diagnosis_agrees is True


def test_a_run_that_holds_its_parts_is_read_where_it_was_moved_and_says_which_part_is_gone(
    cache: Path, result: TurnResult, tmp_path: Path
) -> None:
    made = tmp_path / "made"
    for part in ("datasets", "checkpoints", "screens"):
        shutil.copytree(cache / part, made / "cache" / part)
    shutil.copytree(result.folder / "turn", made / "turn")
    before = run_turns(SPEC, made, made / "cache", SilentReporter(), workers=0)
    results, said = before.turns[1].results, verdict_sentence(before)
    assert str(tmp_path) not in (made / "run.json").read_text()
    moved = Path(shutil.move(made, tmp_path / "moved"))
    read = load_run(moved)
    assert read.turns[1].results == results
    assert verdict_sentence(read) == said
    report_model(read, "simgap report")
    shutil.rmtree(read.turns[0].checkpoint)
    with pytest.raises(
        DataError, match=r"checkpoints/\w+, the policy of turn 1, is gone.*--cache inside --out"
    ):
        load_run(moved)


def test_a_run_whose_parts_lie_in_a_shared_cache_says_which_of_them_is_gone(
    result: TurnResult, tmp_path: Path
) -> None:
    moved = Path(shutil.copytree(result.folder, tmp_path / "run"))
    assert load_run(moved).turns[0].in_use == moved / "turn/1/in-use"
    run = json.loads((moved / "run.json").read_text())
    assert Path(run["turns"][0]["checkpoint"]).is_absolute()
    run["turns"][0]["datasets"] = ["/nowhere/datasets/abc"]
    (moved / "run.json").write_text(json.dumps(run))
    with pytest.raises(DataError, match="/nowhere/datasets/abc, a training set of turn 1, is gone"):
        load_run(moved)


def test_a_single_turn_is_diagnosed_and_its_seal_opened(cache: Path, tmp_path: Path) -> None:
    OPENED.clear()
    run = run_turns(dataclasses.replace(SPEC, turns=1), tmp_path, cache, SilentReporter(), workers=0)
    assert (len(run.turns), run.paired, run.diagnosis_agrees) == (1, None, True)
    assert [row.hash for row in rows_of(tmp_path) if row.key == "turn/1/diagnosis"] == OPENED
    assert "No second turn was asked for" in verdict_sentence(run)
    assert exit_code(run) == 0
    assert load_run(tmp_path).turns[0].results == run.turns[0].results


def test_a_third_turn_is_made_from_what_the_second_left_and_the_seal_opens_once_after_the_last_diagnosis(
    cache: Path, tmp_path: Path
) -> None:
    OPENED.clear()
    run = run_turns(dataclasses.replace(SPEC, turns=3), tmp_path / "run", cache, SilentReporter(), workers=0)
    rows = rows_of(tmp_path / "run")
    at = {row.key: row for row in rows}
    second = run.turns[1]
    assert second.diagnosis is not None
    assert second.diagnosis.cause is not causes.ACTION_SIGN, "turn 2 undid the sign"
    assert second.replays is not None
    assert second.plan is not None
    assert [at["turn/2/diagnosis"].hash] == OPENED
    assert at["opened"].id > at["turn/2/diagnosis"].id > at["turn/2/comparison with turn 1"].id
    assert len(run.turns) == (2 if second.plan.kind == "nothing" else 3)
    assert run.diagnosis_agrees is True
    read = load_run(tmp_path / "run")
    assert [t.results for t in read.turns] == [t.results for t in run.turns]
    assert "Then, after turn 2:" in verdict_sentence(read)
    assert main(["diagnose", str(tmp_path / "run"), "--turn", "7"]) == 2
    report_model(read, "simgap report")


def test_what_an_earlier_turn_taught_is_no_longer_what_is_broken(result: TurnResult) -> None:
    def said(family: Family, verdict: Verdict, cause: Cause) -> CheckResult:
        return CheckResult(family=family, name="n", verdict=verdict, sentence="Moved.", cause=cause)

    checks = [
        said(Family.PIXELS, Verdict.BROKEN, causes.CAMERA_SHIFT),
        said(Family.PLANT, Verdict.BROKEN, causes.PLANT_GAIN),
    ]
    found = decide(checks)
    taught = DataPlan(kind="episodes", sentence="", ranges=result.ranges)
    before = dataclasses.replace(result.turns[0], diagnosis=found, plan=taught)
    assert found.cause is causes.CAMERA_SHIFT
    later = set_aside(found, [before])
    assert later.cause is causes.PLANT_GAIN
    assert "turn 2 was taught it" in later.checks[0].sentence
    assert set_aside(found, []) is found


def test_any_two_turns_are_compared_and_plans_add_up(result: TurnResult) -> None:
    first, second = result.turns
    there, back = compare(first, second), compare(second, first)
    assert there is not None
    assert back is not None
    assert (there.counts.n10, there.counts.n01) == (back.counts.n01, back.counts.n10)
    sent = DataPlan(kind="convention", sentence="", multipliers={"a": -1.0})
    again = DataPlan(kind="convention", sentence="", multipliers={"a": 1.5, "b": 2.0})
    data = DataPlan(kind="episodes", sentence="", ranges=result.ranges.override({}, "new"), new_share=0.6)
    asked = Asked(ranges=result.ranges).then(sent).then(data).then(again).then(data)
    assert asked.commands == {"a": -1.5, "b": 2.0}
    assert asked.shares == pytest.approx((0.16, 0.24, 0.6))
    assert asked.ranges.name == "new"


def test_a_run_of_the_older_schema_and_one_of_no_turn_are_refused(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"schema": 1}')
    with pytest.raises(
        DataError, match=r"schema 1, expected 2; read it with the version .* or run the demo again"
    ):
        load_run(tmp_path)
    with pytest.raises(UsageError, match="give at least 1"):
        run_turns(dataclasses.replace(SPEC, turns=0), tmp_path / "x", cache, SilentReporter(), workers=0)
    older = {k: v for k, v in SPEC.to_json().items() if k != "turns"}
    (tmp_path / "spec.json").write_text(json.dumps(older))
    with pytest.raises(DataError, match="begun by another version"):
        run_turns(SPEC, tmp_path, cache, SilentReporter(), workers=0)
