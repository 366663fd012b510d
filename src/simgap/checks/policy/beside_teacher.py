"""A policy's rollouts beside its teacher from the same starts: smoothness, and ways where the env has several."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simgap.envs import make_env
from simgap.envs.factors import FactorRanges
from simgap.errors import UsageError
from simgap.findings import CheckResult, Family, Verdict
from simgap.measures.modes import ModeAxis, Ways, axis_of, check_modes
from simgap.measures.motion import longest_freeze_s, speed
from simgap.measures.smoothness import Ruler, Trace, check_smoothness, ruler_of, trace_of
from simgap.provenance import child_rng
from simgap.rollouts.record import RolloutRecord
from simgap.teachers import Abstain, make_teacher


def teacher_records(env_name: str, ranges: FactorRanges, seeds: Sequence[int]) -> list[RolloutRecord]:
    """Return what the teacher does from the starts of these seeds, without frames; starts from which it abstains are left out.

    Raises:
        UsageError: the env has no teacher.
    """
    env = make_env(env_name, render=False)
    records = []
    for seed in seeds:
        values = env.factor_space.sample(ranges, child_rng(seed, "factors"))
        obs, info = env.reset(seed=seed, options={"factors": values})
        teacher, rows = make_teacher(env), list[tuple[np.ndarray, np.ndarray]]()
        while "outcome" not in info:
            label = teacher.label()
            if isinstance(label, Abstain):
                break
            rows.append((obs["state"], label))
            obs, _, _, _, info = env.step(label)
        if "outcome" not in info:
            continue
        state, action = (np.stack([r[i] for r in rows]) for i in (0, 1))
        record = RolloutRecord(
            seed=seed,
            outcome=info["outcome"],
            factors=values,
            state=state,
            action=action,
            age=np.zeros(len(rows), dtype=np.float32),
            film={},
            film_steps=(),
            mode=str(info.get("mode", "")),
        )
        records.append(record)
    env.close()
    return records


def check_beside_teacher(
    policy: Sequence[RolloutRecord], teacher: Sequence[RolloutRecord], env_name: str, rng: np.random.Generator
) -> list[CheckResult]:
    """Compare a policy's motion, and its ways of doing the task, with its teacher's.

    Args:
        policy: rollouts with their traces.
        teacher: its episodes from such starts.
        env_name: the env of both.
        rng: of the tests of modes.
    """
    env = make_env(env_name, render=False)
    ours, theirs = (
        [trace_of(r, env.state_spec, env.action_spec) for r in records] for records in (policy, teacher)
    )
    # A teacher's actions are its own at every step: it has no chunks, whatever its record says.
    theirs = [
        Trace(position=t.position, rate_hz=t.rate_hz, action=t.action, is_success=t.is_success)
        for t in theirs
    ]
    found = [check_smoothness(ours, theirs)]
    if len(env.modes) > 1:
        found.append(_modes(policy, teacher, ours, theirs, env.modes, rng))
    env.close()
    return found


def _modes(
    policy: Sequence[RolloutRecord],
    teacher: Sequence[RolloutRecord],
    ours: Sequence[Trace],
    theirs: Sequence[Trace],
    known: Sequence[str],
    rng: np.random.Generator,
) -> CheckResult:
    try:
        axis = axis_of([t.position for t in theirs], [r.mode for r in teacher])
    except (
        UsageError
    ) as error:  # a teacher that takes one way from these starts: nothing was lost, and nothing can be said
        return CheckResult(
            family=Family.POLICY,
            name="ways of doing the task",
            verdict=Verdict.NOT_RUN,
            sentence=str(error),
            n=len(policy),
        )
    ruler = ruler_of(theirs)
    return check_modes(_ways(policy, ours, axis, ruler), _ways(teacher, theirs, axis, ruler), known, rng)


def _ways(records: Sequence[RolloutRecord], traces: Sequence[Trace], axis: ModeAxis, ruler: Ruler) -> Ways:
    frozen = [
        longest_freeze_s(speed(t.position[: ruler.longest], t.rate_hz), ruler.still, t.rate_hz)
        for t in traces
    ]
    return Ways(
        taken=[r.mode for r in records],
        along=np.array([axis.project(t.position) for t in traces]),
        longest_freeze_s=np.array([f for f in frozen if f is not None]),
        successes=sum(r.outcome.is_success for r in records),
    )
