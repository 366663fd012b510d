"""Plain copies of what is stored in a row."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any, TypeVar

from simgap.errors import DataError, UsageError, did_you_mean
from simgap.ledger.rows import Row
from simgap.provenance import canonical_json

_E = TypeVar("_E", bound=StrEnum)


def member_of(family: type[_E], value: _E | str, what: str) -> _E:
    """Return the member of an enum, or raise with the words that there are."""
    try:
        return family(value)
    except ValueError as error:
        raise UsageError(
            f"unknown {what} {value!r}; {did_you_mean(str(value), [str(member) for member in family])}"
        ) from error


def plain_copy(row: Row) -> Row:
    """Return a row whose payload may be changed: grades are computed from what is on disk."""
    return replace(row, payload=copy.deepcopy(row.payload))


def canonical_text(payload: Mapping[str, Any]) -> str:
    """Return a payload as the text that a reader makes of it again, keys that were numbers included."""
    try:
        return canonical_json(json.loads(canonical_json(dict(payload))))
    except (TypeError, ValueError, RecursionError) as error:
        raise DataError(
            f"a ledger row holds plain JSON values, but: {error}; NaN is no value, say None and why"
        ) from error
