"""``simgap study``: what an executor costs, and what selects a checkpoint; resumable, each ends in a page with its own command."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simgap.cli._arguments import EnvName
from simgap.cli._options import add_engine, add_workers, count, preset_of, workers_of
from simgap.cli._output import emit, progress, say, show_lines
from simgap.cli._study_show import execution_document, selection_document, show_execution, show_selection

if TYPE_CHECKING:
    from rich.console import Console

HELP = (
    "Run a study and write its page: execution (modes x latency x bugs) or selection (loss and proxies"
    " against closed loop)."
)

NO_BUG = "none"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the studies."""
    studies = parser.add_subparsers(dest="study", metavar="STUDY", required=True)
    for study in (_add_execution(studies), _add_selection(studies)):
        _add_shared(study)


def _add_execution(studies: Any) -> argparse.ArgumentParser:
    text = "one policy from the same starts over executors, latencies and seeded bugs"
    execution: argparse.ArgumentParser = studies.add_parser("execution", help=text, description=text)
    execution.add_argument(
        "checkpoint", type=Path, metavar="CHECKPOINT", help="folder that `simgap train` wrote"
    )
    execution.add_argument(
        "-n", type=count, default=200, metavar="N", help="starts, the same for every row (default 200)"
    )
    execution.add_argument(
        "--executors",
        nargs="+",
        metavar="TEXT",
        help="executors without a lead (default: latest, receding(5), whole_chunk, ensemble(0.1))",
    )
    execution.add_argument(
        "--latencies",
        nargs="+",
        type=int,
        default=[0, 2, 4],
        metavar="N",
        help="control steps (default 0 2 4)",
    )
    execution.add_argument(
        "--bugs",
        nargs="*",
        metavar="NAME",
        help="seeded bugs (default: the five of the study; the word none: correct executors alone)",
    )
    return execution


def _add_selection(studies: Any) -> argparse.ArgumentParser:
    text = (
        "several trainings whose checkpoints are all run: rank correlation and regret of what might select"
        " among them"
    )
    selection: argparse.ArgumentParser = studies.add_parser("selection", help=text, description=text)
    selection.add_argument("data", type=Path, nargs="+", metavar="DATA", help="datasets of one env")
    selection.add_argument("--trainings", type=count, default=3, metavar="N", help="trainings (default 3)")
    selection.add_argument(
        "--checkpoints", type=count, default=12, metavar="N", help="checkpoints of each (default 12)"
    )
    selection.add_argument(
        "--steps", type=count, default=4000, metavar="N", help="optimiser steps of each (default 4000)"
    )
    selection.add_argument(
        "--batch", type=count, default=64, metavar="N", help="observations a step (default 64)"
    )
    selection.add_argument(
        "--width", type=count, default=32, metavar="N", help="channels of the network (default 32)"
    )
    selection.add_argument(
        "--threads", type=count, metavar="N", help="threads of the training (default: one a usable core)"
    )
    selection.add_argument(
        "--validation-share",
        type=float,
        default=0.1,
        metavar="X",
        help="share of episodes held out (default 0.1)",
    )
    selection.add_argument(
        "--select-n", type=count, default=192, metavar="N", help="select seeds a checkpoint (default 192)"
    )
    selection.add_argument(
        "-n",
        type=count,
        default=200,
        metavar="N",
        help="report seeds a checkpoint, by which all are judged (default 200)",
    )
    return selection


def _add_shared(study: argparse.ArgumentParser) -> None:
    study.add_argument(
        "--env",
        type=EnvName,
        metavar="NAME",
        help="env (default: the one the policy or the data come from)",
    )
    study.add_argument(
        "--factors",
        default="nominal",
        metavar="PRESET",
        help="preset the conditions are drawn from (default nominal)",
    )
    study.add_argument(
        "--page",
        type=Path,
        metavar="PATH",
        help="Markdown page to write, its picture beside it (default: in --out)",
    )
    add_engine(study)
    add_workers(study)


def run(args: argparse.Namespace) -> int:
    """Run the study named."""
    from simgap.compute.locks import alone_in
    from simgap.compute.machine import require_offscreen

    require_offscreen()
    args.out = args.out or Path("runs/studies") / str(args.study)
    args.out.mkdir(parents=True, exist_ok=True)
    args.page = args.page or args.out / f"{args.study}.md"
    with alone_in(args.out):
        return _execution(args) if args.study == "execution" else _selection(args)


def _execution(args: argparse.Namespace) -> int:
    from simgap.cli._policies import card_of, env_of
    from simgap.provenance import write_atomic
    from simgap.studies.execution import BUGS, ExecutionStudy, cells_of, run_execution, write_rows
    from simgap.studies.pages import draw_execution, execution_page

    card = card_of(args.checkpoint)
    env = env_of(card, args.env)
    study = ExecutionStudy(
        checkpoint=args.checkpoint,
        env=env.name,
        ranges=preset_of(env, args.factors),
        latencies=tuple(dict.fromkeys([0, *args.latencies])),
        bugs=BUGS if args.bugs is None else _named(args.bugs),
        starts=args.n,
        seed=args.seed,
        engine=args.engine,
        **({"executors": tuple(args.executors)} if args.executors else {}),
    )
    total = len(cells_of(study, card)) * study.starts
    say(args, f"{total} rollouts; killed at any moment, the same command goes on")
    with progress(total, "rollouts", args.quiet) as advance:
        rows = run_execution(study, args.out, workers=workers_of(args), progress=advance)
    command = _command(args, [str(args.checkpoint)], study.starts, study.executors, study.bugs)
    picture = draw_execution(rows, args.page.with_suffix(".png"))
    write_atomic(
        args.page, execution_page(study, card.hash, rows, command, picture.name, card.architecture.chunk)
    )
    numbers = write_rows(rows, args.out)
    best = max(rows, key=lambda r: (not r.cell.bug, r.rate.point or 0.0))
    document = {
        "page": args.page,
        "picture": picture,
        "numbers": numbers,
        "rows": len(rows),
        "command": command,
        "best": best.cell.label,
    }
    document |= execution_document(rows)
    emit(args, document, lambda console: _print(console, document, show_execution))
    return 0


def _selection(args: argparse.Namespace) -> int:
    from simgap.compute.machine import usable_cores
    from simgap.envs import env_names, make_env
    from simgap.episodes.frames import load_frames
    from simgap.errors import UsageError
    from simgap.provenance import write_atomic
    from simgap.studies.selection import SelectionStudy, run_selection
    from simgap.studies.selection_page import draw_selection, selection_page
    from simgap.training import TrainSpec

    tables = [load_frames(path, said=lambda text: say(args, f"note: {text}")) for path in args.data]
    known = sorted({t.env for t in tables} & set(env_names()))
    if args.env is None and len(known) != 1:
        raise UsageError(
            f"the data come from {', '.join(known) or 'no env that is known'}; name one with --env"
        )
    name = args.env or known[0]
    train = TrainSpec(
        steps=args.steps,
        batch=args.batch,
        width=args.width,
        threads=args.threads or usable_cores(),
        validation_share=args.validation_share,
        seed=args.seed,
    )
    study = SelectionStudy(
        env=name,
        ranges=preset_of(make_env(name, render=False), args.factors),
        train=train,
        trainings=args.trainings,
        checkpoints=args.checkpoints,
        select=args.select_n,
        truth=args.n,
        seed=args.seed,
        engine=args.engine,
    )
    rollouts = study.trainings * study.checkpoints * (study.select + study.truth)
    say(
        args,
        f"{study.trainings} trainings of {args.steps} steps and at most {rollouts} rollouts; killed at any"
        " moment, the same command goes on",
    )
    work = study.trainings * (args.steps + study.draws) + rollouts
    with progress(work, "steps, rollouts and draws", args.quiet) as advance:
        results = run_selection(
            study, tables, args.out, workers=workers_of(args), progress=lambda stage, n: advance(n, stage)
        )
    command = _command(args, [str(p) for p in args.data], study.truth)
    data = [
        f"{len(t.episode_start) - 1} episodes, {t.episode_start[-1]} frames of {len(t.images)} cameras,"
        f" fingerprint {t.fingerprint[:16]}"
        for t in tables
    ]
    picture = draw_selection(results, args.page.with_suffix(".png"))
    write_atomic(args.page, selection_page(study, results, command, picture.name, data))
    document: dict[str, Any] = {
        "page": args.page,
        "picture": picture,
        "numbers": args.out / "selection.json",
        "rows": len(results),
        "command": command,
    }
    document |= selection_document(results)
    emit(args, document, lambda console: _print(console, document, show_selection))
    return 0


def _command(
    args: argparse.Namespace,
    words: list[str],
    size: int,
    executors: Sequence[str] = (),
    bugs: Sequence[str] = (),
) -> str:
    """Return the command that makes this page, with every number that decides what is in it."""
    parts = [
        "simgap",
        "study",
        str(args.study),
        *words,
        "-n",
        str(size),
        "--factors",
        args.factors,
        "--seed",
        str(args.seed),
    ]
    if args.engine != "mujoco":
        parts += ["--engine", args.engine]
    if args.env:
        parts += ["--env", args.env]
    if args.study == "execution":
        parts += ["--latencies", *map(str, args.latencies)]
        parts += ["--executors", *executors, "--bugs", *(bugs or [NO_BUG])]
    else:
        for name in ("trainings", "checkpoints", "steps", "batch", "width", "validation_share", "select_n"):
            parts += [f"--{name.replace('_', '-')}", str(getattr(args, name))]
        parts += ["--threads", str(args.threads)] if args.threads else []
    return shlex.join(parts)


def _named(bugs: Sequence[str]) -> tuple[str, ...]:
    """Return the bugs that are asked for; the word none asks for no bug.

    Raises:
        UsageError: none beside a bug.
    """
    from simgap.errors import UsageError

    if NO_BUG in bugs and len(bugs) > 1:
        raise UsageError(
            f"--bugs {' '.join(bugs)}: {NO_BUG} stands alone; leave it out, or name no bug beside it"
        )
    return () if list(bugs) == [NO_BUG] else tuple(bugs)


def _print(
    console: Console, document: dict[str, Any], show: Callable[[Console, dict[str, Any]], None]
) -> None:
    show(console, document)
    show_lines(
        console,
        f"wrote {document['page']}, {document['picture']} and {document['numbers']}",
        f"made by: {document['command']}",
    )
