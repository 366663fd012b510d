"""Two envs of other people behind simgap's contract.

    simgap envs add examples.wrapped_envs:pusht
    simgap envs check pusht

Both need their packages: ``pip install gym-pusht`` and ``pip install gymnasium-robotics``. gym-aloha is not among them: it pins
mujoco < 3.9, and simgap runs on MuJoCo 4.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import gymnasium

from simgap.conventions import ActionSpec, Dimension, Reference, StateSpec, Unit
from simgap.envs.base import TaskEnv
from simgap.envs.factors import FactorRanges
from simgap.envs.wrap import RENDERED, WrapMap, wrap


def pusht(image_size: int = 96, ranges: FactorRanges | None = None, render: bool = True) -> TaskEnv:
    """Push the T onto its mark; positions in pixels of a 512 px table."""
    import gym_pusht  # noqa: F401  registers the env

    names = ("x", "y")
    table = [{"unit": Unit.UNKNOWN, "low": 0.0, "high": 512.0}] * 2
    mapping = WrapMap(
        name="pusht",
        task="push the T onto its mark",
        cameras={"top": "pixels"},
        state="agent_pos",
        state_spec=StateSpec(dimensions=tuple(Dimension(name=f"pusher.{n}", **d) for n, d in zip(names, table, strict=True)), rate_hz=10.0),
        action_spec=ActionSpec(dimensions=tuple(Dimension(name=f"pusher.{n}", **d) for n, d in zip(names, table, strict=True)), rate_hz=10.0),
        success="is_success",
        horizon_steps=300,
    )
    return wrap(
        lambda: gymnasium.make("gym_pusht/PushT-v0", obs_type="pixels_agent_pos", disable_env_checker=True),
        mapping,
        image_size=image_size,
        ranges=ranges,
        render=render,
    )


def fetch(image_size: int = 96, ranges: FactorRanges | None = None, render: bool = True) -> TaskEnv:
    """Fetch picks up a block and holds it at a mark: normalised steps of the gripper, its own readings as state."""
    from gymnasium_robotics.utils import mujoco_utils

    if not isinstance(mujoco_utils.mujoco, SimpleNamespace):
        # gymnasium-robotics 1.4.2 asks `joint_type in (mjJNT_HINGE, mjJNT_SLIDE)`, which is False for numpy integers since MuJoCo 4.
        mujoco_utils.mujoco = _with_plain_joint_types(mujoco_utils.mujoco)
    step = {"unit": Unit.NORMALISED, "low": -1.0, "high": 1.0}
    state = [(f"gripper.{n}", Unit.METRE) for n in "xyz"] + [("finger_right.pos", Unit.METRE), ("finger_left.pos", Unit.METRE)]
    mapping = WrapMap(
        name="fetch-pick-and-place",
        task="put the block at the red mark",
        cameras={"front": RENDERED},
        state="observation",
        state_columns=(0, 1, 2, 9, 10),  # the other entries are where the block is: privileged
        state_spec=StateSpec(dimensions=tuple(Dimension(name=n, unit=u, low=-2.0, high=2.0) for n, u in state), rate_hz=25.0),
        action_spec=ActionSpec(
            dimensions=(
                *(Dimension(name=f"gripper.d{n}", reference=Reference.DELTA, **step) for n in "xyz"),
                Dimension(name="fingers.vel", is_gripper=True, **step),
            ),
            rate_hz=25.0,
        ),
        success="is_success",
        horizon_steps=50,
    )

    def make() -> gymnasium.Env[Any, Any]:
        import gymnasium_robotics

        gymnasium.register_envs(gymnasium_robotics)
        return gymnasium.make("FetchPickAndPlace-v4", render_mode="rgb_array", width=image_size, height=image_size, disable_env_checker=True)

    return wrap(make, mapping, image_size=image_size, ranges=ranges, render=render)


def _with_plain_joint_types(module: Any) -> SimpleNamespace:
    names = {name: getattr(module, name) for name in dir(module) if not name.startswith("__")}
    kinds = {name: int(getattr(module.mjtJoint, name)) for name in ("mjJNT_FREE", "mjJNT_BALL", "mjJNT_SLIDE", "mjJNT_HINGE")}
    return SimpleNamespace(**(names | {"mjtJoint": SimpleNamespace(**kinds)}))
