"""``simgap select``: race checkpoints in closed loop, then score the winner on seeds that did not choose it."""

from __future__ import annotations

import argparse
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simgap.cli._arguments import EnvName
from simgap.cli._options import add_engine, add_renderer, add_workers, count, preset_of, whole, workers_of
from simgap.cli._output import counted, emit, progress, say, show_lines
from simgap.cli._runner import add_ray, ray_of, runner_of
from simgap.cli._screened import bars_in_words
from simgap.wording import number_of

if TYPE_CHECKING:
    from rich.console import Console

HELP = (
    "Choose among checkpoints by closed loop, never by loss: those that are shown not to be best drop out,"
    " the winner is scored on fresh seeds. Exit code 1 unless the winner is worth hardware time."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    parser.add_argument(
        "runs", type=Path, nargs="+", metavar="RUN", help="checkpoints, or folders of checkpoints"
    )
    parser.add_argument(
        "--env",
        type=EnvName,
        metavar="NAME",
        help="env (default: the one whose conventions the policies have)",
    )
    parser.add_argument(
        "-n",
        type=count,
        default=192,
        metavar="N",
        help="select seeds a checkpoint at most, in whole groups of 16 (default 192)",
    )
    parser.add_argument(
        "--budget",
        type=float,
        default=0.5,
        metavar="X",
        help=(
            "share of running all to -n that the race may cost; those that trail are set aside to keep it"
            " (default 0.5; 1 sets nobody aside)"
        ),
    )
    parser.add_argument(
        "--report-n", type=count, default=400, metavar="N", help="fresh seeds of the winner (default 400)"
    )
    parser.add_argument(
        "--report-seed",
        type=whole,
        metavar="N",
        help="root of the report seeds, which can be spent once (default: --seed)",
    )
    parser.add_argument(
        "--factors",
        default="nominal",
        metavar="PRESET",
        help="preset the conditions are drawn from (default nominal)",
    )
    parser.add_argument("--executor", metavar="TEXT", help="executor of all (default: each card's own)")
    add_engine(parser)
    add_renderer(parser)
    add_workers(parser)
    add_ray(parser)


def run(args: argparse.Namespace) -> int:
    """Race, report, and tell."""
    from simgap.cli._output import following
    from simgap.cli._policies import card_of, env_of, executors_of, require_fits
    from simgap.cli._screened import videos_of
    from simgap.compute.machine import require_offscreen
    from simgap.rollouts.race_plot import draw_race
    from simgap.rollouts.select import SelectSpec, candidates_of, report_winner, run_race, to_json
    from simgap.rollouts.spent import require_not_spent
    from simgap.seeds import Purpose
    from simgap.statistics import ScreenVerdict

    candidates = candidates_of(args.runs, args.executor)
    for candidate in candidates:
        # weights that are not the card's, or a chunk too short, before the first rollout
        executors_of(card_of(candidate.path), [candidate.executor])
    env = env_of(candidates[0].card, args.env)
    for candidate in candidates:
        require_fits(candidate.card, env_of(candidate.card, env.name))
    spec = SelectSpec(
        candidates=candidates,
        env=env.name,
        ranges=preset_of(env, args.factors),
        cap=args.n,
        share=args.budget,
        report=args.report_n,
        seed=args.seed,
        report_seed=args.seed if args.report_seed is None else args.report_seed,
        engine=args.engine,
        renderer=args.renderer,
    )
    require_offscreen()
    began = time.time()
    out = args.out or Path("runs/screens")
    out.mkdir(parents=True, exist_ok=True)
    # said before the race, not after
    require_not_spent(
        out, spec.rollouts(candidates[0], Purpose.REPORT), {c.card.hash: c.executor for c in candidates}
    )
    say(
        args,
        f"race of {number_of(len(candidates), 'checkpoint')} in {env.name}, {args.factors}: at most"
        f" {number_of(spec.most, 'rollout')}",
    )
    if spec.most > spec.share * spec.full:
        first = spec.looks[0]
        say(
            args,
            f"note: a budget of {spec.share:g} would be {int(spec.share * spec.full)} rollouts, and everybody"
            f" runs the first {number_of(first, 'seed')}: {spec.most}",
        )
    with progress(spec.most, "race rollouts, at most", args.quiet) as advance:
        raced = run_race(spec, out, workers=workers_of(args), progress=advance, runner=ray_of(args))
    say(args, f"{raced.winner} on {spec.report} fresh seeds")
    with progress(spec.report, "report rollouts", args.quiet) as advance:
        selection = report_winner(
            spec, raced, out, workers=workers_of(args), progress=following(advance), runner=runner_of(args)
        )
    document = to_json(spec, selection) | {
        "plot": draw_race(selection),
        "sentences": {"select": str(raced.selected), "report": str(selection.report.rate)},
        "report_was_finished": (selection.report.path / "screen.json").stat().st_mtime < began,
        "videos": videos_of(selection.report),
        "is_clean": selection.report.verdict is ScreenVerdict.WORTH_HARDWARE_TIME,
    }
    document["next"] = _next(document)
    emit(args, document, lambda console: _print(console, document))
    return 0 if document["is_clean"] else 1


def _executor(document: dict[str, Any]) -> str:
    return next(str(e["executor"]) for e in document["entrants"] if e["name"] == document["winner"])


def _next(document: dict[str, Any]) -> str:
    """Return what to do with the winner: a trial where it is worth one, else what would change that."""
    if document["is_clean"]:
        return shlex.join(
            ["simgap", "trial", str(document["winner_path"]), "--executor", _executor(document)]
        )
    if document["report"]["verdict"] == "broken":
        return (
            "look at the failures; then more or other data, or longer training: none of these is worth a"
            " robot's time"
        )
    return (
        "train on or gather more data and select again with another --report-seed, or a larger --report-n"
        " then: these report seeds are spent"
    )


def _fate(entrant: dict[str, Any]) -> str:
    """Say why an entrant stopped; the race shows that it is not best, not that a certain other is better: letters say what is shown of pairs."""
    if not entrant["stays"]:
        return f"out, shown not to be best (most evidence: {entrant['beaten_by']})"
    return (
        f"set aside after {number_of(entrant['n'] + entrant['voids'], 'seed')}, not shown to be worse"
        if entrant["is_set_aside"]
        else "in"
    )


def _uneven_voids(entrants: Sequence[dict[str, Any]]) -> str:
    """Return a warning where voids fell unevenly: what is void does not count, and a rate over few of many seeds may be of the easy ones."""
    shares = {e["name"]: e["voids"] / max(1, e["n"] + e["voids"]) for e in entrants}
    worst = max(shares, key=shares.__getitem__)
    if shares[worst] - min(shares.values()) <= 0.05:
        return ""
    return (
        f"  voids fell unevenly, most on {worst} ({100 * shares[worst]:.0f} %): rates are over what counts,"
        " this choice may be wrong; see why"
    )


def _print(console: Console, document: dict[str, Any]) -> None:
    show_lines(
        console,
        f"SELECTED: {document['winner']} ({document['winner_path']}); on fresh seeds"
        f" {document['report']['verdict'].upper()}",
        "  (entrants that share a letter cannot be told apart)",
    )
    for e in document["entrants"]:
        rate = f"{100 * e['successes'] / e['n']:5.1f} %" if e["n"] else "  no trial"
        voids = f", {e['voids']} void" if e["voids"] else ""
        show_lines(
            console, f"  {e['letters']:4} {e['name']}: {e['successes']}/{e['n']} {rate}{voids}, {_fate(e)}"
        )
    if uneven := _uneven_voids(document["entrants"]):
        show_lines(console, uneven)
    if document["not_told_apart"]:
        show_lines(
            console, f"  not shown to be worse than the winner: {', '.join(document['not_told_apart'])}"
        )
    if (missed := document["best_is_better_by_at_most"]) is not None:
        more = "; a larger -n or --budget narrows it" if missed > 0.05 else ""
        show_lines(
            console,
            f"  another may be better than the winner by {100 * missed:.1f} points at most"
            f" ({document['confidence']:.0%}, in sim){more}",
        )
    else:
        show_lines(
            console,
            "  by how much another may be better than the winner is not known: one of them has no trial in"
            " common with it",
        )
    curse = document["curse"]
    show_lines(
        console,
        f"on the seeds that chose it: {document['sentences']['select']}; not to be reported",
        f"on fresh seeds:             {document['sentences']['report']}; {document['report']['verdict']}",
        f"  {bars_in_words(document['report'])}",
        f"  failures: {counted(document['report']['failures'])}; film strips and traces:"
        f" {document['report']['path']}",
    )
    if document["videos"] is not None:
        show_lines(console, f"  failures on video, up to two of each kind: {document['videos']}")
    if document["report_was_finished"]:
        show_lines(console, "  this report was finished before and read back; nothing was rolled out for it")
    if curse["points"] is not None:
        low, high = curse["interval"]
        show_lines(
            console,
            "winner's curse (by how much the seeds that chose the winner flatter it):"
            f" {100 * curse['points']:+.1f} points ({100 * low:+.1f} to {100 * high:+.1f},"
            f" {curse['method']})",
        )
    if document["expected_curse"] is not None:
        show_lines(
            console,
            f"  choosing among {len(document['entrants'])} adds {100 * document['expected_curse']:+.1f}"
            " points on average at this n",
        )
    saved = document["rollouts_without_race"] - document["rollouts"]
    show_lines(
        console,
        f"race: {number_of(document['rollouts'], 'rollout')}, {saved} fewer than all to the end;"
        f" {document['plot']}",
        f"This is evidence of kind {document['report']['evidence']}: it can reject a policy and says nothing"
        " about hardware.",
    )
    show_lines(console, f"next: {document['next']}")
