"""What may be run: code, programs and secrets that a text names, and who has said that they may.

A file is data. Whatever it names that would be *run* (a function that makes an env, an interpreter, a
checkpoint's own classes) passes one door, :func:`require_allowed` or :func:`load`, and that door opens only
by what the person at the command line said:

* the command itself named it (``--env module:function``);
* it stands in the user's own store, entered by ``simgap envs add`` or by a policy file that ``simgap policy describe`` wrote,
  with a hash of its content, and the content is still that;
* the command has ``--allow-code``.

The decision is a value, :class:`Trust`. It is made once, where the command is read, and travels with the job
to worker processes, to a cluster and to a surrogate; nobody there decides anew. Where no decision was made,
only the user's own store counts. See ``docs/design/17-trust.md`` for what this protects against and what not.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.machinery
import importlib.util
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from simgap.errors import UntrustedError, UsageError
from simgap.provenance import file_hash, read_json, write_atomic

_MAKER = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_DIGEST = re.compile(r"[0-9a-f]{64}")
FLAG = "--allow-code"


@dataclass(frozen=True, kw_only=True, slots=True)
class Maker:
    """A function that makes an env, and the code that was there when it was allowed."""

    maker: str
    """``module:function``; called with ``image_size``, ``ranges`` and ``render``."""
    folder: str
    """Where the module was found; joins ``sys.path`` when it is imported."""
    sha256: str = ""
    """Of the module's file and its packages' ``__init__`` files; empty in an entry that was made without one, which makes nothing."""
    name: str = ""
    """Of the env it makes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trust:
    """What may be run in this process. Plain values, so that it can be sent along with a job."""

    makers: tuple[Maker, ...] = ()
    """Makers of envs that the command named."""
    any_code: bool = False
    """``--allow-code``: whatever the files of this command name."""
    files: tuple[str, ...] = ()
    """Content hashes of files that may name what is run."""
    is_complete: bool = False
    """Whether the user's own store is in here already, as it is where a job was sent with its trust; it is then not read again."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Trust:
        """Return the trust of :meth:`to_json`, for a child process of our own."""
        makers = tuple(Maker(**m) for m in data["makers"])
        return cls(
            makers=makers,
            any_code=bool(data["any_code"]),
            files=tuple(data["files"]),
            is_complete=bool(data["is_complete"]),
        )


_CURRENT: ContextVar[Trust] = ContextVar("simgap_trust", default=Trust())  # noqa: B039


@contextmanager
def granted(trust: Trust) -> Iterator[None]:
    """Run the block under a decision; the one before holds again afterwards."""
    token = _CURRENT.set(trust)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def current() -> Trust:
    """Return the decision in force with the user's own store in it: what a job is sent with.

    Raises:
        DataError: the store cannot be read.
        UsageError: an entry of it cannot be used.
    """
    here = _CURRENT.get()
    if here.is_complete:
        return here
    named = {m.name for m in here.makers}
    stored = tuple(m for name, m in stored_makers().items() if name not in named)
    return replace(
        here, makers=(*here.makers, *stored), files=(*here.files, *stored_files()), is_complete=True
    )


def require_allowed(named: str, *, what: str, by: Path | str, instead: str) -> None:
    """Raise unless what a file names may be run or read out.

    Args:
        named: the text in the file.
        what: what it would do, as in "a program to start".
        by: the file, or where the text came from.
        instead: how to allow exactly this, for the message.

    Raises:
        UntrustedError: says what was named, by which file, and what would allow it.
    """
    trust = current()
    if trust.any_code or (isinstance(by, Path) and by.is_file() and file_hash(by) in trust.files):
        return
    raise UntrustedError(
        f"{by} names {what}: {named!r:.120}; a file runs nothing here by itself. If you trust it: {instead},"
        f" or give this command {FLAG}"
    )


def is_maker(text: str) -> bool:
    """Return whether a text has the form ``module:function``."""
    return _MAKER.fullmatch(text) is not None


def maker_at(maker: str, folder: Path) -> Maker:
    """Return a maker with the hash of the code that is there now. Nothing is imported.

    Raises:
        UsageError: no ``module:function``, or no such module.
    """
    if not is_maker(maker):
        raise UsageError(f"{maker[:80]!r} is not module:function, for example examples.wrapped_envs:pusht")
    where = str(folder.resolve())
    return Maker(maker=maker, folder=where, sha256=_digest(_sources(maker, where)))


def load(maker: Maker) -> Callable[..., Any]:
    """Import a maker's module, if it is still the code that was allowed, and return the function.

    Raises:
        UntrustedError: the code has changed, or another module of that name is in its place.
        UsageError: it cannot be imported, or has no such function.
    """
    module_name, _, function_name = maker.maker.partition(":")
    sources = _sources(maker.maker, maker.folder)
    add = f"simgap envs add {maker.maker}"
    if not maker.sha256:
        raise UntrustedError(
            f"{maker.maker} was added without a hash of its code; look at {sources[-1]} and run `{add}` again"
        )
    if _digest(sources) != maker.sha256:
        raise UntrustedError(
            f"{sources[-1]} has changed since {maker.maker} was allowed; look at what changed, then run"
            f" `{add}` again"
        )
    if maker.folder and maker.folder not in sys.path:
        sys.path.append(maker.folder)
    if (found := _sources(maker.maker)) != sources:
        raise UntrustedError(
            f"{maker.maker} was allowed as {sources[-1]}, and Python would take {found[-1]} for it; rename"
            " one of them"
        )
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise UsageError(
            f"{maker.maker} cannot be imported ({error}); run from the folder that holds it, or install what"
            " it needs"
        ) from error
    if Path(getattr(module, "__file__", None) or "").resolve() != sources[-1]:
        raise UntrustedError(
            f"{maker.maker} was allowed as {sources[-1]}, and another module of that name is loaded already;"
            " rename one of them"
        )
    function = getattr(module, function_name, None)
    if not callable(function):
        raise UsageError(f"module {module_name} has no function {function_name!r}")
    return function  # type: ignore[no-any-return]


def _sources(maker: str, folder: str = "") -> list[Path]:
    """Return the files of a module and of the packages around it, outermost first, without importing any.

    Args:
        maker: ``module:function``.
        folder: looked into first; by default only where Python itself would look.

    Raises:
        UsageError: there is no such module in Python files.
    """
    parts = maker.partition(":")[0].split(".")
    files: list[Path] = []
    within: list[str] | None = None
    for depth in range(1, len(parts) + 1):
        name = ".".join(parts[:depth])
        spec = (
            _outermost(name, folder)
            if within is None
            else importlib.machinery.PathFinder.find_spec(name, within)
        )
        is_last = depth == len(parts)
        if spec is None or not (spec.has_location if is_last else spec.submodule_search_locations):
            where = f"{folder} or among the installed packages" if folder else "what Python looks through"
            raise UsageError(
                f"{maker} cannot be imported: no Python file of {name!r} in {where}; run from the folder that"
                " holds it, or install what it needs"
            )
        within = list(spec.submodule_search_locations or ())
        if spec.has_location and spec.origin is not None:
            files.append(Path(spec.origin).resolve())
    return files


def _outermost(name: str, folder: str) -> importlib.machinery.ModuleSpec | None:
    found = importlib.machinery.PathFinder.find_spec(name, [folder]) if folder else None
    try:
        return found or importlib.util.find_spec(name)
    except ValueError:  # a module without a spec, such as the one that was started
        return None


def _digest(files: list[Path]) -> str:
    return hashlib.sha256("".join(file_hash(f) for f in files).encode()).hexdigest()


def store_folder() -> Path:
    """Return the folder of what the user has allowed: ``$XDG_CONFIG_HOME/simgap``."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "simgap"


def makers_file() -> Path:
    """Return the file that remembers added envs."""
    return store_folder() / "envs.json"


def files_file() -> Path:
    """Return the file that remembers which files may name what is run, by content."""
    return store_folder() / "trusted.json"


def stored_makers() -> dict[str, Maker]:
    """Return every added env by name.

    Raises:
        DataError: the store is damaged.
        UsageError: an entry of it is not a maker.
    """
    found: dict[str, Maker] = {}
    for name, entry in _stored(makers_file()).items():
        if not isinstance(entry, dict) or not is_maker(str(entry.get("maker"))):
            raise UsageError(
                f"{makers_file()} holds {name!r}, which is not an env (expected maker and folder); repair or"
                " delete the file"
            )
        found[name] = Maker(
            maker=str(entry["maker"]),
            folder=str(entry.get("folder", "")),
            sha256=str(entry.get("sha256", "")),
            name=name,
        )
    return found


def stored_files() -> tuple[str, ...]:
    """Return the hashes of the files that were allowed.

    Raises:
        DataError: the store is damaged.
    """
    return tuple(digest for digest in _stored(files_file()) if _DIGEST.fullmatch(digest))


def store_makers(makers: Mapping[str, Maker]) -> None:
    """Write the added envs."""
    _store(
        makers_file(),
        {name: {"maker": m.maker, "folder": m.folder, "sha256": m.sha256} for name, m in makers.items()},
    )


def store_file(path: Path) -> None:
    """Remember that a file, as it is now, may name what is run."""
    _store(files_file(), {**_stored(files_file()), file_hash(path): str(path.resolve())})


def _stored(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    data = read_json(path)
    if not isinstance(data, dict):
        raise UsageError(f"{path} is not a JSON object; repair or delete the file")
    return {str(k): v for k, v in data.items()}


def _store(path: Path, entries: Mapping[str, Any]) -> None:
    write_atomic(path, (json.dumps(dict(sorted(entries.items())), indent=2) + "\n").encode())
