"""Pictures of what factors do: a teacher's map over two of them, and one swept alone."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from simgap.provenance import write_atomic
from simgap.statistics import Estimate
from simgap.teachers.map import ABSTAINED, SUCCESS, TeacherMap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plot_teacher_map(found: TeacherMap, path: Path) -> None:
    """Write a PNG: one panel a region that occurred, share of the rollouts by cell; the ranges of training are outlined."""
    from matplotlib.figure import Figure

    regions = [r for r in (SUCCESS, ABSTAINED, *found.counts) if r in found.counts]
    regions = list(dict.fromkeys(regions))
    figure = Figure(figsize=(3.6 * len(regions) + 0.8, 4.0), layout="constrained")
    panels: Any = figure.subplots(1, len(regions), squeeze=False)[0]
    image: Any = None
    for axes, region in zip(panels, regions, strict=True):
        share = np.array(found.counts[region]) / found.per_cell
        image = axes.pcolormesh(found.x.edges, found.y.edges, share, vmin=0.0, vmax=1.0, cmap="viridis")
        axes.set_title(f"{region}: {found.total(region)} of {found.rollouts}", fontsize=9)
        axes.set_xlabel(f"{found.x.factor} ({found.x.unit})", fontsize=8)
        axes.set_ylabel(f"{found.y.factor} ({found.y.unit})", fontsize=8)
        axes.tick_params(labelsize=8)
        _outline(axes, found)
    figure.colorbar(image, ax=list(panels), label="share of rollouts", shrink=0.85)
    figure.suptitle(
        f"{found.teacher} on {found.env}, others as {found.ranges.name}; white frame: {found.ranges.name}",
        fontsize=10,
    )
    _write(figure, path)


def plot_sweep(
    factor: str,
    unit: str,
    values: Sequence[float],
    rates: Sequence[Estimate],
    strips: Mapping[str, Sequence[NDArray[np.uint8]]],
    path: Path,
    *,
    title: str,
    inside: tuple[float, float] | None,
) -> None:
    """Write a PNG: success over one factor, and below it what each camera sees at every value.

    Args:
        factor: name of what was swept.
        unit: of its values.
        values: where it was held.
        rates: success at each.
        strips: camera -> a frame at each value.
        path: PNG file.
        title: what was tested.
        inside: range of the preset the others were drawn from; shaded.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(max(6.0, 1.1 * len(values)), 3.0 + 1.1 * len(strips)), layout="constrained")
    grid = figure.add_gridspec(1 + len(strips), len(values), height_ratios=[2.6, *([1.0] * len(strips))])
    axes = figure.add_subplot(grid[0, :])
    points = np.array([np.nan if r.point is None else r.point for r in rates])
    low = np.array([0.0 if r.low is None else r.low for r in rates])
    high = np.array([1.0 if r.high is None else r.high for r in rates])
    axes.errorbar(
        values, points, yerr=np.clip([points - low, high - points], 0.0, None), marker="o", capsize=3
    )
    if inside is not None and inside[0] < inside[1]:
        axes.axvspan(*inside, alpha=0.12, label="range of the preset")
        axes.legend(fontsize=8, loc="lower left")
    axes.set_ylim(-0.03, 1.03)
    axes.set_xlabel(f"{factor} ({unit})")
    axes.set_ylabel(f"success, {rates[0].method} {100 * rates[0].confidence:g} %")
    axes.set_title(title, fontsize=10)
    for row, (camera, frames) in enumerate(strips.items(), start=1):
        for column, frame in enumerate(frames):
            small = figure.add_subplot(grid[row, column])
            small.imshow(frame)
            small.set_axis_off()
            small.set_title(f"{values[column]:.3g}" if row == 1 else "", fontsize=7)
            if column == 0:
                small.text(
                    -0.08,
                    0.5,
                    camera,
                    transform=small.transAxes,
                    rotation=90,
                    va="center",
                    ha="right",
                    fontsize=8,
                )
    _write(figure, path)


def _outline(axes: Axes, found: TeacherMap) -> None:
    from matplotlib.patches import Rectangle

    ranges = found.ranges.ranges
    if found.x.factor in ranges and found.y.factor in ranges:
        (left, right), (bottom, top) = ranges[found.x.factor], ranges[found.y.factor]
        axes.add_patch(
            Rectangle(
                (left, bottom), right - left, top - bottom, fill=False, edgecolor="white", linewidth=1.5
            )
        )


def _write(figure: Figure, path: Path) -> None:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, buffer.getvalue())
