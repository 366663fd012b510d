"""A correction of commands between a policy's convention and what a robot's driver really does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.conventions import ActionSpec
from simgap.errors import ConventionError


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandMap:
    """Divides each joint's command by the multiplier that the robot was measured to apply."""

    names: tuple[str, ...]
    multipliers: tuple[float, ...]
    """What the robot does to a command, by joint; 1 where nothing was found."""
    low: tuple[float, ...] = field(repr=False)
    high: tuple[float, ...] = field(repr=False)

    @classmethod
    def identity(cls, spec: ActionSpec) -> CommandMap:
        """Return the map that changes nothing."""
        return cls(
            names=spec.names,
            multipliers=(1.0,) * len(spec),
            low=tuple(map(float, spec.low)),
            high=tuple(map(float, spec.high)),
        )

    @classmethod
    def correcting(cls, spec: ActionSpec, measured: Mapping[str, float]) -> CommandMap:
        """Return the map that undoes measured multipliers.

        Args:
            spec: the action convention.
            measured: dimension name -> multiplier, non-zero.

        Raises:
            ConventionError: an unknown dimension, or a multiplier that cannot be undone.
        """
        for name, value in measured.items():
            if name not in spec.names:
                raise ConventionError(f"cannot correct {name!r}: the action has {list(spec.names)}")
            if not np.isfinite(value) or abs(value) < 0.05:
                raise ConventionError(
                    f"a multiplier of {value:g} on {name} cannot be undone; the joint hardly follows its"
                    " command: check the wiring"
                )
        identity = cls.identity(spec)
        return cls(
            names=spec.names,
            multipliers=tuple(measured.get(n, 1.0) for n in spec.names),
            low=identity.low,
            high=identity.high,
        )

    def apply(self, action: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the command that makes the robot do ``action``, ``(A,)`` float32.

        The limits are those of the motion, so the action is clipped to them and then divided: a robot that
        does half of what it is told has to be told twice as much.
        """
        return np.asarray(
            np.clip(action, self.low, self.high) / np.asarray(self.multipliers), dtype=np.float32
        )

    @property
    def is_identity(self) -> bool:
        """True when nothing is changed."""
        return all(m == 1.0 for m in self.multipliers)

    def to_json(self) -> dict[str, Any]:
        """Return the multipliers that are not 1, by dimension."""
        return {n: m for n, m in zip(self.names, self.multipliers, strict=True) if m != 1.0}
