"""``simgap screen``: sim rollouts over fresh seeds, one interval, one of three verdicts."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simgap.cli._output import emit, progress, say
from simgap.cli.envs import add_engine, add_renderer, add_workers, count, counted, following, preset_of, show_lines, workers_of

if TYPE_CHECKING:
    from rich.console import Console

    from simgap.envs.base import TaskEnv
    from simgap.policies.checkpoint import Card
    from simgap.policies.execution import ExecutorSpec
    from simgap.rollouts.screen import ScreenReport

HELP = (
    "Judge a policy in its own simulator: broken, worth hardware time, or undecided; exit code 1 unless it is worth hardware time. "
    "Screening may reject a policy. It cannot approve one."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    parser.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help="folder that `simgap train` wrote")
    parser.add_argument("--env", metavar="NAME", help="env (default: the one whose conventions the policy has)")
    parser.add_argument("-n", type=count, default=100, metavar="N", help="rollouts an executor, fixed before the first (default 100)")
    parser.add_argument("--factors", default="nominal", metavar="PRESET", help="preset the conditions are drawn from (default nominal)")
    add_executor(parser, "again: another executor on the same seeds, compared with the first")
    parser.add_argument(
        "--purpose", choices=("select", "report"), default="select", help="report: seeds no screen ever selected by; one executor only (default select)"
    )
    add_engine(parser)
    add_renderer(parser)
    add_workers(parser)


def add_executor(parser: argparse.ArgumentParser, again: str) -> None:
    """Add ``--executor``, once or several times."""
    parser.add_argument(
        "--executor",
        action="append",
        metavar="TEXT",
        help=f"latest, whole_chunk, 'receding(5)', 'ensemble(0.1)', each with an optional lead=N (default: the card's); {again}",
    )


def run(args: argparse.Namespace) -> int:
    """Screen, and compare executors if several were named."""
    from simgap.errors import UsageError
    from simgap.machine import require_offscreen
    from simgap.rollouts.engine import RolloutSpec
    from simgap.rollouts.screen import screen
    from simgap.seeds import Purpose

    card = card_of(args.checkpoint)
    env = env_of(card, args.env)
    ranges = preset_of(env, args.factors)
    executors = executors_of(card, args.executor)
    if len(executors) > 1 and args.purpose == "report":
        raise UsageError("comparing executors selects one, so it must not use up report seeds; name one --executor, or leave --purpose report out")
    require_offscreen()
    out = args.out or Path("runs/screens")
    out.mkdir(parents=True, exist_ok=True)  # a folder that cannot be is said before the rollouts, not after
    reports: list[ScreenReport] = []
    for executor in executors:
        spec = RolloutSpec(
            env=env.name,
            checkpoint=args.checkpoint,
            executor=str(executor),
            ranges=ranges,
            episodes=args.n,
            purpose=Purpose(args.purpose),
            seed=args.seed,
            engine=args.engine,
            renderer=args.renderer,
        )
        say(args, f"{executor}: {args.n} rollouts of {env.name} on {args.engine}, {args.factors}")
        with progress(args.n, "rollouts", args.quiet) as advance:
            reports.append(screen(spec, out, workers=workers_of(args), progress=following(advance)))
    document = _document(args, card, env, executors, reports)
    emit(args, document, lambda console: _print(console, document))
    return 0 if document["is_clean"] else 1


def card_of(checkpoint: Path) -> Card:
    """Return the card of a checkpoint folder.

    Raises:
        DataError: no checkpoint, and then what the folder holds instead; or weights that are not the card's, which a screen found
            finished would otherwise not look at.
    """
    from simgap.errors import DataError
    from simgap.policies.checkpoint import CARD, WEIGHTS, read_card
    from simgap.provenance import file_hash
    from simgap.training.resume import FILE

    if not (checkpoint / CARD).is_file():
        if (checkpoint / FILE).is_file():
            raise DataError(f"{checkpoint} holds an unfinished training run; give its `simgap train` command again, it goes on")
        if (checkpoint / "meta" / "info.json").is_file():
            raise DataError(f"{checkpoint} is a dataset, not a checkpoint; train on it first: simgap train {checkpoint}")
        what = "has no card.json" if checkpoint.is_dir() else "is not a folder" if checkpoint.exists() else "does not exist"
        raise DataError(f"{checkpoint} {what}; give the folder that `simgap train` wrote")
    card, weights = read_card(checkpoint), checkpoint / WEIGHTS
    if not weights.is_file() or file_hash(weights) != card.weights_hash:
        raise DataError(f"{weights} is {'not the file of its card' if weights.is_file() else 'missing'}; restore the checkpoint or retrain")
    return card


def env_of(card: Card, name: str | None) -> TaskEnv:
    """Return the env named, or the one its data come from, or the only one whose conventions the policy has; it does not render.

    Raises:
        UsageError: no env fits, several do, or the name is unknown.
        ConventionError: the env named has other conventions.
    """
    from simgap.conventions import require_same
    from simgap.envs import ENVS, env_names, make_env
    from simgap.errors import UsageError

    learnt_in = [str(e) for e in card.training.get("envs", ())]
    if name is None and len(learnt_in) == 1 and learnt_in[0] in env_names():
        name = learnt_in[0]
    envs = {n: make_env(n, image_size=card.architecture.image_size, render=False) for n in ([name] if name else sorted(ENVS))}
    if name:
        require_same(card.action_spec, envs[name].action_spec, what="actions", ours_name="the policy", theirs_name=f"env {name}")
        require_same(card.state_spec, envs[name].state_spec, what="states", ours_name="the policy", theirs_name=f"env {name}")
        return envs[name]
    fits = [n for n, e in envs.items() if e.action_spec == card.action_spec and e.state_spec == card.state_spec]
    if len(fits) != 1:
        found = f"several envs fit this policy ({', '.join(fits)})" if fits else f"no env has the conventions of this policy (known: {', '.join(envs)})"
        raise UsageError(f"{found}; name one with --env")
    return envs[fits[0]]


def executors_of(card: Card, texts: Sequence[str] | None) -> list[ExecutorSpec]:
    """Return the executors named, or the card's, each once and each usable with the policy's chunk."""
    from simgap.policies.execution import parse_executor

    executors = list(dict.fromkeys([parse_executor(t) for t in texts or ()] or [card.executor]))
    for executor in executors:
        executor.build(card.action_spec, card.architecture.chunk)
    return executors


def _document(args: argparse.Namespace, card: Card, env: TaskEnv, executors: Sequence[ExecutorSpec], reports: Sequence[ScreenReport]) -> dict[str, Any]:
    from simgap.statistics import ScreenVerdict, what_n_cannot_show

    screens = [
        {
            "executor": str(executor),
            "is_recommended": executor == card.executor,
            **report.to_json(),
            "sentences": [str(report.rate), str(report.exact)],
        }
        for executor, report in zip(executors, reports, strict=True)
    ]
    best = max(screens, key=lambda s: float(s["successes"]))["executor"]
    return {
        "checkpoint": args.checkpoint,
        "policy": card.hash,
        "env": env.name,
        "factors": args.factors,
        "purpose": args.purpose,
        "seed": args.seed,
        "engine": reports[0].stamp.fields["engine"],
        "evidence": str(reports[0].evidence),
        "screens": screens,
        "differences": [_difference(new, old=reports[0], names=(executors[i], executors[0])) for i, new in enumerate(reports) if i],
        "what_n_cannot_show": what_n_cannot_show(args.n),
        "is_clean": all(r.verdict is ScreenVerdict.WORTH_HARDWARE_TIME for r in reports),
        "next": shlex.join(["simgap", "trial", str(args.checkpoint), "--executor", str(best)]),
    }


def _difference(new: ScreenReport, *, old: ScreenReport, names: tuple[ExecutorSpec, ExecutorSpec]) -> dict[str, Any]:
    from simgap.statistics import pair_outcomes, paired_difference

    pairs = pair_outcomes(new=new.outcomes, old=old.outcomes)
    found = paired_difference(pairs.n11, pairs.n10, pairs.n01, pairs.n00, dropped=pairs.dropped)
    return {
        "new": str(names[0]),
        "old": str(names[1]),
        "difference": found.difference.point,
        "interval": [found.difference.low, found.difference.high],
        "method": found.difference.method,
        "confidence": found.difference.confidence,
        "p_value": found.p_value,
        "test": "exact McNemar",
        "pairs": {"both": pairs.n11, "only_new": pairs.n10, "only_old": pairs.n01, "neither": pairs.n00, "dropped": pairs.dropped},
    }


def _print(console: Console, document: dict[str, Any]) -> None:
    for shown in document["screens"]:
        mark = " (recommended in the card)" if shown["is_recommended"] else ""
        show_lines(console, f"{shown['verdict'].upper()}: {document['env']} on {document['engine']}, {document['factors']}, {shown['executor']}{mark}")
        show_lines(console, *(f"  success {sentence}" for sentence in shown["sentences"]), f"  failures: {counted(shown['failures'])}")
        if shown["voids"]:
            show_lines(console, f"  voids: {counted(shown['voids'])}")
        show_lines(console, f"  outcomes and film strips: {shown['path']}")
    for found in document["differences"]:
        _print_difference(console, found)
    if document["differences"]:
        show_lines(console, "These seeds now have selected an executor: report the chosen one on fresh seeds, with --purpose report.")
    kind = document["evidence"]
    show_lines(console, document["what_n_cannot_show"], f"This is evidence of kind {kind}: it can reject a policy and says nothing about hardware.")
    if document["is_clean"]:
        show_lines(console, f"next: {document['next']}")
    elif all(s["verdict"] == "undecided" for s in document["screens"]):
        show_lines(console, "undecided: the interval is too wide or lies between the bars; screen with a larger -n and another --seed, or train on")


def _print_difference(console: Console, found: dict[str, Any]) -> None:
    pairs = found["pairs"]
    if found["difference"] is None:
        show_lines(console, f"{found['new']} against {found['old']}: no pair counts")
        return
    low, high = found["interval"]
    show_lines(
        console,
        f"{found['new']} against {found['old']} on the same seeds: {100 * found['difference']:+.1f} points "
        f"({100 * found['confidence']:g} % interval {100 * low:+.1f} to {100 * high:+.1f}, {found['method']}; {found['test']} p = {found['p_value']:.2g}); "
        f"only {found['new']} succeeds on {pairs['only_new']} seeds, only {found['old']} on {pairs['only_old']}",
    )
