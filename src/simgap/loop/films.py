"""The film strips of a run: what failed in turn 1, and what the newest turn made of it."""

from __future__ import annotations

from collections.abc import Sequence

from simgap.episodes.reader import Dataset, open_dataset
from simgap.loop.results import TurnResult
from simgap.report import model as m
from simgap.rollouts.record import film_steps
from simgap.trials.batch import TrialResult, read_results
from simgap.types import EvidenceKind

FILM_MODES = 6
"""Failure modes of turn 1 shown as film strips, one each."""


def films_of(result: TurnResult) -> list[m.FilmStrip]:
    """Return the failures of turn 1, and of the newest turn that was tried what it repaired."""
    films: list[m.FilmStrip] = []
    first, later = result.turns[0], [t for t in result.turns[1:] if t.in_use is not None]
    if first.in_use is not None:
        log = open_dataset(first.in_use)
        results = read_results(log)
        films += [_film(log, r, "Surrogate, turn 1") for r in _failed(results, FILM_MODES)]
        films += [_film(log, r, "Surrogate, turn 1") for r in results if r.outcome.is_success][:1]
    if later and later[-1].in_use is not None:
        label = f"Surrogate, turn {later[-1].number}"
        log = open_dataset(later[-1].in_use)
        results = read_results(log)
        films += [_film(log, r, label) for r in _failed(results, 1)]
        shown = {f.seed for f in films if f.outcome.is_success is False}
        repaired = [r for r in results if r.outcome.is_success and r.seed in shown]
        successes = repaired or [r for r in results if r.outcome.is_success]
        note = "the same initial condition that failed in turn 1" if repaired else ""
        films += [_film(log, r, label, note) for r in successes[:1]]
    return films


def _failed(results: Sequence[TrialResult], count: int) -> list[TrialResult]:
    """Return one failed trial of each mode."""
    by_mode: dict[str, TrialResult] = {}
    for result in results:
        if result.outcome.counts and not result.outcome.is_success:
            by_mode.setdefault(result.outcome.detail, result)
    return list(by_mode.values())[:count]


def _film(log: Dataset, result: TrialResult, label: str, note: str = "") -> m.FilmStrip:
    episode = log.episode(result.index)
    keep = film_steps(len(episode))
    cameras = {c: [frames[i] for i in keep] for c, frames in episode.images.items()}
    return m.FilmStrip(
        label=label,
        outcome=result.outcome,
        source=EvidenceKind.SURROGATE,
        times_s=[float(episode.time_s[i]) for i in keep],
        cameras=cameras,
        seed=result.seed,
        condition=f"{result.index + 1} of {log.n_episodes}",
        note=note,
    )
