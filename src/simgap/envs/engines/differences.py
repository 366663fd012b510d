"""Where the second engine is known to differ, with the size: what no conformance test may pass over in silence."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One declared difference between Drake and MuJoCo."""

    name: str
    envs: tuple[str, ...]
    """Where it shows."""
    mujoco: str
    drake: str
    measure: str = ""
    """Name of the conformance test that measures it; empty for a difference of kind that no single number shows."""
    size: float = 0.0
    """Largest difference allowed in that test, in its unit; anything beyond is a finding."""
    matters: str = ""
    """To what in the task."""


_ARM = ("arm-pick", "arm-place", "arm-pass")
_CAR = ("car-goal",)
_ALL = (*_ARM, *_CAR)

DECLARED: tuple[Difference, ...] = (
    Difference(
        name="friction of two materials",
        envs=_ARM,
        mujoco="takes the larger of the two coefficients",
        drake="takes 2 a b / (a + b)",
        measure="slide: unlike frictions",
        size=2.3,
        matters=(
            "cubes on the table when the factor friction is not 1: at 0.4 the cube slides at 0.57 instead of"
            " 1; jaws and cubes have the same coefficient"
        ),
    ),
    Difference(
        name="turning friction",
        envs=_ARM,
        mujoco=(
            "a resting face touches in its four corners, each with a torsional coefficient of its own (condim"
            " 4): brakes a spin too strongly"
        ),
        drake=(
            "a face touches in a patch whose pressure is integrated over its polygons, and no coefficient is"
            " added: 13 % below theory"
        ),
        measure="spin: cube",
        size=400.0,
        matters="how a cube turns when one jaw pushes it off centre",
    ),
    Difference(
        name="sliding on a slope",
        envs=_ALL,
        mujoco="softens the friction cone: 3.5 % more acceleration than theory",
        drake="gives theory's value",
        measure="bench: sliding down a slope",
        size=0.1,
        matters="sliding distances, by a few per cent",
    ),
    Difference(
        name="sliding wheels",
        envs=_CAR,
        mujoco=(
            "a car that slides on locked wheels hops by millimetres, and brakes 10 % less than friction times"
            " weight"
        ),
        drake="slides, and gives theory's value",
        measure="slide: locked wheels",
        size=0.45,
        matters="braking at the limit of grip; the task's own speeds stay far below it",
    ),
    Difference(
        name="pushed cone",
        envs=_CAR,
        mujoco=(
            "the foot of a cone that is pushed chatters: the car is 23 % slower than motors, drag and"
            " friction make it"
        ),
        drake="slides without a chatter, 10 % slower than theory",
        measure="push: cone",
        size=0.06,
        matters="how far a cone is moved that was run into, which is a failure in either engine",
    ),
    Difference(
        name="softness of contact",
        envs=_ALL,
        mujoco=(
            "springs with a time constant of 10 ms (arm) and 20 ms (car): things sink in by their own"
            " inertia's measure"
        ),
        drake=(
            "loose things are hydroelastic, of 0.5 MPa, robots and furniture rigid; 20 kN/m where a round"
            " shape touches"
        ),
        matters="the opening at which jaws come to rest on a cube (1 % of the gripper), and impacts",
    ),
    Difference(
        name="normal force in friction",
        envs=_ALL,
        mujoco="normal and friction forces solved for together, in a convex problem",
        drake=(
            "friction bounded by the normal force of the step before (lagged), regularised below 1 mm/s of"
            " slip"
        ),
        matters="impacts, and creep of at most 1 mm/s in what should stick",
    ),
    Difference(
        name="time step and integration of servos",
        envs=_ALL,
        mujoco="2.5 ms (arm) and 5 ms (car); servo stiffness explicit, damping implicit",
        drake=(
            "5 ms and 10 ms; servo stiffness, damping and torque limits inside the contact solver's implicit"
            " step"
        ),
        matters="rise times, by half of Drake's step",
    ),
    Difference(
        name="sleep",
        envs=_ALL,
        mujoco=(
            "on the table everything is always in the solver; the car's cones sleep until they are touched"
        ),
        drake="cubes and cones at rest for 0.15 s are held until something that moves is within 3 cm",
        matters="creep of things at rest; nothing that a robot does",
    ),
    Difference(
        name="joint limits",
        envs=_ARM,
        mujoco="soft: gives way by 0.2 to 0.4 deg under the servo's full torque",
        drake="hard",
        matters="commands beyond a limit",
    ),
)
"""Everything known; the tests fail on what is not listed here, and on what is listed and no longer there."""


def declared_differences(env: str | None = None) -> tuple[Difference, ...]:
    """Return the declared differences, of one env or of all."""
    return tuple(d for d in DECLARED if env is None or env in d.envs)
