"""``simgap envs add``: remember a function that makes an env, so that every verb knows it by name."""

from __future__ import annotations

import argparse
from pathlib import Path

from simgap.cli._output import emit

HELP = "add an env of your own by the function that makes it, module:function; every verb then knows it by its name"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing: the maker is all."""


def run(args: argparse.Namespace) -> int:
    """Make the env, hold it against its map and remember it."""
    from simgap.cli.envs import show_lines
    from simgap.envs.registry import add_env, registry_path

    env = add_env(args.env, Path.cwd())
    document = {"name": env.name, "maker": args.env, "cameras": list(env.cameras), "action": list(env.action_spec.names), "registry": registry_path()}
    env.close()
    lines = (
        f"added {env.name}: {env.task}",
        f"  cameras {', '.join(env.cameras)}; {len(env.action_spec)} actions at {env.action_spec.rate_hz:g} Hz",
        f"next: simgap envs check {env.name}",
    )
    emit(args, document, lambda console: show_lines(console, *lines))
    return 0
