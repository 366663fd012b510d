"""``simgap screen``: sim rollouts over fresh seeds, one interval, one of three verdicts."""

from __future__ import annotations

import argparse
import re
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simgap.cli._arguments import EnvName
from simgap.cli._options import add_engine, add_renderer, add_workers, count, preset_of, workers_of
from simgap.cli._output import emit, following, progress, say
from simgap.cli._policies import add_executor, card_of, env_of, executors_of, require_fits
from simgap.cli._runner import add_ray, runner_of
from simgap.cli._screened import print_screens, videos_of
from simgap.wording import number_of

if TYPE_CHECKING:
    from simgap.envs.base import TaskEnv
    from simgap.envs.factors import FactorRanges
    from simgap.policies.bridges.open import AnyCard
    from simgap.policies.execution import ExecutorSpec
    from simgap.rollouts.engine import RolloutSpec
    from simgap.rollouts.screen import ScreenReport

HELP = (
    "Judge a policy in its own simulator: broken, worth hardware time, or undecided; exit code 1 unless it is"
    " worth hardware time. Screening may reject a policy. It cannot approve one."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    parser.add_argument(
        "checkpoints",
        type=Path,
        nargs="+",
        metavar="CHECKPOINT",
        help=(
            "what `simgap train` wrote, or a policy file (.json) of one elsewhere; several: each against the"
            " first on the same seeds"
        ),
    )
    parser.add_argument(
        "--env", type=EnvName, metavar="NAME", help="env (default: the one whose conventions the policy has)"
    )
    parser.add_argument(
        "-n",
        type=count,
        default=100,
        metavar="N",
        help="rollouts an arm, fixed before the first; with --sequential at most (default 100)",
    )
    parser.add_argument(
        "--sequential",
        action="store_true",
        help="stop as soon as the verdict is decided, at the same error rates; one arm only",
    )
    parser.add_argument(
        "--factors",
        default="nominal",
        metavar="PRESET",
        help="preset the conditions are drawn from (default nominal)",
    )
    add_executor(parser, "again: another executor on the same seeds, compared with the first")
    parser.add_argument(
        "--purpose",
        choices=("select", "report"),
        default="select",
        help="report: seeds that nothing was selected by, spent on one policy (default select)",
    )
    parser.add_argument(
        "--motion",
        type=count,
        metavar="N",
        help="compare motion and ways with N episodes of the teacher from the same starts (40 is plenty)",
    )
    add_engine(parser)
    add_renderer(parser)
    add_workers(parser)
    add_ray(parser)


@dataclass(frozen=True, kw_only=True)
class _Arm:
    """A policy with an executor, and what it is called beside the others."""

    label: str
    checkpoint: Path
    card: AnyCard
    executor: ExecutorSpec


def run(args: argparse.Namespace) -> int:
    """Screen, and compare if there are several policies or executors."""
    from simgap.compute.machine import require_offscreen
    from simgap.errors import UsageError
    from simgap.rollouts.engine import RolloutSpec
    from simgap.rollouts.screen import screen
    from simgap.seeds import Purpose

    arms = _arms_of(args)
    env = env_of(arms[0].card, args.env)
    for arm in arms:
        require_fits(arm.card, env)
    for arm in arms[1:]:
        if env_of(arm.card, env.name).image_size != env.image_size:
            sizes = f"{arms[0].card.architecture.image_size} and {arm.card.architecture.image_size} px"
            raise UsageError(
                f"{arms[0].checkpoint} and {arm.checkpoint} look at frames of {sizes}; screen them one after"
                " the other"
            )
    ranges = preset_of(env, args.factors)
    if len(arms) > 1 and args.purpose == "report":
        raise UsageError(
            "comparing selects one, so it must not use up report seeds; name one policy and one --executor,"
            " or leave --purpose report out"
        )
    if len(arms) > 1 and args.sequential:
        raise UsageError(
            "a comparison needs the same seeds for all, so no arm may stop early; leave --sequential out, or"
            " race them: simgap select"
        )
    require_offscreen()
    out = args.out or Path("runs/screens")
    out.mkdir(parents=True, exist_ok=True)  # a folder that cannot be is said before the rollouts, not after
    reports: list[ScreenReport] = []
    notes: list[dict[str, Any]] = []
    for arm in arms:
        began = time.time()
        spec = RolloutSpec(
            env=env.name,
            checkpoint=arm.checkpoint,
            executor=str(arm.executor),
            ranges=ranges,
            episodes=args.n,
            purpose=Purpose(args.purpose),
            seed=args.seed,
            engine=args.engine,
            renderer=args.renderer,
        )
        most = "at most " if args.sequential else ""
        say(args, f"{arm.label}: {most}{args.n} rollouts of {env.name} on {args.engine}, {args.factors}")
        with progress(args.n, "rollouts", args.quiet) as advance:
            reports.append(
                screen(
                    spec,
                    out,
                    workers=workers_of(args),
                    sequential=args.sequential,
                    progress=following(advance),
                    runner=runner_of(args),
                )
            )
        notes.append(_looks(out, spec, arm.card.hash, reports[-1], began))
    document = _document(args, arms, env, reports, notes)
    if args.motion:
        _add_motion(args, document, ranges, reports)
    emit(args, document, lambda console: print_screens(console, document))
    return 0 if document["is_clean"] else 1


def _add_motion(
    args: argparse.Namespace, document: dict[str, Any], ranges: FactorRanges, reports: Sequence[ScreenReport]
) -> None:
    """Add what the checks of motion say of each screen; they decide nothing."""
    from simgap.checks.policy.beside_teacher import check_beside_teacher, teacher_records
    from simgap.provenance import child_rng
    from simgap.rollouts.screen import TRACES
    from simgap.rollouts.traces import read_records

    seeds = list(reports[0].outcomes)[: args.motion]
    say(args, f"{number_of(len(seeds), 'episode')} of the teacher from the same starts")
    teacher = teacher_records(document["env"], ranges, seeds)
    for shown, report in zip(document["screens"], reports, strict=True):
        found = check_beside_teacher(
            read_records(report.path / TRACES), teacher, document["env"], child_rng(args.seed, "motion")
        )
        shown["motion"] = [result.to_json() for result in found]


def _arms_of(args: argparse.Namespace) -> list[_Arm]:
    """Return what is screened: one policy with several executors, or several policies with one each."""
    from simgap.errors import UsageError

    cards = {path: card_of(path) for path in args.checkpoints}
    if len(cards) > 1 and len(args.executor or ()) > 1:
        raise UsageError(
            "several policies and several executors at once say little about either; name one --executor, or"
            " one policy"
        )
    if len({card.hash for card in cards.values()}) < len(args.checkpoints):
        raise UsageError(
            f"{' and '.join(map(str, args.checkpoints))} hold a policy twice; a policy against itself differs"
            " nowhere"
        )
    found = [
        (path, card, executor)
        for path, card in cards.items()
        for executor in executors_of(card, args.executor)
    ]
    several = len(cards) > 1
    return [
        _Arm(label=str(path) if several else str(executor), checkpoint=path, card=card, executor=executor)
        for path, card, executor in found
    ]


def _looks(out: Path, spec: RolloutSpec, policy: str, report: ScreenReport, began: float) -> dict[str, Any]:
    """Return what was looked at before: whether these seeds chose this policy, other reports of it, and whether this screen was finished already."""
    from simgap.rollouts.looks import chosen_here, pooled_reports, unread_looks

    race, pooled = chosen_here(out, spec, policy), pooled_reports(out, report)
    return {
        "chosen_on_these_seeds": race,
        "pooled": None if pooled is None else pooled.to_json(),
        "unread_looks": list(unread_looks(out, spec, policy)),
        "was_finished": (report.path / "screen.json").stat().st_mtime < began,
    }


def _is_clean(report: ScreenReport, looks: dict[str, Any]) -> bool:
    """Return whether a screen speaks for hardware time: by seeds that did not choose the policy, and by all reports together, none missing."""
    from simgap.statistics import ScreenVerdict

    verdicts = {str(report.verdict), (looks["pooled"] or {}).get("verdict", str(report.verdict))}
    return (
        verdicts == {str(ScreenVerdict.WORTH_HARDWARE_TIME)}
        and looks["chosen_on_these_seeds"] is None
        and not looks["unread_looks"]
    )


def _document(
    args: argparse.Namespace,
    arms: Sequence[_Arm],
    env: TaskEnv,
    reports: Sequence[ScreenReport],
    notes: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    from simgap.rollouts.timing import in_words, read_timing
    from simgap.statistics import what_n_cannot_show

    screens = [
        {
            "label": arm.label,
            "checkpoint": arm.checkpoint,
            "policy": arm.card.hash,
            "executor": str(arm.executor),
            "is_recommended": arm.executor == arm.card.executor,
            **report.to_json(),
            "videos": videos_of(report),
            "sentences": list(dict.fromkeys([str(report.rate), str(report.exact)])),
            "timing": (timing := read_timing(report.path)),
            "timing_sentence": None if timing is None else in_words(timing, env.action_spec.rate_hz),
            **looks,
        }
        for arm, report, looks in zip(arms, reports, notes, strict=True)
    ]
    best = max(range(len(screens)), key=lambda i: reports[i].counts.successes)
    is_clean = all(_is_clean(report, looks) for report, looks in zip(reports, notes, strict=True))
    trial = shlex.join(
        ["simgap", "trial", str(arms[best].checkpoint), "--executor", str(arms[best].executor)]
    )
    return {
        "checkpoint": arms[0].checkpoint,
        "policy": arms[0].card.hash,
        "env": env.name,
        "factors": args.factors,
        "purpose": args.purpose,
        "seed": args.seed,
        "engine": reports[0].stamp.fields["engine"],
        "evidence": str(reports[0].evidence),
        "screens": screens,
        "differences": [
            _difference(new, old=reports[0], names=(arms[i].label, arms[0].label))
            for i, new in enumerate(reports)
            if i
        ],
        "what_n_cannot_show": (
            _what_a_plan_cannot_show(args.n) if args.sequential else what_n_cannot_show(reports[0].counts.n)
        ),
        "is_clean": is_clean,
        # no robot time is proposed for what the screen did not find worth it
        "next": trial if is_clean else _larger(args) if _are_undecided(reports) else None,
    }


def _are_undecided(reports: Sequence[ScreenReport]) -> bool:
    from simgap.statistics import ScreenVerdict

    return all(report.verdict is ScreenVerdict.UNDECIDED for report in reports)


def _larger(args: argparse.Namespace) -> str:
    """Return the same command with four times the rollouts, which halves the interval."""
    words, kept = list(args.words), []
    while words:
        word = words.pop(0)
        if word == "-n" and words:
            words.pop(0)
        elif not re.fullmatch(r"-n=?\d+", word):
            kept.append(word)
    return shlex.join(["simgap", "screen", *kept, "-n", str(4 * args.n)])


def _what_a_plan_cannot_show(cap: int) -> str:
    from simgap.rollouts.screen import plan_of
    from simgap.statistics import screen_course

    plan = plan_of(cap)
    between = (plan.broken_below + plan.worthy_above) / 2
    course = screen_course(plan, between)
    open_share = 1 - course.chance_broken - course.chance_worthy
    return (
        f"at most {cap} rollouts: each wrong verdict has a chance of at most {50 * (1 - plan.confidence):g} %"
        f" at every rate; a policy at {100 * between:.0f} % ends undecided with a chance of"
        f" {100 * open_share:.0f} %, after {course.mean_rollouts:.0f} rollouts on average"
    )


def _difference(new: ScreenReport, *, old: ScreenReport, names: tuple[str, str]) -> dict[str, Any]:
    from simgap.statistics import pair_outcomes, paired_difference

    pairs = pair_outcomes(new=new.outcomes, old=old.outcomes)
    found = paired_difference(pairs.n11, pairs.n10, pairs.n01, pairs.n00, dropped=pairs.dropped)
    return {
        "new": names[0],
        "old": names[1],
        "difference": found.difference.point,
        "interval": [found.difference.low, found.difference.high],
        "method": found.difference.method,
        "confidence": found.difference.confidence,
        "p_value": found.p_value,
        "test": "exact McNemar",
        "pairs": {
            "both": pairs.n11,
            "only_new": pairs.n10,
            "only_old": pairs.n01,
            "neither": pairs.n00,
            "dropped": pairs.dropped,
        },
    }
