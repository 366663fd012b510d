"""``simgap envs``: which tasks there are, what may vary in them, whether they keep their contract and their teacher solves them."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from simgap.cli._arguments import EnvName
from simgap.cli._envs_teach import ABSTAINED, contract_of, try_teacher
from simgap.cli._options import add_engine, add_workers, amount, count, preset_of
from simgap.cli._output import counted, emit, say, show_lines

if TYPE_CHECKING:
    from rich.console import Console

    from simgap.cli._verbs import Verb
    from simgap.envs.base import TaskEnv

HELP = "List the envs; show one with its factors, check it and its teacher, or picture it."
REQUIRED_RATE = 0.99
"""A teacher that solves a smaller share of a preset than this is a finding: the conditions it fails on are missing from its data."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions of the verb; without one it lists."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    actions.add_parser("list", help="one line an env (the default)")
    add = {name: actions.add_parser(name, help=text, description=text) for name, text in _ACTIONS.items()}
    for action in (parser for name, parser in add.items() if name not in _OWN_ENV):
        action.add_argument(
            "env", type=EnvName, metavar="NAME", help="env, as `simgap envs` lists it, or module:function"
        )
    for name in _FILES:
        load_action(name).add_arguments(add[name])
    check = add["check"]
    add_engine(check)
    check.add_argument(
        "-n", type=count, default=100, metavar="N", help="episodes the teacher plays (default 100)"
    )
    check.add_argument(
        "--factors",
        default="nominal",
        metavar="PRESET",
        help="preset the initial conditions are drawn from (default nominal)",
    )
    check.add_argument(
        "--noise-deg",
        type=amount,
        default=0.0,
        metavar="X",
        help="noise on what is executed, as `simgap generate` adds (default 0)",
    )
    add_workers(check)


def run(args: argparse.Namespace) -> int:
    """Run the verb; 1 when a check found something."""
    if args.action in _FILES:
        return load_action(args.action).run(args)
    actions: dict[str | None, Callable[[argparse.Namespace], int]] = {"show": _show, "check": _check}
    return actions.get(args.action, _list)(args)


def load_action(name: str) -> Verb:
    """Import an action that has a file of its own."""
    return cast("Verb", import_module(f"simgap.cli._envs_{name.replace('-', '_')}"))


_ACTIONS = {
    "show": (
        "factors with unit, nominal value, bounds and reason; presets, cameras, conventions, failure modes"
    ),
    "check": (
        "gymnasium's checker, the same bytes for the same seed, and the teacher over many seeds; exit code 1"
        " on a finding"
    ),
    "picture": "one image of what the cameras see under every preset",
    "teacher-map": (
        "success, failures and abstentions of the teacher over a grid of two factors, counted and plotted"
    ),
    "sweep": (
        "one factor moved alone over its range: success of the teacher, or of a policy, and what the"
        " cameras see"
    ),
    "add": "add an env of your own by the function that makes it (module:function)",
    "remove": "forget an env that was added",
    "conformance": (
        "the same numbers on two physics engines and from theory; exit code 1 on an undeclared difference"
    ),
}
_FILES = ("picture", "conformance", "teacher-map", "sweep", "add", "remove")
"""Actions in files of their own, ``cli/_envs_<action>.py``, made like a verb's."""
_OWN_ENV = ("add", "remove")
"""Actions that say themselves what they take."""


def _list(args: argparse.Namespace) -> int:
    from simgap.envs import env_names, make_env
    from simgap.errors import SimgapError

    envs, unusable = [], {}
    for name in env_names():
        try:
            envs.append(make_env(name, render=False))
        except SimgapError as error:  # an added env whose code has changed or gone hides no other
            unusable[name] = str(error)
    document = {"envs": [_outline(env) for env in envs], "unusable": unusable}
    emit(args, document, lambda console: _print_list(console, envs, unusable))
    return 0


def _outline(env: TaskEnv) -> dict[str, Any]:
    return {
        "name": env.name,
        "task": env.task,
        "cameras": list(env.cameras),
        "rate_hz": env.action_spec.rate_hz,
        "horizon_steps": env.horizon_steps,
        "failure_modes": list(env.failure_modes),
        "action": list(env.action_spec.names),
        "factors": len(env.factor_space.factors),
        "presets": list(env.presets),
    }


def _print_list(console: Console, envs: list[TaskEnv], unusable: Mapping[str, str]) -> None:
    for env in envs:
        show_lines(
            console,
            f"{env.name}: {env.task}",
            f"  cameras {', '.join(env.cameras)}; {len(env.action_spec)} actions at"
            f" {env.action_spec.rate_hz:g} Hz; {len(env.factor_space.factors)} factors",
            f"  presets {', '.join(env.presets)}",
            f"  failure modes {', '.join(env.failure_modes)}",
        )
    show_lines(
        console,
        *(f"{name}: cannot be used: {why}" for name, why in unusable.items()),
        f"next: simgap envs show {envs[0].name}",
    )


def _show(args: argparse.Namespace) -> int:
    from dataclasses import asdict

    from simgap.envs import make_env

    env = make_env(args.env, render=False)
    document = {
        **_outline(env),
        "action": env.action_spec.to_json(),
        "state": env.state_spec.to_json(),
        "factors": [asdict(f) for f in env.factor_space.factors.values()],
        "presets": {name: ranges.to_json()["ranges"] for name, ranges in env.presets.items()},
        "stamp": env.stamp_fields(),
    }
    emit(args, document, lambda console: _print_env(console, env))
    return 0


def _print_env(console: Console, env: TaskEnv) -> None:
    from rich.table import Table

    show_lines(console, f"{env.name}: {env.task}")
    show_lines(
        console,
        *(
            f"  {name}: {value}"
            for name, value in env.stamp_fields().items()
            if name not in ("env", "image_size")
        ),
    )
    show_lines(
        console,
        f"  cameras: {', '.join(env.cameras)}",
        f"  failure modes: {', '.join(env.failure_modes)}",
        "",
    )
    conventions = Table(
        "vector",
        "dimension",
        "unit",
        "low",
        "high",
        "reference",
        box=None,
        title="conventions",
        title_justify="left",
    )
    for vector, spec in (("action", env.action_spec), ("state", env.state_spec)):
        for d in spec.dimensions:
            jaws = f", gripper: 0 is {'closed' if d.opens_high else 'open'}" if d.is_gripper else ""
            conventions.add_row(
                vector, d.name, str(d.unit), f"{d.low:g}", f"{d.high:g}", f"{d.reference}{jaws}"
            )
    factors = Table(
        "factor",
        "unit",
        "nominal",
        "low",
        "high",
        "why these bounds",
        box=None,
        title="factors",
        title_justify="left",
    )
    for f in env.factor_space.factors.values():
        factors.add_row(f.name, f.unit, f"{f.nominal:g}", f"{f.low:g}", f"{f.high:g}", f.reason)
    console.print(conventions, "", factors, "")
    _print_presets(console, env)


def _print_presets(console: Console, env: TaskEnv) -> None:
    base = env.presets["nominal"].ranges
    show_lines(console, "presets (factors they draw uniformly; every other one stays at its nominal value)")
    for name, preset in env.presets.items():
        own = (
            preset.ranges
            if name == "nominal"
            else {k: v for k, v in preset.ranges.items() if base.get(k) != v}
        )
        lead = "" if name == "nominal" else "as nominal, and "
        show_lines(console, f"  {name}: {lead}{', '.join(f'{k} {a:g}..{b:g}' for k, (a, b) in own.items())}")


def _check(args: argparse.Namespace) -> int:
    from simgap.compute.machine import require_offscreen
    from simgap.envs import make_env

    env = make_env(args.env, render=False, engine=args.engine)
    ranges, engine = preset_of(env, args.factors), env.stamp_fields().get("engine")
    renderer = require_offscreen()
    say(args, f"contract and determinism of {args.env} on {engine} ({renderer.renderer})")
    faults, notes = contract_of(args.env, args.engine)
    began = time.monotonic()
    results = try_teacher(args, ranges) if _has_teacher(env) else []
    teacher = (
        _judged(results)
        | {
            "preset": args.factors,
            "episodes_per_s": len(results) / (time.monotonic() - began),
        }
        if results
        else None
    )
    is_clean = not faults and (teacher is None or teacher["successes"] >= REQUIRED_RATE * len(results))
    document = {
        "env": args.env,
        "engine": engine,
        "contract": {"faults": faults, "notes": notes},
        "teacher": teacher,
        "is_clean": is_clean,
    }
    emit(args, document, lambda console: _print_check(console, document))
    return 0 if is_clean else 1


def _has_teacher(env: TaskEnv) -> bool:
    """Return False for an env whose data have to be recorded."""
    from simgap.errors import UsageError
    from simgap.teachers import make_teacher

    try:
        make_teacher(env)
    except UsageError:
        return False
    return True


def _judged(results: list[Any]) -> dict[str, Any]:
    """Return counts and interval; an abstention is not a failure, but neither is it an episode to learn from."""
    from simgap.statistics import clopper_pearson, tally
    from simgap.types import Outcome

    abstained = tally(Outcome.failure(r.removeprefix(ABSTAINED)) for r in results if isinstance(r, str))
    outcomes = tally(r for r in results if isinstance(r, Outcome))
    rate = clopper_pearson(outcomes.successes, len(results))
    return {
        "n": len(results),
        "successes": outcomes.successes,
        "interval": [rate.low, rate.high],
        "method": rate.method,
        "confidence": rate.confidence,
        "sentence": str(rate),
        "failures": dict(outcomes.failures),
        "abstentions": dict(abstained.failures),
        "required_rate": REQUIRED_RATE,
    }


def _print_check(console: Console, document: dict[str, Any]) -> None:
    contract, teacher = document["contract"], document["teacher"]
    show_lines(
        console, *(f"note: {n}" for n in contract["notes"]), *(f"fault: {f}" for f in contract["faults"])
    )
    if not contract["faults"]:
        show_lines(
            console,
            "contract: gymnasium's checker passes; the same seed gives the same bytes, another seed other"
            " ones",
        )
    if teacher is None:
        show_lines(console, "no teacher: data have to be recorded")
        return
    show_lines(
        console,
        f"teacher on {teacher['preset']!r}, {document['engine']}: solved {teacher['sentence']}",
        f"  failures: {counted(teacher['failures'])}",
        f"  abstentions: {counted(teacher['abstentions'])}",
        f"  {teacher['episodes_per_s']:.3g} episodes/s without rendering",
    )
    if teacher["successes"] < REQUIRED_RATE * teacher["n"]:
        show_lines(
            console,
            f"finding: fewer than {REQUIRED_RATE:.0%} solved; data of this preset lack the conditions on"
            " which the teacher fails",
        )
