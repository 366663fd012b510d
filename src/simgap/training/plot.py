"""The training loss as a picture, labelled with what it cannot say."""

from __future__ import annotations

import io
import json
from pathlib import Path

from simgap.bounds import read_text
from simgap.provenance import write_atomic
from simgap.training.resume import LOG

PICTURE = "train.png"


def draw_loss(out: Path) -> Path | None:
    """Draw ``train.jsonl`` of a run into ``train.png``; None where the log has no row.

    Args:
        out: run folder.
    """
    rows = [json.loads(line) for line in read_text(out / LOG).splitlines()] if (out / LOG).is_file() else []
    rows = [r for r in rows if "loss" in r]
    if not rows:
        return None
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.6), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.plot([r["step"] for r in rows], [r["loss"] for r in rows], color="#1f5a99", linewidth=1.5)
    if min(r["loss"] for r in rows) > 0:
        axes.set_yscale("log")
    axes.set(
        xlabel="optimiser steps",
        ylabel="training loss (normalised)",
        title="Fit to the labels; never selects a checkpoint",
    )
    axes.grid(visible=True, alpha=0.3)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", metadata={"Software": None})
    write_atomic(out / PICTURE, picture.getvalue())
    return out / PICTURE
