"""Physics engines behind one interface: what a world asks of the thing that moves it."""

from __future__ import annotations

from simgap.envs.engines.base import Engine, EngineMaker

__all__ = ["Engine", "EngineMaker"]
