"""``simgap envs``: which tasks there are, what may vary in them, whether they keep their contract and their teacher solves them."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from simgap.cli._arguments import EnvName
from simgap.cli._output import Advance, emit, progress, say

if TYPE_CHECKING:
    from rich.console import Console

    from simgap.cli._verbs import Verb
    from simgap.envs.base import TaskEnv
    from simgap.envs.factors import FactorRanges

HELP = "List the envs; show one with its factors, check it and its teacher, or picture it."
MOST = 10_000_000
"""Of anything that is counted: a slip of the finger must not fill the memory with a list of what is to be done."""
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


def count(text: str) -> int:
    """Read a whole number from 1 to :data:`MOST`."""
    if _whole(text, 1) > MOST:
        raise argparse.ArgumentTypeError(f"{text[:40]} is more than {MOST:,}")
    return int(text)


def whole(text: str) -> int:
    """Read a whole number from 0."""
    return _whole(text, 0)


def _whole(text: str, least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least}")
    return value


def amount(text: str) -> float:
    """Read a finite number from 0."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0")
    return value


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Add ``--engine``."""
    parser.add_argument(
        "--engine",
        default="mujoco",
        metavar="NAME",
        help="physics engine: mujoco (default) or drake (pip install 'simgap[drake]')",
    )


def add_renderer(parser: argparse.ArgumentParser) -> None:
    """Add ``--renderer``."""
    parser.add_argument(
        "--renderer",
        default="opengl",
        metavar="NAME",
        help="what draws the frames: opengl (default) or filament, which needs a Vulkan driver",
    )


def add_workers(parser: argparse.ArgumentParser) -> None:
    """Add ``--workers``."""
    parser.add_argument(
        "--workers",
        type=whole,
        metavar="N",
        help="worker processes (default: one a usable core; 0: none, everything in this process)",
    )


def workers_of(args: argparse.Namespace) -> int:
    """Return the number of worker processes asked for, or one a usable core."""
    from simgap.compute.machine import usable_cores

    return int(usable_cores() if args.workers is None else args.workers)


def preset_of(env: TaskEnv, name: str) -> FactorRanges:
    """Return a preset of an env.

    Raises:
        UsageError: unknown name; proposes the nearest.
    """
    from simgap.errors import UsageError, did_you_mean

    if name not in env.presets:
        raise UsageError(f"{env.name} has no factor preset {name!r}; {did_you_mean(name, env.presets)}")
    return env.presets[name]


def show_lines(console: Console, *lines: str) -> None:
    """Print lines as they are: no markup, no highlighting, no wrapping, so that a path or a command can be copied."""
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def following(advance: Advance, start: int = 0) -> Callable[[int, int], None]:
    """Return a callback for ``(done, total)`` that tells ``advance`` what is new since the last call."""
    before = start

    def landed(done: int, _: int) -> None:
        nonlocal before
        advance(done - before)
        before = done

    return landed


def counted(counts: Mapping[str, int]) -> str:
    """Return ``3 dropped, 1 timeout``, or ``none``."""
    return ", ".join(f"{n} {name}" for name, n in counts.items()) or "none"


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
    faults, notes = _contract(args.env, args.engine)
    began = time.monotonic()
    results = _teach(args, ranges) if _has_teacher(env) else []
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

    abstained = tally(Outcome.failure(r.removeprefix(_ABSTAINED)) for r in results if isinstance(r, str))
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


def _contract(name: str, engine: str) -> tuple[list[str], list[str]]:
    """Return faults and notes of gymnasium's checker and of the determinism check."""
    import re
    import warnings

    from gymnasium.utils.env_checker import check_env

    from simgap.envs import make_env

    env = make_env(name, image_size=48, engine=engine)
    faults = []
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            check_env(env)
        except Exception as error:  # whatever the checker or the env raises is what we came to hear
            faults.append(f"gymnasium's checker: {type(error).__name__}: {error}")
    notes = [" ".join(re.sub(r"\x1b\[\d*m", "", str(w.message)).split()) for w in seen]
    first, again, other = (_trace(env, seed) for seed in (0, 0, 1))
    if first != again:
        faults.append("the same seed and actions gave other bytes the second time")
    if first == other:
        faults.append("two seeds gave the same episode")
    env.close()
    return faults, [n.removeprefix("WARN: ") for n in dict.fromkeys(notes)]


def _trace(env: TaskEnv, seed: int) -> bytes:
    import numpy as np

    from simgap.provenance import child_rng

    rng = child_rng(7, "actions")
    obs, _ = env.reset(seed=seed)
    parts = [obs]
    for _ in range(8):
        action = rng.uniform(env.action_spec.low, env.action_spec.high).astype(np.float32)
        obs, _, terminated, truncated, _ = env.step(action)
        parts.append(obs)
        if terminated or truncated:
            break
    return b"".join(o[key].tobytes() for o in parts for key in sorted(o))


_ABSTAINED = "abstained: "


def _teach(args: argparse.Namespace, ranges: FactorRanges) -> list[Any]:
    """Return the teacher's outcomes, and the reason as a text where it abstained."""
    from simgap.compute.workers import run_tasks
    from simgap.seeds import Purpose, seed_of

    results: list[Any] = []
    seeds = [seed_of(Purpose.TRAIN, args.seed, i) for i in range(args.n)]
    with progress(args.n, "teacher episodes", args.quiet) as advance:

        def landed(result: Any) -> None:
            results.append(result)
            advance()

        run_tasks(
            _teacher,
            (args.env, ranges, args.noise_deg, args.engine),
            seeds,
            workers=workers_of(args),
            on_result=landed,
        )
    return results


def _teacher(name: str, ranges: FactorRanges, noise_deg: float, engine: str) -> Callable[[int], Any]:
    from simgap.envs import make_env
    from simgap.provenance import child_rng
    from simgap.teachers import make_teacher
    from simgap.teachers.generation import roll_teacher

    env = make_env(name, image_size=16, render=False, engine=engine)
    teacher = make_teacher(env)

    def play(seed: int) -> Any:
        values = env.factor_space.sample(ranges, child_rng(seed, "factors"))
        rollout = roll_teacher(env, teacher, values, seed, noise_deg)
        return f"{_ABSTAINED}{rollout.abstained}" if rollout.episode is None else rollout.episode.outcome

    return play
