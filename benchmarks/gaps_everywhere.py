"""Every env with every gap it can have: surrogate, trials, replays, diagnosis and plan, end to end.

    python benchmarks/gaps_everywhere.py --work FOLDER [--env NAME] [--steps 800] [--page docs/studies/gaps-everywhere.md]

One small policy an env, trained for a minute, is tried on a surrogate with each kind of gap; what the diagnosis
says is held against what was sealed. The policies are weak, so a right name is not expected of gaps that only
the policy's failures show; what has to hold is that each link runs and says something that follows. Where new
episodes are planned, a few are generated from the plan: a plan that its own teacher cannot carry out is none.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from simgap import causes
from simgap.compute.cache import StageCache
from simgap.diagnosis import diagnose
from simgap.envs import ENVS, make_env
from simgap.loop.results import Turn, turn_evidence
from simgap.loop.spec import SilentReporter, TurnSpec
from simgap.loop.stages import Stages
from simgap.mutants.gaps import possible_kinds
from simgap.policies.execution import parse_executor
from simgap.seeds import Purpose
from simgap.statistics import tally
from simgap.targeting import plan_data

EPISODES, TRIED, REPLAYED, PLANNED = 120, 12, 6, 6


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """What one surrogate led to."""

    env: str
    gap: str
    in_sim: str
    in_use: str
    named: str
    plan: str
    made: str
    seconds: float

    def cells(self) -> str:
        """Return the row of the table."""
        mark = "as sealed" if self.named == self.gap else ""
        return (
            f"| {self.env} | {self.gap} | {self.in_sim} | {self.in_use} | {self.named} | {mark} | {self.plan} |"
            f" {self.made} | {self.seconds:.0f} |"
        )


def rows_of(name: str, work: Path, steps: int, workers: int) -> Iterator[Row]:
    """Try every gap that an env can have."""
    env = make_env(name, render=False)
    ranges, cache = env.presets["nominal"], StageCache(work / "cache")
    base = TurnSpec(
        env=name,
        episodes=EPISODES,
        train_steps=steps,
        screen_episodes=16,
        in_use_trials=TRIED,
        condition_trials=8,
        replays=REPLAYED,
        target_episodes=PLANNED,
    )
    for kind in possible_kinds(env):
        began = time.monotonic()
        spec = replace(base, gap=str(kind), seed=5)
        folder = work / "runs" / f"{name}-{kind}"
        stages = Stages(spec, env, cache, folder, SilentReporter(), workers)
        data = stages.dataset("teach", ranges, spec.episodes, Purpose.TRAIN, 0)
        checkpoint = stages.checkpoint("train", [data], None, spec.train_steps)
        report = stages.screen("screen", checkpoint, ranges, spec.executor, spec.screen_episodes)
        robot = stages.surrogate().open()
        try:
            tried = {"checkpoint": checkpoint, "executor": spec.executor}
            in_use = stages.trials("", "in-use", robot, conditions=stages.in_use_conditions(), **tried)
            conditions = stages.trials(
                "", "training", robot, conditions=stages.training_conditions(ranges), **tried
            )
            replays = stages.trials(
                "", "replay", robot, conditions=stages.replay_conditions(data), replay_of=data
            )
        finally:
            robot.close()
        turn = Turn(
            number=1,
            datasets=(data,),
            checkpoint=checkpoint,
            executor=spec.executor,
            screens=(("training conditions", report),),
            in_use=in_use,
            conditions=conditions,
        )
        found = diagnose(turn_evidence(turn, spec, ranges, replays, workers=workers))
        plan = plan_data(found, ranges, env.factor_space, parse_executor(spec.executor), episodes=PLANNED)
        made = ""
        if plan.ranges is not None:
            new = stages.dataset("target", plan.ranges, PLANNED, Purpose.TARGET, spec.seed, plan.noise_deg)
            made = f"{len(list((new / 'data').rglob('*.parquet')))} of {PLANNED}"
        counts = tally(r.outcome for r in turn.results)
        yield Row(
            env=name,
            gap=str(kind),
            in_sim=f"{report.rate.successes} of {report.rate.n}",
            in_use=f"{counts.successes} of {counts.n}"
            + (f", {sum(counts.voids.values())} void" if counts.voids else ""),
            named=str(found.cause),
            plan=plan.kind,
            made=made,
            seconds=time.monotonic() - began,
        )


def main() -> int:
    """Run and print the table; 1 when a link broke."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--env", nargs="+", default=list(ENVS))
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--page", type=Path)
    args = parser.parse_args()
    head = [
        "| env | gap | in sim | in use | diagnosis | | plan | new episodes | s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    print(*head, sep="\n", flush=True)
    lines = []
    for name in args.env:
        for row in rows_of(name, args.work, args.steps, args.workers):
            lines.append(row.cells())
            print(lines[-1], flush=True)
    if args.page is not None:
        text = __doc__.split("\n\n")
        page = ["# Every env with every gap", "", text[0], "", text[2].strip(), "", *head, *lines, ""]
        args.page.write_text("\n".join(page))
    return 0 if lines and all(causes.TABLE.get(line.split(" | ")[4].strip()) for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
