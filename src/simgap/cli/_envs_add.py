"""``simgap envs add``: remember a function that makes an env, so that every verb knows it by name."""

from __future__ import annotations

import argparse
from pathlib import Path

from simgap.cli._output import emit

HELP = (
    "add an env of your own by the function that makes it (module:function); every verb then knows it by its"
    " name"
)
_DESCRIPTION = (
    "Add an env of your own. MODULE:FUNCTION is a function in a Python file in this folder or among the"
    " installed packages. It is called as FUNCTION(image_size=96, ranges=None, render=True) and returns what"
    " simgap.envs.wrap.wrap(env, WrapMap(...)) gives: any gymnasium env, and a map that names its cameras,"
    " its state and actions with their units, what judges success, and the name under which it is added. With"
    " a teacher in the map (WrapMap(teacher=...), a solver that sees the full state) `simgap generate`"
    " records episodes; without one they have to be recorded. examples/wrapped_envs.py has envs with and"
    " without a teacher. Adding is trust: the file is run now and whenever the env is used, also when a data"
    " file or a policy file names the env. A hash of the file is kept, and once the file has changed it runs"
    " nothing until you have added it again; what the file imports is not part of the hash."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the maker."""
    parser.description = _DESCRIPTION
    parser.add_argument(
        "env",
        metavar="MODULE:FUNCTION",
        help="for example examples.wrapped_envs:slide, from the folder that holds examples/",
    )


def run(args: argparse.Namespace) -> int:
    """Make the env, hold it against its map and remember it."""
    from simgap.cli._output import show_lines
    from simgap.envs.registry import add_env
    from simgap.trust import makers_file

    env = add_env(args.env, Path.cwd())
    document = {
        "name": env.name,
        "maker": args.env,
        "cameras": list(env.cameras),
        "action": list(env.action_spec.names),
        "registry": makers_file(),
    }
    env.close()
    lines = (
        f"added {env.name}: {env.task}",
        (
            f"  cameras {', '.join(env.cameras)}; {len(env.action_spec)} actions at"
            f" {env.action_spec.rate_hz:g} Hz"
        ),
        f"next: simgap envs check {env.name}",
    )
    emit(args, document, lambda console: show_lines(console, *lines))
    return 0
