"""The question to the replays: do recorded actions do what they did when they were recorded."""

from __future__ import annotations

from dataclasses import dataclass

from simgap import causes
from simgap.causes import Cause, Family
from simgap.checks.base import Progress, training_assumptions
from simgap.checks.replay.clips import clips_of
from simgap.checks.replay.motions import motions_of, usable_replays
from simgap.checks.replay.open_loop import check_replay
from simgap.evidence import Evidence, Need, Role
from simgap.findings import CheckResult
from simgap.provenance import child_rng


@dataclass(frozen=True, kw_only=True, slots=True)
class LoggedActions:
    """Convention and normalisation, by open-loop replay; the policy plays no part."""

    id: str = "logged_actions"
    question: str = "Do logged actions, replayed, move the robot as they did when they were logged?"
    family: Family = Family.REPLAY
    needs: frozenset[Need] = frozenset({Need.TRAINING, Need.REPLAYS})
    can_name: tuple[Cause, ...] = (
        causes.ACTION_SIGN,
        causes.ACTION_SCALE,
        causes.ACTION_CONVENTION,
        causes.JOINT_DEAD,
    )

    def assumes(self, evidence: Evidence) -> frozenset[str]:
        """Return everything of what the actions were logged in."""
        return training_assumptions(evidence)

    def run(self, evidence: Evidence, progress: Progress | None = None) -> CheckResult:
        """Compare joint by joint."""
        assert evidence.training is not None
        replays = evidence.log(Role.REPLAY)
        usable, spec = usable_replays(replays), replays.spec.action_spec
        return check_replay(
            motions_of(replays, usable),
            motions_of(evidence.training, usable),
            spec,
            clips=clips_of(replays, spec),
            rng=child_rng(evidence.seed, "replay bootstrap"),
        )


CHECK = LoggedActions()
