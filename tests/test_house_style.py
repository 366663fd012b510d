"""The rules of the house that no linter knows, and for each a planted offence it must catch."""

from __future__ import annotations

import ast
import functools
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


@functools.cache
def _parsed(text: str) -> ast.Module:
    """Parse a file once for all rules."""
    return ast.parse(text)


Rule = Callable[[Path, str], Iterator[str]]
"""Takes a path below ``src/simgap`` and its text, and yields one sentence an offence."""


def files_are_short(path: Path, text: str) -> Iterator[str]:
    lines = len(text.splitlines())
    if lines > FILE_LINES:
        yield f"{path} has {lines} lines, more than {FILE_LINES}: split it by idea"


def functions_fit_a_screen(path: Path, text: str) -> Iterator[str]:
    for node in ast.walk(_parsed(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES:
                yield f"{path}:{node.lineno} {node.name} has {lines} lines, more than {FUNCTION_LINES}"


_SEEDED = {"Generator", "BitGenerator", "SeedSequence", "PCG64", "PCG64DXSM", "Philox", "SFC64"}


def randomness_is_passed_in(path: Path, text: str) -> Iterator[str]:
    for node in ast.walk(_parsed(text)):
        match node:
            case ast.Attribute(
                value=ast.Attribute(value=ast.Name(id="np" | "numpy"), attr="random"), attr=name
            ) if name not in _SEEDED | {"default_rng"}:
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
    for node in ast.walk(_parsed(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            yield f"{path}:{node.lineno} prints; return it, or raise"


def nothing_is_left_to_do(path: Path, text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), start=1):
        if re.search(r"\b(TO" + r"DO|FIX" + r"ME|XXX)\b", line):
            yield f"{path}:{number} leaves work undone"
    for node in ast.walk(_parsed(text)):
        if isinstance(node, ast.Raise) and "NotImplementedError" in ast.dump(node):
            yield f"{path}:{node.lineno} is a stub"


def nothing_is_promised(path: Path, text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), start=1):
        if PROMISE in line.lower():
            yield f"{path}:{number} says {PROMISE!r}; no number of ours is"


def nothing_is_swallowed(path: Path, text: str) -> Iterator[str]:
    for node in ast.walk(_parsed(text)):
        if isinstance(node, ast.ExceptHandler) and node.type is None:
            yield f"{path}:{node.lineno} catches everything, even an interrupt"


def defaults_do_not_change(path: Path, text: str) -> Iterator[str]:
    for node in ast.walk(_parsed(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for default in [*node.args.defaults, *node.args.kw_defaults]:
                if isinstance(default, ast.List | ast.Dict | ast.Set):
                    yield f"{path}:{default.lineno} {node.name} has a mutable default"


_RUNNERS = {
    "exec", "eval", "compile", "__import__", "os.system", "os.popen", "os.startfile", "runpy.run_path", "runpy.run_module", "torch.hub.load",
    "pickle.load", "pickle.Unpickler", "marshal.load", "marshal.loads", "shelve.open", "joblib.load", "cloudpickle.load", "cloudpickle.loads", "dill.load",
    "dill.loads", "yaml.load", "yaml.unsafe_load", "yaml.full_load", "urlopen", "urllib.request.urlopen",
}  # fmt: skip
_DOORS = {
    # in __init__, from a table of its own; in plugins, modules of our own rooms
    "importlib.import_module": ("trust.py", "__init__.py", "compute/plugins.py"),
    "entry_points": ("compute/plugins.py",),  # of what was installed
    "importlib.metadata.entry_points": (),
    "import_module": (),
    "pickle.loads": ("compute/workers.py",),  # what our own worker sent through its own queue
    "gymnasium.make": ("envs/wrap.py",),  # of a spec that the user's own code made
    "subprocess.run": ("compute/child.py",),
    "subprocess.Popen": ("compute/child.py",),
    "ask_program": ("compute/machine.py", "envs/engines/filament.py", "policies/bridges/lerobot_process.py"),
    "Child": ("compute/child.py", "robots/surrogate.py", "policies/bridges/lerobot_process.py"),
}
"""Call -> files that may make it with an argument that is not written out there."""
_SAID = {
    "torch.load": ("weights_only", True),
    "np.load": ("allow_pickle", False),
    "numpy.load": ("allow_pickle", False),
}
"""Call -> the argument that makes it read data only, which has to be written out."""
_NARROWED = {"Image.open": "formats", "av.open": "options"}
"""Call -> the argument that keeps it from taking a file for a script or a playlist; what is written or read from memory here is ours."""


def nothing_runs_what_a_file_names(path: Path, text: str) -> Iterator[str]:
    for node in ast.walk(_parsed(text)):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        where = f"{path}:{node.lineno} {name}"
        if name in _RUNNERS or name.startswith(("os.exec", "os.spawn", "os.posix_spawn")):
            yield f"{where} can run what it is given; nothing here needs it"
        elif name in _DOORS and str(path) not in _DOORS[name] and not (node.args and _is_ours(node.args[0])):
            yield (
                f"{where} takes a name that is not written out here; what a file names goes through"
                " simgap.trust"
            )
        elif name in _SAID and ast.unparse(given.get(_SAID[name][0], ast.Constant(None))) != str(
            _SAID[name][1]
        ):
            yield f"{where} may open a pickle; write {_SAID[name][0]}={_SAID[name][1]}"
        elif (
            name in _NARROWED
            and _NARROWED[name] not in given
            and "path" in ast.unparse(node.args[0]).lower() + ("path" if name == "Image.open" else "")
        ):
            yield f"{where} takes a file for anything its library knows; give it {_NARROWED[name]}"
        elif any(
            ast.unparse(v) == "True"
            for k, v in given.items()
            if k in ("shell", "trust_remote_code", "allow_pickle")
        ):
            yield f"{where} is told to run what it is given"


def _is_ours(argument: ast.expr) -> bool:
    """Return whether a module is written out, or is one of ours whatever the rest of its name."""
    first = argument.values[0] if isinstance(argument, ast.JoinedStr) else None
    ours = isinstance(first, ast.Constant) and str(first.value).startswith(("simgap.", "pydrake."))
    return ours or isinstance(argument, ast.Constant)


OFFENCES: list[tuple[Rule, str, str]] = [
    (files_are_short, "a.py", "x = 1\n" * (FILE_LINES + 1)),
    (functions_fit_a_screen, "a.py", "def f():\n" + "    x = 1\n" * FUNCTION_LINES),
    (
        functions_fit_a_screen,
        "a.py",
        "class A:\n    async def f(self):\n" + "        x = 1\n" * FUNCTION_LINES,
    ),
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
    *(
        (nothing_runs_what_a_file_names, "a.py", line + "\n")
        for line in (
            "importlib.import_module(data['env'])",
            "import_module(f'{card}.make')",
            "__import__(name)",
            "eval(text)",
            "exec(text)",
            "runpy.run_path(file)",
            "os.system(command)",
            "os.execv(python, words)",
            "subprocess.run([data['python']])",
            "subprocess.Popen(words)",
            "Child([data['python']])",
            "ask_program(words, timeout_s=1.0)",
            "pickle.load(handle)",
            "pickle.loads(data)",
            "torch.load(file)",
            "torch.load(file, weights_only=False)",
            "np.load(file)",
            "np.load(file, allow_pickle=True)",
            "yaml.load(text)",
            "gymnasium.make(data['id'])",
            "model.from_pretrained(folder, trust_remote_code=True)",
            "run(words, shell=True)",
            "Image.open(handle)",
            "av.open(str(path), 'r')",
            "urlopen(data['url'])",
        )
    ),
]
"""Rule, file, text: what each rule must catch."""

INNOCENTS: list[tuple[Rule, str, str]] = [
    (files_are_short, "a.py", "x = 1\n" * FILE_LINES),
    (functions_fit_a_screen, "a.py", "def f():\n" + "    x = 1\n" * (FUNCTION_LINES - 1)),
    (
        randomness_is_passed_in,
        "a.py",
        (
            "import numpy as np\nrng = np.random.default_rng(3)\ndef f(rng: np.random.Generator):\n    return"
            " rng.normal()\n"
        ),
    ),
    (only_the_command_line_prints, "cli/a.py", "print('done')\n"),
    (
        only_the_command_line_prints,
        "envs/a.py",
        "def f(console):\n    console.print('done')  # not the builtin print('x')\n",
    ),
    (nothing_is_left_to_do, "a.py", "methods = 'todo list'\n"),
    (nothing_is_promised, "a.py", "x = 'certificate'\n"),
    (nothing_is_swallowed, "a.py", "try:\n    x = 1\nexcept ValueError:\n    x = 2\n"),
    (defaults_do_not_change, "a.py", "def f(names=()):\n    return names\n"),
    (
        nothing_runs_what_a_file_names,
        "a.py",
        "importlib.import_module('ray')\nimport_module(f'simgap.cli.{name}')\n",
    ),
    (
        nothing_runs_what_a_file_names,
        "a.py",
        (
            "torch.load(file, weights_only=True)\nnp.load(file,"
            " allow_pickle=False)\nre.compile(text)\nmodel.eval()\n"
        ),
    ),
    (nothing_runs_what_a_file_names, "trust.py", "importlib.import_module(name)\n"),
    (
        nothing_runs_what_a_file_names,
        "a.py",
        (
            "av.open(buffer, 'w', format='mp4')\nav.open(str(path), 'r', options=ONLY)\nImage.open(h,"
            " formats=ONLY)\n"
        ),
    ),
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
    check = (
        f"{script}\nimport sys\nprint([name for name in {names!r} if name in sys.modules], file=sys.stderr)"
    )
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
    assert (
        _loaded_by(
            "import simgap.types, simgap.conventions, simgap.provenance, simgap.compute.machine",
            ("torch", "mujoco", "gymnasium"),
        )
        == []
    )
