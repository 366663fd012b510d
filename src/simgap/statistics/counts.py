"""What may be counted: whole numbers that are no booleans, levels strictly between 0 and 1, rows of outcomes.

Every public function of this package passes its numbers through here before it computes, so that a half
success, a NaN or the text of a table cell is refused in one sentence instead of being rounded.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from simgap.errors import UsageError

Floats: TypeAlias = NDArray[np.float64]

LARGEST_COUNT = 1_000_000_000
"""More trials than any experiment has run; a larger count is a mistake in reading a file."""

_HALVES = (
    "partial credit is a score, not a count: give each trial's score in [0, 1], such as 1, 0.5 or 0, to"
    " betting_interval (compare_scores for two arms)"
)
_UNKNOWN = "leave voids and unknown outcomes out, and count them"


def whole(value: object, what: str, *, least: int = 0, most: int = LARGEST_COUNT) -> int:
    """Return a count as a plain ``int``; whole numbers of numpy and floats without a fraction are counts too.

    Args:
        value: what was given for a count.
        what: what is counted, for the message: "successes".
        least: smallest possible value.
        most: largest possible value.

    Raises:
        UsageError: a boolean, a text, a fraction, NaN, infinity, or a number outside ``least`` to ``most``.
    """
    number = _number(value, what, "a whole number")
    if isinstance(number, float) and not number.is_integer():
        remedy = _HALVES if math.isfinite(number) else _UNKNOWN
        raise UsageError(f"{what} {number:g}: expected a whole number; {remedy}")
    if not least <= number <= most:
        negative = "a count cannot be negative; " if number < 0 <= least else ""
        raise UsageError(f"{what} {_short(number)}: {negative}expected a whole number from {least} to {most}")
    return int(number)


def check_counts(k: object, n: object, confidence: object) -> tuple[int, int]:
    """Return successes and trials as plain ``int``.

    Raises:
        UsageError: names the value that is no count, counts that are not ``0 <= k <= n``, or a level outside
            (0, 1).
    """
    successes, trials = whole(k, "successes", least=-LARGEST_COUNT), whole(n, "trials", least=-LARGEST_COUNT)
    if not 0 <= successes <= trials:
        raise UsageError(
            f"{successes} successes of {trials} trials is impossible: expected 0 <= successes <= n; count"
            " voids separately"
        )
    check_confidence(confidence)
    return successes, trials


def check_confidence(confidence: object) -> float:
    """Return a confidence level.

    Raises:
        UsageError: anything but a number strictly between 0 and 1.
    """
    level = _number(confidence, "confidence", "a number between 0 and 1, for example 0.95")
    if not 0.0 < level < 1.0:
        raise UsageError(
            f"confidence {_short(level)} is impossible: expected a number between 0 and 1, for example 0.95"
        )
    return float(level)


def check_share(value: object, what: str, *, ends: bool = True) -> float:
    """Return a number from 0 to 1.

    Args:
        value: what was given.
        what: its name in the message: "rate".
        ends: whether 0 and 1 themselves are possible.

    Raises:
        UsageError: anything else.
    """
    between = "from 0 to 1" if ends else "strictly between 0 and 1"
    share = _number(value, what, f"a number {between}")
    if not (0.0 <= share <= 1.0 if ends else 0.0 < share < 1.0):
        raise UsageError(f"{what} {_short(share)}: expected a number {between}")
    return float(share)


def count_rows(values: Any, what: str) -> Floats:
    """Return counts of any shape as floats, each a whole number from 0.

    Raises:
        UsageError: booleans, texts, fractions, NaN, infinity, or a negative or far too large count.
    """
    rows = _array(values, what)
    if rows.dtype.kind == "b" or (not isinstance(values, np.ndarray) and _holds_a_boolean(values)):
        raise UsageError(f"{what} of type bool: expected whole numbers; count the successes first")
    bad = ~((rows >= 0) & (rows <= LARGEST_COUNT) & (rows == np.floor(rows)))
    if bad.any():
        whole(rows[bad].ravel()[0].item(), what)
    return rows.astype(float)


def outcome_row(values: Iterable[Any], what: str = "outcomes") -> Floats:
    """Return one row of outcomes in order as 0.0 and 1.0.

    Raises:
        UsageError: as :func:`outcome_rows`, and more than one row.
    """
    row = outcome_rows(values if isinstance(values, np.ndarray) else list(values), what)
    if row.ndim > 1:
        raise UsageError(f"{what} of shape {row.shape}: expected one row, in the order of the trials")
    return row


def outcome_rows(values: Any, what: str = "outcomes") -> Floats:
    """Return outcomes of any shape as 0.0 and 1.0.

    Raises:
        UsageError: anything but booleans, 0 and 1: None and NaN are voids, which are left out; a half is a
            score.
    """
    row = _array(values, what)
    bad = ~((row == 0) | (row == 1))
    if bad.any():
        value = float(row[bad].ravel()[0])
        remedy = _HALVES if math.isfinite(value) else _UNKNOWN
        raise UsageError(f"{what} hold {value:g}: expected True or False, 1 or 0; {remedy}")
    return row.astype(float)


def number_rows(values: Any, what: str) -> Floats:
    """Return numbers of any shape as floats; what range they may have is the caller's to say.

    Raises:
        UsageError: texts, None, or rows of unequal length.
    """
    return _array(values, what).astype(float)


def _array(values: Any, what: str) -> NDArray[Any]:
    try:
        rows = np.asarray(values)
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(
            f"{what} are rows of unequal length or no numbers ({error}): expected numbers"
        ) from error
    if rows.size == 0:
        return rows.astype(float)
    if rows.dtype.kind not in "biuf":
        odd = next(
            (v for v in rows.ravel().tolist() if isinstance(v, str) or not isinstance(v, int | float)),
            rows.ravel()[0],
        )
        raise UsageError(
            f"{what} hold {_short(odd)}: expected numbers; leave voids and unknown values out, and count them"
        )
    return rows


def _holds_a_boolean(values: object) -> bool:
    """Return whether a boolean hides among numbers, which an array would turn into 0 or 1."""
    if isinstance(values, list | tuple):
        return any(map(_holds_a_boolean, values))
    return isinstance(values, bool | np.bool_)


def _number(value: object, what: str, expected: str) -> int | float:
    if isinstance(value, bool | np.bool_ | str | bytes) or value is None:
        raise UsageError(f"{what} {_short(value)}: expected {expected}, not {_kind(value)}")
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        pass
    if not isinstance(value, float | np.floating) and not hasattr(type(value), "__float__"):
        raise UsageError(f"{what} {_short(value)}: expected {expected}, not {_kind(value)}")
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(f"{what} {_short(value)}: expected {expected}") from error


def _kind(value: object) -> str:
    if value is None:
        return "nothing"
    return {"str": "a text", "bytes": "a text"}.get(type(value).__name__, f"a {type(value).__name__}")


def _short(value: object) -> str:
    text = (
        f"{value:g}"
        if isinstance(value, float)
        else repr(value)
        if not isinstance(value, int) or abs(value) < 10**12
        else "beyond 10^12"
    )
    return text if len(text) <= 40 else f"{text[:37]}..."
