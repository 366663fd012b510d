"""The question to the cameras: do they see what those of the simulator see."""

from __future__ import annotations

from dataclasses import dataclass

from simgap import causes
from simgap.causes import Cause, Family
from simgap.checks.base import Progress, training_assumptions
from simgap.checks.pixels.pose_and_light import check_pixels, first_frames
from simgap.envs import make_env
from simgap.evidence import Evidence, Need, Role
from simgap.findings import CheckResult


@dataclass(frozen=True, kw_only=True, slots=True)
class Cameras:
    """First frames of the trials against the simulator's pictures of the same scenes."""

    id: str = "cameras"
    question: str = "Do the robot's cameras see what the simulator's see of the same scene?"
    family: Family = Family.PIXELS
    needs: frozenset[Need] = frozenset({Need.TRAINING, Need.IN_USE, Need.ENV})
    can_name: tuple[Cause, ...] = (causes.CAMERA_SHIFT, causes.LIGHT_COLOUR, causes.PIXELS_OTHER)

    def assumes(self, evidence: Evidence) -> frozenset[str]:
        """Return everything of the simulator that renders the pictures compared with."""
        return training_assumptions(evidence)

    def run(self, evidence: Evidence, progress: Progress | None = None) -> CheckResult:
        """Render, compare and fit."""
        assert evidence.training is not None
        spec, log = evidence.training.spec, evidence.log(Role.IN_USE)
        env = make_env(evidence.env, image_size=spec.image_size[0])
        try:
            return check_pixels(
                env,
                {camera: first_frames(log, camera) for camera in spec.cameras},
                seed=evidence.seed,
                workers=evidence.workers,
            )
        finally:
            env.close()


CHECK = Cameras()
