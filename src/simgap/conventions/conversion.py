"""Turning values of one convention into another: exact to float precision, and refused where something would be lost or guessed.

Every dimension is an affine map ``y = scale * x + offset`` of one source dimension (order, unit, calibrated
range, direction, zero, polarity); a change of reference (absolute, step to step, against the chunk's first
state) is a sum or a difference along time on top of it. Affine maps invert and compose, so every conversion
has an inverse.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simgap.conventions.spec import NATURAL_RANGE, CalibratedRange, Dimension, Reference, Unit, VectorSpec
from simgap.errors import ConventionError

Array = NDArray[np.float64]


class _Line(NamedTuple):
    """``y = scale * x + offset``."""

    scale: float = 1.0
    offset: float = 0.0

    def then(self, other: _Line) -> _Line:
        return _Line(self.scale * other.scale, self.offset * other.scale + other.offset)

    def inverse(self) -> _Line:
        return _Line(1.0 / self.scale, -self.offset / self.scale)


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
        lines = [_Line(self.scale[k], self.offset[k]).inverse() for k in back]
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
            _Line(self.scale[k], self.offset[k]).then(_Line(s, o))
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
        lines = [_between(a, b) for a, b in pairs]
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
            y[..., k] = _referred(x[..., k], first, _Line(scale, offset), *pair)
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


def _referred(x: Array, first: Array | None, line: _Line, given: Reference, wanted: Reference) -> Array:
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
    line = _between(dimension, changed)
    offset = line.offset if dimension.reference is Reference.ABSOLUTE else 0.0
    ends = sorted((line.scale * dimension.low + offset, line.scale * dimension.high + offset))
    return replace(changed, low=ends[0], high=ends[1])


def _between(a: Dimension, b: Dimension) -> _Line:
    """Return the map of absolute values between two conventions of one dimension."""
    if Unit.UNKNOWN in (a.unit, b.unit):
        raise _refused(a, b, "nobody said what the numbers mean", "look the unit up and state it in the spec")
    if a.frame != b.frame:
        raise _refused(
            a, b, "that needs the pose between the frames", "transform the poses where it is known"
        )
    if a.is_gripper != b.is_gripper:
        raise _refused(a, b, "only one of them is a gripper", "correct is_gripper in one of the specs")
    is_turned = a.opens_high != b.opens_high
    if a.unit is b.unit and a.calibrated == b.calibrated and not is_turned:
        middle = _Line()
    elif a.unit in NATURAL_RANGE and b.unit in NATURAL_RANGE and a.calibrated == b.calibrated:
        turn = _Line(-1.0, 1.0) if is_turned else _Line()
        middle = _to_fraction(a.unit).then(turn).then(_to_fraction(b.unit).inverse())
    else:
        middle = (
            _to_physical(a, b)
            .then(_turned(a, b) if is_turned else _Line())
            .then(_to_physical(b, a).inverse())
        )
    own, other = _Line(a.sign, a.zero), _Line(b.sign, b.zero)
    return own.then(middle).then(other.inverse())


def _to_fraction(unit: Unit) -> _Line:
    low, high = NATURAL_RANGE[unit]
    return _Line(1.0 / (high - low), -low / (high - low))


def _to_physical(d: Dimension, other: Dimension) -> _Line:
    """Return the map from a dimension's unit to degrees or metres, or to these per second."""
    if _kind(d) != _kind(other):
        raise _refused(
            d, other, f"{_kind(d)} is no {_kind(other).partition(' ')[2]}", "check the units of both"
        )
    if (plain := _SCALES.get(d.unit)) is not None:
        return _Line(plain)
    if d.calibrated is None:
        raise _refused(
            d,
            other,
            f"what {d.name!r} in {d.unit} stands for depends on its calibrated range",
            "state calibrated= in its spec",
        )
    if d.unit is Unit.TICKS:
        return _ticks_to_degrees(d.calibrated)
    low, high = _physical_ends(d.calibrated)
    return _to_fraction(d.unit).then(_Line(high - low, low))


_SCALES = {
    Unit.DEG: 1.0,
    Unit.RAD: 180.0 / math.pi,
    Unit.METRE: 1.0,
    Unit.MILLIMETRE: 1e-3,
    Unit.DEG_PER_SECOND: 1.0,
    Unit.RAD_PER_SECOND: 180.0 / math.pi,
    Unit.METRE_PER_SECOND: 1.0,
    Unit.MILLIMETRE_PER_SECOND: 1e-3,
}
"""Degrees or metres, or these per second, in one of each unit."""


def _kind(d: Dimension) -> str:
    unit = d.calibrated.unit if d.unit in NATURAL_RANGE and d.calibrated is not None else d.unit
    if unit.is_velocity:
        return (
            "a speed" if unit in (Unit.METRE_PER_SECOND, Unit.MILLIMETRE_PER_SECOND) else "an angular speed"
        )
    return "a length" if unit.is_length else "an angle"


def _ticks_to_degrees(ends: CalibratedRange) -> _Line:
    """Angles are counted from the middle of the range, as LeRobot does."""
    degrees = 360.0 / ends.ticks_per_turn
    return _Line(degrees, -degrees * 0.5 * (ends.low + ends.high))


def _physical_ends(ends: CalibratedRange) -> tuple[float, float]:
    line = {Unit.TICKS: _ticks_to_degrees(ends), Unit.RAD: _Line(180.0 / math.pi)}.get(ends.unit, _Line())
    return line.scale * ends.low + line.offset, line.scale * ends.high + line.offset


def _turned(a: Dimension, b: Dimension) -> _Line:
    """Return the map that swaps open and closed, about the middle of the range both share."""
    if a.calibrated is None or a.calibrated != b.calibrated:
        raise _refused(
            a,
            b,
            "open and closed can only be swapped about a range that both share",
            "state the same calibrated= (closed to open) in both",
        )
    return _Line(-1.0, sum(_physical_ends(a.calibrated)))


def _refused(a: Dimension, b: Dimension, why: str, remedy: str) -> ConventionError:
    return ConventionError(f"cannot convert {a.describe()} to {b.describe()}: {why}; {remedy}")
