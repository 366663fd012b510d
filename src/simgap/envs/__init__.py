"""Envs by name."""

from __future__ import annotations

from collections.abc import Callable

from simgap.envs.base import TaskEnv
from simgap.envs.factors import FactorRanges
from simgap.errors import UsageError, did_you_mean


def _arm_pick(image_size: int, ranges: FactorRanges | None, render: bool) -> TaskEnv:
    from simgap.envs.arm.pick import ArmPickEnv

    return ArmPickEnv(image_size=image_size, ranges=ranges, render=render)


ENVS: dict[str, Callable[[int, FactorRanges | None, bool], TaskEnv]] = {"arm-pick": _arm_pick}
"""Name -> maker (image size in px, ranges, whether to render)."""


def make_env(name: str, *, image_size: int = 96, ranges: FactorRanges | None = None, render: bool = True) -> TaskEnv:
    """Build an env by name.

    Raises:
        UsageError: unknown name; lists the known ones.
    """
    if name not in ENVS:
        raise UsageError(f"unknown env {name!r}; {did_you_mean(name, ENVS)}")
    return ENVS[name](image_size, ranges, render)


__all__ = ["ENVS", "TaskEnv", "make_env"]
