"""The command line: one verb a step of the loop, each in a file of its own that is imported when it is called.

Exit codes: 0 done, 1 a finding that needs attention, 2 the request is wrong, 3 it could not be done, 130
interrupted, 143 terminated.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence

from simgap import __version__
from simgap.cli import _failures
from simgap.cli._arguments import VerbParser, parse, trust_of
from simgap.cli._verbs import known_verbs, load_verb
from simgap.compute import machine
from simgap.errors import UsageError

USAGE = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; no exception leaves."""
    words = list(sys.argv[1:] if argv is None else argv)
    _failures.tolerate_any_text()
    try:
        code = _dispatch(words)
        sys.stdout.flush()
    except SystemExit as stop:  # argparse after --help
        return stop.code if isinstance(stop.code, int) else USAGE
    except BrokenPipeError:
        _failures.drop_stdout()
        return _failures.PIPE_CLOSED
    except (Exception, KeyboardInterrupt) as error:
        return _fail(error, words)
    return code


def _dispatch(words: list[str]) -> int:
    match words:
        case []:
            print(_overview(), file=sys.stderr)
            return USAGE
        case ["-h" | "--help" | "help", *_]:
            print(_overview())
            return 0
        case ["--version" | "-V", *_]:
            print(f"simgap {__version__}")
            return 0
        case [option, *_] if option.startswith("-"):
            raise UsageError(
                f"{option} stands before the verb; write `simgap VERB {option} ...`, see `simgap --help`"
            )
    name, *rest = words
    machine.apply_environment(machine.rendering_environment() | machine.arithmetic_environment())
    verb = load_verb(name)
    parser = VerbParser(prog=f"simgap {name}", description=verb.HELP)
    verb.add_arguments(parser)
    args = parse(parser, rest)
    from simgap.trust import granted  # after --help, which loads nothing heavy

    with granted(trust_of(args)):
        return verb.run(args)


def _fail(error: BaseException, words: list[str]) -> int:
    if "--debug" in words:
        traceback.print_exception(error)
    failure = _failures.describe(error, words)
    try:
        _failures.tell(failure, as_json="--json" in words)
        sys.stdout.flush()
    except OSError:  # nobody reads, or the disk under the redirection is full
        _failures.drop_stdout()
    return failure.exit_code


def _overview() -> str:
    verbs = known_verbs()
    width = max(map(len, verbs), default=0)
    lines = [f"  {name:<{width}}  {line}" for name, line in verbs.items()]
    return "\n".join(
        [
            "usage: simgap VERB [options]      simgap VERB --help      simgap --version",
            "",
            (
                "Gets a robot policy from simulation to reality, and says honestly which thing is broken on"
                " the way."
            ),
            "",
            "verbs, in the order of the loop:",
            *lines,
            "",
            "Every verb takes --json, --out PATH, --seed N, --quiet, --allow-code and --debug.",
            (
                "Exit codes: 0 done, 1 a finding that needs attention, 2 wrong request, 3 could not, 130"
                " interrupted, 143 terminated."
            ),
        ]
    )
