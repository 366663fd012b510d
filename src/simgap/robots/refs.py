"""What names a robot that is not open yet: it travels to worker processes and is opened where it is driven.

Everything above this room takes a :class:`RobotRef`, never a robot by its class.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from simgap.errors import UsageError
from simgap.robots.base import JUDGES, Robot, SealedRobot
from simgap.trust import Maker, is_maker, load, maker_at
from simgap.types import EvidenceKind


class RobotRef(Protocol):
    """A robot that can be opened. A value: it is pickled, and compared by what it says."""

    @property
    def name(self) -> str:
        """What to call it."""
        ...

    @property
    def is_one_of_many(self) -> bool:
        """Whether every opening makes another robot, all alike, so that each worker may have one; False: there is one, opened once."""
        ...

    def open(self) -> Robot:
        """Connect to it, or start it."""
        ...

    def stamp_fields(self) -> Mapping[str, Any]:
        """Return what the reference itself adds to the stamp of a log."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class SurrogateRef:
    """A surrogate, by the env that it stands in for and the seed of its gap."""

    env: str
    image_size: int
    seed: int
    gap: str = "random"

    @property
    def name(self) -> str:
        """What to call it."""
        return f"surrogate {self.seed} of {self.env}"

    @property
    def is_one_of_many(self) -> bool:
        """Surrogates of one seed are identical."""
        return True

    def open(self) -> SealedRobot:
        """Start its process."""
        from simgap.robots.surrogate import SurrogateRobot

        return SurrogateRobot(env=self.env, image_size=self.image_size, seed=self.seed, gap=self.gap)

    def stamp_fields(self) -> Mapping[str, Any]:
        """Nothing: the robot's own stamp holds its seal."""
        return {}


@dataclass(frozen=True, kw_only=True, slots=True)
class CodeRef:
    """A robot of one's own: a class that a command named, and the code that was there then."""

    maker: Maker

    @property
    def name(self) -> str:
        """``module:Class``."""
        return self.maker.maker

    @property
    def is_one_of_many(self) -> bool:
        """A robot of one's own is taken for hardware, of which there is one."""
        return False

    def open(self) -> Robot:
        """Make it, without arguments.

        Raises:
            UntrustedError: its code has changed since it was named.
            UsageError: it cannot be imported, or is no robot.
        """
        robot = load(self.maker)()
        require_robot(robot, self.name)
        return robot  # type: ignore[no-any-return]

    def stamp_fields(self) -> Mapping[str, Any]:
        """Return the code that drove it."""
        return {"driver": {"name": self.name, "sha256": self.maker.sha256}}


_PARTS = (
    "evidence", "action_spec", "state_spec", "cameras", "image_size", "is_live", "judge",
    "reset", "observe", "act", "verdict", "stop", "stamp_fields", "close",
)  # fmt: skip


def require_robot(robot: object, name: str) -> None:
    """Raise unless something has everything that a robot has.

    Raises:
        UsageError: names what is missing or wrong.
    """
    missing = [part for part in _PARTS if not hasattr(robot, part)]
    if missing:
        raise UsageError(
            f"{name} is no robot: it has no {', '.join(missing)}; docs/extending.md shows a whole one"
        )
    said: Any = robot
    if said.judge not in JUDGES:
        raise UsageError(f"{name} has judge {said.judge!r:.40}; expected one of {', '.join(JUDGES)}")
    if said.evidence not in tuple(EvidenceKind):
        known = ", ".join(EvidenceKind)
        raise UsageError(f"{name} has evidence {said.evidence!r:.40}; expected one of {known}")


def named_robot(text: str, folder: Path) -> CodeRef:
    """Return the robot that the command line names by ``module:Class``: to name it there is to allow it.

    Raises:
        UsageError: it is no such name, or there is no such module.
    """
    if not is_maker(text):
        raise UsageError(f"{text[:80]!r} is no robot; give MODULE:CLASS, for example my_robot:Arm")
    return CodeRef(maker=maker_at(text, folder))
