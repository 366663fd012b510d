"""Options that several verbs take, and how their values are read."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simgap.envs.base import TaskEnv
    from simgap.envs.factors import FactorRanges


MOST = 10_000_000
"""Of anything that is counted: a slip of the finger must not fill the memory with a list of what is to be done."""


def count(text: str) -> int:
    """Read a whole number from 1 to :data:`MOST`."""
    if _whole(text, 1) > MOST:
        raise argparse.ArgumentTypeError(f"{text[:40]} is more than {MOST:,}")
    return int(text)


def whole(text: str) -> int:
    """Read a whole number from 0."""
    return _whole(text, 0)


def _whole(text: str, least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least}")
    return value


def amount(text: str) -> float:
    """Read a finite number from 0."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0")
    return value


def names(text: str) -> tuple[str, ...]:
    """Read names separated by commas."""
    found = tuple(part.strip() for part in text.split(","))
    if not all(found):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of names separated by commas")
    return found


class Names(argparse.Action):
    """Keeps the names of an option that takes them apart, with commas between them, or both."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Put all names into one tuple."""
        setattr(namespace, self.dest, tuple(name for part in values for name in part))


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Add ``--engine``."""
    parser.add_argument(
        "--engine",
        default="mujoco",
        metavar="NAME",
        help="physics engine: mujoco (default) or drake (pip install 'simgap[drake]')",
    )


def add_renderer(parser: argparse.ArgumentParser) -> None:
    """Add ``--renderer``."""
    parser.add_argument(
        "--renderer",
        default="opengl",
        metavar="NAME",
        help="what draws the frames: opengl (default) or filament, which needs a Vulkan driver",
    )


def add_workers(parser: argparse.ArgumentParser) -> None:
    """Add ``--workers``."""
    parser.add_argument(
        "--workers",
        type=whole,
        metavar="N",
        help="worker processes (default: one a usable core; 0: none, everything in this process)",
    )


def workers_of(args: argparse.Namespace) -> int:
    """Return the number of worker processes asked for, or one a usable core."""
    from simgap.compute.machine import usable_cores

    return int(usable_cores() if args.workers is None else args.workers)


def preset_of(env: TaskEnv, name: str) -> FactorRanges:
    """Return a preset of an env.

    Raises:
        UsageError: unknown name; proposes the nearest.
    """
    from simgap.errors import UsageError, did_you_mean

    if name not in env.presets:
        raise UsageError(f"{env.name} has no factor preset {name!r}; {did_you_mean(name, env.presets)}")
    return env.presets[name]
