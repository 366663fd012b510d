"""Execution: were the chunks executed as the executor promises, on fresh frames, without clipping?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap import causes
from simgap.findings import CheckResult, Family, Verdict
from simgap.policies.execution import ExecutorSpec, Mode
from simgap.policies.executors import Executor
from simgap.types import Episode
from simgap.wording import number_of

CLIPPED_LIMIT = 0.2
"""Share of steps with a clipped command above which limits, not the policy, decide."""


def expected_ages(executor: Executor, steps: int, action_size: int, chunk: int) -> NDArray[np.float64]:
    """Return the age in steps of every action of a fresh executor, by running it on empty chunks."""
    executor.reset(0)
    empty = np.zeros((chunk, action_size), np.float32)
    ages = np.empty(steps)
    for step in range(steps):
        if executor.needs_chunk(step):
            executor.submit(empty, step)
        ages[step] = executor.act(step).age
    return ages


def check_execution(
    episodes: Sequence[Episode], executor: ExecutorSpec, build: Executor, chunk: int
) -> CheckResult:
    """Compare each action's logged age with what the executor must give, episode by episode.

    A queue that is not reset, a reversed ensemble or an index counted from the wrong step all show as a wrong
    age.

    Args:
        episodes: logged trials with ``chunk_age`` and ``applied_action``.
        executor: the executor that was declared.
        build: a fresh executor of that spec.
        chunk: entries in a chunk.
    """
    name = "ages of the executed actions"
    logged = [e for e in episodes if "chunk_age" in e.extras and not e.outcome.is_void]
    if not logged:
        return CheckResult(
            family=Family.EXECUTION,
            name=name,
            verdict=Verdict.NOT_RUN,
            sentence="No trial logged the age of its actions.",
        )
    wrong = 0
    clipped: list[float] = []
    for episode in logged:
        ages = expected_ages(build, len(episode), episode.action.shape[1], chunk)
        wrong += int(np.abs(ages - episode.extras["chunk_age"].reshape(-1)).max() > 0.01)
        clipped.append(
            float((np.abs(episode.extras["applied_action"] - episode.action).max(axis=1) > 1e-3).mean())
        )
    share = float(np.mean(clipped))
    numbers = {
        "episodes_with_wrong_ages": wrong,
        "clipped_share": share,
        "executor": str(executor),
        "replans": executor.mode is not Mode.WHOLE_CHUNK,
    }
    base: dict[str, Any] = {
        "family": Family.EXECUTION,
        "name": name,
        "n": len(logged),
        "numbers": numbers,
        "statistic": "episodes whose actions have the wrong age",
        "value": float(wrong),
        "threshold": 0.0,
    }
    if wrong:
        text = f"In {wrong} of {number_of(len(logged), 'trial')} actions were not as old as {executor} makes them: "
        text += "the queue is not reset, or chunks are read at the wrong index."
        return CheckResult(**base, verdict=Verdict.BROKEN, cause=causes.EXECUTION, sentence=text)
    if share > CLIPPED_LIMIT:
        text = (
            f"{share:.0%} of all commands were clipped to the joint limits; the robot does not do what the"
            " policy says."
        )
        return CheckResult(**base, verdict=Verdict.BROKEN, cause=causes.EXECUTION, sentence=text)
    return CheckResult(
        **base,
        verdict=Verdict.OK,
        sentence=(
            f"All {number_of(len(logged), 'trial')} executed their chunks exactly as {executor}"
            f" promises; {share:.1%} of"
            " commands were clipped."
        ),
    )
