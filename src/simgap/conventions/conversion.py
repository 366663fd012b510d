"""Turning values of one convention into another: exact to float precision, and refused where something would be lost or guessed.

Every dimension is an affine map ``y = scale * x + offset`` of one source dimension (order, unit, calibrated
range, direction, zero, polarity); a change of reference (absolute, step to step, against the chunk's first
state) is a sum or a difference along time on top of it. Affine maps invert and compose, so every conversion
has an inverse.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simgap.conventions.scales import Line, _refused, line_between
from simgap.conventions.spec import Dimension, Reference, VectorSpec
from simgap.errors import ConventionError

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class AffineMap:
    """``y[k] = scale[k] * x[order[k]] + offset[k]``: a permutation, signs, units and zeros in one map that can be undone."""

    source: tuple[str, ...]
    """Names of ``x``, in vector order."""
    order: tuple[int, ...]
    """Which ``x`` each ``y`` is made of; every one exactly once."""
    scale: tuple[float, ...]
    offset: tuple[float, ...]
    target: tuple[str, ...]
    """Names of ``y``, in vector order."""

    def __post_init__(self) -> None:
        lengths = {len(self.source), len(self.order), len(self.scale), len(self.offset), len(self.target)}
        if len(lengths) > 1 or sorted(self.order) != list(range(len(self.order))):
            raise ConventionError(
                f"map from {list(self.source)} to {list(self.target)} uses {list(self.order)}; expected each"
                " source dimension exactly once"
            )
        if not all(math.isfinite(v) for v in (*self.scale, *self.offset)) or 0.0 in self.scale:
            raise ConventionError(
                f"map to {list(self.target)} has scales {list(self.scale)}; one that is 0 or not finite"
                " cannot be undone"
            )

    def apply(self, values: ArrayLike) -> Array:
        """Return the mapped values, ``(..., A)`` float64."""
        return np.asarray(
            np.asarray(values, dtype=np.float64)[..., list(self.order)] * np.array(self.scale)
            + np.array(self.offset)
        )

    def inverse(self) -> AffineMap:
        """Return the map back."""
        back = [self.order.index(k) for k in range(len(self.order))]
        lines = [Line(self.scale[k], self.offset[k]).inverse() for k in back]
        return AffineMap(
            source=self.target,
            order=tuple(back),
            scale=tuple(v.scale for v in lines),
            offset=tuple(v.offset for v in lines),
            target=self.source,
        )

    def then(self, other: AffineMap) -> AffineMap:
        """Return this map followed by another.

        Raises:
            ConventionError: the other does not begin where this one ends.
        """
        if other.source != self.target:
            raise ConventionError(
                f"a map to {list(self.target)} cannot be followed by one from {list(other.source)}; put the"
                " map between them first"
            )
        lines = [
            Line(self.scale[k], self.offset[k]).then(Line(s, o))
            for k, s, o in zip(other.order, other.scale, other.offset, strict=True)
        ]
        return AffineMap(
            source=self.source,
            order=tuple(self.order[k] for k in other.order),
            scale=tuple(v.scale for v in lines),
            offset=tuple(v.offset for v in lines),
            target=other.target,
        )

    def to_json(self) -> dict[str, Any]:
        """Return, for each target dimension, its source, scale and offset."""
        rows = zip(self.target, self.order, self.scale, self.offset, strict=True)
        return {
            name: {"source": self.source[k], "scale": scale, "offset": offset}
            for name, k, scale, offset in rows
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Conversion:
    """How vectors of one convention become vectors of another."""

    map: AffineMap
    """Of absolute values; differences use its scales alone."""
    given: tuple[Reference, ...]
    """What each target dimension's source is measured against."""
    wanted: tuple[Reference, ...]
    """What each target dimension is to be measured against."""

    @classmethod
    def between(cls, from_spec: VectorSpec, to_spec: VectorSpec) -> Conversion:
        """Return the conversion between two conventions.

        Raises:
            ConventionError: names both dimensions, what cannot be converted between them and what would make
                it possible.
        """
        names, wanted = from_spec.names, to_spec.names
        if len(set(names)) != len(names) or len(set(wanted)) != len(wanted) or set(names) != set(wanted):
            raise ConventionError(
                f"cannot convert {list(names)} to {list(wanted)}: a conversion keeps every dimension once;"
                " select or rename explicitly first"
            )
        if abs(from_spec.rate_hz - to_spec.rate_hz) > 1e-6:
            raise ConventionError(
                f"cannot convert {from_spec.rate_hz:g} Hz to {to_spec.rate_hz:g} Hz: that drops or invents"
                " frames; resample explicitly first"
            )
        pairs = [(from_spec.dimensions[names.index(d.name)], d) for d in to_spec.dimensions]
        lines = [line_between(a, b) for a, b in pairs]
        return cls(
            map=AffineMap(
                source=names,
                order=tuple(names.index(n) for n in wanted),
                scale=tuple(v.scale for v in lines),
                offset=tuple(v.offset for v in lines),
                target=wanted,
            ),
            given=tuple(a.reference for a, _ in pairs),
            wanted=tuple(b.reference for _, b in pairs),
        )

    @property
    def needs_state(self) -> bool:
        """True where an absolute value is made of a difference or the other way round."""
        return any(
            (a is Reference.ABSOLUTE) != (b is Reference.ABSOLUTE)
            for a, b in zip(self.given, self.wanted, strict=True)
        )

    def apply(self, values: ArrayLike, state: ArrayLike | None = None) -> Array:
        """Return converted values.

        Args:
            values: ``(T, A)`` or ``(..., T, A)`` steps of a chunk or episode, or one vector ``(A,)``; in the
                given convention.
            state: absolute state before the first step, ``(A,)`` or ``(..., A)``, in the given order, units
                and zeros; or one state a step, ``(T, A)``, where every step is a chunk of its own
                (``chunk_delta`` only).

        Returns:
            float64 of the shape of ``values``.

        Raises:
            ConventionError: shapes do not fit, or the state is needed and not given.
        """
        x = np.asarray(values, dtype=np.float64)
        if x.ndim == 0 or x.shape[-1] != len(self.map.source):
            raise ConventionError(
                f"values have shape {x.shape}, expected (..., {len(self.map.source)}) for"
                f" {list(self.map.source)}"
            )
        if x.ndim == 1:
            return np.asarray(self.apply(x[None], state)[0])
        anchor = self._anchor(x, state)
        x = x[..., list(self.map.order)]
        y = np.empty_like(x)
        for k, pair in enumerate(zip(self.given, self.wanted, strict=True)):
            scale, offset = self.map.scale[k], self.map.offset[k]
            first = None if anchor is None else anchor[..., self.map.order[k]]
            y[..., k] = _referred(x[..., k], first, Line(scale, offset), *pair)
        return y

    def apply_to_state(self, state: ArrayLike) -> Array:
        """Return an absolute state in the target's order, units and zeros: what :meth:`inverse` needs as its state."""
        return self.map.apply(state)

    def inverse(self) -> Conversion:
        """Return the conversion back."""
        back = self.map.inverse()
        given = tuple(self.wanted[k] for k in back.order)
        return Conversion(map=back, given=given, wanted=tuple(self.given[k] for k in back.order))

    def then(self, other: Conversion) -> Conversion:
        """Return this conversion followed by another.

        Raises:
            ConventionError: the other does not begin where this one ends.
        """
        through = self.map.then(other.map)
        meeting = tuple(self.wanted[k] for k in other.map.order)
        if meeting != other.given:
            ends = [", ".join(map(str, side)) for side in (meeting, other.given)]
            raise ConventionError(
                f"a conversion to ({ends[0]}) cannot be followed by one from ({ends[1]}); convert between"
                " them first"
            )
        return Conversion(
            map=through, given=tuple(self.given[k] for k in other.map.order), wanted=other.wanted
        )

    def _anchor(self, x: Array, state: ArrayLike | None) -> Array | None:
        """Return the state with a time axis, ``(..., 1 or T, A)``."""
        if not self.needs_state:
            return None
        if state is None:
            lost = [
                n
                for n, a, b in zip(self.map.target, self.given, self.wanted, strict=True)
                if (a is Reference.ABSOLUTE) != (b is Reference.ABSOLUTE)
            ]
            kinds = sorted(
                {f"{a} to {b}" for a, b in zip(self.given, self.wanted, strict=True) if a is not b}
            )
            raise ConventionError(
                f"{lost} from {', '.join(kinds)} needs the state the chunk starts from; give state= in the"
                " convention converted from"
            )
        s = np.asarray(state, dtype=np.float64)
        if s.shape == (*x.shape[:-2], x.shape[-1]):
            return s[..., None, :]
        if s.shape == x.shape and all(
            Reference.DELTA not in (a, b) for a, b in zip(self.given, self.wanted, strict=True) if a is not b
        ):
            return s
        raise ConventionError(
            f"state has shape {s.shape} for values of shape {x.shape}; expected"
            f" {(*x.shape[:-2], x.shape[-1])}, the state before the first step (one state a step suits"
            " chunk_delta only)"
        )


def _referred(x: Array, first: Array | None, line: Line, given: Reference, wanted: Reference) -> Array:
    """Return one dimension along its last axis, time, in another reference; ``first`` is the state before it, ``(..., 1 or T)``."""
    if given is wanted:
        return line.scale * x + (line.offset if given is Reference.ABSOLUTE else 0.0)
    # differences among themselves need no state
    if first is None or Reference.ABSOLUTE not in (given, wanted):
        return line.scale * (
            np.cumsum(x, axis=-1) if given is Reference.DELTA else np.diff(x, axis=-1, prepend=0.0)
        )
    if given is Reference.ABSOLUTE:
        moved = x - first
        return line.scale * (moved if wanted is Reference.CHUNK_DELTA else np.diff(x, axis=-1, prepend=first))
    summed = x if given is Reference.CHUNK_DELTA else np.cumsum(x, axis=-1)
    return line.scale * (first + summed) + line.offset


def convert(
    values: ArrayLike, from_spec: VectorSpec, to_spec: VectorSpec, state: ArrayLike | None = None
) -> Array:
    """Return values of one convention in another; :meth:`Conversion.apply` describes shapes and the state.

    Raises:
        ConventionError: something would be lost or guessed; names both sides and the remedy.
    """
    return Conversion.between(from_spec, to_spec).apply(values, state)


def reexpressed(dimension: Dimension, **changes: Any) -> Dimension:
    """Return a dimension with other fields and with its limits carried over into them, such as ``unit=Unit.RAD``.

    Raises:
        ConventionError: the limits cannot be expressed in it.
    """
    changed = replace(dimension, **changes)
    if changed.reference is not dimension.reference:
        raise _refused(
            dimension,
            changed,
            "limits of a position say nothing about those of a step",
            "state the limits of the other reference yourself",
        )
    line = line_between(dimension, changed)
    offset = line.offset if dimension.reference is Reference.ABSOLUTE else 0.0
    ends = sorted((line.scale * dimension.low + offset, line.scale * dimension.high + offset))
    return replace(changed, low=ends[0], high=ends[1])
