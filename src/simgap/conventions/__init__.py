"""Action and state conventions as types, and the one way to turn a vector of one into another."""

from simgap.conventions.conversion import AffineMap, Conversion, convert, reexpressed
from simgap.conventions.spec import (
    NATURAL_RANGE,
    SO101_JOINTS,
    ActionSpec,
    CalibratedRange,
    Dimension,
    Reference,
    StateSpec,
    Unit,
    VectorSpec,
    require_same,
)

__all__ = [
    "NATURAL_RANGE",
    "SO101_JOINTS",
    "ActionSpec",
    "AffineMap",
    "CalibratedRange",
    "Conversion",
    "Dimension",
    "Reference",
    "StateSpec",
    "Unit",
    "VectorSpec",
    "convert",
    "reexpressed",
    "require_same",
]
