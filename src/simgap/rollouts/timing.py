"""Where the wall time of rollouts went: drawing, forward passes, the env's steps. Never part of a result: no two runs agree on it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.errors import DataError
from simgap.provenance import canonical_json, read_sealed, write_sealed
from simgap.rollouts.record import RolloutRecord

TIMING = "timing.json"
PARTS = ("draw_s", "forward_s", "step_s")


def summarise(records: Sequence[RolloutRecord]) -> dict[str, Any] | None:
    """Return quantiles of each part over the batches and steps that were timed; None where all records were read back from disk.

    Returns:
        Part -> ``n``, ``median``, ``p95`` and ``most``, in seconds, of batches (drawing, forward) or steps of
        one env; and the median and largest ``observations`` of a batch.
    """
    timed = [r for r in records if r.forwards is not None and r.step_s is not None]
    if not timed:
        return None
    forwards = np.concatenate([r.forwards for r in timed if r.forwards is not None])
    steps = np.concatenate([r.step_s for r in timed if r.step_s is not None])
    columns = (forwards[:, 0], forwards[:, 1], steps)
    parts = {name: _quantiles(values) for name, values in zip(PARTS, columns, strict=True) if len(values)}
    batch = (
        {"median": float(np.median(forwards[:, 2])), "most": int(forwards[:, 2].max())}
        if len(forwards)
        else None
    )
    return {"rollouts": len(timed), "observations": batch, **parts}


def write_timing(folder: Path, records: Sequence[RolloutRecord]) -> None:
    """Write the summary beside a screen; nothing is written where nothing was timed."""
    if (summary := summarise(records)) is not None:
        write_sealed(folder / TIMING, json.loads(canonical_json(summary)))


def read_timing(folder: Path) -> dict[str, Any] | None:
    """Return what :func:`write_timing` wrote, None where there is none.

    Raises:
        DataError: it cannot be read, or holds something else.
    """
    file = folder / TIMING
    if not file.is_file():
        return None
    try:
        timing = read_sealed(file)
        for part in (*PARTS, "observations"):
            numbers = timing.get(part) or {}
            needed = ("median", "most" if part == "observations" else "p95") if numbers else ()
            if not all(math.isfinite(numbers[name]) for name in needed):
                raise ValueError(f"{part} is not finite")
    except (DataError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{file} cannot be read ({error!r}); delete it, no result depends on it") from error
    return dict(timing)


def in_words(timing: dict[str, Any], rate_hz: float) -> str:
    """Return one line: a batch's forward pass against the control period, and what else took time."""
    forward, batch, step, draw = (
        timing.get(name) for name in ("forward_s", "observations", "step_s", "draw_s")
    )
    if not forward or not step or not draw or not batch:
        return "no forward pass was timed"
    size = f"of {batch['most']} at most" if batch["most"] > 1 else "of one"
    return (
        f"forward pass (batch {size}): median {1000 * forward['median']:.1f} ms, 95 % within"
        f" {1000 * forward['p95']:.1f} ms; frames {1000 * draw['median']:.1f} ms; one step of the env"
        f" {1000 * step['median']:.2f} ms (a control period is {1000 / rate_hz:.0f} ms)"
    )


def _quantiles(values: NDArray[np.float32]) -> dict[str, float]:
    median, p95 = np.quantile(values, (0.5, 0.95))
    return {"n": len(values), "median": float(median), "p95": float(p95), "most": float(values.max())}
