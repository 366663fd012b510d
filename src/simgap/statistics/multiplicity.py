"""Many comparisons at once: p-values that stay honest, and letters that say which policies cannot be told apart."""

from __future__ import annotations

import string
from collections.abc import Iterable, Sequence

import numpy as np

from simgap.errors import UsageError
from simgap.statistics.counts import Floats, number_rows


def bonferroni(p_values: Sequence[float]) -> list[float]:
    """Return Bonferroni's adjusted p-values: each times their number. Valid under any dependence; Holm's are never larger.

    Population: all the comparisons that were planned, not those that looked interesting. Empty in, empty out;
    one p is unchanged.
    """
    p = _checked(p_values)
    return [float(value) for value in np.minimum(p * len(p), 1.0)]


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's (1979) adjusted p-values: those at most alpha may all be claimed with a chance of any false claim of at most alpha.

    Population: all the comparisons that were planned. Valid under any dependence between them, so also for
    policies tried on the same initial conditions, and for anytime-valid p-values at any stopping time. Empty
    in, empty out; one p is unchanged; equal p stay equal.

    Source: Holm, Scandinavian Journal of Statistics 6 (1979) 65-70.
    """
    p = _checked(p_values)
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    return _restored(stepped, order)


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Return adjusted p-values for the false discovery rate: of what is claimed at alpha, a share of at most alpha is false, on average.

    For looking through many factors for the few that matter, never for a claim about one comparison. Valid
    for independent or positively dependent tests. Empty in, empty out; one p is unchanged.

    Source: Benjamini and Hochberg, JRSS-B 57 (1995) 289-300.
    """
    p = _checked(p_values)
    order = np.argsort(p, kind="stable")
    stepped = np.minimum.accumulate((p[order] * len(p) / np.arange(1, len(p) + 1))[::-1])[::-1]
    return _restored(stepped, order)


def letters(names: Sequence[str], different: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return a compact letter display: two policies share a letter exactly when they were not shown to differ.

    Population: policies all compared with each other, the pairs in ``different`` after a correction for their
    number. Sharing a letter is "cannot be told apart", not "equal". No pair different: everybody is ``a``.
    One policy: ``a``. Letters run in the order of ``names``, so give the names best first.

    Source: Piepho, Journal of Computational and Graphical Statistics 13 (2004) 456-466 (insert and absorb).

    Args:
        names: policies, without repeats.
        different: pairs shown to differ, in either order.

    Raises:
        UsageError: a repeated or unknown name, a policy that differs from itself, or more than 52 groups.
    """
    rank = {name: place for place, name in enumerate(names)}
    if len(rank) != len(names):
        raise UsageError("a policy is named twice: expected distinct names")
    columns = [set(rank.values())] if names else []
    for first, second in different:
        if first not in rank or second not in rank or first == second:
            raise UsageError(f"pair {first!r}, {second!r}: expected two different names of {list(names)}")
        i, j = rank[first], rank[second]
        split = [column - {gone} for column in columns if {i, j} <= column for gone in (j, i)]
        columns = _absorbed([column for column in columns if not {i, j} <= column] + split)
        if len(columns) > len(string.ascii_letters):
            raise UsageError(
                f"more than {len(string.ascii_letters)} groups of policies, one letter each: print the pairs"
                " instead"
            )
    ordered = sorted(columns, key=sorted)
    return {
        name: "".join(
            letter
            for letter, column in zip(string.ascii_letters, ordered, strict=False)
            if rank[name] in column
        )
        for name in names
    }


def _absorbed(columns: list[set[int]]) -> list[set[int]]:
    """Drop every column that is contained in another, and all but one of equal ones."""
    kept: list[set[int]] = []
    for column in sorted(columns, key=len, reverse=True):
        if not any(column <= other for other in kept):
            kept.append(column)
    return kept


def _checked(p_values: Sequence[float]) -> Floats:
    p = number_rows(p_values, "p-values")
    if p.ndim != 1 or not np.all((p >= 0) & (p <= 1)):
        raise UsageError(
            f"p-values {list(p_values)}: expected a row of numbers in [0, 1]; leave undefined ones out and"
            " say so"
        )
    return p


def _restored(stepped: Floats, order: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[float]:
    adjusted = np.empty(len(stepped))
    adjusted[order] = np.minimum(stepped, 1.0)
    return [float(value) for value in adjusted]
