"""Envs of other people behind simgap's contract; the first one with a teacher.

    simgap envs add examples.wrapped_envs:slide
    simgap envs check slide
    simgap generate slide -n 200

``slide`` needs nothing else. The other two need their packages (``pip install gym-pusht``, ``pip install
gymnasium-robotics``) and have no teacher: their episodes have to be recorded. gym-aloha is not among them: it
pins mujoco < 3.9, and simgap runs on MuJoCo 4.

Adding an env is trusting its file: simgap runs it whenever the env is used, as long as the file stays what it
was.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from simgap.conventions import ActionSpec, Dimension, Reference, StateSpec, Unit
from simgap.envs.base import TaskEnv
from simgap.envs.factors import FactorRanges
from simgap.envs.wrap import RENDERED, WrapMap, WrappedEnv, wrap
from simgap.teachers.base import Abstain, Label


class Slide(gymnasium.Env[Any, Any]):
    """Somebody's env: a dot on a line, to be moved onto a mark."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012  gymnasium's own convention
    render_mode = "rgb_array"

    def __init__(self) -> None:
        """Make it."""
        self.action_space = spaces.Box(-0.1, 0.1, (1,), np.float32)
        self.observation_space = spaces.Dict({"place": spaces.Box(-2.0, 2.0, (1,), np.float32)})
        self.place = self.mark = 0.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Put the dot on the left and draw a mark."""
        super().reset(seed=seed, options=options)
        self.place, self.mark = 0.0, float(self.np_random.uniform(0.3, 0.9))
        return self._seen(), {}

    def step(self, action: NDArray[np.float32]) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Move the dot."""
        self.place += float(action[0])
        is_there = abs(self.place - self.mark) < 0.02
        return self._seen(), float(is_there), is_there, False, {"is_success": is_there}

    def render(self) -> Any:
        """Draw dot and mark."""
        image = np.full((96, 96, 3), 40, np.uint8)
        for where, colour in ((self.mark, (220, 60, 60)), (self.place, (240, 240, 240))):
            column = int(np.clip(where, 0.0, 0.97) * 96)
            image[32:64, column : column + 3] = colour
        return image

    def _seen(self) -> dict[str, Any]:
        return {"place": np.array([self.place], np.float32)}


class SlideTeacher:
    """Its teacher: reads the mark off the env's true state, which a student only sees in the picture.

    ``WrapMap(teacher=SlideTeacher)`` makes it from our env; ``env.inner`` is the wrapped one. It answers in
    the units of ``action_spec``, always the same in the same state, or abstains where it has no plan.
    """

    name = "slide-teacher 1"
    """Goes into the stamp of every dataset: change it with the solver."""

    def __init__(self, env: TaskEnv) -> None:
        """Take the env it will be asked about."""
        assert isinstance(env, WrappedEnv)
        self._env = env.inner.unwrapped

    def label(self) -> Label:
        """Return the action for the env's present state."""
        assert isinstance(self._env, Slide)
        rest = self._env.mark - self._env.place
        if abs(rest) > 3.0:
            return Abstain("off the line")
        return np.array([np.clip(rest, -0.1, 0.1)], dtype=np.float32)


def slide(image_size: int = 96, ranges: FactorRanges | None = None, render: bool = True) -> TaskEnv:
    """Move the dot onto the mark."""
    state = Dimension(name="dot.pos", unit=Unit.METRE, low=-2.0, high=2.0)
    action = Dimension(name="dot.dx", unit=Unit.METRE, low=-0.1, high=0.1, reference=Reference.DELTA)
    mapping = WrapMap(
        name="slide",
        task="move the dot onto the mark",
        cameras={"top": RENDERED},
        state="place",
        state_spec=StateSpec(dimensions=(state,), rate_hz=10.0),
        action_spec=ActionSpec(dimensions=(action,), rate_hz=10.0),
        success="is_success",
        horizon_steps=60,
        teacher=SlideTeacher,
    )
    return wrap(Slide, mapping, image_size=image_size, ranges=ranges, render=render)


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
        state_spec=StateSpec(
            dimensions=tuple(Dimension(name=f"pusher.{n}", **d) for n, d in zip(names, table, strict=True)),
            rate_hz=10.0,
        ),
        action_spec=ActionSpec(
            dimensions=tuple(Dimension(name=f"pusher.{n}", **d) for n, d in zip(names, table, strict=True)),
            rate_hz=10.0,
        ),
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
        # gymnasium-robotics 1.4.2 asks `joint_type in (mjJNT_HINGE, mjJNT_SLIDE)`, which is False for numpy
        # integers since MuJoCo 4.
        mujoco_utils.mujoco = _with_plain_joint_types(mujoco_utils.mujoco)
    step = {"unit": Unit.NORMALISED, "low": -1.0, "high": 1.0}
    state = [(f"gripper.{n}", Unit.METRE) for n in "xyz"] + [
        ("finger_right.pos", Unit.METRE),
        ("finger_left.pos", Unit.METRE),
    ]
    mapping = WrapMap(
        name="fetch-pick-and-place",
        task="put the block at the red mark",
        cameras={"front": RENDERED},
        state="observation",
        state_columns=(0, 1, 2, 9, 10),  # the other entries are where the block is: privileged
        state_spec=StateSpec(
            dimensions=tuple(Dimension(name=n, unit=u, low=-2.0, high=2.0) for n, u in state), rate_hz=25.0
        ),
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
        return gymnasium.make(
            "FetchPickAndPlace-v4",
            render_mode="rgb_array",
            width=image_size,
            height=image_size,
            disable_env_checker=True,
        )

    return wrap(make, mapping, image_size=image_size, ranges=ranges, render=render)


def _with_plain_joint_types(module: Any) -> SimpleNamespace:
    names = {name: getattr(module, name) for name in dir(module) if not name.startswith("__")}
    kinds = {
        name: int(getattr(module.mjtJoint, name))
        for name in ("mjJNT_FREE", "mjJNT_BALL", "mjJNT_SLIDE", "mjJNT_HINGE")
    }
    return SimpleNamespace(**(names | {"mjtJoint": SimpleNamespace(**kinds)}))
