"""Scaling of states and actions to [-1, 1], fitted once and carried inside the checkpoint."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.conventions import VectorSpec
from simgap.errors import DataError
from simgap.provenance import content_hash

IMAGE_CENTRE = 128.0
"""Pixels enter a network as ``(value - 128) / 128``: about [-1, 1), and exact in bfloat16."""

STILL_SHARE = 1e-3
"""A dimension that moves over less than this share of its limits counts as still."""


class RangeMethod(StrEnum):
    """How the range of a dimension is read from data."""

    MIN_MAX = "min_max"
    QUANTILE = "quantile"
    """1st to 99th percentile: for human data with outliers; values beyond map outside [-1, 1] and are not clipped."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RangeNormaliser:
    """An affine map per dimension: ``low`` to -1, ``high`` to 1. Never clips.

    A dimension that stood still in the data has no scale: it maps to 0, and back to its constant. Dividing by
    its range, or by an epsilon, would turn the first flicker at run time into the loudest input of the
    network.
    """

    names: tuple[str, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    still: tuple[str, ...] = ()
    """Dimensions that never moved in the data; their constant is the middle of ``low`` and ``high``."""

    def __post_init__(self) -> None:
        unknown = sorted(set(self.still) - set(self.names))
        if unknown:
            raise DataError(
                f"normaliser calls {unknown} still, which are none of its dimensions {list(self.names)}:"
                " refit it"
            )
        if not len(self.names) == len(self.low) == len(self.high):
            raise DataError(
                f"normaliser has {len(self.names)} names, {len(self.low)} lows and {len(self.high)} highs;"
                " one of each per dimension is needed"
            )
        for name, low, high in zip(self.names, self.low, self.high, strict=True):
            if not (np.isfinite(low) and np.isfinite(high) and high > low):
                raise DataError(
                    f"normaliser range of {name!r} is [{low}, {high}]; a finite low below a finite high is"
                    " needed: refit it"
                )

    @property
    def centre(self) -> NDArray[np.float64]:
        """Value that maps to 0, ``(D,)`` float64."""
        return np.asarray((np.array(self.low) + np.array(self.high)) / 2.0, dtype=np.float64)

    @property
    def half_range(self) -> NDArray[np.float64]:
        """Distance from the centre that maps to 1, ``(D,)`` float64."""
        return np.asarray((np.array(self.high) - np.array(self.low)) / 2.0, dtype=np.float64)

    @property
    def is_still(self) -> NDArray[np.bool_]:
        """Which dimensions never moved, ``(D,)`` bool."""
        return np.array([n in self.still for n in self.names], dtype=bool)

    def normalise(self, values: NDArray[Any]) -> NDArray[np.float32]:
        """Map ``(..., D)`` values in spec units to about [-1, 1], float32; still dimensions to 0, what is not finite stays so."""
        given = np.asarray(values, dtype=np.float64)
        scaled = (given - self.centre) / self.half_range
        if self.still:
            scaled = np.where(self.is_still & np.isfinite(given), 0.0, scaled)
        return scaled.astype(np.float32)

    def denormalise(self, values: NDArray[Any]) -> NDArray[np.float32]:
        """Map ``(..., D)`` normalised values back to spec units, float32; still dimensions to their constant."""
        given = np.asarray(values, dtype=np.float64)
        restored = given * self.half_range + self.centre
        if self.still:
            restored = np.where(self.is_still & np.isfinite(given), self.centre, restored)
        return restored.astype(np.float32)

    def departures(self, values: NDArray[Any]) -> dict[str, float]:
        """Return the still dimensions that move in ``(..., D)`` values, with how far they are from their constant in spec units.

        A thousandth of the limits, which is what counts as still, is no departure.
        """
        rows = np.abs(np.asarray(values, dtype=np.float64).reshape(-1, len(self.names)) - self.centre)
        far = rows.max(axis=0, initial=0.0)
        allowed = STILL_SHARE * 2.0 * self.half_range
        return {n: float(far[k]) for k, n in enumerate(self.names) if n in self.still and far[k] > allowed[k]}

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"names": list(self.names), "low": list(self.low), "high": list(self.high)} | (
            {"still": list(self.still)} if self.still else {}
        )

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RangeNormaliser:
        """Rebuild from :meth:`to_json`.

        Raises:
            DataError: a key is missing or unknown, or a range is empty.
        """
        _require_keys(data, {"names", "low", "high"}, "range normaliser", optional={"still"})
        names, still = (tuple(str(n) for n in data.get(key, ())) for key in ("names", "still"))
        return cls(
            names=names,
            low=tuple(float(v) for v in data["low"]),
            high=tuple(float(v) for v in data["high"]),
            still=still,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Normaliser:
    """The state and action ranges a network was trained with."""

    state: RangeNormaliser
    action: RangeNormaliser
    method: RangeMethod

    @property
    def hash(self) -> str:
        """Content hash, for stamps."""
        return content_hash(self.to_json())

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"method": str(self.method), "state": self.state.to_json(), "action": self.action.to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Normaliser:
        """Rebuild from :meth:`to_json`.

        Raises:
            DataError: a key is missing or unknown, or a range is empty.
        """
        _require_keys(data, {"method", "state", "action"}, "normaliser")
        try:
            method = RangeMethod(data["method"])
        except ValueError as error:
            raise DataError(
                f"normaliser method {data['method']!r} is unknown; known: {', '.join(RangeMethod)}"
            ) from error
        return cls(
            method=method,
            state=RangeNormaliser.from_json(data["state"]),
            action=RangeNormaliser.from_json(data["action"]),
        )


def fit_range(
    columns: Sequence[NDArray[np.float32]], spec: VectorSpec, method: RangeMethod = RangeMethod.MIN_MAX
) -> RangeNormaliser:
    """Fit the range of each dimension over all columns together.

    A dimension that hardly moves (see :data:`STILL_SHARE`) is called still and keeps its constant, see
    :class:`RangeNormaliser`.

    Args:
        columns: arrays ``(N_i, D)`` in spec units.
        spec: names and limits of the D dimensions.
        method: min-max or quantile.

    Raises:
        DataError: no rows, NaN, or another number of dimensions than the spec.
    """
    rows = (
        np.concatenate([np.asarray(c, dtype=np.float64) for c in columns])
        if columns
        else np.empty((0, len(spec)))
    )
    if rows.ndim != 2 or rows.shape[1] != len(spec):
        raise DataError(
            f"data to fit have shape {rows.shape}, the spec has {len(spec)} dimensions {list(spec.names)}"
        )
    if len(rows) == 0 or not np.isfinite(rows).all():
        raise DataError(
            f"cannot fit a normaliser on {len(rows)} rows{' with NaN or infinity' if len(rows) else ''}; give"
            " it finite data"
        )
    q = (0.0, 1.0) if method is RangeMethod.MIN_MAX else (0.01, 0.99)
    low, high = np.quantile(rows, q, axis=0)
    still = []
    for i, dimension in enumerate(spec.dimensions):
        limits = dimension.high - dimension.low
        span = limits if np.isfinite(limits) and limits > 0 else 2.0
        if high[i] - low[i] < STILL_SHARE * span:
            centre = (low[i] + high[i]) / 2.0
            low[i], high[i] = centre - span / 2.0, centre + span / 2.0
            still.append(dimension.name)
    return RangeNormaliser(
        names=spec.names, low=tuple(low.tolist()), high=tuple(high.tolist()), still=tuple(still)
    )


def _require_keys(data: Mapping[str, Any], keys: set[str], what: str, optional: Collection[str] = ()) -> None:
    if set(data) - set(optional) != keys:
        raise DataError(
            f"{what} has the keys {sorted(data)}, expected exactly {sorted(keys)}; was it written by another"
            " version?"
        )
