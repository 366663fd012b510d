"""Plant single faults in the source, one at a time, and say which the tests of their room do not notice.

``python tests/sabotage/run.py -n 60 --seed 0``. The tree is copied, and only the copy is changed. For each
fault the tests that import its module run, nearest first, until one fails; what survives is listed with its
line. A fault that no test notices is code that nobody tests or nobody needs.
"""

from __future__ import annotations

import argparse
import ast
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from faults import Fault, faults_of, planted

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "simgap"
TIMEOUT_S = 300.0
MOST_FILES = 6
"""Test files that are run for one fault at most: those that import its module, or what imports it."""
NOTICED, SURVIVED, SLOW = "noticed", "SURVIVED", "noticed (too slow)"


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """One fault and what became of it."""

    file: Path
    fault: Fault
    verdict: str
    tests: int
    seconds: float


def modules() -> dict[str, Path]:
    """Return module name -> file of all our modules."""
    return {_name(f): f for f in sorted(SOURCE.rglob("*.py"))}


def _name(file: Path) -> str:
    parts = file.relative_to(ROOT / "src").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(file: Path, known: Mapping[str, Path]) -> set[str]:
    """Return those of our modules that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found |= {node.module, *(f"{node.module}.{a.name}" for a in node.names)}
    return found & set(known)


def tests_of(module: str, by_test: Mapping[Path, set[str]], by_module: Mapping[str, set[str]]) -> list[Path]:
    """Return the test files nearest to a module: those that import it, then those that import what imports it."""
    found: list[Path] = (
        _that_call(module.rsplit(".", 1)[-1], by_test) if module.startswith("simgap.cli.") else []
    )
    ring, seen = {module}, {module}
    while ring and len(found) < MOST_FILES:
        near = [t for t, names in by_test.items() if names & ring and t not in found]
        found += sorted(near, key=lambda t: (not _is_namesake(t, module), len(by_test[t])))
        ring = {m for m, names in by_module.items() if names & ring} - seen
        seen |= ring
    return found[:MOST_FILES]


def _that_call(verb: str, by_test: Mapping[Path, set[str]]) -> list[Path]:
    """Return the tests that run a verb of the command line, which is imported when it is called; of a helper of verbs, those of the command line."""
    words = verb.strip("_").split("_")[0]
    return [t for t in by_test if f'"{words}"' in t.read_text() and "simgap.cli" in t.read_text()][
        :MOST_FILES
    ]


def _is_namesake(test: Path, module: str) -> bool:
    return any(word in test.stem for word in module.split(".")[1:])


def sample(count: int, seed: int, files: Sequence[Path]) -> list[tuple[Path, Fault]]:
    """Draw functions, each with the same chance, and one fault in each."""
    rng = np.random.default_rng(seed)
    inside: dict[tuple[Path, str], list[Fault]] = {}
    for file in files:
        for fault in faults_of(file.read_text()):
            inside.setdefault((file, fault.function), []).append(fault)
    places = list(inside)
    chosen = rng.choice(len(places), size=min(count, len(places)), replace=False)
    return [(places[i][0], inside[places[i]][int(rng.integers(len(inside[places[i]])))]) for i in chosen]


def run(drawn: Sequence[tuple[Path, Fault]]) -> Iterator[Trial]:
    """Try each fault in a copy of the tree."""
    known = modules()
    by_module = {name: imported(file, known) for name, file in known.items()}
    by_test = {
        t: imported(t, known)
        for t in sorted((ROOT / "tests").glob("test_*.py"))
        if t.stem != "test_house_style"
    }
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "tree"
        shutil.copytree(
            ROOT, copy, ignore=shutil.ignore_patterns(".venv*", ".git", "runs", ".*_cache", "__pycache__")
        )
        if (ROOT.parent / "shared").exists():
            (Path(folder) / "shared").symlink_to((ROOT.parent / "shared").resolve())
        for file, fault in drawn:
            there = copy / file.relative_to(ROOT)
            original = there.read_text()
            there.write_text(planted(original, fault))
            tests = tests_of(_name(file), by_test, by_module)
            began = time.monotonic()
            verdict = _verdict(copy, tests)
            there.write_text(original)
            yield Trial(
                file=file.relative_to(SOURCE),
                fault=fault,
                verdict=verdict,
                tests=len(tests),
                seconds=time.monotonic() - began,
            )


def _verdict(copy: Path, tests: Sequence[Path]) -> str:
    if not tests:
        return SURVIVED
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        *(str(t.relative_to(ROOT)) for t in tests),
    ]
    environment = os.environ | {"PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return SLOW
    return SURVIVED if done.returncode == 0 else NOTICED


def main() -> int:
    """Plant, run, and list what survived."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-n", type=int, default=60, help="faults (default 60)")
    parser.add_argument("--seed", type=int, default=0, help="which faults (default 0)")
    parser.add_argument("--only", default="", help="files whose path holds this text")
    args = parser.parse_args()
    drawn = sample(args.n, args.seed, [file for file in modules().values() if args.only in str(file)])
    survivors = []
    for i, trial in enumerate(run(drawn), 1):
        line = f"{trial.file}:{trial.fault.line} {trial.fault.function}: {trial.fault.what}"
        print(
            f"{i}/{len(drawn)} {trial.verdict} ({trial.tests} test files, {trial.seconds:.0f} s) {line}",
            flush=True,
        )
        survivors += [line] if trial.verdict == SURVIVED else []
    noticed = len(drawn) - len(survivors)
    print(
        f"{noticed} of {len(drawn)} faults noticed ({noticed / max(1, len(drawn)):.0%}); survivors:",
        *(survivors or ["none"]),
        sep="\n  ",
    )
    return 0 if noticed >= 0.85 * len(drawn) else 1


if __name__ == "__main__":
    raise SystemExit(main())
