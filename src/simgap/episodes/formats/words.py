"""Conventions in words, as a command line or a message carries them: ``deg``, ``delta``, ``opens_low``, ``-90..90``, ``ends:0..4095ticks``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from simgap.conventions import Dimension, Reference, Unit
from simgap.errors import UsageError, did_you_mean

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_LIMITS = re.compile(rf"({_NUMBER})\.\.({_NUMBER})")
_ENDS = re.compile(rf"ends:({_NUMBER})\.\.({_NUMBER})(ticks|deg|rad|m)(?:/({_NUMBER}))?")
_FLAGS: Mapping[str, Mapping[str, Any]] = {
    "gripper": {"is_gripper": True},
    "no_gripper": {"is_gripper": False},
    "opens_high": {"is_gripper": True, "opens_high": True},
    "opens_low": {"is_gripper": True, "opens_high": False},
}
_VALUES = {"sign": int, "zero": float, "frame": str}


def parse_convention(text: str) -> dict[str, Any]:
    """Return the fields of a dimension that comma-separated words state.

    Units (``deg``, ``rad``, ``percent``, ``m`` ...), references (``absolute``, ``delta``, ``chunk_delta``),
    ``gripper``, ``opens_high`` or ``opens_low``, limits ``LOW..HIGH``, a calibrated range
    ``ends:LOW..HIGHticks/4096``, ``sign:-1``, ``zero:90``, ``frame:base``.

    Raises:
        UsageError: a word that means nothing; proposes the nearest.
    """
    fields: dict[str, Any] = {}
    for word in text.split(","):
        fields |= _word(word.strip())
    return fields


def _word(word: str) -> dict[str, Any]:
    if word in tuple(Unit):
        return {"unit": word}
    if word in tuple(Reference):
        return {"reference": word}
    if word in _FLAGS:
        return dict(_FLAGS[word])
    if limits := _LIMITS.fullmatch(word):
        return {"low": float(limits[1]), "high": float(limits[2])}
    if ends := _ENDS.fullmatch(word):
        turn = {"ticks_per_turn": float(ends[4])} if ends[4] else {}
        return {"calibrated": {"low": float(ends[1]), "high": float(ends[2]), "unit": ends[3], **turn}}
    name, sign, value = word.partition(":")
    if sign and name in _VALUES:
        try:
            return {name: _VALUES[name](value)}
        except ValueError as error:
            raise UsageError(
                f"{word!r} has no {'whole ' if name == 'sign' else ''}number; write it like sign:-1 or"
                " zero:90"
            ) from error
    known = [
        *Unit,
        *Reference,
        *_FLAGS,
        "LOW..HIGH",
        "ends:LOW..HIGHticks",
        "sign:-1",
        "zero:90",
        "frame:NAME",
    ]
    raise UsageError(f"{word!r} says nothing of a dimension; {did_you_mean(word, known)}")


def convention_words(dimension: Dimension, fields: tuple[str, ...]) -> str:
    """Return the words by which :func:`parse_convention` gives a dimension these fields again."""
    said = []
    for field in fields:
        value = getattr(dimension, field)
        if field in ("unit", "reference"):
            said.append(str(value))
        elif field == "is_gripper":
            said.append("gripper" if value else "no_gripper")
        elif field == "opens_high":
            said.append("opens_high" if value else "opens_low")
        elif field in _VALUES:
            said.append(f"{field}:{value:g}" if isinstance(value, float) else f"{field}:{value}")
        elif field == "calibrated" and value is not None:
            said.append(f"ends:{value.low:g}..{value.high:g}{value.unit}/{value.ticks_per_turn:g}")
        elif field == "low":
            said.append(f"{dimension.low:g}..{dimension.high:g}")
    return ",".join(said)
