"""Two turns of the loop on a sealed surrogate: claim, trial, diagnosis before the seal, targeted data, trial again."""

from __future__ import annotations

import json
from pathlib import Path

from simgap.checks.registry import all_checks
from simgap.compute.cache import StageCache
from simgap.compute.locks import alone_in
from simgap.diagnosis import Diagnosis, diagnose
from simgap.envs import make_env
from simgap.envs.factors import FactorRanges
from simgap.errors import DataError
from simgap.ledger import Ledger
from simgap.ledger.heads import LEDGER_FILE
from simgap.loop.record import TurnLedger
from simgap.loop.recorded import read_recorded
from simgap.loop.results import Turn, TurnResult, compare, turn_evidence
from simgap.loop.spec import Reporter, TurnSpec
from simgap.loop.stages import Stages
from simgap.loop.store import RUN_JSON, save_run
from simgap.mutants.gaps import Gap, nonce_of
from simgap.policies.execution import parse_executor
from simgap.provenance import canonical_json, read_json, read_sealed, write_atomic, write_sealed
from simgap.robots.base import SealedRobot
from simgap.seeds import Purpose
from simgap.statistics import ScreenVerdict
from simgap.targeting import DataPlan, plan_data

DATA_SEED = 0
"""Seed of the first training set: all runs share it, and so its policy."""


def run_turns(spec: TurnSpec, folder: Path, cache: Path, reporter: Reporter, *, workers: int) -> TurnResult:
    """Run two turns, or what is missing of them; the same spec and folder go on after a kill.

    Args:
        spec: sizes and seeds.
        folder: this run's folder: trials, ledger, diagnosis.
        cache: shared folder for datasets, checkpoints and screens.
        reporter: told what is going on.
        workers: worker processes.

    Raises:
        DataError: the folder holds a run of another spec, or its ledger was changed.
    """
    with alone_in(folder):
        return _run_turns(spec, folder, cache, reporter, workers)


def _run_turns(spec: TurnSpec, folder: Path, cache: Path, reporter: Reporter, workers: int) -> TurnResult:
    env = make_env(spec.env, image_size=spec.image_size, render=False)
    ranges = env.presets["nominal"]
    _keep_spec(spec, folder)
    stages = Stages(spec, env, StageCache(cache), folder, reporter, workers)
    with Ledger(folder / LEDGER_FILE, create=not (folder / RUN_JSON).exists()) as ledger:
        ledger.require_kept(folder)
        book = TurnLedger(ledger)
        robot = stages.surrogate().open()
        try:
            seal = book.commit(robot.seal, spec, ranges)
            first, data = _first_turn(stages, robot, ranges, book)
            if first.in_use is None or first.conditions is None:
                return _finished(ledger, spec, folder, ranges, first, robot.seal)
            replays = stages.trials(
                "replay logged actions",
                "replay",
                robot,
                conditions=stages.replay_conditions(data),
                replay_of=data,
            )
            book.trials("replay", replays)
            found = _diagnosis(stages, first, data, ranges, replays)
            finding = book.finding(found)
            reporter.say(f"diagnosis (ledger row {finding.id}, seal still closed): {found.sentence}")
            plan = plan_data(
                found, ranges, env.factor_space, parse_executor(spec.executor), episodes=spec.target_episodes
            )
            book.plan(plan)
            reporter.say(f"plan: {plan.sentence}")
            second = (
                _second_turn(stages, robot, first, data, ranges, plan, book)
                if plan.kind != "nothing"
                else None
            )
            book.compared(compare(first, second))
            gap = robot.open_seal(finding.hash)
            book.opened(gap, nonce_of(spec.seed), seal, finding)
            reporter.say(f"seal: {gap.sentence()}")
        finally:
            robot.close()
        book.claims(first, second)
        return _finished(ledger, spec, folder, ranges, first, robot.seal, replays, found, plan, second, gap)


def _keep_spec(spec: TurnSpec, folder: Path) -> None:
    """Write the spec of a new run; refuse a folder that was begun with another."""
    path, text = folder / "spec.json", canonical_json(spec.to_json())
    if path.exists() and canonical_json(before := read_json(path)) != text:
        other = (
            {k: v for k, v in before.items() if spec.to_json().get(k) != v}
            if isinstance(before, dict)
            else before
        )
        raise DataError(
            f"{folder} holds a run of another spec (it has {other}); give another --out, or the same options"
            " to go on with it"
        )
    write_atomic(path, text)


def _finished(
    ledger: Ledger,
    spec: TurnSpec,
    folder: Path,
    ranges: FactorRanges,
    first: Turn,
    seal: str,
    replays: Path | None = None,
    diagnosis: Diagnosis | None = None,
    plan: DataPlan | None = None,
    second: Turn | None = None,
    gap: Gap | None = None,
) -> TurnResult:
    result = TurnResult(
        spec=spec,
        folder=folder,
        ranges=ranges,
        first=first,
        replays=replays,
        diagnosis=diagnosis,
        plan=plan,
        second=second,
        paired=compare(first, second),
        seal=seal,
        gap=gap,
        duration_s=read_recorded(folder, ledger.rows()).duration_s,
        ledger_head=ledger.head_text,
    )
    save_run(result)
    return result


def _first_turn(
    stages: Stages, robot: SealedRobot, ranges: FactorRanges, book: TurnLedger
) -> tuple[Turn, Path]:
    spec = stages.spec
    data = stages.dataset("teach", ranges, spec.episodes, Purpose.TRAIN, DATA_SEED)
    checkpoint = stages.checkpoint("train", [data], None, spec.train_steps)
    report = stages.screen("screen in sim", checkpoint, ranges, spec.executor, spec.screen_episodes)
    book.screen("turn 1", report)
    stages.reporter.say(f"screen: {report.rate}, verdict: {report.verdict}")
    turn = Turn(
        number=1,
        datasets=(data,),
        checkpoint=checkpoint,
        executor=spec.executor,
        screens=(("training conditions", report),),
    )
    if report.verdict is ScreenVerdict.BROKEN:
        return turn, data
    tried = {"checkpoint": checkpoint, "executor": spec.executor}
    in_use = stages.trials(
        "trials in use", "turn1-in-use", robot, conditions=stages.in_use_conditions(), **tried
    )
    conditions = stages.trials(
        "trials under training conditions",
        "turn1-training",
        robot,
        conditions=stages.training_conditions(ranges),
        **tried,
    )
    book.trials("turn 1, in use", in_use)
    book.trials("turn 1, training conditions", conditions)
    return (
        Turn(
            number=1,
            datasets=(data,),
            checkpoint=checkpoint,
            executor=spec.executor,
            screens=turn.screens,
            in_use=in_use,
            conditions=conditions,
        ),
        data,
    )


def _diagnosis(stages: Stages, first: Turn, data: Path, ranges: FactorRanges, replays: Path) -> Diagnosis:
    """Diagnose, or read the diagnosis of a run that was interrupted later."""
    path = stages.run_folder / "diagnosis.json"
    if path.exists():
        return Diagnosis.from_json(read_sealed(path))
    evidence = turn_evidence(first, stages.spec, ranges, replays, workers=stages.workers)
    checks = all_checks()
    done = 0
    with stages.reporter.stage("diagnose", "checks") as progress:

        def step(family: str) -> None:
            nonlocal done
            progress(done, len(checks), family)
            done += 1

        found = diagnose(evidence, checks, step)
        progress(len(checks), len(checks), "")
    write_sealed(path, json.loads(canonical_json(found.to_json())))
    return found


def _second_turn(
    stages: Stages,
    robot: SealedRobot,
    first: Turn,
    data: Path,
    ranges: FactorRanges,
    plan: DataPlan,
    book: TurnLedger,
) -> Turn:
    spec = stages.spec
    datasets, checkpoint, screens = first.datasets, first.checkpoint, first.screens
    if plan.kind == "episodes":
        assert plan.ranges is not None
        new = stages.dataset(
            "teach where it failed", plan.ranges, plan.episodes, Purpose.TARGET, spec.seed, plan.noise_deg
        )
        datasets = (data, new)
        checkpoint = stages.checkpoint(
            "train on", datasets, [1.0 - plan.new_share, plan.new_share], spec.target_steps, first.checkpoint
        )
        half = max(16, spec.screen_episodes // 2)
        targeted = stages.screen("screen where it failed", checkpoint, plan.ranges, plan.executor, half)
        base = stages.screen("screen where it worked", checkpoint, ranges, plan.executor, half)
        screens = (("targeted conditions", targeted), ("first training conditions", base))
        book.screen("turn 2, targeted conditions", targeted)
        book.screen("turn 2, first training conditions", base)
        stages.reporter.say(
            f"screen: {targeted.rate} where it failed, {base.rate} where it worked; verdict:"
            f" {targeted.verdict}"
        )
        if targeted.verdict is ScreenVerdict.BROKEN:
            return Turn(
                number=2, datasets=datasets, checkpoint=checkpoint, executor=plan.executor, screens=screens
            )
    in_use = stages.trials(
        "trials in use, again",
        "turn2-in-use",
        robot,
        conditions=stages.in_use_conditions(),
        checkpoint=checkpoint,
        executor=plan.executor,
        commands=plan.multipliers,
    )
    book.trials("turn 2, in use", in_use)
    return Turn(
        number=2,
        datasets=datasets,
        checkpoint=checkpoint,
        executor=plan.executor,
        screens=screens,
        in_use=in_use,
    )


def exit_code(result: TurnResult) -> int:
    """Return 0 when the loop did what it is for, 1 when it did not.

    On a surrogate the truth is known, so the finding is about the loop: the diagnosis missed what was sealed,
    or the second turn was tried and was not shown to be better, or the policy did not pass its screen.
    """
    missed = not result.diagnosis_agrees
    return (
        1
        if missed or result.is_better is False or (result.second is not None and result.paired is None)
        else 0
    )
