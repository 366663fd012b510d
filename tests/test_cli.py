from __future__ import annotations

import argparse
import errno
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

import simgap.cli
from simgap import __version__
from simgap.cli import _verbs, main
from simgap.errors import DataError, UsageError
from simgap.provenance import write_atomic

Run = Callable[[argparse.Namespace], int]
Plant = Callable[[Run], None]


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Plant:
    """Return a function that adds a verb ``sample`` with this ``run``; it has an option, and a sub-verb ``sub``."""

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--count", type=int, default=1)
        parser.add_subparsers(dest="action").add_parser("sub")

    def plant_it(run: Run) -> None:
        name = "simgap.cli.sample"
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, loader=None)
        module.HELP, module.add_arguments, module.run = "do a sample", add_arguments, run  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.setitem(_verbs.SUMMARIES, "sample", "a planted verb")

    return plant_it


def _raise(error: BaseException) -> Run:
    def run(args: argparse.Namespace) -> int:
        raise error

    return run


def _child(
    *words: str,
    script: str = "import sys; from simgap.cli import main; sys.exit(main())",
    stdout: int | None = None,
) -> subprocess.CompletedProcess[str]:
    out = subprocess.PIPE if stdout is None else stdout
    return subprocess.run(
        [sys.executable, "-c", script, *words], stdout=out, stderr=subprocess.PIPE, text=True, check=False
    )


def test_help_lists_the_verbs_that_exist_in_the_order_of_the_loop(
    plant: Plant, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(lambda args: 0)
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    positions = [text.index(f"\n  {verb} ") for verb in _verbs.known_verbs()]
    assert positions == sorted(positions)
    assert "a planted verb" in text


def test_a_verb_without_a_file_is_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_verbs.SUMMARIES, "absent", "a line without a file")
    assert "absent" not in _verbs.known_verbs()


def test_every_file_of_a_verb_is_in_the_table() -> None:
    files = {
        path.stem for path in Path(simgap.cli.__file__).parent.glob("*.py") if not path.stem.startswith("_")
    }
    assert files <= set(_verbs.SUMMARIES)


def test_every_verb_holds_what_the_frame_calls() -> None:
    for name in _verbs.known_verbs():
        done = _child(name, "--help")
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"usage: simgap {name}")
        assert "--json" in done.stdout


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"simgap {__version__}\n"


def test_no_verb_is_a_wrong_request(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "usage: simgap VERB" in capsys.readouterr().err


def test_an_unknown_verb_gets_the_nearest_one_proposed(
    plant: Plant, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(lambda args: 0)
    assert main(["sampel"]) == 2
    assert "did you mean 'sample'?" in capsys.readouterr().err


def test_an_option_before_the_verb_says_where_it_belongs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "1", "demo"]) == 2
    assert "simgap VERB --seed" in capsys.readouterr().err


def test_every_verb_has_the_common_options_with_their_defaults(plant: Plant) -> None:
    seen: list[argparse.Namespace] = []
    plant(lambda args: seen.append(args) or 0)  # type: ignore[func-returns-value]
    assert main(["sample"]) == 0
    assert main(["sample", "--json", "--out", "runs/a", "--seed", "7", "--count", "3"]) == 0
    assert (seen[0].json, seen[0].out, seen[0].seed, seen[0].count) == (False, None, 0, 1)
    assert (seen[1].json, seen[1].out, seen[1].seed, seen[1].count) == (True, Path("runs/a"), 7, 3)


@pytest.mark.parametrize(
    "words", [["sample", "--json", "--seed", "5", "sub"], ["sample", "sub", "--json", "--seed", "5"]]
)
def test_common_options_count_before_and_after_a_sub_verb(plant: Plant, words: list[str]) -> None:
    seen: list[argparse.Namespace] = []
    plant(lambda args: seen.append(args) or 0)  # type: ignore[func-returns-value]
    assert main(words) == 0
    assert (seen[0].action, seen[0].json, seen[0].seed) == ("sub", True, 5)


@pytest.mark.parametrize("seed", ["-1", "1.5", "x", str(2**63)])
def test_a_seed_is_a_whole_number(plant: Plant, capsys: pytest.CaptureFixture[str], seed: str) -> None:
    plant(lambda args: 0)
    assert main(["sample", f"--seed={seed}"]) == 2
    assert "is not a seed" in capsys.readouterr().err


def test_an_option_is_never_guessed_from_its_first_letters(plant: Plant) -> None:
    plant(lambda args: 0)
    assert main(["sample", "--cou", "3"]) == 2


def test_a_wrong_option_is_one_line(plant: Plant, capsys: pytest.CaptureFixture[str]) -> None:
    plant(lambda args: 0)
    assert main(["sample", "--count", "many"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("simgap: argument --count: invalid int value: 'many'")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (UsageError("no env 'arm'; known: arm_pick"), 2, "no env 'arm'; known: arm_pick"),
        (DataError("meta/info.json\nis missing"), 3, "meta/info.json is missing"),
        (KeyboardInterrupt(), 130, "interrupted; what was finished is on disk"),
        (MemoryError(), 3, "out of memory; use fewer workers, smaller images or a smaller batch"),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 9 bytes"),
            3,
            "out of memory; use fewer workers, smaller images or a smaller batch",
        ),
        (DataError("robot \x1b[31mred\x1b[0m"), 3, "robot ?[31mred?[0m"),
        (
            OSError(errno.ENOSPC, "No space left on device", "runs/a"),
            3,
            "runs/a: no space left on device; free some space or choose another --out",
        ),
        (
            OSError(errno.EFBIG, "File too large", "runs/a"),
            3,
            "runs/a: file too large; raise the limit (ulimit -f) or choose another --out",
        ),
        (
            FileExistsError(errno.EEXIST, "File exists", "runs/a"),
            3,
            "runs/a: file exists; expected a folder or nothing there: choose another --out",
        ),
        (
            NotADirectoryError(errno.ENOTDIR, "Not a directory", "a/b"),
            3,
            "a/b: not a directory; part of the path is a file: check the path",
        ),
        (
            PermissionError(errno.EACCES, "Permission denied", "/root/a"),
            3,
            "/root/a: permission denied; choose another path or change its permissions",
        ),
    ],
)
def test_an_error_is_one_line_and_an_exit_code(
    plant: Plant, capsys: pytest.CaptureFixture[str], error: BaseException, code: int, message: str
) -> None:
    plant(_raise(error))
    assert main(["sample"]) == code
    captured = capsys.readouterr()
    assert captured.err == f"simgap: {message}\n"
    assert captured.out == ""


def test_a_file_that_a_full_disk_cuts_short_is_named_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space") as caught:
        write_atomic(tmp_path / "card.json", "{}")
    assert caught.value.filename == str(tmp_path / "card.json")
    assert list(tmp_path.iterdir()) == []


def test_an_error_with_json_is_one_document(plant: Plant, capsys: pytest.CaptureFixture[str]) -> None:
    plant(_raise(DataError("the index is torn")))
    assert main(["sample", "--json"]) == 3
    assert json.loads(capsys.readouterr().out) == {
        "error": "the index is torn",
        "kind": "DataError",
        "exit": 3,
    }


def test_a_wrong_option_with_json_is_one_document(plant: Plant, capsys: pytest.CaptureFixture[str]) -> None:
    plant(lambda args: 0)
    assert main(["sample", "--json", "--nonsense"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert (document["kind"], document["exit"]) == ("UsageError", 2)


def test_a_defect_is_one_line_that_says_where_the_traceback_is(
    plant: Plant, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    plant(_raise(KeyError("elbow")))
    assert main(["sample", "--count", "2"]) == 3
    error = capsys.readouterr().err
    assert error.startswith("simgap: a defect of simgap (KeyError: 'elbow'); please report it with ")
    assert error.count("\n") == 1
    (log,) = tmp_path.iterdir()
    assert str(log) in error
    assert "Traceback (most recent call last)" in log.read_text()
    assert "command: simgap sample --count 2" in log.read_text()


def test_a_traceback_that_cannot_be_saved_is_said(
    plant: Plant, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "absent"))
    plant(_raise(KeyError("elbow")))
    assert main(["sample"]) == 3
    assert "run again with --debug" in capsys.readouterr().err


def test_debug_shows_the_traceback(plant: Plant, capsys: pytest.CaptureFixture[str]) -> None:
    plant(_raise(DataError("torn")))
    assert main(["sample", "--debug"]) == 3
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_the_exit_code_of_a_verb_is_passed_on(plant: Plant) -> None:
    plant(lambda args: 1)
    assert main(["sample"]) == 1


_LONG = """
import argparse, sys
from simgap import cli
class Verb:
    HELP = ""
    def add_arguments(self, parser): pass
    def run(self, args):
        from simgap.cli._output import emit
        emit(args, {"x": list(range(100000))}, lambda console: console.print("x\\n" * 100000))
        return 0
cli.load_verb = lambda name: Verb()
sys.exit(cli.main())
"""


@pytest.mark.parametrize("option", ["--json", "--quiet"])
def test_a_reader_that_leaves_is_no_error(option: str) -> None:
    read, write = os.pipe()
    os.close(read)
    done = _child("any", option, script=_LONG, stdout=write)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_standard_output_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        done = _child("any", "--json", script=_LONG, stdout=full.fileno())
    assert done.returncode == 3
    assert done.stderr == "simgap: no space left on device; free some space or choose another --out\n"


_FOREIGN = r"""
import sys
from simgap import cli
from simgap.errors import DataError
class Verb:
    HELP = ""
    def add_arguments(self, parser): pass
    def run(self, args):
        from simgap.cli._output import emit, foreign
        name = "z\u00e4h \ud800 \x1b[31m [red]"
        if args.quiet:
            raise DataError(name)
        emit(args, {"name": name}, lambda console: console.print(foreign(name)))
        return 0
cli.load_verb = lambda name: Verb()
sys.exit(cli.main())
"""


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("words", [[], ["--json"], ["--quiet", "--json"]], ids=["page", "document", "error"])
def test_names_that_others_wrote_are_shown_whatever_they_hold(
    words: list[str], encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", encoding)
    done = subprocess.run([sys.executable, "-c", _FOREIGN, "any", *words], capture_output=True, check=False)
    output = done.stdout.decode(encoding)
    assert b"defect" not in done.stderr
    assert done.returncode == (3 if "--quiet" in words else 0)
    if not words:
        assert "?[31m [red]" in output
        assert "\x1b" not in output
    else:
        shown = json.loads(output)
        assert (
            shown.get("name", shown.get("error"))
            == "z\u00e4h \ud800 " + ("?" if "--quiet" in words else "\x1b") + "[31m [red]"
        )


def test_closed_standard_streams_are_no_defect() -> None:
    command = (
        f"exec {shlex.quote(sys.executable)} -c 'import sys; from simgap.cli import main; sys.exit(main())'"
        " --version >&- 2>&-"
    )
    assert subprocess.run(command, shell=True, check=False).returncode == 0
