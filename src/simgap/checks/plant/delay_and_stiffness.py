"""The question to the plant: does it move as soon and as far as it did in training."""

from __future__ import annotations

from dataclasses import dataclass

from simgap import causes
from simgap.causes import Cause, Family
from simgap.checks.base import Progress, training_assumptions
from simgap.checks.plant.servos import check_plant
from simgap.checks.replay.motions import motions_of, usable_replays
from simgap.evidence import Evidence, Need, Role
from simgap.findings import CheckResult


@dataclass(frozen=True, kw_only=True, slots=True)
class DelayAndStiffness:
    """Command delay and servo stiffness, from the same replays."""

    id: str = "delay_and_stiffness"
    question: str = "Do commands take effect as soon, and do servos close as fast, as in training?"
    family: Family = Family.PLANT
    needs: frozenset[Need] = frozenset({Need.TRAINING, Need.REPLAYS})
    can_name: tuple[Cause, ...] = (causes.ACTION_LATENCY, causes.PLANT_GAIN)

    def assumes(self, evidence: Evidence) -> frozenset[str]:
        """Return everything of what the actions were logged in."""
        return training_assumptions(evidence)

    def run(self, evidence: Evidence, progress: Progress | None = None) -> CheckResult:
        """Fit delay and stiffness of both and compare."""
        assert evidence.training is not None
        replays = evidence.log(Role.REPLAY)
        usable = usable_replays(replays)
        ours, theirs = motions_of(replays, usable), motions_of(evidence.training, usable)
        return check_plant(ours, theirs, evidence.training.spec.action_spec)


CHECK = DelayAndStiffness()
