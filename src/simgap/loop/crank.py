"""One turn of the loop: a policy from what the turn before left, its screen, its trials, what is broken, and what to change."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from simgap.causes import Cause
from simgap.checks.registry import all_checks
from simgap.diagnosis import Diagnosis, decide, diagnose
from simgap.envs.factors import FactorRanges
from simgap.findings import CheckResult, Verdict
from simgap.loop.record import CONDITIONS, IN_USE, REPLAYS, TurnLedger
from simgap.loop.recorded import FIRST_SCREENS, LATER_SCREENS
from simgap.loop.results import Asked, Turn, asked_of, turn_evidence
from simgap.loop.stages import Stages
from simgap.policies.execution import parse_executor
from simgap.provenance import canonical_json, read_sealed, write_sealed
from simgap.robots.base import SealedRobot
from simgap.seeds import Purpose
from simgap.statistics import ScreenVerdict
from simgap.targeting import plan_data

DATA_SEED = 0
"""Seed of the first training set: all runs share it, and so its policy."""
TURN_STRIDE = 1_000_003
"""Between the seeds of the targeted episodes of one turn and of the next."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Crank:
    """What all turns of a run share."""

    stages: Stages
    robot: SealedRobot
    book: TurnLedger
    ranges: FactorRanges
    """What the first training set is sampled from."""

    def turns(self) -> Iterator[Turn]:
        """Yield turn after turn, until the last that was asked for, or until nothing is left to change."""
        before: tuple[Turn, ...] = ()
        for number in range(1, self.stages.spec.turns + 1):
            turn = self.turn(number, before)
            yield turn
            if turn.plan is None or turn.plan.kind == "nothing":
                return
            before = (*before, turn)

    def turn(self, number: int, before: tuple[Turn, ...]) -> Turn:
        """Run one turn, or what is missing of it.

        Args:
            number: of the turn, from 1.
            before: the turns before it; the newest left a plan.
        """
        asked = asked_of(self.ranges, before)
        turn = self._taught(number, before[-1], asked) if before else self._first()
        if any(report.verdict is ScreenVerdict.BROKEN for _, report in turn.screens[:1]):
            return turn
        is_last = number == self.stages.spec.turns and number > 1
        turn = self._tried(turn, asked, is_last=is_last)
        for old in before[-1:] if len(before) < 2 else (before[-1], before[0]):
            self.book.compared(old, turn)
        return turn if is_last else self._diagnosed(turn, before, asked)

    def _first(self) -> Turn:
        stages, spec = self.stages, self.stages.spec
        data = stages.dataset("teach", self.ranges, spec.episodes, Purpose.TRAIN, DATA_SEED)
        checkpoint = stages.checkpoint("train", [data], None, spec.train_steps)
        report = stages.screen("screen in sim", checkpoint, self.ranges, spec.executor, spec.screen_episodes)
        self.book.screen(1, FIRST_SCREENS[0], report)
        stages.reporter.say(f"screen: {report.rate}, verdict: {report.verdict}")
        return Turn(
            number=1,
            datasets=(data,),
            checkpoint=checkpoint,
            executor=spec.executor,
            screens=((FIRST_SCREENS[0], report),),
        )

    def _taught(self, number: int, before: Turn, asked: Asked) -> Turn:
        """Return the turn that carries out the plan of the one before: with its policy, or one that was trained on."""
        stages, spec, plan = self.stages, self.stages.spec, before.plan
        assert plan is not None
        kept = Turn(
            number=number,
            datasets=before.datasets,
            checkpoint=before.checkpoint,
            executor=plan.executor,
            screens=before.screens,
        )
        if plan.kind != "episodes":
            return kept
        assert plan.ranges is not None
        seed = spec.seed + TURN_STRIDE * (number - 2)
        new = stages.dataset(
            "teach where it failed", plan.ranges, plan.episodes, Purpose.TARGET, seed, plan.noise_deg
        )
        datasets = (*before.datasets, new)
        checkpoint = stages.checkpoint(
            "train on", datasets, asked.shares, spec.target_steps, before.checkpoint
        )
        half = max(16, spec.screen_episodes // 2)
        targeted = stages.screen("screen where it failed", checkpoint, plan.ranges, plan.executor, half)
        base = stages.screen("screen where it worked", checkpoint, self.ranges, plan.executor, half)
        screens = tuple(zip(LATER_SCREENS, (targeted, base), strict=True))
        for conditions, report in screens:
            self.book.screen(number, conditions, report)
        stages.reporter.say(
            f"screen: {targeted.rate} where it failed, {base.rate} where it worked; verdict:"
            f" {targeted.verdict}"
        )
        return replace(kept, datasets=datasets, checkpoint=checkpoint, screens=screens)

    def _tried(self, turn: Turn, asked: Asked, *, is_last: bool) -> Turn:
        """Try a turn on the robot: in use, and where a diagnosis follows under training conditions and by replays."""
        stages, k = self.stages, turn.number
        again = "" if k == 1 else ", again"
        tried = {"checkpoint": turn.checkpoint, "executor": turn.executor, "commands": asked.commands}
        in_use = stages.trials(
            f"trials in use{again}",
            f"turn/{k}/in-use",
            f"turn{k}-in-use",
            self.robot,
            conditions=stages.in_use_conditions(),
            **tried,
        )
        if is_last:
            self.book.trials(k, IN_USE, in_use)
            return replace(turn, in_use=in_use)
        conditions = stages.trials(
            f"trials under training conditions{again}",
            f"turn/{k}/training-conditions",
            f"turn{k}-training",
            self.robot,
            conditions=stages.training_conditions(asked.ranges),
            **tried,
        )
        self.book.trials(k, IN_USE, in_use)
        self.book.trials(k, CONDITIONS, conditions)
        replays = stages.trials(
            f"replay logged actions{again}",
            f"turn/{k}/replays",
            "replay",
            self.robot,
            conditions=stages.replay_conditions(turn.datasets[-1]),
            replay_of=turn.datasets[-1],
            commands=asked.commands,
        )
        self.book.trials(k, REPLAYS, replays)
        return replace(turn, in_use=in_use, conditions=conditions, replays=replays)

    def _diagnosed(self, turn: Turn, before: Sequence[Turn], asked: Asked) -> Turn:
        stages, spec = self.stages, self.stages.spec
        place = stages.run_folder / "turn" / str(turn.number) / "diagnosis.json"
        found = set_aside(self._found(turn, asked, place), before)
        finding = self.book.finding(turn.number, found)
        stages.reporter.say(f"diagnosis (ledger row {finding.id}, seal still closed): {found.sentence}")
        executor = parse_executor(turn.executor)
        space = stages.env.factor_space
        plan = plan_data(found, asked.ranges, space, executor, episodes=spec.target_episodes)
        self.book.plan(turn.number, plan)
        stages.reporter.say(f"plan: {plan.sentence}")
        return replace(turn, diagnosis=found, plan=plan)

    def _found(self, turn: Turn, asked: Asked, path: Path) -> Diagnosis:
        """Diagnose, or read the diagnosis of a run that was interrupted later."""
        if path.exists():
            return Diagnosis.from_json(read_sealed(path))
        evidence = turn_evidence(turn, self.stages.spec, asked.ranges, workers=self.stages.workers)
        checks = all_checks()
        done = 0
        with self.stages.reporter.stage("diagnose", "checks") as progress:

            def step(family: str) -> None:
                nonlocal done
                progress(done, len(checks), family)
                done += 1

            found = diagnose(evidence, checks, step)
            progress(len(checks), len(checks), "")
        write_sealed(path, json.loads(canonical_json(found.to_json())))
        return found


def set_aside(found: Diagnosis, before: Sequence[Turn]) -> Diagnosis:
    """Return the diagnosis of a later turn without what earlier turns answered with episodes.

    What was taught stands: the camera is where it was, so the pictures still differ from the simulator's as it was
    built. It is no longer what is broken, and whether the policy has learnt it the check of the policy says.
    """
    taught: dict[Cause, int] = {
        t.diagnosis.cause: t.number + 1
        for t in before
        if t.diagnosis is not None and t.plan is not None and t.plan.kind == "episodes"
    }

    def judged(check: CheckResult) -> CheckResult:
        if check.verdict is not Verdict.BROKEN or check.cause not in taught:
            return check
        told = f"{check.sentence} It stands as it was; turn {taught[check.cause]} was taught it."
        return replace(check, verdict=Verdict.OK, sentence=told)

    checks = [judged(check) for check in found.checks]
    return found if checks == list(found.checks) else decide(checks)
