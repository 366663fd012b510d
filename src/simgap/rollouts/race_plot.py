"""A race as a picture: rates as they ran, where candidates went out, and the winner on fresh seeds."""

from __future__ import annotations

import io
from pathlib import Path

from simgap.provenance import write_atomic
from simgap.rollouts.select import Selection, in_order, running_rates

PICTURE = "race.png"


def draw_race(selection: Selection) -> Path:
    """Draw a selection into ``race.png`` in its folder."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    raced, report = selection.raced, selection.report.rate
    figure = Figure(figsize=(8.0, 4.2), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    last = 1
    for entrant in reversed(in_order(raced)):
        n, rate = running_rates(raced.outcomes[entrant.name])
        if len(n) == 0:
            continue
        last = max(last, int(n[-1]))
        is_winner = entrant.name == raced.winner
        colour = "#1f5a99" if is_winner else "#7a9cc0" if entrant.stays else "#b9b9b9"
        axes.plot(
            n,
            100 * rate,
            color=colour,
            linewidth=2.2 if is_winner else 1.0,
            zorder=3 if is_winner else 2,
            label=entrant.name if is_winner else None,
        )
        if not entrant.stays:
            axes.plot(n[-1], 100 * rate[-1], "x", color="#a03030", markersize=5, zorder=4)
        elif entrant.name in raced.set_aside:
            axes.plot(
                n[-1], 100 * rate[-1], "o", color="#7a9cc0", markerfacecolor="white", markersize=4, zorder=4
            )
        axes.annotate(
            entrant.name,
            (n[-1], 100 * rate[-1]),
            xytext=(4, 0),
            textcoords="offset points",
            fontsize=7,
            va="center",
            color=colour,
        )
    if report.point is not None and report.low is not None and report.high is not None:
        errors = [[100 * (report.point - report.low)], [100 * (report.high - report.point)]]
        axes.errorbar(
            [last * 1.12], [100 * report.point], yerr=errors, fmt="o", color="#b3541e", capsize=4, zorder=5
        )
        axes.annotate(
            f"fresh seeds, n = {report.n}",
            (last * 1.12, 100 * report.point),
            xytext=(6, 0),
            textcoords="offset points",
            fontsize=7,
            color="#b3541e",
        )
    axes.set(
        xlim=(0, last * 1.3),
        ylim=(-3, 103),
        xlabel="select seeds",
        ylabel="success so far, %",
        title=f"{raced.winner} wins; crosses: shown not to be best, rings: set aside by the budget",
    )
    axes.grid(visible=True, alpha=0.3)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", metadata={"Software": None})
    write_atomic(selection.folder / PICTURE, picture.getvalue())
    return selection.folder / PICTURE
