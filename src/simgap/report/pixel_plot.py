"""The pixel floor as a picture: held-out error against frame size, with the task's tolerance."""

from __future__ import annotations

import io
from pathlib import Path

from simgap.pixelfloor.floor import FloorReport
from simgap.provenance import write_atomic

_COLOURS = {"pass": "#1a7f37", "fail": "#b42318", "cannot tell": "#57606a", "marginal": "#9a6700"}


def plot_floor(report: FloorReport, path: Path) -> None:
    """Write a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axes = figure.add_subplot()
    sizes = [s.size_px for s in report.sizes]
    for k, phase in enumerate(dict.fromkeys(e.phase for s in report.sizes for e in s.errors)):
        errors = [next(e for e in s.errors if e.phase == phase) for s in report.sizes]
        middle = [e.median_mm for e in errors]
        lows = [e.median_mm if e.median_interval_mm is None else e.median_interval_mm[0] for e in errors]
        spread = [
            [m - low for m, low in zip(middle, lows, strict=True)],
            [e.p90_mm - m for m, e in zip(middle, errors, strict=True)],
        ]
        axes.errorbar(
            sizes,
            middle,
            yerr=spread,
            marker="o",
            capsize=3,
            color=f"C{k}",
            label=f"{phase}: median, up to the 90th percentile",
        )
        axes.plot(
            sizes,
            [e.blind_median_mm for e in errors],
            linestyle=":",
            color=f"C{k}",
            label=f"{phase}: guessing from the encoders",
        )
    axes.axhline(
        report.tolerance_mm,
        color="black",
        linewidth=1,
        linestyle="--",
        label=f"tolerance {report.tolerance_mm:g} mm",
    )
    for s in report.sizes:
        axes.annotate(
            str(s.verdict),
            (s.size_px, 1.0),
            xycoords=("data", "axes fraction"),
            ha="center",
            va="bottom",
            color=_COLOURS[str(s.verdict)],
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sizes, [str(s) for s in sizes])
    axes.set_xlabel("frame size, px")
    axes.set_ylabel("error of the target's position, mm")
    axes.set_title(f"{report.env}, {report.factors}, {' and '.join(report.cameras)}", pad=22)
    axes.legend(fontsize=8)
    buffer = io.BytesIO()
    FigureCanvasAgg(figure)
    figure.savefig(buffer, format="png")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, buffer.getvalue())
