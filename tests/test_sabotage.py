"""The planter of faults plants what it says, one at a time, in every package, and finds the tests that should notice."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "sabotage"))

import run as sabotage
from faults import faults_of, planted

SOURCE = '''
def share(part, whole, *, places=3):
    """Return a share — of what?"""
    if not whole:
        raise ValueError("of what? 1 + 1")
    count(part, whole)  # a remark stays
    keep = (part > 2) & known
    return rounded(part / whole, places=places)

def nothing(self) -> int: ...
'''


def by_what() -> dict[str, str]:
    return {fault.what: planted(SOURCE, fault) for fault in faults_of(SOURCE)}


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("not left out", "if (whole):"),
        ("the wrong branch", "if (not (not whole)):"),
        ("a call left out", "pass  # a remark stays"),
        ("two arguments exchanged", "(count(whole, part))"),
        ("a mask forgotten", "keep = (part > 2)"),
        ("GtE for Gt", "((part >= 2)) & known"),
        ("nothing returned", "return None"),
        ("argument places left out", "rounded(part / whole)"),
        ("Mult for Div", "(part * whole)"),
        ("4 for 3", "places=(4)"),
    ],
)
def test_each_fault_changes_its_line_and_no_other(what: str, line: str) -> None:
    text = by_what()[what]
    changed = [b for a, b in zip(SOURCE.splitlines(), text.splitlines(), strict=True) if a != b]
    assert len(changed) == 1
    assert line.replace("(", "").replace(")", "") in changed[0].replace("(", "").replace(")", "")


def test_what_an_error_says_and_a_body_that_does_nothing_are_left_alone() -> None:
    assert all("of what? 1 + 1" in text and "-> int: ..." in text for text in by_what().values())


def test_every_fault_of_the_source_can_be_read_by_python() -> None:
    files = sorted(sabotage.SOURCE.glob("conventions/*.py")) + sorted(sabotage.SOURCE.glob("*.py"))
    for file, fault in sabotage.sample(40, 0, files):
        ast.parse(planted(file.read_text(), fault))


def test_the_same_seed_draws_the_same_faults_and_another_draws_others() -> None:
    files = sorted(sabotage.SOURCE.glob("conventions/*.py"))
    assert sabotage.sample(5, 3, files) == sabotage.sample(5, 3, files)
    assert sabotage.sample(5, 3, files) != sabotage.sample(5, 4, files)


def test_every_package_gets_a_fault_before_a_large_one_gets_its_second() -> None:
    files = [f for name in ("bounds.py", "statistics", "trials") for f in _files(name)]
    drawn = {sabotage.package_of(f) for f, _ in sabotage.sample(3, 0, files)}
    assert drawn == {"simgap", "statistics", "trials"}


def _files(name: str) -> list[Path]:
    here = sabotage.SOURCE / name
    return sorted(here.rglob("*.py")) if here.is_dir() else [here]


def test_the_tests_of_a_function_are_those_that_name_it_then_the_nearest(tmp_path: Path) -> None:
    far, near, names = (tmp_path / f"test_{n}.py" for n in ("far", "near", "names"))
    for test in (far, near, names):
        test.write_text("share(1, 2)" if test == names else "")
    by_test = {far: {"simgap.b"}, near: {"simgap.a"}, names: {"simgap.a", "simgap.c"}}
    by_module = {"simgap.b": {"simgap.a"}, "simgap.a": set(), "simgap.c": set()}
    assert sabotage.tests_of("simgap.a", {"share"}, by_test, by_module) == [names, near, far]


def test_a_test_may_speak_of_a_function_by_the_code_it_gives() -> None:
    source = 'def check(x):\n    return Finding(code="limits_inert", sentence="a sentence")\n'
    assert sabotage.words_of(source, "check") == {"check", "limits_inert"}


def test_a_test_that_calls_a_verb_reaches_the_module_of_the_verb(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text('from simgap.cli import main\nmain(["data", "check"])\n')
    reached = sabotage.reached_by_tests(tmp_path, sabotage.modules())
    assert "simgap.cli.data" in reached[tmp_path / "test_it.py"]
