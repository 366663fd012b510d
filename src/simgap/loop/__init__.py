"""One crank of the loop, resumable from disk: teach, train, screen, try, diagnose, target, and again."""

from simgap.loop.results import TurnResult
from simgap.loop.spec import TurnSpec
from simgap.loop.turn import run_turns

__all__ = ["TurnResult", "TurnSpec", "run_turns"]
