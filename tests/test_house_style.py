"""The rules of the house that no linter knows, and for each a planted offence it must catch."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "simgap"
FILE_LINES = 400
FUNCTION_LINES = 80
PROMISE = "certi" + "fied"
HEAVY = ("numpy", "scipy", "torch", "mujoco", "gymnasium", "pyarrow", "av", "matplotlib", "rich", "jinja2")

Rule = Callable[[Path, str], Iterator[str]]
"""Takes a path below ``src/simgap`` and its text, and yields one sentence an offence."""


def files_are_short(path: Path, text: str) -> Iterator[str]:
    lines = len(text.splitlines())
    if lines > FILE_LINES:
        yield f"{path} has {lines} lines, more than {FILE_LINES}: split it by idea"


def functions_fit_a_screen(path: Path, text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES:
                yield f"{path}:{node.lineno} {node.name} has {lines} lines, more than {FUNCTION_LINES}"


_SEEDED = {"Generator", "BitGenerator", "SeedSequence", "PCG64", "PCG64DXSM", "Philox", "SFC64"}


def randomness_is_passed_in(path: Path, text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Attribute(value=ast.Attribute(value=ast.Name(id="np" | "numpy"), attr="random"), attr=name) if name not in _SEEDED | {"default_rng"}:
                yield f"{path}:{node.lineno} np.random.{name} uses the global generator"
            case ast.Call(func=ast.Attribute(attr="default_rng"), args=[], keywords=[]):
                yield f"{path}:{node.lineno} default_rng() without a seed"
            case ast.ImportFrom(module="numpy.random", names=names):
                for name in names:
                    if name.name not in _SEEDED | {"default_rng"}:
                        yield f"{path}:{node.lineno} numpy.random.{name.name} uses the global generator"
            case ast.Import(names=names):
                if any(name.name == "random" for name in names):
                    yield f"{path}:{node.lineno} the standard library's random has a global generator"
            case ast.ImportFrom(module="random"):
                yield f"{path}:{node.lineno} the standard library's random has a global generator"


def only_the_command_line_prints(path: Path, text: str) -> Iterator[str]:
    if path.parts[0] == "cli":
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            yield f"{path}:{node.lineno} prints; return it, or raise"


def nothing_is_left_to_do(path: Path, text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), start=1):
        if re.search(r"\b(TO" + r"DO|FIX" + r"ME|XXX)\b", line):
            yield f"{path}:{number} leaves work undone"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Raise) and "NotImplementedError" in ast.dump(node):
            yield f"{path}:{node.lineno} is a stub"


def nothing_is_promised(path: Path, text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), start=1):
        if PROMISE in line.lower():
            yield f"{path}:{number} says {PROMISE!r}; no number of ours is"


def nothing_is_swallowed(path: Path, text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ExceptHandler) and node.type is None:
            yield f"{path}:{node.lineno} catches everything, even an interrupt"


def defaults_do_not_change(path: Path, text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for default in [*node.args.defaults, *node.args.kw_defaults]:
                if isinstance(default, ast.List | ast.Dict | ast.Set):
                    yield f"{path}:{default.lineno} {node.name} has a mutable default"


OFFENCES: list[tuple[Rule, str, str]] = [
    (files_are_short, "a.py", "x = 1\n" * (FILE_LINES + 1)),
    (functions_fit_a_screen, "a.py", "def f():\n" + "    x = 1\n" * FUNCTION_LINES),
    (functions_fit_a_screen, "a.py", "class A:\n    async def f(self):\n" + "        x = 1\n" * FUNCTION_LINES),
    (randomness_is_passed_in, "a.py", "import numpy as np\nnp.random.seed(0)\n"),
    (randomness_is_passed_in, "a.py", "import numpy\nx = numpy.random.rand(3)\n"),
    (randomness_is_passed_in, "a.py", "from numpy.random import normal\n"),
    (randomness_is_passed_in, "a.py", "import numpy as np\nrng = np.random.default_rng()\n"),
    (randomness_is_passed_in, "a.py", "import random\n"),
    (randomness_is_passed_in, "a.py", "from random import choice\n"),
    (only_the_command_line_prints, "envs/a.py", "def f():\n    print('reset')\n"),
    (nothing_is_left_to_do, "a.py", "x = 1  # TO" + "DO: two\n"),
    (nothing_is_left_to_do, "a.py", "# FIX" + "ME\n"),
    (nothing_is_left_to_do, "a.py", "def f():\n    raise NotImplementedError('later')\n"),
    (nothing_is_promised, "a.py", f"badge = 'Sim-{PROMISE.upper()}'\n"),
    (nothing_is_swallowed, "a.py", "try:\n    x = 1\nexcept:\n    x = 2\n"),
    (defaults_do_not_change, "a.py", "def f(*, names={}):\n    return names\n"),
]
"""Rule, file, text: what each rule must catch."""

INNOCENTS: list[tuple[Rule, str, str]] = [
    (files_are_short, "a.py", "x = 1\n" * FILE_LINES),
    (functions_fit_a_screen, "a.py", "def f():\n" + "    x = 1\n" * (FUNCTION_LINES - 1)),
    (randomness_is_passed_in, "a.py", "import numpy as np\nrng = np.random.default_rng(3)\ndef f(rng: np.random.Generator):\n    return rng.normal()\n"),
    (only_the_command_line_prints, "cli/a.py", "print('done')\n"),
    (only_the_command_line_prints, "envs/a.py", "def f(console):\n    console.print('done')  # not the builtin print('x')\n"),
    (nothing_is_left_to_do, "a.py", "methods = 'todo list'\n"),
    (nothing_is_promised, "a.py", "x = 'certificate'\n"),
    (nothing_is_swallowed, "a.py", "try:\n    x = 1\nexcept ValueError:\n    x = 2\n"),
    (defaults_do_not_change, "a.py", "def f(names=()):\n    return names\n"),
]
"""Rule, file, text: what each rule must let pass."""

RULES = list(dict.fromkeys(rule for rule, _, _ in OFFENCES))


@pytest.mark.parametrize(("rule", "file", "text"), OFFENCES)
def test_the_rule_catches_a_planted_offence(rule: Rule, file: str, text: str) -> None:
    assert list(rule(Path(file), text))


@pytest.mark.parametrize(("rule", "file", "text"), INNOCENTS)
def test_the_rule_lets_the_innocent_pass(rule: Rule, file: str, text: str) -> None:
    assert not list(rule(Path(file), text))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_source_keeps_the_rule(rule: Rule) -> None:
    files = sorted(SOURCE.rglob("*.py"))
    assert len(files) > 10
    offences = [offence for file in files for offence in rule(file.relative_to(SOURCE), file.read_text())]
    assert not offences, "\n".join(offences)


def _loaded_by(script: str, names: tuple[str, ...]) -> list[str]:
    check = f"{script}\nimport sys\nprint([name for name in {names!r} if name in sys.modules], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    loaded = ast.literal_eval(done.stderr.strip().splitlines()[-1])
    assert isinstance(loaded, list)
    return loaded


def test_the_import_check_sees_what_is_loaded() -> None:
    assert _loaded_by("import numpy", HEAVY) == ["numpy"]


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert _loaded_by("import simgap", HEAVY) == []


def test_help_loads_nothing_heavy() -> None:
    assert _loaded_by("from simgap.cli import main\nassert main(['--help']) == 0", HEAVY) == []


def test_the_values_every_layer_shares_load_neither_torch_nor_a_simulator() -> None:
    assert _loaded_by("import simgap.types, simgap.conventions, simgap.provenance, simgap.machine", ("torch", "mujoco", "gymnasium")) == []
