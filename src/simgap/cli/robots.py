"""``simgap robots``: list the robots that stand for hardware, and hold one, or one of one's own, against the contract."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simgap.cli._output import emit, say

if TYPE_CHECKING:
    from rich.console import Console

    from simgap.robots.conformance import Clause
    from simgap.robots.refs import RobotRef

HELP = "List the surrogates; hold a robot, also one of your own, against the contract that trials rely on."
SURROGATE = "surrogate:"
SIZE = 64
"""Side of the frames of a surrogate that is held against the contract, in px."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions of the verb; without one it lists."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    actions.add_parser("list", help="one line a robot (the default)")
    what = "hold a robot against the contract: it is opened, set up and driven a little; exit 1 where it breaks it"
    check = actions.add_parser("check", help=what, description=what)
    check.add_argument(
        "robot",
        metavar="NAME",
        help=(
            "as `simgap robots` lists it, or MODULE:CLASS in a Python file of this folder or an installed"
            " package; it is run, so name only what you trust"
        ),
    )
    check.add_argument(
        "--may-move",
        action="store_true",
        help=(
            "a live robot may be driven: every joint by 5 %% of its range, and one step beyond each limit;"
            " clear its surroundings and stand beside it"
        ),
    )


def run(args: argparse.Namespace) -> int:
    """Run the verb; 1 when a robot breaks the contract."""
    return _check(args) if args.action == "check" else _list(args)


def _list(args: argparse.Namespace) -> int:
    from simgap.envs import env_names, make_env

    rows = []
    for name in env_names():
        env = make_env(name, image_size=SIZE, render=False)
        row = {"name": f"{SURROGATE}{name}", "evidence": "surrogate", "cameras": list(env.cameras)}
        rows.append(row | {"rate_hz": env.action_spec.rate_hz, "action": list(env.action_spec.names)})
        env.close()
    emit(args, {"robots": rows}, lambda console: _print_list(console, rows))
    return 0


def _check(args: argparse.Namespace) -> int:
    from simgap.robots.conformance import hold_robot

    ref = _ref(args.robot)
    say(args, f"opening {ref.name}")
    clauses = hold_robot(ref, may_move=args.may_move)
    is_kept = not any(c.is_broken for c in clauses)
    left = sum(not c.asked for c in clauses)
    document: dict[str, Any] = {
        "robot": ref.name,
        "is_kept": is_kept,
        "not_asked": left,
        "clauses": [c.to_json() for c in clauses],
    }
    emit(args, document, lambda console: _print_check(console, ref.name, clauses))
    return 0 if is_kept else 1


def _ref(text: str) -> RobotRef:
    from simgap.envs import make_env
    from simgap.robots.refs import SurrogateRef, named_robot

    if text.startswith(SURROGATE):
        env = make_env(
            text.removeprefix(SURROGATE), image_size=SIZE, render=False, by="the name of a surrogate"
        )
        env.close()
        return SurrogateRef(env=env.name, image_size=SIZE, seed=0, gap="none")
    return named_robot(text, Path.cwd())


def _print_list(console: Console, rows: Sequence[dict[str, Any]]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("robot", "evidence", "cameras", "rate"):
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(row["name"], row["evidence"], ", ".join(row["cameras"]), f"{row['rate_hz']:g} Hz")
    console.print(table)
    console.print("\nnext       simgap robots check NAME, or MODULE:CLASS of your own")


def _print_check(console: Console, name: str, clauses: Sequence[Clause]) -> None:
    for clause in clauses:
        word = "breaks   " if clause.is_broken else "keeps    " if clause.asked else "not asked"
        console.print(f"{word}  {clause.clause}", markup=False, highlight=False)
        if clause.breach:
            console.print(f"           {clause.breach}", markup=False, highlight=False)
    asked = [c for c in clauses if c.asked]
    kept = sum(not c.breach for c in asked)
    console.print(f"{name} keeps {kept} of {len(asked)} clauses of the contract that were asked")
