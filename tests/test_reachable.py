"""What no verb, worker or public name reaches is not there: the import graph, with what is imported inside functions."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import simgap
from simgap.policies.bridges.open import KINDS

SOURCE = Path(__file__).parent.parent / "src"
ENTRIES = (
    "simgap",
    "simgap.__main__",
    "simgap.robots.surrogate_process",
    "simgap.policies.bridges.lerobot_worker",
)
"""What is started or imported by its name: the package, the command, and the processes that it starts."""


def modules(root: Path = SOURCE) -> dict[str, Path]:
    """Return every module by its dotted name."""
    found = {}
    for file in sorted((root / "simgap").rglob("*.py")):
        parts = file.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def imported(file: Path, known: dict[str, Path]) -> set[str]:
    """Return those of our modules that a file imports or names in full, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found |= {node.module, *(f"{node.module}.{a.name}" for a in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in known:
            found.add(node.value)
    return found & set(known)


def loaded_by_name(known: dict[str, Path]) -> dict[str, set[str]]:
    """Return what is imported by a name that is put together: verbs, rooms of a registry, kinds of policy file."""
    rooms = {
        "simgap.checks.registry": ("simgap.checks.", "CHECK"),
        "simgap.mutants.registry": ("simgap.mutants.", "MUTANTS"),
    }
    found = {
        registry: {m for m, file in known.items() if m.startswith(room) and f"\n{name}" in file.read_text()}
        for registry, (room, name) in rooms.items()
    }
    found["simgap.cli._verbs"] = {
        m for m in known if m.startswith("simgap.cli.") and not m.rpartition(".")[2].startswith("_")
    }
    found["simgap.cli.envs"] = {m for m in known if m.startswith("simgap.cli._envs_")}
    found["simgap.policies.bridges.open"] = {
        f"simgap.policies.bridges.{kind.module}" for kind in KINDS.values()
    }
    return found


def unreached(known: dict[str, Path]) -> set[str]:
    """Return the modules that nothing leads to."""
    by_name, seen, ahead = loaded_by_name(known), set(), set(ENTRIES)
    while ahead:
        module = ahead.pop()
        seen.add(module)
        parents = {module.rsplit(".", n)[0] for n in range(1, module.count(".") + 1)}
        ahead |= (imported(known[module], known) | by_name.get(module, set()) | parents) & set(known) - seen
    return set(known) - seen


def test_every_module_is_reached_by_a_verb_a_worker_or_a_public_name() -> None:
    assert unreached(modules()) == set()


@pytest.mark.slow
def test_a_module_that_nothing_imports_is_found(tmp_path: Path) -> None:
    for name, file in modules().items():
        there = tmp_path / file.relative_to(SOURCE)
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_text(file.read_text() if name != "simgap.cli.checks" else "")
    (tmp_path / "simgap" / "measures" / "lonely.py").write_text('"""Alone."""\n')
    assert unreached(modules(tmp_path)) == {"simgap.measures.lonely", "simgap.checks.conformance"}


@pytest.mark.parametrize("name", simgap.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(simgap, name) is not None
