"""What a row of the coverage table is: a public function, what it promises, and what was measured over truths."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.stats import binom

RATES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)
"""True rates at which everything on rates is measured, the boundary among them."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One truth, and how often the promise was kept (an interval) or broken (a test) under it."""

    truth: str
    share: float
    draws: int = 0
    """Simulated data sets; 0 when all were enumerated."""

    @property
    def error(self) -> float:
        """Standard error of the simulation, 0 of an enumeration."""
        return (
            math.sqrt(max(self.share * (1 - self.share), 1 / (self.draws + 1)) / self.draws)
            if self.draws
            else 0.0
        )


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much is simulated: ``draws`` data sets for a cheap function, fewer for a dear one; ``is_small`` leaves truths out."""

    draws: int
    is_small: bool = False

    def of(self, cost: float) -> int:
        """Return data sets for a function that costs this many times a cheap one."""
        return max(8 if self.is_small else 100, int(self.draws / cost))

    def some(self, truths: Sequence[Any]) -> Sequence[Any]:
        """Return all truths, or of a small effort the first and the last."""
        return [truths[0], truths[-1]] if self.is_small and len(truths) > 2 else truths


@dataclass(frozen=True, kw_only=True)
class Row:
    """A public interval or test and what it promises."""

    names: tuple[str, ...]
    """Public functions of ``simgap.statistics`` (or paths of others) that this row measures."""
    what: str
    promise: float
    """Coverage of at least this, or an error of at most this."""
    is_interval: bool
    measure: Callable[[Effort, np.random.Generator], Iterable[Measured]]
    documented: float | None = None
    """The worst that was measured, where it misses the promise by more than a point; it stands in the docstring of ``names[0]``."""

    def worst(self, effort: Effort, rng: np.random.Generator) -> tuple[Measured, int]:
        """Return the truth under which the promise is kept worst, and how many were tried."""
        found = list(self.measure(effort, rng))
        sign = -1 if self.is_interval else 1
        return max(found, key=lambda m: sign * m.share), len(found)

    def holds(self, worst: Measured) -> bool:
        """Return whether the worst is within a point of the promise, or of what is documented, and three standard errors."""
        bar = self.promise if self.documented is None else self.documented
        slack = 0.01 + 3 * (math.sqrt(0.06 / worst.draws) if worst.draws else 0.0)
        return worst.share >= bar - slack if self.is_interval else worst.share <= bar + slack


Ends = tuple[float | None, float | None]


def ends_of(found: Any) -> Ends:
    """Return the ends of an interval of any of the result types."""
    return found.low, found.high


def holds_inside(ends: Ends, truth: float) -> bool:
    """Return whether an interval holds a truth; an undefined one claims nothing and so holds it."""
    low, high = ends
    return low is None or high is None or low - 1e-9 <= truth <= high + 1e-9


def one_rate(
    method: Callable[[int, int], Any], sizes: Sequence[int]
) -> Callable[[Effort, np.random.Generator], Iterator[Measured]]:
    """Enumerate the coverage of an interval of one rate."""

    def measure(effort: Effort, rng: np.random.Generator) -> Iterator[Measured]:
        for n in effort.some(sizes):
            ends = [ends_of(method(k, n)) for k in range(n + 1)]
            for p in (*RATES, *(() if effort.is_small else np.linspace(0.005, 0.995, 199))):
                inside = np.array([holds_inside(e, p) for e in ends])
                yield Measured(
                    truth=f"rate {p:.3g}, n = {n}", share=float(binom.pmf(np.arange(n + 1), n, p) @ inside)
                )

    return measure


def ever(rejects: Callable[[np.ndarray, int], np.ndarray], p: float, n_max: int) -> float:
    """Return the exact chance that counts of a rate ever fall into a region, looking after every trial."""
    mass, lost = np.ones(1), 0.0
    for n in range(1, n_max + 1):
        mass = np.append(mass * (1 - p), 0.0) + np.append(0.0, mass * p)
        out = np.asarray(rejects(np.arange(n + 1), n), dtype=bool)
        lost += float(mass[out].sum())
        mass[out] = 0.0
    return lost


def two_rates(
    method: Callable[[int, int, int, int], Any], sizes: Sequence[tuple[int, int]]
) -> Callable[[Effort, np.random.Generator], Iterator[Measured]]:
    """Enumerate the coverage of an interval of a difference of two independent rates."""

    def measure(effort: Effort, rng: np.random.Generator) -> Iterator[Measured]:
        for n1, n2 in sizes[:1] if effort.is_small else sizes:
            ends = [[ends_of(method(a, n1, b, n2)) for b in range(n2 + 1)] for a in range(n1 + 1)]
            for p1 in RATES:
                for p2 in RATES:
                    inside = np.array([[holds_inside(e, p1 - p2) for e in row] for row in ends])
                    share = (
                        binom.pmf(np.arange(n1 + 1), n1, p1) @ inside @ binom.pmf(np.arange(n2 + 1), n2, p2)
                    )
                    yield Measured(truth=f"{p1:g} against {p2:g}, n = {n1} and {n2}", share=float(share))

    return measure


def two_rate_test(
    p_value: Callable[[int, int, int, int], float],
    sizes: Sequence[tuple[int, int]],
    level: float,
    *,
    margin: float = 0.0,
) -> Callable[..., Iterator[Measured]]:
    """Enumerate the error of a test of two independent rates that differ by ``-margin``."""

    def measure(effort: Effort, rng: np.random.Generator) -> Iterator[Measured]:
        for n1, n2 in sizes[:1] if effort.is_small else sizes:
            rejected = np.array(
                [[p_value(a, n1, b, n2) <= level for b in range(n2 + 1)] for a in range(n1 + 1)]
            )
            for p in RATES:
                if p - margin < 0:
                    continue
                share = (
                    binom.pmf(np.arange(n1 + 1), n1, p - margin)
                    @ rejected
                    @ binom.pmf(np.arange(n2 + 1), n2, p)
                )
                yield Measured(
                    truth=(
                        f"both {p:g}, n = {n1} and {n2}"
                        if not margin
                        else f"{p - margin:.3g} against {p:g}, n = {n1}"
                    ),
                    share=float(share),
                )

    return measure


PAIRS = (
    (0.0, 0.01),
    (0.01, 0.01),
    (0.05, 0.05),
    (0.0, 0.05),
    (0.1, 0.1),
    (0.1, 0.3),
    (0.25, 0.25),
    (0.45, 0.05),
    (0.5, 0.5),
    (0.9, 0.1),
    (0.01, 0.95),
)
"""Chances that only the new arm, and only the old one, solves a pair."""


@lru_cache(maxsize=64)
def _log_factorials(n: int) -> np.ndarray:
    return np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n + 1)))])


def discordant_law(n: int, up: float, down: float) -> np.ndarray:
    """Return the chance of each (n10, n01), ``(n + 1, n + 1)``."""
    b, c = np.meshgrid(np.arange(n + 1), np.arange(n + 1), indexing="ij")
    rest = n - b - c
    logs = _log_factorials(n)
    possible = rest >= 0
    safe = np.where(possible, rest, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = [
            np.where(k > 0, k * np.log(p), 0.0)
            for k, p in ((b, up), (c, down), (safe, max(1 - up - down, 0.0)))
        ]
    law = np.exp(logs[n] - logs[b] - logs[c] - logs[safe] + sum(terms))
    return np.where(possible, law, 0.0)


def pairs_interval(
    method: Callable[[int, int, int], Ends], sizes: Sequence[int]
) -> Callable[[Effort, np.random.Generator], Iterator[Measured]]:
    """Enumerate the coverage of an interval of a paired difference that depends on the discordant pairs and n."""

    def measure(effort: Effort, rng: np.random.Generator) -> Iterator[Measured]:
        for n in effort.some(sizes)[:1] if effort.is_small else sizes:
            tables = [(b, c, method(b, c, n)) for b in range(n + 1) for c in range(n + 1 - b)]
            for up, down in PAIRS:
                law = discordant_law(n, up, down)
                share = sum(law[b, c] for b, c, e in tables if holds_inside(e, up - down))
                yield Measured(truth=f"won {up:g}, lost {down:g}, {n} pairs", share=float(share))

    return measure


def pairs_test(
    p_value: Callable[[int, int], float], sizes: Sequence[int], level: float
) -> Callable[[Effort, np.random.Generator], Iterator[Measured]]:
    """Enumerate the error of a paired test on equal arms."""

    def measure(effort: Effort, rng: np.random.Generator) -> Iterator[Measured]:
        for n in effort.some(sizes):
            rejected = [(b, c) for b in range(n + 1) for c in range(n + 1 - b) if p_value(b, c) <= level]
            for half in (0.005, 0.05, 0.15, 0.25, 0.5):
                law = discordant_law(n, half, half)
                yield Measured(
                    truth=f"{n} pairs, {2 * half:g} discordant",
                    share=float(sum(law[b, c] for b, c in rejected)),
                )

    return measure


def drawn(truth: str, draws: int, once: Callable[[], bool]) -> Measured:
    """Simulate: the share of data sets of which ``once`` is true."""
    return Measured(truth=truth, share=sum(once() for _ in range(draws)) / draws, draws=draws)
