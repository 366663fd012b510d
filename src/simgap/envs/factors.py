"""Factors: the named, bounded quantities with units that may vary between episodes, and the ranges that sample them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from simgap.bounds import parsing
from simgap.errors import UsageError, did_you_mean

FactorValues: TypeAlias = dict[str, float]
"""Factor name -> value in the factor's unit; always complete for its space."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Factor:
    """One quantity that may differ between two worlds."""

    name: str
    unit: str
    nominal: float
    low: float
    """Hard lower bound; values below are refused."""
    high: float
    """Hard upper bound."""
    reason: str
    """Where the bounds come from: a source, or what the hardware is."""
    integer: bool = False
    """True for counts of control steps and the like."""


@dataclass(frozen=True, slots=True)
class FactorRanges:
    """A sampling distribution: independent uniform ranges over some factors, all others at their nominal value."""

    ranges: Mapping[str, tuple[float, float]]
    name: str = "custom"

    def override(self, ranges: Mapping[str, tuple[float, float]], name: str) -> FactorRanges:
        """Return these ranges with some replaced, under a new name."""
        return FactorRanges({**self.ranges, **ranges}, name)

    def to_json(self) -> dict[str, object]:
        """Return plain JSON values, sorted by factor."""
        return {
            "name": self.name,
            "ranges": {k: [float(a), float(b)] for k, (a, b) in sorted(self.ranges.items())},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> FactorRanges:
        """Rebuild from :meth:`to_json`.

        Raises:
            DataError: something else.
        """
        with parsing(
            "a record of factor ranges",
            "expected a name, and low and high of each factor; restore the file that holds it",
        ):
            ranges = data["ranges"]
            if not isinstance(ranges, Mapping):
                raise TypeError(f"ranges are a {type(ranges).__name__}")
            return cls({str(k): (float(v[0]), float(v[1])) for k, v in ranges.items()}, str(data["name"]))


class FactorSpace:
    """All factors of one env."""

    def __init__(self, factors: Iterable[Factor]) -> None:
        self.factors: dict[str, Factor] = {f.name: f for f in factors}

    def nominal(self) -> FactorValues:
        """Return every factor at its nominal value."""
        return {name: f.nominal for name, f in self.factors.items()}

    def complete(self, values: Mapping[str, float]) -> FactorValues:
        """Return ``values`` completed by nominal ones.

        Raises:
            UsageError: an unknown factor, or a value outside its hard bounds.
        """
        full = self.nominal()
        for name, value in values.items():
            factor = self._known(name)
            if not factor.low - 1e-9 <= value <= factor.high + 1e-9:
                raise UsageError(
                    f"factor {name} = {value:g} {factor.unit} is outside its bounds"
                    f" {factor.low:g}..{factor.high:g} {factor.unit}"
                )
            if factor.integer and value != round(value):
                raise UsageError(f"factor {name} counts {factor.unit}: {value:g} is no whole number")
            full[name] = float(value)
        return full

    def sample(self, ranges: FactorRanges, rng: np.random.Generator) -> FactorValues:
        """Draw one complete set of values.

        One uniform number is drawn for *every* factor in the order of the space, used or not, so that
        widening one factor's range leaves every other factor of the same seed where it was.
        """
        for name in ranges.ranges:
            self._known(name)
        values: FactorValues = {}
        for name, factor in self.factors.items():
            unit_draw = float(rng.random())
            low, high = ranges.ranges.get(name, (factor.nominal, factor.nominal))
            if low > high or low < factor.low - 1e-9 or high > factor.high + 1e-9:
                raise UsageError(
                    f"range {low:g}..{high:g} of factor {name} must lie within"
                    f" {factor.low:g}..{factor.high:g} {factor.unit}, low end first"
                )
            if factor.integer:
                values[name] = float(min(int(low + unit_draw * (high - low + 1)), int(high)))
            else:
                values[name] = low + unit_draw * (high - low)
        return values

    def _known(self, name: str) -> Factor:
        if name not in self.factors:
            raise UsageError(f"unknown factor {name!r}; {did_you_mean(name, self.factors)}")
        return self.factors[name]
