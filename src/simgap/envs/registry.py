"""Envs that a user added: a name, and the function that makes them."""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from simgap.envs.base import TaskEnv
from simgap.envs.factors import FactorRanges
from simgap.errors import UsageError
from simgap.provenance import read_json, write_atomic

_MAKER = re.compile(r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")
_NAME = re.compile(r"^[a-z0-9][a-z0-9-]{0,63}$")


@dataclass(frozen=True, kw_only=True, slots=True)
class AddedEnv:
    """One entry of the registry."""

    maker: str
    """``module:function``; called with ``image_size``, ``ranges`` and ``render``."""
    folder: str
    """Where the module was found; joins ``sys.path`` when it is imported."""


def registry_path() -> Path:
    """Return the file that remembers added envs: ``$XDG_CONFIG_HOME/simgap/envs.json``."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "simgap" / "envs.json"


def added_envs() -> dict[str, AddedEnv]:
    """Return every added env by name.

    Raises:
        DataError: the registry is damaged.
        UsageError: an entry of it is no maker.
    """
    path = registry_path()
    if not path.exists():
        return {}
    found: dict[str, AddedEnv] = {}
    for name, entry in dict(read_json(path)).items():
        if not isinstance(entry, dict) or not _MAKER.match(str(entry.get("maker"))):
            raise UsageError(f"{path} holds {name!r}, which is no env (expected maker and folder); repair or delete the file")
        found[str(name)] = AddedEnv(maker=str(entry["maker"]), folder=str(entry.get("folder", "")))
    return found


def add_env(maker: str, folder: Path) -> TaskEnv:
    """Make an env from ``module:function``, remember it under its own name, and return it.

    Raises:
        UsageError: the maker cannot be imported, makes something else, or a name that is taken.
    """
    from simgap.envs import ENVS

    entry = AddedEnv(maker=maker, folder=str(folder.resolve()))
    env = build(entry, image_size=96, ranges=None, render=True)
    if not _NAME.match(env.name):
        raise UsageError(f"{maker} makes an env called {env.name!r}; a name has lower-case letters, digits and hyphens, such as my-env")
    if env.name in ENVS:
        raise UsageError(f"{maker} makes an env called {env.name!r}, which simgap has itself; give it another name")
    known = added_envs()
    if env.name in known and known[env.name].maker != maker:
        raise UsageError(f"an env called {env.name!r} was added from {known[env.name].maker}; `simgap envs remove {env.name}` first, or rename one")
    _store({**known, env.name: entry})
    return env


def remove_env(name: str) -> None:
    """Forget an added env.

    Raises:
        UsageError: none of that name was added.
    """
    known = added_envs()
    if name not in known:
        raise UsageError(f"no env called {name!r} was added; added are: {', '.join(sorted(known)) or 'none'}")
    _store({k: v for k, v in known.items() if k != name})


def build(entry: AddedEnv, *, image_size: int, ranges: FactorRanges | None, render: bool) -> TaskEnv:
    """Make an added env.

    Raises:
        UsageError: the maker cannot be imported or makes something else.
    """
    if not _MAKER.match(entry.maker):
        raise UsageError(f"{entry.maker[:80]!r} is no maker; give module:function, for example examples.wrapped_envs:pusht")
    made = _function(entry)(image_size=image_size, ranges=ranges, render=render)
    if not isinstance(made, TaskEnv):
        raise UsageError(f"{entry.maker} made a {type(made).__name__}, not one of our envs; return what simgap.envs.wrap.wrap() gives")
    return made


def _function(entry: AddedEnv) -> Callable[..., Any]:
    module_name, _, function_name = entry.maker.partition(":")
    if entry.folder and entry.folder not in sys.path:
        sys.path.append(entry.folder)
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise UsageError(f"{entry.maker} cannot be imported ({error}); run from the folder that holds it, or install what it needs") from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise UsageError(f"module {module_name} has no function {function_name!r}")
    return function  # type: ignore[no-any-return]


def _store(entries: dict[str, AddedEnv]) -> None:
    path = registry_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, (json.dumps({k: asdict(v) for k, v in sorted(entries.items())}, indent=2) + "\n").encode())
