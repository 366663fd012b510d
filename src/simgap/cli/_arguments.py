"""The parser every verb gets: common options in one place, errors as exceptions instead of exits."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from simgap.errors import UsageError

if TYPE_CHECKING:
    from simgap.trust import Trust

COMMON_DEFAULTS: dict[str, Any] = {
    "json": False,
    "out": None,
    "seed": 0,
    "quiet": False,
    "debug": False,
    "allow_code": False,
}


_HOW_IT_IS_SHOWN = ("--json", "--quiet", "--debug")
"""Options that a message does not repeat with the rest of a command."""


class VerbParser(argparse.ArgumentParser):
    """A parser with the common options, as are the sub-parsers a verb adds to it.

    The common options hold no defaults of their own: ``simgap data --json check`` and ``simgap data check
    --json`` then mean the same. :func:`parse` fills in what nobody gave.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "allow_abbrev": False})
        common = self.add_argument_group("common options")
        keep = argparse.SUPPRESS
        common.add_argument(
            "--json",
            action="store_true",
            default=keep,
            help="one JSON document on standard output, everything else on standard error",
        )
        common.add_argument("--out", type=Path, metavar="PATH", default=keep, help="where to write")
        common.add_argument(
            "--seed", type=_seed, metavar="N", default=keep, help="root of every random draw (default 0)"
        )
        common.add_argument(
            "--quiet", action="store_true", default=keep, help="no progress on standard error"
        )
        common.add_argument(
            "--allow-code",
            action="store_true",
            default=keep,
            help="let files name code, programs and keys to use: only for files you trust",
        )
        common.add_argument(
            "--debug", action="store_true", default=keep, help="show the traceback of an error"
        )

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing a usage block, so that every error leaves by one door.

        Raises:
            UsageError: always.
        """
        raise UsageError(f"{message}; see `{self.prog} --help`")


def parse(parser: argparse.ArgumentParser, argv: list[str]) -> argparse.Namespace:
    """Parse, then fill in the common options that neither the user nor the verb's ``set_defaults`` gave."""
    args = parser.parse_args(argv)
    args.words = tuple(word for word in argv if word not in _HOW_IT_IS_SHOWN)
    for name, value in COMMON_DEFAULTS.items():
        if name not in args:
            setattr(args, name, value)
    return args


class EnvName(str):
    """The name of an env on the command line, or ``module:function``: only there does a text like that name code to run."""

    __slots__ = ()


def trust_of(args: argparse.Namespace) -> Trust:
    """Return what the command allows to run, and put the env's own name in place of a maker that it names.

    Raises:
        UsageError: a maker that cannot be imported or makes something else.
    """
    from simgap.trust import Trust, is_maker

    makers = []
    for option, value in list(vars(args).items()):
        if isinstance(value, EnvName) and is_maker(value) and not Path(value).exists():
            from simgap.envs.registry import named_maker

            makers.append(named_maker(str(value), Path.cwd()))
            setattr(args, option, makers[-1].name)
    return Trust(makers=tuple(makers), any_code=args.allow_code)


def _seed(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = -1
    if not 0 <= value < 2**63:
        raise argparse.ArgumentTypeError(f"{text!r} is not a seed; give a whole number from 0 to 2**63 - 1")
    return value
