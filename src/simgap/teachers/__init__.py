"""Teachers by env."""

from __future__ import annotations

from simgap.envs.base import TaskEnv
from simgap.envs.wrap import WrappedEnv
from simgap.errors import UsageError
from simgap.teachers.base import Abstain, Label, Teacher


def make_teacher(env: TaskEnv) -> Teacher:
    """Return the solver of an env.

    Raises:
        UsageError: the env has no teacher.
    """
    if env.name == "arm-pick":
        from simgap.envs.arm.pick import ArmPickEnv
        from simgap.teachers.arm_pick import ArmPickTeacher

        assert isinstance(env, ArmPickEnv)
        return ArmPickTeacher(env)
    if env.name == "arm-place":
        from simgap.envs.arm.place import ArmPlaceEnv
        from simgap.teachers.arm_place import ArmPlaceTeacher

        assert isinstance(env, ArmPlaceEnv)
        return ArmPlaceTeacher(env)
    if env.name == "arm-pass":
        from simgap.envs.arm.passing import ArmPassEnv
        from simgap.teachers.arm_pass import ArmPassTeacher

        assert isinstance(env, ArmPassEnv)
        return ArmPassTeacher(env)
    if env.name == "car-goal":
        from simgap.envs.car.goal import CarGoalEnv
        from simgap.teachers.car_goal import CarGoalTeacher

        assert isinstance(env, CarGoalEnv)
        return CarGoalTeacher(env)
    if isinstance(env, WrappedEnv):
        made: Teacher = env.make_teacher()
        return made
    raise UsageError(
        f"env {env.name!r} has no teacher; record episodes and train on them: simgap train FOLDER"
    )


__all__ = ["Abstain", "Label", "Teacher", "make_teacher"]
