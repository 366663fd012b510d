"""The planter of faults plants what it says, one at a time, and finds the tests that should notice."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "sabotage"))

import run as sabotage
from faults import faults_of, planted

SOURCE = '''
def share(part, whole):
    """Return a share."""
    if not whole:
        raise ValueError("of what? 1 + 1")
    count(part)
    return part / whole

def nothing(self) -> int: ...
'''


def by_what() -> dict[str, str]:
    return {fault.what: planted(SOURCE, fault) for fault in faults_of(SOURCE)}


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("not left out", "if whole:"),
        ("the wrong branch", "if not (not whole):"),
        ("a call left out", "pass"),
        ("nothing returned", "return None"),
        ("Mult for Div", "return part * whole"),
    ],
)
def test_each_fault_changes_its_line_and_no_other(what: str, line: str) -> None:
    text = by_what()[what]
    assert line.replace("(", "").replace(")", "") in text.replace("(", "").replace(")", "")
    clean = planted(SOURCE, faults_of(SOURCE)[0])
    assert len(text.splitlines()) == len(clean.splitlines())
    assert "1 + 1" in text  # what an error says is left alone


def test_the_same_seed_draws_the_same_faults_and_another_draws_others() -> None:
    files = sorted(sabotage.SOURCE.glob("conventions/*.py"))
    assert sabotage.sample(5, 3, files) == sabotage.sample(5, 3, files)
    assert sabotage.sample(5, 3, files) != sabotage.sample(5, 4, files)


def test_the_tests_of_a_module_are_those_that_import_it_nearest_first() -> None:
    by_test = {
        Path("test_b.py"): {"simgap.b"},
        Path("test_a.py"): {"simgap.a"},
        Path("test_c.py"): {"simgap.c"},
    }
    by_module = {"simgap.b": {"simgap.a"}, "simgap.a": set(), "simgap.c": set()}
    assert sabotage.tests_of("simgap.a", by_test, by_module) == [Path("test_a.py"), Path("test_b.py")]
