"""Which mutants there are: those of this room, those of installed packages, and those that a command names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from simgap.compute.plugins import in_room, installed
from simgap.errors import UsageError, did_you_mean
from simgap.mutants.base import Mutant
from simgap.trust import load, maker_at

GROUP = "simgap.mutants"
"""Entry-point group under which an installed package offers mutants."""


def all_mutants(named: Sequence[str] = (), folder: Path | None = None) -> tuple[Mutant, ...]:
    """Return every mutant, by family and then by id.

    Args:
        named: further mutants by ``module:name``, which the command itself names: they are imported and run.
        folder: where their modules are looked for beside the installed packages.

    Raises:
        UsageError: one cannot be imported, is no mutant, or has the id of another.
    """
    found = [mutant for group in in_room("mutants", "MUTANTS") for mutant in group]
    found += [_checked(made, text) for text, made in installed(GROUP)]
    found += [_checked(load(maker_at(text, folder or Path.cwd())), text) for text in named]
    ids = [mutant.id for mutant in found]
    twice = sorted({i for i in ids if ids.count(i) > 1})
    if twice:
        raise UsageError(f"two mutants have the id {twice[0]!r}; give one of them another")
    return tuple(sorted(found, key=lambda m: (str(m.seam), m.id)))


def find_mutant(id: str, mutants: Sequence[Mutant]) -> Mutant:
    """Return the mutant with this id.

    Raises:
        UsageError: there is none.
    """
    for mutant in mutants:
        if mutant.id == id:
            return mutant
    raise UsageError(f"unknown mutant {id!r}; {did_you_mean(id, [m.id for m in mutants])}")


def _checked(made: object, text: str) -> Mutant:
    mutant = made() if isinstance(made, type) else made
    if not isinstance(mutant, Mutant):
        needed = ("id", "what", "family", "seam", "strength", "breaks", "expected", "found_by", "apply")
        lacks = [n for n in needed if not hasattr(mutant, n)]
        raise UsageError(f"{text} is no mutant: it has no {', '.join(lacks)}")
    return mutant
