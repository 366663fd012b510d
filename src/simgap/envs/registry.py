"""Envs that a user added: a name, and the function that makes them. What of it may run is decided in :mod:`simgap.trust`."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from simgap.envs.base import TaskEnv
from simgap.envs.factors import FactorRanges
from simgap.errors import UsageError
from simgap.trust import Maker, current, load, maker_at, store_makers, stored_makers

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")


def added_envs() -> dict[str, Maker]:
    """Return every env that may be made by name, beside our own: those added, and one that the command named by its maker.

    Raises:
        DataError: the store is damaged.
        UsageError: an entry of it is not a maker.
    """
    return {m.name: m for m in current().makers}


def named_maker(maker: str, folder: Path) -> Maker:
    """Return a maker that the command names, under the name of the env it makes. It is run: to name it there is to allow it.

    Raises:
        UsageError: the maker cannot be imported, makes something else, or a name that is taken.
    """
    entry, env = _tried(maker, folder)
    env.close()
    return entry


def add_env(maker: str, folder: Path) -> TaskEnv:
    """Make an env from ``module:function``, remember it under its own name with a hash of its code, and return it.

    Raises:
        UsageError: the maker cannot be imported, makes something else, or a name that is taken.
    """
    entry, env = _tried(maker, folder)
    store_makers({**stored_makers(), entry.name: entry})
    return env


def _tried(maker: str, folder: Path) -> tuple[Maker, TaskEnv]:
    from simgap.envs import ENVS

    entry = maker_at(maker, folder)
    env = build(entry, image_size=96, ranges=None, render=True)
    if not _NAME.fullmatch(env.name):
        raise UsageError(
            f"{maker} makes an env called {env.name!r}; a name has lower-case letters, digits and hyphens,"
            " such as my-env"
        )
    if env.name in ENVS:
        raise UsageError(
            f"{maker} makes an env called {env.name!r}, which simgap has itself; give it another name"
        )
    known = stored_makers()
    if env.name in known and known[env.name].maker != maker:
        raise UsageError(
            f"an env called {env.name!r} was added from {known[env.name].maker}; `simgap envs remove"
            f" {env.name}` first, or rename one"
        )
    return replace(entry, name=env.name), env


def remove_env(name: str) -> None:
    """Forget an added env.

    Raises:
        UsageError: none of that name was added.
    """
    known = stored_makers()
    if name not in known:
        raise UsageError(f"no env called {name!r} was added; added are: {', '.join(sorted(known)) or 'none'}")
    store_makers({k: v for k, v in known.items() if k != name})


def build(entry: Maker, *, image_size: int, ranges: FactorRanges | None, render: bool) -> TaskEnv:
    """Make an added env.

    Raises:
        UntrustedError: its code is not the code that was allowed.
        UsageError: the maker cannot be imported or makes something else.
    """
    made = load(entry)(image_size=image_size, ranges=ranges, render=render)
    if not isinstance(made, TaskEnv):
        raise UsageError(
            f"{entry.maker} made a {type(made).__name__}, not one of our envs; return what"
            " simgap.envs.wrap.wrap() gives"
        )
    return made
