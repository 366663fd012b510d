"""Choosing a checkpoint by closed loop: a race on select seeds, then the winner alone on fresh report seeds."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from simgap.compute.locks import alone_in
from simgap.compute.workers import StandingWorkers, TaskRunner
from simgap.envs import make_env
from simgap.envs.factors import FactorRanges
from simgap.errors import DataError, UsageError
from simgap.policies.bridges.describe import is_lerobot_folder, needs_a_policy_file
from simgap.policies.bridges.open import AnyCard, read_any_card
from simgap.policies.bridges.policy_file import is_policy_file
from simgap.policies.checkpoint import CARD, KEPT
from simgap.provenance import canonical_json, child_rng, content_hash, source_hash, write_sealed
from simgap.rollouts import engine
from simgap.rollouts.engine import RolloutSpec
from simgap.rollouts.kept import Arm, run_arms
from simgap.rollouts.screen import ScreenReport, screen
from simgap.seeds import Purpose
from simgap.statistics import (
    BudgetedRace,
    Difference,
    Entrant,
    Quantity,
    most_missed,
    race_on_budget,
    rejects_schedule,
    select_against_report,
    selection_optimism,
    tally,
)
from simgap.types import Outcome

ROUND_GROUPS = 2
"""Groups between two looks at the race."""
RACED = "raced"
"""Folder of the groups of all races: another race of the same policies on the same seeds finds them again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A checkpoint in a race."""

    name: str
    path: Path
    card: AnyCard
    executor: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SelectSpec:
    """A race and its report."""

    candidates: tuple[Candidate, ...]
    env: str
    ranges: FactorRanges
    cap: int = 192
    """Select seeds a checkpoint at most; rounded up to whole groups."""
    report: int = 400
    """Report seeds of the winner."""
    seed: int = 0
    """Root of the select seeds."""
    report_seed: int = 0
    engine: str = "mujoco"
    renderer: str = "opengl"
    confidence: float = 0.95
    """Chance with which a best checkpoint is not called beaten."""
    share: float = 0.5
    """Budget of the race, as a share of running all to the cap; with 1 only those that are shown to be worse stop early."""

    def rollouts(self, candidate: Candidate, purpose: Purpose) -> RolloutSpec:
        """Return what is run of one candidate."""
        is_race = purpose is Purpose.SELECT
        return RolloutSpec(
            env=self.env,
            checkpoint=candidate.path,
            executor=candidate.executor,
            ranges=self.ranges,
            episodes=self.groups * engine.GROUP if is_race else self.report,
            purpose=purpose,
            seed=self.seed if is_race else self.report_seed,
            engine=self.engine,
            renderer=self.renderer,
        )

    @property
    def groups(self) -> int:
        """Groups of a candidate that runs to the cap."""
        return -(-self.cap // engine.GROUP)

    @property
    def looks(self) -> tuple[int, ...]:
        """Select seeds of each round."""
        return looks_of(self.groups)

    @property
    def full(self) -> int:
        """Rollouts of running all to the cap."""
        return self.groups * engine.GROUP * len(self.candidates)

    @property
    def most(self) -> int:
        """Rollouts of a race in which nobody is shown to be worse."""
        allowed = rejects_schedule(len(self.candidates), self.looks, self.share)
        return sum(count * seeds for count, seeds in zip(allowed, self.looks, strict=True) if count > 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """A race, its report, and what the race added to the winner's rate."""

    raced: BudgetedRace
    report: ScreenReport
    curse: Difference
    """Rate on select seeds minus rate on report seeds."""
    expected: Quantity | None
    """What selecting adds on average; None where checkpoints ran different numbers of seeds."""
    folder: Path


def candidates_of(paths: Sequence[Path], executor: str | None = None) -> tuple[Candidate, ...]:
    """Return the checkpoints of folders: each either one itself, with those kept along the way, or a folder of some; in order, numbers by value.

    Raises:
        DataError: a folder without a checkpoint.
        UsageError: fewer than two, or one policy twice.
    """
    found: list[Path] = []
    ends: dict[Path, Path] = {}
    for path in paths:
        is_one = (path / CARD).is_file() or is_policy_file(path)
        inside = sorted(
            (c.parent for c in path.glob(f"{KEPT}/*/{CARD}" if is_one else f"*/{CARD}")),
            key=lambda p: _natural(p.name),
        )
        if not is_one and not inside:
            if is_lerobot_folder(path):
                raise DataError(needs_a_policy_file(path))
            raise DataError(
                f"{path} holds no checkpoint and no folder of checkpoints; give what `simgap train` wrote,"
                " several of them, or a folder of several"
            )
        found += [*inside, path] if is_one else inside
        ends |= dict.fromkeys(inside, path) if is_one else {}
    if len(found) < 2:
        raise UsageError(
            f"{found[0]} is one checkpoint, nothing can be selected of one; give several, train with --keep,"
            f" or screen it: simgap screen {found[0]}"
        )
    cards = {path: read_any_card(path) for path in found}
    for path, end in ends.items():
        if cards[path].training.get("request") != cards[end].training.get("request"):
            raise DataError(
                f"{path} is of another training than {end}, which keeps it; delete it, or name the"
                " checkpoints you mean one by one"
            )
    by_hash: dict[str, Path] = {}
    for path in found:
        if cards[path].hash in by_hash:
            raise UsageError(f"{by_hash[cards[path].hash]} and {path} are the same policy; name it once")
        by_hash[cards[path].hash] = path
    names = _names(found)
    return tuple(
        Candidate(name=names[p], path=p, card=c, executor=executor or str(c.executor))
        for p, c in cards.items()
    )


def looks_of(groups: int) -> tuple[int, ...]:
    """Return the seeds of each round of a race in whole groups."""
    return tuple(engine.GROUP * min(ROUND_GROUPS, groups - first) for first in range(0, groups, ROUND_GROUPS))


def run_race(
    spec: SelectSpec,
    out: Path,
    *,
    workers: int,
    progress: Callable[[int], None] | None = None,
    runner: TaskRunner | None = None,
) -> BudgetedRace:
    """Race the candidates on select seeds until one is left, the cap is reached or the budget is spent.

    All that are still in run the same groups; see :func:`simgap.statistics.race_on_budget` for who stops.
    Killed at any moment and started again it goes on from the groups that are kept, and ends the same at any
    number of workers.

    Args:
        spec: what to race.
        out: folder of screens and races.
        workers: processes; 0 runs in this one.
        progress: called with the number of episodes that are new.
        runner: who runs the groups, such as a cluster; worker processes of this machine by default, which
            stay from look to look.
    """
    arms = [
        Arm(spec=spec.rollouts(c, Purpose.SELECT), policy=c.card.hash, folder=_home(spec, c, out))
        for c in spec.candidates
    ]
    place = {c.name: i for i, c in enumerate(spec.candidates)}

    with ExitStack() as stack:
        for arm in arms:
            stack.enter_context(alone_in(arm.folder))
        standing = stack.enter_context(StandingWorkers())  # started once, not once a look

        def run(look: int, names: Sequence[str]) -> dict[str, dict[int, Outcome]]:
            groups = range(look * ROUND_GROUPS, min((look + 1) * ROUND_GROUPS, spec.groups))
            found = run_arms(
                arms,
                {place[n]: groups for n in names},
                workers=workers,
                progress=progress,
                films=False,
                runner=runner or standing,
            )
            return {n: {r.seed: r.outcome for g in groups for r in found[place[n]][g]} for n in names}

        return race_on_budget(list(place), spec.looks, run, share=spec.share, confidence=spec.confidence)


def replay_race(
    outcomes: Sequence[Mapping[int, Outcome]], confidence: float = 0.95, share: float = 0.5
) -> tuple[int, int]:
    """Return whom a race over these outcomes would have taken, and after how many rollouts, without running any.

    Looks, budget and rules are those of ``simgap select``.

    Args:
        outcomes: of each checkpoint on common seeds, in the order of the seeds.
        confidence: of the race.
        share: its budget.
    """
    rows = [list(row.items()) for row in outcomes]
    looks = looks_of(-(-max(map(len, rows)) // engine.GROUP))

    def run(look: int, names: Sequence[str]) -> dict[str, dict[int, Outcome]]:
        first = sum(looks[:look])
        return {name: dict(rows[int(name)][first : first + looks[look]]) for name in names}

    raced = race_on_budget([str(i) for i in range(len(rows))], looks, run, share=share, confidence=confidence)
    return int(raced.winner), raced.trials


def report_winner(
    spec: SelectSpec,
    raced: BudgetedRace,
    out: Path,
    *,
    workers: int,
    progress: Callable[[int, int], None] | None = None,
    runner: TaskRunner | None = None,
) -> Selection:
    """Score the winner on seeds that had no part in choosing it, and say what choosing had added.

    Raises:
        UsageError: the report seeds are spent on another policy.
        DataError: a race without a trial that counts, or seeds of the race among those of the report.
    """
    winner = next(c for c in spec.candidates if c.name == raced.winner)
    if raced.selected.n == 0:
        raise DataError(
            f"none of the {raced.trials} rollouts of the race counts, they are all void: nothing can be"
            f" selected, and no report seed is spent; see why with simgap screen {winner.path}"
        )
    report = screen(
        spec.rollouts(winner, Purpose.REPORT), out, workers=workers, progress=progress, runner=runner
    )
    shared = set(report.outcomes) & {seed for seeds in raced.outcomes.values() for seed in seeds}
    if shared:
        raise DataError(
            f"{len(shared)} seeds, {min(shared)} first, were in the race and in the report: the report would"
            " flatter; nothing is reported"
        )
    counts = [tally(o.values()) for o in raced.outcomes.values()]
    expected = None
    if len({c.n for c in counts}) == 1:
        rng = child_rng(spec.seed, "optimism")
        expected = selection_optimism([c.successes for c in counts], counts[0].n, rng=rng)
    curse = select_against_report(raced.selected, report.rate)
    identity = [
        [content_hash(_identity(spec, c)) for c in spec.candidates],
        spec.groups,
        spec.report,
        spec.report_seed,
        spec.confidence,
        spec.share,
    ]
    folder = out / f"select-{content_hash(identity)[:16]}"
    selection = Selection(raced=raced, report=report, curse=curse, expected=expected, folder=folder)
    write_sealed(folder / "selection.json", json.loads(canonical_json(to_json(spec, selection))))
    return selection


def in_order(raced: BudgetedRace) -> list[Entrant]:
    """Return the entrants as they are shown: the winner, those that ran to the end, those set aside, last first, and those that are beaten."""
    aside = {name: i for i, name in enumerate(reversed(raced.set_aside), 1)}
    return sorted(
        raced.standing.entrants, key=lambda e: (e.name != raced.winner, not e.stays, aside.get(e.name, 0))
    )


def to_json(spec: SelectSpec, selection: Selection) -> dict[str, Any]:
    """Return plain JSON values."""
    raced, report, curse = selection.raced, selection.report, selection.curse
    by_name = {c.name: c for c in spec.candidates}
    return {
        "env": spec.env,
        "ranges": spec.ranges.to_json(),
        "winner": raced.winner,
        "winner_path": by_name[raced.winner].path,
        "not_told_apart": list(raced.alike),
        "entrants": [
            {
                "name": e.name,
                "path": by_name[e.name].path,
                "policy": by_name[e.name].card.hash,
                "executor": by_name[e.name].executor,
                "successes": e.rate.successes,
                "n": e.rate.n,
                "wilson": [e.rate.low, e.rate.high],
                "voids": e.voids,
                "stays": e.stays,
                "is_set_aside": e.name in raced.set_aside,
                "beaten_by": e.beaten_by,
                "letters": raced.standing.letters[e.name],
            }
            for e in in_order(raced)
        ],
        "method": raced.standing.method,
        "confidence": spec.confidence,
        "share": spec.share,
        "rollouts": raced.trials,
        "rollouts_without_race": spec.full,
        "best_is_better_by_at_most": most_missed(raced.outcomes, raced.winner, spec.confidence),
        "select": {
            "seed": spec.seed,
            "successes": raced.selected.successes,
            "n": raced.selected.n,
            "wilson": [raced.selected.low, raced.selected.high],
        },
        "report": {"seed": spec.report_seed, **report.to_json()},
        "curse": {"points": curse.point, "interval": [curse.low, curse.high], "method": curse.method},
        "expected_curse": None if selection.expected is None else selection.expected.point,
        "path": selection.folder,
    }


def _home(spec: SelectSpec, candidate: Candidate, out: Path) -> Path:
    return out / RACED / content_hash(_identity(spec, candidate))[:16]


def _identity(spec: SelectSpec, candidate: Candidate) -> dict[str, Any]:
    """Return what a candidate's groups depend on: everything but how many of them there are."""
    size = candidate.card.architecture.image_size
    made_by = make_env(
        spec.env, image_size=size, render=False, engine=spec.engine, renderer=spec.renderer
    ).stamp_fields()
    asked = {k: v for k, v in spec.rollouts(candidate, Purpose.SELECT).to_json().items() if k != "episodes"}
    return {
        **asked,
        **made_by,
        "policy": candidate.card.hash,
        "group": engine.GROUP,
        "source": source_hash("envs", "rollouts", "policies")[:16],
    }


def _names(paths: Sequence[Path]) -> dict[Path, str]:
    """Return the shortest ends of the paths that tell them apart."""
    parts = 1
    while parts < max(len(p.parts) for p in paths) and len({p.parts[-parts:] for p in paths}) < len(paths):
        parts += 1
    return {p: "/".join(p.parts[-parts:]) for p in paths}


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name) if part]


def running_rates(
    outcomes: Mapping[int, Outcome],
) -> tuple[np.ndarray[Any, np.dtype[np.int64]], np.ndarray[Any, np.dtype[np.float64]]]:
    """Return after how many trials that count a candidate had which rate."""
    counted = np.array([o.is_success for o in outcomes.values() if o.counts], dtype=np.float64)
    n = np.arange(1, len(counted) + 1)
    return n, np.cumsum(counted) / n
