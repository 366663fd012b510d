"""The action and state vectors of a foreign dataset: which columns they are made of, and what each number in them means."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from simgap.conventions import Dimension, Unit, VectorSpec
from simgap.episodes.formats.index import Feature
from simgap.episodes.formats.keymap import ACTION_ROLE, STATE_ROLE, KeyMap
from simgap.episodes.formats.layout import ACTION, STATE
from simgap.errors import ConventionError, UsageError, did_you_mean

UNLIMITED = float(np.finfo(np.float32).max)
"""Limit of a dimension whose limits nobody stated; finite, so that it can be stored."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Vector:
    """One vector and where it comes from."""

    key: str
    """Feature it is read as: its own, or one made of several."""
    parts: tuple[str, ...]
    """Stored features, joined in order; empty for a state that nobody measured."""
    spec: VectorSpec
    is_named: bool = True
    """False where the format gives no names and those of ``spec`` only count."""

    @property
    def is_stored(self) -> bool:
        """True when it is one column of the dataset."""
        return self.parts == (self.key,)

    def feature(self) -> Feature:
        """Return the declaration of a vector that is made and not stored."""
        return Feature(key=self.key, dtype="float32", shape=(len(self.spec),), names=self.spec.names)


def make_vector(
    role: str,
    parts: Sequence[str],
    features: Mapping[str, Feature],
    known: Mapping[str, tuple[Dimension, ...]],
    keymap: KeyMap | None,
    rate_hz: float,
    root: Path,
    stem: str = "dim",
) -> Vector:
    """Return the vector of a role; ``stem`` is what dimensions without a name are called and numbered by.

    Raises:
        UsageError: the map gives another number of names than there are dimensions, or one name to two of
            them.
    """
    is_named = all(bool(known.get(key)) or _is_named(features[key]) for key in parts)
    joined = [
        d
        for key in parts
        for d in known.get(key) or unknown_dimensions(features[key], is_one_of=len(parts), stem=stem)
    ]
    names = (keymap.names if keymap is not None else {}).get(role)
    if names is not None:
        if len(names) != len(joined) or len(set(names)) != len(names):
            raise UsageError(
                f"{root}: {len(names)} {role} names were given for {len(joined)} dimensions"
                f" {[d.name for d in joined]}; give each its own"
            )
        joined = [
            changed_dimension(d, {"name": n, "is_gripper": d.is_gripper or _grips(n)})
            for d, n in zip(joined, names, strict=True)
        ]
        is_named = True
    joined, was_renamed = _renamed(joined, role, keymap.rename if keymap is not None else {}, root)
    for pattern, fields in (keymap.dimensions if keymap is not None else {}).items():
        joined = [changed_dimension(d, fields) if matches(pattern, role, d.name) else d for d in joined]
    standard = {ACTION_ROLE: ACTION, STATE_ROLE: STATE}[role]
    key = parts[0] if len(parts) == 1 else standard if standard not in features else f"mapped.{standard}"
    spec = VectorSpec(dimensions=tuple(joined), rate_hz=rate_hz)
    return Vector(key=key, parts=tuple(parts), spec=spec, is_named=is_named or was_renamed)


def _is_named(feature: Feature) -> bool:
    width = feature.shape[0] if feature.shape else 1
    return len(feature.names) == width or width == 1  # a single number is named by its key


def _renamed(
    dimensions: list[Dimension], role: str, rename: Mapping[str, str], root: Path
) -> tuple[list[Dimension], bool]:
    """Return dimensions under the names their owner gives them, and whether any has changed."""
    result = [replace(d, name=renamed(rename, role, d.name)) for d in dimensions]
    names = [d.name for d in result]
    doubled = sorted({n for n in names if names.count(n) > 1})
    if doubled and rename:
        raise UsageError(f"{root}: the {role} would have {doubled} twice; rename them apart")
    return result, [d.name for d in dimensions] != names


def renamed(rename: Mapping[str, str], role: str, name: str) -> str:
    """Return the new name of a dimension; ``action:OLD`` or ``state:OLD`` speaks of one vector, ``OLD`` of both."""
    return rename.get(f"{role}:{name}", rename.get(name, name))


def require_renames(rename: Mapping[str, str], action: Sequence[str], state: Sequence[str]) -> None:
    """Raise unless every name to change is there.

    Raises:
        UsageError: proposes the nearest.
    """
    names = {ACTION_ROLE: action, STATE_ROLE: state}
    for old in rename:
        role, sign, name = old.partition(":")
        there = names[role] if sign and role in names else [*action, *state]
        if (name if sign and role in names else old) not in there:
            raise UsageError(f"no dimension {old!r} to rename; {did_you_mean(old, dict.fromkeys(there))}")


def unknown_dimensions(feature: Feature, *, is_one_of: int = 1, stem: str = "dim") -> tuple[Dimension, ...]:
    """Return the dimensions of a feature of which nothing is known but, with luck, names."""
    width = feature.shape[0] if feature.shape else 1
    own = feature.key.rpartition("/")[2].removeprefix("observation.")
    stem = stem if is_one_of == 1 else own
    names = (
        feature.names
        if len(feature.names) == width
        else (own,)
        if width == 1
        else tuple(f"{stem}_{k}" for k in range(width))
    )
    return tuple(
        Dimension(name=n, unit=Unit.UNKNOWN, low=-UNLIMITED, high=UNLIMITED, is_gripper=_grips(n))
        for n in names
    )


def matches(pattern: str, role: str, name: str) -> bool:
    """Return whether ``[action:|state:]GLOB`` means a dimension."""
    prefix, sign, glob = pattern.partition(":")
    return fnmatch.fnmatchcase(name, glob if sign else pattern) and (not sign or prefix == role)


def require_matches(patterns: Sequence[str], action: VectorSpec, state: VectorSpec) -> None:
    """Raise unless every pattern means at least one dimension.

    Raises:
        UsageError: names the pattern and the dimensions there are.
    """
    named = [(ACTION_ROLE, n) for n in action.names] + [(STATE_ROLE, n) for n in state.names]
    for pattern in patterns:
        prefix, sign, glob = pattern.partition(":")
        if sign and prefix not in (ACTION_ROLE, STATE_ROLE):
            raise UsageError(
                f"{pattern!r} names the vector {prefix!r}; write action:{glob}, state:{glob}, or {glob} for"
                " both"
            )
        if not any(matches(pattern, role, name) for role, name in named):
            raise UsageError(
                f"{pattern!r} means no dimension;"
                f" {did_you_mean(glob if sign else pattern, dict.fromkeys(n for _, n in named))}"
            )


def changed_dimension(dimension: Dimension, fields: Mapping[str, Any]) -> Dimension:
    """Return a dimension with fields of its JSON form replaced.

    Raises:
        UsageError: a value that means nothing.
    """
    plain = dimension.to_json()
    try:
        return Dimension.from_json({**plain, **fields})
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise UsageError(
            f"dimension {dimension.name!r} cannot be {dict(fields)} ({error}); units are {', '.join(Unit)}"
        ) from error
    except ConventionError as error:
        raise UsageError(str(error)) from error


def _grips(name: str) -> bool:
    return "gripper" in name.lower()
