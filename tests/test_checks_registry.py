"""The registry of checks: what is in it, what a check of one's own has to keep, and where it is then seen."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from simgap import causes
from simgap.causes import Cause, Family
from simgap.checks.base import Progress, ask
from simgap.checks.conformance import conformance
from simgap.checks.registry import all_causes, all_checks, find_check
from simgap.cli import main
from simgap.cli.checks import markdown
from simgap.diagnosis import diagnose
from simgap.errors import UsageError
from simgap.evidence import Evidence, Need
from simgap.findings import CheckResult, Verdict

DOCS = Path(__file__).parent.parent / "docs" / "checks.md"
OWN = """
from dataclasses import dataclass

from simgap.causes import Cause, Family
from simgap.evidence import Evidence, Need
from simgap.findings import CheckResult, Verdict

TIRED = Cause(id="operator_tired", family=Family.EVALUATION, words="the operator", remedy="Rest.")


@dataclass(frozen=True, kw_only=True)
class Tired:
    id: str = "late_hours"
    question: str = "Were the trials run late at night?"
    family: Family = Family.EVALUATION
    needs: frozenset = frozenset({Need.EXECUTOR})
    can_name: tuple = (TIRED,)

    def assumes(self, evidence: Evidence) -> frozenset:
        return frozenset()

    def run(self, evidence: Evidence, progress=None) -> CheckResult:
        said = "They were."
        return CheckResult(family=self.family, name=self.id, verdict=Verdict.BROKEN, cause=TIRED, sentence=said)
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"own_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    return f"{name}:Tired"


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert main([*words, "--quiet"]) == code
    return capsys.readouterr().out


def test_every_family_of_the_loop_but_deployment_has_a_check_of_ours() -> None:
    assert {c.family for c in all_checks()} == set(Family) - {Family.DEPLOYMENT}


def test_checks_come_in_the_order_of_diagnosis() -> None:
    families = [c.family for c in all_checks()]
    assert families == sorted(families, key=list(Family).index)


@pytest.mark.parametrize("check", all_checks(), ids=lambda c: c.id)
def test_every_check_of_ours_keeps_the_contract_that_others_are_held_to(check: object) -> None:
    others = [c for c in all_checks() if c is not check]
    kept = conformance(check, others)  # type: ignore[arg-type]
    assert len(kept) >= 6
    assert [k.breach for k in kept if k.breach] == []


def test_every_cause_of_the_table_that_is_a_fault_can_be_named_by_some_check() -> None:
    named = {cause for check in all_checks() for cause in check.can_name}
    assert named == set(causes.TABLE.values()) - {causes.NONE, causes.UNKNOWN}


def test_the_table_in_the_documentation_is_the_one_that_the_command_prints() -> None:
    assert markdown(all_checks()) in DOCS.read_text()


def test_without_any_evidence_nothing_is_asked_and_nothing_is_named() -> None:
    found = diagnose(Evidence())
    assert {c.verdict for c in found.checks} == {Verdict.NOT_RUN}
    assert found.cause is causes.NONE
    assert "Not looked at: evaluation, data" in found.sentence


def test_a_check_of_ones_own_is_seen_in_the_list_its_json_and_the_table_of_the_docs(
    own: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "late_hours" in said(capsys, "checks", "list", "--check", own)
    document = json.loads(said(capsys, "checks", "list", "--check", own, "--json"))
    assert {"id": "operator_tired"}.items() <= next(
        c["can_name"][0] for c in document["checks"] if c["id"] == "late_hours"
    ).items()
    assert "| evaluation | `late_hours` |" in said(capsys, "checks", "list", "--check", own, "--markdown")
    assert "Rest." in said(capsys, "checks", "show", "late_hours", "--check", own)
    assert "late_hours" not in said(capsys, "checks", "list")


def test_a_check_of_ones_own_is_held_against_the_contract_and_asked_by_a_diagnosis(
    own: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "keeps" in said(capsys, "checks", "check", own)
    found = diagnose(Evidence(executor="receding(5)"), all_checks([own]))
    assert (found.cause.id, found.remedy) == ("operator_tired", "Rest.")
    assert "operator_tired" in all_causes(all_checks([own]))


def listed(offered_in: Path, from_folder: Path) -> str:
    """Return what `checks list` prints from a folder, with a package that offers a check in another one or the same."""
    (offered_in / "offers.py").write_text(OWN)
    meta = offered_in / "offers-1.0.dist-info"
    meta.mkdir()
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: offers\nVersion: 1.0\n")
    (meta / "entry_points.txt").write_text("[simgap.checks]\nlate = offers:Tired\n")
    code = (
        f"import sys; sys.path.insert(0, {str(offered_in)!r});"
        " from simgap.cli import main; main(['checks', 'list'])"
    )
    words = [sys.executable, "-c", code]
    return subprocess.run(words, capture_output=True, text=True, check=True, cwd=from_folder).stdout


def test_an_installed_package_offers_checks_by_an_entry_point(tmp_path: Path) -> None:
    (tmp_path / "installed").mkdir()
    assert "late_hours" in listed(tmp_path / "installed", tmp_path)


def test_a_package_that_lies_in_the_folder_at_hand_was_not_installed(tmp_path: Path) -> None:
    assert "late_hours" not in listed(tmp_path, tmp_path)


@pytest.mark.parametrize(
    ("edit", "breach"),
    [
        ('id: str = "late_hours"->id: str = "Late hours!"', "the id is"),
        ('id: str = "late_hours"->id: str = "cameras"', "another check is called"),
        ("at night?->at night", "the question is"),
        ("(TIRED,)->()", "can_name is empty"),
        ('remedy="Rest."->remedy=""', "no remedy"),
        ("frozen=True->frozen=False", "no frozen dataclass"),
        ("{Need.EXECUTOR}->set()", "the same of everybody"),
        ("        return frozenset()->        return evidence.training.root", "it raises AttributeError"),
        ("    def run(->    def walk(", "it has no run"),
        ('id="operator_tired"->id="camera_shift"', "that of another cause"),
    ],
)
def test_a_check_that_breaks_the_contract_is_told_where(
    edit: str, breach: str, own: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = edit.split("->")
    path = tmp_path / f"{own.split(':')[0]}.py"
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after))
    code = main(["checks", "check", own, "--quiet"])
    told = capsys.readouterr()
    assert code in (1, 2)
    assert breach in told.out + told.err


@dataclass(frozen=True, kw_only=True)
class Liar:
    """Names a cause that it did not announce."""

    id: str = "liar"
    question: str = "Is it so?"
    family: Family = Family.DATA
    needs: frozenset[Need] = frozenset()
    can_name: tuple[Cause, ...] = (causes.DATA,)

    def assumes(self, evidence: Evidence) -> frozenset[str]:
        return frozenset()

    def run(self, evidence: Evidence, progress: Progress | None = None) -> CheckResult:
        return CheckResult(
            family=self.family, name="", verdict=Verdict.BROKEN, cause=causes.POLICY, sentence="."
        )


def test_a_check_that_names_a_cause_it_did_not_announce_is_stopped() -> None:
    with pytest.raises(ValueError, match="not in its can_name"):
        ask(Liar(), Evidence())


def test_an_unknown_check_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="did you mean 'cameras'"):
        find_check("camera", all_checks())
