"""Envs by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from simgap.envs.base import TaskEnv
from simgap.envs.engines.base import EngineMaker
from simgap.envs.factors import FactorRanges
from simgap.errors import UsageError, did_you_mean

EnvMaker = Callable[[int, FactorRanges | None, bool, EngineMaker], TaskEnv]
"""``(image size in px, ranges, whether to render, engine) -> env``."""


def _arm_pick(image_size: int, ranges: FactorRanges | None, render: bool, engine: EngineMaker) -> TaskEnv:
    from simgap.envs.arm.pick import ArmPickEnv

    return ArmPickEnv(image_size=image_size, ranges=ranges, render=render, engine=engine)


def _car_goal(image_size: int, ranges: FactorRanges | None, render: bool, engine: EngineMaker) -> TaskEnv:
    from simgap.envs.car.goal import CarGoalEnv

    return CarGoalEnv(image_size=image_size, ranges=ranges, render=render, engine=engine)


def _arm_place(image_size: int, ranges: FactorRanges | None, render: bool, engine: EngineMaker) -> TaskEnv:
    from simgap.envs.arm.place import ArmPlaceEnv

    return ArmPlaceEnv(image_size=image_size, ranges=ranges, render=render, engine=engine)


def _arm_pass(image_size: int, ranges: FactorRanges | None, render: bool, engine: EngineMaker) -> TaskEnv:
    from simgap.envs.arm.passing import ArmPassEnv

    return ArmPassEnv(image_size=image_size, ranges=ranges, render=render, engine=engine)


def _mujoco() -> EngineMaker:
    from simgap.envs.engines.mujoco import MujocoEngine

    return MujocoEngine


def _drake() -> EngineMaker:
    from simgap.envs.engines.drake import DrakeEngine

    return DrakeEngine


ENVS: dict[str, EnvMaker] = {
    "arm-pick": _arm_pick,
    "arm-place": _arm_place,
    "arm-pass": _arm_pass,
    "car-goal": _car_goal,
}
"""Name -> maker."""

ENGINES: Mapping[str, Callable[[], EngineMaker]] = {"mujoco": _mujoco, "drake": _drake}
"""Name -> what imports the engine and returns its maker."""


RENDERERS = ("opengl", "filament")


def make_env(
    name: str,
    *,
    image_size: int = 96,
    ranges: FactorRanges | None = None,
    render: bool = True,
    engine: str = "mujoco",
    renderer: str = "opengl",
    by: Path | str = "a file of this command",
) -> TaskEnv:
    """Build an env by name: one of ours, one that the user added, or one whose maker the command named.

    A name that comes from a file makes nothing else: ``module:function`` in it is refused, see
    :mod:`simgap.trust`.

    Args:
        name: of the env.
        image_size: side of its frames in px.
        ranges: what ``reset`` samples factors from.
        render: False leaves frames black.
        engine: what moves the world.
        renderer: what draws it.
        by: the file that says the name, for the message of a refusal.

    Raises:
        UntrustedError: code that a file names and nobody allowed, or that has changed since.
        UsageError: unknown name of an env, engine or renderer, or one that the env cannot use; lists the
            known ones.
        MachineError: the engine is not installed, or the renderer cannot draw here.
    """
    if renderer != RENDERERS[0]:
        return _drawn(
            make_env(name, image_size=image_size, ranges=ranges, render=render, engine=engine, by=by),
            renderer,
        )
    if engine not in ENGINES:
        raise UsageError(f"unknown engine {engine!r}; {did_you_mean(engine, ENGINES)}")
    if name not in ENVS:
        return _added(name, image_size, ranges, render, engine, by)
    return ENVS[name](image_size, ranges, render, ENGINES[engine]())


def _drawn(env: TaskEnv, renderer: str) -> TaskEnv:
    """Return an env with another renderer than the first."""
    from simgap.envs.simulated import SimulatedEnv

    if renderer not in RENDERERS:
        raise UsageError(f"unknown renderer {renderer!r}; {did_you_mean(renderer, RENDERERS)}")
    if not isinstance(env, SimulatedEnv):
        raise UsageError(f"env {env.name!r} draws its own frames; leave renderer {renderer} out")
    from simgap.envs.engines.filament import FilamentRenderer, require_filament

    require_filament()
    env.renderer_maker = FilamentRenderer
    return env


def env_names() -> list[str]:
    """Return the names of our envs, then of those the user added."""
    from simgap.envs.registry import added_envs

    return [*sorted(ENVS), *sorted(added_envs())]


def _added(
    name: str, image_size: int, ranges: FactorRanges | None, render: bool, engine: str, by: Path | str
) -> TaskEnv:
    """Make an env that the user added or named, by its name or by its maker."""
    from simgap.envs.registry import added_envs, build
    from simgap.trust import is_maker, maker_at, require_allowed

    known = added_envs()
    entry = known.get(name) or next((m for m in known.values() if m.maker == name), None)
    if entry is None and not is_maker(name):
        raise UsageError(f"unknown env {name!r:.80}; {did_you_mean(name[:80], [*ENVS, *known])}")
    if entry is None:
        add = f"look at that code and run `simgap envs add {name}`"
        require_allowed(name, what="code that makes an env", by=by, instead=add)
        entry = maker_at(name, Path.cwd())
    if engine != "mujoco":
        raise UsageError(
            f"env {name!r} brings its own engine; --engine {engine} is for {', '.join(sorted(ENVS))}"
        )
    return build(entry, image_size=image_size, ranges=ranges, render=render)


__all__ = ["ENGINES", "ENVS", "EnvMaker", "TaskEnv", "env_names", "make_env"]
