"""Plant single faults in the source, one at a time, and say which the tests of their room do not notice.

``python tests/sabotage/run.py -n 60 --seed 0``. The tree is copied, and only the copy is changed, so that a
run which is stopped leaves nothing behind in the tree. Every package gets its share of the faults. For each
fault the tests that reach its module run, those that name its function first, until one fails or the time is
up; what survives is listed with its line. A fault that no test notices is code that nobody tests or nobody
needs, or a fault that changes nothing: read the line before you call it either.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from faults import Fault, faults_of, planted

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "simgap"
SECONDS = 75.0
"""No test begins later than this after the fault was planted."""
HANGS_S = 180.0
"""A test that still runs this long after the time was up hangs, and that is noticed."""
NEAREST, MOST_FILES = 2, 8
NOTICED, SURVIVED, HANGS = "noticed", "SURVIVED", "noticed (hangs)"
ABOUT_THE_TEXT = ("test_house_style", "test_sabotage", "test_constraints")


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """One fault and what became of it."""

    file: Path
    fault: Fault
    verdict: str
    by: str
    seconds: float


def modules() -> dict[str, Path]:
    """Return module name -> file of all our modules."""
    return {_name(f): f for f in sorted(SOURCE.rglob("*.py"))}


def _name(file: Path) -> str:
    parts = file.relative_to(ROOT / "src").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def package_of(file: Path) -> str:
    """Return the package of a file, ``simgap`` where it stands in none below."""
    first, *below = file.relative_to(SOURCE).parts
    return first if below else "simgap"


def imported(file: Path, known: Mapping[str, Path]) -> set[str]:
    """Return those of our modules that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found |= {node.module, *(f"{node.module}.{a.name}" for a in node.names)}
    return found & set(known)


def reached_by_tests(folder: Path, known: Mapping[str, Path]) -> dict[Path, set[str]]:
    """Return what each test file imports, itself or through a helper beside it, and the verbs it calls."""
    helpers = {f.stem: f for f in folder.glob("*.py")}
    verbs = {name.rsplit(".", 1)[-1]: name for name in known if re.fullmatch(r"simgap\.cli\.[a-z]+", name)}
    found = {}
    for test in sorted(folder.glob("test_*.py")):
        if test.stem in ABOUT_THE_TEXT:
            continue
        text = test.read_text()
        beside = {h for h in helpers if re.search(rf"^\s*(from|import) {h}\b", text, re.MULTILINE)}
        names = imported(test, known).union(*(imported(helpers[h], known) for h in beside))
        if "simgap.cli" in text or '"simgap"' in text:
            names |= {module for verb, module in verbs.items() if f'"{verb}"' in text}
        found[test] = names
    return found


def tests_of(
    module: str, words: Collection[str], by_test: Mapping[Path, set[str]], by_module: Mapping[str, set[str]]
) -> list[Path]:
    """Return the test files nearest to a function: they hold its words, import its module, or what imports that."""
    distance: dict[Path, int] = {}
    ring, seen = {module}, {module}
    for steps in range(6):
        for test, names in by_test.items():
            if names & ring:
                distance.setdefault(test, steps)
        ring = {m for m, names in by_module.items() if names & ring} - seen
        seen |= ring

    def rank(test: Path) -> tuple[int, int, bool, int]:
        text = test.read_text()
        named = sum(bool(re.search(rf"\b{word}\b", text)) for word in words) if distance[test] <= 3 else 0
        return -named, distance[test], not _is_namesake(test, module), len(by_test[test])

    return sorted(distance, key=rank)[:MOST_FILES]


def words_of(source: str, function: str) -> set[str]:
    """Return the words by which a test speaks of a function: its name, and the codes and keys that it holds."""
    found = {function}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.name == function:
            texts = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant)]
            found |= {t for t in texts if isinstance(t, str) and re.fullmatch("[a-z]+(_[a-z]+)+", t)}
    return found


def _is_namesake(test: Path, module: str) -> bool:
    return any(word.strip("_") in test.stem for word in module.split(".")[1:])


def sample(count: int, seed: int, files: Sequence[Path]) -> list[tuple[Path, Fault]]:
    """Draw functions, a share of them from every package, and one fault in each.

    The kind of the fault is drawn before its place: small numbers are many, and would be all that is tried.
    Nothing returned is the coarsest, and is planted where a function has nothing else to go wrong.
    """
    rng = np.random.default_rng(seed)
    inside: dict[str, dict[tuple[Path, str], list[Fault]]] = {}
    for file in files:
        for fault in faults_of(file.read_text()):
            inside.setdefault(package_of(file), {}).setdefault((file, fault.function), []).append(fault)
    order = [places for _, places in sorted(_spread(inside, rng))]
    drawn = []
    for file, function in order[:count]:
        faults = inside[package_of(file)][file, function]
        kinds = sorted({_kind(f) for f in faults} - {"nothing returned"}) or ["nothing returned"]
        kind = kinds[int(rng.integers(len(kinds)))]
        of_kind = [f for f in faults if _kind(f) == kind]
        drawn.append((file, of_kind[int(rng.integers(len(of_kind)))]))
    return drawn


def _spread(
    inside: Mapping[str, Mapping[tuple[Path, str], object]], rng: np.random.Generator
) -> Iterator[tuple[float, tuple[Path, str]]]:
    """Yield every function with its turn: one of each package first, then in proportion to their functions."""
    for places in inside.values():
        mixed = [list(places)[i] for i in rng.permutation(len(places))]
        for i, place in enumerate(mixed):
            yield (float(rng.random()) if i == 0 else 1 + (i + rng.random()) / len(places)), place


def _kind(fault: Fault) -> str:
    """Return what sort of fault it is: numbers and names do not count."""
    return re.sub(r"argument \w+|[-+.\de]*\d[-+.\de]*", "_", fault.what)


class Copy:
    """A copy of the tree, in which faults are planted and taken out again."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "tree"
        self._first = folder / "failed.txt"
        left_out = (".venv*", ".git", "runs", ".*_cache", "__pycache__", ".hypothesis")
        shutil.copytree(ROOT, self.root, ignore=shutil.ignore_patterns(*left_out))
        if (ROOT.parent / "shared").exists():
            (folder / "shared").symlink_to((ROOT.parent / "shared").resolve())

    def tried(self, file: Path, fault: Fault, tests: Sequence[str]) -> tuple[str, str]:
        """Return the verdict on a fault, and the test that failed (empty where none did, or nothing ran)."""
        there = self.root / file.relative_to(ROOT)
        original = there.read_text()
        there.write_text(planted(original, fault))
        until = time.monotonic() + SECONDS
        try:
            for part in (
                tests[:NEAREST],
                tests[NEAREST:],
            ):  # the nearest alone: loading the others takes longer
                code = self._pytest(["-x", *part], until - time.monotonic()) if part else 0
                if code is None:
                    return HANGS, ""
                if code not in (0, 5):
                    by = (self.failed() or [""])[0]
                    if (
                        not by or self._pytest([by], SECONDS) != 0
                    ):  # once more: a machine that is busy fails too
                        return NOTICED, by
        finally:
            there.write_text(original)
        return SURVIVED, ""

    def fail_without_a_fault(self, tests: Sequence[str]) -> set[str]:
        """Return those tests that fail in the copy as it is: their failures say nothing about a fault."""
        if tests:
            self._pytest(tests, 60.0 * len(tests))
        return set(self.failed()) if tests else set()

    def failed(self) -> list[str]:
        """Return the tests that failed in the last run."""
        return self._first.read_text().splitlines()

    def _pytest(self, arguments: Sequence[str], seconds: float) -> int | None:
        """Return pytest's exit code, and nothing where it hung."""
        self._first.write_text("")
        options = ["-q", "-n", "0", "-p", "no:cacheprovider", "-p", "patience"]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(str(self.root / p) for p in ("src", "tests/sabotage")),
            "PYTHONDONTWRITEBYTECODE": "1",
            "SABOTAGE_SECONDS": str(seconds),
            "SABOTAGE_FIRST": str(self._first),
            "TMPDIR": str(self.root.parent),
        }
        running = subprocess.Popen(
            [sys.executable, "-m", "pytest", *options, *arguments],
            cwd=self.root,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return running.wait(seconds + HANGS_S)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGKILL)
                running.wait()


def run(drawn: Sequence[tuple[Path, Fault]], copy: Copy) -> Iterator[Trial]:
    """Try each fault in a copy of the tree."""
    known = modules()
    by_module = {name: imported(file, known) for name, file in known.items()}
    by_test = reached_by_tests(ROOT / "tests", known)
    for file, fault in drawn:
        files = tests_of(_name(file), words_of(file.read_text(), fault.function), by_test, by_module)
        began = time.monotonic()
        verdict, by = copy.tried(file, fault, [str(f.relative_to(ROOT)) for f in files])
        seconds = time.monotonic() - began
        yield Trial(file=file.relative_to(SOURCE), fault=fault, verdict=verdict, by=by, seconds=seconds)


def main() -> int:
    """Plant, run, and list what survived."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-n", type=int, default=60, help="faults (default 60)")
    parser.add_argument("--seed", type=int, default=0, help="which faults (default 0)")
    parser.add_argument("--only", default="", help="files whose path holds this text")
    parser.add_argument("--list", action="store_true", help="say what would be planted, and run nothing")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the copy is removed then too
    drawn = sample(args.n, args.seed, [file for file in modules().values() if args.only in str(file)])
    if args.list:
        print(*(f"{file.relative_to(SOURCE)}:{_words(fault)}" for file, fault in drawn), sep="\n")
        return 0
    with tempfile.TemporaryDirectory(prefix="simgap-sabotage-") as folder:
        copy, trials = Copy(Path(folder)), []
        for i, trial in enumerate(run(drawn, copy), 1):
            print(
                f"{i}/{len(drawn)} {trial.verdict} ({trial.seconds:.0f} s) {_line(trial)} {trial.by}",
                flush=True,
            )
            trials.append(trial)
        broken = copy.fail_without_a_fault(sorted({t.by for t in trials if t.by}))
    for test in sorted(broken):
        print(f"fails without a fault, so that it noticed nothing: {test}")
    survivors = [t for t in trials if t.verdict == SURVIVED or t.by in broken]
    for package in sorted({package_of(SOURCE / t.file) for t in trials}):
        here = [t for t in trials if package_of(SOURCE / t.file) == package]
        print(f"{package}: {sum(t not in survivors for t in here)} of {len(here)}")
    share = 1 - len(survivors) / max(1, len(trials))
    print(f"{len(trials) - len(survivors)} of {len(trials)} faults noticed ({share:.0%}); survivors:")
    print(*([_line(t) for t in survivors] or ["none"]), sep="\n")
    return 0 if share >= 0.85 else 1


def _line(trial: Trial) -> str:
    return f"{trial.file}:{_words(trial.fault)}"


def _words(fault: Fault) -> str:
    return f"{fault.line} {fault.function}: {fault.what}, now {fault.text}"


if __name__ == "__main__":
    raise SystemExit(main())
