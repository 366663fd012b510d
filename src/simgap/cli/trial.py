"""``simgap trial``: a planned set of trials or replays on a surrogate robot, logged as full episodes and entered in a ledger."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simgap.cli._arguments import EnvName
from simgap.cli._options import add_workers, count, whole, workers_of
from simgap.cli._output import counted, emit, following, progress, say, show_lines
from simgap.cli._policies import add_executor, card_of, env_of, executors_of
from simgap.wording import number_of

if TYPE_CHECKING:
    from rich.console import Console

    from simgap.ledger import Row
    from simgap.robots.refs import SurrogateRef
    from simgap.trials.batch import TrialPlan, TrialResult
    from simgap.types import EvidenceKind

_EXACT = ", which decides claims in the ledger: its level is never less than stated"

HELP = (
    "Run a planned set of trials on a surrogate robot with a hidden gap, log each as a full episode, and"
    " enter the result in a ledger. Exit code 1 when a trial failed or none counts. Killed at any moment, the"
    " same command runs what is missing."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    parser.add_argument(
        "checkpoint",
        type=Path,
        nargs="?",
        metavar="CHECKPOINT",
        help="folder that `simgap train` wrote, or a policy file (.json)",
    )
    parser.add_argument(
        "--replay",
        type=Path,
        metavar="DATA",
        help="instead of a policy: send the logged actions of DATA's first episodes, open loop",
    )
    parser.add_argument(
        "--gap",
        default="random",
        metavar="KIND",
        help="random (sealed), none, or a kind of gap (default random)",
    )
    parser.add_argument(
        "--robot-seed",
        type=whole,
        default=0,
        metavar="N",
        help="which robot: decides what a random gap is (default 0)",
    )
    parser.add_argument(
        "-n", type=count, default=20, metavar="N", help="trials, fixed before the first (default 20)"
    )
    parser.add_argument(
        "--env", type=EnvName, metavar="NAME", help="env (default: the one whose conventions the policy has)"
    )
    add_executor(parser, "one only, because trials of several executors need a plan of blocks")
    add_workers(parser)


def run(args: argparse.Namespace) -> int:
    """Run what is missing of the plan, then enter its result in the ledger."""
    from simgap.compute.machine import require_offscreen
    from simgap.errors import UsageError
    from simgap.ledger import Ledger
    from simgap.ledger.heads import LEDGER_FILE, RUN_FILE, TRIALS_FILE, keep_head
    from simgap.mutants.gaps import parse_gap
    from simgap.trials.batch import run_trials

    parse_gap(args.gap)
    asked = _asked(args)
    require_offscreen()
    root = args.out or Path("runs/trials")
    if (root / RUN_FILE).exists():
        raise UsageError(
            f"{root} is a run of `simgap demo`, whose ledger ends with the run; give another --out"
        )
    folder = root / asked.plan.name
    seal, evidence = _seal(asked.robot)
    is_kept = (root / TRIALS_FILE).is_file()
    with Ledger(root / LEDGER_FILE, create=not is_kept) as ledger:
        ledger.require_kept(root)
        if not is_kept and ledger.head[0]:
            say(
                args,
                f"note: no head of {root / LEDGER_FILE} was kept: whether its end was cut before now cannot"
                " be seen",
            )
        keep_head(root, ledger.head_text, who=asked.plan.name, is_adding=True)
        commitment = ledger.append("commitment", {"seal_sha256": seal}, key=f"seal/{seal}")
        there = _already_there(args, folder)
        with progress(args.n - there, asked.what, args.quiet or there == args.n) as advance:
            results = run_trials(
                asked.plan, folder, workers=workers_of(args), progress=following(advance, there)
            )
        payload = _payload(args, asked, folder, results, commitment)
        row = ledger.append("evidence", payload, evidence, key=f"trials/{payload['log']}")
        head = ledger.head_text
        keep_head(root, head, who=asked.plan.name, is_adding=False)
    document = _document(payload, folder, row, results) | {
        "ledger": root / LEDGER_FILE,
        "ledger_head": head,
        "already_there": there,
    }
    document["head_kept_in"] = root / TRIALS_FILE
    emit(args, document, lambda console: _print(console, document))
    return 0 if payload["n"] and not payload["failures"] else 1


@dataclass(frozen=True, kw_only=True, slots=True)
class _Asked:
    """What the command asks for."""

    plan: TrialPlan
    robot: SurrogateRef
    what: str
    """``trials`` or ``replays``."""
    tested: dict[str, str]
    """Identity of what is tried: hash of the policy's card and executor, or fingerprint of the data replayed."""


def _asked(args: argparse.Namespace) -> _Asked:
    from simgap.errors import UsageError

    if (args.checkpoint is None) == (args.replay is None):
        raise UsageError(
            "give a CHECKPOINT to try or --replay DATA, one of the two; see `simgap trial --help`"
        )
    return _policy_plan(args) if args.replay is None else _replay_plan(args)


def _policy_plan(args: argparse.Namespace) -> _Asked:
    from simgap.errors import UsageError
    from simgap.robots.base import InitialCondition
    from simgap.robots.refs import SurrogateRef
    from simgap.seeds import Purpose, seed_of
    from simgap.trials.batch import MOST_STEPS, TrialPlan

    card = card_of(args.checkpoint)
    env = env_of(card, args.env)
    executors = executors_of(card, args.executor)
    if len(executors) > 1:
        raise UsageError(
            "a set of trials has one executor; compare several with `simgap screen`, or run one set each"
        )
    robot = SurrogateRef(env=env.name, image_size=env.image_size, seed=args.robot_seed, gap=args.gap)
    plan = TrialPlan(
        name=_name(args, args.checkpoint, card.hash, str(executors[0])),
        robot=robot,
        conditions=tuple(InitialCondition(seed=seed_of(Purpose.TRIAL, args.seed, i)) for i in range(args.n)),
        task=env.task,
        max_steps=max(MOST_STEPS, env.horizon_steps + 1),  # the judge speaks first
        checkpoint=args.checkpoint,
        executor=str(executors[0]),
    )
    return _Asked(
        plan=plan, robot=robot, what="trials", tested={"policy": card.hash, "executor": plan.executor}
    )


def _replay_plan(args: argparse.Namespace) -> _Asked:
    from simgap.conventions import require_same
    from simgap.envs import make_env
    from simgap.episodes.reader import open_dataset
    from simgap.errors import UsageError
    from simgap.robots.refs import SurrogateRef
    from simgap.trials.batch import TrialPlan, conditions_of

    if args.executor:
        raise UsageError("a replay sends logged actions: it has no --executor")
    dataset = open_dataset(args.replay)
    name = args.env or str(dataset.spec.stamp.fields.get("env", ""))
    if not name:
        raise UsageError(f"{args.replay} does not say which env it was made in; name one with --env")
    env = make_env(name, image_size=dataset.spec.image_size[0], render=False, by=args.replay)
    require_same(
        dataset.spec.action_spec,
        env.action_spec,
        what="actions",
        ours_name=str(args.replay),
        theirs_name=f"env {name}",
    )
    if args.n > dataset.n_episodes:
        raise UsageError(
            f"{args.replay} has {number_of(dataset.n_episodes, 'episode')}, not {args.n}; ask for at"
            " most that many"
            " with -n"
        )
    fingerprint = dataset.fingerprint
    indices = [entry.index for entry in dataset.entries][: args.n]
    robot = SurrogateRef(env=name, image_size=env.image_size, seed=args.robot_seed, gap=args.gap)
    plan = TrialPlan(
        name=_name(args, args.replay, fingerprint, "replay"),
        robot=robot,
        conditions=conditions_of(dataset, indices, env.placement_factors),
        task=env.task,
        replay_of=args.replay,
    )
    return _Asked(plan=plan, robot=robot, what="replays", tested={"replay_of": fingerprint})


def _name(args: argparse.Namespace, tested: Path, identity: str, how: str) -> str:
    """Return the name of a plan: the same command gets it again, another one does not."""
    words = re.sub(r"[^A-Za-z0-9.=-]+", "-", how).strip("-")
    return f"{tested.resolve().name[:40]}-{identity[:8]}-{words}-robot{args.robot_seed}-{args.gap}-n{args.n}-s{args.seed}"


def _seal(surrogate: SurrogateRef) -> tuple[str, EvidenceKind]:
    robot = surrogate.open()
    try:
        return robot.seal, robot.evidence
    finally:
        robot.close()


def _already_there(args: argparse.Namespace, folder: Path) -> int:
    rows = len(list((folder / "meta" / "episodes").glob("chunk-*/file-*.parquet")))
    if rows:
        say(
            args,
            f"{rows} of {number_of(args.n, 'trial is', 'trials are')} in {folder} already;"
            f" {'none is missing' if rows >= args.n else 'running the others'}",
        )
    return min(rows, int(args.n))


def _payload(
    args: argparse.Namespace, asked: _Asked, folder: Path, results: Sequence[TrialResult], commitment: Row
) -> dict[str, Any]:
    """Return the evidence row: the same plan gives the same row, so that entering it twice enters it once."""
    from simgap.episodes.reader import open_dataset
    from simgap.statistics import clopper_pearson, tally, wilson

    counts = tally(r.outcome for r in results)
    intervals = [counts.estimate(method) for method in (wilson, clopper_pearson)]
    plan = asked.plan
    return {
        "what": asked.what,
        "label": plan.name,
        **asked.tested,
        "successes": counts.successes,
        "n": counts.n,
        "planned": args.n,
        "failures": dict(counts.failures),
        "voids": dict(counts.voids),
        "intervals": [
            {"method": e.method, "confidence": e.confidence, "low": e.low, "high": e.high, "sentence": str(e)}
            for e in intervals
        ],
        "conditions": (
            f"{asked.robot.env} on surrogate {args.robot_seed}, gap {args.gap}, placements as"
            f" {'logged' if plan.replay_of else 'at its site'}"
        ),
        "robot": {
            "kind": "surrogate",
            "seed": args.robot_seed,
            "gap_asked": args.gap,
            "is_blind": args.gap == "random",
        },
        "seal": commitment.payload["seal_sha256"],
        "commitment_row": commitment.id,
        "log": open_dataset(folder).fingerprint,
    }


def _document(
    payload: dict[str, Any], folder: Path, row: Row, results: Sequence[TrialResult]
) -> dict[str, Any]:
    from simgap.statistics import what_n_cannot_show

    trials = [
        {
            "index": r.index,
            "seed": r.seed,
            "outcome": str(r.outcome.kind),
            "detail": r.outcome.detail,
            "reason": r.outcome.reason,
            "condition_id": r.condition_id,
            "began": r.began,
            "judge": r.judge,
            "steps": r.steps,
            "clipped": r.clipped,
            "rate_hz": r.rate_hz,
            "placements": dict(r.placements),
        }
        for r in results
    ]
    return {
        **payload,
        "evidence": str(row.evidence),
        "path": folder,
        "ledger_row": row.id,
        "next": shlex.join(["simgap", "data", "check", str(folder)]),
        "trials": trials,
        "what_n_cannot_show": what_n_cannot_show(payload["n"]),
    }


def _print(console: Console, document: dict[str, Any]) -> None:
    tested = f"executor {document['executor']}" if document.get("policy") else "logged actions, open loop"
    voids = sum(document["voids"].values())
    verify = shlex.join(
        ["simgap", "ledger", "verify", str(document["ledger"]), "--head", document["ledger_head"]]
    )
    show_lines(console, f"{document['planned']} {document['what']}: {document['conditions']}; {tested}")
    show_lines(
        console,
        *(
            f"  success {interval['sentence']}{_EXACT if interval['method'] == 'Clopper-Pearson' else ''}"
            for interval in document["intervals"]
        ),
        f"  failures: {counted(document['failures'])}",
    )
    show_lines(
        console,
        f"  voids, which count neither way: {voids}" + (f" ({counted(document['voids'])})" if voids else ""),
    )
    blind = "" if document["robot"]["is_blind"] else " (the gap was named in this command: not blind)"
    show_lines(
        console,
        f"wrote {document['path']}: every trial as a full episode",
        f"seal {document['seal']}: the hash of the hidden gap, kept before the first trial, so that it"
        f" cannot be changed afterwards{blind}",
        f"{document['ledger']} row {document['ledger_row']}: evidence of kind {document['evidence']}, which"
        " says nothing about hardware",
        f"ledger head {document['ledger_head']}, kept in {document['head_kept_in']}: a ledger that is cut is"
        f" found from there. Keep it elsewhere too: `{verify}` then shows one that was written again",
        document["what_n_cannot_show"],
        "a surrogate is a simulated robot with a hidden gap; `simgap diagnose` and `simgap report` read the"
        " runs of `simgap demo` only, not these trials",
        f"next: {document['next']}",
    )
