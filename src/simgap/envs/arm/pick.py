"""``arm-pick``: pick up the red cube among others."""

from __future__ import annotations

from simgap.envs.arm.env import RATE_HZ, SETTLE_STEPS, ArmEnv, arm_settings
from simgap.envs.arm.factors import ARM_FACTORS, ARM_PRESETS, PLACEMENT_FACTORS
from simgap.envs.arm.judge import PICK_JUDGE, PICK_MODES, PickJudge
from simgap.envs.arm.scene import PICK_SCENE
from simgap.envs.engines.base import EngineMaker
from simgap.envs.engines.mujoco import MujocoEngine
from simgap.envs.factors import FactorRanges
from simgap.envs.rendering import FrameRenderer


class ArmPickEnv(ArmEnv):
    """An SO-101-class arm, a red target cube and two distractors on a table."""

    def __init__(
        self,
        *,
        image_size: int = 96,
        ranges: FactorRanges | None = None,
        renderer: FrameRenderer | None = None,
        horizon_steps: int = 80,
        render: bool = True,
        engine: EngineMaker = MujocoEngine,
    ) -> None:
        """Build the model; see :class:`~simgap.envs.arm.env.ArmEnv`."""
        settings = arm_settings(
            name="arm-pick",
            task="pick up the red cube",
            horizon_steps=horizon_steps,
            failure_modes=PICK_MODES,
            judge=PICK_JUDGE,
            factor_space=ARM_FACTORS,
            presets=ARM_PRESETS,
            placement_factors=PLACEMENT_FACTORS,
        )
        super().__init__(
            settings,
            PICK_SCENE,
            PickJudge,
            image_size=image_size,
            ranges=ranges,
            renderer=renderer,
            render=render,
            engine=engine,
        )


__all__ = ["RATE_HZ", "SETTLE_STEPS", "ArmPickEnv"]
