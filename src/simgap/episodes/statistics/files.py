"""Statistics files of other projects, read as one thing: blocks of named statistics, wherever in the file they lie.

openpi's ``norm_stats.json``, OpenVLA's ``dataset_statistics.json``, bare quantile files, LeRobot's
``stats.json`` and the normaliser state inside a LeRobot policy folder differ in nesting, not in kind:
somewhere inside there is a mapping from ``mean``, ``std``, ``q01`` ... to lists of numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.bounds import DAMAGED, JSON_BYTES, MALFORMED, read_bytes, said
from simgap.episodes.formats.layout import require_content
from simgap.errors import DataError
from simgap.provenance import read_json

STATISTICS = ("min", "max", "mean", "std", "q01", "q10", "q50", "q90", "q99")
_ALIASES = {"p01": "q01", "p99": "q99", "stddev": "std", "minimum": "min", "maximum": "max"}
_MOST_BYTES = JSON_BYTES
_MOST_BLOCKS = 5000
_DEEPEST = 8


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class StatisticsBlock:
    """The statistics of one vector."""

    file: str
    """Name of the file."""
    group: str
    """Dataset or robot they belong to; empty where the file names none."""
    key: str
    """Feature: ``action``, ``state``, ``observation.images.top`` ..."""
    values: Mapping[str, NDArray[np.float64]]
    """Statistic -> ``(D,)``; only names of :data:`STATISTICS`."""
    mask: NDArray[np.bool_] | None = None
    """False where the owner leaves a dimension unscaled; None where the file has no mask."""
    is_image: bool = False
    """True for one value a colour channel."""
    counts: Mapping[str, int] | None = None
    """Frames and trajectories beside the block, as declared."""
    count: int | None = None
    """Values behind the statistics, as declared; None where the file does not say."""

    @property
    def name(self) -> str:
        """Where the block is, for people and as a key in documents."""
        return "/".join(part for part in (self.group, self.key) if part) or self.file

    @property
    def size(self) -> int:
        """Number of dimensions, by the longest statistic."""
        return max((len(v) for v in self.values.values()), default=0)

    @property
    def is_even(self) -> bool:
        """True when every statistic, and the mask, has one value a dimension."""
        return all(len(v) == self.size for v in self.values.values()) and (
            self.mask is None or len(self.mask) == self.size
        )

    def get(self, statistic: str) -> NDArray[np.float64] | None:
        """Return one statistic, ``(D,)``, or None."""
        return self.values.get(statistic)

    @property
    def scaled(self) -> NDArray[np.bool_]:
        """Which dimensions a normaliser scales, ``(D,)``: all without a mask."""
        return np.ones(self.size, dtype=bool) if self.mask is None else self.mask

    @property
    def is_all_zero(self) -> bool:
        """True when every number is 0: nothing was recorded."""
        return all(not v.any() for v in self.values.values())

    @property
    def width(self) -> NDArray[np.float64] | None:
        """``q99 - q01``, else ``max - min``, ``(D,)``; None where neither is stored."""
        for low, high in (("q01", "q99"), ("min", "max")):
            if low in self.values and high in self.values:
                return np.asarray(self.values[high] - self.values[low], dtype=np.float64)
        return None

    def still(self) -> dict[str, list[int]]:
        """Return the dimensions without a width for each way of scaling that has its statistics here: it divides by zero there."""
        found: dict[str, list[int]] = {}
        for mode, low, high in (("QUANTILES", "q01", "q99"), ("MIN_MAX", "min", "max")):
            if low in self.values and high in self.values:
                found[mode] = [int(k) for k in np.flatnonzero(self.values[low] == self.values[high])]
        if (std := self.get("std")) is not None:
            found["MEAN_STD"] = [int(k) for k in np.flatnonzero(std == 0.0)]
        return found

    def constant(self) -> list[int]:
        """Return the dimensions whose stored spread is exactly zero: ``q01 == q99`` or a standard deviation of 0."""
        still = np.zeros(self.size, dtype=bool)
        for spread in (self.width, self.get("std")):
            still |= False if spread is None else spread == 0.0
        return [int(k) for k in np.flatnonzero(still)]


def read_statistics(path: Path) -> tuple[StatisticsBlock, ...]:
    """Return the blocks of a JSON or safetensors file, none where the file holds other things.

    Raises:
        DataError: the file is missing, too large, a Git LFS pointer, or not what its suffix says.
    """
    require_content(path, limit_bytes=_MOST_BYTES)
    blocks = (
        _tensors(path)
        if path.suffix == ".safetensors"
        else tuple(_walk(read_json(path, finite=False), path.name, (), None))
    )
    if len(blocks) > _MOST_BLOCKS:
        raise DataError(
            f"{path} holds {len(blocks)} blocks of statistics, more than {_MOST_BLOCKS}; split the file"
        )
    return blocks


def blocks_in(document: Mapping[str, Any], file: str, group: str = "") -> tuple[StatisticsBlock, ...]:
    """Return the blocks inside a parsed JSON object, under a group of this name."""
    return tuple(_walk(document, file, (group,) if group else (), None))


def _walk(
    value: Any, file: str, trail: tuple[str, ...], counts: Mapping[str, int] | None
) -> Iterator[StatisticsBlock]:
    if not isinstance(value, dict) or len(trail) > _DEEPEST:
        return
    block = _block(value, file, trail, counts)
    if block is not None:
        yield block
        return
    numbers = {k: int(v) for k, v in value.items() if k.startswith("num_") and isinstance(v, int)}
    for key, inner in value.items():
        yield from _walk(inner, file, (*trail, str(key)), numbers or counts)


def _block(
    value: Mapping[str, Any], file: str, trail: tuple[str, ...], counts: Mapping[str, int] | None
) -> StatisticsBlock | None:
    parsed, is_image = {}, False
    for raw, numbers in value.items():
        name = _ALIASES.get(str(raw), str(raw))
        array = _numbers(numbers) if name in STATISTICS else None
        if array is not None:
            is_image |= array.ndim == 3
            parsed[name] = array.reshape(-1)
    if len(parsed) < 2:
        return None
    mask = value.get("mask")
    return StatisticsBlock(
        file=file,
        group="/".join(t for t in trail[:-1] if t != "norm_stats"),
        key=trail[-1] if trail else "",
        values=parsed,
        mask=_mask(mask),
        is_image=is_image or "image" in (trail[-1] if trail else ""),
        counts=counts,
        count=_count(value, counts),
    )


def _mask(value: Any) -> NDArray[np.bool_] | None:
    return (
        np.array(value, dtype=bool)
        if isinstance(value, list) and all(isinstance(v, bool | int) for v in value)
        else None
    )


def _count(value: Mapping[str, Any], counts: Mapping[str, int] | None) -> int | None:
    said = value.get("count", (counts or {}).get("num_transitions"))
    said = said[0] if isinstance(said, list) and len(said) == 1 else said
    return said if isinstance(said, int) and not isinstance(said, bool) and said > 0 else None


def _numbers(value: Any) -> NDArray[np.float64] | None:
    if not isinstance(value, list) or not value:
        return None
    try:
        return np.asarray(value, dtype=np.float64)
    except MALFORMED:
        return None


def _tensors(path: Path) -> tuple[StatisticsBlock, ...]:
    """Read LeRobot's normaliser state: flat keys such as ``observation.state.mean``."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        flat = load(read_bytes(path, _MOST_BYTES))
    except (SafetensorError, *DAMAGED) as error:
        raise DataError(f"{path} is no readable safetensors file ({said(error)}); copy it again") from error
    grouped: dict[str, dict[str, NDArray[np.float64]]] = {}
    images = set()
    for name, tensor in flat.items():
        feature, _, statistic = name.rpartition(".")
        statistic = _ALIASES.get(statistic, statistic)
        if feature and statistic in STATISTICS:
            grouped.setdefault(feature, {})[statistic] = np.asarray(tensor, dtype=np.float64).reshape(-1)
            if np.ndim(tensor) == 3 or "image" in feature:
                images.add(feature)
    whole = {k: v for k, v in grouped.items() if len(v) >= 2}  # one statistic alone scales nothing
    return tuple(
        StatisticsBlock(file=path.name, group="", key=k, values=v, is_image=k in images)
        for k, v in whole.items()
    )


def dialect(blocks: tuple[StatisticsBlock, ...]) -> str:
    """Return whose layout the blocks have, in a word."""
    if any(b.mask is not None for b in blocks):
        return "openvla"
    if blocks and all(set(b.values) == {"q01", "q99"} for b in blocks):
        return "quantiles"
    if any(b.key.startswith(("observation.", "action")) and b.key != "actions" for b in blocks):
        return "lerobot"
    return "openpi" if any(b.key in ("state", "actions") for b in blocks) else "unknown"
