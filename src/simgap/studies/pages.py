"""Studies as pages and pictures: the table, the command that made it, and what it does not show."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from simgap.policies.probe import AgeProbe, probe_executor
from simgap.provenance import write_atomic
from simgap.statistics import Estimate
from simgap.studies.execution import Cell, ExecutionStudy, Row, builder

TOLD = 0.05
"""Adjusted p below which a difference counts as told from none."""


def cell_text(rate: Estimate) -> str:
    """Return ``97/100 (92-99 %)``."""
    if rate.low is None or rate.high is None:
        return f"{rate.successes}/{rate.n}"
    return f"{rate.successes}/{rate.n} ({100 * rate.low:.0f}-{100 * rate.high:.0f} %)"


def execution_page(
    study: ExecutionStudy, policy: str, rows: Sequence[Row], command: str, picture: str, chunk: int
) -> str:
    """Return the page of an execution study as Markdown."""
    lines = [
        "# Execution: the same weights, another executor",
        "",
        (
            f"One policy (`{policy[:12]}`) in {study.env} ({study.ranges.name}), {study.starts} starts, the"
            " same for every row. Latency is in control steps"
        ),
        (
            "between sending an action and its taking effect. Intervals: Wilson, 95 %; differences: paired on"
            " starts. Holm's p over the table, from the"
        ),
        (
            "exact McNemar tests, decides; each interval is of its row alone and agrees with that row's own"
            " test. Made by"
        ),
        "",
        f"    {command}",
        "",
        f"![success by executor, latency and bug]({picture})",
        "",
        (
            "| executor | latency | bug | success | age reported, steps | against | points, 95 % interval | p"
            " (Holm) |"
        ),
        "|---|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        change, p = "", ""
        if r.difference is not None and r.difference.difference.point is not None:
            d = r.difference.difference
            change = f"{_points(d.point)} ({_points(d.low)} to {_points(d.high)})"
            p = "" if r.p_adjusted is None else f"{r.p_adjusted:.2g}"
        against = (
            "" if r.against is None else ("without the bug" if r.cell.bug else "without latency or lead")
        )
        what = f"| `{r.cell.spec}` | {r.cell.latency} | {r.cell.bug or '-'} |"
        lines.append(f"{what} {cell_text(r.rate)} | {r.mean_age:.2f} | {against} | {change} | {p} |")
    lines += [
        "",
        "## What it says",
        "",
        *(f"- {sentence}" for sentence in findings(rows)),
        "",
        "## What the age probe says of the same executors, without a rollout",
        "",
        (
            f"Chunks of {chunk} whose entries are their own step: what is sent says where it came from. Two"
            " episodes, every step against what the executor"
        ),
        "promises; the first step that shows a fault is named.",
        "",
        "| executor | bug | probe |",
        "|---|---|---|",
        *(f"| `{cell.spec}` | {cell.bug or '-'} | {text} |" for cell, text in probed(rows, chunk)),
        "",
        "## What this does not show",
        "",
        "- The age is what the executor reports; one with a bug may not know.",
        (
            "- One policy and one env: how much an executor matters depends on the chunk, the rate and how"
            " steady the policy is."
        ),
        "- Evidence of kind `sim`: latency on a robot varies from step to step, here it does not.",
        "- A bug that costs nothing here is still a bug; `simgap.policies.probe` finds it without a rollout.",
        "",
    ]
    return "\n".join(lines)


def probed(rows: Sequence[Row], chunk: int) -> list[tuple[Cell, str]]:
    """Return what the age probe finds in each executor and bug of a study."""
    cells = list(dict.fromkeys(replace(r.cell, latency=0, lead=0) for r in rows))
    said = []
    for cell in cells:
        report = probe_executor(builder(cell.bug)(cell.spec, AgeProbe.action_spec, chunk), cell.spec, chunk)
        said.append((cell, "exact" if report.is_exact else "; ".join(report.faults)))
    return said


def findings(rows: Sequence[Row]) -> list[str]:
    """Return what can be told apart in a study's rows, in sentences; what cannot is said too."""
    late = [r for r in rows if not r.cell.bug and r.cell.latency and not r.cell.lead]
    led = [r for r in rows if not r.cell.bug and r.cell.latency and r.cell.lead]
    found = (
        [
            "Latency that nobody reckons with:"
            f" {_sorted_out(late, lambda r: f'`{r.cell.spec}` at {r.cell.latency}')}."
        ]
        if late
        else []
    )
    if led:
        found.append(
            f"A lead of as many steps: {_sorted_out(led, lambda r: f'`{r.cell.spec}` at {r.cell.latency}')}."
        )
    for bug in dict.fromkeys(r.cell.bug for r in rows if r.cell.bug):
        found.append(
            f"`{bug}`:"
            f" {_sorted_out([r for r in rows if r.cell.bug == bug], lambda r: f'`{r.cell.spec}` at latency {r.cell.latency}')}."
        )
    return found


def _sorted_out(rows: Sequence[Row], name: Callable[[Row], str]) -> str:
    """Say of which rows the difference is told from zero (Holm, 5 %), largest first, and of how many it is not."""
    told = [r for r in rows if r.p_adjusted is not None and r.p_adjusted < TOLD and r.difference is not None]
    told.sort(key=lambda r: -abs(_point(r)))
    parts = [f"{name(r)} {_points(_point(r))} points" for r in told]
    rest = len(rows) - len(told)
    if rest:
        parts.append(
            f"{rest} of {len(rows)} not told from no change"
            if told
            else f"none of {len(rows)} is told from no change"
        )
    return ", ".join(parts)


def _point(row: Row) -> float:
    return (
        0.0
        if row.difference is None or row.difference.difference.point is None
        else row.difference.difference.point
    )


def _points(value: float | None) -> str:
    return f"{100 * (value or 0.0):+.1f}".replace("-0.0", "+0.0")


def draw_execution(rows: Sequence[Row], path: Path) -> Path:
    """Draw success over latency, one panel an executor, one line for correct, lead and each bug."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    executors = list(dict.fromkeys(r.cell.executor for r in rows))
    figure = Figure(figsize=(3.1 * len(executors), 3.6), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(executors), sharey=True, squeeze=False)[0]
    colours = ("#1f5a99", "#2f8f5b", "#b3541e", "#a03030", "#7a4fa0", "#8a6d1f", "#4a4a4a")
    names = list(dict.fromkeys(_line(r) for r in rows))
    latencies = sorted({r.cell.latency for r in rows})
    apart = 0.025 * max(1, latencies[-1])  # side by side, or equal rates hide each other
    for panel, executor in zip(panels, executors, strict=True):
        for name in names:
            own = sorted(
                (r for r in rows if r.cell.executor == executor and _line(r) == name),
                key=lambda r: r.cell.latency,
            )
            if own:
                y = [100 * (r.rate.point or 0.0) for r in own]
                low, high = (
                    [100 * abs((r.rate.point or 0.0) - (getattr(r.rate, end) or 0.0)) for r in own]
                    for end in ("low", "high")
                )
                colour = colours[names.index(name) % len(colours)]
                x = [r.cell.latency + apart * (names.index(name) - len(names) / 2) for r in own]
                panel.errorbar(
                    x, y, yerr=[low, high], marker="o", markersize=4, capsize=2, color=colour, label=name
                )
        panel.set(title=executor, xlabel="latency, control steps", ylim=(-4, 104), xticks=latencies)
        panel.grid(visible=True, alpha=0.3)
    panels[0].set_ylabel("success, %")
    handles = dict(
        pair for panel in panels for pair in zip(*reversed(panel.get_legend_handles_labels()), strict=True)
    )
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4, fontsize=7)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", metadata={"Software": None})
    write_atomic(path, picture.getvalue())
    return path


def _line(row: Row) -> str:
    return row.cell.bug or ("lead = latency" if row.cell.lead else "correct")
