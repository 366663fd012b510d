"""Which checkpoint to take: does validation loss, or something better, order checkpoints as closed loop does, and what does a race cost?

Three sets of seeds that never meet: data (*train*), selection (*select*), and the truth all selectors are
judged by (*report*). Full evaluation is a selector like any other here: it, too, chooses by one set and is
judged by the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from simgap.envs import make_env
from simgap.envs.factors import FactorRanges
from simgap.episodes.table import FrameTable
from simgap.errors import UsageError
from simgap.policies.checkpoint import load_policy, read_card
from simgap.policies.execution import Mode, parse_executor
from simgap.provenance import (
    canonical_json,
    child_rng,
    content_hash,
    read_sealed,
    source_hash,
    write_atomic,
    write_sealed,
)
from simgap.rollouts import engine
from simgap.rollouts.engine import RolloutSpec
from simgap.rollouts.kept import Arm, run_arms
from simgap.rollouts.select import replay_race
from simgap.seeds import Purpose
from simgap.statistics import mmrv, pearson, spearman, tally
from simgap.studies.checkpoints import steps_of, train_keeping
from simgap.studies.proxies import PROXIES, ProxyScores, held_out_episodes, score
from simgap.studies.resampled import FULL, RACE, ResampledSelector, last_largest, resampled
from simgap.training.plan import Plan
from simgap.training.spec import TrainSpec
from simgap.types import Outcome


@dataclass(frozen=True, kw_only=True, slots=True)
class SelectionStudy:
    """What to run."""

    env: str
    ranges: FactorRanges
    train: TrainSpec
    """Of each training; its seed is replaced."""
    trainings: int = 3
    checkpoints: int = 12
    select: int = 192
    """Select seeds a checkpoint, the race's cap as well; whole groups."""
    truth: int = 200
    """Report seeds a checkpoint."""
    seed: int = 0
    engine: str = "mujoco"
    confidence: float = 0.95
    draws: int = 200
    """Of the select seeds, to say how much of a regret is luck."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scored:
    """One checkpoint with everything that is known of it."""

    step: int
    proxies: ProxyScores
    select: Mapping[int, Outcome]
    """Seed -> outcome, in the order of the seeds."""
    truth: Mapping[int, Outcome]

    @property
    def true_rate(self) -> float:
        """Success on report seeds."""
        return _rate(self.truth)


@dataclass(frozen=True, kw_only=True, slots=True)
class SelectorResult:
    """What one way of choosing did in one training."""

    name: str
    step: int
    """Of the checkpoint it took."""
    regret: float
    """Best true rate minus that of what it took."""
    rollouts: int
    spearman: float | None
    """Of its scores with the true rates; None where it has none or they are constant."""
    pearson: float | None
    mmrv: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingResult:
    """One training."""

    seed: int
    steps: tuple[int, ...]
    rates: tuple[float, ...]
    """True rate of each checkpoint."""
    selectors: tuple[SelectorResult, ...]
    mean_regret: float
    """Of taking any checkpoint at random."""
    resampled: tuple[ResampledSelector, ...] = ()
    """The closed-loop selectors over draws of the select seeds."""


def run_selection(
    study: SelectionStudy,
    tables: Sequence[FrameTable],
    out: Path,
    *,
    workers: int,
    progress: Callable[[str, int], None] | None = None,
) -> list[TrainingResult]:
    """Train, score and judge, or go on where a killed study stopped.

    Args:
        study: what to run.
        tables: data of one env.
        out: folder.
        workers: processes of the rollouts; 0 runs in this one.
        progress: called with a stage (``steps``, ``rollouts`` or ``draws``) and how many are new.

    Raises:
        UsageError: fewer than three checkpoints, which no correlation can order.
    """
    if study.checkpoints < 3:
        raise UsageError(
            f"{study.checkpoints} checkpoints: no correlation says anything of fewer than three; keep 12 or"
            " more"
        )
    results = []
    for index in range(study.trainings):
        spec = replace(study.train, seed=study.seed + index)
        folder = (
            out
            / f"training-{content_hash([spec.to_json(), [t.fingerprint for t in tables], study.checkpoints])[:12]}"
        )
        at = steps_of(spec.steps, study.checkpoints)
        paths, plan = _trained(tables, spec, at, folder, progress)
        proxies = [_proxies(path, tables, plan.held_out_rows) for path in paths]
        chosen, truth = (
            _outcomes(study, paths, purpose, folder, workers, progress)
            for purpose in (Purpose.SELECT, Purpose.REPORT)
        )
        scored = [
            Scored(step=s, proxies=p, select=c, truth=t)
            for s, p, c, t in zip(at, proxies, chosen, truth, strict=True)
        ]
        results.append(_redrawn(analyse(scored, spec.seed, study.confidence), scored, study, progress))
    write_atomic(out / "selection.json", canonical_json([asdict(r) for r in results]))
    return results


def analyse(scored: Sequence[Scored], seed: int = 0, confidence: float = 0.95) -> TrainingResult:
    """Judge every selector by the true rates of one training's checkpoints.

    MMRV is in points of success, ties by the ``strict`` rule: a score that ties checkpoints says nothing and
    is not punished.
    """
    rates = np.array([c.true_rate for c in scored])
    full = [_rate(c.select) for c in scored]
    scores: dict[str, list[float]] = {
        name: [float(getattr(c.proxies, name)) for c in scored] for name in PROXIES
    }
    total = sum(len(c.select) for c in scored)
    found = []
    for name, values in {**scores, FULL: full}.items():
        best = last_largest(values)
        rho, r = spearman(real=rates, sim=values), pearson(real=rates, sim=values)
        violation = mmrv(real=rates, sim=values, ties="strict")
        cost = total if name == FULL else 0
        found.append(_result(name, scored[best].step, rates, best, cost, rho, r, violation))
    found.append(_result("last", scored[-1].step, rates, len(scored) - 1, 0, None, None, None))
    winner, cost = replay_race([c.select for c in scored], confidence)
    found.append(_result(RACE, scored[winner].step, rates, winner, cost, None, None, None))
    return TrainingResult(
        seed=seed,
        steps=tuple(c.step for c in scored),
        rates=tuple(rates.tolist()),
        selectors=tuple(found),
        mean_regret=float(rates.max() - rates.mean()),
    )


def _trained(
    tables: Sequence[FrameTable],
    spec: TrainSpec,
    at: Sequence[int],
    folder: Path,
    progress: Callable[[str, int], None] | None,
) -> tuple[list[Path], Plan]:
    """Train, or find a training; its steps are told either way, so that the progress of a killed study ends where it should."""
    told = 0

    def tell(count: int) -> None:
        nonlocal told
        told += count
        if progress:
            progress("steps", count)

    made = train_keeping(tables, spec, at, folder, tell)
    tell(spec.steps - told)
    return made


def _redrawn(
    result: TrainingResult,
    scored: Sequence[Scored],
    study: SelectionStudy,
    progress: Callable[[str, int], None] | None,
) -> TrainingResult:
    told = None if progress is None else lambda n: progress("draws", n)
    rng = child_rng(result.seed, "resampled selection")
    select = [c.select for c in scored]
    return replace(
        result,
        resampled=resampled(
            select, result.rates, rng, draws=study.draws, confidence=study.confidence, progress=told
        ),
    )


def _result(
    name: str,
    step: int,
    rates: np.ndarray[Any, np.dtype[np.float64]],
    best: int,
    cost: int,
    rho: float | None,
    r: float | None,
    violation: float | None,
) -> SelectorResult:
    regret = float(rates.max() - rates[best])
    return SelectorResult(
        name=name, step=step, regret=regret, rollouts=cost, spearman=rho, pearson=r, mmrv=violation
    )


def _rate(outcomes: Mapping[int, Outcome]) -> float:
    counts = tally(outcomes.values())
    if counts.n == 0:
        raise UsageError(
            "a checkpoint without a single rollout that counts; nothing can be correlated with it"
        )
    return counts.successes / counts.n


def _proxies(path: Path, tables: Sequence[FrameTable], held_out: Sequence[Any]) -> ProxyScores:
    """Return a checkpoint's proxies, kept beside it."""
    file = path / "proxies.json"
    card = read_card(path)
    key = {"policy": card.hash, "source": source_hash("studies", "measures", "policies")[:16]}
    if file.is_file() and (kept := read_sealed(file)).get("key") == key:
        return ProxyScores(**kept["scores"])
    replan = parse_executor(str(card.executor))
    sent = (
        replan.replan_steps
        if replan.mode is Mode.RECEDING
        else 1
        if replan.mode is not Mode.WHOLE_CHUNK
        else card.architecture.chunk
    )
    policy, loss = (
        load_policy(path, bf16=True, threads=1, domain="sim"),
        float(card.training["validation_loss_never_selects"]),
    )
    parts = [
        score(policy, t, e, loss=loss, sent=sent)
        for t, rows in zip(tables, held_out, strict=True)
        if (e := held_out_episodes(t, rows))
    ]
    scores = ProxyScores(**{name: float(np.mean([getattr(p, name) for p in parts])) for name in PROXIES})
    write_sealed(file, {"key": key, "scores": asdict(scores)})
    return scores


def _outcomes(
    study: SelectionStudy,
    paths: Sequence[Path],
    purpose: Purpose,
    out: Path,
    workers: int,
    progress: Callable[[str, int], None] | None,
) -> list[dict[int, Outcome]]:
    arms = []
    for path in paths:
        card = read_card(path)
        spec = RolloutSpec(
            env=study.env,
            checkpoint=path,
            executor=str(card.executor),
            ranges=study.ranges,
            episodes=study.select if purpose is Purpose.SELECT else study.truth,
            purpose=purpose,
            seed=study.seed,
            engine=study.engine,
        )
        made_by = make_env(
            study.env, image_size=card.architecture.image_size, render=False, engine=study.engine
        ).stamp_fields()
        identity = {
            **spec.to_json(),
            **made_by,
            "policy": card.hash,
            "source": source_hash("envs", "rollouts", "policies")[:16],
            "group": engine.GROUP,
        }
        arms.append(Arm(spec=spec, policy=card.hash, folder=out / "rollouts" / content_hash(identity)[:16]))
    told = None if progress is None else lambda n: progress("rollouts", n)
    found = run_arms(
        arms, {i: range(a.groups) for i, a in enumerate(arms)}, workers=workers, progress=told, films=False
    )
    return [{r.seed: r.outcome for g in sorted(found[i]) for r in found[i][g]} for i in range(len(arms))]
