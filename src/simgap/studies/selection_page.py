"""The selection study as a page and a picture."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from simgap.provenance import write_atomic
from simgap.studies.resampled import FULL, HALF, NO_BUDGET, RACE
from simgap.studies.selection import SelectionStudy, SelectorResult, TrainingResult

WORDS = {
    "validation_loss": "lowest validation loss",
    "critical_error": "lowest error at critical steps",
    "chunk_consistency": "most consistent chunks",
    "last": "the last one",
    FULL: "full evaluation",
    RACE: "race",
}
REDRAWN = {
    FULL: "full evaluation",
    RACE: "race: beaten ones drop out, trailing ones are set aside to keep the budget",
    NO_BUDGET: "race without a budget: only beaten ones drop out",
    HALF: "everyone on half the seeds",
}


def selection_page(
    study: SelectionStudy, results: Sequence[TrainingResult], command: str, picture: str, data: Sequence[str]
) -> str:
    """Return the page of a selection study as Markdown; ``data`` says what each dataset is."""
    rate = float(np.mean([r.rates for r in results]))
    noise = 100 * np.sqrt(rate * (1 - rate) / study.truth)
    lines = [
        "# Selection: loss, proxies, closed loop",
        "",
        (
            f"{study.trainings} trainings in {study.env} ({study.ranges.name}), {study.checkpoints}"
            f" checkpoints each. Every checkpoint ran {study.truth} report"
        ),
        (
            f"seeds, by which all are judged, and {study.select} select seeds, by which full evaluation and"
            " the race choose. Regret: points of success lost"
        ),
        (
            "against the best of that training; of equals a selector takes the one trained longest. The"
            " race's rollouts are those it would have run. Made by"
        ),
        "",
        f"    {command}",
        "",
        f"Data: {'; '.join(data)}.",
        "",
        f"![success of every checkpoint, and what each selector took]({picture})",
        "",
        "| taken | regret, points, by training | mean | rollouts, mean | Spearman | Pearson | MMRV, points |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, words in WORDS.items():
        own = [s for r in results for s in r.selectors if s.name == name]
        regrets = ", ".join(f"{100 * s.regret:.1f}" for s in own)
        mean, cost = np.mean([s.regret for s in own]), np.mean([s.rollouts for s in own])
        lines.append(
            f"| {words} | {regrets} | {100 * mean:.1f} | {cost:.0f} | {_each(own, 'spearman')} |"
            f" {_each(own, 'pearson')} | {_mmrv(own)} |"
        )
    random = ", ".join(f"{100 * r.mean_regret:.1f}" for r in results)
    lines.append(
        f"| any, at random | {random} | {100 * np.mean([r.mean_regret for r in results]):.1f} | 0 | | | |"
    )
    lines += [
        "",
        *_redrawn_lines(results),
        "",
        "| training | " + " | ".join(f"step {s}" for s in results[0].steps) + " |",
        "|" + "---|" * (len(results[0].steps) + 1),
    ]
    lines += [
        f"| seed {r.seed} | " + " | ".join(f"{100 * rate:.0f} %" for rate in r.rates) + " |" for r in results
    ]
    lines += [
        "",
        "## What this does not show",
        "",
        (
            "- Checkpoints of one training share the trend that more training is better; a correlation over"
            " them says little about ranking different policies."
        ),
        (
            f"- True rates have noise of their own: at {study.truth} seeds and {100 * rate:.0f} % {noise:.1f}"
            " points standard deviation;"
        ),
        "  the best of them looks better than it is, and every regret is a little too large.",
        (
            "- The teacher's data are clean. With few human demonstrations validation loss is reported to do"
            " worse."
        ),
        "- Evidence of kind `sim`: which checkpoint is best on hardware is another question.",
        "",
    ]
    return "\n".join(lines)


def _each(own: Sequence[SelectorResult], name: str) -> str:
    values = [getattr(s, name) for s in own]
    return (
        ""
        if all(v is None for v in values)
        else ", ".join("undefined" if v is None else f"{v:+.2f}" for v in values)
    )


def _mmrv(own: Sequence[SelectorResult]) -> str:
    return ", ".join(f"{100 * s.mmrv:.1f}" for s in own if s.mmrv is not None)


def _redrawn_lines(results: Sequence[TrainingResult]) -> list[str]:
    """Return what the closed-loop selectors lose and cost over draws of the select seeds, and one sentence on the race."""
    race, full = ([s for r in results for s in r.selectors if s.name == name] for name in (RACE, FULL))
    share = sum(s.rollouts for s in race) / max(1, sum(s.rollouts for s in full))
    gap = 100 * (np.mean([s.regret for s in race]) - np.mean([s.regret for s in full]))
    lines = [
        (
            f"On these seeds the race took {share:.0%} of full evaluation's rollouts; its mean regret differs"
            f" by {gap:+.1f} points. Seeds drawn again with"
        ),
        "replacement, the same for every selector, say how much of that is luck:",
        "",
        (
            "| taken by | rollouts, share of full | regret, points, by training | against full evaluation,"
            " points: mean, middle 95 % of draws, by training |"
        ),
        "|---|---|---|---|",
    ]
    for name, words in REDRAWN.items():
        own = [s for r in results for s in r.resampled if s.name == name]
        if not own:
            continue
        against = (
            ""
            if name == FULL
            else ", ".join(
                f"{100 * s.against_full:+.1f} ({100 * s.low:+.1f} to {100 * s.high:+.1f})" for s in own
            )
        )
        lines.append(
            f"| {words} | {np.mean([s.share for s in own]):.0%} |"
            f" {', '.join(f'{100 * s.regret:.1f}' for s in own)} | {against} |"
        )
    return lines


def draw_selection(results: Sequence[TrainingResult], path: Path) -> Path:
    """Draw true success over steps, one panel a training, with a mark at what each selector took."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.6 * len(results), 3.6), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(results), sharey=True, squeeze=False)[0]
    lowest = min(min(r.rates) for r in results)
    marks = dict(zip(WORDS, ("v", "s", "D", ">", "^", "*"), strict=True))
    for panel, result in zip(panels, results, strict=True):
        rates = dict(zip(result.steps, result.rates, strict=True))
        panel.plot(list(rates), [100 * r for r in rates.values()], color="#7a9cc0", marker=".")
        for i, taken in enumerate(result.selectors):
            place = (taken.step, 100 * rates[taken.step])
            style = (
                {"markersize": 14, "markerfacecolor": "none"}
                if taken.name == RACE
                else {"markersize": 10 - i, "alpha": 0.8}
            )
            panel.plot(*place, marks[taken.name], label=WORDS[taken.name], **style)
        panel.set(
            title=f"training seed {result.seed}", xlabel="optimiser steps", ylim=(100 * lowest - 6, 104)
        )
        panel.grid(visible=True, alpha=0.3)
    panels[0].set_ylabel("success on report seeds, %")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=7)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", metadata={"Software": None})
    write_atomic(path, picture.getvalue())
    return path
