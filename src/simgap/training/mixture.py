"""The mixture of simulated and real data: which is which, how much of each, to the sample, and whether they may be mixed at all.

``p_real`` is the share of *samples in a batch* that are real. It is neither a sampling weight nor a share of
the data; the share the data have by themselves stands beside it wherever it is reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.conventions import Unit, VectorSpec
from simgap.episodes.table import FrameTable
from simgap.errors import ConventionError, UsageError
from simgap.provenance import Stamp
from simgap.training.batches import diffuse
from simgap.types import EvidenceKind

DOMAINS = ("sim", "real")
"""Order of the two inputs that tell a policy where a sample comes from; a surrogate stands in for the real robot."""
_QUARTERS: Mapping[Unit, tuple[float, ...]] = {
    Unit.DEG: (90.0, 180.0),
    Unit.RAD: (float(np.pi / 2), float(np.pi)),
    Unit.TICKS: (1024.0, 2048.0),
}
"""Offsets between two zeros of one joint that calibrations are known to make."""
_NEAR = 0.1


def is_real(kind: EvidenceKind) -> bool:
    """Return whether data count as real in a mixture: recorded on the robot, or on the surrogate that stands in for it."""
    return kind in (EvidenceKind.REAL, EvidenceKind.SURROGATE)


def evidence_of(stamp: Stamp) -> EvidenceKind | None:
    """Return where a dataset comes from by its stamp: trials say it, generated data name their engine; None where nothing does."""
    named = stamp.fields.get("evidence")
    if named in tuple(EvidenceKind):
        return EvidenceKind(named)
    engine = stamp.fields.get("engine")
    return EvidenceKind.SIM if stamp.kind == "dataset" and engine not in (None, "", "unknown") else None


def real_counts(p_real: float, batch: int, steps: int) -> NDArray[np.int64]:
    """Return how many samples of each batch are real, ``(steps,)``, by error diffusion.

    After any n batches the number drawn is ``p_real * batch * n`` rounded, so it is never off by more than
    half a sample, and two batches differ by one sample at most.
    """
    ends = np.floor(p_real * batch * np.arange(steps + 1, dtype=np.float64) + 0.5 + 1e-9).astype(np.int64)
    return np.diff(ends)


def mixture_counts(
    rows: Sequence[int],
    shares: Sequence[float] | None,
    kinds: Sequence[EvidenceKind],
    p_real: float,
    batch: int,
    steps: int,
) -> NDArray[np.int64]:
    """Return how many samples each table gives to each batch, ``(steps, T)``, real ones exactly as :func:`real_counts` says.

    Args:
        rows: rows of each table that may be drawn.
        shares: of the tables within their side (sim or real), any scale; in proportion to their rows without.
        kinds: of each table.
        p_real: share of real samples in a batch.
        batch: samples a batch.
        steps: batches.

    Raises:
        UsageError: a side that is asked for has no table, or only tables with a share of 0.
    """
    weights = np.asarray(rows if shares is None else shares, dtype=np.float64)
    real = np.array([is_real(k) for k in kinds])
    counts = np.zeros((steps, len(rows)), dtype=np.int64)
    of_real = real_counts(p_real, batch, steps)
    for side, totals, name in ((real, of_real, "real"), (~real, batch - of_real, "sim")):
        if not totals.any():
            continue
        if not weights[side].sum() > 0:
            raise UsageError(
                f"p_real {p_real:g} needs {name} samples, and none of the {len(rows)} tables gives any"
                f" ({_listed(kinds)}); add data or change it"
            )
        counts[:, side] = diffuse(weights[side], totals)
    return counts


def _listed(kinds: Sequence[EvidenceKind]) -> str:
    return ", ".join(str(k) for k in kinds)


def account(
    counts: NDArray[np.int64], rows: Sequence[int], kinds: Sequence[EvidenceKind], p_real: float | None
) -> dict[str, Any]:
    """Return the share of real samples that was asked, that the data have by themselves, and that was drawn.

    Args:
        counts: samples of each table in each batch, ``(steps, T)``.
        rows: rows of each table that may be drawn.
        kinds: of each table.
        p_real: as asked; None where nothing was.
    """
    real = np.array([is_real(k) for k in kinds])
    drawn, total = counts.sum(axis=0), int(counts.sum())
    per_batch = counts[:, real].sum(axis=1)
    natural = np.asarray(rows, dtype=np.float64)
    return {
        "asked": p_real,
        "natural": float(natural[real].sum() / natural.sum()),
        "drawn": float(drawn[real].sum() / total),
        "samples_real": int(drawn[real].sum()),
        "samples": total,
        "in_a_batch": {"min": int(per_batch.min()), "max": int(per_batch.max())},
        "passes": {
            "real": float(drawn[real].sum() / natural[real].sum()) if real.any() else None,
            "sim": float(drawn[~real].sum() / natural[~real].sum()) if (~real).any() else None,
        },
    }


def domain_columns(kinds: Sequence[EvidenceKind]) -> NDArray[np.float32]:
    """Return the two inputs of each table, ``(T, 2)``: one for sim, one for real."""
    return np.array([[0.0, 1.0] if is_real(k) else [1.0, 0.0] for k in kinds], dtype=np.float32)


def source_offsets(tables: Sequence[FrameTable]) -> dict[int, dict[str, dict[str, float]]]:
    """Return, for each table but the first, the dimensions whose middle 90 % do not meet those of the first table, with their offset.

    Returns:
        Table -> ``action name`` or ``state name`` -> ``offset`` (difference of medians) and ``gap`` between
        the ranges.
    """
    found: dict[int, dict[str, dict[str, float]]] = {}
    for what in ("action", "state"):
        levels = [np.quantile(getattr(t, what), (0.05, 0.5, 0.95), axis=0) for t in tables]
        for k, (low, middle, high) in enumerate(levels[1:], start=1):
            gap = np.maximum(low - levels[0][2], levels[0][0] - high)
            width = np.maximum(high - low, levels[0][2] - levels[0][0])
            for d in np.flatnonzero((gap > 0) & (gap > 0.25 * width)):
                name = tables[0].action_spec.names[d] if what == "action" else tables[0].state_spec.names[d]
                found.setdefault(k, {})[f"{what} {name}"] = {
                    "offset": float(middle[d] - levels[0][1][d]),
                    "gap": float(gap[d]),
                }
    return found


def require_alike(tables: Sequence[FrameTable]) -> None:
    """Raise where one joint lies a quarter or half turn apart in two sources: two zeros, not two tasks.

    Raises:
        ConventionError: names joint, offset and both tables.
    """
    for k, offsets in source_offsets(tables).items():
        for name, numbers in offsets.items():
            what, joint = name.split(" ", 1)
            spec: VectorSpec = tables[0].action_spec if what == "action" else tables[0].state_spec
            unit = next(d.unit for d in spec.dimensions if d.name == joint)
            near = [q for q in _QUARTERS.get(unit, ()) if abs(abs(numbers["offset"]) - q) < _NEAR * q]
            if near:
                raise ConventionError(
                    f"{name} of table {k} ({tables[k].fingerprint[:12]}) is centred {numbers['offset']:.1f}"
                    f" {unit} away from table 0 ({tables[0].fingerprint[:12]}) and they do not meet: two"
                    " zeros of one joint; convert one of them before mixing"
                )
