"""``simgap numbers``: what one needs to know of trials before they are run and once they are counted; no robot, no files of ours."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simgap.cli._options import count
from simgap.cli._output import emit, show_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simgap.statistics import Estimate

HELP = (
    "Numbers of trials, before and after: how many are needed, what they can show, a rate with its interval,"
    " two policies compared, sim beside real. Counts are given as SUCCESSES/TRIALS; voids are no trials. Exit"
    " code 1 where the answer is that nothing can be said."
)
_ACTIONS = {
    "plan": (
        "before trials: what n trials can show, and how many a difference needs",
        "simgap numbers plan 10 20 50 --base-rate 0.5 --rise 0.3",
    ),
    "rate": (
        "one success rate with its interval; of several tasks their average, of sessions the rate of all",
        "simgap numbers rate 17/20        simgap numbers rate 9/10 4/10 7/10 --average",
    ),
    "compare": (
        "two policies: difference with interval and exact test; on the same starts, task by task, or in turn"
        " with early stopping",
        "simgap numbers compare 17/20 11/20        simgap numbers compare --pairs 9,8,2,1",
    ),
    "agree": (
        "does a simulator order policies as the robot does? A table of counts on both sides",
        "simgap numbers agree policies.csv",
    ),
    "combine": (
        "one real rate from few real trials and many simulated ones, honest whatever the simulator is worth",
        "simgap numbers combine scores.csv",
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions and their options."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    add = {
        name: actions.add_parser(name, help=what, description=f"{what}. Example: {example}")
        for name, (what, example) in _ACTIONS.items()
    }
    for action in add.values():
        action.add_argument(
            "--confidence", type=_share, default=0.95, metavar="X", help="of intervals (default 0.95)"
        )
    _add_plan(add["plan"])
    rate = add["rate"]
    rate.add_argument(
        "counts", nargs="+", type=_counts, metavar="K/N", help="successes of trials, such as 17/20"
    )
    how = rate.add_mutually_exclusive_group()
    how.add_argument("--average", action="store_true", help="the counts are tasks: average of their rates")
    how.add_argument(
        "--clusters",
        action="store_true",
        help="the counts are sessions, objects or starts whose trials are alike: the interval grows with it",
    )
    rate.add_argument(
        "--weights",
        type=_numbers,
        metavar="W,W,...",
        help="with --average: one for each task (default equal)",
    )
    _add_compare(add["compare"])
    add["agree"].add_argument(
        "table",
        type=Path,
        metavar="TABLE",
        help=(
            "CSV: policy,real_successes,real_n,sim_successes,sim_n; or a row a trial: policy,condition,real,sim"
            " with 1, 0 or nothing"
        ),
    )
    add["combine"].add_argument(
        "table",
        type=Path,
        metavar="TABLE",
        help="CSV with columns real and sim: scores in [0, 1] of one start a row, real empty where it was not run",
    )


def _add_plan(plan: argparse.ArgumentParser) -> None:
    plan.add_argument("n", nargs="*", type=count, metavar="N", help="trials a policy (default 10 20 50)")
    plan.add_argument(
        "--base-rate", type=_share, default=0.5, metavar="P", help="rate compared against (0.5)"
    )
    plan.add_argument("--rise", type=_share, metavar="D", help="rise that matters, such as 0.3")
    plan.add_argument("--power", type=_share, default=0.8, metavar="X", help="chance that it shows (0.8)")
    plan.add_argument("--width", type=_share, metavar="W", help="trials for an interval no wider than this")
    plan.add_argument("--target", type=_share, metavar="P", help="failures allowed to show a rate above this")
    plan.add_argument(
        "--discordant",
        type=float,
        default=0.2,
        metavar="X",
        help="share of matched starts on which two equal policies differ (0.2)",
    )


def _add_compare(compare: argparse.ArgumentParser) -> None:
    compare.add_argument(
        "counts",
        nargs="*",
        type=_counts,
        metavar="K/N",
        help="new, then old; with several tasks all of new, then all of old",
    )
    compare.add_argument(
        "--pairs", type=_four, metavar="BOTH,NEW,OLD,NEITHER", help="the same starts: how pairs ended"
    )
    compare.add_argument(
        "--margin", type=_share, metavar="M", help="a loss that would still be acceptable: not worse by this?"
    )
    compare.add_argument("--at-most", type=count, metavar="N", help="stop early, N pairs at most: the design")
    compare.add_argument("--new", type=_outcomes, metavar="1101...", help="with --at-most: outcomes so far")
    compare.add_argument("--old", type=_outcomes, metavar="0100...", help="likewise of the old policy")
    compare.add_argument(
        "--paired", action="store_true", help="with --at-most: the same starts, pair by pair"
    )


def run(args: argparse.Namespace) -> int:
    """Answer."""
    from simgap.cli import _numbers_tables

    actions: dict[str, Callable[[argparse.Namespace], tuple[dict[str, Any], list[str], bool]]] = {
        "plan": _plan,
        "rate": _rate,
        "compare": _compare,
        "agree": _numbers_tables.agree,
        "combine": _numbers_tables.combine,
    }
    document, lines, is_told = actions[args.action](args)
    document = {"kind": f"numbers_{args.action}", "schema": 1, **document, "says": lines}
    if args.out is not None:
        from simgap.cli._data_options import written

        written(args.out, document)
    emit(args, document, lambda console: show_lines(console, *lines))
    return 0 if is_told else 1


def _plan(args: argparse.Namespace) -> tuple[dict[str, Any], list[str], bool]:
    from simgap.errors import UsageError
    from simgap.statistics import (
        capped_design,
        course_of,
        failures_allowed,
        limits_of,
        power_of,
        power_of_paired,
        trials_for_width,
        trials_needed,
    )

    rows, lines = [], []
    new = None if args.rise is None else args.base_rate + args.rise
    if new is not None and new > 1.0:
        raise UsageError(f"--rise {args.rise:g} over --base-rate {args.base_rate:g} is a rate above 1")
    alpha = 1.0 - args.confidence
    for n in args.n or (10, 20, 50):
        limits = limits_of(
            n,
            base_rate=args.base_rate,
            discordant=args.discordant,
            confidence=args.confidence,
            power=args.power,
        )
        row = asdict(limits)
        lines += [f"n = {n}", *(f"  {text}" for text in limits.words())]
        if args.target is not None:
            row["failures_allowed"] = allowed = failures_allowed(n, args.target, args.confidence)
            says = "no result shows" if allowed is None else f"{allowed} failures at most show"
            lines.append(f"  {says} a rate above {args.target:.0%}.")
        if new is not None:
            row["power"] = power_of(args.base_rate, new, n, alpha=alpha)
            row["power_paired"] = power_of_paired(n, args.rise, args.discordant, alpha=alpha)
            course = course_of(capped_design(n, args.confidence), new, args.base_rate)
            row["early_stopping"] = asdict(course)
            lines.append(
                f"  A rise of {args.rise:.0%} shows with chance {row['power']:.2f} in independent trials,"
                f" {row['power_paired']:.2f} on matched starts;"
            )
            lines.append(
                f"  stopping as soon as it is clear: {course.chance_new_better:.2f}, after"
                f" {course.mean_pairs:.1f} pairs on average."
            )
        rows.append(row)
    document: dict[str, Any] = {"rows": rows}
    if new is not None and args.rise:
        document["trials_needed"] = needed = trials_needed(args.base_rate, new, alpha, args.power)
        lines.append(
            f"{needed} trials a policy show {args.base_rate:.0%} against {new:.0%} with chance {args.power:g}."
        )
    if args.width is not None:
        document["trials_for_width"] = found = trials_for_width(args.width, args.base_rate, args.confidence)
        lines.append(f"{found} trials give an interval no wider than {args.width:g} at {args.base_rate:.0%}.")
    return document, lines, True


def _rate(args: argparse.Namespace) -> tuple[dict[str, Any], list[str], bool]:
    from simgap.errors import UsageError
    from simgap.statistics import (
        average_rate,
        average_rate_exact,
        clopper_pearson,
        clustered_rate,
        design_effect,
        wilson,
    )

    good, n = (sum(c[k] for c in args.counts) for k in (0, 1))
    each = [wilson(k, m, args.confidence) for k, m in args.counts]
    if args.weights is not None and not args.average:
        raise UsageError("--weights goes with --average")
    lines = [str(e) for e in each] if len(each) > 1 else []
    if args.average:
        average = average_rate(args.counts, weights=args.weights, confidence=args.confidence)
        exact = average_rate_exact(args.counts, weights=args.weights, confidence=args.confidence)
        document = {"tasks": _rows(each), "average": asdict(average), "average_exact": asdict(exact)}
        return document, [*lines, str(average), f"guaranteed: {exact}"], average.is_defined
    if args.clusters:
        successes, sizes = zip(*args.counts, strict=True)
        rate, effect = clustered_rate(successes, sizes, args.confidence), design_effect(successes, sizes)
        said = (
            f"worth {effect.effective_n:.1f} independent trials of {effect.n}"
            if effect.effective_n is not None
            else f"what clusters cost is undefined: {effect.reason}"
        )
        document = {"clusters": _rows(each), "rate": asdict(rate), "design_effect": asdict(effect)}
        return document, [*lines, str(rate), said], rate.is_defined
    pooled = wilson(good, n, args.confidence), clopper_pearson(good, n, args.confidence)
    document = {"parts": _rows(each), "wilson": asdict(pooled[0]), "clopper_pearson": asdict(pooled[1])}
    if len(each) > 1:
        lines.append("together, as if all were one task under one condition (else --average or --clusters):")
    return document, [*lines, *map(str, pooled)], pooled[0].is_defined


def _rows(estimates: Sequence[Estimate]) -> list[dict[str, Any]]:
    return [asdict(e) for e in estimates]


def _compare(args: argparse.Namespace) -> tuple[dict[str, Any], list[str], bool]:
    from simgap.cli import _numbers_compare
    from simgap.errors import UsageError

    ways = [bool(args.counts), args.pairs is not None, args.at_most is not None]
    if sum(ways) != 1:
        raise UsageError(
            "give counts NEW OLD, or --pairs, or --at-most with the outcomes so far: one of these"
        )
    if args.at_most is None and (args.new or args.old or args.paired):
        raise UsageError("--new, --old and --paired go with --at-most")
    if args.pairs is not None:
        return _numbers_compare.paired(args)
    return _numbers_compare.capped(args) if args.at_most is not None else _numbers_compare.unpaired(args)


def _counts(text: str) -> tuple[int, int]:
    k, _, n = text.partition("/")
    if not (k.isdecimal() and n.isdecimal() and int(k) <= int(n) <= 10_000_000):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not SUCCESSES/TRIALS, such as 17/20")
    return int(k), int(n)


def _four(text: str) -> tuple[int, int, int, int]:
    parts = text.split(",")
    if len(parts) != 4 or not all(p.isdecimal() and len(p) < 8 for p in parts):
        raise argparse.ArgumentTypeError(
            f"{text[:40]!r} is not four counts of pairs, such as 9,8,2,1: both solved it, only new, only old,"
            " neither"
        )
    both, new, old, neither = map(int, parts)
    return both, new, old, neither


def _outcomes(text: str) -> list[bool]:
    if not text or set(text) - set("01"):
        raise argparse.ArgumentTypeError(
            f"{text[:40]!r}: write outcomes as 1 and 0 in the order of the trials"
        )
    return [letter == "1" for letter in text]


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a list of numbers such as 1,2,1") from error


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1.0:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a share from 0 to 1")
    return value
