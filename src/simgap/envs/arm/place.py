"""``arm-place``: pick up the named cube and drop it into the bin of its colour."""

from __future__ import annotations

from typing import Any

from simgap.envs.arm.bins import add_bin
from simgap.envs.arm.env import RATE_HZ, ArmEnv, arm_settings
from simgap.envs.arm.judge import PLACE_JUDGE, PLACE_MODES, PlaceJudge
from simgap.envs.arm.place_factors import (
    PLACE_FACTORS,
    PLACE_PLACEMENT,
    PLACE_PRESETS,
    goal_and_other_bin,
    instruction,
    place_layout,
)
from simgap.envs.arm.scene import ArmScene, Cube
from simgap.envs.arm.world import ArmWorld
from simgap.envs.engines.base import EngineMaker
from simgap.envs.engines.mujoco import MujocoEngine
from simgap.envs.factors import FactorRanges, FactorValues
from simgap.envs.looks import hue_rgb
from simgap.envs.rendering import FrameRenderer

_CUBES = ((0.85, 0.12, 0.10), (0.12, 0.30, 0.85))
_BINS = ((0.50, 0.09, 0.08), (0.08, 0.18, 0.50))
"""Darker than the cubes: printed of the same filament, seen from above in their own shade."""


def _add(spec: Any) -> None:
    add_bin(spec, "goal_bin", 1.0)
    add_bin(spec, "other_bin", -1.0)


def _apply(world: ArmWorld, values: FactorValues) -> None:
    """Stand the bins where they belong and give cubes and bins the colours that the request makes them have."""
    named = int(values["named"])
    rgba = world.model.geom_rgba
    rgba[world.cube_geom[0], :3] = hue_rgb(_CUBES[named], values["target_hue_deg"])
    rgba[world.cube_geom[1], :3] = hue_rgb(_CUBES[1 - named], values["distractor_hue_deg"])
    for name, place, colour in zip(
        ("goal_bin", "other_bin"), goal_and_other_bin(values), (named, 1 - named), strict=True
    ):
        world.place_fixture(name, place.x, place.y)
        rgba[world.fixture_geoms[name], :3] = hue_rgb(_BINS[colour], values["bin_hue_deg"])


PLACE_SCENE = ArmScene(
    cubes=(
        Cube(name="target", rgb=_CUBES[0], role="target", hue_factor="target_hue_deg"),
        Cube(name="distractor1", rgb=_CUBES[1], role="distractor", hue_factor="distractor_hue_deg"),
        Cube(name="distractor2", rgb=(0.90, 0.75, 0.10), role="distractor", hue_factor="distractor_hue_deg"),
    ),
    layout=place_layout,
    add=_add,
    fixtures=(("goal_bin", "goal"), ("other_bin", "distractor")),
    apply=_apply,
)
"""The named cube, the cube of the other bin, a yellow one, and the two bins."""


class ArmPlaceEnv(ArmEnv):
    """An SO-101-class arm, three cubes and two bins: which cube, and which bin."""

    def __init__(
        self,
        *,
        image_size: int = 96,
        ranges: FactorRanges | None = None,
        renderer: FrameRenderer | None = None,
        horizon_steps: int = 120,
        render: bool = True,
        engine: EngineMaker = MujocoEngine,
    ) -> None:
        """Build the model; see :class:`~simgap.envs.arm.env.ArmEnv`."""
        settings = arm_settings(
            name="arm-place",
            task=instruction(PLACE_FACTORS.nominal()),
            horizon_steps=horizon_steps,
            failure_modes=PLACE_MODES,
            judge=PLACE_JUDGE,
            factor_space=PLACE_FACTORS,
            presets=PLACE_PRESETS,
            placement_factors=PLACE_PLACEMENT,
            instruction=instruction,
        )
        super().__init__(
            settings,
            PLACE_SCENE,
            PlaceJudge,
            image_size=image_size,
            ranges=ranges,
            renderer=renderer,
            render=render,
            engine=engine,
        )


__all__ = ["RATE_HZ", "ArmPlaceEnv"]
