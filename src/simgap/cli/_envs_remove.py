"""``simgap envs remove``: forget an env that was added."""

from __future__ import annotations

import argparse

from simgap.cli._output import emit

HELP = "forget an env that was added; nothing of it is deleted"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the name."""
    parser.add_argument("env", metavar="NAME", help="env that was added")


def run(args: argparse.Namespace) -> int:
    """Forget it."""
    from simgap.cli._output import show_lines
    from simgap.envs.registry import remove_env

    remove_env(args.env)
    emit(args, {"removed": args.env}, lambda console: show_lines(console, f"removed {args.env}"))
    return 0
