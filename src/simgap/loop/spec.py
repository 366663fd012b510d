"""What a run of the loop is asked to do."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from typing import Any, Protocol


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnSpec:
    """Number of turns on a surrogate, sizes and seeds. Everything that decides a number is here; time is not."""

    env: str = "arm-pick"
    seed: int = 0
    """Decides the hidden gap, the trials' initial conditions and the targeted episodes; the base policy is shared by all seeds."""
    gap: str = "random"
    turns: int = 2
    """Most turns; a run ends before where nothing is left to change."""
    image_size: int = 96
    episodes: int = 500
    train_steps: int = 3000
    screen_episodes: int = 96
    in_use_trials: int = 30
    condition_trials: int = 12
    replays: int = 8
    target_episodes: int = 240
    target_steps: int = 1200
    executor: str = "receding(5)"

    @classmethod
    def quick(cls, *, seed: int, gap: str, turns: int = 2) -> TurnSpec:
        """Return sizes for a look in three minutes; intervals are wide and say so."""
        return cls(
            seed=seed,
            gap=gap,
            turns=turns,
            episodes=160,
            train_steps=840,
            screen_episodes=32,
            in_use_trials=16,
            condition_trials=8,
            replays=6,
            target_episodes=80,
            target_steps=320,
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


Progress = Callable[[int, int, str], None]
"""Called with (done, total, note)."""


class Reporter(Protocol):
    """How a run says what it is doing."""

    def stage(self, label: str, unit: str) -> AbstractContextManager[Progress]:
        """Show one stage with its progress."""
        ...

    def say(self, text: str) -> None:
        """Say one line."""
        ...


class SilentReporter:
    """Says nothing: for tests and scripts."""

    def stage(self, label: str, unit: str) -> AbstractContextManager[Progress]:
        """Show nothing."""
        from contextlib import nullcontext

        return nullcontext(lambda done, total, note: None)

    def say(self, text: str) -> None:
        """Say nothing."""
