"""Which checks there are: those in the rooms of the families, those of installed packages, and those that a command names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from simgap.causes import TABLE, Cause, Family
from simgap.checks.base import Check
from simgap.compute.plugins import in_room, installed
from simgap.errors import UsageError, did_you_mean
from simgap.trust import load, maker_at

GROUP = "simgap.checks"
"""Entry-point group under which an installed package offers checks; to install a package is to trust it."""


def all_checks(named: Sequence[str] = (), folder: Path | None = None) -> tuple[Check, ...]:
    """Return every check in the order of diagnosis.

    Args:
        named: further checks by ``module:name``, which the command itself names: they are imported and run.
        folder: where their modules are looked for beside the installed packages.

    Raises:
        UsageError: one cannot be imported, is no check, or has the id of another.
    """
    found = [*_built_in(), *_installed()]
    found += [check for text in named if (check := named_check(text, folder)) not in found]
    ids = [check.id for check in found]
    twice = sorted({i for i in ids if ids.count(i) > 1})
    if twice:
        raise UsageError(f"two checks have the id {twice[0]!r}; give one of them another")
    order = list(Family)
    return tuple(sorted(found, key=lambda check: order.index(check.family)))


def find_check(id: str, checks: Sequence[Check]) -> Check:
    """Return the check with this id.

    Raises:
        UsageError: there is none.
    """
    for check in checks:
        if check.id == id:
            return check
    raise UsageError(f"unknown check {id!r}; {did_you_mean(id, [c.id for c in checks])}")


def all_causes(checks: Iterable[Check]) -> dict[str, Cause]:
    """Return every cause that can be named, by id: the table's and those of further checks."""
    return {**TABLE, **{cause.id: cause for check in checks for cause in check.can_name}}


def _built_in() -> list[Check]:
    return [check for family in Family for check in in_room(f"checks.{family}", "CHECK")]


def _installed() -> list[Check]:
    return [_checked(made, text) for text, made in installed(GROUP)]


def named_check(text: str, folder: Path | None = None) -> Check:
    """Return the check that a command names as ``module:name``; it is imported and run.

    Raises:
        UsageError: it cannot be imported, or is no check.
    """
    return _checked(load(maker_at(text, folder or Path.cwd())), text)


def _checked(made: object, text: str) -> Check:
    # A class is as good as its one instance: a check has no state.
    check = made() if isinstance(made, type) else made
    if not isinstance(check, Check):
        lacks = [
            n
            for n in ("id", "question", "family", "needs", "can_name", "assumes", "run")
            if not hasattr(check, n)
        ]
        raise UsageError(f"{text} is no check: it has no {', '.join(lacks)}")
    return check
